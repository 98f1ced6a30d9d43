//! What was seen of a backend, gathered until it is enough to learn from, and whether it was a steady state.

use headroom_physics::serving::RequestCost;
use headroom_units::Seconds;

/// Requests that say something of a mean.
const MIN_REQUESTS: u64 = 20;
/// And how many times those in flight at first.
const SOJOURNS: u64 = 2;
/// The requests in flight may have changed by this part of those that were completed, in a steady state.
const CHANGES: u64 = 4;
/// What comes may be so many times what came in the period before, in a steady state: a mean over a step is of neither side.
const RISES: f64 = 1.5;
/// And so many deviations of a count more.
const DEVIATIONS: f64 = 3.0;
/// Periods for which fewer are gathered.
const MAX_PERIODS: u32 = 60;

/// What one class was observed to do at a backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// What a request takes by the figures.
    pub(super) cost: RequestCost,
    /// Requests that came.
    pub(super) arrivals: u64,
    /// Requests answered.
    pub(super) completions: u64,
    /// Their mean latency.
    pub(super) mean: Option<Seconds>,
}

/// What was seen of a backend in some periods, until it is enough to learn from.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    periods: u32,
    /// Their length together.
    length: Seconds,
    /// Requests in flight at the start of the first of them, and at the end of the last.
    in_flight: [u64; 2],
    /// What came in the last period.
    came: u64,
    /// Whether many more came in one of them than in the one before.
    rose: bool,
    /// Of each class.
    seen: Vec<Seen>,
}

/// Enough to learn from.
#[derive(Clone, Debug)]
pub(super) struct Enough {
    /// Of each class.
    pub(super) seen: Vec<Seen>,
    /// In how long.
    pub(super) length: Seconds,
    /// That about as many requests were in flight at the end as at the start, and never many more came than in the period before.
    pub(super) settled: bool,
}

impl Gathered {
    /// Adds a period, each class at its place, and how many requests were in flight at its end.
    pub(super) fn add(&mut self, period: Vec<Seen>, length: Seconds, in_flight: u64) {
        let came = period.iter().map(|seen| seen.arrivals).sum();
        let before = self.came as f64;
        let rose = came as f64 > before * RISES + DEVIATIONS * before.sqrt().max(1.0);
        self.came = came;
        if self.periods == 0 || self.seen.len() != period.len() {
            *self = Self {
                periods: 1,
                length,
                in_flight: [self.in_flight[1], in_flight],
                came,
                rose,
                seen: period,
            };
            return;
        }
        self.rose |= rose;
        self.periods += 1;
        self.length += length;
        self.in_flight[1] = in_flight;
        for (sum, new) in self.seen.iter_mut().zip(period) {
            let part = |of: &Seen| of.mean.map_or(0.0, Seconds::get) * of.completions as f64;
            let completions = sum.completions + new.completions;
            let mean = (completions > 0).then(|| Seconds::new((part(sum) + part(&new)) / completions as f64));
            *sum = Seen {
                cost: new.cost,
                arrivals: sum.arrivals + new.arrivals,
                completions,
                mean,
            };
        }
    }

    /// What there is, where it is enough; gathering begins anew then, and where it has taken too long.
    pub(super) fn take(&mut self) -> Option<Enough> {
        let requests: u64 = self.seen.iter().map(|seen| seen.completions).sum();
        let [first, last] = self.in_flight;
        let next = Self {
            in_flight: [last; 2],
            came: self.came,
            ..Self::default()
        };
        if requests < MIN_REQUESTS.max(first.saturating_mul(SOJOURNS)) {
            if self.periods >= MAX_PERIODS {
                *self = next;
            }
            return None;
        }
        let Self {
            seen, length, rose, ..
        } = std::mem::replace(self, next);
        Some(Enough {
            seen,
            length,
            settled: !rose && first.abs_diff(last) <= requests / CHANGES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many came and were answered in a second.
    fn seen(mean_ms: f64, arrivals: u64, completions: u64) -> Seen {
        Seen {
            cost: RequestCost {
                cpu: Seconds::from_millis(10.0),
                bytes: 1e3,
            },
            arrivals,
            completions,
            mean: Some(Seconds::from_millis(mean_ms)),
        }
    }

    #[test]
    fn few_requests_are_gathered_until_they_say_something() {
        let mut gathered = Gathered::default();
        let mut taken = Vec::new();
        for period in 1..=6 {
            gathered.add(vec![seen(10.0 * f64::from(period), 50, 7)], Seconds::new(1.0), 5);
            taken.extend(
                gathered
                    .take()
                    .map(|enough| (period, enough.length.get(), enough.seen[0])),
            );
        }
        let [(3, 3.0, one), (6, 3.0, two)] = taken[..] else {
            panic!("{taken:?}")
        };
        assert_eq!((one.completions, two.completions), (21, 21));
        assert!((one.mean.unwrap().as_millis() - 20.0).abs() < 1e-9);
        assert_eq!(one.arrivals, 150);
        // What is too old is forgotten.
        for _ in 0..MAX_PERIODS {
            gathered.add(vec![seen(10.0, 50, 0)], Seconds::new(1.0), 5);
            assert!(gathered.take().is_none());
        }
        gathered.add(vec![seen(30.0, 50, 20)], Seconds::new(1.0), 5);
        assert_eq!(gathered.take().unwrap().seen[0].arrivals, 50);
    }

    #[test]
    fn what_was_in_flight_at_first_is_waited_for_and_a_queue_that_grows_or_drains_is_told() {
        let taken = |in_flight: &[u64]| {
            let mut gathered = Gathered::default();
            gathered.add(vec![seen(10.0, 50, 50)], Seconds::new(1.0), in_flight[0]);
            gathered.take();
            let mut first = None;
            for (period, now) in in_flight[1..].iter().enumerate() {
                gathered.add(vec![seen(10.0, 50, 50)], Seconds::new(1.0), *now);
                first = first.or_else(|| gathered.take().map(|enough| (period + 1, enough.settled)));
            }
            first
        };
        assert_eq!(taken(&[4, 5]), Some((1, true)));
        assert_eq!(taken(&[25, 5]), Some((1, false)));
        assert_eq!(taken(&[100, 90, 80, 80, 75]), Some((4, true)));
        assert_eq!(taken(&[100, 90, 60, 30, 1]), Some((4, false)));
        assert_eq!(taken(&[4, 60]), Some((1, false)));
        assert_eq!(taken(&[500, 400, 400]), None);
        let mut gathered = Gathered::default();
        let mut settled = |came| {
            gathered.add(vec![seen(10.0, came, 50)], Seconds::new(1.0), 4);
            gathered.take().map(|enough| enough.settled)
        };
        // What came before the first period is not known.
        let told = [50, 60, 180, 170, 40, 70].map(&mut settled);
        assert_eq!(told, [false, true, false, true, true, true].map(Some));
    }
}
