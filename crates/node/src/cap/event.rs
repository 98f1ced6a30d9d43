//! What a limiter reports between two allocations.

use crate::cpu::ForeignWrite;
use headroom_units::Watts;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that happened between two allocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Somebody else wrote what we control.
    Foreign(ForeignWrite),
    /// The cap's meter cannot be read: the model alone decides.
    MeterLost {
        /// Why.
        reason: String,
    },
    /// It can be read again.
    MeterBack,
    /// The quota cannot be written.
    WriteFailed {
        /// Why.
        reason: String,
    },
    /// It can be written again.
    WriteBack,
    /// The power stays over the cap although the quota is at its floor.
    CapNotKept {
        /// The cap.
        cap: Watts,
        /// What the meter says.
        measured: Watts,
    },
    /// No allocation came within the lease: everything was given back.
    LeaseExpired,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(foreign) => foreign.fmt(f),
            Self::MeterLost { reason } => {
                write!(
                    f,
                    "the power meter cannot be read, so the cap is held by the model alone: {reason}"
                )
            }
            Self::MeterBack => write!(f, "the power meter can be read again"),
            Self::WriteFailed { reason } => write!(f, "the CPU quota cannot be written: {reason}"),
            Self::WriteBack => write!(f, "the CPU quota can be written again"),
            Self::CapNotKept { cap, measured } => write!(
                f,
                "the power stays at {measured:.1}, over the cap of {cap:.1}, with the service at its smallest quota: \
                 something else draws it, or the cap is below the idle power"
            ),
            Self::LeaseExpired => write!(
                f,
                "no allocation came within the lease: everything was given back"
            ),
        }
    }
}
