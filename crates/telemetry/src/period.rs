//! One period of telemetry, whatever it came from.

use hdrhistogram::Histogram;
use headroom_units::Seconds;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Another program that says what happened to the requests.
pub trait Source {
    /// What happened since the last call; waits for it up to `patience`. It blocks: call it from a plain thread.
    fn take_period(&mut self, patience: Duration) -> TelemetryPeriod;
}

/// Smallest and largest latency distinguished, microseconds; anything outside is recorded as the bound.
const LATENCY_RANGE_US: (u64, u64) = (1, 120_000_000);

/// Significant decimal digits of a latency histogram (0.1 % error).
const LATENCY_DIGITS: u8 = 3;

/// An empty latency histogram: microseconds, three significant digits, up to 120 s, saturating. The same shape as
/// the gateway's, so that the two can be added.
pub fn latency_histogram() -> Histogram<u64> {
    // The arguments are constants inside the ranges that the crate documents (low >= 1, high >= 2 low,
    // digits <= 5), so construction cannot fail.
    Histogram::new_with_bounds(LATENCY_RANGE_US.0, LATENCY_RANGE_US.1, LATENCY_DIGITS)
        .expect("constant histogram bounds are valid")
}

/// What is known of the latency of the requests that ended in a period.
#[derive(Clone, PartialEq)]
pub enum Latency {
    /// Every request of the period that is known, in microseconds (see [`latency_histogram`]).
    Histogram(Box<Histogram<u64>>),
    /// One percentile only, because the source keeps no more.
    Percentile {
        /// Which percentile, 0 to 100.
        percentile: f64,
        /// Its value; `None` where no request ended in the source's window.
        value: Option<Seconds>,
    },
}

impl Latency {
    /// The latency at a percentile (0 to 100); `None` where no request ended, or where the source gives another
    /// percentile only.
    pub fn at(&self, percentile: f64) -> Option<Seconds> {
        match self {
            Self::Histogram(histogram) => (!histogram.is_empty())
                .then(|| Seconds::from_micros(histogram.value_at_percentile(percentile) as f64)),
            Self::Percentile {
                percentile: known,
                value,
            } => ((known - percentile).abs() < 1e-9).then_some(*value).flatten(),
        }
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Some thousand buckets, of which most are empty, tell nobody anything.
            Self::Histogram(histogram) => f
                .debug_struct("Histogram")
                .field("requests", &histogram.len())
                .field("p50_us", &histogram.value_at_percentile(50.0))
                .field("p95_us", &histogram.value_at_percentile(95.0))
                .field("max_us", &histogram.max())
                .finish(),
            Self::Percentile { percentile, value } => f
                .debug_struct("Percentile")
                .field("percentile", percentile)
                .field("value", value)
                .finish(),
        }
    }
}

/// Requests that failed, by who broke them off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// A server answered whole, with a failed status.
    pub by_status: u64,
    /// The server refused, broke off or did not answer in time (HAProxy: `S`, `s`, `D`, `U`).
    pub by_server: u64,
    /// The proxy gave up: a limit, a full queue, no server, a resource or an internal error (HAProxy: `P`, `R`,
    /// `I`, `K`, any state in the queue, or a status of 500 and above without a server).
    pub by_proxy: u64,
    /// The client went away or stopped reading (HAProxy: `C`, `c`).
    pub by_client: u64,
    /// The source does not tell.
    pub unattributed: u64,
}

impl Failures {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.by_status + self.by_server + self.by_proxy + self.by_client + self.unattributed
    }
}

/// One server's part of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendPeriod {
    /// `backend/server`, as the proxy names them.
    pub name: String,
    /// Requests of the period that ended at this server, failed ones included.
    pub requests: u64,
    /// Of these, those that failed or were answered with a failed status.
    pub failures: u64,
    /// Whether the proxy sends it requests; `None` where the statistics socket did not tell.
    pub healthy: Option<bool>,
    /// Requests being served by it at the end of the period; `None` where the statistics socket did not tell.
    pub in_flight: Option<u64>,
}

/// Lines that could not be used, by kind. None of them is fatal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Malformed {
    /// The line does not have the shape of the log format.
    pub mismatch: u64,
    /// The line ended before the last field that is needed (`log ... len` is too small, or a file was cut).
    pub truncated: u64,
    /// The line was longer than 64 KiB.
    pub too_long: u64,
    /// A date or a number of the line is none, such as a status of 9999 or the 31st of February.
    pub value: u64,
    /// The line was written before the request ended: `option logasap` is on.
    pub logasap: u64,
    /// The line is JSON, and the format is not.
    #[serde(default)]
    pub json: u64,
    /// Matching was given up because the line fits the format in too many ways.
    pub ambiguous: u64,
}

