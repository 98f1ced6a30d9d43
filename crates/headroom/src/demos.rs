//! What demos left that were killed: only a program that can run demos knows what that may be.

#[cfg(feature = "lab")]
pub use headroom_lab::emulator::REMAINS;

/// Nothing: this program has no demo.
#[cfg(not(feature = "lab"))]
pub const REMAINS: headroom_runtime::live::undo::Remains = headroom_runtime::live::undo::Remains::NONE;
