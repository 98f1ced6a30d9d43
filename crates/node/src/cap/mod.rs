//! A power cap, held by the hardware where it can, else in software by CPU quota: the control law of the latter
//! ([`law`]), and the limiter that runs either and joins it with the cores that are allocated ([`limiter`]). For the
//! caller both are the same: a cap on the watts that the meter reports.
//!
//! The SLO-Power authors name power management without special hardware as future work; this is one: what a RAPL limit
//! does by frequency, the quota does by duty cycle.

pub mod event;
mod hardware;
pub mod law;
pub mod limiter;
mod pace;
mod pacing;
mod state;

pub use event::Event;
pub use law::{Binding, CapInput, CapOptions, SoftwareCap};
pub use limiter::{Applied, CapStatus, LimitError, Limiter, LimiterOptions};
pub use state::MAX_EVENTS;
