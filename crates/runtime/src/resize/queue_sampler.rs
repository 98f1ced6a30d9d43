//! An accept queue that is sampled many times a period, on a thread of its own, for the estimator that asks for how long
//! somebody waited. The controller's loop takes the newest sample and the newest estimate, and waits for neither.

use crate::queue_sample::{UsedSockets, finer, observation};
use headroom_control::capacity::{BusyTimeMonitor, Estimate, ListenerSample, QueueObservation};
use headroom_node::queue::{QueueError, QueueSample};
use headroom_units::Seconds;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a sample shows.
type Sampled = Result<QueueSample, QueueError>;

/// A thread that samples. Dropped, it ends.
pub struct QueueSampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// It ended, or there is a new sample.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ended: bool,
    /// Whether the server takes requests, so that its capacity is estimated.
    serving: bool,
    monitor: Option<Box<BusyTimeMonitor>>,
    estimate: Option<Estimate>,
    /// The newest sample, until it is taken, and when it was.
    newest: Option<Sampled>,
    sampled: Option<Instant>,
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

impl QueueSampler {
    /// Begins to sample once in this time.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(sample: impl FnMut() -> Sampled + Send + 'static, every: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let sampling = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("queue-sampler".to_owned())
            .spawn(move || sample_on(sample, every, &sampling))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The newest sample that was not taken yet; `None` where there was none since.
    pub fn take(&self) -> Option<Sampled> {
        self.shared.lock().newest.take()
    }

    /// Takes the first sample, waiting for it at most so long.
    pub fn first(&self, patience: Duration) -> Option<Sampled> {
        self.shared
            .wait(Instant::now() + patience, |state| state.newest.is_some())
            .newest
            .take()
    }

