//! What is controlled: one service's cgroup on this machine.

use super::levers::LeverWatch;
use super::metered::Metered;
use super::tick::Levers;
use anyhow::{anyhow, bail};
use headroom_control::{Allocation, FrequencyRange, Plant, PlantError, PowerEnvelope};
use headroom_node::Roots;
use headroom_node::cap::{LimitError, Limiter, LimiterOptions};
use headroom_node::cgroup::{Target, TargetSpec};
use headroom_node::cpu::UsageMeter;
use headroom_node::frequency::{FrequencyBounds, FrequencyReader};
use headroom_node::limit::LeverKind;
use headroom_node::power::{Choice, Meter, MeterPreference, PowerModel, choose_tried, settled};
use headroom_node::restore::Registry;
use headroom_units::{Cores, Hertz, Joules, Ratio, Reading, Seconds, Source, Watts};

/// Whatever can be told how many cores and watts a service may use, and says what it used.
pub trait Machine {
    /// A run begins. Which meter its energy is of, with the zones that count, where there is one: while another answers,
    /// or others count, energy is unknown.
    fn begin(&mut self) -> Option<String> {
        None
    }

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
    /// What keeps the levers from being moved.
    pub levers: Levers,
    /// Whether a lever was not in force, or another one than at the start held the cap.
    pub levers_lost: bool,
    /// Nodes that could not be reached.
    pub missing: Missing,
}

/// Nodes of a run that could not be reached in a period: each counts as having everything on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Missing {
    /// How many.
    pub nodes: u64,
    /// All their cores.
    pub cores: Cores,
    /// What those can need.
    pub cap: Watts,
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

/// What a machine is opened with, and opened again where its control group is made anew.
#[derive(Clone)]
struct Opening {
    roots: Roots,
    /// How the service is found again; the same group where nothing is given.
    spec: Option<TargetSpec>,
    target: Target,
    model: PowerModel,
    preference: MeterPreference,
    options: LimiterOptions,
    registry: Registry,
}

