//! The figures of one machine.

use crate::cores::state_power_w;
use crate::frequency::{Frequencies, FrequencyFigures};
use crate::idle::{IdleState, check_states};
use crate::server::ServerFigures;
use headroom_units::{PerSecond, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// A figure that cannot be one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} is {value}: {expected}")]
pub struct FigureError {
    /// The figure's key.
    pub key: String,
    /// What was given.
    pub value: f64,
    /// What it can be.
    pub expected: String,
}

pub(crate) fn check(
    key: impl Into<String>,
    value: f64,
    holds: bool,
    expected: impl Into<String>,
) -> Result<(), FigureError> {
    if value.is_finite() && holds {
        return Ok(());
    }
    Err(FigureError {
        key: key.into(),
        value,
        expected: expected.into(),
    })
}

/// The most cores of a machine.
pub const MAX_CORES: usize = 4096;

/// The processors of a machine: all packages are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorFigures {
    /// All cores of the machine.
    pub cores: usize,
    /// Packages over which they are spread evenly.
    pub packages: usize,
    /// Frequencies, voltages, and what a busy core draws at them.
    pub frequency: FrequencyFigures,
    /// The idle states of a core, the shallowest first; what they draw at the highest voltage.
    pub idle_states: Vec<IdleState>,
    /// A package beside its cores (mesh, caches, memory and its controllers) while a core of it is up.
    pub uncore: Watts,
    /// The same while all its cores are in their deepest state.
    pub uncore_asleep: Watts,
    /// From so long on a package's sleep pays.
    pub package_break_even: Seconds,
    /// What wakes an idle core that runs nothing of the service: timers, RCU, interrupts.
    pub background: PerSecond,
}

impl ProcessorFigures {
    /// An idle core draws no more than one that works, at no frequency.
    fn check_shallowest(&self) -> Result<(), FigureError> {
        let idle = self.idle_states[0].power.get();
        for frequency in [self.frequency.highest, self.frequency.lowest] {
            let voltage = self.frequency.voltage(frequency);
            let most = self.frequency.busy(frequency).get() / (voltage * voltage);
            check(
                "processor.idle_states.0.power",
                idle,
                idle <= most,
                format!(
                    "give watts, at most {most:.2}: at {:.2} GHz a core that works draws {:.2} W, and one that sleeps \
                     would draw more",
                    frequency.get() / 1e9,
                    self.frequency.busy(frequency).get()
                ),
            )?;
        }
        Ok(())
    }
}

/// A machine: processors, the rest, and what switching it off and on takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFigures {
    /// Its processors.
    pub processor: ProcessorFigures,
    /// What does not depend on what it does: fans, disks, network, losses of the supply.
    pub platform: Watts,
    /// Off and on.
    pub server: ServerFigures,
}

impl MachineFigures {
    /// A server with one Skylake package. Exit latencies and residencies are intel_idle's; a core draws 4 W busy at the
    /// base frequency and about 1 W at the lowest, 1.44, 0.88 and 0.1 W in C1, C1E and C6; a package of ten with its
    /// memory draws some 49 W with all cores in C1 and 12.5 W asleep (published measurements, as recalled). A boot draws nearly
    /// what full load does, and a shutdown two thirds of it.
    pub fn skylake(cores: usize) -> Self {
        let per_ten = cores as f64 / 10.0;
        let mut machine = Self {
            processor: ProcessorFigures {
                cores,
                packages: 1,
                frequency: FrequencyFigures::default(),
                idle_states: vec![
                    IdleState::new("C1", 1.44, 2.0, 2.0, 2.0),
                    IdleState::new("C1E", 0.88, 10.0, 20.0, 20.0),
                    IdleState::new("C6", 0.10, 133.0, 600.0, 600.0),
                ],
                uncore: Watts::new(35.0 * per_ten),
                uncore_asleep: Watts::new(11.5 * per_ten),
                package_break_even: Seconds::from_micros(1000.0),
                background: PerSecond::new(20.0),
            },
            platform: Watts::new(20.0),
            server: ServerFigures::default(),
        };
        let full = machine.full();
        machine.server.booting = full * 0.95;
        machine.server.shutting_down = full * 0.63;
        machine
    }

    /// A server with one Broadwell package as in REEF's testbed (E5-2650 v4): C6 pays from 1 ms on, while the kernel
    /// enters it from 400 us on.
    pub fn broadwell(cores: usize) -> Self {
        let mut machine = Self::skylake(cores);
        machine.processor.idle_states = vec![
            IdleState::new("C1", 1.44, 2.0, 2.0, 2.0),
            IdleState::new("C1E", 0.88, 10.0, 20.0, 20.0),
            IdleState::new("C3", 0.60, 40.0, 100.0, 100.0),
            IdleState::new("C6", 0.10, 133.0, 400.0, 1000.0),
        ];
        machine
    }

