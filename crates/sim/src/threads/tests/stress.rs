//! A simulated day of storms, stalls, kills, convoys and laws that change: whatever comes, nobody waits for a turn for longer than
//! everybody's turns before it take. `make stress` runs all of it, `make test` some minutes.

use super::*;
use headroom_control::oncall::policy::{Grant, MAX_WAIT};
use headroom_control::{Decision, LawConfig, LawContext, LawName, Observation, Plant, Slo, Stack};
use headroom_units::{Lever, LeverRange, PerSecond, Ratio, Seconds, Setting};
use headroom_workload::random::{Draw, Purpose, Rng};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The most queries of a connection in a round.
const MOST_TOKENS: u32 = 8;
/// A connection with the least share takes part in one round of so many, and may rest in one more.
const ROUNDS: f64 = 5.0;

/// A whole number below a bound.
fn below(rng: &mut Rng, bound: u32) -> u32 {
    ((rng.uniform() * f64::from(bound)) as u32).min(bound - 1)
}

fn between(rng: &mut Rng, least: f64, most: f64) -> f64 {
    least * (most / least).powf(rng.uniform())
}

/// A world, and how long a wait for a turn may be in it.
struct Drawn {
    scenario: ThreadsScenario,
    bound_s: f64,
}

fn world(seed: u64, length_s: f64) -> Drawn {
    let mut rng = Rng::new(seed, Purpose::Arrivals);
    let rng = &mut rng;
    let default = ThreadsScenario::default();
    let cores = 1 + below(rng, 8) as usize;
    let connections = between(rng, 4.0, 200.0) as u32;
    let instructions = between(rng, 1e6, 6e6);
    let per_s = 1e9;
    let query = QueryFigures {
        instructions,
        instructions_per_s: per_s,
        inflation: if below(rng, 2) == 0 {
            IpqCurve::none()
        } else {
            IpqCurve::mysql()
        },
        ..default.query.clone()
    };
    let mean_s = instructions / per_s * query.inflation.at(connections);
    let arrivals = match below(rng, 2) {
        0 => QueryArrivals::Open {
            rate_per_s: between(rng, 0.05, 0.7) * cores as f64 / mean_s,
        },
        // Long pauses, and many at once.
        _ => QueryArrivals::Closed {
            think_s: between(rng, 0.3, 3.0),
            think: Shape::Hyperexponential { scv: 16.0 },
        },
    };
    let convoys = below(rng, 2) == 0;
    let locks = LockFigures {
        probability: if convoys { between(rng, 0.02, 0.5) } else { 0.0 },
        rows: 1 + below(rng, 4),
        queries: 1 + below(rng, 4),
        ..default.locks.clone()
    };
    let disk = DiskFigures {
        probability: rng.uniform() * 0.3,
        accesses: 1 + below(rng, 2),
        parallel: 8,
        ..default.disk.clone()
    };
    let gate = GateFigures {
        concurrency: 1 + below(rng, 4),
        tokens: 1 + below(rng, MOST_TOKENS),
        linger_s: [0.0, 2e-4, 2e-3][below(rng, 3) as usize],
        disk_gives_back: below(rng, 4) > 0,
        keeps_tokens: below(rng, 2) == 0,
        ..default.gate.clone().unwrap_or_default()
    };
    let mut incidents = Vec::new();
    let mut at_s = 0.0;
    let (mut stalled_s, mut storm) = (0.0_f64, 0);
    loop {
        at_s += 0.7 * rng.exponential();
        if at_s >= length_s {
            break;
        }
        incidents.push(match below(rng, 20) {
            0 => {
                let queries = 1 + below(rng, 3);
                storm = storm.max(queries);
                Incident::Storm { at_s, queries }
            }
            1 => {
                let length_s = between(rng, 0.01, 1.0);
                stalled_s = stalled_s.max(length_s);
                Incident::Stall { at_s, length_s }
            }
            _ => Incident::Kill {
                at_s,
                connection: below(rng, connections),
            },
        });
    }
    // One slot, and everybody before it has all its queries: exponential, so that their mean is what many of them take. While a worker
    // keeps its slot at the disk, a stall holds each of them up at most once.
    let turn_s = f64::from(MOST_TOKENS) * (mean_s + gate.linger_s + disk.service_s * 2.0);
    let round_s = 1.5 * f64::from(connections + 20) * turn_s + 0.01;
    let bound_s = ROUNDS * (round_s + stalled_s) + MAX_WAIT.get();
    let classes = match below(rng, 2) {
        0 => Vec::new(),
        _ => vec![
            ClassFigures::with_tail("gold", 1, 0.99, 20.0),
            ClassFigures::best_effort("rest", connections - 1),
        ],
    };
    let scenario = ThreadsScenario {
        duration_s: length_s,
        warm_up_s: length_s / 20.0,
        period_s: 0.25,
        connections,
        classes,
        arrivals,
        query,
        locks,
        disk,
        gate: Some(gate),
        incidents,
        machine: headroom_physics::MachineFigures::broadwell(cores),
        ..default
    };
    Drawn { scenario, bound_s }
}

