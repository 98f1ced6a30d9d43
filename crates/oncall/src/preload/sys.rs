//! System calls without libc, whose names the library has taken over, and the few functions of libc that it uses.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::AtomicU32;

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

pub const POLLIN: i16 = 1;
pub const EINTR: c_long = 4;
pub const EAGAIN: c_long = 11;
pub const ETIMEDOUT: c_long = 110;
pub const MSG_DONTWAIT: c_int = 0x40;
pub const EPOLL_CTL_ADD: c_int = 1;
pub const EPOLL_CTL_DEL: c_int = 2;

#[cfg(target_arch = "x86_64")]
pub mod number {
    use core::ffi::c_long;
    pub const READ: c_long = 0;
    pub const OPEN_AT: c_long = 257;
    pub const CLOSE: c_long = 3;
    pub const MMAP: c_long = 9;
    pub const GETPID: c_long = 39;
    pub const GETTID: c_long = 186;
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
    pub const MMAP: c_long = 222;
    pub const GETPID: c_long = 172;
    pub const GETTID: c_long = 178;
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
    pub fn pthread_mutexattr_init(attributes: *mut c_void) -> c_int;
    pub fn pthread_mutexattr_settype(attributes: *mut c_void, kind: c_int) -> c_int;
    pub fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int;
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
    pub fn getpeername(fd: c_int, address: *mut u8, length: *mut u32) -> c_int;
}

/// CLOCK_MONOTONIC, nanoseconds; by the vDSO, without a system call.
pub fn now() -> u64 {
    let mut time = TimeSpec::of(0);
    // SAFETY: the clock exists and the record is ours.
    unsafe { clock_gettime(1, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// Sleeps while the word is `expected`, at most until a time of [`now`]; 0, or the negative error number.
pub fn futex_wait(word: &AtomicU32, expected: u32, until: Option<u64>) -> c_long {
    let time = until.map(TimeSpec::of);
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // FUTEX_WAIT_BITSET takes an absolute time, so that being woken for nothing lengthens no wait.
    let operation = 9 | 128;
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
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE reads nothing.
    unsafe { call(number::FUTEX, [word.as_ptr() as c_long, 1 | 128, 1, 0, 0, 0]) };
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

/// Ends the program: for what cannot happen.
#[cfg_attr(not(oncall_preload), allow(dead_code, reason = "the panic handler's"))]
pub fn abort() -> ! {
    loop {
        // SAFETY: it does not return.
        unsafe { call(number::EXIT_GROUP, [134, 0, 0, 0, 0, 0]) };
    }
}
