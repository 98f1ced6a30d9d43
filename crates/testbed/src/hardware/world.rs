//! The emulated machine with its control groups and faults: what the tree shows and what the clock moves. It reads no
//! clock itself; what is real is behind [`Backing`].

use super::backing::{Backing, Sample};
use super::config::{CgroupVersion, HardwareConfig};
use super::error::HardwareError;
use super::fault::{Command, Fault, FaultError, MAX_FAULTS};
use super::groups::{Groups, Hierarchy};
use super::machine::{CpuLoad, EnergyParts, Machine, PackageState};
use super::rapl::ZoneKind;
use headroom_units::{Cores, Joules, Ratio, Seconds, Watts};
use serde::Serialize;
use std::collections::BTreeMap;

/// Whether processes are in a group is looked up in every so many ticks.
const TICKS_BETWEEN_LOOKS: u64 = 25;

/// A fault that is switched on.
#[derive(Clone, Debug)]
pub struct Active {
    /// The fault that is injected.
    pub fault: Fault,
    /// What the counter stood at, for one that is frozen.
    pub frozen_uj: Option<u64>,
}

/// The state of a control group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupState {
    /// Its name, without a leading slash.
    pub name: String,
    /// The emulated cores it may use now.
    pub entitled: Cores,
    /// The emulated cores it used in the last interval, without the groups below it.
    pub busy: Cores,
    /// Work its cores do over work at full speed.
    pub speed: Ratio,
    /// The real cores it is limited to; zero where nothing real is behind it.
    pub real_cores: Cores,
    /// Busy time that was over every entitlement and not counted, core-seconds.
    pub dropped_s: Seconds,
}

/// The truth about the machine, for tests and for whoever watches; agents see the tree instead.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Since the start, without suspends.
    pub elapsed: Seconds,
    /// Packages and memory, now.
    pub power: Watts,
    /// Packages and memory, since the start.
    pub energy: Joules,
    /// The same by where it went.
    pub energy_by: EnergyParts,
    /// All cores busy at the highest frequency.
    pub most_power: Watts,
    /// Each package.
    pub packages: Vec<PackageState>,
    /// Each control group but the root.
    pub groups: Vec<GroupState>,
    /// The faults that are switched on.
    pub faults: Vec<String>,
}

/// All of it.
pub struct World {
    pub(super) config: HardwareConfig,
    pub(super) machine: Machine,
    pub(super) groups: Groups,
    pub(super) backing: Box<dyn Backing>,
    pub(super) faults: Vec<Active>,
    /// Real cores for one emulated one.
    real_per_core: f64,
    /// What was allocated in the interval that is going on.
    allocation: Vec<f64>,
    busy: BTreeMap<String, f64>,
    /// Busy time of each CPU since the start, seconds.
    pub(super) cpu_busy_s: Vec<f64>,
    /// Whether the network card chooses itself for how long it collects what it receives, and for how long else, microseconds.
    pub(super) coalescing: (bool, u64),
    ticks: u64,
}

impl World {
    /// A machine that has just been switched on. `real_cores` stand for all its cores. The configuration must have been
    /// validated.
    pub fn new(config: HardwareConfig, backing: Box<dyn Backing>, real_cores: f64) -> Self {
        let cpus = config.cores() as usize;
        let mut world = Self {
            machine: Machine::new(&config),
            groups: Groups::new(config.cgroup, cpus, config.packages as usize),
            backing,
            faults: Vec::new(),
            real_per_core: real_cores / cpus as f64,
            allocation: vec![0.0; cpus],
            busy: BTreeMap::new(),
            cpu_busy_s: vec![0.0; cpus],
            coalescing: (true, 4),
            ticks: 0,
            config,
        };
        world.settle();
        world
    }

    /// The groups that are limited and measured, a group before those below it; the root is not among them.
    fn limited(&self) -> Vec<String> {
        let mut names = self.groups.names();
        names.retain(|name| !name.is_empty() && self.groups.is_in(name, Hierarchy::Cpu));
        names
    }

