//! Traces, arrival processes, user models and the HTTP load generator.
//!
//! - [`trace`]: a request rate over time, read from one number a line, scaled, compressed, repeated and cut.
//! - [`generate`]: seeded traces that ship with the product: a diurnal day, a flat line with rare spikes, two weeks
//!   of a web site.
//! - [`access_log`]: a web server's log, as a trace or as requests to send again.
//! - [`users`]: closed-loop users as SURGE models them, the site they browse, and how many there are over time.
//! - [`families`]: seeded traces unlike those, by family: other lengths, scales and rhythms, flash crowds, bursts, silence.
//! - [`arrivals`]: the intended send times over a trace, Poisson or even, with a rate that may change meanwhile.
//! - [`http`]: the generator itself: open loop or users, latency from the intended send time, one thread.
//!
//! Nothing here knows of control: the generator offers a load, whatever the service does with it.
// One block, where the timer is registered with tokio, whose safe function for it is deprecated.
#![deny(unsafe_code)]

pub mod access_log;
pub mod arrivals;
pub mod families;
pub mod generate;
pub mod http;
mod random;
pub mod trace;
pub mod users;

pub use arrivals::{Arrivals, Spacing};
pub use http::{LoadConfig, LoadError, LoadHandle, LoadPeriod, LoadResult, Pacing, Paths, Replay, UserLoad};
pub use trace::{Trace, TraceError};
