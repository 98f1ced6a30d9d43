//! Our own thread in a server with a thread per connection: it watches epoll for arrivals while workers are on call and slots are free.

use super::areas::NextWait;
use super::layout::Region;
use super::owner;
use super::rounds::{RECLAIM_NS, locked};
use super::sys::{self, EpollEvent, call, number};
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// How long our thread waits for arrivals before it looks at its levers again, milliseconds.
const LOOK_MS: c_long = 1000;
const LOOK_NS: u64 = 1_000_000_000;
/// Arrivals taken out of epoll at once.
pub const EVENTS: usize = 64;
/// What epoll says of the bell that is rung for our own thread.
pub const BELL: u64 = u64::MAX;

static EPOLL: AtomicI32 = AtomicI32::new(-1);
static EVENTFD: AtomicI32 = AtomicI32::new(-1);
/// What our own thread sleeps on while it does not watch epoll.
static WORD: AtomicU32 = AtomicU32::new(0);

/// What it waits for: a free slot.
const SLOTS: u64 = 0;
/// Arrivals.
const ARRIVALS: u64 = 1;
/// Nothing, while nobody is on call.
const NOBODY: u64 = 2;
/// Anything else is when the delay ends.
static WAITS_FOR: AtomicU64 = AtomicU64::new(SLOTS);

/// Whether it waits for arrivals. Under the lock, as what follows.
pub fn is_for_arrivals() -> bool {
    WAITS_FOR.load(Relaxed) == ARRIVALS
}

/// Whether it waits for a free slot.
pub fn is_for_slots() -> bool {
    WAITS_FOR.load(Relaxed) == SLOTS
}

/// Whether it waits for somebody to be on call.
pub fn is_for_nobody() -> bool {
    WAITS_FOR.load(Relaxed) == NOBODY
}

/// It is not to fall asleep again before it has looked.
pub fn raise() {
    WORD.store(1, Release);
}

/// Wakes it from its wait for a slot.
pub fn wake() {
    sys::futex_wake(&WORD, false);
}

/// Wakes it from its wait for arrivals.
pub fn ring() {
    let one = 1u64;
    // SAFETY: eight bytes of ours to an eventfd of ours.
    unsafe {
        call(
            number::WRITE,
            [
                c_long::from(EVENTFD.load(Relaxed)),
                &raw const one as c_long,
                8,
                0,
                0,
                0,
            ],
        )
    };
}

/// Arrivals that epoll has, after at most so many milliseconds.
pub fn take(events: &mut [EpollEvent; EVENTS], milliseconds: c_long) -> usize {
    // SAFETY: the array has room for as many as are asked for; no signal mask.
    let count = unsafe {
        call(
            number::EPOLL_PWAIT,
            [
                c_long::from(EPOLL.load(Relaxed)),
                events.as_mut_ptr() as c_long,
                EVENTS as c_long,
                milliseconds,
                0,
                8,
            ],
        )
    };
    usize::try_from(count).unwrap_or(0)
}

/// What came of starting it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Began {
    Yes,
    /// Another process was the owner before us.
    Elsewhere,
    /// There are no descriptors for it, or no thread.
    Lacks,
}

/// Whether this process is the owner, which our own thread finds out: 0 before it has.
static IS_OWNER: AtomicU32 = AtomicU32::new(0);
const OWNER: u32 = 1;
const NOT_OWNER: u32 = 2;

/// Starts it, and makes this process the owner.
pub fn begin(region: &'static Region) -> Began {
    // SAFETY: no pointer is passed; EPOLL_CLOEXEC, and EFD_CLOEXEC | EFD_NONBLOCK.
    let (epoll, bell) = unsafe {
        (
            call(number::EPOLL_CREATE1, [0x80000, 0, 0, 0, 0, 0]) as c_int,
            call(number::EVENTFD2, [0, 0x80800, 0, 0, 0, 0]) as c_int,
        )
    };
    EPOLL.store(epoll, Relaxed);
    EVENTFD.store(bell, Relaxed);
    IS_OWNER.store(0, Relaxed);
    let runs = epoll >= 0 && bell >= 0 && watch_fd(bell, BELL) && start_thread(region);
    let mut is_owner = if runs { 0 } else { NOT_OWNER };
    while is_owner == 0 {
        sys::futex_wait(&IS_OWNER, 0, None, false);
        is_owner = IS_OWNER.load(Acquire);
    }
    if is_owner == NOT_OWNER {
        // It is asked again: nothing may be left of each time.
        for fd in [&EPOLL, &EVENTFD] {
            let fd = fd.swap(-1, Relaxed);
            if fd >= 0 {
                sys::close(fd);
            }
        }
    }
    match is_owner {
        OWNER => Began::Yes,
        _ if runs => Began::Elsewhere,
        _ => Began::Lacks,
    }
}

