//! What machine is emulated. The defaults are the servers of the SLO-Power testbed: two packages of eight cores,
//! 0.8 to 2.1 GHz, 92 W with all sixteen cores busy.

use super::error::ConfigError;
use headroom_physics::machine::ProcessorFigures;
use headroom_physics::{FrequencyFigures, IdleState, MachineFigures, ServerFigures};
use headroom_units::{Cores, Hertz, PerSecond, Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most packages.
pub const MAX_PACKAGES: u32 = 8;
/// The most cores of a package.
pub const MAX_CORES_PER_PACKAGE: u32 = 128;

/// The most states of acpi-cpufreq that can be named.
const MAX_STATES: usize = 64;
/// Hardware changes frequency in steps of the bus clock.
const STEP: Hertz = Hertz::new(1e8);
/// From so long on a package's sleep pays.
const PACKAGE_BREAK_EVEN: Seconds = Seconds::new(0.001);

/// The key under which this configuration has a figure of a machine.
fn field_of(key: &str) -> &'static str {
    match key.trim_start_matches("processor.") {
        "uncore_asleep" => "power.uncore_asleep_per_package",
        "background" => "power.background",
        "frequency.lowest_voltage" => "power.lowest_voltage",
        "frequency.dynamic" => "power.dynamic_per_core",
        _ => "power.idle_states",
    }
}

/// The emulated machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HardwareConfig {
    /// Processor packages, 1 to 8.
    pub packages: u32,
    /// Cores of each package, 1 to 128, one hardware thread each.
    pub cores_per_package: u32,
    /// The cpufreq driver.
    pub driver: Driver,
    /// CPUs that share one frequency policy; it must divide the cores of a package.
    pub cpus_per_policy: u32,
    /// The states of acpi-cpufreq between the lowest and the base frequency, in any order; empty for steps of 100 MHz.
    pub frequency_states: Vec<Hertz>,
    /// Its frequencies.
    pub frequency: FrequencyRange,
    /// What it draws.
    pub power: PowerFigures,
    /// The powercap tree.
    pub rapl: RaplConfig,
    /// Whether there are cpuidle states; virtual machines have none.
    pub cpuidle: bool,
    /// The version of the emulated control groups.
    pub cgroup: CgroupVersion,
    /// Real cores that stand for all the emulated ones together. Not given: 60 % of those this process may use, so
    /// that gateway and load generator keep the rest.
    pub real_cores: Option<Cores>,
    /// Between two steps of the emulator's clock. Zero: time moves only when the test moves it.
    pub tick: Seconds,
}

impl Default for HardwareConfig {
    fn default() -> Self {
        Self {
            packages: 2,
            cores_per_package: 8,
            driver: Driver::IntelPstateActive,
            cpus_per_policy: 1,
            frequency: FrequencyRange::default(),
            frequency_states: Vec::new(),
            power: PowerFigures::default(),
            rapl: RaplConfig::default(),
            cpuidle: true,
            cgroup: CgroupVersion::V2,
            real_cores: None,
            tick: Seconds::from_millis(10.0),
        }
    }
}

/// A cpufreq driver and its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// intel_pstate in active mode: governors performance and powersave, energy preference.
    IntelPstateActive,
    /// intel_pstate in passive mode, which calls itself intel_cpufreq: the generic governors.
    IntelPstatePassive,
    /// acpi-cpufreq: discrete frequencies, the generic governors.
    AcpiCpufreq,
    /// amd-pstate in active mode (amd-pstate-epp).
    AmdPstateActive,
    /// amd-pstate in passive mode.
    AmdPstatePassive,
    /// amd-pstate in guided mode.
    AmdPstateGuided,
    /// No driver: an empty cpufreq directory, as in most virtual machines. The firmware chooses the highest frequency.
    None,
}

