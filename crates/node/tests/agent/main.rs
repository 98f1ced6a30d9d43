//! An agent and its machine, asked over the protocol.

mod access;
#[path = "../agent_common/mod.rs"]
mod agent_common;
#[path = "../common/mod.rs"]
mod common;
mod groups;
mod live;
mod observe;
#[path = "../queue_common/mod.rs"]
mod queue_common;
mod queues;
mod served;
