//! The power of the plant, learned: P = base + idle · c + b (linear φ + cubic φ³), with c cores allocated, b of them
//! busy, at φ times the highest frequency. The two last terms are C V² f for a voltage that rises with the frequency
//! (Chandrakasan et al., "Low-power CMOS digital design", 1992). What matters is the order of the points that it
//! ranks, and that the cap set from it throttles nothing.

use super::kalman::Kalman;
use crate::plant::PowerEnvelope;
use headroom_units::Watts;

/// Of the envelope's watts per core, what a core is believed to draw idle, and busy by the linear and the cubic term,
/// until something is seen; and how far that may be off.
const PRIOR: [f64; 3] = [0.3, 0.25, 0.45];
const PRIOR_DEVIATION: [f64; 3] = [0.12, 0.12, 0.15];
/// Of the base.
const BASE_DEVIATION: f64 = 0.2;
/// Drift of every parameter from one period to the next, of its prior deviation.
const DRIFT: f64 = 0.01;
/// Noise of a reading until it is known, and at least, of the reading.
const NOISE: f64 = 0.02;
const MIN_NOISE: f64 = 0.003;
/// A reading is taken for one that lies at most so many standard deviations off what was expected.
const MAX_DEVIATIONS: f64 = 4.0;
/// Weight of the newest residual.
const FORGET: f64 = 1.0 / 64.0;

/// The learned power of the plant.
#[derive(Clone, Debug)]
pub(crate) struct PowerModel {
    filter: Kalman<4>,
    /// Mean square of the residuals over the square of the reading.
    noise: f64,
}

impl PowerModel {
    pub(crate) fn new(envelope: PowerEnvelope) -> Self {
        let (base, core) = (envelope.base.get(), envelope.per_core.get());
        let deviation = [
            (BASE_DEVIATION * base).max(0.1 * core),
            PRIOR_DEVIATION[0] * core,
            PRIOR_DEVIATION[1] * core,
            PRIOR_DEVIATION[2] * core,
        ];
        Self {
            filter: Kalman::new(
                [base, PRIOR[0] * core, PRIOR[1] * core, PRIOR[2] * core],
                deviation,
                deviation.map(|d| d * DRIFT),
            ),
            noise: NOISE * NOISE,
        }
    }

    /// Watts with `cores` allocated and `busy` of them busy at `pace` times the highest frequency.
    pub(crate) fn at(&self, cores: f64, busy: f64, pace: f64) -> Watts {
        Watts::new(self.filter.expected(&weights(cores, busy, pace)))
    }

    /// Relative standard deviation of a reading around the model.
    pub(crate) fn noise(&self) -> f64 {
        self.noise.sqrt()
    }

    pub(crate) fn observe(&mut self, watts: Watts, cores: f64, busy: f64, pace: f64) {
        let (weights, watts) = (weights(cores, busy, pace), watts.get());
        if !(watts > 0.0 && watts.is_finite() && weights.iter().all(|w| w.is_finite())) {
            return;
        }
        let expected = self.filter.expected(&weights);
        if !expected.is_finite() {
            return;
        }
        let noise = self.noise * watts.max(expected).powi(2);
        // What lies further off is a meter that failed: were it believed as it stands, all that was learned would bend to it.
        let most = MAX_DEVIATIONS * (noise + self.filter.uncertainty(&weights)).sqrt();
        let taken = watts.clamp(expected - most, expected + most);
        let off = self.filter.observe(&weights, taken, noise);
        let relative = (off / watts.max(expected)).clamp(-0.3, 0.3);
        self.noise = (self.noise + FORGET * (relative * relative - self.noise)).max(MIN_NOISE * MIN_NOISE);
        self.filter.set_state(self.filter.state().map(|s| s.max(0.0)));
    }
}

fn weights(cores: f64, busy: f64, pace: f64) -> [f64; 4] {
    [1.0, cores, busy * pace, busy * pace * pace * pace]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> PowerEnvelope {
        PowerEnvelope {
            base: Watts::new(140.0),
            per_core: Watts::new(2.86),
            lowest_cap: Watts::new(100.0),
        }
    }

    #[test]
    fn untaught_it_is_the_envelope() {
        let model = PowerModel::new(envelope());
        assert!((model.at(48.0, 48.0, 1.0).get() - 277.28).abs() < 1e-6);
    }

    #[test]
    fn it_learns_a_machine_that_differs_from_the_envelope() {
        let truth = |c: f64, b: f64, p: f64| {
            let voltage = 0.7 + 0.3 * (p - 0.38) / 0.62;
            120.0 + 0.5 * c + 2.4 * b * p * voltage * voltage
        };
        let mut model = PowerModel::new(envelope());
        for i in 0..600 {
            let cores = 10.0 + f64::from(i % 13);
            let pace = [1.0, 0.8, 0.6, 0.45][i as usize / 7 % 4];
            let busy = cores * (0.4 + 0.05 * f64::from(i % 5));
            model.observe(Watts::new(truth(cores, busy, pace)), cores, busy, pace);
        }
        for (cores, busy, pace) in [(12.0, 8.0, 0.5), (20.0, 14.0, 0.9), (15.0, 9.0, 1.0)] {
            let (got, real) = (model.at(cores, busy, pace).get(), truth(cores, busy, pace));
            assert!((got / real - 1.0).abs() < 0.01, "{got} for {real}");
        }
    }

    #[test]
    fn nonsense_is_not_taken() {
        let mut model = PowerModel::new(envelope());
        let before = model.at(10.0, 5.0, 1.0);
        model.observe(Watts::new(f64::NAN), 10.0, 5.0, 1.0);
        model.observe(Watts::new(-3.0), 10.0, 5.0, 1.0);
        model.observe(Watts::new(150.0), f64::INFINITY, 5.0, 1.0);
        model.observe(Watts::new(150.0), f64::MAX, f64::MAX, 1.0);
        assert_eq!(model.at(10.0, 5.0, 1.0), before);
    }

    #[test]
    fn a_meter_that_fails_for_a_period_does_not_turn_the_order_of_the_points() {
        let truth = |c: f64, b: f64, p: f64| 150.0 + 0.6 * c + 2.0 * b * p;
        for wrong in [4e-152, 1e-6, 3.0, 1e4, 1e300] {
            let mut model = PowerModel::new(envelope());
            for i in 0..100 {
                let cores = 8.0 + f64::from(i % 5);
                model.observe(Watts::new(truth(cores, 6.0, 1.0)), cores, 6.0, 1.0);
            }
            model.observe(Watts::new(wrong), 9.0, 6.0, 1.0);
            for _ in 0..20 {
                model.observe(Watts::new(truth(9.0, 6.0, 1.0)), 9.0, 6.0, 1.0);
            }
            let [few, many] = [8.0, 32.0].map(|cores| model.at(cores, 6.0, 1.0).get());
            assert!((few / truth(8.0, 6.0, 1.0) - 1.0).abs() < 0.05, "{wrong}: {few}");
            assert!(many > few + 2.0, "{wrong}: {few} for 8 cores, {many} for 32");
        }
    }
}
