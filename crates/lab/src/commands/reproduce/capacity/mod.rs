//! `headroom reproduce capacity`: Section 7 of the capacity paper in the simulated world.

mod measure;
mod page;
mod plan;
mod rows;

use super::{calibration_json, say_runs, show};
use crate::args::{jobs_at_once, seeds};
use crate::origin;
use crate::simulate::{Progress, jobs, write_sheet};
use clap::Args;
use headroom_console::Failure;
use headroom_console::say;
use headroom_record::{Experiment, Provenance, fingerprint};
use headroom_sim::run_many;
use measure::{Day, Wave};
use plan::Plan;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// `headroom reproduce capacity`.
#[derive(Debug, Args)]
pub struct CapacityPaperArgs {
    /// How many seeds each figure is the mean of. A seed takes two or three minutes of a processor.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = seeds)]
    pub seeds: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs_at_once)]
    pub jobs: Option<usize>,
    /// Simulate servers of this share of the paper's capacity under as much less load: a look, not a reproduction.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = share)]
    pub scale: f64,
    /// Make the day this share as long: a look, not a reproduction.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = share)]
    pub day: f64,
    /// The report to write.
    #[arg(long, default_value = "out/capacity-paper.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the tables as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.01..=1.0).contains(share));
    share.ok_or_else(|| "give a share between 0.01 and 1".to_owned())
}

/// How many ramps find the capacity: Section 7.4.
const RAMPS: u64 = 10;
/// The wait of the I/O-bound page, seconds: Section 7.4.
const WAIT_S: f64 = 0.5;

/// Everything that was measured.
pub struct Measured {
    /// What each ramp found.
    pub ramps_per_s: Vec<f64>,
    /// The sinusoid, bound by the CPU, and by the workers; seed by seed.
    pub waves: [Vec<Wave>; 2],
    /// The days, case by case, seed by seed.
    pub days: Vec<Vec<Day>>,
}

/// One of many runs.
enum Work {
    Ramp(u64),
    Wave(usize, u64),
    Day(usize, u64),
}

enum Done {
    Ramp(Option<f64>),
    Wave(usize, Wave),
    Day(usize, Day),
}

/// Runs it.
///
/// # Errors
/// A run that does not end, a report that cannot be written.
pub fn reproduce(args: &CapacityPaperArgs) -> Result<(), Failure> {
    let plan = Plan::new(args.scale, args.day)?;
    let started = Instant::now();
    let measured = measure_all(&plan, args)?;
    let rows = rows::rows(&plan, &measured);
    let mut sheet = page::sheet(&plan, &measured, &rows, args);
    let provenance = provenance(&plan, args);
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, &args.out)?;
    let runs = RAMPS as usize + (2 + plan.cases.len()) * args.seeds as usize;
    say_runs(runs, started, args.jobs);
    if args.json {
        return say::result(json!({
            "paper": "capacity",
            "provenance": provenance,
            "seeds": args.seeds,
            "scale": args.scale,
            "day": args.day,
            "calibration": calibration_json(page::calibration(&plan)),
            "rows": rows,
        }));
    }
    show(&sheet, &args.out)
}

/// Where the tables come from. The load is part of the plan: its ramps, its sinusoid and its days.
fn provenance(plan: &Plan, args: &CapacityPaperArgs) -> Provenance {
    let days = format!(
        "{:?} {:?} {:?}",
        plan.ramp(),
        plan.sinusoid(0.0),
        plan.sinusoid(WAIT_S)
    );
    let load = fingerprint([days.as_bytes(), format!("{:?}", plan.cases).as_bytes()]);
    origin::provenance()
        .configured_by(plan::CALIBRATION)
        .with_load(Some(load))
        .of_experiment(Experiment {
            scenario: "capacity from the accept queue, Section 7".to_owned(),
            traces: vec![format!(
                "{} of the paper's rates, {} of its day",
                args.scale, args.day
            )],
            seeds: (1, args.seeds),
            duration_s: None,
            slo: None,
        })
}

fn measure_all(plan: &Plan, args: &CapacityPaperArgs) -> Result<Measured, Failure> {
    // The long ones first, so that no thread is left alone with one at the end.
    let days = (0..plan.cases.len()).flat_map(|case| (1..=args.seeds).map(move |seed| Work::Day(case, seed)));
    let waves = (0..2).flat_map(|wait| (1..=args.seeds).map(move |seed| Work::Wave(wait, seed)));
    let work: Vec<Work> = days.chain(waves).chain((1..=RAMPS).map(Work::Ramp)).collect();
    let waits_s = [0.0, WAIT_S];
    let progress = Progress::new("reproducing the capacity paper", work.len() as u64);
    let done = run_many(&work, jobs(args.jobs), |_, work| {
        let done = match work {
            Work::Ramp(seed) => measure::ramp(&plan.ramp(), *seed).map(Done::Ramp),
            Work::Wave(wait, seed) => {
                let (scenario, truth) = (
                    plan.sinusoid(waits_s[*wait]),
                    plan.true_capacity_per_s(waits_s[*wait]),
                );
                measure::wave(&scenario, truth, *seed).map(|wave| Done::Wave(*wait, wave))
            }
            Work::Day(case, seed) => {
                measure::day(plan, &plan.cases[*case], *seed).map(|day| Done::Day(*case, day))
            }
        };
        progress.add(1);
        done
    });
    drop(progress);
    let mut measured = Measured {
        ramps_per_s: Vec::new(),
        waves: [Vec::new(), Vec::new()],
        days: vec![Vec::new(); plan.cases.len()],
    };
    for one in done {
        match one? {
            Done::Ramp(found) => measured.ramps_per_s.extend(found),
            Done::Wave(wait, wave) => measured.waves[wait].push(wave),
            Done::Day(case, day) => measured.days[case].push(day),
        }
    }
    Ok(measured)
}
