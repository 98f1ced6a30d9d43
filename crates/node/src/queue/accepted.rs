//! What a server does with what it has accepted: whether it waits for clients that send nothing.
//!
//! A worker that reads from a connection whose client has sent nothing serves nobody meanwhile. Where the accept queue is full that
//! happens by itself: the kernel drops the last step of a handshake, the client sends its request again and again, later and later, and
//! the connection is accepted before that has come. What the server serves then is no capacity of it.

use super::diag::Diag;
use super::{Connections, Length, QueueError};
use std::time::{Duration, Instant};

/// How often it is asked for: the kernel goes through all its connections for it.
const EVERY: Duration = Duration::from_millis(500);

/// The connections of a port, as they were last asked for.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    last: Option<(Instant, Connections)>,
}

impl Accepted {
    /// They, where somebody waits in the port's queue: else nobody is in difficulty, and it is not worth asking.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn of(
        &mut self,
        diag: &mut Diag,
        port: u16,
        queue: Length,
        now: Instant,
    ) -> Result<Option<Connections>, QueueError> {
        if queue.now == 0 {
            self.last = None;
            return Ok(None);
        }
        if let Some((at, known)) = self.last
            && now.saturating_duration_since(at) < EVERY
        {
            return Ok(Some(known));
        }
        let found = diag.connections(port)?;
        self.last = Some((now, found));
        Ok(Some(found))
    }
}
