//! Cores held by a CPU quota, as the kernel's bandwidth control hands it out (Documentation/scheduler/sched-bwc.rst).
//!
//! A share of a machine that is given as a quota is not that many cores. In each period the service may use
//! `cores × period` of CPU time, on as many cores at once as it has work for; when that is used up it stands still until
//! the next period. So a short request on a share of half a core often runs at the speed of a whole one, and a busy
//! service stops and goes. On average both are as fast as the share says; single requests at low load are faster than
//! on cores of their own.

use crate::error::{ScenarioError, within};
use serde::{Deserialize, Serialize};

/// How a node's cores are held by a quota. Without it they are cores, shared ideally.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// The period in which the quota is given out, seconds.
    pub period_s: f64,
    /// Work that one request gets at most, in cores at full speed, whatever the frequency. Not given: it runs on one
    /// core, at that core's speed. More than one where a real core stands for several emulated ones.
    pub request_cores: Option<f64>,
    /// Work that all requests together get at most while the quota lasts, in cores at full speed, whatever the frequency.
    /// Not given: that of all of the node's cores, at their speed.
    pub cores_at_once: Option<f64>,
    /// Where a real core stands for several emulated ones ([`request_cores`](Self::request_cores)): idle periods that work
    /// ends, for each second of a busy core. Who runs when is not that of the machine that is meant, so its idle cores and
    /// packages draw what follows from rates ([`headroom_physics::expected`]), and no request waits for a core to wake.
    pub wakeups_per_busy_s: f64,
}

impl Default for Quota {
    /// 10 ms, the period that the live loop sets, on the cores of an ordinary machine.
    fn default() -> Self {
        Self {
            period_s: 0.01,
            request_cores: None,
            cores_at_once: None,
            wakeups_per_busy_s: 400.0,
        }
    }
}

impl Quota {
    /// Checks the figures; `key` is where they stand.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), ScenarioError> {
        within(&format!("{key}.period_s"), self.period_s, 1e-3, 1.0, " seconds")?;
        for (field, value) in [
            ("request_cores", self.request_cores),
            ("cores_at_once", self.cores_at_once),
        ] {
            if let Some(value) = value {
                within(&format!("{key}.{field}"), value, 1e-3, 1e6, " cores")?;
            }
        }
        within(
            &format!("{key}.wakeups_per_busy_s"),
            self.wakeups_per_busy_s,
            0.0,
            1e6,
            " a second",
        )
    }
}

/// What there is to share just now, in work per second: seconds of one core at full speed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Requests being served.
    pub(crate) jobs: f64,
    /// The node's cores, whatever is allocated of them.
    pub(crate) most_cores: f64,
    /// Speed of a core.
    pub(crate) speed: f64,
}

/// A quota at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    quota: Quota,
    /// Work that a period's quota comes to.
    full: f64,
    /// What is left of it in the period that is going on. Below nothing where a quota was lowered that had been used
    /// already: the next one pays for it, so that work never exceeds by more than a period's quota what was allocated.
    left: f64,
    /// When that period ends, seconds.
    ends_s: f64,
}

impl Meter {
    pub(crate) fn new(quota: Quota, cores: f64, speed: f64) -> Self {
        let full = cores * speed * quota.period_s;
        Self {
            quota,
            full,
            left: full,
            ends_s: quota.period_s,
        }
    }

    /// Another share from now on: the rest of the period that is going on gets as much more or less.
    pub(crate) fn set(&mut self, now_s: f64, cores: f64, speed: f64) {
        let full = cores * speed * self.quota.period_s;
        let rest = ((self.ends_s - now_s) / self.quota.period_s).clamp(0.0, 1.0);
        self.left = (self.left + (full - self.full) * rest).clamp(-full, full);
        self.full = full;
    }

    /// Work per second of all requests together while the quota lasts.
    fn pace(&self, demand: Demand) -> f64 {
        let one = self.quota.request_cores.unwrap_or(demand.speed);
        let all = self
            .quota
            .cores_at_once
            .unwrap_or(demand.most_cores * demand.speed);
        (demand.jobs * one).min(all)
    }

    /// The work that is done in a part of the period that is going on.
    fn within(&self, pace: f64, length_s: f64) -> f64 {
        (pace * length_s.max(0.0)).min(self.left.max(0.0))
    }

    /// The period after this one, in which nothing has been used yet.
    fn next(mut self) -> Self {
        self.left = self.full + self.left.min(0.0);
        self.ends_s += self.quota.period_s;
        self
    }

