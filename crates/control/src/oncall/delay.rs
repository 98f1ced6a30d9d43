//! The inter-scheduling-round (ISR) delay D and the batch size N.
//!
//! Source: REEF Section 3.4 and Figures 9 and 10 \[F\]: the load limit of 1.05 x the throughput at saturation, a least delay of
//! the break-even time of the deep idle state, N up to 8 for throughput and 2 for tails. Ours \[D\]: how far D grows beyond
//! that, by the measured percentile, and N for an SLO; the paper names neither.

use crate::decision::Reason;
use crate::parameter::{Bound, OutOfRange, require};
use crate::plant::Slo;
use headroom_units::{PerSecond, Seconds};

/// λ over the throughput at saturation, as published (Figure 9).
pub const LOAD_LIMIT: f64 = 1.05;
/// N of the goals that are tails, as published (Figure 10).
pub const TAIL_BATCH: u32 = 2;
/// Below this share of the target the delay grows.
const GUARD: f64 = 0.85;
/// By what a delay grows where the percentile is below the guard.
const GROW: f64 = 1.1;
/// By what it shrinks where the percentile is above the target.
const SHRINK: f64 = 0.7;
/// Windows after which a batch size that missed the target is tried again, doubled with every miss up to [`MAX_RETRY`].
const RETRY: u32 = 20;
/// The longest such wait, in windows.
const MAX_RETRY: u32 = 1_280;

/// What one round was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Q, queries that it served.
    pub queries: u64,
    /// How long it took, without a delay.
    pub elapsed: Seconds,
    /// Whether queries wait that found no place in it.
    pub backlog: bool,
}

/// A delay before the next round.
#[derive(Clone, Debug, PartialEq)]
pub struct Delayed {
    /// D: 0, or the break-even time or more.
    pub delay: Seconds,
    /// Why.
    pub reason: Reason,
}

/// The regulator of D.
#[derive(Clone, Debug)]
pub struct IsrDelay {
    limit: PerSecond,
    break_even: Seconds,
    target: Option<Seconds>,
    /// The longest delay that the SLO leaves as far as was measured; below the break-even time D is 0.
    room: Seconds,
}

impl IsrDelay {
    /// A regulator for a server with this throughput at saturation, whose deepest useful idle state breaks even after
    /// `break_even`. Without an SLO, D is what the load limit and the break-even time ask for.
    ///
    /// # Errors
    /// [`OutOfRange`] for a throughput or break-even time that is not a positive number.
    pub fn new(saturated: PerSecond, break_even: Seconds, slo: Option<Slo>) -> Result<Self, OutOfRange> {
        Bound::Positive.check("saturated", saturated.get())?;
        Bound::Positive.check("break_even", break_even.get())?;
        let target = slo.map(|slo| slo.target());
        Ok(Self {
            limit: saturated * LOAD_LIMIT,
            break_even,
            target,
            room: break_even,
        })
    }

    /// λ, the load limit in queries per second.
    pub const fn limit(&self) -> PerSecond {
        self.limit
    }

    /// Takes the measured percentile of the SLO, once a period; without an SLO, or for what is no number, nothing changes.
    pub fn measured(&mut self, percentile: Seconds) {
        let Some(target) = self.target else { return };
        if percentile > target {
            // Half of the break-even time is off, and near enough to come back in some periods.
            self.room = (self.room * SHRINK).max(self.break_even * 0.5);
        } else if percentile <= target * GUARD {
            // A query can wait all of D: more than the target leaves nothing for its service.
            self.room = (self.room * GROW).min(target.max(self.break_even * 0.5));
        }
    }

