//! The admin port: `/metrics` for Prometheus, `/healthz`, `/readyz`, `/status` with the last period as JSON, and `/connections` with the
//! connections of a server on call.

use super::guard::supervisor;
use super::metrics::Metrics;
use super::tick::{Levers, Tick};
use crate::door::Watched;
use crate::oncall::{ConnectionSeries, Connections, ON_CALL, UNHELPED};
use crate::resize::UNRELIABLE;
use anyhow::Context;
use bytes::Bytes;
use headroom_control::{Traffic, calibrate};
use headroom_record::Health;
use headroom_units::{Comparison, Part, Quantity, Role, Sensor};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Connections served at once; one more waits in the kernel's accept queue.
const MAX_CONNECTIONS: usize = 64;
/// Fewer failed requests than this in a period are no outage.
const MIN_FAILED: u64 = 3;
/// Periods in a row in which most requests fail until it is not ready, and in which most are answered until it is again.
const MIN_PERIODS_TO_TURN: u32 = 2;
/// Comparisons of settings that `/status` tells: the last.
const MAX_COMPARISONS: usize = 16;
/// A client that takes longer to send its request's head is dropped.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// What the admin port of a law's run tells.
#[derive(Debug)]
pub struct Status {
    law: String,
    metrics: Metrics,
    stale_after: Duration,
    last: Mutex<Last>,
    gateway: OnceLock<Arc<Watched>>,
    connections: Arc<OnceLock<Arc<Connections>>>,
    recorder: Mutex<Health>,
    /// Why there are no more periods, where the process goes on without them.
    ended: OnceLock<String>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    /// Why the service cannot be relied on.
    unready: Option<String>,
    /// Why the decision is not in force.
    not_carried_out: Vec<String>,
    /// Servers that are to be on call and are not.
    unhelped: Vec<String>,
    failing: Failing,
    comparisons: VecDeque<Comparison>,
    json: String,
    levers: Levers,
}

/// The parts of a role; of a run on one machine, which has none, that machine and the one source of its requests.
fn of_role(tick: &Tick, role: Role) -> Vec<Part> {
    let parts: Vec<Part> = tick.parts_of(role).cloned().collect();
    // A source of telemetry is no machine.
    let is_beside = |part: &Part| match role {
        Role::Node => matches!(part.role, Role::Size | Role::Importance | Role::Gateway),
        _ => matches!(part.role, Role::Size | Role::Importance),
    };
    let has_parts = !tick.parts.iter().all(is_beside);
    let is_whole = !has_parts && tick.held().0.is_some();
    if !parts.is_empty() || !is_whole {
        return parts;
    }
    let whole = tick.whole(&tick.observation.in_force);
    let of_requests = |quantity: &Quantity| {
        use Sensor::{ArrivalRate, FailureRate, InFlight, LatencyAtSlo, ServiceRate};
        let requests = [ArrivalRate, ServiceRate, FailureRate, InFlight, LatencyAtSlo];
        requests.map(Quantity::Sensor).contains(quantity)
    };
    let of_gateway = role == Role::Gateway;
    let values = whole.values.into_iter();
    vec![Part {
        values: values
            .filter(|(quantity, _)| of_requests(quantity) == of_gateway)
            .collect(),
        source: whole.source.filter(|_| !of_gateway),
        ..Part::new(
            match of_gateway {
                true => "gateway".to_owned(),
                false => headroom_record::host(),
            },
            role,
        )
        .in_state(match (of_gateway, tick.telemetry_lost) {
            (true, true) => "unreachable",
            (true, false) => "connected",
            (false, _) => "held",
        })
    }]
}

