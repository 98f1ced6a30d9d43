//! A server with its workers on call (`headroom_oncall`) as a part of the one control loop: a device whose levers are C, N and D, and the
//! telemetry that its own workers count.

mod agent_machine;
mod attached;
mod class;
mod class_table;
mod classes;
mod clients;
mod connections;
mod costs;
mod device;
mod doubts;
mod draw;
mod folder;
mod listeners;
mod log;
mod pages;
mod pressure;
mod server;
mod signals;
mod telemetry;
#[cfg(test)]
mod testing;
pub mod wrapped;

pub use agent_machine::OncallMachine;
pub use attached::{AttachFailure, AttachOptions, AttachedDevice, AttachedTelemetry, Attachment};
pub use class::{Class, DisengagementSlo};
pub use class_table::ClassTable;
pub use classes::{Classes, REST};
pub use clients::Clients;
pub use connections::{ConnectionReport, ConnectionSeries, Connections, MAX_IN_METRICS};
pub use costs::{ProgramCounts, ServerCosts, meter, processors};
pub use device::{Cost, Costs, LEVERS, ON_CALL, OncallDevice, OncallOptions, UNHELPED};
pub use draw::Draw;
pub use folder::{Folder, sweep};
pub use log::ServerLog;
pub use pages::ConnectionPages;
pub use server::{Ended, Server, StartError, no_thread};
pub use signals::PassedOn;
pub use telemetry::OncallTelemetry;
