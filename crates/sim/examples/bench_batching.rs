//! What the law `batching` with its defaults costs where batches cannot help, what it gains where they do, and how often it misses the
//! SLO where one second in twelve is slow.
//!
//! `bench_batching CALIBRATION [SEEDS] [WORD] [LAW]` reads the service of `crates/lab/batching-paper.toml`, changes its users and its work
//! so that a response takes as long as is said, or leaves them as they are, and prints for each world the mean response time without batches, by how much more it is
//! under the law, seed by seed, and the share of periods whose median is over the target without and with it; only worlds whose line has
//! the word, `batching` where no other law is named.

mod service;

use headroom_control::stack::Part;
use headroom_control::{Decision, Law, Observation, Stack};
use headroom_sim::run_many;
use headroom_sim::tiers::{TiersScenario, run};
use headroom_units::{Hertz, Lever, Setting};
use service::Asked;

/// Where a response's time goes.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Users wait for each other.
    Queue,
    /// For something behind the tiers.
    Delay,
    /// For their own work only, but for one second in twelve, in which the processors are slow.
    Pauses,
    /// As in the paper, with so many users: its auction site, its cache and its pauses to think.
    Paper(u32),
}

/// What is run.
#[derive(Clone, Copy, Debug)]
struct World {
    slow: Slow,
    /// How long a response takes without a cache, about; with pauses, between them.
    response_s: f64,
    period_s: f64,
    /// Different pages, evenly asked for; of thousands few are asked for twice at once.
    objects: u64,
    /// A cache of so many of them; 0: none.
    cached: u64,
    /// Longest interval and target, seconds.
    target_s: f64,
    /// Before what is measured, and that, seconds.
    lengths_s: (f64, f64),
}

/// Seconds from one slow second to the next, and how fast the processors are in it.
const EVERY_S: f64 = 12.0;
const SLOW_GHZ: f64 = 0.8;

impl World {
    fn scenario(&self, service: &TiersScenario) -> TiersScenario {
        let (load, delay_s) = match self.slow {
            Slow::Queue => (1.0, 0.0),
            Slow::Delay => (0.3, self.response_s),
            Slow::Pauses => (0.5, 0.0),
            Slow::Paper(users) => {
                let mut scenario = service.clone();
                scenario.users.counts = vec![users];
                let (warm_up_s, seconds) = self.lengths_s;
                (scenario.warm_up_s, scenario.duration_s) = (warm_up_s, warm_up_s + seconds);
                return scenario;
            }
        };
        let asked = Asked {
            response_s: self.response_s,
            load,
            delay_s,
            objects: self.objects,
            period_s: self.period_s,
            target_s: self.target_s,
            lengths_s: self.lengths_s,
        };
        let mut scenario = asked.of(service);
        let page_bytes = scenario.pages[0].bytes as u64;
        match (self.cached, &mut scenario.cache) {
            (0, cache) => *cache = None,
            (objects, Some(cache)) => {
                cache.bytes = objects * page_bytes;
                cache.max_object_bytes = cache.max_object_bytes.min(cache.bytes);
            }
            (_, None) => unreachable!("the calibration has a cache"),
        }
        if let Slow::Pauses = self.slow {
            scenario.frequencies_ghz = vec![SLOW_GHZ, 2.83];
            scenario.machine.processor.frequency.lowest = Hertz::new(SLOW_GHZ * 1e9);
        }
        scenario
    }
}

/// Processors that are slow for one second in twelve.
struct Pauses;

impl Law for Pauses {
    fn name(&self) -> &'static str {
        "pauses"
    }

    fn levers(&self) -> &[Lever] {
        &[Lever::Frequency]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let is_slow = observation.at.get().rem_euclid(EVERY_S) < 1.0 - 1e-6;
        let ghz = if is_slow { SLOW_GHZ } else { 2.83 };
        Decision::of(Setting::from([(Lever::Frequency, ghz * 1e9)]))
    }

    fn forget(&mut self) {}
}

/// What a run comes to.
struct Ran {
    mean_s: f64,
    interval_s: f64,
    /// The share of periods whose median is over the target.
    missed: f64,
}

