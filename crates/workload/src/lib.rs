//! What comes in: request rates over time, arrival times, request sizes and users. Everything is pure and drawn from a
//! seed: nothing here sends a request, opens a socket or reads a clock. The load generator sends what this crate says;
//! the simulator simulates it.
//!
//! | what | module |
//! |---|---|
//! | a request rate over time, from a file or a program; scaled, compressed, repeated, cut | [`trace`] |
//! | seeded traces that ship with the product: a diurnal day, a flat line with rare spikes, two weeks of a web site | [`generate`] |
//! | seeded traces unlike those, by family: other lengths, scales and rhythms, flash crowds, bursts, silence | [`families`] |
//! | arrival times over a trace, Poisson or even, with a scale that may change meanwhile | [`arrivals`] |
//! | arrival processes of a configuration file: series, instants, Poisson, even, MMPP, sessions, browsing users | [`process`] |
//! | distributions of service times, think times, file sizes | [`distribution`] |
//! | closed-loop users as SURGE models them, the site they browse, and how many there are over time | [`users`] |
//! | a web server's log, as a trace or as requests to send again | [`access_log`] |
//! | closed-loop visitors of an auction site, and the site, in the manner of RUBiS | [`auction`] |
//! | the random streams | [`random`] |
//!
//! ```
//! use headroom_units::PerSecond;
//! use headroom_workload::generate::{Diurnal, diurnal};
//! use headroom_workload::{Arrivals, Spacing};
//!
//! let day = diurnal(&Diurnal { days: 1, seed: 3, ..Diurnal::default() })?;
//! let small = day.scaled_to_peak(PerSecond::new(5.0))?;
//! let due = Arrivals::new(small.clone(), Spacing::Even, 1);
//! assert!((due.count() as f64 - small.requests()).abs() < 1.0);
//! # Ok::<(), headroom_workload::TraceError>(())
//! ```
#![forbid(unsafe_code)]

pub mod access_log;
pub mod arrivals;
pub mod auction;
pub mod distribution;
mod error;
pub mod families;
pub mod generate;
pub mod process;
pub mod random;
pub mod trace;
pub mod users;

pub use arrivals::{Arrivals, Spacing};
pub use distribution::{Distribution, Shape};
pub use error::FigureError;
pub use process::ArrivalProcess;
pub use trace::{Trace, TraceError};
