//! `headroom reproduce`: a paper's evaluation in the simulated world, its numbers compared with ours.

mod batching;
mod capacity;
mod cases;
mod page;
mod profiles;
mod reef;
mod rows;
mod why;

use crate::args::{jobs_at_once, seeds};
use crate::origin;
use crate::simulate::{Progress, Watched, figures, jobs, recorded, sheet_text_within, wrap, write_sheet};
use batching::BatchingPaperArgs;
use capacity::CapacityPaperArgs;
use cases::{Plan, Traces};
use clap::{Args, Subcommand};
use headroom_console::Failure;
use headroom_console::args::seconds;
use headroom_console::say;
use headroom_record::report::Sheet;
use headroom_record::{Archive, Experiment, Limits, Provenance, Recorder};
use headroom_sim::bound::lower_bound;
use headroom_sim::run_many;
use headroom_workload::ArrivalProcess;
use profiles::ProfilesPaperArgs;
use reef::ReefPaperArgs;
use rows::Done;
use serde_json::json;
use std::path::Path;
use std::path::PathBuf;
use std::time::Instant;

/// How wide tables and texts are printed, where no figure or word is longer.
const COLUMNS: usize = 100;

/// `headroom reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Which evaluation.
    #[command(subcommand)]
    pub paper: Paper,
}

/// What can be reproduced.
#[derive(Debug, Subcommand)]
pub enum Paper {
    /// The evaluation of the SLO-Power paper (its Section V): Figures 1 and 5 to 8, its numbers compared with ours.
    SloPower(SloPowerArgs),
    /// The evaluation of the capacity paper (its Section 7): Figures 9 to 12 and the energy that clusters save which follow
    /// their load, its numbers compared with ours.
    Capacity(CapacityPaperArgs),
    /// The evaluation of the batching paper (its Section VIII): Tables II to IV and Figures 7 to 12, what batching is worth beside a
    /// cache whose requests wait for each other, and where it cannot help; its numbers compared with ours.
    Batching(BatchingPaperArgs),
    /// The evaluation of the REEF paper (threads on call, its Sections 2 to 5): Figures 2 to 5 and 9 to 21 in a simulated server with a
    /// thread per connection, alone, under AppleS and on call; its numbers compared with ours.
    Reef(ReefPaperArgs),
    /// The evaluation of the paper on power by request size (its Sections 4 to 6): Tables 1 and 2 and Figures 1 to 4 on three simulated
    /// machines, its numbers compared with ours and each conclusion checked.
    Profiles(ProfilesPaperArgs),
}

/// `headroom reproduce slo-power`.
#[derive(Debug, Args)]
pub struct SloPowerArgs {
    /// Folder with the traces that the authors published (wikipedia-cluster.txt, azure-cluster.txt, and the two of one
    /// node, *-node.txt). By default traces like them are generated.
    #[arg(long, value_name = "DIR", env = "HEADROOM_PUBLISHED_TRACES")]
    pub traces: Option<PathBuf>,
    /// How many seeds each figure is the mean of.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = seeds)]
    pub seeds: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs_at_once)]
    pub jobs: Option<usize>,
    /// Stop each run after this many simulated seconds: a look, not a reproduction.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// The report to write.
    #[arg(long, default_value = "out/slo-power.html", value_name = "FILE")]
    pub out: PathBuf,
    /// The flight recorder's database: the four runs that the report plots are kept there.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
    /// Print the tables as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Runs what was asked for.
///
/// # Errors
/// Traces that cannot be read, a run that does not end, a record or a report that cannot be written.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    match &args.paper {
        Paper::SloPower(args) => slo_power(args),
        Paper::Capacity(args) => capacity::reproduce(args),
        Paper::Batching(args) => batching::reproduce(args),
        Paper::Reef(args) => reef::reproduce(args),
        Paper::Profiles(args) => profiles::reproduce(args),
    }
}

