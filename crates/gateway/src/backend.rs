//! The backends: what is known of each, and whose turn it is.

use std::cmp::Ordering;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Uri;

use crate::config::{BackendConfig, Balance, MAX_WEIGHT};
use crate::connections::Connections;
use crate::dial::Dial;
use crate::ejection::{Ejection, EjectionCause};
use crate::error::GatewayError;
use crate::failing::Failing;
use crate::sizes::ClassRoute;

/// What the control side wants of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendState {
    /// It takes requests, with the weight it has. To set this where it was not ends a passive ejection.
    Up,
    /// It takes no new request; those in flight finish.
    Drain,
    /// It takes no new request, and its pooled connections are closed as they come back.
    Down,
}

/// A change of a backend by the control side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendChange {
    /// Sets the state.
    State(BackendState),
    /// Sets the weight, 0 to 1000.
    Weight(u32),
    /// Sets how many requests it may have in flight, and connections open, over all cores, beside
    /// [`crate::LimitConfig::max_in_flight_per_backend`], of which the lower counts; 1 at least. `None`: as configured.
    MostInFlight(Option<u32>),
}

impl From<BackendState> for BackendChange {
    fn from(state: BackendState) -> Self {
        Self::State(state)
    }
}

/// What is known of a backend, for a person or a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendHealth {
    /// The URL as configured.
    pub url: String,
    /// What the control side set.
    pub state: BackendState,
    /// Its present weight.
    pub weight: u32,
    /// What was set by [`BackendChange::MostInFlight`].
    pub most_in_flight: Option<u32>,
    /// What the active check found; true where there is none.
    pub healthy: bool,
    /// What is left of a passive ejection.
    pub ejected_for: Option<Duration>,
    /// What it was ejected for.
    pub ejected_by: Option<EjectionCause>,
    /// Connections in a row that were refused, or timed out while nothing was heard of it.
    pub connect_failures: u32,
}

/// A number that each exchange writes, apart from what every pick only reads: with a neighbour, for processors fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Written(AtomicU32);

/// A backend's state, shared by the cores, the checker and the control side through atomics alone.
#[derive(Debug)]
pub(crate) struct Backend {
    pub url: String,
    pub host: String,
    pub port: u16,
    pub authority: HeaderValue,
    state: AtomicU8,
    weight: AtomicU32,
    healthy: AtomicBool,
    /// Active checks that were begun since they were taken last.
    checks: AtomicU64,
    /// Exchanges in flight there, of all cores.
    in_flight: Written,
    /// The most that may be, where that was set beside what is configured; `u32::MAX` where it was not.
    bound: AtomicU32,
    pub connections: Connections,
    pub ejection: Ejection,
    pub failing: Failing,
    pub dial: Dial,
    /// What its name is for now; read where a connection to it is checked, not on the request path.
    addresses: RwLock<std::sync::Arc<[SocketAddr]>>,
}

