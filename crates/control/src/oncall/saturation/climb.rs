//! The online search for the least concurrency limit whose throughput is within a tolerance of the best.
//!
//! A table has the mean throughput and its standard error for every limit that was measured. While it searches, the table
//! alone says what to measure next: upwards by doubling while that brings more, downwards by halving while that costs
//! nothing, then by bisection between the greatest limit that is too small and the least that is enough. It then holds,
//! compares neighbours within a budget of periods, and searches anew where throughput moved or a neighbour was better.

use crate::decision::Reason;
use crate::parameter::{Bound, OutOfRange, require};
use headroom_units::{PerSecond, Seconds};
use std::collections::BTreeMap;

/// Periods of a limit before its mean is compared at all: fewer have no usable variance.
const MIN_PERIODS: u32 = 12;
/// Standard errors by which two means differ significantly. More than one comparison would need, for a mean is compared after
/// every period, and each is a chance to be wrong.
const SIGNIFICANT: f64 = 3.5;
/// Periods after which the recent mean of a hold is compared with the one that the limit was chosen by.
const WINDOW: u32 = 50;
/// By how many times the tolerance throughput must move to count as another workload.
const MOVED: f64 = 3.0;
/// Tests without a change multiply the wait for the next by 2 up to this.
const MAX_WAIT: u32 = 8;

/// Parameters of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClimbTuning {
    /// The least limit, 1 or more.
    pub min: u32,
    /// The greatest limit, such as C_avail.
    pub max: u32,
    /// The share of the best throughput that may be given up; 0.02.
    pub tolerance: f64,
    /// The most periods that one limit is measured for; 200 suffice for a noise of 10 % a period.
    pub max_periods: u32,
    /// The share of periods that a hold may spend on neighbours; 0.05.
    pub test_share: f64,
}

impl ClimbTuning {
    /// The defaults for limits in this range.
    pub const fn between(min: u32, max: u32) -> Self {
        Self {
            min,
            max,
            tolerance: 0.02,
            max_periods: 200,
            test_share: 0.05,
        }
    }

    fn check(&self) -> Result<(), OutOfRange> {
        require("min", f64::from(self.min), self.min >= 1, "1 or more")?;
        require("max", f64::from(self.max), self.max >= self.min, "min or more")?;
        Bound::Between(0.001, 0.5).check("tolerance", self.tolerance)?;
        let enough = self.max_periods >= MIN_PERIODS;
        require("max_periods", f64::from(self.max_periods), enough, "12 or more")?;
        Bound::Between(0.0, 0.5).check("test_share", self.test_share)
    }
}

/// What one period measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClimbPeriod {
    /// C in force during all of it.
    pub limit: u32,
    /// Queries completed a second.
    pub throughput: PerSecond,
    /// Its length.
    pub length: Seconds,
    /// Whether queries waited for a turn the whole time: else the throughput is the demand's, not the limit's.
    pub saturated: bool,
}

/// What the search is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClimbState {
    /// Measuring limits to find the least that is enough.
    Searching,
    /// Staying at the limit found.
    Holding,
    /// Measuring this neighbour of the limit found.
    Testing(u32),
}

/// Weighted mean and variance by West's update: a longer period weighs more.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    weight: f64,
    mean: f64,
    squares: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.weight += weight;
        let off = value - self.mean;
        self.mean += off * weight / self.weight;
        self.squares += weight * off * (value - self.mean);
        self.count += 1;
    }

    /// The standard error of the mean; infinite before two values.
    fn error(&self) -> f64 {
        match self.count {
            0 | 1 => f64::INFINITY,
            count => (self.squares / (self.weight * f64::from(count - 1)))
                .max(0.0)
                .sqrt(),
        }
    }
}

/// The hill climb. Bounded: the table has at most one entry for each limit that the search visits, about 2 log2(max).
#[derive(Clone, Debug)]
pub struct Climb {
    tuning: ClimbTuning,
    state: ClimbState,
    /// What is to be in force.
    limit: u32,
    /// The limit that was found last, before it the start.
    found: u32,
    table: BTreeMap<u32, Mean>,
    recent: Mean,
    test: Mean,
    held: u32,
    wait: u32,
    up: bool,
    /// Whether the last usable period had the limit that is now in force: the first one after a change is a transient.
    settled: bool,
}

