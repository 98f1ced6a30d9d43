//! File descriptors, of which a process has a limited number: clients get a share of them, so that enough are left for
//! the connections to backends that their requests need.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

/// Left for what is opened now and then: connections to the control port, look-ups of names, files.
const SPARE: usize = 16;
/// What a core's runtime opens (epoll, its waker), with one connection too many that it may accept beside the others.
const PER_CORE: usize = 4;
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
    pauses: AtomicU64,
}

impl Descriptors {
    /// What this process has, less what it has open now.
    pub(crate) fn of_process(cores: usize, backends: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // Where /proc is not mounted: what a process of a few threads has open.
        let open = std::fs::read_dir("/proc/self/fd").map_or(64, Iterator::count);
        Self::new(limit, open, cores, backends)
    }

    fn new(limit: u64, open: usize, cores: usize, backends: usize) -> Self {
        // A health check has a connection of its own to each backend.
        let taken = open + cores * PER_CORE + backends + SPARE;
        let free = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(taken);
        let part = free / PARTS;
        let max_clients = (part * CLIENT_PARTS).max(1);
        tracing::info!(limit, max_clients, "descriptors shared out");
        Self {
            limit,
            max_clients,
            max_pooled_per_core: part / cores.max(1),
            clients: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            pauses: AtomicU64::new(0),
        }
    }

    /// Whether one more client may be accepted. The first that may not is said, and counted.
    pub(crate) fn has_room(&self) -> bool {
        let room = self.clients.load(Ordering::Relaxed) < self.max_clients;
        if !room && !self.full.swap(true, Ordering::Relaxed) {
            self.pauses.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                clients = self.max_clients,
                limit = self.limit,
                "no more connections are accepted for now: the rest of the descriptors is for backends (raise the limit \
                 of open files, LimitNOFILE= or ulimit -n, or lower timeouts.idle_timeout_ms)"
            );
        }
        room
    }

    /// A client's connection was accepted.
    pub(crate) fn opened(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// A client's connection was closed.
    pub(crate) fn closed(&self) {
        let left = self.clients.fetch_sub(1, Ordering::Relaxed) - 1;
        // Said only when there is room for more than a few, or each connection would be a line.
        let roomy = left <= self.max_clients - self.max_clients.div_ceil(8);
        if roomy && self.full.load(Ordering::Relaxed) && self.full.swap(false, Ordering::Relaxed) {
            tracing::warn!(clients = left, "connections are accepted again");
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
            let shares = Descriptors::new(limit, open, cores, backends);
            let needed = open
                + cores * PER_CORE
                + backends
                + SPARE
                + 2 * shares.max_clients
                + cores * shares.max_pooled_per_core;
            assert!(needed as u64 <= limit, "{needed} of {limit}");
            assert!(shares.max_clients >= 10, "{shares:?}");
        }
        assert_eq!(Descriptors::new(30, 25, 4, 9).max_clients, 1, "never none at all");
        assert!(Descriptors::new(u64::MAX, 20, 2, 1).max_clients > 1 << 40);
    }

    #[test]
    fn each_pause_is_counted_once_and_ends_with_some_room() {
        let shares = Descriptors::new(256, 20, 2, 1);
        for _ in 0..shares.max_clients {
            assert!(shares.has_room());
            shares.opened();
        }
        assert!(!shares.has_room() && !shares.has_room());
        shares.closed();
        assert!(shares.has_room(), "a place that is free is taken");
        shares.opened();
        assert!(!shares.has_room());
        assert_eq!((shares.take_pauses(), shares.take_pauses()), (1, 0));
        for _ in 0..shares.max_clients / 2 {
            shares.closed();
        }
        for _ in 0..shares.max_clients / 2 {
            shares.opened();
        }
        assert!(!shares.has_room());
        assert_eq!(shares.take_pauses(), 1);
    }
}
