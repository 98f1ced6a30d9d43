//! What a node draws: by the physics of a machine, or by the line of the SLO-Power testbed.
//!
//! A [machine](MachineFigures) draws what its cores, their idle states, its packages and the rest of it do
//! ([`headroom_physics`]); a core that is not allocated idles like any other.
//!
//! The line is what the SLO-Power paper has, for its reproduction alone: a node with c cores allocated of which b are busy
//! at frequency f draws
//!
//! ```text
//! P = base + static · c + dynamic · b · (f / f_max) · V(f)² · duty
//! ```
//!
//! With the defaults that is 2.86 c + 46.52 W with all c cores busy at f_max: the limit of the authors' testbed, 92 W at
//! 16. It takes a core that is not allocated to draw nothing, which no CPU quota does.

use crate::error::{ScenarioError, within};
use crate::scenario::NodeGroup;
use headroom_control::PowerEnvelope;
pub use headroom_physics::{Frequencies, Level, Pace};
use headroom_physics::{FrequencyFigures, IdleState, MachineFigures, ServerFigures};
use headroom_units::{Hertz, Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// The most frequencies of a node.
const MAX_FREQUENCIES: f64 = 1_000.0;

/// The line's figures, and the frequencies of a node that has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerFigures {
    /// The whole node with no core allocated, watts.
    pub base_w: f64,
    /// Each allocated core, busy or not, watts.
    pub static_per_core_w: f64,
    /// Each busy core at the highest frequency, on top of that, watts.
    pub dynamic_per_core_w: f64,
    /// Voltage at the lowest frequency over that at the highest, above 0, at most 1.
    pub lowest_voltage: f64,
    /// Lowest frequency, gigahertz.
    pub lowest_ghz: f64,
    /// Highest frequency, gigahertz.
    pub highest_ghz: f64,
    /// Between two frequencies, gigahertz; 0.1 is the bus clock of x86 processors.
    pub step_ghz: f64,
    /// Switched off, watts.
    pub off_w: f64,
    /// While it boots, watts.
    pub booting_w: f64,
    /// While it shuts down, watts.
    pub shutting_down_w: f64,
    /// From power on to the first request, seconds.
    pub boot_s: f64,
    /// From the last request to power off, seconds.
    pub shutdown_s: f64,
}

impl Default for PowerFigures {
    fn default() -> Self {
        Self {
            base_w: 46.52,
            static_per_core_w: 0.86,
            dynamic_per_core_w: 2.0,
            lowest_voltage: 0.7,
            lowest_ghz: 0.8,
            highest_ghz: 2.1,
            step_ghz: 0.1,
            off_w: 3.0,
            booting_w: 70.0,
            shutting_down_w: 55.0,
            boot_s: 60.0,
            shutdown_s: 10.0,
        }
    }
}

impl PowerFigures {
    /// Checks the figures; `key` is where they stand.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), ScenarioError> {
        let watts = [
            ("base_w", self.base_w),
            ("static_per_core_w", self.static_per_core_w),
            ("dynamic_per_core_w", self.dynamic_per_core_w),
            ("off_w", self.off_w),
            ("booting_w", self.booting_w),
            ("shutting_down_w", self.shutting_down_w),
        ];
        let bad = |field: &str, value: f64, rule: &str| {
            Err(ScenarioError::new(
                format!("{key}.{field}"),
                format!("is {value}: it must be {rule}"),
            ))
        };
        for (field, value) in watts {
            within(&format!("{key}.{field}"), value, 0.0, 1e5, " W")?;
        }
        for (field, value) in [("boot_s", self.boot_s), ("shutdown_s", self.shutdown_s)] {
            within(&format!("{key}.{field}"), value, 0.0, 1e6, " seconds")?;
        }
        if self.off_w > self.base_w {
            let rule = format!(
                "at most base_w, {}: a node that draws more switched off saves nothing by it",
                self.base_w
            );
            return bad("off_w", self.off_w, &rule);
        }
        if self.static_per_core_w + self.dynamic_per_core_w <= 0.0 {
            return bad(
                "dynamic_per_core_w",
                self.dynamic_per_core_w,
                "above 0 where static_per_core_w is 0: a busy core that draws nothing leaves nothing to save",
            );
        }
        if !(self.lowest_voltage > 0.0 && self.lowest_voltage <= 1.0) {
            return bad("lowest_voltage", self.lowest_voltage, "above 0, at most 1");
        }
        within(&format!("{key}.highest_ghz"), self.highest_ghz, 0.1, 10.0, "")?;
        if !(self.lowest_ghz >= 0.1 && self.lowest_ghz <= self.highest_ghz) {
            return bad(
                "lowest_ghz",
                self.lowest_ghz,
                "0.1 or more and at most highest_ghz",
            );
        }
        let steps = (self.highest_ghz - self.lowest_ghz) / self.step_ghz;
        if !(self.step_ghz > 0.0 && steps <= MAX_FREQUENCIES) {
            return bad("step_ghz", self.step_ghz, "above 0, for at most 1000 frequencies");
        }
        Ok(())
    }

    fn frequencies(&self) -> FrequencyFigures {
        FrequencyFigures {
            lowest: Hertz::new(self.lowest_ghz * 1e9),
            highest: Hertz::new(self.highest_ghz * 1e9),
            step: Hertz::new(self.step_ghz * 1e9),
            lowest_voltage: self.lowest_voltage,
            dynamic: Watts::new(self.dynamic_per_core_w),
            leakage: Watts::ZERO,
        }
    }
}

