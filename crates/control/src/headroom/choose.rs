//! The cheapest point: which cores, at which frequency.
//!
//! For a frequency the fewest cores are sought (by halving, since more cores are hardly ever later) that keep the
//! period's percentile under the bound with the confidence asked for; of these points, one for each frequency, the one
//! that is expected to draw the least is taken. Fewer cores at a higher frequency idle less; more cores at a lower one
//! do the same work at a lower voltage: which is cheaper is for the learned power to say.
//!
//! Power is a sum of four products and the probability of being late one over a hundred cases, so power is asked first:
//! once a point is known, another frequency is searched only if the most cores that would draw less there fit.

use super::cost::Cost;
use super::latency::{Arriving, LatencyModel};
use super::power::PowerModel;
use crate::plant::Plant;
use headroom_units::{Cores, Hertz, Watts};
use std::ops::Range;

/// The most frequencies that are looked at; of more, evenly many are left out.
const MAX_FREQUENCIES: usize = 48;

/// How far off a probability may be for one of the cases.
const ERROR: f64 = 1e-7;
/// Everything goes on where even so a period is late with more than this probability.
const HOPELESS: f64 = 0.3;
/// A point that is late this much more often than everything on is as good, where everything on was observed to be that late.
const LITTLE_MORE: f64 = 1.05;
/// So many numbers of cores below the one that fits are tried.
const LOOK: u64 = 3;
/// Frequencies on either side of the last choice that are tried every period, and after how many periods all of them are.
const NEAR: usize = 2;
const ALL_EVERY: u32 = 16;

/// What the next period is expected to bring.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Expected arrivals per second.
    pub rate: f64,
    /// What they may be instead, with probabilities.
    pub cases: Vec<(f64, f64)>,
    /// Requests left over beside those, per second of the period.
    pub backlog: f64,
    /// What the load is multiplied with because latency said it was larger than it looked.
    pub surprise: f64,
    /// Seconds.
    pub length: f64,
    /// What the percentile must stay under, in seconds.
    pub bound: f64,
}

impl Demand {
    /// Requests per second to have cores for, where `rate` arrive.
    fn load(&self, rate: f64) -> f64 {
        rate * self.surprise + self.backlog
    }
}

/// A point and what is expected there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub cores: Cores,
    /// The limit of the frequency; `None` at the highest.
    pub frequency: Option<Hertz>,
    /// That over the highest.
    pub pace: f64,
    pub watts: Watts,
    /// Probability that the period's percentile lies above the bound.
    pub late: f64,
}

/// What was learned, as the search uses it.
pub(crate) struct Learned<'a> {
    pub latency: &'a mut LatencyModel,
    pub cost: &'a Cost,
    pub power: &'a PowerModel,
    /// Caution learned from periods that were late, in ln of the percentile.
    pub caution: f64,
}

