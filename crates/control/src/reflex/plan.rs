//! How our own laws choose the bounds of a reflex.
//!
//! Requests in flight at c cores under an offered load of a Erlang are
//! those of a processor-sharing queue, whose stationary distribution does not depend on that of the sizes: p(n) = p(n - 1) a /
//! min(n, c) (Kleinrock, "Queueing Systems", volume 2, 1976, section 4.4). It passes n upwards λ p(n) times a second. The
//! bound is the fewest requests that are passed with a small chance in a period of the highest rate that the forecast gives
//! much probability, times how many more are really in flight than that model says (several nodes, time in which a request
//! waits for something else than a core), which is learned by Little's law, and times a margin that false alarms raise.

use super::Reflex;
use crate::headroom::choose::{Demand, Learned};
use crate::headroom::latency::Arriving;
use headroom_units::{Seconds, Setting};

/// The chance of a false alarm in a period.
const FALSE_ALARM: f64 = 0.01;
/// The share of the forecast's cases that lies above the rate which is planned for.
const RARE: f64 = 0.01;
/// The load at which the queue is computed where more arrives than the cores can serve.
const MAX_LOAD: f64 = 0.98;
/// The bound is never higher: a queue of more requests is no matter of a chance.
const MAX_BOUND: f64 = 1e7;
/// Bounds of how many times the model's requests are in flight, in ln, and the weight of a period in it.
const SCALE: (f64, f64) = (-0.7, 9.0);
const SCALE_STEP: f64 = 0.05;
/// What a false alarm adds to the margin, in ln, and the most that it may be.
const MARGIN_STEP: f64 = 0.1;
const MAX_MARGIN: f64 = 1.1;
/// How many times as often a point may be late by the model as without a reflex, at most.
const MAX_BOLD: f64 = 4.0;
/// The weight of the newest period in what reflexes were observed to do.
const FORGET: f64 = 1.0 / 500.0;
/// The age fires at no less than this multiple of the latency that is to be kept, and at this one at the latest.
const OLDEST: f64 = 2.0;
const MAX_AGE_S: f64 = 3600.0;

/// The queue of a period at a point, as a plan is made for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    /// Arrivals per second.
    pub rate: f64,
    /// Core seconds of a request.
    pub cost: f64,
    pub cores: f64,
    /// The period's length, in seconds.
    pub length: f64,
}

/// A period that is over, as the plan learns of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    pub queue: Queue,
    /// Requests in flight on average, or at the end; `None` where nobody knows.
    pub in_flight: Option<f64>,
    pub fired: bool,
    pub late: bool,
    /// Not everything was on.
    pub limited: bool,
}

/// How our own laws choose the bounds, and what they may risk because of it.
#[derive(Clone, Debug)]
pub(crate) struct ReflexPlan {
    /// How many times the model's requests are in flight, in ln.
    scale: f64,
    margin: f64,
    /// The rate that was planned for.
    planned: Option<f64>,
    /// Periods that were limited; of these those late, and those not late in which a reflex fired: fading.
    limited: f64,
    late: f64,
    saved: f64,
}

impl Default for ReflexPlan {
    fn default() -> Self {
        Self {
            scale: 0.0,
            margin: 0.0,
            planned: None,
            limited: 0.0,
            late: 0.0,
            saved: 0.0,
        }
    }
}

impl ReflexPlan {
    pub(crate) fn observe(&mut self, past: &Past) {
        if let Some(planned) = self.planned.take() {
            let false_alarm = past.fired && !past.late && past.queue.rate <= planned;
            let step = f64::from(u8::from(false_alarm)) - FALSE_ALARM;
            self.margin = (self.margin + MARGIN_STEP * step).clamp(0.0, MAX_MARGIN);
        }
        if past.limited || past.fired {
            let count = |is: bool| f64::from(u8::from(is));
            self.limited = self.limited * (1.0 - FORGET) + 1.0;
            self.late = self.late * (1.0 - FORGET) + count(past.late);
            self.saved = self.saved * (1.0 - FORGET) + count(past.fired && !past.late);
        }
        // A period in which a reflex fired had two points.
        let observed = past.in_flight.filter(|in_flight| *in_flight > 0.0 && !past.fired);
        if let Some(in_flight) = observed
            && let Some(mean) = in_system(&past.queue).map(|(mean, _)| mean)
        {
            let off = (in_flight / mean).ln() - self.scale;
            self.scale = (self.scale + SCALE_STEP * off).clamp(SCALE.0, SCALE.1);
        }
    }

