//! `headroom report` and `headroom runs`.

use anyhow::Context;
use clap::Args;
use headroom_console::Failure;
use headroom_console::file;
use headroom_console::say;
use headroom_record::report::runs_under_html;
use headroom_record::{Archive, OfferedLoad, RunInfo, compare_with_reference, summary_table, table};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Runs that a list has at most: the latest.
const MAX_LISTED: u32 = 100;

/// Where the record is.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The flight recorder's database.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
}

/// `headroom report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The runs: an id, a name (or the beginning of one) or `latest`. Several are compared:
    /// savings are against the first, or the last of its law before the run.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// Where the record is.
    #[command(flatten)]
    pub record: RecordArgs,
    /// The HTML file to write.
    #[arg(long, default_value = "out/report.html", value_name = "FILE")]
    pub out: PathBuf,
    /// What `headroom load --json` printed for the load that a run served: shown with it. May be given for each run, in their order.
    #[arg(long, value_name = "FILE")]
    pub load: Vec<PathBuf>,
    /// Write the periods of one run as CSV to this file too; where the run has parts (nodes, gateways), those as well, beside
    /// it: `run.csv` and `run.parts.csv`.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write them as JSON lines to this file too: observation, decision and reasons as objects, not as text in a field.
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Print the run summary as JSON on standard output (an array where there are several), and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// `headroom runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Where the record is.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Print the list as JSON.
    #[arg(long)]
    pub json: bool,
}

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
    for (at, run) in runs.iter().enumerate() {
        if runs[..at].iter().any(|other| other.id == run.id) {
            return Err(Failure::usage(anyhow::anyhow!(
                "run {} is named twice: `{}`; name each once",
                run.id,
                args.runs[at]
            )));
        }
    }
    let mut summaries = runs
        .iter()
        .map(|run| archive.summary(run.id))
        .collect::<Result<Vec<_>, _>>()?;
    if args.load.len() > runs.len() {
        return Err(Failure::usage(anyhow::anyhow!(
            "--load is given {} times for {} runs: give it once for each run, in their order",
            args.load.len(),
            runs.len()
        )));
    }
    let loads = args.load.iter().map(|file| OfferedLoad::read(file));
    let loads = loads.collect::<Result<Vec<_>, _>>().map_err(Failure::usage)?;
    for (summary, load) in summaries.iter_mut().zip(&loads) {
        summary.provenance = summary.provenance.clone().with_offered_load(load.clone());
    }
    compare_with_reference(&mut summaries);
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    file::write(&args.out, &runs_under_html(&archive, &ids, &loads)?)?;
    let only = |option: &str| match runs.as_slice() {
        [run] => Ok(run.id),
        several => Err(Failure::usage(anyhow::anyhow!(
            "{option} takes one run, here are {}",
            several.len()
        ))),
    };
    if let Some(csv) = &args.csv {
        let run = only("--csv")?;
        archive.export_csv(run, create(csv)?)?;
        if archive.has_parts(run)? {
            archive.export_parts_csv(run, create(&csv.with_extension("parts.csv"))?)?;
        }
    }
    if let Some(lines) = &args.jsonl {
        archive.export_jsonl(only("--jsonl")?, create(lines)?)?;
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

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(BufWriter::new(file))
}

/// Lists the recorded runs.
///
/// # Errors
/// A record that cannot be read.
pub fn runs(args: &RunsArgs) -> Result<(), Failure> {
    let archive = Archive::open(&args.record.db).map_err(Failure::usage)?;
    let runs = archive.runs(MAX_LISTED)?;
    if runs.len() == MAX_LISTED as usize {
        say::note!("these are the latest {MAX_LISTED} runs; older ones are found by their number or name");
    }
    if args.json {
        let summaries = runs
            .iter()
            .map(|run| archive.summary(run.id))
            .collect::<Result<Vec<_>, _>>()?;
        say::result(serde_json::to_string(&summaries)?)
    } else {
        let listed = runs.into_iter().map(|run| {
            let summary = archive.summary(run.id);
            let unreadable = |error: &headroom_record::Error| say::note!("{error}");
            (run, summary.inspect_err(unreadable).ok())
        });
        say::result(table::runs_table(&listed.collect::<Vec<_>>()))
    }
}
