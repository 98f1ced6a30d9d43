//! The account of one request with the service, or of one exchange with a backend: opened once, closed once.

use std::rc::Rc;
use std::time::Instant;

use hdrhistogram::Histogram;
use http::StatusCode;

use crate::call::Stop;
use crate::core::Core;
use crate::stats::{CoreSample, Counts, Failure};

/// In flight from when it is opened until it is settled. Dropped unsettled, it counts as aborted by the client: nobody
/// else drops a request before its end.
pub(crate) struct Account {
    core: Rc<Core>,
    /// Whose: this backend's, or the service's.
    backend: Option<usize>,
    arrived: Instant,
    status: Option<StatusCode>,
    response_bytes: u64,
    settled: bool,
}

impl Account {
    /// Counts an arrival. Latencies are counted from `arrived`.
    pub(crate) fn open(core: &Rc<Core>, backend: Option<usize>, arrived: Instant) -> Self {
        let account = Self {
            core: core.clone(),
            backend,
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
        account
    }

    fn part_of<'a>(&self, stats: &'a mut CoreSample) -> (&'a mut Counts, &'a mut Histogram<u64>) {
        match self.backend {
            None => (&mut stats.service, &mut stats.histogram),
            Some(backend) => {
                let sample = &mut stats.backends[backend];
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

    /// So many bytes of the response body were handed over.
    pub(crate) fn response_bytes(&mut self, bytes: usize) {
        self.response_bytes += bytes as u64;
    }

    /// The response was handed over whole.
    pub(crate) fn complete(&mut self) {
        if self.settled {
            return;
        }
        let latency_us = u64::try_from(self.arrived.elapsed().as_micros()).unwrap_or(u64::MAX);
        let status = self.status;
        let failed_status = &self.core.config.failed_status;
        let failed = status.is_some_and(|status| failed_status.contains(status.as_u16()));
        self.settle(|counts, histogram| {
            match failed {
                true => counts.fail(Failure::Answered),
                false => counts.completions += 1,
            }
            // How quickly a request failed is no latency of the service.
            if !failed {
                histogram.saturating_record(latency_us);
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
        self.settle(|counts, _| counts.fail(cause));
    }

    /// The gateway stopped it.
    pub(crate) fn stop(&mut self, stop: &Stop) {
        match stop {
            Stop::Refuse(_) => self.settle(|counts, _| counts.refused += 1),
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

    fn settle(&mut self, count: impl FnOnce(&mut Counts, &mut Histogram<u64>)) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let stats = &mut *self.core.stats.borrow_mut();
        let (counts, histogram) = self.part_of(stats);
        count(counts, histogram);
        counts.response_bytes += self.response_bytes;
        counts.in_flight -= 1;
        if self.backend.is_none() {
            self.core.request_ended(counts.in_flight);
        }
        // A backend may have room for one more. Whatever ends, the queue is looked at: a backend that was out of service may
        // be back without a request of its own having ended.
        self.core.queue.wake_first();
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // Nearly always settled: then the clock is not read.
        if !self.settled {
            self.fail(Failure::AbortedByClient);
        }
    }
}
