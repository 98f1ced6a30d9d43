//! A queue of another machine: the snapshots that its agent sends, as samples of this process, and those that an agent sends.

use super::{AtArrival, QueueError, QueueMethod, QueuePreference, QueueSample};
use crate::order::Order;
use headroom_units::Ratio;
use headroom_wire::message::{
    QueueMethod as WireMethod, QueueSample as WireSample, QueueShown, QueueSnapshot,
};
use std::time::{Duration, Instant};

impl From<WireMethod> for QueueMethod {
    fn from(method: WireMethod) -> Self {
        match method {
            WireMethod::Ebpf => Self::Ebpf,
            WireMethod::Kernel => Self::Kernel,
            WireMethod::Tools => Self::Tools,
            WireMethod::Snmp => Self::Snmp,
        }
    }
}

impl QueueMethod {
    /// What an agent calls it; `None` for a status page, which is asked for over HTTP and not through an agent.
    pub const fn through_agent(self) -> Option<WireMethod> {
        match self {
            Self::Ebpf => Some(WireMethod::Ebpf),
            Self::Kernel => Some(WireMethod::Kernel),
            Self::Tools => Some(WireMethod::Tools),
            Self::Snmp => Some(WireMethod::Snmp),
            Self::Status => None,
        }
    }
}

/// The preference that a request names: the agent's own where it names none.
pub(crate) fn methods_of(named: &[WireMethod]) -> QueuePreference {
    let methods: Vec<QueueMethod> = named.iter().copied().map(QueueMethod::from).collect();
    // None, or one twice, which a request is refused for, is no order.
    Order::new(&methods).map_or(QueuePreference::Auto, QueuePreference::Ordered)
}

/// What a look showed, as it is reported; `longest` and `cpu_busy` are since the last report to the same watcher.
pub(crate) fn reported(
    sampled: &Result<QueueSample, QueueError>,
    meter: u64,
    longest: u64,
    cpu_busy: Option<Ratio>,
) -> QueueShown {
    let sample = match sampled {
        Ok(sample) => sample,
        Err(QueueError::NobodyListens { others, .. }) => {
            return QueueShown::Nobody {
                others: others.clone(),
            };
        }
        Err(error) => {
            return QueueShown::Unavailable {
                why: error.to_string(),
            };
        }
    };
    let Some(method) = sample.method.through_agent() else {
        let why = format!("an agent does not measure by {}", sample.method);
        return QueueShown::Unavailable { why };
    };
    QueueShown::Sample(Box::new(WireSample {
        method,
        meter,
        epoch: sample.epoch,
        port: sample.port,
        server: sample.server,
        machine: sample.machine,
        length: sample.length,
        at_arrival: sample.seen.map(|seen| AtArrival { longest, ..seen }),
        cpu_busy,
        connections: sample.connections,
        loops_busy: sample.loops_busy,
        listeners: sample.listeners.clone(),
    }))
}

/// Makes the snapshots of one port that an agent sends, this process's samples.
///
/// The time between two samples is the agent's, so that what the network does to the messages changes no rate. A new run
/// of the agent, a new meter and an [interruption](Self::interrupted) are new epochs.
#[derive(Debug)]
pub struct SnapshotReader {
    port: u16,
    epoch: u64,
    /// Whose counters those of the last sample were: run, meter and epoch.
    of: Option<(u64, u64, u64)>,
    /// A moment of the agent's clock, and of ours; of which run.
    clock: Option<(u64, Duration, Instant)>,
}

impl SnapshotReader {
    /// Of a port; nothing was reported yet.
    pub const fn new(port: u16) -> Self {
        Self {
            port,
            epoch: 0,
            of: None,
            clock: None,
        }
    }

    /// The connection was lost: nothing will be said of the time until the next snapshot.
    pub fn interrupted(&mut self) {
        self.epoch += 1;
        self.of = None;
        self.clock = None;
    }

    /// Takes a snapshot that came just now.
    ///
    /// # Errors
    /// What the agent reported instead of a sample: [`QueueError::NobodyListens`], [`QueueError::Elsewhere`].
    pub fn read(&mut self, snapshot: QueueSnapshot, received: Instant) -> Result<QueueSample, QueueError> {
        let at = self.at(&snapshot, received);
        let reported = match snapshot.shown {
            QueueShown::Sample(reported) => *reported,
            QueueShown::Nobody { others } => {
                return Err(QueueError::NobodyListens {
                    port: self.port,
                    others,
                });
            }
            QueueShown::Unavailable { why } => return Err(QueueError::Elsewhere { why }),
        };
        let of = (snapshot.agent_run, reported.meter, reported.epoch);
        if self.of.replace(of).is_some_and(|before| before != of) {
            self.epoch += 1;
        }
        Ok(QueueSample {
            method: reported.method.into(),
            at,
            epoch: self.epoch,
            port: reported.port,
            server: reported.server,
            machine: reported.machine,
            length: reported.length,
            seen: reported.at_arrival,
            cpu_busy: reported.cpu_busy,
            connections: reported.connections,
            loops_busy: reported.loops_busy,
            listeners: reported.listeners,
        })
    }

