//! The configuration file of `headroom controller` and `headroom resize`: one, for nodes whose agents set cores, caps and
//! frequencies, for servers that are switched on and off, and for both at once.

mod check;
mod reach;
mod switches;
mod tables;

pub use tables::{AtExit, CapacityTable, ClusterConfig, ExitTable, HaproxyBalancer, NodeTable};

use super::agent::TlsConfig;
use super::{AdminConfig, ControlConfig, RecordConfig, SloConfig};
use crate::telemetry_config::{TelemetryConfig, log_lines};
use headroom_console::{ConfigError, ConfigErrors, Document};
use headroom_control::capacity::{QueueMonitor, QueueTuning};
use headroom_control::resize::{Maintenance, PowerTuning, ServerPower, kinds};
use headroom_control::{LawConfig, LawName, Plant, ServerTraits};
use headroom_physics::{Machine, MachineFigures};
use headroom_runtime::resize::Demand;
use headroom_units::{Cores, PerSecond, Seconds, Watts};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A time in hand of less than this share of the SLO's target is short.
const SHORT_IN_HAND: f64 = 0.1;
/// An address that HAProxy may log to, as in the example.
const LOG: &str = "127.0.0.1:5140";

/// An example with every key: what `headroom controller --example` and `headroom resize --example` print.
pub const EXAMPLE: &str = concat!(
    include_str!("../../../controller.example.toml"),
    include_str!("../../../telemetry.example.toml"),
    include_str!("../../../laws.example.toml"),
    include_str!("../../../laws-on-call.example.toml")
);

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerFile {
    /// The SLO.
    pub slo: SloConfig,
    /// The nodes, by name; the first in the names' order is the last to be switched off. There are none where all laws set gateways alone.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeTable>,
    /// The gateways' control ports, each with its name.
    #[serde(default)]
    pub gateways: BTreeMap<String, String>,
    /// An HAProxy in front of the servers instead.
    pub haproxy: Option<HaproxyBalancer>,
    /// Telemetry of another source than gateways.
    pub telemetry: Option<TelemetryConfig>,
    /// What is spread over the nodes, and how they are asked.
    #[serde(default)]
    pub cluster: ClusterConfig,
    /// What the nodes' machines are; a node may name its own.
    pub machine: Option<Machine>,
    /// The time limits of the servers' power states.
    #[serde(default)]
    pub power: PowerTuning,
    /// How capacities are estimated.
    #[serde(default)]
    pub capacity: CapacityTable,
    /// What servers draw, where that is known.
    pub energy: Option<ServerPower>,
    /// What is left behind.
    #[serde(default)]
    pub exit: ExitTable,
    /// The controller's certificate, for TCP.
    pub tls: Option<TlsConfig>,
    /// The laws and their parameters.
    #[serde(default)]
    pub law: LawConfig,
    /// The control period.
    #[serde(default)]
    pub control: ControlConfig,
    /// The flight recorder.
    #[serde(default)]
    pub record: RecordConfig,
    /// The admin port.
    #[serde(default)]
    pub admin: AdminConfig,
}

impl ControllerFile {
    /// Reads and checks a file; `command` is what its example is asked for by.
    ///
    /// # Errors
    /// [`ConfigErrors`] for a file that cannot be read or understood, and for every value that is outside its range.
    pub fn read(file: &Path, command: &str) -> Result<(Self, Document), ConfigErrors> {
        Self::checked(Document::read(file, command)?, command)
    }

    /// Checks a text that was read before.
    ///
    /// # Errors
    /// As [`ControllerFile::read`].
    pub fn checked(document: Document, command: &str) -> Result<(Self, Document), ConfigErrors> {
        let mut config = document.parse_checked(command, |config: &Self, mistakes| {
            config.check_beside(&document, mistakes);
        })?;
        config.complete_elastic();
        Ok((config, document))
    }