impl Learned<'_> {
    /// The probability that a period is late.
    pub(crate) fn late(&mut self, demand: &Demand, cores: f64, pace: f64) -> f64 {
        self.late_until(demand, cores, pace, |_, _| false)
    }

    /// Whether a period is late with at most the probability allowed.
    pub(crate) fn fits(&mut self, demand: &Demand, cores: f64, pace: f64, allowed: f64) -> bool {
        let decided = |least: f64, most: f64| least > allowed || most <= allowed;
        self.late_until(demand, cores, pace, decided) <= allowed
    }

    /// The probability that a period is late, as far as it is known when `decided` says of its bounds that they will do:
    /// the lower one then.
    fn late_until(
        &mut self,
        demand: &Demand,
        cores: f64,
        pace: f64,
        decided: impl Fn(f64, f64) -> bool,
    ) -> f64 {
        let station = self.latency.station(cores, self.cost.at(pace));
        let ln_bound = demand.bound.ln();
        let (mut sum, mut rest) = (0.0, 1.0);
        let mut late_at = |rate: f64, share: f64| {
            let arriving = Arriving {
                load: demand.load(rate),
                requests: rate * demand.length,
                length: demand.length,
            };
            self.latency
                .late(&station, &arriving, ln_bound, self.caution, ERROR / share)
        };
        // A high rate makes a period late by congestion, a low one by chance, for the percentile of few requests is nearly
        // their slowest: between two rates it is never later than at the worse of them.
        let Some(&(lowest, share)) = demand.cases.first() else {
            return sum;
        };
        let slowest = late_at(lowest, share);
        // The highest rate first: with many requests it decides soonest.
        for &(rate, share) in demand.cases.iter().rev() {
            let late = late_at(rate, share);
            sum += share * late;
            rest -= share;
            let most = late.max(slowest) * rest;
            if most < ERROR || decided(sum, sum + most) {
                break;
            }
        }
        sum
    }

    /// The percentile expected at the expected rate, in seconds.
    pub(crate) fn expected(&mut self, demand: &Demand, point: &Point) -> f64 {
        let (cores, cost) = (point.cores.get(), self.cost.at(point.pace));
        self.latency
            .ln(
                cores,
                demand.load(demand.rate) * cost / cores,
                cost,
                demand.length,
            )
            .0
            .exp()
    }

    /// Utilisation at the expected rate.
    pub(crate) fn load(&self, demand: &Demand, point: &Point) -> f64 {
        demand.load(demand.rate) * self.cost.at(point.pace) / point.cores.get()
    }

    fn watts(&self, demand: &Demand, cores: Cores, pace: f64) -> Watts {
        let busy = ((demand.rate + demand.backlog) * self.cost.at(pace)).min(cores.get());
        self.power.at(cores.get(), busy, pace)
    }

    pub(crate) fn point(
        &mut self,
        demand: &Demand,
        cores: Cores,
        frequency: Option<Hertz>,
        pace: f64,
    ) -> Point {
        Point {
            cores,
            frequency,
            pace,
            watts: self.watts(demand, cores, pace),
            late: self.late(demand, cores.get(), pace),
        }
    }
}

/// The points of a plant.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    plant: Plant,
    /// Limit and that over the highest, the highest first.
    paces: Vec<(Option<Hertz>, f64)>,
    /// The range of cores in steps.
    first: u64,
    last: u64,
    /// The fewest steps that fitted last time, for each pace.
    before: Vec<u64>,
    /// The frequency that was chosen last time, and since when not all were tried.
    last_best: usize,
    since_all: u32,
}

impl Grid {
    pub(crate) fn new(plant: Plant) -> Self {
        let mut paces = vec![(None, 1.0)];
        if let Some(range) = plant.frequency() {
            let steps = ((range.max() - range.min()) / range.step()).ceil().max(0.0) as usize;
            let every = (steps + 1).div_ceil(MAX_FREQUENCIES).max(1);
            for step in (1..=steps).step_by(every) {
                let limit = range.round_down(range.max() - range.step() * step as f64);
                paces.push((Some(limit), limit / range.max()));
            }
            paces.dedup_by(|a, b| a.1 == b.1);
        }
        let cores = plant.cores();
        let last = (cores.max() / cores.step() - 1e-9).ceil() as u64;
        Self {
            plant,
            before: vec![last; paces.len()],
            paces,
            first: (cores.min() / cores.step()).floor() as u64,
            last,
            last_best: 0,
            since_all: ALL_EVERY,
        }
    }

    fn cores(&self, steps: u64) -> Cores {
        let range = self.plant.cores();
        range.round_up(range.step() * steps as f64)
    }

    /// The cheapest point whose probability of being late is at most `allowed`, or little more than the model gives for
    /// everything on as far as that was `observed`: more of anything would not help. `None` where everything on is likelier to be
    /// late than that, by the model: what it believes is no permission. With the point comes the probability that was allowed.
    pub(crate) fn cheapest(
        &mut self,
        learned: &mut Learned<'_>,
        demand: &Demand,
        (allowed, observed): (f64, f64),
    ) -> Option<(Point, f64)> {
        let full = learned.late(demand, self.cores(self.last).get(), 1.0);
        if full > HOPELESS {
            return None;
        }
        let allowed = allowed.max((full * LITTLE_MORE).min(observed));
        let near = self.last_best.saturating_sub(NEAR)..(self.last_best + NEAR + 1).min(self.paces.len());
        let all = 0..self.paces.len();
        self.since_all += 1;
        if self.since_all < ALL_EVERY
            && let Some(best) = self.cheapest_of(learned, demand, allowed, near)
        {
            return Some((best, allowed));
        }
        self.since_all = 0;
        self.cheapest_of(learned, demand, allowed, all)
            .map(|best| (best, allowed))
    }

