//! System calls without libc, whose names the library has taken over, and the few functions of libc that it uses.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// poll(2)'s record of one descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PollFd {
    pub fd: c_int,
    pub events: i16,
    pub revents: i16,
}

/// Seconds and nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TimeSpec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl TimeSpec {
    pub const fn of(nanoseconds: u64) -> Self {
        Self {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as i64,
        }
    }
}

/// epoll(7)'s event; packed on x86-64 alone.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy)]
pub struct EpollEvent {
    pub events: u32,
    pub data: u64,
}

const CLOCK_REALTIME: c_int = 0;
const CLOCK_MONOTONIC: c_int = 1;
pub const POLLIN: i16 = 1;
pub const POLLRDHUP: i16 = 0x2000;
pub const ESRCH: c_long = 3;
pub const EINTR: c_long = 4;
pub const EAGAIN: c_long = 11;
pub const ETIMEDOUT: c_long = 110;
pub const EBADF: c_int = 9;
pub const ENOTSOCK: c_int = 88;
pub const EBUSY: c_int = 16;
pub const EOWNERDEAD: c_int = 130;
pub const ENOTRECOVERABLE: c_int = 131;
pub const MSG_PEEK: c_int = 0x2;
pub const MSG_DONTWAIT: c_int = 0x40;
pub const EPOLL_CTL_ADD: c_int = 1;
pub const EPOLL_CTL_DEL: c_int = 2;
pub const EPOLL_CTL_MOD: c_int = 3;
pub const EPOLLET: u32 = 1 << 31;

#[cfg(target_arch = "x86_64")]
pub mod number {
    use core::ffi::c_long;
    pub const READ: c_long = 0;
    pub const OPEN_AT: c_long = 257;
    pub const CLOSE: c_long = 3;
    pub const FSTAT: c_long = 5;
    pub const MMAP: c_long = 9;
    pub const PREAD: c_long = 17;
    pub const GETPID: c_long = 39;
    pub const PIDFD_OPEN: c_long = 434;
    pub const GETSOCKOPT: c_long = 55;
    pub const GETTID: c_long = 186;
    pub const SCHED_SETSCHEDULER: c_long = 144;
    pub const SCHED_GETSCHEDULER: c_long = 145;
    pub const SCHED_SETAFFINITY: c_long = 203;
    pub const SCHED_GETAFFINITY: c_long = 204;
    pub const FCNTL: c_long = 72;
    pub const FUTEX: c_long = 202;
    pub const EPOLL_CTL: c_long = 233;
    pub const EPOLL_PWAIT: c_long = 281;
    pub const EPOLL_CREATE1: c_long = 291;
    pub const EVENTFD2: c_long = 290;
    pub const WRITE: c_long = 1;
    pub const PPOLL: c_long = 271;
    pub const PREADV2: c_long = 327;
    pub const EXIT_GROUP: c_long = 231;
}

#[cfg(target_arch = "aarch64")]
pub mod number {
    use core::ffi::c_long;
    pub const READ: c_long = 63;
    pub const OPEN_AT: c_long = 56;
    pub const CLOSE: c_long = 57;
    pub const FSTAT: c_long = 80;
    pub const MMAP: c_long = 222;
    pub const PREAD: c_long = 67;
    pub const GETPID: c_long = 172;
    pub const PIDFD_OPEN: c_long = 434;
    pub const GETSOCKOPT: c_long = 209;
    pub const GETTID: c_long = 178;
    pub const SCHED_SETSCHEDULER: c_long = 119;
    pub const SCHED_GETSCHEDULER: c_long = 120;
    pub const SCHED_SETAFFINITY: c_long = 122;
    pub const SCHED_GETAFFINITY: c_long = 123;
    pub const FCNTL: c_long = 25;
    pub const FUTEX: c_long = 98;
    pub const EPOLL_CTL: c_long = 21;
    pub const EPOLL_PWAIT: c_long = 22;
    pub const EPOLL_CREATE1: c_long = 20;
    pub const EVENTFD2: c_long = 19;
    pub const WRITE: c_long = 64;
    pub const PPOLL: c_long = 73;
    pub const PREADV2: c_long = 286;
    pub const EXIT_GROUP: c_long = 94;
}

