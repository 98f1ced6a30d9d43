//! What researchers and the demo run: laws in simulated worlds ([`simulate`]), many of them compared ([`comparison`]) or
//! searched for parameters ([`tuning`]), the evaluations of papers, traces and load, and the emulated server
//! ([`emulator`]). Each command is a module of [`commands`] with its arguments, its help and what it does; `headroom`
//! takes them all in as [`Command`].
//!
//! No production build has it: `cargo build --no-default-features` leaves it out, and with it the simulator, the load
//! generator, the emulated hardware and the papers' tables.
//!
//! # Example
//! ```
//! use headroom_control::LawName;
//! use headroom_lab::simulate::{Setting, figures};
//!
//! // Three minutes of the default scenario: the three servers of the SLO-Power paper.
//! let mut world = Setting::default();
//! world.scenario.duration_s = Some(180.0);
//! let fixed = figures(&world, LawName::FIXED, 1)?;
//! let ours = figures(&world, LawName::HEADROOM, 1)?;
//! assert!(ours.energy_j < fixed.energy_j);
//! # Ok::<(), headroom_console::Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod comparison;
pub mod emulator;
mod origin;
pub mod simulate;
pub mod tuning;

use clap::Subcommand;
use commands::{compare, demo, emulate, load, reproduce, service, sim, trace, tune, validate};
use headroom_console::Failure;

/// The commands, as `headroom` takes them in.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what Headroom does: a built-in service under a compressed day, with everything on and under control.
    #[command(display_order = 0)]
    Demo(demo::DemoArgs),
    /// Emulate a two-package server with RAPL, cpufreq and idle states, on which everything else can be tried.
    Emulate(emulate::EmulateArgs),
    /// Send load to a URL: a trace, users who browse, or an access log, with latency measured from the intended send time.
    Load(load::LoadArgs),
    /// Write a trace: like the Wikipedia, the Azure or the ClarkNet one, a curve, or an access log's.
    Trace(trace::TraceArgs),
    /// Run a built-in service to control.
    Service(service::ServiceArgs),
    /// Run a law in a simulated world: a trace, a scenario, a seed.
    Sim(sim::SimArgs),
    /// Show how far the simulated world is from the live one: a law live on emulated hardware, and the same simulated.
    Validate(validate::ValidateArgs),
    /// Compare laws in the simulated world, over traces and seeds, with confidence intervals.
    Compare(compare::CompareArgs),
    /// Reproduce a paper's evaluation in the simulated world, its numbers beside ours.
    Reproduce(reproduce::ReproduceArgs),
    /// Search a law's parameters in the simulated world for a service and a trace of your own.
    Tune(tune::TuneArgs),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// Those of the command.
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Emulate(args) => emulate::run(args),
            Self::Load(args) => load::run(args),
            Self::Trace(args) => trace::run(args),
            Self::Service(args) => service::run(args),
            Self::Sim(args) => sim::run(args),
            Self::Validate(args) => validate::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Reproduce(args) => reproduce::run(args),
            Self::Tune(args) => tune::run(args),
        }
    }
}
