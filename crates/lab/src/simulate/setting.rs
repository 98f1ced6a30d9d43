//! What `--scenario FILE` holds: a world of `headroom_sim`, and beside it the law, its parameters and what it is given.

use crate::args::WorldArgs;
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_console::{ConfigError, Document};
use headroom_control::resize::PowerTuning;
use headroom_control::stack::Part;
use headroom_control::{LawConfig, LawContext, LawError, LawName, LawNames, LoadHistory, Parameter};
use headroom_control::{Stack, guardian};
use headroom_physics::{Machine, MachineFigures};
use headroom_sim::balancer::Balancing;
use headroom_sim::scenario::{Delays, Limits, NodeGroup, Service, Telemetry};
use headroom_sim::{Fault, RunError, Scenario, ScenarioError};
use headroom_units::{Lever, PerSecond, Ratio, Seconds};
use headroom_workload::ArrivalProcess;
use headroom_workload::Trace;
use headroom_workload::generate::{Diurnal, FlatWithSpikes, diurnal, flat_with_spikes};
use serde::Deserialize;
use std::path::Path;

/// Where every key of `[law]` is explained.
const LIVE_EXAMPLE: &str = include_str!("../../../headroom/headroom.example.toml");
/// The tables of its laws.
const LAWS_EXAMPLE: &str = concat!(
    include_str!("../../../headroom/laws.example.toml"),
    include_str!("../../../headroom/laws-on-call.example.toml")
);
/// Requests per second that stand for a load that is not known yet: any cluster serves them.
const LEAST_PER_S: f64 = 1e-3;

const COMMAND: &str = "sim";
/// As many values as the published trace of Wikipedia.
const WIKIPEDIA_VALUES: f64 = 900.0;

/// The file, key by key: those of a scenario, and two tables of our own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    name: String,
    duration_s: Option<f64>,
    core_step: f64,
    frequency_lever: bool,
    allow_overload: bool,
    service: Service,
    nodes: Vec<NodeGroup>,
    power_states: Option<PowerTuning>,
    balancer: Balancing,
    delays: Delays,
    telemetry: Telemetry,
    arrivals: Option<ArrivalProcess>,
    faults: Vec<Fault>,
    limits: Limits,
    control: ControlConfig,
    law: LawConfig,
}

impl Default for File {
    fn default() -> Self {
        let world = Scenario::default();
        Self {
            name: world.name,
            duration_s: world.duration_s,
            core_step: world.core_step,
            frequency_lever: world.frequency_lever,
            allow_overload: world.allow_overload,
            service: world.service,
            nodes: world.nodes,
            power_states: world.power_states,
            balancer: world.balancer,
            delays: world.delays,
            telemetry: world.telemetry,
            arrivals: None,
            faults: world.faults,
            limits: world.limits,
            control: ControlConfig::default(),
            law: LawConfig::default(),
        }
    }
}

/// `[control]`: what stands around the law.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// μ as the law is given it; the true one where absent.
    pub assumed_rate_per_core_s: Option<f64>,
    /// What the law takes each node's machine for; what it is where absent.
    pub assumed_machine: Option<Machine>,
    /// Periods without telemetry after which everything goes to full.
    pub lost_periods_to_full: u32,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            assumed_rate_per_core_s: None,
            assumed_machine: None,
            lost_periods_to_full: guardian::DEFAULT_PATIENCE_PERIODS,
        }
    }
}

/// The example with every key: the scenario's own, and the law's tables as the live configuration has them.
pub fn example() -> String {
    let laws = LIVE_EXAMPLE
        .split_once("\n[law]\n")
        .and_then(|(_, after)| after.split_once("\n[power]\n"))
        .map_or("", |(laws, _)| laws);
    format!(
        "{}\n# What stands around the law.\n[control]\n\
         # Requests per second and core as the law is given it; by default service.rate_per_core_s, which is the truth.\n\
         # assumed_rate_per_core_s = 24.0\n\
         # What the law takes each node's machine for, as [machine] of the live configuration; by default what it is.\n\
         # assumed_machine = {{ kind = \"broadwell\" }}\n\
         # Periods without telemetry after which everything goes to full.\n\
         lost_periods_to_full = {}\n\n[law]\n{laws}",
        headroom_sim::scenario::EXAMPLE.trim_end(),
        guardian::DEFAULT_PATIENCE_PERIODS,
    ) + LAWS_EXAMPLE
}