impl Driver {
    /// What cpufreq calls it, its mode where it has modes, and what people call it.
    pub(super) const fn names(self) -> (&'static str, Option<&'static str>, &'static str) {
        match self {
            Self::IntelPstateActive => ("intel_pstate", Some("active"), "intel_pstate (active)"),
            Self::IntelPstatePassive => ("intel_cpufreq", Some("passive"), "intel_pstate (passive)"),
            Self::AcpiCpufreq => ("acpi-cpufreq", None, "acpi-cpufreq"),
            Self::AmdPstateActive => ("amd-pstate-epp", Some("active"), "amd-pstate (active)"),
            Self::AmdPstatePassive => ("amd-pstate", Some("passive"), "amd-pstate (passive)"),
            Self::AmdPstateGuided => ("amd-pstate", Some("guided"), "amd-pstate (guided)"),
            Self::None => ("", None, "no cpufreq driver"),
        }
    }
}

/// The frequencies of every core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrequencyRange {
    /// The lowest.
    pub min: Hertz,
    /// The highest without turbo.
    pub base: Hertz,
    /// The highest; the same as `base` where there is no turbo.
    pub max: Hertz,
}

impl Default for FrequencyRange {
    fn default() -> Self {
        Self {
            min: Hertz::new(0.8e9),
            base: Hertz::new(2.1e9),
            max: Hertz::new(2.1e9),
        }
    }
}

/// What the machine draws, by the physics of [`headroom_physics`]: busy cores by frequency and voltage, idle cores by the state
/// that their idle periods allow, packages by whether all their cores sleep. With the defaults all cores busy draw 92 W, as
/// the SLO-Power testbed does; a core that is not allocated idles like any other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerFigures {
    /// A busy core's dynamic power at the highest frequency. It falls with f V(f)^2.
    pub dynamic_per_core: Watts,
    /// A busy core's leakage at the highest frequency. It falls with V(f).
    pub leakage_per_core: Watts,
    /// The voltage at the lowest frequency over that at the highest, above 0 and at most 1; between them it is linear.
    pub lowest_voltage: f64,
    /// The idle states of a core, the shallowest first, as intel_idle lists them, with what they draw.
    pub idle_states: Vec<IdleState>,
    /// A package beside its cores, memory included, while a core of it is up.
    pub uncore_per_package: Watts,
    /// The same while all its cores are in their deepest state.
    pub uncore_asleep_per_package: Watts,
    /// The part of both that is the memory of a package: its dram zone.
    pub dram_per_package: Watts,
    /// What wakes each core that runs nothing: timers, interrupts.
    pub background: PerSecond,
    /// How often a core that runs work is woken for each second that it is busy: one over the length of a piece of work.
    pub wakeups_per_busy_second: PerSecond,
    /// Fans, disks and the power supply's loss: counted by the psys zone alone.
    pub platform: Watts,
    /// Each package while the machine is suspended.
    pub suspended_per_package: Watts,
    /// The thermal design power of a package: its long-term limit at the start. The short-term limit is 1.2 times it.
    pub tdp_per_package: Watts,
}

impl Default for PowerFigures {
    fn default() -> Self {
        Self {
            dynamic_per_core: Watts::new(2.5),
            leakage_per_core: Watts::new(0.36),
            lowest_voltage: 0.7,
            idle_states: vec![
                IdleState::new("C1", 0.86, 2.0, 2.0, 2.0),
                IdleState::new("C1E", 0.53, 10.0, 20.0, 20.0),
                IdleState::new("C3", 0.36, 40.0, 100.0, 100.0),
                IdleState::new("C6", 0.06, 133.0, 400.0, 1000.0),
            ],
            uncore_per_package: Watts::new(23.26),
            uncore_asleep_per_package: Watts::new(8.0),
            dram_per_package: Watts::new(1.5),
            background: PerSecond::new(20.0),
            wakeups_per_busy_second: PerSecond::new(400.0),
            platform: Watts::new(20.0),
            suspended_per_package: Watts::new(1.0),
            tdp_per_package: Watts::new(50.0),
        }
    }
}

