//! Our own queue monitoring: the rate of accepts while somebody waits.
//!
//! The published estimator sets its estimate to the service rate of the period in which 1 % were dropped (Equation 5).
//! That is the capacity where the server was busy for the whole period. Where a burst came and went within it, the server
//! was idle for the rest, and the estimate falls to a fraction of the capacity. Here only the time counts for which
//! somebody waited (see [`super::busy`]), weighted by its length: a burst says as much about the server as it kept it
//! busy, drops are needed only where the queue is too short for anybody to be seen waiting, and the rise of the arrival rate
//! to a peak is never taken for capacity. A server that stands still for a moment is not taken for a slow one.

use super::busy::{Busy, BusyMeter};
use super::step::{QueueObservation, Step, StepMeter};
use super::tuning::QueueTuning;
use super::unusable::Unusable;
use super::{Capacity, Estimate};
use crate::decision::Reason;
use crate::parameter::OutOfRange;
use headroom_units::{PerSecond, Seconds};

/// Seconds with somebody waiting that are remembered: older ones count less and less.
const MEMORY_S: f64 = 10.0;
/// Accepts with somebody waiting that make an estimate exact: were they a Poisson process, this many would have a
/// standard error of a tenth. No fewer are remembered either, however slow the server.
const ENOUGH_ACCEPTS: f64 = 100.0;
/// The share of itself that the smoothed service rate keeps in a step.
const SERVED_KEEP: f64 = 0.8;
/// What was served is at least the smoothed service rate less this many standard errors,
const BOUND_ERRORS: f64 = 2.0;
/// and it proves an estimate too low where it is above it by this many.
const ERRORS: f64 = 3.0;

/// The estimator of one server. It is fed observations at any rate: the more often, the shorter the queues that it can
/// use, fifty a second for a queue of a hundred places and a thousand connections a second.
///
/// What it cannot see: a server that accepts everything at once and lets it wait inside has no queue, and only a lower
/// bound is known of it (the same holds for the published estimator). And it answers with what the server can do, which
/// for a queue of fewer than some fifty places is more than it can do while dropping less than 1 % of random arrivals.
#[derive(Clone, Debug)]
pub struct BusyTimeMonitor {
    tuning: QueueTuning,
    fine: BusyMeter,
    meter: StepMeter,
    /// Of the sampling step that has begun.
    busy: Busy,
    elapsed_s: f64,
    /// Time and accepts with somebody waiting, the older the less.
    memory: Busy,
    /// The smoothed service rate, and what the server has shown to serve at least.
    served: Smoothed,
    bound: PerSecond,
    exact: bool,
    /// Whether a request was ever served.
    begun: bool,
    /// Since the last usable step.
    blind_s: f64,
    latest: Estimate,
}

