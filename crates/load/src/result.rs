//! What a whole run amounted to.

use crate::limit::Limit;
use crate::tally::{Counts, LoadPeriod};
use hdrhistogram::Histogram;
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};

/// What one kind of page amounted to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindResult {
    /// Its name.
    pub page: &'static str,
    /// Requests answered with the page that was asked for.
    pub completed: u64,
    /// All kinds of failure together.
    pub failed: u64,
    /// Latency from the intended send time, of the completed, milliseconds.
    pub latency_ms: Summary,
}

/// Percentiles of a histogram, in the unit that the field's name states; `None` where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p999: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
}

impl Summary {
    /// Of a histogram of microseconds, each value divided by `micros_per_unit` (1,000 for milliseconds).
    pub fn of(histogram: &Histogram<u64>, micros_per_unit: f64) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |percentile| Some(histogram.value_at_percentile(percentile) as f64 / micros_per_unit);
        Self {
            mean: Some(histogram.mean() / micros_per_unit),
            p50: at(50.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            p999: at(99.9),
            max: Some(histogram.max() as f64 / micros_per_unit),
        }
    }
}

/// What a whole run amounted to; serialises to one JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct LoadResult {
    /// Where the load went.
    pub url: String,
    /// From the start of the load to its last answer.
    pub duration_s: Seconds,
    /// Completed requests by that duration.
    pub completed_per_second: PerSecond,
    /// Completed pages by that duration.
    pub pages_per_second: PerSecond,
    /// How many users were there on average.
    pub users_mean: f64,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// All kinds of failure together.
    pub failed_total: u64,
    /// Why the first of the connections that failed did, in the system's words.
    pub connect_error: Option<String>,
    /// Of memcached: what the server said in the first answer that was an error, or no answer at all.
    pub answer_error: Option<String>,
    /// Completed requests' content, either way, by the duration: bytes a second.
    pub content_bytes_per_second: PerSecond,
    /// How many connections had a request outstanding on average.
    pub busy_connections: f64,
    /// Latency from the intended send time, milliseconds.
    pub latency_ms: Summary,
    /// Latency from the actual send, milliseconds: what a closed-loop generator would have reported.
    pub service_ms: Summary,
    /// Actual minus intended send time, microseconds.
    pub send_error_us: Summary,
    /// How late the generator itself was, microseconds: from the intended send time to when it came round to the request, of all
    /// loads but a closed loop. What the send error has beyond it is the wait for a connection.
    pub schedule_error_us: Summary,
    /// From the first SYN to the established connection, milliseconds.
    pub connect_ms: Summary,
    /// CPU time that the generator's threads used.
    pub generator_cpu_s: Seconds,
    /// How many threads it had.
    pub threads: usize,
    /// How many connections they could open.
    pub max_connections: usize,
    /// Of the time in which it sent, the share that its busiest thread was on a processor.
    pub generator_busy_share: f64,
    /// And the share in which that thread waited for one, which other programs had.
    pub generator_wait_share: f64,
    /// What of the generator was at its limit, so that the figures are not the service's alone; empty where nothing was.
    pub generator_limits: Vec<Limit>,
    /// Each kind of page that an auction's visitors asked for; empty for every other load.
    pub by_kind: Vec<KindResult>,
    /// The whole run as one period, with its histograms.
    #[serde(skip)]
    pub whole: LoadPeriod,
}

impl LoadResult {
    /// Of a load of so many threads and connections at most.
    pub(crate) fn new(url: String, (threads, max_connections): (usize, usize), whole: LoadPeriod) -> Self {
        let duration = whole.duration;
        let rate = |count: u64| {
            PerSecond::new(if duration > Seconds::ZERO {
                count as f64 / duration.get()
            } else {
                0.0
            })
        };
        let sending = whole.sending;
        let share = |seconds: f64| seconds / sending.length.max(f64::MIN_POSITIVE);
        let mut result = Self {
            url,
            duration_s: duration,
            completed_per_second: rate(whole.counts.completed),
            pages_per_second: rate(whole.counts.pages_completed),
            users_mean: whole.users_mean(),
            counts: whole.counts,
            failed_total: whole.counts.failed.total(),
            connect_error: whole.connect_error.clone(),
            answer_error: whole.answer_error.clone(),
            content_bytes_per_second: rate(whole.counts.content_bytes()),
            busy_connections: whole.busy_connections(),
            latency_ms: Summary::of(&whole.latency, 1000.0),
            service_ms: Summary::of(&whole.service, 1000.0),
            send_error_us: Summary::of(&whole.send_error, 1.0),
            schedule_error_us: Summary::of(&whole.schedule_error, 1.0),
            connect_ms: Summary::of(&whole.connect, 1000.0),
            generator_cpu_s: whole.generator_cpu,
            threads,
            max_connections,
            generator_busy_share: share(sending.cpu),
            generator_wait_share: share(sending.waited),
            generator_limits: Vec::new(),
            by_kind: whole
                .by_kind
                .iter()
                .map(|(page, kind)| KindResult {
                    page: page.name(),
                    completed: kind.latency.len(),
                    failed: kind.failed,
                    latency_ms: Summary::of(&kind.latency, 1000.0),
                })
                .collect(),
            whole,
        };
        result.generator_limits = Limit::of(&result);
        result
    }
}
