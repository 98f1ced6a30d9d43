//! `headroom reproduce profiles --fleet`: what the paper proposes (its Section 6: by the size of what is asked for, choose the machine), on a
//! mixed fleet of its machines over a day of mixed sizes.

mod conclusions;
mod day;
mod measure;
mod page;
mod rows;

use super::super::{say_runs, show};
use super::ProfilesPaperArgs;
use crate::origin;
use crate::simulate::{Progress, jobs, write_sheet};
use anyhow::Context;
use day::Day;
use headroom_console::{Failure, say};
use headroom_physics::ServingKind;
use headroom_record::{Experiment, Provenance, fingerprint};
use headroom_sim::run_many;
use measure::{Outcome, measure};
use rows::Way;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// The loads at which the ways that leave all on are tried, as shares of the day's.
pub const SCALES: [f64; 5] = [1.0, 1.5, 2.0, 3.0, 4.0];
/// An hour of these days is so many times as short: they are looked at for how often they are late alone.
const SHORTER: f64 = 3.0;

/// Every run.
#[derive(Debug)]
pub struct Measured {
    /// Of each of [`Way::ALL`], a run for each seed.
    pub days: Vec<Vec<Outcome>>,
    /// Of each of [`Way::ALL_ON`] and each of [`SCALES`], a run for each seed.
    pub loads: Vec<Vec<Vec<Outcome>>>,
}

/// Runs it.
///
/// # Errors
/// A run that does not end, a report that cannot be written.
pub fn reproduce(args: &ProfilesPaperArgs, out: &Path) -> Result<(), Failure> {
    let started = Instant::now();
    let measured = all(args)?;
    let concluded = conclusions::conclusions(&measured);
    let mut sheet = page::sheet(&measured, &concluded, args)?;
    let provenance = provenance(args)?;
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, out)?;
    let loads = Way::ALL_ON.len() * SCALES.len();
    say_runs((Way::ALL.len() + loads) * args.seeds as usize, started, args.jobs);
    if args.json {
        let named = |ways: &[Way]| ways.iter().map(|way| way.name()).collect::<Vec<_>>();
        return say::result(json!({
            "paper": "profiles",
            "part": "fleet",
            "provenance": provenance,
            "seeds": args.seeds,
            "hour_s": args.hour,
            "ways": named(&Way::ALL),
            "days": measured.days,
            "ways_all_on": named(&Way::ALL_ON),
            "scales": SCALES,
            "loads": measured.loads,
            "conclusions": concluded,
        }));
    }
    show(&sheet, out)
}

fn all(args: &ProfilesPaperArgs) -> Result<Measured, Failure> {
    let day = |scale: f64, shorter: f64| Day {
        hour_s: (args.hour / shorter).max(day::PERIOD_S),
        scale,
    };
    let days = Way::ALL.into_iter().map(|way| (way, day(1.0, 1.0)));
    let loads = Way::ALL_ON
        .into_iter()
        .flat_map(|way| SCALES.map(|scale| (way, day(scale, SHORTER))));
    let cases = days.chain(loads);
    let work: Vec<(Way, Day, u64)> = cases
        .flat_map(|(way, day)| (1..=args.seeds).map(move |seed| (way, day, seed)))
        .collect();
    let progress = Progress::new("a day of a mixed fleet", work.len() as u64);
    let done = run_many(&work, jobs(args.jobs), |_, (way, day, seed)| {
        let outcome = measure(*way, *day, *seed);
        progress.add(1);
        outcome
    });
    drop(progress);
    let mut done = done.into_iter();
    let mut seeds = || {
        done.by_ref()
            .take(args.seeds as usize)
            .collect::<Result<Vec<_>, _>>()
    };
    let days = Way::ALL.iter().map(|_| seeds()).collect::<Result<_, _>>()?;
    let mut loads = Vec::new();
    for _ in Way::ALL_ON {
        loads.push(SCALES.iter().map(|_| seeds()).collect::<Result<_, _>>()?);
    }
    Ok(Measured { days, loads })
}

/// Where the tables come from: the machines' figures and the law's are the configuration, and the day the load.
fn provenance(args: &ProfilesPaperArgs) -> Result<Provenance, Failure> {
    let machines = ServingKind::ALL.map(ServingKind::machine);
    let figures = serde_json::to_string(&machines).context("the figures of the machines")?;
    let day = Day {
        hour_s: args.hour,
        scale: 1.0,
    };
    let rates: Vec<[f64; 3]> = (0..day::HOURS).map(|hour| day.rates(hour)).collect();
    let load = fingerprint([format!("{rates:?} {} {SCALES:?}", args.hour).as_bytes()]);
    Ok(origin::provenance()
        .configured_by(&format!("{figures} {:?} {:?}", day::FLEET, day::tuning()))
        .with_load(Some(load))
        .of_experiment(Experiment {
            scenario: "power by request size, a mixed fleet".to_owned(),
            traces: Vec::new(),
            seeds: (1, args.seeds),
            duration_s: Some(args.hour * day::HOURS as f64),
            slo: None,
        }))
}

#[cfg(test)]
mod tests;