impl Status {
    /// The status of a loop that has not seen a period yet; it counts as stuck after five periods without one.
    pub fn new(law: String, period: Duration) -> Self {
        let last = Last {
            at: Instant::now(),
            unready: Some("no period has ended yet".to_owned()),
            not_carried_out: Vec::new(),
            unhelped: Vec::new(),
            failing: Failing::default(),
            comparisons: VecDeque::new(),
            json: serde_json::json!({ "law": law }).to_string(),
            levers: Levers::default(),
        };
        let connections = Arc::default();
        Self {
            law,
            metrics: Metrics::new(ConnectionSeries(Arc::clone(&connections))),
            connections,
            stale_after: period * 5 + Duration::from_secs(1),
            last: Mutex::new(last),
            gateway: OnceLock::new(),
            recorder: Mutex::default(),
            ended: OnceLock::new(),
        }
    }

    /// There are no more periods, and the process goes on: what was in force in the last one is so no longer.
    pub fn end(&self, why: String) {
        let _ = self.ended.set(why);
    }

    /// From now on it tells of this process of the data plane too.
    pub fn attend(&self, gateway: Arc<Watched>) {
        // Set once: a run has one.
        let _ = self.gateway.set(gateway);
    }

    /// From now on it tells of these connections of a server on call too.
    pub fn attend_connections(&self, connections: Arc<Connections>) {
        // Set once: a run has one server.
        let _ = self.connections.set(connections);
    }

    /// Takes how the flight recorder fares.
    pub fn recorded(&self, health: Health) {
        self.metrics.recorded(&health);
        *self.recorder.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    /// Why the run is not recorded now.
    fn unrecorded(&self) -> Option<String> {
        let health = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        health.failing.clone()
    }

    /// Takes one period.
    pub fn tick(&self, tick: &Tick) {
        self.metrics.tick(&self.law, tick);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut comparisons = std::mem::take(&mut last.comparisons);
        comparisons.extend(tick.decision.comparisons.iter().cloned());
        comparisons.drain(..comparisons.len().saturating_sub(MAX_COMPARISONS));
        let mut json = serde_json::json!({
            "law": self.law,
            "at_s": tick.at,
            "slo": tick.percentile.zip(tick.target).map(|(percentile, target)| serde_json::json!({
                "percentile": percentile.as_percent(),
                "target_ms": target.as_millis(),
            })),
            "calibrating": tick.decision.reasons.iter().any(|reason| reason.rule == calibrate::CALIBRATING),
            "observation": tick.observation,
            "decided": tick.decision,
            "in_force": tick.in_force,
            "nodes": of_role(tick, Role::Node),
            "gateways": of_role(tick, Role::Gateway),
            "sizes": tick.parts_of(Role::Size).collect::<Vec<_>>(),
            "classes": tick.parts_of(Role::Class).collect::<Vec<_>>(),
            "importance": tick.parts_of(Role::Importance).collect::<Vec<_>>(),
            "comparisons": comparisons,
            "cluster": tick.parts_of(Role::Cluster).next(),
            "not_carried_out": tick.not_carried_out,
            "gateway": self.gateway.get().map(|gateway| gateway.json()),
            "record_failing": self.unrecorded(),
            "paused": tick.levers.paused,
            "left_alone": tick.levers.left_alone,
            "target_gone": tick.levers.gone,
            "backends": tick.backends.iter().map(|backend| serde_json::json!({
                "url": backend.name,
                "healthy": backend.healthy,
            })).collect::<Vec<_>>(),
        });
        // That of a controller is another's, of which this says nothing.
        if let Some(state) = supervisor::state() {
            json["guard"] = state.json();
        }
        let failing = match &tick.observation.traffic {
            Some(traffic) => last.failing.after(traffic),
            None => last.failing,
        };
        *last = Last {
            at: Instant::now(),
            unready: unready(tick, failing),
            not_carried_out: tick.not_carried_out.clone(),
            unhelped: unhelped(tick),
            failing,
            comparisons,
            json: json.to_string(),
            levers: tick.levers.clone(),
        };
    }
}

impl Status {
    /// The metrics as `/metrics` gives them.
    pub fn metrics_text(&self) -> String {
        if let Some(gateway) = self.gateway.get() {
            self.metrics.gateway_restarts(gateway.restarts());
        }
        if let Some(state) = supervisor::state() {
            self.metrics.guard(&state);
        }
        self.metrics.render()
    }

