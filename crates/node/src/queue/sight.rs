//! A queue of another machine: what its agent tells of it, as samples of this process, and what an agent tells.

use super::{AtArrival, QueueError, QueueMethod, QueuePreference, QueueSample};
use crate::order::Order;
use headroom_units::Ratio;
use headroom_wire::message::{QueueMethod as Told, QueueSample as ToldSample, QueueShown, QueueSnapshot};
use std::time::{Duration, Instant};

impl From<Told> for QueueMethod {
    fn from(told: Told) -> Self {
        match told {
            Told::Ebpf => Self::Ebpf,
            Told::Kernel => Self::Kernel,
            Told::Tools => Self::Tools,
            Told::Snmp => Self::Snmp,
        }
    }
}

impl QueueMethod {
    /// What an agent calls it; `None` for a status page, which is asked for over HTTP and not through an agent.
    pub const fn through_agent(self) -> Option<Told> {
        match self {
            Self::Ebpf => Some(Told::Ebpf),
            Self::Kernel => Some(Told::Kernel),
            Self::Tools => Some(Told::Tools),
            Self::Snmp => Some(Told::Snmp),
            Self::Status => None,
        }
    }
}

/// The preference that a request names: the agent's own where it names none.
pub(crate) fn methods_of(told: &[Told]) -> QueuePreference {
    let methods: Vec<QueueMethod> = told.iter().copied().map(QueueMethod::from).collect();
    // None, or one twice, which a request is refused for, is no order.
    Order::new(&methods).map_or(QueuePreference::Auto, QueuePreference::Ordered)
}

