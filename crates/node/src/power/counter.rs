//! One energy counter, made monotone: a pure state machine that counts through wraps and refuses what no zone can have
//! drawn.
//!
//! Energy is granted to a counter as time passes, at the most that its zone can draw; a difference beyond what is
//! granted and not yet used is refused and the counter starts anew from there. So the sum is never negative and never
//! more than the zone's maximum power over the time that was metered, whatever the counter reads (a wrap taken for
//! a restart, a sentinel, a bit that flips).

use crate::clock::Elapsed;
use headroom_units::{Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A counter is updated about every millisecond, in bursts on some machines: so much may come late.
const LATE_S: f64 = 0.01;
/// A counter that has not moved for so long, although the CPUs have worked for so many core-seconds, stands still.
const FROZEN_AFTER_S: f64 = 2.0;
const FROZEN_WORK_S: f64 = 0.1;

/// Why a reading was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Longer since the reading before than half the time in which the counter can wrap: it may have wrapped unseen.
    /// For a sensor of power: too long for one reading to speak of.
    Gap,
    /// The machine was suspended meanwhile.
    Suspended,
    /// More than the zone can have drawn.
    Jump,
    /// A counter that does not wrap went backwards.
    Backwards,
    /// A value that stands for none, or that the counter cannot hold.
    Sentinel,
    /// No power at all, of a machine that runs.
    Zero,
    /// The reading stands still although the CPUs work.
    Frozen,
    /// The sensor went away.
    Vanished,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gap => "not read for so long that it may have wrapped",
            Self::Suspended => "the machine was suspended",
            Self::Jump => "a jump beyond what can have been drawn",
            Self::Backwards => "it went backwards",
            Self::Sentinel => "a value that stands for none",
            Self::Zero => "zero watts of a machine that runs",
            Self::Frozen => "it stands still although the CPUs work",
            Self::Vanished => "it went away",
        })
    }
}

/// What one reading says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// So many microjoules over so many seconds: the time since the counter last moved.
    Counted { microjoules: u64, seconds: f64 },
    /// It has not moved since the reading before.
    Same,
    /// It is not believed, and the counter starts anew from here.
    Refused(Refusal),
}

/// A counter in microjoules.
#[derive(Clone, Debug)]
pub(crate) struct EnergyCounter {
    /// The last reading that was one.
    last_uj: Option<u64>,
    /// The time since, in which only sentinels were read.
    silent: Elapsed,
    /// The highest value before it starts again at 0; nothing for a counter that does not wrap.
    range_uj: Option<u64>,
    most: Watts,
    /// Granted and not yet used, microjoules.
    granted_uj: f64,
    total_uj: u64,
    still_s: f64,
    still_work_s: f64,
    frozen: bool,
    moved: bool,
}

impl EnergyCounter {
    /// A counter of a zone that draws at most `most` on average.
    pub(crate) fn new(first_uj: u64, range_uj: Option<u64>, most: Watts) -> Self {
        let range_uj = range_uj.filter(|range| *range > 0);
        Self {
            last_uj: Some(first_uj).filter(|first| range_uj.is_none_or(|range| *first <= range)),
            silent: Elapsed::default(),
            range_uj,
            most,
            granted_uj: most.get() * LATE_S * 1e6,
            total_uj: 0,
            still_s: 0.0,
            still_work_s: 0.0,
            frozen: false,
            moved: false,
        }
    }

    /// All that was counted, microjoules.
    pub(crate) fn total_uj(&self) -> u64 {
        self.total_uj
    }

    /// It stands still although the CPUs work.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// It has moved since it was opened.
    pub(crate) fn has_moved(&self) -> bool {
        self.moved
    }

    /// Starts anew from a reading: the zone was away.
    pub(crate) fn rebase(&mut self, raw_uj: u64) {
        self.last_uj = Some(raw_uj);
        self.start_anew();
    }

    fn start_anew(&mut self) {
        // Never more than is left: each new start would otherwise grant what comes late once more.
        self.granted_uj = self.granted_uj.min(self.most.get() * LATE_S * 1e6);
        (self.still_s, self.still_work_s, self.frozen) = (0.0, 0.0, false);
    }

