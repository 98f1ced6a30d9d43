//! Frequency policies as the cpufreq core and its drivers have them (Documentation/admin-guide/pm/cpufreq.rst,
//! intel_pstate.rst, amd-pstate.rst; `drivers/cpufreq/cpufreq.c`). Frequencies are in kHz.

use super::config::{Driver, HardwareConfig};
use super::power::khz;
use super::text;
use rustix::io::Errno;

/// What acpi-cpufreq shows as its top state where there is turbo: the base frequency and one MHz.
const TURBO_MARK_KHZ: u64 = 1_000;
/// The step between the states of acpi-cpufreq.
const STATE_STEP_KHZ: u64 = 100_000;
/// The load at which a governor asks for a frequency a quarter above what is needed (schedutil's `map_util_freq`).
const GOVERNOR_MARGIN: f64 = 1.25;

const GENERIC_GOVERNORS: [&str; 6] = [
    "conservative",
    "ondemand",
    "userspace",
    "powersave",
    "performance",
    "schedutil",
];
const ACTIVE_GOVERNORS: [&str; 2] = ["performance", "powersave"];
const PREFERENCES: [&str; 5] = [
    "default",
    "performance",
    "balance_performance",
    "balance_power",
    "power",
];

/// Attributes that every driver has, with their modes.
const COMMON: [(&str, u16); 12] = [
    ("affected_cpus", 0o444),
    ("cpuinfo_max_freq", 0o444),
    ("cpuinfo_min_freq", 0o444),
    ("cpuinfo_transition_latency", 0o444),
    ("related_cpus", 0o444),
    ("scaling_available_governors", 0o444),
    ("scaling_cur_freq", 0o444),
    ("scaling_driver", 0o444),
    ("scaling_governor", 0o644),
    ("scaling_max_freq", 0o644),
    ("scaling_min_freq", 0o644),
    ("scaling_setspeed", 0o644),
];

/// One policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its first CPU, which names it.
    pub first: usize,
    /// How many CPUs share it.
    pub count: usize,
    governor: &'static str,
    /// What was asked for as lower and upper limit.
    asked_min: u64,
    asked_max: u64,
    setspeed: u64,
    preference: &'static str,
}

/// All policies and the driver's global settings.
#[derive(Clone, Debug)]
pub struct CpuFreq {
    driver: Driver,
    min: u64,
    base: u64,
    max: u64,
    /// The states between the lowest and the base frequency; empty for even steps.
    between: Vec<u64>,
    /// By their order; empty without a driver.
    pub policies: Vec<Policy>,
    no_turbo: bool,
    max_perf_pct: u64,
    min_perf_pct: u64,
    boost: bool,
    cpus: usize,
    cpus_per_policy: usize,
}

impl CpuFreq {
    /// The state after boot: governor performance, no limits.
    pub fn new(config: &HardwareConfig) -> Self {
        let frequency = &config.frequency;
        let mut all = Self {
            driver: config.driver,
            min: khz(frequency.min.get()),
            base: khz(frequency.base.get()),
            max: khz(frequency.max.get()),
            between: config
                .frequency_states
                .iter()
                .map(|state| khz(state.get()))
                .collect(),
            policies: Vec::new(),
            no_turbo: false,
            max_perf_pct: 100,
            min_perf_pct: 0,
            boost: true,
            cpus: config.cores() as usize,
            cpus_per_policy: config.cpus_per_policy as usize,
        };
        all.register();
        all
    }

    /// What a driver does when it is registered: everything back to the defaults.
    fn register(&mut self) {
        (self.no_turbo, self.max_perf_pct, self.min_perf_pct) = (false, 100, 0);
        self.policies = match self.driver {
            Driver::None => Vec::new(),
            _ => (0..self.cpus)
                .step_by(self.cpus_per_policy)
                .map(|first| Policy {
                    first,
                    count: self.cpus_per_policy,
                    governor: "performance",
                    asked_min: 0,
                    asked_max: u64::MAX,
                    setspeed: self.max,
                    preference: "performance",
                })
                .collect(),
        };
    }

    /// The driver in charge.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Whether the driver is one of AMD's.
    pub fn is_amd(&self) -> bool {
        matches!(
            self.driver,
            Driver::AmdPstateActive | Driver::AmdPstatePassive | Driver::AmdPstateGuided
        )
    }

