//! Queue monitoring (Section 5.3): the capacity of a server from its accept queue.

use super::equations::{self, Indicator};
use super::step::{QueueObservation, Step, StepMeter};
use super::tuning::QueueTuning;
use super::unusable::Unusable;
use super::{Capacity, Estimate};
use crate::decision::Reason;
use crate::parameter::OutOfRange;
use headroom_units::{PerSecond, Ratio, Seconds};

/// The online estimator of one server, fed one observation a sampling step.
///
/// As published, which has consequences that a user should know: the peak arrival rate is that since the start; a single
/// step over the drop-ratio threshold sets the estimate to that step's service rate, even where the overload was a burst
/// that came and went within it; and the lower bound of the fast-start stage is what arrived, which a long queue can
/// have swallowed without its being served. The fast-start stage ends with the first overload and never comes back,
/// unless another socket takes the place of this one: that is another server, of which nothing is known.
#[derive(Clone, Debug)]
pub struct QueueMonitor {
    tuning: QueueTuning,
    meter: StepMeter,
    /// c; `None` before the first request.
    capacity: Option<PerSecond>,
    /// The mode bit: whether the estimate was ever adapted downwards.
    adapting: bool,
    /// The peak arrival rate.
    peak: PerSecond,
    /// The average queue length of the step before, where this one follows on it.
    mean_before: Option<f64>,
    /// Since the last usable step.
    blind_s: f64,
    /// For how long somebody has waited while none was accepted.
    none_accepted_s: f64,
}

