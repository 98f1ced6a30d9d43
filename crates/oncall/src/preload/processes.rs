//! A server with a process per connection (PostgreSQL, httpd's prefork, PHP-FPM): its workers were forked from the process that loaded
//! the library, and share the region.
//!
//! A worker stays asleep in the kernel, in its own wait, while its client is quiet: no thread of ours is in it, and what else wakes it
//! (a latch, a signal) is the server's. When its client's query is there and it has no slot, it stands in line in the region and sleeps
//! on its word there. Whoever gives a slot up wakes the next, as among threads.
//!
//! Nobody outside is needed. One of those that wait is the watchman: it alone sleeps shortly, takes back the slots of workers that
//! sleep or have ended, and begins the round when the delay is over. Who is let go hands that on to whoever waits longest from then
//! on. A watchman that is killed is replaced by the next that comes, or within a second by another that waits.

use super::areas;
use super::courtesy;
use super::gaps::{GAP_NS, dated, is_after_shared_gap};
use super::habit;
use super::layout::{Connection, MAX_CONNECTIONS, Region, mode, sent};
use super::lock;
use super::owner;
use super::rounds::{Locked, NONE, RECLAIM_NS, is_closed, is_spared_holder, locked, state, under};
use super::sys;
use super::table::{self, attach, begin_query, end_query};
use super::waits::blocking_for_client;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32};

/// A worker that is not the watchman looks at least so often whether there is one.
const LOOK_NS: u64 = 1_000_000_000;
/// A watchman that has not looked for so long is stopped: it looks every 5 ms.
const STOPPED_NS: u64 = 100_000_000;
/// The places of processes that ended are looked for so often.
const SWEEP_NS: u64 = 250_000_000;
/// What a worker's word says to have it look again.
const LOOK_AGAIN: u32 = 2;

/// The place, plus 1, of this process's connection.
static MINE: AtomicU32 = AtomicU32::new(0);
/// Its descriptor; -1 where it was closed by another thread.
static FD: AtomicI32 = AtomicI32::new(-1);
/// What the kernel counts of the times of the thread that serves; -1 where it does not.
static TIMES: AtomicI32 = AtomicI32::new(-1);
/// This process serves several connections at a time: it is none of those that can be helped.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

/// In a forked child: its parent's connection is its parent's.
pub fn forked() {
    MINE.store(0, Relaxed);
    FD.store(-1, Relaxed);
    GIVEN_UP.store(0, Relaxed);
    let times = TIMES.swap(-1, Relaxed);
    if times >= 0 {
        sys::close(times);
    }
}

/// The server closes descriptors of these numbers, whosever they are.
pub fn closed(first: c_int, last: c_int) {
    if (first..=last).contains(&TIMES.load(Relaxed)) && !table::is_borrowed() {
        sys::close(TIMES.swap(-1, Relaxed));
    }
}

/// For how long the worker has waited for a processor.
fn time_in_queue() -> Option<u64> {
    let times = TIMES.load(Relaxed);
    (times >= 0).then(|| sys::time_in_queue(times)).flatten()
}

/// A client has come while there may be one already: a process that serves several is driven by events.
pub fn accepted(region: &'static Region) {
    if MINE.load(Relaxed) != 0 && FD.load(Relaxed) >= 0 {
        give_up(region);
    }
}

fn give_up(region: &'static Region) {
    if GIVEN_UP.swap(1, Relaxed) == 0 {
        region.event_driven.fetch_add(1, Relaxed);
        table::set_entry(FD.load(Relaxed), 0);
        leave(region);
        table::put_in_use(None);
    }
}

/// Puts the connection that this process serves on call: its place.
pub fn adopt(region: &'static Region, fd: c_int, peer: ([u64; 2], u32)) -> Option<u16> {
    if MINE.load(Relaxed) != 0 {
        accepted(region);
        leave(region);
    }
    if GIVEN_UP.load(Relaxed) == 1 {
        return None;
    }
    let is_ours = table::decide(region, mode::PROCESSES) || owner::give_to_processes(region);
    if !is_ours || !table::make_key() {
        region.elsewhere.fetch_add(1, Relaxed);
        return None;
    }
    let _ = region
        .owner
        .compare_exchange(0, table::loader(), Relaxed, Relaxed);
    if table::region().is_none() {
        table::forget_inherited();
        region.processes.fetch_add(1, Relaxed);
        table::put_in_use(Some(region));
    }
    let claimed = locked(region, |lock| {
        lock.sweep_sometimes();
        table::claim(lock, fd, peer).or_else(|| {
            lock.sweep();
            table::claim(lock, fd, peer)
        })
    });
    let Some((place, _)) = claimed.flatten() else {
        region.unmanaged.fetch_add(1, Relaxed);
        return None;
    };
    if TIMES.load(Relaxed) < 0 {
        TIMES.store(sys::open_times(), Relaxed);
    }
    table::set_entry(fd, u32::from(place) + 1);
    MINE.store(u32::from(place) + 1, Relaxed);
    FD.store(fd, Relaxed);
    attach(&region.connections[usize::from(place)], place);
    Some(place)
}

