//! Starting the data plane, and what one holds of it afterwards.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::admission;
use crate::alarm::Alarm;
use crate::backend::{Backend, BackendChange, BackendHealth};
use crate::batch::BatchInterval;
use crate::cache::Store;
use crate::config::{GatewayConfig, MAX_WEIGHT, ms};
use crate::control::{self, Channels, DrainReport, Order, Returned};
use crate::core::Common;
use crate::descriptors::Descriptors;
use crate::entry::Entry;
use crate::error::GatewayError;
use crate::listeners::{self, Listener, SharedListeners};
use crate::resolve::{self, Found};
use crate::signs::Signs;
use crate::sizes::{ClassRoute, SharedRoutes};
use crate::sources::Sources;
use crate::stats::PeriodStats;
use crate::thread::{self, CoreSeed};
use crate::tls::TlsEnd;
use crate::waiting::Waiting;

/// Orders that may wait for a core or for the control thread.
const ORDER_QUEUE: usize = 64;

/// The data plane.
#[derive(Debug)]
pub struct Gateway;

/// A data plane that has all it needs and serves nobody yet.
pub struct Bound {
    config: GatewayConfig,
    backends: Vec<Arc<Backend>>,
    found: Vec<Found>,
    sockets: Vec<Vec<Listener>>,
    local_addrs: Vec<SocketAddr>,
}

/// A running data plane. It works the same from a plain thread and inside any runtime: the gateway has its own
/// threads. Dropping it stops the gateway at once; [`Handle::shutdown`] lets requests finish first.
#[derive(Debug)]
pub struct Handle {
    /// The requests of all cores that wait.
    waiting: Arc<Waiting>,
    orders: mpsc::Sender<Order>,
    returned: Returned,
    alarm: Arc<Alarm>,
    backends: Vec<Arc<Backend>>,
    local_addrs: Vec<SocketAddr>,
    drain_timeout: Duration,
    batch: Option<Arc<BatchInterval>>,
    cache: Option<Arc<Store>>,
    /// Where the classes of sizes go.
    routes: Option<Arc<SharedRoutes>>,
    config: Arc<GatewayConfig>,
    /// The ends of the TLS listeners.
    tls: Vec<Arc<TlsEnd>>,
}

/// What a gateway is made of before its first socket: the backends and their addresses.
type Prepared = (Vec<Arc<Backend>>, Vec<Found>);

/// What this machine has of memory.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

