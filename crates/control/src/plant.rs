//! What a law is given of the service and the machine before it starts: the SLO, the range of cores, the
//! relation of cores to power.

use crate::decision::Allocation;
use headroom_units::{Cores, Hertz, Lever, LeverRange, Ratio, Seconds, Setting, Spread, Watts};

/// Values that describe no possible service or machine.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PlantError {
    /// The percentile is not one.
    #[error("the SLO's percentile is {0}: it must lie between 0 and 100, both excluded (95 is usual)")]
    Percentile(f64),
    /// The target is no length of time.
    #[error("the SLO's target is {0} ms: it must be greater than 0")]
    Target(f64),
    /// A range is empty or its step is not one.
    #[error(
        "{lever} from {min} to {max}{unit} in steps of {step}: need 0 < minimum <= maximum and 0 < step <= maximum"
    )]
    Range {
        /// What it is the range of.
        lever: &'static str,
        /// The unit of its ends, where the lever does not name it.
        unit: &'static str,
        /// Lower end.
        min: f64,
        /// Upper end.
        max: f64,
        /// Step.
        step: f64,
    },
    /// The power figures are negative or not finite.
    #[error(
        "a power limit of {base} W + {per_core} W per core with a lowest cap of {lowest} W: need a base of 0 or \
         more, more than 0 per core, and a lowest cap between 0 and the limit at the fewest cores"
    )]
    Power {
        /// Limit at no core, in watts.
        base: f64,
        /// Slope, in watts per core.
        per_core: f64,
        /// Lowest cap, in watts.
        lowest: f64,
    },
}

/// A latency SLO: this share of requests within this time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    percentile: Ratio,
    target: Seconds,
}

impl Slo {
    /// The SLO that `percentile` (as a share: 0.95) of the requests are answered within `target`.
    ///
    /// # Errors
    /// [`PlantError::Percentile`], [`PlantError::Target`].
    pub fn new(percentile: Ratio, target: Seconds) -> Result<Self, PlantError> {
        if !(percentile.get() > 0.0 && percentile.get() < 1.0) {
            return Err(PlantError::Percentile(percentile.as_percent()));
        }
        if !(target.get() > 0.0 && target.is_finite()) {
            return Err(PlantError::Target(target.as_millis()));
        }
        Ok(Self { percentile, target })
    }

    /// The share of requests that the SLO covers.
    pub const fn percentile(&self) -> Ratio {
        self.percentile
    }

    /// P95, P99.9: the percentile as people write it.
    pub fn name(&self) -> String {
        format!("P{}", (self.percentile.as_percent() * 1e6).round() / 1e6)
    }

    /// T, the target.
    pub const fn target(&self) -> Seconds {
        self.target
    }
}

/// The values that a lever can be given: from `min` to `max` in steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRange<T> {
    min: T,
    max: T,
    step: T,
}

/// The numbers of cores that can be allocated.
pub type CoreRange = StepRange<Cores>;

/// The frequencies that the processors can be limited to. Where the hardware knows discrete frequencies, the step is the
/// smallest gap between two, and what is in force is read back.
pub type FrequencyRange = StepRange<Hertz>;

impl<T: Copy> StepRange<T> {
    /// The lowest value.
    pub const fn min(&self) -> T {
        self.min
    }

    /// The highest.
    pub const fn max(&self) -> T {
        self.max
    }

    /// The smallest change.
    pub const fn step(&self) -> T {
        self.step
    }

    fn checked(self, lever: &'static str, unit: &'static str, get: fn(T) -> f64) -> Result<Self, PlantError> {
        let [min, max, step] = [self.min, self.max, self.step].map(get);
        match min > 0.0 && min <= max && step > 0.0 && step <= max && max.is_finite() {
            true => Ok(self),
            false => Err(PlantError::Range {
                lever,
                unit,
                min,
                max,
                step,
            }),
        }
    }
}