/// What a node is, as its power goes.
#[derive(Clone, Debug)]
pub(crate) enum Draw {
    /// The SLO-Power testbed's line.
    Line(PowerFigures),
    /// A machine.
    Machine(Box<MachineFigures>),
}

/// The model of one node: its frequencies and what it draws.
#[derive(Clone, Debug)]
pub(crate) struct NodeModel {
    frequencies: Frequencies,
    pub(crate) draw: Draw,
}

impl Deref for NodeModel {
    type Target = Frequencies;
    fn deref(&self) -> &Frequencies {
        &self.frequencies
    }
}

impl NodeModel {
    /// The model of a checked group, for work of which a share does not depend on the frequency.
    pub(crate) fn new(group: &NodeGroup, insensitive_share: f64) -> Self {
        let draw = group.machine.draw(group.cores);
        let frequencies = match &draw {
            Draw::Line(line) => Frequencies::new(line.frequencies(), insensitive_share),
            Draw::Machine(machine) => machine.frequencies(insensitive_share),
        };
        Self { frequencies, draw }
    }

    /// Between two frequencies.
    pub(crate) fn frequency_step(&self) -> Hertz {
        match &self.draw {
            Draw::Line(line) => line.frequencies().step,
            Draw::Machine(machine) => machine.processor.frequency.step,
        }
    }

    /// The machine, where it is one.
    pub(crate) fn machine(&self) -> Option<&MachineFigures> {
        match &self.draw {
            Draw::Line(_) => None,
            Draw::Machine(machine) => Some(machine),
        }
    }

    /// How long it takes to boot and to shut down, seconds.
    pub(crate) fn switch_times_s(&self) -> (f64, f64) {
        match &self.draw {
            Draw::Line(line) => (line.boot_s, line.shutdown_s),
            Draw::Machine(machine) => (machine.server.boot.get(), machine.server.shutdown.get()),
        }
    }

    /// What the node draws while it serves, apart from busy cores, where that follows from the allocated cores alone.
    pub(crate) fn standing_w(&self, cores: f64) -> Option<f64> {
        match &self.draw {
            Draw::Line(line) => Some(line.base_w + line.static_per_core_w * cores),
            Draw::Machine(_) => None,
        }
    }

    /// The most that so many cores can draw at a level, the others idle in the shallowest state.
    pub(crate) fn most_w(&self, cores: f64, level: Level) -> f64 {
        let busy_w = self.at(level).busy.get();
        match &self.draw {
            Draw::Line(line) => line.base_w + (line.static_per_core_w + busy_w) * cores,
            Draw::Machine(machine) => {
                let envelope = envelope(machine);
                let idle_w = machine.processor.idle_states[0].power.get();
                envelope.0.get() + (busy_w - idle_w).max(0.0) * cores
            }
        }
    }

    /// The same as a law is given it: at the highest frequency, with the lowest cap at so many cores.
    pub(crate) fn envelope(&self, fewest_cores: f64) -> PowerEnvelope {
        let (base, per_core) = match &self.draw {
            Draw::Line(line) => (
                Watts::new(line.base_w),
                Watts::new(line.static_per_core_w + line.dynamic_per_core_w),
            ),
            Draw::Machine(machine) => envelope(machine),
        };
        PowerEnvelope {
            base,
            per_core,
            lowest_cap: Watts::new(self.most_w(fewest_cores, self.lowest_unthrottled())),
        }
    }
}

/// A machine whose cores are all in the shallowest idle state, and what a core that becomes busy adds to that.
fn envelope(machine: &MachineFigures) -> (Watts, Watts) {
    let processor = &machine.processor;
    let idle = processor.idle_states[0].power;
    (
        machine.platform + processor.uncore * processor.packages as f64 + idle * processor.cores as f64,
        (processor.frequency.busy_at_top() - idle).max(Watts::ZERO),
    )
}

/// The machine of a group of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Machine {
    /// [`MachineFigures::skylake`], with the group's cores.
    Skylake {},
    /// [`MachineFigures::broadwell`], with the group's cores.
    Broadwell {},
    /// Figures of one's own.
    Figures(Box<MachineFigures>),
    /// The line of the SLO-Power testbed, for its reproduction: not physics.
    Line(PowerFigures),
}

impl Default for Machine {
    fn default() -> Self {
        Self::Skylake {}
    }
}

impl Machine {
    /// The line, where it is that.
    pub fn line(&self) -> Option<&PowerFigures> {
        match self {
            Self::Line(line) => Some(line),
            Self::Skylake {} | Self::Broadwell {} | Self::Figures(_) => None,
        }
    }

