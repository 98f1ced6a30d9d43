//! A time for which one interval stays: several response times, as they are seen, and some periods at least.
//!
//! What is held is seen when it is answered, and a queue that an interval lets grow takes about as long as a response without batches. So what comes in the first two response times after a change is not counted, and then four are
//! measured, in blocks of one each: their means are what the model is told of the interval. A response that takes less than a period
//! leaves blocks of a period.

use super::model::Sample;
use headroom_units::{Ratio, Seconds};

/// Mean response times that do not count after a change: an interval of up to one, and the response. And periods, at least.
const SETTLES: f64 = 2.0;
const LEAST_SETTLES: u32 = 2;
/// Blocks that are measured then, of one mean response time each.
const BLOCKS: u32 = 4;
/// A block, in mean response times without batches, at least.
const QUEUE_BLOCKS: f64 = 0.5;
/// The most periods of a hold; with longer responses nothing is tried.
const MOST: f64 = 2_000.0;
/// Two intervals within this many seconds, or this share, are the same: what is set is rounded.
const SAME: (f64, f64) = (1e-4, 0.02);

/// What of a period is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// The interval in force, in seconds.
    pub(super) interval: f64,
    /// Requests answered, and their mean response time in seconds; 0 where none was.
    pub(super) answers: f64,
    pub(super) mean: f64,
    pub(super) hit_ratio: Ratio,
    /// Its length, in seconds.
    pub(super) length: f64,
}

/// Whether two intervals are the same, in seconds.
pub(super) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME.0 + SAME.1 * one.min(other)
}

/// How many periods things take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    pub(super) settle: u32,
    /// Periods of a block.
    pub(super) block: u32,
}

impl Pace {
    /// For a mean response time of so many periods, and one of `without` periods without batches: a queue that an interval lets grow does
    /// so by that, however short it is at first.
    pub(super) fn of(lag: f64, without: f64) -> Self {
        let (settle, block) = ((SETTLES * lag).max(without), lag.max(QUEUE_BLOCKS * without));
        Self {
            settle: LEAST_SETTLES.max(settle.ceil() as u32),
            block: (block.ceil() as u32).max(1),
        }
    }

    /// Periods of a hold.
    pub(super) fn hold(&self) -> f64 {
        f64::from(self.settle) + f64::from(BLOCKS) * f64::from(self.block)
    }

    /// Whether responses take too long for anything to be tried.
    pub(super) fn is_endless(&self) -> bool {
        self.hold() > MOST
    }
}

/// What came of a hold.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Its blocks, of those in which something was answered.
    pub(super) blocks: Vec<Sample>,
    /// All of them together.
    pub(super) whole: Sample,
    /// Answers of a period.
    pub(super) rate: f64,
}

/// Sums over periods.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    periods: u32,
    answers: f64,
    total: f64,
    hits: f64,
}

impl Sums {
    fn push(&mut self, period: &Period) {
        self.periods += 1;
        self.answers += period.answers;
        self.total += period.answers * period.mean;
        // A period in which nothing was answered says nothing of it.
        self.hits += period.answers * period.hit_ratio.get();
    }

    fn sample(&self, interval: f64) -> Option<Sample> {
        (self.answers > 0.0).then(|| Sample {
            interval: Seconds::new(interval),
            hit_ratio: Ratio::new(self.hits / self.answers),
            response: Seconds::new(self.total / self.answers),
        })
    }
}

/// A hold in the making.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    interval: f64,
    settled: u32,
    settle: u32,
    done: Vec<Sums>,
    now: Sums,
}

impl Hold {
    /// Of an interval from the next period on.
    pub(super) fn new(interval: f64, pace: &Pace) -> Self {
        Self {
            interval,
            settled: 0,
            settle: pace.settle,
            done: Vec::new(),
            now: Sums::default(),
        }
    }

    pub(super) fn interval(&self) -> f64 {
        self.interval
    }

    /// Whether what is answered now was in part held as before.
    pub(super) fn is_settling(&self) -> bool {
        self.settled < self.settle
    }

