//! The waits of workers: for the client's next query, in which a worker is parked, and for anything else in the midst of one, in which
//! its slot is somebody else's.

use super::areas;
use super::blocked::may_go_first;
use super::courtesy;
use super::gaps::{self, is_look_due};
use super::habit;
use super::layout::{Connection, Region, sent};
use super::rounds::{HOME, Locked, is_closed, is_spared_holder, locked, state};
use super::sys::{self, PollFd};
use super::table::{self, attach, begin_query, end_query, own_place, region};
use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// What became of a wait for a client.
pub enum Waited {
    /// As poll(2) says it: its result, or the negative error number.
    As(c_long),
    /// It is to be waited for as without us.
    Ordinarily,
    /// The connection was closed by another thread, and its number may be another client's already.
    Gone,
    /// The number is another file's: it is to be waited for as any other.
    Others,
}

/// Whether a worker was put to sleep.
enum Parked {
    Yes,
    /// Nobody is on call.
    Open,
    /// Its place is another connection's.
    Gone,
}

/// Whether a read of a connection's worker waits for the next query, and not for the rest of one.
pub fn is_for_query(region: &Region, place: u16) -> bool {
    let connection = &region.connections[usize::from(place)];
    connection.in_query.load(Relaxed) == 0 || connection.sent.load(Relaxed) != sent::NOTHING
}

/// How long a worker waits for its client, and what a signal is to it.
#[derive(Clone, Copy)]
pub enum Patience {
    /// As a read(2) without a time: for ever, and one whose handler was installed with SA_RESTART does not end it (signal(7)).
    Read,
    /// As poll(2) and select(2), and a read with a time: at most for so long (nanoseconds), and any ends it.
    Poll(Option<u64>),
}

/// For ever, nanoseconds: ten years. The kernel goes on with an untimed wait for a word after a signal, as with a read.
const FOR_EVER_NS: u64 = 315_360_000_000_000_000;

/// Whether a signal that came before its client was waited for ends a wait: a read(2) to come is not ended by what came before it.
const fn is_ended_by_signals(how: Patience) -> bool {
    matches!(how, Patience::Poll(_))
}

