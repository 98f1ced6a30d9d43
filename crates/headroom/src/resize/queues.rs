//! The servers' accept queues, and their capacities by them.

use crate::cluster::AgentQueue;
use headroom_control::OutOfRange;
use headroom_control::capacity::{Capacity, Estimate, Observation, QueueMonitor, QueueTuning, Sight, Step};
use headroom_control::decision::Reason;
use headroom_node::queue::{
    Counters, QueueError, QueueMeter, QueueMethod, QueueOptions, QueuePreference, QueueSample, choose,
};
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};
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

/// Where a queue is.
enum Place {
    /// On this machine; the meter is opened when somebody listens.
    Here {
        port: u16,
        preference: QueuePreference,
        meter: Option<Box<dyn QueueMeter>>,
    },
    /// On the machine of an agent, which has the meter.
    Elsewhere(AgentQueue),
}

/// One server's accept queue.
pub struct Queue {
    place: Place,
    tuning: QueueTuning,
    before: Option<QueueSample>,
    looked: Instant,
    monitor: Option<QueueMonitor>,
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
    pub fn new(port: u16, preference: QueuePreference, tuning: QueueTuning) -> Self {
        let place = Place::Here {
            port,
            preference,
            meter: None,
        };
        Self::at(place, tuning)
    }

    /// A queue that an agent watches. While nothing new comes from there, nothing is known of it.
    pub fn elsewhere(queue: AgentQueue, tuning: QueueTuning) -> Self {
        Self::at(Place::Elsewhere(queue), tuning)
    }

    fn at(place: Place, tuning: QueueTuning) -> Self {
        Self {
            place,
            tuning,
            before: None,
            looked: Instant::now(),
            monitor: None,
            estimate: None,
        }
    }

    /// Why the queue cannot be measured at all, where that is known: what a start says. An agent that says nothing is
    /// waited for a moment.
    pub fn obstacle(&mut self) -> Option<String> {
        let seen = match &self.place {
            Place::Here { .. } => self.sample().map(|_| ()),
            Place::Elsewhere(queue) => queue.first_word(FIRST_WORD).map(|_| ()),
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
        match &self.place {
            Place::Here { port, .. } => format!("port {port} of this machine"),
            Place::Elsewhere(queue) => queue.place(),
        }
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        let (port, preference, slot) = match &mut self.place {
            Place::Elsewhere(queue) => return queue.sample(),
            Place::Here {
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

    /// Takes one sampling step; `serving` says whether the server takes requests, so that its capacity is estimated.
    pub fn step(&mut self, serving: bool) -> Shown {
        let now = Instant::now();
        let length = Seconds::from(now.duration_since(std::mem::replace(&mut self.looked, now)));
        let sampled = self.sample();
        let (step, shown) = match &sampled {
            Ok(sample) => match counted(self.before.as_ref(), sample, &self.tuning) {
                Ok((step, counted)) => (Ok(step), Shown::Counted(counted)),
                Err(why) => (Err(Sight::Unread), Shown::Unknown(why)),
            },
            Err(QueueError::NobodyListens { .. }) => (Err(Sight::Nobody), Shown::Nobody),
            Err(error) => (Err(Sight::Unread), Shown::Unknown(error.to_string())),
        };
        self.before = sampled.ok();
        if let Some(monitor) = self.monitor.as_mut().filter(|_| serving) {
            self.estimate = Some(match step {
                Ok(step) => monitor.step(&step),
                Err(sight) => monitor.observe(&Observation { length, sight }),
            });
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
        if self.monitor.is_none() {
            let joining = peers.and_then(|peers| QueueMonitor::joining(self.tuning, peers).ok());
            self.monitor = Some(match joining {
                Some(monitor) => monitor,
                None => QueueMonitor::new(self.tuning)?,
            });
        }
        Ok(())
    }

    /// The server is gone: what was known of it is of no use to the next that listens there.
    pub fn forget(&mut self) {
        self.monitor = None;
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
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn arrivals_are_counted_and_a_listener_that_goes_is_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Queue::new(address.port(), QueuePreference::Auto, QueueTuning::default());
        if let Some(why) = queue.obstacle() {
            println!("skipped: {why}");
            return;
        }
        queue.join(None).unwrap();
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(20) {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1]);
            }
            listener
        });
        queue.step(true);
        for _ in 0..20 {
            TcpStream::connect(address).unwrap().write_all(b"x").unwrap();
        }
        let listener = server.join().unwrap();
        let shown = queue.step(true);
        let Shown::Counted(counted) = shown else {
            panic!("{shown:?}")
        };
        assert_eq!(
            (counted.arrivals, counted.accepts, counted.drops),
            (20.0, 20.0, 0.0)
        );
        drop(listener);
        assert_eq!(queue.step(true), Shown::Nobody);
        queue.forget();
        assert_eq!(queue.capacity().0, Capacity::Unknown);
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
