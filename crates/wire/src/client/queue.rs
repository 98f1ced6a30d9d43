//! Watching an accept queue through an agent.

use super::{CallError, Client, Incoming};
use crate::message::{QueueSnapshot, WatchQueue};
use crate::proto;

impl Client {
    /// Asks for a sight of a port's accept queue a period; the first comes at once.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Outdated`] where the agent's version cannot watch, or cannot report the processor time of
    /// the control group that is asked for.
    pub async fn watch_queue(&self, watch: WatchQueue) -> Result<QueueSnapshots, CallError> {
        let outdated = |what| CallError::Outdated {
            address: self.address().clone(),
            version: self.agent.agent_version.chars().take(80).collect(),
            what,
        };
        if self.agent.queue_period_ms.is_none() {
            return Err(outdated("watch accept queues"));
        }
        // It would pass over the field that it does not know, and report the snapshots without it.
        if watch.cpu_group.is_some() && self.agent.cpu_groups.is_none() {
            return Err(outdated("report the processor time of a control group"));
        }
        let request = proto::WatchQueueRequest::from(watch);
        self.caller
            .stream(async |inner| inner.watch_queue(request).await)
            .await
    }
}

/// The snapshots of one accept queue that is watched.
pub type QueueSnapshots = Incoming<proto::QueueSnapshot, QueueSnapshot>;
