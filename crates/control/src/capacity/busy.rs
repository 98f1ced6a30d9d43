//! The part of the time for which somebody waited in the accept queue: only then does a server show what it can do.
//!
//! While the queue is empty a server serves what comes, which says nothing about what it could serve. While somebody
//! waits it serves as fast as it can. So the rate of accepts over the time with somebody waiting is the capacity,
//! whatever the bottleneck, however short the overload, and with or without drops.
//!
//! [`BusyMeter`] takes observations that may follow on one another much faster than sampling steps, fifty a second. A spell
//! of waiting begins with an interval at whose *start* the queue held more than could be accepted in it ([`safe_length`]), and
//! goes on as long as the queue was certainly never empty: at the start of an interval it held that many, or more than were
//! accepted in it. That looks at what the server did, and is no unbiased choice: a spell ends where the server is fast, and
//! the interval in which it does is not counted. And where requests take differently long, a queue forms while long
//! ones hold the workers (the inspection paradox: W. Feller, "An Introduction to Probability Theory and Its Applications",
//! volume II, 1971, Section I.4), so that spells begin while the server is slow. Both make a spell look slower (or, where
//! service is regular, faster) than the server is, by some accepts each, however long it is and at any load. So the
//! spells are counted too: `super::evidence` widens the interval of the rate by that, and knows a rate only from spells that
//! are long against it.
//!
//! What is counted in that time is what was answered, where that is known and tells what is served (`super::answers`), else what was
//! accepted. Servers that accept in bunches are counted from one to the next: see `super::bunches`. Stalls are left out: see
//! `super::stalls`.

use super::Capacity;
use super::answers::Answers;
use super::bunches::{Bunches, Interval};
use super::stalls::Stalls;
use super::step::{Listener, ListenerSample, QueueObservation, moved};
use super::tuning::QueueTuning;
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};

/// Seconds over which the rate of accepts is averaged that says how long a queue must be.
const RATE_MEMORY_S: f64 = 1.0;
/// Intervals over which the dispersion of accepts is averaged, and within which bounds it is believed: less is chance, and
/// more are workers that all end together, of which there are few.
const DISPERSION_INTERVALS: f64 = 50.0;
const MIN_DISPERSION: f64 = 0.25;
const MAX_DISPERSION: f64 = 8.0;

/// The part of a step for which somebody waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// How long that was.
    pub time: Seconds,
    /// Connections answered in that time; accepted, where it is not known how many were answered.
    pub accepts: f64,
    /// Spells of waiting that began in it.
    #[serde(default)]
    pub spells: f64,
}

impl Busy {
    /// Both parts together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            accepts: self.accepts + other.accepts,
            spells: self.spells + other.spells,
        }
    }

    /// What is left of it without a part of it.
    pub(super) fn minus(self, part: Self) -> Self {
        Self {
            time: self.time - part.time,
            accepts: self.accepts - part.accepts,
            spells: self.spells - part.spells,
        }
    }
}

/// The queue length that a server of this rate will not empty in this time: what it accepts on average, three standard
/// deviations more, and one. `dispersion` is the variance of its accepts over their mean: 1 for a Poisson process.
pub fn safe_length(rate: PerSecond, time: Seconds, dispersion: f64) -> f64 {
    let expected = (rate * time).max(0.0);
    expected + 3.0 * (expected * dispersion.max(0.0)).sqrt() + 1.0
}

/// Finds the intervals for which somebody waited.
#[derive(Clone, Debug)]
pub struct BusyMeter {
    most_per_s: f64,
    base: Option<Listener>,
    /// Since `base` was read.
    elapsed_s: f64,
    /// The recent rate of accepts, and their dispersion from one interval to the next.
    rate: PerSecond,
    dispersion: f64,
    /// Whether the queue has room for as many as an interval needs.
    has_room: bool,
    /// Whether a spell of waiting goes on.
    waits: bool,
    answers: Answers,
    bunches: Bunches,
    stalls: Stalls,
}

impl BusyMeter {
    /// A meter with these parameters, which the caller has checked.
    pub fn new(tuning: &QueueTuning) -> Self {
        Self {
            most_per_s: tuning.most_per_s,
            base: None,
            elapsed_s: 0.0,
            rate: PerSecond::ZERO,
            dispersion: 1.0,
            has_room: true,
            waits: false,
            answers: Answers::default(),
            bunches: Bunches::default(),
            stalls: Stalls::new(tuning.hold_s),
        }
    }

