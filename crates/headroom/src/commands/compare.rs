//! `headroom compare`: laws x traces x seeds, under common random numbers.

use crate::cli::{CompareArgs, LawName};
use crate::failure::Failure;
use crate::say;
use crate::simulate::{Figures, Progress, Setting, Table, figures, jobs, write_sheet};
use anyhow::anyhow;
use headroom_record::report::{Bars, Grid, Section, Sheet};
use headroom_record::statistics::Estimate;
use headroom_sim::bound::{clairvoyant, lower_bound};
use headroom_sim::run_many;
use serde::Serialize;
use std::time::Instant;

/// States that the search for a schedule keeps from period to period.
const WIDTH: usize = 4;
/// The name under which that schedule is listed.
const CLAIRVOYANT: &str = "clairvoyant";

/// A law on a trace, over all seeds.
#[derive(Debug, Serialize)]
struct Row {
    law: String,
    trace: String,
    energy_j: Estimate,
    /// Energy over the first law's under the same seed, less one, percent.
    energy_over_first_percent: Estimate,
    /// Energy over that which no schedule can go under, less one, percent.
    energy_over_bound_percent: Option<Estimate>,
    joules_per_request: Estimate,
    latency_p95_ms: Estimate,
    periods_over_percent: Estimate,
    periods_over_first_percent: Estimate,
    cores: Estimate,
    utilisation_percent: Estimate,
    power_w: Estimate,
    allocated_w: Estimate,
    power_ratio: Estimate,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<Figures>,
}

#[derive(Serialize)]
struct Comparison<'a> {
    first_law: String,
    seeds: u64,
    first_seed: u64,
    confidence: f64,
    rows: &'a [Row],
}

/// What is run: a law, or the search for the best schedule.
#[derive(Clone, Copy)]
enum Runner {
    Law(LawName),
    Clairvoyant,
}

struct Job {
    runner: Runner,
    trace: usize,
    seed: u64,
}

/// Runs everything and prints the table.
///
/// # Errors
/// A scenario, a trace or a law that is wrong, a run that does not end, a report that cannot be written.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let mut laws: Vec<LawName> = Vec::new();
    for law in &args.laws {
        if laws.contains(law) {
            return Err(Failure::usage(anyhow!(
                "--laws names {law} twice: name each once"
            )));
        }
        laws.push(*law);
    }
    let file = Setting::read(args.world.scenario.as_deref())?;
    // Each law is built once, so that a mistake is said before anything runs.
    for law in &laws {
        file.guarded(*law)?;
    }
    let seeds: Vec<u64> = (args.first_seed..args.first_seed.saturating_add(args.seeds)).collect();
    let mut worlds = Vec::new();
    for trace in &args.traces {
        let with = seeds
            .iter()
            .map(|seed| file.with_trace(Some(trace.as_str()), &args.world, *seed));
        worlds.push(with.collect::<Result<Vec<_>, _>>()?);
    }
    let mut runners: Vec<Runner> = laws.iter().map(|law| Runner::Law(*law)).collect();
    if args.clairvoyant {
        runners.push(Runner::Clairvoyant);
    }
    let mut plan = Vec::new();
    // The longest jobs first, so that no thread is left with one at the end.
    for runner in runners.iter().rev() {
        for trace in 0..worlds.len() {
            plan.extend(seeds.iter().map(|seed| Job {
                runner: *runner,
                trace,
                seed: *seed,
            }));
        }
    }
    let started = Instant::now();
    let progress = Progress::new("comparing", plan.len() as u64);
    let done = run_many(&plan, jobs(args.jobs), |_, job| {
        let (setting, _) = &worlds[job.trace][(job.seed - args.first_seed) as usize];
        let result = match job.runner {
            Runner::Law(law) => figures(setting, law, job.seed),
            Runner::Clairvoyant => clairvoyant(&setting.scenario, job.seed, WIDTH)
                .map(|bound| Figures::of(&bound.totals))
                .map_err(|error| setting.run_error(error)),
        };
        progress.add(1);
        result
    });
    drop(progress);
    let done = done.into_iter().collect::<Result<Vec<Figures>, Failure>>()?;
    let mut rows = Vec::new();
    let mut remarks = Vec::new();
    for (at, traces) in worlds.iter().enumerate() {
        let bounds: Result<Vec<f64>, _> = traces
            .iter()
            .zip(&seeds)
            .map(|((setting, _), seed)| lower_bound(&setting.scenario, *seed).map(|joules| joules.get()))
            .collect();
        let bounds = bounds
            .map_err(|error| remarks.push(format!("no bound: {error}")))
            .ok();
        let of = |number: usize| {
            // Runners were planned from the last to the first.
            let from = ((runners.len() - 1 - number) * worlds.len() + at) * seeds.len();
            &done[from..from + seeds.len()]
        };
        for (number, runner) in runners.iter().enumerate() {
            let name = match runner {
                Runner::Law(law) => law.to_string(),
                Runner::Clairvoyant => CLAIRVOYANT.to_owned(),
            };
            rows.extend(row(name, &args.traces[at], of(number), of(0), bounds.as_deref()));
        }
    }
    remarks.dedup();
    let took_s = started.elapsed().as_secs_f64();
    say::note!(
        "{} runs in {took_s:.1} s, {} at once",
        plan.len(),
        jobs(args.jobs)
    );
    let first = laws.first().map_or_else(String::new, ToString::to_string);
    let sheet = sheet(args, &rows, &first, remarks);
    write_sheet(&sheet, None, &args.out)?;
    if args.json {
        let comparison = Comparison {
            first_law: first,
            seeds: args.seeds,
            first_seed: args.first_seed,
            confidence: 0.95,
            rows: &rows,
        };
        return say::result(serde_json::to_string(&comparison)?);
    }
    let mut text = String::new();
    for section in &sheet.sections {
        text.push_str(&format!("{}\n", section.title));
        for grid in &section.tables {
            text.push_str(&Table(grid).to_string());
        }
        text.push('\n');
    }
    for remark in &sheet.remarks {
        text.push_str(&format!("  {remark}\n"));
    }
    say::result(format_args!("{text}report: {}", args.out.display()))
}