/// A world, a law and what it is given, before the trace is chosen.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The world.
    pub scenario: Scenario,
    /// The law and the parameters of all of them.
    pub law: LawConfig,
    /// What stands around it.
    pub control: ControlConfig,
    /// Whether the file says when requests arrive.
    pub has_arrivals: bool,
    /// The load that is on record when the laws begin.
    pub history: Option<LoadHistory>,
    document: Option<Document>,
}

impl Default for Setting {
    fn default() -> Self {
        Self::of(File::default(), None)
    }
}

impl Setting {
    /// The share of periods that may be late, which the joint law is asked for and the bound allows.
    pub fn asked(&self) -> Ratio {
        Ratio::new(self.law.joint.late)
    }

    fn of(file: File, document: Option<Document>) -> Self {
        let has_arrivals = file.arrivals.is_some();
        let default = Scenario::default();
        Self {
            scenario: Scenario {
                name: file.name,
                duration_s: file.duration_s,
                core_step: file.core_step,
                frequency_lever: file.frequency_lever,
                allow_overload: file.allow_overload,
                service: file.service,
                nodes: file.nodes,
                power_states: file.power_states,
                balancer: file.balancer,
                delays: file.delays,
                telemetry: file.telemetry,
                arrivals: file.arrivals.unwrap_or(default.arrivals),
                faults: file.faults,
                limits: file.limits,
            },
            law: file.law,
            control: file.control,
            has_arrivals,
            history: None,
            document,
        }
    }

    /// Reads the scenario that was asked for, or takes the default.
    ///
    /// # Errors
    /// A file that cannot be read, is no TOML, has an unknown key, or describes no world, each with its line.
    pub fn read(file: Option<&Path>) -> Result<Self, Failure> {
        match file {
            None => Self::default().checked(),
            Some(file) => Self::from_document(Document::read(file, COMMAND)?),
        }
    }

    /// Understands a scenario's text.
    ///
    /// # Errors
    /// As [`Setting::read`].
    pub fn from_document(document: Document) -> Result<Self, Failure> {
        Self::of(document.parse(COMMAND)?, Some(document)).checked()
    }

    /// The same, if it is a world.
    ///
    /// # Errors
    /// As [`Setting::read`].
    pub fn checked(self) -> Result<Self, Failure> {
        if let Some(assumed) = self.control.assumed_rate_per_core_s
            && !(1e-6..=1e9).contains(&assumed)
        {
            let why = format!("is {assumed}: it must be 0.000001 to 1e9 requests per second");
            return Err(self.error("control.assumed_rate_per_core_s", why));
        }
        if let Some(document) = &self.document {
            self.law
                .check()
                .map_err(|error| document.error(&error.key, error.why))?;
        }
        // Where the file says nothing of arrivals, what a trace brings is checked when it is chosen.
        let mut alone = self.clone();
        if !self.has_arrivals {
            alone.scenario.arrivals = ArrivalProcess::Poisson {
                rate_per_s: LEAST_PER_S,
            };
        }
        alone.check()?;
        Ok(self)
    }

    /// The same with a trace's arrivals, named.
    ///
    /// # Errors
    /// A trace that cannot be read, or one that the nodes cannot serve.
    pub fn with_trace(
        &self,
        trace: Option<&str>,
        args: &WorldArgs,
        seed: u64,
    ) -> Result<(Self, String), Failure> {
        if trace.is_none() && self.has_arrivals {
            let name = format!("{} (arrivals of the scenario)", self.scenario.name);
            return Ok((self.cut(args)?, name));
        }
        let trace = named_trace(trace.unwrap_or("wikipedia"), Seconds::new(args.step), seed)?;
        Ok((self.with_rates(&trace, args)?, trace.name().to_owned()))
    }

