//! A scenario: the service, its nodes, what comes in, what goes wrong. What `--scenario FILE` holds, in TOML.
//!
//! # The default
//! [`Scenario::default`] is the cluster of the SLO-Power paper (Section V): three servers of 16 cores at 2.1 GHz, P95
//! within 250 ms, one decision a second, round robin. Figures that the paper leaves open, and where they are from:
//!
//! | figure | value | reason |
//! |---|---|---|
//! | `service.rate_per_core_s` | 24 | the authors' μ for this cluster; at the lowest frequency, 0.8 of 2.1 GHz, that is 9.1, and 9 is the authors' μ "at another frequency": so no share of the work is insensitive to the frequency |
//! | `service.size` | lognormal, SCV 0.5 | with elastic scaling alone (Figure 6b) hardly anything queues, so P95 97 ms over the mean 41.7 ms is that of the service times: a lognormal has this ratio, 2.3, at SCV 0.5 |
//! | `machine` | [`Machine::Skylake`] | a core that is not allocated idles like any other. The authors' own line, 2.86 c + 46.52 W, is [`Scenario::paper`] |
//! | `fewest_cores` | 2 a node | the authors' range, 2 to 16 |
//! | `duration_s` | 900 | of the constant load; a trace brings its own length |
//!
//! One thing does not fit together in the paper itself: at 139.5 requests per second and 24 per core and second, 5.8 cores
//! are busy, which is 17 % of the 35 cores of Figure 6(b), not its 39 %. Its 193 W, too, ask for some 12 busy cores.
//! Here μ is kept, as the laws are told it; utilisation and power then come out lower than the paper's.

use crate::balancer::Balancing;
use crate::capping::Capping;
use crate::error::{ScenarioError, within};
use crate::faults::Fault;
use crate::power::{Machine, NodeModel, PowerFigures};
use crate::quota::Quota;
use headroom_control::resize::PowerTuning;
use headroom_control::{CoreRange, FrequencyRange, NodeCapacity, Plant, PlantError, PowerEnvelope, Slo};
use headroom_physics::{MachineFigures, Placement};
use headroom_units::{Cores, Hertz, PerSecond, Ratio, Seconds, Watts};
use headroom_workload::{ArrivalProcess, Shape, Spacing};
use serde::{Deserialize, Serialize};

/// A scenario file that says what each key means, with its default.
pub const EXAMPLE: &str = include_str!("../scenario.example.toml");

/// The most nodes of a scenario.
pub const MAX_NODES: usize = 1_024;
/// The most faults of a scenario.
pub const MAX_FAULTS: usize = 10_000;
/// The most periods between the end of a period and the decision on it.
pub const MAX_DELAY_PERIODS: f64 = 60.0;

/// The whole of what is simulated, save for the law and the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// A name for reports.
    pub name: String,
    /// How long the run lasts, seconds of simulated time, rounded to whole periods. Not given: as long as the series
    /// of arrivals lasts, or 900 s.
    pub duration_s: Option<f64>,
    /// The smallest change of cores, of the whole cluster.
    pub core_step: f64,
    /// Whether the frequency can be limited; where the firmware keeps that to itself, a cap is what lowers it.
    pub frequency_lever: bool,
    /// Whether more load than all nodes at full speed can serve, on average, is meant.
    pub allow_overload: bool,
    /// The service and its SLO.
    pub service: Service,
    /// Its nodes, in groups of equals.
    pub nodes: Vec<NodeGroup>,
    /// How a law may switch them on and off; not given: it cannot. All are on at the start.
    pub power_states: Option<PowerTuning>,
    /// How requests are spread over them.
    pub balancer: Balancing,
    /// How long decisions take to take effect.
    pub delays: Delays,
    /// How well the controller sees.
    pub telemetry: Telemetry,
    /// When requests arrive.
    pub arrivals: ArrivalProcess,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
    /// What ends a run that would not end.
    pub limits: Limits,
}

