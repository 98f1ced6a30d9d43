//! `headroom wrap`: a server of the user's with its workers on call, started and stopped with it.

use anyhow::{Context, anyhow};
use clap::Args;
use headroom_console::say;
use headroom_console::{Failure, Stop};
use headroom_oncall::layout::{MAX_CONNECTIONS, MAX_FD};
use headroom_oncall::{LIBRARY, Levers, Steering, Totals, VARIABLE, program};
use headroom_runtime::live::undo;
use headroom_units::Seconds;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long what is commanded holds without us: the server of a `wrap` that was killed serves as without it from then on.
const LEASE: Duration = Duration::from_secs(5);
/// How often the lease is renewed.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a server may take until it has loaded the library, or is said not to have.
const LOADED_WITHIN: Duration = Duration::from_secs(10);

/// `headroom wrap`.
#[derive(Debug, Args)]
#[command(after_help = "\
A server with a thread per connection runs hundreds of threads on a few cores. Wrapped, each sleeps until its client's query is there \
and one of C slots is free; N queries of one connection are answered in a round, and between two rounds there may be a delay in \
which nothing wakes the cores. The server itself is not changed.

  headroom wrap -- mariadbd --user=mysql
  headroom wrap --concurrency 1 --batch 1 -- mariadbd    # shortest tail: every connection in turn
  headroom wrap --delay 2 -- mariadbd                    # at partial load: idle periods of 2 ms, in which cores sleep deeply

Every setting holds for five seconds and is renewed: when this program is killed, the server goes on as without it.")]
pub struct WrapArgs {
    /// C: workers that may run at once. By default two more than the cores that this program may use, since a worker that waits for
    /// its client's next query keeps its slot.
    #[arg(long, value_name = "WORKERS", value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency: Option<u32>,
    /// N: queries of one connection in a round. More keep a connection's data in the caches, fewer shorten the tail.
    #[arg(long, value_name = "QUERIES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batch: u32,
    /// How long a worker that has queries left in the round waits for its client's next one, microseconds; 0 gives its slot up at once.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub linger: u64,
    /// D: from the end of a round to the beginning of the next, milliseconds; 0 is none. Under the break-even of the deepest idle state
    /// (mostly about 1 ms) it costs latency and saves nothing.
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = delay)]
    pub delay: f64,
    /// Say on standard error what is served, every so many seconds; 0 never.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub every: u64,
    /// Where the library and the region that the server shares with this program are. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// The server and its arguments, after `--`.
    #[arg(required = true, last = true, value_name = "SERVER")]
    pub server: Vec<OsString>,
}

fn delay(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=10_000.0).contains(&ms) => Ok(ms),
        _ => Err("write milliseconds from 0 to 10000".to_owned()),
    }
}

impl WrapArgs {
    fn levers(&self, cores: usize) -> Levers {
        let usual = u32::try_from(cores).unwrap_or(u32::MAX).saturating_add(2);
        Levers {
            enabled: true,
            concurrency: self.concurrency.unwrap_or(usual),
            batch: self.batch,
            linger: Duration::from_micros(self.linger),
            delay: Duration::from_secs_f64(self.delay / 1e3),
        }
    }
}

/// The folder of one wrapped server, removed with this value.
struct Folder(PathBuf);

