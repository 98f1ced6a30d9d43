//! Passive ejection: what failed connections say of a backend, and when it is passed over for them.
//!
//! A connection that is *refused* and one that *times out* mean different things. Refused means that nobody listens:
//! whatever is sent there is lost, and passing the backend over costs nothing. A timeout means that the SYN was not
//! answered: the machine is gone, or it is there and its accept queue is full (Linux drops the SYN, and sends it again
//! after one second). Passing over a backend whose queue is full moves its load to the others, whose queues then
//! overflow too: from there on the service answers less than it could for as long as the load lasts. So timeouts count
//! only while the backend shows no other sign of life, only several in a row eject, and never so many backends that the
//! rest must overflow.
//!
//! Others bound the same by consecutive failures (Envoy's `consecutive_local_origin_failure` 5, Finagle's failure
//! accrual 5, HAProxy's `error-limit` 10, nginx's `max_fails` 1) and by the share that may be away (Envoy's
//! `max_ejection_percent`, and its and Finagle's panic threshold of 50 %).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::backend::Backend;
use crate::config::{HealthConfig, ms};

const REFUSED: u8 = 0;
const TIMED_OUT: u8 = 1;

/// What ejected a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EjectionCause {
    /// Connections were refused, or there is no way to its address.
    Refused,
    /// Connections timed out, and nothing else was heard of it meanwhile.
    TimedOut,
    /// It failed requests, with connections open to it, while others did not.
    Failing,
}

/// Why a connection could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// Nobody listens there, or there is no way to it.
    Refused,
    /// No answer in time; `alive` tells whether the backend answered anything else meanwhile.
    TimedOut { alive: bool },
    /// This machine has no descriptor, port or memory left for it: nothing that a backend could be blamed for.
    NoResources,
}

impl ConnectFailure {
    /// What an error of `connect` means.
    pub(crate) fn of(error: &io::Error, alive: bool) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::TIMEDOUT) => Self::TimedOut { alive },
            Some(
                Errno::MFILE
                | Errno::NFILE
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::ADDRNOTAVAIL
                | Errno::AGAIN
                | Errno::ADDRINUSE,
            ) => Self::NoResources,
            _ => Self::Refused,
        }
    }
}

/// What a failed connection led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Counted,
    /// The backend is passed over from now on.
    Ejected(EjectionCause),
    /// It would be, were not too many of them away already.
    Withheld,
}

/// What held when a connection was begun: a failure is news only while it still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Until when the backend was to be passed over, as in [`Ejection::until_ms`].
    until_ms: u64,
    /// This connection shows whether the backend is back.
    probe: bool,
}

/// One backend's record of failed connections, shared by the cores through atomics alone.
#[derive(Debug)]
pub(crate) struct Ejection {
    epoch: Instant,
    /// Milliseconds after `epoch` until which the backend is passed over; 0 while nothing is held against it.
    until_ms: AtomicU64,
    /// [`REFUSED`] or [`TIMED_OUT`], of the last ejection.
    cause: AtomicU8,
    /// Ejections since a connection was last opened.
    in_a_row: AtomicU32,
    /// Refused connections since one was last opened.
    refusals: AtomicU32,
    /// Connections that timed out since anything was last heard of the backend.
    timeouts: AtomicU32,
}

impl Ejection {
    pub(crate) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            until_ms: AtomicU64::new(0),
            cause: AtomicU8::new(REFUSED),
            in_a_row: AtomicU32::new(0),
            refusals: AtomicU32::new(0),
            timeouts: AtomicU32::new(0),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the backend is passed over now.
    pub(crate) fn is_ejected(&self) -> bool {
        let until_ms = self.until_ms.load(Relaxed);
        until_ms != 0 && self.elapsed_ms() < until_ms
    }

    /// What is left of the ejection, and what it is for.
    pub(crate) fn state(&self) -> Option<(Duration, EjectionCause)> {
        let left_ms = self.until_ms.load(Relaxed).saturating_sub(self.elapsed_ms());
        let cause = match self.cause.load(Relaxed) {
            TIMED_OUT => EjectionCause::TimedOut,
            _ => EjectionCause::Refused,
        };
        (left_ms > 0).then(|| (ms(left_ms), cause))
    }