    /// Lets time pass: takes in what the real groups used, turns it into busy emulated cores, advances the machine, and
    /// sets the real limits for the interval to come.
    pub fn tick(&mut self, dt: Seconds) {
        let dt_s = dt.get();
        if !(dt_s > 0.0 && dt_s.is_finite()) {
            return;
        }
        let names = self.limited();
        let samples: BTreeMap<String, _> = names
            .iter()
            .filter_map(|name| Some((name.clone(), self.backing.sample(name)?)))
            .collect();
        let look = self.ticks.is_multiple_of(TICKS_BETWEEN_LOOKS);
        self.ticks += 1;
        let mut loads: Vec<f64> = vec![0.0; self.machine.cpus()];
        self.busy.clear();
        for name in &names {
            let sample = samples.get(name).copied().unwrap_or_default();
            let below: f64 = self
                .groups
                .children(name, Hierarchy::Cpu)
                .iter()
                .filter_map(|c| samples.get(c))
                .map(|s| s.used_s)
                .sum();
            let own_s = (sample.used_s - below).max(0.0);
            let populated = look.then(|| self.backing.processes(name).is_ok_and(|pids| !pids.is_empty()));
            let cpus = self.effective_cpus(name);
            let Some(group) = self.groups.get_mut(name) else {
                continue;
            };
            if let Some(populated) = populated {
                group.populated = populated;
            }
            // The share of its real limit that it used is the share of its entitlement that it was busy.
            let real = if sample.share > 0.0 {
                own_s / sample.share * group.entitled
            } else {
                0.0
            };
            let synthetic = group.synthetic.unwrap_or(0.0).min(group.entitled) * dt_s;
            let busy = group.count_busy(dt_s, real + synthetic);
            // Without a quota of its own the group is not throttled: the emulated machine is as fast as it is.
            let quota = group.quota_us.is_some();
            let throttled = if quota { sample } else { Sample::default() };
            let Sample {
                periods,
                throttled_periods,
                throttled_s,
                ..
            } = throttled;
            group.count_throttled(dt_s, periods, throttled_periods, throttled_s);
            cpus.iter()
                .for_each(|cpu| loads[*cpu] += busy / cpus.len() as f64);
            self.busy.insert(name.clone(), busy);
        }
        let loads: Vec<CpuLoad> = loads
            .iter()
            .zip(&self.allocation)
            .map(|(busy, allocated)| CpuLoad {
                allocated: Ratio::new(*allocated),
                busy: Ratio::new(busy.min(*allocated)),
            })
            .collect();
        self.cpu_busy_s
            .iter_mut()
            .zip(&loads)
            .for_each(|(sum, load)| *sum += load.busy.get() * dt_s);
        self.machine.advance(dt, &loads);
        self.settle();
    }

    /// Fixes, for the interval to come, what is allocated, what each group may use, and the real limits that follow.
    fn settle(&mut self) {
        let online: Vec<bool> = (0..self.machine.cpus())
            .map(|cpu| self.machine.is_online(cpu))
            .collect();
        let is_online = |cpu: usize| online.get(cpu).copied().unwrap_or(false);
        self.allocation = self.groups.allocation(is_online);
        let whole: f64 = (0..online.len()).map(|cpu| self.machine.speed(cpu).get()).sum();
        let mut shares = vec![(String::new(), whole * self.real_per_core)];
        for name in self.limited() {
            let entitled = self.groups.entitlement(&name, is_online);
            shares.push((name.clone(), entitled * self.speed_of(&name) * self.real_per_core));
            if let Some(group) = self.groups.get_mut(&name) {
                group.entitled = entitled;
            }
        }
        self.backing.apply(&shares);
    }

    pub(super) fn effective_cpus(&self, name: &str) -> Vec<usize> {
        self.groups
            .effective_cpus(name, |cpu| self.machine.is_online(cpu))
    }

    /// The mean speed of the CPUs that a group may run on.
    fn speed_of(&self, name: &str) -> f64 {
        let cpus = self.effective_cpus(name);
        cpus.iter().map(|cpu| self.machine.speed(*cpu).get()).sum::<f64>() / cpus.len().max(1) as f64
    }

    /// The truth.
    pub fn snapshot(&self) -> Snapshot {
        let counted = |kind| matches!(kind, ZoneKind::Package(_) | ZoneKind::Dram(_));
        let zones = self.machine.zones.iter().filter(|zone| counted(zone.kind));
        let states = self.limited().into_iter().filter_map(|name| {
            let group = self.groups.get(&name)?;
            let speed = self.speed_of(&name);
            Some(GroupState {
                entitled: Cores::new(group.entitled),
                busy: Cores::new(self.busy.get(&name).copied().unwrap_or(0.0)),
                speed: Ratio::new(speed),
                real_cores: Cores::new(group.entitled * speed * self.real_per_core),
                dropped_s: Seconds::new(group.dropped_s),
                name,
            })
        });
        Snapshot {
            elapsed: self.machine.elapsed(),
            power: self.machine.power(),
            energy: Joules::new(zones.map(|zone| zone.total_j).sum()),
            energy_by: self.machine.energy_by(),
            most_power: self.machine.most_power(),
            packages: (0..self.machine.packages())
                .filter_map(|package| self.machine.package(package))
                .collect(),
            groups: states.collect(),
            faults: self
                .faults
                .iter()
                .map(|active| active.fault.to_string())
                .collect(),
        }
    }

