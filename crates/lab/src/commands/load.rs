//! `headroom load`: the load generator alone.

mod memcached;
mod offered;
mod probe;
mod shown;
mod verdict;

use crate::args::{SiteArgs, Spacing};
use crate::commands::trace;
use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::args::{seconds, seconds_or_none};
use headroom_console::{fold, say, terminal};
use headroom_load::http::{LoadConfig, Pacing, Paths, People, UserLoad};
use headroom_load::{Bursts, Judged, Threshold};
use headroom_units::{PerSecond, Ratio, Seconds};
use headroom_workload::access_log::Replay;
use headroom_workload::auction::{self, Behaviour, Mix};
use headroom_workload::users::{FileSet, FileSetConfig, Model, Site, UserCurve};
use headroom_workload::{Arrivals, Trace};
use shown::{progress, table};
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

/// What the help of `headroom load` teaches by example.
const EXAMPLES: &str = "\
What is sent is one of:
  --trace    Open loop: requests come at the trace's rate, whatever the service does. For latency.
  --users    Closed loop: users who fetch a page, then the objects embedded in it, then think (the
             SURGE model). For capacity: the number of users is what overloads a service. On a
             server that answers at once, two users make about one request a second.
             With --auction MIX they are visitors of `headroom service auction`: sessions of pages,
             a think time of 7 s before each, as RUBiS has them. Each answer is checked to be the
             page that was asked for.
  --replay   Open loop: an access log's GET and HEAD requests, at the log's own times.
  --closed   Closed loop of so many connections, each of which asks again as soon as it is answered,
             for --duration. For the most that a server can do. With --density 0.75 each connection
             sends for 75 % of each --window (5 s), waits for its last answer and sleeps for the rest.

To memcached://HOST:PORT go, with --trace or --closed, a `get` of a random key, or a `set` for the
share --sets of requests. Every key (--keys) is first stored with a value of --value-bytes, under a
name that begins with `headroom-load:`, and expires after a day. An answer with a value of another
size is a failure, as it is for HTTP with --expect-bytes.

Curves of users (times in ms, s, m, h or d):
  100                                         always 100 users
  ramp:from=0,to=300,over=5m                  a straight line: where does the service give in?
  sinusoid:mean=100,amplitude=80,period=10m   overload and recovery (start=2m begins later in it)
  steps:10/1m,200/30s,10/2m                   each number for its time: a flash crowd
  daily:mean=100,day=20m,days=2,seed=1        days like those of the ClarkNet web server
  trace:file=users.txt,step=10s               one number of users a line

Examples:
  headroom load --url http://127.0.0.1:8081/ --trace wikipedia --peak 200 --compress 300
  headroom load --url http://127.0.0.1/ --users ramp:to=800,over=5m --new-connections
  headroom load --write-files /var/www/html/site --files 2000
  headroom load --url http://127.0.0.1/site/ --files 2000 --users 300 --duration 30m
  headroom load --url http://127.0.0.1:8082/ --auction bidding --users steps:650/30s,1600/30s,800/30s
  headroom load --url http://127.0.0.1/ --replay access.log --speed 10 --new-connections
  headroom load --url http://127.0.0.1/10k --expect-bytes 10240 --closed 100 --density 0.5 --duration 1m
  headroom load --url memcached://127.0.0.1:11211 --value-bytes 1024 --closed 100 --duration 30s
  headroom load --url memcached://127.0.0.1 --value-bytes 10240 --sets 0.1 --trace wikipedia --peak 5000 --compress 60
  headroom load --url http://127.0.0.1/ --trace wikipedia --peak 200 --compress 60 \\
    --fail-if 'p95>250ms' --fail-if 'failed>1%' --fail-if 'rate<90/s'

A server whose accept queue is full drops the packets that open connections (SYN); the client's
kernel sends them again after 1 s and more. `connects retried` counts those: the service is beyond
its capacity, even if every request is answered in the end. With --new-connections every request
passes through the accept queue.

The generator says where it was itself the limit: a thread that used a whole core or had to wait for
one, requests sent behind schedule, connections, ports or file descriptors exhausted. The figures are
then not the service's alone. It is in the result (`limit`; in JSON `generator_limits`), with what to
do about it.

Exit status:
  0   at least one request was completed, and no --fail-if was true
  1   no request was completed, or all were answered with a status from 400 to 499; or the load broke
  2   what was asked for makes no sense; nothing was sent
  99  a --fail-if was true, or could not be judged (where nothing was completed it is 1 all the same)";

/// Who sends no trace. `requires` does not see it: what is required is in one group with these, of which one is enough.
const NOT_A_TRACE: [&str; 4] = ["users", "replay", "write_files", "closed"];

