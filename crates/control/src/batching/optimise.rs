//! The interval that costs least by the model (Equations 10 and 11): J = a (y(k+1) - y_ref)² + b Δu².
//!
//! With the firing weights held, y = r + η u, and the best interval is u = (a η (y_ref - r) + b u_k)/(a η² + b), clipped to the bounds.
//! The weights depend on u, so J has several minima: the closed form is one candidate, a grid over the bounds gives the others, and the
//! best is refined between its neighbours.

use super::model::{FuzzyModel, Sample};
use headroom_units::Seconds;

/// What the interval is chosen for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// y_ref: the mean response time to steer to. The paper's is the SLA, which does not minimise the mean: where the response time is
    /// U-shaped over the interval, it steers to the longest interval that keeps the SLA. With 0 it is minimised.
    pub reference: Seconds,
    /// a: what being off by a second costs, squared.
    pub accuracy: f64,
    /// b: what a change of the interval by a second costs, squared.
    pub effort: f64,
}

impl Objective {
    /// J of a predicted response time after this change of the interval.
    pub fn cost(&self, response: Seconds, change: Seconds) -> f64 {
        self.accuracy * (response - self.reference).get().powi(2) + self.effort * change.get().powi(2)
    }
}

/// The interval of least cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimum {
    /// The interval.
    pub interval: Seconds,
    /// What the model predicts with it.
    pub response: Seconds,
    /// J.
    pub cost: f64,
}

/// Points of the grid over the bounds, and of that between the neighbours of the best.
const GRID: usize = 64;
const FINE: usize = 16;

/// The interval within `bounds` of least cost by the model, from samples of which the last is the present one; `None` where these are
/// fewer than it looks back.
pub fn optimise(
    model: &FuzzyModel,
    past: &[Sample],
    bounds: (Seconds, Seconds),
    objective: &Objective,
) -> Option<Optimum> {
    let now = past.last()?.interval;
    let (least, most) = bounds;
    let at = |interval: Seconds| -> Option<Optimum> {
        let response = model.predict(past, interval)?;
        let cost = objective.cost(response, interval - now);
        Some(Optimum {
            interval,
            response,
            cost,
        })
    };
    let mut best = at(closed_form(model, past, now, objective)?.clamp(least, most))?;
    let step = (most - least) / GRID as f64;
    let consider = |interval: Seconds, best: &mut Optimum| -> Option<()> {
        let one = at(interval.clamp(least, most))?;
        // Of equal costs the shorter interval.
        if one.cost < best.cost || (one.cost == best.cost && one.interval < best.interval) {
            *best = one;
        }
        Some(())
    };
    for point in 0..=GRID {
        consider(least + step * point as f64, &mut best)?;
    }
    let about = best.interval;
    for point in 1..2 * FINE {
        consider(about + step * (point as f64 / FINE as f64 - 1.0), &mut best)?;
    }
    best.cost.is_finite().then_some(best)
}

/// The closed form about the present interval; that itself where the interval has no cost and no influence.
fn closed_form(model: &FuzzyModel, past: &[Sample], now: Seconds, objective: &Objective) -> Option<Seconds> {
    let line = model.line(past, now)?;
    let (a, b) = (objective.accuracy, objective.effort);
    let off = (objective.reference - line.at_zero).get();
    let interval = (a * line.slope * off + b * now.get()) / (a * line.slope.powi(2) + b);
    Some(if interval.is_finite() {
        Seconds::new(interval)
    } else {
        now
    })
}
