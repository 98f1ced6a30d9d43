//! A machine of another kind, emulated: a server that answers as fast as a Xeon, an Atom or an Arm of the size paper would, at a share of
//! their speed, and says what they would draw.
//!
//! **What is emulated.** Each request is held in a model of the machine ([`headroom_physics::serving`]): processor time on cores that all
//! requests share, then the link, shared too. The bytes are real, the waiting is real, the work is not: so the host needs to be faster
//! than `speed` of the machine, no more, and several machines fit on one host. Everything by time is that share: throughput, processor
//! time of a request, the link. Watts and shares of resources are the machine's own, so what is KB/s/W here is `speed` of the machine's.
//!
//! **What it says.** `/machine` (or memcached's `stats`) has its mean watts and its energy. With [`ServingConfig::tree`] a folder holds what
//! the machine's `/sys` and `/proc` would: an energy counter in the powercap tree, `/proc/stat` with the driver's time as that of soft
//! interrupts, `/proc/net/dev` and the link's speed, brought up to date twenty times a second. The folder is marked as emulated
//! (`sys/headroom-testbed/emulated`), so every watt read from it is labelled so; give `--sys DIR/sys --proc DIR/proc` to what reads it.
//!
//! **What it is not.** No lever moves it: it has no caps, no frequencies, no control groups. A `HEAD` takes no transfer.

mod held;
mod http;
mod machine;
mod memcached;
mod tree;

use crate::server::{self, Limits};
use headroom_physics::serving::StudiedCost;
use headroom_physics::{ServingKind, StudiedService};
use held::Held;
use machine::Machine;
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How often the files are brought up to date.
const WRITE_EVERY: Duration = Duration::from_millis(50);
/// The length of the accept queue that is asked for.
const BACKLOG: i32 = 1_024;
/// How long open requests may take once the machine is told to stop.
const DRAIN: Duration = Duration::from_secs(2);

/// A machine to emulate.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingConfig {
    /// Which.
    pub kind: ServingKind,
    /// What runs on it: HTTP for Apache, memcached's text protocol for memcached.
    pub service: StudiedService,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The share of the real machine's speed, 0.0001 to 1.
    pub speed: f64,
    /// The folder for what it says of itself; it must be empty or of such a machine.
    pub tree: Option<PathBuf>,
}

/// Why a machine could not be emulated.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose a free port, or port 0 for any")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system answered.
        error: io::Error,
    },
    /// The speed is none.
    #[error("speed {speed}: give a share of the machine's speed from 0.0001 to 1, as 0.02")]
    Speed {
        /// The speed.
        speed: f64,
    },
    /// The folder holds something else.
    #[error("{}: the folder is not empty and no emulated machine's; give another, or empty it", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// A file of the folder cannot be made.
    #[error("{}: {error}; give a folder that may be written", path.display())]
    Tree {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// The system refused a thread or an event loop.
    #[error("the machine could not run: {0}; check the limits on processes and open files")]
    System(#[from] io::Error),
    /// A thread panicked.
    #[error("a thread of the emulated machine panicked; please report it with its standard error")]
    Panicked,
}

/// What a machine says of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServingStatus {
    /// Its kind.
    pub machine: &'static str,
    /// What runs on it.
    pub service: &'static str,
    /// The share of its real speed.
    pub speed: f64,
    /// Where the watts are from: always emulated.
    pub source: headroom_units::Source,
    /// Mean power since it began.
    pub mean_w: f64,
    /// Energy since it began.
    pub energy_j: f64,
    /// For how long it runs.
    pub up_s: f64,
    /// Requests served.
    pub completed: u64,
}

/// What all connections share.
#[derive(Debug)]
struct Front {
    held: Arc<Held>,
    cost: StudiedCost,
    kind: ServingKind,
    service: StudiedService,
    speed: f64,
}

