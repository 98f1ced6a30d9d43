//! What the percentile of a period will be, and how far it may be off.
//!
//! The model is [`crate::queueing::percentile`], which knows the cores, the load and how the sizes are spread. Three
//! things it cannot know are learned: the spread itself (from the ratio of the periods' P95 to their medians), a scale
//! (waiting that is not for a core, and what the spread's family misses), and a power to which the queueing's share is
//! raised (several nodes under one balancer are not one pool, and arrivals need not be Poisson):
//!
//! ```text
//! ln percentile = ln cost(φ) + ln F(c, 0) + scale + (1 + power) ln [F(c, ρ) / F(c, 0)]
//! ```
//!
//! c are the cores where a request is worked for by one at a time. Where requests are answered faster than a core could
//! (threads of their own for one request, or cores that are a quota of faster ones) c cores are fewer servers that are as
//! much faster, and queue at loads where c would not: how many fewer is learned from how much faster.
//!
//! A period is short: what a load close to or above full does to it is not what it would do for good
//! ([`crate::queueing::transient`]).
//!
//! What is left scatters; its variance is learned for one request and divided by the requests of a period, because the
//! percentile of few requests is itself uncertain.

use super::kalman::Kalman;
use super::table::{MOST, Percentile, Place, Row, Table};
use super::uneven::Uneven;
use crate::plant::CoreRange;
use crate::queueing::percentile::{
    Congestion, SLICES, ServiceSizes, congestion_left, normal_exceeds, sharing_congestion,
};
use crate::queueing::transient::load_after;
use headroom_units::Ratio;
use std::ops::RangeInclusive;

/// Squared coefficients of variation of the sizes to choose from; the third is the exponential distribution.
const SPREADS: [f64; 5] = [0.0, 0.3, 1.0, 2.5, 7.0];
const EXPONENTIAL: usize = 2;

#[derive(Clone, Debug)]
struct Shape {
    at_slo: Percentile,
    median: Percentile,
    p95: Percentile,
    /// Mean square of how far the ratio of P95 to median was off, in logarithms.
    off: f64,
}

/// Weight of the newest period in a shape's record.
const SHAPE_FORGET: f64 = 1.0 / 100.0;
/// Periods before another shape is believed, and what its record must fall under.
const SHAPE_PROBATION: u32 = 20;
const SHAPE_BETTER: f64 = 0.8;

/// Bounds of the two learned parameters. The lower one of the scale leaves room for ln [`MAX_WIDTH`].
const SCALE: (f64, f64) = (-4.5, 3.0);
const POWER: (f64, f64) = (-0.4, 1.5);
/// Variance of ln percentile for one request until it is known (1.45² for exponential times and P95), its bounds, and
/// what is left however many there are.
const SCATTER: f64 = 2.1;
const SCATTER_BOUNDS: (f64, f64) = (0.3, 30.0);
const FLOOR: f64 = 0.03;
const CONGESTED_BOUNDS: (f64, f64) = (0.2, 6.0);
/// Latencies that a request can have, in seconds: others are faults of who measured.
const LATENCY_S: RangeInclusive<f64> = 1e-7..=86_400.0;
/// Loads above this tell nothing of a period as short as the queue's memory.
const MAX_LOAD: f64 = 0.95;
/// Congestion is not looked up beyond this load.
const MAX_CONGESTED: f64 = 0.97;
/// The load is never taken for more than one and this times what it looks.
const MAX_SURPRISE: f64 = 1.0;
/// What a surprise is, in standard deviations, and what is left of it one period later.
const SURPRISE: f64 = 2.2;
const SURPRISE_STAYS: f64 = 0.6;

/// Where a period's percentile was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub cores: f64,
    /// λ cost / c.
    pub load: f64,
    /// Core seconds a request costs at the frequency of the period.
    pub cost: f64,
    pub completions: f64,
    /// The period's length, in seconds.
    pub length: f64,
    pub at_slo: f64,
    pub median_and_p95: Option<(f64, f64)>,
}

