//! Log and statistics socket, joined into one observation per period.

use super::clock::ClockDifference;
use super::counters::{Counted, StartError, Totals};
use super::coverage::{Coverage, Gaps};
use super::format::{FormatError, LogFormat, WORKING_LOG_FORMAT};
use super::latency::LatencyFrom;
use super::line::LineError;
use super::source::{LogSource, Reader, SourceError, State};
use super::statistics::{Row, RowKind, Statistics, StatisticsAddress, StatisticsSocket};
use super::tally::{self, Intake, Scope, Shared, Tally};
use crate::Source;
use crate::period::{BackendPeriod, Latency, Lost, TelemetryPeriod};
use headroom_units::{FailedStatus, Seconds};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// So many requests without a line are needed before half of the lines missing is a loss and no boundary effect.
const MISSING_MIN: u64 = 20;

/// So many periods in a row with requests and without any line are a loss, however few the requests.
const MISSING_PERIODS: u32 = 3;

/// So many lines that cannot be read, being most of them, are a loss.
const UNREADABLE_MIN: u64 = 3;

/// So many backends are remembered as those that a frontend sends to.
const BACKENDS_MAX: usize = 1024;

/// A queue of a Unix datagram socket under this many lines overflows in the bursts of a busy proxy.
const UNIX_QUEUE_MIN: u64 = 128;

/// How long the statistics socket has for its answer at the start.
const FIRST_ANSWER: Duration = Duration::from_millis(200);

/// How to get at HAProxy's log and counters.
#[derive(Clone, Debug)]
pub struct HaproxyConfig {
    /// Where the log comes from.
    pub source: LogSource,
    /// What its lines look like.
    pub format: LogFormat,
    /// Which requests are the service's.
    pub scope: Scope,
    /// Statuses of a server's answer with which a request counts as failed.
    pub failed_status: FailedStatus,
    /// The statistics socket; without it there is no number in flight, and silence of the log cannot be distinguished from
    /// a service without requests.
    pub statistics: Option<StatisticsAddress>,
    /// Without a statistics socket: a log that is silent for longer than this is lost.
    pub silent_after: Duration,
    /// A log whose youngest line of a period is later than this, beyond the difference of the clocks, is lost.
    pub late_after: Duration,
}

impl HaproxyConfig {
    /// `option httplog` from a source, everything in scope, no statistics socket, lost after 30 s of silence or
    /// when 10 s late.
    pub fn new(source: LogSource) -> Self {
        Self {
            source,
            format: LogFormat::httplog(),
            scope: Scope::default(),
            failed_status: FailedStatus::default(),
            statistics: None,
            silent_after: Duration::from_secs(30),
            late_after: Duration::from_secs(10),
        }
    }

    /// What a user should be told before a start: what makes this source worse than it could be, and the remedy. Where no statistics socket is
    /// named, that is the one known otherwise.
    pub fn notes(&self, known: Option<&str>) -> Vec<String> {
        let mut notes = Vec::new();
        let from = self.format.latency_from();
        notes.push(match from {
            LatencyFrom::FirstByte => format!(
                "latency is {from}; the upload of a body counts in it unless HAProxy has `option http-buffer-request`"
            ),
            LatencyFrom::Total => format!(
                "latency is {from}: the client's idle time on kept-alive connections counts; add %TR/%Tw/%Tc/%Tr/%Ta"
            ),
            _ => format!(
                "latency is {from}: a slow client counts as a slow service; add %TR/%Tw/%Tc/%Tr/%Ta, as `option httplog` \
                 has them"
            ),
        });
        if self.statistics.is_none() {
            let remedy = known.map_or_else(String::new, |known| {
                format!(". Remedy: write statistics = {known:?}, which [haproxy] names too")
            });
            notes.push(format!(
                "no statistics socket is named: the number in flight is unknown, a silent log is lost after a while although there may \
                 be no requests, and lines that come twice, as by two `log` lines or a relay that repeats them, count twice, which \
                 nothing shows{remedy}"
            ));
        }
        if matches!(self.source, LogSource::Unix { .. })
            && let Ok(text) = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen")
            && let Ok(queue) = text.trim().parse::<u64>()
            && queue < UNIX_QUEUE_MIN
        {
            notes.push(format!(
                "net.unix.max_dgram_qlen is {queue}: HAProxy drops log lines when more than {queue} come at once; \
                 set it to 512 and start again, or log over UDP"
            ));
        }
        notes
    }

    /// The counters to start from, where a statistics socket is named.
    fn counters(&self) -> Option<Result<Totals, StartError>> {
        let socket = StatisticsSocket::new(self.statistics.clone()?);
        let statistics = socket
            .read(FIRST_ANSWER)
            .map_err(|error| StartError::Statistics(error.to_string()));
        Some(statistics.and_then(|statistics| Ok(Totals::of(&statistics, &self.scope)?)))
    }

