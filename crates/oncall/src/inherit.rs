//! The region as an open descriptor that a server inherits: whoever starts it may become another user before the server is executed
//! (runuser, su, setpriv, a script), and that one may not open the region's file.

use crate::layout::DESCRIPTOR_VARIABLE;
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Where the descriptor's number begins: shells and servers that count on low numbers find these free. Lower ones where the limit of
/// open files is.
const FIRST: [i32; 3] = [512, 64, 3];

/// A region's descriptor to be inherited by servers that this process starts, and by nobody else.
#[derive(Clone, Debug)]
pub struct Inherited {
    descriptor: Arc<OwnedFd>,
    /// What the environment says of it.
    value: String,
}

impl Inherited {
    /// Opens a region's file once more. Best before this program has a second thread: the kernel has the table of open files grow to the
    /// descriptor's number at once then, and after that only when all processors have let go of the old one, some 15 ms later.
    ///
    /// # Errors
    /// It cannot be opened, or no descriptor is left.
    pub fn open(region: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(region)?;
        let metadata = file.metadata()?;
        // Where the limit of open files is lower, there is no such number.
        let moved = |first| match fcntl_dupfd_cloexec(&file, first) {
            Err(Errno::INVAL) => None,
            moved => Some(moved),
        };
        let moved = FIRST.into_iter().find_map(moved);
        let descriptor = moved.unwrap_or(Err(Errno::MFILE))?;
        let value = format!("{}:{}:{}", descriptor.as_raw_fd(), metadata.dev(), metadata.ino());
        Ok(Self {
            descriptor: Arc::new(descriptor),
            value,
        })
    }

    /// What the environment says of it: its number, and the device and the inode by which the library knows that it is still this file.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Has a program inherit it.
    pub fn pass_on(&self, command: &mut Command) {
        command.env(DESCRIPTOR_VARIABLE, &self.value);
        let descriptor = Arc::clone(&self.descriptor);
        let keep_open = move || Ok(fcntl_setfd(descriptor.as_fd(), FdFlags::empty())?);
        // SAFETY: it runs in the forked child, where it makes one system call, takes no lock and allocates nothing. In this process the
        // descriptor is closed in all other programs as before.
        unsafe { command.pre_exec(keep_open) };
    }
}