    /// Takes a period; what came of the hold, where that ends it. One with another interval in force begins it anew with that.
    pub(super) fn observe(&mut self, period: &Period, pace: &Pace) -> Option<Held> {
        if !is_same(period.interval, self.interval) {
            *self = Self::new(period.interval, pace);
        }
        if self.is_settling() {
            // Responses that become longer meanwhile settle for longer.
            self.settle = self.settle.max(pace.settle);
            self.settled += 1;
            return None;
        }
        self.now.push(period);
        if self.now.periods >= pace.block {
            self.done.push(std::mem::take(&mut self.now));
        }
        if self.done.len() < BLOCKS as usize {
            return None;
        }
        self.end()
    }

    /// What came of it up to now, where it ends before its time; `None` where nothing was answered since it settled.
    pub(super) fn end(&mut self) -> Option<Held> {
        let mut done = std::mem::take(&mut self.done);
        if self.now.periods > 0 {
            done.push(std::mem::take(&mut self.now));
        }
        let all = done.iter().fold(Sums::default(), |sum, one| Sums {
            periods: sum.periods + one.periods,
            answers: sum.answers + one.answers,
            total: sum.total + one.total,
            hits: sum.hits + one.hits,
        });
        Some(Held {
            whole: all.sample(self.interval)?,
            rate: all.answers / f64::from(all.periods),
            blocks: done.iter().filter_map(|one| one.sample(self.interval)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(interval: f64, mean: f64) -> Period {
        Period {
            interval,
            answers: 10.0,
            mean,
            hit_ratio: Ratio::new(0.5),
            length: 1.0,
        }
    }

    #[test]
    fn a_hold_lasts_for_several_responses_and_counts_what_was_held_by_it() {
        let pace = Pace::of(3.0, 0.0);
        assert_eq!((pace, pace.hold()), (Pace { settle: 6, block: 3 }, 18.0));
        assert_eq!(Pace::of(0.1, 0.0).hold(), 6.0);
        assert_eq!(Pace::of(0.3, 3.0), Pace { settle: 3, block: 2 });
        let mut hold = Hold::new(0.2, &pace);
        for at in 0..17 {
            let mean = if at < 6 { 9.0 } else { 1.0 + f64::from(at / 3) };
            assert!(hold.observe(&period(0.2, mean), &pace).is_none(), "{at}");
        }
        let held = hold.observe(&period(0.2, 6.0), &pace).unwrap();
        let means: Vec<f64> = held.blocks.iter().map(|one| one.response.get()).collect();
        assert_eq!(means, [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(held.whole.response.get(), 4.5);
    }

    #[test]
    fn the_hit_ratio_is_that_of_what_was_answered() {
        let pace = Pace::of(4.0, 0.0);
        let mut hold = Hold::new(0.2, &pace);
        let held = (0..24).find_map(|at| {
            let (answers, ratio) = if at % 4 == 0 { (10.0, 0.6) } else { (0.0, 0.0) };
            let seen = Period {
                answers,
                hit_ratio: Ratio::new(ratio),
                ..period(0.2, 1.0)
            };
            hold.observe(&seen, &pace)
        });
        let ratio = held.unwrap().whole.hit_ratio.get();
        assert!((ratio - 0.6).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn an_interval_that_is_not_in_force_is_not_counted_as_such() {
        let pace = Pace::of(0.5, 0.0);
        let mut hold = Hold::new(0.2, &pace);
        for _ in 0..3 {
            hold.observe(&period(0.2, 1.0), &pace);
        }
        // It is put back by somebody else.
        assert!((0..5).all(|_| hold.observe(&period(0.0, 2.0), &pace).is_none()));
        let held = hold.observe(&period(0.0, 2.0), &pace).unwrap();
        assert_eq!((held.whole.interval.get(), held.whole.response.get()), (0.0, 2.0));
    }

    #[test]
    fn what_ends_before_its_time_tells_what_was_seen() {
        let pace = Pace::of(2.0, 0.0);
        let mut hold = Hold::new(0.2, &pace);
        (0..4).for_each(|_| drop(hold.observe(&period(0.2, 9.0), &pace)));
        assert!(hold.end().is_none());
        for _ in 0..3 {
            hold.observe(&period(0.2, 2.0), &pace);
        }
        let held = hold.end().unwrap();
        assert_eq!((held.blocks.len(), held.whole.response.get()), (2, 2.0));
    }
}
