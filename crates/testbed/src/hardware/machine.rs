//! The machine itself: given how busy each CPU was, it counts energy, sets frequencies within caps and policies, and
//! counts idle time. Pure: no clock, no I/O; the same calls give the same state.

use super::config::{HardwareConfig, LimitKind, Zones};
use super::cpufreq::CpuFreq;
use super::cpuidle::CpuIdle;
use super::power::{Idle, Level, PowerModel};
use super::rapl::{Zone, ZoneKind};
use super::zones::{LONG_TERM_WINDOW_US, zones};
use headroom_units::{Hertz, Joules, Ratio, Seconds, Watts};
use serde::Serialize;

/// The machine is advanced in steps of at most this, seconds, so that a late tick does not blunt a cap.
const MAX_STEP_S: f64 = 0.05;
/// A jump of the clock is cut into at most so many steps; longer ones get longer steps.
const MAX_STEPS: f64 = 1_200.0;
/// The time constant with which load is smoothed before a frequency or an idle state is chosen from it, seconds: a tenth of the shortest
/// period of a control loop above, and long enough that the frequency does not follow every request.
const SMOOTHING_S: f64 = 0.1;
/// From this utilisation of its allocation on, a CPU would use whatever it is given.
const SATURATED: f64 = 0.95;
/// What one CPU was given and did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuLoad {
    /// The share of it that services are allowed to use, 0 to 1.
    pub allocated: Ratio,
    /// The share of the interval for which it was busy, 0 to `allocated`.
    pub busy: Ratio,
}

/// One CPU.
#[derive(Clone, Debug)]
struct Cpu {
    online: bool,
    allocated: f64,
    /// Smoothed: the share of the time for which it is busy. A tick of the real kernel's quota is no idle period of a core.
    busy: f64,
    /// Smoothed: work done each second over what a core does at full speed.
    work: f64,
    /// Smoothed: busy time over allocated time.
    use_of_allocation: f64,
    khz: u64,
    /// What it draws while it is idle, and whether that is in its deepest state.
    idle_w: f64,
    deep: bool,
}

/// One package.
#[derive(Clone, Debug)]
struct Package {
    level: Level,
    power_w: f64,
    /// Beside its cores and its memory, in the last step.
    uncore_w: f64,
    /// The running average that the long-term limit is held on.
    average_w: f64,
    /// HSMP's limit, where this is an AMD machine, milliwatts.
    hsmp_cap_mw: Option<u64>,
    /// A fault: limits are accepted and shown, and do nothing.
    inert: bool,
}

/// A package as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PackageState {
    /// Power in the last step, without memory.
    pub power: Watts,
    /// All energy drawn since the start, without memory.
    pub energy: Joules,
    /// The power that the limits in force allow, nothing where none is in force.
    pub allowed: Option<Watts>,
    /// The highest frequency that the limits leave to its cores.
    pub ceiling: Hertz,
    /// The share of the time for which its cores are not stopped to save power.
    pub duty: Ratio,
    /// Work its CPUs do over work at full speed.
    pub speed: Ratio,
    /// Whether no frequency and no duty cycle brings it within its limits.
    pub beyond_reach: bool,
}

/// Where the energy of packages and their memory went; together all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EnergyParts {
    /// Busy cores.
    pub work: Joules,
    /// Idle cores, with what entering and leaving their states costs, and those that are offline.
    pub idle_cores: Joules,
    /// Packages beside their cores, and memory.
    pub packages: Joules,
}

/// The emulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    model: PowerModel,
    /// Powercap zones, each package followed by its parts, psys last.
    pub(super) zones: Vec<Zone>,
    pub(super) freq: CpuFreq,
    pub(super) idle: Option<CpuIdle>,
    cpus: Vec<Cpu>,
    packages: Vec<Package>,
    cores_per_package: usize,
    platform_w: f64,
    suspended_w: f64,
    tdp_w: f64,
    elapsed_s: f64,
    energy_by: EnergyParts,
}

