//! What becomes of requests at a server whose clients leave, and of one that loses workers: simulated.

use super::{InHand, InHandPeriod};
use crate::capacity::Capacity;
use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// What is counted begins then.
const FROM: u32 = 30;
const STEPS: u32 = 100;

/// A server behind a gateway whose clients leave after a while: what it has accepted it works on to the end, whoever waits for it.
struct Server {
    /// Those of each second.
    workers: fn(u32) -> usize,
    service_s: f64,
    places: usize,
    rate: f64,
    /// For how long a client waits, and for how long the gateway lets it wait for room.
    patience_s: f64,
    queue_timeout_s: f64,
    within_s: f64,
    /// A client that leaves only closes its side: that it has left is seen when it is answered.
    closes: bool,
    /// Others' connections, of which so many are always there.
    others: usize,
    /// Clients come at this rate until then, and at `rate_after` after it.
    until_s: u32,
    rate_after: f64,
    /// Whether it tells what it works on.
    tells: bool,
    /// In one period of so many it tells one more, for what is counted is not of one moment.
    one_more_each: u32,
}

/// What became of it.
#[derive(Debug)]
struct Outcome {
    answered_per_s: f64,
    /// The longest that a request was at the server.
    longest_s: f64,
    /// Seconds without a bound.
    unbounded: usize,
}

#[derive(Clone, Copy)]
struct Request {
    came: f64,
    sent: f64,
    /// For its answer, as far as is seen.
    waits: bool,
    has_left: bool,
    /// It is of others.
    is_other: bool,
}

impl Server {
    /// Under this bound, or where none is given under what is learned.
    fn run(&self, fixed: Option<u32>, seconds: u32) -> Outcome {
        let mut learned = InHand::new(Seconds::new(self.within_s));
        let mut bound = fixed;
        let (mut held, mut queue) = (VecDeque::new(), VecDeque::<Request>::new());
        // With the moments at which each is done.
        let mut working: Vec<(f64, Request)> = Vec::new();
        let (mut coming, mut before) = (0.0, 0.0);
        let (mut sum, mut longest_s, mut unbounded) = (0.0, 0.0_f64, 0);
        let mut was_met = false;
        for second in 0..seconds {
            let workers = (self.workers)(second);
            let (mut sent, mut left, mut accepts, mut drops, mut answered) = (0.0, 0.0, 0.0, 0.0, 0.0);
            let mut gone = 0.0;
            let rate = if second < self.until_s {
                self.rate
            } else {
                self.rate_after
            };
            let mut waiting = 0.0;
            for step in 0..STEPS {
                let now = f64::from(second) + f64::from(step) / f64::from(STEPS);
                coming += rate / f64::from(STEPS);
                while coming >= 1.0 {
                    coming -= 1.0;
                    held.push_back(now);
                }
                let held_s = match self.closes {
                    true => self.queue_timeout_s,
                    false => self.patience_s.min(self.queue_timeout_s),
                };
                held.retain(|came| now - came < held_s);
                let done = working.extract_if(.., |(until, _)| *until <= now);
                for (_, request) in done.filter(|(_, request)| request.waits) {
                    answered += 1.0;
                    gone += f64::from(u32::from(request.has_left));
                    longest_s = longest_s.max(if second >= FROM { now - request.sent } else { 0.0 });
                }
                let here = working.iter_mut().map(|(_, request)| request);
                for request in here.chain(&mut queue) {
                    if request.waits && now - request.came >= self.patience_s {
                        request.has_left = true;
                        if !self.closes {
                            request.waits = false;
                            left += 1.0;
                        }
                    }
                }
                while bound.is_none_or(|most| in_flight(&working, &queue) < f64::from(most))
                    && let Some(came) = held.front().copied()
                {
                    if queue.len() > self.places {
                        drops += 1.0;
                        break;
                    }
                    held.pop_front();
                    sent += 1.0;
                    queue.push_back(Request {
                        came,
                        sent: now,
                        waits: true,
                        has_left: false,
                        is_other: false,
                    });
                }
                let there = working.iter().map(|(_, request)| request).chain(&queue);
                let others = there.filter(|request| request.is_other).count();
                for _ in others..self.others.min(others + self.places.saturating_sub(queue.len())) {
                    queue.push_back(Request {
                        came: f64::INFINITY,
                        sent: now,
                        waits: false,
                        has_left: false,
                        is_other: true,
                    });
                }
                while working.len() < workers
                    && let Some(request) = queue.pop_front()
                {
                    accepts += 1.0;
                    working.push((now + self.service_s, request));
                }
                waiting += queue.len() as f64 / f64::from(STEPS);
            }
            let capacity = PerSecond::new(workers as f64 / self.service_s);
            let now = in_flight(&working, &queue);
            assert_eq!(sent - left - answered, now - before, "each ends once");
            before = now;
            let told = learned.observe(&InHandPeriod {
                length: Seconds::new(1.0),
                capacity: match () {
                    () if waiting >= 1.0 => Capacity::Exact(capacity),
                    () if was_met => Capacity::About(capacity),
                    () => Capacity::LowerBound(capacity),
                },
                accepts,
                drops,
                waiting: Some(waiting),
                places: Some(self.places as f64),
                working: (self.tells && !queue.is_empty())
                    .then_some(working.len() as f64 + f64::from(u32::from(second % self.one_more_each == 0))),
                sent: sent - left,
                left,
                gone,
                in_flight: Some(now),
            });
            was_met |= waiting >= 1.0;
            bound = fixed.or(told);
            if second >= FROM {
                sum += answered - gone;
                unbounded += usize::from(bound.is_none());
            }
        }
        Outcome {
            answered_per_s: sum / f64::from(seconds - FROM),
            longest_s,
            unbounded,
        }
    }
}