fn slo_power(args: &SloPowerArgs) -> Result<(), Failure> {
    let traces = Traces::read(args.traces.as_deref(), args.seeds)?;
    let plan = Plan::new(args.duration)?;
    let work: Vec<(usize, u64)> = (0..plan.cases().len())
        .flat_map(|case| (1..=args.seeds).map(move |seed| (case, seed)))
        .collect();
    let started = Instant::now();
    let progress = Progress::new("reproducing SLO-Power", work.len() as u64);
    let done = run_many(&work, jobs(args.jobs), |_, (case, seed)| {
        let case = &plan.cases()[*case];
        let (setting, _) = case.setting(&traces, *seed);
        let result = figures(&setting, case.law, *seed).map(|figures| Done {
            bound_j: lower_bound(&setting.scenario, *seed).map_or(f64::NAN, |bound| bound.get()),
            figures,
        });
        progress.add(1);
        result
    });
    drop(progress);
    let mut done = done.into_iter();
    let mut results = Vec::new();
    for _ in plan.cases() {
        results.push(
            done.by_ref()
                .take(args.seeds as usize)
                .collect::<Result<Vec<_>, _>>()?,
        );
    }
    let recorder = Recorder::open(&args.db, Limits::default()).map_err(Failure::usage)?;
    let mut plotted = Vec::new();
    for (case, heading, name) in plan.plotted() {
        let (setting, trace) = plan.cases()[case].setting(&traces, 1);
        let watched = Watched {
            setting: &setting,
            law: plan.cases()[case].law,
            trace: &trace,
            seed: 1,
            name,
        };
        let summary = recorded(&watched, &recorder)?;
        plotted.extend(summary.run.map(|run| (heading.to_owned(), run)));
    }
    drop(recorder);
    let evaluation = rows::Evaluation::of(&plan, &results, &traces);
    let mut sheet = page::sheet(&evaluation, &plan, &traces, args, plotted);
    let provenance = provenance(&plan, &traces, args);
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, Some(&Archive::open(&args.db)?), &args.out)?;
    say_runs(work.len(), started, args.jobs);
    if args.json {
        return say::result(json!({
            "paper": "slo-power",
            "provenance": provenance,
            "traces": traces.said(),
            "seeds": args.seeds,
            "duration_s": args.duration,
            "calibration": calibration_json(page::calibration(&plan)),
            "rows": evaluation.rows,
            "figure_7": evaluation.grid,
            "figure_8": evaluation.targets,
        }));
    }
    show(&sheet, &args.out)
}

/// Where the tables come from: the calibration, and the contents of the traces that every case runs on.
fn provenance(plan: &Plan, traces: &Traces, args: &SloPowerArgs) -> Provenance {
    let seeds: Vec<u64> = (1..=args.seeds).collect();
    let worlds: Vec<ArrivalProcess> = plan
        .cases()
        .iter()
        .flat_map(|case| {
            seeds
                .iter()
                .map(|seed| case.setting(traces, *seed).0.scenario.arrivals)
        })
        .collect();
    origin::provenance()
        .configured_by(cases::CALIBRATION)
        .with_load(Some(origin::of_arrivals(&worlds, &seeds)))
        .of_experiment(Experiment {
            scenario: "SLO-Power, Section V".to_owned(),
            traces: vec![traces.said().to_string()],
            seeds: (1, args.seeds),
            duration_s: args.duration,
            // Figure 8 is of several.
            slo: None,
        })
}

/// Says how many runs it took, and how long.
fn say_runs(runs: usize, started: Instant, asked: Option<usize>) {
    let (took_s, at_once) = (started.elapsed().as_secs_f64(), jobs(asked));
    say::note!("{runs} runs in {took_s:.1} s, {at_once} at once");
}

/// A calibration as `--json` prints it: figure, value, reason.
fn calibration_json(lines: Vec<[String; 3]>) -> serde_json::Value {
    let line =
        |[figure, value, reason]: [String; 3]| json!({ "figure": figure, "value": value, "reason": reason });
    lines.into_iter().map(line).collect()
}

/// Prints the sheet's tables and texts, and where its page is.
fn show(sheet: &Sheet, page: &Path) -> Result<(), Failure> {
    say::result(format_args!(
        "{}\n\n{}report: {}",
        wrap(&sheet.lead, COLUMNS).join("\n"),
        sheet_text_within(sheet, COLUMNS),
        page.display()
    ))
}
