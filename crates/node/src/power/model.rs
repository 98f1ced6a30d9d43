//! Power computed from what the cores do, for machines without a sensor.
//!
//! P = base + a c + b u g(f), g(x) = leak + (1 - leak) x^3, where c is the number of allocated cores, u <= c how many
//! of them are busy on average, and f the mean frequency relative to the highest. A busy core's power is leakage,
//! which does not depend on the frequency, and k V^2 f, where V rises about linearly with f: hence the cube. (g is a
//! simplification: on real hardware V has a floor, and the leakage depends on V and on the temperature.) What it
//! yields is an estimate.

use headroom_units::{Cores, Ratio, Watts};
use serde::{Deserialize, Serialize};

/// Power per allocated and fully busy core on the SLO-Power testbed: the slope of limit(c) = 2.86 c + 46.52 W
/// (found in the parameters that its authors published with their system).
const SLO_POWER_PER_CORE_W: f64 = 2.86;
/// The constant of the same line, for its 16 cores: what the machine draws with none allocated.
const SLO_POWER_BASE_W: f64 = 46.52;
/// The cores of that machine.
const SLO_POWER_CORES: f64 = 16.0;
/// An idle core in C1 and in C6, on Skylake servers (figures recalled from published measurements, not verified
/// here). An allocated core that waits for requests idles in C1; one that is not allocated reaches C6. Their
/// difference is what allocating a core costs while it is idle.
const CORE_C1_W: f64 = 1.44;
const CORE_C6_W: f64 = 0.10;
/// The share of a busy core's power that frequency does not change. Derived here: a Skylake core draws about 4 W at
/// its base frequency and 1 W at its lowest (recalled figures as above); with the lowest taken as 0.4 of the base,
/// leak + (1 - leak) 0.4^3 = 1/4 gives 0.2.
const LEAKAGE: f64 = 0.2;

/// The figures of the model. Each has a stated default; a user who has measured the machine gives better ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerModel {
    /// The machine with no core allocated.
    pub base: Watts,
    /// Each allocated core, idle.
    pub per_allocated_core: Watts,
    /// Each busy core in addition, at the highest frequency.
    pub per_busy_core: Watts,
    /// The share of a busy core's power that frequency does not change.
    pub leakage: Ratio,
    /// The cores of the machine.
    pub cores: Cores,
}

/// A figure that cannot be one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the power model's {figure} is {value}: {expected}")]
pub struct ModelError {
    /// The figure's key.
    pub figure: &'static str,
    /// What was given.
    pub value: f64,
    /// What it can be.
    pub expected: &'static str,
}

impl PowerModel {
    /// The stated defaults for a machine of so many cores: those of the SLO-Power testbed per core.
    ///
    /// # Errors
    /// [`ModelError`] where the number of cores is none.
    pub fn default_for(cores: Cores) -> Result<Self, ModelError> {
        let allocated = CORE_C1_W - CORE_C6_W;
        Self {
            base: Watts::new(SLO_POWER_BASE_W / SLO_POWER_CORES * cores.get()),
            per_allocated_core: Watts::new(allocated),
            per_busy_core: Watts::new(SLO_POWER_PER_CORE_W - allocated),
            leakage: Ratio::new(LEAKAGE),
            cores,
        }
        .validated()
    }

    /// The same figures, if they are figures.
    ///
    /// # Errors
    /// [`ModelError`] naming the first that is not.
    pub fn validated(self) -> Result<Self, ModelError> {
        let watts = "give a number of watts, zero or more";
        let check = |figure, value: f64, holds: bool, expected| {
            if value.is_finite() && holds {
                Ok(())
            } else {
                Err(ModelError {
                    figure,
                    value,
                    expected,
                })
            }
        };
        check("base", self.base.get(), self.base.get() >= 0.0, watts)?;
        let allocated = self.per_allocated_core.get();
        check("per_allocated_core", allocated, allocated >= 0.0, watts)?;
        let busy = self.per_busy_core.get();
        check("per_busy_core", busy, busy >= 0.0, watts)?;
        let leakage = self.leakage.get();
        check(
            "leakage",
            leakage,
            (0.0..=1.0).contains(&leakage),
            "give a share between 0 and 1",
        )?;
        check(
            "cores",
            self.cores.get(),
            self.cores.get() > 0.0,
            "give the number of cores of the machine",
        )?;
        Ok(self)
    }