/// A law as live control runs it.
fn live(name: LawName, scenario: &ThreadsScenario) -> Stack {
    let whole = |max| LeverRange::new(1.0, max, 1.0).unwrap();
    let plant = Plant::of_servers(1)
        .with_range(Lever::Concurrency, whole(4096.0))
        .and_then(|plant| plant.with_range(Lever::QueryBatch, whole(f64::from(MOST_TOKENS))))
        .and_then(|plant| plant.with_range(Lever::RoundDelay, LeverRange::between(0.0, 0.01)))
        .unwrap();
    let context = LawContext {
        slo: Slo::new(Ratio::new(0.99), Seconds::new(0.1)).unwrap(),
        plant,
        service_rate: PerSecond::new(1e9),
        machines: vec![scenario.machine.clone()],
    };
    let law = LawConfig::of(name).build(&context).unwrap();
    Stack::of(law, plant, 3).unwrap()
}

/// Laws one after another, each for some seconds: those of live control, none at all, and other levers and turns each period.
struct Switching {
    rng: Rng,
    live: Vec<Stack>,
    chosen: usize,
    left: u32,
}

impl Switching {
    fn new(seed: u64, scenario: &ThreadsScenario) -> Self {
        Self {
            rng: Rng::new(seed ^ 0x5e_ed, Purpose::Arrivals),
            live: [LawName::ON_CALL, LawName::REEF, LawName::JOINT]
                .map(|name| live(name, scenario))
                .into(),
            chosen: 0,
            left: 0,
        }
    }

    fn decide(&mut self, period: &Observation) -> Option<Decision> {
        if self.left == 0 {
            self.chosen = below(&mut self.rng, self.live.len() as u32 + 3) as usize;
            self.left = 1 + below(&mut self.rng, 240);
        }
        self.left -= 1;
        if let Some(stack) = self.live.get_mut(self.chosen) {
            return Some(stack.decide(period));
        }
        match self.chosen - self.live.len() {
            // As without us.
            0 => Some(Decision::of(Setting::default())),
            _ => Some(self.restless(period)),
        }
    }

    fn restless(&mut self, period: &Observation) -> Decision {
        let rng = &mut self.rng;
        let setting = Setting::default()
            .with(Lever::Concurrency, Some(f64::from(1 + below(rng, 4))))
            .with(Lever::QueryBatch, Some(f64::from(1 + below(rng, MOST_TOKENS))))
            .with(Lever::RoundDelay, Some(1e-3 * f64::from(below(rng, 4))));
        let each = period.oncall.iter().flat_map(|oncall| &oncall.each);
        let grants = each.map(|each| Grant {
            id: each.id,
            tokens: 1 + below(rng, MOST_TOKENS),
            share: f64::from(1 + below(rng, 3)),
            again: below(rng, 2) == 0,
            yields: below(rng, 4) == 0,
            retry: Seconds::new(1e-3 * f64::from(below(rng, 3))),
        });
        Decision {
            grants: grants.collect(),
            ..Decision::of(setting)
        }
    }
}

/// Runs a world: what is wrong with it, and its queries.
fn stressed(seed: u64, length_s: f64) -> Result<u64, String> {
    let Drawn { scenario, bound_s } = world(seed, length_s);
    let mut laws = Switching::new(seed, &scenario);
    let totals = run(&scenario, &mut |period| laws.decide(period), seed)
        .map_err(|error| format!("seed {seed}: {error}"))?;
    let waited_s = totals.longest_wait.get();
    if waited_s > bound_s {
        return Err(format!(
            "seed {seed}: a connection waited {waited_s:.1} s, over {bound_s:.1} s"
        ));
    }
    if totals.queries == 0 {
        return Err(format!("seed {seed}: no query was answered"));
    }
    println!(
        "seed {seed}: {} connections, {} queries, longest wait {waited_s:.2} s of {bound_s:.0} s, P99.9 {:.2} s",
        scenario.connections,
        totals.queries,
        totals.percentiles()[2].get()
    );
    Ok(totals.queries)
}

