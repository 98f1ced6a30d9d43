//! The configuration file of `headroom resize`.

mod check;
mod make;
mod reach;
mod tables;

pub use tables::{
    AtExit, BalancerTable, CapacityTable, ControllerKind, ControllerTable, ExitTable, JournalTable,
    LoopTable, ServerTable,
};

use super::AdminConfig;
use super::agent::TlsConfig;
use headroom_console::{ConfigError, Document};
use headroom_control::resize::{PowerTuning, ResizeTuning, ServerPower};
use headroom_runtime::resize::Demand;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// An example with every key: what `headroom resize --example` prints.
pub const EXAMPLE: &str = include_str!("../../../resize.example.toml");

/// The most servers: the most backends of one gateway.
pub const MAX_SERVERS: usize = 256;
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
    /// The controller's certificate, for gateways and agents over TCP.
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

    /// The control period.
    pub fn period(&self) -> Duration {
        Duration::from_secs_f64(self.control.period_ms / 1e3)
    }
}

#[cfg(test)]
mod tests;