    /// For how long the server, of which `capacity` is known, has accepted nobody though somebody waits, where that is
    /// set aside as a stall.
    pub fn stalled(&self, capacity: Capacity) -> Option<Seconds> {
        let stands_still = self.stalls.stands_still(capacity.met());
        stands_still.then(|| self.stalls.still())
    }

    /// Whether the queue has room for as many as must wait at the start of an interval, so that it can be known not to have
    /// been empty in it. Where it has not, nobody can be observed to wait: it is to be sampled more often.
    pub const fn has_room(&self) -> bool {
        self.has_room
    }

    /// Takes the newest observation of a server of which `capacity` is known so far; what it adds. Nothing where the
    /// queue may have been empty, and where the counters do not go with those before.
    pub fn take(&mut self, observation: &QueueObservation, capacity: Capacity) -> Busy {
        let length_s = observation.length.get();
        let usable = length_s > 0.0 && length_s.is_finite();
        self.elapsed_s += if usable { length_s } else { f64::INFINITY };
        let now = match observation.sample {
            ListenerSample::Listening(now) => now,
            // The counters of the next observation cover this one.
            ListenerSample::Unread => return Busy::default(),
            ListenerSample::Nobody => {
                self.base = None;
                self.waits = false;
                self.forget();
                return Busy::default();
            }
        };
        let time = Seconds::new(std::mem::take(&mut self.elapsed_s));
        let Some(before) = self.base.replace(now) else {
            self.forget();
            return Busy::default();
        };
        let accepts = match time.is_finite() && before.identity == now.identity {
            true => self.accepts(&before, &now, time),
            false => None,
        };
        let Some(accepts) = accepts else {
            self.waits = false;
            self.rate = PerSecond::ZERO;
            self.forget();
            return Busy::default();
        };
        self.answers.take(time.get(), accepts, &now);
        let answered = self.answers.between(&before, &now);
        let served = answered.unwrap_or(accepts);
        let waited = before.shortest.is_some_and(|length| length > 0);
        let rate = self.rate.max(capacity.value().unwrap_or(PerSecond::ZERO));
        let needed = safe_length(rate, time, self.dispersion);
        self.has_room = now.limit.is_none_or(|limit| f64::from(limit) >= needed);
        let share = (time.get() / RATE_MEMORY_S).min(1.0);
        self.rate += (PerSecond::new(accepts / time.get()) - self.rate) * share;
        let expected = (rate * time).max(0.0);
        if waited && expected > 0.0 {
            let found = (accepts - expected).powi(2) / expected;
            let step = (found - self.dispersion) / DISPERSION_INTERVALS;
            self.dispersion = (self.dispersion + step).clamp(MIN_DISPERSION, MAX_DISPERSION);
        }
        let counts = before.shortest.map(f64::from).is_some_and(|length| {
            // Those who waited at its start were enough, as it turned out, in the midst of a spell.
            length >= needed || (self.waits && length > accepts)
        });
        let waited_before = std::mem::replace(&mut self.waits, counts);
        let begins = counts && !waited_before;
        let found = match counts {
            true => Busy {
                time,
                accepts: served,
                spells: f64::from(u8::from(begins)),
            },
            false => Busy::default(),
        };
        let interval = Interval {
            time,
            accepts,
            served,
            is_answered: answered.is_some(),
            waited,
            found,
        };
        let found = self.bunches.take(interval, self.rate);
        self.stalls.sift(time, accepts, waited, found, capacity.met())
    }

    /// What is known of its answers.
    pub(super) const fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Nothing goes with what was read before.
    fn forget(&mut self) {
        self.answers.forget();
        self.bunches.forget();
        self.stalls.forget();
    }

