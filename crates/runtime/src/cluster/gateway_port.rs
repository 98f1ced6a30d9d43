//! The control port of a gateway: what it counts, reported to one controller; the backends, as that controller wants them.

mod bounds;
mod levers;
#[cfg(test)]
mod refused_tests;
mod turn;

pub use levers::levers_of;

use crate::live::failures;
use anyhow::Context;
use bounds::Bounds;
use headroom_gateway::{BackendChange, ClassCounts, Handle, PeriodStats};
use headroom_wire::access::Rules;
use headroom_wire::client::Observer;
use headroom_wire::message::{
    Backend, BackendPeriod, BackendState, BatchCounts, BoundPassed, CacheCounts, ClassOnBackend, ClassRoute,
    ConnectCounts, GatewayDescription, GatewayPeriod, ImportanceCounts, QueueCounts, Range, RetryCounts,
    SetBackend, SizeClass, SourceCounts, check_settings, lease_of, routes,
};
use headroom_wire::proto::gateway_server;
use headroom_wire::server::{Admission, Limits, Listen, Listener, Peer, serve_gateway};
use headroom_wire::tonic::codegen::tokio_stream::Stream;
use headroom_wire::tonic::{self, Request, Response, Status};
use headroom_wire::{Address, Refusal, Server, limiter, proto};
use levers::Levers;
use std::pin::Pin;
use std::sync::Arc;
use std::task;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use turn::{Turn, Turns};

/// The periods that may be asked for, in milliseconds.
const PERIOD_MS: Range = Range::new(20.0, 60_000.0);

/// A busy core of the gateway is waited for at least this long: a period that is longer is better than one not whole.
const MIN_PATIENCE: Duration = Duration::from_millis(250);

/// A control port that is bound and not served yet; no thread runs for it.
pub struct BoundPort {
    runtime: tokio::runtime::Runtime,
    listeners: Vec<Listener>,
}

impl BoundPort {
    /// Listens at the given places.
    ///
    /// # Errors
    /// A place that cannot be listened at.
    pub fn open(places: Vec<Listen>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = runtime.block_on(async {
            let mut listeners = Vec::new();
            for place in places {
                listeners.push(Listener::open(place).await?);
            }
            anyhow::Ok(listeners)
        });
        let listeners = listeners.context("the control port")?;
        Ok(Self { runtime, listeners })
    }

    /// Serves a gateway's counters and backends there to whom the rules let, on a thread of its own.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn serve(self, gateway: Arc<Handle>, rules: Rules) -> anyhow::Result<ControlPort> {
        let Self { runtime, listeners } = self;
        let addresses = listeners
            .iter()
            .map(|listener| listener.address().clone())
            .collect();
        let (stop, stopping) = watch::channel(false);
        let levers = Arc::new(Levers::new(Arc::clone(&gateway)));
        let bounds = Arc::new(Bounds::new(Arc::clone(&gateway)));
        let service = Control {
            levers: Arc::clone(&levers),
            bounds: Arc::clone(&bounds),
            gateway,
            run: crate::random(),
            turns: Turns::default(),
        };
        let thread = std::thread::Builder::new()
            .name("control-port".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let mut servers = tokio::task::JoinSet::new();
                    for listener in listeners {
                        let mut stopping = stopping.clone();
                        let stopped = async move {
                            let _ = stopping.wait_for(|stop| *stop).await;
                        };
                        let limits = Limits {
                            drain: Duration::from_millis(100),
                            ..Limits::default()
                        };
                        servers.spawn(serve_gateway(
                            listener,
                            service.clone(),
                            limits,
                            Admission::logged(rules.clone()),
                            stopped,
                        ));
                    }
                    while servers.join_next().await.is_some() {}
                });
                // Nobody can set them any more, nor give them back.
                levers.release();
                bounds.release();
            })?;
        Ok(ControlPort {
            addresses,
            stop,
            thread: Some(thread),
        })
    }
}

/// A control port that is served. Dropped, it is closed.
#[derive(Debug)]
pub struct ControlPort {
    addresses: Vec<Address>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlPort {
    /// Where it listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

impl Drop for ControlPort {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the control port had panicked");
        }
    }
}

