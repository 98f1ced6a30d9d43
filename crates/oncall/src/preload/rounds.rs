//! Who runs: slots, rounds and tokens (REEF, Sections 3.3 and 4).
//!
//! In a server of threads a worker that waits for its client's next query sleeps here, on a word of its own, until its query is there and a slot is free.
//! No thread stands between a finished worker and the next one: whoever gives its slot up takes the arrivals out of epoll and wakes
//! the next. Our own thread watches epoll only while slots are free, and sleeps through the delay between two rounds, in which
//! arrivals wake nobody. While all slots are taken, an arrival costs no wake-up at all.
//!
//! What cannot deadlock: a worker that blocks inside a query gives its slot back, and takes one again without waiting when it goes on.
//! So nobody who may hold a lock of the server ever waits for a slot.

use super::areas;
use super::gaps::{self, NOTICE_NS};
use super::layout::{
    COMMON, Connection, Lists, MAX_CONNECTIONS, Region, SPARED_QUERIES, STARVED_NS, YIELDED_NS, sent,
};
use super::lists::{self, LATE, LATER, NEXT, NOW};
use super::lock::{self, Held};
use super::sys::{self, EpollEvent};
use super::transactions;
use super::watch::{self, BELL, EVENTS, take};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Where a connection is.
pub mod state {
    /// Its worker runs, or does not wait here.
    pub const RUNNING: u32 = 1;
    /// Its worker sleeps, and no query is there.
    pub const PARKED: u32 = 2;
    /// Its worker sleeps, and a query waits for a slot.
    pub const READY: u32 = 3;
}

/// A worker asleep inside a query for so long has its slot taken, whatever it waits for.
pub const RECLAIM_NS: u64 = 5_000_000;
/// A query that holds its slot for so many times as long as others do in the mean is long: it loses the slot, and goes on beside them.
const LONG: u64 = 16;
const MIN_LONG_NS: u64 = 20_000_000;
const MAX_LONG_NS: u64 = 1_000_000_000;
/// The end of a round is waited for as long as D, or this many times as long as a slot is held in the mean, from when the last was let
/// go in it.
const DRAINS: u64 = 4;
/// Rounds that may begin at once, one after the other: of those in line all may have had their turn in the one before.
const MAX_TURNS: u32 = 2;
/// Workers woken after the lock is given back; more are woken under it.
const WAKES: usize = 16;
/// The word of a worker that is to wait for its client as without us.
pub const HOME: u32 = 3;
/// No place.
pub const NONE: u16 = u16::MAX;

/// The lock, and who is to be woken when it is given back.
pub struct Locked {
    pub region: &'static Region,
    pub lists: &'static Lists,
    /// Whether processes serve, and not threads of this one.
    pub is_shared: bool,
    /// The place of the worker that has the lock, where that is not asleep for its being let go.
    pub myself: u16,
    pub now: u64,
    /// Since when what is noticed now may have been there.
    since: u64,
    /// Whether the kernel is asked for that, since nobody has looked for long.
    is_after_gap: bool,
    wakes: [u16; WAKES],
    woken: usize,
    wake_watch: bool,
    ring: bool,
}

/// Runs something under the lock; `None` where it cannot be had: this thread has it already, as in a signal's handler, or its holder
/// is stopped.
pub fn locked<R>(region: &'static Region, body: impl FnOnce(&mut Locked) -> R) -> Option<R> {
    under(region, lock::take(region), body)
}

/// Runs something under a lock that was asked for.
pub fn under<R>(region: &'static Region, held: Held, body: impl FnOnce(&mut Locked) -> R) -> Option<R> {
    if held == Held::Not {
        return None;
    }
    let now = sys::now();
    let mut guard = Locked {
        region,
        lists: &region.lists,
        is_shared: lock::is_shared(region),
        myself: NONE,
        now,
        since: now,
        is_after_gap: false,
        wakes: [NONE; WAKES],
        woken: 0,
        wake_watch: false,
        ring: false,
    };
    if held == Held::Inherited {
        guard.recover();
        lock::is_right(region);
    }
    let result = body(&mut guard);
    lock::give(region);
    for place in &guard.wakes[..guard.woken] {
        sys::futex_wake(&region.connections[usize::from(*place)].go, guard.is_shared);
    }
    if guard.wake_watch {
        watch::wake();
    }
    if guard.ring {
        watch::ring();
    }
    Some(result)
}