    /// Lets time pass; the work done in it.
    pub(crate) fn advance(&mut self, from_s: f64, to_s: f64, demand: Demand) -> f64 {
        let pace = self.pace(demand);
        let period_s = self.quota.period_s;
        let (mut at_s, mut work) = (from_s, 0.0);
        // The period that is going on, and the one that pays for it; those that follow are all alike.
        for _ in 0..2 {
            if to_s < self.ends_s {
                break;
            }
            work += self.within(pace, self.ends_s - at_s);
            at_s = self.ends_s;
            *self = self.next();
        }
        let whole = ((to_s - self.ends_s) / period_s + 1.0).floor().max(0.0);
        if whole > 0.0 {
            work += whole * (pace * period_s).min(self.full);
            at_s += whole * period_s;
            self.ends_s = at_s + period_s;
            self.left = self.full;
        }
        let last = self.within(pace, to_s - at_s);
        self.left -= last;
        work + last
    }

    /// Whether work goes on just now, and until when it does or stands still: the next moment at which the quota is used
    /// up or given anew. For ever where it is enough for all that is asked.
    pub(crate) fn goes_on(&self, now_s: f64, demand: Demand) -> (bool, f64) {
        let pace = self.pace(demand);
        if pace <= 0.0 {
            return (false, f64::INFINITY);
        }
        // What rounding leaves of a quota that was used up exactly is not one.
        if self.left <= 1e-9 * self.full {
            return (false, self.ends_s);
        }
        let used_up_s = now_s + self.left / pace;
        if used_up_s < self.ends_s {
            return (true, used_up_s);
        }
        let enough = pace * self.quota.period_s <= self.full;
        (true, if enough { f64::INFINITY } else { self.ends_s })
    }

