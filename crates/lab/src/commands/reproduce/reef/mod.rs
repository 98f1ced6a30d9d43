//! `headroom reproduce reef`: the REEF paper's evaluation in the simulated world.

mod charts;
mod colocated;
mod divided;
mod live;
mod measure;
mod page;
mod plan;
mod populations;
mod regulator;
mod rows;

use super::{calibration_json, say_runs, show};
use crate::args::{jobs_at_once, seeds};
use crate::origin;
use crate::simulate::{Progress, jobs, write_sheet};
use anyhow::Context;
use clap::Args;
use headroom_console::Failure;
use headroom_console::args::seconds;
use headroom_console::say;
use headroom_control::oncall::saturation::{Model, Point};
use headroom_record::statistics::Estimate;
use headroom_record::{Experiment, Provenance, fingerprint};
use headroom_sim::run_many;
use headroom_units::PerSecond;
use live::Live;
use measure::{Run, measure};
use plan::{APPLES_POINTS, Case, MOST, MOST_WORKERS, Profile, Server, Who, World};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// C is the least whose throughput is within this share of the most.
const ENOUGH: f64 = 0.02;

/// `headroom reproduce reef`.
#[derive(Debug, Args)]
pub struct ReefPaperArgs {
    /// How many seeds each figure is the mean of.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = seeds)]
    pub seeds: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs_at_once)]
    pub jobs: Option<usize>,
    /// Simulated seconds of each run, after a warm-up of 2 or half as many, and four times as many where cores are moved while it runs: below some 10 the tails are a look, not a reproduction.
    #[arg(long, default_value = "12", value_name = "SECONDS", value_parser = seconds)]
    pub duration: f64,
    /// What `scripts/oncall/live` (make oncall-live) measured of real servers, to stand beside the simulated figures.
    #[arg(long, value_name = "FOLDER")]
    pub live: Option<PathBuf>,
    /// The report to write.
    #[arg(long, default_value = "out/reef.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the tables as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Everything that was measured: case by case, seed by seed.
pub struct Measured {
    /// What was run.
    pub cases: Vec<Case>,
    /// The runs of each case.
    pub runs: Vec<Vec<Run>>,
    /// What was found of each server before, in the order of [`Server::ALL`].
    pub profiles: Vec<Profile>,
}

impl Measured {
    /// The runs of a case, seed by seed; none where it was not run.
    pub fn of(&self, server: Server, world: World, who: Who) -> &[Run] {
        let case = Case { server, world, who };
        let at = self.cases.iter().position(|other| *other == case);
        at.and_then(|at| self.runs.get(at)).map_or(&[], Vec::as_slice)
    }

    /// A figure of each run of a case.
    pub fn each(&self, server: Server, world: World, who: Who, pick: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.of(server, world, who).iter().map(pick).collect()
    }

    /// Its mean; `NaN` of a case that was not run.
    pub fn mean(&self, server: Server, world: World, who: Who, pick: impl Fn(&Run) -> f64) -> f64 {
        let each = self.each(server, world, who, pick);
        Estimate::of(&each).map_or(f64::NAN, |estimate| estimate.mean)
    }

    /// A figure of the second case over that of the first, seed by seed.
    pub fn ratios(
        &self,
        server: Server,
        first: (World, Who),
        second: (World, Who),
        pick: impl Fn(&Run) -> f64,
    ) -> Vec<f64> {
        let before = self.each(server, first.0, first.1, &pick);
        let after = self.each(server, second.0, second.1, &pick).into_iter();
        after.zip(before).map(|(after, before)| after / before).collect()
    }

    /// What was found of a server.
    pub fn profile(&self, server: Server) -> Option<&Profile> {
        self.profiles.get(server as usize)
    }
}

