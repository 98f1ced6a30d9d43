//! How long a request is in the cluster, by Little's law, now and usually: a sign of difficulty that needs no latencies and no accept queue.
//!
//! W = sum of those in flight / sum of answers x length. Both sums are counts: of Poisson numbers in flight, of which two in a row are
//! alike, the relative error of W is the root of 2 / (sum in flight) + 1 / (answers).

use super::answers::{Answers, LATE_S};
use crate::observation::Observation;
use std::collections::VecDeque;

/// What is usual is remembered for so many seconds.
const USUAL_S: f64 = 900.0;
/// What is usual follows so many times faster where requests take longer and users have what they were promised: streams beside them.
const FOLLOWS: f64 = 10.0;
/// Over so many seconds a backlog grows by so many deviations of what came, and by so many requests; and more is in flight than so many times
/// what as much as came of late has usually.
const GROWS_S: f64 = 30.0;
const GROWS: (f64, f64) = (3.0, 10.0);
const MORE_THAN_USUAL: f64 = 1.5;
/// A load that has just risen is seen in so many seconds.
const RISES_S: f64 = 3.0;
/// Deviations by which now must exceed a multiple of what is usual.
const DEVIATIONS: f64 = 3.0;

/// Sums over a time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// In flight times seconds.
    in_flight_s: f64,
    /// In flight, over periods.
    in_flight: f64,
    answers: f64,
    seconds: f64,
}

impl Sums {
    fn add(&mut self, other: &Self, sign: f64) {
        self.in_flight_s += sign * other.in_flight_s;
        self.in_flight += sign * other.in_flight;
        self.answers += sign * other.answers;
        self.seconds += sign * other.seconds;
    }

    /// Seconds a request, and its relative error.
    fn takes_s(&self) -> Option<(f64, f64)> {
        if self.answers < 1.0 || self.in_flight < 1.0 {
            return None;
        }
        let error = (2.0 / self.in_flight + 1.0 / self.answers).sqrt();
        Some((self.in_flight_s / self.answers, error))
    }
}

/// The time in the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Sojourn {
    periods: VecDeque<Sums>,
    now: Sums,
    usual: Sums,
    /// What the servers that take requests answered since they are the same.
    answers: Answers,
    /// What came since they are the same, how many were in flight at the end of each period, and how long it was.
    backlog: VecDeque<(f64, f64, f64)>,
}

impl Sojourn {
    /// Takes a period. What is under suspicion is not taken for usual, but where it is known that users have what they were `promised`.
    pub(super) fn observe(&mut self, observation: &Observation, is_usual: bool, is_promised: bool) {
        let length_s = observation.length.get();
        let found = observation.traffic.as_ref().and_then(|traffic| {
            // Not the mean latency of those that ended: what waits ever longer is not among them.
            let counted = traffic.in_flight.map(|in_flight| in_flight as f64);
            let in_flight = counted.or_else(|| traffic.mean_in_flight(observation.length))?;
            Some(Sums {
                in_flight_s: in_flight * length_s,
                in_flight,
                answers: traffic.completions as f64,
                seconds: length_s,
            })
        });
        let Some(period) = found else {
            self.forget_now();
            return;
        };
        self.now.add(&period, 1.0);
        self.periods.push_back(period);
        self.answers.observe(period.answers, length_s);
        let counted = observation.traffic.as_ref();
        if let Some((arrivals, in_flight)) =
            counted.and_then(|traffic| Some((traffic.arrivals, traffic.in_flight?)))
        {
            self.backlog
                .push_back((arrivals as f64, in_flight as f64, length_s));
            while self.backlog.iter().map(|(.., length_s)| length_s).sum::<f64>()
                > GROWS_S.max(1.5 * length_s)
            {
                self.backlog.pop_front();
            }
        }
        while self.now.seconds > LATE_S.max(1.5 * length_s) {
            let Some(oldest) = self.periods.pop_front() else {
                break;
            };
            self.now.add(&oldest, -1.0);
        }
        let is_slower = self.is_slower(1.5);
        if is_usual && (!is_slower || is_promised) {
            let over_s = if is_slower { USUAL_S / FOLLOWS } else { USUAL_S };
            let keeps = (-length_s / over_s).exp();
            let usual = self.usual;
            self.usual = Sums::default();
            self.usual.add(&usual, keeps);
            self.usual.add(&period, 1.0);
        }
    }

    /// Whether requests take more than so many times as long as usual, by more than the noise of their counts.
    pub(super) fn is_slower(&self, times: f64) -> bool {
        let (Some((now_s, now)), Some((usual_s, usual))) = (self.now.takes_s(), self.usual.takes_s()) else {
            // Nothing is answered any more of what is in flight.
            return self.now.answers < 1.0 && self.now.in_flight > 10.0 && self.usual.answers >= 100.0;
        };
        let error = (now * now + usual * usual).sqrt();
        self.usual.answers >= 100.0 && now_s / usual_s > times * (1.0 + DEVIATIONS * error)
    }