/// A cgroup with its quota, its meters and the software cap.
pub struct CgroupMachine {
    opening: Opening,
    /// Nothing from the moment on that the control group is gone until it is there again.
    limiter: Option<Limiter>,
    /// Why there is none.
    gone: Option<String>,
    usage: UsageMeter,
    meter: Box<dyn Meter>,
    frequency: Option<FrequencyReader>,
    allocated: Allocation,
    metered: Metered,
    refused_before: u64,
    /// What the meter answered last instead of a reading.
    meter_trouble: Option<String>,
    /// Periods in which it answered none.
    unanswered: u64,
    /// This machine's name.
    node: String,
    quota_before: Cores,
    levers: LeverWatch,
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
        let first = settled(&mut *meter)?;
        Ok(Self {
            opening: Opening {
                roots: roots.clone(),
                spec: None,
                target: target.clone(),
                model,
                preference,
                options,
                registry: registry.clone(),
            },
            gone: None,
            usage: UsageMeter::open(roots, target)?,
            metered: Metered::by(first.identity(meter.name())),
            meter,
            frequency: FrequencyReader::open(roots),
            allocated: Allocation::new(now, model.limit(now)),
            refused_before: 0,
            meter_trouble: None,
            unanswered: 0,
            node: headroom_record::host(),
            quota_before: now,
            levers: LeverWatch::default(),
            choice,
            source: first.energy.source,
            hardware: roots.source(),
            limiter: Some(limiter),
        })
    }

    /// Finds the service anew by this where its control group is gone.
    pub fn follow(&mut self, spec: TargetSpec) {
        self.opening.spec = Some(spec);
    }

    fn limiter(&self) -> anyhow::Result<&Limiter> {
        let gone = || anyhow!("{}", self.gone.as_deref().unwrap_or("the control group is gone"));
        self.limiter.as_ref().ok_or_else(gone)
    }

    /// Gives up what limits a control group that is gone.
    fn lose(&mut self, why: &str) {
        let target = &self.opening.target;
        let gone = format!(
            "the control group of {} is gone, so that nothing is limited: {} is not there; it is taken up again when it is \
             ({why})",
            target.name,
            target.cpu_dir.display()
        );
        tracing::error!("{gone}");
        self.gone = Some(gone);
        self.limiter = None;
    }

    /// Takes up the control group where it is there again.
    fn find(&mut self) -> anyhow::Result<()> {
        if self.limiter.is_some() {
            return Ok(());
        }
        let Opening {
            roots,
            spec,
            target,
            model,
            preference,
            options,
            registry,
        } = self.opening.clone();
        let target = match &spec {
            Some(spec) => Target::resolve(&roots, spec)?,
            None => target,
        };
        let mut anew = Self::open(&roots, &target, model, preference, options, &registry)?;
        tracing::warn!("{} is there again, and controlled", target.name);
        anew.metered.go_on(&self.metered);
        let allocated = self.allocated;
        *self = Self { allocated, ..anew };
        self.opening.spec = spec;
        Ok(())
    }

    /// What is in force while an operator has paused control: everything.
    fn note_pause(&mut self) -> anyhow::Result<()> {
        let limiter = self.limiter()?;
        limiter.note_pause()?;
        let now = limiter.bounds()?.largest;
        self.allocated = Allocation::new(now, self.opening.model.limit(now));
        Ok(())
    }

    /// Which meter and which lever for caps were chosen, and why not others: what a run falls back to.
    pub fn notes(&self) -> Vec<String> {
        let passed_over = &self.choice.passed_over;
        let mut meter = format!("power is {} by ", self.source);
        // The one in use now: it may have taken the place of the chosen one.
        match self.metered.identity().split_once(": ") {
            Some((name, zones)) => meter.push_str(&format!("{name} ({zones})")),
            None => meter.push_str(self.metered.identity()),
        }
        let unusable: Vec<String> = passed_over.iter().map(|over| over.meter.to_string()).collect();
        if !unusable.is_empty() {
            meter.push_str(&format!(
                ": no {} here (`headroom doctor` says why)",
                unusable.join(", ")
            ));
        }
        let lever = match self.limiter.as_ref().map(|limiter| limiter.lever().chosen) {
            None => "power caps are not held: the control group is gone".to_owned(),
            Some(LeverKind::Frequency) => {
                "power caps are held by the processors' frequency, and by CPU quota below the lowest"
                    .to_owned()
            }
            Some(LeverKind::Software) => "power caps are held in software, by CPU quota".to_owned(),
            Some(hardware) => format!("power caps are held by the hardware ({hardware})"),
        };
        vec![meter, lever]
    }

    /// The meter's name.
    pub fn meter(&self) -> String {
        self.choice.chosen.to_string()
    }

    /// The name of what holds caps.
    pub fn cap_lever(&self) -> String {
        self.limiter.as_ref().map_or_else(
            || "nothing: the control group is gone".to_owned(),
            |limiter| limiter.lever().chosen.to_string(),
        )
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
        Ok(self.limiter()?.bounds()?.largest)
    }

    /// The same plant with the frequency as a lever, where it is one here.
    ///
    /// # Errors
    /// Where the machine names frequencies that are none.
    pub fn with_frequency(&self, plant: Plant) -> anyhow::Result<Plant> {
        match self.limiter()?.frequency() {
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
        let limiter = self.limiter()?;
        let smallest = limiter.bounds()?.smallest;
        let held = model.minimum_cap(fewest, smallest.min(fewest));
        // Where the hardware holds caps, it takes none under its own lowest.
        let lowest = limiter
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

impl Machine for CgroupMachine {
    fn begin(&mut self) -> Option<String> {
        Some(self.metered.begin().to_owned())
    }

    fn observe(&mut self) -> MachinePeriod {
        // Whoever asks once a period does not hang, also while it decides nothing yet.
        if let Some(limiter) = &self.limiter {
            limiter.renew();
        }
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
        let mut quota = self.allocated.cores;
        if let Some(limiter) = &self.limiter {
            for event in limiter.take_events() {
                tracing::warn!("{event}");
                self.levers.note(&event);
            }
            // A cap's loop moves the quota within the period: the mean of its ends stands for it.
            quota = limiter.status().quota;
        }
        let standing = self.opening.registry.standing();
        let before = std::mem::replace(&mut self.quota_before, quota);
        let usable = ((quota + before) / 2.0).min(self.allocated.cores);
        let consumed = sample
            .as_ref()
            .and_then(|sample| self.metered.consumed(self.meter.name(), sample));
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
            levers_lost: self.levers.lost(),
            missing: Missing::default(),
            levers: Levers {
                paused: standing.paused,
                left_alone: standing.held.iter().map(ToString::to_string).collect(),
                foreign_writes: standing.foreign_writes,
                gone: self.gone.clone(),
            },
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
        self.find()?;
        if self.opening.registry.is_paused() {
            return self.note_pause();
        }
        let asked = headroom_node::cap::Allocation {
            cores,
            cap: Some(cap),
            frequency,
        };
        let applied = match self.limiter()?.apply(asked) {
            Ok(applied) => applied,
            // An operator was faster.
            Err(_) if self.opening.registry.is_paused() => return self.note_pause(),
            Err(error) => {
                if matches!(error, LimitError::Unguarded { .. })
                    && let Some(limiter) = &self.limiter
                {
                    self.allocated.cores = limiter.status().quota;
                    self.allocated.frequency = None;
                }
                if error.is_gone() {
                    self.lose(&error.to_string());
                }
                return Err(error.into());
            }
        };
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
