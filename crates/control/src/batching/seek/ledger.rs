//! What attempts cost, whichever period it lands in, what was held in the belief that it helps and does not, and what may be spent.

use super::block::{Period, is_in_force};
use super::pace::Pace;

/// The share of what batches were found to save that may be spent on finding better ones.
const REINVESTED: f64 = 0.25;

/// The share of the budget that is spent: what is booked is measured, and measured wrongly by some.
const SPENT: f64 = 0.85;

/// The share of what comes in that may be spent on attempts while something is owed; the rest pays.
const WHILE_OWING: f64 = 0.5;

/// A block with another interval, and the periods after it in which what it held is answered.
#[derive(Clone, Copy, Debug)]
struct Trial {
    other: f64,
    /// The mean response time without it.
    usual: f64,
    /// What the requests of a period are held for longer, in the mean and as many as they usually are.
    waits: f64,
    answers: f64,
    /// Periods in which it was in force.
    held: f64,
    total: f64,
    /// Periods that are booked, and those that were lost meanwhile.
    booked: f64,
    lost: f64,
    /// Periods that are still to be booked once the interval is no longer in force.
    tail: u32,
}

impl Trial {
    /// How much more there was of everything that was booked, for a lost period is taken to be like the others.
    fn with_lost(&self) -> f64 {
        match self.booked > 0.0 {
            true => 1.0 + self.lost / self.booked,
            false => 0.0,
        }
    }

    /// What it added up to now, below 0 where it saves.
    fn added(&self) -> f64 {
        (self.total - self.usual * self.answers) * self.with_lost()
    }

    /// What holding its requests added if that changed nothing else.
    fn waited(&self) -> f64 {
        self.waits * self.held * self.with_lost()
    }
}

/// What was answered with batches since they were last compared with none.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    total: f64,
    /// What they are believed to have saved of that.
    saved: f64,
}

