//! What a server does with what it has accepted: whether it works or waits for its clients.
//!
//! A worker that reads from a connection whose client sends nothing, or its request a byte at a time, serves nobody meanwhile, and
//! neither does one that writes to a client which does not read. Where the accept queue is full that happens by itself: the kernel drops
//! the last step of a handshake, the client sends its request again and again, later and later, and the connection is accepted before
//! that has come. What the server serves then is no capacity of it.
//!
//! The kernel tells of each connection how much either side has sent, and when. A client whose request comes in pieces is known by the
//! second of them: more has come since the last look, the server has read all of it and has sent nothing. One that sends a piece and then
//! no more looks like one whose request takes the server long: of that only the time is told.

use super::diag::{Connection, Diag};
use super::{Connections, Length, QueueError};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often it is asked for: the kernel goes through all its connections for it.
const EVERY: Duration = Duration::from_millis(500);
/// From so many thousandths on loops are to be looked at: those that are full have more.
const NEARLY_FULL: u32 = 900;
/// And no sooner than after so many times what a look takes: of a hundred thousand connections it takes long, on a machine that has no time.
const TIMES: u32 = 20;
/// The most connections that are compared with the last look.
const MAX_SEEN: usize = 65_536;
/// The share of those not answered whose time is told.
const LONGEST: usize = 10;

/// What a connection was when it was last looked at.
#[derive(Clone, Copy, Debug)]
struct Seen {
    connection: Connection,
    /// Since when it is not answered, as far as was seen.
    since: Instant,
    slow: bool,
}

/// The connections of a port, as they were last asked for.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    last: Option<(Instant, Connections)>,
    /// How long the last look took.
    took: Duration,
    /// Those that were not answered, by cookie, and when that was.
    seen: HashMap<u64, Seen>,
    seen_at: Option<Instant>,
}

impl Accepted {
    /// They, where somebody waits in the port's queue or its event loops are full: else nobody is in difficulty, and it is not worth
    /// asking.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn of(
        &mut self,
        diag: &mut Diag,
        port: u16,
        (queue, loops_busy): (Length, Option<u32>),
        now: Instant,
    ) -> Result<Option<Connections>, QueueError> {
        if queue.now == 0 && loops_busy.is_none_or(|busy| busy < NEARLY_FULL) {
            self.last = None;
            return Ok(None);
        }
        if let Some((at, known)) = self.last
            && now.saturating_duration_since(at) < EVERY.max(self.took * TIMES)
        {
            return Ok(Some(known));
        }
        let begun = Instant::now();
        let found = self.look(&diag.connections(port)?, now);
        self.took = begun.elapsed();
        self.last = Some((now, found));
        Ok(Some(found))
    }

    /// How many of a port's connections are worked on. Those that wait in its queue say nothing of that: one that accepts from each port in
    /// turn works as much for a short queue as for a long one.
    pub(super) fn worked_on(&mut self, connections: &[Connection], now: Instant) -> u64 {
        self.look(connections, now).working
    }

    /// What they are at this moment.
    fn look(&mut self, connections: &[Connection], now: Instant) -> Connections {
        let before = std::mem::take(&mut self.seen);
        let passed = self
            .seen_at
            .replace(now)
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let mut found = Connections::default();
        let mut times = Vec::new();
        for &connection in connections {
            let nothing_came = connection.received == 0;
            found.gone += u64::from(connection.closed && nothing_came);
            if !connection.accepted {
                found.cancelled += u64::from(connection.closed && !nothing_came);
                continue;
            }
            found.open += 1;
            found.kept += u64::from(connection.sent > 0);
            let last = before.get(&connection.cookie);
            if connection.closed && nothing_came || connection.is_answered() && !connection.unsent {
                continue;
            }
            let seen = Seen::of(connection, last, passed, now);
            if self.seen.len() < MAX_SEEN {
                self.seen.insert(connection.cookie, seen);
            }
            match () {
                () if nothing_came => found.silent += 1,
                () if seen.slow => found.slow += 1,
                // The server is done with it, as far as can be told.
                () if connection.is_answered() => continue,
                () => found.working += 1,
            }
            times.push(now.saturating_duration_since(seen.since));
        }
        times.sort_unstable_by(|one, other| other.cmp(one));
        let tenth = times.len().div_ceil(LONGEST).saturating_sub(1);
        let longest = times.get(tenth).copied().unwrap_or_default();
        found.longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        found
    }
}

impl Connection {
    /// Whether the server has sent something since the last bytes came.
    const fn is_answered(&self) -> bool {
        self.sent > 0 && self.unread == 0 && self.sent_ago_ms <= self.received_ago_ms
    }
}

