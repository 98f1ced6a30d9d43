//! `headroom report` and `headroom runs`.

use crate::cli::{ReportArgs, RunsArgs};
use crate::failure::Failure;
use crate::file;
use crate::say;
use anyhow::Context;
use headroom_record::{Archive, RunFilter, RunInfo, summary_table, table};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Writes the report of the runs asked for, and prints their table or their JSON.
///
/// # Errors
/// A record that cannot be read, a run that is not in it, a file that cannot be written.
pub fn report(args: &ReportArgs) -> Result<(), Failure> {
    let archive = Archive::open(&args.record.db).map_err(Failure::usage)?;
    let runs = args
        .runs
        .iter()
        .map(|run| archive.find(run))
        .collect::<Result<Vec<RunInfo>, _>>();
    let runs = runs.map_err(Failure::usage)?;
    let summaries = runs
        .iter()
        .map(|run| archive.summary(run.id))
        .collect::<Result<Vec<_>, _>>()?;
    write_html(&archive, &runs, &args.out)?;
    if let Some(csv) = &args.csv {
        let [run] = runs.as_slice() else {
            return Err(Failure::usage(anyhow::anyhow!(
                "--csv takes one run, here are {}",
                runs.len()
            )));
        };
        let file = File::create(csv).with_context(|| format!("{} cannot be written", csv.display()))?;
        archive.export_csv(run.id, BufWriter::new(file))?;
    }
    if !args.json {
        say::result(format_args!(
            "{}\nreport: {}",
            summary_table(&summaries),
            args.out.display()
        ))
    } else if let [summary] = summaries.as_slice() {
        say::result(serde_json::to_string(summary)?)
    } else {
        say::result(serde_json::to_string(&summaries)?)
    }
}

/// Writes the HTML report of one run, or the comparison of several, making its folder where there is none.
///
/// # Errors
/// A run that cannot be read, a file that cannot be written.
pub fn write_html(archive: &Archive, runs: &[RunInfo], out: &Path) -> Result<(), Failure> {
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    let html = match ids.as_slice() {
        [one] => headroom_record::report::run_html(archive, *one)?,
        several => headroom_record::report::comparison_html(archive, several)?,
    };
    file::write(out, &html)
}

/// Lists the recorded runs.
///
/// # Errors
/// A record that cannot be read.
pub fn runs(args: &RunsArgs) -> Result<(), Failure> {
    let archive = Archive::open(&args.record.db).map_err(Failure::usage)?;
    let runs = archive.runs(&RunFilter::default())?;
    if args.json {
        let summaries = runs
            .iter()
            .map(|run| archive.summary(run.id))
            .collect::<Result<Vec<_>, _>>()?;
        say::result(serde_json::to_string(&summaries)?)
    } else {
        say::result(table::runs_table(&runs))
    }
}