    /// The cheapest point at these frequencies. That of the last choice comes first: it is mostly the cheapest again,
    /// and then little has to be tried at the others.
    fn cheapest_of(
        &mut self,
        learned: &mut Learned<'_>,
        demand: &Demand,
        allowed: f64,
        paces: Range<usize>,
    ) -> Option<Point> {
        let first = self.last_best;
        let others = paces.filter(|index| *index != first);
        let mut best: Option<(u64, usize, Watts)> = None;
        // A frequency lower than one at which not even all cores fit is later still.
        let mut hopeless = self.paces.len();
        for index in std::iter::once(first).chain(others) {
            if index >= hopeless {
                continue;
            }
            if let Some((_, _, watts)) = best {
                let Some(fit) = self.cheaper(learned, demand, allowed, index, watts) else {
                    continue;
                };
                self.before[index] = fit;
            }
            let Some(steps) = self.fewest(learned, demand, allowed, index) else {
                hopeless = index;
                continue;
            };
            let watts = learned.watts(demand, self.cores(steps), self.paces[index].1);
            if best.is_none_or(|(_, _, least)| watts < least) {
                best = Some((steps, index, watts));
            }
        }
        let (steps, index, _) = best?;
        self.last_best = index;
        let (frequency, pace) = self.paces[index];
        Some(learned.point(demand, self.cores(steps), frequency, pace))
    }

    /// Steps of cores that fit and draw less than so much; `None` where there are none. Power rises with the cores, so
    /// those just below are tried.
    fn cheaper(
        &self,
        learned: &mut Learned<'_>,
        demand: &Demand,
        allowed: f64,
        index: usize,
        watts: Watts,
    ) -> Option<u64> {
        let pace = self.paces[index].1;
        let draws_less =
            |learned: &Learned<'_>, steps| learned.watts(demand, self.cores(steps), pace) < watts;
        if !draws_less(learned, self.first) {
            return None;
        }
        let (mut less, mut more) = (self.first, self.last + 1);
        while more > less + 1 {
            let middle = less + (more - less) / 2;
            if draws_less(learned, middle) {
                less = middle;
            } else {
                more = middle;
            }
        }
        self.below(learned, less + 1, |learned, steps| {
            learned.fits(demand, self.cores(steps).get(), pace, allowed)
        })
    }

    /// The first number of steps just below this one that fits. Some numbers of cores are worse than their neighbours, so
    /// the next ones are tried too, but only those that are better than what did not fit above them.
    fn below(
        &self,
        learned: &mut Learned<'_>,
        steps: u64,
        fits: impl Fn(&mut Learned<'_>, u64) -> bool,
    ) -> Option<u64> {
        let mut worst = f64::INFINITY;
        for steps in (steps.saturating_sub(LOOK).max(self.first)..steps).rev() {
            let uneven = learned.latency.unevenness(self.cores(steps).get());
            if uneven < worst {
                if fits(learned, steps) {
                    return Some(steps);
                }
                worst = uneven;
            }
        }
        None
    }

    /// The fewest steps of cores that are late with at most the probability allowed: sought from where they were last
    /// time, in steps that double.
    fn fewest(
        &mut self,
        learned: &mut Learned<'_>,
        demand: &Demand,
        allowed: f64,
        index: usize,
    ) -> Option<u64> {
        let pace = self.paces[index].1;
        let fits =
            |learned: &mut Learned<'_>, steps| learned.fits(demand, self.cores(steps).get(), pace, allowed);
        let start = self.before[index].clamp(self.first, self.last);
        let mut width = 1;
        let (mut late, mut fit);
        if fits(learned, start) {
            fit = start;
            while let Some(fewer) = self.below(learned, fit, fits) {
                fit = fewer;
            }
            late = fit;
        } else {
            late = start;
            loop {
                fit = (late + width).min(self.last);
                if fit == late {
                    return None;
                }
                if fits(learned, fit) {
                    break;
                }
                late = fit;
                width *= 2;
            }
        }
        while fit > late + 1 {
            let middle = late + (fit - late) / 2;
            if fits(learned, middle) {
                fit = middle;
            } else {
                late = middle;
            }
        }
        self.before[index] = fit;
        Some(fit)
    }
}