/// Runs it.
///
/// # Errors
/// A run that does not end, a report that cannot be written.
pub fn reproduce(args: &ReefPaperArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let live = args
        .live
        .as_deref()
        .map(Live::read)
        .transpose()
        .map_err(Failure::usage)?;
    let measured = measure_all(args)?;
    let mut rows = rows::rows(&measured);
    rows.extend(live.iter().flat_map(Live::rows));
    let mut sheet = page::sheet(&measured, &rows, args);
    sheet
        .sections
        .splice(0..0, live.as_ref().map(|live| page::live(live, &rows)));
    let provenance = provenance(args)?;
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, &args.out)?;
    say_runs(measured.cases.len() * args.seeds as usize, started, args.jobs);
    if args.json {
        let cases = measured.cases.iter().zip(&measured.runs);
        let cases: Vec<_> = cases
            .map(|(case, runs)| {
                let (server, world) = (case.server.name(), case.world.name());
                json!({ "server": server, "world": world, "who": case.who.name(), "runs": runs })
            })
            .collect();
        return say::result(json!({
            "paper": "reef",
            "provenance": provenance,
            "seeds": args.seeds,
            "duration_s": args.duration,
            "calibration": calibration_json(page::calibration(&measured)),
            "rows": rows,
            "cases": cases,
        }));
    }
    show(&sheet, &args.out)
}

/// Where the tables come from. The load is part of the figures.
fn provenance(args: &ReefPaperArgs) -> Result<Provenance, Failure> {
    let cases = plan::profile_cases();
    let scenarios = cases.iter().map(|case| plan::scenario(case, args.duration, None));
    let scenarios: Vec<_> = scenarios.collect();
    let figures = serde_json::to_string(&scenarios).context("the figures of the servers")?;
    let load = fingerprint([format!("{:?}", plan::cases()).as_bytes(), figures.as_bytes()]);
    Ok(origin::provenance()
        .configured_by(&figures)
        .with_load(Some(load))
        .of_experiment(Experiment {
            scenario: "threads on call, REEF, Sections 2 to 5".to_owned(),
            traces: Vec::new(),
            seeds: (1, args.seeds),
            duration_s: Some(args.duration),
            slo: None,
        }))
}

/// The servers' profiles first, for all others go by them.
fn measure_all(args: &ReefPaperArgs) -> Result<Measured, Failure> {
    let profile_cases = plan::profile_cases();
    let cases = plan::cases();
    let total = (profile_cases.len() + cases.len()) as u64 * args.seeds;
    let progress = Progress::new("reproducing REEF", total);
    let run = |cases: &[Case], profiles: &[Profile]| -> Result<Vec<Vec<Run>>, Failure> {
        let work: Vec<(usize, u64)> = (0..cases.len())
            .flat_map(|case| (1..=args.seeds).map(move |seed| (case, seed)))
            .collect();
        let done = run_many(&work, jobs(args.jobs), |_, (case, seed)| {
            let case = &cases[*case];
            let run = measure(case, args.duration, profiles.get(case.server as usize), *seed);
            progress.add(1);
            run
        });
        let mut runs = vec![Vec::new(); cases.len()];
        for ((case, _), run) in work.iter().zip(done) {
            runs[*case].push(run?);
        }
        Ok(runs)
    };
    let mut measured = Measured {
        runs: run(&profile_cases, &[])?,
        cases: profile_cases,
        profiles: Vec::new(),
    };
    for server in Server::ALL {
        let found = profile(&measured, server)?;
        measured.profiles.push(found);
    }
    let runs = run(&cases, &measured.profiles)?;
    measured.cases.extend(cases);
    measured.runs.extend(runs);
    drop(progress);
    Ok(measured)
}

/// C, P and the throughput at saturation, from the runs of a server with so many workers at once.
fn profile(measured: &Measured, server: Server) -> Result<Profile, Failure> {
    let who = Who::reef(plan::NAMED_BATCHES[0]);
    let at = |workers: u32| measured.mean(server, World::Workers(workers), who, |run| run.throughput_per_s);
    let allowed = || {
        plan::WORKERS
            .into_iter()
            .filter(|workers| *workers <= MOST_WORKERS)
    };
    let best = allowed().map(at).fold(0.0, f64::max);
    let workers = allowed().find(|workers| at(*workers) >= best * (1.0 - ENOUGH));
    let points = APPLES_POINTS.map(|workers| Point {
        workers,
        throughput: PerSecond::new(at(workers)),
    });
    let model = Model::fit(points).context("the curve of AppleS")?;
    Ok(Profile {
        workers: workers.unwrap_or(MOST_WORKERS),
        users: model.peak(MOST),
        saturated_per_s: plan::WORKERS.into_iter().map(at).fold(0.0, f64::max),
    })
}