    /// When the loop finished its last period, why a service cannot rely on it, and that period as JSON.
    pub fn last(&self) -> (Instant, Option<String>, String) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.at, last.unready.clone(), last.json.clone())
    }

    fn levers(&self) -> Levers {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.levers.clone()
    }

    // The service is served: a balancer must not turn away from it.
    fn notes(&self) -> String {
        let unlimited = supervisor::state().and_then(|state| state.hindrance);
        let unlimited = unlimited.map(|why| format!("nothing is limited: {why}\n"));
        let unrecorded = self.unrecorded();
        let unrecorded = unrecorded.map(|why| format!("the flight recorder cannot write: {why}\n"));
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let not_carried_out = last.not_carried_out.iter();
        let not_carried_out =
            not_carried_out.map(|why| format!("the decision could not be carried out: {why}\n"));
        unlimited
            .into_iter()
            .chain(unrecorded)
            .chain(not_carried_out)
            .chain(last.unhelped.iter().cloned())
            .collect()
    }
}

/// Which servers are to be on call and are not, and which are with some of their connections alone, a line each.
fn unhelped(tick: &Tick) -> Vec<String> {
    let line = |part: &Part| match part.state.as_deref()? {
        ON_CALL if part.trouble.is_empty() => None,
        ON_CALL => Some(format!("{}: {}\n", part.name, part.trouble.join("; "))),
        state if UNHELPED.contains(&state) => Some(format!("{} is not on call: {state}\n", part.name)),
        _ => None,
    };
    tick.parts_of(Role::Node).filter_map(line).collect()
}

/// Why a period is none that a service can rely on.
fn unready(tick: &Tick, failing: Failing) -> Option<String> {
    let troubled = |part: &&Part| !part.trouble.is_empty() || part.state.as_deref() == Some(UNRELIABLE);
    let gateways: Vec<String> = tick
        .parts_of(Role::Gateway)
        .filter(troubled)
        .map(|part| format!("{}: {}", part.name, part.trouble.join("; ")))
        .collect();
    let gateways = gateways.join("; ");
    let because = |what: &str| match gateways.is_empty() {
        true => what.to_owned(),
        false => format!("{what} ({gateways})"),
    };
    let takes_requests = match tick.backends.is_empty() {
        // A server on call is asked by its clients, and by nobody of ours.
        true if tick.observation.oncall.is_some() => true,
        true => tick
            .observation
            .nodes
            .iter()
            .any(|node| node.state.takes_requests()),
        false => tick.backends.iter().any(|backend| backend.healthy),
    };
    let unreliable = |part: &Part| part.state.as_deref() == Some(UNRELIABLE);
    if failing.now {
        Some("most requests of the last periods failed".to_owned())
    } else if tick.telemetry_lost || tick.observation.demand().is_none() {
        Some(because("nothing is known of the requests of the last period"))
    } else if !takes_requests {
        Some(because("no backend is healthy"))
    } else if tick.parts_of(Role::Gateway).any(unreliable) {
        Some(because("the balancer cannot be relied on"))
    } else {
        None
    }
}

/// Whether the service fails most requests, as its periods show: so many in a row as [`MIN_PERIODS_TO_TURN`] that say
/// the contrary turn it. A period in which nothing ended says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failing {
    now: bool,
    /// Periods in a row that say the contrary.
    contrary: u32,
}

impl Failing {
    fn after(self, traffic: &Traffic) -> Self {
        let failed = traffic.failed_by_service();
        if failed + traffic.completions == 0 {
            return self;
        }
        let most = failed >= MIN_FAILED && failed > traffic.completions;
        let contrary = if most == self.now { 0 } else { self.contrary + 1 };
        match contrary >= MIN_PERIODS_TO_TURN {
            true => Self {
                now: most,
                contrary: 0,
            },
            false => Self { contrary, ..self },
        }
    }
}