fn start_thread(region: &'static Region) -> bool {
    let mut attributes = [0u64; 16];
    let (all, mut before, mut thread) = ([u64::MAX; 16], [0u64; 16], 0);
    // SAFETY: storage larger than the types have; SIG_SETMASK is 2, PTHREAD_CREATE_DETACHED 1. Signals are the server's: our thread
    // takes none of them.
    unsafe {
        sys::pthread_attr_init(attributes.as_mut_ptr().cast());
        sys::pthread_attr_setdetachstate(attributes.as_mut_ptr().cast(), 1);
        sys::pthread_attr_setstacksize(attributes.as_mut_ptr().cast(), 256 * 1024);
        sys::pthread_sigmask(2, all.as_ptr(), before.as_mut_ptr());
        let made = sys::pthread_create(
            &raw mut thread,
            attributes.as_ptr().cast(),
            watch,
            core::ptr::from_ref(region).cast_mut().cast(),
        );
        sys::pthread_sigmask(2, before.as_ptr(), core::ptr::null_mut());
        made == 0
    }
}

/// Our own thread.
extern "C" fn watch(region: *mut c_void) -> *mut c_void {
    // SAFETY: the region that `begin` was given, mapped for good.
    let region: &'static Region = unsafe { &*region.cast::<Region>() };
    let is_owner = owner::become_owner(region);
    IS_OWNER.store(if is_owner { OWNER } else { NOT_OWNER }, Release);
    sys::futex_wake(&IS_OWNER, false);
    if !is_owner {
        return core::ptr::null_mut();
    }
    let mut events = [EpollEvent { events: 0, data: 0 }; EVENTS];
    let mut count = 0;
    loop {
        let noted = &events[..count];
        let plan = locked(region, |lock| {
            WORD.store(0, Relaxed);
            lock.note_waited(noted);
            lock.harvest();
            lock.dispatch();
            // Asked once: whoever is on call by the time it sleeps raises it.
            let is_closed = lock.is_closed();
            if !is_closed {
                lock.send_home();
            }
            lock.restore_processors();
            lock.reclaim_sometimes();
            let wait_for = match lock.what_next() {
                _ if !is_closed => NOBODY,
                NextWait::Slots => SLOTS,
                NextWait::Arrivals => ARRIVALS,
                // What is commanded may end before, by its lease or by another command.
                NextWait::Until(end) => end.min(lock.now + LOOK_NS),
            };
            WAITS_FOR.store(wait_for, Relaxed);
            (wait_for, lock.now)
        });
        count = 0;
        match plan {
            Some((ARRIVALS, _)) => count = take(&mut events, LOOK_MS),
            Some((SLOTS, now)) => wait_for_slot(region, now),
            // The kernel wakes each worker itself: an arrival costs no second wake-up.
            Some((NOBODY, now)) => {
                sys::futex_wait(&WORD, 0, Some(now + LOOK_NS), false);
            }
            Some((end, _)) => {
                sys::futex_wait(&WORD, 0, Some(end), false);
            }
            None => {}
        }
    }
}

/// Waits until a slot is given up; where none is, takes those of workers that sleep.
fn wait_for_slot(region: &'static Region, now: u64) {
    if sys::futex_wait(&WORD, 0, Some(now + RECLAIM_NS), false) == -sys::ETIMEDOUT {
        locked(region, |lock| {
            lock.restore_processors();
            lock.reclaim();
        });
    }
}

pub fn watch_fd(fd: c_int, data: u64) -> bool {
    // EPOLLIN, EPOLLRDHUP, EPOLLET.
    let event = EpollEvent {
        events: 0x8000_2001,
        data,
    };
    // SAFETY: the record outlives the call.
    let result = unsafe {
        call(
            number::EPOLL_CTL,
            [
                c_long::from(EPOLL.load(Relaxed)),
                c_long::from(sys::EPOLL_CTL_ADD),
                c_long::from(fd),
                &raw const event as c_long,
                0,
                0,
            ],
        )
    };
    result == 0
}

/// Arrivals at a descriptor are no longer watched for.
pub fn unwatch_fd(fd: c_int) {
    // SAFETY: epoll forgets a descriptor; no record is read.
    unsafe {
        call(
            number::EPOLL_CTL,
            [
                c_long::from(EPOLL.load(Relaxed)),
                c_long::from(sys::EPOLL_CTL_DEL),
                c_long::from(fd),
                0,
                0,
                0,
            ],
        )
    };
}
