//! Its tables.

use headroom_control::capacity::QueueTuning;
use headroom_node::queue::QueuePreference;
use headroom_node::switch::SwitchConfig;
use headroom_runtime::resize::Demand;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// The port whose accept queue is watched: on this machine, or on its agent's.
    pub accept_queue: Option<u16>,
    /// The agent of its machine, where that is not this one.
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