fn measure(world: &World, calibrated: &TiersScenario, name: Option<&str>, seed: u64) -> Ran {
    let scenario = world.scenario(calibrated);
    let context = service::context(&scenario);
    let law = service::law(name, &context);
    let mut parts = vec![Part::new(law)];
    if let Slow::Pauses = world.slow {
        parts.push(Part::new(Box::new(Pauses)));
    }
    let mut stack = Stack::new(parts, context.plant, 5).expect("a stack");
    let (mut periods, mut missed) = (0u32, 0u32);
    let totals = run(&scenario, &mut stack, seed, &mut |step| {
        let traffic = step.observation.traffic.as_ref();
        if step.observation.at.get() > scenario.warm_up_s
            && let Some(latency) = traffic.and_then(|traffic| traffic.latency)
        {
            periods += 1;
            missed += u32::from(latency.at_slo.get() > scenario.target_s);
        }
    })
    .expect("a run");
    Ran {
        mean_s: totals.counts.mean_response().map_or(f64::NAN, |mean| mean.get()),
        interval_s: totals.counts.mean_interval_s(),
        missed: f64::from(missed) / f64::from(periods.max(1)),
    }
}

const HOUR_S: f64 = 3_600.0;

fn worlds() -> Vec<World> {
    let mut worlds = Vec::new();
    let all = |slow, response_s, period_s, objects, cached, target_s| World {
        slow,
        response_s,
        period_s,
        objects,
        cached,
        target_s,
        lengths_s: (90.0, HOUR_S),
    };
    // Nothing is asked for twice.
    for (response_s, period_s) in [(0.5, 1.0), (3.0, 0.1), (3.0, 1.0), (8.0, 1.0), (15.0, 1.0)] {
        for slow in [Slow::Queue, Slow::Delay] {
            for target_s in [1.0, 3.0 * response_s] {
                worlds.push(all(slow, response_s, period_s, 2_000_000, 2_000, target_s));
            }
        }
    }
    // Few pages, each asked for over and over: nothing to gain where a response waits for what is behind the tiers, and much in a queue.
    for (response_s, period_s) in [(0.5, 1.0), (3.0, 0.1), (3.0, 1.0), (15.0, 1.0)] {
        for slow in [Slow::Delay, Slow::Queue] {
            worlds.push(all(slow, response_s, period_s, 20, 0, 3.0 * response_s));
        }
    }
    // A target that is missed without batches.
    worlds.push(all(Slow::Queue, 3.0, 1.0, 20, 0, 1.0));
    // A cache of two pages in twenty, and one of all.
    worlds.push(all(Slow::Queue, 3.0, 1.0, 20, 2, 9.0));
    worlds.push(all(Slow::Queue, 3.0, 1.0, 20, 20, 9.0));
    // A target that is kept in a slow second, with little or much to spare, and one that is missed in it.
    for target_s in PAUSES_TARGETS_S {
        for objects in [20, 2_000_000] {
            worlds.push(all(Slow::Pauses, 0.05, 1.0, objects, 0, target_s));
        }
    }
    for users in [800, 1_200] {
        for hours in [1.0, 4.0] {
            worlds.push(World {
                lengths_s: (90.0, hours * HOUR_S),
                ..all(Slow::Paper(users), 1.0, 1.0, 0, 0, 1.0)
            });
        }
    }
    worlds
}

/// Without batches the median of a slow second is up to some 0.15 s.
const PAUSES_TARGETS_S: [f64; 3] = [0.1, 0.14, 0.2];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let calibrated = service::read(&args[0]);
    let seeds: u64 = args.get(1).map_or(2, |text| text.parse().expect("a number"));
    let word = args.get(2).cloned().unwrap_or_default();
    let law = args.get(3).cloned().unwrap_or_else(|| "batching".to_owned());
    let mut worlds = worlds();
    worlds.retain(|world| format!("{world:?}").contains(&word));
    let jobs: Vec<(World, u64, bool)> = worlds
        .iter()
        .flat_map(|world| (1..=seeds).flat_map(move |seed| [(*world, seed, false), (*world, seed, true)]))
        .collect();
    let done = run_many(&jobs, 2, |_, (world, seed, has_law)| {
        measure(world, &calibrated, has_law.then_some(law.as_str()), *seed)
    });
    for (world, runs) in worlds.iter().zip(done.chunks(2 * seeds as usize)) {
        let each: Vec<String> = runs
            .chunks(2)
            .map(|two| {
                format!(
                    "{:+.2} % ({:.0} ms; missed {:.1}, {:.1} %)",
                    (two[1].mean_s / two[0].mean_s - 1.0) * 100.0,
                    two[1].interval_s * 1e3,
                    two[0].missed * 100.0,
                    two[1].missed * 100.0
                )
            })
            .collect();
        println!("{world:?}: {:.2} s, {}", runs[0].mean_s, each.join(", "));
    }
}
