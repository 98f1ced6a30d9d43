//! What trying intervals, and batches that do not help, add to the response times, and the share of all of them that they may.
//!
//! A hold is booked what its responses take beyond the usual from the end of its settling on, and those of the settling of the hold after
//! it, which it held. An attempt that saves is not for the next to spend. An interval that the model chose is booked against what responses
//! took without batches; what it saves is kept for a hold at most, so that it is given up soon once it does not.

/// Who pays for a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Payer {
    /// What is in force costs nothing.
    Nobody,
    /// An interval is tried; what responses take without that.
    Attempt(f64),
    /// Batches; what responses take without them.
    Batches(f64),
}

/// Response times, in seconds times requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    total: f64,
    /// By attempts and batches that are over.
    before: f64,
    /// By the present attempt, and by the present batches; below 0 where they save.
    attempt: f64,
    batches: f64,
}

impl Cost {
    /// Books a period of so many answers in which responses took `mean`; `most_saved` is what batches may keep of what they save.
    pub(super) fn book(&mut self, payer: Payer, answers: f64, mean: f64, most_saved: f64) {
        self.total += answers * mean;
        match payer {
            Payer::Nobody => {}
            Payer::Attempt(usual) => self.attempt += answers * (mean - usual),
            Payer::Batches(usual) => {
                self.batches = (self.batches + answers * (mean - usual)).max(-most_saved);
            }
        }
    }

    /// Whether what pays now costs anything.
    pub(super) fn costs(&self, payer: Payer) -> bool {
        match payer {
            Payer::Nobody => false,
            Payer::Attempt(_) => self.attempt > 0.0,
            Payer::Batches(_) => self.batches > 0.0,
        }
    }

    /// The present attempt is over.
    pub(super) fn end_attempt(&mut self) {
        self.before += std::mem::take(&mut self.attempt).max(0.0);
    }

    /// The present batches are over.
    pub(super) fn end_batches(&mut self) {
        self.before += std::mem::take(&mut self.batches).max(0.0);
    }

    fn spent(&self) -> f64 {
        self.before + self.attempt.max(0.0) + self.batches.max(0.0)
    }

    /// What was spent, as a share of all.
    pub(super) fn spent_share(&self) -> f64 {
        match self.total > 0.0 {
            true => self.spent() / self.total,
            false => 0.0,
        }
    }

    /// What is left of this share of all.
    pub(super) fn left(&self, budget: f64) -> f64 {
        self.total * budget - self.spent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_attempt_saves_is_not_for_the_next_to_spend() {
        let mut cost = Cost::default();
        cost.book(Payer::Nobody, 10.0, 1.0, 0.0);
        assert_eq!(cost.left(0.1), 1.0);
        cost.book(Payer::Attempt(1.0), 10.0, 0.5, 0.0);
        cost.end_attempt();
        assert_eq!(cost.left(0.1), 1.5);
        cost.book(Payer::Attempt(1.0), 10.0, 1.5, 0.0);
        assert_eq!((cost.left(0.1), cost.spent_share()), (-2.0, 5.0 / 30.0));
    }

    #[test]
    fn batches_that_saved_are_given_up_a_hold_after_they_cost() {
        let mut cost = Cost::default();
        for _ in 0..100 {
            cost.book(Payer::Batches(1.0), 10.0, 0.1, 20.0);
        }
        assert_eq!(cost.left(0.0), 0.0);
        for _ in 0..3 {
            cost.book(Payer::Batches(1.0), 10.0, 2.0, 20.0);
        }
        assert_eq!(cost.left(0.0), -10.0);
        cost.end_batches();
        assert_eq!(cost.left(0.0), -10.0);
    }
}