impl Backend {
    /// Reads no file: [`Backend::load`] does, where it is to be connected to.
    pub(crate) fn new(config: &BackendConfig) -> Result<Self, GatewayError> {
        let bad = |why: &str| GatewayError::BackendUrl {
            url: config.url.clone(),
            why: why.to_owned(),
        };
        let uri: Uri = config.url.parse().map_err(|error| bad(&format!("{error}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(bad("the scheme is neither http nor https"));
        }
        let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("user information is not supported"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(bad("a path is not supported"));
        }
        let host = authority.host();
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        let port = match authority.as_str()[host.len()..].strip_prefix(':') {
            None if config.is_https() => 443,
            None => 80,
            Some(port) => port
                .parse()
                .map_err(|_| bad("the port is not a number from 0 to 65535"))?,
        };
        Ok(Self {
            url: config.url.clone(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| bad("the host is not ASCII"))?,
            state: AtomicU8::new(0),
            weight: AtomicU32::new(config.weight),
            healthy: AtomicBool::new(true),
            checks: AtomicU64::new(0),
            in_flight: Written::default(),
            bound: AtomicU32::new(u32::MAX),
            connections: Connections::default(),
            ejection: Ejection::new(),
            failing: Failing::new(),
            dial: Dial::cleartext(config),
            addresses: RwLock::default(),
        })
    }

    /// The same with what it takes to connect to it: reads certificates and keys.
    pub(crate) fn load(config: &BackendConfig) -> Result<Self, GatewayError> {
        let mut backend = Self::new(config)?;
        backend.dial = Dial::new(config, &backend.host)?;
        Ok(backend)
    }

    /// The addresses of its host name, as they were last looked up.
    pub(crate) fn addresses(&self) -> std::sync::Arc<[SocketAddr]> {
        std::sync::Arc::clone(&self.addresses.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on it has these.
    pub(crate) fn set_addresses(&self, addresses: std::sync::Arc<[SocketAddr]>) {
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    pub(crate) fn state(&self) -> BackendState {
        match self.state.load(Relaxed) {
            0 => BackendState::Up,
            1 => BackendState::Drain,
            _ => BackendState::Down,
        }
    }

    pub(crate) fn apply(&self, change: BackendChange) -> Result<(), GatewayError> {
        match change {
            BackendChange::State(state) => {
                let code = match state {
                    BackendState::Up => 0,
                    BackendState::Drain => 1,
                    BackendState::Down => 2,
                };
                // Who lets it take requests again knows that it is there, whatever was found before it went.
                if self.state.swap(code, Relaxed) != code && state == BackendState::Up {
                    self.ejection.connected();
                    self.failing.lift();
                }
            }
            BackendChange::Weight(weight) if weight > MAX_WEIGHT => {
                return Err(GatewayError::Config {
                    key: "backends.weight".into(),
                    value: weight.to_string(),
                    allowed: "0 to 1000".into(),
                });
            }
            BackendChange::Weight(weight) => self.weight.store(weight, Relaxed),
            BackendChange::MostInFlight(most) => {
                let most = most.map_or(u32::MAX, |most| most.max(1));
                self.bound.store(most, Relaxed);
            }
        }
        Ok(())
    }

    /// How many exchanges, and how many connections, it may have, where so many are configured.
    pub(crate) fn limit(&self, configured: usize) -> usize {
        configured.min(self.bound.load(Relaxed) as usize)
    }

    /// What was set of this beside what is configured.
    pub(crate) fn bound(&self) -> Option<u32> {
        Some(self.bound.load(Relaxed)).filter(|bound| *bound < u32::MAX)
    }

    /// An exchange with it begins, at any core; `false` where as many are in flight as may, of which so many are configured.
    pub(crate) fn try_begin(&self, configured: usize) -> bool {
        let begins = (self.in_flight.0.fetch_add(1, SeqCst) as usize) < self.limit(configured);
        if !begins {
            self.in_flight.0.fetch_sub(1, SeqCst);
        }
        begins
    }

    /// One that was let in by [`Self::try_begin`] has ended.
    pub(crate) fn ended(&self) {
        self.in_flight.0.fetch_sub(1, SeqCst);
    }

    /// Exchanges that have begun and not ended, of all cores.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.0.load(SeqCst)
    }

    /// One active check is begun.
    pub(crate) fn count_check(&self) {
        self.checks.fetch_add(1, Relaxed);
    }

    /// Active checks that were begun since the last call.
    pub(crate) fn take_checks(&self) -> u64 {
        self.checks.swap(0, Relaxed)
    }

    pub(crate) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Relaxed);
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Relaxed)
    }

    /// Whether the control side lets it take requests.
    pub(crate) fn is_in_service(&self) -> bool {
        self.state() == BackendState::Up && self.weight.load(Relaxed) > 0
    }

    /// Whether it is passed over for now: no connection could be opened to it, or it failed while others did not.
    pub(crate) fn is_ejected(&self) -> bool {
        self.ejection.is_ejected() || self.failing.is_ejected()
    }

    /// Whether it may take requests, but for ejections and limits; `panics`: whoever is healthy.
    fn may_take(&self, panics: bool) -> bool {
        self.is_in_service() && (self.is_healthy() || panics)
    }

    pub(crate) fn health(&self) -> BackendHealth {
        let failing = self.failing.left().map(|left| (left, EjectionCause::Failing));
        let ejected = [self.ejection.state(), failing]
            .into_iter()
            .flatten()
            .max_by_key(|(left, _)| *left);
        BackendHealth {
            url: self.url.clone(),
            state: self.state(),
            weight: self.weight.load(Relaxed),
            most_in_flight: self.bound(),
            healthy: self.is_healthy(),
            ejected_for: ejected.map(|(left, _)| left),
            ejected_by: ejected.map(|(_, cause)| cause),
            connect_failures: self.ejection.failures(),
        }
    }
}

/// Why no backend can take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoBackend {
    /// Each is down, drained, unhealthy or was tried already.
    Unavailable,
    /// At least one would, were it not at its limit of requests in flight.
    OverLimit,
}

/// One core's view of whose turn it is.
#[derive(Debug)]
pub(crate) struct Balancer {
    balance: Balance,
    max_in_flight: usize,
    /// Below this share of healthy backends, in percent, health is disregarded; 0 for never.
    panic_percent: u32,
    /// Credit of each backend in the smooth weighted round robin.
    credit: Vec<i64>,
    /// Between which backends the turns decide, with their weights; kept for its memory.
    equal: Vec<(usize, u32)>,
}

impl Balancer {
    pub(crate) fn new(balance: Balance, backends: usize, max_in_flight: usize, panic_percent: u32) -> Self {
        Self {
            balance,
            max_in_flight,
            panic_percent,
            credit: vec![0; backends],
            equal: Vec::with_capacity(backends),
        }
    }

