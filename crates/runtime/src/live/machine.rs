//! What is controlled: one service's cgroup on this machine.

use super::device::{Device, DevicePeriod, Refused};
use super::tick::Levers;
use crate::cluster::{Counts, RunEnergy, usable};
use anyhow::bail;
use headroom_control::{Allocation, Decision, FrequencyRange, Plant, PlantError, PowerEnvelope};
use headroom_node::agent::machine::CpuCounters;
use headroom_node::agent::{Differences, LocalMachine, LocalOptions, Machine as _, OpenError, Standing};
use headroom_node::cap::LimitError;
use headroom_node::frequency::FrequencyBounds;
use headroom_node::limit::LeverKind;
use headroom_node::power::PowerModel;
use headroom_node::restore::Registry;
use headroom_units::{Cores, Lever, Ratio, Setting, Source};
use std::time::{Duration, Instant};

/// One service's control group on this machine: [`LocalMachine`], which an agent serves too, in this process.
///
/// ```no_run
/// use headroom_control::{Allocation, Decision};
/// use headroom_node::agent::LocalOptions;
/// use headroom_node::power::PowerModel;
/// use headroom_node::{Roots, restore};
/// use headroom_runtime::live::{CgroupMachine, Device, DevicePeriod};
/// use headroom_units::{Cores, Watts};
///
/// let model = PowerModel::default_for(Cores::new(4.0))?;
/// let options = LocalOptions::of(Roots::default(), "unit:nginx.service".parse()?, model);
/// let mut machine = CgroupMachine::open(options, restore::global())?;
/// let allocation = Allocation::new(Cores::new(2.0), Watts::new(30.0));
/// machine.apply(&mut Decision::of(allocation))?;
/// // A period later.
/// let mut period = DevicePeriod::default();
/// machine.observe(&mut period);
/// println!("{:?}", period.utilisation);
/// # Ok::<(), anyhow::Error>(())
/// ```
pub struct CgroupMachine {
    local: LocalMachine,
    registry: Registry,
    model: PowerModel,
    /// This machine's name.
    node: String,
    opened: Instant,
    differences: Differences,
    cpu: Option<CpuCounters>,
    /// As it was last read.
    counts: Counts,
    energy: RunEnergy,
    /// The meter that answered last, with the zones that count.
    identity: String,
    allocated: Allocation,
}

impl CgroupMachine {
    /// Opens all that will be read and written, and changes nothing yet.
    ///
    /// # Errors
    /// A file that is missing or may not be written, a meter that cannot be used.
    pub fn open(options: LocalOptions, registry: &Registry) -> anyhow::Result<Self> {
        let model = options.model.clone();
        let mut local = LocalMachine::open(options, registry).map_err(cause)?;
        local.hold().map_err(cause)?;
        let opened = Instant::now();
        let counters = local.read();
        let mut differences = Differences::new(Duration::ZERO, counters.clone());
        let sample = differences.advance(Duration::ZERO, &counters, standing(&local));
        let counts = Counts::of(&sample);
        let mut energy = RunEnergy::default();
        energy.consumed("", &counts, false);
        let now = local.allocated();
        let limit = model.limit(now);
        Ok(Self {
            registry: registry.clone(),
            model,
            node: headroom_record::host(),
            opened,
            differences,
            cpu: counters.cpu,
            identity: counts
                .meter
                .clone()
                .unwrap_or_else(|| local.meter().chosen.to_string()),
            counts,
            energy,
            allocated: Allocation::new(now, limit),
            local,
        })
    }

    /// What is in force while an operator has paused control: everything.
    fn note_pause(&mut self) {
        self.local.put_back();
        let now = self.local.allocated();
        self.allocated = Allocation::new(now, self.model.limit(now));
    }

    /// Which meter and which lever for caps were chosen, and why not others: what a run falls back to.
    pub fn notes(&self) -> Vec<String> {
        let mut meter = format!("power is {} by ", self.source());
        // The one in use now: it may have taken the place of the chosen one.
        match self.identity.split_once(": ") {
            Some((name, zones)) => meter.push_str(&format!("{name} ({zones})")),
            None => meter.push_str(&self.identity),
        }
        meter.push_str(&self.local.meter().passed_over_in_short());
        let lever = match self.local.lever() {
            None => "power caps are not held: the control group is gone".to_owned(),
            Some(LeverKind::Frequency) => {
                "power caps are held by the processors' frequency, and by CPU quota below the lowest"
                    .to_owned()
            }
            Some(LeverKind::Software) => {
                "power caps are held in software, by CPU quota: that bounds the watts and saves none, for a quota \
                 switches no core off"
                    .to_owned()
            }
            Some(hardware) => format!("power caps are held by the hardware ({hardware})"),
        };
        vec![meter, lever]
    }

    /// The meter's name.
    pub fn meter(&self) -> String {
        self.local.meter().chosen.to_string()
    }

    /// The name of what holds caps.
    pub fn cap_lever(&self) -> String {
        self.local.lever().map_or_else(
            || "nothing: the control group is gone".to_owned(),
            |lever| lever.to_string(),
        )
    }

