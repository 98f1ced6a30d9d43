//! Whether those who serve a port serve others, too: then what they serve of it is what the others leave.
//!
//! What each port has of them is told by how many of its connections they work on: where all take as long, these are as its requests
//! (Little's law). Those who wait in the accept queues tell nothing of it. Where those at other ports are few, and are there most of the time,
//! they may take far longer each, and what they have is not known: a pool's worker, or most of what one that accepts ahead works on.

use super::step::Listener;
use headroom_units::Seconds;

/// From this share of those that a server's processes work on, those at other ports hide what they could serve at this one.
const SHARED: f64 = 0.05;
/// And from this share of those at this moment, where they are more than one: their number is known late else.
const SHARED_NOW: f64 = 0.2;
/// Where they work for any at other ports for this share of the time, what these take is not known.
const SOME: f64 = 0.4;
/// The time over which they are counted, and for which what was known before there were any is kept.
const COUNTED_S: f64 = 10.0;
/// For so long there was none at any look, where what is known is surely of those who are alone.
const ALONE_S: f64 = 2.0;
/// And for so long where those before are forgotten.
const LEFT_S: f64 = 6.0;

/// Whom the processes that serve a port work for, there and at other ports of theirs; connections times seconds, the old ones forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    here: f64,
    elsewhere: f64,
    /// The share of those at this moment.
    now: f64,
    /// The time, and that in which there were any elsewhere.
    looked_s: f64,
    some_s: f64,
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
                *self = Self {
                    alone_s: self.alone_s,
                    ..Self::default()
                };
            }
            return;
        };
        self.unseen_s = 0.0;
        match found.elsewhere {
            0 if self.alone_s >= LEFT_S => (self.elsewhere, self.some_s) = (0.0, 0.0),
            0 => {}
            _ => self.alone_s = 0.0,
        }
        let kept = (-length.get() / COUNTED_S).exp();
        self.now = match found.elsewhere {
            0 | 1 => 0.0,
            elsewhere => elsewhere as f64 / (elsewhere + found.working) as f64,
        };
        self.looked_s = self.looked_s * kept + length.get();
        self.some_s = self.some_s * kept + length.get() * f64::from(u8::from(found.elsewhere > 0));
        self.here = self.here * kept + found.working as f64 * length.get();
        self.elsewhere = self.elsewhere * kept + found.elsewhere as f64 * length.get();
    }

    /// The share of the time for which they work for some at other ports, where that is long and what these take is not known; `None` else, and
    /// where what these take is [`Self::share`].
    pub(super) fn some(&self) -> Option<f64> {
        let share = self.some_s / self.looked_s.max(1.0);
        (share >= SOME && self.share().is_none()).then_some(share)
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

    /// Of a server with 150 waiting at its port, the estimates at the end of each second in which it accepts so many in each look of 20 ms, and
    /// works on so many here and elsewhere.
    fn seconds_of(
        monitor: &mut BusyTimeMonitor,
        accepts: &mut u64,
        seconds: u64,
        by: impl Fn(u64) -> u64,
        works: impl Fn(u64) -> (u64, u64),
    ) -> Vec<Estimate> {
        let mut said = Vec::new();
        for look in 1..=seconds * 50 {
            *accepts += by(look);
            let (working, elsewhere) = works(look);
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
                    open: working,
                    working,
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

    /// The same of eight workers that accept one at each so manieth look, so many of them for others.
    fn seconds(
        monitor: &mut BusyTimeMonitor,
        accepts: &mut u64,
        (seconds, each): (u64, u64),
        elsewhere: u64,
    ) -> Vec<Estimate> {
        let by = |look: u64| u64::from(look.is_multiple_of(each));
        seconds_of(monitor, accepts, seconds, by, |_| (8 - elsewhere, elsewhere))
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
    fn few_elsewhere_for_most_of_the_time_make_nothing_exact_and_probes_do_not() {
        let by_four = |_| 4;
        for (works, kind, rule) in [
            // Two of sixty that wait inside: nobody knows what they take.
            ((|_| (58, 2)) as fn(u64) -> (u64, u64), "about", "shared"),
            // One looks in a fifth of the time.
            (|look| (58, u64::from(look % 100 < 20)), "exact", "busy-time"),
        ] {
            let (mut monitor, mut accepts) = (monitor(), 0);
            let said = seconds_of(&mut monitor, &mut accepts, 30, by_four, works);
            let last = said.last().unwrap();
            assert_eq!(
                (last.capacity.name(), &*last.reason.rule),
                (kind, rule),
                "{last:?}"
            );
            assert!((last.capacity.met().unwrap().get() - 200.0).abs() < 4.0);
        }
    }

    #[test]
    fn some_seconds_after_the_others_left_what_they_serve_is_theirs() {
        let (mut monitor, mut accepts) = (monitor(), 0);
        seconds(&mut monitor, &mut accepts, (30, 2), 4);
        let said = seconds(&mut monitor, &mut accepts, (15, 1), 0);
        let rules: Vec<&str> = said.iter().map(|one| &*one.reason.rule).collect();
        assert!(rules[..4].iter().all(|rule| *rule == "shared"), "{rules:?}");
        assert!(rules[8..].iter().all(|rule| *rule != "shared"), "{rules:?}");
        let last = said.last().unwrap();
        assert_eq!(last.capacity.name(), "exact", "{last:?}");
    }

    #[test]
    fn no_bound_is_left_of_one_that_is_irregular_and_became_slower() {
        // 80/s in bunches of ten, and half of that, which a test of change finds late.
        let bunches = |odds: u64| {
            move |look: u64| match (look.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).is_multiple_of(odds) {
                true => 10,
                false => 0,
            }
        };
        let (mut monitor, mut accepts) = (monitor(), 0);
        let half = |_| (4, 4);
        let before = seconds_of(&mut monitor, &mut accepts, 60, bunches(6), half);
        assert!(bound(before.last().unwrap()) > 40.0, "{before:?}");
        for (at, one) in seconds_of(&mut monitor, &mut accepts, 60, bunches(24), half)
            .iter()
            .enumerate()
            .skip(5)
        {
            assert!(bound(one) <= 25.0, "{at}: {one:?}");
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
