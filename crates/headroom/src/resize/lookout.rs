//! An accept queue that is looked at many times a period, on a thread of its own, for the estimator that asks for how long
//! somebody waited. The controller's loop takes the newest look and the newest estimate, and waits for neither.

use super::queues::Source;
use crate::looks::{Known, observation};
use headroom_control::capacity::{BusyTimeMonitor, Estimate, Observation, Sight};
use headroom_node::queue::{QueueError, QueueSample};
use headroom_units::Seconds;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that looks. Dropped, it ends.
pub struct Lookout {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// It ended, or there is a new look.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ended: bool,
    /// Whether the server takes requests, so that its capacity is estimated.
    serving: bool,
    monitor: Option<Box<BusyTimeMonitor>>,
    estimate: Option<Estimate>,
    /// The newest look, until it is taken.
    newest: Option<Result<QueueSample, QueueError>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this holds, at most to this moment.
    fn wait(&self, until: Instant, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || holds(&state) {
                return state;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Lookout {
    /// Begins to look once in this time.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(source: Source, every: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let looking = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("queue-looks".to_owned())
            .spawn(move || look(source, every, &looking))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The newest look that was not taken yet; `None` where there was none since.
    pub fn take(&self) -> Option<Result<QueueSample, QueueError>> {
        self.shared.lock().newest.take()
    }

    /// Takes the first look, waiting for it at most so long.
    pub fn first(&self, patience: Duration) -> Option<Result<QueueSample, QueueError>> {
        self.shared
            .wait(Instant::now() + patience, |state| state.newest.is_some())
            .newest
            .take()
    }

    /// Says whether the server takes requests, and answers with its capacity as it was last estimated.
    pub fn estimate(&self, serving: bool) -> Option<Estimate> {
        let mut state = self.shared.lock();
        state.serving = serving;
        state.estimate.clone()
    }

    /// Begins to estimate, where nothing is being estimated.
    pub fn join(&self, monitor: BusyTimeMonitor) {
        self.shared
            .lock()
            .monitor
            .get_or_insert_with(|| Box::new(monitor));
    }

    /// Ends that, and forgets what came of it.
    pub fn forget(&self) {
        let mut state = self.shared.lock();
        (state.monitor, state.estimate) = (None, None);
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn look(mut source: Source, every: Duration, shared: &Shared) {
    let mut known = Known::default();
    let mut before: Option<Instant> = None;
    let mut next = Instant::now();
    while !shared.wait(next, |state| state.ended).ended {
        let seen = source.sample();
        let at = seen.as_ref().map_or_else(|_| Instant::now(), |sample| sample.at);
        let length = before.map_or(every, |before| at.saturating_duration_since(before));
        let mut state = shared.lock();
        // A sight from elsewhere that is older than the moment at which it was missed says nothing new: the next one's
        // counters cover it.
        if !length.is_zero() {
            before = Some(at);
            let serving = state.serving;
            if let Some(monitor) = state.monitor.as_mut().filter(|_| serving) {
                let length = Seconds::from(length);
                let observed = match &seen {
                    // What a whole machine counts is not this server's.
                    Ok(sample) if sample.port.accepts.is_none() => Observation {
                        length,
                        sight: Sight::Unread,
                    },
                    _ => observation(length, &seen, &mut known),
                };
                let estimate = monitor.observe(&observed);
                state.estimate = Some(estimate);
            }
        }
        state.newest = Some(seen);
        drop(state);
        shared.changed.notify_all();
        // What was missed is not made up for.
        next = (next + every).max(Instant::now());
    }
}
