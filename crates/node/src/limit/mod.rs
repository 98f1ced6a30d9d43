//! Power limits that the hardware holds: RAPL's ([`rapl`]) and HSMP's ([`hsmp`]), one interface for both, and the choice
//! between them and the software cap ([`choice`]).
//!
//! A cap here is on the processor packages together. It is split over them ([`split`]), bounded before it is written
//! (the kernel cuts off bits instead of refusing), read back, and put back to what was found in the end.

pub mod choice;
pub mod hsmp;
pub mod rapl;
pub mod split;

pub use choice::{LeverChoice, LeverKind, LeverPreference, NoLever, open};
pub use hsmp::HsmpLimits;
pub use rapl::RaplLimits;

use crate::file::FileError;
use crate::hsmp::HsmpError;
use crate::panel::{ForeignWrite, NotInForce, PanelError};
use crate::restore::{Outcome, RestoreError};
use headroom_units::{Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A hardware limit that cannot be used or set.
#[derive(Debug, thiserror::Error)]
pub enum PowerLimitError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// It could not be undone, so it was not done.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The processor's management controller did not answer.
    #[error(transparent)]
    Hsmp(#[from] HsmpError),
    /// There is no limit to set.
    #[error("no power limit to set ({why}): use the software power cap")]
    NoLimits {
        /// What was seen.
        why: String,
    },
    /// The firmware does not let it be set.
    #[error(
        "the power limit of {zone} is locked by the firmware ({path}: {cause}): unlock power limits in the BIOS, or use \
         the software power cap",
        path = path.display()
    )]
    Locked {
        /// The zone.
        zone: String,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: std::io::Error,
    },
    /// The kernel accepted a value but shows another.
    #[error(transparent)]
    NotInForce(#[from] NotInForce),
    /// A cap that is none.
    #[error("a power cap of {asked} cannot be held: give a number of watts above zero")]
    NotACap {
        /// What was asked for.
        asked: Watts,
    },
}

impl PowerLimitError {
    /// What sets the limit is gone, perhaps for a moment: its driver is being loaded anew.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::File(error) if error.is_gone())
    }
}

impl From<PanelError> for PowerLimitError {
    fn from(error: PanelError) -> Self {
        match error {
            PanelError::File(error) => Self::File(error),
            PanelError::Restore(error) => Self::Restore(error),
            PanelError::NotInForce(error) => Self::NotInForce(error),
        }
    }
}

/// Between which caps the packages together can be held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapBounds {
    /// The lowest.
    pub smallest: Watts,
    /// The highest: what was found, as a limit there is somebody's decision, or the hardware's maximum.
    pub largest: Watts,
}

/// A limit as it is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneLimit {
    /// The package.
    pub zone: String,
    /// As read back.
    pub limit: Watts,
}

/// What is in force after a cap was set.
#[derive(Clone, Debug, PartialEq)]
pub struct CapInForce {
    /// All packages together, as read back.
    pub limit: Watts,
    /// Each package.
    pub zones: Vec<ZoneLimit>,
    /// Where the cap was beyond a bound, the bounds.
    pub bounded: Option<CapBounds>,
    /// What somebody else had written since our last write.
    pub foreign: Vec<ForeignWrite>,
    /// A package is left alone, because somebody else wrote its limit: its part of `limit` is theirs.
    pub held: bool,
}

/// A power limit that the hardware holds.
pub trait HardwareCap: std::fmt::Debug + Send {
    /// The kind of lever.
    fn kind(&self) -> LeverKind;

    /// Between which caps the packages can be held.
    fn bounds(&self) -> CapBounds;

    /// How long the hardware may take to bring the power under a new limit.
    fn settles(&self) -> Seconds;

    /// Holds the packages together under a cap from now on; nothing lifts it to what was found. Somebody else's writes
    /// since the last call are reported, and become what is put back in the end.
    ///
    /// # Errors
    /// [`PowerLimitError`]: not a cap, or the hardware refuses; what was in force before stays so as far as it lets.
    fn set(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError>;

    /// Whether somebody else has written a limit since, without setting anything.
    ///
    /// # Errors
    /// [`PowerLimitError`] where it cannot be read.
    fn foreign_writes(&mut self) -> Result<Vec<ForeignWrite>, PowerLimitError>;

    /// Puts back what was found, now; later caps fail.
    fn restore(&mut self) -> Vec<Outcome>;
}

/// A cap that is one.
pub(crate) fn check(cap: Watts) -> Result<Watts, PowerLimitError> {
    match cap.is_finite() && cap.get() > 0.0 {
        true => Ok(cap),
        false => Err(PowerLimitError::NotACap { asked: cap }),
    }
}
