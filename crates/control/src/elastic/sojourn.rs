//! How long a request is in the cluster, by Little's law, now and usually: a sign of difficulty that needs no latencies and no accept queue.
//!
//! W = sum of those in flight / sum of answers x length. Both sums are counts: of Poisson numbers in flight, of which two in a row are
//! alike, the relative error of W is the root of 2 / (sum in flight) + 1 / (answers).

use super::answers::{Answers, LATE_S};
use crate::observation::Observation;
use std::collections::VecDeque;

/// What is usual is remembered for so many seconds.
const USUAL_S: f64 = 900.0;
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
}

impl Sojourn {
    /// Takes a period. What is under suspicion is not taken for usual.
    pub(super) fn observe(&mut self, observation: &Observation, is_usual: bool) {
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
        while self.now.seconds > LATE_S.max(1.5 * length_s) {
            let Some(oldest) = self.periods.pop_front() else {
                break;
            };
            self.now.add(&oldest, -1.0);
        }
        if is_usual && !self.is_slower(1.5) {
            let keeps = (-length_s / USUAL_S).exp();
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
        self.answers.forget();
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
            sojourn.observe(&period(12, in_flight), true);
            assert!(!sojourn.is_slower(1.5));
        }
        let found = (1..30).find(|_| {
            sojourn.observe(&period(12, 12), true);
            sojourn.is_slower(1.5)
        });
        assert!(found.is_some_and(|seconds| seconds <= 8), "{found:?}");
    }
}
