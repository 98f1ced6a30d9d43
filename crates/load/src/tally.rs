//! What is counted and timed, and how it is handed over: a period's tally is a box that the generator's thread
//! swaps for a fresh one, so no lock is on the path of a request and all merging is done by who asks.

use crate::clock::Moment;
use crate::usage::{Sending, Used};
use derive_more::AddAssign;
use hdrhistogram::Histogram;
use headroom_units::Seconds;
use headroom_workload::auction::Page;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// The longest latency that is distinguished, microseconds (an hour); a longer one is recorded as this.
const MAX_US: u64 = 3_600_000_000;

/// A connection that took this long or longer needed a retry: Linux sends a SYN again after an initial timeout of
/// 1 s (RFC 6298), which a timer of one tick (at most 10 ms) may cut short, and nothing else on a local network
/// takes a second.
const RETRIED_US: u64 = 990_000;

/// Requests that failed, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, AddAssign)]
pub struct Failures {
    /// No connection could be opened.
    pub connect: u64,
    /// No complete answer within the timeout after the intended send time.
    pub timeout: u64,
    /// Answered with a status of 500 or above; of memcached, with `SERVER_ERROR`, `CLIENT_ERROR` or `ERROR`.
    pub status: u64,
    /// The connection broke, or what came was not HTTP. Of memcached, what came was not an answer.
    pub protocol: u64,
    /// Never sent: every connection was busy and the queue full.
    pub dropped: u64,
    /// Answered with another page than was asked for, or with a status from 400 to 499 where the page is known to exist:
    /// of users who check ([`People::Auction`](crate::http::People::Auction)), and where a size is expected.
    #[serde(default)]
    pub wrong: u64,
    /// Answered with content of another size than was asked for: where a size is expected.
    #[serde(default)]
    pub wrong_size: u64,
    /// Of memcached: a `get` whose key the server did not hold.
    #[serde(default)]
    pub missed: u64,
    /// Of memcached: the connection ended before the whole answer came. HTTP's are under `protocol`.
    #[serde(default)]
    pub closed: u64,
    /// Without an answer when the load ended and its grace ([`LoadConfig::grace`](crate::http::LoadConfig::grace)) was over,
    /// though its timeout was not: sent, or waiting for a connection.
    #[serde(default)]
    pub unanswered: u64,
    /// Never sent: they were due before the load's end, but the generator was so far behind its schedule that its grace was
    /// over before their turn came.
    #[serde(default)]
    pub unsent: u64,
}

impl Failures {
    /// All kinds together.
    pub const fn total(&self) -> u64 {
        self.connect
            + self.timeout
            + self.status
            + self.protocol
            + self.dropped
            + self.wrong
            + self.wrong_size
            + self.missed
            + self.closed
            + self.unanswered
            + self.unsent
    }
}

/// Numbers of requests and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, AddAssign)]
pub struct Counts {
    /// Requests that were due.
    pub offered: u64,
    /// Requests answered completely with a status below 500; of memcached, those answered as they were to be.
    pub completed: u64,
    /// Requests that failed.
    pub failed: Failures,
    /// Of the completed, those answered with a status from 400 to 499: a sign of a wrong path.
    pub client_errors: u64,
    /// Requests that had to wait for a connection because all were busy.
    pub queued: u64,
    /// Requests sent a second time because the server closed a kept-alive connection under them.
    pub retried: u64,
    /// Connections opened, those before the first request included.
    pub connections: u64,
    /// Attempts to connect that took 0.99 s or more, whether they came to something or were given up: the first SYN
    /// (or the answer to it) was lost or refused by a full accept queue, and TCP's retry came 1 s later or more.
    pub connects_retried: u64,
    /// Attempts to connect that were given up because the request's time was over.
    pub connects_given_up: u64,
    /// Of the failures to connect, those for want of a free local port: this machine's limit, not the server's.
    pub no_local_port: u64,
    /// Of the failures to connect, those for want of a file descriptor: this process's limit, or this machine's.
    #[serde(default)]
    pub no_descriptor: u64,
    /// Pages that users began to fetch.
    pub pages_begun: u64,
    /// Pages of which every object was completed.
    pub pages_completed: u64,
    /// Pages of which some object failed; where it was the document, the rest was not asked for.
    pub pages_failed: u64,
    /// Bytes of answers' bodies; of memcached, of the values got.
    pub body_bytes: u64,
    /// Of memcached: of the completed requests, those that stored a value.
    #[serde(default)]
    pub sets: u64,
    /// Of memcached: bytes of the values stored.
    #[serde(default)]
    pub stored_bytes: u64,
    /// All bytes that connections received, heads included.
    #[serde(default)]
    pub received_bytes: u64,
    /// All bytes that connections sent, heads included.
    #[serde(default)]
    pub sent_bytes: u64,
}