#[derive(Clone)]
struct Control {
    gateway: Arc<Handle>,
    levers: Arc<Levers>,
    bounds: Arc<Bounds>,
    run: u64,
    turns: Turns,
}

/// Periods on their way; at most one waits for its reader, and the next one is longer.
struct Periods(mpsc::Receiver<Reported>);

/// A period, or why no more of them come.
type Reported = Result<proto::GatewayPeriod, Status>;

impl Stream for Periods {
    type Item = Reported;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// The one message of a watched bound, when it is passed.
struct Passed(mpsc::Receiver<proto::BoundPassed>);

impl Stream for Passed {
    type Item = Result<proto::BoundPassed, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|passed| passed.map(Ok))
    }
}

/// Where a class goes, as a message has it.
fn class_route(route: headroom_gateway::ClassRoute) -> ClassRoute {
    ClassRoute {
        weights: route.weights,
        most_in_flight: route.most_in_flight,
    }
}

/// What is reported of one class of sizes.
fn size_class(class: &ClassCounts) -> SizeClass {
    let on_backend = |part: &headroom_gateway::ClassOnBackend| ClassOnBackend {
        arrivals: part.arrivals,
        completions: part.completions,
        failures: part.failures,
        in_flight: part.in_flight,
        latency_us: part.latency_us,
        buckets: part
            .histogram
            .buckets()
            .map(|(bucket, count)| (u32::try_from(bucket).unwrap_or(u32::MAX), count))
            .collect(),
    };
    let latencies = class.histogram.iter_recorded();
    SizeClass {
        arrivals: class.counts.arrivals,
        completions: class.counts.completions,
        failures: class.counts.failures,
        aborted_by_client: class.counts.aborted_by_client,
        refused: class.counts.refused,
        bytes: class.counts.response_bytes,
        in_flight: class.counts.in_flight,
        latencies: latencies
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect(),
        backends: class.backends.iter().map(on_backend).collect(),
    }
}

impl Control {
    fn backends(&self) -> Vec<Backend> {
        let known = self.gateway.backends_health().into_iter();
        known
            .map(|backend| Backend {
                url: backend.url,
                state: match backend.state {
                    headroom_gateway::BackendState::Up => BackendState::Up,
                    headroom_gateway::BackendState::Drain => BackendState::Drain,
                    headroom_gateway::BackendState::Down => BackendState::Down,
                },
                weight: backend.weight,
                healthy: backend.healthy,
                most_in_flight: backend.most_in_flight,
            })
            .collect()
    }

    fn change(&self, change: SetBackend) -> Result<Backend, Refusal> {
        let index = usize::try_from(change.backend).unwrap_or(usize::MAX);
        let last = self.gateway.backend_count().saturating_sub(1) as f64;
        Refusal::check_range(
            "backend",
            f64::from(change.backend),
            Range::new(0.0, last),
            "in the list",
        )?;
        let state = change.state.map(|state| match state {
            BackendState::Up => headroom_gateway::BackendState::Up,
            BackendState::Drain => headroom_gateway::BackendState::Drain,
            BackendState::Down => headroom_gateway::BackendState::Down,
        });
        let changes = [
            state.map(BackendChange::State),
            change.weight.map(BackendChange::Weight),
        ];
        for change in changes.into_iter().flatten() {
            let refused = |error: headroom_gateway::GatewayError| {
                headroom_wire::Invalid::new("backend", error, "a state or a weight that it takes")
            };
            self.gateway.set_backend_state(index, change).map_err(refused)?;
        }
        if let Some(bound) = change.bound {
            self.bounds.set(index, bound)?;
        }
        self.backends()
            .into_iter()
            .nth(index)
            .ok_or(Refusal::Ending(Server::Gateway))
    }

    fn importance(&self, stats: &PeriodStats) -> Vec<ImportanceCounts> {
        let ranks = self.gateway.ranks().into_iter().zip(&stats.ranks);
        ranks
            .map(|(name, counts)| ImportanceCounts {
                name: name.to_owned(),
                waited: counts.waited,
                turned_away: counts.turned_away,
            })
            .collect()
    }

