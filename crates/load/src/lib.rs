//! The HTTP load generator: sends what [`headroom_workload`] says, over a trace, by users or from an access log, and measures
//! from the intended send time. Everything is in [`http`].
//!
//! Nothing here knows of control: the generator offers a load, whatever the service does with it.
//!
//! ```no_run
//! use headroom_load::http::{LoadConfig, Pacing, start};
//! use headroom_units::{PerSecond, Seconds};
//! use headroom_workload::{Arrivals, Spacing, Trace};
//!
//! let trace = Trace::constant(PerSecond::new(200.0), Seconds::new(10.0))?;
//! let pacing = Pacing::open(Arrivals::new(trace, Spacing::Poisson, 1));
//! let result = start(LoadConfig::new("http://127.0.0.1:8080/", pacing))?.join()?;
//! println!("{} of {} answered", result.counts.completed, result.counts.offered);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// One block, where the timer is registered with tokio, whose safe function for it is deprecated.
#![deny(unsafe_code)]

pub mod http;