impl Machine {
    /// A machine that has just been switched on: everything online, full speed, counters where the configuration starts
    /// them. The configuration must have been validated.
    pub fn new(config: &HardwareConfig) -> Self {
        let model = PowerModel::new(config);
        let top = model.top();
        let amd = config.rapl.zones == Zones::Amd;
        let tdp_w = config.power.tdp_per_package.get();
        let package = Package {
            level: top,
            power_w: 0.0,
            uncore_w: model.uncore_w(0.0, 0.0, true),
            average_w: 0.0,
            hsmp_cap_mw: amd.then_some((tdp_w * 1e3) as u64),
            inert: false,
        };
        let cpus = config.cores() as usize;
        Self {
            zones: zones(config),
            freq: CpuFreq::new(config),
            idle: config
                .cpuidle
                .then(|| CpuIdle::new(cpus, config.power.idle_states.clone())),
            cpus: vec![
                Cpu {
                    online: true,
                    allocated: 0.0,
                    busy: 0.0,
                    work: 0.0,
                    use_of_allocation: 0.0,
                    khz: model.at(top).0,
                    idle_w: model.deepest_w(),
                    deep: true,
                };
                cpus
            ],
            packages: vec![package; config.packages as usize],
            cores_per_package: config.cores_per_package as usize,
            platform_w: config.power.platform.get(),
            suspended_w: config.power.suspended_per_package.get(),
            tdp_w,
            elapsed_s: 0.0,
            energy_by: EnergyParts::default(),
            model,
        }
    }

    /// Lets time pass: the CPUs were loaded as given (a missing entry is an idle CPU), at the speeds of now.
    pub fn advance(&mut self, dt: Seconds, loads: &[CpuLoad]) {
        if !(dt.get() > 0.0 && dt.is_finite()) {
            return;
        }
        let steps = (dt.get() / MAX_STEP_S).ceil().clamp(1.0, MAX_STEPS);
        let step_s = dt.get() / steps;
        let loads: Vec<(f64, f64)> = (0..self.cpus.len())
            .map(|cpu| self.bounded(cpu, loads.get(cpu)))
            .collect();
        for _ in 0..steps as usize {
            self.step(step_s, &loads);
        }
    }

    /// Allocated and busy share, within what makes sense.
    fn bounded(&self, cpu: usize, load: Option<&CpuLoad>) -> (f64, f64) {
        let share = |ratio: Ratio| {
            if ratio.get() > 0.0 {
                ratio.get().min(1.0)
            } else {
                0.0
            }
        };
        match load {
            Some(load) if self.cpus[cpu].online => {
                let allocated = share(load.allocated);
                (allocated, share(load.busy).min(allocated))
            }
            _ => (0.0, 0.0),
        }
    }

    fn step(&mut self, dt_s: f64, loads: &[(f64, f64)]) {
        self.elapsed_s += dt_s;
        let weight = 1.0 - (-dt_s / SMOOTHING_S).exp();
        for (cpu, (allocated, busy)) in loads.iter().enumerate() {
            self.cpus[cpu].busy += (busy - self.cpus[cpu].busy) * weight;
            let idle = self.idle_of(cpu);
            (self.cpus[cpu].allocated, self.cpus[cpu].idle_w) = (*allocated, idle.watts);
            self.cpus[cpu].deep = self.model.is_deepest(idle.settled.state);
            if let Some(states) = &mut self.idle {
                states.advance(cpu, dt_s, *busy, &idle);
            }
        }
        let mut machine_w = self.platform_w;
        for index in 0..self.packages.len() {
            let core_w = self.cores_w(index, |machine, cpu| {
                let (khz, duty) = machine.running(index, cpu);
                (loads[cpu].1, machine.model.busy_w(khz, duty))
            });
            let work_w: f64 = self
                .cpus_of(index)
                .map(|cpu| {
                    let (khz, duty) = self.running(index, cpu);
                    loads[cpu].1 * self.model.busy_w(khz, duty)
                })
                .sum();
            let uncore_w = self.uncore_w(index);
            self.packages[index].uncore_w = uncore_w;
            let window_s = self.window_s(index);
            let package = &mut self.packages[index];
            package.power_w = uncore_w + core_w;
            package.average_w += (package.power_w - package.average_w) * (1.0 - (-dt_s / window_s).exp());
            let (package_w, dram_w) = (package.power_w, self.model.dram_w());
            machine_w += package_w + dram_w;
            self.energy_by.work += Joules::new(work_w * dt_s);
            self.energy_by.idle_cores += Joules::new((core_w - work_w) * dt_s);
            self.energy_by.packages += Joules::new((uncore_w + dram_w) * dt_s);
            self.count(index, dt_s, [package_w, core_w, uncore_w, dram_w]);
            self.smooth(index, dt_s, loads);
            self.choose(index);
        }
        if let Some(psys) = self.zones.iter_mut().find(|zone| zone.kind == ZoneKind::Psys) {
            psys.count_j(machine_w * dt_s);
        }
    }

