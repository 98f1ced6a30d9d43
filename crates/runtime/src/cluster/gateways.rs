//! Many gateways as one source of telemetry; and as the balancer in front of servers that are switched on and off, over the
//! same connections, for a gateway's counters are taken by one controller.

mod balancer;
mod division;
mod levers;

pub use balancer::GatewayBalancer;
pub use levers::{GatewayLevers, OfferedLevers};

use super::{BackOff, Network, Shared, stop_requested};
use crate::live::{
    BackendTick, Outcomes, ReportedLatency, SizesPeriod, Telemetry, TrafficPeriod, Watch, front,
};
use division::Divided;
use hdrhistogram::Histogram;
use headroom_gateway::{
    BatchCounts, CacheCounts, ConnectCounts, QueueCounts, SourceCounts, service_histogram,
};
use headroom_units::{Part, Role, Seconds, Sensor};
use headroom_wire::Address;
use headroom_wire::client::{BoundWatch, CallError, ClientOptions, GatewayClient};
use headroom_wire::message::{Backend, BackendPeriod, BackendState, GatewayPeriod, SetBackend};
use levers::LeverState;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// A gateway is asked for so many periods in one of the control loop's, whose clock is another: what belongs to the
/// neighbouring period is at most one of them.
const PARTS: u32 = 10;
/// But none shorter than this.
const MIN_PART: Duration = Duration::from_millis(20);

/// What a gateway told of is the period where neither is longer than so many times the other and so much.
const SAME_TIME: (f64, Duration) = (2.0, Duration::from_millis(500));

/// Whether what was told of `length` is what a period of `elapsed` is about. Where this process stood still it is not: the period has no end
/// then, and what came meanwhile is told in the next.
fn is_of(length: Duration, elapsed: Duration) -> bool {
    let (times, more) = SAME_TIME;
    length.max(elapsed) <= length.min(elapsed).mul_f64(times) + more
}

/// What one gateway told since it was last asked.
#[derive(Debug)]
struct GatewayState {
    /// Its backends; `None` while it is not connected.
    backends: Option<Vec<Backend>>,
    /// The requests that each is serving; `None` where that is not known of the time since its state was set.
    in_flight: Vec<Option<u64>>,
    /// The upper bounds of its classes of sizes; empty where it looks at none.
    size_bounds: Vec<u64>,
    /// The states that its backends are to have, by their URL.
    wanted: BTreeMap<String, BackendState>,
    levers: LeverState,
    /// Periods added up here, and how long they were together.
    periods: u64,
    length: Duration,
    sum: TrafficPeriod,
    histogram: Histogram<u64>,
    /// The sum is not whole: threads of the gateway did not answer, or the connection was lost.
    broken: bool,
    trouble: Option<String>,
}

impl Default for GatewayState {
    fn default() -> Self {
        Self {
            backends: None,
            in_flight: Vec::new(),
            size_bounds: Vec::new(),
            wanted: BTreeMap::new(),
            levers: LeverState::default(),
            periods: 0,
            length: Duration::ZERO,
            sum: TrafficPeriod::default(),
            histogram: service_histogram(),
            broken: true,
            trouble: None,
        }
    }
}

impl GatewayState {
    fn add(&mut self, mut period: GatewayPeriod) {
        self.levers.reported(std::mem::take(&mut period.levers));
        self.periods += 1;
        self.length += period.length;
        self.broken |= period.cores_missing > 0;
        for (value, count) in &period.latencies {
            self.histogram.saturating_record_n(*value, *count);
        }
        let whole = period.cores_missing == 0;
        let in_flight = period.backends.iter().map(|backend| backend.in_flight);
        self.in_flight = in_flight.map(|count| count.filter(|_| whole)).collect();
        let backends = self.backends.as_deref().unwrap_or_default();
        let healthy: Vec<bool> = period.backends.iter().map(|backend| backend.healthy).collect();
        let (sizes, routes) = (
            std::mem::take(&mut period.sizes),
            std::mem::take(&mut period.routes),
        );
        if let Some(next) = SizesPeriod::of_report(&self.size_bounds, backends, &healthy, sizes, routes) {
            match &mut self.sum.sizes {
                Some(sizes) => sizes.follow(next),
                none => *none = Some(next),
            }
        }
        // Of what is going on, the newest is the period's.
        self.sum.end_going_on();
        self.sum.add(&traffic(period, backends));
    }

