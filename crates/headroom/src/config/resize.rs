//! The configuration file of `headroom resize`.

use super::agent::TlsConfig;
use super::{AdminConfig, ConfigError, Document};
use headroom_control::capacity::tuning::QueueKind;
use headroom_control::capacity::{QueueMonitor, QueueTuning};
use headroom_control::resize::{AlwaysOn, PowerTuning, ResizeTuning, Resizer, Schedule, Scheduled, Stepwise};
use headroom_node::queue::QueuePreference;
use headroom_node::switch::SwitchConfig;
use headroom_sim::accept::ServerPower;
use headroom_telemetry::haproxy::StatisticsAddress;
use headroom_units::{PerSecond, Seconds};
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::tls::ClientTls;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An example with every key: what `headroom resize --example` prints.
pub const EXAMPLE: &str = include_str!("../../resize.example.toml");

/// The most servers: the most backends of one gateway.
pub const MOST_SERVERS: usize = 256;
/// The most gateways.
const MOST_GATEWAYS: usize = 16;
/// A day.
const DAY_S: f64 = 86_400.0;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeFile {
    /// Which controller.
    pub controller: ControllerTable,
    /// The parameters of the static and the dynamic controller.
    #[serde(default)]
    pub resize: ResizeTuning,
    /// The time limits of the servers' power states.
    #[serde(default)]
    pub power: PowerTuning,
    /// How capacities are estimated.
    #[serde(default)]
    pub capacity: CapacityTable,
    /// What servers draw, where that is known.
    pub energy: Option<ServerPower>,
    /// The control period and the looks at the servers.
    #[serde(default)]
    pub control: LoopTable,
    /// What is in front of the servers.
    pub balancer: BalancerTable,
    /// The controller's certificate, for gateways over TCP.
    pub tls: Option<TlsConfig>,
    /// The servers, by name; the first in the names' order is the last to be switched off.
    pub servers: BTreeMap<String, ServerTable>,
    /// What is left behind.
    #[serde(default)]
    pub exit: ExitTable,
    /// The record.
    #[serde(default)]
    pub record: JournalTable,
    /// The admin port.
    #[serde(default)]
    pub admin: AdminConfig,
}

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerKind {
    /// One capacity for all, from a benchmark.
    Static,
    /// Each server's online estimate.
    Dynamic,
    /// The time of day.
    Scheduled,
    /// Every server, always.
    AlwaysOn,
}

/// Where the arrival rate is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// Connections that arrive at the servers' accept queues.
    AcceptQueue,
    /// Requests that the balancer counts.
    Balancer,
}

/// `[controller]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerTable {
    /// Which.
    pub kind: ControllerKind,
    /// Requests a second that one server takes: for `static`, and for `scheduled` with a curve.
    pub capacity_per_s: Option<f64>,
    /// For `scheduled`: so many servers in each slot, from 00:00 on.
    pub slots: Option<Vec<usize>>,
    /// For `scheduled`, instead of `slots`: an average daily load, requests a second from 00:00 on.
    pub curve_per_s: Option<Vec<f64>>,
    /// Seconds of one value of the curve.
    #[serde(default = "default_curve_step_s")]
    pub curve_step_s: f64,
    /// Seconds of one slot.
    #[serde(default = "default_slot_s")]
    pub slot_s: f64,
    /// Seconds before a slot at which its servers are started.
    #[serde(default)]
    pub lead_s: f64,
    /// Seconds by which the schedule's time of day is ahead of UTC.
    #[serde(default)]
    pub utc_offset_s: f64,
    /// Where the arrival rate comes from; by default the accept queues where every server has one, else the balancer.
    pub demand: Option<Demand>,
}

const fn default_curve_step_s() -> f64 {
    300.0
}

const fn default_slot_s() -> f64 {
    1_800.0
}

/// `[capacity]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityTable {
    /// How accept queues are measured.
    pub method: QueuePreference,
    /// The parameters of queue monitoring; its sampling period is the control period.
    pub queue: QueueTuning,
}

/// `[control]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoopTable {
    /// Length of a period, in milliseconds.
    pub period_ms: f64,
    /// Seconds after which a check of a server has failed.
    pub check_limit_s: f64,
    /// Seconds between two questions about a server's power; a server that boots or stops is asked every second.
    pub power_poll_s: f64,
}

