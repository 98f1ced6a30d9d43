//! What is counted, on a core and over a period.
//!
//! The law that the tests check, per service, per backend and per class of sizes:
//! `arrivals = completions + failures + refused + (in flight at the end - in flight at the start)`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use derive_more::AddAssign;
use hdrhistogram::Histogram;

use crate::admission::MAX_RANKS;
use crate::backend::Backend;
use crate::sizes::ClassCounts;
use crate::sources::SourceCounts;

/// Smallest and largest latency distinguished, in microseconds; anything outside saturates at the bound.
const LATENCY_RANGE_US: (u64, u64) = (1, 120_000_000);

/// Significant decimal digits of the service's histogram (0.1 % error).
const SERVICE_DIGITS: u8 = 3;

/// Significant decimal digits of a backend's histogram (1 % error): an eighth of the memory.
const BACKEND_DIGITS: u8 = 2;

/// An empty latency histogram of the service (microseconds, three digits, up to 120 s, saturating).
pub fn service_histogram() -> Histogram<u64> {
    histogram(SERVICE_DIGITS)
}

/// An empty latency histogram of one backend (microseconds, two digits, up to 120 s, saturating).
pub fn backend_histogram() -> Histogram<u64> {
    histogram(BACKEND_DIGITS)
}

fn histogram(digits: u8) -> Histogram<u64> {
    // The three arguments are constants within the crate's documented ranges (low >= 1, high >= 2 low,
    // digits <= 5), so construction cannot fail.
    Histogram::new_with_bounds(LATENCY_RANGE_US.0, LATENCY_RANGE_US.1, digits)
        .expect("constant histogram bounds are valid")
}

pub(crate) fn add_histogram(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    // Both were made by the same constructor, so every value of one fits into the other; only that could make it fail.
    if let Err(error) = to.add(from) {
        tracing::error!(?error, "latency histograms do not agree");
    }
}

/// Requests counted over a period (and, for [`Counts::in_flight`], at its end).
///
/// Every request ends in exactly one of `completions`, `failures` and `refused`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests received: with their bodies, as far as these are taken before a backend is asked
    /// ([`crate::LimitConfig::request_buffer_bytes`]). For a backend: requests sent to it, a retry counting again.
    pub arrivals: u64,
    /// Responses of a backend handed over whole, with a status that is not a failed one
    /// ([`crate::GatewayConfig::failed_status`]); 101 counts when the switch is made.
    pub completions: u64,
    /// Answers 502, 503 and 504 of the gateway itself, aborted responses, and a backend's answers with a failed status:
    /// the sum of `unreachable`, `over_limit`, `timed_out`, `aborted_by_backend`, `aborted_by_client` and
    /// `failed_answers`.
    pub failures: u64,
    /// Requests the gateway itself answered 4xx or 501: malformed, over a size limit, over their source's rate (429:
    /// [`SourceCounts::requests`]), or for a name that the connection's certificate is not for (421).
    pub refused: u64,
    /// Failures: 502, no backend could be reached or its response was invalid.
    pub unreachable: u64,
    /// Failures: 503, a limit was hit.
    pub over_limit: u64,
    /// Failures: 504, a backend did not answer in time; or the client went away after the service had taken longer than
    /// [`crate::GatewayConfig::target_ms`].
    pub timed_out: u64,
    /// Failures: a backend broke off, or stalled, in the middle of its response.
    pub aborted_by_backend: u64,
    /// Failures: the client went away, or stopped reading or sending, before the response was handed over, and the service had not
    /// taken too long.
    pub aborted_by_client: u64,
    /// Failures: a backend's answer was handed over whole and its status was a failed one.
    pub failed_answers: u64,
    /// Answers whose clients had only closed their side, and were found to have left when they were sent them; of a backend alone, which
    /// counted them as answered before.
    pub answered_to_nobody: u64,
    /// Answers by the class of their status, 1xx to 5xx: a backend's that were handed over whole, and the gateway's own.
    pub statuses: [u64; 5],
    /// Requests repeated after a kept-alive connection had died or a connection had failed.
    pub retries: u64,
    /// Requests that could have been repeated and were not: the budget of [`crate::RetryConfig`] was used up.
    pub retries_withheld: u64,
    /// Time that clients took beyond what the latencies count, of the requests that were answered whole: in which the next piece of a
    /// request was waited for, or an answer was ready and its client did not take it; microseconds, of the service alone.
    pub client_us: u64,
    /// Bytes of response bodies handed over.
    pub response_bytes: u64,
    /// Requests in flight at the end of the period (a gauge: the last value known of each core).
    pub in_flight: u64,
}

