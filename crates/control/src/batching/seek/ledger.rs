//! What attempts cost, whichever period it lands in, and what may be spent on them.

use super::block::{Period, is_in_force};
use super::pace::Pace;

/// The share of what batches were found to save that may be spent on finding better ones.
const REINVESTED: f64 = 0.25;

/// A block with another interval, and the periods after it in which what it held is answered.
#[derive(Clone, Copy, Debug)]
struct Trial {
    other: f64,
    /// The mean response time without it.
    usual: f64,
    answers: f64,
    total: f64,
    /// Periods that are booked, and those that were lost meanwhile.
    booked: f64,
    lost: f64,
    /// Periods that are still to be booked once the interval is no longer in force.
    tail: u32,
}

impl Trial {
    /// What it added up to now, below 0 where it saves; a lost period is taken to be like the others.
    fn added(&self) -> f64 {
        let added = self.total - self.usual * self.answers;
        match self.booked > 0.0 {
            true => added * (1.0 + self.lost / self.booked),
            false => 0.0,
        }
    }
}

/// All response times, what attempts added to them, and what batches saved, in seconds times requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ledger {
    total: f64,
    saved: f64,
    /// By attempts before the present one.
    before: f64,
    /// By the present one's trials that are over; below 0 where they saved.
    added: f64,
    trial: Option<Trial>,
}

impl Ledger {
    /// Books a period.
    pub(super) fn observe(&mut self, period: &Period, pace: &Pace) {
        self.total += period.answers * period.response;
        let Some(trial) = &mut self.trial else { return };
        let holds = is_in_force(period.interval, trial.other);
        if holds {
            trial.tail = pace.settle;
        } else if trial.tail == 0 {
            return;
        } else {
            trial.tail -= 1;
        }
        trial.answers += period.answers;
        trial.total += period.answers * period.response;
        trial.booked += 1.0;
    }

    /// A period of which nothing was observed.
    pub(super) fn lose(&mut self) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.tail > 0) {
            trial.lost += 1.0;
        }
    }

    /// Batches saved this.
    pub(super) fn save(&mut self, saved: f64) {
        self.saved += saved;
    }

    /// Another interval is tried, where responses usually take so long. What one attempt saves is not for the next to spend.
    pub(super) fn open(&mut self, other: f64, usual: f64, pace: &Pace, is_new_attempt: bool) {
        self.close(None);
        if is_new_attempt {
            self.before += self.added.max(0.0);
            self.added = 0.0;
        }
        self.trial = Some(Trial {
            other,
            usual,
            answers: 0.0,
            total: 0.0,
            booked: 0.0,
            lost: 0.0,
            tail: pace.settle,
        });
    }

    /// The trial is over; by what was measured before and after it responses would have taken so long, if that is known.
    pub(super) fn close(&mut self, usual: Option<f64>) {
        if let Some(mut trial) = self.trial.take() {
            trial.usual = usual.unwrap_or(trial.usual);
            self.added += trial.added();
        }
    }

    /// This interval is in force for good: what follows is no attempt at it.
    pub(super) fn accept(&mut self, interval: f64) {
        if self
            .trial
            .is_some_and(|trial| is_in_force(Some(interval), trial.other))
        {
            self.close(None);
        }
    }

    /// What attempts added up to now.
    fn spent(&self) -> f64 {
        let trial = self.trial.as_ref().map_or(0.0, Trial::added);
        self.before + (self.added + trial).max(0.0)
    }

    /// The same, as a share of all response times.
    pub(super) fn spent_share(&self) -> f64 {
        match self.total > 0.0 {
            true => self.spent() / self.total,
            false => 0.0,
        }
    }

    /// What may still be spent.
    pub(super) fn left(&self, budget: f64) -> f64 {
        self.total * budget + self.saved * REINVESTED - self.spent()
    }

    /// Whether so much more may be spent.
    pub(super) fn allows(&self, more: f64, budget: f64) -> bool {
        more <= self.left(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::seek::SeekTuning;

    fn period(interval: f64, response: f64) -> Period {
        Period {
            interval: Some(interval),
            response,
            answers: 10.0,
            at_slo: 1.0,
            length: 1.0,
            energy: None,
            batched: None,
        }
    }

    #[test]
    fn what_is_answered_after_a_trial_is_booked_to_it() {
        let pace = Pace::of(3.0, &SeekTuning::default());
        let mut ledger = Ledger::default();
        ledger.observe(&period(0.0, 1.0), &pace);
        ledger.open(0.5, 1.0, &pace, true);
        // Two periods hold, and three periods later their requests are answered; six are booked.
        for (interval, response) in [(0.5, 1.0), (0.5, 1.0), (0.0, 1.0), (0.0, 1.5), (0.0, 1.5)] {
            ledger.observe(&period(interval, response), &pace);
        }
        assert_eq!(ledger.spent(), 10.0);
        ledger.lose();
        assert_eq!(
            ledger.spent(),
            12.0,
            "a lost period is like the five that were seen"
        );
        for _ in 0..5 {
            ledger.observe(&period(0.0, 2.0), &pace);
        }
        assert_eq!(ledger.trial.unwrap().booked, 8.0);
        // All was slower by a tenth.
        ledger.close(Some(1.1));
        assert!((ledger.spent() - (40.0 - 8.0) * (1.0 + 1.0 / 8.0)).abs() < 1e-9);
        // What the next saves is not spent, and not to be spent by one after it.
        ledger.open(0.5, 1.0, &pace, true);
        ledger.observe(&period(0.5, 0.5), &pace);
        ledger.open(0.5, 1.0, &pace, true);
        assert!((ledger.spent() - 36.0).abs() < 1e-9);
    }
}
