//! Blocks of periods with one interval in force, and what they cost.

use crate::batching::bounds::mean_response;
use crate::observation::Observation;
use crate::queueing::percentile::normal_exceeds;
use headroom_units::Seconds;

/// What of a period is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// The interval in force; `None` where it was not read back.
    pub(super) interval: Option<f64>,
    /// Mean response time, in seconds; 0 where nothing was answered.
    pub(super) response: f64,
    /// Requests answered.
    pub(super) answers: f64,
    /// The SLO's percentile, in seconds.
    pub(super) at_slo: f64,
    /// Seconds.
    pub(super) length: f64,
    /// Energy, in joules; `None` where no meter answered with one that can be.
    pub(super) energy: Option<f64>,
    /// Requests and groups of the batches let go.
    pub(super) batched: Option<(u64, u64)>,
}

impl Period {
    /// `None` where no mean was observed of what was answered.
    pub(super) fn of(observation: &Observation) -> Option<Self> {
        let traffic = observation.traffic.as_ref()?;
        let response = match traffic.completions {
            0 => 0.0,
            _ => mean_response(observation)?.get(),
        };
        let length = observation.length.get();
        let watts = observation.power.map(|power| power.value.get());
        let fits = length > 0.0 && length.is_finite() && (response > 0.0 || traffic.completions == 0);
        fits.then(|| Self {
            interval: observation
                .in_force
                .batch_interval()
                .map(Seconds::get)
                .filter(|one| one.is_finite()),
            response,
            answers: traffic.completions as f64,
            at_slo: traffic.latency_to_judge().get(),
            length,
            energy: watts
                .filter(|watts| *watts > 0.0 && watts.is_finite())
                .map(|watts| watts * length),
            batched: observation
                .batching
                .map(|batches| (batches.requests, batches.groups)),
        })
    }

    /// The SLO's percentile by as many as were answered; that of failed requests is no number to reckon with.
    pub(super) fn late(&self) -> f64 {
        self.answers * self.at_slo.min(FAILED * self.response)
    }
}

/// Whether an interval that was read back is the one that is wanted.
pub(super) fn is_in_force(read: Option<f64>, wanted: f64) -> bool {
    read.is_some_and(|read| (read - wanted).abs() <= 1e-4 + 0.02 * wanted)
}

/// What a block was like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Mean response time of its requests, in seconds.
    pub(super) response: f64,
    /// Joules per request.
    pub(super) energy: Option<f64>,
}

/// A percentile beyond so many mean response times is as bad as this.
const FAILED: f64 = 100.0;

/// A block in the making.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    settle: u32,
    periods: u32,
    answers: f64,
    total: f64,
    energy: Option<f64>,
    late: f64,
}

impl Block {
    /// A block of which so many periods do not count.
    pub(super) const fn after(settle: u32) -> Self {
        Self {
            settle,
            periods: 0,
            answers: 0.0,
            total: 0.0,
            energy: Some(0.0),
            late: 0.0,
        }
    }

    /// Takes a period.
    pub(super) fn push(&mut self, period: &Period) {
        if self.settle > 0 {
            self.settle -= 1;
            return;
        }
        self.periods += 1;
        self.answers += period.answers;
        self.total += period.answers * period.response;
        self.late += period.late();
        self.energy = self.energy.zip(period.energy).map(|(sum, one)| sum + one);
    }

    /// Mean of the SLO's percentile, each period by its answers, in seconds.
    pub(super) fn late(&self) -> f64 {
        self.late / self.answers
    }

    /// What it was like, once so many periods count and something was answered in them.
    pub(super) fn outcome(&self, periods: u32) -> Option<Outcome> {
        (self.periods >= periods && self.answers > 0.0).then(|| Outcome {
            response: self.total / self.answers,
            energy: self.energy.map(|energy| energy / self.answers),
        })
    }
}

/// A wrong meter moves a comparison by no more than this, before its weight.
const MAX_ENERGY: f64 = 0.3;

/// How much more a block cost than another, as a logarithm: 0.1 is about a tenth more. Where a block's energy is missing, it does not
/// count.
pub(super) fn difference(one: &Outcome, other: &Outcome, energy_weight: f64) -> f64 {
    let energies = one.energy.zip(other.energy);
    let energy = energies.map_or(0.0, |(one, other)| (one / other).ln());
    (one.response / other.response).ln() + energy_weight * energy.clamp(-MAX_ENERGY, MAX_ENERGY)
}

/// The quantile of Student's t with these degrees of freedom, two or more, where that of the normal distribution is `z`: exactly with two, and by
/// Cornish-Fisher's expansion to the third order (Abramowitz and Stegun, 26.7.5) with more, 7 % off at the worst here.
pub(super) fn student(z: f64, freedom: f64) -> f64 {
    if freedom <= 2.0 {
        let beyond = normal_exceeds(z);
        return (1.0 - 2.0 * beyond) / (2.0 * beyond * (1.0 - beyond)).sqrt();
    }
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [
            (2.0, 4.303),
            (3.0, 3.182),
            (5.0, 2.571),
            (10.0, 2.228),
            (30.0, 2.042),
        ] {
            let found = student(1.96, freedom);
            assert!((found / expected - 1.0).abs() < 0.04, "{freedom}: {found}");
        }
        // What few pairs decide by.
        for (z, freedom, expected) in [(2.2, 2.0, 5.87), (3.0, 2.0, 19.21), (3.0, 3.0, 9.22)] {
            let found = student(z, freedom);
            assert!((found / expected - 1.0).abs() < 0.08, "{z} {freedom}: {found}");
        }
    }

    #[test]
    fn what_costs_as_much_differs_by_nothing_and_a_wrong_meter_moves_little() {
        let outcome = |response, energy| Outcome { response, energy };
        let other = outcome(1.0, Some(1.0));
        assert_eq!(difference(&outcome(1.0, Some(1.0)), &other, 0.1), 0.0);
        let more = difference(&outcome(1.1, Some(1.2)), &other, 0.1);
        assert!((more - 1.1f64.ln() - 0.1 * 1.2f64.ln()).abs() < 1e-12);
        let wild = difference(&outcome(1.0, Some(1e9)), &other, 0.1);
        assert!((wild - 0.03).abs() < 1e-12);
        assert_eq!(difference(&outcome(1.0, None), &other, 0.1), 0.0);
    }
}