/// A page: its status, the type of its text, and that.
pub type Page = (StatusCode, &'static str, String);

/// What an admin port answers.
pub trait Pages: Send + Sync + 'static {
    /// What there is at a path; `None` where there is nothing.
    fn page(&self, path: &str) -> Option<Page>;

    /// Which paths there are, for people.
    fn paths(&self) -> &'static str;
}

/// Metrics as a page.
pub const fn metrics_page(text: String) -> Page {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (StatusCode::OK, kind, text)
}

/// JSON as a page.
pub const fn json_page(text: String) -> Page {
    (StatusCode::OK, "application/json", text)
}

impl Pages for Status {
    fn page(&self, path: &str) -> Option<Page> {
        if let Some(why) = self
            .ended
            .get()
            .filter(|_| ["/metrics", "/readyz", "/status"].contains(&path))
        {
            return Some((StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n")));
        }
        Some(match path {
            "/metrics" => metrics_page(self.metrics_text()),
            "/healthz" => health(self),
            "/readyz" => readiness(self),
            "/status" => json_page(self.last().2),
            "/connections" => match self.connections.get() {
                Some(connections) => json_page(connections.json()),
                None => (
                    StatusCode::NOT_FOUND,
                    PLAIN,
                    "this run has no server on call: `headroom wrap` has one, and `headroom up` with [oncall]\n"
                        .to_owned(),
                ),
            },
            _ => return None,
        })
    }

    fn paths(&self) -> &'static str {
        "/metrics, /healthz, /readyz, /status, or /connections of a server on call"
    }
}

fn answer(pages: &dyn Pages, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, kind, body) = match *method {
        Method::GET | Method::HEAD => pages.page(path).unwrap_or_else(|| {
            let text = format!("try {}\n", pages.paths());
            (StatusCode::NOT_FOUND, PLAIN, text)
        }),
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "only GET and HEAD\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

fn health(board: &Status) -> Page {
    let age = board.last().0.elapsed();
    // A loop that has ended is not stuck: what the process still waits for must not be killed for it.
    if age <= board.stale_after || board.ended.get().is_some() {
        (StatusCode::OK, PLAIN, "ok\n".to_owned())
    } else {
        let why = format!(
            "the control loop has not finished a period for {:.1} s\n",
            age.as_secs_f64()
        );
        (StatusCode::SERVICE_UNAVAILABLE, PLAIN, why)
    }
}

fn readiness(board: &Status) -> Page {
    let levers = board.levers();
    if let Some(gone) = levers.gone {
        (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{gone}\n"))
    } else if let Some(why) = board.last().1 {
        (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n"))
    } else {
        let mut text = "ready\n".to_owned();
        if levers.paused {
            text.push_str("paused by an operator: everything is on until `headroom resume`\n");
        }
        for left in &levers.left_alone {
            text.push_str(&format!("{left}\n"));
        }
        text.push_str(&board.notes());
        (StatusCode::OK, PLAIN, text)
    }
}

/// The type of plain text.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// Listens on an address.
///
/// # Errors
/// Where the address cannot be bound.
pub fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen)
        .with_context(|| format!("the admin port cannot listen on {listen}: choose another address"))
}

/// Serves pages, on a thread of its own, until the process ends; the address it listens on.
///
/// # Errors
/// Where the thread or its runtime cannot be started.
pub fn serve(listener: TcpListener, pages: Arc<dyn Pages>) -> anyhow::Result<SocketAddr> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || runtime.block_on(accept(listener, pages)))?;
    Ok(address)
}

async fn accept(listener: TcpListener, pages: Arc<dyn Pages>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin port cannot be served"),
    };
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, mostly: trying again at once would only spin.
                tracing::warn!(%error, "the admin port could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let pages = Arc::clone(&pages);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = answer(&*pages, request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection to the admin port ended badly");
            }
            drop(slot);
        });
    }
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