    /// Ends the period; whether it was whole. What was added up stays until it is taken.
    fn end(&mut self) -> bool {
        let whole = self.periods > 0 && !self.broken && self.backends.is_some();
        self.periods = 0;
        self.length = Duration::ZERO;
        self.broken = self.backends.is_none();
        whole
    }

    /// What was added up, which begins anew.
    fn take(&mut self) -> (TrafficPeriod, Histogram<u64>) {
        let histogram = std::mem::replace(&mut self.histogram, service_histogram());
        (std::mem::take(&mut self.sum), histogram)
    }
}

#[derive(Clone, Debug)]
struct Gateway {
    name: String,
    state: Arc<Shared<GatewayState>>,
    /// Rung when another state of a backend is wanted.
    bell: Arc<Notify>,
    /// Rung when levers are to be set, or set again.
    lever_bell: Arc<Notify>,
}

/// Many gateways as one source of telemetry. The periods of all are added; one that is missing makes the period lost, for
/// its requests may be the slow ones.
#[derive(Debug)]
pub struct Gateways {
    gateways: Vec<Gateway>,
    /// What each showed in the period that was taken last.
    parts: Vec<Part>,
    /// The bounds to watch now.
    divided: Arc<Divided>,
    /// The backends of all gateways in the order of the sizes that were told last.
    sized: Arc<SizedOrder>,
    /// It was said that the gateways' classes of sizes differ.
    is_said: bool,
    /// When something was taken last: until then no period can be whole.
    taken: Option<Instant>,
    _network: Network,
}

impl Gateways {
    /// Starts to connect to every gateway.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn start(
        gateways: Vec<(String, Address)>,
        client: &ClientOptions,
        period: Duration,
    ) -> io::Result<Self> {
        let (stop, stopping) = watch::channel(false);
        let part = (period / PARTS).max(MIN_PART);
        let (mut known, mut tasks) = (Vec::new(), Vec::new());
        let divided = Arc::new(Divided::new(gateways.len()));
        for (at, (name, address)) in gateways.into_iter().enumerate() {
            let gateway = Gateway {
                name,
                state: Arc::new(Shared::new(GatewayState::default())),
                bell: Arc::default(),
                lever_bell: Arc::default(),
            };
            let task = Task {
                client: None,
                gateway: gateway.clone(),
                at,
                divided: Arc::clone(&divided),
                address,
                options: client.clone(),
                part,
                again: period,
            };
            tasks.push(task.attend(stopping.clone()));
            known.push(gateway);
        }
        Ok(Self {
            gateways: known,
            parts: Vec::new(),
            divided,
            sized: Arc::default(),
            is_said: false,
            taken: None,
            _network: Network::start("cluster-gateways", tasks, stop)?,
        })
    }

    /// The gateways as the balancer of these servers, each the URL of a backend.
    pub fn balancer(&self, members: Vec<String>) -> GatewayBalancer {
        GatewayBalancer::new(self.gateways.clone(), members)
    }

    /// The gateways' levers, which are set for so long at a time.
    pub fn levers(&self, lease: Duration) -> GatewayLevers {
        GatewayLevers::new(self.gateways.clone(), Arc::clone(&self.sized), lease)
    }

    /// Waits until every gateway was connected to, or the time is over; why not, for each that was not.
    pub fn connect(&self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        let mut missing = Vec::new();
        for gateway in &self.gateways {
            if !gateway.state.wait(deadline, |state| state.backends.is_some()) {
                let state = gateway.state.lock();
                let why = state.trouble.as_deref().unwrap_or("it does not answer");
                missing.push(format!("gateway {}: {why}", gateway.name));
            }
        }
        missing
    }
}

impl Gateways {
    /// The sizes of all gateways together; `None` where one looks at none, or at others.
    fn sizes_of_all(&mut self, of_each: Vec<Option<SizesPeriod>>) -> Option<SizesPeriod> {
        let is_any = of_each.iter().any(Option::is_some);
        let joined = sizes_together(of_each);
        if is_any && joined.is_none() && !self.is_said {
            tracing::warn!(
                "the gateways have different classes of sizes, so none are told of and no law can place requests: give all the same \
                 sizes.bounds_bytes (--size-bounds)"
            );
            self.is_said = true;
        }
        let urls = joined.iter().flat_map(|sizes| &sizes.backends);
        self.sized.set(urls.map(|backend| backend.url.clone()).collect());
        joined
    }
}