    /// Why the statistics socket gives no counters, where it is named and gives none: the log is left alone.
    pub fn counters_error(&self) -> Option<StartError> {
        self.counters()?.err()
    }
}

/// The telemetry cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum HaproxyError {
    /// The log format cannot be used.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The log cannot be received.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Frontends are named, but the lines do not name theirs.
    #[error(
        "requests are to be chosen by frontend ({0}), but the log format has no frontend (%f or %ft): add it, for \
         example as in\n    {WORKING_LOG_FORMAT}"
    )]
    NoFrontend(String),
}

/// HAProxy's log and statistics socket as one source of periods. Dropping it ends the reader.
#[derive(Debug)]
pub struct HaproxyTelemetry {
    config: HaproxyConfig,
    shared: Shared,
    reader: Reader,
    statistics: Option<StatisticsSocket>,
    started: Instant,
    taken: Instant,
    /// HAProxy's clock, against that of this machine.
    clock: ClockDifference,
    last: Option<Totals>,
    start_error: Option<StartError>,
    kernel_drops: Option<u64>,
    /// When a line of a request last came.
    heard: Instant,
    /// Backends that the frontends in scope were seen to send to.
    backends: BTreeSet<String>,
    /// Requests counted since the last period that had enough lines, and for how many periods.
    missing: (u64, u32),
    /// Log lines against what was counted.
    coverage: Coverage,
}

impl HaproxyTelemetry {
    /// Starts to read the log. The statistics socket is asked once for the counters to start from; that it does not
    /// answer is reported by [`HaproxyTelemetry::start_error`] and each period's `statistics_error`, and is no error here, because HAProxy may be started
    /// later.
    ///
    /// # Errors
    /// [`HaproxyError`] where the log cannot be received, or the format lacks a field that the scope needs.
    pub fn start(config: HaproxyConfig) -> Result<Self, HaproxyError> {
        if !config.scope.frontends.is_empty() && !config.format.has_frontend() {
            return Err(HaproxyError::NoFrontend(config.scope.frontends.join(", ")));
        }
        let shared: Shared = Arc::new(Mutex::new(Box::new(Tally::new(&config.format))));
        let intake = Intake::new(
            config.format.clone(),
            config.scope.clone(),
            config.failed_status,
            Arc::clone(&shared),
        );
        let reader = Reader::start(&config.source, intake)?;
        let statistics = config.statistics.clone().map(StatisticsSocket::new);
        let mut telemetry = Self {
            shared,
            statistics,
            started: Instant::now(),
            taken: Instant::now(),
            clock: ClockDifference::default(),
            last: None,
            start_error: None,
            kernel_drops: reader.dropped(),
            reader,
            heard: Instant::now(),
            backends: config.scope.backends.iter().cloned().collect(),
            missing: (0, 0),
            coverage: Coverage::default(),
            config,
        };
        match telemetry.config.counters() {
            Some(Ok(totals)) => telemetry.last = Some(totals),
            Some(Err(why)) => telemetry.start_error = Some(why),
            None => {}
        }
        Ok(telemetry)
    }

    /// Why the statistics socket gave no counters at the start, where it is named and gave none.
    pub const fn start_error(&self) -> Option<&StartError> {
        self.start_error.as_ref()
    }

