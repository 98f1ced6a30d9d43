//! The commands: a module each, named here alone.

pub mod agent;
pub mod capacity;
pub mod certs;
pub mod controller;
pub mod doctor;
pub mod gateway;
pub mod guard;
pub mod operate;
pub mod release;
pub mod report;
pub mod up;
pub mod wrap;

use clap::Subcommand;
use headroom_console::Failure;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Keep a service inside its SLO: gateway, meters, actuators, law and recorder in one process.
    Up(up::UpArgs),
    /// Serve this node to a controller: meters, limits under a lease, everything put back when the lease runs out.
    Agent(agent::AgentArgs),
    /// Keep a service on many nodes inside its SLO: drives agents and gateways with one law, or with several.
    Controller(controller::ControllerArgs),
    /// Keep as many servers of a cluster on as its load needs: drains and stops them, starts them again before they are
    /// missed.
    Resize(controller::ControllerArgs),
    /// Make the certificates that agents, gateways and the controller show each other, and say what each is for.
    Certs(certs::CertsArgs),
    /// Pause a running agent or `up`: everything is put back, requests are served on, nothing is limited until `resume`.
    Pause(operate::OperateArgs),
    /// Let a paused agent or `up` go on, also with what somebody else wrote and it left alone.
    Resume(operate::OperateArgs),
    /// Put back what an agent, `up` or `demo` that was killed left limited, and start what a controller that was killed left off; an `up` or
    /// agent that runs is paused.
    Release(release::ReleaseArgs),
    /// Watch over an agent, `up` or `demo`, and lift its limits when it is killed or hangs. A controller has a guard of its own, which is not
    /// started by hand.
    Guard(guard::GuardArgs),
    /// Say which levers and meters this machine has, and for each one it lacks, why and what would help.
    Doctor(doctor::DoctorArgs),
    /// Say how many connections a second the server of a port can take, from its accept queue and by four other ways.
    Capacity(capacity::CapacityArgs),
    /// Run the data plane alone: an HTTP reverse proxy with health checks, balancing and latency histograms.
    Gateway(Box<gateway::GatewayArgs>),
    /// Run a server with a thread per connection with its workers on call: few at once, in rounds, without changing it.
    Wrap(wrap::WrapArgs),
    /// Write the report of one recorded run, or compare several.
    Report(report::ReportArgs),
    /// List the recorded runs.
    Runs(report::RunsArgs),
    /// What researchers run.
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(headroom_lab::Command),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// Those of the command.
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Up(args) => up::run(args),
            Self::Agent(args) => agent::run(args),
            Self::Controller(args) => controller::run(args, "controller"),
            Self::Resize(args) => controller::run(args, "resize"),
            Self::Certs(args) => certs::run(args),
            Self::Pause(args) => operate::pause(args),
            Self::Resume(args) => operate::resume(args),
            Self::Release(args) => release::run(args),
            Self::Guard(args) => guard::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Capacity(args) => capacity::run(args),
            Self::Gateway(args) => gateway::run(args),
            Self::Wrap(args) => wrap::run(args),
            Self::Report(args) => report::report(args),
            Self::Runs(args) => report::runs(args),
            #[cfg(feature = "lab")]
            Self::Lab(command) => command.run(),
        }
    }
}
