//! The state of one core that its layers and connections share. Nothing here is shared with another core but the
//! backends' atomics.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use crate::admission::Ranking;
use crate::alarm::Alarm;
use crate::backend::Backend;
use crate::batch::BatchInterval;
use crate::buffered::Buffered;
use crate::cache::Store;
use crate::config::GatewayConfig;
use crate::descriptors::Descriptors;
use crate::exchanges::Exchanges;
use crate::failing::{Observed, may_eject};
use crate::line_patience::LinePatience;
use crate::names::Names;
use crate::queue::Queue;
use crate::relayed::Relayed;
use crate::shortage::Shortage;
use crate::signs::Signs;
use crate::sizes::{SharedRoutes, Sizes};
use crate::sources::Sources;
use crate::stats::{ConnectCounts, CoreSample};
use crate::waiting::Waiting;
use crate::watch::{Watch, Watches};

/// While others wait for a backend, so many times as much of a body may be held.
const PRESSED: usize = 64;

/// So many connections of a core are many...
const MANY_CONNECTIONS: u64 = 128;
/// ...and are mostly idle where there are more than so many for each request in flight.
const IDLE_FOR_EACH: u64 = 8;

/// Bytes read at once where a core's buffer is read through.
const SCRATCH_BYTES: usize = 64 * 1024;

/// What the cores of a gateway have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub config: Arc<GatewayConfig>,
    pub backends: Vec<Arc<Backend>>,
    /// How many cores there are.
    pub cores: usize,
    /// What all cores hear of the backends.
    pub signs: Arc<Signs>,
    /// The requests in flight of all cores.
    pub alarm: Arc<Alarm>,
    /// The requests of all cores that wait for a backend.
    pub waiting: Arc<Waiting>,
    /// What each source has and asks; `None` where nobody limits it.
    pub sources: Option<Arc<Sources>>,
    /// What all cores' clients have of the process's descriptors.
    pub descriptors: Arc<Descriptors>,
    /// What is stored of answers; `None` without a cache.
    pub cache: Option<Arc<Store>>,
    /// For how long requests are held; `None` without a batcher.
    pub batch: Option<Arc<BatchInterval>>,
    /// Where the classes of sizes go; `None` where sizes are not looked at.
    pub routes: Option<Arc<SharedRoutes>>,
}

/// The state of one core.
pub(crate) struct Core {
    index: usize,
    /// How many cores there are.
    pub cores: usize,
    /// This core's part of the limit of requests in flight at a backend: what a batcher here reckons with. The limit itself is one for
    /// all cores.
    pub part_in_flight_per_backend: usize,
    pub config: Arc<GatewayConfig>,
    pub backends: Vec<Arc<Backend>>,
    /// The requests of all cores that wait.
    pub waiting: Arc<Waiting>,
    /// Some backend is to be told of each connection's client (PROXY protocol).
    pub names_clients: bool,
    /// Answers may be stored, so that a layer looks at their fields.
    pub stores: bool,
    /// How important requests are; `None` where all are equal.
    pub ranking: Option<Ranking>,
    /// Requests that wait for a backend below its limit.
    pub queue: Queue,
    /// How long they may, by what their clients were seen to bear.
    pub line_patience: LinePatience,
    /// Whether some of them may have left unseen.
    pub relayed: Relayed,
    /// Requests that wait for a descriptor.
    pub shortage: Shortage,
    /// Requests that the batcher holds.
    pub held: Cell<u64>,
    signs: Arc<Signs>,
    alarm: Arc<Alarm>,
    pub stats: RefCell<CoreSample>,
    /// What became of the exchanges with each backend.
    pub observed: Observed,
    /// What the exchanges with backends tell of how many at a time they bear; `None` where nobody asks, without a batcher.
    pub exchanges: Option<Exchanges>,
    /// What is known of the sizes of answers; `None` where nobody looks at them.
    pub sizes: Option<Sizes>,
    /// Where the classes of sizes go.
    pub routes: Option<Arc<SharedRoutes>>,
    pub watches: Watches,
    /// What is held of bodies for slow clients.
    pub buffered: Rc<Buffered>,
    pub draining: Cell<bool>,
    /// While it drains: connections that wait for their next request stay open for it.
    pub sparing_idle: Cell<bool>,
    pub sources: Option<Arc<Sources>>,
    pub descriptors: Arc<Descriptors>,
    /// Client connections and tunnels open.
    pub connections: Cell<usize>,
    pub tunnels: Cell<u64>,
    /// Accept loops that have not yet closed their socket.
    pub accepting: Cell<usize>,
    /// A connection or a listener was closed.
    pub closed: Notify,
    /// The drain begins.
    pub drain: Notify,
    /// What is read, and small responses, pass through this; nobody keeps it beyond one poll.
    pub scratch: RefCell<Box<[u8]>>,
    /// What the backends' answers before had for fields.
    pub names: RefCell<Names>,
    /// What clients' requests before had for fields.
    pub request_names: RefCell<Names>,
    /// Where the HTTP/2 stream that is being polled puts its watch.
    pub stream_watch: RefCell<Option<Rc<Watch>>>,
}