    /// The UDP address that the log is received on.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.reader.local_address()
    }

    /// The statistics socket, for commands.
    pub fn statistics(&self) -> Option<&StatisticsSocket> {
        self.statistics.as_ref()
    }

    /// What a user should be told at the start: [`HaproxyConfig::notes`], and what the kernel keeps of the log.
    pub fn notes(&self, known: Option<&str>) -> Vec<String> {
        let mut notes = self.config.notes(known);
        if let (LogSource::Udp(_), Some(bytes)) = (&self.config.source, self.reader.receive_buffer())
            && bytes < 1 << 20
        {
            notes.push(format!(
                "the kernel keeps {bytes} bytes of log lines only: raise net.core.rmem_max to 4194304"
            ));
        }
        notes
    }

    /// Why the period is not to be trusted.
    fn loss(
        &mut self,
        now: Instant,
        tally: &Tally,
        counted: Option<Counted>,
        dropped: Option<u64>,
        statistics_error: Option<&str>,
        late_s: Option<f64>,
    ) -> Option<Lost> {
        let (missed, periods) = match counted {
            Some(counted) if counted.ended > tally.lines.saturating_mul(2) => {
                let periods = if tally.lines == 0 {
                    self.missing.1 + 1
                } else {
                    self.missing.1
                };
                (
                    self.missing.0.saturating_add(counted.ended - tally.lines),
                    periods,
                )
            }
            _ => (0, 0),
        };
        self.missing = (missed, periods);
        match self.reader.state() {
            State::Ended(why) => return Some(Lost::ReaderEnded(why)),
            State::Waiting(why) => return Some(Lost::SourceGone(why)),
            State::Reading => {}
        }
        let malformed = tally.malformed.total();
        let read = tally.lines + tally.elsewhere;
        let nothing_read_of_some = read == 0 && counted.is_some_and(|counted| counted.ended > 0);
        if malformed > read
            && (malformed >= UNREADABLE_MIN || nothing_read_of_some)
            && let Some((example, error)) = &tally.example
        {
            return Some(Lost::Unreadable {
                malformed,
                lines: malformed + read,
                example: example.clone(),
                remedy: remedy(*error),
            });
        }
        if let Some(dropped) = dropped.filter(|&dropped| dropped >= MISSING_MIN && dropped > tally.lines) {
            return Some(Lost::Dropped {
                dropped,
                logged: tally.lines,
            });
        }
        if missed >= MISSING_MIN || periods >= MISSING_PERIODS {
            return Some(Lost::LogMissing {
                counted: missed + tally.lines,
                logged: tally.lines,
            });
        }
        let late_after_s = self.config.late_after.as_secs_f64();
        if let Some(late_s) = late_s.filter(|&late_s| late_s > late_after_s) {
            let late = Seconds::new(late_s);
            return Some(match self.clock.is_settling() {
                true => Lost::LagUnknown(late),
                false => Lost::Late(late),
            });
        }
        if let Some(lost) = self.coverage.loss(late_s.unwrap_or(0.0)) {
            return Some(lost);
        }
        if counted.is_none() && tally.lines == 0 {
            if let Some(error) = statistics_error {
                return Some(Lost::SourceGone(format!("no log line came, and {error}")));
            }
            let silent = now.saturating_duration_since(self.heard);
            if self.statistics.is_none() && silent > self.config.silent_after {
                return Some(Lost::Silent(silent.into()));
            }
        }
        None
    }

    fn remember_backends(&mut self, tally: &Tally) {
        for (name, _) in &tally.servers {
            if let Some((backend, _)) = name.split_once('/')
                && !self.backends.contains(backend)
                && self.backends.len() < BACKENDS_MAX
            {
                self.backends.insert(backend.to_owned());
            }
        }
    }

    /// Whether a backend's gauges are the service's: it is named, or nothing is, or a frontend in scope was seen to
    /// send to it.
    fn in_scope(&self, backend: &str) -> bool {
        let scope = &self.config.scope;
        (scope.backends.is_empty() && scope.frontends.is_empty()) || self.backends.contains(backend)
    }

    fn gauges(&self, statistics: &Statistics) -> Gauges {
        let mut gauges = Gauges::default();
        for row in statistics.rows.iter().filter(|row| self.in_scope(&row.proxy)) {
            match row.kind {
                RowKind::Backend if row.responses.is_some() => {
                    *gauges.in_flight.get_or_insert(0) += row.sessions;
                }
                RowKind::Server => {
                    gauges.servers.push(row.clone());
                }
                _ => {}
            }
        }
        gauges
    }
}