/// A system call: its result, or the negative error number.
///
/// # Safety
/// The arguments are what the kernel expects for this number.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: c_long, args: [c_long; 6]) -> c_long {
    let result: c_long;
    // SAFETY: the kernel's convention on x86-64; it clobbers rcx and r11 alone. What the call does is the caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// A system call: its result, or the negative error number.
///
/// # Safety
/// The arguments are what the kernel expects for this number.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: c_long, args: [c_long; 6]) -> c_long {
    let result: c_long;
    // SAFETY: the kernel's convention on aarch64. What the call does is the caller's promise.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack)
        );
    }
    result
}

// SAFETY: these are libc's, with the types of its manual; none is among the hooks.
unsafe extern "C" {
    pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    pub fn getenv(name: *const c_char) -> *const c_char;
    pub fn __errno_location() -> *mut c_int;
    fn clock_gettime(clock: c_int, time: *mut TimeSpec) -> c_int;
    pub fn pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    pub fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
    pub fn pthread_mutex_trylock(mutex: *mut c_void) -> c_int;
    pub fn pthread_mutex_timedlock(mutex: *mut c_void, until: *const TimeSpec) -> c_int;
    pub fn pthread_mutex_consistent(mutex: *mut c_void) -> c_int;
    pub fn pthread_mutexattr_setpshared(attributes: *mut c_void, shared: c_int) -> c_int;
    pub fn pthread_mutexattr_setrobust(attributes: *mut c_void, robust: c_int) -> c_int;
    pub fn pthread_mutexattr_init(attributes: *mut c_void) -> c_int;
    pub fn pthread_mutexattr_settype(attributes: *mut c_void, kind: c_int) -> c_int;
    pub fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    pub fn pthread_key_create(key: *mut u32, end: extern "C" fn(*mut c_void)) -> c_int;
    pub fn pthread_getspecific(key: u32) -> *mut c_void;
    pub fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
    pub fn pthread_create(
        thread: *mut u64,
        attributes: *const c_void,
        body: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    pub fn pthread_attr_init(attributes: *mut c_void) -> c_int;
    pub fn pthread_attr_setdetachstate(attributes: *mut c_void, state: c_int) -> c_int;
    pub fn pthread_attr_setstacksize(attributes: *mut c_void, size: usize) -> c_int;
    pub fn pthread_sigmask(how: c_int, new: *const u64, old: *mut u64) -> c_int;
    pub fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    pub fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    pub fn getpeername(fd: c_int, address: *mut u8, length: *mut u32) -> c_int;
}

/// The calling thread's error number.
pub fn errno() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *__errno_location() }
}

/// Sets it.
pub fn set_errno(error: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *__errno_location() = error };
}