    /// Failed connections in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.refusals
            .load(Relaxed)
            .saturating_add(self.timeouts.load(Relaxed))
    }

    /// A connection is about to be opened. Where an ejection has just run out it is the probe: until its outcome is
    /// known, at most `patience`, everybody else goes on passing the backend over. What this returns goes to
    /// [`Ejection::failed`].
    pub(crate) fn begin_connect(&self, patience: Duration) -> Begun {
        let seen_ms = self.until_ms.load(Relaxed);
        let bystander = |until_ms| Begun {
            until_ms,
            probe: false,
        };
        // Nothing is held against it, nearly always: then the clock is not read.
        if seen_ms == 0 {
            return bystander(seen_ms);
        }
        let now_ms = self.elapsed_ms();
        if now_ms < seen_ms {
            return bystander(seen_ms);
        }
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let until_ms = now_ms.saturating_add(patience_ms);
        match self
            .until_ms
            .compare_exchange(seen_ms, until_ms, Relaxed, Relaxed)
        {
            Ok(_) => Begun {
                until_ms,
                probe: true,
            },
            Err(anothers_ms) => bystander(anothers_ms),
        }
    }

    /// A connection was opened, or an active check passed: nothing is held against the backend any more. Whether anything was.
    pub(crate) fn connected(&self) -> bool {
        // Read first: nearly always there is nothing to forget, and a write would take the line from the other cores.
        for count in [&self.refusals, &self.timeouts] {
            if count.load(Relaxed) != 0 {
                count.store(0, Relaxed);
            }
        }
        self.until_ms.load(Relaxed) != 0 && self.lift()
    }

    /// Whether there was anything to be lifted, and no other core has lifted it.
    fn lift(&self) -> bool {
        self.in_a_row.store(0, Relaxed);
        self.until_ms.swap(0, Relaxed) != 0
    }

    /// Whether it is passed over, and was not before.
    pub(crate) fn is_first(&self) -> bool {
        self.in_a_row.load(Relaxed) == 1
    }

    /// A connection that was `begun` failed: whether the backend is passed over for it. `others` are those of the service
    /// that take requests, as [`Census`] counts them.
    pub(crate) fn failed(
        &self,
        begun: Begun,
        failure: ConnectFailure,
        config: &HealthConfig,
        others: impl Fn() -> Census,
    ) -> Verdict {
        let (count, limit, cause) = match failure {
            ConnectFailure::NoResources => return Verdict::Counted,
            ConnectFailure::TimedOut { alive: true } => {
                self.timeouts.store(0, Relaxed);
                // An ejection for silence was wrong, or is over; who refused connections is still not there.
                if self.cause.load(Relaxed) == TIMED_OUT && self.until_ms.load(Relaxed) != 0 {
                    self.lift();
                }
                return Verdict::Counted;
            }
            ConnectFailure::TimedOut { alive: false } => (
                &self.timeouts,
                config.eject_after_timeouts,
                EjectionCause::TimedOut,
            ),
            ConnectFailure::Refused => (
                &self.refusals,
                config.eject_after_refusals,
                EjectionCause::Refused,
            ),
        };
        // It wraps after 2^32 failures without an opened connection, and then counts anew.
        let failures = count.fetch_add(1, Relaxed).wrapping_add(1);
        if limit == 0 || failures < limit || config.ejection_ms == 0 {
            return Verdict::Counted;
        }
        let silent = cause == EjectionCause::TimedOut;
        if silent && !others().allows_one_more(config.max_ejection_percent) {
            // Counted from the start, so that it is reported once for so many timeouts.
            count.store(0, Relaxed);
            return Verdict::Withheld;
        }
        if !self.eject(begun, cause, config) {
            return Verdict::Counted;
        }
        // Another core may have ejected another backend at the same moment: then both give way.
        if silent && !others().allows_one_more(config.max_ejection_percent) {
            self.lift();
            count.store(0, Relaxed);
            return Verdict::Withheld;
        }
        Verdict::Ejected(cause)
    }

    /// Passes the backend over for a while, doubling with each further time; false where the failure says nothing new.
    /// Connections begun before it was ejected fail after it, many at once, some only when the probe is under way: they are
    /// one failure, not many, and only the probe's own ends the probe.
    fn eject(&self, begun: Begun, cause: EjectionCause, config: &HealthConfig) -> bool {
        let now_ms = self.elapsed_ms();
        if now_ms < begun.until_ms && !begun.probe {
            return false;
        }
        let wait_ms = config
            .ejection_ms
            .saturating_mul(1 << self.in_a_row.load(Relaxed).min(20))
            .min(config.ejection_max_ms);
        let until_ms = now_ms.saturating_add(wait_ms);
        if self
            .until_ms
            .compare_exchange(begun.until_ms, until_ms, Relaxed, Relaxed)
            .is_err()
        {
            return false;
        }
        self.in_a_row.fetch_add(1, Relaxed);
        let cause = match cause {
            EjectionCause::TimedOut => TIMED_OUT,
            // What fails requests has a record of its own, `Failing`.
            EjectionCause::Refused | EjectionCause::Failing => REFUSED,
        };
        self.cause.store(cause, Relaxed);
        true
    }
}

/// The other backends of a service that the control side lets take requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// All of them.
    pub in_service: usize,
    /// Of these, the ones that are unhealthy or ejected.
    pub away: usize,
}

impl Census {
    /// Counts the backends other than `one`.
    pub(crate) fn without(one: usize, backends: &[Arc<Backend>]) -> Self {
        let mut census = Self::default();
        for (index, backend) in backends.iter().enumerate() {
            if index != one && backend.is_in_service() {
                census.in_service += 1;
                census.away += usize::from(!backend.is_healthy() || backend.is_ejected());
            }
        }
        census
    }

    /// Whether one more may go without more than `percent` of all being away.
    pub(crate) fn allows_one_more(self, percent: u32) -> bool {
        (self.away + 1) * 100 <= (self.in_service + 1) * percent as usize
    }
}

#[cfg(test)]
#[path = "ejection_tests.rs"]
mod tests;