impl Core {
    /// The state of the core of this number.
    pub(crate) fn new(index: usize, common: Common) -> Self {
        let Common {
            config,
            backends,
            cores,
            signs,
            alarm,
            waiting,
            sources,
            descriptors,
            cache,
            batch,
            routes,
        } = common;
        Self {
            index,
            cores,
            part_in_flight_per_backend: config.limits.max_in_flight_per_backend.div_ceil(cores),
            names_clients: backends.iter().any(|backend| backend.dial.names_client()),
            stores: cache.is_some(),
            ranking: Ranking::new(&config.admission),
            line_patience: LinePatience::default(),
            relayed: Relayed::default(),
            queue: Queue::new(Arc::clone(&waiting), index),
            waiting,
            shortage: Shortage::default(),
            held: Cell::new(0),
            signs,
            alarm,
            stats: RefCell::new(CoreSample::empty(backends.len(), config.sizes.all_classes())),
            observed: Observed::new(backends.len()),
            exchanges: batch.is_some().then(Exchanges::default),
            sizes: Sizes::new(&config.sizes),
            routes,
            buffered: Rc::new(Buffered::new(
                config.limits.max_buffered_bytes / cores.max(1) as u64,
            )),
            watches: Watches::new(&config.timeouts),
            draining: Cell::new(false),
            sparing_idle: Cell::new(false),
            sources,
            descriptors,
            connections: Cell::new(0),
            tunnels: Cell::new(0),
            accepting: Cell::new(0),
            closed: Notify::new(),
            drain: Notify::new(),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            names: RefCell::default(),
            request_names: RefCell::default(),
            stream_watch: RefCell::new(None),
            backends,
            config,
        }
    }

    /// So many bytes of a body may be held for its client; many times as many while others wait for a backend.
    pub(crate) fn pressed(&self, bytes: usize) -> usize {
        match self.waiting.is_any() {
            true => bytes.saturating_mul(PRESSED),
            false => bytes,
        }
    }

    /// Its number.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// An exchange with this backend has ended, one that had a connection: whether the backend is passed over for what became of it, and
    /// of others before. `probe` was to show whether it is back.
    pub(crate) fn exchanged(&self, backend: usize, failed: bool, probe: bool, counts: &mut ConnectCounts) {
        self.observed.ended(backend, failed);
        let (to, health) = (&self.backends[backend], &self.config.health);
        if !failed {
            if probe {
                to.failing.lift();
                tracing::info!(backend = to.url, "it answers again");
            }
            return;
        }
        let stands_out = || {
            self.observed
                .stands_out(backend, &self.backends, health, Instant::now())
                && !to.failing.is_ejected()
        };
        if !probe && !stands_out() {
            return;
        }
        if !may_eject(backend, &self.backends, health) {
            if probe {
                to.failing.lift();
            }
            // Counted from the start, so that it is reported once for so many failures.
            self.observed.forget(backend);
            counts.ejections_withheld += 1;
        } else if to.failing.eject(health, probe) {
            self.observed.forget(backend);
            counts.ejected_failing += 1;
            if !probe {
                tracing::warn!(
                    backend = to.url,
                    "it fails requests, and others do not: passed over for a while"
                );
            }
        }
    }

    /// Exchanges of this core in flight at its backends.
    pub(crate) fn in_flight(&self) -> usize {
        let stats = self.stats.borrow();
        let backends = stats.backends.iter();
        backends.map(|backend| backend.counts.in_flight as usize).sum()
    }

    /// Whether there are many connections, and few of them have a request in flight: then each gives back at once what only its next one
    /// needs.
    pub(crate) fn is_mostly_idle(&self) -> bool {
        let connections = self.connections.get() as u64;
        connections > MANY_CONNECTIONS && self.stats.borrow().service.in_flight * IDLE_FOR_EACH < connections
    }

    /// A backend showed that it is alive.
    pub(crate) fn heard(&self, backend: usize) {
        self.signs.heard(self.index, backend);
    }

    /// A request of the service has arrived, and so many are in flight here.
    pub(crate) fn request_arrived(&self, in_flight: u64) {
        self.alarm.arrived(self.index, in_flight);
    }

    /// A request of the service has ended, and so many are in flight here.
    pub(crate) fn request_ended(&self, in_flight: u64) {
        self.alarm.ended(self.index, in_flight);
    }

    /// How often any core heard of a backend: two that differ say that it lived in between.
    pub(crate) fn signs_of(&self, backend: usize) -> u64 {
        self.signs.count(backend)
    }

    /// Moves what was counted into `sample`.
    pub(crate) fn take(&self, sample: &mut CoreSample) {
        self.stats.borrow_mut().swap_into(sample);
        sample.oldest_start = self.watches.oldest_start();
        sample.tunnels = self.tunnels.get();
        sample.queue.waiting = self.queue.len() as u64;
        sample.batch.held = self.held.get();
        sample.connections = self.connections.get() as u64;
    }
}