/// Requests at the server whose clients wait.
fn in_flight(working: &[(f64, Request)], queue: &VecDeque<Request>) -> f64 {
    let all = working.iter().map(|(_, request)| request).chain(queue);
    all.filter(|request| request.waits).count() as f64
}

/// It takes 25 a second, and 60 come.
const OVERLOADED: Server = Server {
    workers: |_| 4,
    service_s: 0.16,
    places: 32,
    rate: 60.0,
    patience_s: 0.7,
    queue_timeout_s: 0.15,
    within_s: 1.0,
    closes: false,
    others: 0,
    until_s: u32::MAX,
    rate_after: 0.0,
    tells: true,
    one_more_each: u32::MAX,
};

#[test]
fn clients_that_leave_under_overload_keep_nobody_from_being_answered() {
    let fixed = OVERLOADED.run(Some(12), 150);
    assert!(fixed.answered_per_s > 23.0, "{fixed:?}");
    for (within_s, places, tells, patience_s) in [
        (1.0, 32, true, 0.7),
        (1.0, 32, false, 0.7),
        (0.5, 32, true, 0.7),
        (1.0, 128, true, 0.7),
        (10.0, 512, true, 1.0),
        (10.0, 512, false, 1.0),
        (1.0, 32, true, 0.5),
        (1.0, 32, true, 0.4),
        (1.0, 32, true, 0.35),
    ] {
        let server = Server {
            within_s,
            places,
            tells,
            patience_s,
            ..OVERLOADED
        };
        let learned = server.run(None, 150);
        assert!(
            learned.answered_per_s > 0.9 * fixed.answered_per_s,
            "{within_s} {places} {tells} {patience_s}: {learned:?}"
        );
        assert_eq!(learned.unbounded, 0);
    }
}

#[test]
fn clients_that_wait_for_two_services_are_answered_whatever_the_queue_held_and_the_counts_were() {
    for one_more_each in [u32::MAX, 10] {
        for (patience_s, queue_timeout_s, tells, of_fixed) in [
            (0.32, 0.15, true, 0.8),
            (0.32, 0.15, false, 0.8),
            (0.3, 0.15, true, 0.7),
            (0.3, 0.1, true, 0.9),
            (0.3, 0.15, false, 0.7),
        ] {
            let server = Server {
                patience_s,
                queue_timeout_s,
                tells,
                one_more_each,
                ..OVERLOADED
            };
            let (fixed, learned) = (server.run(Some(4), 150), server.run(None, 150));
            assert!(
                learned.answered_per_s > of_fixed * fixed.answered_per_s && fixed.answered_per_s > 20.0,
                "{patience_s} {queue_timeout_s} {tells} {one_more_each}: {learned:?}, {fixed:?}"
            );
        }
    }
}

