//! Interrupt coalescing of a network card: for how long it collects what it receives before it interrupts a processor
//! (rx-usecs). Fewer interrupts let processors sleep longer; each request waits for them.
//!
//! By ethtool(8), since netlink of our own would be its second implementation for a few changes a minute, and the `ethtool`
//! crate cannot set coalescing. Its text is read and not its JSON, which older versions print wrong or not at all for -c.

use crate::tool::{Tool, Value};
use headroom_units::{Lever, LeverRange};
use serde::Deserialize;

/// The longest time that may be configured, in microseconds: a request must not wait longer for its interrupt.
pub const MAX_US: f64 = 10_000.0;

/// Which network card, and how far its interrupts may be delayed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicOptions {
    /// Its interface: `eth0`.
    pub interface: String,
    /// The shortest time that may be commanded, in microseconds.
    #[serde(default)]
    pub min_us: f64,
    /// The longest time that may be commanded, in microseconds; what the driver takes may be less.
    #[serde(default = "default_max_us")]
    pub max_us: f64,
}

fn default_max_us() -> f64 {
    200.0
}

impl NicOptions {
    /// What may be commanded.
    pub const fn range(&self) -> LeverRange {
        LeverRange {
            step: 1.0,
            ..LeverRange::between(self.min_us, self.max_us)
        }
    }
}

/// While a time is commanded, the driver does not choose one itself.
pub(crate) static COALESCING: Tool = Tool {
    name: "NIC interrupt coalescing",
    lever: Lever::Coalescing,
    program: "ethtool",
    package: "ethtool",
    devices: "class/net",
    emulated: "headroom-testbed/net",
    file: "address",
    show: "-c",
    set: "-C",
    values: &[
        Value {
            label: "Adaptive RX:",
            word: "adaptive-rx",
            meanwhile: Some("off"),
            tolerance: 0,
        },
        Value {
            label: "rx-usecs:",
            word: "rx-usecs",
            meanwhile: None,
            // The coarsest of the kernel's drivers has steps of 12 µs.
            tolerance: 12,
        },
    ],
};
