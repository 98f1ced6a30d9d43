//! One who watches a queue: when it is informed next, and what is new to it.

use super::super::mailbox::Sender;
use crate::queue::{QueueError, QueueSample, reported};
use headroom_units::Ratio;
use headroom_wire::message::{GroupCpu, QueueSnapshot};
use std::time::{Duration, Instant};

/// A snapshot on its way, and when it was taken.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Timed {
    taken: Instant,
    snapshot: QueueSnapshot,
}

impl Timed {
    /// As it is sent now.
    pub(in crate::agent) fn sent(self) -> QueueSnapshot {
        QueueSnapshot {
            age: self.taken.elapsed(),
            ..self.snapshot
        }
    }
}

/// One sampling at a queue.
#[derive(Debug)]
pub(super) struct Sampling {
    /// The time of the reading.
    pub(super) taken: Instant,
    /// The time since the sampling before.
    pub(super) length: Duration,
    /// The number of the meter.
    pub(super) meter: u64,
    /// What it showed.
    pub(super) sampled: Result<QueueSample, QueueError>,
    /// What the control group that was asked for showed.
    pub(super) group: Option<GroupCpu>,
}

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) connection: u64,
    period: Duration,
    due: Instant,
    number: u64,
    new: New,
    snapshots: Sender<Timed>,
}

/// What a watcher was not informed yet of what is no running count: others are informed of the same meter at other times.
#[derive(Debug, Default)]
struct New {
    longest: u64,
    /// Shares of processor time, each times the seconds that it is of; and those seconds.
    busy: (f64, f64),
}

impl New {
    fn add(&mut self, sampling: &Sampling) {
        let Ok(sample) = &sampling.sampled else { return };
        self.longest = self.longest.max(sample.seen.map_or(0, |seen| seen.longest));
        if let Some(busy) = sample.cpu_busy {
            // The first sampling of a meter has no length, and its share is better than none.
            let length_s = sampling.length.as_secs_f64().max(1e-6);
            self.busy.0 += busy.get() * length_s;
            self.busy.1 += length_s;
        }
    }

    fn cpu_busy(&self) -> Option<Ratio> {
        let (busy_s, all_s) = self.busy;
        (all_s > 0.0).then(|| Ratio::new((busy_s / all_s).min(1.0)))
    }
}

impl Watcher {
    /// It is informed at once, and then once in a period.
    pub(super) fn new(connection: u64, period: Duration, now: Instant, snapshots: Sender<Timed>) -> Self {
        Self {
            connection,
            period,
            due: now,
            number: 0,
            new: New::default(),
            snapshots,
        }
    }

    pub(super) fn has_left(&self) -> bool {
        self.snapshots.is_abandoned()
    }

    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Takes a sampling, and is informed of it where it is due.
    pub(super) fn take(&mut self, sampling: &Sampling, agent_run: u64, started: Instant) {
        self.new.add(sampling);
        let now = Instant::now();
        if self.due > now {
            return;
        }
        let new = std::mem::take(&mut self.new);
        self.number += 1;
        let snapshot = QueueSnapshot {
            number: self.number,
            agent_run,
            uptime: sampling.taken.saturating_duration_since(started),
            age: Duration::ZERO,
            shown: reported(&sampling.sampled, sampling.meter, new.longest, new.cpu_busy()),
            group: sampling.group.clone(),
        };
        self.snapshots.put(Timed {
            taken: sampling.taken,
            snapshot,
        });
        // A thread that was held up owes no more than one snapshot.
        self.due += self.period;
        if self.due <= now {
            self.due = now + self.period;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::mailbox::mailbox;
    use super::*;
    use crate::queue::{AtArrival, Counters, QueueMethod};
    use headroom_wire::message::QueueShown;
    use headroom_wire::tonic::codegen::tokio_stream::StreamExt;

    fn sampling(length_ms: u64, longest: u64, busy: f64) -> Sampling {
        let taken = Instant::now();
        Sampling {
            taken,
            length: Duration::from_millis(length_ms),
            meter: 3,
            sampled: Ok(QueueSample {
                method: QueueMethod::Kernel,
                at: taken,
                epoch: 0,
                port: Counters::default(),
                server: Counters::default(),
                machine: Counters::default(),
                length: None,
                seen: Some(AtArrival {
                    arrivals: 0,
                    sum: 0,
                    longest,
                }),
                cpu_busy: Some(Ratio::new(busy)),
                connections: None,
                loops_busy: None,
                listeners: Vec::new(),
            }),
            group: None,
        }
    }

    /// What was informed last: its number, the longest queue and the share of processor time.
    async fn last(receiver: &mut super::super::Receiver<Timed>) -> (u64, u64, f64) {
        let snapshot = receiver.next().await.unwrap().sent();
        let QueueShown::Sample(sample) = snapshot.shown else {
            panic!("{snapshot:?}")
        };
        (
            snapshot.number,
            sample.at_arrival.unwrap().longest,
            sample.cpu_busy.unwrap().get(),
        )
    }

    #[tokio::test]
    async fn each_is_told_what_is_new_to_it_whoever_was_told_between() {
        let started = Instant::now();
        let (hasty, mut of_hasty) = mailbox();
        let (calm, mut of_calm) = mailbox();
        let mut hasty = Watcher::new(1, Duration::from_nanos(1), started, hasty);
        let mut calm = Watcher::new(2, Duration::from_secs(3600), started, calm);
        let mut informed = Vec::new();
        for sampling in [sampling(1, 7, 0.0), sampling(1, 9, 0.5), sampling(3, 2, 0.9)] {
            hasty.take(&sampling, 1, started);
            calm.take(&sampling, 1, started);
            informed.push(last(&mut of_hasty).await);
        }
        assert_eq!(informed, [(1, 7, 0.0), (2, 9, 0.5), (3, 2, 0.9)]);
        assert_eq!(last(&mut of_calm).await, (1, 7, 0.0), "the first at once");
        calm.due = started;
        calm.take(&sampling(1, 1, 0.8), 1, started);
        let (number, longest, busy) = last(&mut of_calm).await;
        assert_eq!((number, longest), (2, 9));
        assert!((busy - (0.5 + 3.0 * 0.9 + 0.8) / 5.0).abs() < 1e-9, "{busy}");
        drop(of_calm);
        assert!(calm.has_left());
    }
}
