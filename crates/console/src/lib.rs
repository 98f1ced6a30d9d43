//! What the commands share: results on standard output and notes on standard error ([`say`]), failures with their exit
//! status ([`Failure`]), the flag that ends a program ([`Stop`]), files written for people ([`mod@file`]), the terminal while a
//! live view has it ([`terminal`]), configuration files whose errors name a line ([`Document`]), and what arguments may be
//! ([`args`], [`one_of`]).
//!
//! It knows nothing of services, laws or machines.
//!
//! ```
//! use headroom_console::{Document, Stop, args};
//!
//! assert_eq!(args::seconds("2.5"), Ok(2.5));
//! let document = Document::shipped("service.toml", "[slo]\ntarget_ms = 250\n");
//! assert!(document.has("slo", "target_ms") && !document.has("slo", "percentile"));
//! let stop = Stop::default();
//! stop.raise();
//! assert!(stop.is_raised());
//! ```
#![forbid(unsafe_code)]

pub mod args;
mod choice;
mod cuts;
mod document;
mod failure;
pub mod file;
pub mod fold;
mod mistakes;
mod parse;
mod place;
pub mod say;
mod stop;
pub mod terminal;
mod twice;

pub use choice::one_of;
pub use document::{ConfigError, Document};
pub use failure::Failure;
pub use mistakes::{ConfigErrors, Mistakes};
pub use stop::{Stop, at_forced_end};
