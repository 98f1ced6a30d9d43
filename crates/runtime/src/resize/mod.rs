//! Servers that are switched on and off as their load needs it: a device of the control loop with real balancers, real power
//! switches and real accept queues.
//!
//! ```text
//!   accept queues ─┐                        ┌─> power switches, a thread each ([`SwitchWorker`])
//!   balancer ──────┼─> Servers ─> law ──────┤
//!   checks ────────┘   (fleet)              └─> balancer: ready, drain, out
//! ```
//!
//! The loop never waits for a machine: a switch has a thread of its own, checks, gateways and the agents that watch accept
//! queues have tasks, an HAProxy is asked with a time limit. What was commanded of the balancer is not remembered but read back each
//! period, and commanded again where it is otherwise: so a balancer that was restarted, or could not be reached for a while, is put
//! right. While it cannot be reached nothing is drained or stopped, for nobody could keep the requests from a server that goes.

/// The state of a balancer that cannot be relied on.
pub const UNRELIABLE: &str = "unreliable";

pub mod balancer;
mod check;
mod haproxy;
mod leave;
mod progress;
mod queue_sampler;
mod queues;
mod servers;
mod switch_worker;
#[cfg(test)]
mod testing;

pub use check::{CheckTarget, Checks};
pub use haproxy::HaproxyServers;
pub use leave::{leave, restore};
pub use queues::{Queue, distinguishing};
pub use servers::{Demand, GoesOut, HandedOver, MaintenanceChange, Parts, ServerParts, Servers, TakenOut};
pub use switch_worker::SwitchWorker;
