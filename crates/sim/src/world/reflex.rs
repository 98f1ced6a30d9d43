//! The reflex between two decisions: its bounds are checked as requests arrive, and what it raises is commanded after a delay.

use super::World;
use super::change::Change;
use headroom_control::{Allocation, Decision, Reflex};

/// The reflex of the newest decision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Armed {
    /// Decisions up to now: what belongs to an earlier one does nothing.
    decision: u64,
    /// `None` where the decision has none, or once it has fired.
    reflex: Option<Reflex>,
}

impl World<'_> {
    /// The reflex of a decision takes the place of the last one's.
    pub(super) fn arm(&mut self, decision: &Decision) {
        let armed = &mut self.armed;
        armed.decision += 1;
        armed.reflex = decision.reflex;
        let number = armed.decision;
        if let Some(age) = decision.reflex.and_then(|reflex| reflex.oldest) {
            self.agenda.add(
                self.now_s + age.get().max(MIN_AGE_S),
                Change::OldestDue { number },
            );
        }
    }

    /// Fires where more requests are in flight than was expected.
    #[inline]
    pub(super) fn check_in_flight(&mut self) {
        let in_flight = self.accounts.in_flight;
        if let Some(reflex) = self.armed.reflex
            && reflex.is_passed(in_flight, None)
        {
            self.fire(reflex);
        }
    }

    /// A request may have become as old as none was expected to become.
    pub(super) fn oldest_due(&mut self, number: u64) {
        let Some(reflex) = self.armed.reflex.filter(|_| self.armed.decision == number) else {
            return;
        };
        let Some(bound) = reflex.oldest else { return };
        let oldest = self.nodes.iter().filter_map(|node| node.server.oldest_s());
        let arrived_s = oldest.fold(self.now_s, f64::min);
        // The roundings of the sum are no time: what is due now has come.
        if self.now_s - arrived_s >= bound.get() - MIN_AGE_S {
            self.fire(reflex);
        } else {
            let due_s = (arrived_s + bound.get()).max(self.now_s + MIN_AGE_S);
            self.agenda.add(due_s, Change::OldestDue { number });
        }
    }

    fn fire(&mut self, reflex: Reflex) {
        self.armed.reflex = None;
        let due_s = self.now_s + self.scenario.delays.reflex_s;
        let change = Change::Reflex {
            number: self.armed.decision,
            reflex,
        };
        self.agenda.add(due_s, change);
    }

    /// What a reflex raises is commanded, unless a decision has come first.
    pub(super) fn reflex(&mut self, number: u64, reflex: &Reflex) {
        if number != self.armed.decision {
            return;
        }
        self.period.reflexes += 1;
        self.sums.reflexes += 1;
        let raised = reflex.raised(&self.allocated().into());
        let wanted: Allocation = self.plant.allocation(&raised);
        self.carry_out(wanted);
    }
}

/// The shortest time from one check of the oldest request to the next.
const MIN_AGE_S: f64 = 1e-6;
