//! What is controlled: one service's cgroup on this machine.

use super::run;
use anyhow::bail;
use headroom_control::{Allocation, FrequencyRange, Plant, PlantError, PowerEnvelope};
use headroom_node::Roots;
use headroom_node::cap::{Limiter, LimiterOptions};
use headroom_node::cgroup::Target;
use headroom_node::cpu::UsageMeter;
use headroom_node::frequency::{FrequencyBounds, FrequencyReader};
use headroom_node::limit::LeverKind;
use headroom_node::power::{Choice, Meter, MeterPreference, PowerModel, choose_tried};
use headroom_node::restore::Registry;
use headroom_units::{Cores, Hertz, Joules, Ratio, Reading, Seconds, Source, Watts};

/// Whatever can be told how many cores and watts a service may use, and says what it used.
pub trait Machine {
    /// What was used since the last call.
    fn observe(&mut self) -> MachinePeriod;

    /// What is in force.
    fn allocated(&self) -> Allocation;

    /// Puts an allocation in force.
    ///
    /// # Errors
    /// Where the machine refuses; what was in force before stays so as far as it lets.
    fn apply(&mut self, allocation: Allocation) -> anyhow::Result<()>;
}

/// What a service used in one period. What could not be read is `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachinePeriod {
    /// CPU time.
    pub cpu_time: Option<Seconds>,
    /// Busy share of what could be used: of the allocated cores, or of the quota where a cap holds it lower. A cap
    /// that slows the processor down makes it busier in the same way.
    pub utilisation: Option<Ratio>,
    /// Mean power.
    pub power: Option<Reading<Watts>>,
    /// Energy.
    pub energy: Option<Reading<Joules>>,
    /// Share of the quota's periods in which the service was throttled.
    pub throttled: Option<Ratio>,
    /// Mean frequency.
    pub frequency: Option<Reading<Hertz>>,
    /// Which part of the machine the meter speaks of.
    pub zone: String,
    /// Readings that meters refused, for each node and its meter.
    pub refused: Vec<Refused>,
}

/// Readings of one node's meter that cannot be true and were left out, in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The node's name.
    pub node: String,
    /// The meter: `rapl`, `hwmon`.
    pub meter: String,
    /// How many.
    pub count: u64,
}

/// A cgroup with its quota, its meters and the software cap.
pub struct CgroupMachine {
    limiter: Limiter,
    usage: UsageMeter,
    meter: Box<dyn Meter>,
    frequency: Option<FrequencyReader>,
    allocated: Allocation,
    /// As it was last read: what was consumed while the meter could not be read counts when it can be again.
    energy_before: Option<Reading<Joules>>,
    refused_before: u64,
    /// What the meter answered last instead of a reading.
    meter_trouble: Option<String>,
    /// Periods in which it answered none.
    unanswered: u64,
    /// This machine's name.
    node: String,
    quota_before: Cores,
    choice: Choice,
    source: Source,
    /// Where what the processors' own files say comes from.
    hardware: Source,
}

impl CgroupMachine {
    /// Opens all that will be read and written, and changes nothing yet.
    ///
    /// # Errors
    /// A file that is missing or may not be written, a meter that cannot be used.
    pub fn open(
        roots: &Roots,
        target: &Target,
        model: PowerModel,
        preference: MeterPreference,
        options: LimiterOptions,
        registry: &Registry,
    ) -> anyhow::Result<Self> {
        let (limiter, choice) = Limiter::open(roots, target, model, preference, options, registry)?;
        // Tried with the limiter's own.
        let again = choice.again(preference);
        let (mut meter, _) = choose_tried(again, roots, target, model, limiter.allocated())?;
        let now = limiter.allocated().now();
        let source = meter.sample()?.energy.source;
        Ok(Self {
            usage: UsageMeter::open(roots, target)?,
            meter,
            frequency: FrequencyReader::open(roots),
            allocated: Allocation::new(now, model.limit(now)),
            energy_before: None,
            refused_before: 0,
            meter_trouble: None,
            unanswered: 0,
            node: run::host(),
            quota_before: now,
            choice,
            source,
            hardware: roots.source(),
            limiter,
        })
    }

