//! The servers' accept queues, and their capacities by them.

use super::queue_sampler::QueueSampler;
use crate::cluster::AgentQueue;
use crate::queue_sample::{UsedSockets, observation, sampling_period};
use headroom_control::OutOfRange;
use headroom_control::capacity::{
    BusyTimeMonitor, Estimate, ListenerSample, QueueKind, QueueMonitor, QueueObservation, QueueTuning, Step,
    StepMeter, Unusable,
};
use headroom_node::queue::{
    QueueError, QueueMeter, QueueMethod, QueueOptions, QueuePreference, QueueSample, choose,
};
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};

/// For how long an agent's first word is waited for at the start.
const FIRST_WORD: Duration = Duration::from_secs(3);

/// Counts of one sampling step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Attempts to enter the queue.
    pub arrivals: f64,
    /// Connections accepted.
    pub accepts: f64,
    /// Attempts dropped.
    pub drops: f64,
    /// How long the step was, in seconds.
    pub length_s: f64,
    /// Connections in the queue, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    /// Connections that it has places for, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<f64>,
    /// Connections that were accepted and are not answered, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<f64>,
    /// Connections that were accepted and answered and are open still, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<f64>,
}

impl Counted {
    /// The arrival rate.
    pub fn arrival_rate(&self) -> f64 {
        if self.length_s > 0.0 {
            self.arrivals / self.length_s
        } else {
            0.0
        }
    }
}

/// What a queue showed in one sampling step.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// It was counted.
    Counted(Counted),
    /// Nobody listens: nothing can arrive.
    Nobody,
    /// It is not known, and why.
    Unknown(String),
}

/// Where a queue's counters come from.
pub enum Source {
    /// This machine; the meter is opened when somebody listens.
    Here {
        /// The port.
        port: u16,
        /// How it is measured.
        preference: QueuePreference,
        /// The meter, once it is open.
        meter: Option<Box<dyn QueueMeter>>,
    },
    /// The machine of an agent, which has the meter.
    Elsewhere(AgentQueue),
}

impl Source {
    /// A sample of the queue.
    ///
    /// # Errors
    /// As the meter's; none that can be opened.
    pub fn sample(&mut self) -> Result<QueueSample, QueueError> {
        let (port, preference, slot) = match self {
            Self::Elsewhere(queue) => return queue.sample(),
            Self::Here {
                port,
                preference,
                meter,
            } => (*port, distinguishing(*preference), meter),
        };
        if let Some(meter) = slot {
            return meter.sample();
        }
        let (mut meter, choice) = choose(preference, &QueueOptions::new(port))?;
        tracing::info!(port, "{choice}");
        let sample = meter.sample();
        *slot = Some(meter);
        sample
    }
}

/// Where a queue is.
enum Place {
    Here(u16),
    Elsewhere(Box<AgentQueue>),
}

/// What samples a queue, and estimates.
enum Sampling {
    /// The controller's loop, once a period.
    Period {
        source: Box<Source>,
        monitor: Option<Box<QueueMonitor>>,
    },
    /// A thread, many times a period.
    Many { sampler: QueueSampler, every: Duration },
}

/// One server's accept queue.
pub struct Queue {
    place: Place,
    sampling: Sampling,
    tuning: QueueTuning,
    meter: StepMeter,
    known: UsedSockets,
    /// When the newest observation was made.
    observed: Instant,
    estimate: Option<Estimate>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("place", &self.place())
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// The queue of a port of this machine. It is opened when somebody listens there.
    ///
    /// # Errors
    /// Where a thread that sampling cannot be started.
    pub fn new(port: u16, preference: QueuePreference, tuning: QueueTuning) -> io::Result<Self> {
        let source = Source::Here {
            port,
            preference,
            meter: None,
        };
        Self::at(Place::Here(port), source, tuning, Duration::ZERO)
    }

