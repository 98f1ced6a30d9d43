//! Watching an accept queue through an agent.

use super::{CallError, Client, Incoming};
use crate::message::{QueueSnapshot, WatchQueue};
use crate::proto;

impl Client {
    /// Asks for a sight of a port's accept queue a period; the first comes at once.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Outdated`] where the agent's version cannot watch, or cannot tell the processor time of
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
        // It would pass over the field that it does not know, and tell the sights without it.
        if watch.cpu_group.is_some() && self.agent.cpu_groups.is_none() {
            return Err(outdated("tell the processor time of a control group"));
        }
        let request = proto::WatchQueueRequest::from(watch);
        let snapshots = self.caller.stream(async |inner| inner.watch_queue(request).await);
        Ok(QueueSnapshots(snapshots.await?))
    }
}

/// The sights of one watch.
#[derive(Debug)]
pub struct QueueSnapshots(Incoming<proto::QueueSnapshot>);

impl QueueSnapshots {
    /// The next sight; `None` when the agent ended the stream, which it does when it ends itself.
    ///
    /// It waits as long as it takes; a connection that is lost is noticed within twice
    /// [`super::ClientOptions::silence`].
    ///
    /// # Errors
    /// [`CallError`]; the stream is over then.
    pub async fn next(&mut self) -> Result<Option<QueueSnapshot>, CallError> {
        self.0.next().await
    }
}
