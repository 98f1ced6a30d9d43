//! What the model of a machine draws, as tables that `scripts/power-curves` plots beside published curves: a core that sleeps
//! for so long, and a server under so much load. Comma-separated values on standard output.

use headroom_physics::expected::{Load, idle_power};
use headroom_physics::{CoreTracker, MachineFigures, Placement};
use headroom_units::{Cores, PerSecond, Seconds, Watts};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Requests per second that a core serves at the highest frequency: of 10 ms each, as a web page takes.
const PER_CORE: f64 = 100.0;
/// Simulated seconds for each point.
const LENGTH_S: f64 = 100.0;

/// Mean watts of a server whose cores all serve one queue at this utilisation, request by request.
fn simulated(machine: &MachineFigures, utilisation: f64) -> Watts {
    let cores = machine.processor.cores;
    let mut tracker = CoreTracker::new(machine, Placement::Spread, 0.0);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let rate = utilisation * PER_CORE * cores as f64;
    let (mut now_s, mut jobs) = (0.0, 0_usize);
    while now_s < LENGTH_S && rate > 0.0 {
        // Of exponential times the next event is exponential, too.
        let served = jobs.min(cores) as f64 * PER_CORE;
        let gap: f64 = Exp1.sample(&mut rng);
        now_s += gap / (rate + served);
        match rng.random_bool(rate / (rate + served)) {
            true => jobs += 1,
            false => jobs -= 1,
        }
        tracker.run(now_s, jobs.min(cores));
    }
    tracker.advance(LENGTH_S.max(now_s));
    let totals = tracker.totals();
    let beside = (totals.idle + totals.transitions + totals.uncore) / Seconds::new(LENGTH_S.max(now_s));
    let busy = totals.running / Seconds::new(LENGTH_S.max(now_s));
    machine.platform + beside + machine.processor.frequency.busy_at_top() * busy
}

/// The same by rates alone, as the modelled meter, the emulated server and the laws have it.
fn by_rates(machine: &MachineFigures, utilisation: f64) -> Watts {
    let cores = machine.processor.cores as f64;
    let load = Load {
        busy: Cores::new(utilisation * cores),
        wakeups: PerSecond::new(utilisation * cores * PER_CORE),
        on: machine.processor.cores,
    };
    let idle = idle_power(machine, load);
    let busy = machine.processor.frequency.busy_at_top() * (utilisation * cores);
    machine.platform + idle.cores + idle.uncore + busy
}

fn main() {
    println!("curve,x,watts");
    let machine = MachineFigures::broadwell(12);
    let states = &machine.processor.idle_states;
    println!("busy,0,{}", machine.processor.frequency.busy_at_top().get());
    println!("shallow,0,{}", states[0].power.get());
    for state in states {
        for step in 0..=80 {
            let length = Seconds::from_micros(10.0 * 500_f64.powf(f64::from(step) / 80.0));
            if length >= state.exit_latency {
                let watts = state.mean_power(length, states[0].power);
                println!("{},{},{}", state.name, length.get() * 1e6, watts.get());
            }
        }
    }
    for (name, machine) in [("skylake", MachineFigures::skylake(10)), ("broadwell", machine)] {
        for step in 0..=20 {
            let utilisation = f64::from(step) / 20.0;
            println!(
                "{name} by rates,{utilisation},{}",
                by_rates(&machine, utilisation).get()
            );
            // At full load the queue has no end.
            if step < 20 {
                println!(
                    "{name} simulated,{utilisation},{}",
                    simulated(&machine, utilisation).get()
                );
            }
        }
    }
}