    /// D after a round. The round may not end before Q / λ; where that leaves no time the server is saturated and D is 0.
    ///
    /// Else D is at least the break-even time, for a shorter idle period costs more than it saves, and where nothing waits it
    /// is all that the SLO leaves. With a backlog it is the rest of Q / λ alone, for more would cost throughput.
    pub fn after(&self, round: &Round) -> Delayed {
        let least = Seconds::new(round.queries as f64 / self.limit.get());
        let wait = least - round.elapsed;
        let (delay, rule, why) = if wait <= Seconds::ZERO || wait.get().is_nan() {
            (
                Seconds::ZERO,
                "isr-saturated",
                "the round was as long as the load limit asks for",
            )
        } else if self
            .target
            .is_some_and(|target| self.room.min(target) < self.break_even)
        {
            (
                Seconds::ZERO,
                "isr-slo",
                "the SLO leaves less than the break-even time",
            )
        } else if round.backlog && wait < self.break_even {
            (
                Seconds::ZERO,
                "isr-backlog",
                "queries wait, and the load limit leaves less than the break-even time",
            )
        } else if round.backlog {
            (
                self.bounded(wait),
                "isr-load-limit",
                "queries wait: no longer than the load limit asks for",
            )
        } else {
            let wanted = wait.max(self.break_even);
            let wanted = self.target.map_or(wanted, |_| wanted.max(self.room));
            (
                self.bounded(wanted),
                "isr-idle",
                "nothing waits: idle as long as the SLO leaves",
            )
        };
        let text = format!("D = {:.3} ms: {why}", delay.as_millis());
        let numbers = [
            ("delay_ms", delay.as_millis()),
            ("queries", round.queries as f64),
            ("elapsed_ms", round.elapsed.as_millis()),
            ("limit_per_s", self.limit.get()),
            ("break_even_ms", self.break_even.as_millis()),
            (
                "room_ms",
                self.target.map_or(f64::INFINITY, |_| self.room.as_millis()),
            ),
        ];
        let numbers: Vec<_> = numbers
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .collect();
        Delayed {
            delay,
            reason: Reason::new(rule, text, &numbers),
        }
    }

    fn bounded(&self, delay: Seconds) -> Seconds {
        self.target
            .map_or(delay, |target| delay.min(self.room).min(target))
    }
}

/// What N is chosen for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Throughput per power, EE(TPP): the largest N.
    Throughput,
    /// EE(P99): N = 2.
    TailP99,
    /// EE(P99.9): N = 2.
    TailP999,
    /// The largest N whose measured percentile keeps the target.
    Slo(Slo),
}

/// The chooser of N, with one record for each N up to the most.
#[derive(Clone, Debug)]
pub struct BatchSize {
    goal: Goal,
    size: u32,
    /// For each N above 1: the window until which it is not tried again, and the wait that was.
    missed: Vec<(u32, u32)>,
    window: u32,
}

impl BatchSize {
    /// N from 1 to `max` (the paper: 8).
    ///
    /// # Errors
    /// [`OutOfRange`] where `max` is not 1 to 1024.
    pub fn new(goal: Goal, max: u32) -> Result<Self, OutOfRange> {
        require(
            "max",
            f64::from(max),
            (1..=1024).contains(&max),
            "between 1 and 1024",
        )?;
        let size = match goal {
            Goal::Throughput => max,
            Goal::TailP99 | Goal::TailP999 | Goal::Slo(_) => TAIL_BATCH.min(max),
        };
        Ok(Self {
            goal,
            size,
            missed: vec![(0, RETRY); max as usize],
            window: 0,
        })
    }