impl Climb {
    /// A search that begins at `start`, moved into the range.
    ///
    /// # Errors
    /// [`OutOfRange`] for a parameter outside its range.
    pub fn new(tuning: ClimbTuning, start: u32) -> Result<Self, OutOfRange> {
        tuning.check()?;
        let start = start.clamp(tuning.min, tuning.max);
        Ok(Self {
            tuning,
            state: ClimbState::Searching,
            limit: start,
            found: start,
            table: BTreeMap::new(),
            recent: Mean::default(),
            test: Mean::default(),
            held: 0,
            wait: 1,
            up: true,
            settled: false,
        })
    }

    /// The limit that is to be in force, within the range.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// What it is doing.
    pub const fn state(&self) -> ClimbState {
        self.state
    }

    /// Takes one period and answers the limit of the next and why.
    ///
    /// A period that was not saturated, had another limit in force than was asked for, or has numbers that cannot be, changes
    /// nothing.
    pub fn observe(&mut self, period: &ClimbPeriod) -> (u32, Reason) {
        let (throughput, length) = (period.throughput.get(), period.length.get());
        let usable = throughput >= 0.0 && throughput.is_finite() && length > 0.0 && length.is_finite();
        if !usable || !period.saturated {
            return self.answer(
                "climb-unsaturated",
                "no backlog, or no usable numbers: the period says nothing of C",
            );
        }
        if period.limit != self.limit {
            self.settled = false;
            return self.answer("climb-other-limit", "another C was in force than asked for");
        }
        if !self.settled {
            self.settled = true;
            return self.answer(
                "climb-settling",
                "the first period after a change of C is not measured",
            );
        }
        match self.state {
            ClimbState::Searching => self.search(throughput, length),
            ClimbState::Holding => self.hold(throughput, length),
            ClimbState::Testing(neighbour) => self.compare(neighbour, throughput, length),
        }
    }

    fn search(&mut self, throughput: f64, length: f64) -> (u32, Reason) {
        self.table.entry(self.limit).or_default().add(throughput, length);
        if !self.is_measured(self.limit) {
            return self.answer("climb-measuring", "more periods are needed at this C");
        }
        match self.next() {
            Some(next) => {
                self.go(next, ClimbState::Searching);
                self.answer("climb-next", "the search goes on at another C")
            }
            None => {
                let found = self.least_enough();
                self.wait = if found == self.found {
                    (self.wait * 2).min(MAX_WAIT)
                } else {
                    1
                };
                self.found = found;
                self.begin_hold();
                self.answer(
                    "climb-found",
                    "the least C with a throughput within the tolerance of the best",
                )
            }
        }
    }

    fn hold(&mut self, throughput: f64, length: f64) -> (u32, Reason) {
        self.recent.add(throughput, length);
        self.held = self.held.saturating_add(1);
        if self.recent.count >= WINDOW {
            let (recent, chosen) = (
                self.recent,
                self.table.get(&self.found).copied().unwrap_or(self.recent),
            );
            let apart = (recent.mean - chosen.mean).abs();
            let doubt = SIGNIFICANT * recent.error().hypot(chosen.error());
            if apart > doubt && apart > MOVED * self.tuning.tolerance * chosen.mean {
                self.wait = 1;
                self.restart(self.found);
                return self.answer(
                    "climb-moved",
                    "throughput at this C moved: another workload, searched anew",
                );
            }
            if self.is_test_due() {
                // Up by a share of C: one worker more could not show a knee that moved away by many.
                let neighbour = match self.up {
                    true => self
                        .found
                        .saturating_add((self.found / 4).max(1))
                        .min(self.tuning.max),
                    false => self
                        .found
                        .saturating_sub((self.found / 8).max(1))
                        .max(self.tuning.min),
                };
                self.up = !self.up;
                if neighbour != self.found {
                    self.test = Mean::default();
                    self.go(neighbour, ClimbState::Testing(neighbour));
                    return self.answer("climb-test", "a neighbour is compared");
                }
            }
            if self.recent.count >= 2 * WINDOW {
                self.recent = Mean::default();
            }
        }
        self.answer("climb-hold", "the limit found is kept")
    }

    /// Whether the test would stay within the share of periods that tests may have.
    fn is_test_due(&self) -> bool {
        let cost = f64::from(WINDOW + 2);
        let share = self.tuning.test_share;
        share > 0.0 && f64::from(self.held) * share >= cost * (1.0 - share) * f64::from(self.wait)
    }

