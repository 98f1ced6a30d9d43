//! What researchers and the demo run: laws in simulated worlds ([`simulate`]), many of them compared ([`comparison`]) or
//! searched for parameters ([`tuning`]), the evaluations of papers, traces and load, and the emulated server
//! ([`emulator`]). Each command is a module of [`commands`] with its arguments, its help and what it does; `headroom`
//! takes them all in as [`Command`].
//!
//! No production build has it: `cargo build --no-default-features` leaves it out, and with it the simulator, the load
//! generator, the emulated hardware and the papers' tables.
//!
//! # Example
//! ```
//! use headroom_control::LawName;
//! use headroom_lab::simulate::{Setting, figures};
//!
//! // Three minutes of the default scenario: the three servers of the SLO-Power paper.
//! let mut world = Setting::default();
//! world.scenario.duration_s = Some(180.0);
//! let fixed = figures(&world, LawName::FIXED, 1)?;
//! let ours = figures(&world, LawName::HEADROOM, 1)?;
//! assert!(ours.energy_j < fixed.energy_j);
//! # Ok::<(), headroom_console::Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod comparison;
pub mod emulator;
mod origin;
pub mod simulate;
pub mod tuning;

pub use commands::Command;