    /// Real cores for one emulated one.
    pub fn real_per_core(&self) -> f64 {
        self.real_per_core
    }

    /// Does what a line of the control file says.
    ///
    /// # Errors
    /// [`HardwareError`]: it names something that this machine has not, or too many faults are on.
    pub fn command(&mut self, command: Command) -> Result<(), HardwareError> {
        match command {
            Command::Set(fault) => self.set(fault),
            Command::Clear(fault) => {
                self.faults.retain(|active| active.fault != fault);
                self.refresh();
                Ok(())
            }
            Command::ClearAll => {
                self.faults.clear();
                self.refresh();
                Ok(())
            }
            Command::Suspend { seconds, restart } => {
                self.machine.suspend(Seconds::new(seconds), restart);
                Ok(())
            }
            Command::Counter { zone, microjoules } => {
                let at = self.zone(&zone)?;
                self.machine.zones[at].set_counter_uj(microjoules);
                Ok(())
            }
            Command::Jump { zone, microjoules } => {
                let at = self.zone(&zone)?;
                self.machine.zones[at].bump_uj(microjoules as f64);
                Ok(())
            }
            Command::Load { group, cores } => {
                let name = group.trim_matches('/');
                let has = self.groups.names().join(", ");
                let found = self.groups.get_mut(name).filter(|_| !name.is_empty());
                let group = found.ok_or(HardwareError::NoSuch {
                    what: "control group",
                    name: group.clone(),
                    has,
                })?;
                group.synthetic = (cores > 0.0).then_some(cores);
                self.settle();
                Ok(())
            }
        }
    }

    fn zone(&self, id: &str) -> Result<usize, HardwareError> {
        self.machine
            .zones
            .iter()
            .position(|zone| zone.id == id)
            .ok_or_else(|| HardwareError::NoSuch {
                what: "powercap zone",
                name: id.into(),
                has: list(self.machine.zones.iter().map(|zone| zone.id.clone())),
            })
    }

    /// Switches a fault on; one that is on already stays as it is.
    fn set(&mut self, fault: Fault) -> Result<(), HardwareError> {
        let frozen_uj = match &fault {
            Fault::Frozen(zone) => Some(self.machine.zones[self.zone(zone)?].energy_uj()),
            Fault::Locked(zone) | Fault::Inert(zone) => {
                self.zone(zone)?;
                None
            }
            Fault::Inactive(policy) => {
                self.policy(policy)?;
                None
            }
            _ => None,
        };
        if self.faults.iter().any(|active| active.fault == fault) {
            return Ok(());
        }
        if self.faults.len() >= MAX_FAULTS {
            return Err(FaultError::TooMany.into());
        }
        self.faults.push(Active { fault, frozen_uj });
        self.refresh();
        Ok(())
    }

    fn policy(&self, name: &str) -> Result<usize, HardwareError> {
        let policies = &self.machine.freq.policies;
        let named = |first: usize| format!("policy{first}");
        policies
            .iter()
            .position(|policy| named(policy.first) == name)
            .ok_or_else(|| HardwareError::NoSuch {
                what: "frequency policy",
                name: name.into(),
                has: list(policies.iter().map(|policy| named(policy.first))),
            })
    }

    /// Brings the machine in line with the faults that act on it rather than on a file.
    fn refresh(&mut self) {
        let on = |wanted: &Fault| self.faults.iter().any(|active| active.fault == *wanted);
        let locked: Vec<bool> = self
            .machine
            .zones
            .iter()
            .map(|z| on(&Fault::Locked(z.id.clone())))
            .collect();
        let inert: Vec<(usize, bool)> = self
            .machine
            .zones
            .iter()
            .filter_map(|zone| match zone.kind {
                ZoneKind::Package(package) => Some((package, on(&Fault::Inert(zone.id.clone())))),
                _ => None,
            })
            .collect();
        for (zone, locked) in self.machine.zones.iter_mut().zip(locked) {
            zone.limits.iter_mut().for_each(|limit| limit.locked = locked);
        }
        for (package, inert) in inert {
            self.machine.set_inert(package, inert);
        }
    }

    /// Adds a group that exists in reality already.
    ///
    /// # Errors
    /// The kernel's, as for mkdir.
    pub(super) fn adopt(&mut self, name: &str) -> Result<(), rustix::io::Errno> {
        self.groups.create(name, Hierarchy::Cpu)?;
        if self.config.cgroup == CgroupVersion::V1 {
            self.groups.create(name, Hierarchy::Cpuset)?;
        }
        if let Some(group) = self.groups.get_mut(name) {
            group.populated = true;
        }
        self.settle();
        Ok(())
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}