    fn compare(&mut self, neighbour: u32, throughput: f64, length: f64) -> (u32, Reason) {
        self.test.add(throughput, length);
        let (test, here) = (self.test, self.recent);
        if test.count < MIN_PERIODS {
            return self.answer("climb-measuring", "more periods are needed at this neighbour");
        }
        let doubt = SIGNIFICANT * test.error().hypot(here.error());
        // More workers must bring more than the tolerance; fewer must cost less than it.
        let tolerance = self.tuning.tolerance;
        let wanted = here.mean
            * if neighbour > self.found {
                1.0 + tolerance
            } else {
                1.0 - tolerance
            };
        if test.mean > wanted + doubt {
            self.wait = 1;
            self.restart(neighbour);
            return self.answer(
                "climb-better-neighbour",
                "a neighbour is better: searched anew from there",
            );
        }
        if test.mean < wanted - doubt || test.count >= WINDOW {
            self.wait = (self.wait * 2).min(MAX_WAIT);
            self.begin_hold();
            return self.answer("climb-back", "the neighbour is no better");
        }
        self.answer("climb-measuring", "more periods are needed at this neighbour")
    }

    /// Whether a limit needs no more periods: it is clearly too small or clearly enough, is exactly measured, or had the most.
    fn is_measured(&self, limit: u32) -> bool {
        let Some(mean) = self.table.get(&limit) else {
            return false;
        };
        if mean.count < MIN_PERIODS {
            return false;
        }
        let exact = mean.error() <= 0.25 * self.tuning.tolerance * mean.mean;
        if exact || mean.count >= self.tuning.max_periods {
            return true;
        }
        let others = self
            .table
            .iter()
            .filter(|(other, _)| **other != limit)
            .map(|(_, mean)| mean);
        let best = others.max_by(|one, other| one.mean.total_cmp(&other.mean));
        best.is_some_and(|best| {
            let keep = 1.0 - self.tuning.tolerance;
            let doubt = SIGNIFICANT * mean.error().hypot(keep * best.error());
            mean.mean + doubt < keep * best.mean
        })
    }

    /// The least measured limit within the tolerance of the best. The best is taken at its lower standard error: the greatest
    /// of several noisy means is too great on average.
    fn least_enough(&self) -> u32 {
        let low = |mean: &Mean| {
            if mean.count < 2 {
                0.0
            } else {
                mean.mean - mean.error()
            }
        };
        let best = self.table.values().map(low).fold(0.0, f64::max);
        let enough = (1.0 - self.tuning.tolerance) * best;
        let found = self.table.iter().find(|(_, mean)| mean.mean >= enough);
        found.map_or(self.found, |(limit, _)| *limit)
    }

    /// The limit to measure next; `None` where the table has the answer.
    fn next(&self) -> Option<u32> {
        let least = self.least_enough();
        let (&top, top_mean) = self.table.last_key_value()?;
        let before = self.table.range(..top).next_back().map(|(_, mean)| mean.mean);
        let rises = before.is_none_or(|before| top_mean.mean > before * (1.0 + 0.5 * self.tuning.tolerance));
        if top < self.tuning.max && (rises || top == least) {
            return Some(top.saturating_mul(2).min(self.tuning.max));
        }
        match self.table.range(..least).next_back() {
            None if least > self.tuning.min => Some((least / 2).max(self.tuning.min)),
            None => None,
            Some((&below, _)) if least - below > 1 => Some(below + (least - below) / 2),
            Some(_) => None,
        }
    }

    fn restart(&mut self, from: u32) {
        self.table.clear();
        self.go(from, ClimbState::Searching);
    }

    fn begin_hold(&mut self) {
        self.recent = Mean::default();
        self.held = 0;
        self.go(self.found, ClimbState::Holding);
    }

    fn go(&mut self, limit: u32, state: ClimbState) {
        self.settled = self.settled && limit == self.limit;
        self.limit = limit;
        self.state = state;
    }

    fn answer(&self, rule: &'static str, text: &str) -> (u32, Reason) {
        let mean = match self.state {
            ClimbState::Searching => self.table.get(&self.limit).copied().unwrap_or_default(),
            ClimbState::Holding => self.recent,
            ClimbState::Testing(_) => self.test,
        };
        let mut numbers = vec![
            ("limit", f64::from(self.limit)),
            ("found", f64::from(self.found)),
            ("periods", f64::from(mean.count)),
        ];
        if mean.count > 1 {
            numbers.extend([("mean_per_s", mean.mean), ("error_per_s", mean.error())]);
        }
        (
            self.limit,
            Reason::new(rule, format!("C = {}: {text}", self.limit), &numbers),
        )
    }
}

#[cfg(test)]
#[path = "climb_tests.rs"]
mod tests;