    /// Where the watts come from.
    pub fn source(&self) -> Source {
        self.local.meter().source
    }

    /// The most cores that can be allocated here: the machine's, or the limit that was found.
    ///
    /// # Errors
    /// Where the machine cannot be read.
    pub fn most_cores(&self) -> anyhow::Result<Cores> {
        Ok(self.local.bounds().map_err(cause)?.cores.largest)
    }

    /// The same plant with the frequency as a lever, where it is one here, and with what holds its caps.
    ///
    /// # Errors
    /// Where the machine names frequencies that are none.
    pub fn with_frequency(&self, plant: Plant) -> anyhow::Result<Plant> {
        let plant = match self.local.lever() {
            Some(LeverKind::Software) | None => plant,
            Some(_) => plant.with_hardware_cap(),
        };
        match self.local.bounds().map_err(cause)?.frequency {
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
        let bounds = self.local.bounds().map_err(cause)?;
        let held = model.minimum_cap(bounds.cores.smallest.min(fewest));
        // Where the hardware holds caps, it takes none under its own lowest.
        let lowest = bounds.cap.map_or(held, |bounds| bounds.smallest.max(held));
        Ok(PowerEnvelope {
            base: model.limit(Cores::ZERO),
            per_core: model.per_busy_core(Ratio::new(1.0)),
            lowest_cap: lowest.min(model.limit(fewest)),
        })
    }
}

/// What a machine that cannot be opened or limited says, by the type of its cause.
fn cause(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Limit(error) => (*error).into(),
        OpenError::Meter(error) => error.into(),
        error => error.into(),
    }
}

fn standing(local: &LocalMachine) -> Standing {
    Standing {
        agent_run: 0,
        in_force: local.in_force(),
        lease: None,
        troubles: Vec::new(),
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

impl Device for CgroupMachine {
    fn begin(&mut self) -> Option<String> {
        self.energy.begin(self.identity.clone());
        Some(self.identity.clone())
    }

    fn observe(&mut self, period: &mut DevicePeriod) {
        let counters = self.local.read();
        for trouble in &counters.troubles {
            tracing::warn!("{trouble}");
        }
        let throttled = counters
            .cpu
            .zip(self.cpu)
            .and_then(|(now, before)| now.throttled_since(&before));
        self.cpu = counters.cpu.or(self.cpu);
        let sample = self
            .differences
            .advance(self.opened.elapsed(), &counters, standing(&self.local));
        let now = Counts::of(&sample);
        let refused = now.refused_since(&self.counts).map(|refused| Refused {
            node: self.node.clone(),
            meter: refused.meter,
            count: refused.count,
        });
        let (_, cpu_time) = now.since(&self.counts);
        let power = sample.energy.and_then(|energy| energy.power);
        let energy = self.energy.consumed(&self.node, &now, power.is_some());
        if let Some(identity) = &now.meter {
            self.identity.clone_from(identity);
        }
        self.counts = Counts {
            cpu: now.cpu.or(self.counts.cpu),
            ..now
        };
        let usable = usable(self.allocated.cores, Some(&sample));
        let standing = self.registry.standing();
        *period = DevicePeriod {
            cpu_time,
            utilisation: sample
                .cpu
                .filter(|_| usable > Cores::ZERO)
                .map(|cpu| Ratio::new(cpu.busy / usable).min(Ratio::new(1.0))),
            power,
            energy,
            throttled,
            frequency: sample.frequency,
            zone: sample
                .zones
                .into_iter()
                .find(|zone| zone.in_total)
                .map(|zone| zone.name)
                .unwrap_or_default(),
            refused: refused.into_iter().collect(),
            levers_lost: self.local.levers_lost(),
            levers: Levers {
                paused: standing.paused,
                left_alone: standing.held.iter().map(ToString::to_string).collect(),
                foreign_writes: standing.foreign_writes,
                gone: self.local.gone().map(str::to_owned),
            },
            ..std::mem::take(period)
        };
    }

    fn in_force(&self) -> Setting {
        self.allocated.into()
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        let cores = decision.setting.cores().unwrap_or(self.allocated.cores);
        let cap = decision.setting.cap().unwrap_or(self.allocated.cap);
        let setting = decision
            .setting
            .with(Lever::Cores, Some(cores.get()))
            .with(Lever::Cap, Some(cap.get()));
        if self.registry.is_paused() {
            self.note_pause();
            return Ok(());
        }
        let applied = match self.local.set(setting) {
            Ok(applied) => applied,
            // An operator was faster.
            Err(_) if self.registry.is_paused() => {
                self.note_pause();
                return Ok(());
            }
            Err(error) => {
                let error = cause(error);
                if let Some(LimitError::Unguarded { .. }) = error.downcast_ref() {
                    self.allocated.cores = self.local.allocated();
                    self.allocated.frequency = None;
                }
                return Err(error);
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
    use headroom_units::{Hertz, Watts};

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
