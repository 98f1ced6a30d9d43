//! Whoever goes first may wait inside a query for what one has that lets it go first: a lock of the server. So it is counted who does, and
//! meanwhile all that may have one ([`transactions::may_block`]) let nobody go first (priority inheritance, as far as can be seen from outside).

use super::areas;
use super::layout::{COMMON, Connection, blocked};
use super::lists::{self, LATE, LATER, NEXT, NOW};
use super::rounds::Locked;
use super::sys;
use super::transactions;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// A wait counts for so long: longer ones are for a client that thinks, a timer, another server.
pub const COUNTS_NS: u64 = 2_000_000_000;

/// Whether a policy has a connection go before others that yield. Of one that it has not seen yet, as of a client that came a moment ago,
/// nothing is known.
pub fn goes_first(connection: &Connection) -> bool {
    may_go_first(connection) && connection.quota.load(Relaxed) != COMMON
}

/// The same of one of which nothing is known, too.
pub fn may_go_first(connection: &Connection) -> bool {
    connection.yields.load(Relaxed) == 0 && connection.quota.load(Relaxed) != 0
}

impl Locked {
    /// A worker is blocked inside a query, by whatever but its own client.
    pub fn block(&mut self, connection: &Connection) {
        let _ = connection
            .blocked
            .compare_exchange(blocked::NOT, blocked::UNCOUNTED, Relaxed, Relaxed);
        self.count_if_first(connection);
    }

    /// Those count that a policy has go first since, as one that it had not seen when it blocked.
    pub fn look_at_blocked(&mut self) {
        if self.region.regiven.load(Relaxed) == 0 || self.region.regiven.swap(0, Acquire) == 0 {
            return;
        }
        let top = self.lists.top.load(Relaxed) as usize;
        for connection in self.region.connections.iter().take(top) {
            self.count_if_first(connection);
        }
    }

    fn count_if_first(&mut self, connection: &Connection) {
        if connection.blocked.load(Relaxed) == blocked::UNCOUNTED && goes_first(connection) {
            connection.blocked.store(blocked::COUNTED, Relaxed);
            let before = self.region.blocked.fetch_add(1, Relaxed);
            let until = self
                .region
                .blocked_until_ns
                .swap(self.now.saturating_add(COUNTS_NS), Relaxed);
            if before == 0 || until <= self.now {
                self.promote();
                self.end_pauses();
            }
        }
    }

    /// It goes on, or is gone.
    pub fn unblock(&mut self, connection: &Connection) {
        if connection.blocked.swap(blocked::NOT, Relaxed) == blocked::COUNTED {
            self.region.blocked.fetch_sub(1, Relaxed);
        }
    }

    /// Counts them anew, after a holder of the lock ended in the midst of a change.
    pub fn count_blocked(&mut self) {
        let taken = |connection: &&Connection| connection.generation.load(Relaxed) % 2 == 1;
        let all = self.region.connections.iter().filter(taken);
        let blocked = all.filter(|connection| connection.blocked.load(Relaxed) == blocked::COUNTED);
        self.region.blocked.store(blocked.count() as u32, Relaxed);
    }

    /// A worker begins to pause: whether it may, for nobody waits for what it may hold.
    pub fn begin_pause(&mut self, connection: &Connection) -> bool {
        if transactions::may_block(self.region, connection, self.now) {
            return false;
        }
        connection.pausing.store(1, Relaxed);
        if transactions::may_hold(connection) {
            self.region.pausing.store(1, Relaxed);
        }
        true
    }

    /// Ends the pauses of those that may be what somebody waits for.
    fn end_pauses(&mut self) {
        if self.region.pausing.swap(0, Relaxed) == 0 {
            return;
        }
        let top = self.lists.top.load(Relaxed) as usize;
        for connection in self.region.connections.iter().take(top) {
            let is_pausing = connection.pausing.load(Relaxed) == 1;
            if is_pausing && transactions::may_block(self.region, connection, self.now) {
                connection.pausing.store(0, Relaxed);
                sys::futex_wake(&connection.pausing, self.is_shared);
            }
        }
    }

    /// Puts those in line that yield, and may be what somebody waits for, among those that do not. When nobody waits any more, they are
    /// found out as their turn comes.
    fn promote(&mut self) {
        for gate in 0..areas::count(self.region, self.now) {
            for (list, to) in [(LATE, NOW), (LATER, NEXT)] {
                let mut next = self.lists.first(lists::of(gate, list));
                while let Some(place) = next {
                    next = self.lists.next(place);
                    let connection = &self.region.connections[usize::from(place)];
                    if transactions::may_block(self.region, connection, self.now) {
                        self.lists.push(lists::of(gate, to), place);
                    }
                }
            }
        }
    }
}