impl Locked {
    /// Whether workers are on call: the levers are on, and their lease holds.
    pub fn is_closed(&self) -> bool {
        is_closed(self.region, self.now)
    }

    /// Whether an area has a free slot.
    pub fn has_room(&self, gate: usize) -> bool {
        if !self.is_closed() {
            return true;
        }
        match areas::workers(self.region, self.now, gate) {
            Some(own) => self.lists.running[gate].load(Relaxed) < own,
            None => self.region.running.load(Relaxed) < self.region.concurrency.load(Relaxed).max(1),
        }
    }

    pub fn delay(&self) -> u64 {
        match self.is_closed() {
            true => self.region.delay_ns.load(Relaxed),
            false => 0,
        }
    }

    /// Gives a connection the tokens of this round, where it has those of an earlier one.
    fn refresh(&self, connection: &Connection, gate: usize) -> i32 {
        let round = self.lists.round[gate].load(Relaxed);
        let before = connection.round.swap(round, Relaxed);
        if before != round {
            // One turn is enough of two rounds in a row; with nobody else in line the next begins at once.
            let rests = connection.rests.load(Relaxed) == 1
                && !transactions::may_block(self.region, connection, self.now)
                && connection.ran.load(Relaxed) == round;
            let tokens = if rests { 0 } else { self.quota(connection) };
            connection.tokens.store(tokens, Relaxed);
        } else if connection.holds.load(Relaxed) != 0 && connection.tokens.load(Relaxed) > 0 {
            // Those that it was spared last no longer than what they were for.
            let left = connection.tokens.load(Relaxed).min(self.quota(connection));
            connection.tokens.store(left, Relaxed);
        }
        connection.tokens.load(Relaxed)
    }

    /// The list in which a connection stands that has a query.
    pub fn standing(&self, connection: &Connection) -> usize {
        let gate = areas::of(self.region, self.now, connection);
        let has_turn = self.refresh(connection, gate) > 0;
        lists::of(gate, self.list(connection, has_turn))
    }

    /// The list of who has a turn in this round, or in the next.
    fn list(&self, connection: &Connection, has_turn: bool) -> usize {
        let yields = self.yields(connection) && !self.has_waited(connection, YIELDED_NS);
        match (has_turn, yields) {
            (true, false) => NOW,
            (true, true) => LATE,
            (false, false) => NEXT,
            (false, true) => LATER,
        }
    }

    /// Whether a connection lets others go first.
    fn yields(&self, connection: &Connection) -> bool {
        connection.yields.load(Relaxed) == 1 && !transactions::may_block(self.region, connection, self.now)
    }

    fn has_waited(&self, connection: &Connection, longer_than: u64) -> bool {
        let ready = connection.ready_ns.load(Relaxed);
        ready != 0 && self.now.saturating_sub(ready) > longer_than
    }

    fn quota(&self, connection: &Connection) -> i32 {
        match connection.quota.load(Relaxed) {
            // Not on call: everybody goes. It must not be more than one, or whoever had it kept going when it is on call again.
            _ if !self.is_closed() => 1,
            COMMON => i32::try_from(self.region.batch.load(Relaxed))
                .unwrap_or(i32::MAX)
                .max(1),
            quota => {
                let least = match transactions::may_block(self.region, connection, self.now) {
                    true if is_spared_holder(connection) => SPARED_QUERIES,
                    is_spared => i32::from(is_spared || self.has_waited(connection, STARVED_NS)),
                };
                quota.max(least)
            }
        }
    }

