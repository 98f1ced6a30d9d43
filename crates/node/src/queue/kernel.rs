//! By what the kernel exports: each listener's queue, limit and drops (sock_diag(7)), and the machine's counters
//! (`/proc/net/snmp`, `/proc/net/netstat`, `/proc/stat`).

use super::accepted::Accepted;
use super::counter::{Busy, Ledger, step};
use super::deferred::Deferred;
use super::diag::Diag;
use super::loops::Loops;
use super::procfs;
use super::{Counters, Length, Listener, QueueError, QueueMeter, QueueMethod, QueueSample};
use crate::Roots;
use std::collections::BTreeMap;
use std::time::Instant;

/// The drops of a port's listeners, added up across their coming and going.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Each listener's cookie, and its drops as they were read last.
    last: Option<BTreeMap<u64, u64>>,
    at: Option<Instant>,
    /// Drops since the first reading.
    drops: u64,
}

/// What became of the port's listeners since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advance {
    /// Drops since the first reading; nothing where the kernel tells none.
    pub drops: Option<u64>,
    /// The sum over the drops since the last reading of the full queue that each saw.
    pub full_seen: u64,
    /// The same sockets as last time, and none of their counters leapt.
    pub steady: bool,
}

impl Parts {
    /// Takes a reading. The drops of a socket that came meanwhile are not counted: it may be older than the port's.
    pub(super) fn advance(&mut self, at: Instant, listeners: &[Listener]) -> Advance {
        let elapsed_s = self
            .at
            .replace(at)
            .map_or(0.0, |last| at.saturating_duration_since(last).as_secs_f64());
        let now: BTreeMap<u64, u64> = listeners
            .iter()
            .map(|listener| (listener.cookie, listener.drops.unwrap_or(0)))
            .collect();
        let reported = listeners.iter().all(|listener| listener.drops.is_some());
        let Some(last) = self.last.replace(now) else {
            return Advance {
                drops: reported.then_some(0),
                full_seen: 0,
                steady: true,
            };
        };
        let mut steady = last.len() == listeners.len();
        let mut full_seen = 0;
        for listener in listeners {
            let grown = last
                .get(&listener.cookie)
                .and_then(|&before| step(before, listener.drops.unwrap_or(0), 32, elapsed_s));
            match grown {
                Some(grown) => {
                    self.drops += grown;
                    full_seen += grown * listener.room();
                }
                None => steady = false,
            }
        }
        Advance {
            drops: reported.then_some(self.drops),
            full_seen,
            steady,
        }
    }

    /// Nobody listens any more: the next listener starts anew.
    pub(super) fn gone(&mut self) {
        // An empty map, not none: the next reading then differs from this one.
        self.last = Some(BTreeMap::new());
    }
}

/// The queues of all listeners as one.
pub(super) fn sum(listeners: &[Listener]) -> Length {
    listeners.iter().fold(Length::default(), |sum, listener| Length {
        now: sum.now + listener.length.now,
        limit: sum.limit + listener.length.limit,
    })
}

/// Measures by the kernel's exported counters. Needs no privilege.
#[derive(Debug)]
pub struct KernelQueueMeter {
    port: u16,
    roots: Roots,
    diag: Diag,
    parts: Parts,
    deferred: Deferred,
    accepted: Accepted,
    loops: Loops,
    /// Passive opens, failed attempts, drops.
    machine: Ledger<3>,
    busy: Busy,
    epoch: u64,
}

impl KernelQueueMeter {
    /// Opens it on a port that somebody listens on.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`], or what the kernel does not show.
    pub fn open(port: u16, roots: &Roots) -> Result<Self, QueueError> {
        let mut meter = Self {
            port,
            roots: roots.clone(),
            diag: Diag::open()?,
            parts: Parts::default(),
            deferred: Deferred::new(),
            accepted: Accepted::default(),
            loops: Loops::new(roots),
            machine: Ledger::new([usize::BITS; 3]),
            busy: Busy::default(),
            epoch: 0,
        };
        meter.sample()?;
        Ok(meter)
    }
}

impl QueueMeter for KernelQueueMeter {
    fn method(&self) -> QueueMethod {
        QueueMethod::Kernel
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        let listeners = self.diag.listeners(self.port).inspect_err(|error| {
            if matches!(error, QueueError::NobodyListens { .. }) {
                self.parts.gone();
            }
        })?;
        let at = Instant::now();
        let network = procfs::network(&self.roots)?;
        let loops_busy = self.loops.busy(&mut self.diag, self.port, &listeners, at);
        let mut connections =
            self.accepted
                .of(&mut self.diag, self.port, (sum(&listeners), loops_busy), at)?;
        if let Some(connections) = &mut connections {
            connections.elsewhere = self.loops.elsewhere(&mut self.diag, at);
        }
        let (busy, whole) = procfs::cpu(&self.roots)?;
        let parts = self.parts.advance(at, &listeners);
        let parts = self.deferred.take(at, &parts, Some(&network));
        let (machine, machine_steady) = self.machine.advance(
            at,
            [
                Some(network.passive_opens),
                Some(network.attempt_fails),
                Some(network.listen_drops),
            ],
        );
        if !(parts.steady && machine_steady) {
            self.epoch += 1;
        }
        Ok(QueueSample {
            method: QueueMethod::Kernel,
            at,
            epoch: self.epoch,
            port: Counters {
                drops: parts.drops,
                ..Counters::default()
            },
            server: Counters::default(),
            machine: Counters {
                enqueued: machine[0],
                attempt_fails: machine[1],
                drops: machine[2],
                ..Counters::default()
            },
            length: Some(sum(&listeners)),
            seen: None,
            cpu_busy: self.busy.advance(busy, whole),
            connections,
            loops_busy,
            listeners,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn listener(cookie: u64, drops: Option<u64>) -> Listener {
        Listener {
            address: "127.0.0.1:80".parse().unwrap(),
            cookie,
            length: Length { now: 2, limit: 4 },
            drops,
            enqueued: None,
        }
    }

    #[test]
    fn drops_are_counted_across_a_wrap_and_not_across_another_socket() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut parts = Parts::default();
        let first = parts.advance(at(0), &[listener(1, Some(0xFFFF_FFFE)), listener(2, Some(9))]);
        assert_eq!((first.drops, first.steady), (Some(0), true));
        let second = parts.advance(at(1), &[listener(1, Some(1)), listener(2, Some(10))]);
        assert_eq!(
            (second.drops, second.full_seen, second.steady),
            (Some(4), 4 * 5, true)
        );
        let other = parts.advance(at(2), &[listener(1, Some(1)), listener(3, Some(7000))]);
        assert_eq!((other.drops, other.steady), (Some(4), false));
        assert!(
            parts
                .advance(at(3), &[listener(1, Some(1)), listener(3, Some(7000))])
                .steady
        );
        assert!(!parts.advance(at(4), &[listener(1, Some(1))]).steady, "one went");
        parts.gone();
        assert!(!parts.advance(at(5), &[listener(4, Some(0))]).steady, "all went");
        assert_eq!(parts.advance(at(6), &[listener(4, None)]).drops, None);
    }

    #[test]
    fn several_listeners_are_one_queue() {
        assert_eq!(
            sum(&[listener(1, None), listener(2, None)]),
            Length { now: 4, limit: 8 }
        );
        assert_eq!(sum(&[]), Length::default());
    }
}