/// The powercap tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaplConfig {
    /// What kind of zones there are.
    pub zones: Zones,
    /// Whether each package has an uncore subzone beside core and dram.
    pub uncore: bool,
    /// Whether there is a psys zone for the whole platform.
    pub psys: bool,
    /// The limits of a package in the order of their constraint numbers.
    pub constraints: Vec<LimitKind>,
    /// Where the energy counters of the packages start, microjoules; rounded down to the counter's unit.
    pub first_energy_uj: u64,
}

impl Default for RaplConfig {
    fn default() -> Self {
        Self {
            zones: Zones::Intel,
            uncore: false,
            psys: false,
            constraints: vec![LimitKind::LongTerm, LimitKind::ShortTerm],
            first_energy_uj: 0,
        }
    }
}

/// The kind of powercap zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Zones {
    /// Intel's: energy and limits.
    Intel,
    /// AMD's: energy only; the limit is HSMP's, shown under hwmon.
    Amd,
    /// No powercap directory, as in most virtual machines.
    None,
}

/// Which limit of a package a constraint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// PL1.
    LongTerm,
    /// PL2.
    ShortTerm,
    /// PL4; it has no time window.
    PeakPower,
}

impl LimitKind {
    /// Its name in `constraint_K_name`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LongTerm => "long_term",
            Self::ShortTerm => "short_term",
            Self::PeakPower => "peak_power",
        }
    }
}

/// The version of the emulated control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// `fs/cgroup/cpu,cpuacct` and `fs/cgroup/cpuset`.
    V1,
    /// One hierarchy at `fs/cgroup`.
    V2,
}

impl HardwareConfig {
    /// All emulated cores.
    pub const fn cores(&self) -> u32 {
        self.packages * self.cores_per_package
    }

    /// What it is to whoever computes what it draws.
    pub fn machine(&self) -> MachineFigures {
        let power = &self.power;
        MachineFigures {
            processor: ProcessorFigures {
                cores: self.cores() as usize,
                packages: self.packages as usize,
                frequency: FrequencyFigures {
                    lowest: self.frequency.min,
                    highest: self.frequency.max,
                    step: STEP,
                    lowest_voltage: power.lowest_voltage,
                    dynamic: power.dynamic_per_core,
                    leakage: power.leakage_per_core,
                },
                idle_states: power.idle_states.clone(),
                uncore: power.uncore_per_package,
                uncore_asleep: power.uncore_asleep_per_package,
                package_break_even: PACKAGE_BREAK_EVEN,
                background: power.background,
            },
            platform: power.platform,
            server: ServerFigures::default(),
        }
    }

    /// The machine as its packages and their memory are metered: without what only the psys zone counts.
    pub fn metered(&self) -> MachineFigures {
        MachineFigures {
            platform: Watts::ZERO,
            ..self.machine()
        }
    }

