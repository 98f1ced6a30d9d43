//! What may block in the midst of a query: the worker's slot is somebody else's meanwhile.

use super::super::sys::{TimeSpec, call, number};
use super::super::waits::{self, blocking};
use super::aside;
use core::ffi::{c_int, c_long, c_uint, c_void};

type Condition = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type TimedCondition = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void) -> c_int;
type ClockCondition = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *const c_void) -> c_int;

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int {
    blocking(|| next!(condition "pthread_cond_wait" as Condition, condition, mutex))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pthread_cond_timedwait(
    condition: *mut c_void,
    mutex: *mut c_void,
    until: *const c_void,
) -> c_int {
    blocking(|| next!(condition "pthread_cond_timedwait" as TimedCondition, condition, mutex, until))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pthread_cond_clockwait(
    condition: *mut c_void,
    mutex: *mut c_void,
    clock: c_int,
    until: *const c_void,
) -> c_int {
    blocking(|| {
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
        true => blocking(ordinarily),
        false => ordinarily(),
    }
}

type Sync = unsafe extern "C" fn(c_int) -> c_int;

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn fsync(fd: c_int) -> c_int {
    blocking(|| next!("fsync" as Sync, fd))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    blocking(|| next!("fdatasync" as Sync, fd))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pread(fd: c_int, buffer: *mut c_void, length: usize, at: i64) -> isize {
    // `off_t` has 64 bits on the processors that are supported.
    pread64(fd, buffer, length, at)
}

/// pread(2): what the page cache has is read with the slot, what is on the disk without.
#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pread64(fd: c_int, buffer: *mut c_void, length: usize, at: i64) -> isize {
    type Read = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
    if waits::held().is_some() {
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
    blocking(|| next!("pread64" as Read, fd, buffer, length, at))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn nanosleep(time: *const TimeSpec, left: *mut TimeSpec) -> c_int {
    type Sleep = unsafe extern "C" fn(*const TimeSpec, *mut TimeSpec) -> c_int;
    blocking(|| next!("nanosleep" as Sleep, time, left))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    time: *const TimeSpec,
    left: *mut TimeSpec,
) -> c_int {
    type Sleep = unsafe extern "C" fn(c_int, c_int, *const TimeSpec, *mut TimeSpec) -> c_int;
    blocking(|| next!("clock_nanosleep" as Sleep, clock, flags, time, left))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn usleep(microseconds: c_uint) -> c_int {
    type Sleep = unsafe extern "C" fn(c_uint) -> c_int;
    blocking(|| next!("usleep" as Sleep, microseconds))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sleep(seconds: c_uint) -> c_uint {
    type Sleep = unsafe extern "C" fn(c_uint) -> c_uint;
    blocking(|| next!("sleep" as Sleep, seconds))
}

/// Whether a semaphore was there at once, for a worker with a slot: it need not give it back.
fn is_had(semaphore: *mut c_void) -> bool {
    type Semaphore = unsafe extern "C" fn(*mut c_void) -> c_int;
    waits::held().is_some() && aside(|| next!("sem_trywait" as Semaphore, semaphore)) == 0
}

/// sem_wait(3), in which PostgreSQL's lightweight locks sleep.
#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sem_wait(semaphore: *mut c_void) -> c_int {
    type Semaphore = unsafe extern "C" fn(*mut c_void) -> c_int;
    match is_had(semaphore) {
        true => 0,
        false => blocking(|| next!("sem_wait" as Semaphore, semaphore)),
    }
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sem_timedwait(semaphore: *mut c_void, until: *const TimeSpec) -> c_int {
    type TimedSemaphore = unsafe extern "C" fn(*mut c_void, *const TimeSpec) -> c_int;
    match is_had(semaphore) {
        true => 0,
        false => blocking(|| next!("sem_timedwait" as TimedSemaphore, semaphore, until)),
    }
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sem_clockwait(semaphore: *mut c_void, clock: c_int, until: *const TimeSpec) -> c_int {
    type ClockSemaphore = unsafe extern "C" fn(*mut c_void, c_int, *const TimeSpec) -> c_int;
    match is_had(semaphore) {
        true => 0,
        false => blocking(|| next!("sem_clockwait" as ClockSemaphore, semaphore, clock, until)),
    }
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn semop(set: c_int, operations: *mut c_void, count: usize) -> c_int {
    type Operate = unsafe extern "C" fn(c_int, *mut c_void, usize) -> c_int;
    blocking(|| next!("semop" as Operate, set, operations, count))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn semtimedop(set: c_int, operations: *mut c_void, count: usize, time: *const TimeSpec) -> c_int {
    type Operate = unsafe extern "C" fn(c_int, *mut c_void, usize, *const TimeSpec) -> c_int;
    blocking(|| next!("semtimedop" as Operate, set, operations, count, time))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int {
    type Wait = unsafe extern "C" fn(c_int, *mut c_int, c_int) -> c_int;
    blocking(|| next!("waitpid" as Wait, process, status, options))
}
