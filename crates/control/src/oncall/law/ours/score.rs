//! What a period is worth.

use super::OnCall;
use super::regime::Regime;
use crate::observation::{Observation, OncallObservation};
use crate::oncall::law::GoalName;
use crate::oncall::law::trial::Sample;
use headroom_units::{Joules, Ratio, Reading, Seconds};

/// By how much a miss of the SLO counts: as the square of its ratio to the target.
const MISS: f64 = 2.0;

impl OnCall {
    /// What a period is worth, as a logarithm; `None` where it cannot be said.
    pub(super) fn score(&self, observation: &Observation, oncall: &OncallObservation) -> Option<f64> {
        let latency = observation.traffic.as_ref()?.latency?;
        let at_slo = self.measured(observation, oncall);
        let served = oncall.queries.saturating_sub(oncall.failed);
        let rate = served as f64 / observation.length.get();
        let watts = match self.metered {
            Some(true) => observation.power?.value.get(),
            _ => 1.0,
        };
        // At partial load the clients say how many queries there are, which the comparison sees to, and a law what they cost.
        let worth = match (self.regime, self.metered) {
            (Some(Regime::Partial), Some(true)) => -watts.ln(),
            // Without a meter that is how busy the cores are.
            (Some(Regime::Partial), Some(false)) if observation.utilisation.is_some() => {
                -observation.utilisation?.get().ln()
            }
            _ => (rate / watts).ln(),
        };
        // REEF's metric is a throughput over the tail's ratio to the mean, by which it compares servers at saturation. A delay makes the mean
        // longer by more than the tail, and would look the better for it: there the tail is held against the same for all.
        let tail = |of: fn(&crate::Distribution) -> Seconds| {
            let distribution = latency.distribution?;
            let against = match self.regime {
                Some(Regime::Partial) => self.slo.target(),
                _ => distribution.mean,
            };
            Some((against / of(&distribution)).ln())
        };
        let score = match self.tuning.goal {
            GoalName::Throughput => worth,
            GoalName::Slo => {
                worth - at_slo.map_or(0.0, |at_slo| MISS * (at_slo / self.slo.target()).ln().max(0.0))
            }
            GoalName::P99 => worth + tail(|latency| latency.p99)?,
            GoalName::P999 => worth + tail(|latency| latency.p999)?,
        };
        score.is_finite().then_some(score)
    }

    /// What was measured in a period, for the record of a comparison.
    pub(super) fn sample(&self, observation: &Observation, oncall: &OncallObservation) -> Sample {
        let latency = observation.traffic.as_ref().and_then(|traffic| traffic.latency);
        let distribution = latency.and_then(|latency| latency.distribution);
        let energy =
            |power: Reading<_>| Reading::<Joules>::new(power.value * observation.length, power.source);
        Sample {
            queries: oncall.queries.saturating_sub(oncall.failed),
            length: observation.length,
            energy: observation.power.map(energy),
            at_slo: self.measured(observation, oncall),
            mean: distribution.map(|distribution| distribution.mean),
            p99: distribution.map(|distribution| distribution.p99),
            oldest_waiting: oncall.oldest_waiting,
            waiting_share: oncall.waiting_share.map(Ratio::get),
            connections: oncall.connections,
            asking: oncall.asking,
            utilisation: observation.utilisation.map(Ratio::get),
            long_idle: oncall.long_idle.map(Ratio::get),
        }
    }

    /// The latency to hold against the target where it was measured: that an SLO was missed by failures is not for how long anybody waited.
    pub(super) fn measured(&self, observation: &Observation, oncall: &OncallObservation) -> Option<Seconds> {
        let latency = observation.traffic.as_ref()?.latency;
        match latency.is_some_and(|latency| latency.missed) {
            true => oncall.oldest_waiting,
            false => self.judged(observation, oncall),
        }
    }

    /// The same whatever it was missed by: where a connection waits longer for a slot than what was answered took, that.
    fn judged(&self, observation: &Observation, oncall: &OncallObservation) -> Option<Seconds> {
        let answered = observation.traffic.as_ref()?.latency_to_judge();
        Some(
            oncall
                .oldest_waiting
                .map_or(answered, |waiting| answered.max(waiting)),
        )
    }
}