impl Counts {
    /// Adds every counter of `other`, and its gauge.
    pub(crate) fn add(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.completions += other.completions;
        self.failures += other.failures;
        self.refused += other.refused;
        self.unreachable += other.unreachable;
        self.over_limit += other.over_limit;
        self.timed_out += other.timed_out;
        self.aborted_by_backend += other.aborted_by_backend;
        self.aborted_by_client += other.aborted_by_client;
        self.failed_answers += other.failed_answers;
        self.answered_to_nobody += other.answered_to_nobody;
        for (sum, count) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += count;
        }
        self.retries += other.retries;
        self.retries_withheld += other.retries_withheld;
        self.client_us += other.client_us;
        self.response_bytes += other.response_bytes;
        self.in_flight += other.in_flight;
    }

    /// Counts one answer by the class of its status. One above 599 is invalid, and counts among the 5xx (RFC 9110 section 15).
    pub(crate) fn status(&mut self, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).min(5);
        if let Some(count) = class
            .checked_sub(1)
            .and_then(|class| self.statuses.get_mut(class))
        {
            *count += 1;
        }
    }

    /// Failures that are the service's or the gateway's: all but those of clients that went away.
    pub fn failed_by_service(&self) -> u64 {
        self.failures - self.aborted_by_client
    }

    /// Counts one failure with its cause.
    pub(crate) fn fail(&mut self, cause: Failure) {
        self.failures += 1;
        *match cause {
            Failure::Unreachable => &mut self.unreachable,
            Failure::OverLimit => &mut self.over_limit,
            Failure::TimedOut => &mut self.timed_out,
            Failure::AbortedByBackend => &mut self.aborted_by_backend,
            Failure::AbortedByClient => &mut self.aborted_by_client,
            Failure::Answered => &mut self.failed_answers,
        } += 1;
    }
}

/// Connections to one backend, counted over a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct ConnectCounts {
    /// Opened.
    pub opened: u64,
    /// Refused: nobody listened, or there was no way there.
    pub refused: u64,
    /// Not opened in time: nobody there, or its accept queue was full.
    pub timed_out: u64,
    /// Not opened because this machine had no descriptor, port or memory left.
    pub no_resources: u64,
    /// Ejections after refused connections.
    pub ejected_refused: u64,
    /// Ejections after connections that timed out.
    pub ejected_timed_out: u64,
    /// Ejections because it failed requests while others did not.
    pub ejected_failing: u64,
    /// Ejections after timeouts or failures that did not happen because too many backends were away
    /// ([`crate::HealthConfig::max_ejection_percent`]).
    pub ejections_withheld: u64,
}

/// Requests that found every backend at its limit of requests in flight, counted over a period (and, for
/// [`QueueCounts::waiting`], at its end).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct QueueCounts {
    /// Waited, whatever came of it.
    pub waited: u64,
    /// Were turned away because the queue was full: as they came, or later in the place of what is more important.
    pub full: u64,
    /// Were turned away because they had waited too long.
    pub expired: u64,
    /// Left without a backend for another reason: their clients went away, the time that any request may take was over, or all
    /// backends were gone.
    pub left: u64,
    /// Wait now (a gauge: the last value known of each core). They are among those in flight.
    pub waiting: u64,
}

/// Requests of one class of importance ([`crate::AdmissionConfig`]) that found every backend at its limit, counted over a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct RankCounts {
    /// Waited, whatever came of it.
    pub waited: u64,
    /// Were turned away: there was no place for them, a more important one took theirs, or they had waited too long.
    pub turned_away: u64,
}