/// What is no closed loop, likewise.
const NOT_CLOSED: [&str; 4] = ["trace", "users", "replay", "write_files"];

/// `headroom load`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, group = ArgGroup::new("what").required(true))]
pub struct LoadArgs {
    /// The trace: `wikipedia`, `azure`, `clarknet-like` (generated from --seed), or a file with one rate (requests/s) a
    /// line.
    #[arg(long, value_name = "NAME|FILE", group = "what")]
    pub trace: Option<String>,
    /// Emulate users; their number over time: 100, ramp:to=300,over=5m, sinusoid:mean=100,amplitude=80,period=10m, ...
    /// (`--help` lists them).
    #[arg(long, value_name = "CURVE", group = "what")]
    pub users: Option<String>,
    /// Send the GET and HEAD requests of this access log (common or combined log format) again.
    #[arg(long, value_name = "FILE", group = "what")]
    pub replay: Option<PathBuf>,
    /// Closed loop of this many connections, each of which sends its next request when the last is answered; for --duration.
    #[arg(long, value_name = "N", group = "what", requires = "duration")]
    pub closed: Option<usize>,
    /// With --closed: the share of each window in which a connection sends; then it waits for its last answer and sleeps
    /// for the rest of the share.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", requires = "closed", conflicts_with_all = NOT_CLOSED)]
    pub density: f64,
    /// With --density: how long a window is (500ms, 1m); 5s by default.
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "closed", conflicts_with_all = NOT_CLOSED)]
    pub window: Option<f64>,
    /// With --density: begin the windows of all connections on one grid of --window from the start, however long answers
    /// take. Otherwise a connection's window ends with its last answer and its sleep.
    #[arg(long, requires = "closed", conflicts_with_all = NOT_CLOSED)]
    pub grid: bool,
    /// Send nothing; write the files of a SURGE site into this folder, to be served and then browsed with --users and the
    /// same --files, --size-scale and --seed.
    #[arg(long, value_name = "DIR", group = "what")]
    pub write_files: Option<PathBuf>,
    /// Where to send the requests: http://HOST:PORT/PATH, or memcached://HOST:PORT.
    #[arg(long, value_name = "URL", required_unless_present = "write_files")]
    pub url: Option<String>,
    /// Paths to ask for, one a line, chosen at random; by default the URL's own.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "files"])]
    pub paths: Option<PathBuf>,
    /// How long each value of the trace is held, in seconds.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub step: f64,
    /// Squeeze (or stretch) the whole trace into this many seconds.
    #[arg(long, value_name = "SECONDS", conflicts_with = "step", requires = "trace", conflicts_with_all = NOT_A_TRACE)]
    pub compress: Option<f64>,
    /// Multiply every rate by this.
    #[arg(long, value_name = "FACTOR", conflicts_with_all = ["peak", "mean"], requires = "trace", conflicts_with_all = NOT_A_TRACE)]
    pub scale: Option<f64>,
    /// Scale the trace so that its highest rate is this, in requests/s.
    #[arg(long, value_name = "RATE", conflicts_with = "mean", requires = "trace", conflicts_with_all = NOT_A_TRACE)]
    pub peak: Option<f64>,
    /// Scale the trace so that its mean rate is this, in requests/s.
    #[arg(long, value_name = "RATE", requires = "trace", conflicts_with_all = NOT_A_TRACE)]
    pub mean: Option<f64>,
    /// Stop sending after this time (90, 90s, 10m, 1h), whatever is left, and end with the last answer, at most --grace later.
    /// Users whose number has no end need it.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub duration: Option<f64>,
    /// How requests are spaced: over the trace's time, or within each second of a replayed log.
    #[arg(long, value_enum, default_value_t = Spacing::Poisson)]
    pub arrivals: Spacing,
    /// Replay the log this many times as fast.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", requires = "replay", conflicts_with_all = ["trace", "users", "write_files"])]
    pub speed: f64,
    /// The site that users browse has this many files (2,000 where --write-files writes them): documents as popular and
    /// as large as SURGE says, below the URL. Without it, every object of a page is --paths' or the URL's.
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,
    /// Multiply the sizes of the site's files by this.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub size_scale: f64,
    /// With --users: they visit the auction site of `headroom service auction`, and this is what they come for: `browsing`
    /// (reads only), `bidding` (15 % of the pages write) or `selling`.
    #[arg(long, value_name = "MIX", requires = "users", conflicts_with_all = ["files", "paths", "trace", "replay", "write_files"])]
    pub auction: Option<Mix>,
    /// Mean think time of the auction's visitors, in seconds (negative exponential, at most ten times the mean).
    #[arg(long, default_value_t = 7.0, value_name = "SECONDS", requires = "auction")]
    pub think: f64,
    /// The auction site's figures, the same as the service's.
    #[command(flatten, next_help_heading = "The auction site")]
    pub site: SiteArgs,
    /// Of memcached: bytes of each value.
    #[arg(long, value_name = "BYTES")]
    pub value_bytes: Option<usize>,
    /// Of memcached: how many keys there are, each equally likely. By default 10,000, or as many as hold 16 MiB if those are
    /// fewer.
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// Of memcached: the share of requests that store a value; the others get one.
    #[arg(long, value_name = "SHARE")]
    pub sets: Option<f64>,
    /// Of HTTP: how many bytes the body of each answer must have; another size is a failure.
    #[arg(long, value_name = "BYTES")]
    pub expect_bytes: Option<u64>,
    /// Threads that share the load, where one has not the CPU time for it: see `generator` in the result.
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with_all = ["users", "replay"])]
    pub threads: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Connections at most: 1,024 by default (of memcached 64, all opened at the start), or one for each user.
    #[arg(long, value_name = "N", conflicts_with = "closed")]
    pub connections: Option<usize>,
    /// Open a new connection for every request, so that the server's accept queue sees each one. The result says how
    /// long connecting took and how many connects needed TCP's retry (1 s and more): a full accept queue shows there.
    #[arg(long)]
    pub new_connections: bool,
    /// Time that a request may take, in milliseconds.
    #[arg(long, default_value_t = 10_000.0, value_name = "MS")]
    pub timeout_ms: f64,
    /// How long after the end (--duration, or the trace's) answers are still waited for (0, 500ms, 5s). Then what is outstanding has
    /// failed: it is counted as unanswered, and its time until then in the latency.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = seconds_or_none)]
    pub grace: f64,
    /// Exit with 99 where this is true of the result; may be repeated. A percentile of the latency from the intended send time
    /// (p50, p90, p95, p99, p99.9), mean or max and a time, as 'p95>250ms'; the share of requests that failed, as 'failed>1%';
    /// or the rate of completed requests, as 'rate<100/s'; with >, >=, < or <=. Each is judged and shown (in JSON under
    /// `thresholds`); one without a figure, for nothing was completed, has failed.
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<Threshold>,
    /// Print the result as JSON on standard output, and nothing else there. Its first key, `offered_load`, has all that repeats the load: the
    /// command, each parameter, the seed, and of each file that it was made of the name, the bytes and the SHA-256, with the contents where
    /// that is text of at most 64 KiB. `headroom report RUN --load FILE` shows it, and what the clients saw, beside the run that served it.
    #[arg(long)]
    pub json: bool,
}