/// CLOCK_MONOTONIC, nanoseconds; by the vDSO, without a system call.
pub fn now() -> u64 {
    let mut time = TimeSpec::of(0);
    // SAFETY: the clock exists and the record is ours.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// Takes a mutex within so long (nanoseconds): what libc's timed locks say. By the clock that nobody sets, where libc has that (2.30).
///
/// # Safety
/// The mutex was made.
pub unsafe fn lock_for(mutex: *mut c_void, nanoseconds: u64) -> c_int {
    type ClockLock = unsafe extern "C" fn(*mut c_void, c_int, *const TimeSpec) -> c_int;
    /// What was found, once: null before it was looked for, and the address of this word where there is none.
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let none = FOUND.as_ptr().cast::<c_void>();
    let mut found = FOUND.load(Relaxed);
    if found.is_null() {
        // RTLD_DEFAULT is null.
        // SAFETY: a name that ends with 0.
        found = unsafe { dlsym(core::ptr::null_mut(), c"pthread_mutex_clocklock".as_ptr()) };
        FOUND.store(if found.is_null() { none } else { found }, Relaxed);
    }
    if found == none {
        found = core::ptr::null_mut();
    }
    let clock = if found.is_null() {
        CLOCK_REALTIME
    } else {
        CLOCK_MONOTONIC
    };
    let mut time = TimeSpec::of(0);
    // SAFETY: the clock exists and the record is ours.
    unsafe { clock_gettime(clock, &mut time) };
    let until = TimeSpec::of(time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64 + nanoseconds);
    // SAFETY: the caller's promise, and a time that outlives the call; what was found is of this type by its manual.
    unsafe {
        match found.is_null() {
            true => pthread_mutex_timedlock(mutex, &raw const until),
            false => core::mem::transmute::<*mut c_void, ClockLock>(found)(mutex, clock, &raw const until),
        }
    }
}

/// Who sleeps on a word: threads of this process, or of all that share the memory.
const fn scope(is_shared: bool) -> c_long {
    if is_shared { 0 } else { 128 }
}

/// Sleeps while the word is `expected`, at most until a time of [`now`]; 0, or the negative error number.
pub fn futex_wait(word: &AtomicU32, expected: u32, until: Option<u64>, is_shared: bool) -> c_long {
    let time = until.map(TimeSpec::of);
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // FUTEX_WAIT_BITSET takes an absolute time, so that being woken for nothing lengthens no wait.
    let operation = 9 | scope(is_shared);
    // SAFETY: the word and the time outlive the call.
    unsafe {
        call(
            number::FUTEX,
            [
                word.as_ptr() as c_long,
                operation,
                c_long::from(expected),
                time as c_long,
                0,
                0xffff_ffff,
            ],
        )
    }
}

/// Wakes whoever sleeps on the word.
pub fn futex_wake(word: &AtomicU32, is_shared: bool) {
    // SAFETY: FUTEX_WAKE reads nothing.
    unsafe {
        call(
            number::FUTEX,
            [word.as_ptr() as c_long, 1 | scope(is_shared), 1, 0, 0, 0],
        )
    };
}

/// poll(2) of one descriptor that waits at most so long: its result, or the negative error number.
pub fn poll_for(fd: &mut PollFd, nanoseconds: u64) -> c_long {
    let time = TimeSpec::of(nanoseconds);
    // SAFETY: one record and a time, both alive during the call; no signal mask.
    unsafe {
        call(
            number::PPOLL,
            [
                core::ptr::from_mut(fd) as c_long,
                1,
                &raw const time as c_long,
                0,
                8,
                0,
            ],
        )
    }
}

/// Whether a descriptor has something to read now.
pub fn is_readable(fd: c_int) -> bool {
    let mut poll = PollFd {
        fd,
        events: POLLIN,
        revents: 0,
    };
    poll_for(&mut poll, 0) > 0
}

/// Whether a read of a descriptor waits.
pub fn is_blocking(fd: c_int) -> bool {
    // SAFETY: F_GETFL is 3 and takes no argument; O_NONBLOCK is 0x800.
    let flags = unsafe { call(number::FCNTL, [c_long::from(fd), 3, 0, 0, 0, 0]) };
    flags >= 0 && flags & 0x800 == 0
}

/// What fstat(2) says of a file: where it is, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
}

/// Which file a descriptor is open on; `None` where it is on none.
pub fn file(fd: c_int) -> Option<File> {
    // On both processors `struct stat` begins with the device and the inode, has the size at byte 48, and fits in here.
    let mut words = [0u64; 32];
    // SAFETY: a record that is larger than the kernel's.
    let result = unsafe {
        call(
            number::FSTAT,
            [c_long::from(fd), words.as_mut_ptr() as c_long, 0, 0, 0, 0],
        )
    };
    (result == 0).then_some(File {
        device: words[0],
        inode: words[1],
        size: words[6],
    })
}

/// Has a descriptor closed in programs that are executed.
pub fn close_on_exec(fd: c_int) {
    // SAFETY: F_SETFD is 2, FD_CLOEXEC 1.
    unsafe { call(number::FCNTL, [c_long::from(fd), 2, 1, 0, 0, 0]) };
}

