//! The on-call gate: which workers may serve, in rounds, as the live runtime has them.
//!
//! Each area of connections has rounds of its own, with a concurrency limit C; all share N, D and the turns that a policy grants. In a
//! round each connection may serve N queries, in one turn or, where it keeps its tokens, bit by bit; those that wait are let in as they
//! came. Who had its turn waits for the next round, which begins when nobody with tokens waits any more, D after all slots are back. With
//! a delay, who comes later than D after the beginning of a round waits for the next one, or with many cores, where some query always runs,
//! a round would never end; and from when the last was let in its end is waited for as long as D, or [`DRAINS`] times the mean hold of a slot,
//! at most. The
//! fields of a [`Grant`] are carried out like this:
//!
//! - `tokens`: N of the connection; without any it waits until it has some.
//! - `share` s, over the largest of all: it takes part in those rounds r in which ⌊s r⌋ grows.
//! - `again`: without it, a round right after one in which it had a turn leaves it out, unless nobody else waits.
//! - `yields`: after those that do not yield. Without a delay it is left out while one of them waits for the next round, which then begins at
//!   once; after [`MAX_YIELD`] one such has a turn in each round. With a delay nobody is left out: the next round begins only after that.
//! - `retry`: when its tokens are used up, it asks for its next turn only after so long (AppleS' sleep); who does not yield, only while
//!   somebody waits, which is looked at every [`LOOK_S`].
//!
//! While the worker of one that does not yield waits for something inside a query, for [`COUNTS_S`] since the last began to, none of these holds back who
//! is in a transaction, which may have the row that it waits for; and in a transaction's first second nobody pauses, but the first pause after it makes
//! up for those, within [`MOST_OWED_S`].
//!
//! The live runtime differs in this: it ends a pause in a transaction when somebody begins to wait, which here ends when it would have; a worker that
//! sleeps in a query for 5 ms or computes for 16 times the mean hold loses its slot there; a share of the turns is one of the queries in a turn there, and
//! of the rounds here; at most two rounds begin there at once; who has no tokens has a turn after 20 s there, and here where its policy gives it one by then; a pause of less than
//! 1 ms is none there; who has waited for a second is not one that yields any more once the areas are divided anew; areas without a C of their
//! own share one there, and each has it here; and there a round in which nobody was let in is counted.

use super::scenario::GateFigures;
use headroom_control::oncall::policy::{Grant, MAX_YIELD};
use std::collections::BTreeSet;

/// What of a gate the levers and a policy change while it works.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// C, workers with a slot at once in an area that has no C of its own; `None`: the server is not on call.
    pub(super) concurrency: Option<u32>,
    /// N of a connection without a grant.
    pub(super) tokens: u32,
    /// D, seconds from the end of a round to the next.
    pub(super) delay_s: f64,
}

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    tokens: u32,
    /// In (0, 1]: over the largest of all.
    share: f64,
    again: bool,
    yields: bool,
    retry_s: f64,
}

/// What a worker does whose query is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// It serves the next query, which is there.
    Serves,
    /// It waits for the next with its slot.
    Lingers,
    /// It gave its slot back.
    Leaves,
}

/// Connections that wait, by when they came.
type Line = BTreeSet<(u64, u32)>;

/// Who does not yield, who does, and who has no turn at all: the places in [`Ring::now`] and [`Ring::next`].
const FIRM: usize = 0;
const YIELDS: usize = 1;
const NEVER: usize = 2;

/// The end of a round is waited for as long as D, or this many times as long as a slot is held in the mean, from when the last was let in.
const DRAINS: f64 = 4.0;
/// Whether somebody waits is looked at so often in the pause of who does not yield.
const LOOK_S: f64 = 0.05;
/// Nobody pauses for so long after a transaction began, and pauses that were spared so are made up for by one that is at most so long.
const UNPAUSED_S: f64 = 1.0;
/// For so long a wait inside a query counts.
const COUNTS_S: f64 = 2.0;
const MOST_OWED_S: f64 = 1.0;
/// Of the mean hold of a slot, the weight of the newest.
const NEWEST: f64 = 1.0 / 128.0;

