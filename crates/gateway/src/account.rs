//! The account of one request with the service, or of one exchange with a backend: opened once, closed once.

use std::rc::Rc;
use std::time::Instant;

use hdrhistogram::Histogram;
use http::StatusCode;

use crate::call::Stop;
use crate::core::Core;
use crate::sizes::ClassCounts;
use crate::stats::{CoreSample, Counts, Failure};

/// In flight from when it is opened until it is settled. Dropped unsettled, it counts as aborted by the client: nobody
/// else drops a request before its end.
pub(crate) struct Account {
    core: Rc<Core>,
    /// Whose: this backend's, or the service's. At most [`crate::MAX_BACKENDS`]. Small, for answers carry it along.
    backend: Option<u16>,
    /// Of which class of sizes; `None` where sizes are not looked at.
    class: Option<u8>,
    arrived: Instant,
    /// How long after it arrived it was sent to its backend, where there is a class; up to an hour.
    waited_us: u32,
    status: Option<StatusCode>,
    response_bytes: u64,
    settled: bool,
}

impl Account {
    /// Counts an arrival. Latencies are counted from `arrived`.
    pub(crate) fn open(core: &Rc<Core>, backend: Option<usize>, class: Option<u8>, arrived: Instant) -> Self {
        let account = Self {
            core: core.clone(),
            backend: backend.map(|backend| backend as u16),
            class,
            waited_us: match (class, backend) {
                (Some(_), Some(_)) => u32::try_from(micros(arrived)).unwrap_or(u32::MAX),
                _ => 0,
            },
            arrived,
            status: None,
            response_bytes: 0,
            settled: false,
        };
        let stats = &mut *core.stats.borrow_mut();
        let (counts, _) = account.part_of(stats);
        counts.arrivals += 1;
        counts.in_flight += 1;
        if backend.is_none() {
            core.request_arrived(counts.in_flight);
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
                    core.backends[backend].begun();
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

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The answer has this status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
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
        let latency_us = micros(self.arrived);
        let status = self.status;
        let failed_status = &self.core.config.failed_status;
        let failed = status.is_some_and(|status| failed_status.contains(status.as_u16()));
        // How quickly a request failed is no latency of the service.
        let latency_us = (!failed).then_some(latency_us);
        self.settle(latency_us, |counts| {
            match failed {
                true => counts.fail(Failure::Answered),
                false => counts.completions += 1,
            }
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
        self.settle(None, |counts| counts.fail(cause));
    }

    /// The gateway stopped it.
    pub(crate) fn stop(&mut self, stop: &Stop) {
        match stop {
            Stop::Refuse(_) => self.settle(None, |counts| counts.refused += 1),
            Stop::Fail(failure, _) => self.fail(*failure),
        }
    }

    /// Whether the client has waited for an answer longer than the SLO allows: that it goes away then is the service's
    /// doing.
    fn waited_too_long(&self) -> bool {
        let target_ms = self.core.config.target_ms;
        let waited_ms = self.arrived.elapsed().as_millis();
        self.status.is_none() && target_ms.is_some_and(|target| waited_ms > u128::from(target))
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
        if self.backend.is_none() {
            self.core.request_ended(counts.in_flight);
        }
        // A backend may have room for one more. Whatever ends, the queue is looked at: a backend that was out of service may
        // be back without a request of its own having ended.
        self.core.queue.wake_first();
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
        self.core.backends[usize::from(backend)].ended();
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
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

impl Drop for Account {
    fn drop(&mut self) {
        // Nearly always settled: then the clock is not read.
        if !self.settled {
            self.fail(Failure::AbortedByClient);
        }
    }
}
