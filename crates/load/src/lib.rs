//! Traces, arrival processes and the open-loop HTTP load generator.
//!
//! - [`trace`]: a request rate over time, read from one number a line, scaled, compressed, repeated and cut.
//! - [`generate`]: seeded traces that ship with the product: a diurnal day and a flat line with rare spikes.
//! - [`arrivals`]: the intended send times over a trace, Poisson or even, with a rate that may change meanwhile.
//! - [`http`]: the generator itself: open loop, latency from the intended send time, one thread.
//!
//! Nothing here knows of control: the generator offers a load, whatever the service does with it.
// One block, where the timer is registered with tokio, whose safe function for it is deprecated.
#![deny(unsafe_code)]

pub mod arrivals;
pub mod generate;
pub mod http;
mod random;
pub mod trace;

pub use arrivals::{Arrivals, Spacing};
pub use http::{LoadConfig, LoadError, LoadHandle, LoadPeriod, LoadResult, Pacing, Paths};
pub use trace::{Trace, TraceError};