    /// A queue that an agent watches, which tells a sight of it once in this time. While nothing new comes from there,
    /// nothing is known of it.
    ///
    /// # Errors
    /// Where a thread that sampling cannot be started.
    pub fn elsewhere(queue: AgentQueue, told_every: Duration, tuning: QueueTuning) -> io::Result<Self> {
        let source = Source::Elsewhere(queue.clone());
        Self::at(Place::Elsewhere(Box::new(queue)), source, tuning, told_every)
    }

    fn at(place: Place, source: Source, tuning: QueueTuning, least: Duration) -> io::Result<Self> {
        let sampling = match tuning.kind {
            QueueKind::Published => Sampling::Period {
                source: Box::new(source),
                monitor: None,
            },
            QueueKind::BusyTime => {
                let every = sampling_period(Duration::from_secs_f64(tuning.sampling_period_s)).max(least);
                let mut source = source;
                let sampler = QueueSampler::start(move || source.sample(), every)?;
                Sampling::Many { sampler, every }
            }
        };
        Ok(Self {
            place,
            sampling,
            tuning,
            meter: StepMeter::new(&tuning),
            known: UsedSockets::default(),
            observed: Instant::now(),
            estimate: None,
        })
    }

    /// What is heard of it first. An agent that says nothing is waited for a moment.
    fn first_word(&mut self) -> Option<Result<(), QueueError>> {
        Some(match (&self.place, &mut self.sampling) {
            (Place::Elsewhere(queue), _) => queue.first_word(FIRST_WORD).map(|_| ()),
            (Place::Here(_), Sampling::Period { source, .. }) => source.sample().map(|_| ()),
            (Place::Here(_), Sampling::Many { sampler, .. }) => sampler.first(FIRST_WORD)?.map(|_| ()),
        })
    }

    /// Whether somebody is known to listen there.
    pub fn is_heard(&mut self) -> bool {
        matches!(self.first_word(), Some(Ok(())))
    }

    /// Whether nobody listens there.
    pub fn is_unheard(&mut self) -> bool {
        matches!(self.first_word(), Some(Err(QueueError::NobodyListens { .. })))
    }

    /// Why the queue cannot be measured at all, where that is known: what a start says.
    pub fn obstacle(&mut self) -> Option<String> {
        match self.first_word()? {
            Err(error @ (QueueError::Unavailable { .. } | QueueError::Elsewhere { .. })) => {
                Some(error.to_string())
            }
            _ => None,
        }
    }

    /// What is watched, in words.
    pub fn place(&self) -> String {
        let place = match &self.place {
            Place::Here(port) => format!("port {port} of this machine"),
            Place::Elsewhere(queue) => queue.place(),
        };
        match &self.sampling {
            Sampling::Period { .. } => place,
            Sampling::Many { every, .. } => format!("{place}, sampled every {} ms", every.as_millis()),
        }
    }

    /// Takes one sampling step; `serving` says whether the server takes requests, so that its capacity is estimated.
    pub fn step(&mut self, serving: bool) -> Shown {
        let sampled = match &mut self.sampling {
            Sampling::Period { source, .. } => Some(source.sample()),
            Sampling::Many { sampler, .. } => sampler.take(),
        };
        let at = match &sampled {
            Some(Ok(sample)) => sample.at,
            _ => Instant::now(),
        };
        let accepted = match &sampled {
            Some(Ok(sample)) => sample.connections,
            _ => None,
        };
        let length = Seconds::from(at.saturating_duration_since(self.observed));
        self.observed = self.observed.max(at);
        let step = match sampled {
            Some(sampled) => self.measure(length, &sampled),
            None => {
                let why = "the queue was not sampled since the period before: this machine is too busy, or a sample hangs";
                self.unread(length, why.to_owned())
            }
        };
        let shown = match &step {
            Ok(step) => Shown::Counted(Counted {
                arrivals: step.arrivals,
                accepts: step.accepts,
                drops: step.drops,
                length_s: step.length.get(),
                waiting: step.queue_mean,
                places: Some(step.limit),
                working: accepted.map(|found| (found.silent + found.slow + found.working) as f64),
                kept: accepted.map(|found| found.kept as f64),
            }),
            Err(shown) => shown.clone(),
        };
        match &mut self.sampling {
            Sampling::Many { sampler, .. } => {
                let hold = Duration::from_secs_f64(self.tuning.hold_s + self.tuning.sampling_period_s);
                self.estimate = sampler.estimate(serving, hold);
            }
            Sampling::Period { monitor, .. } => {
                if let Some(monitor) = monitor.as_mut().filter(|_| serving) {
                    self.estimate = Some(match step {
                        Ok(step) => monitor.step(&step),
                        Err(shown) => {
                            let sample = match shown {
                                Shown::Nobody => ListenerSample::Nobody,
                                _ => ListenerSample::Unread,
                            };
                            monitor.observe(&QueueObservation { length, sample })
                        }
                    });
                }
            }
        }
        shown
    }

