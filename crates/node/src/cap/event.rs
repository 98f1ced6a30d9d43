//! What a limiter reports between two allocations.

use crate::cpu::ForeignWrite;
use crate::limit::LeverKind;
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
        /// The error of the reading.
        reason: String,
    },
    /// It can be read again.
    MeterBack,
    /// A limit cannot be written.
    WriteFailed {
        /// The error of the write.
        reason: String,
    },
    /// It can be written again.
    WriteBack,
    /// The hardware accepted a limit and does not keep to it.
    CapInert {
        /// What should hold it.
        lever: LeverKind,
        /// The limit on the packages.
        limit: Watts,
        /// What they draw.
        measured: Watts,
    },
    /// The hardware cannot hold caps any more: from now on the quota does.
    LeverGivenUp {
        /// The lever that held them.
        lever: LeverKind,
        /// The error that it was given up for.
        reason: String,
    },
    /// The power stays over the cap although it is held as low as it can be.
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
            Self::WriteFailed { reason } => write!(f, "a limit cannot be written: {reason}"),
            Self::WriteBack => write!(f, "limits can be written again"),
            Self::CapInert {
                lever,
                limit,
                measured,
            } => write!(
                f,
                "the {lever} limit of {limit:.1} was accepted and does nothing: the packages draw {measured:.1}; another \
                 interface may hold a limit of its own, or the firmware ignores this one"
            ),
            Self::LeverGivenUp { lever, reason } => write!(
                f,
                "power caps are held in software from now on, by CPU quota, because {lever} cannot: {reason}"
            ),
            Self::CapNotKept { cap, measured } => write!(
                f,
                "the power stays at {measured:.1}, over the cap of {cap:.1}, with everything held as low as it goes: \
                 something else draws it, or the cap is below the idle power"
            ),
            Self::LeaseExpired => write!(
                f,
                "no allocation came within the lease: everything was given back"
            ),
        }
    }
}