    /// Takes a reading in. `worked_s` is the CPU time that the whole machine used since the reading before, in
    /// core-seconds, nothing where it is not known.
    pub(crate) fn advance(&mut self, raw_uj: u64, elapsed: Elapsed, worked_s: Option<f64>) -> Step {
        let elapsed = Elapsed {
            awake: self.silent.awake + elapsed.awake.max(Seconds::ZERO),
            asleep: self.silent.asleep + elapsed.asleep,
        };
        let refused = |counter: &mut Self, why| {
            counter.start_anew();
            Step::Refused(why)
        };
        if self.range_uj.is_some_and(|range| raw_uj > range) {
            // What was drawn meanwhile shows in the next reading that is one.
            self.silent = elapsed;
            return Step::Refused(Refusal::Sentinel);
        }
        self.silent = Elapsed::default();
        let Some(last_uj) = self.last_uj.replace(raw_uj) else {
            return Step::Same;
        };
        if elapsed.suspended() {
            return refused(self, Refusal::Suspended);
        }
        let awake_s = elapsed.awake.get();
        let most_uj = self.most.get() * awake_s * 1e6;
        if self.range_uj.is_some_and(|range| most_uj > range as f64 / 2.0) {
            return refused(self, Refusal::Gap);
        }
        self.granted_uj += most_uj;
        if let Some(range) = self.range_uj {
            self.granted_uj = self.granted_uj.min(range as f64);
        }
        if raw_uj == last_uj {
            return self.stand_still(awake_s, worked_s);
        }
        let delta = match (raw_uj.checked_sub(last_uj), self.range_uj) {
            (Some(delta), _) => delta,
            (None, Some(range)) => range.saturating_sub(last_uj).saturating_add(raw_uj),
            (None, None) => return refused(self, Refusal::Backwards),
        };
        if delta as f64 > self.granted_uj {
            return refused(self, Refusal::Jump);
        }
        self.granted_uj = (self.granted_uj - delta as f64).min(self.most.get() * LATE_S * 1e6);
        let seconds = self.still_s + awake_s;
        (self.still_s, self.still_work_s, self.frozen, self.moved) = (0.0, 0.0, false, true);
        self.total_uj = self.total_uj.saturating_add(delta);
        Step::Counted {
            microjoules: delta,
            seconds,
        }
    }