impl CoreRange {
    /// The range from `min` to `max`; a step of 1 with cpusets, 0.1 by default with quotas.
    ///
    /// # Errors
    /// [`PlantError::Range`].
    pub fn new(min: Cores, max: Cores, step: Cores) -> Result<Self, PlantError> {
        Self { min, max, step }.checked("cores", "", Cores::get)
    }

    /// The smallest multiple of the step that is at least `cores`, within the range. What no number of cores
    /// satisfies (an infinite or NaN need) becomes all of them.
    pub fn round_up(&self, cores: Cores) -> Cores {
        if !cores.is_finite() {
            return self.max;
        }
        // A hair below the multiple belongs to it: 0.30000000000000004 is three steps of 0.1, not four.
        let steps = (cores / self.step - 1e-9).ceil();
        tidy(self.step * steps).clamp(self.min, self.max)
    }
}

impl FrequencyRange {
    /// The range from `min` to `max`.
    ///
    /// # Errors
    /// [`PlantError::Range`].
    pub fn new(min: Hertz, max: Hertz, step: Hertz) -> Result<Self, PlantError> {
        Self { min, max, step }.checked("frequencies", " Hz", Hertz::get)
    }

    /// The smallest multiple of the step that is at least `frequency`, within the range. What no frequency satisfies
    /// (an infinite or NaN need) becomes the highest.
    pub fn round_up(&self, frequency: Hertz) -> Hertz {
        self.at_steps(frequency, |steps| (steps - 1e-9).ceil())
    }

    /// The largest multiple of the step that is at most `frequency`, within the range; the highest for an infinite or
    /// NaN one.
    pub fn round_down(&self, frequency: Hertz) -> Hertz {
        self.at_steps(frequency, |steps| (steps + 1e-9).floor())
    }

    fn at_steps(&self, frequency: Hertz, round: fn(f64) -> f64) -> Hertz {
        if !frequency.is_finite() {
            return self.max;
        }
        (self.step * round(frequency / self.step)).clamp(self.min, self.max)
    }
}

/// A multiple of a step without the dust that binary fractions leave, so that reasons and tables read well.
pub(crate) fn tidy(cores: Cores) -> Cores {
    Cores::new((cores.get() * 1e9).round() / 1e9)
}

/// The power that a number of cores can need: `limit(c) = base + per_core · c`, the line that the SLO-Power
/// authors fitted to their machine (2.86 c + 46.52 W, 92 W at 16 cores).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerEnvelope {
    /// The line at no core.
    pub base: Watts,
    /// What one more core adds.
    pub per_core: Watts,
    /// The lowest cap that the machine accepts.
    pub lowest_cap: Watts,
}

impl PowerEnvelope {
    /// The most that `cores` cores can need.
    pub fn limit(&self, cores: Cores) -> Watts {
        self.base + self.per_core * cores.get()
    }
}

/// What can be allocated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plant {
    cores: CoreRange,
    power: PowerEnvelope,
    frequency: Option<FrequencyRange>,
    servers: Option<usize>,
    /// Whether cores and cap can be set: else both stand for machines that are left as they are.
    machines: bool,
    /// Whether the cores that a service may not use are parked.
    parks: bool,
    /// Whether caps are held by the hardware, which lowers the frequency.
    hardware_cap: bool,
    /// Of the levers that have no place of their own here.
    others: [Option<LeverRange>; Lever::ALL.len()],
}

impl Plant {
    /// A plant of these cores and this power, whose frequency cannot be limited.
    ///
    /// # Errors
    /// [`PlantError::Power`].
    pub fn new(cores: CoreRange, power: PowerEnvelope) -> Result<Self, PlantError> {
        let fits = power.base.get() >= 0.0
            && power.per_core.get() > 0.0
            && power.lowest_cap.get() >= 0.0
            && power.limit(cores.max()).is_finite()
            && power.lowest_cap <= power.limit(cores.min());
        if fits {
            Ok(Self {
                cores,
                power,
                frequency: None,
                servers: None,
                machines: true,
                parks: false,
                hardware_cap: false,
                others: [None; Lever::ALL.len()],
            })
        } else {
            Err(PlantError::Power {
                base: power.base.get(),
                per_core: power.per_core.get(),
                lowest: power.lowest_cap.get(),
            })
        }
    }

