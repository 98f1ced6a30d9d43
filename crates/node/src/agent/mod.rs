//! The agent: one node served over gRPC ([`headroom_wire`]).
//!
//! It decides nothing about a service. It carries out what the holder of its lease asks, within the ranges of the
//! machine, and puts everything back to what it found when the lease is released or not renewed, when it ends, and,
//! from the state file, when it is started again after it was killed.
//!
//! One thread has the machine ([`Machine`]) and does one thing after the other; another runs the network; each accept
//! queue that somebody watches has one too. Between them are a bounded queue of requests and, for each stream of samples,
//! a place for the newest one: a caller that reads slowly costs no memory and gets what is newest.

mod actuator;
pub mod audit;
mod keeper;
pub mod lease;
mod least;
mod local;
pub mod machine;
mod mailbox;
mod observer;
mod queues;
mod service;
mod state;

pub use actuator::Actuator;
pub use audit::AuditFile;
pub use lease::Lease;
pub use least::Least;
pub use local::{Bounds, LocalMachine, LocalOptions, OpenError};
pub use machine::{Machine, MachineError, PutBack};
pub use observer::{Differences, Standing};
pub use queues::{QueueLimits, Watching};
pub use state::{keep_state, release};

use crate::Roots;
use crate::cgroup::TargetSpec;
use crate::restore::Watch;
use audit::Audit;
use headroom_wire::Address;
use headroom_wire::access::Rules;
use headroom_wire::message::{MAX_CPU_GROUPS, Range};
use headroom_wire::server::{
    Admission, Limits, Listen, ListenError, Listener, log_refused, log_rejected, serve,
};
use keeper::{Command, Keeper, Settings};
use queues::Queues;
use service::Service;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// The most places that one agent listens at.
pub const MAX_LISTENERS: usize = 8;

/// Threads that look up control groups at once; more look-ups wait, as many as requests may.
const MAX_LOOKING_UP: usize = 2;

/// How long leases may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// The shortest: a controller that is late by less must not lose the node.
    pub shortest: Duration,
    /// The longest: so long may limits stay in force after their controller died.
    pub longest: Duration,
}

impl Default for LeaseLimits {
    fn default() -> Self {
        Self {
            shortest: Duration::from_millis(500),
            longest: Duration::from_secs(300),
        }
    }
}

impl LeaseLimits {
    fn range(&self) -> Range {
        Range::new(
            self.shortest.as_secs_f64() * 1e3,
            self.longest.as_secs_f64() * 1e3,
        )
    }
}

/// How the machine may be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveLimits {
    /// The shortest period.
    pub shortest: Duration,
    /// The longest period.
    pub longest: Duration,
    /// Streams of samples at once; more are refused.
    pub streams: usize,
    /// Streams of samples at once over one connection; more are refused.
    pub streams_per_connection: usize,
}

impl Default for ObserveLimits {
    fn default() -> Self {
        Self {
            shortest: Duration::from_millis(10),
            longest: Duration::from_secs(60),
            streams: 32,
            streams_per_connection: 4,
        }
    }
}

impl ObserveLimits {
    fn range(&self) -> Range {
        Range::new(
            self.shortest.as_secs_f64() * 1e3,
            self.longest.as_secs_f64() * 1e3,
        )
    }
}

/// How an agent serves.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where it listens; 1 to [`MAX_LISTENERS`] places.
    pub listen: Vec<Listen>,
    /// The version that it says it is.
    pub version: String,
    /// How long leases may be.
    pub lease: LeaseLimits,
    /// How the machine may be observed.
    pub observe: ObserveLimits,
    /// How accept queues may be watched.
    pub queues: QueueLimits,
    /// Where `/sys` and `/proc` are, for watching accept queues.
    pub roots: Roots,
    /// Where the thread that has the machine gives its signs of life.
    pub watch: Watch,
    /// The control groups whose processor time may be asked for beside an accept queue, with all that are below them; at
    /// most [`MAX_CPU_GROUPS`]. Of no other anything is reported. The group of a process is the one that it is in when the
    /// agent starts.
    pub cpu_groups: Vec<TargetSpec>,
    /// Requests that wait for the machine at once, and control groups that are looked up; more are refused.
    pub waiting: usize,
    /// The limits of each listener's connections.
    pub connections: Limits,
    /// Who may read and who may command.
    pub access: Rules,
    /// The least that is ever accepted, whoever asks.
    pub least: Least,
    /// Where it is written who commanded what; the log (target `audit`) where there is none.
    pub audit: Option<AuditFile>,
}

