//! What follows from a comparison.

use super::compare::{Comparison, Move, Stage, Verdict};
use super::explain::{OBSERVES, Why, reason};
use super::{Phase, SHARES, Seek};
use crate::decision::Reason;

/// The interval of the next attempt while none is in force: after one that cost more so many times as long, after one that made no
/// difference the other.
const AFTER_DEAR: f64 = 0.4;
const AFTER_EQUAL: f64 = 2.0;
/// An attempt costs more where it added this share of the response time.
const DEAR: f64 = 0.03;
/// A gain, as a logarithm, after which it is not tried again at the same load whether no batches are better.
const UNDOUBTED: f64 = 0.3;

impl Seek {
    /// Chooses the interval of the next attempt after one that found nothing.
    fn next_share(&mut self, comparison: &Comparison, verdict: Verdict) {
        if self.is_patient && verdict == Verdict::TooDear {
            // What comes in until the next may be enough for it.
            return;
        }
        let is_too_long = matches!(verdict, Verdict::TooDear | Verdict::MissesSlo(_));
        let is_dear = is_too_long || comparison.mean().is_some_and(|mean| mean > DEAR);
        let tried = self.load.response().map_or(self.tuning.first_share, |response| {
            comparison.longest() / response
        });
        let next = tried * if is_dear { AFTER_DEAR } else { AFTER_EQUAL };
        self.shares[usize::from(self.is_patient)] = match next >= SHARES.0 && next <= SHARES.1 {
            true => next,
            false => self.tuning.first_share,
        };
    }

    /// Periods until the next attempt.
    pub(super) fn stretched(&self) -> u32 {
        let most = f64::from(self.tuning.max_retry_periods);
        let stretched = (f64::from(self.retry) * self.scaled().stretch).min(most);
        (stretched as u32).max(self.retry)
    }

    pub(super) fn wait(&mut self, why: impl Into<Why>) {
        self.load.settle();
        self.pause(self.stretched(), why);
        self.retry = self.retry.saturating_mul(2).min(self.tuning.max_retry_periods);
    }

    /// The interval stays for so many periods. What is said of it does not count them down: it would be another reason in each.
    pub(super) fn pause(&mut self, periods: u32, why: impl Into<Why>) {
        let next = if self.is_off() {
            "it is tried again"
        } else {
            "it seeks again"
        };
        let why = format!("{}; {next} {periods} periods after that", why.into());
        self.phase = Phase::Wait(periods, why.into());
    }

    /// Goes on after a comparison.
    pub(super) fn conclude(&mut self, comparison: &Comparison, verdict: Verdict) -> Option<Reason> {
        let (from, to) = (comparison.base * 1e3, comparison.other * 1e3);
        let is_to_check = comparison.way != Move::Off && comparison.stage == Stage::Search;
        if matches!(verdict, Verdict::Better(_)) && is_to_check {
            self.phase = Phase::Compare(Box::new(comparison.check()));
            return None;
        }
        self.unjudged = self.unjudged.saturating_add(1);
        if comparison.way == Move::Off || self.is_off() {
            (self.unjudged, self.since_judged) = (0, 0);
        }
        let says = comparison.is_measured() || matches!(verdict, Verdict::NotBetter(_));
        if comparison.way == Move::Off && says {
            self.ledger.judge(comparison.mean().unwrap_or(0.0));
        }
        if let Verdict::Better(share) = verdict {
            if comparison.way == Move::Off {
                // What cost more here was too long.
                self.next_share(comparison, Verdict::TooDear);
            }
            let later = comparison.later();
            self.later = match later {
                Some(later) if comparison.base <= self.none() => later,
                Some(later) => self.later + later,
                None => 0.0,
            };
            self.take(comparison.other);
            self.holds_patiently = self.is_patient && comparison.way != Move::Off;
            self.is_patient = self.holds_patiently;
            self.gain = match comparison.way {
                Move::Off => 0.0,
                _ if comparison.base <= self.none() => share,
                _ => self.gain + share,
            };
            self.retry = self.tuning.retry_periods;
            let text = format!("{to:.0} ms costs {:.1} % less than {from:.0} ms", share * 100.0);
            let numbers = [("interval_ms", to), ("gain", share)];
            // Back to where it came from is known to be worse.
            (self.way, self.tried) = match comparison.way {
                Move::Up if comparison.base <= self.none() => (Move::Up, vec![Move::Off]),
                Move::Up => (Move::Up, vec![Move::Down]),
                Move::Down => (Move::Down, vec![Move::Up]),
                Move::Off => (Move::Up, Vec::new()),
            };
            if comparison.way == Move::Off {
                self.remembered = None;
                self.wait(format!(
                    "no batches cost {:.1} % less than {from:.0} ms",
                    share * 100.0
                ));
            } else {
                self.phase = Phase::Wait(0, OBSERVES);
            }
            return Some(reason("seek-moved", text, &numbers));
        }
        let why = match verdict {
            Verdict::MissesSlo(left) if !self.keep.tries() => format!(
                "holding requests for {:.0} ms made periods miss the target, as far as is known: what was late leaves {:.0} ms",
                comparison.longest() * 1e3,
                left * 1e3
            ),
            _ => comparison.why(verdict),
        };
        let is_cut_short = matches!(verdict, Verdict::TooDear | Verdict::MissesSlo(_));
        if is_cut_short {
            self.give_up();
        }
        if self.is_off() && comparison.is_for_large() && is_cut_short && comparison.promises(&self.tuning) {
            // What it promised is still to be found.
            self.wait(why);
            return None;
        }
        if self.is_off() && comparison.is_for_large() {
            self.seeks_large = false;
            if comparison.is_undecided(verdict, &self.tuning) {
                self.phase = Phase::Wait(0, why.into());
                return None;
            }
        }
        if self.is_off() {
            match self.remembered.take() {
                Some(_) => self.shares = [self.tuning.first_share; 2],
                None => self.next_share(comparison, verdict),
            }
            // What the SLO cut short says nothing of what shows in patient blocks.
            self.is_patient ^= !matches!(verdict, Verdict::MissesSlo(_));
            self.wait(why);
        } else {
            if let (Move::Off, Some(mean)) = (comparison.way, comparison.mean()) {
                self.gain = mean.max(0.0);
                self.later = comparison.later().map_or(self.later, |later| -later);
                self.is_undoubted = comparison.least(&self.tuning) > Some(UNDOUBTED);
            }
            self.tried.push(comparison.way);
            self.phase = Phase::Wait(0, why.into());
        }
        None
    }
}
