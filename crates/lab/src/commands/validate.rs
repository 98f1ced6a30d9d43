//! `headroom validate`: live runs and their simulations, side by side.

use super::demo;
use super::demo::{DemoArgs, Hardware};
use crate::args::law_names;
use crate::simulate::{Setting, Table, Watched, recorded, recorded_arrivals, recorded_world};
use anyhow::{Context, anyhow};
use clap::Args;
use headroom_console::Document;
use headroom_console::Failure;
use headroom_console::args::seconds;
use headroom_console::file;
use headroom_console::say;
use headroom_control::LawName;
use headroom_record::report::{Grid, validation_html};
use headroom_record::validate::Validation;
use headroom_record::{Archive, Limits, PeriodRecord, Recorder, RunId, RunInfo, World};
use headroom_workload::ArrivalProcess;
use std::path::Path;
use std::path::PathBuf;

/// `headroom validate`.
///
/// Runs a service live on emulated hardware and then the same in the simulator: the same trace, law, machine, and the
/// service times that were measured meanwhile. Prints live and simulated side by side, and writes a page with both in
/// each plot. Given recorded runs, it simulates those instead.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ValidateArgs {
    /// Recorded live runs to simulate: an id, a name (or the beginning of one) or `latest`. Without any, runs are made now.
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    /// The world of the recorded runs, where their record does not say it; runs of `validate` and `demo` on the emulated
    /// server say theirs. `headroom sim --example` prints one that explains every key.
    #[arg(long, value_name = "FILE", requires = "runs")]
    pub scenario: Option<PathBuf>,
    /// Length of the compressed day, in seconds, for each law.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = seconds, conflicts_with = "runs")]
    pub duration: f64,
    /// The latency target T, in milliseconds.
    #[arg(long, default_value_t = 250.0, value_name = "MS", conflicts_with = "runs")]
    pub target_ms: f64,
    /// The percentile that the target is for.
    #[arg(long, default_value_t = 95.0, value_name = "PERCENT", conflicts_with = "runs")]
    pub percentile: f64,
    /// The trace to replay: `wikipedia`, `azure`, or a file with one rate a line.
    #[arg(
        long,
        default_value = "wikipedia",
        value_name = "NAME|FILE",
        conflicts_with = "runs"
    )]
    pub trace: String,
    /// Seed of the trace and of the arrivals.
    #[arg(long, default_value_t = 1, conflicts_with = "runs")]
    pub seed: u64,
    /// The laws.
    #[arg(long, value_parser = law_names(), value_delimiter = ',', default_values_t = [LawName::FIXED, LawName::SLO_POWER, LawName::HEADROOM],
          conflicts_with = "runs")]
    pub laws: Vec<LawName>,
    /// Cores of this machine that stand for all cores of the emulated server. By default 0.6 of this machine's.
    #[arg(long, value_name = "CORES", conflicts_with = "runs")]
    pub cores: Option<f64>,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub run_dir: Option<PathBuf>,
    /// Print a line now and then instead of the live view.
    #[arg(long)]
    pub no_view: bool,
    /// The flight recorder's database; both runs of each pair are kept there.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
    /// The page to write.
    #[arg(long, default_value = "out/validate.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the pairs as a JSON array on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// A day that passes faster says nothing: ten periods are the laws' warm-up alone.
const MIN_S: f64 = 10.0;

/// What a reader must know of every such comparison.
const REMARKS: [&str; 6] = [
    "The live energy is that of an emulated server, the simulated one a model's: no watt here is measured. What is \
     compared is whether the two say the same.",
    "The same in both: the requests that the gateway reported for each period (their instants within it are drawn), the law \
     and its inputs, the machine's cores, frequencies, power and caps, and the CPU time of each page as it was \
     measured during the live run.",
    "Modelled: that the emulated cores are a CPU quota on real ones, given out every 10 ms, and that one request runs on a \
     whole real core, which is several emulated ones.",
    "Not modelled: the way through gateway, kernel and load generator (some 0.6 ms of each live latency on a machine of two \
     processors, before anything queues), their share of the processors, and whatever else ran there meanwhile: how much \
     that was stands with each run, and from some percent on the live latencies are largely its.",
    "Not modelled: the kernel's scheduler. Threads get slices of milliseconds in turn where the simulator shares a core \
     among all requests at every instant, so the live spread of latencies differs; a woken thread may wait for a core.",
    "Not modelled: the emulator's own grain. It moves the real quota for small changes of frequency at most ten times a \
     second, and hands out a fresh quota with every change.",
];

/// Makes or finds the live runs, simulates each, and shows both.
///
/// # Errors
/// A machine that cannot run the demo; a run that is not in the record or whose world nobody knows; a file that cannot be
/// written.
pub fn run(args: &ValidateArgs) -> Result<(), Failure> {
    let db = &args.db;
    let live = if args.runs.is_empty() {
        match made(args)? {
            Some(live) => live,
            None => return Ok(()),
        }
    } else {
        let archive = Archive::open(db).map_err(Failure::usage)?;
        let found = args.runs.iter().map(|run| archive.find(run)).collect();
        let found: Result<Vec<RunInfo>, _> = found;
        found.map_err(Failure::usage)?
    };
    let mut pairs = Vec::new();
    for run in &live {
        pairs.push((run.id, simulated(args, run)?));
    }
    let archive = Archive::open(db)?;
    write_page(&archive, &pairs, &args.out)?;
    let validation = pairs
        .iter()
        .map(|(live, simulated)| Validation::of(&archive, *live, *simulated))
        .collect::<Result<Vec<_>, _>>()?;
    if args.json {
        return say::result(serde_json::to_string(&validation)?);
    }
    let tables: String = validation.iter().map(table).collect();
    let remarks: String = REMARKS.iter().map(|remark| format!("  {remark}\n")).collect();
    say::result(format_args!("{tables}{remarks}\nreport: {}", args.out.display()))
}

