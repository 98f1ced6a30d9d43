//! What is compared.

use super::regime::Regime;
use super::{OnCall, reason};
use crate::decision::Reason;
use crate::oncall::law::{Point, most_workers};
use headroom_units::Seconds;

/// Whether not to be on call is better is asked in every so many comparisons, where it was not.
const OFF_EVERY: u32 = 4;
/// The longest delay of a share of the SLO's target: a query may wait for all of it.
const DELAY_SHARE: f64 = 0.5;

impl OnCall {
    /// What is in force where nothing was found: a few more workers than cores, one query each.
    pub(super) fn start(&self, cores: u32) -> Point {
        Point::new((cores + 2).min(most_workers(&self.plant)), 1)
    }

    /// What to compare while the server is saturated: from few workers to many, and as without us.
    pub(super) fn workers(&self, cores: u32) -> Vec<Point> {
        let most = most_workers(&self.plant);
        let batch = self.tuning.max_batch;
        let standard = [
            Point::new(cores, 1),
            Point::new(cores + 3, 2.min(batch)),
            // On one core the best of both by what was measured: as much as the server alone, with a tail a tenth as long.
            Point::new(cores + 3, 3.min(batch)),
            Point::new(cores + 2, batch),
            Point::new(2 * cores + 2, batch),
            Point::new(cores.saturating_mul(4), batch),
        ];
        let near = self.saturated.best.filter(|best| best.workers.is_some());
        let near = near.into_iter().flat_map(|best| {
            let workers = best.workers.unwrap_or(cores);
            let step = (workers / 4).max(1);
            let turns = (best.batch / 2).max(1);
            [
                best,
                Point::new(workers.saturating_sub(step).max(1), best.batch),
                Point::new(workers.saturating_add(step), best.batch),
                Point::new(workers, best.batch.saturating_sub(turns).max(1)),
                Point::new(workers, best.batch.saturating_add(turns).min(batch)),
            ]
        });
        let first = match self.saturated.best {
            None => standard.to_vec(),
            Some(_) => vec![standard[0], standard[3]],
        };
        let is_next = self.saturated.best.is_none_or(|best| best == Point::OFF)
            || self.trials.is_multiple_of(OFF_EVERY);
        let asks_off = is_next && !self.turns.has_favourites();
        let mut all: Vec<Point> = first
            .into_iter()
            .chain(near)
            .map(|point| Point {
                workers: point.workers.map(|workers| workers.min(most)),
                ..point
            })
            .collect();
        all.sort_by_key(|point| (point.workers, point.batch));
        all.extend(asks_off.then_some(Point::OFF));
        all
    }

    /// What to compare at partial load: delays from none to what the SLO leaves.
    pub(super) fn delays(&self, cores: u32) -> Vec<Point> {
        let none = self.without_delay(cores);
        let most = Seconds::from_millis(self.tuning.max_delay_ms).min(self.slo.target() * DELAY_SHARE);
        let mut all = vec![none];
        if let (Some(break_even), Some(true)) = (self.break_even, self.sees_savings) {
            let longer = std::iter::successors(Some(break_even), |delay| Some(*delay * 2.0));
            let longer = longer.take_while(|delay| *delay <= most);
            all.extend(longer.map(|delay| Point { delay, ..none }));
        }
        all
    }

    /// Whether nobody on call is compared at partial load too: where it would be seen that it is less work.
    pub(super) fn asks_off(&self) -> bool {
        self.sees_work == Some(true) && !self.turns.has_favourites()
    }

    /// What to compare while queries are late and none always waits for a slot: a delay would make them later.
    pub(super) fn on_call_or_not(&self, cores: u32) -> Vec<Point> {
        let asks_off = !self.turns.has_favourites();
        let on_call = self.without_delay(cores);
        std::iter::once(on_call)
            .chain(asks_off.then_some(Point::OFF))
            .collect()
    }

    /// What is best at saturation: with fewer workers or smaller rounds the server might be saturated by any load. That nobody on call is
    /// best there says nothing of a load that leaves it time.
    pub(super) fn without_delay(&self, cores: u32) -> Point {
        let found = self.saturated.best.filter(|best| *best != Point::OFF);
        found.unwrap_or(self.start(cores))
    }

    pub(super) fn nothing_to_compare(&self, regime: Regime, point: Point) -> Reason {
        let longest = Seconds::from_millis(self.tuning.max_delay_ms);
        let why = match (self.break_even, self.metered, self.sees_savings) {
            _ if regime == Regime::Elsewhere => {
                "queries are late, and a policy is to have some go first, for which somebody must be on call"
            }
            (None, ..) => "the machine has no idle state in which a delay would save anything",
            (Some(break_even), _, Some(true)) if longest < break_even => {
                "law.on-call.max_delay_ms is less than the break-even time"
            }
            (_, _, Some(true)) => "the SLO leaves less than the break-even time",
            (_, Some(true), _) => {
                "the watts are a model's, and the lengths of idle periods, by which a delay would save, are not measured"
            }
            _ => "no meter says what a delay would save",
        };
        let text = format!("{}, without a delay: {why}", point.in_words());
        reason("oncall-no-delay", text, point, &[])
    }
}
