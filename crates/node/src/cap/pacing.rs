//! How fast the processors may run under a power cap: a pure state machine.
//!
//! As in [`super::law`], the model's inverse acts at once and what the meter shows corrects it over time. With I the
//! correction in watts and P(n, r) what the machine draws with n busy cores at r of the highest frequency:
//!
//! r = the highest with P(n, r) <= cap + I,  I += a (cap - measured)
//!
//! The frequency falls first because it costs least: power rises with about its cube, speed with itself. What it cannot do at
//! its lowest is left to the quota.

use crate::power::PowerModel;
use headroom_units::{Cores, Ratio, Seconds, Watts};

/// The largest share of the error that one step may take.
const MAX_GAIN: f64 = 0.4;
/// The time constant with which a falling number of busy cores is believed, seconds: a burst is met at once, and a pause
/// within it is not an end.
const BUSY_TAU_S: f64 = 0.5;

/// What one step sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PacingInput {
    /// The mean power since the step before; nothing where the meter could not be read.
    pub(super) measured: Option<Watts>,
    /// Cores that the service had busy; nothing where that could not be read.
    pub(super) busy: Option<Cores>,
    /// Whether the quota held the service back: what it would use is then not known.
    pub(super) throttled: bool,
    /// Cores allocated.
    pub(super) allocated: Cores,
    /// The highest frequency that may be had, relative to the highest of the hardware.
    pub(super) highest: Ratio,
    /// Time since the step before.
    pub(super) dt: Seconds,
}

/// The state of the law.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    model: PowerModel,
    time_constant: Seconds,
    lowest: Ratio,
    cap: Option<Watts>,
    correction: Watts,
    busy: Option<Cores>,
    ratio: Ratio,
}

impl Pacing {
    /// No cap yet. `lowest` is the lowest frequency relative to the highest.
    pub(super) fn new(model: PowerModel, time_constant: Seconds, lowest: Ratio) -> Self {
        Self {
            model,
            time_constant,
            lowest: lowest.clamp(Ratio::new(0.0), Ratio::new(1.0)),
            cap: None,
            correction: Watts::ZERO,
            busy: None,
            ratio: Ratio::new(1.0),
        }
    }

    /// Sets the cap; the frequency for it at once, by the model.
    pub(super) fn set_cap(&mut self, cap: Option<Watts>, allocated: Cores, highest: Ratio) -> Ratio {
        self.cap = cap;
        self.ratio = self.within(self.demand(allocated), highest, true);
        self.ratio
    }

    /// The frequency relative to the highest that was given last.
    pub(super) fn ratio(&self) -> Ratio {
        self.ratio
    }

    /// Whether there is a cap and the frequency is as low as it goes.
    pub(super) fn is_at_lowest(&self) -> bool {
        self.cap.is_some() && self.ratio <= self.lowest
    }

    /// One step: the highest frequency for the time until the next, relative to the highest of the hardware.
    pub(super) fn step(&mut self, input: PacingInput) -> Ratio {
        let dt = input.dt.get().max(0.0);
        if let Some(now) = input.busy.filter(|busy| busy.is_finite()) {
            let before = self.busy.unwrap_or(now);
            let followed = before + (now - before) * (1.0 - (-dt / BUSY_TAU_S).exp());
            self.busy = Some(now.max(followed));
        }
        if input.throttled {
            self.busy = None;
        }
        let measured = input
            .measured
            .filter(|watts| watts.is_finite() && watts.get() >= 0.0);
        let demand = self.demand(input.allocated);
        if let Some((cap, measured)) = self.cap.zip(measured) {
            let before = self.within(demand, input.highest, true);
            let reserve = cap - measured;
            let rising = reserve.get() > 0.0;
            let stuck = (rising && before >= input.highest) || (!rising && before <= self.lowest);
            if reserve.is_finite() && !stuck && self.time_constant.get() > 0.0 {
                let gain = (1.0 - (-dt / self.time_constant.get()).exp()).min(MAX_GAIN);
                let highest = Ratio::new(1.0);
                let span = self.model.power(input.allocated, highest) - self.model.idle(highest);
                self.correction = (self.correction + reserve * gain).clamp(-span, span);
            }
        }
        self.ratio = self.within(demand, input.highest, measured.is_some());
        self.ratio
    }

    /// The cores that would be busy: as seen, and all where that is not known.
    fn demand(&self, allocated: Cores) -> Cores {
        self.busy
            .map_or(allocated, |busy| busy.clamp(Cores::ZERO, allocated))
    }

