//! What a gateway says about itself and what it counted.

use super::lever::LEASE_MS;
use super::{ClassRoute, GatewayLever, LeverSetting, MAX_LEVERS, Range, SizeClass, range, sizes};
use crate::check::{Invalid, at_most, each, micros, protocol, required};
use crate::proto;
use std::time::Duration;

// Counts are what the contract says they are: there is nothing in them to check.
pub use crate::proto::{
    BackendPeriod, BatchCounts, CacheCounts, ConnectCounts, FailureCounts, ImportanceCounts, QueueCounts,
    RetryCounts, SourceCounts,
};

/// The most backends of one gateway.
pub const MAX_BACKENDS: usize = 256;
/// The most classes of importance of one gateway.
pub const MAX_IMPORTANCES: usize = 16;
/// The most different latencies in one period: more than three digits of a microsecond to two minutes can tell apart.
pub const MAX_LATENCIES: usize = 32_768;
/// The largest weight of a backend.
pub const MAX_WEIGHT: u32 = 1000;

/// What a gateway is.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayDescription {
    /// The version of its program.
    pub version: String,
    /// A number drawn when it started.
    pub run: u64,
    /// Where it serves requests.
    pub listen: Vec<String>,
    /// Its backends, in the order of its configuration. At most [`MAX_BACKENDS`].
    pub backends: Vec<Backend>,
    /// The periods of an observation that may be asked for, in milliseconds.
    pub observe_period_ms: Range,
    /// What can be set of it beside its backends. At most [`MAX_LEVERS`].
    pub levers: Vec<GatewayLever>,
    /// The largest content of each class of sizes but the last, bytes; empty where it looks at no sizes. At most 7.
    pub size_bounds: Vec<u64>,
}

/// More requests are in flight than a bound that was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundPassed {
    /// How many.
    pub in_flight: u64,
}

impl From<BoundPassed> for proto::BoundPassed {
    fn from(passed: BoundPassed) -> Self {
        Self {
            in_flight: passed.in_flight,
        }
    }
}

impl TryFrom<proto::BoundPassed> for BoundPassed {
    type Error = Invalid;
    fn try_from(message: proto::BoundPassed) -> Result<Self, Invalid> {
        Ok(Self {
            in_flight: message.in_flight,
        })
    }
}

/// What is wanted of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// It takes requests, with the weight it has.
    Up,
    /// It takes no new request; those in flight finish.
    Drain,
    /// It takes no new request, and its pooled connections are closed.
    Down,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its URL.
    pub url: String,
    /// What is wanted of it.
    pub state: BackendState,
    /// Its share of the requests, beside those of the others.
    pub weight: u32,
    /// Whether it passes its health check; true where there is none.
    pub healthy: bool,
    /// How many requests it may have in flight, where that was set beside what is configured.
    pub most_in_flight: Option<u32>,
}

/// How many requests a backend may have in flight, for the length of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightBound {
    /// So many; `None` for as configured.
    pub most: Option<u32>,
    /// For so long.
    pub lease: Duration,
}

/// A change of one backend. `None` leaves it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetBackend {
    /// Which, counted from 0.
    pub backend: u32,
    /// The state.
    pub state: Option<BackendState>,
    /// The weight, at most [`MAX_WEIGHT`].
    pub weight: Option<u32>,
    /// How many requests it may have in flight.
    pub bound: Option<InFlightBound>,
}

/// What was counted in one period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayPeriod {
    /// Counts the periods of a stream from 1, without gaps.
    pub number: u64,
    /// As in [`GatewayDescription`].
    pub run: u64,
    /// How long it was.
    pub length: Duration,
    /// Requests that arrived, those that were refused among them.
    pub arrivals: u64,
    /// Requests answered.
    pub completions: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests being served at its end.
    pub in_flight: u64,
    /// The age of the oldest of these.
    pub oldest_in_flight: Option<Duration>,
    /// Latencies of the requests answered, in microseconds, growing, and how many had each. At most [`MAX_LATENCIES`].
    pub latencies: Vec<(u64, u64)>,
    /// Each backend's part, in the order of [`GatewayDescription::backends`]. At most [`MAX_BACKENDS`].
    pub backends: Vec<BackendPeriod>,
    /// Threads of the gateway that did not answer in time: what they counted comes with the next period.
    pub cores_missing: u32,
    /// Requests that had to wait for a backend; `None` where the gateway does not tell.
    pub queue: Option<QueueCounts>,
    /// Times that accepting clients was paused because they had their share of the process's descriptors.
    pub accept_pauses: u64,
    /// Microseconds that clients took beyond what the latencies count: to send their requests, and to take answers that were ready.
    pub client_us: u64,
    /// What was refused of sources over their limits, and of proxies' headers; `None` where the gateway does not tell.
    pub sources: Option<SourceCounts>,
    /// Requests that were sent to a backend once more; `None` where the gateway does not tell.
    pub retries: Option<RetryCounts>,
    /// Requests that the gateway itself refused (4xx, 501).
    pub refused: u64,
    /// Failures by cause.
    pub failed: FailureCounts,
    /// Answers by the class of their status, 1xx to 5xx.
    pub responses: [u64; 5],
    /// What the cache did; `None` where there is none.
    pub cache: Option<CacheCounts>,
    /// What the batcher did; `None` where there is none.
    pub batch: Option<BatchCounts>,
    /// Requests that found every backend at its limit, by class of importance, the most important first. At most [`MAX_IMPORTANCES`].
    pub importance: Vec<ImportanceCounts>,
    /// Every lever of the gateway with its value at the end. At most [`MAX_LEVERS`].
    pub levers: Vec<LeverSetting>,
    /// Each class of sizes, the smallest first, and last what is of no known size; empty where it looks at no sizes.
    pub sizes: Vec<SizeClass>,
    /// Of each class whose size is known where it goes; empty where they go as configured.
    pub routes: Vec<ClassRoute>,
}

