//! How our own laws choose the bounds of a reflex.
//!
//! Requests in flight at c cores under an offered load of a Erlang are
//! those of a processor-sharing queue, whose stationary distribution does not depend on that of the sizes: p(n) = p(n - 1) a /
//! min(n, c) (Kleinrock, "Queueing Systems", volume 2, 1976, section 4.4). It passes n upwards λ p(n) times a second. The
//! bound is the fewest requests that are passed in a period with a small chance, over all rates that the forecast holds for
//! possible. How many more are really in flight than that model says (several nodes, time in which a request waits for
//! something else than a core) is learned of the mean by Little's law, and apart from it of the deviations, which grow less:
//! twice the requests do not deviate twice as much. False alarms raise the part above the mean.
//!
//! Near saturation that queue needs longer than a period to become as long as it is in the long run. So the chance is no higher
//! than that of what is reached in a period from where it begins: while all cores are busy the number is a random walk, whose
//! variance is that of arrivals and departures, and what it adds from wherever it was lowest is no more than that of one without
//! drift, which is |walk| by Lévy: passed with at most four times the chance with which the walk ends above (reflection
//! principle).

use super::Reflex;
use crate::headroom::choose::{Demand, Learned};
use crate::headroom::latency::Arriving;
use crate::queueing::percentile::normal_exceeds;
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
/// Bounds of the square of how many times the model's deviations the real ones are, the weight of a period in it, and the most
/// that one period says.
const SPREAD: (f64, f64) = (0.25, 1e4);
const SPREAD_STEP: f64 = 0.02;
const MAX_DEVIATION: f64 = 100.0;
/// No walk goes so many standard deviations.
const FARTHEST: f64 = 8.0;
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
    /// Those at the end.
    pub at_end: f64,
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
    /// The square of how many times the model's deviations they have.
    spread: f64,
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
            spread: 1.0,
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
            && let Some(model) = in_system(&past.queue)
        {
            let off = (in_flight / model.mean).ln() - self.scale;
            self.scale = (self.scale + SCALE_STEP * off).clamp(SCALE.0, SCALE.1);
            let off = past.at_end - model.mean * self.scale.exp();
            let times = (off * off / model.variance).min(MAX_DEVIATION);
            self.spread = (self.spread + SPREAD_STEP * (times - self.spread)).clamp(SPREAD.0, SPREAD.1);
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

    /// The bound of requests in flight for the next period, which has these cases of rates, from the lowest, with
    /// probabilities, and how many times longer than alone a request takes when it is passed.
    pub(crate) fn bound(&mut self, queue: Queue, cases: &[(f64, f64)], in_flight: f64) -> (u64, f64) {
        let mut above = 0.0;
        let high = cases.iter().rev().find(|(_, share)| {
            above += share;
            above > RARE
        });
        self.planned = Some(high.map_or(queue.rate, |(rate, _)| rate.max(queue.rate)));
        let times = self.scale.exp();
        let usual = in_system(&queue);
        // What is in flight beside the cores' work waits elsewhere, or at cores that others cannot help.
        let beside = usual.map_or(0.0, |number| number.mean * (times - 1.0).max(0.0));
        let passing = Passing {
            times,
            deviations: self.spread.sqrt() * self.margin.exp(),
            margin: self.margin.exp(),
            begin: in_flight.max(queue.cores.ceil() + beside),
        };
        let may_be = possible(&queue, cases);
        let chance = |bound: f64| -> f64 {
            let chances = may_be
                .iter()
                .map(|(share, queue, number)| share * passing.chance(queue, number, bound));
            chances.sum()
        };
        let farthest = may_be
            .iter()
            .map(|(_, queue, _)| passing.begin + queue.grows() + FARTHEST * queue.walk() * passing.margin);
        // What is in flight now does not fire it. The chance falls with the bound, so the least is found by halving.
        let mut low = in_flight.max(1.0).ceil().min(MAX_BOUND);
        let mut bound = farthest.fold(low, f64::max).ceil().min(MAX_BOUND);
        while low < bound {
            let middle = ((low + bound) / 2.0).floor();
            match chance(middle) <= FALSE_ALARM {
                true => bound = middle,
                false => low = middle + 1.0,
            }
        }
        let slowed = bound / (times * queue.cores.max(1e-3));
        (bound as u64, slowed.max(1.0))
    }
}

