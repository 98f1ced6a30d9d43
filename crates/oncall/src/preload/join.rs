//! How the library finds the region: by a descriptor that the program inherited, or by the file's name.
//!
//! The descriptor is what a server has that is executed as another user than who made the region, and may not open its file. Whatever
//! is executed on the way to it (a shell, runuser) hands the descriptor on. The server itself does not: from where it listens on, or its
//! first client came, what it starts gets no descriptor.

use super::layout::{DESCRIPTOR_VARIABLE, MAGIC, Region, VARIABLE};
use super::sys::{self, File, call, number};
use super::table;
use core::ffi::{CStr, c_int, c_long};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicI32, AtomicU64};

/// The descriptor by which the region was found, as long as it may be handed on; -1 is none.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Maps the region that the environment names, by whichever of both can be had.
pub fn join() {
    if let Some(region) = by_descriptor().or_else(by_name) {
        region.loaded.fetch_add(1, Relaxed);
        table::map(core::ptr::from_ref(region).cast_mut());
    }
}

/// The program serves: from now on the descriptor is closed in what it starts.
pub fn arrived() {
    let fd = DESCRIPTOR.load(Relaxed);
    // A child of vfork has our memory, and descriptors of its own.
    if fd < 0 || table::is_borrowed() || DESCRIPTOR.swap(-1, Relaxed) < 0 {
        return;
    }
    // The program may have closed it, and opened something else under its number.
    let is_ours = sys::file(fd)
        .is_some_and(|file| file.device == DEVICE.load(Relaxed) && file.inode == INODE.load(Relaxed));
    if is_ours {
        sys::close_on_exec(fd);
    }
}

/// A variable of the environment.
fn variable(name: &str) -> Option<&'static CStr> {
    let mut bytes = [0u8; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: a name that ends with 0. What it says is the environment's, which nobody changes before the program's own code runs.
    unsafe {
        let value = sys::getenv(bytes.as_ptr().cast());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

fn by_descriptor() -> Option<&'static Region> {
    let (fd, device, inode) = described(variable(DESCRIPTOR_VARIABLE)?.to_bytes())?;
    let file = sys::file(fd)?;
    if (file.device, file.inode) != (device, inode) {
        return None;
    }
    let region = map(fd, file)?;
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
    DESCRIPTOR.store(fd, Relaxed);
    Some(region)
}

/// What the environment says of a descriptor: its number, the device and the inode.
fn described(text: &[u8]) -> Option<(c_int, u64, u64)> {
    let mut parts = core::str::from_utf8(text).ok()?.split(':');
    let all = (
        parts.next()?.parse::<c_int>().ok().filter(|fd| *fd >= 0)?,
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    );
    parts.next().is_none().then_some(all)
}

fn by_name() -> Option<&'static Region> {
    let path = variable(VARIABLE)?;
    // SAFETY: a path that ends with 0. O_RDWR | O_CLOEXEC, relative to the working directory.
    let fd = unsafe { call(number::OPEN_AT, [-100, path.as_ptr() as c_long, 0x80002, 0, 0, 0]) } as c_int;
    if fd < 0 {
        return None;
    }
    let region = sys::file(fd).and_then(|file| map(fd, file));
    // SAFETY: ours, and known to nobody else.
    unsafe { call(number::CLOSE, [c_long::from(fd), 0, 0, 0, 0, 0]) };
    region
}

/// Maps a file that is a region.
fn map(fd: c_int, file: File) -> Option<&'static Region> {
    let size = size_of::<Region>();
    if file.size < size as u64 {
        return None;
    }
    // SAFETY: a new mapping of a file that has so many bytes; PROT_READ | PROT_WRITE, MAP_SHARED.
    let at = unsafe { call(number::MMAP, [0, size as c_long, 3, 1, c_long::from(fd), 0]) };
    // SAFETY: mapped for good; each field is an atomic for which every value is one.
    let region = (at > 0).then(|| unsafe { &*(at as *const Region) })?;
    (region.magic.load(Acquire) == MAGIC).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_described_by_three_numbers_and_nothing_else() {
        assert_eq!(
            described(b"512:64768:18446744073709551615"),
            Some((512, 64768, u64::MAX))
        );
        assert_eq!(described(b"0:0:1"), Some((0, 0, 1)));
        let none: [&[u8]; 9] = [
            b"",
            b"512",
            b"512:1",
            b"512:1:2:3",
            b"-1:1:2",
            b"512:-1:2",
            b"512:1:x",
            b"4294967808:1:2",
            b"512:1:\xff",
        ];
        for text in none {
            assert_eq!(described(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_file_is_known_by_its_device_inode_and_size() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::tempfile().unwrap();
        file.set_len(12_345).unwrap();
        let metadata = file.metadata().unwrap();
        let wanted = File {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: 12_345,
        };
        assert_eq!(sys::file(file.as_raw_fd()), Some(wanted));
        assert_eq!(sys::file(-1), None);
    }

    #[test]
    fn a_file_that_is_no_region_is_not_mapped() {
        use std::os::fd::AsRawFd;
        let file = tempfile::tempfile().unwrap();
        for size in [0, 4096, size_of::<Region>() as u64] {
            file.set_len(size).unwrap();
            let fd = file.as_raw_fd();
            assert!(map(fd, sys::file(fd).unwrap()).is_none(), "{size}");
        }
    }
}