    /// A cluster of so many servers that can be switched on and off, on machines that are left as they are.
    pub const fn of_servers(servers: usize) -> Self {
        let one = Cores::new(1.0);
        let (min, max, step) = (one, one, one);
        Self {
            cores: CoreRange { min, max, step },
            power: PowerEnvelope {
                base: Watts::ZERO,
                per_core: Watts::new(1.0),
                lowest_cap: Watts::ZERO,
            },
            frequency: None,
            servers: Some(servers),
            machines: false,
            parks: false,
            hardware_cap: false,
            others: [None; Lever::ALL.len()],
        }
    }

    /// A machine of so many cores that is left as it is, as under a server that is on call and no more.
    pub const fn left_alone(cores: Cores) -> Self {
        let all = Self::of_servers(1);
        let (min, max, step) = (cores, cores, cores);
        Self {
            cores: CoreRange { min, max, step },
            servers: None,
            ..all
        }
    }

    /// The cores that can be allocated.
    pub const fn cores(&self) -> CoreRange {
        self.cores
    }

    /// Their power.
    pub const fn power(&self) -> PowerEnvelope {
        self.power
    }

    /// The same plant with processors whose frequency can be limited within this range.
    #[must_use]
    pub const fn with_frequency(self, range: FrequencyRange) -> Self {
        Self {
            frequency: Some(range),
            ..self
        }
    }

    /// The same plant with a lever that is left as found while no law moves it, within this range.
    ///
    /// # Errors
    /// [`PlantError::Range`].
    pub fn with_range(mut self, lever: Lever, range: LeverRange) -> Result<Self, PlantError> {
        if lever == Lever::Frequency {
            let (min, max) = (Hertz::new(range.min), Hertz::new(range.max));
            let step = Hertz::new(range.step.min(range.max));
            return Ok(self.with_frequency(FrequencyRange::new(min, max, step)?));
        }
        self.others[lever as usize] = Some(range);
        Ok(self)
    }

    /// The range of a lever that came by [`Plant::with_range`] and has no place of its own here.
    pub const fn range(&self, lever: Lever) -> Option<LeverRange> {
        self.others[lever as usize]
    }

    /// The levers of the cluster alone that came by [`Plant::with_range`], as those of its gateways, each with its range.
    pub fn of_cluster(&self) -> impl Iterator<Item = (Lever, LeverRange)> + use<> {
        let others = self.others;
        Lever::ALL
            .into_iter()
            .filter(|lever| lever.info().spread == Spread::Cluster)
            .filter_map(move |lever| Some((lever, others[lever as usize]?)))
    }

    /// The same plant with so many servers that can be switched on and off.
    #[must_use]
    pub const fn with_servers(self, servers: usize) -> Self {
        Self {
            servers: Some(servers),
            ..self
        }
    }

    /// The same plant where the cores that the service may not use are left to sleep, as with a cpuset or where they go
    /// offline. A quota leaves all cores to the service, for a part of the time.
    #[must_use]
    pub const fn with_parking(self) -> Self {
        Self { parks: true, ..self }
    }

    /// Whether the cores that the service may not use are left to sleep.
    pub const fn parks(&self) -> bool {
        self.parks
    }

    /// The same plant where the hardware holds caps, which lowers frequency and voltage for that. A cap that is held by a quota
    /// bounds the watts and saves none.
    #[must_use]
    pub const fn with_hardware_cap(self) -> Self {
        Self {
            hardware_cap: true,
            ..self
        }
    }

    /// Whether caps are held by the hardware, by the frequency.
    pub const fn has_hardware_cap(&self) -> bool {
        self.hardware_cap
    }

    /// The frequencies that the processors can be limited to; `None` where there is no lever for it.
    pub const fn frequency(&self) -> Option<FrequencyRange> {
        self.frequency
    }