/// Adds those of each rank.
fn add_ranks(sum: &mut [RankCounts; MAX_RANKS], other: &[RankCounts; MAX_RANKS]) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += *other;
    }
}

/// Requests that were sent to a backend once more, counted over a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct RetryCounts {
    /// Sent again: [`Counts::retries`].
    pub sent: u64,
    /// Not sent again though they could have been: [`Counts::retries_withheld`].
    pub withheld: u64,
}

impl From<&Counts> for RetryCounts {
    fn from(counts: &Counts) -> Self {
        Self {
            sent: counts.retries,
            withheld: counts.retries_withheld,
        }
    }
}

/// What the batcher did, counted over a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct BatchCounts {
    /// Intervals at whose end something was let go.
    pub batches: u64,
    /// Requests that were held until then, and the groups that they made.
    pub requests: u64,
    /// Groups.
    pub groups: u64,
    /// Requests that passed at once because as many were held as may be.
    pub full: u64,
    /// Requests that were held for as long as may be and went by themselves.
    pub expired: u64,
    /// From the end of the processing of the batch before to the end of the interval, at most the interval, microseconds (T_w of the
    /// paper's Figure 2, its sum over the batches).
    pub waiting_us: u64,
    /// Batches of which every request was answered (or its client went), and the time from letting them go until then, microseconds (T_p).
    pub answered: u64,
    /// That time, its sum over the batches answered.
    pub processing_us: u64,
    /// Requests that are held now, or wait for those of their batch that go before them (a gauge: the last value known of each core). They
    /// are among those in flight, and no backend has them yet.
    pub held: u64,
}

/// What a cache has stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct CacheSize {
    /// Bytes: bodies, header fields, and what the tables take.
    pub bytes: u64,
    /// Targets, however many responses each has.
    pub objects: u64,
}

/// What the cache did, counted over a period.
///
/// Requests that it could answer are `hits`, `stale`, `validated` and those of `misses` that were not validated; `passed` are those
/// that it looked for and that went on by themselves. A request that waited for another's fetch of the same and was answered by what that
/// stored is one of `hits`. One whose fetch failed and that was answered with what is stale is one of `misses` and of `stale`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct CacheCounts {
    /// Answered from memory, without asking.
    pub hits: u64,
    /// Answered from memory with what was stale, as the origin allows.
    pub stale: u64,
    /// Fetched, or asked for again, for all that asked meanwhile.
    pub misses: u64,
    /// Of these, the ones of which the origin said that they are still so.
    pub validated: u64,
    /// Waited for another that fetched the same; each then counts as what it became.
    pub collapsed: u64,
    /// Looked for, and passed on by themselves: a part or a head of what is not stored, and what may not be stored.
    pub passed: u64,
    /// Answers stored.
    pub stored: u64,
    /// Targets forgotten because a request changed them.
    pub invalidated: u64,
}

impl CacheCounts {
    /// Requests that it looked for.
    pub fn lookups(&self) -> u64 {
        self.hits + self.stale + self.misses + self.passed
    }

    /// Of these, the ones answered from memory: `hits` and `stale`. What the origin was asked about (`validated`) is not among them, for
    /// the service had work with it.
    pub fn answered(&self) -> u64 {
        self.hits + self.stale
    }

    /// The share of the requests that it looked for which were answered from memory (h of the batching paper, Section III); `None` where
    /// it looked for none.
    pub fn hit_rate(&self) -> Option<f64> {
        let lookups = self.lookups();
        (lookups > 0).then(|| self.answered() as f64 / lookups as f64)
    }
}

/// Why a request failed; each has its counter in [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Unreachable,
    OverLimit,
    TimedOut,
    AbortedByBackend,
    AbortedByClient,
    /// A backend answered with a failed status.
    Answered,
}