    /// Whether nothing was answered of late of what came.
    pub(super) fn answers_nothing(&self) -> bool {
        self.now.in_flight > 0.0 && self.answers.rate().is_some_and(|(rate, _)| rate <= 0.0)
    }

    /// Whether it is known, so that difficulty would show.
    pub(super) fn is_known(&self) -> bool {
        self.usual.answers >= 100.0
    }

    /// Other servers take requests from now on.
    pub(super) fn regroup(&mut self) {
        self.answers.forget();
        self.backlog.clear();
    }

    /// Whether a backlog grows since the same servers take requests: what waits ever longer is not among what was answered.
    pub(super) fn is_growing(&self) -> bool {
        let (Some((usual_s, _)), Some(first), Some(last)) =
            (self.usual.takes_s(), self.backlog.front(), self.backlog.back())
        else {
            return false;
        };
        let came: f64 = self.backlog.iter().map(|(came, ..)| came).sum();
        let mut of_late = (0.0, 0.0);
        for (came, _, length_s) in self.backlog.iter().rev() {
            if of_late.1 >= RISES_S {
                break;
            }
            of_late = (of_late.0 + came, of_late.1 + length_s);
        }
        // A load that has risen has more in flight where each request takes as long as ever.
        let explained = MORE_THAN_USUAL * usual_s * (of_late.0 / of_late.1);
        self.is_known() && last.1 > explained && last.1 - first.1 > GROWS.1.max(GROWS.0 * came.sqrt())
    }

    /// What the servers that take requests [answered](Answers::rate) a second, of late, and the error of that.
    pub(super) fn answered(&self) -> Option<(f64, f64)> {
        self.answers.rate()
    }

    /// Whether nothing is known of what is answered.
    pub(super) fn is_unknown(&self) -> bool {
        self.periods.is_empty()
    }

    /// What was observed just now is no longer now.
    pub(super) fn forget_now(&mut self) {
        self.periods.clear();
        self.now = Sums::default();
        self.regroup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Traffic;
    use headroom_units::Seconds;

    fn period(rate: u64, in_flight: u64) -> Observation {
        Observation {
            length: Seconds::new(1.0),
            traffic: Some(Traffic {
                arrivals: rate,
                completions: rate,
                in_flight: Some(in_flight),
                ..Traffic::default()
            }),
            ..Observation::default()
        }
    }

    #[test]
    fn a_backlog_that_grows_is_seen_and_streams_beside_prompt_requests_become_usual() {
        let mut sojourn = Sojourn::default();
        (0..100).for_each(|_| sojourn.observe(&period(8, 1), true, true));
        assert!(!sojourn.is_growing() && !sojourn.is_slower(1.5));
        // As servers that take 5/s had 7.7/s.
        let of = |arrivals, completions, in_flight| {
            let mut period = period(arrivals, in_flight);
            if let Some(traffic) = &mut period.traffic {
                traffic.completions = completions;
            }
            period
        };
        let mut grows = sojourn.clone();
        grows.regroup();
        let mut growing = (1..=30).map(|second| {
            grows.observe(&of(8, 5, 3 * second), false, true);
            grows.is_growing()
        });
        let found = growing.position(|is| is).unwrap();
        assert!((8..20).contains(&found), "{found}");
        // Ten times the load, of requests of two seconds, is none.
        let mut risen = Sojourn::default();
        (0..100).for_each(|_| risen.observe(&period(10, 20), true, true));
        for second in 1..60 {
            risen.observe(
                &of(100, if second > 2 { 100 } else { 10 }, 20 + 90 * second.min(2)),
                true,
                true,
            );
            assert!(!risen.is_growing(), "{second} s");
        }
        // Seventeen streams: some seconds later than they are open, a trial is no longer failed by them.
        for second in 0..600 {
            sojourn.observe(&period(8, 1 + second.min(17)), true, true);
            assert!(!sojourn.is_growing());
        }
        assert!(!sojourn.is_slower(1.5));
        // Where it is not known what users have they are a difficulty.
        let mut unknown = Sojourn::default();
        (0..100).for_each(|_| unknown.observe(&period(8, 1), true, false));
        (0..600).for_each(|_| unknown.observe(&period(8, 18), true, false));
        assert!(unknown.is_slower(2.5));
    }

    #[test]
    fn the_noise_of_a_low_load_is_no_difficulty_and_an_overload_is_found_in_seconds() {
        let mut sojourn = Sojourn::default();
        let mut state = 7_u64;
        // 12/s of 133 ms: Poisson numbers of mean 1.6 in flight.
        for _ in 0..20_000 {
            let mut in_flight = 0;
            let mut product = 1.0_f64;
            loop {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                product *= (state >> 11) as f64 / (1_u64 << 53) as f64;
                if product < (-1.6_f64).exp() {
                    break;
                }
                in_flight += 1;
            }
            sojourn.observe(&period(12, in_flight), true, false);
            assert!(!sojourn.is_slower(1.5));
        }
        let found = (1..30).find(|_| {
            sojourn.observe(&period(12, 12), true, false);
            sojourn.is_slower(1.5)
        });
        assert!(found.is_some_and(|seconds| seconds <= 8), "{found:?}");
    }
}
