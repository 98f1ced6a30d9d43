//! The threads that render, and the bounded queue before them.

use super::calibrate::{process_cpu, thread_cpu};
use super::render;
use super::store::Store;
use bytes::Bytes;
use headroom_units::Seconds;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

/// The queue is full.
pub(super) struct Full;

struct Job {
    page: usize,
    reply: oneshot::Sender<Bytes>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// What the front and the workers share.
pub(super) struct Pool {
    store: Arc<Store>,
    workers: usize,
    limit: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
    busy: AtomicUsize,
    served: AtomicU64,
    rejected: AtomicU64,
    abandoned: AtomicU64,
    /// Of each page: views, and CPU time in nanoseconds.
    costs: Vec<(AtomicU64, AtomicU64)>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

impl Pool {
    /// Starts the workers.
    pub(super) fn start(
        store: Arc<Store>,
        workers: usize,
        limit: usize,
    ) -> io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let pool = Arc::new(Self {
            costs: store.pages.iter().map(|_| Default::default()).collect(),
            store,
            workers,
            limit,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            busy: AtomicUsize::new(0),
            served: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        });
        let mut threads = Vec::with_capacity(workers);
        for number in 0..workers {
            let shared = Arc::clone(&pool);
            let spawned = std::thread::Builder::new()
                .name(format!("wiki-worker-{number}"))
                .spawn(move || shared.work());
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    pool.close();
                    return Err(error);
                }
            }
        }
        Ok((pool, threads))
    }

    /// Puts a page in the queue; its document comes from the receiver.
    pub(super) fn submit(&self, page: usize) -> Result<oneshot::Receiver<Bytes>, Full> {
        let (reply, document) = oneshot::channel();
        let mut queue = self.lock();
        if queue.jobs.len() >= self.limit {
            drop(queue);
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return Err(Full);
        }
        queue.jobs.push_back(Job { page, reply });
        drop(queue);
        self.arrived.notify_one();
        Ok(document)
    }

    /// Ends the workers once the queue is empty.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    pub(super) fn stats(&self) -> WikiStats {
        WikiStats {
            pages: self.store.pages.len(),
            workers: self.workers,
            busy_workers: self.busy.load(Ordering::Relaxed),
            queue_length: self.lock().jobs.len(),
            queue_limit: self.limit,
            pages_served: self.served.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
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

    fn work(&self) {
        while let Some(job) = self.next() {
            if job.reply.is_closed() {
                self.abandoned.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.busy.fetch_add(1, Ordering::Relaxed);
            let start = thread_cpu();
            let document = render::page(&self.store, &self.store.pages[job.page]);
            let spent = thread_cpu() - start;
            let (views, cpu_ns) = &self.costs[job.page];
            views.fetch_add(1, Ordering::Relaxed);
            cpu_ns.fetch_add((spent * 1e9) as u64, Ordering::Relaxed);
            self.busy.fetch_sub(1, Ordering::Relaxed);
            self.served.fetch_add(1, Ordering::Relaxed);
            // The client may have gone while its page was rendered.
            let _ = job.reply.send(Bytes::from(document));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A panic elsewhere leaves the queue whole: every change to it is one call.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
