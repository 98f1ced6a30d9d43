//! How many cores' worth of CPU time fit under a power cap: a pure state machine.
//!
//! The model's inverse gives the quota at once (feed-forward); what the meter shows in excess or in reserve corrects
//! it over time (integral). With I the correction in watts, s the idle power of the machine and pb what a busy core adds to
//! it at the frequency of the moment:
//!
//! quota = clamp((cap + I - s) / pb, floor, allocated),  I += a (cap - measured),  a = min(1 - exp(-dt / tau), 0.4)
//!
//! On a machine whose busy cores draw k times what the model says, I is multiplied by (1 - a k) each step, so the loop
//! converges without oscillation for every k < 2.5. Two things keep I honest: it does not rise while the quota is not
//! what holds the service back (too little load proves nothing about the cap), and it is bounded to the power that all
//! allocated cores can draw.

use crate::power::PowerModel;
use headroom_units::{Cores, Ratio, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// The largest share of the error that one step may take: keeps the loop stable however late a step comes.
const MAX_GAIN: f64 = 0.4;

/// The law's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapOptions {
    /// The time constant of the correction.
    pub time_constant: Seconds,
    /// The quota that is left to the service however low the cap.
    pub floor: Cores,
}

impl Default for CapOptions {
    fn default() -> Self {
        Self {
            time_constant: Seconds::from_millis(250.0),
            floor: Cores::new(0.1),
        }
    }
}

/// What one step sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapInput {
    /// The mean power since the step before; nothing where the meter could not be read.
    pub measured: Option<Watts>,
    /// Whether the quota held the service back in that time: most of its periods were throttled.
    pub throttled: bool,
    /// Cores allocated.
    pub allocated: Cores,
    /// Mean frequency relative to the highest.
    pub frequency: Ratio,
    /// Time since the step before.
    pub dt: Seconds,
}

/// What holds the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// There is no cap, or it leaves all the allocated cores.
    Allocation,
    /// The cap.
    Cap,
    /// The cap would take more than the floor leaves: it may not be kept.
    Floor,
}

/// The state of the law.
#[derive(Clone, Debug)]
pub struct SoftwareCap {
    model: PowerModel,
    options: CapOptions,
    cap: Option<Watts>,
    correction: Watts,
}

impl SoftwareCap {
    /// No cap yet, and no correction.
    pub fn new(model: PowerModel, options: CapOptions) -> Self {
        Self {
            model,
            options,
            cap: None,
            correction: Watts::ZERO,
        }
    }

    /// Sets the cap. The correction is kept: it is about the machine, not about the cap. A cap that is not a number
    /// is one that nothing fits under.
    pub fn set_cap(&mut self, cap: Option<Watts>) {
        self.cap = cap;
    }

    /// The cap.
    pub fn cap(&self) -> Option<Watts> {
        self.cap
    }

    /// What has been learnt about the difference between machine and model, in watts of cap.
    pub fn correction(&self) -> Watts {
        self.correction
    }

    /// One step: the quota for the time until the next, never under the floor (where that much is allocated) and never
    /// above what is allocated. Without a measurement the model alone decides, with the correction only where it asks
    /// for less.
    pub fn step(&mut self, input: CapInput) -> Cores {
        let Some(cap) = self.cap else {
            return input.allocated;
        };
        let measured = input
            .measured
            .filter(|watts| watts.is_finite() && watts.get() >= 0.0);
        if let Some(measured) = measured {
            self.learn(cap - measured, input);
        }
        self.quota(input.allocated, input.frequency, measured.is_some())
    }

    fn learn(&mut self, reserve: Watts, input: CapInput) {
        let dt = input.dt.get();
        let gain = match dt > 0.0 && self.options.time_constant.get() > 0.0 {
            true => (1.0 - (-dt / self.options.time_constant.get()).exp()).min(MAX_GAIN),
            false => return,
        };
        let before = self.quota(input.allocated, input.frequency, true);
        let rising = reserve.get() > 0.0;
        let at_top = before >= input.allocated;
        let at_floor = before <= self.floor(input.allocated);
        if !reserve.is_finite() || (rising && (at_top || !input.throttled)) || (!rising && at_floor) {
            return;
        }
        let span = self.model.power(input.allocated, input.frequency) - self.model.idle(input.frequency);
        self.correction = (self.correction + reserve * gain).clamp(-span, span);
    }

