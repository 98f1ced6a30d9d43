//! `headroom trace`, and how the other commands name a trace.

use crate::cli::{TraceArgs, TraceLike};
use crate::failure::Failure;
use crate::say;
use headroom_load::Trace;
use headroom_load::generate::{Diurnal, FlatWithSpikes, diurnal, flat_with_spikes};
use headroom_units::Seconds;
use std::io::{self, Write};
use std::path::Path;

/// Writes a generated trace to standard output.
///
/// # Errors
/// A length of nothing; standard output that cannot be written.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    let trace = match args.like {
        TraceLike::Wikipedia => wikipedia(args.length, args.seed),
        TraceLike::Azure => azure(args.length, args.seed),
    }
    .map_err(Failure::usage)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut rates = trace.rates().iter();
    let lines = rates.try_for_each(|rate| writeln!(out, "{:.3}", rate.get()));
    say::written(lines.and_then(|()| out.flush()))
}

/// The trace that a name (`wikipedia`: one day, `azure`: 24 hours) or a file stands for; each value held `step`.
///
/// # Errors
/// A file that cannot be read or holds something other than rates, with its line.
pub fn named(name: &str, step: Seconds, seed: u64) -> Result<Trace, Failure> {
    match name {
        "wikipedia" => Ok(wikipedia(1, seed)
            .and_then(|trace| trace.with_step(step))
            .map_err(Failure::usage)?),
        "azure" => Ok(azure(24, seed)
            .and_then(|trace| trace.with_step(step))
            .map_err(Failure::usage)?),
        file => Trace::from_file(Path::new(file), step).map_err(Failure::usage),
    }
}

fn wikipedia(days: usize, seed: u64) -> Result<Trace, headroom_load::TraceError> {
    Ok(diurnal(&Diurnal {
        days,
        seed,
        ..Diurnal::default()
    })?
    .named("wikipedia-like"))
}

fn azure(hours: usize, seed: u64) -> Result<Trace, headroom_load::TraceError> {
    let values = hours.saturating_mul(60);
    Ok(flat_with_spikes(&FlatWithSpikes {
        values,
        seed,
        ..FlatWithSpikes::default()
    })?
    .named("azure-like"))
}