/// Some cores at some frequency: what of [`LatencyModel::late`] does not depend on the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Station {
    cores: f64,
    /// Core seconds a request costs.
    cost: f64,
    column: Place,
    alone: f64,
    /// ln of the percentile where nothing queues.
    idle: f64,
    /// What the queueing's share is raised to.
    power: f64,
}

/// What arrives in a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arriving {
    /// Requests per second to be served, what was left over included.
    pub load: f64,
    /// Requests of the period.
    pub requests: f64,
    /// The period's length, in seconds.
    pub length: f64,
}

/// A request that is answered faster than a core could work for it is served by several at once: so many at most, and
/// what may as well be the spread of the sizes, in ln. How fast it is learned.
pub(crate) const MAX_WIDTH: f64 = 64.0;
const WIDTH_DOUBT: f64 = 0.4;
const WIDTH_STEP: f64 = 0.05;

/// The learned latency of the service.
#[derive(Clone, Debug)]
pub(crate) struct LatencyModel {
    shapes: Vec<Shape>,
    shape: usize,
    shape_periods: u32,
    congestion: Table<8>,
    filter: Kalman<2>,
    uneven: Uneven,
    /// Of the squares of what is left: for one request, and as a multiple of what congestion explains.
    scatter: Kalman<2>,
    surprise: f64,
    percentile: Ratio,
    /// All cores.
    most: f64,
    /// ln of the cores that work for one request at once. Where that is w, c cores are c / w servers that are w times as
    /// fast: they queue at loads where c would not.
    ln_width: f64,
}

impl LatencyModel {
    pub(crate) fn new(percentile: Ratio, range: CoreRange) -> Self {
        let shapes = SPREADS
            .iter()
            .enumerate()
            .map(|(i, scv)| {
                let sizes = if i == EXPONENTIAL {
                    ServiceSizes::exponential()
                } else {
                    ServiceSizes::lognormal(*scv)
                };
                let table = |percentile: f64| Percentile::new(sizes.clone(), Ratio::new(percentile), range);
                Shape {
                    at_slo: table(percentile.get()),
                    median: table(0.5),
                    p95: table(0.95),
                    off: 0.0,
                }
            })
            .collect();
        Self {
            shapes,
            shape: EXPONENTIAL,
            shape_periods: 0,
            filter: new_filter(),
            congestion: Table::new(range),
            uneven: Uneven::new(range),
            scatter: Kalman::new([SCATTER, 1.0], [1.0, 1.0], [0.03, 0.03]),
            surprise: 0.0,
            percentile,
            most: range.max().get(),
            ln_width: 0.0,
        }
    }

    /// Squared coefficient of variation of the sizes, as far as it was learned.
    pub(crate) fn spread(&self) -> f64 {
        SPREADS[self.shape]
    }

    /// The surprise that is left, as a factor of the load.
    pub(crate) fn surprise(&self) -> f64 {
        1.0 + self.surprise
    }

    /// The load that makes requests wait for good as they do in a period of `length` seconds at this one.
    fn lasting(&self, cores: f64, load: f64, cost: f64, length: f64) -> f64 {
        let variance = load * cost * (1.0 + self.spread()) / cores;
        load_after(load, variance, length)
    }

    /// ln of the percentile of a period in seconds, and the ln of the queueing's share in it.
    pub(crate) fn ln(&mut self, cores: f64, load: f64, cost: f64, length: f64) -> (f64, f64) {
        let load = self.lasting(cores, load, cost, length);
        let servers = self.servers(cores);
        let table = &mut self.shapes[self.shape].at_slo;
        let alone = table.ln(servers, 0.0);
        let queueing = (table.ln(servers, load) - alone).max(0.0);
        let [scale, _] = self.filter.state();
        let value = cost.ln() + alone + scale + self.power(cores) * queueing;
        (value.min(2.0 * MOST), queueing)
    }

