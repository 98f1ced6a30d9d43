//! `headroom reproduce profiles`: Sections 3 to 6 of the paper on power by request size, on simulated machines.

mod calibration;
mod cells;
mod charts;
mod claims;
mod conclusions;
mod fleet;
mod grids;
mod page;
mod paper;
mod straight;

use super::{calibration_json, say_runs, show};
use crate::args::{jobs_at_once, seeds};
use crate::origin;
use crate::simulate::{Progress, jobs, write_sheet};
use anyhow::Context;
use cells::Cell;
use clap::Args;
use conclusions::conclusions;
use headroom_console::args::seconds;
use headroom_console::{Failure, say};
use headroom_physics::ServingKind;
use headroom_record::{Experiment, Provenance, fingerprint};
use headroom_sim::run_many;
use paper::At;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// `headroom reproduce profiles`.
#[derive(Debug, Args)]
pub struct ProfilesPaperArgs {
    /// Windows of 5 s that are measured in each of the 72 cells, after one that is not. Fewer are a look.
    #[arg(long, default_value_t = 6, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub windows: u32,
    /// The seed of the requests' processor times.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub seed: u64,
    /// In the place of the cells: a mixed fleet of the three machines over a day of mixed sizes, routed in turn, by least connections, by
    /// weights and by size, with all on and switched. Some minutes.
    #[arg(long)]
    pub fleet: bool,
    /// How many seeds each figure of --fleet is the mean of.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = seeds, requires = "fleet")]
    pub seeds: u64,
    /// How long an hour of --fleet's day is simulated for. Shorter ones are a look.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = seconds, requires = "fleet")]
    pub hour: f64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs_at_once)]
    pub jobs: Option<usize>,
    /// The report to write; by default out/profiles-paper.html, with --fleet out/profiles-fleet.html.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the tables as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
///
/// # Errors
/// A run that does not end, a report that cannot be written.
pub fn reproduce(args: &ProfilesPaperArgs) -> Result<(), Failure> {
    let by_default = if args.fleet {
        "out/profiles-fleet.html"
    } else {
        "out/profiles-paper.html"
    };
    let out = args.out.as_deref().unwrap_or(Path::new(by_default));
    if args.fleet {
        return fleet::reproduce(args, out);
    }
    let started = Instant::now();
    let cells = measure(args)?;
    let concluded = conclusions(&cells);
    let errors = straight::errors(&cells);
    let mut sheet = page::sheet(&cells, &errors, &concluded, args);
    let provenance = provenance(args)?;
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, out)?;
    say_runs(cells.len(), started, args.jobs);
    if args.json {
        return say::result(json!({
            "paper": "profiles",
            "provenance": provenance,
            "seed": args.seed,
            "windows": args.windows,
            "calibration": calibration_json(calibration::lines()),
            "cells": cells,
            "errors": errors,
            "conclusions": concluded,
        }));
    }
    show(&sheet, out)
}

/// All cells, in the order of [`At::all`].
fn measure(args: &ProfilesPaperArgs) -> Result<Vec<Cell>, Failure> {
    let work: Vec<At> = At::all().collect();
    let progress = Progress::new("reproducing the profiles paper", work.len() as u64);
    let done = run_many(&work, jobs(args.jobs), |_, at| {
        let cell = cells::run(*at, args.windows, args.seed);
        progress.add(1);
        cell
    });
    drop(progress);
    done.into_iter().collect()
}

/// Where the tables come from: the machines' figures are the configuration, and what is asked of them the load.
fn provenance(args: &ProfilesPaperArgs) -> Result<Provenance, Failure> {
    let machines = ServingKind::ALL.map(ServingKind::machine);
    let figures = serde_json::to_string(&machines).context("the figures of the machines")?;
    let cells: Vec<String> = At::all()
        .map(|at| format!("{at:?} {:?}", at.kind.cost(at.service)))
        .collect();
    let load = fingerprint([format!("{cells:?} {}", args.windows).as_bytes()]);
    Ok(origin::provenance()
        .configured_by(&figures)
        .with_load(Some(load))
        .of_experiment(Experiment {
            scenario: "power by request size, Sections 3 to 6".to_owned(),
            traces: Vec::new(),
            seeds: (args.seed, args.seed),
            duration_s: None,
            slo: None,
        }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_of_each_cell_bears_the_conclusions_out() {
        let folder = tempfile::tempdir().unwrap();
        let args = ProfilesPaperArgs {
            windows: 1,
            seed: 1,
            fleet: false,
            seeds: 1,
            hour: 30.0,
            jobs: None,
            out: Some(folder.path().join("profiles.html")),
            json: false,
        };
        let cells = measure(&args).unwrap();
        let at_full: Vec<_> = cells.iter().filter(|cell| cell.calibrated).collect();
        assert_eq!((cells.len(), at_full.len()), (72, 18));
        for cell in at_full {
            // What a window of 5 s of the Arm's 999 KB is cut by at its edges.
            assert!(cell.error_percent.abs() < 12.0, "{cell:?}");
        }
        let concluded = conclusions(&cells);
        let broken: Vec<_> = concluded.iter().filter(|one| !one.holds).collect();
        let said: Vec<&str> = broken.iter().map(|one| one.says).collect();
        assert_eq!(
            said,
            [
                "Apache, 1 KB: with falling density the Xeon's throughput per watt falls below the Arm's at that density",
                "Apache, 1 KB: the Atom's throughput is no other than the Arm's, at 100 %",
                "Memcached, 100 %: the larger the answer, the higher the network use",
                "Memcached: CPU use is not as high as with Apache, at 1 and 10 KB",
                "Memcached: every case is bound by the network (the Arm by its driver)",
            ],
            "{broken:?}"
        );
        reproduce(&args).unwrap();
        let html = std::fs::read_to_string(args.out.as_ref().unwrap()).unwrap();
        for part in [
            "What the simulation adds to a straight line",
            "Table 1",
            "Figure 1",
            "Figure 2",
            "Table 2",
            "Figure 3",
            "Figure 4",
            "idle watts",
            "5567.51",
        ] {
            assert!(html.contains(part), "{part}");
        }
    }
}