    /// g: a busy core's power at a frequency, relative to that at the highest.
    pub fn frequency_factor(&self, frequency: Ratio) -> f64 {
        let leak = self.leakage.get();
        leak + (1.0 - leak) * frequency.get().clamp(0.0, 1.0).powi(3)
    }

    /// The power with so many cores allocated, so many of them busy on average, at a frequency relative to the
    /// highest (bounded to 0..1).
    pub fn power(&self, allocated: Cores, busy: Cores, frequency: Ratio) -> Watts {
        self.idle(allocated) + self.per_busy_core * (busy.get().max(0.0) * self.frequency_factor(frequency))
    }

    /// The power with so many cores allocated and all idle.
    pub fn idle(&self, allocated: Cores) -> Watts {
        self.base + self.per_allocated_core * allocated.get().max(0.0)
    }

    /// The power with so many cores allocated and all busy at the highest frequency: no cap above this one binds.
    pub fn limit(&self, cores: Cores) -> Watts {
        self.power(cores, cores, Ratio::new(1.0))
    }

    /// How many cores may be busy within a cap while so many are allocated: the inverse of [`PowerModel::power`],
    /// bounded to 0 and what is allocated.
    pub fn busy_cores_within(&self, cap: Watts, allocated: Cores, frequency: Ratio) -> Cores {
        let room = cap - self.idle(allocated);
        let each = self.per_busy_core.get() * self.frequency_factor(frequency);
        let busy = match each > 0.0 {
            true => room.get() / each,
            // Busy cores cost nothing: either the idle power fits, and all may be busy, or nothing helps.
            false if room.get() >= 0.0 => allocated.get(),
            false => 0.0,
        };
        Cores::new(busy).clamp(Cores::ZERO, allocated.max(Cores::ZERO))
    }

    /// The frequency relative to the highest at which so many busy cores fit within a cap: the inverse of
    /// [`PowerModel::power`], bounded to 0 and 1.
    pub fn frequency_within(&self, cap: Watts, allocated: Cores, busy: Cores) -> Ratio {
        let room = cap - self.idle(allocated);
        let all = self.per_busy_core.get() * busy.get().max(0.0);
        let leak = self.leakage.get();
        let share = match all > 0.0 && leak < 1.0 {
            true => (room.get() / all - leak) / (1.0 - leak),
            // The frequency changes nothing: either the power fits at any, or at none.
            false if room.get() >= all => 1.0,
            false => 0.0,
        };
        Ratio::new(share.clamp(0.0, 1.0).cbrt())
    }

    /// The lowest cap that can be held with so many cores allocated, where at least `floor` must be left to them.
    pub fn minimum_cap(&self, allocated: Cores, floor: Cores) -> Watts {
        self.power(allocated, floor.min(allocated), Ratio::new(1.0))
    }

