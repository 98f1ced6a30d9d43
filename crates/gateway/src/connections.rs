//! The connections that all cores have open to one backend.
//!
//! A server that gives each connection a worker (Apache's prefork) has as many workers as the limit of requests in flight says: so that
//! is also the limit of connections, those that wait in pools included. A core that needs one while others keep idle ones is given one
//! of these; one of TLS, which cannot change hands, is closed for it.

use std::net::TcpStream;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Backend;
use crate::waiting::Waiting;

/// How long one waits for another core to part with an idle connection, which that core does as soon as it runs. Past it the limit is
/// exceeded by one, rather than that a request fails which was let in.
const PATIENCE: Duration = Duration::from_millis(250);

/// What is open to one backend.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: AtomicU32,
    /// So many cores' requests wait for one.
    wanted: AtomicU32,
    /// On their way from one core to another: open, and no more than are wanted.
    handed: Mutex<Vec<Idle>>,
    /// One was closed or handed over.
    parted: Notify,
}

/// An idle connection between two cores.
#[derive(Debug)]
pub(crate) struct Idle {
    pub stream: TcpStream,
    /// How often its backend's addresses had changed when it was opened.
    pub generation: u32,
}

/// What one may use of a backend's limit: a connection, or the room for one.
#[derive(Debug)]
pub(crate) enum Taken {
    Room(Lease),
    Connection(Idle, Lease),
}

impl Connections {
    /// Whether one that is idle is to go to another core, which needs it: more are wanted than are on their way.
    pub(crate) fn are_wanted(&self) -> bool {
        // Nobody wants any, nearly always: then no lock is taken.
        let wanted = self.wanted.load(SeqCst) as usize;
        wanted > 0 && wanted > self.handed().len()
    }

    fn handed(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's part of its backend's limit, from before it is opened until it is closed.
#[derive(Debug)]
pub(crate) struct Lease {
    backend: Arc<Backend>,
    /// The connection goes on, with another core.
    goes_on: bool,
}

impl Lease {
    fn try_take(backend: &Arc<Backend>, configured: usize) -> Option<Self> {
        let open = &backend.connections.open;
        if (open.fetch_add(1, SeqCst) as usize) < backend.limit(configured) {
            return Some(Self::of(backend));
        }
        // None was closed: nobody is told.
        open.fetch_sub(1, SeqCst);
        None
    }

    fn of(backend: &Arc<Backend>) -> Self {
        Self {
            backend: backend.clone(),
            goes_on: false,
        }
    }

    /// Takes one of `limit`, as soon as there is one.
    pub(crate) async fn take(backend: &Arc<Backend>, limit: usize, waiting: &Waiting) -> Taken {
        if let Some(lease) = Self::try_take(backend, limit) {
            return Taken::Room(lease);
        }
        let connections = &backend.connections;
        let _wanted = Wanted::new(backend);
        let waits = async {
            loop {
                let mut parted = pin!(connections.parted.notified());
                // From here on none is missed.
                parted.as_mut().enable();
                if let Some(idle) = connections.handed().pop() {
                    // It has been counted since it was opened.
                    return Taken::Connection(idle, Self::of(backend));
                }
                if let Some(lease) = Self::try_take(backend, limit) {
                    return Taken::Room(lease);
                }
                waiting.tell_all();
                parted.await;
            }
        };
        match tokio::time::timeout(PATIENCE, waits).await {
            Ok(taken) => taken,
            Err(_) => {
                tracing::debug!(
                    backend = backend.url,
                    limit,
                    "one connection more than the limit: no core parted with an idle one"
                );
                connections.open.fetch_add(1, SeqCst);
                Taken::Room(Self::of(backend))
            }
        }
    }

    /// Hands an idle connection, whose part this is, to a core that waits for one; where none waits any more it is closed.
    pub(crate) fn hand_over(mut self, idle: Idle) {
        let connections = &self.backend.connections;
        let mut handed = connections.handed();
        if handed.len() < connections.wanted.load(SeqCst) as usize {
            handed.push(idle);
            drop(handed);
            connections.parted.notify_one();
            self.goes_on = true;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.goes_on {
            return;
        }
        let connections = &self.backend.connections;
        connections.open.fetch_sub(1, SeqCst);
        if connections.are_wanted() {
            connections.parted.notify_one();
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
        // Under the lock, so that none is handed over to nobody.
        let mut handed = self.0.handed();
        let wanted = self.0.wanted.fetch_sub(1, SeqCst) - 1;
        while handed.len() > wanted as usize {
            handed.pop();
            self.0.open.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BackendConfig;

    /// The room that was taken, where it is no connection.
    fn room(taken: Taken) -> Lease {
        match taken {
            Taken::Room(lease) => lease,
            Taken::Connection(..) => panic!("nobody handed a connection over"),
        }
    }

    fn connection() -> Idle {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Idle {
            stream: TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
            generation: 7,
        }
    }

    #[tokio::test]
    async fn an_idle_one_goes_to_whoever_waits_and_counts_on() {
        let backend = Arc::new(Backend::new(&BackendConfig::new("http://127.0.0.1:1")).unwrap());
        let waiting = Waiting::new(1, 1, 1);
        let first = room(Lease::take(&backend, 1, &waiting).await);
        let mut second = std::pin::pin!(Lease::take(&backend, 1, &waiting));
        assert!(futures_poll(second.as_mut()).await.is_none());
        first.hand_over(connection());
        let Taken::Connection(idle, lease) = second.await else {
            panic!("it was to be handed over")
        };
        assert_eq!(idle.generation, 7);
        assert_eq!(backend.connections.open.load(SeqCst), 1);
        drop(lease);
        assert_eq!(backend.connections.open.load(SeqCst), 0);
    }

    #[tokio::test]
    async fn one_that_nobody_waits_for_any_more_is_closed() {
        let backend = Arc::new(Backend::new(&BackendConfig::new("http://127.0.0.1:1")).unwrap());
        let waiting = Waiting::new(1, 1, 1);
        let first = room(Lease::take(&backend, 2, &waiting).await);
        let second = room(Lease::take(&backend, 2, &waiting).await);
        {
            let mut third = std::pin::pin!(Lease::take(&backend, 2, &waiting));
            assert!(futures_poll(third.as_mut()).await.is_none());
            first.hand_over(connection());
            // Its request goes away before it has taken it.
        }
        assert!(backend.connections.handed().is_empty());
        assert_eq!(backend.connections.open.load(SeqCst), 1);
        second.hand_over(connection());
        assert!(backend.connections.handed().is_empty());
        assert_eq!(backend.connections.open.load(SeqCst), 0);
    }

    #[tokio::test]
    async fn one_more_than_the_limit_waits_until_one_is_closed() {
        let backend = Arc::new(Backend::new(&BackendConfig::new("http://127.0.0.1:1")).unwrap());
        let waiting = Waiting::new(1, 1, 1);
        let first = room(Lease::take(&backend, 1, &waiting).await);
        assert!(!backend.connections.are_wanted());
        let second = Lease::take(&backend, 1, &waiting);
        let mut second = std::pin::pin!(second);
        assert!(futures_poll(second.as_mut()).await.is_none());
        assert!(
            backend.connections.are_wanted(),
            "whoever keeps an idle one parts with it"
        );
        drop(first);
        let second = room(second.await);
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