#[test]
fn what_a_server_works_on_is_learned_anew_when_it_loses_workers() {
    for tells in [true, false] {
        let server = Server {
            workers: |second| if second < 10 { 8 } else { 2 },
            service_s: 0.1,
            places: 64,
            patience_s: 30.0,
            queue_timeout_s: 0.25,
            within_s: 0.25,
            tells,
            ..OVERLOADED
        };
        let after = server.run(None, 90);
        assert!(after.answered_per_s > 19.0, "{after:?}");
        assert!(after.longest_s < 0.3, "{after:?}");
    }
}

#[test]
fn clients_that_only_close_their_side_keep_nobody_from_being_answered() {
    let fixed = Server {
        closes: true,
        ..OVERLOADED
    }
    .run(Some(12), 150);
    assert!(fixed.answered_per_s > 20.0, "{fixed:?}");
    for (within_s, places, tells, patience_s) in [
        (1.0, 32, true, 0.7),
        (1.0, 32, false, 0.7),
        (1.0, 128, true, 0.7),
        (10.0, 512, true, 1.0),
        (1.0, 32, true, 0.5),
    ] {
        let learned = Server {
            closes: true,
            within_s,
            places,
            tells,
            patience_s,
            ..OVERLOADED
        }
        .run(None, 150);
        assert!(
            learned.answered_per_s > 0.9 * fixed.answered_per_s,
            "{within_s} {places} {tells} {patience_s}: {learned:?}"
        );
    }
}

/// Eight workers of a tenth of a second, of which ten connections of others' take most, and clients that come three times as often as it
/// takes until then.
fn shared(until_s: u32, others: usize) -> Server {
    Server {
        workers: |_| 8,
        service_s: 0.1,
        places: 128,
        rate: 200.0,
        patience_s: 0.5,
        queue_timeout_s: 0.25,
        others,
        until_s,
        rate_after: 12.0,
        ..OVERLOADED
    }
}

#[test]
fn others_connections_in_the_queue_are_none_that_clients_left() {
    for others in [0, 9, 10, 12] {
        // What is counted begins three seconds after the overload.
        let after = shared(FROM - 3, others).run(None, FROM + 30);
        assert!(after.answered_per_s > 11.5, "{others}: {after:?}");
    }
}

#[test]
fn a_server_answers_what_it_can_a_few_seconds_after_an_overload_begins() {
    for tells in [true, false] {
        // What is counted begins twelve seconds after the overload, and ends ten later.
        let server = Server {
            tells,
            rate: 25.0,
            rate_after: 200.0,
            ..shared(FROM - 12, 0)
        };
        let began = server.run(None, FROM + 10);
        assert!(began.answered_per_s > 0.9 * 80.0, "{tells}: {began:?}");
    }
}

#[test]
fn it_is_given_as_many_again_soon_after_an_overload_however_long_that_was() {
    // Clients leave while more are let in than are answered within half a second.
    let bound_after = |overloaded: u32| {
        let mut learned = InHand::new(Seconds::new(1.0));
        let mut bound = None;
        for second in 0..overloaded + 30 {
            let (left, waiting, in_flight) = match second < overloaded {
                true if bound.is_none_or(|most| most > 40) => (40.0, 40.0, 1.0),
                true => (0.0, 40.0, 1.0),
                false => (0.0, 2.0, 10.0),
            };
            bound = learned.observe(&InHandPeriod {
                length: Seconds::new(1.0),
                capacity: Capacity::Exact(PerSecond::new(80.0)),
                accepts: 80.0,
                drops: 0.0,
                waiting: Some(waiting),
                places: None,
                working: Some(8.0),
                sent: 80.0,
                left,
                gone: 0.0,
                in_flight: Some(in_flight),
            });
        }
        bound
    };
    let (short, long) = (bound_after(20).unwrap(), bound_after(2_000).unwrap());
    assert!(10 * long > 9 * short && short > 20, "{short} {long}");
}
