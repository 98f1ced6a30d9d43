//! The account of one request with the service, or of one exchange with a backend: opened once, closed once.

use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::{HeaderMap, StatusCode};

use crate::call::Stop;
use crate::core::Core;
use crate::grpc::{GrpcCall, Outcome};
use crate::sizes::ClassCounts;
use crate::stats::{CoreSample, Counts, Failure};
use crate::watch::Watch;

/// In flight from when it is opened until it is settled. Dropped unsettled, it counts as aborted by the client: nobody
/// else drops a request before its end.
pub(crate) struct Account {
    core: Rc<Core>,
    /// Of the request: it knows for how long its client was waited for.
    watch: Rc<Watch>,
    /// Whose: this backend's, or the service's. At most [`crate::MAX_BACKENDS`]. Small, for answers carry it along.
    backend: Option<u16>,
    /// Of which class of sizes; `None` where sizes are not looked at.
    class: Option<u8>,
    arrived: Instant,
    /// How long after it arrived it was sent to its backend, where there is a class; up to an hour.
    waited_us: u32,
    status: Option<StatusCode>,
    /// What the service took until the answer began, microseconds, without what the client was waited for; and what of it was waited for
    /// since.
    head_us: u64,
    gaps_us: u64,
    /// Since when more of the answer is waited for.
    waits_since: Option<Instant>,
    /// What gRPC says of its outcome.
    outcome: Outcome,
    /// How long the client of a gRPC call waits, in milliseconds; the largest number where it does not say.
    patience_ms: u32,
    response_bytes: u64,
    settled: bool,
    /// Its answer was handed over in one piece as soon as it was there: its client took no time for that.
    at_once: bool,
    /// Its request went to the backend over a connection: what becomes of it says something of the backend.
    exchanging: bool,
    /// It shows whether a backend that failed is back.
    probe: bool,
    /// Its answer has no end but that its client leaves.
    endless: bool,
}

/// What goes on until its client has had enough of it: events (WHATWG HTML, section 9.2), JSON texts and pictures one after the other, and
/// calls of gRPC as browsers make them.
const ENDLESS: [&[u8]; 6] = [
    b"text/event-stream",
    b"application/x-ndjson",
    b"application/json-seq",
    b"multipart/x-mixed-replace",
    b"application/grpc-web",
    b"application/grpc-web-text",
];

/// Whether an answer of this Content-Type has no end of its own.
pub(crate) fn is_endless(kind: Option<&[u8]>) -> bool {
    let essence = kind.and_then(|kind| kind.split(|byte| matches!(byte, b';' | b'+')).next());
    essence.is_some_and(|essence| {
        let essence = essence.trim_ascii();
        ENDLESS
            .iter()
            .any(|endless| essence.eq_ignore_ascii_case(endless))
    })
}

impl Account {
    /// Counts an arrival. Latencies are counted from `arrived`. At a backend it has been let in by
    /// [`Backend::try_begin`](crate::backend::Backend::try_begin).
    pub(crate) fn open(
        core: &Rc<Core>,
        watch: &Rc<Watch>,
        backend: Option<usize>,
        class: Option<u8>,
        arrived: Instant,
    ) -> Self {
        let account = Self {
            core: core.clone(),
            watch: watch.clone(),
            backend: backend.map(|backend| backend as u16),
            class,
            waited_us: match (class, backend) {
                (Some(_), Some(_)) => u32::try_from(micros(arrived)).unwrap_or(u32::MAX),
                _ => 0,
            },
            arrived,
            status: None,
            head_us: 0,
            gaps_us: 0,
            waits_since: None,
            outcome: Outcome::NoCall,
            patience_ms: u32::MAX,
            response_bytes: 0,
            settled: false,
            at_once: false,
            exchanging: false,
            probe: false,
            endless: false,
        };
        let stats = &mut *core.stats.borrow_mut();
        let (counts, _) = account.part_of(stats);
        counts.arrivals += 1;
        counts.in_flight += 1;
        match backend {
            None => core.request_arrived(counts.in_flight),
            Some(backend) => core.observed.begun(backend),
        }
        if let Some(class) = account.class {
            let class = &mut stats.sizes[usize::from(class)];
            match backend {
                None => {
                    class.counts.arrivals += 1;
                    class.counts.in_flight += 1;
                }
                Some(backend) => {
                    class.backends[backend].arrivals += 1;
                    class.backends[backend].in_flight += 1;
                }
            }
        }
        account
    }