/// A service and its SLO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// The SLO's percentile, percent.
    pub percentile: f64,
    /// The SLO's target T, milliseconds.
    pub target_ms: f64,
    /// Length of a control period, seconds.
    pub period_s: f64,
    /// μ: requests that one core at full speed serves per second; the mean service time is its inverse.
    pub rate_per_core_s: f64,
    /// How service times are distributed.
    pub size: Shape,
    /// s: the share of a request's time on a core at full speed that does not depend on the frequency.
    pub frequency_insensitive_share: f64,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            percentile: 95.0,
            target_ms: 250.0,
            period_s: 1.0,
            rate_per_core_s: 24.0,
            size: Shape::Lognormal { scv: 0.5 },
            frequency_insensitive_share: 0.0,
        }
    }
}

/// Nodes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeGroup {
    /// How many.
    pub count: u32,
    /// Cores of each.
    pub cores: f64,
    /// The fewest cores that each can be given.
    pub fewest_cores: f64,
    /// Speed of a core at its highest frequency, over the core that `service.rate_per_core_s` speaks of.
    pub speed: f64,
    /// What such a node is: what it draws, and how long it takes to switch.
    pub machine: Machine,
    /// Which idle core of a machine gets the next request.
    pub placement: Placement,
    /// What becomes of a machine's cores beyond those in force, where no quota holds them.
    pub parking: Parking,
    /// How caps are held.
    pub capping: Capping,
    /// How its cores are held where that is by a quota. Not given: they are cores, shared ideally.
    pub quota: Option<Quota>,
    /// The lowest cap that each takes, watts. Not given: what the fewest cores draw, all busy, at the lowest frequency.
    pub lowest_cap_w: Option<f64>,
}

/// What becomes of the cores that a service may not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parking {
    /// They are online, and idle but for the kernel's own work.
    #[default]
    Cpuset,
    /// They are offline: nothing wakes them.
    Offline,
}

impl Default for NodeGroup {
    fn default() -> Self {
        Self {
            count: 3,
            cores: 16.0,
            fewest_cores: 2.0,
            speed: 1.0,
            machine: Machine::default(),
            placement: Placement::default(),
            parking: Parking::default(),
            capping: Capping::default(),
            quota: None,
            lowest_cap_w: None,
        }
    }
}

impl NodeGroup {
    /// What is given of one of these nodes to the spreading of decisions.
    pub fn capacity(&self) -> NodeCapacity {
        let mut power = NodeModel::new(self, 0.0).envelope(self.fewest_cores);
        power.lowest_cap = self.lowest_cap_w.map_or(power.lowest_cap, Watts::new);
        NodeCapacity {
            fewest: Cores::new(self.fewest_cores),
            most: Cores::new(self.cores),
            power,
        }
    }

    /// Nodes of the SLO-Power testbed, by their authors' line: for the reproduction of the paper.
    pub fn paper() -> Self {
        Self {
            machine: Machine::Line(PowerFigures::default()),
            ..Self::default()
        }
    }
}

/// How long decisions take to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delays {
    /// A power cap, seconds.
    pub cap_s: f64,
    /// A number of cores, seconds.
    pub cores_s: f64,
    /// A limit on the frequency, seconds.
    pub frequency_s: f64,
    /// From the request that passes a reflex's bound to the command, seconds.
    pub reflex_s: f64,
}

impl Default for Delays {
    /// A millisecond for caps and frequencies, several for cores (SLO-Power, Section III-D); 20 ms for a reflex.
    fn default() -> Self {
        Self {
            cap_s: 0.001,
            cores_s: 0.005,
            frequency_s: 0.001,
            reflex_s: 0.02,
        }
    }
}

/// How well the controller sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// From the end of a period to the decision on it, seconds.
    pub delay_s: f64,
    /// Probability that a period's requests are not reported.
    pub loss: f64,
    /// Relative standard deviation of latencies as reported.
    pub latency_noise: f64,
    /// Relative standard deviation of power as reported.
    pub power_noise: f64,
    /// Relative standard deviation of utilisation as reported.
    pub utilisation_noise: f64,
    /// Where the arrival rate is read from.
    pub arrivals: ArrivalMeter,
}

