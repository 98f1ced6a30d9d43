//! `headroom trace`, and how the other commands name a trace.

use anyhow::anyhow;
use clap::Args;
use headroom_console::Failure;
use headroom_console::args::seconds;
use headroom_console::say;
use headroom_units::Seconds;
use headroom_workload::Trace;
use headroom_workload::access_log::AccessLog;
use headroom_workload::generate::{
    ClarknetLike, Diurnal, FlatWithSpikes, clarknet_like, diurnal, flat_with_spikes,
};
use headroom_workload::users::UserCurve;
use std::io::{self, Write};
use std::path::Path;
use std::path::PathBuf;

/// What the help of `headroom trace` teaches by example.
const TRACE_EXAMPLES: &str = "\
Examples:
  headroom trace wikipedia --length 7 > week.txt
  headroom trace clarknet-like > two-weeks.txt
  headroom trace sinusoid:mean=100,amplitude=80,period=10m --duration 30m > wave.txt
  headroom trace ramp:from=10,to=300,over=5m --bin 1s > ramp.txt
  headroom trace --from-log access.log --bin 60s > measured.txt";

/// `headroom trace`.
#[derive(Debug, Args)]
#[command(after_long_help = TRACE_EXAMPLES)]
pub struct TraceArgs {
    /// What the trace is like: `wikipedia` (days with an evening peak), `azure` (flat with rare spikes), `clarknet-like`
    /// (a web site's days, with noon and evening peaks and weekends), or a curve as `headroom load --users` takes it,
    /// in requests per second.
    #[arg(value_name = "LIKE", required_unless_present = "from_log")]
    pub like: Option<String>,
    /// Count the requests of this access log (common or combined log format) instead.
    #[arg(long, value_name = "FILE", conflicts_with = "like")]
    pub from_log: Option<PathBuf>,
    /// Days of 24 values (wikipedia, by default 1), hours of 60 values (azure, 1), or days of 144 values (clarknet-like,
    /// 14).
    #[arg(long, value_name = "N", conflicts_with_all = ["from_log", "duration"])]
    pub length: Option<usize>,
    /// The time that each value of a curve or of a log stands for.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = seconds)]
    pub bin: f64,
    /// How much of a curve; needed where it has no end.
    #[arg(long, value_name = "TIME", value_parser = seconds, conflicts_with = "from_log")]
    pub duration: Option<f64>,
    /// Seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Writes a trace to standard output: a generated one, a curve, or an access log's.
///
/// # Errors
/// A length of nothing, what is no trace, a log that cannot be read; standard output that cannot be written.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    let trace = match (&args.from_log, &args.like) {
        (Some(file), _) => read_log(file)?
            .trace(Seconds::new(args.bin))
            .map_err(Failure::usage)?,
        (None, like) => generated(like.as_deref().unwrap_or_default(), args)?,
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut rates = trace.rates().iter();
    let lines = rates.try_for_each(|rate| writeln!(out, "{:.3}", rate.get()));
    say::written(lines.and_then(|()| out.flush()))
}

fn generated(like: &str, args: &TraceArgs) -> Result<Trace, Failure> {
    let trace = match like {
        "wikipedia" => wikipedia(args.length.unwrap_or(1), args.seed),
        "azure" => azure(args.length.unwrap_or(1), args.seed),
        "clarknet-like" => clarknet(args.length.unwrap_or(14), args.seed),
        curve if curve.contains(':') => {
            let curve = UserCurve::parse(curve).map_err(Failure::usage)?;
            if args.length.is_some() {
                return Err(Failure::Usage(anyhow!(
                    "--length is for the named traces; give a curve's --duration"
                )));
            }
            let duration = args.duration.map(Seconds::new).or(curve.duration());
            let duration =
                duration.ok_or_else(|| Failure::Usage(anyhow!("this curve has no end; give --duration")))?;
            return curve
                .trace(duration, Seconds::new(args.bin))
                .map_err(Failure::usage);
        }
        other => {
            return Err(Failure::Usage(anyhow!(
                "`{}` is no trace: write wikipedia, azure, clarknet-like, or a curve such as \
                 sinusoid:mean=100,amplitude=80,period=10m",
                other.escape_debug()
            )));
        }
    };
    trace.map_err(Failure::usage)
}