    fn part_of<'a>(&self, stats: &'a mut CoreSample) -> (&'a mut Counts, &'a mut Histogram<u64>) {
        match self.backend {
            None => (&mut stats.service, &mut stats.histogram),
            Some(backend) => {
                let sample = &mut stats.backends[usize::from(backend)];
                (&mut sample.counts, &mut sample.histogram)
            }
        }
    }

    /// The request goes out to the backend.
    pub(crate) fn exchange(&mut self) {
        self.exchanging = true;
    }

    /// What becomes of it says nothing of the backend after all.
    pub(crate) fn say_nothing(&mut self) {
        self.exchanging = false;
    }

    /// This request is the one that shows whether a backend that failed is back.
    pub(crate) fn is_probe(&mut self) {
        self.probe = true;
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// The answer begins, with this status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
        if let Some(backend) = self.backend {
            self.watch.set_answered_by(backend);
        }
        let waits_us = in_micros(self.watch.upload_waits());
        self.head_us = micros(self.arrived).saturating_sub(waits_us);
    }

    /// The answer that has begun has no end but that its client leaves: that it does says nothing of how quick the service is.
    pub(crate) fn is_endless(&mut self) {
        self.endless = true;
    }

    /// All of the answer is handed over in one piece, now that it begins.
    pub(crate) fn at_once(&mut self) {
        self.at_once = true;
    }

    /// The client could take more of the answer, and there is none yet.
    pub(crate) fn waits(&mut self) {
        if self.waits_since.is_none() {
            self.waits_since = Some(Instant::now());
        }
    }

    /// There is more of it.
    pub(crate) fn goes_on(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.gaps_us += micros(since);
        }
    }

    /// It is a call of gRPC: its status decides what became of it.
    pub(crate) fn expect(&mut self, call: GrpcCall) {
        self.outcome = Outcome::Open;
        let patience_ms = call
            .patience
            .and_then(|patience| u32::try_from(patience.as_millis()).ok());
        self.patience_ms = patience_ms.unwrap_or(u32::MAX);
    }

    /// The fields of an answer's head, or those behind its body.
    pub(crate) fn read(&mut self, fields: &HeaderMap) {
        self.outcome.read(fields);
    }

    /// The status and the bytes handed over so far; `None` before there is an answer.
    pub(crate) fn content(&self) -> Option<(StatusCode, u64)> {
        Some((self.status?, self.response_bytes))
    }

    /// The gateway has answered with this status of its own.
    pub(crate) fn spoke(&self, status: StatusCode) {
        let stats = &mut *self.core.stats.borrow_mut();
        stats.service.status(status);
        if let Some(class) = self.class {
            stats.sizes[usize::from(class)].counts.status(status);
        }
    }

    /// So many bytes of the response body were handed over.
    pub(crate) fn response_bytes(&mut self, bytes: usize) {
        self.response_bytes += bytes as u64;
    }

    /// The response was handed over whole.
    pub(crate) fn complete(&mut self) {
        if self.settled {
            return;
        }
        self.goes_on();
        let served_us = match self.status {
            Some(_) => self.head_us + self.gaps_us,
            None => micros(self.arrived),
        };
        // What the service's requests took beyond it is their clients' time.
        let client_us = match (self.backend, self.at_once) {
            (Some(_), _) => 0,
            (None, true) => in_micros(self.watch.upload_waits()),
            (None, false) => micros(self.arrived).saturating_sub(served_us),
        };
        let status = self.status;
        let config = &self.core.config;
        let failed = status.is_some_and(|status| config.has_failed(status))
            || self.outcome.has_failed(status, config.failed_grpc_status);
        // How quickly a request failed is no latency of the service.
        let latency_us = (!failed).then_some(served_us);
        self.settle(latency_us, |counts| {
            match failed {
                true => counts.fail(Failure::Answered),
                false => counts.completions += 1,
            }
            counts.client_us += client_us;
            if let Some(status) = status {
                counts.status(status);
            }
        });
    }

    /// It failed.
    pub(crate) fn fail(&mut self, cause: Failure) {
        let cause = match cause {
            Failure::AbortedByClient if self.waited_too_long() => Failure::TimedOut,
            cause => cause,
        };
        if cause == Failure::AbortedByClient {
            self.say_nothing();
        }
        self.settle(None, |counts| counts.fail(cause));
    }

    /// It was its client's doing that there is no answer, whatever was waited for.
    pub(crate) fn break_off(&mut self) {
        self.say_nothing();
        self.settle(None, |counts| counts.fail(Failure::AbortedByClient));
    }

    /// The gateway stopped it.
    pub(crate) fn stop(&mut self, stop: &Stop) {
        match stop {
            Stop::Refuse(_) => {
                self.say_nothing();
                self.settle(None, |counts| counts.refused += 1);
            }
            Stop::Fail(failure, _) => self.fail(*failure),
        }
    }

    /// Whether the client has waited for the service longer than the SLO allows, until its answer or for the next piece of it, or for the
    /// end of a call of gRPC until its deadline: that it goes away then is the service's doing. What the client was waited for, now too, is not counted,
    /// but in the deadline, which is a time of the clock.
    fn waited_too_long(&self) -> bool {
        let elapsed_us = micros(self.arrived);
        // The deadline of a call is its client's, who began to count a little earlier, and goes away at it.
        if elapsed_us / 1_000 >= u64::from(self.patience_ms - self.patience_ms / 10) {
            return true;
        }
        let waited_us = elapsed_us.saturating_sub(in_micros(self.watch.upload_waits()));
        let served_us = match self.status {
            None => waited_us,
            // A call may be one that its client ends; where it is not, its deadline tells.
            Some(_) if self.endless || self.outcome != Outcome::NoCall => return false,
            // Not the sum of its pauses: an answer that comes and comes may have no end but that its client leaves.
            Some(_) => self.head_us.max(self.waits_since.map_or(0, micros)),
        };
        let target_ms = self.core.config.target_ms;
        target_ms.is_some_and(|target| served_us / 1_000 > target)
    }

    /// Counts its end; `latency_us` where it was answered well.
    fn settle(&mut self, latency_us: Option<u64>, count: impl Fn(&mut Counts)) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let stats = &mut *self.core.stats.borrow_mut();
        if let Some(class) = self.class {
            self.settle_class(&mut stats.sizes[usize::from(class)], latency_us, &count);
        }
        let (counts, histogram) = self.part_of(stats);
        count(counts);
        if let Some(latency_us) = latency_us {
            histogram.saturating_record(latency_us);
        }
        counts.response_bytes += self.response_bytes;
        counts.in_flight -= 1;
        match self.backend {
            None => self.core.request_ended(counts.in_flight),
            Some(backend) => {
                let index = usize::from(backend);
                self.core.backends[index].ended();
                self.core.observed.over(index);
                if self.exchanging {
                    let connects = &mut stats.backends[index].connects;
                    self.core
                        .exchanged(index, latency_us.is_none(), self.probe, connects);
                }
            }
        }
        // A backend may have room for one more. Whatever ends, those that wait look again: a backend that was out of service may
        // be back without a request of its own having ended.
        self.core.waiting.wake_first();
        self.core.shortage.exchange_ended();
    }
}

impl Account {
    fn settle_class(&self, class: &mut ClassCounts, latency_us: Option<u64>, count: &impl Fn(&mut Counts)) {
        let Some(backend) = self.backend else {
            count(&mut class.counts);
            if let Some(latency_us) = latency_us {
                class.histogram.saturating_record(latency_us);
            }
            class.counts.response_bytes += self.response_bytes;
            class.counts.in_flight -= 1;
            return;
        };
        let part = &mut class.backends[usize::from(backend)];
        part.in_flight -= 1;
        match latency_us {
            Some(latency_us) => {
                let latency_us = latency_us.saturating_sub(self.waited_us.into());
                part.completions += 1;
                part.latency_us += latency_us;
                part.histogram.record(latency_us);
            }
            None => part.failures += 1,
        }
    }
}

/// The time since then, in microseconds.
fn micros(since: Instant) -> u64 {
    in_micros(since.elapsed())
}

fn in_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Drop for Account {
    fn drop(&mut self) {
        // Nearly always settled: then the clock is not read.
        if !self.settled {
            self.fail(Failure::AbortedByClient);
        }
    }
}
