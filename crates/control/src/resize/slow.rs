//! Which servers of a cluster are slow: those whose requests take significantly longer than those of their equals.
//!
//! A request's mean time at a server is the mean number of requests in it over its rate (Little's law), so nothing but two counts
//! a period is asked of the balancer, and no clock of the server's. Only servers of one kind are compared: of two kinds the one may
//! be meant to take longer.

use super::server::PowerState;

/// Periods after which half of what was seen is forgotten: a server that is well again is known to be within some minutes.
const HALF_LIFE: f64 = 200.0;
/// Requests in flight at the ends of two periods in a row are alike: so many periods tell as much as one that stands alone.
const ALIKE: f64 = 2.0;
/// A server is slow whose requests take this many times as long as those of its equals, and well again below the second.
const SLOW: (f64, f64) = (1.4, 1.2);
/// Standard errors by which they do.
const SIGNIFICANT: f64 = 3.0;
/// Fewer requests than this, as far as they are remembered, tell nothing.
const FEWEST: f64 = 100.0;

/// What one server did in one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Requests that it was sent, or answered.
    pub requests: u64,
    /// Requests that it was serving at the period's end.
    pub in_flight: u64,
}

/// What was seen of one server since it and one of its equals both serve.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    periods: f64,
    requests: f64,
    in_flight: f64,
    squares: f64,
}

impl Seen {
    fn observe(&mut self, work: Work) {
        let keep = 0.5f64.powf(1.0 / HALF_LIFE);
        let in_flight = work.in_flight as f64;
        self.periods = self.periods * keep + 1.0;
        self.requests = self.requests * keep + work.requests as f64;
        self.in_flight = self.in_flight * keep + in_flight;
        self.squares = self.squares * keep + in_flight * in_flight;
    }

    /// The natural logarithm of a request's mean time in periods, and its variance; `None` where too little was seen.
    fn time(&self) -> Option<(f64, f64)> {
        if self.requests < FEWEST || self.in_flight <= 0.0 {
            return None;
        }
        let mean = self.in_flight / self.periods;
        let variance = (self.squares / self.periods - mean * mean).max(mean);
        let variance = variance / (mean * mean) * ALIKE / self.periods;
        Some(((self.in_flight / self.requests).ln(), variance))
    }
}

/// The kinds of these machines, a number for each: those that are equal have the same.
pub fn kinds<T: PartialEq>(machines: &[T]) -> Vec<usize> {
    let first = |machine: &T| machines.iter().position(|other| other == machine);
    machines
        .iter()
        .map(|machine| first(machine).unwrap_or(0))
        .collect()
}

/// How long requests take at each server of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Slow {
    kinds: Vec<usize>,
    /// Of each server and each of its equals what was seen of the first while both served: one may come in a backlog that the others knew calm
    /// before, so two are compared over the same periods.
    seen: Vec<Vec<Seen>>,
    /// How many times as long as at its equals, while it is slow.
    slow: Vec<Option<f64>>,
}

impl Slow {
    /// Servers of these kinds; equal ones have the same number.
    pub(super) fn new(kinds: Vec<usize>) -> Self {
        Self {
            seen: vec![vec![Seen::default(); kinds.len()]; kinds.len()],
            slow: vec![None; kinds.len()],
            kinds,
        }
    }

    /// How many times as long as at its equals requests take at a server; `None` where that is not significant.
    pub(super) fn at(&self, server: usize) -> Option<f64> {
        *self.slow.get(server)?
    }

    /// Takes a period's work of each server and its state. What was found of a server that does not serve stays.
    pub(super) fn observe(&mut self, states: &[PowerState], work: &[Option<Work>]) {
        let serves = |at: usize| states.get(at) == Some(&PowerState::Serving);
        let worked = |at: usize| work.get(at).copied().flatten();
        for at in 0..self.seen.len() {
            for other in self.equals(at).collect::<Vec<_>>() {
                let seen = &mut self.seen[at][other];
                match worked(at).zip(worked(other)) {
                    _ if !serves(at) || !serves(other) => *seen = Seen::default(),
                    Some((work, _)) => seen.observe(work),
                    None => {}
                }
            }
        }
        for at in 0..self.seen.len() {
            let Some((more, error)) = self.more(at) else {
                continue;
            };
            let slow = &mut self.slow[at];
            let sure = match slow.is_some() {
                true => more + SIGNIFICANT * error > SLOW.1.ln(),
                false => more - SIGNIFICANT * error > SLOW.0.ln(),
            };
            *slow = sure.then(|| more.exp());
        }
    }

    fn equals(&self, at: usize) -> impl Iterator<Item = usize> {
        (0..self.kinds.len()).filter(move |other| *other != at && self.kinds[*other] == self.kinds[at])
    }

