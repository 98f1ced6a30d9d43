//! The status page of a server of another machine, got from this one: the agent asks no pages.

use crate::cluster::AgentQueue;
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod, QueueSample, StatusPage, StatusQueueMeter};

/// Measures by the page while somebody listens on the port, as far as the agent has reported. It goes on while the agent is
/// silent: what the page shows is the server's own.
pub struct DistantPage {
    meter: StatusQueueMeter,
    queue: AgentQueue,
}

impl DistantPage {
    /// Gets the page for the first time. The queue is the port's, watched by any method, and has reported once.
    ///
    /// # Errors
    /// There is no status page, or none that can be reached from here.
    pub fn open(port: u16, page: &StatusPage, queue: AgentQueue) -> Result<Self, QueueError> {
        Ok(Self {
            meter: StatusQueueMeter::elsewhere(port, page, queue.processors())?,
            queue,
        })
    }
}

impl QueueMeter for DistantPage {
    fn method(&self) -> QueueMethod {
        QueueMethod::Status
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        self.queue.listening()?;
        self.meter.sample()
    }
}
