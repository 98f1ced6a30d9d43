//! `headroom wrap`: a server of the user's with its workers on call, started and stopped with it.

mod reload;
mod run;
mod steered;

use crate::config::wrap::{EXAMPLE, LAWS, WrapConfig};
use anyhow::anyhow;
use clap::Args;
use clap::builder::TypedValueParser;
use headroom_console::one_of;
use headroom_console::say;
use headroom_console::{Document, Failure, terminal};
use headroom_control::{ConstantConfig, LawConfig, LawName};
use headroom_node::Roots;
use headroom_oncall::Steering;
use headroom_oncall::layout::MAX_CONNECTIONS;
use headroom_oncall::program::{self, Unfit};
use headroom_runtime::oncall::{Ended, LEVERS, PassedOn, StartError, processors};
use headroom_units::{Lever, Setting};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// `headroom wrap`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A server with a thread or a process per connection runs hundreds of them on a few cores. Wrapped, each sleeps until its client's query is \
there and one of C slots is free; N queries of one connection are answered in a round, and between two rounds there may be a delay D in \
which nothing wakes the cores. The server itself is not changed. C, N and D are chosen by a law, from what it sees.

  headroom wrap -- mariadbd --user=mysql
  headroom wrap --target-ms 20 -- postgres -D /var/lib/postgresql/data
  headroom wrap --concurrency 1 --batch 1 -- mariadbd    # C and N by hand: no law
  headroom wrap --config wrap.toml -- mariadbd           # classes of connections with SLOs of their own; --example explains all keys
  headroom wrap --steered -- mariadbd                    # its levers are those of a `headroom up` whose [oncall] names it

SIGHUP has the classes of --config read again, and goes to the server as well, as each other signal does. Ctrl-C is SIGINT: the law and the
record end with it, and mariadbd does not; it ends at SIGTERM (with --view, Ctrl-C and q send that).
Every setting holds for five seconds and is renewed: when this program is killed, the server goes on as without it.")]
pub struct WrapArgs {
    /// The configuration file; without one all is as in --example.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Run this law instead of the configuration's: on-call chooses by comparison, reef as published, joint as
    /// on-call, fixed leaves the server as it is.
    #[arg(long, value_parser = laws(), value_name = "LAW")]
    pub law: Option<LawName>,
    /// The SLO's target in milliseconds, for 99 % of the queries where the configuration names no other percentile.
    #[arg(long, value_name = "MS", value_parser = positive)]
    pub target_ms: Option<f64>,
    /// C by hand: workers that may run at once. With it, or --batch or --delay, no law runs.
    #[arg(long, value_name = "WORKERS", conflicts_with = "law", value_parser = clap::value_parser!(u32).range(1..=MAX_CONNECTIONS as i64))]
    pub concurrency: Option<u32>,
    /// N by hand: queries of one connection in a round. More keep a connection's data in the caches, fewer shorten the tail.
    #[arg(long, value_name = "QUERIES", conflicts_with = "law", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batch: Option<u32>,
    /// D by hand: from the end of a round to the beginning of the next, milliseconds; 0 is none. Under the break-even of the deepest idle
    /// state (mostly about 1 ms) it costs latency and saves nothing.
    #[arg(long, value_name = "MS", conflicts_with = "law", value_parser = delay)]
    pub delay: Option<f64>,
    /// How long a worker that has queries left in the round waits for its client's next one, microseconds; 0 gives its slot up at once.
    #[arg(long, value_name = "MICROSECONDS", value_parser = linger)]
    pub linger: Option<u64>,
    /// Answer metrics, status, health and the list of connections on this address; "off" for none, whatever the configuration says.
    #[arg(long, value_name = "ADDRESS", value_parser = admin)]
    pub admin: Option<AdminAt>,
    /// The flight recorder's database.
    #[arg(long, value_name = "FILE")]
    pub db: Option<PathBuf>,
    /// Start, watch and end the server, and leave its levers to another run: `headroom up`, whose `[oncall]` names it. Until that attaches,
    /// and when it is gone, the server serves as without us.
    #[arg(long)]
    pub steered: bool,
    /// List the servers of --run-dir that run --steered, with who commands each, and stop.
    #[arg(long, conflicts_with_all = ["server", "steered"])]
    pub list: bool,
    /// The name of the run in the record, or of a server that is --steered; by default the server's.
    #[arg(long, value_name = "NAME", value_parser = headroom_console::args::name)]
    pub name: Option<String>,
    /// The live view instead of a line of the law every ten seconds. What the server says on the terminal goes to a file in the run
    /// folder meanwhile (server-PID.log; where, is said).
    #[arg(long)]
    pub view: bool,
    /// Where the library and the region that the server shares with this program are. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Where a server is named without `--`: its options would be taken for ours.
    #[arg(hide = true, value_name = "SERVER", num_args = 0.., allow_hyphen_values = true, value_parser = without_dashes)]
    pub misplaced: Vec<String>,
    /// The server and its arguments, after `--`.
    #[arg(required_unless_present_any = ["example", "list"], last = true, value_name = "SERVER")]
    pub server: Vec<OsString>,
}