    fn within(&self, busy: Cores, highest: Ratio, trusted: bool) -> Ratio {
        let Some(cap) = self.cap else { return highest };
        let correction = match trusted {
            true => self.correction,
            false => self.correction.min(Watts::ZERO),
        };
        let within = self.model.frequency_within(cap + correction, busy);
        // A NaN (a cap that is none) gets the lowest.
        let within = if within.is_finite() { within } else { self.lowest };
        within.min(highest).max(self.lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEP: Seconds = Seconds::new(0.05);
    const FULL: Ratio = Ratio::new(1.0);

    fn model() -> PowerModel {
        PowerModel::default_for(Cores::new(16.0)).unwrap()
    }

    fn pacing() -> Pacing {
        Pacing::new(model(), Seconds::from_millis(250.0), Ratio::new(0.3))
    }

    /// A machine whose busy cores draw `gain` times what the model says, under so much work a second (in cores at the
    /// highest frequency).
    fn run(pacing: &mut Pacing, gain: f64, work: f64, allocated: f64, steps: usize) -> f64 {
        let cores = Cores::new(allocated);
        let mut watts = 0.0;
        for _ in 0..steps {
            let ratio = pacing.ratio();
            let busy = (work / ratio.get()).min(allocated);
            let idle = model().idle(ratio).get();
            let dynamic = model().power(Cores::new(busy), ratio).get() - idle;
            watts = idle + gain * dynamic;
            pacing.step(PacingInput {
                measured: Some(Watts::new(watts)),
                busy: Some(Cores::new(busy)),
                throttled: false,
                allocated: cores,
                highest: FULL,
                dt: STEP,
            });
        }
        watts
    }

    #[test]
    fn the_models_inverse_acts_at_once_and_no_cap_limits_nothing() {
        let mut pacing = pacing();
        let cores = Cores::new(8.0);
        assert_eq!(pacing.set_cap(None, cores, FULL), FULL);
        let cap = model().power(cores, Ratio::new(0.7));
        let ratio = pacing.set_cap(Some(cap), cores, FULL);
        assert!((ratio.get() - 0.7).abs() < 1e-9, "{ratio:?}");
        assert!(!pacing.is_at_lowest());
        assert_eq!(
            pacing.set_cap(Some(Watts::new(0.1)), cores, FULL),
            Ratio::new(0.3)
        );
        assert!(pacing.is_at_lowest());
        assert_eq!(pacing.set_cap(Some(cap), cores, Ratio::new(0.5)), Ratio::new(0.5));
    }

    #[test]
    fn a_load_that_fits_runs_at_full_speed_and_a_burst_is_met_within_two_steps() {
        let mut pacing = pacing();
        let cores = Cores::new(8.0);
        let cap = model().power(Cores::new(4.0), FULL);
        pacing.set_cap(Some(cap), cores, FULL);
        run(&mut pacing, 1.0, 1.0, 8.0, 400);
        assert_eq!(pacing.ratio(), FULL);
        run(&mut pacing, 1.0, 99.0, 8.0, 1);
        let watts = run(&mut pacing, 1.0, 99.0, 8.0, 1);
        assert!(watts <= cap.get() * 1.001, "{watts} W over {cap}");
    }

    proptest! {
        #[test]
        fn it_converges_on_a_machine_that_the_model_gets_wrong(
            gain in 0.6..1.6f64, allocated in 2.0..16.0f64, share in 0.35..0.6f64,
        ) {
            let mut pacing = pacing();
            let cores = Cores::new(allocated);
            let span = model().per_busy_core(FULL).get() * allocated;
            let cap = model().idle(FULL).get() + span * share;
            pacing.set_cap(Some(Watts::new(cap)), cores, FULL);
            let watts = run(&mut pacing, gain, 1e3, allocated, 600);
            prop_assert!((watts - cap).abs() < 0.02 * span, "{watts} W at a cap of {cap} W");
        }

        #[test]
        fn the_frequency_stays_in_its_range_whatever_is_seen(
            steps in proptest::collection::vec(
                (proptest::option::of(prop_oneof![-1e3..1e4f64, Just(f64::NAN)]), proptest::option::of(0.0..99.0f64),
                 any::<bool>(), 0.1..64.0f64, 0.3..1.0f64, 0.0..100.0f64,
                 proptest::option::of(prop_oneof![-10.0..500.0f64, Just(f64::NAN)])),
                1..60),
        ) {
            let mut pacing = pacing();
            for (measured, busy, throttled, allocated, highest, dt, cap) in steps {
                let (allocated, highest) = (Cores::new(allocated), Ratio::new(highest));
                pacing.set_cap(cap.map(Watts::new), allocated, highest);
                let ratio = pacing.step(PacingInput {
                    measured: measured.map(Watts::new),
                    busy: busy.map(Cores::new),
                    throttled,
                    allocated,
                    highest,
                    dt: Seconds::new(dt),
                });
                prop_assert!(ratio >= Ratio::new(0.3) && ratio <= highest, "{ratio:?}");
            }
        }
    }
}