    /// Checks all figures.
    ///
    /// # Errors
    /// [`FigureError`] with the key of the first that cannot be.
    pub fn check(&self) -> Result<(), FigureError> {
        let processor = &self.processor;
        let (cores, packages) = (processor.cores, processor.packages);
        check(
            "processor.cores",
            cores as f64,
            (1..=MAX_CORES).contains(&cores),
            "give 1 to 4096 cores",
        )?;
        check(
            "processor.packages",
            packages as f64,
            packages >= 1 && cores.is_multiple_of(packages),
            "give 1 or more packages, with as many cores each",
        )?;
        processor.frequency.check("processor.frequency")?;
        check_states("processor.idle_states", &processor.idle_states)?;
        processor.check_shallowest()?;
        let watts = "give 0 to 100000 watts";
        for (key, power) in [
            ("processor.uncore", processor.uncore),
            ("platform", self.platform),
        ] {
            check(key, power.get(), (0.0..=1e5).contains(&power.get()), watts)?;
        }
        let asleep = processor.uncore_asleep.get();
        check(
            "processor.uncore_asleep",
            asleep,
            (0.0..=processor.uncore.get()).contains(&asleep),
            format!(
                "give watts, at most the {} W of uncore: a package that draws more asleep saves nothing by sleeping",
                processor.uncore.get()
            ),
        )?;
        let break_even = processor.package_break_even.get();
        check(
            "processor.package_break_even",
            break_even,
            (0.0..=1.0).contains(&break_even),
            "give 0 to 1 seconds",
        )?;
        let background = processor.background.get();
        check(
            "processor.background",
            background,
            (0.0..=1e5).contains(&background),
            "give 0 to 100000 wake-ups per second and core",
        )?;
        let (off, asleep) = (self.server.off.get(), self.asleep().get());
        check(
            "server.off",
            off,
            off <= asleep,
            format!(
                "give watts, at most the {asleep:.2} W of the machine on and asleep: one that draws more switched off \
                 saves nothing by it"
            ),
        )?;
        self.server.check()
    }

    /// The frequencies, for work of which a share does not depend on the frequency.
    pub fn frequencies(&self, insensitive_share: f64) -> Frequencies {
        let processor = &self.processor;
        let slowest = processor.frequency.voltage(processor.frequency.lowest);
        let stopped = Watts::new(state_power_w(processor, 0, slowest));
        Frequencies::new(processor.frequency, insensitive_share).with_stopped(stopped)
    }

    /// On, with all cores in their deepest state and all packages asleep: the least that it draws.
    pub fn asleep(&self) -> Watts {
        let processor = &self.processor;
        let deepest = processor
            .idle_states
            .last()
            .map_or(Watts::ZERO, |state| state.power);
        self.platform + processor.uncore_asleep * processor.packages as f64 + deepest * processor.cores as f64
    }

    /// All cores busy at the highest frequency.
    pub fn full(&self) -> Watts {
        let processor = &self.processor;
        self.platform
            + processor.uncore * processor.packages as f64
            + processor.frequency.busy_at_top() * processor.cores as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_hold_and_have_the_shape_of_a_server() {
        for machine in [MachineFigures::skylake(10), MachineFigures::broadwell(12)] {
            machine.check().unwrap();
            let processor = &machine.processor;
            let shallow = machine.platform.get()
                + processor.uncore.get()
                + processor.idle_states[0].power.get() * processor.cores as f64;
            let share = shallow / machine.full().get();
            // Active idle without deep sleep over full load: 0.3 to 0.75 in published servers.
            assert!((0.3..0.75).contains(&share), "{share}");
        }
        // Ten cores in C1: 49 W for package and memory; asleep 12.5 W.
        let skylake = MachineFigures::skylake(10).processor;
        assert!((skylake.uncore.get() + 14.4 - 49.4).abs() < 0.01);
        assert!((skylake.uncore_asleep.get() + 1.0 - 12.5).abs() < 0.01);
    }

    #[test]
    fn a_package_that_draws_more_asleep_is_refused() {
        let mut machine = MachineFigures::skylake(4);
        machine.processor.uncore_asleep = Watts::new(99.0);
        let error = machine.check().unwrap_err().to_string();
        assert!(
            error.starts_with("processor.uncore_asleep is 99: give watts, at most the 14 W"),
            "{error}"
        );
        let mut odd = MachineFigures::skylake(5);
        odd.processor.packages = 2;
        assert!(
            odd.check()
                .unwrap_err()
                .to_string()
                .starts_with("processor.packages is 2")
        );
    }

    #[test]
    fn sleep_that_is_dearer_than_work_is_refused_with_both_numbers() {
        let mut machine = MachineFigures::skylake(4);
        machine.processor.idle_states[0].power = Watts::new(2.5);
        let error = machine.check().unwrap_err();
        assert_eq!(error.key, "processor.idle_states.0.power");
        assert!(
            error
                .to_string()
                .contains("at 0.80 GHz a core that works draws 1.00 W"),
            "{error}"
        );
        let mut machine = MachineFigures::skylake(4);
        machine.server.off = Watts::new(40.0);
        let error = machine.check().unwrap_err().to_string();
        assert!(
            error.starts_with("server.off is 40: give watts, at most the 25.00 W"),
            "{error}"
        );
    }

    #[test]
    fn the_figures_are_a_file() {
        let machine = MachineFigures::skylake(4);
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<MachineFigures>(&text).unwrap(), machine);
    }
}
