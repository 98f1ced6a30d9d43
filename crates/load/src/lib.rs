//! The load generator: sends what [`headroom_workload`] says, over a trace, by users, from an access log or in a closed loop at
//! a density, and measures from the intended send time. [`http`] and [`memcached`] are what it speaks; how a load is followed and
//! what it amounted to ([`LoadHandle`], [`LoadPeriod`], [`LoadResult`]) is the same for both.
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

mod bursts;
mod clock;
mod error;
mod handle;
pub mod http;
mod limit;
pub mod memcached;
mod result;
mod share;
mod tally;
mod threshold;
mod usage;

pub use bursts::Bursts;
pub use error::LoadError;
pub use handle::LoadHandle;
pub use limit::Limit;
pub use result::{KindResult, LoadResult, Summary};
pub use tally::{Counts, Failures, LoadPeriod};
pub use threshold::{Judged, Threshold};