/// The worker of a connection waits for its client: the end of a query, and the beginning of the next.
pub fn wait(region: &'static Region, place: u16, poll: &mut PollFd, how: Patience) -> Waited {
    let (patience, until) = match how {
        Patience::Read => (None, None),
        Patience::Poll(patience) => (patience, Some(patience.unwrap_or(FOR_EVER_NS))),
    };
    let connection = &region.connections[usize::from(place)];
    let generation = connection.generation.load(Acquire);
    let began = sys::now();
    attach(connection, place);
    habit::waits(connection);
    let was_in_query = connection.in_query.load(Relaxed) == 1;
    if was_in_query && connection.sent.load(Relaxed) == sent::NOTHING {
        // The rest of a query, or what the server asked for in its midst: as any other wait.
        return Waited::Ordinarily;
    }
    if was_in_query {
        end_query(region, connection, began);
    }
    let is_on_call = is_closed(region, began);
    courtesy::keep(connection, is_on_call);
    areas::keep((region, place), began);
    if !is_on_call {
        let has_slot = connection.slot.load(Relaxed) == 1;
        // Whoever has just answered tells of its time what waited beside it; others waited for their clients.
        let looks = was_in_query && is_look_due(began);
        if has_slot || looks {
            locked(region, |lock| {
                lock.release(connection);
                if looks {
                    lock.look(connection.query_ns.load(Relaxed));
                }
                if has_slot || region.waiting.load(Relaxed) > 0 {
                    lock.dispatch();
                }
            });
        }
        return Waited::Ordinarily;
    }
    let mut has_lingered = false;
    if connection.slot.load(Relaxed) == 1
        && connection.tokens.load(Relaxed) > 0
        && !is_spared_holder(connection)
    {
        let linger = region.linger_ns.load(Relaxed).min(patience.unwrap_or(u64::MAX));
        if linger > 0 {
            let result = sys::poll_for(poll, linger);
            if result != 0 && (result != -sys::EINTR || is_ended_by_signals(how)) {
                if result > 0 {
                    begin_query(connection, sys::now());
                }
                return Waited::As(result);
            }
            has_lingered = true;
        }
    }
    let until = until.map(|patience| began.saturating_add(patience));
    let is_interrupted = was_in_query && areas::pause(region, connection, poll.fd, until);
    if is_interrupted && is_ended_by_signals(how) {
        return Waited::As(-sys::EINTR);
    }
    if connection.generation.load(Acquire) != generation {
        return Waited::Gone;
    }
    if table::is_others(poll.fd, connection) {
        // Whoever has the number now may be a client that was accepted since.
        return match connection.generation.load(Acquire) == generation {
            true => {
                table::forget_place(poll.fd, place);
                Waited::Others
            }
            false => Waited::Gone,
        };
    }
    // Epoll speaks once of what came together: of two queries in one packet, or a query and the end of its client, the second is
    // here and will not be announced. What comes after this look is.
    let mut is_there = !has_lingered && sys::poll_for(poll, 0) != 0;
    loop {
        let parked = locked(region, |lock| {
            // What is done here to another's place would be lost to both.
            if connection.generation.load(Relaxed) != generation {
                return Parked::Gone;
            }
            connection.go.store(0, Relaxed);
            lock.release(connection);
            if !lock.is_closed() {
                // Not on call since it began to wait: nobody watches for its client any more.
                lock.dispatch();
                return Parked::Open;
            }
            if has_lingered {
                // What was read while it lingered is still in epoll, and would wake it for nothing.
                lock.harvest();
            }
            park(lock, connection, place, (poll.fd, is_there));
            lock.dispatch();
            Parked::Yes
        });
        match parked {
            Some(Parked::Yes) => {}
            Some(Parked::Gone) => return Waited::Gone,
            Some(Parked::Open) | None => return Waited::Ordinarily,
        }
        (has_lingered, is_there) = (false, false);
        // As poll(2), which this is for the server.
        let result = sys::cancellable(|| {
            let mut result = 0;
            // The place may be another's by the time that it runs, and with it the word: that is not for it to sleep on.
            let is_ours = || connection.generation.load(Acquire) == generation;
            while connection.go.load(Acquire) == 0 && result == 0 && is_ours() {
                result = sys::futex_wait(&connection.go, 0, until, false);
                if result == -sys::EAGAIN {
                    result = 0;
                }
            }
            result
        });
        if connection.generation.load(Acquire) != generation {
            return Waited::Gone;
        }
        if connection.go.load(Acquire) == HOME {
            return match until.filter(|_| patience.is_some()) {
                _ if result == -sys::EINTR => Waited::As(result),
                None => Waited::Ordinarily,
                Some(until) => at_home(connection, poll, until),
            };
        }
        if connection.go.load(Acquire) == 0 {
            // A timeout or a signal: unless it was let go at the last moment, it goes without a slot.
            locked(region, |lock| {
                if connection.generation.load(Relaxed) == generation && connection.go.load(Acquire) == 0 {
                    lock.dequeue(place);
                    connection.state.store(state::RUNNING, Relaxed);
                }
            });
            if connection.generation.load(Acquire) != generation {
                return Waited::Gone;
            }
        }
        let has_slot = connection.go.load(Acquire) == 1;
        let there = match sys::poll_for(poll, 0) {
            interrupted if interrupted == -sys::EINTR && !is_ended_by_signals(how) => 0,
            there => there,
        };
        match (there, has_slot) {
            (0, true) => {
                region.spurious.fetch_add(1, Relaxed);
            }
            (0, false) if result == -sys::EINTR => return Waited::As(-sys::EINTR),
            (0, false) => return Waited::As(0),
            _ => {
                if !has_slot {
                    region.without_slot.fetch_add(1, Relaxed);
                }
                let now = sys::now();
                // They may have changed while it slept.
                areas::keep((region, place), now);
                if there > 0 {
                    begin_query(connection, now);
                }
                return Waited::As(there);
            }
        }
    }
}