    /// Gives the elastic law what other tables say: what a boot costs, and what fails together. A server that can be spared stays powered for
    /// its trial.
    fn complete_elastic(&mut self) {
        let mut zones: Vec<&str> = Vec::new();
        let machines: Vec<_> = self
            .nodes
            .values()
            .map(|node| (&node.machine, node.server.full_w))
            .collect();
        let usual_w = self.energy.unwrap_or_default().full_w;
        let servers = self.nodes.values().zip(kinds(&machines)).map(|(node, kind)| {
            let name = node.server.zone.as_deref().unwrap_or_default();
            let zone = zones.iter().position(|zone| *zone == name).unwrap_or_else(|| {
                zones.push(name);
                zones.len() - 1
            });
            ServerTraits {
                kind,
                zone,
                full: Some(Watts::new(node.server.full_w.unwrap_or(usual_w))),
            }
        });
        let elastic = &mut self.law.elastic;
        elastic.servers = servers.collect();
        elastic.power = self.energy.unwrap_or_default();
        elastic.shutdown_s = self.power.shutdown_s;
        if self.law.names.iter().any(|law| law.as_str() == "elastic") {
            self.power.drained_for_s.get_or_insert(elastic.trial_s);
        }
    }

    /// Which servers an operator takes out, and how.
    pub fn taken_out(&self) -> BTreeMap<String, Maintenance> {
        let out = |(name, node): (&String, &NodeTable)| Some((name.clone(), node.server.maintenance?));
        self.nodes.iter().filter_map(out).collect()
    }

    /// Whether a law switches servers on and off.
    pub fn resizes(&self) -> bool {
        self.switching_law().is_some()
    }

    /// The law that switches servers on and off. One that can, and sets machines too, does where each node's power can be
    /// switched.
    pub fn switching_law(&self) -> Option<LawName> {
        let switched = !self.nodes.is_empty() && self.nodes.values().all(|node| node.server.power.is_some());
        let switches = |law: &LawName| law.resizes() || (law.may_resize() && switched);
        self.law.names.iter().find(switches)
    }

    /// What each node's machine is, by its processors where they are known; else it is taken to have as many as the largest
    /// that is known.
    ///
    /// # Errors
    /// Figures that cannot be, or of another machine, with their line.
    pub fn machines(
        &self,
        document: &Document,
        processors: &BTreeMap<String, u32>,
        plant: &Plant,
    ) -> Result<Vec<MachineFigures>, ConfigError> {
        let most = processors.values().copied().max().unwrap_or(1);
        let usual = self.machine.clone().unwrap_or_default();
        let each = self.nodes.iter().map(|(name, node)| {
            let (machine, key) = match &node.machine {
                Some(machine) => (machine, format!("nodes.{name}.machine")),
                None => (&usual, "machine".to_owned()),
            };
            let cores = match (processors.get(name), machine) {
                (Some(cores), _) => *cores,
                (None, Machine::Figures(figures)) => figures.processor.cores as u32,
                (None, _) => most,
            };
            let figures = super::machine::figures(machine, document, &key, Cores::new(f64::from(cores)))?;
            Ok(super::machine::with_frequencies(
                machine,
                figures,
                plant.frequency(),
            ))
        });
        each.collect()
    }

    /// Whether a law sets nodes through their agents, or gateways: what it sets is held by leases.
    pub fn commands(&self) -> bool {
        self.law.names.iter().any(|law| !law.resizes())
    }

    /// Whether there are nodes that are set: laws of gateways do without.
    pub fn sets_nodes(&self) -> bool {
        self.commands() && !self.nodes.is_empty()
    }

    /// Where the arrival rate comes from by which servers are switched.
    pub fn demand(&self) -> Demand {
        self.cluster.demand.unwrap_or_else(|| {
            if self.nodes.values().all(|node| node.server.accept_queue.is_some()) {
                Demand::AcceptQueue
            } else {
                Demand::Balancer
            }
        })
    }

    /// Within which time of its coming to a server a request is to be answered; `None` where a server is given as many as come.
    pub fn in_hand(&self) -> Option<Seconds> {
        let ms = self.cluster.in_hand_ms.unwrap_or(self.slo.target_ms);
        (ms > 0.0).then(|| Seconds::new(ms / 1e3))
    }