impl Malformed {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.mismatch
            + self.truncated
            + self.too_long
            + self.value
            + self.logasap
            + self.ambiguous
            + self.json
    }
}

/// Why the telemetry of a period is not to be trusted. A law given such a period must treat it as lost, never as
/// a period without requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Lost {
    /// The log's reader has ended; the text says why.
    #[error("the log is no longer read: {0}")]
    ReaderEnded(String),
    /// The log is not there at present; the reader goes on waiting for it.
    #[error("the log is not there: {0}")]
    SourceGone(String),
    /// The statistics socket counted requests, but the log had too few lines for them.
    #[error(
        "HAProxy counted {counted} ended requests, but {logged} log lines came: check the `log` line of the \
         frontend, and that neither `option dontlog-normal`, `set-log-level silent` nor `log ... sample` is on"
    )]
    LogMissing {
        /// Requests that ended, by the statistics socket.
        counted: u64,
        /// Log lines of the same requests.
        logged: u64,
    },
    /// The log accounts for too few of the requests that the statistics count.
    #[error(
        "the log accounts for {:.0} % of the requests ({logged} lines of {counted} requests that HAProxy counted in the last \
         periods), and below 90 % it is not used: HAProxy could not send {by_proxy} lines, the kernel dropped {by_kernel}, and \
         {malformed} could not be read. Remedy: for what is neither, see that `option dontlog-normal`, `set-log-level silent` and \
         `log ... sample` are off; for lines not sent, log over UDP or raise net.unix.max_dgram_qlen; for lines dropped, raise \
         net.core.rmem_max, or log to a file",
        *logged as f64 / *counted as f64 * 100.0
    )]
    LowCoverage {
        /// Log lines.
        logged: u64,
        /// Requests that ended, by the statistics socket.
        counted: u64,
        /// Lines that HAProxy could not send.
        by_proxy: u64,
        /// Lines that the kernel dropped here.
        by_kernel: u64,
        /// Lines that could not be read.
        malformed: u64,
    },
    /// The log has requests that never arrived, by the statistics.
    #[error(
        "{logged} requests ended by the log, but by HAProxy's statistics {arrived} arrived in the same periods, and {in_flight} \
         were open before: the log has requests of another proxy or process, or each line twice. Remedy: send one `log` of this \
         HAProxy alone here, or name its frontends or backends"
    )]
    MoreThanArrived {
        /// Log lines.
        logged: u64,
        /// Requests that arrived, by the statistics socket.
        arrived: u64,
        /// What was open at first, and what had ended without a line yet.
        in_flight: u64,
    },
    /// The kernel threw more lines away than came.
    #[error("{dropped} log lines were dropped and {logged} came: raise net.core.rmem_max, or log to a file")]
    Dropped {
        /// Lines dropped by the kernel.
        dropped: u64,
        /// Lines that came.
        logged: u64,
    },
    /// No line for long, and no statistics socket that could say whether there were requests.
    #[error(
        "no log line for {0:.0}, and no statistics socket tells whether there were requests: check the `log` \
         line of the frontend, or name a statistics socket"
    )]
    Silent(Seconds),
    /// Most lines do not fit the log format.
    #[error(
        "{malformed} of {lines} log lines do not fit the log format, such as: {example}. Remedy: {remedy}"
    )]
    Unreadable {
        /// Lines that do not fit.
        malformed: u64,
        /// All lines.
        lines: u64,
        /// The first of them, shortened.
        example: String,
        /// What to do.
        remedy: String,
    },
    /// Even the youngest line came long after its request had ended, beyond the difference of the clocks.
    #[error(
        "the log comes {0:.1} late, and not always as late, as it would by a clock that is behind: it passes a relay that \
         holds it back, or is replayed"
    )]
    Late(Seconds),
    /// The same, while too few periods were seen to tell a clock that is behind from a log that is late.
    #[error(
        "the log comes {0:.1} late by its dates. Whether always as late, as by a clock that is behind, which is then allowed for, is \
         known once it was seen in 3 periods and for 2 s"
    )]
    LagUnknown(Seconds),
    /// A query was not answered, or not usefully; the text says which, why and the remedy.
    #[error("{0}")]
    Query(String),
}

