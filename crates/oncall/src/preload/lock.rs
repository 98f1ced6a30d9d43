//! The lock of the lists: of one process where its threads serve, of the region where processes do. There it is a robust mutex: the
//! kernel marks it when its holder ends in whatever way, and the next one sets the lists right.

use super::layout::{Region, mode};
use super::sys;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// A worker waits no longer for the lock: one that was stopped with it in hand (a debugger, SIGSTOP) stops nobody else. Whoever holds it
/// has microseconds of work; it may be off its core for as long as the others that share this.
const PATIENCE_NS: u64 = 200_000_000;

/// The mutex of a server of threads.
struct Own(UnsafeCell<[u64; 8]>);

// SAFETY: only libc's functions touch it, which are made for that.
unsafe impl Sync for Own {}

static OWN: Own = Own(UnsafeCell::new([0; 8]));

/// What came of asking for a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It is ours.
    Ours,
    /// It is ours, and its holder ended with it in hand.
    Inherited,
    /// It is not ours: this thread has it already, as in a signal's handler, or its holder is stopped.
    Not,
}

impl Held {
    const fn of(result: c_int) -> Self {
        match result {
            0 => Self::Ours,
            sys::EOWNERDEAD => Self::Inherited,
            _ => Self::Not,
        }
    }
}

/// Whether processes serve the region's connections.
pub fn is_shared(region: &Region) -> bool {
    region.mode.load(Relaxed) == mode::PROCESSES
}

fn mutex(region: &Region) -> *mut c_void {
    match is_shared(region) {
        true => of(&region.lock),
        false => OWN.0.get().cast(),
    }
}

/// A mutex in the region.
const fn of(words: &[AtomicU64; 8]) -> *mut c_void {
    words.as_ptr().cast_mut().cast()
}

/// Makes a mutex that refuses who has it, and where it is shared one that outlives its holder; whether that could be done.
fn make(mutex: *mut c_void, shared: bool) -> bool {
    let mut attributes = [0u64; 2];
    let attributes = attributes.as_mut_ptr().cast::<c_void>();
    // SAFETY: storage larger than the types have; PTHREAD_MUTEX_ERRORCHECK is 2, PTHREAD_PROCESS_SHARED and PTHREAD_MUTEX_ROBUST 1.
    unsafe {
        sys::pthread_mutexattr_init(attributes) == 0
            && sys::pthread_mutexattr_settype(attributes, 2) == 0
            && sys::pthread_mutexattr_setpshared(attributes, c_int::from(shared)) == 0
            && sys::pthread_mutexattr_setrobust(attributes, c_int::from(shared)) == 0
            && sys::pthread_mutex_init(mutex, attributes) == 0
    }
}

/// Makes the lock of a server of threads.
pub fn make_own() -> bool {
    make(OWN.0.get().cast(), false)
}

/// Makes the lock of a region, and the mutex by which its owner lives, before anybody knows of it.
pub fn make_shared(region: &Region) -> bool {
    make(of(&region.lock), true) && make(of(&region.serving), true)
}

/// Takes the lock.
pub fn take(region: &Region) -> Held {
    let mutex = mutex(region);
    // SAFETY: the mutex was made before the region was in use.
    unsafe {
        match is_shared(region) {
            false => Held::of(sys::pthread_mutex_lock(mutex)),
            true => take_shared(region, mutex),
        }
    }
}

/// Takes the lock of a region that processes share.
fn take_shared(region: &Region, mutex: *mut c_void) -> Held {
    // SAFETY: the mutex was made before the region was in use.
    let taken = unsafe { sys::pthread_mutex_trylock(mutex) };
    if taken != sys::EBUSY {
        if region.stalled.load(Relaxed) == 1 {
            region.stalled.store(0, Relaxed);
        }
        return Held::of(taken);
    }
    // Each call of every worker would wait for as long, and the server stand still.
    if region.stalled.load(Relaxed) == 1 {
        return Held::Not;
    }
    // SAFETY: as above.
    let taken = unsafe { sys::lock_for(mutex, PATIENCE_NS) };
    if c_long::from(taken) == sys::ETIMEDOUT {
        region.stalled.store(1, Relaxed);
    }
    Held::of(taken)
}

/// Takes the lock of a region that processes share, where it is free.
pub fn try_take(region: &Region) -> Held {
    // SAFETY: as in `take`.
    Held::of(unsafe { sys::pthread_mutex_trylock(mutex(region)) })
}

/// What the lock guards is right again, after [`Held::Inherited`].
pub fn is_right(region: &Region) {
    // SAFETY: we have it.
    unsafe { sys::pthread_mutex_consistent(mutex(region)) };
}

/// Gives the lock back.
pub fn give(region: &Region) {
    // SAFETY: we have it.
    unsafe { sys::pthread_mutex_unlock(mutex(region)) };
}

/// The calling thread lives from now on, as others see it in these words.
pub fn live(words: &[AtomicU64; 8]) -> bool {
    // SAFETY: the words are a dead thread's, or nobody's: under the region's lock nobody else looks at them.
    make(of(words), true) && unsafe { sys::pthread_mutex_lock(of(words)) } == 0
}

/// It does no longer, and is the thread that did.
pub fn die(words: &[AtomicU64; 8]) {
    // SAFETY: made in `live`; libc refuses a thread that is not its holder.
    unsafe { sys::pthread_mutex_unlock(of(words)) };
}