    /// That the time within which a server is to answer what it has in hand is short beside the SLO's target.
    pub fn in_hand_note(&self) -> Option<String> {
        let ms = self.cluster.in_hand_ms.filter(|ms| *ms > 0.0)?;
        let target_ms = self.slo.target_ms;
        (ms < target_ms * SHORT_IN_HAND).then(|| {
            format!(
                "cluster.in_hand_ms = {ms}, and slo.target_ms = {target_ms}: a server that works on a request for longer than {ms} ms is given as \
                 few at a time as it was seen to work on, and the rest waits in the gateways; write milliseconds, about the target, or 0 for \
                 no bound"
            )
        })
    }

    /// That a run cannot be judged by its SLO, where nothing is configured that measures latencies.
    pub fn unmeasured_note(&self) -> Option<String> {
        let measures = self.telemetry.is_some() || !self.gateways.is_empty() || self.cluster.queries;
        let socket = self.statistics().filter(|_| !measures)?;
        let lines = log_lines(LOG, "option httplog");
        Some(format!(
            "nothing measures latencies, so whether slo.target_ms is kept will not be known: HAProxy's statistics socket counts requests only. Add \
             [telemetry.haproxy], which reads HAProxy's log, with log = \"udp:{LOG}\" and statistics = {socket:?}, and have HAProxy log there: \
             {lines}; or add [telemetry.prometheus]. The servers are switched without it all the same"
        ))
    }

    /// Servers whose queue is watched at another port than requests go to, as far as their `member` tells it.
    pub fn queue_notes(&self) -> Vec<String> {
        let note = |(name, node): (&String, &NodeTable)| {
            let watched = node.server.accept_queue?;
            let member = node.server.member.as_deref()?;
            let asked = port_of(member).filter(|port| *port != watched)?;
            Some(format!(
                "nodes.{name}.accept_queue: the queue of port {watched} is watched, while requests go to port {asked}, as its member is {member}: \
                 write {asked}, unless what listens at {watched} takes those requests too"
            ))
        };
        self.nodes.iter().filter_map(note).collect()
    }

    /// One capacity for all servers, where a law is given one.
    pub fn given_capacity(&self) -> Option<PerSecond> {
        let given = |law: LawName| match law.as_str() {
            "static" => self.law.fixed_capacity.capacity_per_s,
            "scheduled" => self.law.scheduled.capacity_per_s,
            _ => None,
        };
        self.law.names.iter().find_map(given).map(PerSecond::new)
    }

    /// The parameters of queue monitoring, at the control period.
    ///
    /// # Errors
    /// A parameter outside its range, with its line.
    pub fn queue_tuning(&self, document: &Document) -> Result<QueueTuning, ConfigError> {
        let period_s = self.control.period_ms / 1e3;
        let given_s = self.capacity.queue.sampling_period_s;
        if given_s != QueueTuning::default().sampling_period_s && given_s != period_s {
            let why = format!(
                "is {given_s}: capacities are estimated once a period, so leave it out or set control.period_ms"
            );
            return Err(document.error("capacity.queue.sampling_period_s", why));
        }
        let tuning = QueueTuning {
            sampling_period_s: period_s,
            ..self.capacity.queue
        };
        QueueMonitor::new(tuning)
            .map_err(|error| document.error(&format!("capacity.queue.{}", error.key), &error))?;
        Ok(tuning)
    }

    /// How long a lease lives.
    pub fn lease(&self) -> Duration {
        Duration::from_secs_f64(self.cluster.lease_ms / 1e3)
    }

    /// Most cores of all nodes together, where they are not to have all.
    pub fn most_cores(&self) -> Option<Cores> {
        self.cluster.cores_max.map(Cores::new)
    }
}

/// The port of a backend's URL; `None` of what is none, such as a server's name in HAProxy.
fn port_of(member: &str) -> Option<u16> {
    let url: http::Uri = member.parse().ok()?;
    let usual = match url.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    Some(url.port_u16().unwrap_or(usual))
}

#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod tests;
