//! One method on a thread of its own: it samples, estimates, and hands over a row a period. Slow methods hold up nobody
//! else, as Figure 6 of the paper shows.

use super::Plan;
use super::cpu::ServiceCpu;
use super::sample::{CONNECTIONS, Row, Shown, reading, unit};
use super::way::Way;
use crate::queue_sample::{UsedSockets, finer, observation, sampling_period};
use headroom_console::Stop;
use headroom_control::capacity::{
    BusyTimeMonitor, Capacity, Estimate, QueueMonitor, QueueTuning, Ramp, RampTuning, Step, StepMeter,
    Unusable, UtilisationEstimator, UtilisationMeter, UtilisationTuning,
};
use headroom_control::{OutOfRange, Reason};
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod, QueueSample};
use headroom_units::Seconds;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// An SNMP agent reads the kernel's counters every fifth second or so: a window of two such intervals.
const SNMP_WINDOW_S: f64 = 10.0;

/// A method at work.
pub struct Watch {
    method: QueueMethod,
    meter: Box<dyn QueueMeter>,
    /// A second meter for the samples in between, where one would disturb the first one's CPU utilisation.
    between: Option<Box<dyn QueueMeter>>,
    cpu: Option<Box<dyn ServiceCpu>>,
    period: Duration,
    started: Instant,
    estimators: Estimators,
    /// What its samples count.
    unit: &'static str,
}

/// What can be estimated from a method's samples.
struct Estimators {
    published: Option<(QueueMonitor, UsedSockets)>,
    busy_time: Option<(BusyTimeMonitor, UsedSockets)>,
    by_cpu: Option<(UtilisationMeter, UtilisationEstimator)>,
    ramp: Option<(StepMeter, Ramp, UsedSockets)>,
}

impl Estimators {
    fn new(method: QueueMethod, tuning: QueueTuning, ramp: Option<RampTuning>) -> Result<Self, OutOfRange> {
        let sees_queue = matches!(method, QueueMethod::Ebpf | QueueMethod::Kernel);
        let queue = |tuning| Ok::<_, OutOfRange>((QueueMonitor::new(tuning)?, UsedSockets::default()));
        let busy_time = |tuning| Ok::<_, OutOfRange>((BusyTimeMonitor::new(tuning)?, UsedSockets::default()));
        let window_s = match method {
            QueueMethod::Snmp => SNMP_WINDOW_S,
            _ => 0.0,
        };
        let by_cpu = || {
            let estimator = UtilisationEstimator::new(UtilisationTuning::default())?;
            Ok::<_, OutOfRange>((UtilisationMeter::new(Seconds::new(window_s))?, estimator))
        };
        Ok(Self {
            published: sees_queue.then(|| queue(tuning)).transpose()?,
            busy_time: sees_queue.then(|| busy_time(tuning)).transpose()?,
            ramp: ramp
                .filter(|_| sees_queue)
                .map(|ramp| Ok((StepMeter::new(&tuning), Ramp::new(ramp)?, UsedSockets::default())))
                .transpose()?,
            by_cpu: (method != QueueMethod::Ebpf).then(by_cpu).transpose()?,
        })
    }
}

/// When the sample before was taken, of one stream of samples.
#[derive(Default)]
struct Clock(Option<Instant>);

impl Clock {
    fn since(&mut self, now: Instant, otherwise: Duration) -> Seconds {
        self.0
            .replace(now)
            .map_or(otherwise, |before| now - before)
            .into()
    }
}

type Sampled = Result<QueueSample, QueueError>;