    /// What was accepted between two readings. Where that is not counted it is what arrived, was not dropped and is not
    /// in the queue; it may then be a little below 0, because counters are not read at one instant, and the next
    /// interval has as much more.
    fn accepts(&self, before: &Listener, now: &Listener, time: Seconds) -> Option<f64> {
        let most = self.most_per_s * time.get();
        let moved = |before: Option<u64>, now: Option<u64>| moved(before?, now?, most);
        moved(before.accepts, now.accepts).or_else(|| {
            let growth = f64::from(now.length?) - f64::from(before.length?);
            Some(moved(before.arrivals, now.arrivals)? - moved(before.drops, now.drops)? - growth)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(identity: u64, length: u32, accepts: u64) -> QueueObservation {
        QueueObservation {
            length: Seconds::new(0.02),
            sample: ListenerSample::Listening(Listener {
                identity,
                limit: Some(64),
                length: Some(length),
                shortest: Some(length),
                lengths_seen: None,
                arrivals: None,
                accepts: Some(accepts),
                drops: Some(0),
                unasked: None,
                answered: None,
                connections: None,
                loops_busy: None,
            }),
        }
    }

    fn meter() -> BusyMeter {
        BusyMeter::new(&QueueTuning::default())
    }

    const fn busy(time_s: f64, accepts: f64, spells: f64) -> Busy {
        Busy {
            time: Seconds::new(time_s),
            accepts,
            spells,
        }
    }

    #[test]
    fn a_safe_length_is_more_than_will_be_accepted() {
        assert_eq!(
            safe_length(PerSecond::new(400.0), Seconds::new(0.01), 1.0),
            4.0 + 6.0 + 1.0
        );
        assert_eq!(safe_length(PerSecond::ZERO, Seconds::new(1.0), 1.0), 1.0);
    }

    #[test]
    fn only_what_begins_with_a_queue_that_lasts_counts() {
        let mut meter = meter();
        let known = Capacity::Exact(PerSecond::new(500.0));
        let none = Busy::default();
        assert_eq!(meter.take(&seen(1, 60, 100), known), none, "the first");
        // 500/s for 20 ms are 10, and 10.5 more to be safe: 60 are enough, and how many are left does not matter.
        assert_eq!(meter.take(&seen(1, 0, 112), known), busy(0.02, 12.0, 1.0));
        assert_eq!(meter.take(&seen(1, 20, 120), known), none, "it was empty");
        assert_eq!(
            meter.take(&seen(1, 60, 128), known),
            none,
            "20 may have been used up"
        );
        assert_eq!(meter.take(&seen(2, 60, 200), known), none, "another socket");
        assert_eq!(meter.take(&seen(2, 60, 210), known), busy(0.02, 10.0, 1.0));
        assert_eq!(meter.take(&seen(2, 60, 5), known), none, "the counter went back");
    }

    #[test]
    fn a_spell_goes_on_while_the_queue_was_certainly_never_empty_and_is_counted_once() {
        let mut meter = meter();
        let known = Capacity::Exact(PerSecond::new(500.0));
        meter.take(&seen(1, 60, 100), known);
        assert_eq!(meter.take(&seen(1, 15, 110), known), busy(0.02, 10.0, 1.0));
        // 15 are not safe, and more than the 11 that were accepted.
        assert_eq!(meter.take(&seen(1, 9, 121), known), busy(0.02, 11.0, 0.0));
        assert_eq!(
            meter.take(&seen(1, 60, 131), known),
            Busy::default(),
            "9 were not: the spell has ended"
        );
        assert_eq!(meter.take(&seen(1, 60, 141), known), busy(0.02, 10.0, 1.0));
        assert_eq!(meter.take(&seen(1, 60, 151), known), busy(0.02, 10.0, 0.0));
    }

    #[test]
    fn an_interval_that_was_not_read_belongs_to_the_next() {
        let mut meter = meter();
        let unread = QueueObservation {
            length: Seconds::new(0.02),
            sample: ListenerSample::Unread,
        };
        let nobody = QueueObservation {
            sample: ListenerSample::Nobody,
            ..unread
        };
        meter.take(&seen(1, 60, 0), Capacity::Unknown);
        meter.take(&unread, Capacity::Unknown);
        assert_eq!(
            meter.take(&seen(1, 60, 12), Capacity::Unknown),
            busy(0.04, 12.0, 1.0)
        );
        meter.take(&nobody, Capacity::Unknown);
        assert_eq!(meter.take(&seen(1, 60, 24), Capacity::Unknown), Busy::default());
        let no_time = QueueObservation {
            length: Seconds::ZERO,
            ..seen(1, 60, 30)
        };
        assert_eq!(meter.take(&no_time, Capacity::Unknown), Busy::default());
    }

    #[test]
    fn accepts_that_nobody_counts_are_what_arrivals_drops_and_the_queue_leave() {
        let mut meter = meter();
        let by_arrivals = |length, arrivals, drops| QueueObservation {
            length: Seconds::new(0.02),
            sample: ListenerSample::Listening(Listener {
                identity: 1,
                limit: Some(64),
                length: Some(length),
                shortest: Some(length),
                lengths_seen: None,
                arrivals: Some(arrivals),
                accepts: None,
                drops: Some(drops),
                unasked: None,
                answered: None,
                connections: None,
                loops_busy: None,
            }),
        };
        meter.take(&by_arrivals(50, 1_000, 10), Capacity::Unknown);
        // 30 came, 4 of them were dropped, 6 more wait.
        assert_eq!(
            meter.take(&by_arrivals(56, 1_030, 14), Capacity::Unknown),
            busy(0.02, 20.0, 1.0)
        );
    }
}
