//! A power cap held in software, by CPU quota: the control law ([`law`]), and the limiter that runs it and joins it
//! with the cores that are allocated ([`limiter`]).
//!
//! The SLO-Power authors name power management without special hardware as future work; this is one: what a RAPL limit
//! does by frequency, the quota does by duty cycle.

pub mod event;
pub mod law;
pub mod limiter;
mod state;

pub use event::Event;
pub use law::{Binding, CapInput, CapOptions, SoftwareCap};
pub use limiter::{Allocation, Applied, CapStatus, LimitError, Limiter, LimiterOptions};
pub use state::MOST_EVENTS;