    /// When a snapshot was taken, by our clock: of the first as it seems here, of the others by the agent's clock from there.
    fn at(&mut self, snapshot: &QueueSnapshot, received: Instant) -> Instant {
        let seems = received.checked_sub(snapshot.age).unwrap_or(received);
        match self.clock {
            Some((run, uptime, at)) if run == snapshot.agent_run => match snapshot.uptime.checked_sub(uptime)
            {
                Some(later) => at.checked_add(later).unwrap_or(seems),
                None => at.checked_sub(uptime.abs_diff(snapshot.uptime)).unwrap_or(at),
            },
            _ => {
                self.clock = Some((snapshot.agent_run, snapshot.uptime, seems));
                seems
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Counters, Length, Listener};
    use super::*;
    use headroom_units::Seconds;
    use proptest::prelude::*;

    fn sample(epoch: u64, enqueued: u64) -> QueueSample {
        QueueSample {
            method: QueueMethod::Ebpf,
            at: Instant::now(),
            epoch,
            port: Counters {
                enqueued: Some(enqueued),
                accepts: Some(enqueued),
                drops: Some(0),
                ..Counters::default()
            },
            server: Counters::default(),
            machine: Counters::default(),
            length: Some(Length { now: 2, limit: 8 }),
            seen: Some(AtArrival {
                arrivals: enqueued,
                sum: 3 * enqueued,
                longest: 4,
            }),
            cpu_busy: None,
            connections: None,
            loops_busy: None,
            listeners: vec![Listener {
                address: "127.0.0.1:80".parse().unwrap(),
                cookie: 9,
                length: Length { now: 2, limit: 8 },
                drops: Some(0),
                enqueued: Some(enqueued),
            }],
        }
    }

    fn snapshot(
        run: u64,
        meter: u64,
        uptime_ms: u64,
        sampled: &Result<QueueSample, QueueError>,
    ) -> QueueSnapshot {
        QueueSnapshot {
            number: 1,
            agent_run: run,
            uptime: Duration::from_millis(uptime_ms),
            age: Duration::from_millis(1),
            shown: reported(sampled, meter, 4, None),
            group: None,
        }
    }

    #[test]
    fn a_step_is_as_long_as_the_agents_clock_says_however_late_its_ends_came() {
        let mut reader = SnapshotReader::new(80);
        let received = Instant::now();
        let first = reader
            .read(snapshot(1, 1, 5_000, &Ok(sample(0, 10))), received)
            .unwrap();
        // It took the network three seconds.
        let late = received + Duration::from_secs(4);
        let second = reader
            .read(snapshot(1, 1, 6_000, &Ok(sample(0, 110))), late)
            .unwrap();
        let period = second.since(&first).unwrap();
        assert_eq!(period.duration, Seconds::new(1.0));
        assert_eq!(
            (period.port.accepts, period.seen_mean, period.seen_longest),
            (Some(100), Some(3.0), Some(4))
        );
        let here = QueueSample {
            at: second.at,
            ..sample(0, 110)
        };
        assert_eq!(second, here, "nothing is lost on the way");
    }

    #[test]
    fn another_run_another_meter_another_epoch_and_a_lost_connection_are_no_step() {
        let mut reader = SnapshotReader::new(80);
        let now = Instant::now();
        let mut before = reader
            .read(snapshot(1, 1, 1_000, &Ok(sample(0, 10))), now)
            .unwrap();
        for (run, meter, epoch) in [(1, 1, 1), (1, 2, 0), (2, 2, 0), (1, 2, 0)] {
            let after = reader
                .read(snapshot(run, meter, 2_000, &Ok(sample(epoch, 90))), now)
                .unwrap();
            assert_ne!(after.epoch, before.epoch, "{run} {meter} {epoch}");
            before = after;
        }
        reader.interrupted();
        let after = reader
            .read(snapshot(1, 2, 3_000, &Ok(sample(0, 95))), now)
            .unwrap();
        assert_ne!(after.epoch, before.epoch);
        let next = reader
            .read(snapshot(1, 2, 4_000, &Ok(sample(0, 99))), now)
            .unwrap();
        assert_eq!(next.since(&after).unwrap().port.accepts, Some(4));
    }

    #[test]
    fn nobody_and_unavailable_are_different_errors() {
        let mut reader = SnapshotReader::new(80);
        let nobody = Err(QueueError::NobodyListens {
            port: 80,
            others: "somebody on 22".into(),
        });
        let now = Instant::now();
        let error = reader.read(snapshot(1, 1, 0, &nobody), now).unwrap_err();
        assert!(
            matches!(&error, QueueError::NobodyListens { port: 80, others } if others == "somebody on 22"),
            "{error}"
        );
        let refused = Err(QueueError::Refused {
            doing: "load it".into(),
            cause: "no".into(),
            remedy: "run as root".into(),
        });
        let error = reader.read(snapshot(1, 1, 0, &refused), now).unwrap_err();
        assert_eq!(error.to_string(), "cannot load it: no; run as root");
    }

    #[test]
    fn a_request_without_methods_leaves_them_to_the_agent() {
        assert_eq!(methods_of(&[]), QueuePreference::Auto);
        let order = methods_of(&[WireMethod::Snmp, WireMethod::Kernel]).order();
        assert_eq!(order, [QueueMethod::Snmp, QueueMethod::Kernel]);
        assert_eq!(QueueMethod::Status.through_agent(), None);
    }

    proptest! {
        #[test]
        fn whatever_an_agent_says_nothing_panics_and_no_step_is_negative(
            snapshots in proptest::collection::vec((0..3u64, 0..3u64, any::<u64>(), any::<u64>(), 0..=1u64 << 53), 1..30),
        ) {
            let mut reader = SnapshotReader::new(80);
            let now = Instant::now();
            let mut before: Option<QueueSample> = None;
            for (run, meter, uptime_us, age_us, count) in snapshots {
                let reported = QueueSnapshot {
                    uptime: Duration::from_micros(uptime_us),
                    age: Duration::from_micros(age_us),
                    ..snapshot(run, meter, 0, &Ok(sample(0, 0)))
                };
                let mut read = reader.read(reported, now).unwrap();
                read.port.enqueued = Some(count);
                if let Some(period) = before.as_ref().and_then(|before| read.since(before).ok()) {
                    prop_assert!(period.duration > Seconds::ZERO);
                }
                before = Some(read);
            }
        }
    }
}