impl Source for HaproxyTelemetry {
    /// Everything since the last call (or the start). The statistics socket is waited for up to `patience`; the log's
    /// reader is never waited for, nor does it wait.
    ///
    /// It blocks for the statistics socket: call it from a plain thread.
    fn take_period(&mut self, patience: Duration) -> TelemetryPeriod {
        let deadline = Instant::now() + patience;
        let statistics = self.statistics.as_ref().map(|socket| socket.read(patience));
        let fresh = Box::new(Tally::new(&self.config.format));
        let tally = std::mem::replace(&mut *tally::lock(&self.shared), fresh);
        let now = Instant::now();
        let since = now.saturating_duration_since(self.taken);
        self.taken = now;

        let (statistics, mut statistics_error) = match statistics {
            Some(Ok(statistics)) => (Some(statistics), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        self.remember_backends(&tally);
        if tally.lines > 0 {
            self.heard = now;
        }
        let totals = statistics
            .as_ref()
            .map(|read| Totals::of(read, &self.config.scope));
        // Where it was not read, what is counted next would be of more than one period.
        let last = self.last.take();
        let mut dropped_by_proxy = None;
        let counted = match totals {
            Some(Ok(totals)) => {
                dropped_by_proxy = last.and_then(|last| totals.dropped_since(&last));
                let counted = last.filter(|_| totals.countable).map(|last| totals.since(&last));
                self.last = Some(totals);
                counted
            }
            Some(Err(error)) => {
                statistics_error = Some(error.to_string());
                None
            }
            None => None,
        };
        let kernel_drops = self.reader.dropped();
        let dropped = kernel_drops.map(|now| now.saturating_sub(self.kernel_drops.unwrap_or(0)));
        self.kernel_drops = kernel_drops;

        let ended = tally.completions + tally.failed.total();
        let at_s = (now - self.started).as_secs_f64();
        let late_s = tally.least_lag_s.map(|lag_s| self.clock.late_s(at_s, lag_s));
        let gaps = Gaps {
            by_proxy: dropped_by_proxy.unwrap_or(0),
            by_kernel: dropped.unwrap_or(0),
            malformed: tally.malformed.total(),
        };
        self.coverage.add(counted, tally.lines, gaps, since.as_secs_f64());
        let coverage = self.coverage.share(late_s.unwrap_or(0.0));
        let news = late_s.and_then(|_| self.clock.news(tally.in_zone));
        let lost = self.loss(now, &tally, counted, dropped, statistics_error.as_deref(), late_s);
        let arrivals = match counted {
            // The counter of a new process does not have what the old one took in.
            Some(counted) if counted.reloaded => counted.arrivals.saturating_sub(tally.local).max(ended),
            Some(counted) => counted.arrivals.saturating_sub(tally.local),
            None => ended,
        };
        let gauges = statistics
            .as_ref()
            .map(|statistics| self.gauges(statistics))
            .unwrap_or_default();
        let left = deadline.saturating_duration_since(Instant::now());
        let oldest_in_flight = match (&self.statistics, gauges.in_flight) {
            (Some(socket), Some(1..)) if ended == 0 && !left.is_zero() => socket
                .oldest_session(|name| self.in_scope(name), left)
                .unwrap_or_else(|error| {
                    statistics_error = Some(error.to_string());
                    None
                }),
            _ => None,
        };
        TelemetryPeriod {
            since,
            arrivals,
            completions: tally.completions,
            failures: tally.failed.total(),
            failed: tally.failed,
            statuses: Some(tally.statuses),
            local: tally.local,
            in_flight: gauges.in_flight,
            oldest_in_flight,
            backends: servers(&tally, gauges.servers),
            malformed: tally.malformed.total(),
            malformed_by_kind: tally.malformed,
            dropped,
            reloaded: counted.is_some_and(|counted| counted.reloaded),
            statistics_error,
            coverage,
            dropped_by_proxy,
            clock_behind: self.clock.behind_s().map(Seconds::new),
            news: news.into_iter().collect(),
            lost,
            measured: self.config.format.latency_from().to_string(),
            latency_to_last_byte: tally
                .to_last_byte
                .map(|histogram| Latency::Histogram(Box::new(histogram))),
            latency: Latency::Histogram(Box::new(tally.latency)),
        }
    }
}

/// What is so at the end of a period.
#[derive(Debug, Default)]
struct Gauges {
    in_flight: Option<u64>,
    servers: Vec<Row>,
}

/// The servers of the log joined with those of the statistics socket.
fn servers(tally: &Tally, rows: Vec<Row>) -> Vec<BackendPeriod> {
    let mut servers: BTreeMap<String, BackendPeriod> = tally
        .servers
        .iter()
        .map(|(name, server)| {
            let period = BackendPeriod {
                name: name.clone(),
                requests: server.requests,
                failures: server.failures,
                ..BackendPeriod::default()
            };
            (name.clone(), period)
        })
        .collect();
    for row in rows {
        let name = format!("{}/{}", row.proxy, row.name);
        if servers.len() >= tally::SERVERS_MAX && !servers.contains_key(&name) {
            continue;
        }
        let healthy = row.healthy();
        let server = servers.entry(name).or_insert_with_key(|name| BackendPeriod {
            name: name.clone(),
            ..BackendPeriod::default()
        });
        server.healthy = Some(healthy);
        server.in_flight = Some(row.sessions);
    }
    servers.into_values().collect()
}

fn remedy(error: LineError) -> String {
    match error {
        LineError::Logasap => "remove `option logasap` from HAProxy's configuration".into(),
        LineError::Truncated | LineError::TooLong => {
            "raise the length in HAProxy's `log … len 4096 …`, or put long fields last in the format; if the format \
             is another, give it as it stands in HAProxy's configuration"
                .into()
        }
        LineError::Json => format!(
            "the lines are JSON, which is not read unless `log_format` says how it is written. Put this line into the frontend \
             or `defaults` of HAProxy's configuration and reload it:\n    option httplog\nor, where the log has a format of its \
             own:\n    {WORKING_LOG_FORMAT}\nJSON of a `log-format` without `%{{+json}}o` can stay: give that line as \
             `log_format`; where a relay wraps the lines in JSON, take them from HAProxy itself"
        ),
        LineError::Mismatch | LineError::Value | LineError::Ambiguous => format!(
            "give the `log-format` as it stands in HAProxy's configuration, or put this line there:\n    \
             {WORKING_LOG_FORMAT}"
        ),
    }
}
