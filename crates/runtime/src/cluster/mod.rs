//! Many nodes and gateways as one machine and one telemetry, for the same control loop that runs on one machine.
//!
//! One thread has the network (`Network`): a task for each agent and each gateway, which connects, and connects again
//! with growing patience where the connection is lost. Between a task and the control loop lies what is known at last
//! and what is wanted: neither waits for the other longer than it is allowed.

mod capacity;
mod counts;
pub mod gateway_port;
mod gateways;
mod machine;
mod node;
mod oncall;
mod queue;

pub(crate) use capacity::usable;
pub(crate) use counts::{Counts, RunEnergy};
pub use gateways::{
    GatewayBalancer, GatewayLevers, GatewayMembers, Gateways, GatewaysChanged, OfferedLevers, REFUSED_PERIODS,
};
pub use machine::{ClusterMachine, ClusterOptions, Described, NoNode};
pub use oncall::ClusterQueries;
pub use queue::{AgentGroup, AgentQueue, Standing, WatchOptions};

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// The first wait before a connection is tried again; each next one is twice as long.
const FIRST_BACK_OFF: Duration = Duration::from_millis(100);
/// The longest wait before a connection is tried again.
const MAX_BACK_OFF: Duration = Duration::from_secs(2);
/// How long tasks may take to end, a release of their node included.
const MAX_END: Duration = Duration::from_secs(3);

/// What a task and the control loop share, and a bell for changes of it.
#[derive(Debug, Default)]
struct Shared<T> {
    inside: Mutex<T>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn new(inside: T) -> Self {
        Self {
            inside: Mutex::new(inside),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `ready` says so, at most until `deadline`; whether it did.
    fn wait(&self, deadline: Instant, mut ready: impl FnMut(&T) -> bool) -> bool {
        let mut inside = self.lock();
        loop {
            if ready(&inside) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(inside, left);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What attends to one connection, until it is asked to end.
pub(crate) type Attending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Gives tasks to the thread of a [`Network`] that runs. A clone gives to the same.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(mpsc::Sender<Vec<Attending>>);

/// So many groups of tasks may wait until that thread takes them.
const MAX_WAITING: usize = 4;

impl Spawner {
    /// Has all of these run, or none.
    ///
    /// # Errors
    /// The thread has ended, or does not come to take them.
    pub fn spawn(&self, tasks: Vec<Attending>) -> io::Result<()> {
        self.0.try_send(tasks).map_err(|error| {
            let why = match error {
                TrySendError::Full(_) => "the thread of the connections is busy: try again",
                TrySendError::Closed(_) => "the run has ended",
            };
            io::Error::other(why)
        })
    }
}

/// The thread that has the tasks. Dropped, it tells them to end and waits for them, not for ever.
#[derive(Debug)]
pub(crate) struct Network {
    stop: watch::Sender<bool>,
    spawner: Spawner,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts a task for each of the given, which are asked to end.
    ///
    /// # Errors
    /// Where the thread or its runtime cannot be started.
    pub fn start<F>(name: &str, tasks: Vec<F>, stop: watch::Sender<bool>) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut stopping = stop.subscribe();
        let (sender, mut more) = mpsc::channel::<Vec<Attending>>(MAX_WAITING);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut running: JoinSet<()> = tasks.into_iter().collect();
                loop {
                    tokio::select! {
                        () = stop_requested(&mut stopping) => break,
                        Some(tasks) = more.recv() => tasks.into_iter().for_each(|task| { running.spawn(task); }),
                        // What has ended takes no room.
                        Some(_) = running.join_next() => {}
                    }
                }
                let ended = async { while running.join_next().await.is_some() {} };
                if tokio::time::timeout(MAX_END, ended).await.is_err() {
                    tracing::warn!("a connection does not end and is cut");
                }
            });
        })?;
        Ok(Self {
            stop,
            spawner: Spawner(sender),
            thread: Some(thread),
        })
    }

    /// What gives it more tasks.
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the cluster's connections had panicked");
        }
    }
}

/// Waits until tasks are asked to end.
pub(crate) async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    // An error is the end of whoever could tell.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The wait before the next try.
#[derive(Debug)]
pub(crate) struct BackOff(Duration);

impl BackOff {
    /// The first.
    pub const fn new() -> Self {
        Self(FIRST_BACK_OFF)
    }

    /// How long to wait now; twice as long the next time.
    pub fn again(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(MAX_BACK_OFF);
        now
    }
}
