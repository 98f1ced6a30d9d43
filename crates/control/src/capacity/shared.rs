//! Whether those who serve a port serve others, too: then what they serve of it is what the others leave.
//!
//! What each port has of them is told by how many of its connections they work on: where all take as long, these are as its requests
//! (Little's law). Those who wait in the accept queues tell nothing of it.

use super::step::Listener;
use headroom_units::Seconds;

/// From this share of those that a server's processes work on, those at other ports hide what they could serve at this one.
const SHARED: f64 = 0.05;
/// And from this share of those at this moment, where they are more than one: their number is known late else.
const SHARED_NOW: f64 = 0.2;
/// The time over which they are counted, and for which what was known before there were any is kept.
const COUNTED_S: f64 = 10.0;
/// For so long there was none at any look, where what is known is surely of those who are alone.
const ALONE_S: f64 = 2.0;

/// Whom the processes that serve a port work for, there and at other ports of theirs; connections times seconds, the old ones forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    here: f64,
    elsewhere: f64,
    /// The share of those at this moment.
    now: f64,
    /// For how long nobody has looked: then nobody waits here.
    unseen_s: f64,
    /// For how long there was none elsewhere.
    alone_s: f64,
}

/// What was known at this time, when they worked for nobody else.
#[derive(Clone, Debug)]
pub(super) struct Alone<T> {
    pub now_s: f64,
    pub known: T,
}

impl<T> Alone<T> {
    /// What was known, where that is not too long ago.
    pub(super) fn of_late(self, now_s: f64) -> Option<T> {
        (now_s - self.now_s <= COUNTED_S).then_some(self.known)
    }
}

impl Shared {
    /// Takes what was read at the end of this time.
    pub(super) fn take(&mut self, length: Seconds, listener: Option<&Listener>) {
        self.alone_s += length.get();
        let Some(found) = listener.and_then(|one| one.connections) else {
            self.unseen_s += length.get();
            if self.unseen_s >= COUNTED_S {
                (self.here, self.elsewhere, self.now) = (0.0, 0.0, 0.0);
            }
            return;
        };
        self.unseen_s = 0.0;
        if found.elsewhere > 0 {
            self.alone_s = 0.0;
        }
        let kept = (-length.get() / COUNTED_S).exp();
        self.now = match found.elsewhere {
            0 | 1 => 0.0,
            elsewhere => elsewhere as f64 / (elsewhere + found.working) as f64,
        };
        self.here = self.here * kept + found.working as f64 * length.get();
        self.elsewhere = self.elsewhere * kept + found.elsewhere as f64 * length.get();
    }

    /// Whether they have worked for nobody else of late.
    pub(super) fn is_alone(&self) -> bool {
        self.alone_s >= ALONE_S
    }

    /// For how many at other ports they work, of all; `None` where it is none or few.
    pub(super) fn share(&self) -> Option<f64> {
        let all = self.here + self.elsewhere;
        let share = if all > 0.0 { self.elsewhere / all } else { 0.0 };
        (share >= SHARED || self.now >= SHARED_NOW).then_some(share.max(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::step::{Connections, ListenerSample, QueueObservation};
    use super::super::{BusyTimeMonitor, Capacity, Estimate, QueueTuning};
    use super::*;

    /// Of eight workers with 150 waiting at their port, the estimates at the end of each second in which they accept one here at each so
    /// manieth look of 20 ms, and so many work for others.
    fn seconds(
        monitor: &mut BusyTimeMonitor,
        accepts: &mut u64,
        times: (u64, u64),
        elsewhere: u64,
    ) -> Vec<Estimate> {
        let (seconds, each) = times;
        let mut said = Vec::new();
        for look in 1..=seconds * 50 {
            *accepts += u64::from(look.is_multiple_of(each));
            let listener = Listener {
                identity: 1,
                limit: Some(512),
                length: Some(150),
                shortest: Some(150),
                lengths_seen: None,
                arrivals: Some(150 + *accepts),
                accepts: Some(*accepts),
                drops: Some(0),
                unasked: None,
                answered: None,
                connections: Some(Connections {
                    open: 8 - elsewhere,
                    working: 8 - elsewhere,
                    elsewhere,
                    ..Connections::default()
                }),
                loops_busy: None,
            };
            let estimate = monitor.observe(&QueueObservation {
                length: Seconds::new(0.02),
                sample: ListenerSample::Listening(listener),
            });
            if look % 50 == 0 {
                said.push(estimate);
            }
        }
        said
    }

    fn monitor() -> BusyTimeMonitor {
        BusyTimeMonitor::new(QueueTuning::default()).unwrap()
    }

    fn bound(estimate: &Estimate) -> f64 {
        match estimate.capacity {
            Capacity::LowerBound(value) => value.get(),
            Capacity::Unknown => 0.0,
            other => panic!("{other} of {estimate:?}"),
        }
    }

    #[test]
    fn half_of_the_workers_for_a_short_queue_elsewhere_are_half_of_them() {
        // 25/s here, and as many where few wait.
        let (mut monitor, mut accepts) = (monitor(), 0);
        let said = seconds(&mut monitor, &mut accepts, (60, 2), 4);
        assert!(said.iter().all(|one| bound(one) <= 25.0 * 1.05), "{said:?}");
        let last = said.last().unwrap();
        assert!(
            last.reason.rule == "shared" && last.reason.text.starts_with("50 % of those that"),
            "{last:?}"
        );
    }

    #[test]
    fn what_was_known_before_they_worked_for_others_is_kept_by_that_name() {
        let (mut monitor, mut accepts) = (monitor(), 0);
        let alone = seconds(&mut monitor, &mut accepts, (30, 1), 0);
        assert_eq!(alone.last().unwrap().capacity.name(), "exact");
        for one in seconds(&mut monitor, &mut accepts, (30, 2), 4).split_off(2) {
            let value = one.capacity.met().unwrap().get();
            assert!(
                one.reason.rule == "shared" && one.capacity.name() == "about" && (value - 50.0).abs() < 2.5,
                "{one:?}"
            );
        }
    }

    #[test]
    fn what_was_learned_before_they_were_seen_to_work_for_others_is_not_kept() {
        let (mut monitor, mut accepts) = (monitor(), 0);
        seconds(&mut monitor, &mut accepts, (30, 1), 0);
        // Half of it for two seconds in which one is seen there: it seems to have changed.
        seconds(&mut monitor, &mut accepts, (2, 2), 1);
        for one in seconds(&mut monitor, &mut accepts, (30, 2), 4).split_off(2) {
            let value = one.capacity.met().unwrap().get();
            assert!((value - 50.0).abs() < 2.5, "{one:?}");
        }
    }

    #[test]
    fn no_bound_is_left_of_what_they_served_here_before_they_became_slower() {
        let (mut monitor, mut accepts) = (monitor(), 0);
        let before = seconds(&mut monitor, &mut accepts, (60, 2), 4);
        assert!(bound(before.last().unwrap()) > 15.0, "{before:?}");
        // A quarter: 12.5/s together, of which half is for others.
        let slower = seconds(&mut monitor, &mut accepts, (60, 8), 4);
        for (at, one) in slower.iter().enumerate().skip(5) {
            assert!(bound(one) <= 12.5 * 1.05, "{at}: {one:?}");
        }
        assert!(bound(slower.last().unwrap()) > 0.0);
    }
}