    /// How far the percentile of a whole period lies off its usual one for being congested or calm: its share in each of
    /// [`SLICES`], for [`Self::congested`]. `length` is that of the period in mean service times.
    fn congestion(&mut self, column: Place, load: f64, row: Row, length: f64) -> [f64; 7] {
        let [mean, slices @ ..] = self.congestion.at(column, row, |cores, load| {
            let Congestion { mean, slices } = sharing_congestion(cores, load);
            let mut values = [mean; 8];
            values[1..].copy_from_slice(&slices);
            values
        });
        let left = congestion_left(load, mean, length);
        slices.map(|slice| (left * slice).max(-0.9))
    }

    /// What the queueing's share is raised to where these cores are on. Fewer cores are never less uneven than all are:
    /// what all show is no matter of their number.
    fn power_of(&self, cores: f64) -> f64 {
        let [_, power] = self.filter.state();
        1.0 + power + self.uneven.at(cores).max(self.uneven.at(self.most))
    }

    /// The power that the queueing's share is raised to.
    fn power(&self, cores: f64) -> f64 {
        let [_, power] = self.filter.state();
        1.0 + power + self.uneven.at(cores)
    }

    /// How many servers these cores are.
    fn servers(&self, cores: f64) -> f64 {
        cores * (-self.ln_width).exp()
    }

    /// What the power at this number of cores is above that at others.
    pub(crate) fn unevenness(&self, cores: f64) -> f64 {
        self.uneven.at(cores)
    }

    /// These cores where a request costs so many core seconds.
    pub(crate) fn station(&mut self, cores: f64, cost: f64) -> Station {
        let servers = self.servers(cores);
        let table = &mut self.shapes[self.shape].at_slo;
        let column = table.column(servers);
        let alone = table.ln_at(column, Row::NONE);
        let [scale, _] = self.filter.state();
        Station {
            cores,
            cost,
            column,
            alone,
            idle: cost.ln() + alone + scale,
            power: self.power_of(cores),
        }
    }

    /// The probability that the percentile of a period lies above the bound whose ln is given, `caution` being added to
    /// the ln of the percentile; to within `error`.
    ///
    /// The percentile of n requests lies above a bound where at least m = ⌊n (1 − p)⌋ + 1 of them do. How many do is
    /// taken as Poisson, each with the probability (1 − p) e^{−g (bound/percentile − 1)}, an exponential tail (a power
    /// law on the other side), the percentile being that of a period as congested as it happens to be. g is read from
    /// the scatter: the asymptotic variance of the ln of a sample percentile of n values is p / ((1 − p) g² n).
    pub(crate) fn late(
        &mut self,
        station: &Station,
        arriving: &Arriving,
        ln_bound: f64,
        caution: f64,
        error: f64,
    ) -> f64 {
        let load = arriving.load * station.cost / station.cores;
        let load = self.lasting(station.cores, load, station.cost, arriving.length);
        let row = Row::new(load.min(MAX_CONGESTED));
        let servers = self.servers(station.cores);
        let queued = if load <= MAX_CONGESTED {
            self.shapes[self.shape].at_slo.ln_at(station.column, row)
        } else {
            self.shapes[self.shape].at_slo.ln(servers, load)
        };
        let queueing = (queued - station.alone).max(0.0);
        let ln = (station.idle + station.power * queueing).min(2.0 * MOST);
        let doubt = self.uneven.variance(station.cores) * queueing.min(3.0).powi(2);
        let unsure = (self.filter.uncertainty(&[1.0, queueing.min(3.0)]) + doubt + FLOOR * FLOOR).sqrt();
        let [one, congested] = self.scatter.state();
        let allowed = 1.0 - self.percentile.get();
        let steepness = ((1.0 - allowed) / (allowed * one)).sqrt();
        let requests = arriving.requests.max(1.0);
        let enough = (requests * allowed + 1e-9).floor() + 1.0;
        let ln_ratio = ln_bound - ln - caution - unsure;
        let congestion = self.congestion(
            station.column,
            load.clamp(0.0, MAX_CONGESTED),
            row,
            arriving.length / station.cost * self.ln_width.exp(),
        );
        let power = congested.sqrt() * station.power;
        let (mut late, mut rest) = (0.0, 1.0);
        for (slice, share) in congestion.iter().zip(SLICES).rev() {
            let ln_ratio = ln_ratio - power * slice.ln_1p();
            let each = if ln_ratio >= 0.0 {
                allowed * (-steepness * ln_ratio.exp_m1()).exp()
            } else {
                (allowed * (-steepness * ln_ratio).exp()).min(1.0)
            };
            let slice = at_least(enough, requests * each);
            late += share * slice;
            rest -= share;
            // Calmer periods are later still less often.
            if slice * rest < error {
                break;
            }
        }
        late
    }