    /// When a round with a delay lets nobody in any more who has not waited by then: as long after its beginning as the delay. With
    /// many cores some query always runs, and a round that everybody may join would never end.
    fn closes_at(&self, gate: usize) -> Option<u64> {
        let has_begun = self.lists.served[gate].load(Relaxed) > 0;
        (has_begun && self.delay() > 0).then(|| self.lists.began_ns[gate].load(Relaxed) + self.delay())
    }

    /// Whether nothing can happen in an area but that the last of the round give their slots back.
    pub fn is_draining(&self, gate: usize) -> bool {
        let is_empty = |list: usize| self.lists.is_empty(lists::of(gate, list));
        self.lists.running[gate].load(Relaxed) > 0
            && is_empty(NOW)
            && is_empty(LATE)
            && self.closes_at(gate).is_some_and(|at| self.now >= at)
    }

    /// Since when what is noticed of a connection now may have been there: not before its client had an answer to what it sent last.
    fn came(&self, connection: &Connection) -> u64 {
        let since = match self.is_after_gap {
            true => gaps::dated(connection, self.since, self.now),
            false => self.since,
        };
        since.max(connection.sent_ns.load(Relaxed))
    }

    /// A query is there for a worker that sleeps.
    pub fn enqueue(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        connection.state.store(state::READY, Relaxed);
        // One that went on without the lock may still be in line.
        if !self.lists.has(place) {
            self.region.waiting.fetch_add(1, Relaxed);
        }
        if connection.ready_ns.load(Relaxed) == 0 {
            connection.ready_ns.store(self.came(connection), Relaxed);
        }
        let gate = areas::of(self.region, self.now, connection);
        let list = match self.closes_at(gate) {
            Some(at) if self.now >= at => lists::of(gate, self.list(connection, false)),
            _ => self.standing(connection),
        };
        self.lists.push(list, place);
    }

    /// A connection waits for nothing any more.
    pub fn dequeue(&mut self, place: u16) {
        if self.lists.has(place) {
            self.region.waiting.fetch_sub(1, Relaxed);
            self.lists.remove(place);
        }
    }

    /// Takes note of what epoll said to our own thread, which waited for it.
    pub fn note_waited(&mut self, events: &[EpollEvent]) {
        self.is_after_gap = gaps::is_gap(self.now);
        self.note(events);
        self.is_after_gap = false;
    }

    /// Takes note of what epoll said.
    fn note(&mut self, events: &[EpollEvent]) {
        for event in events {
            let data = event.data;
            let place = data as u16;
            if data == BELL || usize::from(place) >= MAX_CONNECTIONS {
                continue;
            }
            let connection = &self.region.connections[usize::from(place)];
            if connection.generation.load(Relaxed) != (data >> 32) as u32 {
                continue;
            }
            match connection.state.load(Relaxed) {
                state::PARKED => self.enqueue(place),
                // While nobody is on call its worker may have read it, and answered, before we came to take note of it.
                state::RUNNING
                    if !self.is_closed()
                        && connection.in_query.load(Relaxed) == 0
                        && !sys::is_readable(connection.fd.load(Relaxed)) => {}
                state::RUNNING if connection.pending.swap(1, Relaxed) == 0 => {
                    connection.ready_ns.store(self.came(connection), Relaxed);
                }
                _ => {}
            }
        }
    }

    /// Takes note of arrivals while nobody is on call, for how long they wait for a processor: from the last look on, where that is not long
    /// ago. After a while in which nothing was answered they waited as long as the query of who looks, which came at this time, or came since.
    pub fn look(&mut self, came: u64) {
        let before = gaps::last_look();
        self.is_after_gap = gaps::is_gap(self.now);
        let since = match self.now.saturating_sub(before) > 2 * NOTICE_NS {
            true => came.min(self.now - NOTICE_NS).max(before),
            false => before,
        };
        self.take_arrivals(since);
    }