impl AgentConfig {
    /// The defaults, at the given places.
    pub fn at(listen: Vec<Listen>) -> Self {
        Self {
            listen,
            version: env!("CARGO_PKG_VERSION").into(),
            lease: LeaseLimits::default(),
            observe: ObserveLimits::default(),
            queues: QueueLimits::default(),
            roots: Roots::default(),
            watch: Watch::default(),
            cpu_groups: Vec::new(),
            waiting: 64,
            connections: Limits::default(),
            access: Rules::default(),
            least: Least::default(),
            audit: None,
        }
    }

    fn check(&self) -> Result<(), AgentError> {
        let no = |setting, value: String, expected: &'static str| {
            Err(AgentError::Setting {
                setting,
                value,
                expected,
            })
        };
        if self.listen.is_empty() || self.listen.len() > MAX_LISTENERS {
            return no("listen", format!("{} places", self.listen.len()), "1 to 8 places");
        }
        if self.lease.shortest.is_zero() || self.lease.longest < self.lease.shortest {
            return no(
                "lease",
                format!("{:?}", self.lease),
                "a shortest above 0 and a longest that is not shorter",
            );
        }
        let periods = "a shortest of 1 ms or more and a longest that is not shorter";
        if self.observe.shortest < Duration::from_millis(1) || self.observe.longest < self.observe.shortest {
            return no("observe", format!("{:?}", self.observe), periods);
        }
        if self.queues.shortest < Duration::from_millis(1) || self.queues.longest < self.queues.shortest {
            return no("queues", format!("{:?}", self.queues), periods);
        }
        if self.cpu_groups.len() > MAX_CPU_GROUPS {
            let count = format!("{} control groups", self.cpu_groups.len());
            return no("cpu_groups", count, "at most 64 control groups");
        }
        if !(1..=4096).contains(&self.waiting) {
            return no("waiting", self.waiting.to_string(), "1 to 4096 requests");
        }
        Ok(())
    }
}

/// An agent that cannot be started, or did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A setting out of its range.
    #[error("the agent's {setting} is {value}: give {expected}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Its range.
        expected: &'static str,
    },
    /// A place that cannot be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The audit file cannot be written.
    #[error("{0}")]
    Audit(io::Error),
    /// A thread or its runtime could not be started.
    #[error("cannot start the agent's thread: {0}")]
    Thread(io::Error),
    /// A thread of the agent panicked. What was changed was put back where that could be done on the way out; the
    /// state file has the rest for the next start.
    #[error(
        "a thread of the agent failed: see the lines above; start the agent again to put back what is left"
    )]
    Panicked,
}

/// A running agent. Dropping it stops it, as [`AgentHandle::stop`] does.
#[derive(Debug)]
pub struct AgentHandle {
    addresses: Vec<Address>,
    commands: SyncSender<Command>,
    queues: Queues,
    stop_network: watch::Sender<bool>,
    keeper: Option<JoinHandle<PutBack>>,
    network: Option<JoinHandle<()>>,
}

/// Starts agents.
#[derive(Debug)]
pub struct Agent;

