//! File descriptors, of which a process has a limited number: clients get a share of them, so that enough are left for
//! the connections to backends that their requests need.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;

/// Left for what is opened now and then: connections to the control port, look-ups of names, files.
const SPARE: usize = 16;
/// What a core's runtime opens (epoll, its waker).
const PER_CORE: usize = 3;
/// What each listening socket may have beside its share: all may accept one connection at once when there is room for one.
const PER_LISTENER: usize = 1;
/// How often it is looked whether there is room again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// That the kernel refuses connections is said again after so long without.
const SAY_AGAIN: Duration = Duration::from_secs(10);
/// Fewer connections of clients than this are said at the start.
const FEW_CLIENTS: usize = 512;
/// Of each so many descriptors that are free at the start...
const PARTS: usize = 5;
/// ...so many are for clients' connections, and as many for one connection to a backend for each of them; the rest is
/// for pooled connections that wait on other cores than where they are needed.
const CLIENT_PARTS: usize = 2;

/// The share of the process's descriptors that clients may have, over all cores. Opening and closing a client's
/// connection costs one relaxed atomic; a request costs none.
#[derive(Debug)]
pub(crate) struct Descriptors {
    limit: u64,
    max_clients: usize,
    /// Pooled connections that one core may keep.
    pub max_pooled_per_core: usize,
    clients: AtomicUsize,
    /// Clients have all of their share, and that was said.
    full: AtomicBool,
    /// They had it since the last look at whether that is over.
    was_full: AtomicBool,
    /// It was said.
    said_full: Notify,
    /// Requests that wait for a descriptor for their connection to a backend.
    waiting: AtomicUsize,
    /// A core has found no room.
    paused: AtomicBool,
    /// While one had, a client left or a request ceased to wait.
    freed: Notify,
    pauses: AtomicU64,
    /// When the kernel refused a descriptor last.
    refused_at: Mutex<Option<Instant>>,
}

impl Descriptors {
    /// What this process has, less what it has open now.
    pub(crate) fn of_process(cores: usize, listeners: usize, backends: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // Where /proc is not mounted: what a process of a few threads has open.
        let open = std::fs::read_dir("/proc/self/fd").map_or(64, Iterator::count);
        Self::new(limit, open, (cores, listeners), backends)
    }

    fn new(limit: u64, open: usize, (cores, listeners): (usize, usize), backends: usize) -> Self {
        // A health check has a connection of its own to each backend.
        let taken = open + cores * PER_CORE + listeners * PER_LISTENER + backends + SPARE;
        let free = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(taken);
        let part = free / PARTS;
        let max_clients = (part * CLIENT_PARTS).max(1);
        if max_clients < FEW_CLIENTS {
            tracing::warn!(
                "this process may have {limit} descriptors, and clients {max_clients} connections of them: raise `ulimit -n` (LimitNOFILE) \
                 for more"
            );
        } else {
            tracing::info!(limit, max_clients, "descriptors shared out");
        }
        Self {
            limit,
            max_clients,
            max_pooled_per_core: part / cores.max(1),
            clients: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
            said_full: Notify::new(),
            waiting: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            freed: Notify::new(),
            pauses: AtomicU64::new(0),
            refused_at: Mutex::default(),
        }
    }

    fn is_room(&self) -> bool {
        self.clients.load(Ordering::SeqCst) < self.max_clients && self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Whether one more client may be accepted. The first that may not is said, and counted.
    pub(crate) fn has_room(&self) -> bool {
        if self.is_room() {
            return true;
        }
        self.paused.store(true, Ordering::SeqCst);
        let is_full = self.clients.load(Ordering::Relaxed) >= self.max_clients;
        if is_full {
            self.was_full.store(true, Ordering::Relaxed);
        }
        if is_full && !self.full.swap(true, Ordering::Relaxed) {
            self.said_full.notify_one();
            self.pauses.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                clients = self.max_clients,
                limit = self.limit,
                "no more connections are accepted for now: the rest of the descriptors is for backends (raise the limit \
                 of open files, LimitNOFILE= or ulimit -n, or lower timeouts.idle_timeout_ms)"
            );
        }
        // Whoever leaves from here on finds that somebody waits.
        self.is_room()
    }

    /// Waits until there may be room. A client of another core may be the one that leaves.
    pub(crate) async fn room(&self) {
        let mut freed = pin!(self.freed.notified());
        // Who leaves between the look and the wait is not missed.
        freed.as_mut().enable();
        if !self.has_room() {
            freed.await;
        }
    }

    /// A client's connection was accepted.
    pub(crate) fn opened(&self) {
        self.clients.fetch_add(1, Ordering::SeqCst);
    }

    /// A client's connection was closed.
    pub(crate) fn closed(&self) {
        self.clients.fetch_sub(1, Ordering::SeqCst);
        self.freed();
    }

    /// A request waits for a descriptor: clients are not accepted meanwhile.
    pub(crate) fn waits(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.is_news() {
            tracing::warn!(
                limit = self.limit,
                "requests wait for a descriptor or a port for a connection to their backend, and no more connections are accepted \
                 meanwhile (raise the limit of open files, LimitNOFILE= or ulimit -n, or lower limits.max_concurrent_streams)"
            );
        }
    }