/// The sizes of several gateways as one; `None` where one has none, or other classes.
fn sizes_together(of_each: Vec<Option<SizesPeriod>>) -> Option<SizesPeriod> {
    let mut all = of_each.into_iter();
    let mut sum = all.next().flatten()?;
    for one in all {
        if !sum.join(&one?) {
            return None;
        }
    }
    Some(sum)
}

/// The backends in the order in which laws are given them, and set weights for them.
#[derive(Debug, Default)]
struct SizedOrder(Mutex<Vec<String>>);

impl SizedOrder {
    fn set(&self, urls: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = urls;
    }

    fn get(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Telemetry for Gateways {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        let deadline = Instant::now() + patience;
        let mut all = TrafficPeriod::default();
        let mut latencies = service_histogram();
        self.parts.clear();
        let (mut whole, mut connected, mut in_time) = (true, true, true);
        for gateway in &self.gateways {
            // Nothing to wait for while it is not connected.
            gateway
                .state
                .wait(deadline, |state| state.periods > 0 || state.backends.is_none());
            let mut state = gateway.state.lock();
            connected &= state.backends.is_some();
            let length = state.length;
            let elapsed = self.taken.map(|taken| taken.elapsed());
            let differs = elapsed.filter(|elapsed| state.periods > 0 && !is_of(length, *elapsed));
            let stood_still = differs.map(|elapsed| {
                let (told, of) = (length.as_secs_f64(), elapsed.as_secs_f64());
                format!(
                    "it told of {told:.1} s of a period of {of:.1} s: one of the two processes stood still"
                )
            });
            in_time &= stood_still.is_none();
            if state.end() && stood_still.is_none() {
                let in_force = state.levers.setting();
                self.parts
                    .push(part(&gateway.name, &state.sum, length).set_to(&in_force));
            } else {
                let trouble = stood_still.as_deref().or(state.trouble.as_deref());
                let why = trouble.unwrap_or("its period is not whole");
                if self.taken.is_some() {
                    tracing::warn!(gateway = gateway.name, "{why}");
                }
                let lost = Part::new(&gateway.name, Role::Gateway).in_state("unreachable");
                self.parts.push(Part {
                    trouble: vec![why.to_owned()],
                    ..lost
                });
                whole = false;
            }
        }
        self.taken = Some(Instant::now());
        if !whole {
            // A thread that was late tells the rest in the next period, and so do the others. A gateway that is away may be
            // so for long, and so may this process have stood still: what was counted meanwhile would look like one period's.
            if !connected || !in_time {
                for gateway in &self.gateways {
                    gateway.state.lock().take();
                }
            }
            return None;
        }
        let mut sizes = Vec::new();
        for gateway in &self.gateways {
            let (mut sum, histogram) = gateway.state.lock().take();
            sizes.push(sum.sizes.take());
            all.add(&sum);
            // Both have the same bounds.
            if latencies.add(&histogram).is_err() {
                whole = false;
            }
        }
        all.latency = ReportedLatency::Histogram(latencies);
        all.sizes = self.sizes_of_all(sizes);
        whole.then_some(all)
    }

    fn watch(&mut self, watch: Option<Watch>) {
        self.divided.watch(watch);
    }

    fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }
}

/// What a gateway showed in a period that it reported whole.
fn part(name: &str, sum: &TrafficPeriod, length: Duration) -> Part {
    let rate = |count: u64| (!length.is_zero()).then(|| count as f64 / length.as_secs_f64());
    let part = Part::new(name, Role::Gateway)
        .in_state("connected")
        .with(Sensor::ArrivalRate, rate(sum.arrivals))
        .with(Sensor::FailureRate, rate(sum.failures))
        .with(Sensor::InFlight, sum.in_flight.map(|in_flight| in_flight as f64));
    let (cache, batching) = (
        sum.cache.as_ref().map(front::cache),
        sum.batch.as_ref().map(front::batching),
    );
    front::with_front(part, cache.as_ref(), batching.as_ref())
}