    pub(crate) fn draw(&self, cores: f64) -> Draw {
        let whole = cores.ceil() as usize;
        Draw::Machine(Box::new(match self {
            Self::Skylake {} => MachineFigures::skylake(whole),
            Self::Broadwell {} => MachineFigures::broadwell(whole),
            Self::Figures(figures) => (**figures).clone(),
            Self::Line(line) => return Draw::Line(*line),
        }))
    }

    /// The figures that a law is given; of the line, a machine without packages whose cores never sleep.
    pub fn figures(&self, cores: f64) -> MachineFigures {
        let line = match self.draw(cores) {
            Draw::Machine(machine) => return *machine,
            Draw::Line(line) => line,
        };
        let whole = cores.ceil() as usize;
        let mut figures = MachineFigures::skylake(whole);
        let processor = &mut figures.processor;
        processor.frequency = FrequencyFigures {
            dynamic: Watts::new(line.dynamic_per_core_w + line.static_per_core_w),
            ..line.frequencies()
        };
        processor.idle_states = vec![IdleState::new("idle", line.static_per_core_w, 1.0, 1.0, 1.0)];
        (processor.uncore, processor.uncore_asleep) = (Watts::ZERO, Watts::ZERO);
        figures.platform = Watts::new(line.base_w);
        figures.server = ServerFigures {
            off: Watts::new(line.off_w),
            booting: Watts::new(line.booting_w),
            boot: Seconds::new(line.boot_s),
            shutting_down: Watts::new(line.shutting_down_w),
            shutdown: Seconds::new(line.shutdown_s),
        };
        figures
    }

    /// Checks the figures for nodes of so many cores; `key` is where they stand.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self, key: &str, cores: f64) -> Result<(), ScenarioError> {
        let figures = match self.draw(cores) {
            Draw::Line(line) => return line.check(key),
            Draw::Machine(figures) => figures,
        };
        figures.check().map_err(|error| {
            let why = format!("is {}: {}", error.value, error.expected);
            ScenarioError::new(format!("{key}.{}", error.key), why)
        })?;
        if figures.processor.cores as f64 != cores {
            let why = format!(
                "has {} cores, and the group's nodes have {cores}: give both the same whole number",
                figures.processor.cores
            );
            return Err(ScenarioError::new(key, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> NodeModel {
        NodeModel::new(&NodeGroup::paper(), 0.0)
    }

    #[test]
    fn the_line_is_the_slo_power_testbed() {
        let model = model();
        for cores in [0.0, 2.0, 16.0] {
            assert!((model.most_w(cores, model.top()) - (2.86 * cores + 46.52)).abs() < 1e-9);
        }
        assert_eq!(model.most_w(16.0, model.top()).floor(), 92.0);
        assert_eq!(model.paces().len(), 29);
        // μ 24/s per core at 2.1 GHz is the 9/s that the authors use at their lowest frequency.
        assert_eq!((24.0 * model.at(model.lowest_unthrottled()).speed).round(), 9.0);
    }

    #[test]
    fn figures_that_are_none_are_named() {
        type Spoil = fn(&mut PowerFigures);
        let cases: [(&str, Spoil); 6] = [
            ("p.base_w", |p| p.base_w = f64::NAN),
            ("p.dynamic_per_core_w", |p| {
                (p.dynamic_per_core_w, p.static_per_core_w) = (0.0, 0.0)
            }),
            ("p.lowest_voltage", |p| p.lowest_voltage = 0.0),
            ("p.highest_ghz", |p| p.highest_ghz = 0.0),
            ("p.lowest_ghz", |p| p.lowest_ghz = 3.0),
            ("p.step_ghz", |p| p.step_ghz = 0.0),
        ];
        for (key, spoil) in cases {
            let mut figures = PowerFigures::default();
            spoil(&mut figures);
            assert_eq!(figures.check("p").unwrap_err().key, key);
        }
    }

    #[test]
    fn a_machine_is_a_kind_or_figures_with_the_groups_cores() {
        let parse = |text: &str| toml::from_str::<NodeGroup>(text).map(|group| group.machine);
        let skylake = Machine::Figures(Box::new(MachineFigures::skylake(8)));
        let group = NodeGroup {
            machine: skylake.clone(),
            ..NodeGroup::default()
        };
        let text = toml::to_string(&group).unwrap();
        assert_eq!(parse(&text).unwrap(), skylake);
        assert_eq!(parse("").unwrap(), Machine::Skylake {});
        let line = parse("machine = { kind = \"line\", base_w = 30 }").unwrap();
        assert!(matches!(line, Machine::Line(line) if line.base_w == 30.0 && line.boot_s == 60.0));
        assert!(parse("machine = { kind = \"line\", bases_w = 30 }").is_err());
        skylake.check("m", 8.0).unwrap();
        assert!(
            skylake
                .check("m", 4.0)
                .unwrap_err()
                .to_string()
                .contains("has 8 cores")
        );
        assert!(Machine::default().check("m", 2.5).is_err());
    }
}