impl Default for LoopTable {
    fn default() -> Self {
        Self {
            period_ms: 1_000.0,
            check_limit_s: 1.0,
            power_poll_s: 10.0,
        }
    }
}

/// `[balancer]`: exactly one of its two.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalancerTable {
    /// Our gateways' control ports, each with its name.
    #[serde(default)]
    pub gateways: BTreeMap<String, String>,
    /// An HAProxy.
    pub haproxy: Option<HaproxyBalancer>,
}

/// `[balancer.haproxy]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HaproxyBalancer {
    /// Its statistics socket, `level admin`: a path, or an address on loopback.
    pub socket: String,
    /// The backend that has the servers.
    pub backend: String,
    /// The share of its weight that a server has while it warms up, in percent.
    #[serde(default = "default_warm_up_weight_percent")]
    pub warm_up_weight_percent: u32,
}

const fn default_warm_up_weight_percent() -> u32 {
    100
}

/// `[servers.NAME]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTable {
    /// What the balancer calls it: a gateway's backend URL, or the server's name in HAProxy.
    pub member: String,
    /// How it is seen to answer: `tcp:HOST:PORT`, or `http://HOST:PORT/PATH` (2xx and 3xx pass).
    pub check: String,
    /// The port on this machine whose accept queue is watched.
    pub accept_queue: Option<u16>,
    /// An agent that watches its accept queue.
    pub agent: Option<String>,
    /// What switches its power.
    pub power: SwitchConfig,
}

/// What becomes of the servers at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtExit {
    /// Every server is started and given requests.
    #[default]
    Serving,
    /// They stay as they are.
    AsTheyAre,
}

/// `[exit]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExitTable {
    /// What becomes of the servers.
    pub servers: AtExit,
    /// Seconds for which servers that boot are waited for.
    pub wait_s: f64,
}

impl Default for ExitTable {
    fn default() -> Self {
        Self {
            servers: AtExit::Serving,
            wait_s: 60.0,
        }
    }
}

/// `[record]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JournalTable {
    /// A file with one line of JSON a period; none where absent.
    pub file: Option<PathBuf>,
    /// At this size, in MiB, it is moved to FILE.1, whose place it takes.
    pub max_mib: f64,
}

impl Default for JournalTable {
    fn default() -> Self {
        Self {
            file: None,
            max_mib: 64.0,
        }
    }
}

/// How a server is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckTarget {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path; `None` where a connection is enough.
    pub path: Option<String>,
}

impl CheckTarget {
    fn parse(text: &str) -> Option<Self> {
        let (rest, path) = match text.strip_prefix("tcp:") {
            Some(rest) => (rest, None),
            None => {
                let rest = text.strip_prefix("http://")?;
                let slash = rest.find('/').unwrap_or(rest.len());
                let path = if slash == rest.len() { "/" } else { &rest[slash..] };
                (&rest[..slash], Some(path.to_owned()))
            }
        };
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "80"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let fits = plain(host) && !host.contains(['@', '/']) && path.as_deref().is_none_or(plain);
        (fits && (path.is_some() || rest.contains(':'))).then_some(Self {
            host: host.to_owned(),
            port: port.parse().ok().filter(|port| *port > 0)?,
            path,
        })
    }
}

