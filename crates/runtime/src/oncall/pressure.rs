//! Whether queries always waited: the least number of waiting connections in a period.

use headroom_oncall::Steering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// How often it is looked while some always waited: a server that serves all that come is looked at once a period.
const EVERY: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Shared {
    least: AtomicU64,
    ends: AtomicBool,
}

/// Looks how many connections wait, until nobody does; then no more until the next period, so that it wakes no idle core.
#[derive(Debug)]
pub(super) struct Pressure {
    steering: Arc<Steering>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pressure {
    pub(super) fn new(steering: Arc<Steering>) -> Self {
        let shared = Arc::new(Shared {
            least: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let (sampled, of) = (Arc::clone(&shared), Arc::clone(&steering));
        let sample = move || {
            while !sampled.ends.load(Relaxed) {
                match sampled.least.load(Relaxed) {
                    0 => std::thread::park(),
                    _ => std::thread::park_timeout(EVERY),
                }
                sampled.least.fetch_min(u64::from(of.waiting()), Relaxed);
            }
        };
        // Without the thread what waits is known at the ends of periods alone.
        let thread = std::thread::Builder::new()
            .name("pressure".to_owned())
            .spawn(sample);
        Self {
            steering,
            shared,
            thread: thread.ok(),
        }
    }

    /// The least number of waiting connections since the last call.
    pub(super) fn take(&self) -> u64 {
        let now = u64::from(self.steering.waiting());
        let least = self.shared.least.swap(now, Relaxed).min(now);
        if now > 0 {
            self.thread.as_ref().map(JoinHandle::thread).map(Thread::unpark);
        }
        least
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        self.shared.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It ends by itself.
            let _ = thread.join();
        }
    }
}