    fn cpus_of(&self, package: usize) -> std::ops::Range<usize> {
        package * self.cores_per_package..(package + 1) * self.cores_per_package
    }

    /// The cores of a package: each busy for a share of the time, with what that draws, and idle for the rest, whatever is
    /// allocated of it.
    fn cores_w(&self, package: usize, busy: impl Fn(&Self, usize) -> (f64, f64)) -> f64 {
        self.cpus_of(package)
            .map(|cpu| {
                if !self.cpus[cpu].online {
                    return self.model.deepest_w();
                }
                let (share, busy_w) = busy(self, cpu);
                share * busy_w + (1.0 - share) * self.cpus[cpu].idle_w
            })
            .sum()
    }

    /// A CPU while it is idle.
    fn idle_of(&self, cpu: usize) -> Idle {
        let states = self.idle.as_ref();
        let (khz, _) = self.running(cpu / self.cores_per_package, cpu);
        self.model.idle(self.cpus[cpu].busy, khz, |state| {
            states.is_none_or(|states| states.may(cpu, state))
        })
    }

    /// A package beside its cores and its memory.
    fn uncore_w(&self, package: usize) -> f64 {
        let online = || self.cpus_of(package).filter(|cpu| self.cpus[*cpu].online);
        let busy = online().map(|cpu| self.cpus[cpu].busy).sum();
        let wakeups = online().map(|cpu| self.model.wakeups(self.cpus[cpu].busy)).sum();
        self.model
            .uncore_w(busy, wakeups, online().all(|cpu| self.cpus[cpu].deep))
    }

    /// Frequency and duty cycle of a CPU now.
    fn running(&self, package: usize, cpu: usize) -> (u64, f64) {
        let (ceiling_khz, duty) = self.model.at(self.packages[package].level);
        (self.cpus[cpu].khz.min(ceiling_khz), duty)
    }

    /// The time constant of the running average: the long-term limit's window.
    fn window_s(&self, package: usize) -> f64 {
        let limit = self
            .package_zone(package)
            .and_then(|zone| zone.limit(LimitKind::LongTerm));
        let window_us = limit
            .and_then(|limit| limit.window_us().ok())
            .unwrap_or(LONG_TERM_WINDOW_US);
        (window_us as f64 / 1e6).clamp(0.001, 60.0)
    }

    fn count(&mut self, package: usize, dt_s: f64, [package_w, core_w, uncore_w, dram_w]: [f64; 4]) {
        for zone in &mut self.zones {
            match zone.kind {
                ZoneKind::Package(of) if of == package => zone.count_j(package_w * dt_s),
                ZoneKind::Core(of) if of == package => zone.count_j(core_w * dt_s),
                ZoneKind::Uncore(of) if of == package => zone.count_j(uncore_w * dt_s),
                ZoneKind::Dram(of) if of == package => zone.count_j(dram_w * dt_s),
                _ => {}
            }
        }
    }

    fn smooth(&mut self, package: usize, dt_s: f64, loads: &[(f64, f64)]) {
        let weight = 1.0 - (-dt_s / SMOOTHING_S).exp();
        for cpu in self.cpus_of(package) {
            let (allocated, busy) = loads[cpu];
            let (khz, duty) = self.running(package, cpu);
            let work = busy * self.model.speed(khz, duty);
            let used = if allocated > 0.0 { busy / allocated } else { 0.0 };
            let cpu = &mut self.cpus[cpu];
            cpu.work += (work - cpu.work) * weight;
            cpu.use_of_allocation += (used - cpu.use_of_allocation) * weight;
        }
    }

