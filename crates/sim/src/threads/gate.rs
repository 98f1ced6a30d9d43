//! The on-call gate: which workers may serve, in rounds over the connections.

use super::scenario::GateFigures;
use std::collections::BTreeSet;

/// What of a gate a policy may change while it works.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSettings {
    /// C, workers with a slot at once.
    pub concurrency: u32,
    /// N of each connection: its queries in a round.
    pub tokens: Vec<u32>,
    /// D, seconds from the end of a round to the next.
    pub delay_s: f64,
}

impl GateSettings {
    /// Those that a gate begins with.
    pub fn of(gate: &GateFigures, connections: u32) -> Self {
        let tokens = match gate.tokens_each.is_empty() {
            true => vec![gate.tokens; connections as usize],
            false => gate.tokens_each.clone(),
        };
        Self {
            concurrency: gate.concurrency,
            tokens,
            delay_s: gate.delay_s,
        }
    }
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

/// The gate. A round passes over the connections once, in the order of their numbers, so that rounds in a row are a ring.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    settings: GateSettings,
    lingers: bool,
    /// Workers with a slot. Those that wake from a wait take theirs without asking, so that it can exceed C for a while.
    in_use: u32,
    /// Connections with a query and no slot.
    waiting: BTreeSet<u32>,
    /// Queries that a worker may still serve in this round.
    left: Vec<u32>,
    /// The connection from which on the round has yet to pass.
    next: u32,
    /// Whether somebody was admitted in this round.
    begun: bool,
    /// Between two rounds.
    pausing: bool,
    pub(super) rounds: u64,
}

impl Gate {
    pub(super) fn new(figures: &GateFigures, connections: u32) -> Self {
        Self {
            settings: GateSettings::of(figures, connections),
            lingers: figures.linger_s > 0.0,
            in_use: 0,
            waiting: BTreeSet::new(),
            left: vec![0; connections as usize],
            next: 0,
            begun: false,
            pausing: false,
            rounds: 0,
        }
    }

    pub(super) fn set(&mut self, settings: GateSettings) {
        self.settings = settings;
    }

    /// Connections with a query that wait for a slot.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn waits(&self, connection: u32) -> bool {
        self.waiting.contains(&connection)
    }

    /// A connection has a query and its worker no slot.
    pub(super) fn wait(&mut self, connection: u32) {
        self.waiting.insert(connection);
    }

    /// The next worker that is given a slot, with its first query's token used.
    pub(super) fn admit(&mut self) -> Option<u32> {
        if self.pausing || self.in_use >= self.settings.concurrency {
            return None;
        }
        let tokens = &self.settings.tokens;
        let has_tokens = |connection: &&u32| tokens[**connection as usize] > 0;
        let mut found = self.waiting.range(self.next..).find(has_tokens).copied();
        if found.is_none() && (self.settings.delay_s == 0.0 || !self.begun) {
            // Without a delay, and in a round in which nobody was served, the next begins at once.
            found = self.waiting.iter().find(has_tokens).copied();
            self.begun = false;
        }
        let connection = found?;
        self.waiting.remove(&connection);
        self.rounds += u64::from(!self.begun);
        self.begun = true;
        self.next = connection + 1;
        self.left[connection as usize] = tokens[connection as usize] - 1;
        self.in_use += 1;
        Some(connection)
    }

    /// How long to pause, where a round has ended and all its slots are back; the pause has begun then.
    pub(super) fn pause(&mut self) -> Option<f64> {
        let tokens = &self.settings.tokens;
        let over = self.begun && !self.pausing && self.in_use == 0 && self.settings.delay_s > 0.0;
        let somebody = |connection: &u32| tokens[*connection as usize] > 0;
        if !over || self.waiting.range(self.next..).any(somebody) {
            return None;
        }
        self.pausing = true;
        Some(self.settings.delay_s)
    }

    /// The pause is over: the next query begins a round, or has waited for it.
    pub(super) fn resume(&mut self) {
        self.pausing = false;
        self.begun = false;
        self.next = 0;
    }

    /// A worker with a slot has answered a query; `more` is whether its connection has another.
    pub(super) fn answered(&mut self, connection: u32, more: bool) -> Answered {
        let left = &mut self.left[connection as usize];
        match (*left > 0, more) {
            (true, true) => {
                *left -= 1;
                Answered::Serves
            }
            (true, false) if self.lingers => Answered::Lingers,
            _ => {
                *left = 0;
                self.give_back();
                Answered::Leaves
            }
        }
    }

    /// The query that a lingering worker waited for is there.
    pub(super) fn caught(&mut self, connection: u32) {
        self.left[connection as usize] -= 1;
    }

    /// A worker gives its slot back: it waits for something, or has lingered in vain.
    pub(super) fn give_back(&mut self) {
        self.in_use -= 1;
    }

    /// A worker that waited for something takes its slot again.
    pub(super) fn take_again(&mut self) {
        self.in_use += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(concurrency: u32, tokens_each: &[u32], delay_s: f64) -> Gate {
        let figures = GateFigures {
            concurrency,
            tokens_each: tokens_each.to_vec(),
            delay_s,
            linger_s: 0.0,
            ..GateFigures::default()
        };
        Gate::new(&figures, tokens_each.len() as u32)
    }

    #[test]
    fn slots_go_round_in_a_ring_and_none_without_tokens_has_a_turn() {
        let mut gate = gate(1, &[1, 0, 1, 1], 0.0);
        (0..4).for_each(|connection| gate.wait(connection));
        let mut order = Vec::new();
        while let Some(connection) = gate.admit() {
            order.push(connection);
            assert_eq!(gate.admit(), None);
            assert_eq!(gate.answered(connection, true), Answered::Leaves);
            if order.len() < 5 {
                gate.wait(connection);
            }
        }
        assert_eq!(order, [0, 2, 3, 0, 2, 3, 0]);
        assert!(gate.waits(1) && gate.waiting() == 1);
    }

    #[test]
    fn a_delay_begins_when_all_slots_of_the_round_are_back() {
        let mut gate = gate(2, &[2, 1, 1], 0.01);
        (0..2).for_each(|connection| gate.wait(connection));
        assert_eq!(
            (gate.admit(), gate.admit(), gate.admit()),
            (Some(0), Some(1), None)
        );
        assert_eq!(gate.answered(0, true), Answered::Serves);
        assert_eq!(gate.answered(0, false), Answered::Leaves);
        // The round has passed connection 0, and has yet to pass 2.
        gate.wait(0);
        gate.wait(2);
        assert_eq!((gate.admit(), gate.admit()), (Some(2), None));
        assert_eq!(gate.answered(1, false), Answered::Leaves);
        assert_eq!((gate.admit(), gate.pause()), (None, None));
        assert_eq!(gate.answered(2, false), Answered::Leaves);
        assert_eq!(
            (gate.pause(), gate.pause(), gate.admit()),
            (Some(0.01), None, None)
        );
        gate.resume();
        assert_eq!((gate.admit(), gate.rounds), (Some(0), 2));
    }
}