    /// The policy of a CPU.
    pub fn policy_of(&self, cpu: usize) -> Option<&Policy> {
        self.policies.get(cpu / self.cpus_per_policy)
    }

    fn governors(&self) -> &'static [&'static str] {
        match self.driver {
            Driver::IntelPstateActive | Driver::AmdPstateActive => &ACTIVE_GOVERNORS,
            _ => &GENERIC_GOVERNORS,
        }
    }

    fn has_turbo(&self) -> bool {
        self.max > self.base
    }

    /// The top frequency as the driver names it.
    fn cpuinfo_max(&self) -> u64 {
        match self.driver {
            Driver::AcpiCpufreq if self.has_turbo() => self.base + TURBO_MARK_KHZ,
            Driver::IntelPstateActive | Driver::IntelPstatePassive if self.no_turbo => self.base,
            _ => self.max,
        }
    }

    /// The states of acpi-cpufreq, highest first.
    fn states(&self) -> Vec<u64> {
        let mut states = Vec::new();
        if self.has_turbo() && self.boost {
            states.push(self.base + TURBO_MARK_KHZ);
        }
        if self.between.is_empty() {
            let steps = (self.base - self.min) / STATE_STEP_KHZ;
            states.extend((0..=steps).map(|step| self.base - step * STATE_STEP_KHZ));
        } else {
            states.push(self.base);
            states.extend(&self.between);
        }
        states.push(self.min);
        states.sort_unstable_by(|one, other| other.cmp(one));
        states.dedup();
        states
    }

    /// The limits in force, as `scaling_min_freq` and `scaling_max_freq` read them: within what the hardware has, and a
    /// lower limit above the upper one gives way.
    fn limits(&self, policy: &Policy) -> (u64, u64) {
        let top = match self.driver {
            Driver::AcpiCpufreq if !self.boost => self.base,
            _ => self.cpuinfo_max(),
        };
        let max = policy.asked_max.clamp(self.min, top);
        (policy.asked_min.clamp(self.min, max), max)
    }

    /// The frequency that a policy asks the hardware for, given how much of full speed its busiest CPU needs. A power cap
    /// may still lower it.
    pub fn requested_khz(&self, policy: &Policy, utilisation: f64) -> u64 {
        let (min, max) = self.limits(policy);
        let percent = |pct: u64| self.max * pct / 100;
        let (low, high) = match self.driver {
            Driver::IntelPstateActive | Driver::IntelPstatePassive => {
                let high = max.min(percent(self.max_perf_pct)).max(self.min);
                (min.max(percent(self.min_perf_pct)).min(high), high)
            }
            _ => (min, max),
        };
        let active = matches!(self.driver, Driver::IntelPstateActive | Driver::AmdPstateActive);
        let needed = (self.max as f64 * utilisation * GOVERNOR_MARGIN / STATE_STEP_KHZ as f64).ceil();
        let by_load = (needed as u64).saturating_mul(STATE_STEP_KHZ);
        let wanted = match policy.governor {
            "performance" => high,
            "powersave" if !active => low,
            "userspace" => policy.setspeed,
            _ => by_load,
        };
        let chosen = wanted.clamp(low, high);
        if self.driver != Driver::AcpiCpufreq {
            return chosen;
        }
        // The lowest state at or above what is wanted, else the highest allowed (CPUFREQ_RELATION_L).
        let states = self.states();
        let allowed = states
            .iter()
            .copied()
            .filter(|state| (low..=high).contains(state));
        let state = allowed
            .clone()
            .filter(|state| *state >= chosen)
            .min()
            .or(allowed.max());
        match state.unwrap_or(chosen) {
            turbo if self.has_turbo() && turbo == self.base + TURBO_MARK_KHZ => self.max,
            state => state,
        }
    }

    /// The attributes of a policy directory with their modes.
    pub fn attributes(&self) -> Vec<(&'static str, u16)> {
        let mut all = COMMON.to_vec();
        let preference = [
            ("energy_performance_available_preferences", 0o444),
            ("energy_performance_preference", 0o644),
        ];
        match self.driver {
            Driver::IntelPstateActive | Driver::IntelPstatePassive => {
                all.extend(preference);
                all.push(("base_frequency", 0o444));
            }
            Driver::AcpiCpufreq => all.extend([
                ("scaling_available_frequencies", 0o444),
                ("bios_limit", 0o444),
                ("freqdomain_cpus", 0o444),
                ("cpuinfo_cur_freq", 0o400),
            ]),
            Driver::AmdPstateActive | Driver::AmdPstatePassive | Driver::AmdPstateGuided => {
                all.extend([
                    ("amd_pstate_highest_perf", 0o444),
                    ("amd_pstate_lowest_nonlinear_freq", 0o444),
                    ("amd_pstate_max_freq", 0o444),
                ]);
                if self.driver == Driver::AmdPstateActive {
                    all.extend(preference);
                }
            }
            Driver::None => {}
        }
        all
    }

    /// Reads an attribute of a policy; `current_khz` is what its CPUs run at.
    ///
    /// # Errors
    /// ENOENT: the driver has no such attribute.
    pub fn read(&self, policy: &Policy, name: &str, current_khz: u64) -> Result<String, Errno> {
        if !self.attributes().iter().any(|(known, _)| *known == name) {
            return Err(Errno::NOENT);
        }
        let cpus = || {
            let cpus: Vec<String> = (policy.first..policy.first + policy.count)
                .map(|c| c.to_string())
                .collect();
            cpus.join(" ")
        };
        let (min, max) = self.limits(policy);
        Ok(match name {
            "affected_cpus" | "related_cpus" | "freqdomain_cpus" => cpus(),
            "cpuinfo_max_freq" => self.cpuinfo_max().to_string(),
            "cpuinfo_min_freq" => self.min.to_string(),
            "cpuinfo_transition_latency" => match self.driver {
                Driver::AcpiCpufreq => "10000".into(),
                Driver::IntelPstateActive | Driver::AmdPstateActive => "0".into(),
                _ => "20000".into(),
            },
            "scaling_available_governors" => self.governors().join(" "),
            "scaling_available_frequencies" => {
                let states: Vec<String> = self.states().iter().map(u64::to_string).collect();
                states.join(" ")
            }
            "scaling_cur_freq" | "cpuinfo_cur_freq" => current_khz.to_string(),
            "scaling_driver" => self.driver.names().0.into(),
            "scaling_governor" => policy.governor.into(),
            "scaling_max_freq" => max.to_string(),
            "scaling_min_freq" => min.to_string(),
            "scaling_setspeed" => match policy.governor {
                "userspace" => policy.setspeed.to_string(),
                _ => "<unsupported>".into(),
            },
            "energy_performance_available_preferences" => PREFERENCES.join(" "),
            "energy_performance_preference" => policy.preference.into(),
            "base_frequency" => self.base.to_string(),
            "bios_limit" => self.cpuinfo_max().to_string(),
            "amd_pstate_highest_perf" => "255".into(),
            "amd_pstate_lowest_nonlinear_freq" => {
                let third = self.min + (self.max - self.min) / 3;
                (third / STATE_STEP_KHZ * STATE_STEP_KHZ)
                    .max(self.min)
                    .to_string()
            }
            "amd_pstate_max_freq" => self.max.to_string(),
            _ => return Err(Errno::NOENT),
        })
    }

    /// Writes an attribute of the policy at an index.
    ///
    /// # Errors
    /// EINVAL: no number, an unknown governor or preference, or a speed under another governor than userspace. EBUSY: a
    /// preference under governor performance. ENOENT: no such policy or attribute.
    pub fn write(&mut self, index: usize, name: &str, given: &str) -> Result<(), Errno> {
        let governors = self.governors();
        let (low, high) = (self.min, self.cpuinfo_max());
        let policy = self.policies.get_mut(index).ok_or(Errno::NOENT)?;
        match name {
            "scaling_max_freq" => policy.asked_max = text::any_base(given)?,
            "scaling_min_freq" => policy.asked_min = text::any_base(given)?,
            "scaling_governor" => {
                let governor = governors
                    .iter()
                    .find(|known| **known == given.trim())
                    .ok_or(Errno::INVAL)?;
                if *governor == "userspace" && policy.governor != "userspace" {
                    policy.setspeed = policy.asked_max.clamp(low, high);
                }
                policy.governor = governor;
                policy.preference = if *governor == "performance" {
                    "performance"
                } else {
                    "balance_performance"
                };
            }
            "scaling_setspeed" => {
                if policy.governor != "userspace" {
                    return Err(Errno::INVAL);
                }
                policy.setspeed = text::leading(given)?.clamp(low, high);
            }
            "energy_performance_preference" => {
                let wanted = PREFERENCES
                    .iter()
                    .find(|known| **known == given.trim())
                    .ok_or(Errno::INVAL)?;
                if policy.governor == "performance" && !matches!(*wanted, "performance" | "default") {
                    return Err(Errno::BUSY);
                }
                policy.preference = wanted;
            }
            _ => return Err(Errno::NOENT),
        }
        Ok(())
    }

    /// The driver's global directory below `devices/system/cpu`, where it has one, with its attributes.
    pub fn global_dir(&self) -> Option<(&'static str, Vec<(&'static str, u16)>)> {
        let intel = [
            ("max_perf_pct", 0o644),
            ("min_perf_pct", 0o644),
            ("no_turbo", 0o644),
            ("num_pstates", 0o444),
            ("status", 0o644),
            ("turbo_pct", 0o444),
        ];
        match self.driver {
            Driver::IntelPstateActive | Driver::IntelPstatePassive => Some(("intel_pstate", intel.to_vec())),
            Driver::AmdPstateActive | Driver::AmdPstatePassive | Driver::AmdPstateGuided => {
                Some(("amd_pstate", vec![("prefcore", 0o444), ("status", 0o644)]))
            }
            Driver::AcpiCpufreq | Driver::None => None,
        }
    }

    /// Whether there is `cpufreq/boost`.
    pub fn has_boost_file(&self) -> bool {
        self.driver == Driver::AcpiCpufreq
    }

    /// Reads an attribute of the driver's global directory, or `boost`.
    ///
    /// # Errors
    /// ENOENT: no such attribute.
    pub fn read_global(&self, name: &str) -> Result<String, Errno> {
        let step = STATE_STEP_KHZ;
        let states = (self.max - self.min) / step + 1;
        Ok(match name {
            "boost" => u8::from(self.boost).to_string(),
            "max_perf_pct" => self.max_perf_pct.to_string(),
            "min_perf_pct" => self.min_perf_pct.to_string(),
            "no_turbo" => u8::from(self.no_turbo || !self.has_turbo()).to_string(),
            "num_pstates" => states.to_string(),
            "turbo_pct" => ((self.max - self.base) / step * 100 / states).to_string(),
            "prefcore" => "disabled".into(),
            "status" => self.driver.names().1.ok_or(Errno::NOENT)?.into(),
            _ => return Err(Errno::NOENT),
        })
    }

    /// Writes an attribute of the driver's global directory, or `boost`. Changing `status` resets everything else.
    ///
    /// # Errors
    /// EINVAL: not a value of it. EPERM: turbo where there is none. EBUSY: "off", which hardware-managed P-states refuse.
    pub fn write_global(&mut self, name: &str, given: &str) -> Result<(), Errno> {
        match name {
            "boost" => self.boost = text::boolean(given)?,
            "max_perf_pct" => self.max_perf_pct = text::leading(given)?.clamp(self.min_perf_pct.max(1), 100),
            "min_perf_pct" => self.min_perf_pct = text::leading(given)?.min(self.max_perf_pct),
            "no_turbo" => {
                let off = text::leading(given)? != 0;
                if !off && !self.has_turbo() {
                    return Err(Errno::PERM);
                }
                self.no_turbo = off;
            }
            "status" => {
                use Driver::{AmdPstateActive, AmdPstateGuided, AmdPstatePassive};
                use Driver::{IntelPstateActive, IntelPstatePassive};
                let intel = matches!(self.driver, IntelPstateActive | IntelPstatePassive);
                let driver = match (given.trim(), intel) {
                    ("off", true) => return Err(Errno::BUSY),
                    ("active", true) => IntelPstateActive,
                    ("passive", true) => IntelPstatePassive,
                    ("active", false) => AmdPstateActive,
                    ("passive", false) => AmdPstatePassive,
                    ("guided", false) => AmdPstateGuided,
                    _ => return Err(Errno::INVAL),
                };
                if driver != self.driver {
                    self.driver = driver;
                    self.register();
                }
            }
            _ => return Err(Errno::NOENT),
        }
        Ok(())
    }
}