    /// Whether so few of the backends in service are healthy that it is disregarded who is.
    fn panics(&self, backends: &[std::sync::Arc<Backend>]) -> bool {
        if self.panic_percent == 0 {
            return false;
        }
        let (mut in_service, mut healthy) = (0, 0);
        for backend in backends {
            if backend.is_in_service() {
                in_service += 1;
                healthy += usize::from(backend.is_healthy());
            }
        }
        healthy * 100 < in_service * self.panic_percent as usize
    }

    /// Chooses by the weights of a class, in turn (smooth weighted round robin) and not by the fewest in flight: a law that sets weights
    /// reckons with the shares that they say, and the fewest in flight would give a quicker backend more than that. Where it has more in
    /// flight than the law reckons with, the law is wrong about it or what comes in (it hangs, it is slow, there is a rush): then the ones with
    /// room take their turns, and where none with a weight has room, the one whose requests are the smallest share of its bound, with a weight
    /// or without. `None` where no backend of the class can take the request.
    pub(crate) fn pick_routed(
        &self,
        backends: &[std::sync::Arc<Backend>],
        route: &ClassRoute,
        credit: &mut [i64],
        in_flight: impl Fn(usize) -> usize,
        tried: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let panics = self.panics(backends);
        let can = |index: usize| {
            let backend = &backends[index];
            backend.may_take(panics)
                && !backend.is_ejected()
                && !tried(index)
                && in_flight(index) < backend.limit(self.max_in_flight)
        };
        let bound = |index: usize| match route.most_in_flight.is_empty() {
            true => u32::MAX,
            false => route.most_in_flight.get(index).copied().unwrap_or(0),
        };
        let (mut best, mut total) = (None, 0);
        for (index, backend) in backends.iter().enumerate() {
            let weight = route.weights.get(index).copied().map_or(0, i64::from);
            if weight == 0 || backend.in_flight() >= bound(index) || !can(index) {
                continue;
            }
            credit[index] += weight;
            total += weight;
            if best.is_none_or(|best: usize| credit[index] > credit[best]) {
                best = Some(index);
            }
        }
        if let Some(best) = best {
            credit[best] -= total;
            return Some(best);
        }
        if route.most_in_flight.is_empty() {
            return None;
        }
        let share = |index: &usize| f64::from(backends[*index].in_flight() + 1) / f64::from(bound(*index));
        let with_room = (0..backends.len()).filter(|index| bound(*index) > 0 && can(*index));
        with_room.min_by(|one, two| share(one).total_cmp(&share(two)))
    }

    /// Whose turn it is among equals: each as often as its weight says (smooth weighted round robin).
    fn turn(&mut self) -> Option<usize> {
        let (mut best, mut total) = (None, 0);
        for &(index, weight) in &self.equal {
            self.credit[index] += i64::from(weight);
            total += i64::from(weight);
            if best.is_none_or(|best: usize| self.credit[index] > self.credit[best]) {
                best = Some(index);
            }
        }
        let best = best?;
        self.credit[best] -= total;
        Some(best)
    }

    /// Chooses a backend for which `tried` does not hold: of the least loaded per weight, or of all, as is configured, whose turn it
    /// is. A passive ejection is only a preference: when
    /// nothing else is left, an ejected backend is tried, for otherwise one refused connection would turn a
    /// whole service off for the length of the ejection. One that is merely at its limit is left: it will be
    /// below it before the ejected one is back.
    pub(crate) fn pick(
        &mut self,
        backends: &[std::sync::Arc<Backend>],
        in_flight: impl Fn(usize) -> usize,
        tried: impl Fn(usize) -> bool,
    ) -> Result<usize, NoBackend> {
        let mut over_limit = false;
        let panics = self.panics(backends);
        for with_ejected in [false, true] {
            let mut may = |index: usize| {
                let backend = &backends[index];
                let weight = backend.weight.load(Relaxed);
                if !backend.may_take(panics) || backend.is_ejected() != with_ejected || tried(index) {
                    return None;
                }
                let (load, limit) = (in_flight(index), backend.limit(self.max_in_flight));
                over_limit |= load >= limit;
                (load < limit).then_some((weight, load))
            };
            self.equal.clear();
            // Of the least loaded: its requests in flight, and its weight.
            let mut least: Option<(usize, u32)> = None;
            for index in 0..backends.len() {
                let Some((weight, load)) = may(index) else {
                    continue;
                };
                if self.balance == Balance::LeastConnections {
                    let order = least.map_or(Ordering::Less, |(least, of)| {
                        (load as u64 * u64::from(of)).cmp(&(least as u64 * u64::from(weight)))
                    });
                    match order {
                        Ordering::Greater => continue,
                        Ordering::Equal => {}
                        Ordering::Less => {
                            least = Some((load, weight));
                            self.equal.clear();
                        }
                    }
                }
                self.equal.push((index, weight));
            }
            if let Some(best) = self.turn() {
                return Ok(best);
            }
            if over_limit {
                return Err(NoBackend::OverLimit);
            }
        }
        Err(NoBackend::Unavailable)
    }
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
