//! The `headroom` command: reads the command line and wires a live world to a law. No formula lives here.
#![forbid(unsafe_code)]

mod check;
mod cli;
mod commands;
mod config;
mod demos;
mod origin;
mod start;
mod telemetry_config;

use cli::{Cli, Command};
use headroom_console::{Failure, at_forced_end, say};
use headroom_runtime::door;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let cli = Cli::of_arguments();
    log_to_standard_error(cli.verbose);
    at_forced_end(|| drop(headroom_node::restore::restore_all()));
    at_forced_end(door::end_now);
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say::note!("headroom: {failure}");
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Up(args) => commands::up::run(&args),
        Command::Agent(args) => commands::agent::run(&args),
        Command::Controller(args) => commands::controller::run(&args, "controller"),
        Command::Resize(args) => commands::controller::run(&args, "resize"),
        Command::Certs(args) => commands::certs::run(&args),
        Command::Pause(args) => commands::operate::pause(&args),
        Command::Resume(args) => commands::operate::resume(&args),
        Command::Release(args) => commands::release::run(&args),
        Command::Guard(args) => commands::guard::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Capacity(args) => commands::capacity::run(&args),
        Command::Gateway(args) => commands::gateway::run(&args),
        Command::Report(args) => commands::report::report(&args),
        Command::Runs(args) => commands::report::runs(&args),
        #[cfg(feature = "lab")]
        Command::Lab(command) => command.run(),
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
        .unwrap_or_else(|| Targets::new().with_default(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| say::StandardError)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry().with(filter).with(lines).init();
}
