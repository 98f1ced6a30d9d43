//! Waits for several descriptors or one, among them perhaps a client's: poll, select and epoll.

use super::super::layout::Region;
use super::super::lock;
use super::super::processes;
use super::super::sets;
use super::super::sys::{self, EpollEvent, PollFd, TimeSpec};
use super::super::table;
use super::super::waits::{self, Patience, Waited, blocking, blocking_for_client};
use super::{aside, result};
use core::ffi::{c_int, c_ulong, c_void};

type Poll = unsafe extern "C" fn(*mut PollFd, c_ulong, c_int) -> c_int;
type Ppoll = unsafe extern "C" fn(*mut PollFd, c_ulong, *const TimeSpec, *const c_void) -> c_int;

/// A time as libc's calls take it, nanoseconds.
fn nanoseconds(seconds: i64, parts: i64) -> u64 {
    (seconds.max(0) as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(parts.max(0) as u64)
}

/// The client among descriptors that are waited for together: a process that serves one connection may wait for more than it.
fn among(fds: impl Iterator<Item = c_int> + Clone) -> Option<(&'static Region, u16, c_int)> {
    let fd = fds.clone().find(|fd| table::is_client(*fd))?;
    match table::known(fd) {
        Some((region, place)) => lock::is_shared(region).then_some((region, place, fd)),
        None => {
            // With one that listens it is a server that is driven by events.
            let is_fit = table::is_forked_worker() && !fds.clone().any(sets::is_listening);
            let (region, place) = is_fit.then(|| table::connection(fd)).flatten()?;
            lock::is_shared(region).then_some((region, place, fd))
        }
    }
}

/// A wait of the calling worker's for one client, by `ordinarily`: its result, as libc gives it.
fn wait_for_one(
    (region, place): (&'static Region, u16),
    poll: &mut PollFd,
    patience: Option<u64>,
    ordinarily: impl FnOnce() -> c_int,
) -> c_int {
    if lock::is_shared(region) {
        let mut briefly = *poll;
        return processes::wait(
            (region, place),
            patience,
            |linger| sys::poll_for(&mut briefly, linger) > 0,
            ordinarily,
            |ready| *ready > 0,
        );
    }
    match aside(|| waits::wait(region, place, poll, Patience::Poll(patience))) {
        Waited::As(raw) => result(raw) as c_int,
        Waited::Gone | Waited::Others => ordinarily(),
        Waited::Ordinarily => {
            let ready = blocking_for_client(ordinarily);
            if ready > 0 {
                aside(|| table::came(region, place));
            }
            ready
        }
    }
}

/// A poll, if a client is in it: what became of it.
fn polling(
    fds: *mut PollFd,
    count: c_ulong,
    patience: Option<u64>,
    may_linger: bool,
    ordinarily: impl FnOnce() -> c_int,
) -> c_int {
    if patience == Some(0) || count == 0 || fds.is_null() {
        return match patience {
            Some(0) => ordinarily(),
            _ => blocking(ordinarily),
        };
    }
    // SAFETY: the caller's records.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, count as usize) };
    if let [one] = fds {
        let client = match one.events & sys::POLLIN {
            0 => None,
            _ => table::connection(one.fd),
        };
        // Who waits with a mask of signals of its own waits in the kernel.
        let client = client.filter(|(region, _)| may_linger || lock::is_shared(region));
        return match client {
            Some(client) => wait_for_one(client, one, patience, ordinarily),
            None if table::is_client(one.fd) => blocking_for_client(ordinarily),
            None => blocking(ordinarily),
        };
    }
    let reads = fds.iter().filter(|one| one.events & sys::POLLIN != 0);
    let Some((region, place, fd)) = among(reads.clone().map(|one| one.fd)) else {
        return match reads.clone().any(|one| table::is_client(one.fd)) {
            true => blocking_for_client(ordinarily),
            false => blocking(ordinarily),
        };
    };
    let records = fds.as_mut_ptr();
    processes::wait(
        (region, place),
        patience,
        // SAFETY: the caller's records, whose answers are written again by the wait that follows.
        |linger| may_linger && unsafe { sys::poll_all(records, count, linger) } > 0,
        ordinarily,
        |ready| {
            // SAFETY: as above.
            let fds = unsafe { core::slice::from_raw_parts(records, count as usize) };
            *ready > 0 && fds.iter().any(|one| one.fd == fd && one.revents != 0)
        },
    )
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn poll(fds: *mut PollFd, count: c_ulong, milliseconds: c_int) -> c_int {
    let patience = u64::try_from(milliseconds).ok().map(|ms| ms * 1_000_000);
    polling(fds, count, patience, true, || {
        next!("poll" as Poll, fds, count, milliseconds)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn ppoll(fds: *mut PollFd, count: c_ulong, time: *const TimeSpec, mask: *const c_void) -> c_int {
    // SAFETY: the caller's, or null.
    let patience = unsafe { time.as_ref() }.map(|time| nanoseconds(time.seconds, time.nanoseconds));
    // Which signals end it is between the caller and the kernel.
    polling(fds, count, patience, mask.is_null(), || {
        next!("ppoll" as Ppoll, fds, count, time, mask)
    })
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

/// A set of descriptors as select(2) takes it.
#[derive(Clone, Copy)]
struct Descriptors {
    words: *const u64,
    count: c_int,
}

impl Descriptors {
    fn has(self, fd: c_int) -> bool {
        // SAFETY: the caller's bits, of which there are `count`; `fd` is one of them.
        !self.words.is_null() && unsafe { *self.words.add(fd as usize / 64) } >> (fd % 64) & 1 == 1
    }

    fn all(self) -> impl Iterator<Item = c_int> + Clone {
        (0..self.count).filter(move |fd| self.has(*fd))
    }
}

/// A select, if a client is in it.
fn selecting(
    reads: Descriptors,
    others: [Descriptors; 2],
    patience: Option<u64>,
    has_mask: bool,
    ordinarily: impl FnOnce() -> c_int,
) -> c_int {
    if patience == Some(0) {
        return ordinarily();
    }
    let mut all = reads.all();
    let first = all.next();
    let is_alone = all.next().is_none() && others.iter().all(|set| set.all().next().is_none());
    let client = match (first, is_alone && !has_mask) {
        (Some(fd), true) => table::connection(fd).map(|(region, place)| (region, place, fd)),
        (Some(_), false) => among(reads.all()),
        (None, _) => None,
    };
    let Some((region, place, fd)) = client else {
        return match reads.all().any(table::is_client) {
            true => blocking_for_client(ordinarily),
            false => blocking(ordinarily),
        };
    };
    if lock::is_shared(region) {
        let briefly = |linger| {
            let mut poll = PollFd {
                fd,
                events: sys::POLLIN,
                revents: 0,
            };
            // Whatever else is waited for would be late.
            is_alone && sys::poll_for(&mut poll, linger) > 0
        };
        let is_there = |ready: &c_int| *ready > 0 && reads.has(fd);
        return processes::wait((region, place), patience, briefly, ordinarily, is_there);
    }
    let mut poll = PollFd {
        fd,
        events: sys::POLLIN,
        revents: 0,
    };
    match aside(|| waits::wait(region, place, &mut poll, Patience::Poll(patience))) {
        Waited::As(raw @ ..0) => result(raw) as c_int,
        // The bits and the time left are the kernel's to write, without a wait where the client is there.
        Waited::As(1..) => ordinarily(),
        Waited::As(0) => {
            // SAFETY: the caller's bits; this was the one that was set.
            unsafe { *reads.words.cast_mut().add(fd as usize / 64) &= !(1 << (fd % 64)) };
            0
        }
        Waited::Gone | Waited::Others => ordinarily(),
        Waited::Ordinarily => {
            let ready = blocking_for_client(ordinarily);
            if ready > 0 {
                aside(|| table::came(region, place));
            }
            ready
        }
    }
}

/// Seconds and microseconds.
#[repr(C)]
struct TimeValue {
    seconds: i64,
    microseconds: i64,
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn select(
    count: c_int,
    reads: *mut u64,
    writes: *mut u64,
    errors: *mut u64,
    time: *mut TimeValue,
) -> c_int {
    type Select = unsafe extern "C" fn(c_int, *mut u64, *mut u64, *mut u64, *mut TimeValue) -> c_int;
    // SAFETY: the caller's, or null.
    let patience = unsafe { time.as_ref() }
        .map(|time| nanoseconds(time.seconds, time.microseconds.saturating_mul(1000)));
    let set = |words: *mut u64| Descriptors { words, count };
    selecting(set(reads), [set(writes), set(errors)], patience, false, || {
        next!("select" as Select, count, reads, writes, errors, time)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn pselect(
    count: c_int,
    reads: *mut u64,
    writes: *mut u64,
    errors: *mut u64,
    time: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    type Pselect =
        unsafe extern "C" fn(c_int, *mut u64, *mut u64, *mut u64, *const TimeSpec, *const c_void) -> c_int;
    // SAFETY: the caller's, or null.
    let patience = unsafe { time.as_ref() }.map(|time| nanoseconds(time.seconds, time.nanoseconds));
    let set = |words: *mut u64| Descriptors { words, count };
    let others = [set(writes), set(errors)];
    selecting(set(reads), others, patience, !mask.is_null(), || {
        next!("pselect" as Pselect, count, reads, writes, errors, time, mask)
    })
}

/// A wait for an epoll set: the client's, where it is in it; anything else in the midst of a query.
fn epolling(
    set: c_int,
    events: *const EpollEvent,
    milliseconds: c_int,
    ordinarily: impl FnOnce() -> c_int,
) -> c_int {
    if milliseconds == 0 {
        return ordinarily();
    }
    let client = sets::client(set).and_then(|watched| Some((watched, processes::own()?)));
    let Some((watched, (region, place, fd))) = client else {
        return blocking(ordinarily);
    };
    // EPOLLIN is 1: who waits until it can send is in the midst of an answer.
    if watched.fd != fd || watched.events & 1 == 0 {
        return blocking_for_client(ordinarily);
    }
    let patience = u64::try_from(milliseconds).ok().map(|ms| ms * 1_000_000);
    processes::wait(
        (region, place),
        patience,
        |linger| {
            // A set can be waited for itself.
            let mut poll = PollFd {
                fd: set,
                events: sys::POLLIN,
                revents: 0,
            };
            sys::poll_for(&mut poll, linger) > 0
        },
        ordinarily,
        |count| {
            let count = usize::try_from(*count).unwrap_or(0);
            // SAFETY: as many records as the kernel has written.
            (0..count).any(|at| unsafe { events.add(at).read() }.data == watched.data)
        },
    )
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn epoll_wait(set: c_int, events: *mut EpollEvent, count: c_int, milliseconds: c_int) -> c_int {
    type EpollWait = unsafe extern "C" fn(c_int, *mut EpollEvent, c_int, c_int) -> c_int;
    epolling(set, events, milliseconds, || {
        next!("epoll_wait" as EpollWait, set, events, count, milliseconds)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    milliseconds: c_int,
    mask: *const c_void,
) -> c_int {
    type EpollMaskedWait = unsafe extern "C" fn(c_int, *mut EpollEvent, c_int, c_int, *const c_void) -> c_int;
    epolling(set, events, milliseconds, || {
        next!(
            "epoll_pwait" as EpollMaskedWait,
            set,
            events,
            count,
            milliseconds,
            mask
        )
    })
}