/// One backend's part of a period.
#[derive(Debug, Clone)]
pub struct BackendPeriod {
    /// The URL as configured; backends keep the order of the configuration.
    pub url: String,
    /// Counted over the period.
    pub counts: Counts,
    /// Connections to it.
    pub connects: ConnectCounts,
    /// Active health checks that were sent to it.
    pub checks: u64,
    /// Latency of completions in microseconds, two significant digits.
    pub histogram: Histogram<u64>,
}

/// Everything counted since the last [`crate::Handle::take_period`].
#[derive(Debug, Clone)]
pub struct PeriodStats {
    /// How long the period was.
    pub since: Duration,
    /// Counted over all backends; each request once, however often it was tried.
    pub service: Counts,
    /// Requests that had to wait for a backend below its limit.
    pub queue: QueueCounts,
    /// Those of each class of importance, in the order of [`crate::Handle::ranks`].
    pub ranks: [RankCounts; MAX_RANKS],
    /// What the cache did.
    pub cache: CacheCounts,
    /// What the batcher did.
    pub batch: BatchCounts,
    /// What was refused of sources over their limits, and of proxies' headers.
    pub sources: SourceCounts,
    /// What the cache has stored at the end of the period; `None` without a cache.
    pub cache_size: Option<CacheSize>,
    /// Times that accepting clients was paused because they had their share of the process's descriptors.
    pub accept_pauses: u64,
    /// Latency of completions (failed answers have none) in microseconds: from the request head received to the last byte of the
    /// response handed over; three significant digits, saturating at 120 s.
    pub histogram: Histogram<u64>,
    /// Per backend, in the order of the configuration.
    pub backends: Vec<BackendPeriod>,
    /// Per class of sizes, the smallest first, and last the requests whose size nobody knew; empty where sizes are not looked at
    /// ([`crate::SizesConfig`]).
    pub sizes: Vec<ClassCounts>,
    /// Age of the oldest request in flight on the cores that answered; none in flight is `None`. With every
    /// request stalled there is no completion and no latency: this still grows.
    pub oldest_in_flight: Option<Duration>,
    /// Upgraded connections open at the end of the period. They are not in flight.
    pub tunnels: u64,
    /// Client connections open at the end of the period.
    pub connections: u64,
    /// Cores that did not answer in time; what they counted is in the next period.
    pub cores_missing: usize,
}

impl PeriodStats {
    /// Nothing counted yet.
    pub(crate) fn empty(backends: &[Arc<Backend>], classes: usize) -> Self {
        let empty = |backend: &Arc<Backend>| BackendPeriod {
            url: backend.url.clone(),
            counts: Counts::default(),
            connects: ConnectCounts::default(),
            checks: 0,
            histogram: backend_histogram(),
        };
        Self {
            since: Duration::ZERO,
            service: Counts::default(),
            queue: QueueCounts::default(),
            ranks: Default::default(),
            cache: CacheCounts::default(),
            batch: BatchCounts::default(),
            sources: SourceCounts::default(),
            cache_size: None,
            accept_pauses: 0,
            histogram: service_histogram(),
            backends: backends.iter().map(empty).collect(),
            sizes: vec![ClassCounts::empty(backends.len()); classes],
            oldest_in_flight: None,
            tunnels: 0,
            connections: 0,
            cores_missing: 0,
        }
    }

    /// Adds what one core counted.
    pub(crate) fn absorb(&mut self, sample: &CoreSample) {
        self.service.add(&sample.service);
        self.queue += sample.queue;
        add_ranks(&mut self.ranks, &sample.ranks);
        self.cache += sample.cache;
        self.batch += sample.batch;
        self.sources += sample.sources;
        add_histogram(&mut self.histogram, &sample.histogram);
        for (backend, sample) in self.backends.iter_mut().zip(&sample.backends) {
            backend.counts.add(&sample.counts);
            backend.connects += sample.connects;
            add_histogram(&mut backend.histogram, &sample.histogram);
        }
        for (class, sample) in self.sizes.iter_mut().zip(&sample.sizes) {
            class.add(sample);
        }
    }