    /// When so much work has been done for each request, if nothing changes; infinity where nothing is allocated.
    pub(crate) fn due_s(&self, now_s: f64, each: f64, demand: Demand) -> f64 {
        let pace = self.pace(demand);
        if pace <= 0.0 || self.full <= 0.0 {
            return f64::INFINITY;
        }
        let (mut meter, mut at_s, mut left) = (*self, now_s, each * demand.jobs);
        for _ in 0..2 {
            let here = meter.within(pace, meter.ends_s - at_s);
            if left <= here {
                return at_s + left / pace;
            }
            left -= here;
            at_s = meter.ends_s;
            meter = meter.next();
        }
        let in_period = (pace * self.quota.period_s).min(self.full);
        // What falls on the end of a quota is done in that period, not at the start of the next.
        let whole = ((left / in_period - 1e-9).ceil() - 1.0).max(0.0);
        at_s + whole * self.quota.period_s + (left - whole * in_period) / pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: f64 = 1e-3;

    fn demand(jobs: f64) -> Demand {
        Demand {
            jobs,
            most_cores: 2.0,
            speed: 1.0,
        }
    }

    #[test]
    fn half_a_core_runs_a_short_request_at_full_speed_and_stops_a_long_one() {
        let meter = Meter::new(Quota::default(), 0.5, 1.0);
        assert!((meter.due_s(0.0, 4.0 * MS, demand(1.0)) - 4.0 * MS).abs() < 1e-12);
        // 5 ms, a wait until 10 ms, 5 ms, a wait until 20 ms, 2 ms.
        assert!((meter.due_s(0.0, 12.0 * MS, demand(1.0)) - 22.0 * MS).abs() < 1e-12);
        // Two of 2.5 ms each use the quota up just as they are done.
        assert!((meter.due_s(0.0, 2.5 * MS, demand(2.0)) - 2.5 * MS).abs() < 1e-12);
        // What is left of a period counts: from 8 ms on there are 2 ms.
        assert!((meter.due_s(8.0 * MS, 4.0 * MS, demand(1.0)) - 12.0 * MS).abs() < 1e-12);
    }

    #[test]
    fn a_request_may_have_more_than_a_core_where_one_stands_for_several() {
        // 16 emulated cores are 1.2 real ones of two; one request runs on a real one, which is 13.3 of them.
        let quota = Quota {
            request_cores: Some(16.0 / 1.2),
            cores_at_once: Some(2.0 * 16.0 / 1.2),
            ..Quota::default()
        };
        let emulated = |jobs| Demand {
            jobs,
            most_cores: 16.0,
            speed: 0.5,
        };
        let meter = Meter::new(quota, 16.0, 0.5);
        // 4 ms of a real core, whatever the frequency; the quota of 0.6 real cores holds for 6 ms of one, or 3 ms of two.
        let page_s = 4.0 * MS * 16.0 / 1.2;
        assert!((meter.due_s(0.0, page_s, emulated(1.0)) - 4.0 * MS).abs() < 1e-12);
        assert!((meter.due_s(0.0, page_s, emulated(2.0)) - 11.0 * MS).abs() < 1e-12);
    }

    #[test]
    fn a_share_that_changes_takes_effect_at_once() {
        let mut meter = Meter::new(Quota::default(), 0.5, 1.0);
        assert!((meter.advance(0.0, 5.0 * MS, demand(1.0)) - 5.0 * MS).abs() < 1e-15);
        meter.set(5.0 * MS, 0.8, 1.0);
        // Half of the period is left: half of the 3 ms more.
        assert!((meter.due_s(5.0 * MS, 1.5 * MS, demand(1.0)) - 6.5 * MS).abs() < 1e-12);
        meter.set(5.0 * MS, 0.0, 1.0);
        assert_eq!(meter.due_s(5.0 * MS, 2.0 * MS, demand(1.0)), f64::INFINITY);
    }

    #[test]
    fn what_was_used_before_the_share_was_lowered_is_paid_for() {
        let mut meter = Meter::new(Quota::default(), 1.0, 1.0);
        // 5 ms used on one core in half a period; then a fifth of a core: 5 + 1 ms would have been fair, and 1 is left.
        assert!((meter.advance(0.0, 5.0 * MS, demand(1.0)) - 5.0 * MS).abs() < 1e-15);
        meter.set(5.0 * MS, 0.2, 1.0);
        assert!((meter.advance(5.0 * MS, 10.0 * MS, demand(1.0)) - 1.0 * MS).abs() < 1e-15);
        // On two cores all 10 ms of the first would have been used in half of it: 4 too many, of which a period pays 2.
        let mut meter = Meter::new(Quota::default(), 1.0, 1.0);
        assert!((meter.advance(0.0, 5.0 * MS, demand(2.0)) - 10.0 * MS).abs() < 1e-15);
        meter.set(5.0 * MS, 0.2, 1.0);
        assert!((meter.due_s(5.0 * MS, 1.0 * MS, demand(2.0)) - 21.0 * MS).abs() < 1e-12);
        assert_eq!(meter.advance(5.0 * MS, 20.0 * MS, demand(2.0)), 0.0);
    }

    proptest! {
        /// In the long run a quota gives what it says, and never more than its requests can take.
        #[test]
        fn whole_periods_give_the_share(cores in 0.05..2.0f64, jobs in 1u8..6, periods in 1u16..500) {
            let mut meter = Meter::new(Quota::default(), cores, 1.0);
            let to_s = f64::from(periods) * 10.0 * MS;
            let work = meter.advance(0.0, to_s, demand(f64::from(jobs)));
            let most = cores.min(f64::from(jobs)).min(2.0);
            prop_assert!((work - most * to_s).abs() < 1e-9 * to_s.max(1.0), "{} {}", work, most * to_s);
        }

        /// What is due when it says has then been given, in however many steps the time passes.
        #[test]
        fn what_is_due_has_been_given(
            cores in 0.05..2.0f64, jobs in 1u8..6, each in 0.0..0.2f64, started in 0.0..0.05f64,
            cuts in proptest::collection::vec(0.0..1.0f64, 0..8),
        ) {
            let jobs = f64::from(jobs);
            let mut meter = Meter::new(Quota::default(), cores, 1.0);
            meter.advance(0.0, started, demand(jobs));
            let due_s = meter.due_s(started, each, demand(jobs));
            let mut cuts: Vec<f64> = cuts.iter().map(|cut| started + cut * (due_s - started)).collect();
            cuts.sort_by(f64::total_cmp);
            cuts.push(due_s);
            let (mut at_s, mut work) = (started, 0.0);
            for cut in cuts {
                work += meter.advance(at_s, cut, demand(jobs));
                at_s = cut;
            }
            prop_assert!((work - each * jobs).abs() < 1e-9, "{} {}", work, each * jobs);
        }
    }

    #[test]
    fn figures_that_are_none_are_named() {
        let bad = |quota: Quota| quota.check("q").unwrap_err().key;
        assert_eq!(
            bad(Quota {
                period_s: 0.0,
                ..Quota::default()
            }),
            "q.period_s"
        );
        assert_eq!(
            bad(Quota {
                request_cores: Some(0.0),
                ..Quota::default()
            }),
            "q.request_cores"
        );
        assert_eq!(
            bad(Quota {
                cores_at_once: Some(f64::NAN),
                ..Quota::default()
            }),
            "q.cores_at_once"
        );
    }
}
