//! Its tables.

use headroom_control::capacity::QueueTuning;
use headroom_control::resize::Maintenance;
use headroom_node::queue::QueuePreference;
use headroom_node::switch::SwitchConfig;
use headroom_physics::Machine;
use headroom_runtime::cluster::REFUSED_PERIODS;
use headroom_runtime::resize::Demand;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// `[capacity]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityTable {
    /// How accept queues are measured.
    pub method: QueuePreference,
    /// The parameters of queue monitoring; its sampling period is the control period.
    pub queue: QueueTuning,
}

/// `[haproxy]`: the balancer in front of servers that are switched, where that is no gateway of ours.
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

/// A node: the address of its agent alone, or `[nodes.NAME]`.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    /// Its agent.
    pub agent: Option<String>,
    /// Whether it is written as a table.
    pub is_table: bool,
    /// What its machine is, where that is another one than `[machine]` says.
    pub machine: Option<Machine>,
    /// What its power switch and the balancer need to know, where it is switched on and off.
    pub server: ServerTable,
}

/// What of a node is about its being switched on and off.
#[derive(Clone, Debug, Default)]
pub struct ServerTable {
    /// What the balancer calls it: a gateway's backend URL, or the server's name in HAProxy.
    pub member: Option<String>,
    /// How it is seen to answer: `tcp:HOST:PORT`, or `http://HOST:PORT/PATH` (2xx and 3xx pass).
    pub check: Option<String>,
    /// The port whose accept queue is watched: on its agent's machine, on this one where it has no agent.
    pub accept_queue: Option<u16>,
    /// What may fail together: those that name the same.
    pub zone: Option<String>,
    /// What it draws at full load, watts, where that is another figure than `[energy]` has.
    pub full_w: Option<f64>,
    /// How an operator takes it out; read again while the controller runs.
    pub maintenance: Option<Maintenance>,
    /// What switches its power.
    pub power: Option<SwitchConfig>,
}

/// `maintenance`: whether, or how.
struct MaintenanceValue(Option<Maintenance>);

impl<'de> Deserialize<'de> for MaintenanceValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WhetherOrHow;
        impl<'de> Visitor<'de> for WhetherOrHow {
            type Value = MaintenanceValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a table of power_off and at_once")
            }

            fn visit_bool<E: serde::de::Error>(self, is_out: bool) -> Result<MaintenanceValue, E> {
                Ok(MaintenanceValue(is_out.then(Maintenance::default)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MaintenanceValue, A::Error> {
                let how = Maintenance::deserialize(MapAccessDeserializer::new(map))?;
                Ok(MaintenanceValue(Some(how)))
            }
        }
        deserializer.deserialize_any(WhetherOrHow)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeNode {
    agent: Option<String>,
    machine: Option<Machine>,
    member: Option<String>,
    check: Option<String>,
    accept_queue: Option<u16>,
    zone: Option<String>,
    full_w: Option<f64>,
    maintenance: Option<MaintenanceValue>,
    power: Option<SwitchConfig>,
}

impl<'de> Deserialize<'de> for NodeTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AgentOrTable;
        impl<'de> Visitor<'de> for AgentOrTable {
            type Value = NodeTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the address of an agent, or a table")
            }

            fn visit_str<E: serde::de::Error>(self, agent: &str) -> Result<NodeTable, E> {
                Ok(NodeTable {
                    agent: Some(agent.to_owned()),
                    ..NodeTable::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NodeTable, A::Error> {
                let WholeNode {
                    agent,
                    machine,
                    member,
                    check,
                    accept_queue,
                    zone,
                    full_w,
                    maintenance,
                    power,
                } = WholeNode::deserialize(MapAccessDeserializer::new(map))?;
                Ok(NodeTable {
                    agent,
                    is_table: true,
                    machine,
                    server: ServerTable {
                        member,
                        check,
                        accept_queue,
                        zone,
                        full_w,
                        maintenance: maintenance.and_then(|value| value.0),
                        power,
                    },
                })
            }
        }
        deserializer.deserialize_any(AgentOrTable)
    }
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

/// `[cluster]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// In whose name nodes are held; the host's by default.
    pub name: Option<String>,
    /// How long a node keeps what it was commanded without hearing from the controller, in milliseconds.
    pub lease_ms: f64,
    /// Periods in a row in which a gateway's control port refuses connections, after which it is dead and left out of the sum.
    pub refused_periods_to_leave: u32,
    /// How long the nodes are waited for at the start, in seconds.
    pub wait_s: f64,
    /// Smallest change of cores.
    pub cores_step: f64,
    /// Most cores, of all nodes together; all that they have by default.
    pub cores_max: Option<f64>,
    /// μ, in requests per second and core; observed, and again when it drifts, where absent.
    pub requests_per_core_s: Option<f64>,
    /// For how long μ is observed at least, in seconds.
    pub calibrate_s: f64,
    /// Where the arrival rate comes from by which servers are switched; by default the accept queues where every server has one,
    /// else the balancer.
    pub demand: Option<Demand>,
    /// The requests are the queries that the nodes' servers on call answer.
    pub queries: bool,
    /// Within which time of its coming to a server a request is to be answered, in milliseconds: the gateways give no server more at a
    /// time than that lets; by default the SLO's target, and 0 for as many as come.
    pub in_hand_ms: Option<f64>,
    /// Seconds after which a check of a server has failed.
    pub check_limit_s: f64,
    /// Seconds between two questions about a server's power; a server that boots or stops is asked every second.
    pub power_poll_s: f64,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            name: None,
            lease_ms: 5000.0,
            refused_periods_to_leave: REFUSED_PERIODS,
            wait_s: 10.0,
            cores_step: 0.1,
            cores_max: None,
            requests_per_core_s: None,
            calibrate_s: crate::config::default_calibrate_s(),
            demand: None,
            queries: false,
            in_hand_ms: None,
            check_limit_s: 1.0,
            power_poll_s: 10.0,
        }
    }
}
