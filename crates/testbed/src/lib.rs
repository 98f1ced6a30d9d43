//! Built-in services to control, so that a demo needs nothing from outside.
//!
//! - [`auction`]: an auction site in the manner of RUBiS, with a real database behind its pages.
//! - [`hardware`]: a `/sys` that has the files of a two-package server and behaves like it, for machines that have none.
//! - [`serving`]: a machine of another kind, emulated: it answers as fast as that would and says what it would draw.
//! - [`wiki`]: a wiki whose pages cost real CPU time to render, an order of magnitude more for the longest than
//!   for the shortest.
//!
//! Nothing here is needed in production.
//!
//! ```no_run
//! use headroom_testbed::hardware::{Emulated, HardwareConfig};
//! use std::path::Path;
//!
//! let emulated = Emulated::mount(HardwareConfig::default(), None, Path::new("/run/emulated"))?;
//! let counter = emulated.root().join("class/powercap/intel-rapl:0/energy_uj");
//! println!("{} uJ at {:?}", std::fs::read_to_string(counter)?, emulated.machine().snapshot().power);
//! emulated.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod auction;
pub mod hardware;
mod server;
pub mod serving;
pub mod wiki;
mod words;
