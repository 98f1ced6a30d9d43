//! Idle connections to the backends, kept for the next request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::backend::BackendState;
use crate::config::ms;
use crate::core::Core;
use crate::upstream::Upstream;

/// One core's pools, one for each backend.
pub(crate) struct Pools {
    core: Rc<Core>,
    /// Boxed, because a connection is large and moves at each request.
    #[allow(clippy::vec_box)]
    pools: Vec<RefCell<Vec<Box<Upstream>>>>,
    /// How often each backend's addresses have changed: connections of before are not kept.
    generations: Vec<Cell<u32>>,
    /// Connections in the pools.
    count: Cell<usize>,
    pooled: Notify,
    swept: Cell<bool>,
}

impl Pools {
    pub(crate) fn new(core: Rc<Core>) -> Self {
        Self {
            pools: core.backends.iter().map(|_| RefCell::default()).collect(),
            generations: core.backends.iter().map(|_| Cell::default()).collect(),
            core,
            count: Cell::new(0),
            pooled: Notify::new(),
            swept: Cell::new(false),
        }
    }

    /// A live pooled connection. The one used last comes first, so that the rest can grow old and be closed.
    pub(crate) fn check_out(&self, backend: usize) -> Option<Box<Upstream>> {
        let mut pool = self.pools[backend].borrow_mut();
        while let Some(mut upstream) = pool.pop() {
            self.count.set(self.count.get() - 1);
            if upstream.is_usable() {
                return Some(upstream);
            }
        }
        None
    }

    /// Keeps a connection for the next request, if there is room and the backend is still wanted; hands it to another core, if one needs
    /// it.
    pub(crate) fn give_back(&self, backend: usize, mut upstream: Box<Upstream>) {
        let mut pool = self.pools[backend].borrow_mut();
        let to = &self.core.backends[backend];
        let is_shared = !to.dial.names_client();
        let wanted = is_shared && to.state() != BackendState::Down && !self.core.draining.get();
        let room = pool.len() < self.core.config.limits.max_idle_per_backend_per_core
            && self.count.get() < self.core.descriptors.max_pooled_per_core;
        let is_current = upstream.generation == self.generations[backend].get();
        if wanted && is_current && to.connections.are_wanted() {
            part_with(upstream);
        } else if wanted && room && is_current {
            upstream.reused = true;
            upstream.begun_among = None;
            upstream.idle_since = None;
            pool.push(upstream);
            self.count.set(self.count.get() + 1);
            if !self.swept.replace(true) {
                self.pooled.notify_one();
            }
        }
    }

    /// Closes pooled connections that are dead or have been idle too long, until dropped. The time of going
    /// idle is noted by the sweep, not by the request path: a connection is closed up to two sweeps late.
    pub(crate) async fn close_expired(&self) {
        let limit = ms(self.core.config.timeouts.pool_idle_timeout_ms);
        let every = (limit / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            if self.pools.iter().all(|pool| pool.borrow().is_empty()) {
                self.swept.set(false);
                self.pooled.notified().await;
            }
            tokio::time::sleep(every).await;
            let now = Instant::now();
            for pool in &self.pools {
                let mut pool = pool.borrow_mut();
                let before = pool.len();
                pool.retain_mut(|upstream| {
                    let since = *upstream.idle_since.get_or_insert(now);
                    now.duration_since(since) < limit && upstream.is_usable()
                });
                self.count.set(self.count.get() - (before - pool.len()));
            }
        }
    }

    /// Parts with one connection to each backend that another core needs one to.
    pub(crate) fn part_with_wanted(&self) {
        for (backend, pool) in self.core.backends.iter().zip(&self.pools) {
            if !backend.connections.are_wanted() {
                continue;
            }
            if let Some(upstream) = pool.borrow_mut().pop() {
                self.count.set(self.count.get() - 1);
                part_with(upstream);
            }
        }
    }

    /// How often a backend's addresses have changed; a connection that is opened is of this generation.
    pub(crate) fn generation(&self, backend: usize) -> u32 {
        self.generations[backend].get()
    }

    /// A backend has other addresses: its pooled connections are closed, and those in use are not kept.
    pub(crate) fn moved(&self, backend: usize) {
        let generation = &self.generations[backend];
        generation.set(generation.get().wrapping_add(1));
        self.clear_backend(backend);
    }

    /// Closes all pooled connections to a backend.
    fn clear_backend(&self, backend: usize) {
        let mut pool = self.pools[backend].borrow_mut();
        self.count.set(self.count.get() - pool.len());
        pool.clear();
    }

    /// Closes all pooled connections; how many there were.
    pub(crate) fn clear(&self) -> usize {
        let before = self.count.get();
        for backend in 0..self.pools.len() {
            self.clear_backend(backend);
        }
        before
    }
}

/// Hands an idle connection to a core that waits for one. One that cannot change hands is closed, so that there is room for another.
fn part_with(upstream: Box<Upstream>) {
    if let Some((idle, lease)) = upstream.into_idle() {
        lease.hand_over(idle);
    }
}
