//! One core: a thread, a current-thread runtime, its listeners, its pools, its counters. Nothing here is
//! shared with another core but the backends' atomics.

use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

use crate::backend::{Backend, BackendState, Balancer, NoBackend};
use crate::client;
use crate::config::{GatewayConfig, ms};
use crate::descriptors::Descriptors;
use crate::queue::Queue;
use crate::signs::Signs;
use crate::stats::CoreSample;
use crate::upstream::Upstream;
use crate::watch::{Watch, Watches};

/// Bytes read at once where a core's buffer is read through.
const SCRATCH_BYTES: usize = 64 * 1024;

/// Pause after the kernel refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the control thread tells a core.
#[derive(Debug)]
pub(crate) enum ToCore {
    /// Exchange the counters for this empty sample and send them back.
    Take(Box<CoreSample>),
    /// A backend's name resolves to another address now.
    Address { backend: usize, address: SocketAddr },
    /// Stop accepting, let requests in flight finish until then; a connection that waits for its next request is kept
    /// open for one more until the second time.
    Drain { deadline: Instant, idle_until: Instant },
}

/// What a core tells the control thread.
#[derive(Debug)]
pub(crate) enum FromCore {
    /// The answer to [`ToCore::Take`].
    Sample { core: usize, sample: Box<CoreSample> },
    /// The core has stopped; its last counters, and how many connections it cut.
    Stopped {
        core: usize,
        sample: Box<CoreSample>,
        cut: u64,
    },
}

/// A listening socket and how to speak on it.
pub(crate) struct Listener {
    pub socket: StdListener,
    pub tls: Option<TlsAcceptor>,
}

/// Everything a core thread is started with.
pub(crate) struct CoreSeed {
    pub index: usize,
    pub config: Arc<GatewayConfig>,
    pub cores: usize,
    pub backends: Vec<Arc<Backend>>,
    pub addresses: Vec<SocketAddr>,
    pub listeners: Vec<Listener>,
    pub signs: Arc<Signs>,
    pub descriptors: Arc<Descriptors>,
    pub orders: mpsc::Receiver<ToCore>,
    pub reports: mpsc::UnboundedSender<FromCore>,
}

/// The state of one core.
pub(crate) struct Core {
    index: usize,
    pub config: Arc<GatewayConfig>,
    pub backends: Vec<Arc<Backend>>,
    addresses: Vec<Cell<SocketAddr>>,
    /// Boxed, because a connection is large and moves at each request.
    #[allow(clippy::vec_box)]
    pools: Vec<RefCell<Vec<Box<Upstream>>>>,
    balancer: RefCell<Balancer>,
    /// Requests that wait for a backend below its limit.
    pub queue: Queue,
    /// What all cores hear of the backends.
    signs: Arc<Signs>,
    pub stats: RefCell<CoreSample>,
    pub watches: Watches,
    pub draining: Cell<bool>,
    /// While it drains: connections that wait for their next request stay open for it.
    pub sparing_idle: Cell<bool>,
    /// What all cores' clients have of the process's descriptors.
    pub descriptors: Arc<Descriptors>,
    /// Connections in the pools.
    pooled_count: Cell<usize>,
    /// Client connections and tunnels open.
    pub connections: Cell<usize>,
    pub tunnels: Cell<u64>,
    /// Accept loops that have not yet closed their socket.
    accepting: Cell<usize>,
    /// A connection or a listener was closed.
    pub closed: Notify,
    drain: Notify,
    pooled: Notify,
    pool_swept: Cell<bool>,
    /// What is read, and small responses, pass through this; nobody keeps it beyond one poll.
    pub scratch: RefCell<Box<[u8]>>,
    /// Request heads are written here.
    pub head: RefCell<Vec<u8>>,
    /// Where the HTTP/2 stream that is being polled puts its watch.
    pub stream_watch: RefCell<Option<Rc<Watch>>>,
}

impl Core {
    /// Whose turn it is; `tried` backends are passed over.
    pub(crate) fn pick(&self, tried: &[usize]) -> Result<usize, NoBackend> {
        let stats = self.stats.borrow();
        self.balancer.borrow_mut().pick(
            &self.backends,
            |index| stats.backends[index].counts.in_flight as usize,
            |index| tried.contains(&index),
        )
    }

    /// A backend showed that it is alive.
    pub(crate) fn heard(&self, backend: usize) {
        self.signs.heard(self.index, backend);
    }

