//! Days of a cluster whose servers are switched on and off: what each law saves, and what it loses on bad days.
//!
//! Ten servers of 8 workers that take 133 ms on average (60 requests a second each), a boot of 2 min, a shutdown of 30 s, the capacity paper's power
//! (60 W idle, 65 W full). Days of 4 h like the ClarkNet log's; then the same with every server dead at once twice, with every
//! second boot hanging, with surges of ten; and traces from files, a value a minute, scaled to the same mean. Lost is who gave up (67 s of
//! a kernel's retries) or went down with a server.
//!
//! `cargo run --release -p headroom-sim --example bench_days [SEEDS [TRACE...]]`

use headroom_control::capacity::QueueTuning;
use headroom_control::elastic::{Elastic, ElasticTuning};
use headroom_control::resize::{AlwaysOn, Autoscaler, PowerTuning, Predictive, ResizeTuning, Stepwise};
use headroom_control::{Law, Slo};
use headroom_sim::Bare;
use headroom_sim::accept::{AcceptFault, AcceptScenario, run};
use headroom_units::{PerSecond, Ratio, Seconds};
use headroom_workload::generate::{ClarknetLike, clarknet_like};
use headroom_workload::{ArrivalProcess, Shape, Spacing};

const SERVERS: usize = 10;
const CAPACITY_PER_S: f64 = 60.0;
const MEAN_PER_S: f64 = 130.0;
const DAY_S: f64 = 14_400.0;
const DAYS: usize = 4;
const BOOT_S: f64 = 120.0;
const SHUTDOWN_S: f64 = 30.0;
const LAWS: [&str; 6] = [
    "always-on",
    "static",
    "dynamic",
    "autoscaler",
    "predictive",
    "elastic",
];

/// A load and what happens meanwhile.
struct World {
    name: String,
    rates_per_s: Vec<f64>,
    hold_s: f64,
    faults: Vec<AcceptFault>,
}

fn worlds(traces: &[String]) -> Result<Vec<World>, Box<dyn std::error::Error>> {
    let points = 144;
    let days = clarknet_like(&ClarknetLike {
        days: DAYS,
        points_per_day: points,
        mean: PerSecond::new(MEAN_PER_S),
        ..ClarknetLike::default()
    })?;
    let hold_s = DAY_S / points as f64;
    let rates_per_s: Vec<f64> = days.rates().iter().map(|rate| rate.get()).collect();
    let outages = [1.4, 2.9].map(|day| AcceptFault::ServersLost {
        first: 0,
        count: SERVERS,
        at_s: day * DAY_S,
        until_s: day * DAY_S + 3.0,
    });
    let hangs = AcceptFault::BootsHang {
        every: 2,
        at_s: 0.0,
        until_s: 1e9,
    };
    // A fifth of the load, and ten times that for a tenth of each day's second half.
    let surges = |at: usize, rate: f64| match at % points {
        100..115 => 2.0 * rate,
        _ => 0.2 * rate,
    };
    let world = |name: &str, rates_per_s: &[f64], faults: Vec<AcceptFault>| World {
        name: name.to_owned(),
        rates_per_s: rates_per_s.to_vec(),
        hold_s,
        faults,
    };
    let surged: Vec<f64> = rates_per_s
        .iter()
        .enumerate()
        .map(|(at, rate)| surges(at, *rate))
        .collect();
    let mut worlds = vec![
        world("days like ClarkNet's", &rates_per_s, Vec::new()),
        world("all servers die, twice", &rates_per_s, outages.to_vec()),
        world("every second boot hangs", &rates_per_s, vec![hangs]),
        world("surges of ten", &surged, Vec::new()),
    ];
    for file in traces {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let values: Vec<f64> = text
            .lines()
            .map(|line| {
                line.trim()
                    .parse()
                    .map_err(|error| format!("{file}: {line:?}: {error}"))
            })
            .collect::<Result<_, _>>()?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let name = std::path::Path::new(file).file_stem().unwrap_or_default();
        worlds.push(World {
            name: name.to_string_lossy().into_owned(),
            rates_per_s: values.iter().map(|value| value / mean * MEAN_PER_S).collect(),
            hold_s: 60.0,
            faults: Vec::new(),
        });
    }
    Ok(worlds)
}

