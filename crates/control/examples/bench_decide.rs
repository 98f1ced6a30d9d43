//! How long one decision of a law takes, by the number of servers: `bench_decide [LAW [SERVERS...]]`, `joint` for 1, 16, 100
//! and 1,000 servers by default. A day of half an hour is repeated; what is measured is `decide` alone.

use headroom_control::capacity::Capacity;
use headroom_control::resize::PowerState;
use headroom_control::{
    BatchObservation, CacheObservation, CoreRange, Distribution, FrequencyRange, Latency, LawConfig,
    LawContext, LawName, NodeObservation, Observation, Plant, PowerEnvelope, Slo, Traffic,
};
use headroom_physics::MachineFigures;
use headroom_units::{Cores, Hertz, Lever, LeverRange, PerSecond, Ratio, Reading, Seconds, Source, Watts};
use std::error::Error;
use std::time::Instant;

/// Cores of a server, and requests per second that one serves.
const CORES: usize = 8;
const PER_CORE: f64 = 24.0;
/// Periods before those that are measured, and these.
const FIRST: u64 = 2400;
const MEASURED: u64 = 1200;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let name: LawName = words.next().as_deref().unwrap_or("joint").parse()?;
    let mut numbers = words
        .map(|word| word.parse())
        .collect::<Result<Vec<usize>, _>>()?;
    if numbers.is_empty() {
        numbers = vec![1, 16, 100, 1000];
    }
    println!(
        "{name}: one decision, ms\n{:>8} {:>9} {:>9} {:>9}",
        "servers", "P50", "P99", "longest"
    );
    for servers in numbers {
        let mut times = decisions(name, servers)?;
        times.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] * 1e3;
        println!("{servers:>8} {:>9.3} {:>9.3} {:>9.3}", at(0.5), at(0.99), at(1.0));
    }
    Ok(())
}

/// Seconds of each decision.
fn decisions(name: LawName, servers: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let machine = MachineFigures::skylake(CORES);
    let all = (CORES * servers) as f64;
    let cores = CoreRange::new(Cores::new(servers as f64), Cores::new(all), Cores::new(0.1))?;
    let full = machine.full() * servers as f64;
    let power = PowerEnvelope {
        base: full * 0.5,
        per_core: full * (0.5 / all),
        lowest_cap: Watts::ZERO,
    };
    let frequency = FrequencyRange::new(Hertz::new(0.8e9), Hertz::new(2.2e9), Hertz::new(0.1e9))?;
    let plant = Plant::new(cores, power)?
        .with_frequency(frequency)
        .with_servers(servers)
        .with_parking()
        .with_range(Lever::BatchInterval, LeverRange::between(0.0, 0.25))?;
    let slo = Slo::new(Ratio::new(0.95), Seconds::from_millis(250.0))?;
    let mut law = LawConfig::of(name).build(&LawContext {
        slo,
        plant,
        service_rate: PerSecond::new(PER_CORE),
        machines: vec![machine; servers],
    })?;
    let mut setting = plant.full().with(Lever::BatchInterval, Some(0.0));
    let mut times = Vec::new();
    for period in 0..FIRST + MEASURED {
        let observation = observation(period, servers, setting);
        let start = Instant::now();
        let decision = law.decide(&observation);
        if period >= FIRST {
            times.push(start.elapsed().as_secs_f64());
        }
        setting = decision.setting;
    }
    Ok(times)
}

/// What a period brings where a day lasts half an hour, with some noise that repeats: enough for every part of a law to work.
fn observation(period: u64, servers: usize, in_force: headroom_units::Setting) -> Observation {
    let on = in_force
        .get(Lever::Servers)
        .map_or(servers, |on| on as usize)
        .clamp(1, servers);
    let day = (period as f64 / 1800.0 * std::f64::consts::TAU).sin();
    let noise = ((period * 7919) % 101) as f64 / 1000.0;
    let rate = (0.35 + 0.25 * day + noise) * PER_CORE * (CORES * servers) as f64;
    let pace = in_force.frequency().map_or(1.0, |limit| limit.get() / 2.2e9);
    let load = (rate / (PER_CORE * pace * (CORES * on) as f64)).min(0.97);
    let at_slo = Seconds::new(0.12 / pace / (1.0 - load).max(0.05));
    let node = |number: usize| NodeObservation {
        state: if number < on {
            PowerState::Serving
        } else {
            PowerState::Off
        },
        capacity: Capacity::Unknown,
        answered: None,
    };
    Observation {
        period,
        at: Seconds::new(period as f64),
        clock: Seconds::new(period as f64),
        length: Seconds::new(1.0),
        in_force,
        traffic: Some(Traffic {
            arrivals: rate as u64,
            completions: rate as u64,
            in_flight: Some((rate * 0.05) as u64),
            latency: Some(Latency {
                at_slo,
                missed: false,
                distribution: Some(Distribution {
                    mean: at_slo * 0.4,
                    p50: at_slo * 0.3,
                    p95: at_slo,
                    p99: at_slo * 1.6,
                    p999: at_slo * 2.5,
                }),
            }),
            ..Traffic::default()
        }),
        utilisation: Some(Ratio::new(load)),
        power: Some(Reading {
            value: Watts::new(60.0 * on as f64),
            source: Source::Simulated,
        }),
        cache: Some(CacheObservation {
            lookups: rate as u64,
            hits: (rate * (0.3 + noise)) as u64,
        }),
        batching: Some(BatchObservation {
            batches: 10,
            requests: rate as u64,
            groups: (rate * 0.7) as u64,
            answered: 10,
            processing: Seconds::new(load),
            waiting: Seconds::new(0.5 + noise),
            held: 0,
        }),
        nodes: (0..servers).map(node).collect(),
        ..Observation::default()
    }
}