    /// The quota by the model and the correction, without learning.
    pub fn quota(&self, allocated: Cores, frequency: Ratio, trusted: bool) -> Cores {
        let Some(cap) = self.cap else { return allocated };
        let correction = if trusted {
            self.correction
        } else {
            self.correction.min(Watts::ZERO)
        };
        let within = self
            .model
            .busy_cores_within(cap + correction, allocated, frequency);
        // A NaN (a cap that is none) fails every comparison: it gets the floor.
        let within = if within.is_finite() { within } else { Cores::ZERO };
        within.clamp(self.floor(allocated), allocated)
    }

    /// What holds a quota that this law gave.
    pub fn binding(&self, quota: Cores, allocated: Cores) -> Binding {
        match self.cap {
            None => Binding::Allocation,
            Some(_) if quota >= allocated => Binding::Allocation,
            Some(_) if quota <= self.floor(allocated) => Binding::Floor,
            Some(_) => Binding::Cap,
        }
    }

    fn floor(&self, allocated: Cores) -> Cores {
        self.options.floor.min(allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: Ratio = Ratio::new(1.0);
    const STEP: Seconds = Seconds::new(0.05);

    fn law(cores: f64) -> SoftwareCap {
        SoftwareCap::new(
            PowerModel::default_for(Cores::new(cores)).unwrap(),
            CapOptions::default(),
        )
    }

    fn input(measured: Option<f64>, allocated: f64) -> CapInput {
        CapInput {
            measured: measured.map(Watts::new),
            throttled: true,
            allocated: Cores::new(allocated),
            frequency: FULL,
            dt: STEP,
        }
    }

    /// A machine whose busy cores draw `gain` times what the model says, and whose idle power is `offset` off, under a
    /// service that takes what it gets up to `demand`.
    struct Plant {
        gain: f64,
        offset: f64,
        demand: f64,
    }

    impl Plant {
        fn run(&self, law: &mut SoftwareCap, allocated: f64, steps: usize) -> (Cores, f64) {
            let mut quota = law.quota(Cores::new(allocated), FULL, true);
            let mut watts = 0.0;
            for _ in 0..steps {
                let busy = quota.get().min(self.demand);
                let dynamic = law.model.per_busy_core(FULL).get() * busy;
                watts = law.model.idle(FULL).get() + self.offset + self.gain * dynamic;
                let throttled = self.demand > quota.get();
                quota = law.step(CapInput {
                    throttled,
                    ..input(Some(watts), allocated)
                });
            }
            (quota, watts)
        }
    }

    #[test]
    fn without_a_cap_everything_allocated_is_given() {
        let mut law = law(16.0);
        assert_eq!(law.step(input(Some(1e6), 8.0)), Cores::new(8.0));
        assert_eq!(law.binding(Cores::new(8.0), Cores::new(8.0)), Binding::Allocation);
    }

    #[test]
    fn the_models_inverse_acts_at_once() {
        let mut law = law(16.0);
        let model = law.model.clone();
        law.set_cap(Some(model.power(Cores::new(5.0), FULL)));
        let quota = law.step(input(None, 8.0));
        assert!((quota.get() - 5.0).abs() < 1e-9);
        assert_eq!(law.binding(quota, Cores::new(8.0)), Binding::Cap);
    }

    #[test]
    fn a_cap_below_idle_leaves_the_floor_and_says_so() {
        let mut law = law(16.0);
        law.set_cap(Some(Watts::new(1.0)));
        for _ in 0..100 {
            assert_eq!(law.step(input(Some(60.0), 4.0)), Cores::new(0.1));
        }
        assert_eq!(law.binding(Cores::new(0.1), Cores::new(4.0)), Binding::Floor);
        // And the correction did not wind up: the first reachable cap is met at once.
        let reachable = law.model.power(Cores::new(2.0), FULL);
        law.set_cap(Some(reachable));
        assert!(law.quota(Cores::new(4.0), FULL, true).get() > 1.5);
    }

    #[test]
    fn idle_time_under_the_cap_does_not_wind_up_into_a_burst() {
        let mut law = law(16.0);
        let allocated = 8.0;
        let cap = law.model.power(Cores::new(4.0), FULL);
        law.set_cap(Some(cap));
        Plant {
            gain: 1.0,
            offset: 0.0,
            demand: 0.5,
        }
        .run(&mut law, allocated, 10_000);
        let (_, watts) = Plant {
            gain: 1.0,
            offset: 0.0,
            demand: 99.0,
        }
        .run(&mut law, allocated, 1);
        assert!(watts <= cap.get() + 1e-9, "{watts} W over {cap}");
    }

    #[test]
    fn nonsense_is_a_lost_measurement() {
        let mut law = law(16.0);
        law.set_cap(Some(law.model.power(Cores::new(5.0), FULL)));
        for nonsense in [f64::NAN, f64::INFINITY, -3.0] {
            assert!((law.step(input(Some(nonsense), 8.0)).get() - 5.0).abs() < 1e-9);
        }
        assert_eq!(law.correction(), Watts::ZERO);
    }

    #[test]
    fn a_lost_meter_keeps_what_was_learnt_only_where_it_asks_for_less() {
        for (gain, less) in [(2.0, true), (0.5, false)] {
            let mut law = law(16.0);
            law.set_cap(Some(law.model.power(Cores::new(3.0), FULL)));
            let (with, _) = Plant {
                gain,
                offset: 0.0,
                demand: 99.0,
            }
            .run(&mut law, 8.0, 400);
            let without = law.step(input(None, 8.0));
            assert_eq!(without == with, less, "{without} against {with}");
            assert!(without.get() <= 3.0 + 1e-9);
        }
    }

    proptest! {
        #[test]
        fn the_quota_stays_between_floor_and_allocation_whatever_is_seen(
            steps in proptest::collection::vec(
                (proptest::option::of(prop_oneof![-1e3..1e4f64, Just(f64::NAN), Just(f64::INFINITY)]),
                 any::<bool>(), 0.05..64.0f64, 0.0..2.0f64, 0.0..100.0f64,
                 proptest::option::of(prop_oneof![-10.0..500.0f64, Just(f64::NAN)])),
                1..80),
        ) {
            let mut law = law(64.0);
            for (measured, throttled, allocated, frequency, dt, cap) in steps {
                law.set_cap(cap.map(Watts::new));
                let quota = law.step(CapInput {
                    measured: measured.map(Watts::new),
                    throttled,
                    allocated: Cores::new(allocated),
                    frequency: Ratio::new(frequency),
                    dt: Seconds::new(dt),
                });
                prop_assert!(quota.get() <= allocated && quota.get() >= allocated.min(0.1), "{quota:?}");
            }
        }

        #[test]
        fn it_converges_on_a_machine_that_the_model_gets_wrong(
            gain in 0.5..2.0f64, offset in -1.0..1.0f64, share in 0.25..0.45f64, allocated in 2.0..32.0f64,
        ) {
            let mut law = law(32.0);
            // A cap that the machine, as it is, can keep between floor and allocation.
            let span = law.model.per_busy_core(FULL).get() * allocated;
            let cap = law.model.idle(FULL).get() + offset + span * share.max(0.0) + offset.abs();
            law.set_cap(Some(Watts::new(cap)));
            let reachable = (cap - law.model.idle(FULL).get() - offset) / (gain * law.model.per_busy_core(FULL).get());
            prop_assume!(reachable > 0.2 && reachable < 0.95 * allocated);
            let plant = Plant { gain, offset, demand: 1e3 };
            let (_, watts) = plant.run(&mut law, allocated, 400);
            prop_assert!((watts - cap).abs() < 0.01 * span + 1e-6, "{watts} W at a cap of {cap} W");
            // And no worse overshoot on the way than the model's own error.
            let (_, later) = plant.run(&mut law, allocated, 1);
            prop_assert!((later - cap).abs() < 0.01 * span + 1e-6);
        }

        #[test]
        fn it_settles_at_any_step_length(dt in 0.001..60.0f64, gain in 0.5..2.0f64) {
            let mut law = law(16.0);
            let allocated = 8.0;
            let cap = law.model.power(Cores::new(3.0), FULL).get();
            law.set_cap(Some(Watts::new(cap)));
            let mut quota = law.quota(Cores::new(allocated), FULL, true);
            let mut watts = 0.0;
            let steps = (20.0 / dt.min(0.1)) as usize;
            for _ in 0..steps {
                watts = law.model.idle(FULL).get()
                    + gain * law.model.per_busy_core(FULL).get() * quota.get();
                quota = law.step(CapInput { dt: Seconds::new(dt), ..input(Some(watts), allocated) });
            }
            prop_assert!((watts - cap).abs() < 0.05, "{watts} W at a cap of {cap} W");
        }
    }
}