/// Where a controller has the arrival rate from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalMeter {
    /// The requests that came are counted: a Poisson process makes that number vary by itself.
    #[default]
    Requests,
    /// The number of users is read, each of whom sends so many requests on average: the mean of what the process brings,
    /// whatever came. Of an open loop only.
    Users,
}

/// What ends a run that would not end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Events: arrivals, completions, decisions, changes.
    pub events: u64,
    /// Requests being served at once; each takes some 24 bytes.
    pub in_flight: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events: 20_000_000_000,
            in_flight: 2_000_000,
        }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "slo-power".to_owned(),
            duration_s: None,
            core_step: 1.0,
            frequency_lever: true,
            allow_overload: false,
            service: Service::default(),
            nodes: vec![NodeGroup::default()],
            power_states: None,
            balancer: Balancing::default(),
            delays: Delays::default(),
            telemetry: Telemetry::default(),
            arrivals: ArrivalProcess::Poisson { rate_per_s: 139.5 },
            faults: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Scenario {
    /// The default with the nodes of the SLO-Power testbed by their authors' line: for the reproduction of the paper.
    pub fn paper() -> Self {
        Self {
            nodes: vec![NodeGroup::paper()],
            ..Self::default()
        }
    }

    /// The same with the arrivals of a trace.
    #[must_use]
    pub fn with_trace(self, rates_per_s: Vec<f64>, hold: Seconds, spacing: Spacing) -> Self {
        Self {
            arrivals: ArrivalProcess::Series {
                rates_per_s,
                hold_s: hold.get(),
                spacing,
            },
            duration_s: None,
            ..self
        }
    }

    /// Each node's group, node by node.
    pub fn each_node(&self) -> impl Iterator<Item = &NodeGroup> {
        self.nodes
            .iter()
            .flat_map(|group| (0..group.count).map(move |_| group))
    }

    /// What each node is, as a law is given it.
    pub fn machines(&self) -> Vec<MachineFigures> {
        self.each_node()
            .map(|node| node.machine.figures(node.cores))
            .collect()
    }

    /// The number of periods.
    pub fn periods(&self) -> u64 {
        let length_s = self
            .duration_s
            .or_else(|| self.arrivals.length_s())
            .unwrap_or(900.0);
        ((length_s / self.service.period_s).round() as u64).max(1)
    }

    /// The length of the run: whole periods.
    pub fn duration(&self) -> Seconds {
        Seconds::new(self.periods() as f64 * self.service.period_s)
    }

    /// Mean service time on a core at full speed.
    pub fn mean_service(&self) -> Seconds {
        Seconds::new(1.0 / self.service.rate_per_core_s)
    }

    /// μ, as laws are told it.
    pub fn service_rate(&self) -> PerSecond {
        PerSecond::new(self.service.rate_per_core_s)
    }

    /// What all nodes at full speed can serve.
    pub fn full_capacity(&self) -> PerSecond {
        let cores: f64 = self.each_node().map(|node| node.cores * node.speed).sum();
        self.service_rate() * cores
    }

    /// The SLO.
    ///
    /// # Errors
    /// [`PlantError`] where it is none.
    pub fn slo(&self) -> Result<Slo, PlantError> {
        Slo::new(
            Ratio::from_percent(self.service.percentile),
            Seconds::from_millis(self.service.target_ms),
        )
    }

    /// What a law is told can be allocated: the cores, power and frequencies of all nodes together.
    ///
    /// # Errors
    /// [`PlantError`] where they are no plant.
    pub fn plant(&self) -> Result<Plant, PlantError> {
        let step = headroom_control::Spread::new(Cores::new(self.core_step))?;
        let nodes: Vec<NodeCapacity> = self.each_node().map(NodeGroup::capacity).collect();
        let (fewest, most) = step.range(&nodes);
        let base: Watts = nodes.iter().map(|node| node.power.base).sum();
        let cores_w: Watts = nodes
            .iter()
            .map(|node| node.power.per_core * node.most.get())
            .sum();
        let all: Cores = nodes.iter().map(|node| node.most).sum();
        let per_core = cores_w / all.get();
        let lowest: Watts = nodes.iter().map(|node| node.power.lowest_cap).sum();
        let power = PowerEnvelope {
            base,
            per_core,
            lowest_cap: lowest.min(base + per_core * fewest.get()),
        };
        let plant = Plant::new(CoreRange::new(fewest, most, step.step())?, power)?;
        let levels: Vec<NodeModel> = self.each_node().map(|node| NodeModel::new(node, 0.0)).collect();
        let ends = |of: fn(&NodeModel) -> Hertz, choose: fn(Hertz, Hertz) -> Hertz| {
            levels.iter().map(of).reduce(choose).unwrap_or(Hertz::new(1e9))
        };
        let lowest = ends(|node| node.at(node.lowest_unthrottled()).frequency, Hertz::min);
        let highest = ends(|node| node.at(node.top()).frequency, Hertz::max);
        let step = ends(NodeModel::frequency_step, Hertz::min).min(highest);
        let range = FrequencyRange::new(lowest, highest, step)?;
        let plant = plant.with_hardware_cap();
        let mut plant = match self.frequency_lever {
            true => plant.with_frequency(range),
            false => plant,
        };
        if self.each_node().all(|node| node.quota.is_none()) {
            plant = plant.with_parking();
        }
        Ok(match self.power_states {
            Some(_) => plant.with_servers(nodes.len()),
            None => plant,
        })
    }

    /// Checks that it is a world, and one whose load does not grow without end.
    ///
    /// # Errors
    /// [`ScenarioError`] naming the key, its value and what it may be.
    pub fn check(&self) -> Result<(), ScenarioError> {
        if let Some(duration_s) = self.duration_s {
            within("duration_s", duration_s, 1e-6, 1e12, " seconds")?;
        }
        self.check_service()?;
        self.check_nodes()?;
        within("core_step", self.core_step, 1e-3, 1e3, " cores")?;
        for (key, value) in [
            ("delays.cap_s", self.delays.cap_s),
            ("delays.cores_s", self.delays.cores_s),
            ("delays.reflex_s", self.delays.reflex_s),
            ("delays.frequency_s", self.delays.frequency_s),
        ] {
            within(key, value, 0.0, 3600.0, " seconds")?;
        }
        self.check_telemetry()?;
        self.arrivals.check("arrivals")?;
        let nodes = self.each_node().count();
        self.balancer.check("balancer", nodes)?;
        if self.faults.len() > MAX_FAULTS {
            let why = format!("has {} entries: at most {MAX_FAULTS}", self.faults.len());
            return Err(ScenarioError::new("faults", why));
        }
        for (at, fault) in self.faults.iter().enumerate() {
            fault.check(&format!("faults.{at}"), nodes)?;
        }
        Fault::check_overlaps(&self.faults)?;
        if self.limits.events == 0 {
            return Err(ScenarioError::new("limits.events", "is 0: a run needs events"));
        }
        if self.limits.in_flight == 0 || self.limits.in_flight > 1_000_000_000 {
            let why = format!("is {}: it must be 1 to 1000000000", self.limits.in_flight);
            return Err(ScenarioError::new("limits.in_flight", why));
        }
        self.check_load()
    }

    fn check_service(&self) -> Result<(), ScenarioError> {
        let service = &self.service;
        if !(service.percentile > 0.0 && service.percentile < 100.0) {
            let why = format!(
                "is {}: it must lie between 0 and 100, both excluded",
                service.percentile
            );
            return Err(ScenarioError::new("service.percentile", why));
        }
        within("service.target_ms", service.target_ms, 1e-3, 1e9, " milliseconds")?;
        within("service.period_s", service.period_s, 1e-3, 1e9, " seconds")?;
        within(
            "service.rate_per_core_s",
            service.rate_per_core_s,
            1e-6,
            1e9,
            " requests per second",
        )?;
        within(
            "service.frequency_insensitive_share",
            service.frequency_insensitive_share,
            0.0,
            0.99,
            "",
        )?;
        Ok(service.size.check("service.size")?)
    }

    fn check_nodes(&self) -> Result<(), ScenarioError> {
        let count: usize = self.nodes.iter().map(|group| group.count as usize).sum();
        if count == 0 || count > MAX_NODES {
            let why = format!("has {count} nodes in all: it must be 1 to {MAX_NODES}");
            return Err(ScenarioError::new("nodes", why));
        }
        for (at, group) in self.nodes.iter().enumerate() {
            let key = format!("nodes.{at}");
            within(&format!("{key}.cores"), group.cores, 1e-3, 4096.0, " cores")?;
            within(
                &format!("{key}.fewest_cores"),
                group.fewest_cores,
                1e-3,
                group.cores,
                " cores (its cores)",
            )?;
            within(&format!("{key}.speed"), group.speed, 1e-3, 1e3, "")?;
            group.machine.check(&format!("{key}.machine"), group.cores)?;
            group.capping.check(&format!("{key}.capping"))?;
            if let Some(quota) = &group.quota {
                quota.check(&format!("{key}.quota"))?;
                if group.parking == Parking::Offline {
                    let why = format!(
                        "is \"offline\" beside {key}.quota: a quota leaves all {} cores online, so none would ever be parked; \
                         remove one of the two",
                        group.cores
                    );
                    return Err(ScenarioError::new(format!("{key}.parking"), why));
                }
            }
            if let Some(states) = &self.power_states {
                let insensitive = self.service.frequency_insensitive_share;
                let (boot_s, _) = NodeModel::new(group, insensitive).switch_times_s();
                states
                    .waits_for(boot_s)
                    .map_err(|why| ScenarioError::new("power_states.boot_timeout_s", why))?;
            }
            let capacity = group.capacity().power;
            let most = capacity.limit(Cores::new(group.fewest_cores));
            if let Some(lowest_w) = group.lowest_cap_w {
                let unit = " W (what the fewest cores can draw)";
                within(&format!("{key}.lowest_cap_w"), lowest_w, 0.0, most.get(), unit)?;
            }
            let room = (group.cores / self.core_step + 1e-9).floor();
            if room < 1.0 {
                let why = format!(
                    "is {} with core_step {}: a node must have room for a step",
                    group.cores, self.core_step
                );
                return Err(ScenarioError::new(format!("{key}.cores"), why));
            }
        }
        Ok(())
    }

    fn check_telemetry(&self) -> Result<(), ScenarioError> {
        let telemetry = &self.telemetry;
        let most = MAX_DELAY_PERIODS * self.service.period_s;
        within(
            "telemetry.delay_s",
            telemetry.delay_s,
            0.0,
            most,
            " seconds (60 periods)",
        )?;
        within("telemetry.loss", telemetry.loss, 0.0, 1.0, "")?;
        within("telemetry.latency_noise", telemetry.latency_noise, 0.0, 1.0, "")?;
        within("telemetry.power_noise", telemetry.power_noise, 0.0, 1.0, "")?;
        within(
            "telemetry.utilisation_noise",
            telemetry.utilisation_noise,
            0.0,
            1.0,
            "",
        )?;
        if telemetry.arrivals == ArrivalMeter::Users && self.arrivals.mean_rate_per_s().is_none() {
            let why = "is \"users\" with sessions, whose rate the service decides: use \"requests\"";
            return Err(ScenarioError::new("telemetry.arrivals", why));
        }
        Ok(())
    }

    /// An open loop that brings more than everything can serve ends at a limit, sooner or later.
    fn check_load(&self) -> Result<(), ScenarioError> {
        let Some(rate) = self.arrivals.mean_rate_per_s() else {
            return Ok(());
        };
        let capacity = self.full_capacity().get();
        if rate < capacity || self.allow_overload {
            return Ok(());
        }
        let why = format!(
            "brings {rate} requests per second on average, and all {} nodes at full speed can serve {capacity}: the \
             backlog would grow without end. Lower the rate, add nodes or cores, or set allow_overload = true",
            self.each_node().count()
        );
        Err(ScenarioError::new("arrivals", why))
    }
}
