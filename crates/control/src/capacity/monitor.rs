//! Either way of queue monitoring, as the parameters choose it.

use super::Estimate;
use super::busy_time::BusyTimeMonitor;
use super::queue::QueueMonitor;
use super::step::{QueueObservation, Step};
use super::tuning::{QueueKind, QueueTuning};
use crate::parameter::OutOfRange;
use headroom_units::PerSecond;

/// The online estimator of one server, of the kind that its parameters name.
#[derive(Clone, Debug)]
pub enum Monitor {
    /// The paper's.
    Published(Box<QueueMonitor>),
    /// Ours.
    BusyTime(Box<BusyTimeMonitor>),
}

impl Monitor {
    /// An estimator that knows nothing yet.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(tuning: QueueTuning) -> Result<Self, OutOfRange> {
        Self::joining(tuning, None)
    }

    /// An estimator of a server that joins others like it. The published one starts with their capacity, where that is known; ours
    /// says only what the server has shown itself (what it is presumed to take meanwhile: [`mod@crate::resize::presumed`]).
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn joining(tuning: QueueTuning, peers: Option<PerSecond>) -> Result<Self, OutOfRange> {
        Ok(match tuning.kind {
            QueueKind::Published => Self::Published(Box::new(QueueMonitor::joining(tuning, peers)?)),
            QueueKind::BusyTime => Self::BusyTime(Box::new(BusyTimeMonitor::new(tuning)?)),
        })
    }

    /// Takes one observation.
    pub fn observe(&mut self, observation: &QueueObservation) -> Estimate {
        match self {
            Self::Published(monitor) => monitor.observe(observation),
            Self::BusyTime(monitor) => monitor.observe(observation),
        }
    }

    /// Takes one sampling step's numbers.
    pub fn step(&mut self, step: &Step) -> Estimate {
        match self {
            Self::Published(monitor) => monitor.step(step),
            Self::BusyTime(monitor) => monitor.step(step),
        }
    }
}