impl Seen {
    /// A connection that is not answered, or whose answer is not taken, after what it was this time ago.
    fn of(connection: Connection, last: Option<&Self>, passed: Duration, now: Instant) -> Self {
        let new = Self {
            connection,
            since: now,
            slow: false,
        };
        let Some(last) = last else {
            return new;
        };
        let before = last.connection;
        if connection.unsent && before.unsent {
            let not_taken = connection.not_taken_us.saturating_sub(before.not_taken_us);
            let is_slow = u128::from(not_taken) * 2 > passed.as_micros();
            return Self {
                since: last.since,
                slow: is_slow,
                ..new
            };
        }
        if connection.sent != before.sent {
            return new;
        }
        let in_pieces =
            before.received > 0 && connection.received > before.received && connection.unread == 0;
        Self {
            since: last.since,
            slow: last.slow || in_pieces,
            ..new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const LOOK: Duration = Duration::from_millis(500);

    fn asked(cookie: u64, received: u64) -> Connection {
        Connection {
            cookie,
            accepted: true,
            received,
            received_ago_ms: 10,
            sent_ago_ms: 20,
            ..Connection::default()
        }
    }

    #[test]
    fn a_request_in_pieces_is_slow_until_it_is_answered_and_one_that_came_whole_is_worked_on() {
        let mut accepted = Accepted::default();
        let start = Instant::now();
        let looked = |accepted: &mut Accepted, at: u32, of: &[Connection]| {
            let found = accepted.look(of, start + LOOK * at);
            (found.silent, found.slow, found.working)
        };
        assert_eq!(looked(&mut accepted, 0, &[asked(1, 20), asked(2, 20)]), (0, 0, 2));
        assert_eq!(looked(&mut accepted, 1, &[asked(1, 21), asked(2, 20)]), (0, 1, 1));
        // It goes on being slow though no more came.
        assert_eq!(looked(&mut accepted, 2, &[asked(1, 21), asked(2, 20)]), (0, 1, 1));
        // What the server has not read it does not wait for.
        let unread = Connection {
            unread: 1,
            ..asked(2, 21)
        };
        assert_eq!(looked(&mut accepted, 3, &[asked(1, 21), unread]), (0, 1, 1));
        let again = Connection {
            sent: 100,
            ..asked(1, 41)
        };
        assert_eq!(looked(&mut accepted, 4, &[again]), (0, 0, 1), "the next request");
        // The first piece of one whose client had sent nothing is its request, as far as is known.
        assert_eq!(looked(&mut accepted, 5, &[asked(3, 0)]), (1, 0, 0));
        assert_eq!(looked(&mut accepted, 6, &[asked(3, 20)]), (0, 0, 1));
    }

    #[test]
    fn a_connection_that_was_answered_is_neither_held_nor_worked_on() {
        let parked = Connection {
            sent: 100,
            sent_ago_ms: 5,
            ..asked(1, 20)
        };
        let half_closed = Connection {
            closed: true,
            ..asked(2, 0)
        };
        let waits = Connection {
            accepted: false,
            ..half_closed
        };
        let cancelled = Connection {
            accepted: false,
            closed: true,
            ..asked(3, 20)
        };
        let found = Accepted::default().look(&[parked, half_closed, waits, cancelled], Instant::now());
        let expected = Connections {
            open: 2,
            gone: 2,
            cancelled: 1,
            kept: 1,
            ..Connections::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_client_that_does_not_read_its_answer_is_slow_and_one_that_a_link_slows_down_is_not() {
        let answers = |not_taken_us| Connection {
            sent: 60_000,
            sent_ago_ms: 5,
            unsent: true,
            not_taken_us,
            ..asked(1, 20)
        };
        let start = Instant::now();
        for (not_taken_us, slow) in [(450_000, 1), (50_000, 0)] {
            let mut accepted = Accepted::default();
            accepted.look(&[answers(0)], start);
            let found = accepted.look(&[answers(not_taken_us)], start + LOOK);
            assert_eq!((found.slow, found.working), (slow, 0), "{not_taken_us}");
        }
    }

    #[test]
    fn the_time_is_that_of_the_longest_tenth() {
        let mut accepted = Accepted::default();
        let start = Instant::now();
        let all: Vec<Connection> = (0..20).map(|cookie| asked(cookie, 20)).collect();
        accepted.look(&all[..1], start);
        accepted.look(&all[..2], start + LOOK);
        assert_eq!(
            accepted.look(&all, start + LOOK * 4).longest_ms,
            1_500,
            "two of 20"
        );
        assert_eq!(
            accepted.look(&all[..1], start + LOOK * 5).longest_ms,
            2_500,
            "one of one"
        );
        assert_eq!(accepted.look(&[], start + LOOK * 6).longest_ms, 0);
    }

    #[test]
    fn of_live_connections_each_is_told_by_what_its_client_does() {
        let mut diag = Diag::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Accepted::default();
        // One after another, so that each is the one that was accepted.
        let connect = |asks: &[u8]| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(asks).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let (_silent, _worked_on) = (connect(b""), connect(b"GET"));
        let (mut in_pieces, mut parked) = (connect(b"G"), connect(b"GET"));
        let mut request = [0; 3];
        parked.1.read_exact(&mut request).unwrap();
        // Longer than the kernel's clock ticks, so that it is answered after it has come.
        std::thread::sleep(Duration::from_millis(20));
        parked.1.write_all(b"200").unwrap();
        in_pieces.1.read_exact(&mut request[..1]).unwrap();
        // They wait in the queue, one of them for nothing.
        let _waits = TcpStream::connect(address).unwrap();
        drop(TcpStream::connect(address).unwrap());
        let now = Instant::now();
        let first = accepted.look(&diag.connections(address.port()).unwrap(), now);
        assert_eq!(
            (first.open, first.silent, first.slow, first.working),
            (4, 1, 0, 2)
        );
        assert_eq!(first.gone, 1);
        in_pieces.0.write_all(b"E").unwrap();
        in_pieces.1.read_exact(&mut request[..1]).unwrap();
        let second = accepted.look(&diag.connections(address.port()).unwrap(), now + LOOK);
        assert_eq!(
            (second.open, second.silent, second.slow, second.working),
            (4, 1, 1, 1)
        );
        assert_eq!(second.longest_ms, 500);
    }
}
