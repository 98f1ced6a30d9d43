//! The `headroom` binary as its users meet it, and as those who mean it harm do: real processes, sockets on loopback,
//! real control groups. What this machine or this user cannot run prints `skipped: why`.

mod attach;
mod backend;
mod bad_input;
mod capacity;
mod check;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod contract;
mod demo;
mod demo_clusters;
mod descriptors;
mod door;
mod failing;
mod gateway;
mod guard;
mod hand_over;
mod independence;
mod job;
mod laws;
#[path = "../../../node/tests/queue_common/listener.rs"]
mod listener;
mod load;
mod load_verdict;
mod openmetrics;
mod operate;
mod placement;
mod profile;
mod resize;
mod several;
mod sim;
mod telemetry;
mod undo;
mod up;
mod validate;
mod wrap;
mod wrap_fpm;
mod wrap_unseen;