/// More queries of a connection in a round are worth a note.
const MOST_BATCH: u32 = 100;
/// So is a longer target, in milliseconds.
const MOST_TARGET_MS: f64 = 60_000.0;
/// So is a shorter target, in milliseconds: to read a query and to answer it takes two system calls and a switch.
const LEAST_TARGET_MS: f64 = 0.1;

/// The laws of a wrapped server that need no more than their name.
fn laws() -> impl TypedValueParser<Value = LawName> {
    let named = LAWS.into_iter().filter(|law| *law != LawName::CONSTANT);
    // What these two do with levers that a wrapped server does not have is nobody's question here.
    let about = |law: LawName| {
        if law == LawName::JOINT {
            "As on-call: its other levers are the machine's, which `headroom up` moves, of a server of --steered"
        } else if law == LawName::FIXED {
            "The server as it is, with nobody on call: the reference for what a law saves and costs"
        } else {
            law.about()
        }
    };
    one_of(named.map(move |law| (law.as_str(), about(law), law)))
}

fn delay(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=10_000.0).contains(&ms) => Ok(ms),
        _ => Err("write milliseconds from 0 to 10000".to_owned()),
    }
}

fn linger(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(us) if us <= 1_000_000 => Ok(us),
        _ => Err("write whole microseconds, from 0 to 1000000".to_owned()),
    }
}

/// Where the admin port is to be.
#[derive(Clone, Copy, Debug)]
pub enum AdminAt {
    /// Nowhere.
    Off,
    /// At this address.
    Address(SocketAddr),
}

