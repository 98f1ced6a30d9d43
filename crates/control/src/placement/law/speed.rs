//! How much slower a backend is than its figures say, from what its requests took.
//!
//! At each period the factor on the processor time is sought at which the model predicts the mean latency that was observed there, over all
//! its classes. It is M/G/k processor sharing with that factor on both the work of a request and the load, so a backend at half its speed
//! and one with figures that are wrong are alike found as 2. What the network and the gateway take is subtracted first.
//!
//! That mean is of a steady state. In a rush and after it a queue stands that the period's own arrivals do not explain, and by latency alone
//! a machine at full speed would be found several times as slow. Three things keep it from that:
//! - no machine serves more work than its cores have time for (the utilisation law), so the factor is at most their time for the work that was
//!   completed, by the figures;
//! - nothing is learned until twice as many were completed as were in flight at first, so that it is not those which were seen;
//! - where the requests in flight grew or shrank a lot, where many more came than in the period before, and where the link was full, no slowness
//!   is learned.

use crate::placement::population::present;
use headroom_physics::serving::{RequestCost, ServingMachine};
use headroom_units::{PerSecond, Seconds};

/// A backend counts as at most so much slower and quicker than its figures say. What is quicker is believed less: it would be sent more.
pub const FACTORS: [f64; 2] = [0.7, 8.0];
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
/// The share of a slowness that is forgotten in each period in which nothing was asked of a backend: what is avoided is never seen to be
/// quick again.
const FORGETS: f64 = 0.002;
/// What is busier than this is not told apart: a queue that only grows has no mean.
const MAX_BUSY: f64 = 0.999;
/// Halvings in which a factor is sought.
const HALVINGS: usize = 20;
/// A link that carried more than this share of what it can is what its requests waited for.
const FULL_LINK: f64 = 0.9;
/// The share of what a period says that counts, where it says slower, and where it says quicker.
const LEARNS: [f64; 2] = [0.3, 0.1];

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

/// The mean stretch of a request at a station as busy as this, at most as at [`MAX_BUSY`].
fn stretch(cores: usize, busy: f64) -> f64 {
    let busy = busy.clamp(1e-9, MAX_BUSY);
    present(cores, busy) / (cores as f64 * busy)
}

/// The factor after these periods, from the one before them.
pub(super) fn learned(before: f64, machine: &ServingMachine, enough: &Enough, path: Seconds) -> f64 {
    let seen = &enough.seen;
    let told: Vec<&Seen> = seen
        .iter()
        .filter(|seen| seen.completions > 0 && seen.mean.is_some())
        .collect();
    let requests: f64 = told.iter().map(|seen| seen.completions as f64).sum();
    if requests < 1.0 {
        return before;
    }
    let mean = |seen: &Seen| seen.mean.unwrap_or(Seconds::ZERO).get();
    let observed: f64 = told
        .iter()
        .map(|seen| mean(seen) * seen.completions as f64)
        .sum::<f64>()
        / requests;
    let path = path.get();
    let load_of = |count: fn(&Seen) -> u64| {
        let rate = |seen: &Seen| PerSecond::new(count(seen) as f64 / enough.length.get());
        machine.load(seen.iter().map(|seen| (seen.cost, rate(seen))))
    };
    let load = load_of(|seen| seen.arrivals);
    let at_link = stretch(1, load.link.get());
    let predicted = |factor: f64| {
        let at_cores = stretch(machine.cores, load.cpu.get() * factor);
        let one = |seen: &&Seen| {
            let link = seen.cost.bytes / machine.link_bytes_per_s * at_link;
            (seen.cost.cpu.get() * factor * at_cores + link) * seen.completions as f64
        };
        told.iter().map(one).sum::<f64>() / requests
    };
    let [least, most] = FACTORS;
    // Where the path takes most of it, a latency says nothing of a machine that is quicker than its figures.
    let sought = match observed - path {
        left if left < path && predicted(before) > left => return before,
        left => left,
    };
    let (mut low, mut high) = (least, most);
    for _ in 0..HALVINGS {
        let middle = (low * high).sqrt();
        if predicted(middle) < sought {
            low = middle
        } else {
            high = middle
        }
    }
    let served = load_of(|seen| seen.completions);
    // What was completed of what came before the period counts too, so it does not tell that a machine is quicker.
    let at_most = served.cpu.get().recip().max(1.0);
    // Where even so more came than it serves, their mean latency is that of the beginning of a queue.
    let has_no_mean = load.cpu.get() * low > MAX_BUSY || load.link.get() > MAX_BUSY;
    let by_latency = match has_no_mean && low < before {
        true => before,
        false => low,
    };
    let factor = by_latency.min(at_most);
    let share = match factor > before {
        true if served.link.get() > FULL_LINK || !enough.settled => return before,
        true => LEARNS[0],
        false => LEARNS[1],
    };
    (before.ln() * (1.0 - share) + factor.ln() * share)
        .exp()
        .clamp(least, most)
}

