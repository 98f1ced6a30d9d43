//! `headroom load`: the load generator alone.

use crate::cli::{LoadArgs, Spacing};
use crate::commands::trace;
use crate::failure::Failure;
use crate::say;
use crate::stop::Stop;
use anyhow::{Context, anyhow};
use headroom_load::http::{LoadConfig, LoadHandle, LoadResult, Pacing, Paths, UserLoad};
use headroom_units::{PerSecond, Seconds};
use headroom_workload::access_log::Replay;
use headroom_workload::users::{FileSet, FileSetConfig, Model, Site, UserCurve};
use headroom_workload::{Arrivals, Trace};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections at most where nothing else is said and there are no users.
const CONNECTIONS: usize = 1024;

/// Files of a site that is written without saying how many.
const FILES: usize = 2000;

/// Offers the load until it ends or a signal comes, with a line of progress a second.
///
/// # Errors
/// A trace, a curve, a log, a URL or a setting that makes no sense; a generator that broke.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.write_files {
        return write_files(args, folder);
    }
    let url = args
        .url
        .as_deref()
        .ok_or_else(|| Failure::Usage(anyhow!("give --url")))?;
    let offer = offer(args)?;
    let stop = Stop::at_signals()?;
    let config = LoadConfig {
        paths: match &args.paths {
            None => Paths::Url,
            Some(file) => Paths::Uniform(read_paths(file)?),
        },
        max_connections: args.connections.unwrap_or(offer.connections),
        keep_alive: !args.new_connections,
        timeout: Seconds::from_millis(args.timeout_ms),
        seed: args.seed,
        ..LoadConfig::new(url, offer.pacing)
    };
    let mut load = headroom_load::http::start(config).map_err(Failure::usage)?;
    say::note!("{} in {:.0} s to {url}", offer.what, offer.length.get());
    progress(&mut load, &stop, offer.length, args.users.is_some());
    let result = load.join()?;
    if args.json {
        say::result(serde_json::to_string(&result)?)
    } else {
        say::result(table(&result, args.users.is_some()))
    }
}

/// What is to be sent.
struct Offer {
    pacing: Pacing,
    /// In words.
    what: String,
    length: Seconds,
    /// Connections at most where nothing else is said.
    connections: usize,
}

fn offer(args: &LoadArgs) -> Result<Offer, Failure> {
    if args.files.is_some() && args.users.is_none() {
        return Err(Failure::Usage(anyhow!(
            "--files is for --users and --write-files"
        )));
    }
    if let Some(curve) = &args.users {
        return users(args, curve);
    }
    if let Some(file) = &args.replay {
        let log = trace::read_log(file)?;
        let mut replay =
            Replay::new(log, args.speed, spacing(args.arrivals), args.seed).map_err(Failure::usage)?;
        if let Some(seconds) = args.duration {
            replay.cut(Seconds::new(seconds));
        }
        return Ok(Offer {
            what: format!("at most {} requests", replay.requests()),
            length: replay.duration(),
            pacing: Pacing::Replay(Box::new(replay)),
            connections: CONNECTIONS,
        });
    }
    let name = args.trace.as_deref().unwrap_or_default();
    let trace = shaped(args, name)?;
    Ok(Offer {
        what: format!("{:.0} requests", trace.requests()),
        length: trace.duration(),
        pacing: Pacing::open(Arrivals::new(trace, spacing(args.arrivals), args.seed)),
        connections: CONNECTIONS,
    })
}

fn users(args: &LoadArgs, curve: &str) -> Result<Offer, Failure> {
    let curve = UserCurve::parse(curve).map_err(Failure::usage)?;
    let length = match (args.duration.map(Seconds::new), curve.duration()) {
        // After a ramp its last users stay; after the others there is nobody.
        (Some(asked), Some(whole)) if !matches!(curve, UserCurve::Ramp { .. }) => asked.min(whole),
        (Some(length), _) | (None, Some(length)) => length,
        (None, None) => {
            return Err(Failure::Usage(anyhow!(
                "these users never end; give --duration, as --duration 10m"
            )));
        }
    };
    let peak = curve.peak();
    let site = match args.files {
        Some(_) => Site::of(Arc::new(file_set(args)?), args.seed),
        None => Site::Unknown,
    };
    Ok(Offer {
        what: format!("up to {peak:.0} users"),
        length,
        pacing: Pacing::users(UserLoad {
            curve,
            duration: length,
            model: Model::default(),
            site,
        }),
        connections: (peak.ceil() as usize).max(1),
    })
}

fn file_set(args: &LoadArgs) -> Result<FileSet, Failure> {
    FileSet::generate(&FileSetConfig {
        files: args.files.unwrap_or(FILES),
        size_scale: args.size_scale,
        seed: args.seed,
        ..FileSetConfig::default()
    })
    .map_err(Failure::usage)
}