    fn message(&self, number: u64, stats: PeriodStats) -> GatewayPeriod {
        let health = self.gateway.backends_health();
        let latencies = stats.histogram.iter_recorded();
        GatewayPeriod {
            number,
            run: self.run,
            length: stats.since,
            arrivals: stats.service.arrivals,
            completions: stats.service.completions,
            failures: stats.service.failures,
            in_flight: stats.service.in_flight,
            oldest_in_flight: stats.oldest_in_flight,
            latencies: latencies
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
            backends: stats
                .backends
                .iter()
                .zip(health)
                .map(|(backend, health)| BackendPeriod {
                    requests: backend.counts.arrivals,
                    // Its clients' leaving is none of its failures.
                    failures: backend.counts.failed_by_service(),
                    healthy: health.healthy,
                    // Of a core that did not answer, only an older number is known.
                    in_flight: (stats.cores_missing == 0).then_some(backend.counts.in_flight),
                    connects: Some(ConnectCounts {
                        opened: backend.connects.opened,
                        refused: backend.connects.refused,
                        timed_out: backend.connects.timed_out,
                        no_resources: backend.connects.no_resources,
                        ejected_refused: backend.connects.ejected_refused,
                        ejected_timed_out: backend.connects.ejected_timed_out,
                        ejections_withheld: backend.connects.ejections_withheld,
                        ejected_failing: backend.connects.ejected_failing,
                    }),
                    left_by_clients: Some(backend.counts.aborted_by_client),
                    answered_to_nobody: Some(backend.counts.answered_to_nobody),
                    failed_answers: Some(backend.counts.failed_answers),
                    checks: Some(backend.checks),
                })
                .collect(),
            cores_missing: u32::try_from(stats.cores_missing).unwrap_or(u32::MAX),
            importance: self.importance(&stats),
            queue: Some(QueueCounts {
                waited: stats.queue.waited,
                full: stats.queue.full,
                expired: stats.queue.expired,
                waiting: stats.queue.waiting,
                left: stats.queue.left,
            }),
            accept_pauses: stats.accept_pauses,
            client_us: stats.service.client_us,
            sources: Some(SourceCounts {
                requests: stats.sources.requests,
                connections: stats.sources.connections,
                connects: stats.sources.connects,
                untracked: stats.sources.untracked,
                proxy_headers: stats.sources.proxy_headers,
            }),
            retries: Some(RetryCounts {
                sent: stats.service.retries,
                withheld: stats.service.retries_withheld,
            }),
            refused: stats.service.refused,
            failed: failures(&stats.service),
            responses: stats.service.statuses,
            cache: stats.cache_size.map(|_| CacheCounts {
                hits: stats.cache.hits,
                stale: stats.cache.stale,
                misses: stats.cache.misses,
                validated: stats.cache.validated,
                collapsed: stats.cache.collapsed,
                passed: stats.cache.passed,
                stored: stats.cache.stored,
                invalidated: stats.cache.invalidated,
            }),
            batch: self.gateway.batch_interval().map(|_| BatchCounts {
                batches: stats.batch.batches,
                requests: stats.batch.requests,
                groups: stats.batch.groups,
                answered: stats.batch.answered,
                processing_us: stats.batch.processing_us,
                waiting_us: stats.batch.waiting_us,
                full: stats.batch.full,
                expired: stats.batch.expired,
                held: stats.batch.held,
            }),
            levers: self.levers.now(),
            sizes: stats.sizes.iter().map(size_class).collect(),
            routes: self.gateway.routes().into_iter().map(class_route).collect(),
        }
    }

    /// Reports one period after another, until nobody reads them or the turn is another's.
    async fn observe(self, mut turn: Turn, period: Duration, periods: mpsc::Sender<Reported>) {
        let why = tokio::select! {
            biased;
            why = turn.is_over() => why,
            () = self.take_periods(period, &periods) => return,
        };
        // One that reads slowly does not keep it from the other.
        drop(turn);
        // Whoever read them may have gone.
        let _ = periods.send(Err(why.into())).await;
    }