impl QueueMonitor {
    /// An estimator that knows nothing yet.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(tuning: QueueTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        Ok(Self {
            tuning,
            meter: StepMeter::new(&tuning),
            capacity: None,
            adapting: false,
            peak: PerSecond::ZERO,
            mean_before: None,
            blind_s: 0.0,
            none_accepted_s: 0.0,
        })
    }

    /// An estimator of a server that joins others like it: it starts with their capacity, where that is known, in the
    /// adaptation stage. The fast-start stage is for a server of which nothing can be known.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn joining(tuning: QueueTuning, peers: Option<PerSecond>) -> Result<Self, OutOfRange> {
        let peers = peers.filter(|peers| *peers > PerSecond::ZERO && peers.is_finite());
        Ok(Self {
            capacity: peers,
            adapting: peers.is_some(),
            ..Self::new(tuning)?
        })
    }

    /// Takes one sampling step's counters.
    pub fn observe(&mut self, observation: &QueueObservation) -> Estimate {
        match self.meter.take(observation) {
            Ok(step) => self.step(&step),
            Err(unusable) => self.without(&unusable, observation.length),
        }
    }

    /// Takes one sampling step's numbers, from whoever counts so that nothing can wrap or be missing.
    pub fn step(&mut self, step: &Step) -> Estimate {
        if let Err(unusable) = step.check() {
            return self.without(&unusable, step.length);
        }
        self.blind_s = 0.0;
        let stands = step.accepts <= 0.0 && step.queue_mean.is_some_and(|mean| mean > 0.0);
        self.none_accepted_s = match stands {
            true => self.none_accepted_s + step.length.get(),
            false => 0.0,
        };
        let mean_before = std::mem::replace(&mut self.mean_before, step.queue_mean);
        let Some(mean) = step.queue_mean.filter(|_| step.arrivals > 0.0) else {
            return self.without_arrivals(step);
        };
        let (arrival_rate, service_rate) = (step.arrival_rate(), step.service_rate());
        self.peak = self.peak.max(arrival_rate);
        let forecast = Seconds::new(self.tuning.forecast_s);
        let growth_per_s = mean_before.map_or(0.0, |before| (mean - before) / step.length.get());
        let predicted = equations::predicted(mean, growth_per_s, forecast);
        // Before the first estimate there is none that could be wrong: the peak is its own.
        let before = self.capacity.unwrap_or(self.peak);
        let threshold = equations::threshold(step.limit, self.peak, before, step.length);
        let indicator = match self.capacity {
            Some(capacity) => equations::indicator(mean, predicted, threshold, capacity, service_rate),
            None => Indicator::Fits,
        };
        let drop_ratio = step.drop_ratio();
        let violated = drop_ratio >= self.tuning.drop_ratio;
        self.adapting |= violated || indicator == Indicator::Optimistic;
        let capacity = if self.adapting {
            equations::adapted(
                before,
                service_rate,
                violated,
                indicator,
                Ratio::new(self.tuning.keep),
            )
        } else {
            self.peak
        };
        self.capacity = Some(capacity);

        let now = capacity.get();
        let (rule, text) = match (self.adapting, violated, indicator) {
            (false, ..) => (
                "fast-start",
                format!("no overload observed yet: at least the peak of {now:.1} arrivals/s"),
            ),
            (true, true, _) => (
                "drop-ratio",
                format!(
                    "{:.2} % dropped, {:.2} % allowed: what was served, {now:.1}/s (Eq. 5)",
                    drop_ratio * 100.0,
                    self.tuning.drop_ratio * 100.0
                ),
            ),
            (true, false, Indicator::Fits) => (
                "kept",
                format!("nothing speaks against {now:.1}/s (Eq. 4: I = 0)"),
            ),
            (true, false, Indicator::Optimistic) => (
                "optimistic",
                format!(
                    "queue {mean:.1} and its forecast {predicted:.1} reach {threshold:.1} while {:.1}/s are served: \
                     {:.1} lowered to {now:.1}/s (Eq. 4, 5)",
                    service_rate.get(),
                    before.get()
                ),
            ),
            (true, false, Indicator::Pessimistic) => (
                "pessimistic",
                format!(
                    "queue {mean:.1} and its forecast {predicted:.1} below {threshold:.1} while {:.1}/s are served: \
                     {:.1} raised to {now:.1}/s (Eq. 4, 5)",
                    service_rate.get(),
                    before.get()
                ),
            ),
        };
        let numbers = [
            ("capacity_per_s", now),
            ("arrival_rate_per_s", arrival_rate.get()),
            ("service_rate_per_s", service_rate.get()),
            ("peak_arrival_rate_per_s", self.peak.get()),
            ("drop_ratio", drop_ratio),
            ("queue_mean", mean),
            ("queue_predicted", predicted),
            ("queue_threshold", threshold),
            ("queue_limit", step.limit),
        ];
        Estimate::plain(self.known(), Reason::new(rule, text, &numbers))
    }

    /// c as the mode bit qualifies it.
    fn known(&self) -> Capacity {
        match (self.capacity, self.adapting) {
            (Some(capacity), true) => Capacity::Exact(capacity),
            (Some(capacity), false) => Capacity::LowerBound(capacity),
            (None, _) => Capacity::Unknown,
        }
    }

    /// A step in which nothing arrived neither confirms nor refutes an estimate.
    fn without_arrivals(&self, step: &Step) -> Estimate {
        let Some(capacity) = self.capacity else {
            return match step.queue_mean.filter(|_| self.none_accepted_s > 0.0) {
                Some(waiting) => Estimate::plain(
                    Capacity::Unknown,
                    Estimate::none_accepted(waiting, self.none_accepted_s, None),
                ),
                None => Estimate::no_request_yet(),
            };
        };
        let text = format!(
            "nothing arrived in {:.3} s: {:.1}/s is kept",
            step.length.get(),
            capacity.get()
        );
        let numbers = [
            ("capacity_per_s", capacity.get()),
            ("service_rate_per_s", step.service_rate().get()),
        ];
        Estimate::plain(self.known(), Reason::new("no-arrivals", text, &numbers))
    }

    /// What is left to say where an observation is unusable.
    fn without(&mut self, unusable: &Unusable, length: Seconds) -> Estimate {
        match unusable {
            // Whoever listens next is another server.
            Unusable::Nobody | Unusable::Another => {
                self.capacity = None;
                self.adapting = false;
                self.peak = PerSecond::ZERO;
            }
            // How much time passed is not known, so neither is how old the estimate is.
            Unusable::Length { .. } => self.blind_s = f64::INFINITY,
            _ => self.blind_s += length.get(),
        }
        self.none_accepted_s = 0.0;
        // The growth of the queue is known only between steps that follow on one another.
        if !matches!(unusable, Unusable::Short { .. }) {
            self.mean_before = None;
        }
        let (capacity, reason) =
            Estimate::without_reading(self.known(), self.blind_s, &self.tuning, unusable);
        Estimate::plain(capacity, reason)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
