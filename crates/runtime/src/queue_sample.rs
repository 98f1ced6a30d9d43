//! How an accept queue is sampled for the estimators of capacity: how often, and as what.

use headroom_control::capacity::{Connections, Listener, ListenerSample, QueueObservation};
use headroom_node::queue::{QueueError, QueueSample};
use headroom_units::Seconds;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Samples of a queue in a period, for the time with somebody waiting.
const SAMPLES: u32 = 50;
/// But no more often than this, and no more seldom.
const MIN_SAMPLING: Duration = Duration::from_millis(5);
const MAX_SAMPLING: Duration = Duration::from_millis(100);

/// The time between two samples of a queue, for the time with somebody waiting.
pub fn sampling_period(period: Duration) -> Duration {
    (period / SAMPLES).clamp(MIN_SAMPLING, MAX_SAMPLING).min(period)
}

/// The same where nobody was observed to wait because the queue is short beside what is accepted in this time.
pub fn finer(every: Duration) -> Duration {
    every.min(MIN_SAMPLING)
}

/// What the listener's meter showed, as the estimators of queue monitoring take it.
///
/// Where nothing counts the port's own connections (sock_diag) they are those of the whole machine: true of a machine
/// that serves nothing else.
pub fn observation(
    length: Seconds,
    sample: &Result<QueueSample, QueueError>,
    used: &mut UsedSockets,
) -> QueueObservation {
    let sample = match sample {
        Ok(sample) => ListenerSample::Listening(listener(sample, used)),
        Err(QueueError::NobodyListens { .. }) => {
            *used = UsedSockets::default();
            ListenerSample::Nobody
        }
        Err(_) => ListenerSample::Unread,
    };
    QueueObservation { length, sample }
}

/// Which of several sockets connections come to.
#[derive(Clone, Debug, Default)]
pub struct UsedSockets(BTreeSet<u64>);

impl UsedSockets {
    /// How many wait for whichever of the workers has the fewest waiting for it, of the sockets that are used.
    ///
    /// Sockets of one address (`SO_REUSEPORT`) have a worker each, which is not kept busy by those who wait at another. Those of
    /// different addresses, such as IPv4's and IPv6's, are one server's, and its workers take from all of them.
    fn shortest(&mut self, sample: &QueueSample) -> Option<u64> {
        let mut by_address: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        let is_one = sample.listeners.len() == 1;
        for socket in &sample.listeners {
            let length = socket.length.now;
            if is_one || length > 0 || socket.enqueued.unwrap_or(0) > 0 || socket.drops.unwrap_or(0) > 0 {
                self.0.insert(socket.cookie);
            }
            if self.0.contains(&socket.cookie) {
                let shortest = by_address.entry(socket.address).or_insert(length);
                *shortest = length.min(*shortest);
            }
        }
        let is_used = !by_address.is_empty();
        is_used.then(|| by_address.values().sum())
    }
}

