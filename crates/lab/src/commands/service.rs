//! `headroom service`: the built-in services.

use crate::args::SiteArgs;
use clap::{Args, Subcommand};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::one_of;
use headroom_console::say;
use headroom_physics::{ServingKind, StudiedService};
use headroom_testbed::auction::{self, AuctionConfig, Database};
use headroom_testbed::serving::{self, ServingConfig};
use headroom_testbed::wiki::{self, WikiConfig, Work};
use headroom_units::Seconds;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `headroom service`.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// The service to run.
    #[command(subcommand)]
    pub service: ServiceCommand,
}

/// The built-in services.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// A small wiki: renders Markdown pages, CPU-bound, page cost spread over an order of magnitude.
    Wiki {
        /// Address to serve on; port 0 takes a free one, which is printed.
        #[arg(long, default_value = "127.0.0.1:8081", value_name = "ADDR")]
        listen: SocketAddr,
        /// Threads that render.
        #[arg(long, default_value_t = 16, value_name = "N")]
        workers: usize,
        /// Mean CPU time of a page, in milliseconds.
        #[arg(long, default_value_t = 4.0, value_name = "MS")]
        page_cpu_ms: f64,
        /// So many revisions of each page instead, whatever that costs: for several wikis with the same pages.
        #[arg(long, value_name = "N", conflicts_with = "page_cpu_ms", requires = "length")]
        revisions: Option<usize>,
        /// With --revisions: the factor on the pages' lengths.
        #[arg(long, value_name = "FACTOR", requires = "revisions")]
        length: Option<f64>,
        /// Stop when standard input is closed: so a service never outlives the program that started it.
        #[arg(long)]
        until_input_closes: bool,
    },
    /// An auction site in the manner of RUBiS: pages of a real database, to be visited by `headroom load --auction`.
    #[command(after_long_help = AUCTION)]
    Auction(Box<AuctionArgs>),
    /// A machine of another kind, emulated: it answers requests as fast as that machine would and says what it would draw.
    #[command(after_long_help = MACHINE)]
    Machine(MachineArgs),
}

/// What the help of `headroom service machine` teaches.
const MACHINE: &str = "\
The machines are those of the paper on power by request size (`headroom reproduce profiles`). Each request is
held in a model of the machine's cores and link at a share of its speed (--speed), so that this host keeps up;
its bytes are real. Throughput is that share of the machine's; watts and shares of resources are its own.

HTTP (--service apache): /SIZE answers so many bytes, as /1024, /10KB; /machine says what it would draw.
Memcached's text protocol (--service memcached): get, gets, set, delete, stats, version, quit.

Examples:
  headroom service machine --kind arm --service apache --listen 127.0.0.1:8091 --files /tmp/arm
  headroom service machine --kind xeon --service memcached --listen 127.0.0.1:8092 --speed 0.01

What reads --files DIR as --sys DIR/sys --proc DIR/proc has the machine's energy counter, processor and
interrupt time, and network bytes, all marked as emulated. For `headroom agent` it has this host's control
groups too.";

/// `headroom service machine`.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// The machine.
    #[arg(long, value_name = "KIND", value_parser = one_of(kinds()))]
    kind: ServingKind,
    /// What runs on it.
    #[arg(long, value_name = "SERVICE", default_value = "apache", value_parser = one_of(services()))]
    service: StudiedService,
    /// Address to serve on; port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:8083", value_name = "ADDR")]
    listen: SocketAddr,
    /// The share of the machine's speed.
    #[arg(long, default_value_t = 0.02, value_name = "SHARE")]
    speed: f64,
    /// A folder for what the machine's /sys and /proc would say; it must be empty, or of such a machine.
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// Stop when standard input is closed: so a service never outlives the program that started it.
    #[arg(long)]
    until_input_closes: bool,
}

fn kinds() -> [(&'static str, &'static str, ServingKind); 3] {
    ServingKind::ALL.map(|kind| {
        let about = match kind {
            ServingKind::Xeon => "Xeon E3-1240 v3, four cores of two threads, 37 to 79 W",
            ServingKind::Atom => "Atom S1260, two cores of two threads, 24 to 31 W",
            ServingKind::Arm => "Exynos 5 Octa, four cores, its network card on USB, 4 to 16 W",
        };
        (kind.name(), about, kind)
    })
}

fn services() -> [(&'static str, &'static str, StudiedService); 2] {
    StudiedService::ALL.map(|service| {
        let about = match service {
            StudiedService::Apache => "static files over HTTP",
            StudiedService::Memcached => "keys and values over memcached's text protocol",
        };
        (service.name(), about, service)
    })
}

/// What the help of `headroom service auction` teaches.
const AUCTION: &str = "\
Where the data is (--database):
  sqlite                            in memory, gone with the service
  sqlite:FILE                       in a file: the next start continues with it
  mysql://USER[:PASSWORD]@HOST[:PORT]/NAME
                                    in this database of a MariaDB server; the user needs all rights on it
                                    and logs in by mysql_native_password

An empty database is filled at the start, always with the same rows for the same figures and seed. Give
`headroom load` the same figures.

Examples:
  headroom service auction --database sqlite --items 10000 --page-kb 10 --page-cpu-ms 5
  headroom load --url http://127.0.0.1:8082/ --auction browsing --users steps:650/30s,1600/30s,800/30s
  headroom service auction --database mysql://auction@127.0.0.1/auction --workers 32 --max-age 60
  curl -d 'user=5&raise_cents=100' http://127.0.0.1:8082/item/42/bids

Pages that all see alike may be cached for --max-age seconds. A POST to /item/42/bids names /item/42 in
its Location, so a cache that follows RFC 9111 forgets both. `/stats` has what each kind of page cost.";