impl Counts {
    /// Bytes of content that completed requests moved, either way: what a throughput in KB/s counts. Heads, and what TCP
    /// adds, are left out.
    pub const fn content_bytes(&self) -> u64 {
        self.body_bytes + self.stored_bytes
    }
}

/// What happened in a span of a run. The histograms count microseconds, to three digits.
#[derive(Clone, Debug)]
pub struct LoadPeriod {
    /// When the span began, from the start of the load.
    pub start: Seconds,
    /// How long it lasted.
    pub duration: Seconds,
    /// What was counted in it. A request is offered in one span and may be completed in a later one.
    pub counts: Counts,
    /// Requests offered and neither completed nor failed at its end.
    pub outstanding: u64,
    /// Why the first of the connections that failed did, in the system's words.
    pub connect_error: Option<String>,
    /// Of memcached: what the server said in the first answer that was an error, or no answer at all; at most 200 characters.
    pub answer_error: Option<String>,
    /// CPU time that the generator's threads used in it. The first span's includes opening the connections.
    pub generator_cpu: Seconds,
    /// CPU time of the thread that used the most: by the duration near 1, the generator and not the server is what bounds
    /// the throughput. Of spans put together it is the sum over them.
    pub busiest_thread_cpu: Seconds,
    /// Users there at its end.
    pub users: u64,
    /// The time that users were there, summed over them: by the duration it is their mean number.
    pub user_seconds: f64,
    /// From the intended send time to the end of the answer: of completed requests, and of those that timed out or were
    /// unanswered at the end, at the time they were given up (a lower bound). Other failures have no latency.
    pub latency: Histogram<u64>,
    /// From the actual send to the end of the answer, of completed requests.
    pub service: Histogram<u64>,
    /// Actual minus intended send time, of every request sent. It includes waiting for a connection.
    pub send_error: Histogram<u64>,
    /// From the first SYN to the established connection, of every attempt that was not refused; of those given up,
    /// the time until then (a lower bound). The kernel's retries are inside it.
    pub connect: Histogram<u64>,
    /// How late the generator itself was: from the intended send time to when the request was given to a connection or to the
    /// queue, of all loads but a closed loop. To two digits.
    pub schedule_error: Histogram<u64>,
    /// What its busiest thread had of its processor while it sent.
    pub(crate) sending: Sending,
    /// Of each kind of page that an auction's visitors asked for.
    pub(crate) by_kind: BTreeMap<Page, Kind>,
}

/// What came of one kind of page.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) failed: u64,
    /// As [`LoadPeriod::latency`], of completed requests.
    pub(crate) latency: Histogram<u64>,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            failed: 0,
            latency: rough_histogram(),
        }
    }
}

