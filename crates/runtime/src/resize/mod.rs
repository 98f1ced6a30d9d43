//! A live cluster that follows its load: the controllers of [`headroom_control::resize`] with real balancers, real power
//! switches and real accept queues.
//!
//! ```text
//!   accept queues ─┐                        ┌─> power switches, a thread each ([`switch_worker`])
//!   balancer ──────┼─> Cluster::tick ───────┤
//!   checks ────────┘   (resizer, fleet)     └─> balancer: ready, drain, out
//! ```
//!
//! The loop never waits for a machine: a switch has a thread of its own, checks, gateways and the agents that watch accept
//! queues have tasks, an HAProxy is asked with a time limit. What the balancer was told is not remembered but read back each period, and told again where
//! it is otherwise: so a balancer that was restarted, or could not be reached for a while, is put right. While it cannot be
//! reached nothing is drained or stopped, for nobody could keep the requests from a server that goes.

pub mod balancer;
mod check;
mod cluster;
mod gateways;
mod haproxy;
mod history;
mod journal;
mod leave;
mod lookout;
mod metrics;
mod news;
mod page;
mod queues;
mod recorded;
mod summary;
mod switch_worker;
mod tick;
mod view;

pub use check::{CheckTarget, Checks};
pub use cluster::{Cluster, Demand, Parts, ServerParts};
pub use gateways::Gateways;
pub use haproxy::HaproxyServers;
pub use history::History;
pub use journal::{Journal, Start, unix_s};
pub use leave::leave;
pub use metrics::ResizeStatus;
pub use page::sheet;
pub use queues::{Queue, distinguishing};
pub use recorded::{Recorded, read};
pub use summary::{Summary, text};
pub use switch_worker::SwitchWorker;
pub use view::View;