/// The factor after a period in which nothing was asked of a backend.
pub(super) fn forgotten(before: f64) -> f64 {
    match before > 1.0 {
        true => before.powf(1.0 - FORGETS),
        false => before,
    }
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

    /// Whether nothing was asked of it.
    pub(super) fn is_empty(&self) -> bool {
        let idle = |seen: &Seen| seen.completions == 0 && seen.arrivals == 0;
        self.seen.iter().all(idle)
    }
}

/// A request on a machine that is slower by this factor.
pub(super) fn slower(cost: RequestCost, factor: f64) -> RequestCost {
    RequestCost {
        cpu: cost.cpu * factor,
        ..cost
    }
}

/// The factor on a coarse scale, so that machines that are nearly alike are one kind: to the next of steps of 5 %, upwards.
pub(super) fn step(factor: f64) -> i32 {
    (factor.ln() / 1.05f64.ln() - 0.2).ceil() as i32
}

/// The factor of a step.
pub(super) fn of_step(step: i32) -> f64 {
    1.05f64.powi(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_physics::ServerFigures;
    use headroom_units::Watts;

    fn machine() -> ServingMachine {
        ServingMachine {
            name: "m".to_owned(),
            cores: 2,
            link_bytes_per_s: 125e6,
            idle: Watts::new(10.0),
            busy: Watts::new(10.0),
            link: Watts::ZERO,
            server: ServerFigures::default(),
        }
    }

    fn seen(mean_ms: f64, completions: u64) -> Seen {
        Seen {
            cost: RequestCost {
                cpu: Seconds::from_millis(10.0),
                bytes: 1e3,
            },
            arrivals: 50,
            completions,
            mean: Some(Seconds::from_millis(mean_ms)),
        }
    }

    /// A steady second.
    fn second(seen: Seen) -> Enough {
        Enough {
            seen: vec![seen],
            length: Seconds::new(1.0),
            settled: true,
        }
    }

    /// The factor after so many of them, without a path.
    fn after(before: f64, periods: usize, seen: Seen) -> f64 {
        (0..periods).fold(before, |one, _| {
            learned(one, &machine(), &second(seen), Seconds::ZERO)
        })
    }

    #[test]
    fn a_backend_at_half_its_speed_is_found_as_two() {
        // At half the speed 20 ms at a utilisation of 0.5 of two cores: 1/(1 - 0.25) times that.
        let observed = seen(20.0 / 0.75 + 0.008, 50);
        let factor = after(1.0, 20, observed);
        assert!((factor - 2.0).abs() < 0.02, "{factor}");
    }

    /// So many came and were answered in a second, after a queue that stood.
    fn in_a_rush(mean_ms: f64, arrivals: u64, answered: u64) -> Seen {
        Seen {
            arrivals,
            ..seen(mean_ms, answered)
        }
    }

    #[test]
    fn a_queue_is_no_slowness() {
        // Its two cores serve 200/s of 10 ms; 150/s come after a queue that stood.
        let healthy = after(1.0, 40, in_a_rush(900.0, 150, 200));
        assert!((1.0..1.01).contains(&healthy), "{healthy}");
        // The queue goes on growing, and the first second of it.
        for mean_ms in [40.0, 4_000.0] {
            let healthy = after(1.0, 40, in_a_rush(mean_ms, 600, 195));
            assert!((0.99..1.03).contains(&healthy), "{healthy}");
        }
        // A factor that was believed is not, once it serves more than it could.
        let believed = after(4.7, 40, in_a_rush(900.0, 150, 190));
        assert!(believed < 1.2, "{believed}");
        // A machine at a third of its speed is found where it has a queue, too, but not while that grows.
        let slow = in_a_rush(2_000.0, 66, 66);
        let found = after(1.0, 40, slow);
        assert!((found - 3.0).abs() < 0.1, "{found}");
        let grows = Enough {
            settled: false,
            ..second(slow)
        };
        assert_eq!(learned(1.0, &machine(), &grows, Seconds::ZERO), 1.0);
    }

    #[test]
    fn what_waits_for_a_full_link_says_nothing_of_the_cores() {
        let large = Seen {
            cost: RequestCost {
                cpu: Seconds::from_millis(1.0),
                bytes: 1e6,
            },
            ..in_a_rush(900.0, 110, 120)
        };
        assert_eq!(after(1.2, 1, large), 1.2);
    }

    #[test]
    fn no_requests_and_a_path_that_takes_all_say_nothing() {
        assert_eq!(after(1.0, 1, seen(500.0, 0)), 1.0);
        let quick = second(seen(6.0, 500));
        assert_eq!(learned(1.0, &machine(), &quick, Seconds::from_millis(5.0)), 1.0);
    }

    #[test]
    fn few_requests_are_gathered_until_they_say_something() {
        let mut gathered = Gathered::default();
        assert!(gathered.is_empty());
        let mut taken = Vec::new();
        for period in 1..=6 {
            gathered.add(vec![seen(10.0 * f64::from(period), 7)], Seconds::new(1.0), 5);
            assert!(!gathered.is_empty());
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
            gathered.add(vec![seen(10.0, 0)], Seconds::new(1.0), 5);
            assert!(gathered.take().is_none());
        }
        gathered.add(vec![seen(30.0, 20)], Seconds::new(1.0), 5);
        assert_eq!(gathered.take().unwrap().seen[0].arrivals, 50);
    }

    #[test]
    fn what_was_in_flight_at_first_is_waited_for_and_a_queue_that_grows_or_drains_is_told() {
        let taken = |in_flight: &[u64]| {
            let mut gathered = Gathered::default();
            gathered.add(vec![seen(10.0, 50)], Seconds::new(1.0), in_flight[0]);
            gathered.take();
            let mut first = None;
            for (period, now) in in_flight[1..].iter().enumerate() {
                gathered.add(vec![seen(10.0, 50)], Seconds::new(1.0), *now);
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
            gathered.add(vec![in_a_rush(10.0, came, 50)], Seconds::new(1.0), 4);
            gathered.take().map(|enough| enough.settled)
        };
        // What came before the first period is not known.
        let told = [50, 60, 180, 170, 40, 70].map(&mut settled);
        assert_eq!(told, [false, true, false, true, true, true].map(Some));
    }

    #[test]
    fn a_slowness_that_nobody_sees_any_more_fades_and_a_quickness_does_not() {
        let faded = (0..2000).fold(8.0, |before, _| forgotten(before));
        assert!((1.0..1.05).contains(&faded), "{faded}");
        assert_eq!(forgotten(0.8), 0.8);
    }

    #[test]
    fn it_is_bounded_both_ways() {
        let slowest = after(1.0, 100, seen(1e5, 50));
        assert!(slowest > 1.9 && slowest <= FACTORS[1], "{slowest}");
        assert!((after(1.0, 100, seen(0.1, 50)) - FACTORS[0]).abs() < 0.01);
    }
}
