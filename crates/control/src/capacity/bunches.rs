//! Servers that accept all who wait at once and then serve them in turn, as event loops do.
//!
//! Right after it has accepted a bunch nobody waits for such a server, and it works; that somebody waits when it accepts the next one shows
//! that it worked until then. So its time is counted from one bunch to the next, and not only from when enough wait again. What it serves
//! in that time it may be done with at once too, at its end: counted by shorter times it would seem irregular, and is not.

use super::busy::Busy;
use headroom_units::{PerSecond, Seconds};

/// As many are a bunch where they are accepted between two observations, and as many times as are on average.
const MIN_BUNCH: f64 = 8.0;
const BUNCH_TIMES: f64 = 4.0;
/// Observations between two bunches without an accept: fewer are chance.
const MIN_SILENT: u32 = 2;
/// The longest time between two of them: one that accepts none for longer stands still.
const MAX_CYCLE_S: f64 = 4.0;

/// What was found between two observations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub time: Seconds,
    pub accepts: f64,
    /// What was answered; accepted, where that is not counted.
    pub served: f64,
    pub is_answered: bool,
    /// Whether somebody waited at its start.
    pub waited: bool,
    /// The part of it that counts because enough waited.
    pub found: Busy,
}

/// Since a bunch was accepted.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    all: Busy,
    found: Busy,
    /// Those that it began with.
    accepts: f64,
    silent: u32,
    /// Whether what was before it was counted.
    goes_on: bool,
}

/// The time since the last bunch, where there was one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bunches {
    cycle: Option<Cycle>,
}

impl Bunches {
    /// What is to be counted now. `rate` is what is accepted on average.
    pub(super) fn take(&mut self, interval: Interval, rate: PerSecond) -> Busy {
        let Interval {
            time, accepts, found, ..
        } = interval;
        let is_bunch = accepts >= MIN_BUNCH.max(BUNCH_TIMES * (rate * time));
        let Some(mut cycle) = self.cycle.take() else {
            if is_bunch {
                self.begin(accepts, found.time > Seconds::ZERO);
            }
            return found;
        };
        cycle.all = cycle.all.plus(Busy {
            time,
            accepts: interval.served,
            spells: 0.0,
        });
        cycle.found = cycle.found.plus(found);
        if accepts <= 0.0 && cycle.all.time.get() <= MAX_CYCLE_S {
            cycle.silent += 1;
            self.cycle = Some(cycle);
            return Busy::default();
        }
        if !(is_bunch && interval.waited && cycle.silent >= MIN_SILENT) {
            if is_bunch {
                self.begin(accepts, found.time > Seconds::ZERO);
            }
            return cycle.found;
        }
        self.begin(accepts, true);
        Busy {
            // Where only accepts are counted, those that it took for this time are what it was done with in it.
            accepts: match interval.is_answered {
                true => cycle.all.accepts,
                false => cycle.accepts,
            },
            spells: f64::from(u8::from(!cycle.goes_on)),
            ..cycle.all
        }
    }

    fn begin(&mut self, accepts: f64, goes_on: bool) {
        self.cycle = Some(Cycle {
            accepts,
            all: Busy::default(),
            found: Busy::default(),
            silent: 0,
            goes_on,
        });
    }

    /// Nothing is known of what happened since the last interval.
    pub(super) fn forget(&mut self) {
        self.cycle = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: PerSecond = PerSecond::new(200.0);

    fn interval(accepts: f64, served: f64, waited: bool, counts: bool) -> Interval {
        let time = Seconds::new(0.02);
        let found = Busy {
            time,
            accepts: served,
            spells: 0.0,
        };
        Interval {
            time,
            accepts,
            served,
            is_answered: true,
            waited,
            found: if counts { found } else { Busy::default() },
        }
    }

    fn taken(bunches: &mut Bunches, intervals: &[Interval]) -> Busy {
        let take = |sum: Busy, one: &Interval| sum.plus(bunches.take(*one, RATE));
        intervals.iter().fold(Busy::default(), take)
    }

    #[test]
    fn from_one_bunch_to_the_next_a_server_works_with_an_empty_queue_too() {
        // A hundred in 0.5 s, which are done with at once; for the first 0.2 s nobody, or few, wait.
        let silent = |at: u32| interval(0.0, 0.0, at > 0, at >= 10);
        let cycle: Vec<Interval> = (0..24)
            .map(silent)
            .chain([interval(100.0, 100.0, true, true)])
            .collect();
        let mut bunches = Bunches::default();
        taken(&mut bunches, &cycle);
        for _ in 0..5 {
            let Busy {
                time,
                accepts,
                spells,
            } = taken(&mut bunches, &cycle);
            assert!((time.get() - 0.5).abs() < 1e-9, "{time:?}");
            assert_eq!((accepts, spells), (100.0, 0.0));
        }
        // Nobody waited for it: it may have been idle.
        let idle: Vec<Interval> = (0..24).map(|_| interval(0.0, 0.0, false, false)).collect();
        taken(&mut bunches, &idle);
        assert_eq!(
            bunches.take(interval(100.0, 0.0, false, false), RATE),
            Busy::default()
        );
    }

    #[test]
    fn one_that_accepts_them_one_by_one_or_no_more_is_counted_as_it_is_found() {
        let steady = [interval(4.0, 4.0, true, true); 10];
        let mut bunches = Bunches::default();
        assert_eq!(taken(&mut bunches, &steady).accepts, 40.0);
        // A bunch, and then as before.
        taken(&mut bunches, &[interval(20.0, 20.0, true, true)]);
        assert_eq!(taken(&mut bunches, &steady).accepts, 40.0);
        taken(&mut bunches, &[interval(20.0, 20.0, true, true)]);
        let hangs = vec![interval(0.0, 0.0, true, true); 300];
        let Busy { time, .. } = taken(&mut bunches, &hangs);
        assert!((time.get() - 6.0).abs() < 0.1, "{time:?}");
    }

    #[test]
    fn where_only_accepts_are_counted_those_that_a_cycle_began_with_took_its_time() {
        let mut bunches = Bunches::default();
        let accepted = |accepts, waited| Interval {
            is_answered: false,
            ..interval(accepts, accepts, waited, false)
        };
        // 400/s come to one that takes 200/s: each bunch is twice the last, and so is the time for it.
        let mut all = Busy::default();
        for bunch in [16.0, 32.0, 64.0, 128.0] {
            all = all.plus(bunches.take(accepted(bunch, true), RATE));
            let silent = (bunch / 200.0 / 0.02) as usize - 1;
            for _ in 0..silent {
                all = all.plus(bunches.take(accepted(0.0, true), RATE));
            }
        }
        assert!(
            (all.accepts / all.time.get() / 200.0 - 1.0).abs() < 0.05,
            "{all:?}"
        );
    }
}