    /// Takes all arrivals that are there out of epoll.
    pub fn harvest(&mut self) {
        let before = gaps::last_look();
        // Where nobody waited for arrivals, as in the delay between two rounds, they may have been there since the last look: their
        // latency is not to look shorter than it is. While nobody is on call that may be long ago, and whoever is idle has its processor at once,
        // unless the server was stopped.
        let since = match before == 0 || watch::is_for_arrivals() || watch::is_for_nobody() {
            true => {
                self.is_after_gap = gaps::is_gap(self.now);
                self.now
            }
            false => before,
        };
        self.take_arrivals(since);
    }

    /// Takes note of all arrivals that epoll has, which may have been there since this time.
    fn take_arrivals(&mut self, since: u64) {
        self.since = since;
        let mut events = [EpollEvent { events: 0, data: 0 }; EVENTS];
        loop {
            let count = take(&mut events, 0);
            self.note(&events[..count]);
            if count < EVENTS {
                break;
            }
        }
        self.since = self.now;
        self.is_after_gap = false;
        gaps::looked(self.now);
    }

    /// Wakes a connection's worker, with a slot.
    fn grant(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        self.region.waiting.fetch_sub(1, Relaxed);
        let gate = self.take_slot(connection);
        if self.lists.served[gate].fetch_add(1, Relaxed) == 0 {
            self.lists.began_ns[gate].store(self.now, Relaxed);
        }
        self.lists.granted_ns[gate].store(self.now, Relaxed);
        let round = self.lists.round[gate].load(Relaxed);
        connection.ran.store(round + 1, Relaxed);
        connection.state.store(state::RUNNING, Relaxed);
        self.wake(place);
        self.relieve(place);
    }

    pub fn wake(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        connection.go.store(1, Release);
        self.rouse_worker(place);
    }

    /// Has a sleeping worker look at its word when the lock is given back.
    pub fn rouse_worker(&mut self, place: u16) {
        if place == self.myself {
            return;
        }
        match self.wakes.get_mut(self.woken) {
            Some(wake) => {
                *wake = place;
                self.woken += 1;
            }
            None => sys::futex_wake(&self.region.connections[usize::from(place)].go, self.is_shared),
        }
    }

    /// Nobody is on call: those that sleep here wait for their clients as without us, and our thread has nothing to watch.
    pub fn send_home(&mut self) {
        let top = self.lists.top.load(Relaxed) as usize;
        for (place, connection) in self.region.connections.iter().enumerate().take(top) {
            if connection.state.load(Relaxed) == state::PARKED {
                connection.state.store(state::RUNNING, Relaxed);
                connection.go.store(HOME, Release);
                self.rouse_worker(place as u16);
            }
        }
    }

    /// Gives a connection whose turn it is a slot, where it still stands in one of these lists.
    fn let_go(&mut self, place: u16, lists: &[usize]) {
        let connection = &self.region.connections[usize::from(place)];
        if self.is_dead(connection) {
            self.region.waiting.fetch_sub(1, Relaxed);
            self.bury(place);
            return;
        }
        if connection.state.load(Relaxed) != state::READY {
            // It went on while the lock could not be had.
            self.region.waiting.fetch_sub(1, Relaxed);
            return;
        }
        let list = self.standing(connection);
        match lists.contains(&list) {
            true => self.grant(place),
            false => self.lists.push(list, place),
        }
    }

    /// Gives the free slots to those that wait, and ends the round where nobody has a turn left.
    pub fn dispatch(&mut self) {
        // Processes wait for their clients themselves.
        let mut has_harvested = self.is_shared;
        self.sort_by_area();
        self.look_at_blocked();
        if !has_harvested && gaps::is_look_due(self.now) {
            self.harvest();
            has_harvested = true;
        }
        loop {
            let had_harvested = has_harvested;
            for gate in 0..areas::count(self.region, self.now) {
                self.dispatch_in(gate, &mut has_harvested);
            }
            // What came meanwhile may be another area's.
            if has_harvested == had_harvested {
                break;
            }
        }
        self.rouse();
    }