    /// The percentile where nothing queues, in seconds.
    pub(crate) fn alone(&self, station: &Station) -> f64 {
        station.idle.exp()
    }

    /// The age that a request reaches in a period with at most this chance, in seconds: by the tail of [`Self::late`].
    pub(crate) fn age(&mut self, station: &Station, arriving: &Arriving, chance: f64) -> f64 {
        let load = arriving.load * station.cost / station.cores;
        let (ln, _) = self.ln(station.cores, load, station.cost, arriving.length);
        let [one, _] = self.scatter.state();
        let allowed = 1.0 - self.percentile.get();
        let steepness = ((1.0 - allowed) / (allowed * one)).sqrt();
        let beyond = (arriving.requests * allowed / chance).ln().max(0.0) / steepness;
        ln.exp() * (1.0 + beyond)
    }

    /// Takes a period's percentile.
    pub(crate) fn observe(&mut self, seen: &Measured) {
        self.surprise *= SURPRISE_STAYS;
        let fits = seen.completions >= 3.0
            && LATENCY_S.contains(&seen.at_slo)
            && seen.cost > 0.0
            && seen.cores > 0.0
            && seen.load >= 0.0;
        if !fits {
            return;
        }
        let lasting = self.lasting(seen.cores, seen.load, seen.cost, seen.length);
        let load = lasting.min(MAX_LOAD);
        self.learn_shape(seen, load);
        let servers = self.servers(seen.cores);
        let table = &mut self.shapes[self.shape].at_slo;
        let alone = table.ln(servers, 0.0);
        let queueing = (table.ln(servers, load) - alone).max(0.0);
        let weights = [1.0, queueing];
        let off = seen.at_slo.ln() - seen.cost.ln() - alone - queueing * (1.0 + self.uneven.at(seen.cores));
        let known = self.filter.uncertainty(&weights);
        // A period that was overloaded says by how much, not how the queue behaves.
        let over = (lasting - MAX_LOAD).max(0.0) * 4.0;
        let column = self.congestion.column(servers);
        let stay = seen.cost * (-self.ln_width).exp();
        let slices = self.congestion(column, load, Row::new(load), seen.length / stay);
        let power = self.power(seen.cores);
        let explained: f64 = slices
            .iter()
            .zip(SLICES)
            .map(|(slice, share)| share * (power * slice.ln_1p()).powi(2))
            .sum();
        let [one, congested] = self.scatter.state();
        let noise = one / seen.completions + congested * explained + FLOOR * FLOOR + over * over;
        let off = self.filter.observe(&weights, off, noise);
        self.uneven.observe(seen.cores, queueing, off, noise + known);
        let [scale, power] = self.filter.state();
        self.filter
            .set_state([scale.clamp(SCALE.0, SCALE.1), power.clamp(POWER.0, POWER.1)]);
        let faster = if -scale > WIDTH_DOUBT { -scale } else { 0.0 };
        self.ln_width += WIDTH_STEP * (faster.min(MAX_WIDTH.ln()) - self.ln_width);
        let deviation = (noise + known).sqrt();
        if off > SURPRISE * deviation && over == 0.0 {
            let hidden = self.hidden_load(seen, seen.at_slo.ln() - deviation);
            self.surprise = self.surprise.max(hidden);
        }
        if over == 0.0 {
            // A square has twice the square of its mean as variance; one far out is no more than a large one.
            let square = (off * off - known - FLOOR * FLOOR).clamp(0.0, 12.0 * noise);
            self.scatter
                .observe(&[1.0 / seen.completions, explained], square, 2.0 * noise * noise);
            let [one, congested] = self.scatter.state();
            self.scatter.set_state([
                one.clamp(SCATTER_BOUNDS.0, SCATTER_BOUNDS.1),
                congested.clamp(CONGESTED_BOUNDS.0, CONGESTED_BOUNDS.1),
            ]);
        }
    }