fn admin(text: &str) -> Result<AdminAt, String> {
    match text {
        "off" => Ok(AdminAt::Off),
        _ => text
            .parse()
            .map(AdminAt::Address)
            .map_err(|_| "write an IP address with a port, as 127.0.0.1:9187, or off".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms > 0.0 && ms.is_finite() => Ok(ms),
        _ => Err("write milliseconds greater than 0".to_owned()),
    }
}

/// What is wrong with words before `--` that are no option: a server, or an option that there is not.
fn without_dashes(text: &str) -> Result<String, String> {
    Err(match text.starts_with('-') {
        true => {
            "`wrap` has no such option (see `headroom wrap --help`); options of the server stand after `--`"
                .to_owned()
        }
        false => {
            format!(
                "write `--` before the server, so that its options are its own: headroom wrap -- {text} ..."
            )
        }
    })
}

impl WrapArgs {
    /// The configuration with what the command line says of it.
    fn configured(&self, cores: u32) -> Result<(WrapConfig, Document), Failure> {
        let (mut config, mut document) =
            WrapConfig::read(self.config.as_deref(), |names| self.law.map_or(names, Into::into))?;
        for (is_given, key, flag) in [
            (self.target_ms.is_some(), "slo.target_ms", "--target-ms"),
            (self.linger.is_some(), "oncall.linger_us", "--linger"),
            (self.law.is_some(), "law.name", "--law"),
            (
                // Without a file there is no key.
                self.db.is_some() || self.config.is_none(),
                "record.db",
                "--db",
            ),
            (self.admin.is_some(), "admin.listen", "--admin"),
        ] {
            if is_given {
                document.given_by(key, flag);
            }
        }
        if let Some(target) = self.target_ms {
            config.slo.target_ms = target;
        }
        if let Some(linger) = self.linger {
            config.oncall.linger_us = linger;
        }
        if let Some(db) = &self.db {
            config.record.db.clone_from(db);
        }
        config.admin.listen = match self.admin {
            Some(AdminAt::Off) => None,
            Some(AdminAt::Address(address)) => Some(address),
            None => config.admin.listen,
        };
        if let Some(setting) = self.by_hand(cores) {
            config.law = LawConfig {
                names: LawName::CONSTANT.into(),
                constant: ConstantConfig { setting },
                ..config.law
            };
        }
        let of_server = LEVERS.map(|(lever, _)| lever);
        let is_of_other = |lever: Lever| !of_server.contains(&lever);
        let setting = &config.law.constant.setting;
        if config.law.names.iter().any(|law| law == LawName::CONSTANT)
            && (setting.is_empty() || setting.iter().any(|(lever, _)| is_of_other(lever)))
        {
            let known = of_server.map(Lever::name).join(", ");
            let why = match setting.is_empty() {
                true => format!(
                    "is missing: the law constant has nothing else to go by: write constant.setting = {{ concurrency = 4, query_batch = 8 }} in \
                     [law]; a wrapped server has {known}, and what is the machine's is for `headroom up`"
                ),
                false => format!(
                    "names {setting}: a wrapped server has {known}; what is the machine's, `headroom up` moves beside them, of a server of \
                 `wrap --steered`"
                ),
            };
            return Err(document.error("law.constant.setting", why).into());
        }
        Ok((config, document))
    }

    /// With --steered what another run does is that run's to be told.
    fn nothing_of_the_other_run(&self) -> Result<(), Failure> {
        let of_law = "the law, and C, N and D with it: write it in [law], [slo] and [oncall]";
        let all = [
            (
                self.config.is_some(),
                "--config",
                "the configuration: give it the file, with an [oncall] that names this server",
            ),
            (self.law.is_some(), "--law", of_law),
            (self.target_ms.is_some(), "--target-ms", of_law),
            (self.concurrency.is_some(), "--concurrency", of_law),
            (self.batch.is_some(), "--batch", of_law),
            (self.delay.is_some(), "--delay", of_law),
            (self.linger.is_some(), "--linger", of_law),
            (
                self.admin.is_some(),
                "--admin",
                "the admin port: write its address in [admin]",
            ),
            (self.db.is_some(), "--db", "the record: name it in [record]"),
            (self.view, "--view", "the view"),
        ];
        match all.into_iter().find(|(is_given, ..)| *is_given) {
            Some((_, flag, what)) => Err(Failure::usage(anyhow!(
                "{flag}: with --steered another run, `headroom up`, has {what}; or leave --steered out"
            ))),
            None => Ok(()),
        }
    }

    /// What of the levers by hand, and of the target, nobody can want without knowing what it does.
    fn doubts(&self, config: &WrapConfig, cores: u32) -> Vec<String> {
        let target_ms = config.slo.target_ms;
        let by_hand = |lever| config.by_hand()?.get(lever);
        let by_hand_at_once = by_hand(Lever::Concurrency);
        let concurrency = by_hand_at_once.filter(|concurrency| *concurrency > f64::from(4 * cores));
        let too_few = by_hand_at_once.filter(|concurrency| *concurrency < f64::from(cores));
        let delay = by_hand(Lever::RoundDelay)
            .map(|delay| delay * 1e3)
            .filter(|delay| *delay >= target_ms);
        let batch = by_hand(Lever::QueryBatch).filter(|batch| *batch > f64::from(MOST_BATCH));
        let is_fixed = config.law.names.iter().all(|law| law == LawName::FIXED);
        let has_no_linger = is_fixed || by_hand(Lever::QueryBatch) == Some(1.0);
        let linger = self.linger.filter(|linger| *linger > 0 && has_no_linger);
        let doubts = [
            concurrency.map(|concurrency| {
                format!(
                    "{concurrency} workers at once on {cores} cores: so many are oversubscribed again; two more than the cores are enough for \
                     most servers"
                )
            }),
            too_few.map(|concurrency| {
                format!(
                    "{concurrency} workers at once on {cores} cores: mostly no more of them work for this server; give it as many as cores at least, or \
                     fewer cores (taskset, a cpuset)"
                )
            }),
            delay.map(|delay| {
                format!(
                    "a round delay of {delay} ms: who comes after the end of a round waits for so long, and the target is {target_ms} ms: it cannot \
                     be kept (--delay is in milliseconds, round_delay of [law.constant] in seconds)"
                )
            }),
            batch.map(|batch| {
                format!(
                    "{batch} queries in a round: a connection that always has its next query ready keeps its worker's slot for so many, and all others wait; \
                     8 are enough for the caches"
                )
            }),
            linger.map(|linger| {
                format!("--linger {linger} does nothing: a worker lingers while its connection has queries left in the round, of several")
            }),
            (config.oncall.connections_in_metrics > 0 && config.admin.listen.is_none()).then(|| {
                "oncall.connections_in_metrics is written and does nothing: there is no admin port, where they would be read: give --admin, or \
                 [admin] listen"
                    .to_owned()
            }),
            (target_ms > MOST_TARGET_MS).then(|| {
                format!(
                    "slo.target_ms is {target_ms}: more than a minute, so that the law may hold queries back as it likes; it is in milliseconds"
                )
            }),
            config.admin.listen.filter(|address| !address.ip().is_loopback()).map(|address| {
                format!(
                    "the admin port, {address}, answers whoever reaches it, and its /connections says each client's address and user: an address of \
                     127.0.0.0/8 answers this machine alone"
                )
            }),
            (target_ms < LEAST_TARGET_MS).then(|| {
                format!(
                    "slo.target_ms is {target_ms}: no server of a thread or process for each client answers 99 % of its queries in less than \
                     {LEAST_TARGET_MS} ms; it is in milliseconds"
                )
            }),
        ];
        doubts.into_iter().flatten().collect()
    }

    /// Whether there is to be a view, and a terminal to show it in.
    fn has_view(&self) -> bool {
        self.view && terminal::is_there()
    }

    /// C, N and D by hand, where any is given.
    fn by_hand(&self, cores: u32) -> Option<Setting> {
        if self.concurrency.is_none() && self.batch.is_none() && self.delay.is_none() {
            return None;
        }
        // A worker that waits for its client's next query keeps its slot: two more than cores.
        let concurrency = self.concurrency.unwrap_or(cores + 2);
        Some(Setting::from([
            (Lever::Concurrency, f64::from(concurrency)),
            (Lever::QueryBatch, f64::from(self.batch.unwrap_or(8))),
            (Lever::RoundDelay, self.delay.unwrap_or(0.0) / 1e3),
        ]))
    }
}

/// A program that a shell would not start either ends this one as it would end the shell's command.
fn unfit(why: Unfit) -> Failure {
    match why.shell_status() {
        Some(status) => Failure::Program(status, why.into()),
        None => Failure::usage(why),
    }
}

/// Runs the server until it ends, and ends as it did.
///
/// # Errors
/// A server that cannot be helped or started, a configuration that cannot be used.
pub fn run(args: &WrapArgs) -> Result<(), Failure> {
    if args.example {
        return say::result(EXAMPLE.trim_end());
    }
    if args.list {
        return steered::list(args);
    }
    let (program, arguments) = args
        .server
        .split_first()
        .ok_or_else(|| Failure::usage(anyhow!("name a server after --")))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let file = program::find(Path::new(program), &path).map_err(unfit)?;
    program::check(&file).map_err(unfit)?;
    if args.steered {
        args.nothing_of_the_other_run()?;
        return ended(steered::run(args, &file, arguments, PassedOn::catch()?)?);
    }
    if args.view && !args.has_view() {
        say::note!(
            "note: --view shows nothing: standard input and standard error are no terminal, or this program is in its background; lines are \
             written instead"
        );
    }
    let cpus = processors(&Roots::default(), "self")?;
    let cores = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let (config, document) = args.configured(cores)?;
    let of_classes = config.oncall.notes(&config.law, &document);
    for doubt in args.doubts(&config, cores).into_iter().chain(of_classes) {
        say::note!("note: {doubt}");
    }
    let wrapped = run::Wrapped {
        args,
        config: &config,
        document: &document,
        file: &file,
        arguments,
        cpus: &cpus,
    };
    ended(wrapped.run(PassedOn::catch()?)?)
}

/// Why there is no server. One that was asked to end before it was there ends this program as it would have ended it.
fn not_started(error: StartError) -> Failure {
    match error {
        StartError::AskedToEnd { signal, .. } => Failure::Program(128 + signal, error.into()),
        error => Failure::Run(error.into()),
    }
}

/// Ends as the server did.
fn ended(server: Ended) -> Result<(), Failure> {
    match server.code() {
        0 => Ok(()),
        code => std::process::exit(code),
    }
}

/// What the server's workers did.
fn say_totals(steering: &Steering) {
    let totals = steering.totals();
    say::note!(
        "{} queries answered, {} rounds, {} slots given back in the midst of a query",
        totals.queries,
        totals.rounds,
        totals.given_back + totals.reclaimed
    );
}
