//! The commands: a module each, with its arguments, its help, and what it does; named here alone.

pub mod compare;
pub mod demo;
pub mod emulate;
pub mod identify;
pub mod load;
pub mod place;
pub mod profile;
pub mod reproduce;
pub mod service;
pub mod sim;
pub mod trace;
pub mod tune;
pub mod validate;

use clap::Subcommand;
use headroom_console::Failure;

/// The commands, as `headroom` takes them in.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what Headroom does: two emulated clusters side by side under a compressed day, with everything on and under control.
    #[command(display_order = 0)]
    Demo(demo::DemoArgs),
    /// Emulate a two-package server with RAPL, cpufreq and idle states, on which everything else can be tried.
    Emulate(emulate::EmulateArgs),
    /// Send load to a URL: a trace, users who browse, or an access log, with latency measured from the intended send time.
    Load(load::LoadArgs),
    /// Measure how many bytes a second a machine serves for a watt, by request size and density; compare such profiles.
    Profile(Box<profile::ProfileArgs>),
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
    /// Find the machines that serve a day's requests for the least energy within the SLO, and which of them serves what.
    Place(place::PlaceArgs),
    /// Search a law's parameters in the simulated world for a service and a trace of your own.
    Tune(tune::TuneArgs),
    /// Fit the batching paper's fuzzy model to a recorded run, and say how well it predicts.
    Identify(identify::IdentifyArgs),
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
            Self::Profile(args) => profile::run(args),
            Self::Trace(args) => trace::run(args),
            Self::Service(args) => service::run(args),
            Self::Sim(args) => sim::run(args),
            Self::Validate(args) => validate::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Reproduce(args) => reproduce::run(args),
            Self::Place(args) => place::run(args),
            Self::Tune(args) => tune::run(args),
            Self::Identify(args) => identify::run(args),
        }
    }
}
