//! The HTTP load generator: sends what [`headroom_workload`] says, over a trace, by users or from an access log, and measures
//! from the intended send time. Everything is in [`http`].
//!
//! Nothing here knows of control: the generator offers a load, whatever the service does with it.
// One block, where the timer is registered with tokio, whose safe function for it is deprecated.
#![deny(unsafe_code)]

pub mod http;