/// Worlds of so many seconds each, some beside each other.
fn all(seeds: std::ops::Range<u64>, length_s: f64) {
    let (next, queries) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let (wrong, began) = (Mutex::new(Vec::new()), Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match stressed(seed, length_s) {
                        Ok(answered) => drop(queries.fetch_add(answered, Relaxed)),
                        Err(error) => wrong.lock().unwrap().push(error),
                    }
                }
            });
        }
    });
    let hours = (seeds.end - seeds.start) as f64 * length_s / 3600.0;
    println!(
        "{hours:.2} simulated hours, {} queries, in {:.0} s",
        queries.load(Relaxed),
        began.elapsed().as_secs_f64()
    );
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn some_minutes_leave_nobody_waiting() {
    all(0..8, 60.0);
}

#[test]
#[ignore = "a simulated day: make stress"]
fn a_day_leaves_nobody_waiting() {
    all(100..196, 900.0);
}

/// The bound is one that is missed where somebody has no turn.
#[test]
fn who_has_no_turn_is_noticed() {
    let Drawn {
        mut scenario,
        bound_s,
    } = world(1, 60.0);
    (scenario.duration_s, scenario.incidents) = (bound_s + 30.0, Vec::new());
    scenario.arrivals = QueryArrivals::Open { rate_per_s: 20.0 };
    let mut law = |period: &Observation| {
        let each = period.oncall.iter().flat_map(|oncall| &oncall.each);
        let grant = |id: u64| Grant {
            id,
            tokens: u32::from(id > 0),
            share: 1.0,
            again: true,
            yields: false,
            retry: Seconds::ZERO,
        };
        let setting = Setting::default().with(Lever::Concurrency, Some(2.0));
        Some(Decision {
            grants: each.map(|each| grant(each.id)).collect(),
            ..Decision::of(setting)
        })
    };
    let totals = run(&scenario, &mut law, 1).unwrap();
    assert!(totals.longest_wait.get() > bound_s, "{:?}", totals.longest_wait);
}

/// A killed transaction frees its row at once, parked or not, and a killed wait for one ends: the row's next has it.
#[test]
fn a_kill_frees_a_row_and_ends_a_wait() {
    let mut scenario = plain(2, 6);
    (scenario.duration_s, scenario.warm_up_s) = (20.0, 0.0);
    scenario.arrivals = QueryArrivals::Closed {
        think_s: 2.0,
        think: Shape::Deterministic {},
    };
    scenario.gate = Some(free(1, 1));
    scenario.locks = LockFigures {
        probability: 1.0,
        rows: 1,
        queries: 8,
        from: 0.0,
        until: 1.0,
    };
    // Whoever has the row keeps it for seven thinking times.
    let without = alone(&scenario);
    assert!(
        without.percentiles()[2].get() > 10.0,
        "{:?}",
        without.percentiles()
    );
    let kill = |at: u32| Incident::Kill {
        at_s: 0.1 + 0.1 * f64::from(at),
        connection: at % 6,
    };
    scenario.incidents = (0..190).map(kill).collect();
    let killed = alone(&scenario);
    assert!(
        killed.queries > 2 * without.queries,
        "{} {}",
        killed.queries,
        without.queries
    );
    assert!(killed.percentiles()[2].get() < 3.0, "{:?}", killed.percentiles());
}

/// An access that comes in a stall is served after it, and a storm's queries are served once.
#[test]
fn a_stall_delays_and_a_storm_adds() {
    let mut scenario = plain(4, 10);
    (scenario.duration_s, scenario.warm_up_s) = (10.0, 0.0);
    scenario.arrivals = QueryArrivals::Closed {
        think_s: 4.0,
        think: Shape::Deterministic {},
    };
    scenario.disk = DiskFigures {
        probability: 1.0,
        parallel: 100,
        ..scenario.disk
    };
    let plain = alone(&scenario);
    scenario.incidents = vec![Incident::Stall {
        at_s: 3.5,
        length_s: 2.0,
    }];
    let stalled = alone(&scenario);
    let longest = |totals: &ThreadsTotals| totals.latency.at([1.0])[0].get();
    assert!(
        longest(&plain) < 0.1 && longest(&stalled) > 1.4,
        "{} {}",
        longest(&plain),
        longest(&stalled)
    );
    scenario.incidents = vec![Incident::Storm {
        at_s: 1.0,
        queries: 3,
    }];
    assert_eq!(alone(&scenario).queries, plain.queries + 30);
}