    /// Chooses the frequencies for the next step: each policy's by its governor, then the highest ceiling at which the
    /// package is expected within its limit. What the running average is above the limit is taken off it, so that an
    /// overshoot is paid back.
    fn choose(&mut self, package: usize) {
        for cpu in self.cpus_of(package) {
            let khz = match self.freq.policy_of(cpu) {
                None => self.model.at(self.model.top()).0,
                Some(policy) => {
                    let busiest = (policy.first..policy.first + policy.count)
                        .map(|cpu| &self.cpus[cpu])
                        .filter(|cpu| cpu.allocated > 0.0)
                        .map(|cpu| cpu.work / cpu.allocated)
                        .fold(0.0, f64::max);
                    self.freq.requested_khz(policy, busiest)
                }
            };
            self.cpus[cpu].khz = khz;
        }
        let level = match self.limit_w(package) {
            None => self.model.top(),
            Some(limit_w) => {
                let over_w = (self.packages[package].average_w - limit_w).max(0.0);
                self.model
                    .highest_within(limit_w - over_w, |level| self.expected_w(package, level))
            }
        };
        self.packages[package].level = level;
    }

    /// What a package is expected to draw at a level if the same work keeps coming: slower cores are busy for longer, up
    /// to their allocation, and a saturated one takes whatever speed it is given.
    fn expected_w(&self, package: usize, level: Level) -> f64 {
        let (ceiling_khz, duty) = self.model.at(level);
        let cores_w = self.cores_w(package, |machine, cpu| {
            let cpu = &machine.cpus[cpu];
            let khz = cpu.khz.min(ceiling_khz);
            let busy = match cpu.use_of_allocation >= SATURATED {
                true => cpu.allocated,
                false => (cpu.work / machine.model.speed(khz, duty)).min(cpu.allocated),
            };
            (busy, machine.model.busy_w(khz, duty))
        });
        self.packages[package].uncore_w + cores_w
    }

    /// The power that the limits in force allow a package, watts.
    fn limit_w(&self, package: usize) -> Option<f64> {
        let Package {
            inert, hsmp_cap_mw, ..
        } = self.packages[package];
        if inert {
            return None;
        }
        let hsmp_w = hsmp_cap_mw.map(|milliwatts| milliwatts as f64 / 1e3);
        let rapl_w = self.package_zone(package).and_then(Zone::allowed_w);
        rapl_w.into_iter().chain(hsmp_w).min_by(f64::total_cmp)
    }

    fn package_zone(&self, package: usize) -> Option<&Zone> {
        self.zones
            .iter()
            .find(|zone| zone.kind == ZoneKind::Package(package))
    }

    /// Whether the processors are AMD's.
    pub(super) fn is_amd(&self) -> bool {
        self.freq.is_amd() || self.packages.iter().any(|package| package.hsmp_cap_mw.is_some())
    }

    /// The number of packages.
    pub fn packages(&self) -> usize {
        self.packages.len()
    }

    /// The number of CPUs, online or not.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The package of a CPU.
    pub fn package_of(&self, cpu: usize) -> usize {
        cpu / self.cores_per_package
    }

    /// The time that has passed since the start, without suspends.
    pub fn elapsed(&self) -> Seconds {
        Seconds::new(self.elapsed_s)
    }

    /// What a CPU does over what it does at full speed, at the levels of now; nothing while it is offline.
    pub fn speed(&self, cpu: usize) -> Ratio {
        match self.cpus.get(cpu).filter(|cpu| cpu.online) {
            None => Ratio::ZERO,
            Some(_) => {
                let (khz, duty) = self.running(self.package_of(cpu), cpu);
                Ratio::new(self.model.speed(khz, duty))
            }
        }
    }

    /// The frequency of a CPU now, kHz.
    pub(super) fn khz(&self, cpu: usize) -> u64 {
        self.running(self.package_of(cpu), cpu).0
    }

    /// Whether a CPU is online.
    pub fn is_online(&self, cpu: usize) -> bool {
        self.cpus.get(cpu).is_some_and(|cpu| cpu.online)
    }