    /// Takes one period after another until nobody reads them.
    async fn take_periods(&self, period: Duration, periods: &mpsc::Sender<Reported>) {
        let _taking = self.turns.taking().await;
        let patience = period.max(MIN_PATIENCE);
        self.gateway.take_period(patience).await;
        let mut due = tokio::time::interval(period);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        due.tick().await;
        for number in 1.. {
            tokio::select! {
                _ = due.tick() => {}
                () = periods.closed() => return,
            }
            let stats = self.gateway.take_period(patience).await;
            if periods
                .send(Ok(self.message(number, stats).into()))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

#[tonic::async_trait]
impl gateway_server::Gateway for Control {
    type ObserveStream = Periods;
    type WatchStream = Passed;

    async fn describe(
        &self,
        _: Request<proto::DescribeGatewayRequest>,
    ) -> Result<Response<proto::GatewayDescription>, Status> {
        let description = GatewayDescription {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: self.run,
            listen: self
                .gateway
                .local_addrs()
                .iter()
                .map(ToString::to_string)
                .collect(),
            backends: self.backends(),
            observe_period_ms: PERIOD_MS,
            levers: self.levers.offered(),
            size_bounds: self.gateway.config().sizes.bounds_bytes.clone(),
        };
        Ok(Response::new(description.into()))
    }

    async fn observe(
        &self,
        request: Request<proto::ObserveGatewayRequest>,
    ) -> Result<Response<Periods>, Status> {
        let proto::ObserveGatewayRequest {
            period_ms,
            only_looks,
        } = request.into_inner();
        Refusal::check_range("period_ms", period_ms as f64, PERIOD_MS, "ms")?;
        let observer = match only_looks {
            true => Observer::OnlyLooks,
            false => Observer::Commands,
        };
        let turn = self.turns.take(observer)?;
        let (sender, receiver) = mpsc::channel(1);
        let period = Duration::from_millis(period_ms);
        tokio::spawn(Self::observe(self.clone(), turn, period, sender));
        Ok(Response::new(Periods(receiver)))
    }

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Result<Response<Passed>, Status> {
        let bound = request.into_inner().in_flight;
        let (sender, receiver) = mpsc::channel(1);
        let gateway = Arc::clone(&self.gateway);
        tokio::spawn(async move {
            tokio::select! {
                passed = gateway.passed(bound) => {
                    if let Some(in_flight) = passed {
                        // Whoever asked may have gone.
                        let _ = sender.send(BoundPassed { in_flight }.into()).await;
                    }
                }
                () = sender.closed() => {}
            }
        });
        Ok(Response::new(Passed(receiver)))
    }

    async fn set_backend(
        &self,
        request: Request<proto::SetBackendRequest>,
    ) -> Result<Response<proto::BackendSet>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let change = SetBackend::try_from(request.into_inner()).map_err(Refusal::from)?;
        let backend = self.change(change)?;
        // A bound follows what is known of a server in each period, which is no news.
        let is_news = change.state.is_some() || change.weight.is_some();
        if let Some(peer) = peer.filter(|peer| is_news && limiter::admits(&peer.key(), "backend changed")) {
            tracing::info!(%peer, ?change, "a controller changed a backend");
        }
        Ok(Response::new(proto::BackendSet {
            backend: Some(backend.into()),
        }))
    }

    async fn set_levers(
        &self,
        request: Request<proto::SetLeversRequest>,
    ) -> Result<Response<proto::LeversSet>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let request = request.into_inner();
        check_settings(&self.levers.offered(), &request.settings)?;
        let lease = lease_of(&request)?;
        let routes = routes(request.routes).map_err(Refusal::from)?;
        let settings = request.settings;
        let changed = self
            .levers
            .set(peer.clone(), settings.clone(), routes, lease)
            .inspect_err(|refusal| {
                if let Some(peer) = peer
                    .as_ref()
                    .filter(|peer| limiter::admits(&peer.key(), "levers refused"))
                {
                    tracing::warn!(%peer, "levers were not set: {refusal}");
                }
            })?;
        // A law of these sets them in every period, which is no news.
        let routine = [
            headroom_units::Lever::BatchInterval,
            headroom_units::Lever::Placement,
        ];
        let is_routine = settings
            .iter()
            .all(|set| routine.iter().any(|lever| lever.name() == set.lever));
        if let Some(peer) = peer.filter(|_| changed) {
            if is_routine {
                tracing::debug!(%peer, ?settings, "a controller set what it sets in each period");
            } else if limiter::admits(&peer.key(), "levers set") {
                tracing::info!(%peer, ?settings, "a controller set levers");
            }
        }
        Ok(Response::new(proto::LeversSet {
            settings: self.levers.now(),
        }))
    }
}