fn listener(sample: &QueueSample, used: &mut UsedSockets) -> Listener {
    let narrow = |value: u64| u32::try_from(value).ok();
    let (port, machine) = (&sample.port, &sample.machine);
    let of_machine = || Some(machine.enqueued? + port.drops?);
    Listener {
        identity: sample.epoch,
        limit: sample.places().and_then(narrow),
        length: sample.length.and_then(|length| narrow(length.now)),
        shortest: used.shortest(sample).and_then(narrow),
        lengths_seen: sample.seen.map(|seen| seen.sum),
        arrivals: port.arrivals().or_else(of_machine),
        accepts: port.accepts,
        drops: port.drops,
        unasked: port.unasked,
        answered: port.answered,
        connections: sample.connections.map(|found| Connections {
            open: found.open,
            silent: found.silent,
            slow: found.slow,
            working: found.working,
            longest_ms: found.longest_ms,
            gone: found.gone,
            cancelled: found.cancelled,
            kept: found.kept,
            elsewhere: found.elsewhere,
        }),
        loops_busy: sample.loops_busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_node::queue::{Counters, Length, QueueMethod};
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Instant;

    fn socket(cookie: u64, now: u64, enqueued: u64) -> headroom_node::queue::Listener {
        headroom_node::queue::Listener {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 80)),
            cookie,
            length: Length { now, limit: 63 },
            drops: Some(0),
            enqueued: Some(enqueued),
        }
    }

    fn sample(sockets: Vec<headroom_node::queue::Listener>) -> QueueSample {
        let now = sockets.iter().map(|one| one.length.now).sum();
        QueueSample {
            method: QueueMethod::Ebpf,
            at: Instant::now(),
            epoch: 3,
            port: Counters {
                enqueued: Some(100),
                accepts: Some(90),
                drops: Some(7),
                ..Counters::default()
            },
            server: Counters::default(),
            machine: Counters::default(),
            length: Some(Length {
                now,
                limit: 63 * sockets.len() as u64,
            }),
            seen: None,
            cpu_busy: None,
            connections: None,
            loops_busy: None,
            listeners: sockets,
        }
    }

    #[test]
    fn a_sample_is_an_observation_with_its_epoch_as_identity() {
        let mut used = UsedSockets::default();
        let seen = observation(
            Seconds::new(1.0),
            &Ok(sample(vec![socket(1, 10, 100)])),
            &mut used,
        );
        let ListenerSample::Listening(listener) = seen.sample else {
            panic!("{seen:?}")
        };
        assert_eq!((listener.identity, listener.limit), (3, Some(64)));
        assert_eq!((listener.length, listener.shortest), (Some(10), Some(10)));
        assert_eq!(listener.arrivals, Some(107));
        assert_eq!(listener.accepts, Some(90));
        let refused = QueueError::Refused {
            doing: "sampling".to_owned(),
            cause: "no".to_owned(),
            remedy: "none".to_owned(),
        };
        assert_eq!(
            observation(Seconds::new(1.0), &Err(refused), &mut used).sample,
            ListenerSample::Unread
        );
        let nobody = QueueError::NobodyListens {
            port: 80,
            others: String::new(),
        };
        assert_eq!(
            observation(Seconds::new(1.0), &Err(nobody), &mut used).sample,
            ListenerSample::Nobody
        );
    }

    #[test]
    fn of_several_sockets_only_those_count_that_connections_come_to() {
        let mut used = UsedSockets::default();
        assert_eq!(
            used.shortest(&sample(vec![socket(1, 0, 0), socket(2, 0, 0)])),
            None
        );
        assert_eq!(
            used.shortest(&sample(vec![socket(1, 5, 5), socket(2, 0, 0)])),
            Some(5)
        );
        // Once one has come to the second, nobody waiting there means that its worker may be idle.
        assert_eq!(
            used.shortest(&sample(vec![socket(1, 5, 5), socket(2, 0, 1)])),
            Some(0)
        );
        assert_eq!(
            used.shortest(&sample(vec![socket(1, 5, 5), socket(2, 9, 9)])),
            Some(5)
        );
    }

    #[test]
    fn of_one_server_at_several_addresses_all_who_wait_keep_it_busy() {
        let at_six = |cookie, now, enqueued| headroom_node::queue::Listener {
            address: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80)),
            ..socket(cookie, now, enqueued)
        };
        let mut used = UsedSockets::default();
        // Both families were used, and nobody waits at one of them.
        assert_eq!(
            used.shortest(&sample(vec![socket(1, 64, 900), at_six(2, 0, 20)])),
            Some(64)
        );
        // With a socket of each family for each worker, a worker has at least the fewest of both.
        let sockets = vec![
            socket(1, 64, 900),
            socket(3, 7, 900),
            at_six(2, 3, 20),
            at_six(4, 5, 20),
        ];
        assert_eq!(used.shortest(&sample(sockets)), Some(10));
    }

    #[test]
    fn without_a_count_of_the_port_s_own_the_machine_s_are_taken() {
        let mut by_kernel = sample(vec![socket(1, 10, 0)]);
        by_kernel.port = Counters {
            drops: Some(7),
            ..Counters::default()
        };
        by_kernel.machine.enqueued = Some(500);
        let listener = listener(&by_kernel, &mut UsedSockets::default());
        assert_eq!((listener.arrivals, listener.accepts), (Some(507), None));
    }
}
