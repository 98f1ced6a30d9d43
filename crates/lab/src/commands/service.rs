//! `headroom service`: the built-in services.

use clap::{Args, Subcommand};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::say;
use headroom_testbed::wiki::{self, WikiConfig, Work};
use headroom_units::Seconds;
use std::io::{Read, Write};
use std::net::SocketAddr;

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
}

/// What the service prints before the address that it listens on, for whoever started it.
pub const LISTENING: &str = "listening on ";

/// Serves until a signal comes.
///
/// # Errors
/// A setting out of its range, an address that cannot be listened on.
pub fn run(args: &ServiceArgs) -> Result<(), Failure> {
    let ServiceCommand::Wiki {
        listen,
        workers,
        page_cpu_ms,
        revisions,
        length,
        until_input_closes,
    } = args.service;
    let work = match revisions.zip(length) {
        Some((revisions, length)) => Work::Fixed { revisions, length },
        None => Work::MeanCpu(Seconds::from_millis(page_cpu_ms)),
    };
    let stop = Stop::at_signals()?;
    let wiki = wiki::serve(WikiConfig {
        listen,
        workers,
        work,
        ..WikiConfig::default()
    })
    .map_err(Failure::usage)?;
    let mut out = std::io::stdout();
    writeln!(out, "{LISTENING}{}", wiki.address())?;
    out.flush()?;
    say::note!("{}", wiki.calibration());
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
    wiki.shutdown()?;
    Ok(())
}