impl Front {
    /// Holds a request until the machine would have answered it; whether it did: one that is full or stopped does not. The content that
    /// goes in the one direction that carries more is what counts.
    async fn hold(&self, received: usize, sent: usize) -> bool {
        let cost = self.cost.of(received.max(sent) as f64);
        match self.held.submit(cost, received as u64, sent as u64) {
            Some(told) => told.await.is_ok(),
            None => false,
        }
    }

    fn status(&self) -> ServingStatus {
        let done = self.held.seen().done;
        ServingStatus {
            machine: self.kind.name(),
            service: self.service.name(),
            speed: self.speed,
            source: headroom_units::Source::Emulated,
            mean_w: done.energy.get() / done.at_s.max(1e-9),
            energy_j: done.energy.get(),
            up_s: done.at_s,
            completed: done.completed,
        }
    }
}

/// A machine that is being emulated. Dropping it ends it without waiting.
#[derive(Debug)]
pub struct ServingHandle {
    address: SocketAddr,
    front: Arc<Front>,
    stop: watch::Sender<bool>,
    server: JoinHandle<io::Result<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Emulates a machine, from threads of its own. Returns when it accepts connections.
///
/// # Errors
/// [`ServingError`] where the speed is none, the address is taken, the folder cannot be used, or the system refuses a thread.
pub fn serve(config: &ServingConfig) -> Result<ServingHandle, ServingError> {
    if !(1e-4..=1.0).contains(&config.speed) {
        return Err(ServingError::Speed { speed: config.speed });
    }
    let listener = server::listen(config.listen, BACKLOG).map_err(|error| ServingError::Listen {
        address: config.listen,
        error,
    })?;
    let address = listener.local_addr()?;
    let tree = config
        .tree
        .as_deref()
        .map(|at| tree::Tree::make(at, config.kind, config.speed))
        .transpose()?;
    let held = Held::new(Machine::new(config.kind.machine(), config.speed));
    let front = Arc::new(Front {
        held: Arc::clone(&held),
        cost: config.kind.cost(config.service),
        kind: config.kind,
        service: config.service,
        speed: config.speed,
    });
    if let Some(tree) = &tree {
        tree.write(&held.seen())?;
    }
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let worker = Arc::clone(&held);
    let mut threads = vec![named("machine").spawn(move || worker.work())?];
    if let Some(tree) = tree {
        let seen = Arc::clone(&held);
        threads.push(named("machine-files").spawn(move || {
            while seen.sleep(WRITE_EVERY) {
                // A disk that is full now may not be later; until then the files say what they said.
                if let Err(error) = tree.write(&seen.seen()) {
                    tracing::warn!("the emulated machine's files cannot be written: {error}");
                }
            }
        })?);
    }
    let (stop, stopping) = watch::channel(false);
    let (service, shared) = (config.service, Arc::clone(&front));
    let server = named("machine-front").spawn(move || match service {
        StudiedService::Apache => {
            let limits = Limits {
                max_connections: memcached::MAX_CONNECTIONS,
                drain: DRAIN,
            };
            server::run(http::Pages::new(shared), listener, limits, stopping)
        }
        StudiedService::Memcached => memcached::run(shared, listener, stopping),
    })?;
    Ok(ServingHandle {
        address,
        front,
        stop,
        server,
        threads,
    })
}

impl ServingHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it says of itself.
    pub fn status(&self) -> ServingStatus {
        self.front.status()
    }

    /// Ends it, after open requests or two seconds.
    ///
    /// # Errors
    /// [`ServingError`] where the event loop failed or a thread panicked.
    pub fn shutdown(self) -> Result<(), ServingError> {
        self.stop.send_replace(true);
        let served = self.server.join();
        self.front.held.stop();
        for thread in self.threads {
            thread.join().map_err(|_| ServingError::Panicked)?;
        }
        Ok(served.map_err(|_| ServingError::Panicked)??)
    }
}

#[cfg(test)]
mod tests;