fn write_files(args: &LoadArgs, folder: &Path) -> Result<(), Failure> {
    let files = file_set(args)?;
    files.write(folder).map_err(Failure::usage)?;
    say::result(format!(
        "{} files, {:.1} MB in {}; browse them with --users CURVE --files {} --seed {}{}",
        files.len(),
        files.bytes() as f64 / 1e6,
        folder.display(),
        files.len(),
        args.seed,
        if args.size_scale == 1.0 {
            String::new()
        } else {
            format!(" --size-scale {}", args.size_scale)
        },
    ))
}

/// How requests are spaced.
pub const fn spacing(spacing: Spacing) -> headroom_workload::Spacing {
    match spacing {
        Spacing::Poisson => headroom_workload::Spacing::Poisson,
        Spacing::Even => headroom_workload::Spacing::Even,
    }
}

/// Paths from a file of one a line.
fn read_paths(file: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: the paths cannot be read", file.display()))
        .map_err(Failure::Usage)?;
    Ok(text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect())
}

fn shaped(args: &LoadArgs, name: &str) -> Result<Trace, Failure> {
    let trace = trace::named(name, Seconds::new(args.step), args.seed)?;
    let shape = || {
        let trace = match args.compress {
            Some(seconds) => trace.compressed_to(Seconds::new(seconds))?,
            None => trace,
        };
        let trace = match (args.scale, args.peak, args.mean) {
            (Some(factor), ..) => trace.scaled(factor)?,
            (_, Some(peak), _) => trace.scaled_to_peak(PerSecond::new(peak))?,
            (.., Some(mean)) => trace.scaled_to_mean(PerSecond::new(mean))?,
            _ => trace,
        };
        match args.duration {
            Some(seconds) if seconds < trace.duration().get() => {
                trace.slice(Seconds::ZERO, Seconds::new(seconds))
            }
            _ => Ok(trace),
        }
    };
    shape().map_err(Failure::usage)
}

fn progress(load: &mut LoadHandle, stop: &Stop, length: Seconds, has_users: bool) {
    let begin = Instant::now();
    let mut next = begin;
    loop {
        next += Duration::from_secs(1);
        if stop.wait_until(next) {
            load.stop();
            return;
        }
        let Ok(period) = load.take_period() else { return };
        let at = |percentile| period.latency.value_at_percentile(percentile) as f64 / 1e3;
        let seconds = period.duration.get().max(1e-9);
        let people = if has_users {
            let pages = period.counts.pages_completed as f64 / seconds;
            format!("  {:>5} users  {pages:>6.1} pages/s", period.users)
        } else {
            String::new()
        };
        say::note!(
            "{:>6.0} of {:.0} s{people}  {:>7.0} requests/s  P50 {:.1} ms  P95 {:.1} ms  failed {}  outstanding {}  \
             connects retried {}",
            begin.elapsed().as_secs_f64(),
            length.get(),
            period.counts.offered as f64 / seconds,
            at(50.0),
            at(95.0),
            period.counts.failed.total(),
            period.outstanding,
            period.counts.connects_retried,
        );
        if load.is_finished() {
            return;
        }
    }
}

/// The result for people.
fn table(result: &LoadResult, has_users: bool) -> String {
    let counts = &result.counts;
    let failed = &counts.failed;
    let latency = &result.latency_ms;
    let connect = &result.connect_ms;
    let users = if has_users {
        format!(
            "users       {:.1} on average\n\
             pages       {} begun, {} completed ({:.1}/s), {} failed\n",
            result.users_mean,
            counts.pages_begun,
            counts.pages_completed,
            result.pages_per_second.get(),
            counts.pages_failed,
        )
    } else {
        String::new()
    };
    let why = match &result.connect_error {
        Some(error) => format!(" (the first: {error})"),
        None => String::new(),
    };
    let no_port = match counts.no_local_port {
        0 => String::new(),
        count => format!(
            "; {count} failed because this machine has no free port left: lower the rate or widen \
             net.ipv4.ip_local_port_range"
        ),
    };
    format!(
        "{users}requests    {} offered, {} completed ({:.1}/s), {} failed\n\
         failures    {} connect{why}, {} timeout, {} status >= 500, {} protocol, {} dropped (no room to wait)\n\
         latency     from the intended send time: mean {:.2} ms, P50 {:.2}, P95 {:.2}, P99 {:.2}, P99.9 {:.2}, \
         max {:.2}\n\
         connects    {} opened: P50 {:.2} ms, P99 {:.2}, max {:.2}; {} took 0.99 s or more (a SYN sent again), {} given \
         up{no_port}\n\
         send error  P50 {:.0} us, P99 {:.0} us, max {:.0} us\n\
         generator   {:.2} s of CPU in {:.1} s",
        counts.offered,
        counts.completed,
        result.completed_per_second.get(),
        result.failed_total,
        failed.connect,
        failed.timeout,
        failed.status,
        failed.protocol,
        failed.dropped,
        latency.mean,
        latency.p50,
        latency.p95,
        latency.p99,
        latency.p999,
        latency.max,
        counts.connections,
        connect.p50,
        connect.p99,
        connect.max,
        counts.connects_retried,
        counts.connects_given_up,
        result.send_error_us.p50,
        result.send_error_us.p99,
        result.send_error_us.max,
        result.generator_cpu_s.get(),
        result.duration_s.get(),
    )
}