    /// How many times as often a point may be late by the model, because a reflex saves the rest: one over the share of the
    /// periods in trouble that it was observed not to save.
    pub(crate) fn bold(&self) -> f64 {
        // What fires by chance has saved nothing.
        let saved = (self.saved - FALSE_ALARM * self.limited).max(0.0);
        let missed = (self.late + 1.0) / (self.late + saved + 1.0);
        (1.0 / missed).min(MAX_BOLD)
    }

    /// The bound of requests in flight for the next period, which has these cases of rates with probabilities, and how many
    /// times longer than alone a request takes when it is passed.
    pub(crate) fn bound(&mut self, queue: Queue, cases: &[(f64, f64)], in_flight: f64) -> (u64, f64) {
        let mut above = 0.0;
        let high = cases.iter().rev().find(|(_, share)| {
            above += share;
            above > RARE
        });
        let rate = high.map_or(queue.rate, |(rate, _)| rate.max(queue.rate));
        self.planned = Some(rate);
        let high = Queue { rate, ..queue };
        let (_, passed) = in_system(&high).unwrap_or((0.0, 1.0));
        let factor = (self.scale + self.margin).exp();
        // What is in flight now does not fire it.
        let bound = (passed * factor).max(in_flight).ceil().min(MAX_BOUND);
        let slowed = bound / (self.scale.exp() * queue.cores.max(1e-3));
        (bound as u64, slowed.max(1.0))
    }
}

/// What was planned for a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub bound: u64,
    pub oldest: Seconds,
    /// A request that arrives when the bound is passed is still answered in time.
    pub in_time: bool,
}

impl Planned {
    /// The reflex that puts this in force.
    pub(crate) const fn to(self, setting: Setting) -> Reflex {
        Reflex {
            bound: self.bound,
            oldest: Some(self.oldest),
            setting,
        }
    }
}

impl ReflexPlan {
    /// The bounds for a period of this demand at a point.
    pub(crate) fn plan(
        &mut self,
        learned: &mut Learned<'_>,
        demand: &Demand,
        (cores, pace): (f64, f64),
        in_flight: u64,
    ) -> Planned {
        let cost = learned.cost.at(pace);
        let queue = Queue {
            rate: demand.rate + demand.backlog,
            cost,
            cores,
            length: demand.length,
        };
        let (bound, slowed) = self.bound(queue, &demand.cases, in_flight as f64);
        let station = learned.latency.station(cores, cost);
        let alone = learned.latency.alone(&station) * learned.caution.exp();
        let arriving = Arriving {
            load: queue.rate,
            requests: demand.rate * demand.length,
            length: demand.length,
        };
        let age = learned.latency.age(&station, &arriving, FALSE_ALARM);
        let oldest = (age * (learned.caution + self.margin).exp()).max(OLDEST * demand.bound);
        Planned {
            bound,
            oldest: Seconds::new(oldest.min(MAX_AGE_S)),
            in_time: slowed * alone <= demand.bound,
        }
    }
}

/// Requests in a processor-sharing queue: the mean, and the fewest that are passed in a period with at most the chance of a
/// false alarm. `None` of what is no queue.
fn in_system(queue: &Queue) -> Option<(f64, f64)> {
    let Queue {
        rate,
        cost,
        cores,
        length,
    } = *queue;
    let fits = |value: f64| value > 0.0 && value.is_finite();
    if ![rate, cost, cores, length].into_iter().all(fits) {
        return None;
    }
    // What arrives beyond what can be served stays until the end of the period.
    let load = (rate * cost).min(MAX_LOAD * cores);
    let left = (rate - cores / cost).max(0.0) * length;
    let served = |n: f64| n.min(cores);
    // From the likeliest number in both directions, where the weights only fall.
    let likeliest = if load < cores { load.floor() } else { cores.ceil() };
    let (mut sum, mut first) = (1.0, likeliest);
    let mut weight = 1.0;
    let mut n = likeliest;
    while n > 0.0 {
        weight *= served(n) / load;
        if weight < 1e-12 {
            break;
        }
        n -= 1.0;
        sum += weight;
        first += weight * n;
    }
    // Upwards: the passings of a number and all above it are no fewer than that number's own.
    let (mut weights, mut weight, mut n) = (vec![1.0], 1.0, likeliest);
    while weight > 1e-12 && n < MAX_BOUND {
        n += 1.0;
        weight *= load / served(n);
        sum += weight;
        first += weight * n;
        weights.push(weight);
    }
    let allowed = FALSE_ALARM / (rate * length) * sum;
    let over = weights.iter().rposition(|weight| *weight > allowed);
    let passed = likeliest + over.map_or(0.0, |at| at as f64 + 1.0);
    Some((first / sum, passed + left))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