    fn stand_still(&mut self, awake_s: f64, worked_s: Option<f64>) -> Step {
        self.still_s += awake_s;
        self.still_work_s += worked_s.unwrap_or(0.0).max(0.0);
        if !self.frozen && self.still_s >= FROZEN_AFTER_S && self.still_work_s >= FROZEN_WORK_S {
            self.frozen = true;
            return Step::Refused(Refusal::Frozen);
        }
        Step::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RANGE: u64 = 262_143_328_850;
    const MOST: Watts = Watts::new(300.0);
    const SECOND: f64 = 1.0;

    fn counter(first: u64) -> EnergyCounter {
        EnergyCounter::new(first, Some(RANGE), MOST)
    }

    fn advance(counter: &mut EnergyCounter, raw: u64, seconds: f64) -> Step {
        counter.advance(raw, Elapsed::awake(seconds), Some(seconds))
    }

    fn counted(step: Step) -> u64 {
        match step {
            Step::Counted { microjoules, .. } => microjoules,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wrap_is_counted_through() {
        let mut counter = counter(262_143_000_000);
        assert_eq!(counted(advance(&mut counter, 671_150, SECOND)), 1_000_000);
        assert_eq!(counter.total_uj(), 1_000_000);
    }

    #[test]
    fn a_gap_a_sentinel_a_jump_and_a_restart_are_refused_by_name() {
        let mut counter = counter(0);
        assert_eq!(
            advance(&mut counter, 50_000_000, 500.0),
            Step::Refused(Refusal::Gap)
        );
        assert_eq!(
            advance(&mut counter, 4_294_967_295_000, SECOND),
            Step::Refused(Refusal::Sentinel)
        );
        // The counter went on behind the sentinel.
        assert_eq!(
            advance(&mut counter, 150_000_000, SECOND),
            Step::Counted {
                microjoules: 100_000_000,
                seconds: 2.0
            }
        );
        assert_eq!(
            advance(&mut counter, 550_000_000, SECOND),
            Step::Refused(Refusal::Jump)
        );
        assert_eq!(counted(advance(&mut counter, 551_000_000, SECOND)), 1_000_000);
        assert_eq!(
            advance(&mut counter, 0, SECOND),
            Step::Refused(Refusal::Jump),
            "a restart is no wrap"
        );
        assert_eq!(
            counted(advance(&mut counter, 7, SECOND)),
            7,
            "and counts on from there"
        );
        assert_eq!(counter.total_uj(), 101_000_007);
    }

    #[test]
    fn half_the_time_of_a_wrap_is_the_longest_gap() {
        let half_s = RANGE as f64 / 1e6 / MOST.get() / 2.0;
        let mut counter = counter(0);
        assert!(matches!(
            advance(&mut counter, 1_000_000, half_s - 1.0),
            Step::Counted { .. }
        ));
        assert_eq!(
            advance(&mut counter, 2_000_000, half_s + 1.0),
            Step::Refused(Refusal::Gap)
        );
    }

    #[test]
    fn after_a_suspend_nothing_is_believed_and_counting_goes_on() {
        let mut counter = counter(1_000_000);
        let suspended = Elapsed {
            awake: Seconds::new(1.0),
            asleep: Seconds::new(3600.0),
        };
        assert_eq!(
            counter.advance(5_000_000, suspended, None),
            Step::Refused(Refusal::Suspended)
        );
        assert_eq!(counted(advance(&mut counter, 9_000_000, SECOND)), 4_000_000);
    }

    #[test]
    fn a_counter_that_does_not_wrap_may_not_go_back() {
        let mut counter = EnergyCounter::new(5_000_000, None, MOST);
        assert_eq!(
            advance(&mut counter, 4_000_000, SECOND),
            Step::Refused(Refusal::Backwards)
        );
        assert_eq!(counted(advance(&mut counter, 5_000_000, 1e6)), 1_000_000);
    }

    #[test]
    fn a_counter_stands_still_only_where_the_cpus_work() {
        let mut idle = counter(0);
        for _ in 0..100 {
            assert_eq!(idle.advance(0, Elapsed::awake(1.0), Some(0.0)), Step::Same);
            assert_eq!(idle.advance(0, Elapsed::awake(1.0), None), Step::Same);
        }
        assert!(!idle.is_frozen());
        let mut busy = counter(0);
        assert_eq!(busy.advance(0, Elapsed::awake(1.0), Some(0.5)), Step::Same);
        assert_eq!(
            busy.advance(0, Elapsed::awake(1.0), Some(0.5)),
            Step::Refused(Refusal::Frozen)
        );
        assert_eq!(
            busy.advance(0, Elapsed::awake(1.0), Some(0.5)),
            Step::Same,
            "said once"
        );
        assert!(busy.is_frozen() && !busy.has_moved());
        // It was late, not lost: what it shows was drawn over all the time that it stood still.
        let step = busy.advance(600_000_000, Elapsed::awake(1.0), Some(0.5));
        assert_eq!(
            step,
            Step::Counted {
                microjoules: 600_000_000,
                seconds: 4.0
            }
        );
        assert!(!busy.is_frozen() && busy.has_moved());
    }

    fn elapsed() -> impl Strategy<Value = Elapsed> {
        (
            0.0..1_000.0f64,
            prop_oneof![4 => Just(0.0), 1 => 0.0..100_000.0f64],
        )
            .prop_map(|(awake, asleep)| Elapsed {
                awake: Seconds::new(awake),
                asleep: Seconds::new(asleep),
            })
    }

    proptest! {
        /// The law of a lying counter: whatever it reads, the energy never falls and is never more than the zone's
        /// maximum over the time that was metered.
        #[test]
        fn energy_is_never_negative_and_never_more_than_the_zone_could_draw(
            first in any::<u64>(), range in proptest::option::of(1_000_000u64..1 << 48), most in 1.0..2_000.0f64,
            readings in proptest::collection::vec(
                (prop_oneof![any::<u64>(), 0u64..1 << 40, Just(0), Just(4_294_967_295_000)], elapsed(),
                 proptest::option::of(0.0..64.0f64)), 0..80),
        ) {
            let mut counter = EnergyCounter::new(first, range, Watts::new(most));
            let mut metered = LATE_S;
            for (raw, elapsed, worked) in readings {
                let before = counter.total_uj();
                let step = counter.advance(raw, elapsed, worked);
                metered += elapsed.awake.get();
                let delta = counter.total_uj() - before;
                match step {
                    Step::Counted { microjoules, seconds } => {
                        prop_assert_eq!(microjoules, delta);
                        prop_assert!(delta as f64 / 1e6 <= most * (seconds + LATE_S) * (1.0 + 1e-9));
                    }
                    Step::Same | Step::Refused(_) => prop_assert_eq!(delta, 0),
                }
                prop_assert!(counter.total_uj() as f64 / 1e6 <= most * metered * (1.0 + 1e-9));
            }
        }

        /// The law of a wrap: a true counter is counted exactly, over any number of wraps, at any step short enough.
        #[test]
        fn a_true_counter_is_counted_exactly_over_any_wrap(
            first in 0u64..RANGE, steps in proptest::collection::vec((0.0..1.0f64, 0.001..60.0f64), 1..200),
        ) {
            let mut counter = counter(first);
            let (mut raw, mut true_uj) = (first, 0u64);
            for (share, seconds) in steps {
                let delta = (MOST.get() * share * seconds * 1e6) as u64;
                true_uj += delta;
                // The hardware shows every value from 0 to the range, and the wrap from the range to 0 costs nothing in
                // the kernel's own arithmetic.
                raw = if raw + delta > RANGE { raw + delta - RANGE } else { raw + delta };
                let step = counter.advance(raw, Elapsed::awake(seconds), None);
                prop_assert!(!matches!(step, Step::Refused(_)), "{:?}", step);
            }
            prop_assert_eq!(counter.total_uj(), true_uj);
        }

        /// The law of a suspend: what was counted before and after it is counted, what fell into it is not.
        #[test]
        fn a_suspend_costs_its_own_interval_only(
            before in 1u64..200_000_000, asleep in 1.0..1e6f64, during in any::<u64>(), after in 1u64..200_000_000,
        ) {
            let mut counter = counter(0);
            counter.advance(before, Elapsed::awake(1.0), None);
            let woken = during % RANGE;
            let slept = Elapsed { awake: Seconds::new(0.5), asleep: Seconds::new(asleep) };
            prop_assert_eq!(counter.advance(woken, slept, None), Step::Refused(Refusal::Suspended));
            let raw = (woken + after) % RANGE;
            counter.advance(raw, Elapsed::awake(1.0), None);
            prop_assert_eq!(counter.total_uj(), before + after);
        }

        /// The law of a frozen counter: it adds nothing while it stands still, it is said, and once it moves again the
        /// power over the time of silence is one that the zone can draw.
        #[test]
        fn a_frozen_counter_is_said_and_adds_nothing(steps in 1usize..60, step_s in 0.1..5.0f64, jump in 1u64..1 << 40) {
            let mut counter = counter(1_000);
            let mut refusals = 0;
            for _ in 0..steps {
                let step = counter.advance(1_000, Elapsed::awake(step_s), Some(step_s));
                refusals += u32::from(step == Step::Refused(Refusal::Frozen));
            }
            prop_assert_eq!(counter.total_uj(), 0);
            let said = steps as f64 * step_s >= FROZEN_AFTER_S + step_s;
            prop_assert!(refusals == u32::from(counter.is_frozen()) && (!said || refusals == 1));
            if let Step::Counted { microjoules, seconds } =
                counter.advance((1_000 + jump).min(RANGE), Elapsed::awake(step_s), Some(step_s))
            {
                prop_assert!(microjoules as f64 / 1e6 <= MOST.get() * (seconds + LATE_S));
            }
        }
    }
}
