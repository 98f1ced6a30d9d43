//! The `headroom` command: reads the command line and wires a live world to a law. No formula lives here.
#![forbid(unsafe_code)]

mod args;
mod check;
mod cli;
mod commands;
mod config;
mod demos;
mod oncall;
mod start;
mod telemetry_config;

use cli::Cli;
use headroom_console::{at_forced_end, say};
use headroom_runtime::door;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    headroom_record::built_from(env!("HEADROOM_COMMIT"));
    let cli = Cli::of_arguments();
    log_to_standard_error(cli.verbose);
    at_forced_end(|| drop(headroom_node::restore::restore_all()));
    at_forced_end(door::end_now);
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            for (what, _) in failure.each() {
                say::note!("headroom: {what}");
            }
            failure.exit_code()
        }
    }
}

/// Warnings and errors, more with -v; RUST_LOG overrides. Standard output stays free for results.
fn log_to_standard_error(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let filter = std::env::var("RUST_LOG")
        .ok()
        .and_then(|wanted| wanted.parse::<Targets>().ok())
        .unwrap_or_else(|| {
            let wanted = Targets::new().with_default(level);
            match verbose {
                // What h2 warns of is what a peer has done to its own connection: a line for each, as many as the peer likes.
                0 => wanted.with_target("h2", LevelFilter::ERROR),
                _ => wanted,
            }
        });
    // no-color.org: any value but none.
    let is_without_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| say::StandardError)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal() && !is_without_colour);
    tracing_subscriber::registry().with(filter).with(lines).init();
}