    /// Takes a CPU offline or back; CPU 0 stays.
    pub(super) fn set_online(&mut self, cpu: usize, online: bool) {
        if let Some(cpu) = self.cpus.get_mut(cpu).filter(|_| cpu != 0) {
            cpu.online = online;
        }
    }

    /// A package as it is now.
    pub fn package(&self, package: usize) -> Option<PackageState> {
        let state = self.packages.get(package)?;
        let (khz, duty) = self.model.at(state.level);
        let limit_w = self.limit_w(package);
        let cpus = self.cpus_of(package);
        let speed = cpus.clone().map(|cpu| self.speed(cpu).get()).sum::<f64>() / cpus.len() as f64;
        Some(PackageState {
            power: Watts::new(state.power_w),
            energy: Joules::new(self.package_zone(package).map_or(0.0, |zone| zone.total_j)),
            allowed: limit_w.map(Watts::new),
            ceiling: Hertz::new(khz as f64 * 1e3),
            duty: Ratio::new(duty),
            speed: Ratio::new(speed),
            beyond_reach: limit_w.is_some_and(|limit| self.expected_w(package, Level(0)) > limit),
        })
    }

    /// Where the energy of the packages and their memory went, since the start.
    pub const fn energy_by(&self) -> EnergyParts {
        self.energy_by
    }

    /// What the packages and their memory draw now.
    pub fn power(&self) -> Watts {
        let dram_w = self.model.dram_w() * self.packages.len() as f64;
        Watts::new(self.packages.iter().map(|package| package.power_w).sum::<f64>() + dram_w)
    }

    /// The most that the packages and their memory can draw: every core busy at the highest frequency.
    pub fn most_power(&self) -> Watts {
        let package_w = self.model.most_w(self.cores_per_package) + self.model.dram_w();
        Watts::new(package_w * self.packages.len() as f64)
    }

    /// The machine sleeps: its counters go on at the suspended power (or start anew, as some do on waking up), while the
    /// monotonic clock of whoever meters it stands still.
    pub fn suspend(&mut self, length: Seconds, counters_restart: bool) {
        let dt_s = if length.get() > 0.0 && length.is_finite() {
            length.get().min(1e8)
        } else {
            0.0
        };
        let packages = self.packages.len() as f64;
        for zone in &mut self.zones {
            let watts = match zone.kind {
                ZoneKind::Psys => self.suspended_w * packages,
                ZoneKind::Package(_) => self.suspended_w,
                _ => 0.0,
            };
            zone.count_j(watts * dt_s);
            if let ZoneKind::Package(_) = zone.kind {
                self.energy_by.packages += Joules::new(watts * dt_s);
            }
            if counters_restart {
                zone.set_counter_uj(0);
            }
        }
        for cpu in &mut self.cpus {
            (cpu.work, cpu.use_of_allocation) = (0.0, 0.0);
        }
        for package in &mut self.packages {
            package.average_w = 0.0;
        }
    }

    /// A fault: the limits of a package are accepted and do nothing.
    pub(super) fn set_inert(&mut self, package: usize, inert: bool) {
        if let Some(package) = self.packages.get_mut(package) {
            package.inert = inert;
        }
    }

    /// HSMP's limit of a package in microwatts, its maximum, and what it draws: nothing where this is no AMD machine.
    pub(super) fn hsmp_uw(&self, package: usize) -> Option<[u64; 3]> {
        let state = self.packages.get(package)?;
        let cap_uw = state.hsmp_cap_mw? * 1_000;
        Some([
            cap_uw,
            (self.tdp_w * 1e6) as u64,
            (state.power_w * 1e3) as u64 * 1_000,
        ])
    }

    /// Sets HSMP's limit: whole milliwatts, at most the maximum, as the firmware bounds it.
    pub(super) fn set_hsmp_cap_uw(&mut self, package: usize, microwatts: u64) {
        let most_mw = (self.tdp_w * 1e3) as u64;
        if let Some(cap) = self
            .packages
            .get_mut(package)
            .and_then(|package| package.hsmp_cap_mw.as_mut())
        {
            *cap = (microwatts / 1_000).min(most_mw);
        }
    }
}