/// What a gateway reported, whose backends these are; without its latencies.
fn traffic(period: GatewayPeriod, backends: &[Backend]) -> TrafficPeriod {
    let connects = |reported: headroom_wire::message::ConnectCounts| ConnectCounts {
        opened: reported.opened,
        refused: reported.refused,
        timed_out: reported.timed_out,
        no_resources: reported.no_resources,
        ejected_refused: reported.ejected_refused,
        ejected_timed_out: reported.ejected_timed_out,
        ejections_withheld: reported.ejections_withheld,
        ejected_failing: reported.ejected_failing,
    };
    let backend = |(backend, period): (&Backend, BackendPeriod)| BackendTick {
        name: backend.url.clone(),
        requests: period.requests,
        failures: period.failures,
        healthy: period.healthy,
        connects: period.connects.map(connects),
    };
    TrafficPeriod {
        arrivals: period.arrivals,
        completions: period.completions,
        failures: period.failures,
        in_flight: Some(period.in_flight),
        oldest_in_flight: period.oldest_in_flight.map(Seconds::from),
        latency: ReportedLatency::default(),
        backends: backends.iter().zip(period.backends).map(backend).collect(),
        queue: period.queue.map(|queue| QueueCounts {
            waited: queue.waited,
            full: queue.full,
            expired: queue.expired,
            waiting: queue.waiting,
        }),
        cache: period.cache.map(|cache| CacheCounts {
            hits: cache.hits,
            stale: cache.stale,
            misses: cache.misses,
            validated: cache.validated,
            collapsed: cache.collapsed,
            passed: cache.passed,
            stored: cache.stored,
            invalidated: cache.invalidated,
        }),
        batch: period.batch.map(|batch| BatchCounts {
            batches: batch.batches,
            requests: batch.requests,
            groups: batch.groups,
            full: batch.full,
            expired: batch.expired,
            waiting_us: batch.waiting_us,
            answered: batch.answered,
            processing_us: batch.processing_us,
            held: batch.held,
        }),
        accept_pauses: period.accept_pauses,
        sources: period
            .sources
            .map_or_else(SourceCounts::default, |sources| SourceCounts {
                requests: sources.requests,
                connections: sources.connections,
                connects: sources.connects,
                untracked: sources.untracked,
                proxy_headers: sources.proxy_headers,
            }),
        outcomes: Outcomes::of_counts(period.failed, Some(period.responses)),
        // Added apart: of several gateways they are one only where all have the same classes.
        sizes: None,
    }
}

/// What talks to one gateway.
struct Task {
    gateway: Gateway,
    /// Its place among the gateways that a bound is divided over.
    at: usize,
    divided: Arc<Divided>,
    address: Address,
    options: ClientOptions,
    part: Duration,
    /// The time between two looks at the backends' states, which others may change, where states are wanted.
    again: Duration,
    /// The connection that there is.
    client: Option<GatewayClient>,
}

/// How long a gateway is waited for that is to have its levers as configured, at the end.
const MAX_RELEASE: Duration = Duration::from_secs(1);

impl Task {
    async fn attend(mut self, mut stop: watch::Receiver<bool>) {
        let mut back_off = BackOff::new();
        loop {
            let error = tokio::select! {
                error = self.talk(&mut back_off) => error,
                () = stop_requested(&mut stop) => return self.release().await,
            };
            self.client = None;
            self.divided.connected(self.at, false);
            self.gateway.state.change(|state| {
                if state.backends.take().is_some() {
                    tracing::warn!(gateway = self.gateway.name, "the gateway is lost: {error}");
                }
                state.broken = true;
                state.in_flight.clear();
                state.trouble = Some(error.to_string());
            });
            tokio::select! {
                () = tokio::time::sleep(back_off.again()) => {}
                () = stop_requested(&mut stop) => return,
            }
        }
    }

    /// Has the gateway put back what was set of its levers; where it cannot be reached it does so when the lease ends.
    async fn release(self) {
        let Some(client) = self.client else { return };
        if self.gateway.state.lock().levers.is_set() {
            let released = client.set_levers(Vec::new(), Duration::ZERO);
            if !matches!(tokio::time::timeout(MAX_RELEASE, released).await, Ok(Ok(_))) {
                tracing::warn!(
                    gateway = self.gateway.name,
                    "the gateway's levers were not given back: they are as configured when their lease ends"
                );
            }
        }
    }