    /// The same with the arrivals of a trace that is at hand.
    ///
    /// # Errors
    /// A trace that the nodes cannot serve.
    pub fn with_rates(&self, trace: &Trace, args: &WorldArgs) -> Result<Self, Failure> {
        let mut with = self.clone();
        let duration_s = self.scenario.duration_s;
        with.scenario = with.scenario.with_trace(
            trace.rates().iter().map(|rate| rate.get()).collect(),
            trace.step(),
            args.arrivals.into(),
        );
        with.scenario.duration_s = duration_s;
        with.cut(args)
    }

    fn cut(&self, args: &WorldArgs) -> Result<Self, Failure> {
        let mut with = self.clone();
        if args.duration.is_some() {
            with.scenario.duration_s = args.duration;
        }
        with.check()?;
        Ok(with)
    }

    fn check(&self) -> Result<(), Failure> {
        self.scenario
            .check()
            .map_err(|error| self.scenario_error(&error))?;
        match self.scenario.plant() {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error("nodes", error)),
        }
    }

    fn scenario_error(&self, error: &ScenarioError) -> Failure {
        self.error(&error.key, &error.why)
    }

    fn error(&self, key: &str, why: impl std::fmt::Display) -> Failure {
        match &self.document {
            Some(document) => document.error(key, why).into(),
            None => Failure::usage(anyhow!("{key}: {why}")),
        }
    }

    /// Why a run has no result: what is wrong with the scenario comes with its line.
    pub fn run_error(&self, error: RunError) -> Failure {
        match (&error, &self.document) {
            (RunError::Scenario(error), _) => self.scenario_error(error),
            (RunError::TooManyEvents { .. }, Some(document)) => {
                Failure::Run(anyhow!("{}", at(document, "limits.events", &error)))
            }
            (RunError::TooManyInFlight { .. }, Some(document)) => {
                Failure::Run(anyhow!("{}", at(document, "limits.in_flight", &error)))
            }
            _ => Failure::Run(error.into()),
        }
    }

    /// μ as the law is given it.
    pub fn assumed(&self) -> PerSecond {
        self.control
            .assumed_rate_per_core_s
            .map_or(self.scenario.service_rate(), PerSecond::new)
    }

    /// The laws of these names, each in its guardian, as they run live.
    ///
    /// # Errors
    /// A parameter outside its range, a target out of reach, with the line; laws that cannot run together.
    pub fn guarded(&self, laws: impl Into<LawNames>) -> Result<Stack, Failure> {
        let (context, laws) = (self.context()?, laws.into());
        if context.plant.bounds(Lever::Servers).is_some() {
            let config = LawConfig {
                names: laws.clone(),
                ..self.law.clone()
            };
            let period = Seconds::new(self.scenario.service.period_s);
            config
                .foresees(&context.machines, period)
                .map_err(|error| self.law_error(&error))?;
        }
        let part = |law: LawName| {
            let built = self.law.build_named(law, &context);
            let part = Part::new(built.map_err(|error| self.law_error(&error))?);
            Ok(match law.resizes() {
                true => part.every(self.law.servers_every_periods),
                false => part,
            })
        };
        let parts = laws.iter().map(part).collect::<Result<_, Failure>>()?;
        let stack = Stack::new(parts, context.plant, self.control.lost_periods_to_full);
        let mut stack = stack.map_err(|error| self.error("law.name", error))?;
        if let Some(history) = &self.history {
            stack.recall(history.clone());
        }
        Ok(stack)
    }

    /// What can be searched of a law here.
    ///
    /// # Errors
    /// A law that cannot be built for this world, with the line.
    pub fn search_space(&self, law: LawName) -> Result<Vec<Parameter>, Failure> {
        let config = LawConfig {
            names: law.into(),
            ..self.law.clone()
        };
        let found = config.search_space(&self.context()?);
        found.map_err(|error| self.law_error(&error))
    }

    fn context(&self) -> Result<LawContext, Failure> {
        let plant = self
            .scenario
            .plant()
            .map_err(|error| self.error("nodes", error))?;
        let slo = self
            .scenario
            .slo()
            .map_err(|error| self.error("service", error))?;
        Ok(LawContext {
            slo,
            plant,
            service_rate: self.assumed(),
            machines: self.assumed_machines()?,
        })
    }

    fn assumed_machines(&self) -> Result<Vec<MachineFigures>, Failure> {
        let Some(machine) = &self.control.assumed_machine else {
            return Ok(self.scenario.machines());
        };
        let figures = self.scenario.each_node().map(|node| {
            let figures = machine.figures(node.cores.ceil() as usize);
            figures.map_err(|error| {
                let key = format!("control.assumed_machine.{}", error.key);
                self.error(&key, format!("is {}: {}", error.value, error.expected))
            })
        });
        figures.collect()
    }

    fn law_error(&self, error: &LawError) -> Failure {
        // The live configuration keeps the SLO and the period in tables of their own.
        let key = error
            .key
            .replace("slo.target_ms", "service.target_ms")
            .replace("control.period_ms", "service.period_s");
        self.error(&key, &error.why)
    }

    /// The configuration in force, as text for the record.
    pub fn text(&self) -> String {
        match &self.document {
            Some(document) => document.text().to_owned(),
            None => "# the default scenario: `headroom sim --example` prints it\n".to_owned(),
        }
    }
}