/// What is known of one period.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryPeriod {
    /// How long the period was.
    pub since: Duration,
    /// Requests that arrived, as well as the source knows; by a log alone one is known when it
    /// has ended.
    pub arrivals: u64,
    /// Requests answered whole, with a status that is not a failed one.
    pub completions: u64,
    /// Requests that failed: [`Failures::total`] of [`TelemetryPeriod::failed`].
    pub failures: u64,
    /// Failures by who broke them off.
    pub failed: Failures,
    /// Answers by the class of their status, 1xx to 5xx; `None` where the source does not tell.
    pub statuses: Option<[u64; 5]>,
    /// Requests that the proxy answered or dropped itself before any server had to do with them: incomplete,
    /// invalid, denied, redirected, statistics pages, cache hits. In no other number of the period.
    pub local: u64,
    /// Requests being served or queued at the end of the period; `None` where the source does not tell.
    pub in_flight: Option<u64>,
    /// Age of the oldest request in flight; asked only where some are in flight and none ended in the period.
    pub oldest_in_flight: Option<Seconds>,
    /// Latency of the completions.
    pub latency: Latency,
    /// Which latency that is: from where to where it is measured.
    pub measured: String,
    /// Latency of the completions from the request complete to the last byte of the answer, as the client takes it; `None`
    /// where the source does not tell it apart.
    pub latency_to_last_byte: Option<Latency>,
    /// The servers, in alphabetical order; at most 1024, the rest as one named `(others)`.
    pub backends: Vec<BackendPeriod>,
    /// Lines that could not be used: [`Malformed::total`] of [`TelemetryPeriod::malformed_by_kind`].
    pub malformed: u64,
    /// Lines that could not be used, by kind.
    pub malformed_by_kind: Malformed,
    /// Lines that the kernel threw away because the socket was full; `None` where it does not tell.
    pub dropped: Option<u64>,
    /// Lines that the proxy could not send; `None` where it does not tell.
    pub dropped_by_proxy: Option<u64>,
    /// Share of the requests that the statistics counted in the last periods which have a line in the log, 0 to 1; `None` where
    /// there are no statistics, or too few requests to say.
    pub coverage: Option<f64>,
    /// The proxy was restarted or reloaded in the period, so its counters began anew.
    pub reloaded: bool,
    /// Why the statistics socket did not answer; `None` where it did or there is none.
    pub statistics_error: Option<String>,
    /// How far the source's clock is behind that of this machine, negative where it is ahead: allowed for in what is said
    /// to be late. `None` where it is not known.
    pub clock_behind: Option<Seconds>,
    /// What an operator should be told once, such as that the clocks differ.
    pub news: Vec<String>,
    /// Why the period is not to be trusted; `None` where it is.
    pub lost: Option<Lost>,
}

impl TelemetryPeriod {
    /// A period of which nothing is known.
    pub fn lost(since: Duration, latency: Latency, why: Lost) -> Self {
        Self {
            lost: Some(why),
            ..Self::empty(since, latency)
        }
    }

    /// A period without requests.
    pub(crate) fn empty(since: Duration, latency: Latency) -> Self {
        Self {
            since,
            arrivals: 0,
            completions: 0,
            failures: 0,
            failed: Failures::default(),
            statuses: None,
            local: 0,
            in_flight: None,
            oldest_in_flight: None,
            latency,
            measured: String::new(),
            latency_to_last_byte: None,
            backends: Vec::new(),
            malformed: 0,
            malformed_by_kind: Malformed::default(),
            dropped: None,
            dropped_by_proxy: None,
            coverage: None,
            reloaded: false,
            statistics_error: None,
            clock_behind: None,
            news: Vec::new(),
            lost: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_that_the_source_does_not_keep_is_unknown() {
        let latency = Latency::Percentile {
            percentile: 95.0,
            value: Some(Seconds::new(0.2)),
        };
        assert_eq!(latency.at(95.0), Some(Seconds::new(0.2)));
        assert_eq!(latency.at(99.0), None);
    }

    #[test]
    fn an_empty_histogram_has_no_percentile() {
        assert_eq!(Latency::Histogram(Box::new(latency_histogram())).at(95.0), None);
        let mut histogram = latency_histogram();
        histogram.saturating_record(10_000);
        let latency = Latency::Histogram(Box::new(histogram));
        let at = latency.at(95.0).unwrap().as_millis();
        assert!((at / 10.0 - 1.0).abs() < 0.002, "{at}");
    }

    #[test]
    fn the_reasons_name_the_remedy() {
        let lost = Lost::LogMissing {
            counted: 100,
            logged: 0,
        };
        assert!(lost.to_string().contains("`log` line"), "{lost}");
    }
}