/// One area's rounds.
#[derive(Clone, Debug, Default)]
struct Ring {
    /// C of the area alone.
    own: Option<u32>,
    /// C in force; `None`: nobody waits.
    limit: Option<u32>,
    /// Workers with a slot. Those that wake from a wait take theirs without asking, so that it can exceed C for a while.
    in_use: u32,
    /// Who may have a turn in this round, and who in the next.
    now: [Line; 3],
    next: [Line; 3],
    /// The round's number, from 1.
    round: u64,
    /// Whether somebody was admitted in this round.
    begun: bool,
    /// When the first was, seconds.
    begun_s: f64,
    /// When the last was, and when it is looked at again for that time alone.
    last_s: f64,
    look_s: f64,
    /// Between two rounds.
    pausing: bool,
    /// The round in which one that yields was let in before others that wait, for it had waited for long; 0 of none.
    pressed: u64,
}

impl Ring {
    fn new() -> Self {
        Self {
            round: 1,
            ..Self::default()
        }
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.now.iter().chain(&self.next)
    }

    /// The next round begins.
    fn turn(&mut self, round: u64) {
        (self.round, self.begun) = (round, false);
        for (now, next) in self.now.iter_mut().zip(&mut self.next) {
            now.append(next);
        }
    }

    /// All who wait, who wait no more.
    fn take_waiting(&mut self) -> impl Iterator<Item = (u64, u32)> + use<> {
        let lines = [std::mem::take(&mut self.now), std::mem::take(&mut self.next)];
        lines.into_iter().flatten().flatten()
    }
}

/// The gate.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    settings: Settings,
    lingers: bool,
    keeps_tokens: bool,
    rings: Vec<Ring>,
    turns: Vec<Turn>,
    /// The ring of each connection, and the one whose slot its worker has or lent.
    ring_of: Vec<u32>,
    slot_of: Vec<u32>,
    /// Queries that a connection may still serve in a round, and which round that is; 0 of none.
    left: Vec<u32>,
    round_of: Vec<u64>,
    /// The round of each connection's last turn; 0 of none.
    ran: Vec<u64>,
    /// Connections that began to wait so far.
    came: u64,
    /// Whether it waits, since when, and when it may ask for a turn again, seconds.
    waits: Vec<bool>,
    since_s: Vec<f64>,
    ready_s: Vec<f64>,
    /// Since when each is in a transaction; and pauses that it was spared in one.
    transaction_s: Vec<Option<f64>>,
    owed: Vec<u32>,
    /// Who goes first and waits for something inside a query, and how many do.
    blocked: Vec<bool>,
    blocked_now: usize,
    /// Until when these count, and when something happened last, seconds.
    blocked_until_s: f64,
    now_s: f64,
    /// When each took its slot, and for how long slots are held in the mean, seconds.
    took_s: Vec<f64>,
    held_s: f64,
    /// When it is to be asked again, and was not told so yet.
    looks_s: Vec<f64>,
    /// Connections with a query that do not ask yet.
    asleep: usize,
    /// The longest that a connection waited for its turn before it had it, seconds.
    longest_s: f64,
    pub(super) rounds: u64,
    pub(super) given_back: u64,
}