    /// Adds what was counted in the period before, which nobody used: counters and latencies add up, the gauges and
    /// the cores missing stay this period's.
    pub fn add_earlier(&mut self, earlier: &Self) {
        self.since += earlier.since;
        let in_flight = self.service.in_flight;
        self.service.add(&earlier.service);
        self.service.in_flight = in_flight;
        let waiting = self.queue.waiting;
        self.queue += earlier.queue;
        add_ranks(&mut self.ranks, &earlier.ranks);
        self.queue.waiting = waiting;
        self.cache += earlier.cache;
        let held = self.batch.held;
        self.batch += earlier.batch;
        self.sources += earlier.sources;
        self.batch.held = held;
        self.accept_pauses += earlier.accept_pauses;
        add_histogram(&mut self.histogram, &earlier.histogram);
        for (backend, earlier) in self.backends.iter_mut().zip(&earlier.backends) {
            let in_flight = backend.counts.in_flight;
            backend.counts.add(&earlier.counts);
            backend.counts.in_flight = in_flight;
            backend.connects += earlier.connects;
            backend.checks += earlier.checks;
            add_histogram(&mut backend.histogram, &earlier.histogram);
        }
        for (class, earlier) in self.sizes.iter_mut().zip(&earlier.sizes) {
            class.add_earlier(earlier);
        }
    }
}

/// One backend's counters on one core.
#[derive(Debug)]
pub(crate) struct BackendSample {
    pub counts: Counts,
    pub connects: ConnectCounts,
    pub histogram: Histogram<u64>,
}

/// One core's counters. The control side sends an empty one, the core exchanges the contents: nothing is
/// locked, nothing is allocated, and no request is counted twice or not at all.
#[derive(Debug)]
pub(crate) struct CoreSample {
    pub service: Counts,
    pub queue: QueueCounts,
    pub ranks: [RankCounts; MAX_RANKS],
    pub cache: CacheCounts,
    pub batch: BatchCounts,
    pub sources: SourceCounts,
    pub histogram: Histogram<u64>,
    pub backends: Vec<BackendSample>,
    /// As in [`PeriodStats`].
    pub sizes: Vec<ClassCounts>,
    pub oldest_start: Option<Instant>,
    pub tunnels: u64,
    pub connections: u64,
}

impl CoreSample {
    pub(crate) fn empty(backends: usize, classes: usize) -> Self {
        Self {
            service: Counts::default(),
            queue: QueueCounts::default(),
            ranks: Default::default(),
            cache: CacheCounts::default(),
            batch: BatchCounts::default(),
            sources: SourceCounts::default(),
            histogram: service_histogram(),
            backends: (0..backends)
                .map(|_| BackendSample {
                    counts: Counts::default(),
                    connects: ConnectCounts::default(),
                    histogram: backend_histogram(),
                })
                .collect(),
            sizes: vec![ClassCounts::empty(backends); classes],
            oldest_start: None,
            tunnels: 0,
            connections: 0,
        }
    }

    /// Back to zero, keeping the memory.
    pub(crate) fn clear(&mut self) {
        self.service = Counts::default();
        self.queue = QueueCounts::default();
        self.ranks = Default::default();
        self.cache = CacheCounts::default();
        self.batch = BatchCounts::default();
        self.sources = SourceCounts::default();
        self.histogram.reset();
        for backend in &mut self.backends {
            backend.counts = Counts::default();
            backend.connects = ConnectCounts::default();
            backend.histogram.reset();
        }
        self.sizes.iter_mut().for_each(ClassCounts::clear);
        self.oldest_start = None;
        self.tunnels = 0;
        self.connections = 0;
    }

