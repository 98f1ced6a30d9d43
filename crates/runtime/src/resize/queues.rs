//! The servers' accept queues, and their capacities by them.

use super::lookout::Lookout;
use crate::cluster::AgentQueue;
use crate::looks::look_period;
use headroom_control::OutOfRange;
use headroom_control::capacity::{
    BusyTimeMonitor, Capacity, Estimate, QueueKind, QueueMonitor, QueueObservation, QueueTuning, Sight, Step,
};
use headroom_control::decision::Reason;
use headroom_node::queue::{
    Counters, QueueError, QueueMeter, QueueMethod, QueueOptions, QueuePreference, QueueSample, choose,
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
    /// A look at the queue.
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

/// Who looks at a queue, and estimates.
enum Looks {
    /// The controller's loop, once a period.
    Period {
        source: Box<Source>,
        monitor: Option<Box<QueueMonitor>>,
    },
    /// A thread, many times a period.
    Many { lookout: Lookout, every: Duration },
}

/// One server's accept queue.
pub struct Queue {
    place: Place,
    looks: Looks,
    tuning: QueueTuning,
    before: Option<QueueSample>,
    looked: Instant,
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
    /// Where a thread that looks cannot be started.
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
    /// Where a thread that looks cannot be started.
    pub fn elsewhere(queue: AgentQueue, told_every: Duration, tuning: QueueTuning) -> io::Result<Self> {
        let source = Source::Elsewhere(queue.clone());
        Self::at(Place::Elsewhere(Box::new(queue)), source, tuning, told_every)
    }

    fn at(place: Place, source: Source, tuning: QueueTuning, least: Duration) -> io::Result<Self> {
        let looks = match tuning.kind {
            QueueKind::Published => Looks::Period {
                source: Box::new(source),
                monitor: None,
            },
            QueueKind::BusyTime => {
                let every = look_period(Duration::from_secs_f64(tuning.sampling_period_s)).max(least);
                let mut source = source;
                let lookout = Lookout::start(move || source.sample(), every)?;
                Looks::Many { lookout, every }
            }
        };
        Ok(Self {
            place,
            looks,
            tuning,
            before: None,
            looked: Instant::now(),
            estimate: None,
        })
    }

    /// Why the queue cannot be measured at all, where that is known: what a start says. An agent that says nothing is
    /// waited for a moment.
    pub fn obstacle(&mut self) -> Option<String> {
        let seen = match (&self.place, &mut self.looks) {
            (Place::Elsewhere(queue), _) => queue.first_word(FIRST_WORD).map(|_| ()),
            (Place::Here(_), Looks::Period { source, .. }) => source.sample().map(|_| ()),
            (Place::Here(_), Looks::Many { lookout, .. }) => lookout.first(FIRST_WORD)?.map(|_| ()),
        };
        match seen {
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
        match &self.looks {
            Looks::Period { .. } => place,
            Looks::Many { every, .. } => format!("{place}, looked at every {} ms", every.as_millis()),
        }
    }

    /// Takes one sampling step; `serving` says whether the server takes requests, so that its capacity is estimated.
    pub fn step(&mut self, serving: bool) -> Shown {
        let now = Instant::now();
        let length = Seconds::from(now.duration_since(std::mem::replace(&mut self.looked, now)));
        let sampled = match &mut self.looks {
            Looks::Period { source, .. } => Some(source.sample()),
            Looks::Many { lookout, .. } => lookout.take(),
        };
        let (step, shown) = match &sampled {
            Some(Ok(sample)) => match counted(self.before.as_ref(), sample, &self.tuning) {
                Ok((step, counted)) => (Ok(step), Shown::Counted(counted)),
                Err(why) => (Err(Sight::Unread), Shown::Unknown(why)),
            },
            Some(Err(QueueError::NobodyListens { .. })) => (Err(Sight::Nobody), Shown::Nobody),
            Some(Err(error)) => (Err(Sight::Unread), Shown::Unknown(error.to_string())),
            None => {
                let why = "nobody has looked at the queue since the period before: this machine is too busy, or a look hangs";
                (Err(Sight::Unread), Shown::Unknown(why.to_owned()))
            }
        };
        if let Some(sampled) = sampled {
            self.before = sampled.ok();
        }
        match &mut self.looks {
            Looks::Many { lookout, .. } => {
                let hold = Duration::from_secs_f64(self.tuning.hold_s + self.tuning.sampling_period_s);
                self.estimate = lookout.estimate(serving, hold);
            }
            Looks::Period { monitor, .. } => {
                if let Some(monitor) = monitor.as_mut().filter(|_| serving) {
                    self.estimate = Some(match step {
                        Ok(step) => monitor.step(&step),
                        Err(sight) => monitor.observe(&QueueObservation { length, sight }),
                    });
                }
            }
        }
        shown
    }

    /// The capacity as it was last estimated, and why.
    pub fn capacity(&self) -> (Capacity, Option<&Reason>) {
        match &self.estimate {
            Some(estimate) => (estimate.capacity, Some(&estimate.reason)),
            None => (Capacity::Unknown, None),
        }
    }

    /// The server joins: its estimator starts with what the others know exactly, or with nothing.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn join(&mut self, peers: Option<PerSecond>) -> Result<(), OutOfRange> {
        let tuning = self.tuning;
        match &mut self.looks {
            Looks::Many { lookout, .. } => {
                let joining = peers.and_then(|peers| BusyTimeMonitor::joining(tuning, peers).ok());
                lookout.join(match joining {
                    Some(monitor) => monitor,
                    None => BusyTimeMonitor::new(tuning)?,
                });
            }
            Looks::Period { monitor: Some(_), .. } => {}
            Looks::Period { monitor, .. } => {
                let joining = peers.and_then(|peers| QueueMonitor::joining(tuning, peers).ok());
                *monitor = Some(Box::new(match joining {
                    Some(monitor) => monitor,
                    None => QueueMonitor::new(tuning)?,
                }));
            }
        }
        Ok(())
    }

    /// The server is gone: what was known of it is of no use to the next that listens there.
    pub fn forget(&mut self) {
        match &mut self.looks {
            Looks::Many { lookout, .. } => lookout.forget(),
            Looks::Period { monitor, .. } => *monitor = None,
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

/// The step between two samples; why there is none.
fn counted(
    before: Option<&QueueSample>,
    sample: &QueueSample,
    tuning: &QueueTuning,
) -> Result<(Step, Counted), String> {
    let before = before.ok_or("the first sample: counters say something from the second on")?;
    let period = sample.since(before).map_err(|error| error.to_string())?;
    let told = |of: &Counters| of.arrivals().is_some() && of.accepts.is_some();
    if told(&before.port) && told(&sample.port) && !told(&period.port) {
        return Err("a counter went back: nothing is known of this period".to_owned());
    }
    let Counters {
        enqueued: Some(enqueued),
        accepts: Some(accepts),
        drops: Some(drops),
        ..
    } = period.port
    else {
        return Err(format!(
            "{} does not count by port, so it cannot tell the servers of one machine apart: use method = \"ebpf\"",
            sample.method
        ));
    };
    let counted = Counted {
        arrivals: (enqueued + drops) as f64,
        accepts: accepts as f64,
        drops: drops as f64,
        length_s: period.duration.get(),
    };
    let ends = before.length.zip(sample.length);
    let at_the_ends = ends.map(|(then, now)| (then.now + now.now) as f64 / 2.0);
    if counted.arrivals > tuning.most_per_s * counted.length_s {
        return Err(format!(
            "{} arrivals in {:.3} s are more than most_per_s allows: the counter jumped",
            counted.arrivals, counted.length_s
        ));
    }
    let given = tuning.queue_limit.map(u64::from);
    let limit = given
        .or_else(|| sample.places())
        .ok_or("the queue's limit is not known: set queue_limit")?;
    let step = Step {
        length: period.duration,
        limit: limit as f64,
        queue_mean: period.seen_mean.or(at_the_ends),
        arrivals: counted.arrivals,
        accepts: counted.accepts,
        drops: counted.drops,
        // A sample a period does not tell for how long somebody waited.
        busy: None,
    };
    Ok((step, counted))
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
            assert_eq!(queue.capacity().0, Capacity::Unknown);
        }
    }

    #[test]
    fn a_step_is_made_of_what_is_counted_by_port_alone() {
        let sample = |at: Instant, enqueued: u64, port: bool| {
            let counters = Counters {
                enqueued: Some(enqueued),
                accepts: Some(enqueued),
                drops: Some(enqueued / 10),
                ..Counters::default()
            };
            let (own, all) = if port {
                (counters, Counters::default())
            } else {
                (Counters::default(), counters)
            };
            QueueSample {
                method: QueueMethod::Ebpf,
                at,
                epoch: 0,
                port: own,
                server: Counters::default(),
                machine: all,
                length: Some(headroom_node::queue::Length { now: 4, limit: 128 }),
                seen: None,
                cpu_busy: None,
                listeners: Vec::new(),
            }
        };
        let given = QueueTuning {
            queue_limit: Some(128),
            ..QueueTuning::default()
        };
        let counted = |before: Option<&QueueSample>, sample: &QueueSample| counted(before, sample, &given);
        let then = Instant::now();
        let now = then + Duration::from_secs(2);
        let (step, told) = counted(Some(&sample(then, 0, true)), &sample(now, 100, true)).unwrap();
        assert_eq!(
            (step.limit, step.queue_mean, step.arrivals),
            (128.0, Some(4.0), 110.0)
        );
        assert_eq!((told.drops, told.arrival_rate()), (10.0, 55.0));
        let error = counted(Some(&sample(then, 100, true)), &sample(now, 50, true)).unwrap_err();
        assert!(error.contains("went back"), "{error}");
        let error = counted(Some(&sample(then, 0, false)), &sample(now, 100, false)).unwrap_err();
        assert!(error.contains("ebpf"), "{error}");
        let error = counted(Some(&sample(then, 0, true)), &sample(now, 5_000_000, true)).unwrap_err();
        assert!(error.contains("most_per_s"), "{error}");
        assert!(
            counted(None, &sample(now, 1, true))
                .unwrap_err()
                .contains("first sample")
        );
    }
}
