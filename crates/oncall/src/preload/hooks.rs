//! The names of libc that the shared object takes over. Each does what libc's does, before or after what the gate does.
//!
//! Only the build of the shared object exports them: in any other program that links this crate they are ordinary functions.

use super::gate::{self, Waited};
use super::layout::{MAGIC, Region, VARIABLE};
use super::sys::{self, PollFd, TimeSpec, call, number};
use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// The next definition of a name: libc's.
struct Next {
    name: &'static [u8],
    /// The symbol's version where an older one under the same name does something else.
    version: Option<&'static [u8]>,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static [u8]) -> Self {
        Self {
            name,
            version: None,
            address: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// One of the condition variables' functions, whose first version had another layout.
    const fn condition(name: &'static [u8]) -> Self {
        let version: &'static [u8] = match () {
            () if cfg!(target_arch = "x86_64") => b"GLIBC_2.3.2\0",
            () => b"GLIBC_2.17\0",
        };
        Self {
            version: Some(version),
            ..Self::new(name)
        }
    }

    fn get(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        // RTLD_NEXT is -1.
        let next = usize::MAX as *mut c_void;
        let name = self.name.as_ptr().cast::<c_char>();
        // SAFETY: names that end with 0.
        let found = unsafe {
            let versioned = match self.version {
                Some(version) => sys::dlvsym(next, name, version.as_ptr().cast()),
                None => core::ptr::null_mut(),
            };
            match versioned.is_null() {
                true => sys::dlsym(next, name),
                false => versioned,
            }
        };
        if found.is_null() {
            // The program could not have been linked without it.
            sys::abort();
        }
        self.address.store(found, Relaxed);
        found
    }
}

/// Calls libc's function of this name and type.
macro_rules! next {
    ($name:literal as $kind:ty, $($argument:expr),*) => {{
        static NEXT: Next = Next::new(concat!($name, "\0").as_bytes());
        next!(@ NEXT, $kind, $($argument),*)
    }};
    (condition $name:literal as $kind:ty, $($argument:expr),*) => {{
        static NEXT: Next = Next::condition(concat!($name, "\0").as_bytes());
        next!(@ NEXT, $kind, $($argument),*)
    }};
    (@ $next:ident, $kind:ty, $($argument:expr),*) => {{
        // SAFETY: the address is that of libc's function of this name, whose type is `$kind` by its manual; the arguments are the
        // caller's own.
        unsafe {
            let function: $kind = core::mem::transmute($next.get());
            function($($argument),*)
        }
    }};
}

fn errno() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *sys::__errno_location() }
}

fn set_errno(error: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *sys::__errno_location() = error };
}

/// A system call's result as libc gives it.
fn result(raw: c_long) -> c_long {
    match raw < 0 {
        true => {
            set_errno(-raw as c_int);
            -1
        }
        false => raw,
    }
}

/// Whether the region was looked for: 0 not yet, 1 it was.
static LOOKED: AtomicU32 = AtomicU32::new(0);
/// The region, mapped and not in use yet.
static MAPPED: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the region that the environment names, when the program is loaded: later it may have given up its rights, or its files.
extern "C" fn load() {
    if LOOKED.swap(1, Relaxed) == 1 {
        return;
    }
    let mut name = [0u8; 32];
    name[..VARIABLE.len()].copy_from_slice(VARIABLE.as_bytes());
    let before = errno();
    // SAFETY: a name and a path that end with 0; a mapping of the region's size of a file that whoever named it made so large, which
    // the header is asked about before anything else.
    unsafe {
        let path = sys::getenv(name.as_ptr().cast());
        if path.is_null() {
            return;
        }
        let fd = call(number::OPEN_AT, [-100, path as c_long, 0x80002, 0, 0, 0]);
        if fd < 0 {
            return;
        }
        let size = size_of::<Region>() as c_long;
        // PROT_READ | PROT_WRITE, MAP_SHARED.
        let at = call(number::MMAP, [0, size, 3, 1, fd, 0]);
        call(number::CLOSE, [fd, 0, 0, 0, 0, 0]);
        if at > 0 {
            let region = at as *mut Region;
            if (*region).magic.load(Acquire) == MAGIC {
                (*region).loaded.fetch_add(1, Relaxed);
                MAPPED.store(region, Release);
            }
        }
    }
    set_errno(before);
}

#[cfg(oncall_preload)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

/// Where a server has taken its first connection: from now on it is the one whose connections are on call.
static BEGUN: AtomicU32 = AtomicU32::new(0);

fn begun() -> Option<&'static Region> {
    if BEGUN.load(Acquire) == 2 {
        return gate::region();
    }
    // SAFETY: mapped for good.
    let region: &'static Region = unsafe { MAPPED.load(Acquire).as_ref() }?;
    if BEGUN.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return None;
    }
    let is_ours = region
        .owner
        .compare_exchange(0, sys::process(), Acquire, Relaxed)
        .is_ok()
        && gate::begin(region);
    BEGUN.store(2, Release);
    gate::region().filter(|_| is_ours)
}