impl Watch {
    /// A method that was opened; `between` is a second meter of the same kind, where it needs one.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(
        meter: Box<dyn QueueMeter>,
        between: Option<Box<dyn QueueMeter>>,
        cpu: Option<Box<dyn ServiceCpu>>,
        plan: &Plan,
        started: Instant,
    ) -> Result<Self, OutOfRange> {
        let method = meter.method();
        Ok(Self {
            method,
            meter,
            between,
            cpu,
            period: Duration::from_secs_f64(plan.tuning.sampling_period_s),
            started,
            estimators: Estimators::new(method, plan.tuning, plan.ramp)?,
            unit: CONNECTIONS,
        })
    }

    /// How it measures.
    pub fn method(&self) -> QueueMethod {
        self.method
    }

    /// The ways to an estimate that it feeds.
    pub fn ways(&self) -> Vec<Way> {
        let (method, estimators) = (self.method, &self.estimators);
        let ways = [
            estimators.published.as_ref().map(|_| Way::Published(method)),
            estimators.busy_time.as_ref().map(|_| Way::BusyTime(method)),
            estimators.by_cpu.as_ref().map(|_| Way::Cpu(method)),
            estimators.ramp.as_ref().map(|_| Way::Ramp(method)),
        ];
        ways.into_iter().flatten().collect()
    }

    /// Samples until the flag is raised or nobody takes the rows.
    pub fn run(mut self, rows: &SyncSender<Row>, stop: &Stop) {
        let mut every = match self.estimators.busy_time {
            Some(_) => sampling_period(self.period),
            None => self.period,
        };
        let mut next = self.started;
        let mut due = self.started;
        let (mut fine, mut coarse) = (Clock::default(), Clock::default());
        let mut before: Option<QueueSample> = None;
        let mut latest: Option<Estimate> = None;
        while !stop.wait_until(next) {
            let now = Instant::now();
            let whole = now >= due;
            let mut sampled: Option<Sampled> = None;
            if whole || (self.between.is_none() && self.estimators.busy_time.is_some()) {
                sampled = Some(self.meter.sample());
            }
            if let Some((monitor, used)) = &mut self.estimators.busy_time {
                let sampled_between = self.between.as_mut().map(|meter| meter.sample());
                if let Some(taken) = sampled_between.as_ref().or(sampled.as_ref()) {
                    let at = taken.as_ref().map_or_else(|_| Instant::now(), |sample| sample.at);
                    let length = fine.since(at, every);
                    latest = Some(monitor.observe(&observation(length, taken, used)));
                    if monitor.wants_finer() {
                        every = finer(every);
                    }
                }
            }
            if whole && let Some(sampled) = sampled {
                let row = self.row(sampled, &mut before, &mut coarse, latest.clone());
                if rows.send(row).is_err() {
                    return;
                }
                // A method that takes longer than a period skips those that it missed.
                while due <= Instant::now() {
                    due += self.period;
                }
            }
            next += every;
            let now = Instant::now();
            if next < now {
                next = now;
            }
            next = next.min(due);
        }
    }

    fn row(
        &mut self,
        sampled: Sampled,
        before: &mut Option<QueueSample>,
        clock: &mut Clock,
        by_busy_time: Option<Estimate>,
    ) -> Row {
        let method = self.method;
        let at = sampled
            .as_ref()
            .map_or_else(|_| Instant::now(), |sample| sample.at);
        let length = clock.since(at, self.period);
        let mut estimates = Vec::new();
        let mut threshold = None;
        if let Some((monitor, used)) = &mut self.estimators.published {
            let estimate = monitor.observe(&observation(length, &sampled, used));
            let numbers = &estimate.reason.numbers;
            threshold = numbers
                .iter()
                .find(|(name, _)| name == "queue_threshold")
                .map(|found| found.1);
            estimates.push((Way::Published(method), estimate));
        }
        estimates.extend(by_busy_time.map(|estimate| (Way::BusyTime(method), estimate)));
        if let Some((meter, ramp, used)) = &mut self.estimators.ramp {
            let step = meter.take(&observation(length, &sampled, used));
            estimates.push((Way::Ramp(method), by_ramp(ramp, step)));
        }
        let service = self.cpu.as_mut().map(|cpu| cpu.busy());
        let cpu = service.as_ref().map(|read| read.as_ref().ok().copied().flatten());
        if let Some((meter, estimator)) = &mut self.estimators.by_cpu {
            let estimate = match &sampled {
                Ok(sample) => {
                    let since = before.as_ref().map_or(length, |before| (at - before.at).into());
                    let step = meter.take(&reading(since, sample, cpu));
                    match (step.throughput, step.utilisation) {
                        (None, _) => nothing(
                            "first-sample",
                            "too few samples yet to compare counters".to_owned(),
                        ),
                        (_, None) if method == QueueMethod::Status && cpu.is_none() => nothing(
                            "unread",
                            "the status page gives no CPU utilisation: only Apache's tells its CPU time, and it is a share only where \
                             the agent knows how many processors its machine has"
                                .to_owned(),
                        ),
                        (_, None) if service.is_some() => nothing(
                            "unread",
                            match &service {
                                Some(Err(why)) => why.clone(),
                                _ => "the control group's CPU time cannot be compared with the sample before: it began anew, \
                                      or what the group may use changed by more than a quarter"
                                    .to_owned(),
                            },
                        ),
                        _ => estimator.observe(&step),
                    }
                }
                Err(error) => unread(error),
            };
            estimates.push((Way::Cpu(method), estimate));
        }
        let interval = before.as_ref().map(|before| (at - before.at).into());
        let shown = match sampled {
            Ok(sample) => {
                self.unit = unit(&sample);
                let mut shown = Shown::between(before.as_ref(), &sample);
                shown.threshold = threshold;
                shown.cpu = cpu.unwrap_or(shown.cpu);
                *before = Some(sample);
                Ok(shown)
            }
            Err(error) => Err(error.to_string()),
        };
        Row {
            at: (at - self.started).into(),
            method,
            interval: interval.filter(|_| shown.is_ok()),
            shown,
            estimates,
            is_shared: false,
            unit: self.unit,
        }
    }
}

fn unread(error: &QueueError) -> Estimate {
    let rule = match error {
        QueueError::NobodyListens { .. } => "nobody-listens",
        _ => "unread",
    };
    nothing(rule, error.to_string())
}

/// What the rising load says; a step that cannot be used is left out of its window.
fn by_ramp(ramp: &mut Ramp, step: Result<Step, Unusable>) -> Estimate {
    let capacity = match step {
        Ok(step) => ramp
            .step(&step)
            .map_err(|error| ("inconsistent", error.to_string())),
        Err(unusable) => Err((unusable.rule(), unusable.to_string())),
    };
    match capacity {
        Ok(Capacity::Unknown) => nothing("no-request-yet", "the window is not full yet".to_owned()),
        Ok(capacity) => Estimate::plain(
            capacity,
            Reason::new("ramp", "the mean throughput of a window".to_owned(), &[]),
        ),
        Err((rule, text)) => nothing(rule, text),
    }
}

fn nothing(rule: &'static str, text: String) -> Estimate {
    Estimate::plain(Capacity::Unknown, Reason::new(rule, text, &[]))
}