/// A message with the file and the line of a key, where the message names the key itself.
fn at(document: &Document, key: &str, error: &RunError) -> ConfigError {
    let mut placed = document.error(key, "");
    placed.message = error.to_string();
    placed
}

/// The trace that a name or a file stands for: `wikipedia` and `azure` are as long as the published ones, from the seed.
///
/// # Errors
/// A file that cannot be read or holds something other than rates, with its line.
pub fn named_trace(name: &str, step: Seconds, seed: u64) -> Result<Trace, Failure> {
    let trace = match name {
        "wikipedia" => {
            let days = (WIKIPEDIA_VALUES / Diurnal::default().points_per_day as f64).ceil() as usize;
            let whole = diurnal(&Diurnal {
                days,
                step,
                seed,
                ..Diurnal::default()
            });
            whole.and_then(|trace| trace.slice(Seconds::ZERO, step * WIKIPEDIA_VALUES))
        }
        "azure" => flat_with_spikes(&FlatWithSpikes {
            step,
            seed,
            ..FlatWithSpikes::default()
        }),
        file => return Trace::from_file(Path::new(file), step).map_err(Failure::usage),
    };
    Ok(trace.map_err(Failure::usage)?.named(format!("{name}-like")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Setting, Failure> {
        Setting::from_document(Document::shipped("a scenario", text))
    }

    #[test]
    fn the_example_is_a_scenario_and_has_the_table_of_each_law() {
        let example = example();
        for table in ["[law]", "[law.joint]", "[law.slo-power]", "[law.hpa-nodes]"] {
            assert_eq!(example.matches(&format!("\n{table}\n")).count(), 1, "{table}");
        }
        read(&example).unwrap();
    }

    #[test]
    fn what_a_trace_brings_is_checked_and_not_what_nobody_wrote() {
        // Two cores serve 10 requests a second, not the 139.5 of the default.
        let small = "[service]\nrate_per_core_s = 5.0\n[[nodes]]\ncount = 1\ncores = 2.0\n";
        read(small).unwrap();
        let written = format!("{small}[arrivals]\nkind = \"poisson\"\nrate_per_s = 139.5\n");
        assert!(read(&written).is_err());
    }
}
