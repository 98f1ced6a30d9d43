//! `headroom load`: the load generator alone.

use crate::cli::{LoadArgs, Spacing};
use crate::commands::trace;
use crate::failure::Failure;
use crate::say;
use crate::stop::Stop;
use anyhow::Context;
use headroom_load::http::{LoadConfig, LoadHandle, LoadResult, Pacing, Paths};
use headroom_load::{Arrivals, Trace};
use headroom_units::{PerSecond, Seconds};
use std::path::Path;
use std::time::{Duration, Instant};

/// Offers the load until its trace ends or a signal comes, with a line of progress a second.
///
/// # Errors
/// A trace, a URL or a setting that makes no sense; a generator that broke.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let trace = shaped(args)?;
    let stop = Stop::at_signals()?;
    let expected = trace.requests();
    let length = trace.duration();
    let config = LoadConfig {
        paths: match &args.paths {
            None => Paths::Url,
            Some(file) => Paths::Uniform(read_paths(file)?),
        },
        max_connections: args.connections,
        keep_alive: !args.new_connections,
        timeout: Seconds::from_millis(args.timeout_ms),
        seed: args.seed,
        ..LoadConfig::new(
            &args.url,
            Pacing::open(Arrivals::new(trace, spacing(args.arrivals), args.seed)),
        )
    };
    let mut load = headroom_load::http::start(config).map_err(Failure::usage)?;
    say::note!("{expected:.0} requests in {:.0} s to {}", length.get(), args.url);
    progress(&mut load, &stop, length);
    let result = load.join()?;
    if args.json {
        say::result(serde_json::to_string(&result)?)
    } else {
        say::result(table(&result))
    }
}

/// How requests are spaced.
pub const fn spacing(spacing: Spacing) -> headroom_load::Spacing {
    match spacing {
        Spacing::Poisson => headroom_load::Spacing::Poisson,
        Spacing::Even => headroom_load::Spacing::Even,
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

fn shaped(args: &LoadArgs) -> Result<Trace, Failure> {
    let trace = trace::named(&args.trace, Seconds::new(args.step), args.seed)?;
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

fn progress(load: &mut LoadHandle, stop: &Stop, length: Seconds) {
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
        say::note!(
            "{:>6.0} of {:.0} s  {:>7.0} requests/s  P50 {:.1} ms  P95 {:.1} ms  failed {}  outstanding {}  \
             connects retried {}",
            begin.elapsed().as_secs_f64(),
            length.get(),
            period.counts.offered as f64 / period.duration.get().max(1e-9),
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
fn table(result: &LoadResult) -> String {
    let counts = &result.counts;
    let failed = &counts.failed;
    let latency = &result.latency_ms;
    let connect = &result.connect_ms;
    format!(
        "requests    {} offered, {} completed ({:.1}/s), {} failed\n\
         failures    {} connect, {} timeout, {} status >= 500, {} protocol, {} dropped (no room to wait)\n\
         latency     from the intended send time: mean {:.2} ms, P50 {:.2}, P95 {:.2}, P99 {:.2}, P99.9 {:.2}, \
         max {:.2}\n\
         connects    {} opened: P50 {:.2} ms, P99 {:.2}, max {:.2}; {} took 0.99 s or more (a SYN sent again), {} given \
         up{}\n\
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
        match counts.no_local_port {
            0 => String::new(),
            count => format!(
                "; {count} failed because this machine has no free port left: lower the rate or widen \
                 net.ipv4.ip_local_port_range"
            ),
        },
        result.send_error_us.p50,
        result.send_error_us.p99,
        result.send_error_us.max,
        result.generator_cpu_s.get(),
        result.duration_s.get(),
    )
}
