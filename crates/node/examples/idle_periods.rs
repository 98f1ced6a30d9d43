//! How long the idle periods of some CPUs are.
//!
//! `cargo run -p headroom-node --example idle_periods -- SECONDS [CPUS [SOURCE]]`, as `-- 5 0-3`. CPUS is all that are online
//! where it is left out or `all`; SOURCE is the best that there is, or one of `cpu-idle`, `sched-switch`, `state-counters`,
//! `proc-stat`. The first two need root or CAP_BPF and CAP_PERFMON.

use headroom_node::Roots;
use headroom_node::cpu::CpuList;
use headroom_node::idle::{IdleMeter, PeriodMeter, PeriodSample, PeriodSource, break_even};
use headroom_physics::MachineFigures;
use headroom_units::{Ratio, Seconds};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: idle_periods SECONDS [CPUS|all [cpu-idle|sched-switch|state-counters|proc-stat]]";
    let seconds: f64 = arguments.next().ok_or(usage)?.parse()?;
    let cpus: Option<CpuList> = match arguments.next().as_deref() {
        None | Some("all") => None,
        Some(list) => Some(list.parse()?),
    };
    let source = match arguments.next().as_deref() {
        None => None,
        Some(word) => Some(
            [
                PeriodSource::CpuIdle,
                PeriodSource::SchedSwitch,
                PeriodSource::StateCounters,
                PeriodSource::ProcStat,
            ]
            .into_iter()
            .find(|source| source.as_str() == word)
            .ok_or(usage)?,
        ),
    };

    let roots = Roots::default();
    // REEF's processors, where this machine shows no idle states of its own.
    let figures = MachineFigures::broadwell(std::thread::available_parallelism()?.get());
    let break_even = break_even(&roots, cpus.as_ref(), &figures);
    let over = break_even.length;
    let mut meter = match source {
        Some(source) => PeriodMeter::open_by(source, &roots, cpus.as_ref(), &[over])?,
        None => PeriodMeter::open(&roots, cpus.as_ref(), &[over])?,
    };
    let mut states = match &cpus {
        Some(cpus) => IdleMeter::open_on(&roots, cpus),
        None => IdleMeter::open(&roots),
    };
    for passed_over in meter.passed_over() {
        println!("not by {passed_over}");
    }
    std::thread::sleep(Duration::try_from_secs_f64(seconds)?);
    let sample = meter.sample()?;

    println!("source: {}, {}", sample.source, sample.source.words());
    println!("break-even: {break_even}");
    println!(
        "{} CPUs over {:.2} s: idle {}, {} idle periods, mean {}",
        sample.cpus,
        sample.elapsed.get(),
        percent(sample.idle_share()),
        sample
            .periods
            .map_or_else(|| "unknown".into(), |periods| periods.to_string()),
        sample.mean_length().map_or_else(|| "unknown".into(), micros),
    );
    table(&sample);
    println!(
        "in periods over the break-even: {}",
        percent(sample.long_idle_share(over))
    );
    println!("C6 opportunity (Eq. 2): {}", percent(sample.c6_opportunity(over)));
    if let (Some(modelled), Some(power)) = (
        sample.modelled_states(&figures.processor.idle_states),
        sample.modelled_power(&figures),
    ) {
        let each = figures.processor.idle_states.iter().zip(&modelled.value);
        let words: Vec<String> = each
            .map(|(state, of)| {
                format!(
                    "{} {:.3} cores {:.0}/s",
                    state.name,
                    of.cores.get(),
                    of.entries.get()
                )
            })
            .collect();
        println!(
            "on a Broadwell server ({}): {}; idle cores {:.2}, packages {:.2}",
            modelled.source,
            words.join(", "),
            power.value.cores,
            power.value.uncore
        );
    }
    match states.as_mut().and_then(IdleMeter::sample) {
        None => println!("cpuidle: no idle states here"),
        Some(counted) => {
            for state in counted.states {
                println!(
                    "cpuidle {}: {} of the time, {:.0}",
                    state.name,
                    percent(Some(state.residency)),
                    state.entries
                );
            }
        }
    }
    Ok(())
}

/// One line for each octave.
fn table(sample: &PeriodSample) {
    if sample.lengths.is_empty() {
        return;
    }
    println!(
        "{:>12} {:>10} {:>10} {:>14}",
        "from", "periods", "periods %", "core time %"
    );
    let all = sample.periods.unwrap_or(0).max(1) as f64;
    let mut octaves: Vec<(Seconds, u64, Seconds)> = Vec::new();
    for class in &sample.lengths {
        let from_ns = (class.from.get() * 1e9) as u64;
        let octave = from_ns
            .checked_ilog2()
            .map_or(Seconds::ZERO, |power| Seconds::new((1_u64 << power) as f64 / 1e9));
        match octaves.last_mut() {
            Some((from, periods, time)) if *from == octave => {
                *periods += class.periods;
                *time += class.time;
            }
            _ => octaves.push((octave, class.periods, class.time)),
        }
    }
    for (from, periods, time) in octaves {
        println!(
            "{:>12} {periods:>10} {:>10.2} {:>14.2}",
            micros(from),
            periods as f64 / all * 100.0,
            time / sample.observed * 100.0
        );
    }
}

fn micros(length: Seconds) -> String {
    format!("{:.0} us", length.get() * 1e6)
}

fn percent(share: Option<Ratio>) -> String {
    share.map_or_else(
        || "unknown with this source".into(),
        |share| format!("{:.2} %", share.get() * 100.0),
    )
}