    fn dispatch_in(&mut self, gate: usize, has_harvested: &mut bool) {
        let [now, late] = [NOW, LATE].map(|list| lists::of(gate, list));
        let mut turns = 0;
        while self.has_room(gate) {
            if self.delay() > 0 && self.now < self.lists.not_before[gate].load(Relaxed) {
                break;
            }
            if let Some(place) = self.lists.pop(now) {
                self.let_go(place, &[now]);
            } else if !*has_harvested {
                *has_harvested = true;
                self.harvest();
            } else if let Some(place) = self.pop_late(gate, turns) {
                self.let_go(place, &[now, late]);
            } else if turns == MAX_TURNS || !self.turn(gate) {
                break;
            } else {
                turns += 1;
            }
        }
    }

    /// The next of those that yield: they are left out while somebody waits who does not, if it is for the next round, which then begins at once.
    /// One of those that waited for long goes first in each round, or all that began to wait together would go one after the other. With a delay
    /// the next round would begin only after that, and nobody is left out for so long.
    fn pop_late(&self, gate: usize, turns: u32) -> Option<u16> {
        let [late, next] = [LATE, NEXT].map(|list| lists::of(gate, list));
        let first = self.lists.first(late)?;
        let connection = &self.region.connections[usize::from(first)];
        let others_wait = self.delay() == 0 && turns < MAX_TURNS && !self.lists.is_empty(next);
        // One that went on without the lock stands in nobody's way, and one that yields no more waits for nobody.
        let yields = self.yields(connection) && connection.state.load(Relaxed) == state::READY;
        if others_wait && yields {
            let round = self.lists.round[gate].load(Relaxed) + 1;
            let is_next =
                self.has_waited(connection, YIELDED_NS) && self.lists.pressed[gate].load(Relaxed) != round;
            if !is_next {
                return None;
            }
            self.lists.pressed[gate].store(round, Relaxed);
        }
        self.lists.remove(first);
        Some(first)
    }

    /// Ends an area's round where it is over: whether there may be somebody to let go.
    fn turn(&mut self, gate: usize) -> bool {
        let delay = self.delay();
        let [now, late, next, later] = [NOW, LATE, NEXT, LATER].map(|list| lists::of(gate, list));
        let waits = !self.lists.is_empty(next) || !self.lists.is_empty(later);
        let running = || self.lists.running[gate].load(Relaxed);
        let is_over = match delay {
            0 => waits,
            _ if running() == 0 => self.lists.served[gate].load(Relaxed) > 0 || waits,
            // A long query holds nobody up: while it runs its core is awake anyway.
            _ => {
                let drains = delay.max(DRAINS * self.region.held_ns.load(Relaxed));
                let since = self.now.saturating_sub(self.lists.granted_ns[gate].load(Relaxed));
                let has_begun = self.lists.served[gate].load(Relaxed) > 0;
                waits && (!has_begun || since >= drains)
            }
        };
        if !is_over {
            return false;
        }
        let had_served = self.lists.served[gate].swap(0, Relaxed) > 0;
        self.region.rounds.fetch_add(1, Relaxed);
        self.lists.round[gate].fetch_add(1, Relaxed);
        // Those who yield are found out when their turn comes.
        for (waited, has_turn) in [(next, now), (later, late)] {
            while let Some(place) = self.lists.pop(waited) {
                self.lists.push(has_turn, place);
            }
        }
        if delay == 0 || !had_served || running() > 0 {
            return true;
        }
        self.lists.not_before[gate].store(self.now + delay, Relaxed);
        match self.is_shared {
            true => self.remind(),
            // While the core is awake anyway: an arrival that woke our thread within the delay would cut the idle period in two.
            false => self.ring = watch::is_for_arrivals(),
        }
        false
    }