/// This process's connection is closed.
pub fn leave(region: &'static Region) {
    let Some(place) = MINE.load(Relaxed).checked_sub(1) else {
        return;
    };
    FD.store(-1, Relaxed);
    let connection = &region.connections[place as usize];
    // Its liveness is its first thread's: another one that closes the connection leaves the place to that, or to the sweep.
    if !table::is_forked_worker() {
        locked(region, |lock| {
            lock.release(connection);
            lock.dispatch();
        });
        return;
    }
    let is_free = locked(region, |lock| {
        lock::die(&connection.alive);
        lock.free(place as u16);
        lock.relieve(place as u16);
    });
    if is_free.is_some() {
        MINE.store(0, Relaxed);
    }
}

/// The process ends in order.
pub extern "C" fn unload() {
    if let Some(region) = table::region()
        && MINE.load(Relaxed) != 0
        && !table::is_borrowed()
        && table::is_forked_worker()
    {
        table::set_entry(FD.load(Relaxed), 0);
        leave(region);
        table::put_in_use(None);
    }
}

/// The descriptor of this process's one connection, and its place.
pub fn own() -> Option<(&'static Region, u16, c_int)> {
    let place = MINE.load(Relaxed).checked_sub(1)?;
    let fd = FD.load(Relaxed);
    (fd >= 0).then_some((table::region()?, place as u16, fd))
}