/// Connections at most where nothing else is said and there are no users.
const CONNECTIONS: usize = 1024;

/// A window's length where nothing else is said, seconds.
const WINDOW_S: f64 = 5.0;

/// Files of a site that is written without saying how many.
const FILES: usize = 2000;

/// Offers the load until it ends or a signal comes, with a line of progress a second.
///
/// # Errors
/// A trace, a curve, a log, a URL or a setting that makes no sense; a generator that broke; a load of which all failed; a result
/// that `--fail-if` names.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.write_files {
        return write_files(args, folder);
    }
    let url = args
        .url
        .as_deref()
        .ok_or_else(|| Failure::Usage(anyhow!("give --url")))?;
    let of_memcached = memcached::is_memcached(url);
    memcached::check(args, of_memcached)?;
    let offer = offer(args)?;
    if args.auction.is_some() {
        probe::is_auction(url)?;
    }
    let stop = Stop::at_signals()?;
    let offered = offered::load(args, &offer)?;
    let mut load = if of_memcached {
        say::note!("storing the values first");
        memcached::start(args, url, offer.pacing)?
    } else {
        let config = LoadConfig {
            paths: match &args.paths {
                None => Paths::Url,
                Some(file) => Paths::Uniform(read_paths(file)?),
            },
            max_connections: args.connections.unwrap_or(offer.connections),
            keep_alive: !args.new_connections,
            timeout: Seconds::from_millis(args.timeout_ms),
            grace: Seconds::new(args.grace),
            seed: args.seed,
            expect_bytes: args.expect_bytes,
            threads: args.threads,
            ..LoadConfig::new(url, offer.pacing)
        };
        headroom_load::http::start(config).map_err(Failure::usage)?
    };
    say::note!("{} in {:.0} s to {url}", offer.what, offer.length.get());
    progress(&mut load, &stop, offer.length, args.users.is_some());
    let result = load.join()?;
    let judged: Vec<Judged> = args.fail_if.iter().map(|one| one.judge(&result)).collect();
    if args.json {
        say::result(serde_json::to_string(&offered::Told {
            offered_load: &offered,
            result: &result,
            thresholds: &judged,
        })?)?;
        if let Some(limits) = verdict::limits(&result) {
            say::note!("{limits}");
        }
    } else {
        let table = table(&result, &judged, args.users.is_some());
        say::result(match terminal::columns() {
            Some(columns) => fold::report(&table, columns, shown::NAME),
            None => table,
        })?;
    }
    verdict::verdict(&result, &judged)
}