    /// The step that ends with a sample, or what there is instead.
    fn measure(&mut self, length: Seconds, sampled: &Result<QueueSample, QueueError>) -> Result<Step, Shown> {
        match sampled {
            Ok(QueueSample { method, port, .. }) if port.arrivals().zip(port.accepts).is_none() => {
                let why = format!(
                    "{method} does not count by port, so it cannot tell the servers of one machine apart: use method = \
                     \"ebpf\""
                );
                return self.unread(length, why);
            }
            Ok(_) | Err(QueueError::NobodyListens { .. }) => {}
            Err(error) => return self.unread(length, error.to_string()),
        }
        let observation = observation(length, sampled, &mut self.known);
        self.meter.take(&observation).map_err(|unusable| match unusable {
            Unusable::Nobody => Shown::Nobody,
            other => Shown::Unknown(other.to_string()),
        })
    }

    /// A step in which nothing was read: the next one covers it.
    fn unread(&mut self, length: Seconds, why: String) -> Result<Step, Shown> {
        // It has no step to give.
        let _ = self.meter.take(&QueueObservation {
            length,
            sample: ListenerSample::Unread,
        });
        Err(Shown::Unknown(why))
    }

    /// How its capacity is estimated.
    pub const fn kind(&self) -> QueueKind {
        self.tuning.kind
    }

    /// The capacity as it was last estimated, and why; `None` before.
    pub const fn estimate(&self) -> Option<&Estimate> {
        self.estimate.as_ref()
    }

    /// The server joins: the published estimator starts with what the others know exactly, ours with nothing.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn join(&mut self, peers: Option<PerSecond>) -> Result<(), OutOfRange> {
        let tuning = self.tuning;
        match &mut self.sampling {
            Sampling::Many { sampler, .. } => {
                sampler.join(BusyTimeMonitor::new(tuning)?);
            }
            Sampling::Period { monitor: Some(_), .. } => {}
            Sampling::Period { monitor, .. } => {
                *monitor = Some(Box::new(QueueMonitor::joining(tuning, peers)?));
            }
        }
        Ok(())
    }

    /// The server is gone: what was known of it is of no use to the next that listens there.
    pub fn forget(&mut self) {
        match &mut self.sampling {
            Sampling::Many { sampler, .. } => sampler.forget(),
            Sampling::Period { monitor, .. } => *monitor = None,
        }
        self.estimate = None;
    }
}