/// Runs the laws live, on the emulated server; nothing where that was stopped.
fn made(args: &ValidateArgs) -> Result<Option<Vec<RunInfo>>, Failure> {
    if !(args.duration >= MIN_S && args.duration <= 86_400.0) {
        return Err(Failure::usage(anyhow!(
            "--duration {}: a day takes between {MIN_S} s and 86400 s (60 is the default)",
            args.duration
        )));
    }
    let demo = DemoArgs {
        single: true,
        duration: Some(args.duration),
        target_ms: Some(args.target_ms),
        percentile: args.percentile,
        trace: args.trace.clone(),
        seed: args.seed,
        laws: args.laws.clone(),
        cores: args.cores,
        out: args.out.parent().unwrap_or(Path::new("")).to_owned(),
        run_dir: args.run_dir.clone(),
        hardware: Hardware::Emulated,
        json: args.json,
        nice: 0,
        no_view: args.no_view,
    };
    let Some(summaries) = demo::perform(&demo, &args.db)? else {
        return Ok(None);
    };
    let archive = Archive::open(&args.db)?;
    let runs = summaries.iter().filter_map(|summary| summary.run);
    Ok(Some(runs.map(|run| archive.run(run)).collect::<Result<_, _>>()?))
}

/// Simulates one live run, and records that.
fn simulated(args: &ValidateArgs, live: &RunInfo) -> Result<RunId, Failure> {
    let meta = &live.meta;
    if meta.world == World::Simulated {
        return Err(Failure::usage(anyhow!(
            "run {} ({}) was simulated already: give a live one (`headroom runs` lists them)",
            live.id,
            meta.name
        )));
    }
    let law = meta.law.parse::<LawName>().map_err(|_| {
        Failure::usage(anyhow!(
            "run {} has no law that can be simulated: {:?}",
            live.id,
            meta.law
        ))
    })?;
    let document = match &args.scenario {
        Some(file) => Document::read(file, "sim")?,
        None => recorded_world(&live.id.to_string(), &meta.config).map_err(Failure::usage)?,
    };
    let archive = Archive::open(&args.db)?;
    let periods = archive.periods(live.id)?;
    let setting = replayed(Setting::from_document(document)?, live, &periods)?;
    let run = Watched {
        setting: &setting,
        law,
        trace: &meta.trace,
        seed: meta.seed,
        name: &format!("{}-simulated", meta.name),
    };
    let recorder = Recorder::open(&args.db, Limits::default()).map_err(Failure::usage)?;
    let summary = recorded(&run, &recorder)?;
    summary
        .run
        .context("the simulated run was not recorded")
        .map_err(Failure::Run)
}

/// The world with the requests of a live run, for as many periods and of the same length as it had.
fn replayed(mut setting: Setting, live: &RunInfo, periods: &[PeriodRecord]) -> Result<Setting, Failure> {
    let pruned = live.pruned > 0;
    let Some(last) = periods.last().filter(|_| !pruned) else {
        let why = if pruned { "lacks its first" } else { "has no" };
        return Err(Failure::usage(anyhow!(
            "the record of run {} {why} periods: it cannot be simulated",
            live.id
        )));
    };
    let lost = periods.iter().filter(|period| period.telemetry_lost).count();
    if lost > 0 {
        say::note!(
            "run {}: telemetry was lost in {lost} periods; their requests are simulated at the time when they were reported",
            live.id
        );
    }
    let meta = &live.meta;
    let scenario = &mut setting.scenario;
    scenario.service.period_s = meta.period.get();
    if let Some(slo) = meta.slo {
        scenario.service.percentile = slo.percentile;
        scenario.service.target_ms = slo.target.as_millis();
    }
    scenario.duration_s = Some((last.at + last.duration).get());
    scenario.arrivals = ArrivalProcess::Times {
        at_s: recorded_arrivals(periods, meta.seed),
    };
    setting.checked()
}

fn write_page(archive: &Archive, pairs: &[(RunId, RunId)], out: &Path) -> Result<(), Failure> {
    let html = validation_html(archive, pairs, &REMARKS.map(str::to_owned))?;
    file::write(out, &html)
}

/// A pair as a table for the terminal.
fn table(validation: &Validation) -> String {
    let grid = Grid {
        caption: format!(
            "{} on {}, {:.0} s",
            validation.live.law,
            validation.live.trace,
            validation.live.duration_s.get()
        ),
        header: ["", "unit", "live", "simulated", "apart"]
            .map(str::to_owned)
            .to_vec(),
        rows: validation
            .sides
            .iter()
            .map(|side| std::iter::once(side.name.clone()).chain(side.cells()).collect())
            .collect(),
        words: vec![0, 1],
    };
    let period = validation.live.duration_s / validation.live.periods.max(1) as f64;
    let notes: String = validation
        .live
        .notes
        .iter()
        .map(|note| format!("  live: {note}\n"))
        .chain(
            validation
                .faults
                .iter()
                .map(|fault| format!("  disturbed: {fault}\n")),
        )
        .collect();
    format!(
        "{}  {}\n{notes}\n",
        Table(&grid),
        validation.by_period.text(period)
    )
}