    /// By which share the load must have been larger than it looked for the percentile to be expected to be that late:
    /// requests that came in a heap, cores that were taken away or slowed.
    fn hidden_load(&mut self, seen: &Measured, ln: f64) -> f64 {
        let from = seen.load.max(0.05);
        let (mut low, mut high) = (from, from * (1.0 + MAX_SURPRISE));
        for _ in 0..20 {
            let middle = f64::midpoint(low, high);
            if self.ln(seen.cores, middle, seen.cost, seen.length).0 < ln {
                low = middle;
            } else {
                high = middle;
            }
        }
        high / from - 1.0
    }

    fn learn_shape(&mut self, seen: &Measured, load: f64) {
        let Some((median, p95)) = seen.median_and_p95 else {
            return;
        };
        if !(median > 0.0 && p95 >= median && p95.is_finite() && seen.completions >= 20.0) {
            return;
        }
        let ratio = (p95 / median).ln();
        let servers = self.servers(seen.cores);
        for shape in &mut self.shapes {
            let expected = shape.p95.ln(servers, load) - shape.median.ln(servers, load);
            let weight = SHAPE_FORGET.max(1.0 / f64::from(self.shape_periods + 1));
            shape.off += weight * ((ratio - expected).powi(2) - shape.off);
        }
        self.shape_periods = self.shape_periods.saturating_add(1);
        let off = |i: usize| self.shapes[i].off;
        let best = (0..SPREADS.len())
            .reduce(|a, b| if off(b) < off(a) { b } else { a })
            .unwrap_or(EXPONENTIAL);
        if best != self.shape
            && self.shape_periods >= SHAPE_PROBATION
            && off(best) < SHAPE_BETTER * off(self.shape)
        {
            // The scale moves so that what was predicted of this load stays as it was, but for the learned power.
            let (old, new) = (
                self.shapes[self.shape].at_slo.ln(servers, load),
                self.shapes[best].at_slo.ln(servers, load),
            );
            let [scale, power] = self.filter.state();
            self.filter
                .set_state([(scale + old - new).clamp(SCALE.0, SCALE.1), power]);
            self.shape = best;
        }
    }
}

/// P(N ≥ m) for N Poisson with this mean; by the normal distribution of its square root's neighbour (Anscombe) where
/// there are many.
fn at_least(m: f64, mean: f64) -> f64 {
    if m > 40.0 {
        return normal_exceeds(2.0 * ((m - 0.125).sqrt() - (mean + 0.375).sqrt()));
    }
    let (mut term, mut below) = ((-mean).exp(), 0.0);
    let mut count = 0.0;
    while count < m {
        below += term;
        count += 1.0;
        term *= mean / count;
    }
    (1.0 - below).clamp(0.0, 1.0)
}

/// Scale and power: the calibrated cost is within a factor of two of the latency, several nodes and bursts make the
/// queueing's share somewhat larger.
fn new_filter() -> Kalman<2> {
    Kalman::new([0.0, 0.1], [0.5, 0.25], [0.006, 0.004])
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
