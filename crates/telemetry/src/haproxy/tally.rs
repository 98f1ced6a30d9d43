//! What the log's lines of one period add up to.

use super::envelope::Envelope;
use super::format::LogFormat;
use super::line::{Entry, LINE_MAX, LineError};
use super::outcome::Outcome;
use crate::period::{Failures, Malformed, latency_histogram};
use hdrhistogram::Histogram;
use headroom_units::FailedStatus;
use jiff::tz::TimeZone;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many servers are distinguished; the rest is counted as one.
pub(super) const SERVERS_MAX: usize = 1024;

/// What the servers above [`SERVERS_MAX`] are called.
const OTHERS: &str = "(others)";

/// How many characters of a line that cannot be read are kept to show.
const EXAMPLE_CHARS: usize = 160;

/// What HAProxy's messages that are no request begin with: the state of servers and proxies.
const NOTICES: [&[u8]; 10] = [
    b"Server ",
    b"Backup Server ",
    b"Proxy ",
    b"Pausing ",
    b"Stopping ",
    b"Health check ",
    b"backend ",
    b"Agent check ",
    b"New worker ",
    b"Connect from ",
];

/// Which requests are the service's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Frontends whose requests count; empty for all.
    pub frontends: Vec<String>,
    /// Backends whose requests count; empty for all.
    pub backends: Vec<String>,
}

impl Scope {
    fn holds(&self, entry: &Entry<'_>) -> bool {
        let named =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|known| known == name);
        named(&self.backends, entry.backend)
            && entry
                .frontend
                .is_none_or(|frontend| named(&self.frontends, frontend))
    }
}

/// One server's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerTally {
    pub requests: u64,
    pub failures: u64,
}

/// One period's sums.
#[derive(Debug)]
pub(super) struct Tally {
    /// Lines of requests in the scope.
    pub lines: u64,
    /// Lines of requests outside of it.
    pub elsewhere: u64,
    /// HAProxy's messages that are no request.
    pub notices: u64,
    pub completions: u64,
    /// Answers by the class of their status.
    pub statuses: [u64; 5],
    pub local: u64,
    pub failed: Failures,
    pub malformed: Malformed,
    /// The first line that could not be read, shortened.
    pub example: Option<(String, LineError)>,
    /// Microseconds.
    pub latency: Histogram<u64>,
    /// From the request complete to the last byte of the answer, microseconds; where the format tells it apart.
    pub to_last_byte: Option<Histogram<u64>>,
    /// `backend/server`, each once.
    pub servers: Vec<(String, ServerTally)>,
    index: HashMap<String, usize>,
    /// How long after the end of its request the youngest line came, by the clocks there and here, seconds.
    pub least_lag_s: Option<f64>,
    /// The dates name their time zone.
    pub in_zone: bool,
}

impl Tally {
    pub fn new(format: &LogFormat) -> Self {
        Self {
            to_last_byte: format.tells_last_byte_apart().then(latency_histogram),
            lines: 0,
            elsewhere: 0,
            notices: 0,
            completions: 0,
            statuses: [0; 5],
            local: 0,
            failed: Failures::default(),
            malformed: Malformed::default(),
            example: None,
            latency: latency_histogram(),
            servers: Vec::new(),
            index: HashMap::new(),
            least_lag_s: None,
            in_zone: false,
        }
    }

    /// Adds one request.
    fn add(&mut self, entry: &Entry<'_>, failed_status: &FailedStatus, lag_s: Option<f64>, key: &mut String) {
        self.lines += 1;
        self.in_zone = entry.ended.is_some_and(|ended| ended.zoned);
        if let Some(lag_s) = lag_s {
            self.least_lag_s = Some(self.least_lag_s.map_or(lag_s, |least| least.min(lag_s)));
        }
        let mut server_failed = false;
        let outcome = entry.outcome();
        let class = entry
            .status
            .and_then(|status| usize::from(status / 100).checked_sub(1));
        if outcome != Outcome::Local
            && let Some(count) = class.and_then(|class| self.statuses.get_mut(class))
        {
            *count += 1;
        }
        match outcome {
            Outcome::Local => self.local += 1,
            Outcome::Tunnel => self.completions += 1,
            // How quickly a request failed is no latency of the service.
            Outcome::Completed if entry.status.is_some_and(|status| failed_status.contains(status)) => {
                self.failed.by_status += 1;
                server_failed = true;
            }
            Outcome::Completed => {
                self.completions += 1;
                // HAProxy cuts the fraction off: the middle of the millisecond is right on average.
                let middle_us = |ms: u64| ms.saturating_mul(1000).saturating_add(500);
                if let Some(latency_ms) = entry.latency_ms {
                    self.latency.saturating_record(middle_us(latency_ms));
                }
                if let (Some(histogram), Some(ms)) = (&mut self.to_last_byte, entry.to_last_byte_ms) {
                    histogram.saturating_record(middle_us(ms));
                }
            }
            Outcome::FailedByServer => {
                self.failed.by_server += 1;
                server_failed = true;
            }
            Outcome::FailedByProxy => self.failed.by_proxy += 1,
            Outcome::FailedByClient => self.failed.by_client += 1,
        }
        if entry.has_server() {
            key.clear();
            key.push_str(entry.backend);
            key.push('/');
            key.push_str(entry.server);
            let server = self.server(key);
            server.requests += 1;
            server.failures += u64::from(server_failed);
        }
    }