impl LoadPeriod {
    pub(crate) fn new(start: Seconds, outstanding: u64) -> Self {
        Self {
            start,
            duration: Seconds::ZERO,
            counts: Counts::default(),
            outstanding,
            connect_error: None,
            answer_error: None,
            generator_cpu: Seconds::ZERO,
            busiest_thread_cpu: Seconds::ZERO,
            users: 0,
            user_seconds: 0.0,
            latency: histogram(),
            service: histogram(),
            send_error: histogram(),
            connect: histogram(),
            schedule_error: rough_histogram(),
            sending: Sending::default(),
            by_kind: BTreeMap::new(),
        }
    }

    /// Counts what came of a request for a kind of page that ended at `end`.
    pub(crate) fn kind(&mut self, page: Page, completed: bool, intended: Moment, end: Moment) {
        let kind = self.by_kind.entry(page).or_default();
        if completed {
            kind.latency.saturating_record(end.micros_since(intended));
        } else {
            kind.failed += 1;
        }
    }

    /// How many users were there on average.
    pub fn users_mean(&self) -> f64 {
        if self.duration > Seconds::ZERO {
            self.user_seconds / self.duration.get()
        } else {
            0.0
        }
    }

    /// How many connections had a request outstanding on average, by the time that completed requests took. By the number
    /// of connections it is the share of time under load, which [`Bursts`](crate::Bursts) make higher than the density.
    pub fn busy_connections(&self) -> f64 {
        if self.duration > Seconds::ZERO && !self.service.is_empty() {
            self.service.mean() * self.service.len() as f64 / 1e6 / self.duration.get()
        } else {
            0.0
        }
    }

    /// Ends the span, in which its thread had so much of its processor.
    pub(crate) fn finish(&mut self, now: Seconds, used: Used) {
        self.duration = now - self.start;
        self.generator_cpu = Seconds::new(used.cpu);
        self.busiest_thread_cpu = self.generator_cpu;
        self.sending = used.sending;
    }

    /// Ends the span and begins the next in its place.
    pub(crate) fn swap(self: &mut Box<Self>, now: Seconds, used: Used) -> Box<Self> {
        self.finish(now, used);
        let next = Box::new(Self::new(now, self.outstanding));
        std::mem::replace(self, next)
    }

    /// Counts a connection established at `end`.
    pub(crate) fn connected(&mut self, start: Moment, end: Moment) {
        self.counts.connections += 1;
        self.connect_took(end.micros_since(start));
    }

    /// Counts an attempt to connect given up at `end`.
    pub(crate) fn connect_given_up(&mut self, start: Moment, end: Moment) {
        self.counts.connects_given_up += 1;
        self.connect_took(end.micros_since(start));
    }

    fn connect_took(&mut self, micros: u64) {
        self.connect.saturating_record(micros);
        self.counts.connects_retried += u64::from(micros >= RETRIED_US);
    }

    /// Counts a request that the generator came round to at `now`.
    pub(crate) fn released(&mut self, intended: Moment, now: Moment) {
        self.schedule_error.saturating_record(now.micros_since(intended));
    }

    /// Counts a failure to connect that was this machine's.
    pub(crate) fn connect_failed(&mut self, error: &io::Error) {
        let no_descriptor = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        self.counts.no_descriptor += u64::from(no_descriptor);
        let no_port = error.kind() == io::ErrorKind::AddrNotAvailable;
        self.counts.no_local_port += u64::from(no_port);
        self.connect_error.get_or_insert_with(|| error.to_string());
        self.failed(|failed| &mut failed.connect);
    }

    /// Counts a request sent at `sent`.
    pub(crate) fn sent(&mut self, intended: Moment, sent: Moment) {
        self.send_error.saturating_record(sent.micros_since(intended));
    }

    /// Counts a request answered at `end`; whether it was completed.
    pub(crate) fn answered(
        &mut self,
        status: http::StatusCode,
        intended: Moment,
        sent: Moment,
        end: Moment,
    ) -> bool {
        if status.is_server_error() || status.as_u16() >= 600 {
            self.failed(|failed| &mut failed.status);
            return false;
        }
        self.counts.client_errors += u64::from(status.is_client_error());
        self.completed(intended, sent, end);
        true
    }