/// The address of a client: IPv4 mapped into IPv6, and its port; `None` where it is no client of a network or a Unix socket.
fn peer(fd: c_int) -> Option<([u64; 2], u32)> {
    let mut address = [0u8; 128];
    let mut length = address.len() as u32;
    // SAFETY: a buffer of the size that is said.
    if unsafe { sys::getpeername(fd, address.as_mut_ptr(), &raw mut length) } != 0 {
        return None;
    }
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&address[at..at + 8]);
        u64::from_be_bytes(bytes)
    };
    let port = u32::from(u16::from_be_bytes([address[2], address[3]]));
    match u16::from_ne_bytes([address[0], address[1]]) {
        1 => Some(([0; 2], 0)),
        2 => Some(([0, 0xffff << 32 | half(4) >> 32], port)),
        10 => Some(([half(8), half(16)], port)),
        _ => None,
    }
}

fn accepted(fd: c_int) -> c_int {
    if fd >= 0 {
        let before = errno();
        if let Some((region, peer)) = begun().zip(peer(fd)) {
            gate::accepted(region, fd, peer);
        }
        set_errno(before);
    }
    fd
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn accept(fd: c_int, address: *mut c_void, length: *mut c_void) -> c_int {
    type Accept = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> c_int;
    accepted(next!("accept" as Accept, fd, address, length))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn accept4(fd: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) -> c_int {
    type Accept4 = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_int) -> c_int;
    accepted(next!("accept4" as Accept4, fd, address, length, flags))
}

type Poll = unsafe extern "C" fn(*mut PollFd, c_ulong, c_int) -> c_int;
type Ppoll = unsafe extern "C" fn(*mut PollFd, c_ulong, *const TimeSpec, *const c_void) -> c_int;
use core::ffi::c_ulong;

/// A wait for one descriptor, if it is a client's: what became of it.
fn wait(
    fds: *mut PollFd,
    count: c_ulong,
    patience: Option<u64>,
    ordinarily: impl FnOnce() -> c_int,
) -> c_int {
    if count != 1 || patience == Some(0) {
        return match patience {
            Some(0) => ordinarily(),
            _ => gate::blocking(ordinarily),
        };
    }
    // SAFETY: the caller's one record.
    let poll = unsafe { &mut *fds };
    let client = match poll.events & sys::POLLIN {
        0 => None,
        _ => gate::connection(poll.fd),
    };
    let Some((region, place)) = client else {
        return gate::blocking(ordinarily);
    };
    let before = errno();
    match gate::wait(region, place, poll, patience) {
        Waited::As(raw) => {
            set_errno(before);
            result(raw) as c_int
        }
        Waited::Ordinarily => {
            set_errno(before);
            let ready = gate::blocking(ordinarily);
            if ready > 0 {
                gate::came(region, place);
            }
            ready
        }
    }
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn poll(fds: *mut PollFd, count: c_ulong, milliseconds: c_int) -> c_int {
    let patience = u64::try_from(milliseconds).ok().map(|ms| ms * 1_000_000);
    wait(fds, count, patience, || {
        next!("poll" as Poll, fds, count, milliseconds)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn ppoll(fds: *mut PollFd, count: c_ulong, time: *const TimeSpec, mask: *const c_void) -> c_int {
    let ordinarily = || next!("ppoll" as Ppoll, fds, count, time, mask);
    if !mask.is_null() {
        // Which signals end it is between the caller and the kernel.
        return gate::blocking(ordinarily);
    }
    // SAFETY: the caller's, or null.
    let time = unsafe { time.as_ref() };
    let patience =
        time.map(|time| (time.seconds as u64).saturating_mul(1_000_000_000) + time.nanoseconds as u64);
    wait(fds, count, patience, ordinarily)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn __poll_chk(fds: *mut PollFd, count: c_ulong, milliseconds: c_int, size: usize) -> c_int {
    type Checked = unsafe extern "C" fn(*mut PollFd, c_ulong, c_int, usize) -> c_int;
    match size / size_of::<PollFd>() < count as usize {
        // libc ends the program.
        true => next!("__poll_chk" as Checked, fds, count, milliseconds, size),
        false => poll(fds, count, milliseconds),
    }
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize {
    type Recv = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> isize;
    if flags & sys::MSG_DONTWAIT != 0 && gate::is_answered(fd) {
        set_errno(sys::EAGAIN as c_int);
        return -1;
    }
    let read = next!("recv" as Recv, fd, buffer, length, flags);
    // MSG_PEEK is 2.
    if read > 0 && flags & 2 == 0 {
        gate::received(fd);
    }
    read
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn __recv_chk(fd: c_int, buffer: *mut c_void, length: usize, size: usize, flags: c_int) -> isize {
    type Checked = unsafe extern "C" fn(c_int, *mut c_void, usize, usize, c_int) -> isize;
    match size < length {
        // libc ends the program.
        true => next!("__recv_chk" as Checked, fd, buffer, length, size, flags),
        false => recv(fd, buffer, length, flags),
    }
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize {
    type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
    gate::sending(fd);
    next!("send" as Send, fd, buffer, length, flags)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    to: *const c_void,
    to_length: u32,
) -> isize {
    type SendTo = unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const c_void, u32) -> isize;
    gate::sending(fd);
    next!("sendto" as SendTo, fd, buffer, length, flags, to, to_length)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sendmsg(fd: c_int, message: *const c_void, flags: c_int) -> isize {
    type SendMessage = unsafe extern "C" fn(c_int, *const c_void, c_int) -> isize;
    gate::sending(fd);
    next!("sendmsg" as SendMessage, fd, message, flags)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize {
    type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
    gate::sending(fd);
    next!("write" as Write, fd, buffer, length)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn writev(fd: c_int, parts: *const c_void, count: c_int) -> isize {
    type WriteParts = unsafe extern "C" fn(c_int, *const c_void, c_int) -> isize;
    gate::sending(fd);
    next!("writev" as WriteParts, fd, parts, count)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn close(fd: c_int) -> c_int {
    type Close = unsafe extern "C" fn(c_int) -> c_int;
    gate::forget(fd);
    next!("close" as Close, fd)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    type Dup2 = unsafe extern "C" fn(c_int, c_int) -> c_int;
    if old != new {
        gate::forget(new);
    }
    next!("dup2" as Dup2, old, new)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    type Dup3 = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    gate::forget(new);
    next!("dup3" as Dup3, old, new, flags)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int {
    type EpollControl = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void) -> c_int;
    if operation == sys::EPOLL_CTL_ADD {
        gate::watched_by_server(fd);
    }
    next!("epoll_ctl" as EpollControl, epoll, operation, fd, event)
}

type Condition = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type TimedCondition = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void) -> c_int;
type ClockCondition = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *const c_void) -> c_int;

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int {
    gate::blocking(|| next!(condition "pthread_cond_wait" as Condition, condition, mutex))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pthread_cond_timedwait(
    condition: *mut c_void,
    mutex: *mut c_void,
    until: *const c_void,
) -> c_int {
    gate::blocking(|| next!(condition "pthread_cond_timedwait" as TimedCondition, condition, mutex, until))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pthread_cond_clockwait(
    condition: *mut c_void,
    mutex: *mut c_void,
    clock: c_int,
    until: *const c_void,
) -> c_int {
    gate::blocking(|| {
        next!(
            "pthread_cond_clockwait" as ClockCondition,
            condition,
            mutex,
            clock,
            until
        )
    })
}

/// syscall(2), which is variadic: on the processors that are supported its arguments are where those of fixed ones are.
#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn syscall(
    which: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    type System = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
    let ordinarily = || next!("syscall" as System, which, a, b, c, d, e, f);
    // FUTEX_WAIT, FUTEX_LOCK_PI and FUTEX_WAIT_BITSET, private or not, by any clock.
    match which == number::FUTEX && matches!(b & 127, 0 | 6 | 9) {
        true => gate::blocking(ordinarily),
        false => ordinarily(),
    }
}

type Sync = unsafe extern "C" fn(c_int) -> c_int;

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn fsync(fd: c_int) -> c_int {
    gate::blocking(|| next!("fsync" as Sync, fd))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    gate::blocking(|| next!("fdatasync" as Sync, fd))
}

/// pread(2): what the page cache has is read with the slot, what is on the disk without.
#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pread64(fd: c_int, buffer: *mut c_void, length: usize, at: i64) -> isize {
    type Read = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
    if gate::held().is_some() {
        let part = [buffer as c_long, length as c_long];
        // RWF_NOWAIT is 8. SAFETY: the caller's buffer of the length that it says.
        let read = unsafe {
            call(
                number::PREADV2,
                [c_long::from(fd), part.as_ptr() as c_long, 1, at as c_long, 0, 8],
            )
        };
        if usize::try_from(read).is_ok_and(|read| read == length) {
            return read as isize;
        }
    }
    gate::blocking(|| next!("pread64" as Read, fd, buffer, length, at))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn nanosleep(time: *const TimeSpec, left: *mut TimeSpec) -> c_int {
    type Sleep = unsafe extern "C" fn(*const TimeSpec, *mut TimeSpec) -> c_int;
    gate::blocking(|| next!("nanosleep" as Sleep, time, left))
}
