//! Agents and controllers as their users meet them: real processes, sockets, certificates and control groups. What this
//! machine or this user cannot run prints `skipped: why`.

mod access;
mod agent;
mod agent_oncall;
mod both;
mod capacity;
mod certs;
mod coalescing;
#[path = "../common/mod.rs"]
mod common;
mod controller;
mod gateway;
mod gateways;
mod joint;
mod kill;
mod levers;
mod missing;
mod namespaces;
mod oncall;
mod parts;
mod queues;
mod reflex;