/// All response times, what attempts added to them, and what batches saved, in seconds times requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ledger {
    total: f64,
    /// What batches were found to have saved, and to have added, by comparisons with none.
    saved: f64,
    lost: f64,
    held: Held,
    /// All response times, and what was spent, when batches were last found to have added something.
    owing: (f64, f64),
    /// By attempts before the present one.
    before: f64,
    /// By the present one's trials that are over; below 0 where they saved.
    added: f64,
    /// What holding requests in these added if that changed nothing else, and whether it may be so.
    waited: f64,
    is_doubtful: bool,
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
            trial.held += 1.0;
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

    /// Batches answered this, and are believed to have saved that share of it.
    pub(super) fn hold(&mut self, period: &Period, gain: f64) {
        let total = period.answers * period.response;
        self.held.total += total;
        self.held.saved += total * gain;
    }

    /// Batches were compared with none, which cost so much more, as a logarithm: that is so of all that they answered since they last were,
    /// whatever was believed of it meanwhile. They have saved no more than was believed.
    pub(super) fn judge(&mut self, more: f64) {
        let held = std::mem::take(&mut self.held);
        let saved = held.total * more.exp_m1();
        self.saved += saved.min(held.saved).max(0.0);
        if saved < 0.0 {
            self.lost -= saved;
            self.owing = (self.total, self.spent());
        }
    }

    /// The load is another: what will be found of batches says nothing of what they did, which is what was believed.
    pub(super) fn settle(&mut self) {
        self.saved += std::mem::take(&mut self.held).saved;
    }

    /// Another interval is tried, with which each request waits for so much longer, where responses usually take so long. What one attempt
    /// saves is not for the next to spend.
    pub(super) fn open(&mut self, other: f64, waits: f64, usual: f64, pace: &Pace, is_new_attempt: bool) {
        self.close();
        if is_new_attempt {
            self.before += self.attempt();
            (self.added, self.waited) = (0.0, 0.0);
            self.is_doubtful = true;
        }
        self.trial = Some(Trial {
            other,
            usual,
            waits: waits.max(0.0) * pace.requests,
            answers: 0.0,
            held: 0.0,
            total: 0.0,
            booked: 0.0,
            lost: 0.0,
            tail: pace.settle,
        });
    }

    /// By what was measured beside it the responses of the trial would have taken so long.
    pub(super) fn compared(&mut self, usual: f64) {
        if let Some(trial) = &mut self.trial {
            trial.usual = usual;
        }
    }

    /// The same where that was measured after it only: what it added may last a while, so it is not more than is known to have been.
    pub(super) fn compared_late(&mut self, usual: f64) {
        if let Some(trial) = &mut self.trial {
            trial.usual = trial.usual.max(usual);
        }
    }

    /// The trial is over.
    fn close(&mut self) {
        if let Some(trial) = self.trial.take() {
            self.added += trial.added();
            self.waited += trial.waited();
        }
    }

    /// This interval is in force for good: what follows is no attempt at it.
    pub(super) fn accept(&mut self, interval: f64) {
        if self
            .trial
            .is_some_and(|trial| is_in_force(Some(interval), trial.other))
        {
            self.close();
        }
    }

    /// Whether it is in doubt that the present attempt saves anything. While it is, no less is booked than what its requests waited for:
    /// where the load made the difference, that is what they cost.
    pub(super) fn doubt(&mut self, is_doubtful: bool) {
        self.is_doubtful = is_doubtful;
    }

    /// What the present attempt added up to now.
    fn attempt(&self) -> f64 {
        let trial = self.trial.as_ref();
        let added = self.added + trial.map_or(0.0, Trial::added);
        let waited = self.waited + trial.map_or(0.0, Trial::waited);
        added.max(if self.is_doubtful { waited } else { 0.0 })
    }

    /// What attempts added up to now.
    fn spent(&self) -> f64 {
        self.before + self.attempt()
    }

    /// The same, and what batches that did not help added beyond what others saved, as a share of all response times.
    pub(super) fn spent_share(&self) -> f64 {
        match self.total > 0.0 {
            true => (self.spent() + self.owed()) / self.total,
            false => 0.0,
        }
    }

    /// What batches in force added beyond what they saved, at this and other loads.
    fn owed(&self) -> f64 {
        (self.lost - self.saved - self.held.saved).max(0.0)
    }

    /// Whether batches in force have added more than they saved.
    pub(super) fn owes(&self) -> bool {
        self.owed() > 0.0
    }

    /// What may still be spent; below 0 where more is owed than that.
    pub(super) fn left(&self, budget: f64) -> f64 {
        let saved = (self.saved + self.held.saved - self.lost).max(0.0);
        self.total * budget * SPENT + saved * REINVESTED - self.owed() - self.spent()
    }

    /// What may be spent more in so many periods, of which each has so much response time.
    pub(super) const fn income(periods: f64, usual: f64, budget: f64) -> f64 {
        periods * usual * budget * SPENT
    }

    /// What attempts may take of that; a part of what came in since, where something is owed.
    pub(super) fn free(&self, budget: f64) -> f64 {
        let (total, spent) = self.owing;
        let since = (self.total - total) * budget * SPENT * WHILE_OWING - (self.spent() - spent);
        match self.owed() > 0.0 {
            true => self.left(budget).max(since),
            false => self.left(budget),
        }
    }

    /// Whether so much more may be spent.
    pub(super) fn allows(&self, more: f64, budget: f64) -> bool {
        more <= self.free(budget)
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
        let mut pace = Pace::of(3.0, &SeekTuning::default());
        pace.requests = 10.0;
        let mut ledger = Ledger::default();
        ledger.observe(&period(0.0, 1.0), &pace);
        ledger.open(0.5, 0.25, 1.0, &pace, true);
        ledger.doubt(false);
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
        ledger.compared(1.1);
        assert!((ledger.spent() - (40.0 - 8.0) * (1.0 + 1.0 / 8.0)).abs() < 1e-9);
        // What the next saves is not spent, and not to be spent by one after it.
        ledger.open(0.5, 0.25, 1.0, &pace, true);
        ledger.doubt(false);
        ledger.observe(&period(0.5, 0.5), &pace);
        ledger.open(0.5, 0.25, 1.0, &pace, true);
        ledger.doubt(false);
        assert!((ledger.spent() - 36.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_believed_to_help_and_did_not_is_owed() {
        let pace = Pace::of(0.0, &SeekTuning::default());
        let mut ledger = Ledger::default();
        let hold = |ledger: &mut Ledger| {
            for _ in 0..10 {
                ledger.observe(&period(0.5, 1.0), &pace);
                ledger.hold(&period(0.5, 1.0), 0.2);
            }
        };
        hold(&mut ledger);
        // A quarter of what is believed may be spent.
        assert!((ledger.left(0.01) - (0.85 + 0.25 * 20.0)).abs() < 1e-9);
        // None costs a tenth less.
        ledger.judge(0.9f64.ln());
        assert!((ledger.left(0.01) - (0.85 - 10.0)).abs() < 1e-9);
        // Nothing may be spent, and then half of what comes in.
        assert!(ledger.allows(0.0, 0.01) && !ledger.allows(0.01, 0.01));
        ledger.observe(&period(0.0, 10.0), &pace);
        assert!(ledger.allows(0.42, 0.01) && !ledger.allows(0.43, 0.01));
        ledger.total -= 100.0;
        // What is found of the next does not touch that; they saved half as much as was believed, then no more than it.
        hold(&mut ledger);
        ledger.judge(1.1f64.ln());
        assert!((ledger.left(0.01) - (2.0 * 0.85 - 10.0 + 10.0)).abs() < 1e-9);
        hold(&mut ledger);
        ledger.judge(2.0f64.ln());
        assert!((ledger.left(0.01) - (3.0 * 0.85 + 0.25 * 20.0)).abs() < 1e-9);
        // Nor does what is found of another load.
        hold(&mut ledger);
        ledger.settle();
        ledger.judge(0.5f64.ln());
        assert!((ledger.left(0.01) - (4.0 * 0.85 + 0.25 * 40.0)).abs() < 1e-9);
    }

    #[test]
    fn while_it_is_in_doubt_that_an_attempt_saves_it_is_booked_what_its_requests_wait_for() {
        let mut pace = Pace::of(0.0, &SeekTuning::default());
        pace.requests = 10.0;
        let mut ledger = Ledger::default();
        ledger.open(0.5, 0.25, 1.0, &pace, true);
        for _ in 0..4 {
            // More are answered, and sooner: of the load or of the batches.
            ledger.observe(&period(0.5, 0.9), &pace);
        }
        assert!((ledger.spent() - 4.0 * 10.0 * 0.25).abs() < 1e-9);
        ledger.doubt(false);
        assert_eq!(ledger.spent(), 0.0);
        // Another attempt is in doubt again.
        ledger.open(0.5, 0.25, 1.0, &pace, true);
        ledger.observe(&period(0.5, 0.9), &pace);
        assert!((ledger.spent() - 10.0 * 0.25).abs() < 1e-9);
        // What it was seen to add counts where that is more.
        ledger.observe(&period(0.5, 2.0), &pace);
        assert!((ledger.spent() - (10.0 - 1.0)).abs() < 1e-9);
    }
}
