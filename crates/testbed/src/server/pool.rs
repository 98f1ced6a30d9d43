//! Worker threads, and the bounded queue before them.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The queue is full.
#[derive(Debug)]
pub(crate) struct Full;

/// What one thread does, job after job.
pub(crate) trait Worker: Send + 'static {
    /// What is asked.
    type Job: Send + 'static;
    /// What is answered.
    type Done: Send + 'static;

    /// Does one job.
    fn carry_out(&mut self, job: Self::Job) -> Self::Done;
}

struct Waiting<W: Worker> {
    job: W::Job,
    reply: oneshot::Sender<W::Done>,
}

struct Queue<W: Worker> {
    jobs: VecDeque<Waiting<W>>,
    closed: bool,
}

/// How busy the workers are, and what they have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) busy: usize,
    pub(crate) queued: usize,
    pub(crate) done: u64,
    pub(crate) rejected: u64,
    pub(crate) abandoned: u64,
}

/// What the front and the workers share.
pub(crate) struct Pool<W: Worker> {
    limit: usize,
    queue: Mutex<Queue<W>>,
    arrived: Condvar,
    busy: AtomicUsize,
    done: AtomicU64,
    rejected: AtomicU64,
    abandoned: AtomicU64,
}

impl<W: Worker> Pool<W> {
    /// Starts a thread for each worker.
    pub(crate) fn start(
        name: &str,
        workers: Vec<W>,
        limit: usize,
    ) -> io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let pool = Arc::new(Self {
            limit,
            queue: Mutex::new(Queue {
                jobs: VecDeque::new(),
                closed: false,
            }),
            arrived: Condvar::new(),
            busy: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        });
        let mut threads = Vec::with_capacity(workers.len());
        for (number, worker) in workers.into_iter().enumerate() {
            let shared = Arc::clone(&pool);
            let spawned = std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || shared.work(worker));
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

    /// Puts a job in the queue; what comes of it comes from the receiver.
    pub(crate) fn submit(&self, job: W::Job) -> Result<oneshot::Receiver<W::Done>, Full> {
        let (reply, done) = oneshot::channel();
        let mut queue = self.lock();
        if queue.jobs.len() >= self.limit {
            drop(queue);
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return Err(Full);
        }
        queue.jobs.push_back(Waiting { job, reply });
        drop(queue);
        self.arrived.notify_one();
        Ok(done)
    }

    /// Ends the workers once the queue is empty.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            busy: self.busy.load(Ordering::Relaxed),
            queued: self.lock().jobs.len(),
            done: self.done.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
        }
    }

    fn work(&self, mut worker: W) {
        while let Some(Waiting { job, reply }) = self.next() {
            if reply.is_closed() {
                self.abandoned.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.busy.fetch_add(1, Ordering::Relaxed);
            let done = worker.carry_out(job);
            self.busy.fetch_sub(1, Ordering::Relaxed);
            self.done.fetch_add(1, Ordering::Relaxed);
            // The client may have gone while its page was rendered.
            let _ = reply.send(done);
        }
    }

    fn next(&self) -> Option<Waiting<W>> {
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
    fn lock(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