fn prepare(config: &GatewayConfig) -> Result<Prepared, GatewayError> {
    config.check()?;
    config.check_memory(memory_bytes())?;
    config.resolver.check_files()?;
    let backends: Vec<Arc<Backend>> = config
        .backends
        .iter()
        .map(|backend| Backend::load(backend).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let found = resolve::look_up_all(&config.resolver, &backends)?;
    for (backend, found) in backends.iter().zip(&found) {
        backend.set_addresses(Arc::clone(&found.addresses));
    }
    Ok((backends, found))
}

impl Gateway {
    /// Checks all that [`Gateway::start`] checks before its first thread, listens nowhere and leaves nothing behind. Of an
    /// address that is in use `ours` is asked whether it is so by what this gateway is to replace: then it is no mistake.
    ///
    /// ```
    /// use headroom_gateway::{BackendConfig, Gateway, GatewayConfig};
    ///
    /// let config = GatewayConfig {
    ///     listen: vec!["127.0.0.1:0".parse().unwrap()],
    ///     backends: vec![BackendConfig::new("ftp://127.0.0.1:9000")],
    ///     ..GatewayConfig::default()
    /// };
    /// let error = Gateway::check(&config, |_| false).unwrap_err();
    /// assert!(error.to_string().contains("the scheme is neither http nor https"));
    /// ```
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn check(
        config: &GatewayConfig,
        mut ours: impl FnMut(SocketAddr) -> bool,
    ) -> Result<(), GatewayError> {
        prepare(config)?;
        for (address, tls, _) in config.listeners() {
            if let Some(tls) = tls {
                TlsEnd::load(tls)?;
            }
            // Bound and never listened on: a socket that shares the port takes no connection from who listens there.
            let free = match config.takeover {
                true => listeners::open(address, true).map(drop),
                false => listeners::check_free(address),
            };
            match free {
                Err(source) if source.kind() == io::ErrorKind::AddrInUse && ours(address) => {}
                Err(source) => return Err(GatewayError::Bind { address, source }),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Binds every socket, then starts the threads: [`Gateway::bind`] and [`Bound::start`].
    ///
    /// Host names of backends are resolved here and block the caller that long.
    ///
    /// # Errors
    /// A value out of range, an address that cannot be listened on, a certificate that cannot be used, a host
    /// name that does not resolve, a thread that cannot be started. Nothing is left running.
    pub fn start(config: GatewayConfig) -> Result<Handle, GatewayError> {
        Self::bind(config)?.start()
    }

    /// Binds every socket and loads every certificate: all that may need privileges. No thread is started.
    ///
    /// ```
    /// use headroom_gateway::{BackendConfig, Gateway, GatewayConfig};
    ///
    /// # fn main() -> Result<(), headroom_gateway::GatewayError> {
    /// let bound = Gateway::bind(GatewayConfig {
    ///     listen: vec!["127.0.0.1:0".parse().unwrap()],
    ///     backends: vec![BackendConfig::new("http://127.0.0.1:9000")],
    ///     ..GatewayConfig::default()
    /// })?;
    /// assert_ne!(bound.local_addrs()[0].port(), 0);
    /// // Here a process that was root changes its user.
    /// let gateway = bound.start()?;
    /// # drop(gateway);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Gateway::start`] but for threads.
    pub fn bind(config: GatewayConfig) -> Result<Bound, GatewayError> {
        Self::bind_inheriting(config, Vec::new())
    }

    /// The same with listening sockets that another process opened: those of each address that is listened on are served instead of new
    /// ones, every one of them, and with them the connections that wait in their queues. Cores that there are too many of have further
    /// sockets of the address, or, where those cannot be opened, share one. Sockets of other addresses are closed.
    ///
    /// # Errors
    /// As there.
    pub fn bind_inheriting(
        config: GatewayConfig,
        inherited: Vec<TcpListener>,
    ) -> Result<Bound, GatewayError> {
        let (backends, found) = prepare(&config)?;
        let mut listens = Vec::new();
        for (wanted, tls, trusted) in config.listeners() {
            let entry = Entry {
                tls: tls.map(TlsEnd::load).transpose()?.map(Arc::new),
                trusted: trusted.map(Arc::from),
            };
            listens.push((wanted, entry));
        }
        let shape = (config.core_threads(), config.limits.listen_backlog);
        let (sockets, local_addrs) = listeners::open_all(listens, inherited, shape, config.takeover)?;
        Ok(Bound {
            config,
            backends,
            found,
            sockets,
            local_addrs,
        })
    }
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound")
            .field("local_addrs", &self.local_addrs)
            .finish_non_exhaustive()
    }
}

impl Bound {
    /// The addresses listened on: those of `listen` in their order, then those of `tls`, then those of `http`.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Its listening sockets, for a successor.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> io::Result<SharedListeners> {
        listeners::share(&self.sockets, &self.local_addrs)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// A thread that cannot be started, an address that another program listens on by now. Nothing is left running.
    pub fn start(self) -> Result<Handle, GatewayError> {
        let Self {
            config,
            backends,
            found,
            sockets,
            local_addrs,
        } = self;
        let addresses: Vec<_> = found.iter().map(|found| Arc::clone(&found.addresses)).collect();
        let of_core = sockets.first().into_iter().flatten();
        let tls: Vec<_> = of_core
            .filter_map(|listener| listener.entry.tls.clone())
            .collect();
        let cores = sockets.len();
        listeners::listen_late(&sockets, config.limits.listen_backlog)?;
        let started = Instant::now();
        let drain_timeout = ms(config.drain_timeout_ms);
        let alarm = Arc::new(Alarm::new(cores));
        let interval = config.batch.interval_ms.map(ms);
        let batch = interval.map(|interval| Arc::new(BatchInterval::new(interval)));
        let cache = (config.cache.bytes > 0).then(|| Arc::new(Store::new(&config.cache)));
        let config = Arc::new(config);
        let routes = (config.sizes.classes() > 0).then(Arc::<SharedRoutes>::default);
        let waiting = Arc::new(Waiting::new(
            cores,
            config.limits.max_queued,
            admission::ranks(&config.admission),
        ));
        let common = Common {
            routes: routes.clone(),
            batch: batch.clone(),
            alarm: Arc::clone(&alarm),
            cache: cache.clone(),
            config: Arc::clone(&config),
            cores,
            signs: Arc::new(Signs::new(cores, backends.len())),
            waiting: Arc::clone(&waiting),
            sources: Sources::new(&config.sources),
            descriptors: Arc::new(Descriptors::of_process(
                cores,
                sockets.iter().map(Vec::len).sum(),
                backends.len(),
            )),
            backends: backends.clone(),
        };
        let (reports, reports_receiver) = mpsc::unbounded_channel();
        let mut core_orders = Vec::new();
        for (index, listeners) in sockets.into_iter().enumerate() {
            let (sender, orders) = mpsc::channel(ORDER_QUEUE);
            core_orders.push(sender);
            let seed = CoreSeed {
                index,
                common: common.clone(),
                addresses: addresses.clone(),
                listeners,
                orders,
                reports: reports.clone(),
            };
            spawn(format!("gateway-{index}"), move |runtime| {
                thread::run(runtime, seed)
            })?;
        }
        drop(reports);
        let (orders, orders_receiver) = mpsc::channel(ORDER_QUEUE);
        let returned = Returned::default();
        let control_returned = returned.clone();
        let ends = tls.clone();
        spawn("gateway-control".into(), move |runtime| {
            let channels = Channels {
                started,
                cores: core_orders,
                orders: orders_receiver,
                reports: reports_receiver,
                names_last: found.iter().map(|found| found.lasts).collect(),
                tls: ends,
            };
            control::run(runtime, common, channels, control_returned);
        })?;
        Ok(Handle {
            waiting,
            orders,
            returned,
            alarm,
            backends,
            local_addrs,
            drain_timeout,
            batch,
            cache,
            routes,
            config,
            tls,
        })
    }
}

/// Starts a named thread with a current-thread runtime. On an error the threads started before end by
/// themselves: what they listen to for orders is dropped.
fn spawn(
    name: String,
    body: impl FnOnce(tokio::runtime::Runtime) + Send + 'static,
) -> Result<(), GatewayError> {
    let failed = |source| GatewayError::Thread {
        thread: name.clone(),
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || body(runtime))
        .map_err(failed)?;
    Ok(())
}

/// A period on its way to a caller. If the caller gives up between its delivery and its receipt, it goes back.
struct Claim<'a> {
    answer: oneshot::Receiver<PeriodStats>,
    returned: &'a Returned,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(period) = self.answer.try_recv() {
            self.returned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(period);
        }
    }
}