    /// Everything on: all cores, the cap where it limits nothing, any frequency.
    pub fn full_allocation(&self) -> Allocation {
        Allocation::new(self.cores.max(), self.power.limit(self.cores.max()))
    }

    /// The same of every lever.
    pub fn full(&self) -> Setting {
        let machines = match self.machines {
            true => self.full_allocation().into(),
            false => Setting::default(),
        };
        machines.with(Lever::Servers, self.servers.map(|servers| servers as f64))
    }

    /// Cores, cap and frequency of a setting; what it has no value for is full.
    pub fn allocation(&self, setting: &Setting) -> Allocation {
        let full = self.full_allocation();
        Allocation {
            cores: setting.cores().unwrap_or(full.cores),
            cap: setting.cap().unwrap_or(full.cap),
            frequency: setting.frequency(),
        }
    }

    /// The same with a cap that is no more than what these cores can need: over that it limits nothing, and where it was
    /// lifted for that, whoever lowers it goes on from there.
    pub fn needed(&self, setting: &Setting) -> Allocation {
        let now = self.allocation(setting);
        Allocation {
            cap: now.cap.min(self.power.limit(now.cores)),
            ..now
        }
    }

    /// The least and the most that a lever can be set to; `None` where it is not here.
    pub fn bounds(&self, lever: Lever) -> Option<(f64, f64)> {
        let (cores, power) = (self.cores, self.power);
        match lever {
            Lever::Cores => self.machines.then(|| (cores.min().get(), cores.max().get())),
            Lever::Cap => self
                .machines
                .then(|| (power.lowest_cap.get(), power.limit(cores.max()).get())),
            Lever::Frequency => self.frequency.map(|range| (range.min().get(), range.max().get())),
            Lever::Servers => self.servers.map(|servers| (1.0, servers as f64)),
            other => self.range(other).map(|range| (range.min, range.max)),
        }
    }

    /// The levers that it has.
    pub fn levers(&self) -> Vec<Lever> {
        let all = Lever::ALL.into_iter();
        all.filter(|lever| self.bounds(*lever).is_some()).collect()
    }

