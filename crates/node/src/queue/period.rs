//! What happened between two samples of one meter.

use super::{Counters, Length, QueueError, QueueSample};
use headroom_units::{PerSecond, Ratio, Seconds};
use serde::Serialize;

/// Whose events a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The port's listeners'.
    Port,
    /// The server process's, on whichever ports.
    Server,
    /// All listeners' of the machine's network namespace: the port's only where nothing else is served.
    Machine,
}

/// What happened between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuePeriod {
    /// How long it was.
    pub duration: Seconds,
    /// Events at the port.
    pub port: Counters,
    /// Events at the server.
    pub server: Counters,
    /// Events on the machine.
    pub machine: Counters,
    /// The queue's length that the period's arrivals saw, on average; nothing where nothing arrived.
    pub seen_mean: Option<f64>,
    /// The longest queue that an arrival saw, since the sample before the later one.
    pub seen_longest: Option<u64>,
    /// The queue at the period's end.
    pub length: Option<Length>,
    /// The share of CPU time used.
    pub cpu_busy: Option<Ratio>,
}

impl QueuePeriod {
    fn narrowest<T>(&self, of: impl Fn(&Counters) -> Option<T>) -> Option<(T, Scope)> {
        let scopes = [
            (self.port, Scope::Port),
            (self.server, Scope::Server),
            (self.machine, Scope::Machine),
        ];
        scopes
            .iter()
            .find_map(|(counters, scope)| Some((of(counters)?, *scope)))
    }

    fn rate(&self, events: u64) -> PerSecond {
        PerSecond::new(events as f64 / self.duration.get())
    }

    /// Attempts to enter the queue, and of whom: those that got in and those that were dropped.
    pub fn arrival_rate(&self) -> Option<(PerSecond, Scope)> {
        self.narrowest(Counters::arrivals)
            .map(|(events, scope)| (self.rate(events), scope))
    }

    /// What was served, and of whom: accepts where they are counted, else requests.
    pub fn service_rate(&self) -> Option<(PerSecond, Scope)> {
        self.narrowest(|counters| counters.accepts.or(counters.requests))
            .map(|(events, scope)| (self.rate(events), scope))
    }

    /// The dropped share of the attempts (the paper's drop ratio, Section 4), and of whom; nothing where there was no
    /// attempt.
    pub fn drop_ratio(&self) -> Option<(Ratio, Scope)> {
        let ((arrivals, drops), scope) =
            self.narrowest(|counters| counters.arrivals().zip(counters.drops))?;
        (arrivals > 0).then(|| (Ratio::new(drops as f64 / arrivals as f64), scope))
    }
}

impl QueueSample {
    /// What happened between an earlier sample of the same meter and this one.
    ///
    /// # Errors
    /// [`QueueError::NoPeriod`] where a listener came or went or a counter jumped between them, where they are by
    /// different methods, or where no time passed.
    pub fn since(&self, earlier: &Self) -> Result<QueuePeriod, QueueError> {
        let no = |why| Err(QueueError::NoPeriod(why));
        if self.method != earlier.method {
            return no("samples of two methods cannot be subtracted: compare their periods instead");
        }
        if self.epoch != earlier.epoch {
            return no(
                "a listener came or went, or a counter jumped: nothing is known of this period, wait for the next",
            );
        }
        let duration = self.at.saturating_duration_since(earlier.at);
        if duration.is_zero() {
            return no("no time passed between the samples: give the earlier one first");
        }
        let seen = self.seen.zip(earlier.seen).and_then(|(now, then)| {
            let arrivals = now
                .arrivals
                .checked_sub(then.arrivals)
                .filter(|&arrivals| arrivals > 0)?;
            Some(now.sum.checked_sub(then.sum)? as f64 / arrivals as f64)
        });
        Ok(QueuePeriod {
            duration: duration.into(),
            port: minus(&self.port, &earlier.port),
            server: minus(&self.server, &earlier.server),
            machine: minus(&self.machine, &earlier.machine),
            seen_mean: seen,
            seen_longest: self.seen.map(|seen| seen.longest),
            length: self.length,
            cpu_busy: self.cpu_busy,
        })
    }
}

fn minus(now: &Counters, earlier: &Counters) -> Counters {
    let minus = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
    Counters {
        enqueued: minus(now.enqueued, earlier.enqueued),
        accepts: minus(now.accepts, earlier.accepts),
        drops: minus(now.drops, earlier.drops),
        requests: minus(now.requests, earlier.requests),
        attempt_fails: minus(now.attempt_fails, earlier.attempt_fails),
        unasked: minus(now.unasked, earlier.unasked),
        answered: minus(now.answered, earlier.answered),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AtArrival, QueueMethod};
    use super::*;
    use std::time::{Duration, Instant};

    fn sample(at: Instant, enqueued: u64, drops: u64) -> QueueSample {
        QueueSample {
            method: QueueMethod::Ebpf,
            at,
            epoch: 0,
            port: Counters {
                enqueued: Some(enqueued),
                drops: Some(drops),
                ..Counters::default()
            },
            server: Counters::default(),
            machine: Counters {
                enqueued: Some(enqueued * 2),
                drops: Some(drops),
                accepts: Some(4),
                ..Counters::default()
            },
            length: None,
            seen: Some(AtArrival {
                arrivals: enqueued + drops,
                sum: enqueued * 3,
                longest: 9,
            }),
            cpu_busy: None,
            connections: None,
            loops_busy: None,
            listeners: Vec::new(),
        }
    }

    #[test]
    fn rates_are_of_the_narrowest_scope_that_tells_them() {
        let start = Instant::now();
        let first = sample(start, 0, 0);
        let second = sample(start + Duration::from_secs(2), 90, 10);
        let period = second.since(&first).unwrap();
        assert_eq!(period.arrival_rate(), Some((PerSecond::new(50.0), Scope::Port)));
        assert_eq!(period.drop_ratio(), Some((Ratio::new(0.1), Scope::Port)));
        assert_eq!(period.service_rate(), Some((PerSecond::new(0.0), Scope::Machine)));
        assert_eq!(period.seen_mean, Some(2.7));
        assert_eq!(period.seen_longest, Some(9));
    }

    #[test]
    fn without_an_arrival_there_is_no_mean_and_no_ratio() {
        let start = Instant::now();
        let period = sample(start + Duration::from_secs(1), 5, 0)
            .since(&sample(start, 5, 0))
            .unwrap();
        assert_eq!(period.seen_mean, None);
        assert_eq!(period.drop_ratio(), None);
        assert_eq!(period.arrival_rate(), Some((PerSecond::new(0.0), Scope::Port)));
    }

    #[test]
    fn across_an_epoch_a_method_or_no_time_nothing_is_said() {
        let start = Instant::now();
        let first = sample(start, 0, 0);
        let later = start + Duration::from_secs(1);
        let other_epoch = QueueSample {
            epoch: 1,
            ..sample(later, 9, 0)
        };
        let other_method = QueueSample {
            method: QueueMethod::Kernel,
            ..sample(later, 9, 0)
        };
        for (sample, word) in [
            (other_epoch, "came or went"),
            (other_method, "two methods"),
            (first.clone(), "no time"),
        ] {
            assert!(sample.since(&first).unwrap_err().to_string().contains(word));
        }
    }
}