    /// How often any core heard of a backend: two that differ say that it lived in between.
    pub(crate) fn signs_of(&self, backend: usize) -> u64 {
        self.signs.count(backend)
    }

    pub(crate) fn address(&self, backend: usize) -> SocketAddr {
        self.addresses[backend].get()
    }

    /// A live pooled connection. The one used last comes first, so that the rest can grow old and be closed.
    pub(crate) fn check_out(&self, backend: usize) -> Option<Box<Upstream>> {
        let mut pool = self.pools[backend].borrow_mut();
        while let Some(mut upstream) = pool.pop() {
            self.pooled_count.set(self.pooled_count.get() - 1);
            if upstream.is_usable() {
                return Some(upstream);
            }
        }
        None
    }

    /// Keeps a connection for the next request, if there is room and the backend is still wanted.
    pub(crate) fn give_back(&self, backend: usize, mut upstream: Box<Upstream>) {
        let mut pool = self.pools[backend].borrow_mut();
        let wanted = self.backends[backend].state() != BackendState::Down && !self.draining.get();
        let room = pool.len() < self.config.limits.max_idle_per_backend_per_core
            && self.pooled_count.get() < self.descriptors.max_pooled_per_core;
        if wanted && room {
            upstream.reused = true;
            upstream.idle_since = None;
            pool.push(upstream);
            self.pooled_count.set(self.pooled_count.get() + 1);
            if !self.pool_swept.replace(true) {
                self.pooled.notify_one();
            }
        }
    }

    /// Closes pooled connections that are dead or have been idle too long, until dropped. The time of going
    /// idle is noted by the sweep, not by the request path: a connection is closed up to two sweeps late.
    async fn sweep_pools(&self) {
        let limit = ms(self.config.timeouts.pool_idle_timeout_ms);
        let every = (limit / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            if self.pools.iter().all(|pool| pool.borrow().is_empty()) {
                self.pool_swept.set(false);
                self.pooled.notified().await;
            }
            tokio::time::sleep(every).await;
            let now = Instant::now();
            for pool in &self.pools {
                let mut pool = pool.borrow_mut();
                let before = pool.len();
                pool.retain_mut(|upstream| {
                    let since = *upstream.idle_since.get_or_insert(now);
                    now.duration_since(since) < limit && upstream.is_usable()
                });
                self.pooled_count
                    .set(self.pooled_count.get() - (before - pool.len()));
            }
        }
    }

    /// Closes all pooled connections to a backend.
    fn clear_pool(&self, backend: usize) {
        let mut pool = self.pools[backend].borrow_mut();
        self.pooled_count.set(self.pooled_count.get() - pool.len());
        pool.clear();
    }