impl ResizeFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`] for a file that cannot be read or understood, or a value that is outside its range.
    pub fn read(file: &Path) -> Result<(Self, Document), ConfigError> {
        Self::checked(Document::read(file, "resize")?)
    }

    pub(super) fn checked(document: Document) -> Result<(Self, Document), ConfigError> {
        let config: Self = document.parse("resize")?;
        config.check(&document)?;
        Ok((config, document))
    }

    fn check(&self, document: &Document) -> Result<(), ConfigError> {
        let at = |table: &str, error: &headroom_control::OutOfRange| {
            document.error(&format!("{table}.{}", error.key), error)
        };
        self.resize.check().map_err(|error| at("resize", &error))?;
        self.power.check().map_err(|error| at("power", &error))?;
        self.queue_tuning(document)?;
        let control = &self.control;
        document.within(&[
            ("control.period_ms", control.period_ms, 100.0, 60_000.0),
            ("control.check_limit_s", control.check_limit_s, 0.05, 60.0),
            ("control.power_poll_s", control.power_poll_s, 0.1, 3_600.0),
            ("exit.wait_s", self.exit.wait_s, 0.0, DAY_S),
            ("record.max_mib", self.record.max_mib, 0.1, 1e6),
        ])?;
        if let Some(power) = &self.energy {
            for (key, watts) in [
                ("energy.idle_w", power.idle_w),
                ("energy.full_w", power.full_w),
                ("energy.booting_w", power.booting_w),
                ("energy.shutting_down_w", power.shutting_down_w),
                ("energy.off_w", power.off_w),
            ] {
                document.within(&[(key, watts, 0.0, 1e6)])?;
            }
        }
        if !(1..=MOST_SERVERS).contains(&self.servers.len()) {
            let why = format!("has {}: name 1 to {MOST_SERVERS}", self.servers.len());
            return Err(document.error("servers", why));
        }
        if self.resize.min_servers > self.servers.len() {
            let why = format!("is {} of {} servers", self.resize.min_servers, self.servers.len());
            return Err(document.error("resize.min_servers", why));
        }
        self.check_balancer(document)?;
        self.check_servers(document)?;
        self.resizer(document)?;
        Ok(())
    }

    fn check_balancer(&self, document: &Document) -> Result<(), ConfigError> {
        let (gateways, haproxy) = (self.balancer.gateways.len(), &self.balancer.haproxy);
        if (gateways == 0) == haproxy.is_none() {
            let why = "needs exactly one of [balancer.gateways] and [balancer.haproxy]";
            return Err(document.error("balancer", why));
        }
        if gateways > MOST_GATEWAYS {
            let why = format!("has {gateways}: name at most {MOST_GATEWAYS}");
            return Err(document.error("balancer.gateways", why));
        }
        self.gateway_addresses(document)?;
        if let Some(table) = haproxy
            && !(1..=100).contains(&table.warm_up_weight_percent)
        {
            let why = format!("is {}: it must be 1 to 100", table.warm_up_weight_percent);
            return Err(document.error("balancer.haproxy.warm_up_weight_percent", why));
        }
        Ok(())
    }

    fn check_servers(&self, document: &Document) -> Result<(), ConfigError> {
        let mut members = BTreeSet::new();
        let mut ports = BTreeSet::new();
        let demand = self.demand();
        for (name, server) in &self.servers {
            let key = |key: &str| format!("servers.{name}.{key}");
            if !members.insert(&server.member) {
                let why = format!("{:?} is another server's too", server.member);
                return Err(document.error(&key("member"), why));
            }
            self.check_target(document, name)?;
            if let Some(agent) = &server.agent {
                let why = format!(
                    "{agent:?}: agents do not tell accept queues. Run this controller on the server's machine with \
                     accept_queue, or use a static or scheduled controller with demand = \"balancer\""
                );
                return Err(document.error(&key("agent"), why));
            }
            match server.accept_queue {
                Some(port) if port == 0 || !ports.insert(port) => {
                    let why = format!("{port} is no port, or another server's too");
                    return Err(document.error(&key("accept_queue"), why));
                }
                Some(_) => {}
                None if self.controller.kind == ControllerKind::Dynamic => {
                    let why = "is missing: the dynamic controller goes by each server's accept queue, on this machine";
                    return Err(document.error(&key("accept_queue"), why));
                }
                None if demand == Demand::AcceptQueue => {
                    let why = "is missing: demand = \"accept-queue\" needs each server's; or use demand = \"balancer\"";
                    return Err(document.error(&key("accept_queue"), why));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// How a server is checked.
    ///
    /// # Errors
    /// A text that is no place to check, with its line.
    pub fn check_target(&self, document: &Document, name: &str) -> Result<CheckTarget, ConfigError> {
        let text = self.servers.get(name).map_or("", |server| &server.check);
        CheckTarget::parse(text).ok_or_else(|| {
            let why = format!("{text:?} is no check: write tcp:HOST:PORT or http://HOST:PORT/PATH");
            document.error(&format!("servers.{name}.check"), why)
        })
    }

    /// Where the arrival rate comes from.
    pub fn demand(&self) -> Demand {
        self.controller.demand.unwrap_or_else(|| {
            if self.servers.values().all(|server| server.accept_queue.is_some()) {
                Demand::AcceptQueue
            } else {
                Demand::Balancer
            }
        })
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
                "is {given_s}: queues are sampled once a period, so leave it out or set control.period_ms"
            );
            return Err(document.error("capacity.queue.sampling_period_s", why));
        }
        if self.capacity.queue.kind != QueueKind::Published {
            let why =
                "must be \"published\" here: the other way wants many samples a period, and one is taken";
            return Err(document.error("capacity.queue.kind", why));
        }
        let tuning = QueueTuning {
            sampling_period_s: period_s,
            ..self.capacity.queue
        };
        QueueMonitor::new(tuning)
            .map_err(|error| document.error(&format!("capacity.queue.{}", error.key), &error))?;
        Ok(tuning)
    }

    /// The controller.
    ///
    /// # Errors
    /// What it needs is missing or outside its range, with its line.
    pub fn resizer(&self, document: &Document) -> Result<Box<dyn Resizer>, ConfigError> {
        let table = &self.controller;
        let capacity = || {
            let missing = || document.error("controller.capacity_per_s", "is missing: what one server takes");
            table.capacity_per_s.map(PerSecond::new).ok_or_else(missing)
        };
        Ok(match table.kind {
            ControllerKind::AlwaysOn => Box::new(AlwaysOn),
            ControllerKind::Static => Box::new(
                Stepwise::fixed(capacity()?, self.resize)
                    .map_err(|error| document.error("controller.capacity_per_s", error))?,
            ),
            ControllerKind::Dynamic => {
                Box::new(Stepwise::online(self.resize).map_err(|error| document.error("resize", error))?)
            }
            ControllerKind::Scheduled => {
                let wrong = |error| document.error("controller", error);
                let slot = Seconds::new(table.slot_s);
                let schedule = match (&table.slots, &table.curve_per_s) {
                    (Some(slots), None) => Schedule::new(slot, slots.clone()),
                    (None, Some(curve)) => {
                        let curve: Vec<PerSecond> = curve.iter().copied().map(PerSecond::new).collect();
                        Schedule::of_curve(&curve, Seconds::new(table.curve_step_s), slot, capacity()?)
                    }
                    _ => {
                        let why = "a scheduled controller needs exactly one of slots and curve_per_s";
                        return Err(document.error("controller", why));
                    }
                };
                document.within(&[("controller.utc_offset_s", table.utc_offset_s, -DAY_S, DAY_S)])?;
                let scheduled = Scheduled::new(schedule.map_err(wrong)?, Seconds::new(table.lead_s));
                Box::new(scheduled.map_err(wrong)?)
            }
        })
    }

    /// Each gateway's name and address, by name.
    ///
    /// # Errors
    /// A text that is no address, or TCP without certificates, with its line.
    pub fn gateway_addresses(&self, document: &Document) -> Result<Vec<(String, Address)>, ConfigError> {
        let one = |(name, text): (&String, &String)| {
            let key = format!("balancer.gateways.{name}");
            let address: Address = text.parse().map_err(|error| document.error(&key, error))?;
            if matches!(address, Address::Tcp { .. }) && self.tls.is_none() {
                let why = format!(
                    "{address} is TCP, which is reached with certificates only: make them with `headroom certs` and name \
                     them under [tls]"
                );
                return Err(document.error(&key, why));
            }
            Ok((name.clone(), address))
        };
        self.balancer.gateways.iter().map(one).collect()
    }

    /// How gateways are reached.
    ///
    /// # Errors
    /// Certificates that cannot be used, with their line.
    pub fn client(&self, document: &Document) -> Result<ClientOptions, ConfigError> {
        let tls = self.tls.as_ref().map(|tls| ClientTls::load(&tls.files()));
        let patience = Duration::from_secs(2);
        Ok(ClientOptions {
            tls: tls.transpose().map_err(|error| document.error("tls", error))?,
            connect_time: patience,
            answer_time: patience,
            silence: patience,
            ..ClientOptions::default()
        })
    }

    /// Where HAProxy's statistics socket is.
    pub fn haproxy(&self) -> Option<(StatisticsAddress, &HaproxyBalancer)> {
        let table = self.balancer.haproxy.as_ref()?;
        let address = match table.socket.parse() {
            Ok(address) => StatisticsAddress::Tcp(address),
            Err(_) => StatisticsAddress::Unix(PathBuf::from(&table.socket)),
        };
        Some((address, table))
    }

    /// The control period.
    pub fn period(&self) -> Duration {
        Duration::from_secs_f64(self.control.period_ms / 1e3)
    }
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;