fn state_number(state: Option<BackendState>) -> i32 {
    let state = match state {
        None => proto::BackendState::Unspecified,
        Some(BackendState::Up) => proto::BackendState::Up,
        Some(BackendState::Drain) => proto::BackendState::Drain,
        Some(BackendState::Down) => proto::BackendState::Down,
    };
    state.into()
}

fn state(value: i32) -> Result<Option<BackendState>, Invalid> {
    match proto::BackendState::try_from(value) {
        Ok(proto::BackendState::Unspecified) => Ok(None),
        Ok(proto::BackendState::Up) => Ok(Some(BackendState::Up)),
        Ok(proto::BackendState::Drain) => Ok(Some(BackendState::Drain)),
        Ok(proto::BackendState::Down) => Ok(Some(BackendState::Down)),
        Err(_) => Err(Invalid::new("backend.state", value, "1 up, 2 drain or 3 down")),
    }
}

impl From<Backend> for proto::Backend {
    fn from(backend: Backend) -> Self {
        Self {
            url: backend.url,
            state: state_number(Some(backend.state)),
            weight: backend.weight,
            healthy: backend.healthy,
            most_in_flight: backend.most_in_flight,
        }
    }
}

impl TryFrom<proto::Backend> for Backend {
    type Error = Invalid;
    fn try_from(message: proto::Backend) -> Result<Self, Invalid> {
        Ok(Self {
            state: state(message.state)?.ok_or_else(|| Invalid::missing("backend.state"))?,
            url: message.url,
            weight: message.weight,
            healthy: message.healthy,
            most_in_flight: message.most_in_flight,
        })
    }
}

impl TryFrom<proto::BackendSet> for Backend {
    type Error = Invalid;
    fn try_from(message: proto::BackendSet) -> Result<Self, Invalid> {
        required("backend", message.backend)
    }
}

/// The lease of a bound.
fn lease(ms: u64) -> Result<Duration, Invalid> {
    match (LEASE_MS.minimum..=LEASE_MS.maximum).contains(&(ms as f64)) {
        true => Ok(Duration::from_millis(ms)),
        false => Err(Invalid::new("lease_ms", ms, "100 to 86400000")),
    }
}

impl From<SetBackend> for proto::SetBackendRequest {
    fn from(change: SetBackend) -> Self {
        Self {
            backend: change.backend,
            state: state_number(change.state),
            weight: change.weight,
            most_in_flight: change.bound.map(|bound| bound.most.unwrap_or(0)),
            lease_ms: change.bound.map_or(0, |bound| {
                u64::try_from(bound.lease.as_millis()).unwrap_or(u64::MAX)
            }),
        }
    }
}

impl TryFrom<proto::SetBackendRequest> for SetBackend {
    type Error = Invalid;
    fn try_from(message: proto::SetBackendRequest) -> Result<Self, Invalid> {
        if let Some(weight) = message.weight.filter(|weight| *weight > MAX_WEIGHT) {
            return Err(Invalid::new("weight", weight, format!("0 to {MAX_WEIGHT}")));
        }
        let bound = message.most_in_flight.map(|most| {
            let most = Some(most).filter(|most| *most > 0);
            let lease = match most {
                Some(_) => lease(message.lease_ms)?,
                None => Duration::ZERO,
            };
            Ok::<_, Invalid>(InFlightBound { most, lease })
        });
        Ok(Self {
            backend: message.backend,
            state: state(message.state)?,
            weight: message.weight,
            bound: bound.transpose()?,
        })
    }
}

