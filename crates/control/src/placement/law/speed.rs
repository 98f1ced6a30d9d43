//! How much slower a backend is than its figures say, from what its requests took: by one factor on the time of its cores, and one on that
//! of its link.
//!
//! At each period the factor on the processor time is sought at which the model predicts the mean latency that was observed there, over all
//! its classes. It is M/G/k processor sharing with that factor on both the work of a request and the load, so a backend at half its speed
//! and one with figures that are wrong are alike found as 2. What the network and the gateway take is subtracted first. How slow its link is
//! shows in how the latencies of the classes differ ([`SlowLink`]).
//!
//! That mean is of a steady state. In a rush and after it a queue stands that the period's own arrivals do not explain, and by latency alone
//! a machine at full speed would be found several times as slow. Three things keep it from that:
//! - no machine serves more work than its cores have time for (the utilisation law), so the factor is at most their time for the work that was
//!   completed, by the figures;
//! - nothing is learned until twice as many were completed as were in flight at first, so that it is not those which were seen;
//! - where the requests in flight grew or shrank a lot, where many more came than in the period before, and where the link was full, no slowness
//!   is learned.

use super::gathered::{Enough, Seen};
use super::slow_link::SlowLink;
use crate::placement::population::present;
use headroom_physics::serving::{RequestCost, ServingLoad, ServingMachine};
use headroom_units::{PerSecond, Seconds};

/// A backend counts as at most so much slower and quicker than its figures say. What is quicker is believed less: it would be sent more.
pub const FACTORS: [f64; 2] = [0.7, 8.0];
/// The share of a slowness that is forgotten in each period of which nothing is learned: what is avoided is never seen to be quick again.
pub(super) const FORGETS: f64 = 0.004;
/// What is busier than this is not told apart: a queue that only grows has no mean.
pub(super) const MAX_BUSY: f64 = 0.999;
/// Halvings in which a factor is sought.
const HALVINGS: usize = 20;
/// A link that carried more than this share of what it can is what its requests waited for.
const FULL_LINK: f64 = 0.9;
/// The share of what a period says that counts, where it says slower, and where it says quicker.
const LEARNS: [f64; 2] = [0.3, 0.1];

/// How many times longer than by its figures a backend takes: the work of its cores, and the bytes of its link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowness {
    pub(super) cpu: f64,
    pub(super) link: f64,
}

impl Default for Slowness {
    fn default() -> Self {
        Self { cpu: 1.0, link: 1.0 }
    }
}

impl Slowness {
    /// A request on a machine that is so slow.
    pub(super) fn of(self, cost: RequestCost) -> RequestCost {
        RequestCost {
            cpu: cost.cpu * self.cpu,
            bytes: cost.bytes * self.link,
        }
    }

    /// On a coarse scale, so that machines that are nearly alike are one kind: to the next of steps of 5 %, upwards.
    pub(super) fn steps(self) -> [i32; 2] {
        [self.cpu, self.link].map(|factor| (factor.ln() / 1.05f64.ln() - 0.2).ceil() as i32)
    }

    /// That of steps.
    pub(super) fn of_steps(steps: [i32; 2]) -> Self {
        let [cpu, link] = steps.map(|step| 1.05f64.powi(step));
        Self { cpu, link }
    }

    /// After a period of which nothing was learned.
    pub(super) fn forgotten(self) -> Self {
        self.faded(FORGETS)
    }

    fn faded(self, share: f64) -> Self {
        Self {
            cpu: faded(self.cpu, share),
            link: faded(self.link, share),
        }
    }
}

/// A slowness less this share of its logarithm; what is quicker than its figures stays.
pub(super) fn faded(factor: f64, share: f64) -> f64 {
    match factor > 1.0 {
        true => factor.powf(1.0 - share),
        false => factor,
    }
}

/// The mean stretch of a request at a station as busy as this, at most as at [`MAX_BUSY`].
fn stretch(cores: usize, busy: f64) -> f64 {
    let busy = busy.clamp(1e-9, MAX_BUSY);
    present(cores, busy) / (cores as f64 * busy)
}

/// What is told of a backend, and what the model says of it.
pub(super) struct Told<'a> {
    machine: &'a ServingMachine,
    /// The classes that say something.
    pub(super) seen: Vec<&'a Seen>,
    /// What the network and the gateway take.
    pub(super) path: Seconds,
    /// What came, by the figures.
    pub(super) load: ServingLoad,
    /// What was completed, by the figures.
    pub(super) served: ServingLoad,
    /// The mean latency over all of them, less the path.
    observed: f64,
}

impl<'a> Told<'a> {
    /// `None` where nothing was completed.
    pub(super) fn of(machine: &'a ServingMachine, enough: &'a Enough, path: Seconds) -> Option<Self> {
        let tells = |seen: &&Seen| seen.completions > 0 && seen.mean.is_some();
        let seen: Vec<&Seen> = enough.seen.iter().filter(tells).collect();
        let load_of = |count: fn(&Seen) -> u64| {
            let rate = |seen: &Seen| PerSecond::new(count(seen) as f64 / enough.length.get());
            machine.load(enough.seen.iter().map(|seen| (seen.cost, rate(seen))))
        };
        let mut told = Self {
            machine,
            seen,
            path,
            load: load_of(|seen| seen.arrivals),
            served: load_of(|seen| seen.completions),
            observed: 0.0,
        };
        if told.seen.is_empty() {
            return None;
        }
        told.observed = told.mean_of(|seen| told.latency(seen));
        Some(told)
    }