impl BusyTimeMonitor {
    /// An estimator that knows nothing yet.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(tuning: QueueTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        Ok(Self {
            tuning,
            fine: BusyMeter::new(&tuning),
            meter: StepMeter::new(&tuning),
            busy: Busy::default(),
            elapsed_s: 0.0,
            memory: Busy::default(),
            served: Smoothed::default(),
            bound: PerSecond::ZERO,
            exact: false,
            begun: false,
            blind_s: 0.0,
            latest: Estimate::unknown("first-sample", Unusable::First.to_string()),
        })
    }

    /// An estimator of a server that joins others like it: it starts with their capacity, where that is known.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn joining(tuning: QueueTuning, peers: Option<PerSecond>) -> Result<Self, OutOfRange> {
        let Some(peers) = peers.filter(|peers| *peers > PerSecond::ZERO && peers.is_finite()) else {
            return Self::new(tuning);
        };
        let time = Seconds::new(ENOUGH_ACCEPTS / peers.get());
        Ok(Self {
            memory: Busy {
                time,
                accepts: ENOUGH_ACCEPTS,
            },
            exact: true,
            begun: true,
            ..Self::new(tuning)?
        })
    }

    /// The rate of accepts with somebody waiting; 0 before there was any.
    fn rate(&self) -> PerSecond {
        let Busy { time, accepts } = self.memory;
        match time > Seconds::ZERO {
            true => PerSecond::new((accepts / time.get()).max(0.0)),
            false => PerSecond::ZERO,
        }
    }

    /// Takes an observation; the answer changes once a sampling period.
    pub fn observe(&mut self, observation: &QueueObservation) -> Estimate {
        let found = self.fine.take(observation, self.known());
        self.busy = self.busy.plus(found);
        self.elapsed_s += observation.length.get();
        // A rounding is no part of a period; and what is no time at all is for the meter to refuse.
        let due = self.elapsed_s >= self.tuning.sampling_period_s * (1.0 - 1e-6);
        let valid = observation.length.get() > 0.0 && self.elapsed_s.is_finite();
        if !due && valid {
            return self.latest.clone();
        }
        let whole = QueueObservation {
            length: Seconds::new(if valid { self.elapsed_s } else { f64::NAN }),
            ..*observation
        };
        self.elapsed_s = 0.0;
        let busy = std::mem::take(&mut self.busy);
        self.latest = match self.meter.take(&whole) {
            Ok(step) => self.counted(&step, busy),
            Err(unusable) => self.without(&unusable, whole.length),
        };
        self.latest.clone()
    }

    /// Takes one sampling step's numbers, with the part of it for which somebody waited.
    pub fn step(&mut self, step: &Step) -> Estimate {
        if let Err(unusable) = step.check() {
            return self.without(&unusable, step.length);
        }
        let Some(busy) = step.busy else {
            let what = "the time for which somebody waited";
            return self.without(&Unusable::Missing { what }, step.length);
        };
        self.counted(step, busy)
    }

    /// The same with what is to be counted now: a pause that was no stall after all may be older than the step.
    fn counted(&mut self, step: &Step, busy: Busy) -> Estimate {
        self.blind_s = 0.0;
        let service_rate = step.service_rate();
        self.begun |= step.accepts > 0.0;
        self.served.take(service_rate);
        let served = self.served.mean();
        self.bound = self
            .bound
            .max(served - self.served.standard_error(served, step.length) * BOUND_ERRORS);
        if !self.begun {
            return Estimate::no_request_yet();
        }
        let before = self.rate();
        self.remember(busy);
        let waited = busy.time > Seconds::ZERO;
        self.learn_from_drops(step);
        self.exact |= self.memory.accepts >= ENOUGH_ACCEPTS;
        let faster = self.exact && self.is_faster(step.length);
        if faster {
            self.memory.accepts = self.served.mean().get() * self.memory.time.get();
        }
        let now = match self.exact {
            true => self.rate(),
            false => self.bound.max(self.rate_if_known()),
        }
        .get();
        let stalled = self.fine.stalled(self.known());
        let (rule, text) = match (self.exact, faster, waited) {
            _ if let Some(time) = stalled => (
                "stalled",
                format!(
                    "nobody was accepted for {:.1} s though somebody waits: the server stands still, which says nothing \
                     about its rate, and {now:.1}/s is kept",
                    time.get()
                ),
            ),
            (false, ..) => (
                "served",
                format!(
                    "too little waited yet ({:.0} accepts of {ENOUGH_ACCEPTS:.0}): at least the {now:.1}/s that were \
                     served",
                    self.memory.accepts
                ),
            ),
            (true, true, _) => (
                "faster",
                format!(
                    "{:.1}/s was the estimate, and {now:.1}/s are served",
                    before.get()
                ),
            ),
            (true, false, true) => (
                "busy-time",
                format!(
                    "somebody waited for {:.3} of {:.3} s, in which {:.0} were accepted: {now:.1}/s of late",
                    busy.time.get(),
                    step.length.get(),
                    busy.accepts
                ),
            ),
            (true, false, false) => (
                "kept",
                format!(
                    "nobody, or too few to tell, waited while {:.1}/s were served: {now:.1}/s is kept",
                    service_rate.get()
                ),
            ),
        };
        let mut numbers = vec![
            ("capacity_per_s", now),
            ("arrival_rate_per_s", step.arrival_rate().get()),
            ("service_rate_per_s", service_rate.get()),
            ("busy_s", busy.time.get()),
            ("busy_accepts", busy.accepts),
            ("drop_ratio", step.drop_ratio()),
            ("queue_limit", step.limit),
        ];
        numbers.extend(step.queue_mean.map(|mean| ("queue_mean", mean)));
        Estimate {
            capacity: self.known(),
            reason: Reason::new(rule, text, &numbers),
        }
    }

    /// Adds to what is remembered, of which older parts fade.
    fn remember(&mut self, busy: Busy) {
        if busy.time <= Seconds::ZERO {
            return;
        }
        let rate = self.rate().get();
        let enough_s = if rate > 0.0 {
            ENOUGH_ACCEPTS / rate
        } else {
            MEMORY_S
        };
        let left = (-busy.time.get() / MEMORY_S.max(2.0 * enough_s)).exp();
        self.memory = Busy {
            time: self.memory.time * left,
            accepts: self.memory.accepts * left,
        }
        .plus(busy);
    }

    /// A queue of so few places that no look shows anybody waiting, and yet it was full: what was served then, as published.
    fn learn_from_drops(&mut self, step: &Step) {
        let served = self.bound.max(step.service_rate());
        if self.memory.time <= Seconds::ZERO
            && step.drop_ratio() >= self.tuning.drop_ratio
            && served > PerSecond::ZERO
        {
            self.memory = Busy {
                time: Seconds::new(ENOUGH_ACCEPTS / served.get()),
                accepts: ENOUGH_ACCEPTS,
            };
        }
    }

    /// Whether the smoothed service rate exceeds the estimate by more than chance.
    fn is_faster(&self, step: Seconds) -> bool {
        let rate = self.rate();
        self.served.mean() > rate + self.served.standard_error(rate, step) * ERRORS
    }

    /// The rate with somebody waiting where at least a quarter of what makes it exact was seen.
    fn rate_if_known(&self) -> PerSecond {
        match self.memory.accepts >= ENOUGH_ACCEPTS / 4.0 {
            true => self.rate(),
            false => PerSecond::ZERO,
        }
    }

    fn known(&self) -> Capacity {
        match (self.exact, self.begun) {
            (true, _) => Capacity::Exact(self.rate()),
            (false, true) => Capacity::LowerBound(self.bound.max(self.rate_if_known())),
            (false, false) => Capacity::Unknown,
        }
    }

    /// What is left to say where an observation is unusable.
    fn without(&mut self, unusable: &Unusable, length: Seconds) -> Estimate {
        match unusable {
            // Whoever listens next is another server.
            Unusable::Nobody | Unusable::Another => {
                self.memory = Busy::default();
                (self.served, self.bound) = (Smoothed::default(), PerSecond::ZERO);
                (self.exact, self.begun) = (false, false);
            }
            Unusable::Length { .. } => self.blind_s = f64::INFINITY,
            _ => self.blind_s += length.get(),
        }
        Estimate::held(self.known(), self.blind_s, &self.tuning, unusable)
    }
}

/// A mean of the latest service rates, the older the less: right from the first on.
#[derive(Clone, Copy, Debug, Default)]
struct Smoothed {
    /// The sum of the rates, each with its weight; that of the weights, and of their squares.
    sum: PerSecond,
    weight: f64,
    squares: f64,
}

impl Smoothed {
    fn take(&mut self, rate: PerSecond) {
        let new = 1.0 - SERVED_KEEP;
        self.sum = self.sum * SERVED_KEEP + rate * new;
        self.weight = self.weight * SERVED_KEEP + new;
        self.squares = self.squares * SERVED_KEEP * SERVED_KEEP + new * new;
    }

    fn mean(&self) -> PerSecond {
        match self.weight > 0.0 {
            true => self.sum / self.weight,
            false => PerSecond::ZERO,
        }
    }

    /// The standard error of the mean of steps this long, were accepts a Poisson process of this rate.
    fn standard_error(&self, rate: PerSecond, step: Seconds) -> PerSecond {
        let steps = self.weight * self.weight / self.squares;
        PerSecond::new((rate.get() / (step.get() * steps)).max(0.0).sqrt())
    }
}

#[cfg(test)]
#[path = "busy_time_tests.rs"]
mod tests;