impl From<GatewayDescription> for proto::GatewayDescription {
    fn from(description: GatewayDescription) -> Self {
        Self {
            protocol: crate::PROTOCOL,
            version: description.version,
            run: description.run,
            listen: description.listen,
            backends: description.backends.into_iter().map(Into::into).collect(),
            observe_period_ms: Some(description.observe_period_ms),
            levers: description.levers.into_iter().map(Into::into).collect(),
            size_bounds: description.size_bounds,
        }
    }
}

impl TryFrom<proto::GatewayDescription> for GatewayDescription {
    type Error = Invalid;
    fn try_from(message: proto::GatewayDescription) -> Result<Self, Invalid> {
        protocol(message.protocol)?;
        Ok(Self {
            version: message.version,
            run: message.run,
            listen: at_most("listen", message.listen, MAX_BACKENDS)?,
            backends: each("backends", message.backends, MAX_BACKENDS)?,
            observe_period_ms: range("observe_period_ms", message.observe_period_ms)?,
            levers: each("levers", message.levers, MAX_LEVERS)?,
            size_bounds: sizes::bounds(message.size_bounds)?,
        })
    }
}

/// Latencies, each once and growing, with how many had each; at most `most`.
pub(super) fn latencies(values: Vec<u64>, counts: Vec<u64>, most: usize) -> Result<Vec<(u64, u64)>, Invalid> {
    let values = at_most("latency_us", values, most)?;
    if counts.len() != values.len() {
        let expected = format!("as many as latency_us, {}", values.len());
        return Err(Invalid::new(
            "latency_count",
            format!("{} long", counts.len()),
            expected,
        ));
    }
    if let Some(pair) = values.windows(2).find(|pair| pair[0] >= pair[1]) {
        let expected = format!("more than {} before it", pair[0]);
        return Err(Invalid::new("latency_us", pair[1], expected));
    }
    Ok(values.into_iter().zip(counts).collect())
}

impl From<GatewayPeriod> for proto::GatewayPeriod {
    fn from(period: GatewayPeriod) -> Self {
        let (latency_us, latency_count) = period.latencies.into_iter().unzip();
        Self {
            number: period.number,
            run: period.run,
            length_us: micros(period.length),
            arrivals: period.arrivals,
            completions: period.completions,
            failures: period.failures,
            in_flight: period.in_flight,
            oldest_in_flight_us: period.oldest_in_flight.map(micros),
            latency_us,
            latency_count,
            backends: period.backends,
            cores_missing: period.cores_missing,
            queue: period.queue,
            accept_pauses: period.accept_pauses,
            client_us: period.client_us,
            sources: period.sources,
            retries: period.retries,
            refused: period.refused,
            failed: Some(period.failed),
            responses: period.responses.to_vec(),
            cache: period.cache,
            batch: period.batch,
            importance: period.importance,
            levers: period.levers,
            sizes: period.sizes.into_iter().map(Into::into).collect(),
            routes: sizes::routes_message(period.routes),
        }
    }
}