/// Waits for the rest of its time as without us.
fn at_home(connection: &Connection, poll: &mut PollFd, until: u64) -> Waited {
    let result = sys::cancellable(|| sys::poll_for(poll, until.saturating_sub(sys::now())));
    if result > 0 {
        begin_query(connection, sys::now());
    }
    Waited::As(result)
}

/// Puts a worker to sleep, or in line where its next query is there already: as was seen, or as epoll said while it ran.
fn park(lock: &mut Locked, connection: &Connection, place: u16, (fd, is_there): (c_int, bool)) {
    connection.state.store(state::PARKED, Relaxed);
    let was_noted = connection.pending.swap(0, Relaxed) == 1;
    if is_there || was_noted && sys::is_readable(fd) {
        lock.enqueue(place);
    } else if was_noted {
        connection.ready_ns.store(0, Relaxed);
    }
}

/// The connection whose query the calling thread serves.
fn serving() -> Option<(&'static Region, &'static Connection)> {
    let region = region()?;
    let connection = &region.connections[own_place().checked_sub(1)?];
    let serves = connection.in_query.load(Relaxed) == 1
        // The place may be another's since its connection was closed.
        && connection.tid.load(Relaxed) == sys::thread();
    serves.then_some((region, connection))
}

/// The connection whose slot the calling thread holds inside a query.
pub fn held() -> Option<(&'static Region, &'static Connection)> {
    serving().filter(|(_, connection)| connection.slot.load(Relaxed) == 1)
}

/// Runs something that may block in the midst of a query: the calling worker's slot is somebody else's meanwhile.
pub fn blocking<R>(body: impl FnOnce() -> R) -> R {
    // One that has lost its slot, as a long query does, may be waited for as well.
    let waits = serving().filter(|(region, connection)| {
        connection.slot.load(Relaxed) == 1 || may_go_first(connection) && is_closed(region, sys::now())
    });
    away(waits, true, body)
}

/// The same of what waits for the connection's own client, for the rest of a query or until it takes its answer: for nobody who yields. Until the
/// rest is there it is the client's time.
pub fn blocking_for_client<R>(body: impl FnOnce() -> R) -> R {
    let asks = serving().filter(|(_, connection)| connection.sent.load(Relaxed) == sent::NOTHING);
    let Some((_, connection)) = asks else {
        return away(held(), false, body);
    };
    let (generation, began) = (connection.generation.load(Acquire), sys::now());
    let result = away(held(), false, body);
    if connection.generation.load(Acquire) == generation && connection.in_query.load(Relaxed) == 1 {
        // The server may have been stopped meanwhile.
        let came = gaps::came_while_waiting(connection, began, sys::now());
        let waited = came.saturating_sub(began);
        connection.query_ns.fetch_add(waited, Relaxed);
    }
    result
}

fn away<R>(
    waits: Option<(&'static Region, &'static Connection)>,
    is_for_others: bool,
    body: impl FnOnce() -> R,
) -> R {
    let Some((region, connection)) = waits else {
        return body();
    };
    let generation = connection.generation.load(Acquire);
    let had_slot = connection.slot.load(Relaxed) == 1;
    let gave = locked(region, |lock| {
        lock.release(connection);
        region.given_back.fetch_add(u64::from(had_slot), Relaxed);
        if is_for_others {
            lock.block(connection);
        }
        lock.dispatch();
    });
    let result = body();
    if gave.is_some() {
        // It may hold what others wait for, so it waits for no slot: for a while one more runs than may.
        locked(region, |lock| {
            // Somebody else may have closed the connection meanwhile: its place is another's then.
            if connection.generation.load(Acquire) == generation {
                lock.unblock(connection);
                if had_slot && connection.slot.load(Acquire) == 0 {
                    lock.take_slot(connection);
                }
            }
        });
    }
    result
}