    /// Checks that it is a machine.
    ///
    /// # Errors
    /// [`ConfigError`] naming the field, its value and what it may be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let need = |holds: bool, field, value: &dyn fmt::Display, rule: &str| match holds {
            true => Ok(()),
            false => Err(ConfigError {
                field,
                value: value.to_string(),
                rule: rule.to_owned(),
            }),
        };
        let (packages, each) = (self.packages, self.cores_per_package);
        need(
            (1..=MAX_PACKAGES).contains(&packages),
            "packages",
            &packages,
            "1 to 8",
        )?;
        let holds = (1..=MAX_CORES_PER_PACKAGE).contains(&each);
        need(holds, "cores_per_package", &each, "1 to 128")?;
        let cpus = self.cpus_per_policy;
        let holds = cpus > 0 && each.is_multiple_of(cpus);
        need(holds, "cpus_per_policy", &cpus, "a divisor of cores_per_package")?;
        let FrequencyRange { min, base, max } = self.frequency;
        let holds = min.get() >= 1e8 && min <= base && base <= max && max.get() <= 1e10;
        let value = format_args!("{} / {} / {} Hz", min.get(), base.get(), max.get());
        need(
            holds,
            "frequency",
            &value,
            "100 MHz <= min <= base <= max <= 10 GHz",
        )?;
        let states = &self.frequency_states;
        let holds = states.len() <= MAX_STATES && states.iter().all(|state| (min..=base).contains(state));
        let value = format_args!("{} states", states.len());
        need(
            holds,
            "frequency_states",
            &value,
            "at most 64, each between frequency.min and frequency.base",
        )?;
        let power = &self.power;
        for (field, value) in [
            ("power.dynamic_per_core", power.dynamic_per_core),
            ("power.leakage_per_core", power.leakage_per_core),
            ("power.uncore_per_package", power.uncore_per_package),
            ("power.dram_per_package", power.dram_per_package),
            ("power.platform", power.platform),
            ("power.suspended_per_package", power.suspended_per_package),
            ("power.tdp_per_package", power.tdp_per_package),
        ] {
            let rule = "0 to 4000 W, what 15 bits of eighths of a watt can hold";
            need((0.0..=4000.0).contains(&value.get()), field, &value, rule)?;
        }
        let (dram, asleep) = (power.dram_per_package, power.uncore_asleep_per_package);
        let holds = dram <= asleep;
        need(
            holds,
            "power.dram_per_package",
            &dram,
            "a part of power.uncore_asleep_per_package",
        )?;
        let wakeups = power.wakeups_per_busy_second.get();
        let holds = (0.0..=1e6).contains(&wakeups);
        need(
            holds,
            "power.wakeups_per_busy_second",
            &wakeups,
            "0 to 1000000 a second",
        )?;
        self.machine().check().map_err(|error| ConfigError {
            field: field_of(&error.key),
            value: error.value.to_string(),
            rule: error.expected.to_string(),
        })?;
        for (at, kind) in self.rapl.constraints.iter().enumerate() {
            let holds = !self.rapl.constraints[..at].contains(kind);
            need(holds, "rapl.constraints", &kind.as_str(), "each limit once")?;
        }
        if let Some(cores) = self.real_cores {
            let holds = cores.get() > 0.0 && cores.get() <= 4096.0;
            need(holds, "real_cores", &cores, "above 0, at most 4096")?;
        }
        let tick_s = self.tick.get();
        let holds = tick_s == 0.0 || (0.001..=1.0).contains(&tick_s);
        need(holds, "tick", &self.tick, "0, or 1 ms to 1 s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_a_machine_and_each_wrong_field_is_named() {
        HardwareConfig::default().validate().unwrap();
        type Spoil = fn(&mut HardwareConfig);
        let cases: [(&str, Spoil); 11] = [
            ("packages", |c| c.packages = 0),
            ("cores_per_package", |c| c.cores_per_package = 129),
            ("cpus_per_policy", |c| c.cpus_per_policy = 3),
            ("frequency", |c| c.frequency.min = Hertz::new(3e9)),
            ("power.uncore_per_package", |c| {
                c.power.uncore_per_package = Watts::new(f64::NAN)
            }),
            ("power.uncore_asleep_per_package", |c| {
                c.power.uncore_asleep_per_package = Watts::new(30.0)
            }),
            ("power.idle_states", |c| {
                c.power.idle_states[3].power = Watts::new(2.0)
            }),
            ("power.dram_per_package", |c| {
                c.power.dram_per_package = Watts::new(40.0)
            }),
            ("power.lowest_voltage", |c| c.power.lowest_voltage = 0.0),
            ("rapl.constraints", |c| {
                c.rapl.constraints = vec![LimitKind::LongTerm; 2]
            }),
            ("tick", |c| c.tick = Seconds::new(2.0)),
        ];
        for (field, spoil) in cases {
            let mut config = HardwareConfig::default();
            spoil(&mut config);
            assert_eq!(config.validate().unwrap_err().field, field);
        }
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        assert!(serde_json::from_str::<HardwareConfig>(r#"{"pakages": 2}"#).is_err());
        let driver: HardwareConfig = serde_json::from_str(r#"{"driver": "amd-pstate-guided"}"#).unwrap();
        assert_eq!(driver.driver, Driver::AmdPstateGuided);
    }
}