    fn server(&mut self, name: &str) -> &mut ServerTally {
        let index = match self.index.get(name) {
            Some(&index) => index,
            None => {
                let full = self.servers.len() >= SERVERS_MAX;
                let name = if full { OTHERS } else { name };
                let servers = &mut self.servers;
                *self.index.entry(name.to_owned()).or_insert_with(|| {
                    servers.push((name.to_owned(), ServerTally::default()));
                    servers.len() - 1
                })
            }
        };
        &mut self.servers[index].1
    }

    fn refuse(&mut self, line: &[u8], error: LineError) {
        let count = match error {
            LineError::Mismatch => &mut self.malformed.mismatch,
            LineError::Truncated => &mut self.malformed.truncated,
            LineError::TooLong => &mut self.malformed.too_long,
            LineError::Value => &mut self.malformed.value,
            LineError::Json => &mut self.malformed.json,
            LineError::Logasap => &mut self.malformed.logasap,
            LineError::Ambiguous => &mut self.malformed.ambiguous,
        };
        *count += 1;
        if self.example.is_none() {
            let start = &line[..line.len().min(EXAMPLE_CHARS)];
            let text = String::from_utf8_lossy(start).escape_debug().collect();
            self.example = Some((text, error));
        }
    }
}

/// Whether a message is JSON, whole or cut short.
fn is_json(message: &[u8]) -> bool {
    let message = message.trim_ascii();
    message.starts_with(b"{") || message.starts_with(b"[{") || message.starts_with(b"\"{")
}

/// The tally that the reader writes and the taker exchanges. The lock is held for one line, or for the exchange
/// of two pointers, never for longer.
pub(super) type Shared = Arc<Mutex<Box<Tally>>>;

/// The tally behind the lock. A panic while it was held leaves sums that are at worst one line short.
pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Box<Tally>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads lines into the shared tally.
#[derive(Debug)]
pub(super) struct Intake {
    format: LogFormat,
    scope: Scope,
    failed_status: FailedStatus,
    /// That of this machine.
    zone: TimeZone,
    envelope: Envelope,
    shared: Shared,
    key: String,
}

impl Intake {
    pub fn new(format: LogFormat, scope: Scope, failed_status: FailedStatus, shared: Shared) -> Self {
        Self {
            format,
            scope,
            failed_status,
            zone: TimeZone::system(),
            envelope: Envelope::default(),
            shared,
            key: String::new(),
        }
    }

    /// Takes one line that came at `now_utc_ms` (milliseconds since 1970).
    pub fn line(&mut self, line: &[u8], now_utc_ms: i64) {
        if line.iter().all(|b| matches!(b, b'\n' | b'\r' | b' ' | 0)) {
            return;
        }
        let Self {
            format,
            scope,
            failed_status,
            zone,
            envelope,
            shared,
            key,
        } = self;
        if line.len() > LINE_MAX {
            lock(shared).refuse(line, LineError::TooLong);
            return;
        }
        let (mut notice, mut json) = (false, false);
        let read = envelope.open(line, |message| {
            notice |= NOTICES.iter().any(|start| message.starts_with(start));
            let entry = format.parse(message).inspect_err(|_| {
                json |= is_json(message) && !format.is_json();
            })?;
            if scope.holds(&entry) {
                let lag_s = entry.ended.map(|ended| ended.ago_s(now_utc_ms, zone));
                lock(shared).add(&entry, failed_status, lag_s, key);
            } else {
                lock(shared).elsewhere += 1;
            }
            Ok(())
        });
        match read {
            Ok(()) => {}
            Err(_) if notice => lock(shared).notices += 1,
            Err(_) if json => lock(shared).refuse(line, LineError::Json),
            Err(error) => lock(shared).refuse(line, error),
        }
    }

    /// Counts a line that was too long to be kept, of which this is the beginning.
    pub fn too_long(&mut self, start: &[u8]) {
        lock(&self.shared).refuse(start, LineError::TooLong);
    }
}