    /// Counts a request that was answered as it was to be, at `end`.
    pub(crate) fn completed(&mut self, intended: Moment, sent: Moment, end: Moment) {
        self.outstanding -= 1;
        self.counts.completed += 1;
        self.latency.saturating_record(end.micros_since(intended));
        self.service.saturating_record(end.micros_since(sent));
    }

    /// Counts a request that failed without having a latency.
    pub(crate) fn failed(&mut self, kind: impl FnOnce(&mut Failures) -> &mut u64) {
        self.outstanding -= 1;
        *kind(&mut self.counts.failed) += 1;
    }

    /// Counts a request given up at `end`: its timeout of so many seconds is over, or else the load is.
    pub(crate) fn given_up(&mut self, intended: Moment, timeout: f64, end: Moment) {
        let failed = &mut self.counts.failed;
        *(if intended.after(timeout) <= end {
            &mut failed.timeout
        } else {
            &mut failed.unanswered
        }) += 1;
        self.outstanding -= 1;
        self.latency.saturating_record(end.micros_since(intended));
    }

    /// Appends the span that follows.
    pub(crate) fn append(&mut self, later: &Self) {
        self.duration = later.start + later.duration - self.start;
        self.outstanding = later.outstanding;
        self.users = later.users;
        self.busiest_thread_cpu += later.busiest_thread_cpu;
        self.sending.append(later.sending);
        self.add(later);
    }

    /// Puts another thread's span of about the same time beside this one.
    pub(crate) fn merge(&mut self, other: &Self) {
        let end = (self.start + self.duration).max(other.start + other.duration);
        self.start = self.start.min(other.start);
        self.duration = end - self.start;
        self.outstanding += other.outstanding;
        self.users += other.users;
        self.busiest_thread_cpu = self.busiest_thread_cpu.max(other.busiest_thread_cpu);
        self.sending.merge(other.sending);
        self.add(other);
    }

