//! The thread of one watched queue.

use super::Shared;
use super::group::GroupEye;
use super::watcher::Sampling;
use crate::queue::{QueueError, QueueMeter, QueueMethod, QueueOptions, QueuePreference, QueueSample, choose};
use headroom_wire::limiter;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// A meter that cannot be opened, or failed, is opened again after this time: loading a program costs a tenth of a second.
const OPEN_AGAIN: Duration = Duration::from_secs(5);
/// Those who hung up are noticed within this time.
const NOTICED: Duration = Duration::from_secs(1);

/// Looks at a queue whenever somebody who watches it is due, until nobody has for a while, or it is given up.
pub(super) fn attend(
    shared: &Shared,
    id: u64,
    methods: QueuePreference,
    options: QueueOptions,
    group: Option<GroupEye>,
) {
    let _leaving = Leaving { shared, id };
    let mut sampler = Sampler {
        methods,
        options,
        group,
        meter: None,
        number: 0,
        failed: None,
        said: None,
        looked: None,
    };
    while shared.wait_until_due(id) {
        let sampling = shared
            .budget
            .charge(sampler.is_by_others(), || sampler.sampling(shared));
        if let Some(watched) = shared.lock().watched.get_mut(&id) {
            for watcher in &mut watched.watchers {
                watcher.take(&sampling, shared.agent_run, shared.started);
            }
        }
    }
}

/// However the thread ends, its queue is no longer watched: the streams end, and their receivers ask again.
struct Leaving<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.shared.lock().watched.remove(&self.id);
    }
}

impl Shared {
    /// Waits until somebody who watches a queue is due; `false` where it is to be given up.
    fn wait_until_due(&self, id: u64) -> bool {
        let mut table = self.lock();
        loop {
            let now = Instant::now();
            let Some(watched) = table.watched.get_mut(&id) else {
                return false;
            };
            watched.tidy(now);
            let due = watched.watchers.iter().map(super::Watcher::due).min();
            let due = due.map(|due| due.max(self.budget.free_at()));
            let wait = match (due, watched.left) {
                (Some(due), _) if due <= now => return true,
                (Some(due), _) => (due - now).min(NOTICED),
                (None, left) => {
                    let gone = left.map_or(Duration::ZERO, |left| now - left);
                    if gone >= self.limits.kept {
                        table.watched.remove(&id);
                        return false;
                    }
                    self.limits.kept - gone
                }
            };
            let waited = self.bell.wait_timeout(table, wait);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What looks at a queue.
struct Sampler {
    methods: QueuePreference,
    options: QueueOptions,
    /// Looks at the control group that was asked for.
    group: Option<GroupEye>,
    meter: Option<Box<dyn QueueMeter>>,
    /// The meter's.
    number: u64,
    /// When the meter is opened again, and why it is not there.
    failed: Option<(Instant, String)>,
    /// What the log has of it: what is the same is not written again.
    said: Option<String>,
    /// When it looked last.
    looked: Option<Instant>,
}

impl Sampler {
    /// Whether other processes do the work.
    fn is_by_others(&self) -> bool {
        let by_others = |method| matches!(method, QueueMethod::Tools | QueueMethod::Snmp);
        self.meter.as_ref().is_some_and(|meter| by_others(meter.method()))
    }

    fn sampling(&mut self, shared: &Shared) -> Sampling {
        let sampled = self.sample(shared);
        let taken = sampled
            .as_ref()
            .map_or_else(|_| Instant::now(), |sample| sample.at);
        let before = self.looked.replace(taken).unwrap_or(taken);
        Sampling {
            taken,
            length: taken.saturating_duration_since(before),
            meter: self.number,
            sampled,
            // Right after the queue, so that both are of the same time.
            group: self.group.as_mut().map(GroupEye::read),
        }
    }

    fn sample(&mut self, shared: &Shared) -> Result<QueueSample, QueueError> {
        if let Some((again, why)) = &self.failed {
            if Instant::now() < *again {
                return Err(QueueError::Elsewhere { why: why.clone() });
            }
            self.failed = None;
        }
        let sampled = match &mut self.meter {
            Some(meter) => meter.sample(),
            None => self.open(shared),
        };
        sampled.inspect_err(|error| {
            // One that knows that nobody listens is well, and sees who comes.
            if !matches!(error, QueueError::NobodyListens { .. }) {
                self.meter = None;
                let why = error.to_string();
                if self.said.as_ref() != Some(&why) {
                    if limiter::admits("this machine", "accept queue") {
                        tracing::warn!(port = self.options.port, "{why}");
                    }
                    self.said = Some(why.clone());
                }
                self.failed = Some((Instant::now() + OPEN_AGAIN, why));
            }
        })
    }

    fn open(&mut self, shared: &Shared) -> Result<QueueSample, QueueError> {
        let (mut meter, choice) = choose(self.methods, &self.options)?;
        if limiter::admits("this machine", "accept queue") {
            tracing::info!(port = self.options.port, "{choice}");
        }
        self.number = {
            let mut table = shared.lock();
            table.meters += 1;
            table.meters
        };
        let sample = meter.sample()?;
        self.meter = Some(meter);
        self.said = None;
        Ok(sample)
    }
}
