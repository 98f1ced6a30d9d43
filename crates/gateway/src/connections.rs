//! The connections that all cores have open to one backend.
//!
//! A server that gives each connection a worker (Apache's prefork) has as many workers as the limit of requests in flight says: so that
//! is also the limit of connections, those that wait in pools included. A core that needs one while others keep idle ones has them close
//! one, and waits for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Backend;
use crate::waiting::Waiting;

/// How long one waits for another core to close an idle connection, which that core does as soon as it runs. Past it the limit is
/// exceeded by one, rather than that a request fails which was let in.
const PATIENCE: Duration = Duration::from_millis(250);

/// What is open to one backend.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: AtomicU32,
    /// So many cores' requests wait for one to be closed.
    wanted: AtomicU32,
    closed: Notify,
}

impl Connections {
    /// Whether one that is idle is to be closed, for another core needs it.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.load(SeqCst) > 0
    }
}

/// A connection's part of its backend's limit, from before it is opened until it is closed.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Backend>);

impl Lease {
    fn try_take(backend: &Arc<Backend>, limit: usize) -> Option<Self> {
        let open = &backend.connections.open;
        if (open.fetch_add(1, SeqCst) as usize) < limit {
            return Some(Self(backend.clone()));
        }
        // None was closed: nobody is told.
        open.fetch_sub(1, SeqCst);
        None
    }

    /// Takes one of `limit`, as soon as there is one.
    pub(crate) async fn take(backend: &Arc<Backend>, limit: usize, waiting: &Waiting) -> Self {
        if let Some(lease) = Self::try_take(backend, limit) {
            return lease;
        }
        let _wanted = Wanted::new(backend);
        let waits = async {
            loop {
                let closed = backend.connections.closed.notified();
                if let Some(lease) = Self::try_take(backend, limit) {
                    return lease;
                }
                waiting.tell_all();
                closed.await;
            }
        };
        match tokio::time::timeout(PATIENCE, waits).await {
            Ok(lease) => lease,
            Err(_) => {
                tracing::debug!(
                    backend = backend.url,
                    limit,
                    "one connection more than the limit: no core closed an idle one"
                );
                backend.connections.open.fetch_add(1, SeqCst);
                Self(backend.clone())
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let connections = &self.0.connections;
        connections.open.fetch_sub(1, SeqCst);
        if connections.are_wanted() {
            connections.closed.notify_one();
        }
    }
}

/// Counts one that waits.
struct Wanted<'a>(&'a Connections);

impl<'a> Wanted<'a> {
    fn new(backend: &'a Backend) -> Self {
        backend.connections.wanted.fetch_add(1, SeqCst);
        Self(&backend.connections)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BackendConfig;

    #[tokio::test]
    async fn one_more_than_the_limit_waits_until_one_is_closed() {
        let backend = Arc::new(Backend::new(&BackendConfig::new("http://127.0.0.1:1")).unwrap());
        let waiting = Waiting::new(1, 1);
        let first = Lease::take(&backend, 1, &waiting).await;
        assert!(!backend.connections.are_wanted());
        let second = Lease::take(&backend, 1, &waiting);
        let mut second = std::pin::pin!(second);
        assert!(futures_poll(second.as_mut()).await.is_none());
        assert!(
            backend.connections.are_wanted(),
            "whoever keeps an idle one closes it"
        );
        drop(first);
        let second = second.await;
        assert!(!backend.connections.are_wanted());
        assert_eq!(backend.connections.open.load(SeqCst), 1);
        drop(second);
        assert_eq!(backend.connections.open.load(SeqCst), 0);
    }

    /// What it has after one poll.
    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match future.as_mut().poll(cx) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