impl Agent {
    /// Starts serving a machine. When this returns, the agent listens.
    ///
    /// # Errors
    /// [`AgentError`]; nothing is served then, and the machine is as it was.
    pub fn start(config: AgentConfig, machine: Box<dyn Machine>) -> Result<AgentHandle, AgentError> {
        config.check()?;
        let (commands, queue) = mpsc::sync_channel(config.waiting);
        let audit = Audit::open(config.audit.clone()).map_err(AgentError::Audit)?;
        let settings = Settings {
            version: config.version.clone(),
            run: random(),
            started: Instant::now(),
            watch: config.watch.clone(),
            lease: config.lease,
            observe: config.observe,
            queues: config.queues,
            cpu_groups: config.cpu_groups.iter().map(TargetSpec::to_string).collect(),
            least: config.least,
            audit: audit.clone(),
        };
        let queues = Queues::new(
            config.queues,
            config.roots.clone(),
            config.cpu_groups.clone(),
            settings.run,
            settings.started,
        );
        let service = Service {
            commands: commands.clone(),
            queues: queues.clone(),
            waiting: config.waiting,
            looked_up: Arc::new(Semaphore::new(config.waiting)),
            observe: config.observe,
            lease: config.lease,
        };
        let (stop_network, stopping) = watch::channel(false);
        let (opened, addresses) = mpsc::sync_channel(1);
        let network = std::thread::Builder::new()
            .name("agent-network".into())
            .spawn(move || network(config, service, audit, &opened, stopping))
            .map_err(AgentError::Thread)?;
        // The thread either sends or panics.
        let addresses = match addresses.recv() {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(AgentError::Panicked),
        };
        let keeper = std::thread::Builder::new()
            .name("agent-machine".into())
            .spawn(move || Keeper::new(machine, settings).run(&queue))
            .map_err(AgentError::Thread)?;
        Ok(AgentHandle {
            addresses,
            commands,
            queues,
            stop_network,
            keeper: Some(keeper),
            network: Some(network),
        })
    }
}

impl AgentHandle {
    /// Where it listens, in the order of the configuration.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Whether both its threads still run. One that does not has panicked: stop the agent, and say so.
    pub fn is_running(&self) -> bool {
        let runs = |finished: Option<bool>| finished == Some(false);
        runs(self.keeper.as_ref().map(JoinHandle::is_finished))
            && runs(self.network.as_ref().map(JoinHandle::is_finished))
    }

    /// Puts everything back, ends every stream, and ends. What was put back and what was not is reported.
    ///
    /// # Errors
    /// [`AgentError::Panicked`].
    pub fn stop(mut self) -> Result<PutBack, AgentError> {
        self.end()
    }

    fn end(&mut self) -> Result<PutBack, AgentError> {
        // An error means that the thread is gone already.
        let _ = self.commands.send(Command::Stop);
        let keeper = self.keeper.take().map(JoinHandle::join);
        self.queues.end();
        // Only now: whoever asks until here is still answered, and the streams have ended with the keeper.
        let _ = self.stop_network.send(true);
        let network = self.network.take().map(JoinHandle::join);
        match (keeper, network) {
            (Some(Ok(put_back)), Some(Ok(()))) => Ok(put_back),
            _ => Err(AgentError::Panicked),
        }
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        if self.keeper.is_some()
            && let Err(error) = self.end()
        {
            tracing::error!("{error}");
        }
    }
}

fn network(
    config: AgentConfig,
    service: Service,
    audit: Audit,
    opened: &SyncSender<Result<Vec<Address>, AgentError>>,
    stopping: watch::Receiver<bool>,
) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match runtime.enable_all().max_blocking_threads(MAX_LOOKING_UP).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = opened.send(Err(AgentError::Thread(error)));
            return;
        }
    };
    runtime.block_on(async {
        let mut listeners = Vec::new();
        for listen in config.listen {
            match Listener::open(listen).await {
                Ok(listener) => listeners.push(listener),
                Err(error) => {
                    let _ = opened.send(Err(error.into()));
                    return;
                }
            }
        }
        let addresses = listeners
            .iter()
            .map(|listener| listener.address().clone())
            .collect();
        let _ = opened.send(Ok(addresses));
        let mut servers = JoinSet::new();
        for listener in listeners {
            let mut stopping = stopping.clone();
            let stop = async move {
                // An error is the handle's end, which is the agent's.
                let _ = stopping.wait_for(|stop| *stop).await;
            };
            let limits = config.connections.clone();
            let (audit, log_refused) = (audit.clone(), log_refused());
            let admission = Admission {
                rules: config.access.clone(),
                on_rejected: log_rejected(),
                on_refused: Arc::new(move |peer, refusal| {
                    log_refused(peer, refusal);
                    audit.refused(peer, refusal);
                }),
            };
            servers.spawn(serve(listener, service.clone(), limits, admission, stop));
        }
        while servers.join_next().await.is_some() {}
    });
}

/// A number that no other start of an agent has: the standard library's hasher is seeded by the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