/// What a look showed, as it is told; `longest` and `cpu_busy` are since whoever is told was told last.
pub(crate) fn told(
    looked: &Result<QueueSample, QueueError>,
    meter: u64,
    longest: u64,
    cpu_busy: Option<Ratio>,
) -> QueueShown {
    let sample = match looked {
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
    QueueShown::Sample(Box::new(ToldSample {
        method,
        meter,
        epoch: sample.epoch,
        port: sample.port,
        server: sample.server,
        machine: sample.machine,
        length: sample.length,
        at_arrival: sample.seen.map(|seen| AtArrival { longest, ..seen }),
        cpu_busy,
        listeners: sample.listeners.clone(),
    }))
}

/// Makes the sights of one port that an agent tells this process's samples.
///
/// The time between two samples is the agent's, so that what the network does to the messages changes no rate. A new run
/// of the agent, a new meter and an [interruption](Self::interrupted) are new epochs.
#[derive(Debug)]
pub struct SightReader {
    port: u16,
    epoch: u64,
    /// Whose counters those of the last sample were: run, meter and epoch.
    of: Option<(u64, u64, u64)>,
    /// A moment of the agent's clock, and of ours; of which run.
    clock: Option<(u64, Duration, Instant)>,
}

impl SightReader {
    /// Of a port; nothing was told yet.
    pub const fn new(port: u16) -> Self {
        Self {
            port,
            epoch: 0,
            of: None,
            clock: None,
        }
    }

    /// The connection was lost: nothing will be said of the time until the next sight.
    pub fn interrupted(&mut self) {
        self.epoch += 1;
        self.of = None;
        self.clock = None;
    }

    /// Takes a sight that came just now.
    ///
    /// # Errors
    /// What the agent told instead of a sample: [`QueueError::NobodyListens`], [`QueueError::Elsewhere`].
    pub fn read(&mut self, sight: QueueSnapshot, received: Instant) -> Result<QueueSample, QueueError> {
        let at = self.at(&sight, received);
        let told = match sight.shown {
            QueueShown::Sample(told) => *told,
            QueueShown::Nobody { others } => {
                return Err(QueueError::NobodyListens {
                    port: self.port,
                    others,
                });
            }
            QueueShown::Unavailable { why } => return Err(QueueError::Elsewhere { why }),
        };
        let of = (sight.agent_run, told.meter, told.epoch);
        if self.of.replace(of).is_some_and(|before| before != of) {
            self.epoch += 1;
        }
        Ok(QueueSample {
            method: told.method.into(),
            at,
            epoch: self.epoch,
            port: told.port,
            server: told.server,
            machine: told.machine,
            length: told.length,
            seen: told.at_arrival,
            cpu_busy: told.cpu_busy,
            listeners: told.listeners,
        })
    }

    /// When a sight was taken, by our clock: of the first as it seems here, of the others by the agent's clock from there.
    fn at(&mut self, sight: &QueueSnapshot, received: Instant) -> Instant {
        let seems = received.checked_sub(sight.age).unwrap_or(received);
        match self.clock {
            Some((run, uptime, at)) if run == sight.agent_run => match sight.uptime.checked_sub(uptime) {
                Some(later) => at.checked_add(later).unwrap_or(seems),
                None => at.checked_sub(uptime.abs_diff(sight.uptime)).unwrap_or(at),
            },
            _ => {
                self.clock = Some((sight.agent_run, sight.uptime, seems));
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
            listeners: vec![Listener {
                address: "127.0.0.1:80".parse().unwrap(),
                cookie: 9,
                length: Length { now: 2, limit: 8 },
                drops: Some(0),
                enqueued: Some(enqueued),
            }],
        }
    }

    fn sight(
        run: u64,
        meter: u64,
        uptime_ms: u64,
        looked: &Result<QueueSample, QueueError>,
    ) -> QueueSnapshot {
        QueueSnapshot {
            number: 1,
            agent_run: run,
            uptime: Duration::from_millis(uptime_ms),
            age: Duration::from_millis(1),
            shown: told(looked, meter, 4, None),
            group: None,
        }
    }

    #[test]
    fn a_step_is_as_long_as_the_agents_clock_says_however_late_its_ends_came() {
        let mut reader = SightReader::new(80);
        let received = Instant::now();
        let first = reader
            .read(sight(1, 1, 5_000, &Ok(sample(0, 10))), received)
            .unwrap();
        // It took the network three seconds.
        let late = received + Duration::from_secs(4);
        let second = reader
            .read(sight(1, 1, 6_000, &Ok(sample(0, 110))), late)
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
        let mut reader = SightReader::new(80);
        let now = Instant::now();
        let mut before = reader.read(sight(1, 1, 1_000, &Ok(sample(0, 10))), now).unwrap();
        for (run, meter, epoch) in [(1, 1, 1), (1, 2, 0), (2, 2, 0), (1, 2, 0)] {
            let after = reader
                .read(sight(run, meter, 2_000, &Ok(sample(epoch, 90))), now)
                .unwrap();
            assert_ne!(after.epoch, before.epoch, "{run} {meter} {epoch}");
            before = after;
        }
        reader.interrupted();
        let after = reader.read(sight(1, 2, 3_000, &Ok(sample(0, 95))), now).unwrap();
        assert_ne!(after.epoch, before.epoch);
        let next = reader.read(sight(1, 2, 4_000, &Ok(sample(0, 99))), now).unwrap();
        assert_eq!(next.since(&after).unwrap().port.accepts, Some(4));
    }

    #[test]
    fn nobody_and_unavailable_are_told_apart() {
        let mut reader = SightReader::new(80);
        let nobody = Err(QueueError::NobodyListens {
            port: 80,
            others: "somebody on 22".into(),
        });
        let now = Instant::now();
        let error = reader.read(sight(1, 1, 0, &nobody), now).unwrap_err();
        assert!(
            matches!(&error, QueueError::NobodyListens { port: 80, others } if others == "somebody on 22"),
            "{error}"
        );
        let refused = Err(QueueError::Refused {
            doing: "load it".into(),
            cause: "no".into(),
            remedy: "run as root".into(),
        });
        let error = reader.read(sight(1, 1, 0, &refused), now).unwrap_err();
        assert_eq!(error.to_string(), "cannot load it: no; run as root");
    }

    #[test]
    fn a_request_without_methods_leaves_them_to_the_agent() {
        assert_eq!(methods_of(&[]), QueuePreference::Auto);
        let order = methods_of(&[Told::Snmp, Told::Kernel]).order();
        assert_eq!(order, [QueueMethod::Snmp, QueueMethod::Kernel]);
        assert_eq!(QueueMethod::Status.through_agent(), None);
    }

    proptest! {
        #[test]
        fn whatever_an_agent_says_nothing_panics_and_no_step_is_negative(
            sights in proptest::collection::vec((0..3u64, 0..3u64, any::<u64>(), any::<u64>(), 0..=1u64 << 53), 1..30),
        ) {
            let mut reader = SightReader::new(80);
            let now = Instant::now();
            let mut before: Option<QueueSample> = None;
            for (run, meter, uptime_us, age_us, count) in sights {
                let told = QueueSnapshot {
                    uptime: Duration::from_micros(uptime_us),
                    age: Duration::from_micros(age_us),
                    ..sight(run, meter, 0, &Ok(sample(0, 0)))
                };
                let mut read = reader.read(told, now).unwrap();
                read.port.enqueued = Some(count);
                if let Some(period) = before.as_ref().and_then(|before| read.since(before).ok()) {
                    prop_assert!(period.duration > Seconds::ZERO);
                }
                before = Some(read);
            }
        }
    }
}
