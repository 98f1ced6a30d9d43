//! The account of one request: opened when its head was received, closed exactly once.

use std::rc::Rc;
use std::time::Instant;

use crate::client::ClientConn;
use crate::core::Core;
use crate::stats::{Counts, Failure};
use crate::upstream::Upstream;
use crate::watch::{Phase, Watch};

/// A request in flight. Dropped unsettled, it counts as aborted by the client: that is what the server does
/// with a request whose client has gone.
pub(crate) struct Ticket {
    client: Rc<ClientConn>,
    watch: Rc<Watch>,
    started: Instant,
    backend: Option<usize>,
    /// What the backend answered.
    status: Option<http::StatusCode>,
    response_bytes: u64,
    settled: bool,
}

impl Ticket {
    /// Counts the arrival of a request.
    pub(crate) fn open(client: &Rc<ClientConn>) -> Self {
        let started = Instant::now();
        let core = client.core();
        let watch = if client.http2 {
            client.stream_opened();
            core.watches.add(Phase::Response)
        } else {
            client.watch.enter(Phase::Response);
            client.watch.clone()
        };
        watch.set_started(Some(started));
        let mut stats = core.stats.borrow_mut();
        stats.service.arrivals += 1;
        stats.service.in_flight += 1;
        drop(stats);
        Self {
            client: client.clone(),
            watch,
            started,
            backend: None,
            status: None,
            response_bytes: 0,
            settled: false,
        }
    }

    pub(crate) fn client(&self) -> &Rc<ClientConn> {
        &self.client
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        self.client.core()
    }

    pub(crate) fn watch(&self) -> &Rc<Watch> {
        &self.watch
    }

    /// The request goes to this backend.
    pub(crate) fn assign(&mut self, backend: usize) {
        let mut stats = self.client.core().stats.borrow_mut();
        let counts = &mut stats.backends[backend].counts;
        counts.arrivals += 1;
        counts.in_flight += 1;
        self.backend = Some(backend);
    }

    /// The backend failed it, but the request as a whole goes on.
    pub(crate) fn unassign(&mut self, cause: Failure) {
        if let Some(backend) = self.backend.take() {
            let mut stats = self.client.core().stats.borrow_mut();
            let counts = &mut stats.backends[backend].counts;
            counts.fail(cause);
            counts.in_flight -= 1;
            drop(stats);
            self.client.core().queue.wake_first();
        }
    }

    /// The request is tried again.
    pub(crate) fn retried(&self) {
        self.client.core().stats.borrow_mut().service.retries += 1;
    }

    /// The backend answered with this status.
    pub(crate) fn answered(&mut self, status: http::StatusCode) {
        self.status = Some(status);
        if let Some(backend) = self.backend {
            self.client.core().heard(backend);
        }
    }

    /// The URL of the backend that has the request.
    pub(crate) fn backend_url(&self) -> &str {
        self.backend
            .map_or("", |backend| &self.client.core().backends[backend].url)
    }

    /// So many bytes of the response body were handed over.
    pub(crate) fn response_bytes(&mut self, bytes: usize) {
        self.response_bytes += bytes as u64;
    }

    /// Puts a connection that came through the exchange well into the pool.
    pub(crate) fn give_back(&self, upstream: Box<Upstream>) {
        if let Some(backend) = self.backend {
            self.client.core().give_back(backend, upstream);
        }
    }

    /// The response was handed over whole.
    pub(crate) fn complete(&mut self) {
        if self.settled {
            return;
        }
        let latency_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (status, bytes) = (self.status, self.response_bytes);
        let failed_status = &self.client.core().config.failed_status;
        let failed = status.is_some_and(|status| failed_status.contains(status.as_u16()));
        // How quickly a request failed is no latency of the service.
        if !failed {
            let mut stats = self.client.core().stats.borrow_mut();
            stats.histogram.saturating_record(latency_us);
            if let Some(backend) = self.backend {
                stats.backends[backend].histogram.saturating_record(latency_us);
            }
        }
        self.settle(|counts| {
            match failed {
                true => counts.fail(Failure::Answered),
                false => counts.completions += 1,
            }
            if let Some(status) = status {
                counts.status(status);
            }
            counts.response_bytes += bytes;
        });
    }

    /// The gateway answers with this status of its own.
    pub(crate) fn speaks(&self, status: http::StatusCode) {
        self.client.core().stats.borrow_mut().service.status(status);
    }

    /// The request failed.
    pub(crate) fn fail(&mut self, cause: Failure) {
        let bytes = self.response_bytes;
        let cause = match cause {
            Failure::AbortedByClient if self.waited_too_long() => Failure::TimedOut,
            cause => cause,
        };
        self.settle(|counts| {
            counts.fail(cause);
            counts.response_bytes += bytes;
        });
    }

    /// Whether the client has waited for an answer longer than is promised: that it goes away then is the service's doing.
    fn waited_too_long(&self) -> bool {
        let target_ms = self.client.core().config.target_ms;
        let waited_ms = self.started.elapsed().as_millis();
        self.status.is_none() && target_ms.is_some_and(|target| waited_ms > u128::from(target))
    }

    /// The gateway refused the request.
    pub(crate) fn refuse(&mut self) {
        self.settle(|counts| counts.refused += 1);
    }

    /// Closes the account of the service and of the backend, once.
    fn settle(&mut self, count: impl Fn(&mut Counts)) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        {
            let stats = &mut *self.client.core().stats.borrow_mut();
            let backend = self.backend.map(|backend| &mut stats.backends[backend].counts);
            for counts in [Some(&mut stats.service), backend].into_iter().flatten() {
                count(counts);
                counts.in_flight -= 1;
            }
        }
        self.client.core().queue.wake_first();
        self.watch.set_started(None);
        if self.client.http2 {
            self.client.core().watches.remove(&self.watch);
            self.client.stream_closed();
        } else {
            self.watch.enter(Phase::Idle);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.fail(Failure::AbortedByClient);
    }
}
