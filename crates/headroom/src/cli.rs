//! The command line: what can be asked for, and the help that teaches it.

mod agent;
mod beside;
mod capacity;
mod certs;
mod controller;
mod demo;
mod doctor;
mod emulate;
mod gateway;
mod guard;
mod load;
mod operate;
mod record;
mod release;
mod resize;
mod service;
mod shared;
mod sim;
mod trace;
mod up;

pub use agent::AgentArgs;
pub use beside::BesideArgs;
pub use capacity::CapacityArgs;
pub use certs::{CertsArgs, CertsCommand};
pub use controller::ControllerArgs;
pub use demo::{DemoArgs, Hardware};
pub use doctor::DoctorArgs;
pub use emulate::EmulateArgs;
pub use gateway::{Balance, GatewayArgs};
pub use guard::GuardArgs;
pub use load::{LoadArgs, Spacing};
pub use operate::OperateArgs;
pub use record::{ReportArgs, RunsArgs};
pub use release::ReleaseArgs;
pub use resize::ResizeArgs;
pub use service::{ServiceArgs, ServiceCommand};
pub use shared::{GuardChoice, RunArgs, Trees};
pub use sim::{
    CapacityPaperArgs, CompareArgs, Paper, ReproduceArgs, SimArgs, SloPowerArgs, TuneArgs, WorldArgs,
};
pub use trace::TraceArgs;
pub use up::UpArgs;

use clap::{Parser, Subcommand};

/// Keeps a web service inside its latency promise on the fewest watts.
///
/// Headroom measures every second how far a service's tail latency is from the latency it promised, and turns that
/// gap into saved energy: fewer CPU cores, a lower power cap. When latency nears the promise it gives back at once.
///
/// Start with `headroom demo` (nothing needed but root for cgroups) and `headroom doctor` (what this machine can do).
#[derive(Debug, Parser)]
#[command(name = "headroom", version, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Say more on standard error: -v for information, -vv for debugging.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what Headroom does: a built-in service under a compressed day, with everything on and under control.
    Demo(DemoArgs),
    /// Keep a service inside its promise: gateway, meters, actuators, law and recorder in one process.
    Up(UpArgs),
    /// Serve this node to a controller: meters, limits under a lease, everything put back when the lease runs out.
    Agent(AgentArgs),
    /// Keep a service on many nodes inside its promise: drives agents and gateways with one law.
    Controller(ControllerArgs),
    /// Keep as many servers of a cluster on as its load needs: drains and stops them, starts them again before they are
    /// missed.
    Resize(ResizeArgs),
    /// Make the certificates that agents, gateways and the controller show each other, and say what each is for.
    Certs(CertsArgs),
    /// Pause a running agent or `up`: everything is put back, requests are served on, nothing is limited until `resume`.
    Pause(OperateArgs),
    /// Let a paused agent or `up` go on, also with what somebody else wrote and it left alone.
    Resume(OperateArgs),
    /// Put back by hand what an agent, `up` or `demo` that was killed left limited; one that runs is paused.
    Release(ReleaseArgs),
    /// Watch over an agent, `up` or `demo`, and lift its limits when it is killed or hangs.
    Guard(GuardArgs),
    /// Emulate a two-package server with RAPL, cpufreq and idle states, on which everything else can be tried.
    Emulate(EmulateArgs),
    /// Say which levers and meters this machine has, and for each one it lacks, why and what would help.
    Doctor(DoctorArgs),
    /// Say how many connections a second the server of a port can take, from its accept queue and by four other ways.
    Capacity(CapacityArgs),
    /// Run the data plane alone: an HTTP reverse proxy with health checks, balancing and latency histograms.
    Gateway(GatewayArgs),
    /// Send load to a URL: a trace, users who browse, or an access log, with latency measured from the intended send time.
    Load(LoadArgs),
    /// Write a trace: like the Wikipedia, the Azure or the ClarkNet one, a curve, or an access log's.
    Trace(TraceArgs),
    /// Run a built-in service to control.
    Service(ServiceArgs),
    /// Write the report of one recorded run, or compare several.
    Report(ReportArgs),
    /// List the recorded runs.
    Runs(RunsArgs),
    /// Run a law in a simulated world: a trace, a scenario, a seed.
    Sim(SimArgs),
    /// Show how far the simulated world is from the live one: a law live on emulated hardware, and the same simulated.
    Beside(BesideArgs),
    /// Compare laws in the simulated world, over traces and seeds, with confidence intervals.
    Compare(CompareArgs),
    /// Reproduce a paper's evaluation in the simulated world, its numbers beside ours.
    Reproduce(ReproduceArgs),
    /// Search a law's parameters in the simulated world for a service and a trace of your own.
    Tune(TuneArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_the_systemd_units_start_is_understood() {
        let units = [
            include_str!("../../../packaging/systemd/headroom-up.service"),
            include_str!("../../../packaging/systemd/headroom-agent.service"),
            include_str!("../../../packaging/systemd/headroom-guard.service"),
        ];
        let commands: Vec<&str> = units
            .iter()
            .flat_map(|unit| unit.lines())
            .filter_map(|line| {
                let (key, command) = line.split_once('=')?;
                ["ExecStart", "ExecStopPost"].contains(&key).then_some(command)
            })
            .collect();
        assert_eq!(commands.len(), 5);
        for command in commands {
            let parsed = Cli::try_parse_from(command.split(' '));
            assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
        }
    }
}
