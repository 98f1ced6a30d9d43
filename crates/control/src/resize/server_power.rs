//! The model of what a server of a resized cluster draws.

use serde::{Deserialize, Serialize};

/// What a server draws, watts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerPower {
    /// On, with idle CPUs. 60, the paper's.
    pub idle_w: f64,
    /// On, with all CPUs busy. 65, the paper's.
    pub full_w: f64,
    /// While it boots. 65: the paper measured it and prints nothing.
    pub booting_w: f64,
    /// While it shuts down. 60, for the same reason.
    pub shutting_down_w: f64,
    /// Switched off. 0, for the same reason; a real one's service processor draws a few.
    pub off_w: f64,
}

impl Default for ServerPower {
    fn default() -> Self {
        Self {
            idle_w: 60.0,
            full_w: 65.0,
            booting_w: 65.0,
            shutting_down_w: 60.0,
            off_w: 0.0,
        }
    }
}