/// Of the servers of one machine, only a method that counts by port can tell one from another.
pub fn distinguishing(preference: QueuePreference) -> QueuePreference {
    match preference {
        QueuePreference::Auto => QueuePreference::one(QueueMethod::Ebpf),
        given @ QueuePreference::Ordered(_) => given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread::JoinHandle;

    /// A listener, its port's queue with this way to estimate, and the thread that takes so many connections; `None`
    /// where queues cannot be measured.
    fn served(kind: QueueKind, connections: usize) -> Option<(Queue, SocketAddr, JoinHandle<TcpListener>)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tuning = QueueTuning {
            kind,
            ..QueueTuning::default()
        };
        let mut queue = Queue::new(address.port(), QueuePreference::Auto, tuning).unwrap();
        if let Some(why) = queue.obstacle() {
            println!("skipped: {why}");
            return None;
        }
        queue.join(None).unwrap();
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1]);
            }
            listener
        });
        Some((queue, address, server))
    }

    /// Steps until one shows this.
    fn until(queue: &mut Queue, mut shows: impl FnMut(&Shown) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let shown = queue.step(true);
            if shows(&shown) {
                return;
            }
            assert!(Instant::now() < deadline, "waited in vain: {shown:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn arrivals_are_counted_and_a_listener_that_goes_is_nobody() {
        for kind in [QueueKind::Published, QueueKind::BusyTime] {
            let Some((mut queue, address, server)) = served(kind, 20) else {
                return;
            };
            until(&mut queue, |shown| matches!(shown, Shown::Counted(_)));
            for _ in 0..20 {
                TcpStream::connect(address).unwrap().write_all(b"x").unwrap();
            }
            let listener = server.join().unwrap();
            let mut counted = [0.0; 3];
            until(&mut queue, |shown| {
                if let Shown::Counted(step) = shown {
                    let step = [step.arrivals, step.accepts, step.drops];
                    counted = std::array::from_fn(|at| counted[at] + step[at]);
                }
                counted == [20.0, 20.0, 0.0]
            });
            drop(listener);
            until(&mut queue, |shown| *shown == Shown::Nobody);
            queue.forget();
            assert_eq!(queue.estimate(), None);
        }
    }

    #[test]
    fn a_step_is_made_of_what_is_counted_by_port_alone_and_of_what_can_be() {
        use headroom_node::queue::{Counters, Length};
        let tuning = QueueTuning {
            queue_limit: Some(128),
            ..QueueTuning::default()
        };
        let sample = |[enqueued, accepts, drops]: [u64; 3], port: bool| {
            let counters = Counters {
                enqueued: Some(enqueued),
                accepts: Some(accepts),
                drops: Some(drops),
                ..Counters::default()
            };
            let none = Counters::default();
            let (own, machine) = if port { (counters, none) } else { (none, counters) };
            Ok(QueueSample {
                method: QueueMethod::Ebpf,
                at: Instant::now(),
                epoch: 0,
                port: own,
                server: Counters::default(),
                machine,
                length: Some(Length { now: 4, limit: 128 }),
                seen: None,
                cpu_busy: None,
                connections: None,
                loops_busy: None,
                listeners: Vec::new(),
            })
        };
        // The second sample comes so long after the first.
        let measured = |length_s: f64, first, second| {
            let mut queue = Queue::new(1, QueuePreference::Auto, tuning).unwrap();
            let start = queue.measure(Seconds::new(1.0), &first);
            assert!(start.is_err());
            queue.measure(Seconds::new(length_s), &second)
        };
        let why = |measured: Result<Step, Shown>| match measured {
            Err(Shown::Unknown(why)) => why,
            other => panic!("{other:?}"),
        };
        let period_s = tuning.sampling_period_s;
        let start = sample([0; 3], true);
        let step = measured(period_s, start, sample([100, 100, 10], true)).unwrap();
        assert_eq!(
            (step.limit, step.queue_mean, step.arrivals),
            (128.0, Some(4.0), 110.0)
        );
        for (length_s, first, second, said) in [
            (period_s, [100; 3], [50; 3], "started anew"),
            (period_s, [0; 3], [50_000_000, 50_000_000, 0], "jumped"),
            // The two checks that were of `headroom capacity` alone.
            (period_s, [0; 3], [100, 50, 0], "cannot have grown"),
            (period_s * 20.0, [0; 3], [100, 100, 0], "comparing anew"),
        ] {
            let why = why(measured(length_s, sample(first, true), sample(second, true)));
            assert!(why.contains(said), "{said}: {why}");
        }
        let why = why(measured(period_s, sample([0; 3], false), sample([100; 3], false)));
        assert!(why.contains("ebpf"), "{why}");
    }
}