    fn mean_of(&self, value: impl Fn(&Seen) -> f64) -> f64 {
        let seen = || self.seen.iter();
        let requests: f64 = seen().map(|seen| seen.completions as f64).sum();
        seen()
            .map(|seen| value(seen) * seen.completions as f64)
            .sum::<f64>()
            / requests
    }

    /// What requests of a class took at the backend itself, seconds.
    pub(super) fn latency(&self, seen: &Seen) -> f64 {
        seen.mean.unwrap_or(Seconds::ZERO).get() - self.path.get()
    }

    /// What they would by the model.
    pub(super) fn predicted(&self, slow: Slowness) -> impl Fn(&Seen) -> f64 {
        let at_cores = stretch(self.machine.cores, self.load.cpu.get() * slow.cpu);
        let at_link = stretch(1, self.load.link.get() * slow.link);
        let link_bytes_per_s = self.machine.link_bytes_per_s;
        move |seen| {
            let cost = slow.of(seen.cost);
            cost.cpu.get() * at_cores + cost.bytes / link_bytes_per_s * at_link
        }
    }

    /// The factor on the processor time at which the mean is what was observed, with a link so slow.
    pub(super) fn cpu(&self, link: f64) -> f64 {
        let (mut low, mut high) = (FACTORS[0], FACTORS[1]);
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            if self.mean_of(self.predicted(Slowness { cpu: middle, link })) < self.observed {
                low = middle
            } else {
                high = middle
            }
        }
        low
    }
}

/// The slowness after these periods, from the one before them.
pub(super) fn learned(
    before: Slowness,
    links: &mut SlowLink,
    machine: &ServingMachine,
    enough: &Enough,
    path: Seconds,
) -> Slowness {
    let Some(told) = Told::of(machine, enough, path) else {
        return before;
    };
    // Where the path takes most of it, a latency says nothing of a machine that is quicker than its figures; that it is not as slow as it
    // was believed to be it does say.
    if told.observed < path.get() && told.mean_of(told.predicted(before)) > told.observed {
        return before.faded(LEARNS[1]);
    }
    let link = match enough.settled {
        true => links.learned(before.link, &told),
        false => before.link,
    };
    Slowness {
        cpu: learned_cpu(before.cpu, link, &told, enough.settled),
        link,
    }
}

fn learned_cpu(before: f64, link: f64, told: &Told, settled: bool) -> f64 {
    let found = told.cpu(link);
    // What was completed of what came before the period counts too, so it does not tell that a machine is quicker.
    let at_most = told.served.cpu.get().recip().max(1.0);
    // Where even so more came than it serves, their mean latency is that of the beginning of a queue.
    let has_no_mean = told.load.cpu.get() * found > MAX_BUSY || told.load.link.get() * link > MAX_BUSY;
    let by_latency = match has_no_mean && found < before {
        true => before,
        false => found,
    };
    let factor = by_latency.min(at_most);
    let share = match factor > before {
        true if told.served.link.get() * link > FULL_LINK || !settled => return before,
        true => LEARNS[0],
        false => LEARNS[1],
    };
    (before.ln() * (1.0 - share) + factor.ln() * share)
        .exp()
        .clamp(FACTORS[0], FACTORS[1])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use headroom_physics::ServerFigures;
    use headroom_units::Watts;

    pub(in super::super) fn machine() -> ServingMachine {
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

    /// The factor on the cores' time.
    fn learned_of(before: f64, enough: &Enough, path: Seconds) -> f64 {
        let before = Slowness {
            cpu: before,
            ..Slowness::default()
        };
        learned(before, &mut SlowLink::default(), &machine(), enough, path).cpu
    }

    /// The factor after so many of them, without a path.
    fn after(before: f64, periods: usize, seen: Seen) -> f64 {
        (0..periods).fold(before, |one, _| learned_of(one, &second(seen), Seconds::ZERO))
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
        assert_eq!(learned_of(1.0, &grows, Seconds::ZERO), 1.0);
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
        // But a slowness that was believed is none.
        let healed = (0..60).fold(8.0, |one, _| learned_of(one, &quick, Seconds::from_millis(5.0)));
        assert!((1.0..1.1).contains(&healed), "{healed}");
        assert_eq!(learned_of(1.0, &quick, Seconds::from_millis(5.0)), 1.0);
    }

    #[test]
    fn a_slowness_that_nobody_sees_any_more_fades_and_a_quickness_does_not() {
        let slow = |factor| Slowness {
            cpu: factor,
            link: factor,
        };
        let faded = (0..2000).fold(slow(8.0), |before, _| before.forgotten());
        assert!(
            [faded.cpu, faded.link]
                .iter()
                .all(|one| (1.0..1.05).contains(one)),
            "{faded:?}"
        );
        assert_eq!(slow(0.8).forgotten(), slow(0.8));
    }

    #[test]
    fn it_is_bounded_both_ways() {
        let slowest = after(1.0, 100, seen(1e5, 50));
        assert!(slowest > 1.9 && slowest <= FACTORS[1], "{slowest}");
        assert!((after(1.0, 100, seen(0.1, 50)) - FACTORS[0]).abs() < 0.01);
    }
}
