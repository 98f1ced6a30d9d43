//! The epoll sets of a process that serves one connection: in which it waits for its client, beside what else it is woken by, as
//! PostgreSQL does; and those in which somebody waits for new clients, which are a server's that is driven by events.

use super::sys::{self, EpollEvent};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// SO_ACCEPTCONN.
const LISTENS: c_int = 30;

/// A set with the client in it.
struct Set {
    /// Its descriptor, plus 1; 0 is none.
    set: AtomicI32,
    fd: AtomicI32,
    /// What the set says of the client.
    data: AtomicU64,
    /// What of the client it waits for.
    events: AtomicU32,
}

static SETS: [Set; 4] = [const {
    Set {
        set: AtomicI32::new(0),
        fd: AtomicI32::new(-1),
        data: AtomicU64::new(0),
        events: AtomicU32::new(0),
    }
}; 4];
/// Sets with a listening socket, plus 1.
static LISTENING: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];

/// A set's entry for the client, as the server wrote it.
#[derive(Clone, Copy)]
pub struct Watched {
    pub fd: c_int,
    pub data: u64,
    pub events: u32,
}

/// A set of this process has the client in it from now on; whether there was room to know it.
pub fn add(set: c_int, fd: c_int, event: EpollEvent) -> bool {
    let free = SETS.iter().find(|one| one.set.load(Relaxed) == 0);
    free.is_some_and(|one| {
        one.fd.store(fd, Relaxed);
        one.data.store(event.data, Relaxed);
        one.events.store(event.events, Relaxed);
        one.set.store(set + 1, Relaxed);
        true
    })
}

/// What a set waits for has changed, or it waits for a descriptor no more.
pub fn change(set: c_int, fd: c_int, event: Option<EpollEvent>) {
    for one in &SETS {
        if one.set.load(Relaxed) == set + 1 && one.fd.load(Relaxed) == fd {
            match event {
                None => one.set.store(0, Relaxed),
                Some(event) => {
                    one.data.store(event.data, Relaxed);
                    one.events.store(event.events, Relaxed);
                }
            }
        }
    }
}

/// The client in a set.
pub fn client(set: c_int) -> Option<Watched> {
    let found = SETS.iter().find(|one| one.set.load(Relaxed) == set + 1)?;
    Some(Watched {
        fd: found.fd.load(Relaxed),
        data: found.data.load(Relaxed),
        events: found.events.load(Relaxed),
    })
}

/// A descriptor is closed: it is no set any more, and in none.
pub fn closed(fd: c_int) {
    for one in &SETS {
        let set = one.set.load(Relaxed);
        if set != 0 && (set == fd + 1 || one.fd.load(Relaxed) == fd) {
            one.set.store(0, Relaxed);
        }
    }
    for one in &LISTENING {
        let _ = one.compare_exchange(fd + 1, 0, Relaxed, Relaxed);
    }
}

/// This process has no client in any set.
pub fn forget_all() {
    SETS.iter().for_each(|one| one.set.store(0, Relaxed));
}

/// A descriptor comes into a set: whether it is one that listens is remembered.
pub fn may_listen(set: c_int, fd: c_int) {
    if !listens(set) && is_listening(fd) {
        for one in &LISTENING {
            if one.compare_exchange(0, set + 1, Relaxed, Relaxed).is_ok() {
                break;
            }
        }
    }
}

/// Whether a descriptor is one at which clients come.
pub fn is_listening(fd: c_int) -> bool {
    sys::option(fd, LISTENS) != 0
}

/// Whether new clients are waited for in a set.
pub fn listens(set: c_int) -> bool {
    LISTENING.iter().any(|one| one.load(Relaxed) == set + 1)
}