    /// The highest cap that can bind: every core of the machine allocated and busy.
    pub fn maximum_cap(&self) -> Watts {
        self.limit(self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: Ratio = Ratio::new(1.0);

    fn model(cores: f64) -> PowerModel {
        PowerModel::default_for(Cores::new(cores)).unwrap()
    }

    #[test]
    fn the_frequency_within_a_cap_is_the_inverse_of_the_power() {
        let model = PowerModel::default_for(Cores::new(16.0)).unwrap();
        let (allocated, busy) = (Cores::new(8.0), Cores::new(5.0));
        for ratio in [0.2, 0.5, 0.9, 1.0] {
            let cap = model.power(allocated, busy, Ratio::new(ratio));
            let back = model.frequency_within(cap, allocated, busy).get();
            assert!((back - ratio).abs() < 1e-9, "{back} for {ratio}");
        }
        assert_eq!(
            model.frequency_within(Watts::ZERO, allocated, busy),
            Ratio::new(0.0)
        );
        assert_eq!(
            model.frequency_within(Watts::new(1e6), allocated, busy),
            Ratio::new(1.0)
        );
        assert_eq!(
            model.frequency_within(model.idle(allocated), allocated, Cores::ZERO),
            Ratio::new(1.0)
        );
    }

    #[test]
    fn the_defaults_are_the_slo_power_testbeds() {
        let model = model(16.0);
        for cores in [2.0, 8.0, 16.0] {
            let published = 2.86 * cores + 46.52;
            assert!((model.limit(Cores::new(cores)).get() - published).abs() < 1e-9);
        }
        assert_eq!(model.maximum_cap().get().floor(), 92.0);
    }

    #[test]
    fn a_core_at_four_tenths_of_its_frequency_draws_a_quarter() {
        assert!((model(1.0).frequency_factor(Ratio::new(0.4)) - 0.25).abs() < 0.002);
        assert_eq!(model(1.0).frequency_factor(FULL), 1.0);
        assert_eq!(model(1.0).frequency_factor(Ratio::new(7.0)), 1.0);
    }

    #[test]
    fn figures_that_are_none_are_refused_by_name() {
        let good = model(2.0);
        let bad = [
            (
                PowerModel {
                    base: Watts::new(-1.0),
                    ..good
                },
                "base",
            ),
            (
                PowerModel {
                    per_allocated_core: Watts::new(f64::NAN),
                    ..good
                },
                "per_allocated_core",
            ),
            (
                PowerModel {
                    per_busy_core: Watts::new(f64::INFINITY),
                    ..good
                },
                "per_busy_core",
            ),
            (
                PowerModel {
                    leakage: Ratio::new(1.5),
                    ..good
                },
                "leakage",
            ),
            (
                PowerModel {
                    cores: Cores::ZERO,
                    ..good
                },
                "cores",
            ),
        ];
        for (figures, name) in bad {
            assert!(figures.validated().unwrap_err().to_string().contains(name));
        }
        assert!(PowerModel::default_for(Cores::new(-4.0)).is_err());
    }

    #[test]
    fn cores_that_cost_nothing_when_busy_are_all_or_none() {
        let free = PowerModel {
            per_busy_core: Watts::ZERO,
            ..model(4.0)
        };
        let two = Cores::new(2.0);
        assert_eq!(free.busy_cores_within(free.idle(two), two, FULL), two);
        assert_eq!(
            free.busy_cores_within(free.idle(two) - Watts::new(0.1), two, FULL),
            Cores::ZERO
        );
    }

    proptest! {
        #[test]
        fn the_inverse_inverts(
            base in 0.0..200.0f64, allocated_w in 0.0..5.0f64, busy_w in 0.1..10.0f64, leak in 0.0..1.0f64,
            allocated in 0.1..64.0f64, share in 0.0..1.0f64, frequency in 0.1..1.0f64,
        ) {
            let model = PowerModel {
                base: Watts::new(base),
                per_allocated_core: Watts::new(allocated_w),
                per_busy_core: Watts::new(busy_w),
                leakage: Ratio::new(leak),
                cores: Cores::new(64.0),
            };
            let (allocated, frequency) = (Cores::new(allocated), Ratio::new(frequency));
            let busy = allocated * share;
            let cap = model.power(allocated, busy, frequency);
            let back = model.busy_cores_within(cap, allocated, frequency);
            let tolerance = 1e-9 * (1.0 + cap.get()) / (busy_w * model.frequency_factor(frequency)).max(1e-6);
            prop_assert!((back.get() - busy.get()).abs() <= tolerance.max(1e-9));
        }

        #[test]
        fn power_rises_with_everything(a in 0.0..32.0f64, u in 0.0..1.0f64, f in 0.0..1.0f64, more in 0.0..1.0f64) {
            let model = model(32.0);
            let (cores, busy, frequency) = (Cores::new(a), Cores::new(a * u), Ratio::new(f));
            let power = model.power(cores, busy, frequency);
            prop_assert!(model.power(cores + Cores::new(more), busy, frequency) >= power);
            prop_assert!(model.power(cores, busy + Cores::new(more), frequency) >= power);
            prop_assert!(model.power(cores, busy, Ratio::new(f + more)) >= power);
            prop_assert!(model.limit(cores) >= power);
        }
    }
}
