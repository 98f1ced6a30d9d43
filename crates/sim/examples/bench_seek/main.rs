//! What the law `seek` costs where batches cannot help, and what it gains where they do, by how long a response takes and how often it
//! decides.
//!
//! `bench_seek CALIBRATION [SEEDS] [WORD]` reads the service of `crates/lab/batching-paper.toml`, changes its users and its work so that
//! a response takes as long as is said, and prints for each world the mean response time without batches and by how much more it is under
//! the law, seed by seed; only worlds whose line has the word. After those come worlds of formulas whose load cycles ([`cycles`]): for each the
//! least and the most of the seeds, then for each effect of batches the most of all its cycles.

mod cycles;
#[path = "../service/mod.rs"]
mod service;

use cycles::Cycling;
use headroom_control::Stack;
use headroom_control::stack::Part;
use headroom_sim::run_many;
use headroom_sim::tiers::{TiersScenario, TiersTotals, run};
use service::{Asked, USERS};
use std::collections::BTreeMap;

/// Where a response's time goes.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Users wait for each other.
    Queue,
    /// For something behind the tiers.
    Delay,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
struct World {
    slow: Slow,
    /// How long a response takes, about.
    response_s: f64,
    period_s: f64,
    /// Different pages, evenly asked for; few are asked for twice at once.
    objects: u64,
    /// Longest interval and target, seconds.
    target_s: f64,
    /// Before what is measured, and that, seconds.
    lengths_s: (f64, f64),
    /// The users come and go by this share, once in so many periods.
    cycle: Option<(f64, u32)>,
}

impl World {
    fn scenario(&self, service: &TiersScenario) -> TiersScenario {
        let (load, delay_s) = match self.slow {
            Slow::Queue => (1.0, 0.0),
            Slow::Delay => (0.3, self.response_s),
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
        if self.objects < 1_000 {
            // A cache would have them all.
            scenario.cache = None;
        }
        if let Some((share, cycle)) = self.cycle {
            let hold_s = self.period_s * f64::from(cycle) * 0.5;
            let steps = (scenario.duration_s / hold_s).ceil() as usize;
            let count = |step| f64::from(USERS) * if step % 2 == 0 { 1.0 + share } else { 1.0 - share };
            scenario.users.hold_s = hold_s;
            scenario.users.counts = (0..steps).map(|step| count(step) as u32).collect();
        }
        scenario
    }
}

fn measure(scenario: &TiersScenario, seek: bool, seed: u64) -> TiersTotals {
    let context = service::context(scenario);
    let law = service::law(seek.then_some("seek"), &context);
    let mut stack = Stack::new(vec![Part::new(law)], context.plant, 5).expect("a stack");
    run(scenario, &mut stack, seed, &mut |_| {}).expect("a run")
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let calibrated = service::read(&args[0]);
    let seeds: u64 = args.get(1).map_or(2, |text| text.parse().expect("a number"));
    let word = args.get(2).cloned().unwrap_or_default();
    let mut worlds = Vec::new();
    for (response_s, period_s) in [(3.0, 0.1), (3.0, 1.0), (8.0, 1.0), (15.0, 1.0)] {
        for slow in [Slow::Queue, Slow::Delay] {
            for target_s in [1.0, 3.0 * response_s] {
                for measured_s in [80.0, 3_600.0] {
                    worlds.push(World {
                        slow,
                        response_s,
                        period_s,
                        objects: 2_000_000,
                        target_s,
                        lengths_s: (90.0, measured_s),
                        cycle: None,
                    });
                }
            }
        }
    }
    // Few pages, each asked for over and over: nothing to gain where a response waits for what is behind the tiers, and much in a queue.
    for (slow, response_s, period_s) in [
        (Slow::Delay, 3.0, 0.1),
        (Slow::Delay, 3.0, 1.0),
        (Slow::Delay, 15.0, 1.0),
        (Slow::Queue, 0.5, 1.0),
        (Slow::Queue, 3.0, 1.0),
        (Slow::Queue, 3.0, 0.1),
        (Slow::Queue, 15.0, 1.0),
    ] {
        worlds.push(World {
            slow,
            response_s,
            period_s,
            objects: 20,
            target_s: 3.0 * response_s,
            lengths_s: (90.0, 3_600.0),
            cycle: None,
        });
    }
    // Users who come and go.
    for (slow, objects) in [
        (Slow::Delay, 2_000_000),
        (Slow::Queue, 2_000_000),
        (Slow::Delay, 20),
        (Slow::Queue, 20),
    ] {
        for share in [0.3, 0.6] {
            for cycle in [4, 10, 20, 40] {
                worlds.push(World {
                    slow,
                    response_s: 0.5,
                    period_s: 1.0,
                    objects,
                    target_s: 4.0,
                    lengths_s: (90.0, 3_600.0),
                    cycle: Some((share, cycle)),
                });
            }
        }
    }
    worlds.retain(|world| format!("{world:?}").contains(&word));
    let jobs: Vec<(usize, u64, bool)> = (0..worlds.len())
        .flat_map(|world| (1..=seeds).flat_map(move |seed| [(world, seed, false), (world, seed, true)]))
        .collect();
    let done = run_many(&jobs, 2, |_, (world, seed, seek)| {
        let totals = measure(&worlds[*world].scenario(&calibrated), *seek, *seed);
        let mean_s = totals.counts.mean_response().map_or(f64::NAN, |mean| mean.get());
        (mean_s, totals.counts.mean_interval_s())
    });
    for (world, runs) in worlds.iter().zip(done.chunks(2 * seeds as usize)) {
        let each: Vec<String> = runs
            .chunks(2)
            .map(|two| {
                format!(
                    "{:+.2} % ({:.0} ms)",
                    (two[1].0 / two[0].0 - 1.0) * 100.0,
                    two[1].1 * 1e3
                )
            })
            .collect();
        println!("{world:?}: {:.2} s, {}", runs[0].0, each.join(", "));
    }
    measure_cycles(&calibrated, seeds, &word);
}

/// The worlds of formulas: an hour of each, and a day.
fn measure_cycles(calibrated: &TiersScenario, seeds: u64, word: &str) {
    let mut scenario = calibrated.clone();
    (scenario.target_s, scenario.batch.max_interval_s) = (4.0, 1.0);
    let context = service::context(&scenario);
    for periods in [3_600, 86_400] {
        let mut worlds = Cycling::all(periods);
        worlds.retain(|world| format!("{world:?}").contains(word));
        let jobs: Vec<(usize, u64)> = (0..worlds.len())
            .flat_map(|world| (1..=seeds).map(move |seed| (world, seed)))
            .collect();
        let done = run_many(&jobs, 2, |_, (world, seed)| {
            worlds[*world].measure(&context, *seed)
        });
        let mut most: BTreeMap<String, f64> = BTreeMap::new();
        for (world, runs) in worlds.iter().zip(done.chunks(seeds as usize)) {
            let more = runs.iter().map(|run| (run.0 - 1.0) * 100.0);
            let (low, high) = more.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| {
                (low.min(one), high.max(one))
            });
            let held = runs.iter().map(|run| run.1 * 1e3).sum::<f64>() / seeds as f64;
            println!("{world:?}: {low:+.2} to {high:+.2} % ({held:.0} ms)");
            let worst = most.entry(world.group()).or_insert(high);
            *worst = worst.max(high);
        }
        for (group, worst) in most {
            println!("the most of {group}, {periods} periods: {worst:+.2} %");
        }
    }
}