    /// Says whether the server takes requests, and answers with its capacity as it was last estimated; `None` where nobody
    /// has sampled for longer than this.
    pub fn estimate(&self, serving: bool, hold: Duration) -> Option<Estimate> {
        let mut state = self.shared.lock();
        state.serving = serving;
        let fresh = state.sampled.is_some_and(|sampled| sampled.elapsed() <= hold);
        state.estimate.clone().filter(|_| fresh)
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

impl Drop for QueueSampler {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn sample_on(mut sample: impl FnMut() -> Sampled, mut every: Duration, shared: &Shared) {
    let mut used = UsedSockets::default();
    let mut before: Option<Instant> = None;
    let mut next = Instant::now();
    while !shared.wait(next, |state| state.ended).ended {
        let seen = sample();
        let at = seen.as_ref().map_or_else(|_| Instant::now(), |sample| sample.at);
        let length = before.map_or(every, |before| at.saturating_duration_since(before));
        let mut state = shared.lock();
        // A sight from elsewhere that is older than the moment at which it was missed says nothing new: the next one's
        // counters cover it.
        if !length.is_zero() {
            let serving = state.serving;
            // The counters go on while a server drains: the next sample's time is from the last that was shown.
            if serving || state.monitor.is_none() {
                before = Some(at);
            }
            if let Some(monitor) = state.monitor.as_mut().filter(|_| serving) {
                let length = Seconds::from(length);
                let observed = match &seen {
                    // What a whole machine counts is not this server's.
                    Ok(sample) if sample.port.accepts.is_none() => QueueObservation {
                        length,
                        sample: ListenerSample::Unread,
                    },
                    _ => observation(length, &seen, &mut used),
                };
                let estimate = monitor.observe(&observed);
                if monitor.wants_finer() {
                    every = finer(every);
                }
                state.estimate = Some(estimate);
            }
        }
        state.newest = Some(seen);
        state.sampled = Some(Instant::now());
        drop(state);
        shared.changed.notify_all();
        // What was missed is not made up for.
        next = (next + every).max(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::capacity::{Capacity, QueueTuning};
    use headroom_node::queue::{Counters, Length, Listener, QueueMethod};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    /// Far longer than anything takes on a busy machine.
    const LONG: Duration = Duration::from_secs(20);
    const EVERY: Duration = Duration::from_millis(10);

    /// A queue of 100 places that never empties; so many were accepted.
    fn sample(at: Instant, accepts: u64) -> QueueSample {
        let length = Length { now: 80, limit: 99 };
        QueueSample {
            method: QueueMethod::Ebpf,
            at,
            epoch: 1,
            port: Counters {
                enqueued: Some(accepts + 80),
                accepts: Some(accepts),
                drops: Some(0),
                ..Counters::default()
            },
            server: Counters::default(),
            machine: Counters::default(),
            length: Some(length),
            seen: None,
            cpu_busy: None,
            connections: None,
            loops_busy: None,
            listeners: vec![Listener {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 80)),
                cookie: 1,
                length,
                drops: Some(0),
                enqueued: Some(accepts + 80),
            }],
        }
    }

    /// A server that accepts 1,000 connections a second, by the times of the samples themselves.
    fn thousand_a_second() -> impl FnMut() -> Sampled + Send {
        let began = Instant::now();
        move || {
            let at = Instant::now();
            Ok(sample(at, at.duration_since(began).as_millis() as u64))
        }
    }

    fn monitor() -> BusyTimeMonitor {
        BusyTimeMonitor::new(QueueTuning {
            sampling_period_s: 0.1,
            ..QueueTuning::default()
        })
        .unwrap()
    }

    fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The exact capacity, once there is one.
    fn capacity(sampler: &QueueSampler) -> f64 {
        until("a capacity", || match sampler.estimate(true, LONG)?.capacity {
            Capacity::Exact(capacity) | Capacity::About(capacity) => Some(capacity.get()),
            Capacity::Presumed(_) | Capacity::LowerBound(_) | Capacity::Unknown => None,
        })
    }

    #[test]
    fn it_estimates_only_while_the_server_serves_and_what_it_drained_is_no_capacity() {
        let sampler = QueueSampler::start(thousand_a_second(), EVERY).unwrap();
        assert!(sampler.first(LONG).unwrap().is_ok());
        assert!(until("another sample", || sampler.take()).is_ok());
        assert_eq!(sampler.estimate(false, LONG), None, "nothing is estimated yet");
        sampler.join(monitor());
        let estimated = capacity(&sampler);
        assert!((estimated - 1_000.0).abs() < 100.0, "{estimated}");
        // It drains, for longer than a period, and is wanted again.
        sampler.estimate(false, LONG);
        std::thread::sleep(Duration::from_millis(500));
        let before = sampler.estimate(false, LONG);
        let after = until("an estimate after it", || {
            let estimate = sampler.estimate(true, LONG);
            (estimate != before).then_some(estimate?)
        });
        let per_s = after.capacity.value().unwrap().get();
        assert!((per_s - 1_000.0).abs() < 100.0, "{after:?}");
        sampler.forget();
        assert_eq!(sampler.estimate(true, LONG), None);
    }

    #[test]
    fn a_sample_that_hangs_is_no_estimate_after_a_while_and_does_not_hold_up_the_end() {
        let (hang, hung) = mpsc::channel::<()>();
        let samples = Arc::new(AtomicU64::new(0));
        let (counted, mut sample) = (Arc::clone(&samples), thousand_a_second());
        let sampling = move || {
            if counted.fetch_add(1, Ordering::SeqCst) > 50 {
                let _ = hung.recv();
            }
            sample()
        };
        let sampler = QueueSampler::start(sampling, EVERY).unwrap();
        sampler.join(monitor());
        capacity(&sampler);
        until("the sample that hangs", || {
            (samples.load(Ordering::SeqCst) > 51).then_some(())
        });
        sampler.take();
        until("no estimate", || {
            sampler
                .estimate(true, Duration::from_millis(200))
                .is_none()
                .then_some(())
        });
        assert!(sampler.take().is_none());
        drop(hang);
        drop(sampler);
    }
}