    /// Accepts until the drain begins, then takes what the kernel had accepted before and closes the socket.
    async fn accept(self: Rc<Self>, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let spawn = |stream: TcpStream, peer: SocketAddr| {
            self.connections.set(self.connections.get() + 1);
            self.descriptors.opened();
            tokio::task::spawn_local(client::serve(self.clone(), stream, peer, tls.clone()));
        };
        while !self.draining.get() {
            if self.connections.get() >= self.config.limits.max_connections_per_core {
                tokio::select! {
                    () = self.closed.notified() => {}
                    () = self.drain.notified() => {}
                }
                continue;
            }
            if !self.descriptors.has_room() {
                // Another core's client may be the one that leaves: nobody says so, it is asked again and again.
                tokio::select! {
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                    () = self.closed.notified() => {}
                    () = self.drain.notified() => {}
                }
                continue;
            }
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => spawn(stream, peer),
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = self.drain.notified() => {}
            }
        }
        // Closing the socket would reset what is in its accept queue, so the queue is emptied first.
        if let Ok(listener) = listener.into_std() {
            while let Ok((stream, peer)) = listener.accept() {
                if stream.set_nonblocking(true).is_ok()
                    && let Ok(stream) = TcpStream::from_std(stream)
                {
                    spawn(stream, peer);
                }
            }
        }
        self.accepting.set(self.accepting.get() - 1);
        self.closed.notify_waiters();
    }

    fn take(&self, sample: &mut CoreSample) {
        self.stats.borrow_mut().swap_into(sample);
        sample.oldest_start = self.watches.oldest_start();
        sample.tunnels = self.tunnels.get();
        sample.queue.waiting = self.queue.len() as u64;
        sample.connections = self.connections.get() as u64;
    }

    /// Obeys the control thread until there is nothing left to do.
    async fn obey(
        &self,
        index: usize,
        orders: &mut mpsc::Receiver<ToCore>,
        reports: &mpsc::UnboundedSender<FromCore>,
    ) {
        let mut until: Option<Instant> = None;
        let mut idle_until = Instant::now();
        loop {
            if until.is_some() && self.accepting.get() == 0 && self.connections.get() == 0 {
                return;
            }
            let deadline = until.map(tokio::time::Instant::from_std);
            tokio::select! {
                order = orders.recv() => match order {
                    Some(ToCore::Take(mut sample)) => {
                        self.take(&mut sample);
                        // A control thread that is gone needs no answer.
                        let _ = reports.send(FromCore::Sample { core: index, sample });
                    }
                    Some(ToCore::Address { backend, address }) => {
                        self.addresses[backend].set(address);
                        self.clear_pool(backend);
                    }
                    Some(ToCore::Drain { deadline, idle_until: spared_until }) => {
                        until = Some(deadline);
                        idle_until = spared_until;
                        self.sparing_idle.set(spared_until > Instant::now());
                        self.draining.set(true);
                        self.drain.notify_waiters();
                        self.watches.wake_all();
                        for backend in 0..self.pools.len() {
                            self.clear_pool(backend);
                        }
                    }
                    None => return,
                },
                () = self.closed.notified(), if until.is_some() => {}
                () = tokio::time::sleep_until(idle_until.into()), if self.sparing_idle.get() => {
                    self.sparing_idle.set(false);
                    self.watches.wake_all();
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)),
                    if until.is_some() => return,
            }
        }
    }
}

/// The body of a core thread.
pub(crate) fn run(runtime: tokio::runtime::Runtime, seed: CoreSeed) {
    let CoreSeed {
        index,
        config,
        cores,
        backends,
        addresses,
        listeners,
        signs,
        descriptors,
        mut orders,
        reports,
    } = seed;
    let limits = &config.limits;
    // Without active checks nobody is found unhealthy.
    let panic_percent = config
        .health
        .path
        .as_ref()
        .map_or(0, |_| config.health.panic_percent);
    let core = Rc::new(Core {
        index,
        addresses: addresses.into_iter().map(Cell::new).collect(),
        pools: backends.iter().map(|_| RefCell::default()).collect(),
        balancer: RefCell::new(Balancer::new(
            config.balance,
            backends.len(),
            limits.max_in_flight_per_backend.div_ceil(cores),
            panic_percent,
        )),
        queue: Queue::new(limits.max_queued.div_ceil(cores)),
        signs,
        stats: RefCell::new(CoreSample::empty(backends.len())),
        watches: Watches::new(&config.timeouts),
        draining: Cell::new(false),
        sparing_idle: Cell::new(false),
        descriptors,
        pooled_count: Cell::new(0),
        connections: Cell::new(0),
        tunnels: Cell::new(0),
        accepting: Cell::new(0),
        closed: Notify::new(),
        drain: Notify::new(),
        pooled: Notify::new(),
        pool_swept: Cell::new(false),
        scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
        head: RefCell::default(),
        stream_watch: RefCell::new(None),
        backends,
        config,
    });
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        for Listener { socket, tls } in listeners {
            match TcpListener::from_std(socket) {
                Ok(listener) => {
                    core.accepting.set(core.accepting.get() + 1);
                    tokio::task::spawn_local(core.clone().accept(listener, tls));
                }
                Err(error) => tracing::error!(%error, core = index, "a listener could not be registered"),
            }
        }
        let watching = core.clone();
        tokio::task::spawn_local(async move { watching.watches.run().await });
        let sweeping = core.clone();
        tokio::task::spawn_local(async move { sweeping.sweep_pools().await });
        core.obey(index, &mut orders, &reports).await;
    });
    let cut = core.connections.get() as u64;
    // Dropping the tasks cuts what is left and closes its accounts, which the last sample then holds.
    drop(tasks);
    drop(runtime);
    let mut sample = Box::new(CoreSample::empty(core.backends.len()));
    core.take(&mut sample);
    let _ = reports.send(FromCore::Stopped {
        core: index,
        sample,
        cut,
    });
}