fn law(name: &str) -> Result<Box<dyn Law>, Box<dyn std::error::Error>> {
    let capacity = PerSecond::new(CAPACITY_PER_S);
    let slo = Slo::new(Ratio::new(0.95), Seconds::new(1.0))?;
    Ok(match name {
        "always-on" => Box::new(AlwaysOn),
        "static" => Box::new(Stepwise::fixed(capacity, ResizeTuning::default())?),
        "dynamic" => Box::new(Stepwise::online(ResizeTuning::default())?),
        "autoscaler" => Box::new(Autoscaler::new(capacity, 0.7)),
        "predictive" => Box::new(Predictive::new(
            capacity,
            Seconds::new(DAY_S),
            Seconds::new(BOOT_S),
        )),
        _ => Box::new(Elastic::new(
            slo,
            ElasticTuning {
                day_s: DAY_S,
                boot_s: BOOT_S,
                shutdown_s: SHUTDOWN_S,
                ..ElasticTuning::default()
            },
        )?),
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().map_or(Ok(2), |seeds| seeds.parse())?;
    let traces: Vec<String> = arguments.collect();
    println!("| world | law | energy, of always on | lost | over 1 s | P99, s | starts a day |");
    println!("|---|---|---|---|---|---|---|");
    for world in worlds(&traces)? {
        let length_s = world.rates_per_s.len() as f64 * world.hold_s;
        let mut reference_j = 0.0;
        for name in LAWS {
            let (mut energy_j, mut lost, mut late, mut answered, mut starts) = (0.0, 0, 0, 0, 0);
            let mut p99_s = 0.0_f64;
            for seed in 1..=seeds {
                let scenario = AcceptScenario {
                    arrivals: ArrivalProcess::Series {
                        rates_per_s: world.rates_per_s.clone(),
                        hold_s: world.hold_s,
                        spacing: Spacing::Poisson,
                    },
                    duration_s: length_s,
                    servers: SERVERS,
                    serving: if name == "always-on" { SERVERS } else { 4 },
                    workers: 8,
                    cores: 1_000.0,
                    cpu_s: 8.0 / CAPACITY_PER_S,
                    cpu: Shape::Exponential {},
                    boot_s: BOOT_S,
                    shutdown_s: SHUTDOWN_S,
                    queue: QueueTuning::default(),
                    power_states: PowerTuning {
                        drained_for_s: (name == "elastic").then_some(ElasticTuning::default().trial_s),
                        ..PowerTuning::default()
                    },
                    faults: world.faults.clone(),
                    ..AcceptScenario::default()
                };
                let mut law = law(name)?;
                let mut wanted = None;
                let totals = run(&scenario, &mut Bare(&mut *law), seed, &mut |step| {
                    let now = step.decision.setting.servers();
                    starts += now
                        .zip(wanted)
                        .map_or(0, |(now, before): (usize, usize)| now.saturating_sub(before));
                    wanted = now;
                })?;
                energy_j += totals.energy.get();
                lost += totals.abandoned + totals.lost;
                for (us, count) in totals.latency.buckets() {
                    answered += count;
                    late += if us > 1_000_000 { count } else { 0 };
                }
                let p99 = totals.latency.percentile(Ratio::new(0.99));
                p99_s = p99_s.max(p99.map_or(0.0, Seconds::get));
            }
            if name == "always-on" {
                reference_j = energy_j;
            }
            println!(
                "| {} | {name} | {:.0} % | {} | {:.2} % | {p99_s:.2} | {:.0} |",
                world.name,
                100.0 * energy_j / reference_j,
                lost / seeds,
                100.0 * late as f64 / answered.max(1) as f64,
                starts as f64 / seeds as f64 / (length_s / DAY_S),
            );
        }
    }
    Ok(())
}