    fn add(&mut self, other: &Self) {
        self.counts += other.counts;
        for (mine, others) in [
            (&mut self.connect_error, &other.connect_error),
            (&mut self.answer_error, &other.answer_error),
        ] {
            if mine.is_none() {
                mine.clone_from(others);
            }
        }
        self.generator_cpu += other.generator_cpu;
        self.user_seconds += other.user_seconds;
        for (sum, part) in [
            (&mut self.latency, &other.latency),
            (&mut self.service, &other.service),
            (&mut self.send_error, &other.send_error),
            (&mut self.connect, &other.connect),
            (&mut self.schedule_error, &other.schedule_error),
        ] {
            // Both have the same bounds, the only reason for which adding could fail.
            let added = sum.add(part);
            debug_assert!(added.is_ok());
        }
        for (page, part) in &other.by_kind {
            let sum = self.by_kind.entry(*page).or_default();
            sum.failed += part.failed;
            let added = sum.latency.add(&part.latency);
            debug_assert!(added.is_ok());
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_US, 3).expect("the bounds are constants that the library accepts")
}

/// To two digits: there is one for each kind of page in each period.
fn rough_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_US, 2).expect("the bounds are constants that the library accepts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{LoadResult, Summary};
    use http::StatusCode;

    fn used(cpu: f64) -> Used {
        Used {
            cpu,
            ..Used::default()
        }
    }

    #[test]
    fn answers_and_timeouts_are_told_apart() {
        let start = Moment::now();
        let mut period = LoadPeriod::new(Seconds::ZERO, 4);
        period.answered(StatusCode::OK, start, start.after(0.001), start.after(0.003));
        period.answered(StatusCode::NOT_FOUND, start, start, start.after(0.001));
        period.answered(StatusCode::SERVICE_UNAVAILABLE, start, start, start.after(0.001));
        period.given_up(start, 2.0, start.after(2.0));
        let counts = period.counts;
        assert_eq!((counts.completed, counts.client_errors), (2, 1));
        assert_eq!(
            (counts.failed.status, counts.failed.timeout, counts.failed.total()),
            (1, 1, 2)
        );
        assert_eq!(period.outstanding, 0);
        assert_eq!((period.latency.len(), period.service.len()), (3, 2));
        assert!(Summary::of(&period.latency, 1000.0).max.unwrap() >= 2000.0);
        assert_eq!(Summary::of(&period.connect, 1000.0).p95, None);
        let service = Summary::of(&period.service, 1000.0);
        assert!((service.max.unwrap() - 2.0).abs() < 0.01, "{service:?}");
    }

    #[test]
    fn a_connect_that_needed_a_retry_is_told_from_a_slow_one() {
        let start = Moment::now();
        let mut period = LoadPeriod::new(Seconds::ZERO, 0);
        for seconds in [0.0001, 0.9, 1.003, 3.1] {
            period.connected(start, start.after(seconds));
        }
        period.connect_given_up(start, start.after(0.2));
        period.connect_given_up(start, start.after(7.0));
        let counts = period.counts;
        assert_eq!((counts.connections, counts.connects_given_up), (4, 2));
        assert_eq!((counts.connects_retried, period.connect.len()), (3, 6));
    }

    #[test]
    fn periods_append_to_the_whole() {
        let start = Moment::now();
        let mut first = LoadPeriod::new(Seconds::ZERO, 2);
        first.counts.offered = 2;
        first.answered(StatusCode::OK, start, start, start.after(0.001));
        first.finish(Seconds::new(1.0), used(0.2));
        let mut second = LoadPeriod::new(Seconds::new(1.0), first.outstanding);
        second.answered(StatusCode::OK, start, start, start.after(0.004));
        second.finish(Seconds::new(3.0), used(0.3));
        first.append(&second);
        assert_eq!(
            (first.duration, first.outstanding, first.counts.completed),
            (Seconds::new(3.0), 0, 2)
        );
        let result = LoadResult::new("u".into(), (1, 1), first);
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["offered"], 2);
        assert_eq!(json["failed"]["dropped"], 0);
        assert_eq!(json["duration_s"], 3.0);
        assert_eq!(json["generator_cpu_s"], 0.5);
        assert!((json["latency_ms"]["mean"].as_f64().unwrap() - 2.5).abs() < 0.01);
        assert!(json.get("whole").is_none());
    }

    #[test]
    fn connections_that_this_machine_refuses_are_told_from_those_of_the_server() {
        let mut period = LoadPeriod::new(Seconds::ZERO, 4);
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::ADDRNOTAVAIL,
            Errno::CONNREFUSED,
        ] {
            period.connect_failed(&errno.into());
        }
        let counts = period.counts;
        assert_eq!(
            (counts.no_descriptor, counts.no_local_port, counts.failed.connect),
            (2, 1, 4)
        );
        assert_eq!(
            period.connect_error,
            Some(io::Error::from(Errno::MFILE).to_string())
        );
    }

    #[test]
    fn periods_of_two_threads_merge() {
        let start = Moment::now();
        let mut first = LoadPeriod::new(Seconds::ZERO, 1);
        first.answered(StatusCode::OK, start, start, start.after(0.5));
        first.finish(Seconds::new(1.0), used(0.2));
        let mut second = LoadPeriod::new(Seconds::ZERO, 3);
        second.answered(StatusCode::OK, start, start, start.after(1.0));
        second.finish(Seconds::new(2.0), used(0.9));
        first.merge(&second);
        assert_eq!((first.duration, first.outstanding), (Seconds::new(2.0), 2));
        assert_eq!(first.counts.completed, 2);
        assert!((first.generator_cpu.get() - 1.1).abs() < 1e-12);
        assert_eq!(first.busiest_thread_cpu, Seconds::new(0.9));
        assert!((first.busy_connections() - 0.75).abs() < 0.01);
    }
}