impl Handle {
    /// The addresses listened on: those of `listen` in their order, then those of `tls`, then those of `http`.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// For how long requests are held from the next interval on, zero for not at all; `None` without a batcher.
    pub fn batch_interval(&self) -> Option<Duration> {
        self.batch.as_ref().map(|interval| interval.get())
    }

    /// Holds requests for so long from the next interval on; zero holds none. It is bounded by `batch.max_wait_ms` and half of
    /// `target_ms`: what is in force then, or `None` without a batcher.
    pub fn set_batch_interval(&self, interval: Duration) -> Option<Duration> {
        let batch = self.batch.as_ref()?;
        batch.set(interval.min(self.config.max_batch_interval()?));
        Some(batch.get())
    }

    /// Bytes that the cache may hold now; `None` without a cache.
    pub fn cache_bytes(&self) -> Option<u64> {
        self.cache.as_ref().map(|store| store.bytes())
    }

    /// Lets the cache hold so many bytes from now on, within [`GatewayConfig::cache_bytes_range`]; where they are fewer than before, what
    /// there is no more room for goes at once, and its policy chooses what. What is in force then; `None` without a cache.
    pub fn set_cache_bytes(&self, bytes: u64) -> Option<u64> {
        let store = self.cache.as_ref()?;
        let range = self.config.cache_bytes_range()?;
        store.resize(bytes.clamp(*range.start(), *range.end()));
        Some(store.bytes())
    }

