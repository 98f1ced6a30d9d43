//! `headroom sim`: one law in one simulated world.

use super::report::write_html;
use crate::cli::SimArgs;
use crate::simulate::{Setting, Watched, example, recorded, unrecorded};
use headroom_console::Failure;
use headroom_console::say;
use headroom_record::{Archive, Limits, Recorder, summary_table};
use std::time::Instant;

/// Runs it, records it, and prints its summary.
///
/// # Errors
/// A scenario or a trace that is none, with its line; a run that does not end; a file that cannot be written.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    if args.example {
        return say::result(example().trim_end());
    }
    let file = Setting::read(args.world.scenario.as_deref())?;
    let (setting, trace) = file.with_trace(args.trace.as_deref(), &args.world, args.seed)?;
    let run = Watched {
        setting: &setting,
        law: args.law.unwrap_or(setting.law.name),
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
        let info = summary.run.map(|id| archive.run(id)).transpose()?;
        write_html(&archive, &info.into_iter().collect::<Vec<_>>(), &args.out)?;
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