/// An access log; what is odd about it is said.
///
/// # Errors
/// A log that cannot be read, or without any request in it.
pub fn read_log(file: &Path) -> Result<AccessLog, Failure> {
    let log = AccessLog::from_file(file).map_err(Failure::usage)?;
    let shown = file.display();
    for bad in &log.shown {
        say::note!("{shown}:{}: skipped: {}", bad.line, bad.problem);
    }
    say::note!(
        "{shown}: {} requests in {:.0} s, {} paths; {} bad lines skipped, {} behind one of a later second (sorted)",
        log.requests.len(),
        log.duration().get(),
        log.paths.len(),
        log.bad,
        log.out_of_order,
    );
    Ok(log)
}

/// Whether a trace is one of those that have a name of their own; any other is a file.
pub fn is_named(name: &str) -> bool {
    NAMED.contains(&name)
}

/// The traces that have a name of their own.
const NAMED: [&str; 3] = ["wikipedia", "azure", "clarknet-like"];

/// The trace that a name (`wikipedia`: one day, `azure`: 24 hours, `clarknet-like`: two weeks) or a file stands for; each
/// value held `step`.
///
/// # Errors
/// A file that cannot be read or holds something other than rates, with its line.
pub fn named(name: &str, step: Seconds, seed: u64) -> Result<Trace, Failure> {
    let trace = match name {
        "wikipedia" => wikipedia(1, seed),
        "azure" => azure(24, seed),
        "clarknet-like" => clarknet(14, seed),
        other if !Path::new(other).exists() => {
            return Err(Failure::usage(anyhow!(
                "{:?} is neither a built-in trace ({}) nor a file that is there: name one of these, or a file with one rate \
                 (requests/s) a line",
                other,
                NAMED.join(", ")
            )));
        }
        file => return Trace::from_file(Path::new(file), step).map_err(Failure::usage),
    };
    trace
        .and_then(|trace| trace.with_step(step))
        .map_err(Failure::usage)
}

/// The same, and before it the trace of so many days, where one is made of them: the trace of today and what is on record.
///
/// # Errors
/// As [`named`].
pub fn with_days_before(
    name: &str,
    step: Seconds,
    seed: u64,
    days: usize,
) -> Result<(Option<Trace>, Trace), Failure> {
    if name != "wikipedia" {
        return Ok((None, named(name, step, seed)?));
    }
    let all = wikipedia(days + 1, seed).and_then(|trace| trace.with_step(step));
    let all = all.map_err(Failure::usage)?;
    let (today, ends) = (all.duration() * (days as f64 / (days + 1) as f64), all.duration());
    let before = all.clone().slice(Seconds::ZERO, today).map_err(Failure::usage)?;
    Ok((Some(before), all.slice(today, ends).map_err(Failure::usage)?))
}

fn wikipedia(days: usize, seed: u64) -> Result<Trace, headroom_workload::TraceError> {
    Ok(diurnal(&Diurnal {
        days,
        seed,
        ..Diurnal::default()
    })?
    .named("wikipedia-like"))
}

fn azure(hours: usize, seed: u64) -> Result<Trace, headroom_workload::TraceError> {
    let values = hours.saturating_mul(60);
    Ok(flat_with_spikes(&FlatWithSpikes {
        values,
        seed,
        ..FlatWithSpikes::default()
    })?
    .named("azure-like"))
}

fn clarknet(days: usize, seed: u64) -> Result<Trace, headroom_workload::TraceError> {
    clarknet_like(&ClarknetLike {
        days,
        seed,
        ..ClarknetLike::default()
    })
}