impl TryFrom<proto::GatewayPeriod> for GatewayPeriod {
    type Error = Invalid;
    fn try_from(message: proto::GatewayPeriod) -> Result<Self, Invalid> {
        let latencies = latencies(message.latency_us, message.latency_count, MAX_LATENCIES)?;
        let responses = <[u64; 5]>::try_from(message.responses).map_err(|responses| {
            let expected = "a number for each of 1xx to 5xx";
            Invalid::new("responses", format!("{} long", responses.len()), expected)
        })?;
        Ok(Self {
            number: message.number,
            run: message.run,
            length: Duration::from_micros(message.length_us),
            arrivals: message.arrivals,
            completions: message.completions,
            failures: message.failures,
            in_flight: message.in_flight,
            oldest_in_flight: message.oldest_in_flight_us.map(Duration::from_micros),
            latencies,
            backends: at_most("backends", message.backends, MAX_BACKENDS)?,
            cores_missing: message.cores_missing,
            queue: message.queue,
            accept_pauses: message.accept_pauses,
            client_us: message.client_us,
            sources: message.sources,
            retries: message.retries,
            refused: message.refused,
            failed: message.failed.ok_or_else(|| Invalid::missing("failed"))?,
            responses,
            cache: message.cache,
            batch: message.batch,
            importance: at_most("importance", message.importance, MAX_IMPORTANCES)?,
            levers: at_most("levers", message.levers, MAX_LEVERS)?,
            sizes: each("sizes", message.sizes, sizes::MAX_SIZE_CLASSES + 1)?,
            routes: sizes::routes(message.routes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_period_reads_as_it_was_written(
            counts in proptest::collection::btree_map(1u64..120_000_000, 1u64..1000, 0..50),
            arrivals: u64, in_flight: u64, oldest in proptest::option::of(0u64..1_000_000),
        ) {
            let period = GatewayPeriod {
                number: 3,
                run: 5,
                length: Duration::from_millis(100),
                arrivals,
                in_flight,
                oldest_in_flight: oldest.map(Duration::from_micros),
                latencies: counts.into_iter().collect(),
                backends: vec![BackendPeriod {
                    requests: 1,
                    failures: 2,
                    healthy: true,
                    in_flight: oldest,
                    connects: oldest.map(|_| ConnectCounts {
                        opened: 1,
                        refused: 2,
                        timed_out: 3,
                        no_resources: 4,
                        ejected_refused: 5,
                        ejected_timed_out: 6,
                        ejections_withheld: 7,
                        ejected_failing: 8,
                    }),
                    left_by_clients: oldest,
                    answered_to_nobody: oldest,
                    failed_answers: oldest,
                    checks: oldest,
                }],
                importance: vec![ImportanceCounts { name: "checkout".to_owned(), waited: 12, turned_away: 13 }],
                queue: oldest.map(|_| QueueCounts { waited: 8, full: 9, expired: 10, waiting: 11, left: 12 }),
                accept_pauses: arrivals,
                refused: in_flight,
                client_us: arrivals,
                retries: oldest.map(|_| RetryCounts { sent: 6, withheld: 7 }),
                sources: oldest.map(|_| SourceCounts {
                    requests: 1,
                    connections: 2,
                    connects: 3,
                    untracked: 4,
                    proxy_headers: 5,
                }),
                failed: FailureCounts {
                    unreachable: 1,
                    over_limit: 2,
                    timed_out: 3,
                    aborted_by_backend: 4,
                    aborted_by_client: 5,
                    failed_answers: 6,
                },
                responses: [7, 8, 9, 10, arrivals],
                cache: oldest.map(|_| CacheCounts {
                    hits: 1,
                    stale: 2,
                    misses: 3,
                    validated: 4,
                    collapsed: 5,
                    passed: 6,
                    stored: 7,
                    invalidated: 8,
                }),
                batch: oldest.map(|_| BatchCounts {
                    batches: 1,
                    requests: 2,
                    groups: 3,
                    answered: 4,
                    processing_us: 5,
                    waiting_us: 6,
                    full: 7,
                    expired: 8,
                    held: 9,
                }),
                levers: vec![LeverSetting { lever: "batch_interval".into(), value: 0.3 }],
                sizes: vec![SizeClass { arrivals, ..SizeClass::default() }],
                routes: vec![vec![1, 0].into()],
                ..GatewayPeriod::default()
            };
            let message = proto::GatewayPeriod::from(period.clone());
            prop_assert_eq!(GatewayPeriod::try_from(message), Ok(period));
        }
    }

    #[test]
    fn latencies_that_make_no_histogram_are_refused() {
        let message = |latency_us: Vec<u64>, latency_count: Vec<u64>| proto::GatewayPeriod {
            latency_us,
            latency_count,
            ..proto::GatewayPeriod::default()
        };
        for (values, counts, said) in [
            (vec![1, 2], vec![1], "latency_count is 1 long"),
            (vec![2, 2], vec![1, 1], "latency_us is 2: expected more than 2"),
            (vec![1; MAX_LATENCIES + 1], vec![], "at most 32768"),
        ] {
            let error = GatewayPeriod::try_from(message(values, counts))
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_change_says_which_state_or_none() {
        let request = |state, weight| proto::SetBackendRequest {
            backend: 1,
            state,
            weight,
            most_in_flight: None,
            lease_ms: 0,
        };
        assert_eq!(SetBackend::try_from(request(0, None)).unwrap().state, None);
        assert_eq!(
            SetBackend::try_from(request(2, None)).unwrap().state,
            Some(BackendState::Drain)
        );
        assert!(SetBackend::try_from(request(9, None)).is_err());
        assert!(SetBackend::try_from(request(0, Some(1001))).is_err());
    }

    #[test]
    fn a_bound_has_a_lease_and_none_needs_none() {
        let request = |most_in_flight, lease_ms| proto::SetBackendRequest {
            backend: 1,
            most_in_flight,
            lease_ms,
            ..proto::SetBackendRequest::default()
        };
        let bound = |most_in_flight, lease_ms| SetBackend::try_from(request(most_in_flight, lease_ms));
        assert_eq!(bound(None, 0).unwrap().bound, None);
        let lifted = bound(Some(0), 0).unwrap().bound.unwrap();
        assert_eq!(lifted.most, None);
        let set = bound(Some(30), 5_000).unwrap();
        let wanted = InFlightBound {
            most: Some(30),
            lease: Duration::from_secs(5),
        };
        assert_eq!(set.bound, Some(wanted));
        assert_eq!(SetBackend::try_from(proto::SetBackendRequest::from(set)), Ok(set));
        for lease_ms in [0, 99, 86_400_001] {
            assert!(bound(Some(30), lease_ms).is_err());
        }
    }
}