impl Folder {
    /// Whoever the server runs as must be able to read the library.
    fn make(run_dir: &Path) -> anyhow::Result<Self> {
        let path = run_dir.join(format!("oncall-{}", std::process::id()));
        let make = || {
            fs::create_dir_all(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
            fs::write(path.join("libheadroom_oncall.so"), LIBRARY)
        };
        make().with_context(|| {
            format!(
                "{}: the preload library cannot be written there: give --run-dir a folder that can be",
                path.display()
            )
        })?;
        Ok(Self(path))
    }

    fn preload(&self) -> PathBuf {
        self.0.join("libheadroom_oncall.so")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the server until it ends, and ends as it did.
///
/// # Errors
/// A server that cannot be helped or started.
pub fn run(args: &WrapArgs) -> Result<(), Failure> {
    let (program, arguments) = args
        .server
        .split_first()
        .ok_or_else(|| Failure::usage(anyhow!("name a server after --")))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let file = program::find(Path::new(program), &path).map_err(Failure::usage)?;
    program::check(&file).map_err(Failure::usage)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let levers = args.levers(cores);
    if levers.concurrency as usize > 4 * cores {
        say::note!(
            "{} workers at once on {cores} cores: so many are oversubscribed again; two more than the cores are enough for most servers",
            levers.concurrency
        );
    }
    let stop = Stop::at_signals().map_err(|error| Failure::Run(error.into()))?;
    let folder =
        Folder::make(&args.run_dir.clone().unwrap_or_else(undo::default_run_dir)).map_err(Failure::usage)?;
    let steering = Steering::create(&folder.0.join("region")).map_err(Failure::usage)?;
    steering.command(levers, Some(LEASE));
    let mut child = Command::new(&file)
        .args(arguments)
        .env(VARIABLE, steering.path())
        .env("LD_PRELOAD", preloads(&folder.preload()))
        .spawn()
        .with_context(|| format!("{}: it cannot be started", file.display()))?;
    say::note!(
        "{} has its workers on call: at most {} at once, {} queries of a connection in a round",
        file.display(),
        levers.concurrency,
        levers.batch
    );
    let status = watch(&mut child, &steering, levers, args.every, &stop)?;
    say::note!("{}", line(&steering.totals(), None));
    drop(steering);
    drop(folder);
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => std::process::exit(code),
        // As a shell says it.
        (None, signal) => std::process::exit(128 + signal.unwrap_or(0)),
    }
}

/// What is preloaded already comes first.
fn preloads(library: &Path) -> OsString {
    let mut all = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

/// Renews the lease until the server ends; a signal to this program goes to the server.
fn watch(
    child: &mut Child,
    steering: &Steering,
    levers: Levers,
    every: u64,
    stop: &Stop,
) -> Result<ExitStatus, Failure> {
    let started = Instant::now();
    let (mut before, mut reported) = (steering.totals(), started);
    let mut doubts = Doubts::default();
    let mut is_stopping = false;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| Failure::Run(error.into()))? {
            return Ok(status);
        }
        steering.command(levers, Some(LEASE));
        let totals = steering.totals();
        let has_loaded = totals.loaded > 0;
        doubts.raise(&totals, started.elapsed());
        if every > 0 && reported.elapsed() >= Duration::from_secs(every) {
            let rate = totals.since(&before).queries as f64 / reported.elapsed().as_secs_f64();
            say::note!("{}", line(&totals.since(&before), Some(rate)));
            (before, reported) = (totals, Instant::now());
        }
        if stop.is_raised() && !is_stopping {
            is_stopping = true;
            // Its own handler shuts it down, with the workers let go by it.
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let sent = pid.map_or(Ok(()), |pid| kill_process(pid, Signal::TERM));
            sent.map_err(|error| Failure::Run(anyhow!("the server cannot be stopped: {error}")))?;
        }
        match is_stopping {
            // The flag stays up, and would end any wait at once.
            true => std::thread::sleep(Duration::from_millis(50)),
            false => {
                let next = Instant::now() + if has_loaded { PERIOD } else { PERIOD / 20 };
                stop.wait_until(next);
            }
        }
    }
}

/// What may keep a server from being helped, said once each.
#[derive(Debug, Default)]
struct Doubts {
    not_loaded: bool,
    event_driven: bool,
    processes: bool,
    no_room: bool,
}

impl Doubts {
    fn raise(&mut self, totals: &Totals, running_for: Duration) {
        let doubt = |said: &mut bool, is_so: bool, text: &str| {
            if is_so && !std::mem::replace(said, true) {
                say::note!("{text}");
            }
        };
        doubt(
            &mut self.not_loaded,
            totals.loaded == 0 && running_for > LOADED_WITHIN,
            "the server has not loaded the library, and runs as without us: it, or the script that starts it, clears LD_PRELOAD or \
             HEADROOM_ONCALL, or changes to a user that may not read the run folder. Wrap the server itself, and give --run-dir a folder \
             that its user can read",
        );
        doubt(
            &mut self.event_driven,
            totals.event_driven > 0 && totals.queries == 0,
            "the server watches its connections with epoll and serves many with one thread: there is no worker to park, and it runs as \
             without us (httpd: use mpm_worker, not mpm_event)",
        );
        doubt(
            &mut self.processes,
            totals.forks > 0 && totals.queries == 0,
            "the server forks a process for each connection: these are not on call yet, and it runs as without us",
        );
        doubt(
            &mut self.no_room,
            totals.unmanaged > 0,
            &format!(
                "more connections, or higher descriptors, than can be on call at once ({MAX_CONNECTIONS}, and under {MAX_FD}): those beyond \
                 are served as without us"
            ),
        );
    }
}

fn line(totals: &Totals, rate: Option<f64>) -> String {
    let ms = |share: f64| {
        let percentile = totals.percentile(share).map(Seconds::as_millis);
        percentile.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
    };
    let rate = rate.map_or_else(
        || format!("{} queries", totals.queries),
        |rate| format!("{rate:.0} queries/s"),
    );
    format!(
        "{rate}, P50 {} P99 {} P99.9 {} ms from when they were noticed; {} connections, {} running, {} waiting, {} rounds, {} slots \
         given back in the midst of a query",
        ms(0.5),
        ms(0.99),
        ms(0.999),
        totals.connections,
        totals.running,
        totals.waiting,
        totals.rounds,
        totals.given_back + totals.reclaimed
    )
}