    /// Moves what `self` counted into `out` and goes on from zero; requests in flight stay in flight.
    pub(crate) fn swap_into(&mut self, out: &mut Self) {
        out.clear();
        std::mem::swap(self, out);
        self.service.in_flight = out.service.in_flight;
        for (fresh, taken) in self.backends.iter_mut().zip(&out.backends) {
            fresh.counts.in_flight = taken.counts.in_flight;
        }
        for (fresh, taken) in self.sizes.iter_mut().zip(&out.sizes) {
            fresh.take_gauges(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_keeps_the_gauge_and_moves_the_counters() {
        let mut core = CoreSample::empty(1, 0);
        core.service.arrivals = 5;
        core.service.in_flight = 2;
        core.backends[0].counts.in_flight = 1;
        core.histogram.saturating_record(300);
        let mut out = CoreSample::empty(1, 0);
        out.service.arrivals = 99;
        core.swap_into(&mut out);
        assert_eq!(
            (out.service.arrivals, out.service.in_flight, out.histogram.len()),
            (5, 2, 1)
        );
        assert_eq!(
            (
                core.service.arrivals,
                core.service.in_flight,
                core.histogram.len()
            ),
            (0, 2, 0)
        );
        assert_eq!(core.backends[0].counts.in_flight, 1);
    }

    #[test]
    fn an_unused_period_adds_its_counters_and_latencies_and_not_its_gauges() {
        let period = |arrivals, in_flight, latency_us| {
            let mut histogram = service_histogram();
            histogram.saturating_record(latency_us);
            let counts = Counts {
                arrivals,
                in_flight,
                ..Counts::default()
            };
            let mut of_backend = backend_histogram();
            of_backend.saturating_record(latency_us);
            PeriodStats {
                since: Duration::from_secs(1),
                service: counts,
                queue: QueueCounts {
                    waited: arrivals,
                    waiting: in_flight,
                    ..QueueCounts::default()
                },
                ranks: std::array::from_fn(|_| RankCounts {
                    waited: arrivals,
                    turned_away: 1,
                }),
                cache: CacheCounts::default(),
                batch: BatchCounts::default(),
                sources: SourceCounts {
                    requests: arrivals,
                    ..SourceCounts::default()
                },
                cache_size: None,
                accept_pauses: 1,
                histogram,
                backends: vec![BackendPeriod {
                    url: "http://127.0.0.1:1".into(),
                    counts,
                    connects: ConnectCounts {
                        opened: arrivals,
                        ..ConnectCounts::default()
                    },
                    checks: arrivals,
                    histogram: of_backend,
                }],
                sizes: Vec::new(),
                oldest_in_flight: None,
                tunnels: 0,
                connections: 0,
                cores_missing: 0,
            }
        };
        let mut now = period(5, 2, 300);
        now.add_earlier(&period(7, 9, 900));
        assert_eq!(now.since, Duration::from_secs(2));
        assert_eq!((now.service.arrivals, now.service.in_flight), (12, 2));
        assert_eq!((now.histogram.len(), now.histogram.max()), (2, 900));
        let backend = &now.backends[0];
        assert_eq!((backend.counts.arrivals, backend.counts.in_flight), (12, 2));
        assert_eq!(backend.histogram.len(), 2);
        assert_eq!((backend.connects.opened, backend.checks), (12, 12));
        assert_eq!((now.queue.waited, now.queue.waiting), (12, 2));
        let last = now.ranks[MAX_RANKS - 1];
        assert_eq!((last.waited, last.turned_away), (12, 2));
        assert_eq!(now.sources.requests, 12);
    }

    #[test]
    fn each_cause_is_a_failure_and_counts_once() {
        let mut counts = Counts::default();
        let causes = [
            Failure::Unreachable,
            Failure::OverLimit,
            Failure::TimedOut,
            Failure::AbortedByBackend,
            Failure::AbortedByClient,
        ];
        for cause in causes {
            counts.fail(cause);
        }
        assert_eq!(counts.failures, 5);
        let parts = counts.unreachable
            + counts.over_limit
            + counts.timed_out
            + counts.aborted_by_backend
            + counts.aborted_by_client;
        assert_eq!(parts, 5);
    }

    #[test]
    fn latencies_beyond_the_range_saturate() {
        let mut histogram = service_histogram();
        histogram.saturating_record(u64::MAX);
        histogram.saturating_record(0);
        assert_eq!(histogram.len(), 2);
        assert!(histogram.max() >= 120_000_000);
    }
}