    /// Sends the requests of each class of sizes to the backends by these weights, from the next request on: of each class whose size is
    /// known, in their order, a weight of each backend, at most [`crate::MAX_WEIGHT`]. In turn, in proportion to the weights, whatever
    /// the backends' own weights are, as long as they have fewer in flight than [`ClassRoute::most_in_flight`], over all cores; then where the
    /// others have the most room. While none of these can take a request (down, unhealthy, ejected, at its limit) it goes as `balance` says.
    /// So does a class without a weight above 0, what is of no known size, and all with no routes at all (an empty list).
    ///
    /// # Errors
    /// Routes for another number of classes or backends than there are, or weights larger than may be; nothing is changed then.
    pub fn set_routes(&self, routes: Vec<ClassRoute>) -> Result<(), GatewayError> {
        self.check_routes(&routes)?;
        if let Some(shared) = &self.routes {
            shared.set(routes);
        }
        Ok(())
    }

    /// Checks what [`Handle::set_routes`] would be given, and changes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn check_routes(&self, routes: &[ClassRoute]) -> Result<(), GatewayError> {
        let classes = self.config.sizes.classes();
        let backends = self.backends.len();
        let wrong = |value: String, allowed: String| GatewayError::Config {
            key: "routes".to_owned(),
            value,
            allowed,
        };
        if routes.is_empty() {
            return Ok(());
        }
        if classes == 0 {
            let allowed = "none: the gateway looks at no sizes; configure `sizes.bounds_bytes`";
            return Err(wrong(format!("{} classes", routes.len()), allowed.to_owned()));
        }
        if routes.len() != classes {
            return Err(wrong(
                format!("{} classes", routes.len()),
                format!("{classes} classes, or none"),
            ));
        }
        for route in routes {
            if route.weights.len() != backends {
                return Err(wrong(
                    format!("{} weights of a class", route.weights.len()),
                    format!("{backends}, one of each backend"),
                ));
            }
            if !route.most_in_flight.is_empty() && route.most_in_flight.len() != backends {
                return Err(wrong(
                    format!("{} bounds of a class", route.most_in_flight.len()),
                    format!("{backends}, one of each backend, or none"),
                ));
            }
            if let Some(weight) = route.weights.iter().find(|weight| **weight > MAX_WEIGHT) {
                return Err(wrong(
                    format!("a weight of {weight}"),
                    format!("0 to {MAX_WEIGHT}"),
                ));
            }
        }
        Ok(())
    }

    /// The routes in force, as [`Handle::set_routes`] takes them; empty where there are none.
    pub fn routes(&self) -> Vec<ClassRoute> {
        self.routes
            .as_ref()
            .map_or_else(Vec::new, |routes| routes.get().to_vec())
    }

    /// Reads the certificates, keys and authorities of all TLS listeners again, now: connections that are open keep what they have.
    ///
    /// # Errors
    /// The first file that cannot be used; the listener that it is of goes on with what it had, and the others are read all the same.
    pub fn reload_certificates(&self) -> Result<(), GatewayError> {
        let read: Vec<_> = self.tls.iter().map(|end| end.refresh(true)).collect();
        read.into_iter().collect()
    }

    /// What it was started with.
    pub fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// How many backends there are.
    pub fn backend_count(&self) -> usize {
        self.backends.len()
    }

    /// Everything counted since the last call, of all cores that answer within `patience`.
    ///
    /// A core that does not answer in time is counted in [`PeriodStats::cores_missing`]; what it counted comes
    /// with the next period. Nothing is lost if this future is dropped, or after [`Handle::shutdown`].
    pub async fn take_period(&self, patience: Duration) -> PeriodStats {
        let (reply, answer) = oneshot::channel();
        let mut claim = Claim {
            answer,
            returned: &self.returned,
        };
        let sent = self.orders.send(Order::Take { patience, reply }).await;
        let answer = (&mut claim.answer).await;
        Self::answered(sent.is_ok(), answer)
    }

    /// [`Handle::take_period`] for a plain thread.
    ///
    /// # Panics
    /// Inside an asynchronous runtime, which it would block.
    pub fn take_period_blocking(&self, patience: Duration) -> PeriodStats {
        let (reply, answer) = oneshot::channel();
        let sent = self.orders.blocking_send(Order::Take { patience, reply });
        Self::answered(sent.is_ok(), answer.blocking_recv())
    }

    fn answered<T>(sent: bool, answer: Result<T, oneshot::error::RecvError>) -> T {
        // The control thread ends only when every Handle's sender is dropped, and `self` holds one; so only a
        // panic there could leave an order unanswered, and that is a bug to be seen.
        debug_assert!(sent);
        answer.expect("the gateway's control thread has panicked")
    }

    /// Waits until more requests than `bound` are in flight; how many. The newest call counts: an earlier one whose bound was
    /// not passed gets `None`.
    pub async fn passed(&self, bound: u64) -> Option<u64> {
        self.alarm.watch(bound).await.ok()
    }

    /// Changes a backend: its [`crate::BackendState`] or its weight. It takes effect with the next request.
    ///
    /// ```
    /// use headroom_gateway::{BackendChange, BackendConfig, BackendState, Gateway, GatewayConfig};
    ///
    /// # fn main() -> Result<(), headroom_gateway::GatewayError> {
    /// let gateway = Gateway::start(GatewayConfig {
    ///     listen: vec!["127.0.0.1:0".parse().unwrap()],
    ///     backends: vec![BackendConfig::new("http://127.0.0.1:9000")],
    ///     ..GatewayConfig::default()
    /// })?;
    /// gateway.set_backend_state(0, BackendState::Drain)?;
    /// gateway.set_backend_state(0, BackendChange::Weight(3))?;
    /// let health = &gateway.backends_health()[0];
    /// assert_eq!((health.state, health.weight), (BackendState::Drain, 3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No such backend, or a weight above 1000.
    pub fn set_backend_state(
        &self,
        backend: usize,
        change: impl Into<BackendChange>,
    ) -> Result<(), GatewayError> {
        self.backends
            .get(backend)
            .ok_or(GatewayError::NoSuchBackend {
                index: backend,
                count: self.backends.len(),
            })?
            .apply(change.into())?;
        // There may be room now for what waits.
        self.waiting.wake_first();
        Ok(())
    }

    /// The classes of importance, in the order of [`PeriodStats::ranks`]; none where all requests are equal.
    pub fn ranks(&self) -> Vec<&str> {
        admission::names(&self.config.admission)
    }

    /// What is known of each backend, in the order of the configuration.
    pub fn backends_health(&self) -> Vec<BackendHealth> {
        self.backends.iter().map(|backend| backend.health()).collect()
    }

    /// The configured `drain_timeout_ms`.
    pub fn drain_timeout(&self) -> Duration {
        self.drain_timeout
    }

    /// Stops gracefully: closes the listening sockets (after taking what the kernel had already accepted), lets
    /// HTTP/1.1 connections end with `Connection: close` and HTTP/2 ones with GOAWAY, waits for requests in
    /// flight and upgraded connections until `deadline`, then cuts the rest.
    pub async fn shutdown(&self, deadline: Duration) -> DrainReport {
        let (reply, answer) = oneshot::channel();
        let idle = Duration::ZERO;
        let sent = self
            .orders
            .send(Order::Drain {
                deadline,
                idle,
                reply,
            })
            .await;
        Self::answered(sent.is_ok(), answer.await)
    }

    /// [`Handle::shutdown`] for a plain thread.
    ///
    /// # Panics
    /// Inside an asynchronous runtime, which it would block.
    pub fn shutdown_blocking(&self, deadline: Duration) -> DrainReport {
        self.hand_over_blocking(deadline, Duration::ZERO)
    }

    /// Stops as [`Handle::shutdown`] does, but lets a connection that waits for its next request wait `idle` longer, and
    /// closes it with the answer to that. For a gateway whose successor listens already: a client that sends just then
    /// is answered, not cut.
    ///
    /// # Panics
    /// Inside an asynchronous runtime, which it would block.
    pub fn hand_over_blocking(&self, deadline: Duration, idle: Duration) -> DrainReport {
        let (reply, answer) = oneshot::channel();
        let sent = self.orders.blocking_send(Order::Drain {
            deadline,
            idle,
            reply,
        });
        Self::answered(sent.is_ok(), answer.blocking_recv())
    }
}