/// What is to be sent.
struct Offer {
    pacing: Pacing,
    /// In words.
    what: String,
    length: Seconds,
    /// Connections at most where nothing else is said.
    connections: usize,
    /// What is sent and when, apart from what the arguments say: the same bytes are the same load.
    contents: Vec<u8>,
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
            Replay::new(log, args.speed, args.arrivals.into(), args.seed).map_err(Failure::usage)?;
        if let Some(seconds) = args.duration {
            replay.cut(Seconds::new(seconds));
        }
        return Ok(Offer {
            what: format!("at most {} requests", replay.requests()),
            length: replay.duration(),
            pacing: Pacing::Replay(Box::new(replay)),
            connections: CONNECTIONS,
            contents: std::fs::read(file).map_err(Failure::usage)?,
        });
    }
    if let Some(connections) = args.closed {
        return closed(args, connections);
    }
    let name = args.trace.as_deref().unwrap_or_default();
    let trace = shaped(args, name)?;
    let contents = trace.to_string().into_bytes();
    let arrivals = Arrivals::new(trace, args.arrivals.into(), args.seed);
    let arrivals = match args.duration {
        Some(seconds) => arrivals.ending_at(Seconds::new(seconds)),
        None => arrivals,
    };
    Ok(Offer {
        what: format!("{:.0} requests", arrivals.expected()),
        length: arrivals.duration(),
        pacing: Pacing::open(arrivals),
        connections: CONNECTIONS,
        contents,
    })
}

/// How long a window of a closed loop is.
fn window(args: &LoadArgs) -> Seconds {
    Seconds::new(args.window.unwrap_or(WINDOW_S))
}

fn closed(args: &LoadArgs, connections: usize) -> Result<Offer, Failure> {
    let length = args.duration.map(Seconds::new).ok_or_else(|| {
        Failure::Usage(anyhow!(
            "a closed loop never ends; give --duration, as --duration 30s"
        ))
    })?;
    if args.density >= 1.0
        && let Some(option) = [("--window", args.window.is_some()), ("--grid", args.grid)]
            .into_iter()
            .find_map(|(option, given)| given.then_some(option))
    {
        return Err(Failure::Usage(anyhow!(
            "{option} is of a --density below 1: connections that never pause have no windows. Give one, as --density 0.5, or leave {option} out"
        )));
    }
    let window = window(args);
    let bursts = Bursts {
        connections,
        window,
        density: Ratio::new(args.density),
        duration: length,
        grid: args.grid,
    };
    Ok(Offer {
        what: match args.density {
            1.0 => format!("a closed loop of {connections} connections"),
            density => format!(
                "a closed loop of {connections} connections at a density of {density} in windows of {} s",
                window.get()
            ),
        },
        length,
        contents: format!("{bursts:?}").into_bytes(),
        pacing: Pacing::Bursts(bursts),
        connections,
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
    let people = match (args.auction, args.files) {
        (Some(mix), _) => {
            if !(0.0..=3_600.0).contains(&args.think) {
                return Err(Failure::Usage(anyhow!(
                    "--think {}: give from 0 to 3,600 seconds",
                    args.think
                )));
            }
            People::Auction {
                behaviour: Behaviour::thinking(mix, Seconds::new(args.think)),
                site: Box::new(auction::Site::new(args.site.config()?).map_err(Failure::usage)?),
            }
        }
        (None, files) => People::Surge {
            model: Model::default(),
            site: match files {
                Some(_) => Site::of(Arc::new(file_set(args)?), args.seed),
                None => Site::Unknown,
            },
        },
    };
    Ok(Offer {
        what: format!("up to {peak:.0} users"),
        length,
        contents: format!("{curve:?}").into_bytes(),
        pacing: Pacing::users(UserLoad {
            curve,
            duration: length,
            people,
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

/// Paths from a file of one a line.
fn read_paths(file: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(file)
        .with_context(|| {
            format!(
                "--paths {}: cannot be read: give a file with one path a line, as /index.html",
                file.display()
            )
        })
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
        match (args.scale, args.peak, args.mean) {
            (Some(factor), ..) => trace.scaled(factor),
            (_, Some(peak), _) => trace.scaled_to_peak(PerSecond::new(peak)),
            (.., Some(mean)) => trace.scaled_to_mean(PerSecond::new(mean)),
            _ => Ok(trace),
        }
    };
    shape().map_err(Failure::usage)
}

#[cfg(test)]
mod tests;