/// The queues of the cases, with probabilities: those of more than the expected rate, and the expected one for all others,
/// which pass a bound less often.
fn possible(queue: &Queue, cases: &[(f64, f64)]) -> Vec<(f64, Queue, InSystem)> {
    let of = |(rate, share): (f64, f64)| {
        let queue = Queue { rate, ..*queue };
        Some((share, queue, in_system(&queue)?))
    };
    let higher = cases.iter().copied().filter(|(rate, _)| *rate > queue.rate);
    let rest = 1.0 - higher.clone().map(|(_, share)| share).sum::<f64>();
    higher
        .chain([(queue.rate, rest.max(0.0))])
        .filter_map(of)
        .collect()
}

/// What the chance to pass a bound in a period follows from beside the queue.
struct Passing {
    /// How many times the model's requests are in flight.
    times: f64,
    /// How many times the model's deviations are taken for theirs.
    deviations: f64,
    margin: f64,
    /// What a walk begins from.
    begin: f64,
}

impl Passing {
    fn chance(&self, queue: &Queue, number: &InSystem, bound: f64) -> f64 {
        let bound = bound - queue.grows();
        let model = number.mean + (bound - number.mean * self.times) / self.deviations;
        let upwards = queue.rate * queue.length * number.chance(model);
        let walk = (bound - self.begin) / (queue.walk() * self.margin);
        let reached = if walk > 0.0 {
            4.0 * normal_exceeds(walk)
        } else {
            1.0
        };
        upwards.min(reached).min(1.0)
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
        in_flight: f64,
    ) -> Planned {
        let cost = learned.cost.at(pace);
        let queue = Queue {
            rate: demand.rate + demand.backlog,
            cost,
            cores,
            length: demand.length,
        };
        let left = |(rate, share): &(f64, f64)| (rate + demand.backlog, *share);
        let cases: Vec<(f64, f64)> = demand.cases.iter().map(left).collect();
        let (bound, slowed) = self.bound(queue, &cases, in_flight);
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

impl Queue {
    /// Requests that arrive in the period beyond what can be served.
    fn grows(&self) -> f64 {
        (self.rate - self.cores / self.cost).max(0.0) * self.length
    }

    /// The standard deviation of arrivals less departures in the period, while all cores are busy.
    fn walk(&self) -> f64 {
        ((self.rate + self.cores / self.cost) * self.length).sqrt()
    }
}

/// Requests in a processor-sharing queue.
#[derive(Clone, Debug, PartialEq)]
struct InSystem {
    mean: f64,
    variance: f64,
    likeliest: f64,
    /// The probabilities of that number and of those above it.
    upwards: Vec<f64>,
}

impl InSystem {
    /// The probability of a number, also of one between two; 1 below the likeliest.
    fn chance(&self, number: f64) -> f64 {
        let off = number - self.likeliest;
        if off < 0.0 {
            return 1.0;
        }
        let at = |index: usize| self.upwards.get(index).copied().unwrap_or(0.0);
        let below = off.floor();
        let share = off - below;
        at(below as usize).powf(1.0 - share) * at(below as usize + 1).powf(share)
    }
}

/// Requests in this queue; `None` of what is no queue.
fn in_system(queue: &Queue) -> Option<InSystem> {
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
    let load = (rate * cost).min(MAX_LOAD * cores);
    let served = |n: f64| n.min(cores);
    // From the likeliest number in both directions, where the weights only fall. Moments are about that number.
    let likeliest = if load < cores { load.floor() } else { cores.ceil() };
    let (mut sum, mut first, mut second) = (1.0, 0.0, 0.0);
    let mut add = |weight: f64, off: f64| {
        sum += weight;
        first += weight * off;
        second += weight * off * off;
    };
    let mut weight = 1.0;
    let mut n = likeliest;
    while n > 0.0 {
        weight *= served(n) / load;
        if weight < 1e-12 {
            break;
        }
        n -= 1.0;
        add(weight, n - likeliest);
    }
    let (mut upwards, mut weight, mut n) = (vec![1.0], 1.0, likeliest);
    while weight > 1e-12 && n < MAX_BOUND {
        n += 1.0;
        weight *= load / served(n);
        add(weight, n - likeliest);
        upwards.push(weight);
    }
    upwards.iter_mut().for_each(|weight| *weight /= sum);
    let off = first / sum;
    Some(InSystem {
        mean: likeliest + off,
        variance: second / sum - off * off,
        likeliest,
        upwards,
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