/// An option of a socket's level that is a number: 0 where it is no socket.
pub fn option(fd: c_int, name: c_int) -> c_int {
    let (mut value, mut length) = (0, 4);
    // SAFETY: a number and its length; SOL_SOCKET is 1.
    match unsafe { getsockopt(fd, 1, name, (&raw mut value).cast(), &raw mut length) } {
        0 => value,
        _ => 0,
    }
}

/// poll(2) of several descriptors that waits at most so long.
///
/// # Safety
/// There are so many records.
pub unsafe fn poll_all(fds: *mut PollFd, count: core::ffi::c_ulong, nanoseconds: u64) -> c_long {
    let time = TimeSpec::of(nanoseconds);
    // SAFETY: the caller's records and a time; no signal mask.
    unsafe {
        call(
            number::PPOLL,
            [fds as c_long, count as c_long, &raw const time as c_long, 0, 8, 0],
        )
    }
}

/// How long a read of a socket waits at most, nanoseconds; `None` is for ever.
pub fn receive_timeout(fd: c_int) -> Option<u64> {
    let (mut time, mut length) = ([0i64; 2], 16);
    // SAFETY: a timeval and its length; SOL_SOCKET is 1, SO_RCVTIMEO 20.
    let got = unsafe { getsockopt(fd, 1, 20, (&raw mut time).cast(), &raw mut length) };
    let nanoseconds = (time[0] as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(time[1] as u64 * 1000);
    (got == 0 && nanoseconds > 0).then_some(nanoseconds)
}

/// The calling thread.
pub fn thread() -> u32 {
    // SAFETY: it takes no argument.
    unsafe { call(number::GETTID, [0; 6]) as u32 }
}

/// The calling process, also in a child that shares its parent's memory.
pub fn process() -> u32 {
    // SAFETY: it takes no argument.
    unsafe { call(number::GETPID, [0; 6]) as u32 }
}

/// Whether the last thread of a process has ended, whoever has heard of it. A kernel without pidfd_open(2), before 5.3, says it of none.
pub fn has_ended(process: u32) -> bool {
    // SAFETY: no pointer is passed.
    let fd = unsafe { call(number::PIDFD_OPEN, [c_long::from(process), 0, 0, 0, 0, 0]) };
    if fd < 0 {
        return fd == -ESRCH;
    }
    let has_ended = is_readable(fd as c_int);
    close(fd as c_int);
    has_ended
}

/// How long ago the last data of a TCP connection came, by the kernel's ticks (TCP_INFO of tcp(7)), nanoseconds; `None` of one that its client
/// has ended, whose end is what came last, and of any other socket.
pub fn data_came_ago(fd: c_int) -> Option<u64> {
    const ESTABLISHED: u8 = 1;
    // `struct tcp_info` begins with the state, a byte, and has `tcpi_last_data_recv` at byte 52.
    let mut info = [0u32; 14];
    let mut length = size_of_val(&info) as u32;
    // SAFETY: a buffer of the length that is said, and that; IPPROTO_TCP is 6, TCP_INFO 11.
    let got = unsafe {
        call(
            number::GETSOCKOPT,
            [
                c_long::from(fd),
                6,
                11,
                info.as_mut_ptr() as c_long,
                &raw mut length as c_long,
                0,
            ],
        )
    };
    let is_open =
        got == 0 && length as usize == size_of_val(&info) && info[0].to_ne_bytes()[0] == ESTABLISHED;
    is_open.then(|| u64::from(info[13]) * 1_000_000)
}

/// The calling thread's scheduling policy (sched(7)); negative where it cannot be told.
pub fn scheduling_policy() -> c_int {
    // SAFETY: 0 is the calling thread.
    unsafe { call(number::SCHED_GETSCHEDULER, [0; 6]) as c_int }
}

/// Gives the calling thread a scheduling policy without a priority. One that may not be had is not.
pub fn set_scheduling_policy(policy: c_int) {
    let priority: c_int = 0;
    // SAFETY: the record outlives the call.
    unsafe {
        call(
            number::SCHED_SETSCHEDULER,
            [0, c_long::from(policy), &raw const priority as c_long, 0, 0, 0],
        )
    };
}

/// Ends the program: for what cannot happen.
#[cfg_attr(not(oncall_preload), allow(dead_code, reason = "the panic handler's"))]
pub fn abort() -> ! {
    loop {
        // SAFETY: it does not return.
        unsafe { call(number::EXIT_GROUP, [134, 0, 0, 0, 0, 0]) };
    }
}

/// Whether a thread, of this process or another, sleeps or is stopped, by /proc/TID/task/TID/stat: /proc/TID/stat adds up the times of all
/// threads of its process.
pub fn is_asleep(tid: u32) -> bool {
    let mut path = [0u8; 48];
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        path[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    put(b"/proc/");
    let mut digits = [0u8; 10];
    let (mut left, mut at) = (tid, digits.len());
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    put(&digits[at..]);
    put(b"/task/");
    put(&digits[at..]);
    put(b"/stat\0");
    let mut text = [0u8; 128];
    // SAFETY: a path that ends with 0, and a buffer of the size that is said; the descriptor is ours to close.
    let read = unsafe {
        let fd = call(number::OPEN_AT, [-100, path.as_ptr() as c_long, 0x80000, 0, 0, 0]);
        if fd < 0 {
            return false;
        }
        let read = call(
            number::READ,
            [fd, text.as_mut_ptr() as c_long, text.len() as c_long, 0, 0, 0],
        );
        call(number::CLOSE, [fd, 0, 0, 0, 0, 0]);
        read
    };
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    // The command's name is in parentheses and may hold any byte: the state follows the last of them.
    let end = text.iter().rposition(|byte| *byte == b')');
    matches!(
        end.and_then(|end| text.get(end + 2)),
        Some(b'S' | b'D' | b'T' | b't')
    )
}

/// Opens what the kernel counts of the calling thread's times; -1 where it counts none.
pub fn open_times() -> c_int {
    let path = c"/proc/thread-self/schedstat";
    // SAFETY: a path that ends with 0; AT_FDCWD, O_RDONLY and O_CLOEXEC.
    let fd = unsafe { call(number::OPEN_AT, [-100, path.as_ptr() as c_long, 0x80000, 0, 0, 0]) };
    if fd < 0 {
        return -1;
    }
    // Away from the numbers that a server gives to its own, as those of its outputs.
    // SAFETY: F_DUPFD_CLOEXEC is 1030.
    let high = unsafe { call(number::FCNTL, [fd, 1030, HIGH, 0, 0, 0]) };
    if high < 0 {
        return fd as c_int;
    }
    close(fd as c_int);
    high as c_int
}

/// The least number of a descriptor of ours that is open for as long as a process serves.
const HIGH: c_long = 100;

/// Closes a descriptor of ours, whatever hooks there are.
pub fn close(fd: c_int) {
    // SAFETY: a descriptor of ours.
    unsafe { call(number::CLOSE, [c_long::from(fd), 0, 0, 0, 0, 0]) };
}

/// For how long a thread has waited for a processor while it could run, nanoseconds: the second number of `/proc/PID/schedstat`
/// (Documentation/scheduler/sched-stats.rst).
pub fn time_in_queue(times: c_int) -> Option<u64> {
    let mut text = [0u8; 64];
    let (at, room) = (text.as_mut_ptr() as c_long, text.len() as c_long);
    // SAFETY: a buffer of the size that is said.
    let read = unsafe { call(number::PREAD, [c_long::from(times), at, room, 0, 0, 0]) };
    let text = &text[..usize::try_from(read).ok()?];
    let second = text.split(|byte| *byte == b' ').nth(1)?;
    let digit = |sum: u64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    };
    second.iter().try_fold(0, digit)
}

/// Runs a wait in which this thread may be cancelled, as in the wait of libc's that it stands for. Nothing in it may hold anything.
pub fn cancellable<R>(wait: impl FnOnce() -> R) -> R {
    const ASYNCHRONOUS: c_int = 1;
    let mut before = 0;
    // SAFETY: the thread is ended within the wait or not at all, and nothing is held there: what it has on its stack owns nothing.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut before) };
    let result = wait();
    // SAFETY: as it was before.
    unsafe { pthread_setcanceltype(before, core::ptr::null_mut()) };
    result
}