    /// The cap bounded to what these cores can need and the machine accepts.
    pub fn bound_cap(&self, cap: Watts, cores: Cores) -> Watts {
        cap.clamp(self.power.lowest_cap, self.power.limit(cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range() -> CoreRange {
        CoreRange::new(Cores::new(0.2), Cores::new(2.0), Cores::new(0.1)).unwrap()
    }

    #[test]
    fn cores_are_rounded_up_to_a_step() {
        assert_eq!(range().round_up(Cores::new(0.41)), Cores::new(0.5));
        assert_eq!(range().round_up(Cores::new(0.1 + 0.2)), Cores::new(0.3));
        assert_eq!(range().round_up(Cores::new(0.0)), Cores::new(0.2));
        assert_eq!(range().round_up(Cores::new(7.0)), Cores::new(2.0));
        assert_eq!(range().round_up(Cores::new(f64::INFINITY)), Cores::new(2.0));
    }

    #[test]
    fn an_slo_is_named_as_people_write_its_percentile() {
        for (percent, name) in [(95.0, "P95"), (99.9, "P99.9"), (57.0, "P57")] {
            let slo = Slo::new(Ratio::from_percent(percent), Seconds::new(0.25)).unwrap();
            assert_eq!(slo.name(), name);
        }
    }

    #[test]
    fn the_authors_line_gives_92_watts_at_16_cores() {
        let power = PowerEnvelope {
            base: Watts::new(46.52),
            per_core: Watts::new(2.86),
            lowest_cap: Watts::ZERO,
        };
        assert_eq!(power.limit(Cores::new(16.0)).get().floor(), 92.0);
    }

    #[test]
    fn impossible_slos_and_plants_are_refused_with_their_numbers() {
        let error = Slo::new(Ratio::from_percent(100.0), Seconds::new(0.25)).unwrap_err();
        assert!(error.to_string().contains("is 100"), "{error}");
        let error = Slo::new(Ratio::from_percent(95.0), Seconds::ZERO).unwrap_err();
        assert!(error.to_string().contains("0 ms"), "{error}");
        assert!(CoreRange::new(Cores::new(2.0), Cores::new(1.0), Cores::new(1.0)).is_err());
        assert!(CoreRange::new(Cores::ZERO, Cores::new(1.0), Cores::new(1.0)).is_err());
        let power = PowerEnvelope {
            base: Watts::new(-1.0),
            per_core: Watts::new(1.0),
            lowest_cap: Watts::ZERO,
        };
        assert!(Plant::new(range(), power).is_err());
    }

    #[test]
    fn frequencies_are_rounded_to_a_step_within_the_range() {
        let ghz = |ghz: f64| Hertz::new(ghz * 1e9);
        let range = FrequencyRange::new(ghz(0.8), ghz(2.75), ghz(0.1)).unwrap();
        assert_eq!(range.round_up(ghz(1.31)), ghz(1.4));
        assert_eq!(range.round_down(ghz(1.39)), ghz(1.3));
        assert_eq!(
            (range.round_up(ghz(1.3)), range.round_down(ghz(1.3))),
            (ghz(1.3), ghz(1.3))
        );
        assert_eq!(
            (range.round_down(ghz(0.1)), range.round_up(ghz(9.0))),
            (ghz(0.8), ghz(2.75))
        );
        assert_eq!(range.round_down(ghz(f64::INFINITY)), ghz(2.75));
        assert_eq!(range.round_up(ghz(f64::NAN)), ghz(2.75));
        let error = FrequencyRange::new(ghz(2.0), ghz(1.0), ghz(0.1)).unwrap_err();
        assert!(
            error.to_string().contains("from 2000000000 to 1000000000 Hz"),
            "{error}"
        );
        assert!(FrequencyRange::new(Hertz::ZERO, ghz(1.0), ghz(0.1)).is_err());
        assert!(FrequencyRange::new(ghz(1.0), ghz(2.0), Hertz::ZERO).is_err());
    }

    #[test]
    fn a_plant_has_a_frequency_where_it_was_given_one_and_full_limits_none() {
        let power = PowerEnvelope {
            base: Watts::new(46.52),
            per_core: Watts::new(2.86),
            lowest_cap: Watts::new(40.0),
        };
        let plant = Plant::new(range(), power).unwrap();
        assert_eq!(plant.frequency(), None);
        let frequencies = FrequencyRange::new(Hertz::new(8e8), Hertz::new(3e9), Hertz::new(1e8)).unwrap();
        let plant = plant.with_frequency(frequencies);
        assert_eq!(plant.frequency(), Some(frequencies));
        assert_eq!(plant.full().frequency(), None);
    }

    #[test]
    fn a_cluster_of_servers_alone_has_that_lever_alone() {
        let plant = Plant::of_servers(3);
        assert_eq!(plant.levers(), [Lever::Servers]);
        assert_eq!(plant.full(), Setting::default().with(Lever::Servers, Some(3.0)));
    }

    proptest! {
        #[test]
        fn a_frequency_is_rounded_within_the_range_by_less_than_a_step(asked in 0.0..1e10f64) {
            let range = FrequencyRange::new(Hertz::new(8e8), Hertz::new(3e9), Hertz::new(1e8)).unwrap();
            let (down, up) = (range.round_down(Hertz::new(asked)), range.round_up(Hertz::new(asked)));
            prop_assert!(range.min() <= down && down <= up && up <= range.max());
            prop_assert!((up - down).get() <= 1e8 + 1.0);
        }

        #[test]
        fn rounding_up_stays_in_the_range_and_on_a_step(need in -10.0..1e6f64) {
            let rounded = range().round_up(Cores::new(need)).get();
            prop_assert!((0.2..=2.0).contains(&rounded));
            prop_assert!(rounded + 1e-8 >= need.min(2.0));
            let steps = rounded / 0.1;
            prop_assert!((steps - steps.round()).abs() < 1e-6);
        }
    }
}