    /// It does no more.
    pub(crate) fn waits_no_more(&self) {
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.freed();
        }
    }

    fn freed(&self) {
        if !self.paused.load(Ordering::SeqCst) {
            return;
        }
        // Before the waiters are woken: who finds no room after this sets it again, and who found none before it is woken.
        self.paused.store(false, Ordering::SeqCst);
        self.freed.notify_waiters();
    }

    /// Says, until dropped, when connections are accepted again after it was said that they are not. Clients come and go in bursts
    /// at the limit: it is over when none had to wait for [`LOOK_EVERY`], and there is room for more than a few.
    pub(crate) async fn say_when_over(&self) {
        loop {
            self.said_full.notified().await;
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if self.is_over() {
                    break;
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let left = self.clients.load(Ordering::Relaxed);
        let roomy = left <= self.max_clients - self.max_clients.div_ceil(8);
        let over = !self.was_full.swap(false, Ordering::Relaxed) && roomy;
        if over {
            self.full.store(false, Ordering::Relaxed);
            tracing::warn!(clients = left, "connections are accepted again");
        }
        over
    }

    /// Whether a shortage is news, which is said once, until a while has gone by without, and counted as often.
    fn is_news(&self) -> bool {
        let now = Instant::now();
        let mut refused_at = self.refused_at.lock().unwrap_or_else(PoisonError::into_inner);
        let before = refused_at.replace(now);
        let is_news = before.is_none_or(|before| now.duration_since(before) > SAY_AGAIN);
        if is_news {
            self.pauses.fetch_add(1, Ordering::Relaxed);
        }
        is_news
    }

    /// The kernel gave no descriptor or memory for a client's connection, which waits in its queue.
    pub(crate) fn refused(&self, error: &io::Error) {
        if self.is_news() {
            tracing::warn!(
                %error,
                limit = self.limit,
                "connections cannot be accepted, and wait (raise the limit of open files, LimitNOFILE= or ulimit -n)"
            );
        }
    }

    /// How often accepting was paused since the last call.
    pub(crate) fn take_pauses(&self) -> u64 {
        self.pauses.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_to_a_backend_is_left_for_each_client_and_each_place_in_a_pool() {
        for (limit, open, cores, backends) in [
            (256, 20, 2, 1),
            (1024, 40, 8, 30),
            (100, 20, 1, 1),
            (524_288, 40, 64, 256),
        ] {
            let shares = Descriptors::new(limit, open, (cores, 2 * cores), backends);
            let needed = open
                + cores * PER_CORE
                + 2 * cores * PER_LISTENER
                + backends
                + SPARE
                + 2 * shares.max_clients
                + cores * shares.max_pooled_per_core;
            assert!(needed as u64 <= limit, "{needed} of {limit}");
            assert!(shares.max_clients >= 10, "{shares:?}");
        }
        assert_eq!(
            Descriptors::new(30, 25, (4, 4), 9).max_clients,
            1,
            "never none at all"
        );
        assert!(Descriptors::new(u64::MAX, 20, (2, 2), 1).max_clients > 1 << 40);
    }

    #[test]
    fn each_pause_is_counted_once_and_is_over_when_there_was_room_for_a_while() {
        let shares = Descriptors::new(256, 20, (2, 2), 1);
        for _ in 0..shares.max_clients {
            assert!(shares.has_room());
            shares.opened();
        }
        assert!(!shares.has_room() && !shares.has_room());
        // A burst that leaves and one that comes.
        for _ in 0..shares.max_clients {
            shares.closed();
        }
        for _ in 0..shares.max_clients {
            assert!(shares.has_room());
            shares.opened();
        }
        assert!(!shares.has_room());
        assert_eq!((shares.take_pauses(), shares.take_pauses()), (1, 0));
        assert!(!shares.is_over(), "it was full since");
        shares.closed();
        assert!(!shares.is_over(), "room for one is not worth a line");
        for _ in 0..shares.max_clients / 2 {
            shares.closed();
        }
        assert!(shares.is_over());
        for _ in 0..=shares.max_clients / 2 {
            shares.opened();
        }
        assert!(!shares.has_room());
        assert_eq!(shares.take_pauses(), 1);
    }

    #[test]
    fn who_waits_for_room_is_woken_by_a_client_of_another_thread_and_by_a_request_that_waits_no_more() {
        let shares = Descriptors::new(256, 20, (2, 2), 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..200 {
            while shares.has_room() {
                shares.opened();
            }
            // Without the wake-up this hangs.
            std::thread::scope(|scope| {
                scope.spawn(|| shares.closed());
                runtime.block_on(async {
                    while !shares.has_room() {
                        shares.room().await;
                    }
                });
            });
        }
        assert_eq!(shares.take_pauses(), 1, "what is full all the time is said once");
        while shares.clients.load(Ordering::Relaxed) > 0 {
            shares.closed();
        }
        shares.waits();
        assert!(
            !shares.has_room(),
            "a descriptor is for the request that waits for it"
        );
        std::thread::scope(|scope| {
            scope.spawn(|| shares.waits_no_more());
            runtime.block_on(async {
                while !shares.has_room() {
                    shares.room().await;
                }
            });
        });
    }

    #[test]
    fn that_the_kernel_refuses_is_said_once_in_a_while() {
        let shares = Descriptors::new(256, 20, (2, 2), 1);
        for _ in 0..100 {
            shares.refused(&io::Error::from_raw_os_error(libc::EMFILE));
        }
        assert_eq!(shares.take_pauses(), 1);
    }
}