/// `headroom service auction`.
#[derive(Debug, Args)]
pub struct AuctionArgs {
    /// Address to serve on; port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:8082", value_name = "ADDR")]
    listen: SocketAddr,
    /// Where the data is: sqlite (in memory), sqlite:FILE, or mysql://USER[:PASSWORD]@HOST[:PORT]/NAME of a MariaDB server.
    /// From the environment where it holds a password, which every user of this machine could read on the command line.
    #[arg(
        long,
        default_value = "sqlite",
        value_name = "DATABASE",
        env = "HEADROOM_AUCTION_DATABASE",
        hide_env_values = true
    )]
    database: Database,
    /// Threads that query and render, each with a connection to the database.
    #[arg(long, default_value_t = 16, value_name = "N")]
    workers: usize,
    /// CPU time of rendering a page of mean length, in milliseconds: each page is rendered as often as that takes. Without
    /// it, once.
    #[arg(long, value_name = "MS")]
    page_cpu_ms: Option<f64>,
    /// For how many seconds caches may use a page that all see alike; with 0 they must ask each time.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    max_age: u32,
    /// The site's figures, the same as the load's.
    #[command(flatten, next_help_heading = "The auction site")]
    site: SiteArgs,
    /// Stop when standard input is closed: so a service never outlives the program that started it.
    #[arg(long)]
    until_input_closes: bool,
}

/// What the service prints before the address that it listens on, for whoever started it.
pub const LISTENING: &str = "listening on ";

/// Serves until a signal comes.
///
/// # Errors
/// A setting out of its range, an address that cannot be listened on.
pub fn run(args: &ServiceArgs) -> Result<(), Failure> {
    match &args.service {
        ServiceCommand::Wiki {
            listen,
            workers,
            page_cpu_ms,
            revisions,
            length,
            until_input_closes,
        } => {
            let work = match revisions.zip(*length) {
                Some((revisions, length)) => Work::Fixed { revisions, length },
                None => Work::MeanCpu(Seconds::from_millis(*page_cpu_ms)),
            };
            let stop = Stop::at_signals()?;
            let wiki = wiki::serve(WikiConfig {
                listen: *listen,
                workers: *workers,
                work,
                ..WikiConfig::default()
            })
            .map_err(Failure::usage)?;
            announce(wiki.address())?;
            say::note!("{}", wiki.calibration());
            wait(&stop, *until_input_closes)?;
            wiki.shutdown()?;
        }
        ServiceCommand::Auction(args) => {
            let stop = Stop::at_signals()?;
            let auction = auction::serve(AuctionConfig {
                listen: args.listen,
                database: args.database.clone(),
                site: args.site.config()?,
                workers: args.workers,
                page_cpu: args.page_cpu_ms.map(Seconds::from_millis),
                max_age: Seconds::new(f64::from(args.max_age)),
                ..AuctionConfig::default()
            })
            .map_err(Failure::usage)?;
            announce(auction.address())?;
            let start = auction.start();
            say::note!(
                "{}: {}; each page rendered {} times, {:.2} ms of CPU time for one of mean length",
                args.database,
                if start.populated {
                    "filled"
                } else {
                    "continued with"
                },
                start.renderings,
                start.render.as_millis(),
            );
            wait(&stop, args.until_input_closes)?;
            auction.shutdown()?;
        }
        ServiceCommand::Machine(args) => {
            let stop = Stop::at_signals()?;
            let machine = serving::serve(&ServingConfig {
                kind: args.kind,
                service: args.service,
                listen: args.listen,
                speed: args.speed,
                tree: args.files.clone(),
            })
            .map_err(Failure::usage)?;
            announce(machine.address())?;
            wait(&stop, args.until_input_closes)?;
            let status = machine.status();
            machine.shutdown()?;
            say::note!(
                "{} with {}, emulated at {} of its speed: {} requests in {:.1} s, {:.1} W on average",
                status.machine,
                status.service,
                status.speed,
                status.completed,
                status.up_s,
                status.mean_w
            );
        }
    }
    Ok(())
}

fn announce(address: SocketAddr) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{LISTENING}{address}")?;
    out.flush()?;
    Ok(())
}

/// Waits for a signal, or for the end of standard input.
fn wait(stop: &Stop, until_input_closes: bool) -> Result<(), Failure> {
    if until_input_closes {
        let stop = stop.clone();
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || {
                let mut ignored = [0; 256];
                while std::io::stdin().read(&mut ignored).is_ok_and(|read| read > 0) {}
                stop.raise();
            })?;
    }
    stop.wait();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_node::Roots;
    use headroom_node::power::{Meter, RaplMeter};
    use headroom_node::work::MachineWork;
    use headroom_units::Source;
    use std::time::Duration;

    /// The meters that agents have read an emulated machine, and what they read is marked.
    #[test]
    fn our_meters_read_an_emulated_machine() {
        let folder = tempfile::tempdir().unwrap();
        let machine = serving::serve(&ServingConfig {
            kind: ServingKind::Atom,
            service: StudiedService::Memcached,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            speed: 0.02,
            tree: Some(folder.path().join("atom")),
        })
        .unwrap();
        let roots = Roots::at(folder.path().join("atom/sys"), folder.path().join("atom/proc"));
        let mut meter = RaplMeter::open(&roots).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let power = meter.sample().unwrap().power.unwrap();
        assert_eq!(power.source, Source::Emulated);
        // At rest, read at either end up to a twentieth of a second late.
        assert!((18.0..31.0).contains(&power.value.get()), "{:?}", power.value);
        let work = MachineWork::read(&roots).unwrap();
        assert_eq!(work.link("eth0").unwrap().bits_per_s, Some(20e6));
        machine.shutdown().unwrap();
    }
}