    /// Which meter and which lever for caps were chosen, and why not others: what a run falls back to.
    pub fn notes(&self) -> Vec<String> {
        let Choice {
            chosen, passed_over, ..
        } = &self.choice;
        let mut meter = format!("power is {} by {chosen}", self.source);
        let unusable: Vec<String> = passed_over.iter().map(|over| over.meter.to_string()).collect();
        if !unusable.is_empty() {
            meter.push_str(&format!(
                ": no {} here (`headroom doctor` says why)",
                unusable.join(", ")
            ));
        }
        let lever = match self.limiter.lever().chosen {
            LeverKind::Frequency => {
                "power caps are held by the processors' frequency, and by CPU quota below the lowest"
                    .to_owned()
            }
            LeverKind::Software => "power caps are held in software, by CPU quota".to_owned(),
            hardware => format!("power caps are held by the hardware ({hardware})"),
        };
        vec![meter, lever]
    }

    /// Where the watts come from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The most cores that can be allocated here: the machine's, or the limit that was found.
    ///
    /// # Errors
    /// Where the machine cannot be read.
    pub fn most_cores(&self) -> anyhow::Result<Cores> {
        Ok(self.limiter.bounds()?.largest)
    }

    /// The same plant with the frequency as a lever, where it is one here.
    ///
    /// # Errors
    /// Where the machine names frequencies that are none.
    pub fn with_frequency(&self, plant: Plant) -> anyhow::Result<Plant> {
        match self.limiter.frequency() {
            Ok(bounds) => Ok(with_frequency(plant, &bounds)?),
            // `headroom doctor` says why.
            Err(_) => Ok(plant),
        }
    }

    /// The relation of cores to power, for caps between the lowest that `fewest` cores leave and the highest.
    ///
    /// # Errors
    /// Where the machine cannot be read.
    pub fn envelope(&self, model: &PowerModel, fewest: Cores) -> anyhow::Result<PowerEnvelope> {
        let smallest = self.limiter.bounds()?.smallest;
        let held = model.minimum_cap(fewest, smallest.min(fewest));
        // Where the hardware holds caps, it takes none under its own lowest.
        let lowest = self
            .limiter
            .cap_bounds()
            .map_or(held, |bounds| bounds.smallest.max(held));
        Ok(PowerEnvelope {
            base: model.base,
            per_core: model.per_allocated_core + model.per_busy_core,
            lowest_cap: lowest.min(model.limit(fewest)),
        })
    }
}

/// A plant whose frequency can be limited within these bounds.
fn with_frequency(plant: Plant, bounds: &FrequencyBounds) -> Result<Plant, PlantError> {
    let FrequencyBounds {
        lowest,
        highest,
        step,
        ..
    } = *bounds;
    // What was found as a limit may lie under what the hardware can do at least.
    let range = FrequencyRange::new(lowest.min(highest), highest, step.min(highest))?;
    Ok(plant.with_frequency(range))
}

/// What was consumed since the energy was last read; nothing at first, and where the source is another.
fn consumed(before: &mut Option<Reading<Joules>>, now: Reading<Joules>) -> Option<Reading<Joules>> {
    let before = before.replace(now).filter(|before| before.source == now.source)?;
    Some(now.map(|joules| (joules - before.value).max(Joules::ZERO)))
}