/// Whether the thread that called [`live`] does.
pub fn is_alive(words: &[AtomicU64; 8]) -> bool {
    // SAFETY: made in `live`, and kept by whoever has the region's lock.
    let taken = unsafe { sys::pthread_mutex_trylock(of(words)) };
    match Held::of(taken) {
        Held::Not => taken != sys::ENOTRECOVERABLE,
        Held::Ours => {
            die(words);
            false
        }
        Held::Inherited => {
            // SAFETY: we have it; unlocked in order, it does not stay in our list of mutexes.
            unsafe { sys::pthread_mutex_consistent(of(words)) };
            die(words);
            false
        }
    }
}

/// Has the calling thread hold a mutex for as long as it lives, where no other does: whether it does.
pub fn hold(words: &[AtomicU64; 8]) -> bool {
    // SAFETY: made in `make_shared`, and marked consistent by whoever has it.
    unsafe {
        match Held::of(sys::pthread_mutex_trylock(of(words))) {
            Held::Not => false,
            Held::Ours => true,
            Held::Inherited => sys::pthread_mutex_consistent(of(words)) == 0,
        }
    }
}

/// Whether a thread that called [`hold`] lives: by the word that the kernel changes when it ends, so that also those may ask who trust
/// nobody who can write the mutex's links. It has the thread's number, and the mutex begins with it.
pub fn is_held(words: &[AtomicU64; 8]) -> bool {
    /// FUTEX_TID_MASK of futex(2).
    const THREAD: u32 = 0x3fff_ffff;
    words[0].load(Acquire) as u32 & THREAD != 0
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::preload::rounds::locked;
    use crate::preload::sys::{call, now, number};
    use std::process::Command;
    use std::sync::atomic::AtomicU32;
    use std::time::{Duration, Instant};

    // SAFETY: libc's, with the types of its manual.
    unsafe extern "C" {
        pub fn fork() -> c_int;
        pub fn raise(signal: c_int) -> c_int;
        pub fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    }

    /// A region that forked children share, for good.
    pub fn region() -> &'static Region {
        // PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS.
        let size = size_of::<Region>() as c_long;
        // SAFETY: new memory of this size, in which every field is an atomic of zeros.
        let region = unsafe {
            let at = call(number::MMAP, [0, size, 3, 0x21, -1, 0]);
            assert!(at > 0, "{at}");
            &*(at as *const Region)
        };
        assert!(make_shared(region));
        region.mode.store(mode::PROCESSES, Relaxed);
        region
    }

    pub fn signal(process: c_int, signal: &str) {
        let sent = Command::new("kill").args([signal, &process.to_string()]).status();
        assert!(sent.unwrap().success());
    }

    #[test]
    fn a_process_that_is_stopped_with_the_lock_in_hand_holds_nobody_up_for_long() {
        let region = region();
        let is_held = AtomicU32::new(0);
        // Shared with the child, as the region is.
        let word = &region.owner;
        // SAFETY: the child makes system calls alone, and ends itself.
        let child = unsafe { fork() };
        if child == 0 {
            locked(region, |_| {
                word.store(1, Relaxed);
                // SAFETY: SIGSTOP.
                unsafe { raise(19) };
            });
            // SAFETY: SIGKILL.
            unsafe { raise(9) };
        }
        let mut status = 0;
        // SAFETY: our child; WUNTRACED is 2.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 2) }, child);
        assert_eq!((word.load(Relaxed), status & 0xff), (1, 0x7f));
        // The first waits, and all after it do not: a thousand at the old patience would take minutes.
        let began = Instant::now();
        for _ in 0..1000 {
            assert!(locked(region, |_| is_held.fetch_add(1, Relaxed)).is_none());
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // As soon as it goes on, the lock is everybody's again.
        signal(child, "-CONT");
        let end = now() + 20_000_000_000;
        while locked(region, |_| is_held.fetch_add(1, Relaxed)).is_none() {
            assert!(now() < end, "the lock is lost");
        }
        assert_eq!(region.stalled.load(Relaxed), 0);
        assert!((0..1000).all(|_| locked(region, |_| ()).is_some()));
        // SAFETY: our child.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    }

    #[test]
    fn one_that_went_on_without_the_lock_is_counted_once_and_let_go_once() {
        use crate::preload::rounds::state;
        use crate::preload::table::claim;
        let region = region();
        region.enabled.store(1, Relaxed);
        region.concurrency.store(1, Relaxed);
        region.batch.store(1, Relaxed);
        let places = [5, 6].map(|fd| locked(region, |lock| claim(lock, fd, ([0; 2], 0))));
        let [first, second] = places.map(|claimed| claimed.flatten().unwrap().0);
        let connection = &region.connections[usize::from(first)];
        let counts = || (region.waiting.load(Relaxed), region.running.load(Relaxed));
        locked(region, |lock| lock.enqueue(first));
        // As `came` leaves it where `acquire` cannot have the lock.
        connection.state.store(state::RUNNING, Relaxed);
        locked(region, |lock| lock.enqueue(first));
        assert_eq!(counts(), (1, 0));
        connection.state.store(state::RUNNING, Relaxed);
        locked(region, |lock| {
            lock.enqueue(second);
            lock.dispatch();
        });
        // The slot is the other's, who waits for it.
        assert_eq!(counts(), (0, 1));
        assert_eq!(connection.slot.load(Relaxed), 0);
        assert_eq!(region.connections[usize::from(second)].slot.load(Relaxed), 1);
    }
}
