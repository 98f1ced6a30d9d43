//! `headroom sim`: one law in one simulated world.

use super::compare::World;
use crate::args::{WorldArgs, law_names};
use crate::simulate::{Setting, Watched, example, recorded, unrecorded};
use clap::Args;
use headroom_console::Failure;
use headroom_console::file;
use headroom_console::say;
use headroom_control::LawName;
use headroom_record::report::runs_html;
use headroom_record::{Archive, Limits, Recorder, summary_table};
use std::path::PathBuf;
use std::time::Instant;

/// `headroom sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// The world.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The law; by default the scenario's, which is joint where it names none. Its parameters are the scenario's.
    #[arg(long, value_parser = law_names(), value_name = "LAW")]
    pub law: Option<LawName>,
    /// The trace: `wikipedia` or `azure` (900 or 1440 values from the seed), or a file with one rate (requests/s) a
    /// line. By default the scenario's arrivals, and `wikipedia` where it has none.
    #[arg(long, value_name = "NAME|FILE")]
    pub trace: Option<String>,
    /// Instead of --trace: one of the worlds of `headroom compare --worlds`, with its servers, its load, what goes wrong in it
    /// and what is on record before it.
    #[arg(long = "world", value_name = "WORLD", conflicts_with_all = ["trace", "step"])]
    pub named: Option<World>,
    /// Seed of everything random. The same scenario, law, trace and seed give the same run to the bit.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print a scenario that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// The flight recorder's database, for `headroom report` and `headroom runs`.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
    /// The report to write.
    #[arg(long, default_value = "out/sim.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Write neither record nor report.
    #[arg(long)]
    pub no_record: bool,
    /// The name of the run in the record.
    #[arg(long, default_value = "sim", value_name = "NAME")]
    pub name: String,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Runs it, records it, and prints its summary.
///
/// # Errors
/// A scenario or a trace that is none, with its line; a run that does not end; a file that cannot be written.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    if args.example {
        return say::result(example().trim_end());
    }
    let file = Setting::read(args.world.scenario.as_deref())?;
    let (setting, trace) = match &args.named {
        Some(world) => {
            let (setting, _) = world.setting(&file, &args.world, args.seed)?;
            (setting, world.name.to_owned())
        }
        None => file.with_trace(args.trace.as_deref(), &args.world, args.seed)?,
    };
    let run = Watched {
        setting: &setting,
        law: args.law.unwrap_or(setting.law.names.first()),
        trace: &trace,
        seed: args.seed,
        name: &args.name,
    };
    let started = Instant::now();
    let (summary, written) = if args.no_record {
        (unrecorded(&run)?, None)
    } else {
        let recorder = Recorder::open(&args.db, Limits::default()).map_err(Failure::usage)?;
        let summary = recorded(&run, &recorder)?;
        drop(recorder);
        let archive = Archive::open(&args.db)?;
        let ids: Vec<_> = summary.run.into_iter().collect();
        file::write(&args.out, &runs_html(&archive, &ids)?)?;
        (summary, Some(&args.out))
    };
    let took_s = started.elapsed().as_secs_f64();
    say::note!(
        "{} simulated seconds, {} requests, in {took_s:.1} s",
        summary.duration_s.get(),
        summary.requests.offered
    );
    if args.json {
        return say::result(serde_json::to_string(&summary)?);
    }
    let table = summary_table(std::slice::from_ref(&summary));
    match written {
        Some(out) => say::result(format_args!("{table}\nreport: {}", out.display())),
        None => say::result(table.trim_end()),
    }
}