    /// Our own thread waits for slots, and some are free now, or it waits for nothing and somebody is on call: arrivals are to be watched, or
    /// slots to be taken from who sleeps.
    fn rouse(&mut self) {
        let is_free = (0..areas::count(self.region, self.now))
            .any(|gate| self.has_room(gate) && !self.is_draining(gate));
        let is_wanted = watch::is_for_nobody() || is_free && watch::is_for_slots();
        if is_wanted && self.is_closed() && !self.is_shared {
            watch::raise();
            self.wake_watch = true;
        }
    }

    /// Gives a connection a slot of its area, whether one is free or not: the area.
    pub fn take_slot(&mut self, connection: &Connection) -> usize {
        let gate = areas::of(self.region, self.now, connection);
        self.region.running.fetch_add(1, Relaxed);
        self.lists.running[gate].fetch_add(1, Relaxed);
        connection.gate.store(gate as u32, Relaxed);
        connection.since_ns.store(self.now, Relaxed);
        connection.slot.store(1, Relaxed);
        gate
    }

    /// A worker gives its slot up.
    pub fn release(&mut self, connection: &Connection) {
        if connection.slot.swap(0, Relaxed) == 1 {
            self.region.running.fetch_sub(1, Relaxed);
            let gate = connection.gate.load(Relaxed) as usize;
            self.lists.running[gate].fetch_sub(1, Relaxed);
        }
    }

    /// Takes the slots of workers that sleep inside a query, whatever they wait for: a lock that no hook sees. And of processes that
    /// have ended, or sleep elsewhere for longer than they linger.
    pub fn reclaim(&mut self) {
        let linger = self.region.linger_ns.load(Relaxed);
        let top = self.lists.top.load(Relaxed) as usize;
        let long = long(self.region.held_ns.load(Relaxed));
        for (place, connection) in self.region.connections.iter().enumerate().take(top) {
            if connection.slot.load(Relaxed) == 0 {
                continue;
            }
            if self.is_dead(connection) {
                self.bury(place as u16);
                continue;
            }
            let is_in_query = connection.in_query.load(Relaxed) == 1;
            let (since, patience) = match is_in_query {
                // A query that waited came before its worker was let go.
                true => {
                    let came = connection.query_ns.load(Relaxed);
                    (came.max(connection.since_ns.load(Relaxed)), RECLAIM_NS)
                }
                false => (connection.since_ns.load(Relaxed), linger + RECLAIM_NS),
            };
            let is_asleep = (is_in_query || self.is_shared)
                && self.now.saturating_sub(since) > patience
                && sys::is_asleep(connection.tid.load(Relaxed));
            // One that computes for much longer than others goes on beside them: C of its kind would stop the server.
            let is_long = is_in_query
                && self.region.waiting.load(Relaxed) > 0
                && self.now.saturating_sub(connection.since_ns.load(Relaxed)) > long;
            if is_asleep || is_long {
                self.release(connection);
                // Who has begun to answer waits for its own client.
                if is_asleep && is_in_query && connection.sent.load(Relaxed) == sent::NOTHING {
                    self.block(connection);
                }
                self.region.reclaimed.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Whether a connection that gives way to others asked for locks that last: it has more queries in a round while somebody may wait for these, and
/// never keeps its slot between them.
pub fn is_spared_holder(connection: &Connection) -> bool {
    let gives_way = connection.yields.load(Relaxed) == 1 || connection.rests.load(Relaxed) == 1;
    gives_way && connection.holds.load(Relaxed) != 0
}

/// How long a slot is held, nanoseconds, by a query that is long where they are held for this long in the mean.
pub fn long(mean: u64) -> u64 {
    mean.saturating_mul(LONG).clamp(MIN_LONG_NS, MAX_LONG_NS)
}

/// Whether workers are on call: the levers are on, and their lease holds.
pub fn is_closed(region: &Region, now: u64) -> bool {
    let until = region.lease_until_ns.load(Relaxed);
    region.enabled.load(Relaxed) != 0 && (until == 0 || now < until)
}