impl Gate {
    pub(super) fn new(figures: &GateFigures, connections: u32) -> Self {
        let count = connections as usize;
        let settings = Settings {
            concurrency: Some(figures.concurrency),
            tokens: figures.tokens,
            delay_s: figures.delay_s,
        };
        let mut gate = Self {
            lingers: figures.linger_s > 0.0,
            keeps_tokens: figures.keeps_tokens,
            rings: vec![Ring::new()],
            turns: Vec::new(),
            ring_of: vec![0; count],
            slot_of: vec![0; count],
            left: vec![0; count],
            round_of: vec![0; count],
            came: 0,
            ran: vec![0; count],
            waits: vec![false; count],
            since_s: vec![0.0; count],
            ready_s: vec![0.0; count],
            transaction_s: vec![None; count],
            owed: vec![0; count],
            blocked: vec![false; count],
            blocked_now: 0,
            blocked_until_s: 0.0,
            now_s: 0.0,
            took_s: vec![0.0; count],
            held_s: 0.0,
            looks_s: Vec::new(),
            asleep: 0,
            longest_s: 0.0,
            rounds: 0,
            given_back: 0,
            settings: settings.clone(),
        };
        gate.set(settings, &[]);
        gate
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// N of a connection.
    pub(super) fn tokens(&self, connection: u32) -> u32 {
        self.turns[connection as usize].tokens
    }

    /// Other levers and turns from now on; a connection without a grant has what all have.
    pub(super) fn set(&mut self, settings: Settings, grants: &[Grant]) {
        let common = Turn {
            tokens: settings.tokens,
            share: 1.0,
            again: true,
            yields: false,
            retry_s: 0.0,
        };
        self.turns = vec![common; self.ring_of.len()];
        for grant in grants {
            if let Some(turn) = self.turns.get_mut(grant.id as usize) {
                *turn = Turn {
                    tokens: grant.tokens,
                    share: grant.share,
                    again: grant.again,
                    yields: grant.yields,
                    retry_s: grant.retry.get(),
                };
            }
        }
        let most = self.turns.iter().map(|turn| turn.share).fold(0.0, f64::max);
        self.turns.iter_mut().for_each(|turn| turn.share /= most);
        self.settings = settings;
        if self.is_on_call() {
            // Who was let in without a limit has one turn left at most.
            for (left, turn) in self.left.iter_mut().zip(&self.turns) {
                *left = (*left).min(turn.tokens);
            }
        }
        self.refresh();
    }

    /// Other areas from now on: C of each that has one of its own, and the area of each connection. A worker keeps the slot of
    /// its area of before until it gives it back.
    pub(super) fn set_areas(&mut self, limits: &[Option<u32>], area_of: &[u32]) {
        let rings = self.rings.len().max(limits.len());
        self.rings.resize_with(rings, Ring::new);
        for (at, ring) in self.rings.iter_mut().enumerate() {
            ring.own = limits.get(at).copied().flatten();
        }
        let waiting: Vec<(u64, u32)> = self.rings.iter_mut().flat_map(Ring::take_waiting).collect();
        for (at, area) in area_of.iter().enumerate() {
            if std::mem::replace(&mut self.ring_of[at], *area) != *area {
                // It was in no round there.
                (self.round_of[at], self.ran[at]) = (0, 0);
            }
        }
        self.refresh();
        waiting
            .into_iter()
            .for_each(|(came, connection)| self.place(came, connection));
    }

    /// What follows from the settings, turns and areas.
    fn refresh(&mut self) {
        let mut waiting = Vec::new();
        for ring in &mut self.rings {
            ring.limit = self.settings.concurrency.map(|common| ring.own.unwrap_or(common));
            waiting.extend(ring.take_waiting());
        }
        waiting
            .into_iter()
            .for_each(|(came, connection)| self.place(came, connection));
    }

    /// Connections with a query and no slot.
    pub(super) fn waiting(&self) -> usize {
        let waiting: usize = self.rings.iter().flat_map(Ring::lines).map(BTreeSet::len).sum();
        waiting + self.asleep
    }

    /// The longest wait of a connection for a slot so far, seconds: also of one that waits yet.
    pub(super) fn longest_s(&self, now_s: f64) -> f64 {
        self.oldest_s(now_s).unwrap_or(0.0).max(self.longest_s)
    }

    /// For how long the connection waits that waits longest, seconds; `None` where none does.
    pub(super) fn oldest_s(&self, now_s: f64) -> Option<f64> {
        let waiting = self.waits.iter().zip(&self.since_s);
        waiting
            .filter(|(waits, _)| **waits)
            .map(|(_, since_s)| now_s - since_s)
            .reduce(f64::max)
    }

    /// Workers with a slot.
    pub(super) fn running(&self) -> u64 {
        self.rings.iter().map(|ring| u64::from(ring.in_use)).sum()
    }

    /// Whether whoever is admitted was on call, and so is woken at a cost.
    pub(super) const fn is_on_call(&self) -> bool {
        self.settings.concurrency.is_some()
    }

    /// A connection has a query, maybe its second, and its worker no slot. The time at which it may ask for one, where that is yet to come: it
    /// is to be woken then.
    pub(super) fn wait(&mut self, now_s: f64, connection: u32) -> Option<f64> {
        self.now_s = now_s;
        if std::mem::replace(&mut self.waits[connection as usize], true) {
            return None;
        }
        self.since_s[connection as usize] = now_s;
        self.ask_or_sleep(now_s, connection)
    }

    /// A connection that was to be woken asks for a slot, or is to be woken again.
    pub(super) fn wake(&mut self, now_s: f64, connection: u32) -> Option<f64> {
        self.now_s = now_s;
        self.asleep -= 1;
        self.ask_or_sleep(now_s, connection)
    }

    fn ask_or_sleep(&mut self, now_s: f64, connection: u32) -> Option<f64> {
        let ready_s = self.ready_s[connection as usize];
        if !self.is_on_call() || ready_s <= now_s || !self.has_reason_to_pause(connection) {
            self.ask(now_s, connection);
            return None;
        }
        self.asleep += 1;
        Some(match self.turns[connection as usize].yields {
            true => ready_s,
            false => ready_s.min(now_s + LOOK_S),
        })
    }

    /// One that goes first pauses for others, and one that yields for the server.
    fn has_reason_to_pause(&self, connection: u32) -> bool {
        let has_reason = self.turns[connection as usize].yields || self.waiting() > self.asleep;
        has_reason && !self.may_block(connection)
    }

    /// A connection's transaction goes on, or has ended, with the query that was answered.
    pub(super) fn transact(&mut self, now_s: f64, connection: u32, goes_on: bool) {
        let since_s = &mut self.transaction_s[connection as usize];
        *since_s = goes_on.then(|| since_s.unwrap_or(now_s));
    }

    /// Whether a connection may have what somebody waits for whom it would let go first.
    fn may_block(&self, connection: u32) -> bool {
        self.blocked_now > 0
            && self.now_s < self.blocked_until_s
            && self.transaction_s[connection as usize].is_some()
    }

    /// The line in which a connection waits.
    fn line_of(&self, connection: u32) -> usize {
        let turn = &self.turns[connection as usize];
        match (turn.tokens, turn.yields) {
            _ if self.may_block(connection) => FIRM,
            (0, _) => NEVER,
            (_, true) => YIELDS,
            (_, false) => FIRM,
        }
    }

    fn ask(&mut self, now_s: f64, connection: u32) {
        self.came += 1;
        let ring = &self.rings[self.ring_of[connection as usize] as usize];
        let is_open =
            !(ring.begun && self.settings.delay_s > 0.0 && now_s >= ring.begun_s + self.settings.delay_s);
        self.place_in(self.came, connection, is_open);
    }

    /// Puts a connection where it waits: in this round where it has tokens left in it.
    fn place(&mut self, came: u64, connection: u32) {
        self.place_in(came, connection, true);
    }

    /// The same, or in the next round where this one lets nobody new in.
    fn place_in(&mut self, came: u64, connection: u32, is_open: bool) {
        let has_tokens = self.tokens_left(connection) > 0 && is_open;
        let line = self.line_of(connection);
        let ring = &mut self.rings[self.ring_of[connection as usize] as usize];
        let lines = if has_tokens { &mut ring.now } else { &mut ring.next };
        lines[line].insert((came, connection));
    }

    /// What a connection may still serve in the round: all its tokens where it has those of an earlier one.
    fn tokens_left(&mut self, connection: u32) -> u32 {
        let index = connection as usize;
        let round = self.rings[self.ring_of[index] as usize].round;
        if self.round_of[index] != round {
            self.round_of[index] = round;
            let takes_part = self.takes_part_from(connection, round) == round;
            let least = u32::from(self.may_block(connection));
            self.left[index] = if takes_part {
                self.turns[index].tokens.max(least)
            } else {
                0
            };
        }
        self.left[index]
    }

    /// The next worker that is given a slot, with its first query's token used.
    pub(super) fn admit(&mut self, now_s: f64) -> Option<u32> {
        self.now_s = now_s;
        (0..self.rings.len()).find_map(|ring| self.admit_in(now_s, ring))
    }

    fn admit_in(&mut self, now_s: f64, at: usize) -> Option<u32> {
        let ring = &mut self.rings[at];
        let Some(limit) = ring.limit else {
            let (came, connection) = ring.lines().filter_map(|line| line.first()).min().copied()?;
            for line in ring.now.iter_mut().chain(&mut ring.next) {
                line.remove(&(came, connection));
            }
            self.left[connection as usize] = u32::MAX;
            return Some(self.give(now_s, at, connection));
        };
        if ring.pausing || ring.in_use >= limit {
            return None;
        }
        if let Some(connection) = self.in_round(now_s, at) {
            return Some(self.give(now_s, at, connection));
        }
        // Without a delay, in a round in which nobody was served, and beside a long query, the next begins at once: the first in which
        // somebody who waits takes part.
        let ring = &self.rings[at];
        if self.settings.delay_s > 0.0 && ring.begun {
            if ring.in_use == 0 {
                return None;
            }
            let drained_s = self.drained_s(ring);
            if now_s < drained_s {
                if ring.look_s <= now_s {
                    self.rings[at].look_s = drained_s;
                    self.looks_s.push(drained_s);
                }
                return None;
            }
        }
        let from = ring.round + 1;
        let round_of = |line: &Line| {
            let rounds = line
                .iter()
                .map(|(_, connection)| self.takes_part_from(*connection, from));
            rounds.min()
        };
        let round = round_of(&ring.next[FIRM]).or_else(|| round_of(&ring.next[YIELDS]))?;
        self.rings[at].turn(round);
        let connection = self.in_round(now_s, at)?;
        Some(self.give(now_s, at, connection))
    }

    /// Until when the end of a round with a delay is waited for.
    fn drained_s(&self, ring: &Ring) -> f64 {
        let delay_s = self.settings.delay_s;
        ring.last_s + delay_s.max(DRAINS * self.held_s)
    }

    /// When the gate is to be asked again at the latest, because a round that began is waited for no longer then.
    pub(super) fn take_look(&mut self) -> Option<f64> {
        self.looks_s.pop()
    }

    /// Takes the first who may have a turn in the round; who has no tokens in it waits for the next.
    fn in_round(&mut self, now_s: f64, at: usize) -> Option<u32> {
        for line in [FIRM, YIELDS] {
            while let Some(first) = self.rings[at].now[line].first().copied() {
                let (_, connection) = first;
                let line_of = self.line_of(connection);
                if line == FIRM && line_of != FIRM {
                    // Nobody waits any more for what it may have.
                    let ring = &mut self.rings[at];
                    ring.now[FIRM].remove(&first);
                    ring.now[line_of].insert(first);
                    continue;
                }
                let ring = &self.rings[at];
                let is_left_out =
                    line == YIELDS && self.settings.delay_s <= 0.0 && !ring.next[FIRM].is_empty();
                if is_left_out {
                    let waited_s = now_s - self.since_s[connection as usize];
                    if waited_s < MAX_YIELD.get() || ring.pressed == ring.round {
                        break;
                    }
                    let ring = &mut self.rings[at];
                    ring.pressed = ring.round;
                }
                let has_tokens = self.tokens_left(connection) > 0;
                let ring = &mut self.rings[at];
                ring.now[line].remove(&first);
                if has_tokens {
                    return Some(connection);
                }
                ring.next[line].insert(first);
            }
        }
        None
    }

    /// The first round from this one on in which a connection takes part.
    fn takes_part_from(&self, connection: u32, round: u64) -> u64 {
        let (turn, ran) = (&self.turns[connection as usize], self.ran[connection as usize]);
        let rests = !turn.again && ran > 0 && ran + 1 == round && !self.may_block(connection);
        let round = round + u64::from(rests);
        if turn.share >= 1.0 {
            return round;
        }
        let turns_before = ((round - 1) as f64 * turn.share).floor();
        let taken = ((turns_before + 1.0) / turn.share).ceil() as u64;
        taken.max(round)
    }

    fn give(&mut self, now_s: f64, at: usize, connection: u32) -> u32 {
        let index = connection as usize;
        self.longest_s = self.longest_s.max(now_s - self.since_s[index]);
        self.took_s[index] = now_s;
        let ring = &mut self.rings[at];
        if !std::mem::replace(&mut ring.begun, true) {
            self.rounds += 1;
            ring.begun_s = now_s;
        }
        ring.last_s = now_s;
        ring.in_use += 1;
        self.ran[index] = ring.round;
        self.waits[index] = false;
        self.slot_of[index] = at as u32;
        self.left[index] = self.left[index].saturating_sub(1);
        connection
    }

    /// A ring whose round has ended with all its slots back, and how long it pauses; the pause has begun then. It is asked after
    /// [`admit`](Self::admit) had nobody more.
    pub(super) fn pause(&mut self) -> Option<(u32, f64)> {
        let delay_s = self.settings.delay_s;
        let over = |ring: &Ring| ring.begun && !ring.pausing && ring.in_use == 0 && ring.limit.is_some();
        let at = self.rings.iter().position(|ring| delay_s > 0.0 && over(ring))?;
        self.rings[at].pausing = true;
        Some((at as u32, delay_s))
    }

    /// The pause of a ring is over: the next query begins a round, or has waited for it.
    pub(super) fn resume(&mut self, ring: u32) {
        let ring = &mut self.rings[ring as usize];
        ring.pausing = false;
        ring.turn(ring.round + 1);
    }

    /// A worker with a slot has answered a query; `more` is whether its connection has another.
    pub(super) fn answered(&mut self, now_s: f64, connection: u32, more: bool) -> Answered {
        let index = connection as usize;
        self.now_s = now_s;
        let held_s = now_s - std::mem::replace(&mut self.took_s[index], now_s);
        self.held_s += NEWEST * (held_s - self.held_s);
        match (self.left[index] > 0, more) {
            (true, true) => {
                self.left[index] -= 1;
                Answered::Serves
            }
            (true, false) if self.lingers && self.is_on_call() => Answered::Lingers,
            (left, _) => {
                if !left && self.has_reason_to_pause(connection) {
                    self.pause_from(now_s, index);
                }
                self.leave(connection);
                Answered::Leaves
            }
        }
    }

    /// A connection asks for its next turn only after its pause.
    fn pause_from(&mut self, now_s: f64, index: usize) {
        let retry_s = self.turns[index].retry_s;
        if self.transaction_s[index].is_some_and(|since_s| now_s - since_s < UNPAUSED_S) {
            self.owed[index] += u32::from(retry_s > 0.0);
            return;
        }
        // Who is in a transaction may have a row: what it owes is for after it.
        let owed = match self.transaction_s[index] {
            None => f64::from(std::mem::take(&mut self.owed[index])),
            Some(_) => 0.0,
        };
        self.ready_s[index] = now_s + (retry_s * (owed + 1.0)).min(retry_s.max(MOST_OWED_S));
    }

    /// The query that a lingering worker waited for is there.
    pub(super) fn caught(&mut self, connection: u32) {
        let left = &mut self.left[connection as usize];
        // A policy may have taken the tokens away meanwhile: who lingers serves one query.
        *left = left.saturating_sub(1);
    }

    /// A worker that lingered in vain, or whose tokens are used up, gives its slot back.
    pub(super) fn leave(&mut self, connection: u32) {
        if !self.keeps_tokens {
            self.left[connection as usize] = 0;
        }
        self.rings[self.slot_of[connection as usize] as usize].in_use -= 1;
    }

    /// A worker gives its slot back in the midst of a query: it waits for something.
    pub(super) fn lend(&mut self, now_s: f64, connection: u32) {
        self.now_s = now_s;
        self.given_back += 1;
        self.rings[self.slot_of[connection as usize] as usize].in_use -= 1;
        let turn = &self.turns[connection as usize];
        if !turn.yields && turn.tokens > 0 {
            self.blocked[connection as usize] = true;
            self.blocked_now += 1;
            let until_s = std::mem::replace(&mut self.blocked_until_s, now_s + COUNTS_S);
            if self.blocked_now == 1 || until_s <= now_s {
                self.refresh();
            }
        }
    }

    /// A worker that waited for something takes its slot again.
    pub(super) fn take_again(&mut self, connection: u32) {
        self.rings[self.slot_of[connection as usize] as usize].in_use += 1;
        if std::mem::take(&mut self.blocked[connection as usize]) {
            self.blocked_now -= 1;
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
