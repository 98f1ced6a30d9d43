//! The Elastic Scaler: how many cores the service needs (Section III-C).

use crate::estimate::LineEstimator;
use crate::plant::CoreRange;
use crate::queueing::{TargetOutOfReach, cores_needed};
use headroom_units::{Cores, PerSecond, Seconds};

/// A number of cores to allocate, and what it was computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// What the model's equation gives, before rounding and bounds.
    pub model: Cores,
    /// What to allocate.
    pub cores: Cores,
    /// The arrival rate that the equation was given.
    pub expected_rate: PerSecond,
}

/// The proactive and the reactive auto-scaler, over one workload estimator.
#[derive(Clone, Debug)]
pub struct ElasticScaler {
    range: CoreRange,
    service_rate: PerSecond,
    target: Seconds,
    guarded: Seconds,
    arrivals: LineEstimator,
}

impl ElasticScaler {
    /// A scaler for a service rate of μ requests per second and core, a target T and its guarded form αT.
    ///
    /// # Errors
    /// [`TargetOutOfReach`] where μαT ≤ 1: Equation 3 has no answer.
    pub fn new(
        range: CoreRange,
        service_rate: PerSecond,
        target: Seconds,
        guarded: Seconds,
        window_periods: usize,
    ) -> Result<Self, TargetOutOfReach> {
        cores_needed(PerSecond::ZERO, service_rate, target)?;
        cores_needed(PerSecond::ZERO, service_rate, guarded)?;
        Ok(Self {
            range,
            service_rate,
            target,
            guarded,
            arrivals: LineEstimator::new(window_periods),
        })
    }

    /// Takes the arrival rate of the newest period.
    pub fn observe(&mut self, rate: PerSecond) {
        self.arrivals.push(rate.get());
    }

    /// λ_{t+1}: the arrival rate expected in the next period; `None` before the first period.
    pub fn expected_rate(&self) -> Option<PerSecond> {
        self.arrivals.next().map(PerSecond::new)
    }

    /// More cores for a violated SLO: Equation 3, and at least one step more than now.
    pub fn reactive(&self, now: Cores) -> Wanted {
        self.more(now, self.guarded)
    }

    /// More cores for an expected increase: Equation 2, and at least one step more than now.
    pub fn proactive(&self, now: Cores) -> Wanted {
        self.more(now, self.target)
    }

    /// One step fewer, where Equation 3 needs at least that much less than there is (Algorithm 1, lines 10-11);
    /// `None` where it does not or the fewest cores are reached.
    pub fn scale_down(&self, now: Cores) -> Option<Wanted> {
        let wanted = self.model(self.guarded);
        let step = self.range.step();
        let fewer = self.range.round_up(now - step);
        let saves = fewer < now && now - self.range.round_up(wanted.model) >= step * (1.0 - 1e-9);
        saves.then_some(Wanted {
            cores: fewer,
            ..wanted
        })
    }

    /// Empties the estimator.
    pub fn forget(&mut self) {
        self.arrivals.clear();
    }

    fn more(&self, now: Cores, target: Seconds) -> Wanted {
        let wanted = self.model(target);
        let cores = self.range.round_up(wanted.model.max(now + self.range.step()));
        Wanted { cores, ..wanted }
    }

    fn model(&self, target: Seconds) -> Wanted {
        let expected_rate = self.expected_rate().unwrap_or(PerSecond::ZERO);
        // The constructor has shown that both targets can be met; all cores would be the answer if not.
        let model =
            cores_needed(expected_rate, self.service_rate, target).unwrap_or_else(|_| self.range.max());
        Wanted {
            model,
            cores: self.range.round_up(model),
            expected_rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The authors' single node: μ 9/s, T 250 ms, α 0.8, 2 to 16 cores in whole steps.
    fn scaler(rate: f64) -> ElasticScaler {
        let range = CoreRange::new(Cores::new(2.0), Cores::new(16.0), Cores::new(1.0)).unwrap();
        let mut scaler = ElasticScaler::new(
            range,
            PerSecond::new(9.0),
            Seconds::new(0.25),
            Seconds::new(0.2),
            5,
        )
        .unwrap();
        for _ in 0..5 {
            scaler.observe(PerSecond::new(rate));
        }
        scaler
    }

    #[test]
    fn equation_3_for_41_per_second_is_11_cores() {
        assert_eq!(scaler(41.0).reactive(Cores::new(4.0)).cores, Cores::new(11.0));
    }

    #[test]
    fn equation_2_uses_the_unguarded_target_and_so_needs_fewer() {
        // 0.25 * 41 / (0.25 * 9 - 1) = 8.2.
        let wanted = scaler(41.0).proactive(Cores::new(4.0));
        assert!((wanted.model.get() - 8.2).abs() < 1e-9);
        assert_eq!(wanted.cores, Cores::new(9.0));
    }

    #[test]
    fn scaling_up_adds_at_least_one_step() {
        assert_eq!(scaler(1.0).reactive(Cores::new(6.0)).cores, Cores::new(7.0));
        assert_eq!(scaler(1.0).proactive(Cores::new(16.0)).cores, Cores::new(16.0));
    }

    #[test]
    fn scaling_down_goes_one_step_and_never_under_equation_3() {
        assert_eq!(
            scaler(41.0).scale_down(Cores::new(13.0)).unwrap().cores,
            Cores::new(12.0)
        );
        assert_eq!(
            scaler(41.0).scale_down(Cores::new(12.0)).unwrap().cores,
            Cores::new(11.0)
        );
        assert_eq!(scaler(41.0).scale_down(Cores::new(11.0)), None);
        assert_eq!(scaler(0.0).scale_down(Cores::new(2.0)), None);
    }

    #[test]
    fn a_target_that_even_the_guard_breaks_is_refused() {
        let range = CoreRange::new(Cores::new(2.0), Cores::new(16.0), Cores::new(1.0)).unwrap();
        let guarded = Seconds::new(0.1);
        assert!(ElasticScaler::new(range, PerSecond::new(9.0), Seconds::new(0.125), guarded, 5).is_err());
    }
}
