//! `headroom reproduce batching`: Section VIII of the batching paper in the simulated world.

mod charts;
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
use headroom_record::statistics::Estimate;
use headroom_record::{Experiment, Provenance, fingerprint};
use headroom_sim::run_many;
use measure::{Run, measure};
use plan::{Plan, Who, World};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// `headroom reproduce batching`.
#[derive(Debug, Args)]
pub struct BatchingPaperArgs {
    /// How many seeds each figure is the mean of.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = seeds)]
    pub seeds: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs_at_once)]
    pub jobs: Option<usize>,
    /// Shorter samples and fewer intervals: a look, not a reproduction.
    #[arg(long)]
    pub quick: bool,
    /// The report to write.
    #[arg(long, default_value = "out/batching-paper.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the tables as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Everything that was measured: case by case, seed by seed.
pub struct Measured {
    /// What was run.
    pub plan: Plan,
    /// The runs of each case.
    pub runs: Vec<Vec<Run>>,
}

impl Measured {
    /// The runs of a case, seed by seed; none where it was not run.
    pub fn of(&self, world: World, who: Who) -> &[Run] {
        self.plan.find(world, who).map_or(&[], |case| &self.runs[case])
    }

    /// A figure of each run of a case.
    pub fn each(&self, world: World, who: Who, pick: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.of(world, who).iter().map(pick).collect()
    }

    /// How much less a figure is than without batching, seed by seed, percent.
    pub fn less(&self, world: World, who: Who, pick: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.less_than((world, plan::NONE), (world, who), pick)
    }

    /// How much less a figure is in the second case than in the first, seed by seed, percent.
    pub fn less_than(
        &self,
        first: (World, Who),
        second: (World, Who),
        pick: impl Fn(&Run) -> f64,
    ) -> Vec<f64> {
        let ratios = self.ratios(first, second, pick).into_iter();
        ratios.map(|ratio| (1.0 - ratio) * 100.0).collect()
    }

    /// A figure of the second case over that of the first, seed by seed.
    pub fn ratios(&self, first: (World, Who), second: (World, Who), pick: impl Fn(&Run) -> f64) -> Vec<f64> {
        let before = self.each(first.0, first.1, &pick);
        let after = self.each(second.0, second.1, &pick).into_iter();
        after.zip(before).map(|(after, before)| after / before).collect()
    }

    /// How much more it is, percent.
    pub fn more(&self, world: World, who: Who, pick: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.less(world, who, pick)
            .into_iter()
            .map(|less| -less)
            .collect()
    }

    /// The interval of Table II with the least mean response time under dynamic load.
    pub fn best_fixed(&self) -> Who {
        let mean = |who: &Who| {
            let each = self.each(World::Dynamic, *who, |run| run.response_ms);
            Estimate::of(&each).map_or(f64::INFINITY, |estimate| estimate.mean)
        };
        let all = self.plan.intervals_ms.iter().map(|ms| Who::Interval(*ms));
        all.min_by(|one, two| mean(one).total_cmp(&mean(two)))
            .unwrap_or(plan::NONE)
    }
}

/// Runs it.
///
/// # Errors
/// A run that does not end, a report that cannot be written.
pub fn reproduce(args: &BatchingPaperArgs) -> Result<(), Failure> {
    let plan = Plan::new(args.quick)?;
    let started = Instant::now();
    let measured = measure_all(plan, args)?;
    let rows = rows::rows(&measured);
    let mut sheet = page::sheet(&measured, &rows, args);
    let provenance = provenance(&measured.plan, args);
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, &args.out)?;
    say_runs(
        measured.plan.cases.len() * args.seeds as usize,
        started,
        args.jobs,
    );
    if args.json {
        let cases = measured.plan.cases.iter().zip(&measured.runs);
        let cases: Vec<_> = cases
            .map(|(case, runs)| json!({ "world": case.world.name(), "law": case.who.name(), "runs": runs }))
            .collect();
        return say::result(json!({
            "paper": "batching",
            "provenance": provenance,
            "seeds": args.seeds,
            "quick": args.quick,
            "calibration": calibration_json(page::calibration(&measured.plan)),
            "rows": rows,
            "cases": cases,
        }));
    }
    show(&sheet, &args.out)
}

/// Where the tables come from. The load is part of the plan.
fn provenance(plan: &Plan, args: &BatchingPaperArgs) -> Provenance {
    let load = fingerprint([format!("{:?}", plan.cases).as_bytes()]);
    origin::provenance()
        .configured_by(plan::CALIBRATION)
        .with_load(Some(load))
        .of_experiment(Experiment {
            scenario: "self-tuning batching with DVFS, Section VIII".to_owned(),
            traces: vec![format!("samples of {} s", plan.calibration.step_s)],
            seeds: (1, args.seeds),
            duration_s: None,
            slo: None,
        })
}

fn measure_all(plan: Plan, args: &BatchingPaperArgs) -> Result<Measured, Failure> {
    let mut work: Vec<(usize, u64)> = (0..plan.cases.len())
        .flat_map(|case| (1..=args.seeds).map(move |seed| (case, seed)))
        .collect();
    // The long ones first, so that no thread is left alone with one at the end.
    work.sort_by(|one, two| {
        let length_s = |case: usize| plan.cases[case].scenario.duration_s;
        length_s(two.0).total_cmp(&length_s(one.0))
    });
    let progress = Progress::new("reproducing the batching paper", work.len() as u64);
    let done = run_many(&work, jobs(args.jobs), |_, (case, seed)| {
        let run = measure(&plan, &plan.cases[*case], *seed);
        progress.add(1);
        run
    });
    drop(progress);
    let mut runs = vec![Vec::new(); plan.cases.len()];
    // The order of the seeds is kept: the sort is stable.
    for ((case, _), run) in work.iter().zip(done) {
        runs[*case].push(run?);
    }
    Ok(Measured { plan, runs })
}