/// A wait of the worker's in which its client's next query may come: the end of the one before, and the beginning of this one.
/// `briefly` waits for so long and says whether anything came; `ordinarily` is the wait as the server wrote it, and `is_there` whether
/// what it says is that the client sent something.
pub fn wait<R>(
    (region, place): (&'static Region, u16),
    patience: Option<u64>,
    briefly: impl FnOnce(u64) -> bool,
    ordinarily: impl FnOnce() -> R,
    is_there: impl FnOnce(&R) -> bool,
) -> R {
    let connection = &region.connections[usize::from(place)];
    attach(connection, place);
    habit::waits(connection);
    let is_in_query = connection.in_query.load(Relaxed) == 1;
    if is_in_query && connection.sent.load(Relaxed) == sent::NOTHING {
        // The rest of a query, or what the server asked for in its midst: as any other wait.
        return blocking_for_client(ordinarily);
    }
    let now = sys::now();
    if is_in_query {
        end_query(region, connection, now);
    }
    if connection.slot.load(Relaxed) == 1 {
        let may_linger =
            connection.tokens.load(Relaxed) > 0 && !is_spared_holder(connection) && is_closed(region, now);
        let linger = match may_linger {
            true => region.linger_ns.load(Relaxed).min(patience.unwrap_or(u64::MAX)),
            false => 0,
        };
        if linger == 0 || !briefly(linger) {
            locked(region, |lock| {
                lock.release(connection);
                lock.dispatch();
            });
        }
    }
    let (asleep, queued) = (sys::now(), time_in_queue());
    let result = ordinarily();
    if is_there(&result) {
        let now = sys::now();
        // Its client's query was there when it was woken, and not when it had a processor.
        let waited = queued.zip(time_in_queue());
        let waited = waited.map_or(0, |(before, since)| since.saturating_sub(before));
        came(region, place, (now, now - waited.min(now.saturating_sub(asleep))));
    }
    result
}

/// A read of the client's socket.
pub fn read(
    (region, place): (&'static Region, u16),
    fd: c_int,
    never_waits: bool,
    ordinarily: impl FnOnce() -> isize,
) -> Option<isize> {
    let connection = &region.connections[usize::from(place)];
    let is_in_query = connection.in_query.load(Relaxed) == 1;
    let may_wait = !never_waits && sys::is_blocking(fd);
    if is_in_query && connection.sent.load(Relaxed) == sent::NOTHING {
        return Some(match may_wait && !sys::is_readable(fd) {
            true => blocking_for_client(ordinarily),
            false => ordinarily(),
        });
    }
    if may_wait {
        let briefly = |linger| {
            let mut poll = sys::PollFd {
                fd,
                events: sys::POLLIN,
                revents: 0,
            };
            sys::poll_for(&mut poll, linger) > 0
        };
        return Some(wait((region, place), None, briefly, ordinarily, |read| *read > 0));
    }
    if is_in_query && habit::spares(connection) {
        // As if nothing was there yet: the server waits for its client, and there the query ends. A system call is saved.
        return None;
    }
    let read = ordinarily();
    habit::looked(connection, read);
    if read > 0 {
        if is_in_query {
            // It waited for the next one where no hook saw it.
            end_query(region, connection, sys::now());
        }
        let now = sys::now();
        came(region, place, (now, now));
    }
    Some(read)
}

/// The client's query is there, and came at this time: its worker goes on with a slot.
fn came(region: &'static Region, place: u16, (now, since): (u64, u64)) {
    let connection = &region.connections[usize::from(place)];
    if connection.in_query.load(Relaxed) == 1 {
        return;
    }
    attach(connection, place);
    // Not before its client had the answer to its last one.
    let answered = connection.sent_ns.load(Relaxed);
    let is_after_gap = is_after_shared_gap(region, now);
    let since = match is_after_gap && now.saturating_sub(answered) > GAP_NS {
        true => dated(connection, since, now),
        false => since,
    };
    let since = since.max(answered).min(now);
    connection.ready_ns.store(since, Relaxed);
    let is_on_call = is_closed(region, now);
    courtesy::keep(connection, is_on_call);
    if connection.slot.load(Relaxed) == 0 && is_on_call {
        // A signal that ends it is the server's to see when the query is there.
        areas::pause(region, connection, FD.load(Relaxed), None);
        acquire(region, connection, place);
        if connection.slot.load(Relaxed) == 0 {
            region.without_slot.fetch_add(1, Relaxed);
        }
    }
    areas::keep((region, place), sys::now());
    connection.state.store(state::RUNNING, Relaxed);
    begin_query(connection, now);
}

/// What a worker in line does next.
enum Next {
    Go,
    Sleep { until: u64, is_watchman: bool },
}

/// Stands in line until there is a slot; a signal, or the end of the lease, lets it go without one.
fn acquire(region: &'static Region, connection: &Connection, place: u16) {
    connection.go.store(0, Relaxed);
    let mut is_in_line = false;
    let mut is_time = false;
    loop {
        let next = locked(region, |lock| {
            lock.myself = place;
            if !is_in_line {
                lock.enqueue(place);
            }
            if is_time {
                lock.tend();
            }
            lock.dispatch();
            if connection.go.load(Relaxed) == 1 {
                return Next::Go;
            }
            connection.go.store(0, Relaxed);
            if !lock.is_watched() {
                region.watchman.store(u32::from(place) + 1, Relaxed);
            }
            let is_watchman = region.watchman.load(Relaxed) == u32::from(place) + 1;
            if is_watchman {
                region.watched_ns.store(lock.now, Relaxed);
            }
            let not_before = lock.not_before();
            let until = match is_watchman {
                true if lock.delay() > 0 && lock.now < not_before => not_before.min(lock.now + RECLAIM_NS),
                true => lock.now + RECLAIM_NS,
                false => lock.now + LOOK_NS,
            };
            Next::Sleep { until, is_watchman }
        });
        let Some(Next::Sleep { until, is_watchman }) = next else {
            return;
        };
        is_in_line = true;
        let result = sys::futex_wait(&connection.go, 0, Some(until), true);
        if connection.go.load(Acquire) == 1 {
            return;
        }
        is_time = is_watchman && result == -sys::ETIMEDOUT;
        if result == -sys::EINTR {
            locked(region, |lock| {
                if connection.go.load(Relaxed) != 1 {
                    lock.dequeue(place);
                    connection.state.store(state::RUNNING, Relaxed);
                    lock.relieve(place);
                }
            });
            return;
        }
    }
}

/// What whoever steers does every second: places of processes that ended are free, and slots are given to those that wait, should
/// nobody else be there to do it.
pub fn tend(region: &'static Region) {
    if !lock::is_shared(region) {
        return;
    }
    under(region, lock::try_take(region), |lock| {
        lock.sweep();
        if !lock.is_watched() {
            // Whoever is made it may be stopped, too.
            lock.reclaim();
            lock.appoint();
        }
        lock.dispatch();
    });
}

impl Locked {
    /// Whether a place's process has ended.
    pub fn is_dead(&self, connection: &Connection) -> bool {
        self.is_shared && !lock::is_alive(&connection.alive)
    }

    /// Takes the place of a process that ended back.
    pub fn bury(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        self.region.buried.fetch_add(1, Relaxed);
        self.release(connection);
        self.unblock(connection);
        self.dequeue(place);
        connection.state.store(state::RUNNING, Relaxed);
        connection.generation.fetch_add(1, Release);
        self.relieve(place);
    }

    /// Takes the places of all processes that ended back.
    fn sweep(&mut self) {
        self.region.swept_ns.store(self.now, Relaxed);
        let top = self.lists.top.load(Relaxed) as usize;
        for (place, connection) in self.region.connections.iter().enumerate().take(top) {
            let is_taken = connection.generation.load(Relaxed) % 2 == 1;
            if is_taken && self.is_dead(connection) {
                self.bury(place as u16);
            }
        }
    }

    fn sweep_sometimes(&mut self) {
        if self.now.saturating_sub(self.region.swept_ns.load(Relaxed)) > SWEEP_NS {
            self.sweep();
        }
    }

    /// The watchman's work.
    fn tend(&mut self) {
        self.reclaim();
        self.sweep_sometimes();
    }

    /// Whether there is a watchman, who waits, lives and is not stopped.
    fn is_watched(&self) -> bool {
        let place = self.region.watchman.load(Relaxed).checked_sub(1);
        if self.now.saturating_sub(self.region.watched_ns.load(Relaxed)) > STOPPED_NS {
            return false;
        }
        place.is_some_and(|place| {
            let connection = &self.region.connections[place as usize];
            connection.state.load(Relaxed) == state::READY && !self.is_dead(connection)
        })
    }

    /// Makes whoever waits longest from now on the watchman.
    fn appoint(&mut self) {
        let last = self.lists.last();
        self.region
            .watchman
            .store(last.map_or(0, |place| u32::from(place) + 1), Relaxed);
        self.region.watched_ns.store(self.now, Relaxed);
        self.remind();
    }

    /// A worker waits no longer: it is not the watchman any more.
    pub fn relieve(&mut self, place: u16) {
        if self.is_shared && self.region.watchman.load(Relaxed) == u32::from(place) + 1 {
            self.appoint();
        }
    }

    /// Has the watchman look when it is to wake.
    pub fn remind(&mut self) {
        let Some(place) = self.region.watchman.load(Relaxed).checked_sub(1) else {
            return;
        };
        let connection = &self.region.connections[place as usize];
        if connection
            .go
            .compare_exchange(0, LOOK_AGAIN, Release, Relaxed)
            .is_ok()
        {
            self.rouse_worker(place as u16);
        }
    }

    /// Sets right what a holder of the lock that was killed may have left half done: from what each connection says.
    pub fn recover(&mut self) {
        self.region.recovered.fetch_add(1, Relaxed);
        self.lists.clear();
        self.region.watchman.store(0, Relaxed);
        self.lists.hint.store(0, Relaxed);
        self.lists.top.store(MAX_CONNECTIONS as u32, Relaxed);
        let (mut running, mut waiting) = (0, 0);
        let mut line = [NONE; MAX_CONNECTIONS];
        for (place, connection) in self.region.connections.iter().enumerate() {
            if connection.generation.load(Relaxed).is_multiple_of(2) {
                connection.slot.store(0, Relaxed);
                continue;
            }
            if self.is_dead(connection) {
                self.region.buried.fetch_add(1, Relaxed);
                connection.slot.store(0, Relaxed);
                connection.state.store(state::RUNNING, Relaxed);
                connection.generation.fetch_add(1, Release);
                continue;
            }
            // One that was let go and did not hear of it.
            if connection.slot.load(Relaxed) == 1 {
                running += 1;
                connection.state.store(state::RUNNING, Relaxed);
                connection.go.store(1, Release);
                self.rouse_worker(place as u16);
            } else if connection.state.load(Relaxed) == state::READY {
                line[waiting] = place as u16;
                waiting += 1;
            }
        }
        // In the order in which their queries came.
        let line = &mut line[..waiting];
        line.sort_unstable_by_key(|place| {
            self.region.connections[usize::from(*place)]
                .ready_ns
                .load(Relaxed)
        });
        self.region.running.store(running, Relaxed);
        self.count_slots();
        self.region.waiting.store(0, Relaxed);
        self.count_blocked();
        for place in line {
            self.enqueue(*place);
        }
        self.appoint();
        self.dispatch();
    }
}