    /// By how much requests take longer at this server than at the one in the middle of its equals, of two the faster (with two equals, the
    /// faster), as a natural logarithm, and the error of that, for which the other's part is that of a median of so many.
    fn more(&self, at: usize) -> Option<(f64, f64)> {
        let pairs = self.equals(at).filter_map(|other| {
            let ((ln, own), (usual, of_usual)) =
                self.seen[at][other].time().zip(self.seen[other][at].time())?;
            Some((ln - usual, own, of_usual))
        });
        let mut pairs: Vec<(f64, f64, f64)> = pairs.collect();
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (more, own, of_usual) = *pairs.get(pairs.len().checked_sub(1)? / 2)?;
        let of_median = (std::f64::consts::FRAC_PI_2 / pairs.len() as f64).min(1.0);
        Some((more, (own + of_usual * of_median).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVING: [PowerState; 4] = [PowerState::Serving; 4];

    /// Poisson counts of this mean, seeded.
    fn poisson(mean: f64, state: &mut u64) -> u64 {
        let mut roll = || {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (*state >> 11) as f64 / (1u64 << 53) as f64
        };
        let (mut count, mut product) = (0, roll());
        while product > (-mean).exp() {
            count += 1;
            product *= roll();
        }
        count
    }

    fn after(periods: usize, times: [f64; 4], rate: f64, state: &mut u64) -> Slow {
        let mut slow = Slow::new(vec![0; 4]);
        observe(&mut slow, periods, times, rate, state);
        slow
    }

    fn observe(slow: &mut Slow, periods: usize, times: [f64; 4], rate: f64, state: &mut u64) {
        for _ in 0..periods {
            let work = times.map(|time| {
                Some(Work {
                    requests: poisson(rate, state),
                    in_flight: poisson(rate * time, state),
                })
            });
            slow.observe(&SERVING, &work);
        }
    }

    #[test]
    fn the_slow_one_of_four_is_found_and_known_when_it_is_well() {
        let mut state = 1;
        let mut slow = after(200, [0.05, 0.1, 0.05, 0.05], 40.0, &mut state);
        let found: Vec<bool> = (0..4).map(|at| slow.at(at).is_some()).collect();
        assert_eq!(found, [false, true, false, false]);
        assert!((1.6..2.5).contains(&slow.at(1).unwrap()), "{:?}", slow.at(1));
        // Off, it stays what it was.
        let off = [
            PowerState::Serving,
            PowerState::Off,
            PowerState::Serving,
            PowerState::Serving,
        ];
        for _ in 0..500 {
            slow.observe(&off, &[None; 4]);
        }
        assert!(slow.at(1).is_some());
        observe(&mut slow, 1_000, [0.05; 4], 40.0, &mut state);
        assert_eq!(slow.at(1), None);
    }

    #[test]
    fn one_that_comes_in_a_backlog_is_no_slower_than_those_that_knew_calm() {
        let mut slow = Slow::new(vec![0; 3]);
        let of = |requests, in_flight| Some(Work { requests, in_flight });
        let before = [PowerState::Serving, PowerState::Serving, PowerState::Warming];
        for _ in 0..200 {
            slow.observe(&before, &[of(48, 3), of(48, 3), None]);
        }
        // As HAProxy counted three equal ones.
        for in_flight in [65, 57, 42, 29, 15, 6, 3, 3] {
            let all = [of(46, in_flight); 3];
            slow.observe(&[PowerState::Serving; 3], &all);
            assert_eq!((0..3).find_map(|at| slow.at(at)), None, "{in_flight}");
        }
        // It is slow for all that.
        for _ in 0..400 {
            slow.observe(&[PowerState::Serving; 3], &[of(46, 3), of(46, 3), of(46, 12)]);
        }
        assert!(slow.at(2).is_some() && slow.at(0).is_none());
    }

    #[test]
    fn one_that_comes_and_goes_hides_no_slow_one_from_its_equals() {
        let mut slow = Slow::new(vec![0; 4]);
        let of = |requests, in_flight| Some(Work { requests, in_flight });
        for second in 0..600 {
            let fourth = match second % 60 {
                0..30 => PowerState::Off,
                _ => PowerState::Serving,
            };
            let states = [
                PowerState::Serving,
                PowerState::Serving,
                PowerState::Serving,
                fourth,
            ];
            slow.observe(&states, &[of(10, 1), of(10, 3), of(10, 1), of(10, 1)]);
        }
        let found: Vec<bool> = (0..4).map(|at| slow.at(at).is_some()).collect();
        assert_eq!(found, [false, true, false, false]);
    }

    #[test]
    fn equal_machines_are_of_one_kind() {
        assert_eq!(kinds(&["a", "b", "a", "c", "b"]), [0, 1, 0, 3, 1]);
    }

    #[test]
    fn of_two_kinds_the_slower_is_not_slow() {
        let mut slow = Slow::new(vec![0, 0, 1, 1]);
        let mut state = 3;
        observe(&mut slow, 300, [0.05, 0.05, 0.1, 0.1], 40.0, &mut state);
        assert!((0..4).all(|at| slow.at(at).is_none()));
    }

    #[test]
    fn a_server_alone_has_no_equals() {
        let mut slow = Slow::new(vec![0]);
        for _ in 0..300 {
            let work = Work {
                requests: 40,
                in_flight: 40,
            };
            slow.observe(&SERVING[..1], &[Some(work)]);
        }
        assert_eq!(slow.at(0), None);
    }

    proptest! {
        /// Equal servers are hardly ever told apart, whatever the load.
        #[test]
        fn equals_are_equals(seed in 1u64..u64::MAX, rate in 1.0f64..200.0, time in 0.02f64..1.0) {
            let mut state = seed;
            let slow = after(300, [time; 4], rate, &mut state);
            prop_assert!((0..4).all(|at| slow.at(at).is_none()));
        }
    }
}