    /// Talks until the connection ends; why it did.
    async fn talk(&mut self, back_off: &mut BackOff) -> CallError {
        match self.converse(back_off).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// Adds period to period, and sets the states that are wanted, until the connection ends.
    async fn converse(&mut self, back_off: &mut BackOff) -> Result<std::convert::Infallible, CallError> {
        let client = GatewayClient::connect(&self.address, &self.options).await?;
        let mut periods = client.observe(self.part).await?;
        self.client = Some(client.clone());
        *back_off = BackOff::new();
        self.gateway.state.change(|state| {
            *state = GatewayState {
                backends: Some(client.gateway().backends.clone()),
                size_bounds: client.gateway().size_bounds.clone(),
                // What was counted while nobody was connected is in no period.
                broken: true,
                wanted: std::mem::take(&mut state.wanted),
                levers: std::mem::take(&mut state.levers).connected(client.gateway().levers.clone()),
                ..GatewayState::default()
            };
        });
        self.divided.connected(self.at, true);
        let mut watched = self.divided.part(self.at);
        watched.mark_changed();
        let mut passed: Option<(Watch, BoundWatch)> = None;
        let mut again = tokio::time::interval(self.again);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                period = periods.next() => match period? {
                    Some(period) => {
                        if let Some((watch, _)) = &passed
                            && watch.oldest.zip(period.oldest_in_flight).is_some_and(|(bound, age)| Seconds::from(age) > bound)
                        {
                            watch.passed();
                        }
                        self.divided.reported(self.at, period.in_flight);
                        self.gateway.state.change(|state| state.add(period));
                    }
                    None => return Err(CallError::Unreachable {
                        address: self.address.clone(),
                        why: "the gateway has ended".to_owned(),
                    }),
                },
                _ = watched.changed() => {
                    let watch = watched.borrow_and_update().clone();
                    passed = match watch {
                        Some(watch) => match client.watch(watch.bound).await {
                            Ok(stream) => Some((watch, stream)),
                            // Without it there is no reflex; a connection that is lost ends the periods too.
                            Err(error) => {
                                tracing::warn!(gateway = self.gateway.name, "nothing is watched between periods: {error}");
                                None
                            }
                        },
                        None => None,
                    };
                }
                in_flight = passed_bound(&mut passed) => {
                    if let Some(in_flight) = in_flight {
                        self.divided.passed(self.at, in_flight);
                    }
                }
                () = self.gateway.bell.notified() => self.set(&client).await?,
                () = self.gateway.lever_bell.notified() => levers::ask(&self.gateway, &client).await?,
                _ = again.tick() => {
                    if self.gateway.state.lock().wanted.is_empty() {
                        continue;
                    }
                    let backends = client.describe().await?.backends;
                    self.gateway.state.change(|state| state.backends = Some(backends));
                    self.set(&client).await?;
                }
            }
        }
    }

    /// Sets each backend's state that is not the one wanted.
    async fn set(&self, client: &GatewayClient) -> Result<(), CallError> {
        let changes: Vec<(usize, BackendState)> = {
            let state = self.gateway.state.lock();
            let backends = state.backends.iter().flatten().enumerate();
            let change = |(at, backend): (usize, &Backend)| {
                let wanted = *state.wanted.get(member(&backend.url))?;
                (wanted != backend.state).then_some((at, wanted))
            };
            backends.filter_map(change).collect()
        };
        for (at, wanted) in changes {
            let change = SetBackend {
                backend: u32::try_from(at).unwrap_or(u32::MAX),
                state: Some(wanted),
                weight: None,
            };
            let backend = client.set_backend(change).await?;
            self.gateway.state.change(|state| {
                if let Some(slot) = state.backends.as_mut().and_then(|backends| backends.get_mut(at)) {
                    *slot = backend;
                }
                // What was counted before says nothing of the time since.
                if let Some(slot) = state.in_flight.get_mut(at) {
                    *slot = None;
                }
            });
        }
        Ok(())
    }
}

/// Waits until a watched bound is passed: the requests in flight then; `None` where the watch has ended without it.
async fn passed_bound(passed: &mut Option<(Watch, BoundWatch)>) -> Option<u64> {
    let Some((_, stream)) = passed else {
        return std::future::pending().await;
    };
    // A connection that is lost ends the periods too.
    let found = stream.next().await.ok().flatten().map(|passed| passed.in_flight);
    *passed = None;
    found
}

/// What a backend's URL is compared by.
fn member(url: &str) -> &str {
    url.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_period_is_about_as_long_as_that() {
        let of = |length: f64, elapsed: f64| {
            is_of(Duration::from_secs_f64(length), Duration::from_secs_f64(elapsed))
        };
        for (length, elapsed) in [(1.0, 1.0), (0.3, 1.0), (1.9, 1.0), (0.02, 0.2), (4.0, 8.0)] {
            assert!(of(length, elapsed), "{length} {elapsed}");
        }
        // It stood still for seven seconds, and what came then is told in the next period.
        for (length, elapsed) in [(0.8, 7.8), (8.0, 1.0), (0.2, 1.0), (3.0, 1.0)] {
            assert!(!of(length, elapsed), "{length} {elapsed}");
        }
    }
}
