//! The threads that render.

use super::render;
use super::store::Store;
use crate::server::pool::{Full, Pool, Worker};
use crate::server::{process_cpu, thread_cpu};
use bytes::Bytes;
use headroom_units::Seconds;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// What the workers have done; the answer of `/stats`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WikiStats {
    /// Pages of the wiki.
    pub pages: usize,
    /// Threads that render.
    pub workers: usize,
    /// Of them, those that are rendering.
    pub busy_workers: usize,
    /// Requests that wait for a worker.
    pub queue_length: usize,
    /// How many may wait.
    pub queue_limit: usize,
    /// Pages rendered.
    pub pages_served: u64,
    /// Requests answered 503 because the queue was full.
    pub rejected: u64,
    /// Requests whose client had gone before a worker came to them; they were not rendered.
    pub abandoned: u64,
    /// CPU time spent on rendering, so `pages_served / render_cpu_s` is the service rate per core.
    pub render_cpu_s: Seconds,
}

/// What the views so far have cost; the answer of `/costs`. Between two of them lies what a load cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WikiCosts {
    /// CPU time of the whole process, rendering and all the rest: speaking HTTP, the kernel's work on its calls.
    pub process_cpu_s: Seconds,
    /// Each page, in the order of `/pages.txt`.
    pub pages: Vec<PageCost>,
}

/// What rendering one page has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageCost {
    /// How often it was rendered.
    pub views: u64,
    /// CPU time of the threads that rendered it.
    pub cpu_s: Seconds,
}

/// The workers, and what they have done.
pub(super) struct Workers {
    count: usize,
    limit: usize,
    pool: Arc<Pool<Renderer>>,
    costs: Arc<Costs>,
}

/// Of each page: views, and CPU time in nanoseconds.
type Costs = Vec<(AtomicU64, AtomicU64)>;

/// One thread's part.
struct Renderer {
    store: Arc<Store>,
    costs: Arc<Costs>,
}

impl Worker for Renderer {
    type Job = usize;
    type Done = Bytes;

    fn carry_out(&mut self, page: usize) -> Bytes {
        let start = thread_cpu();
        let document = render::page(&self.store, &self.store.pages[page]);
        let spent = thread_cpu() - start;
        let (views, cpu_ns) = &self.costs[page];
        views.fetch_add(1, Ordering::Relaxed);
        cpu_ns.fetch_add((spent * 1e9) as u64, Ordering::Relaxed);
        document.into()
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

impl Workers {
    /// Starts the workers.
    pub(super) fn start(
        store: &Arc<Store>,
        count: usize,
        limit: usize,
    ) -> io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let costs: Arc<Costs> = Arc::new(store.pages.iter().map(|_| Default::default()).collect());
        let renderer = |_| Renderer {
            store: Arc::clone(store),
            costs: Arc::clone(&costs),
        };
        let (pool, threads) = Pool::start("wiki-worker", (0..count).map(renderer).collect(), limit)?;
        let workers = Self {
            count,
            limit,
            pool,
            costs,
        };
        Ok((Arc::new(workers), threads))
    }

    /// Puts a page in the queue; its document comes from the receiver.
    pub(super) fn submit(&self, page: usize) -> Result<oneshot::Receiver<Bytes>, Full> {
        self.pool.submit(page)
    }

    /// Ends the workers once the queue is empty.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    pub(super) fn stats(&self) -> WikiStats {
        let counts = self.pool.counts();
        WikiStats {
            pages: self.costs.len(),
            workers: self.count,
            busy_workers: counts.busy,
            queue_length: counts.queued,
            queue_limit: self.limit,
            pages_served: counts.done,
            rejected: counts.rejected,
            abandoned: counts.abandoned,
            render_cpu_s: self.page_costs().map(|page| page.cpu_s).sum(),
        }
    }

    fn page_costs(&self) -> impl Iterator<Item = PageCost> {
        self.costs.iter().map(|(views, cpu_ns)| PageCost {
            views: views.load(Ordering::Relaxed),
            cpu_s: Seconds::new(cpu_ns.load(Ordering::Relaxed) as f64 / 1e9),
        })
    }

    pub(super) fn costs(&self) -> WikiCosts {
        WikiCosts {
            process_cpu_s: Seconds::new(process_cpu()),
            pages: self.page_costs().collect(),
        }
    }
}