fn row(law: String, trace: &str, runs: &[Figures], first: &[Figures], bounds: Option<&[f64]>) -> Option<Row> {
    let each = |pick: fn(&Figures) -> f64| runs.iter().map(pick).collect::<Vec<f64>>();
    let firsts = |pick: fn(&Figures) -> f64| first.iter().map(pick).collect::<Vec<f64>>();
    let estimate = |pick: fn(&Figures) -> f64| Estimate::of(&each(pick));
    let joules = each(|run| run.energy_j);
    let over = |from: &[f64]| {
        let percent: Vec<f64> = joules
            .iter()
            .zip(from)
            .map(|(these, those)| (these / those - 1.0) * 100.0)
            .collect();
        Estimate::of(&percent)
    };
    Some(Row {
        energy_j: estimate(|run| run.energy_j)?,
        energy_over_first_percent: over(&firsts(|run| run.energy_j))?,
        energy_over_bound_percent: bounds.and_then(over),
        joules_per_request: estimate(|run| run.energy_j / run.requests.max(1) as f64)?,
        latency_p95_ms: estimate(|run| run.latency_p95_ms)?,
        periods_over_percent: estimate(|run| run.periods_over * 100.0)?,
        periods_over_first_percent: Estimate::of_differences(
            &each(|run| run.periods_over * 100.0),
            &firsts(|run| run.periods_over * 100.0),
        )?,
        cores: estimate(|run| run.cores)?,
        utilisation_percent: estimate(|run| run.utilisation * 100.0)?,
        power_w: estimate(|run| run.power_w)?,
        allocated_w: estimate(|run| run.allocated_w)?,
        power_ratio: estimate(|run| run.power_ratio)?,
        law,
        trace: trace.to_owned(),
        runs: runs.to_vec(),
    })
}

fn sheet(args: &CompareArgs, rows: &[Row], first: &str, mut remarks: Vec<String>) -> Sheet {
    remarks.push(format!(
        "means over {} seeds with 95 % confidence intervals (Student's t); energy is against {first} seed by seed, under the \
         same arrivals and sizes",
        args.seeds
    ));
    remarks.push(
        "simulated: every figure is a model's; \"over the bound\" is energy over what no schedule can go under, even one that \
         knows every request beforehand"
            .to_owned(),
    );
    let section = |trace: &String| {
        let of_trace = || rows.iter().filter(move |row| row.trace == *trace);
        let grid = Grid {
            header: [
                "law",
                format!("energy over {first} %").as_str(),
                "over the bound %",
                "J a request",
                "P95 ms",
                "periods over %",
                "cores",
                "utilisation %",
                "power W",
                "allocated W",
                "ratio",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: of_trace()
                .map(|row| {
                    vec![
                        row.law.clone(),
                        row.energy_over_first_percent.written(2),
                        row.energy_over_bound_percent
                            .map_or("-".to_owned(), |over| over.written(2)),
                        row.joules_per_request.written(4),
                        row.latency_p95_ms.written(1),
                        row.periods_over_percent.written(2),
                        row.cores.written(1),
                        row.utilisation_percent.written(1),
                        row.power_w.written(1),
                        row.allocated_w.written(1),
                        row.power_ratio.written(3),
                    ]
                })
                .collect(),
            words: vec![0],
            caption: String::new(),
        };
        let bars = |title: &str, unit: &str, pick: fn(&Row) -> f64| Bars {
            title: title.to_owned(),
            unit: unit.to_owned(),
            values: of_trace()
                .map(|row| (row.law.clone(), row.law.clone(), pick(row)))
                .collect(),
            mark: None,
        };
        Section {
            title: format!("Trace {trace}"),
            tables: vec![grid],
            bars: vec![
                bars("Mean power", "W", |row| row.power_w.mean),
                bars("Periods over the target", "%", |row| {
                    row.periods_over_percent.mean
                }),
            ],
            ..Section::default()
        }
    };
    let laws: Vec<String> = args.laws.iter().map(ToString::to_string).collect();
    Sheet {
        kind: "headroom compare".to_owned(),
        title: format!("{} on {}", laws.join(", "), args.traces.join(", ")),
        lead: format!("{} seeds each, from seed {}.", args.seeds, args.first_seed),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks,
        sections: args.traces.iter().map(section).collect(),
    }
}