impl Machine for CgroupMachine {
    fn observe(&mut self) -> MachinePeriod {
        let usage = self
            .usage
            .sample()
            .inspect_err(|error| tracing::warn!("{error}"))
            .ok();
        let sample = self.meter.sample();
        // Once for each trouble, not in each period.
        let trouble = sample.as_ref().err().map(ToString::to_string);
        if trouble != self.meter_trouble {
            if let Some(error) = &trouble {
                tracing::warn!("the power is not known: {error}");
            }
            self.meter_trouble = trouble;
        }
        let sample = sample.ok();
        for event in self.limiter.take_events() {
            tracing::warn!("{event}");
        }
        // A cap's loop moves the quota within the period: the mean of its ends stands for it.
        let quota = self.limiter.status().quota;
        let before = std::mem::replace(&mut self.quota_before, quota);
        let usable = ((quota + before) / 2.0).min(self.allocated.cores);
        // A counter that stood still, or was not believed, consumed an unknown energy, not none.
        let energy = sample
            .as_ref()
            .filter(|sample| sample.power.is_some() || self.energy_before.is_none())
            .map(|sample| sample.energy);
        let consumed = energy.and_then(|energy| consumed(&mut self.energy_before, energy));
        self.unanswered += u64::from(sample.is_none());
        let refused: u64 = self.meter.refused().iter().map(|refused| refused.count).sum();
        let refused = refused + self.unanswered;
        let refused_before = std::mem::replace(&mut self.refused_before, refused);
        MachinePeriod {
            cpu_time: usage.map(|usage| usage.used),
            utilisation: usage
                .filter(|_| usable > Cores::ZERO)
                .map(|usage| Ratio::new(usage.busy / usable).min(Ratio::new(1.0))),
            power: sample.as_ref().and_then(|sample| sample.power),
            energy: consumed,
            throttled: usage
                .filter(|usage| usage.periods > 0)
                .map(|usage| Ratio::new(usage.throttled_periods as f64 / usage.periods as f64)),
            frequency: self
                .frequency
                .as_ref()
                .and_then(FrequencyReader::mean)
                .map(|mean| Reading::new(mean, self.hardware)),
            zone: sample
                .and_then(|sample| {
                    sample
                        .zones
                        .iter()
                        .find(|zone| zone.counted)
                        .map(|zone| zone.zone.clone())
                })
                .unwrap_or_default(),
            refused: vec![Refused {
                node: self.node.clone(),
                meter: self.meter.name().to_owned(),
                count: refused.saturating_sub(refused_before),
            }],
        }
    }

    fn allocated(&self) -> Allocation {
        self.allocated
    }

    fn apply(&mut self, allocation: Allocation) -> anyhow::Result<()> {
        let Allocation {
            cores,
            cap,
            frequency,
        } = allocation;
        let applied = self.limiter.apply(headroom_node::cap::Allocation {
            cores,
            cap: Some(cap),
            frequency,
        })?;
        if let Some(bounds) = applied.bounded {
            tracing::warn!(%cores, given = %applied.cores, "the machine bounds the cores: {bounds:?}");
        }
        self.allocated = Allocation {
            cores: applied.cores,
            cap: applied.cap.unwrap_or(cap),
            frequency: applied.frequency,
        };
        match applied.frequency_refused {
            None => Ok(()),
            Some(why) => bail!("the limit on the frequency is not in force: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::CoreRange;
    use headroom_units::{Estimated, Measured};

    #[test]
    fn what_is_consumed_is_counted_from_the_last_reading_of_the_same_source() {
        let measured = |joules: f64| Reading::from(Measured(Joules::new(joules)));
        let mut before = None;
        assert_eq!(consumed(&mut before, measured(5.0)), None);
        assert_eq!(consumed(&mut before, measured(7.0)), Some(measured(2.0)));
        let estimated = Estimated(Joules::new(9.0)).into();
        assert_eq!(consumed(&mut before, estimated), None);
        assert_eq!(consumed(&mut before, measured(20.0)), None);
        assert_eq!(consumed(&mut before, measured(21.5)), Some(measured(1.5)));
    }

    #[test]
    fn a_limit_that_was_found_under_the_lowest_frequency_leaves_one() {
        let cores = CoreRange::new(Cores::new(0.2), Cores::new(2.0), Cores::new(0.1)).unwrap();
        let power = PowerEnvelope {
            base: Watts::new(6.0),
            per_core: Watts::new(2.86),
            lowest_cap: Watts::new(6.4),
        };
        let plant = Plant::new(cores, power).unwrap();
        let bounds = |lowest, highest| FrequencyBounds {
            lowest: Hertz::new(lowest),
            highest: Hertz::new(highest),
            step: Hertz::new(1e8),
            below_turbo: None,
            efficient_floor: None,
        };
        let range = |lowest, highest| {
            let plant = with_frequency(plant, &bounds(lowest, highest)).unwrap();
            let range = plant.frequency().unwrap();
            (range.min().get(), range.max().get(), range.step().get())
        };
        assert_eq!(range(0.8e9, 2.8e9), (0.8e9, 2.8e9, 1e8));
        assert_eq!(range(0.8e9, 0.6e9), (0.6e9, 0.6e9, 1e8));
        assert!(with_frequency(plant, &bounds(0.0, 0.0)).is_err());
    }
}