    /// N in force.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Takes the percentile measured over a window with N in force, where there were enough queries for one, and answers N.
    /// Only [`Goal::Slo`] uses it: a step down where the target was missed, else a step up to what did not miss of late.
    pub fn observe(&mut self, percentile: Option<Seconds>) -> (u32, Reason) {
        let max = self.missed.len() as u32;
        self.window = self.window.saturating_add(1);
        let (rule, why) = match (self.goal, percentile) {
            (Goal::Throughput, _) => ("batch-throughput", "the goal is throughput per power"),
            (Goal::TailP99, _) => ("batch-tail", "the goal is P99"),
            (Goal::TailP999, _) => ("batch-tail", "the goal is P99.9"),
            (Goal::Slo(_), None) => ("batch-unmeasured", "no percentile was measured"),
            (Goal::Slo(slo), Some(percentile)) if percentile > slo.target() || percentile.get().is_nan() => {
                let (until, wait) = &mut self.missed[self.size as usize - 1];
                *until = self.window.saturating_add(*wait);
                *wait = (*wait * 2).min(MAX_RETRY);
                self.size = (self.size - 1).max(1);
                ("batch-missed", "the percentile missed its target")
            }
            (Goal::Slo(_), Some(_))
                if self.size < max && self.missed[self.size as usize].0 <= self.window =>
            {
                self.size += 1;
                (
                    "batch-more",
                    "the percentile keeps its target, and the next size may too",
                )
            }
            (Goal::Slo(_), Some(_)) => ("batch-kept", "the percentile keeps its target"),
        };
        let mut numbers = vec![("batch", f64::from(self.size))];
        numbers.extend(percentile.map(|percentile| ("percentile_ms", percentile.as_millis())));
        (
            self.size,
            Reason::new(rule, format!("N = {}: {why}", self.size), &numbers),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Ratio;
    use proptest::prelude::*;

    fn slo(millis: f64) -> Slo {
        Slo::new(Ratio::new(0.99), Seconds::from_millis(millis)).unwrap()
    }

    fn round(queries: u64, millis: f64, backlog: bool) -> Round {
        Round {
            queries,
            elapsed: Seconds::from_millis(millis),
            backlog,
        }
    }

    #[test]
    fn a_saturated_server_has_no_delay_and_an_idle_one_at_least_break_even() {
        let isr = IsrDelay::new(PerSecond::new(1_000.0), Seconds::from_millis(1.0), None).unwrap();
        assert!((isr.limit().get() - 1_050.0).abs() < 1e-9);
        assert_eq!(isr.after(&round(21, 21.0, true)).delay, Seconds::ZERO);
        let backlog = isr.after(&round(21, 19.5, true));
        assert_eq!(
            (backlog.delay, &*backlog.reason.rule),
            (Seconds::ZERO, "isr-backlog")
        );
        assert!((isr.after(&round(21, 15.0, true)).delay.as_millis() - 5.0).abs() < 1e-9);
        assert_eq!(
            isr.after(&round(21, 19.5, false)).delay,
            Seconds::from_millis(1.0)
        );
    }

    #[test]
    fn the_slo_bounds_the_delay_and_the_percentile_moves_the_bound() {
        let mut isr = IsrDelay::new(
            PerSecond::new(1_000.0),
            Seconds::from_millis(1.0),
            Some(slo(10.0)),
        )
        .unwrap();
        (0..100).for_each(|_| isr.measured(Seconds::from_millis(5.0)));
        assert!((isr.after(&round(2, 1.0, false)).delay.as_millis() - 10.0).abs() < 1e-9);
        (0..20).for_each(|_| isr.measured(Seconds::from_millis(11.0)));
        let off = isr.after(&round(2, 1.0, false));
        assert_eq!((off.delay, &*off.reason.rule), (Seconds::ZERO, "isr-slo"));
    }

    #[test]
    fn the_batch_size_follows_its_goal() {
        let of = |goal| BatchSize::new(goal, 8).unwrap().observe(None).0;
        assert_eq!(
            [of(Goal::Throughput), of(Goal::TailP99), of(Goal::TailP999)],
            [8, 2, 2]
        );
        let mut batch = BatchSize::new(Goal::Slo(slo(10.0)), 8).unwrap();
        let mut at_five = 0;
        for _ in 0..2_000 {
            let percentile = Seconds::from_millis(f64::from(batch.size()) * 1.9);
            at_five += u32::from(batch.observe(Some(percentile)).0 == 5);
        }
        assert!(at_five > 1_900, "{at_five}");
        assert!(BatchSize::new(Goal::Throughput, 0).is_err());
    }

    proptest! {
        /// D is never strictly between nothing and the break-even time, nor above the target.
        #[test]
        fn no_delay_is_shorter_than_break_even(
            percentiles in proptest::collection::vec(0.0..40.0f64, 0..60), queries in 0..5_000u64,
            millis in 0.0..50.0f64, backlog in any::<bool>(), break_even in 0.1..30.0f64, bounded in any::<bool>(),
        ) {
            let slo = bounded.then(|| slo(20.0));
            let mut isr = IsrDelay::new(PerSecond::new(1_000.0), Seconds::from_millis(break_even), slo).unwrap();
            percentiles.iter().for_each(|percentile| isr.measured(Seconds::from_millis(*percentile)));
            let delay = isr.after(&round(queries, millis, backlog)).delay.as_millis();
            prop_assert!(delay == 0.0 || delay >= break_even - 1e-9, "{delay}");
            prop_assert!(!bounded || delay <= 20.0 + 1e-9, "{delay}");
        }
    }
}
