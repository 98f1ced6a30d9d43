//! What it compares next, and with which interval an attempt can be afforded.

use super::compare::{Comparison, Move};
use super::ledger::Ledger;
use super::pace::{LONGEST, Pace, SEARCHES};
use super::{JUDGED, LEAST_S, LEAST_SHARE, SHARES, Seek};
use headroom_units::Seconds;

/// Periods, or blocks where these are more, that an attempt may wait for what it is expected to add: it is shortened until it need not wait
/// for longer.
const PATIENCE: (f64, f64) = (60.0, 4.0);
/// Periods, or blocks where these are more, with batches after which they are compared with none.
const UNJUDGED: (f64, f64) = (300.0, 20.0);
/// The share of the response time that this may add in the long run.
const DOUBTS: f64 = 0.01;
/// What a patient attempt is to have, in what its first block is expected to add.
const AFFORDED: f64 = 1.25;
/// The finest ratio of two intervals, and the least that an interval must differ by to be another.
const FINEST_RATIO: f64 = 1.2;
const ANOTHER: f64 = 1.05;

impl Seek {
    /// How long settling and measuring take with blocks as long as the noise of the load asks for.
    pub(super) fn scaled(&self) -> Pace {
        self.scale.map_or(self.pace, |scale| scale.of(&self.pace))
    }

    /// The shortest interval that is not none, where a response takes so long.
    pub(super) fn shortest(&self, response: f64) -> f64 {
        self.none() + LEAST_S.max(LEAST_SHARE * response)
    }

    /// Whether enough is known to compare.
    pub(super) fn is_known(&self) -> bool {
        self.load.response().is_some() && self.limit().is_some() && self.scale.is_some()
    }

    /// What to compare with next, in blocks as long as the noise now asks for.
    pub(super) fn next_by_noise(&mut self) -> Option<Comparison> {
        let (pace, most) = (self.pace, self.tuning.max_pairs);
        let large = match self.seeks_large && self.is_off() && !self.is_patient {
            true => self.noise.large(&pace, most),
            false => None,
        };
        self.scale = large.or_else(|| match self.is_patient {
            true => self.noise.patient(&pace, most),
            false => self.noise.scale(&pace, most),
        });
        self.next()
    }

    /// What to compare with next; `None` where there is nothing.
    fn next(&mut self) -> Option<Comparison> {
        let (limit, response) = (self.limit()?, self.load.response()?);
        let scale = self.scale?;
        let none = self.none();
        let least = self.shortest(response);
        if self.is_off() {
            let share = match self.is_patient && !self.ledger.owes() {
                true => self.shares[1],
                false => self.shares[0].min(self.affordable(response)),
            };
            let wanted = self.remembered.unwrap_or(none + share * response).min(limit);
            let other = self.bounds.fit(Seconds::new(wanted)).get();
            return (other >= least).then(|| Comparison::new(none, other, Move::Up, response, scale));
        }
        loop {
            let opposite = if self.way == Move::Up {
                Move::Down
            } else {
                Move::Up
            };
            // What is owed may be owed to the present interval, and what was found of it long ago or at another load says little.
            let is_due = self.is_none_due();
            let order = match is_due {
                true => [Move::Off, self.way, opposite],
                false => [self.way, opposite, Move::Off],
            };
            let Some(way) = order.into_iter().find(|way| !self.tried.contains(way)) else {
                if self.ratio <= FINEST_RATIO {
                    return None;
                }
                self.ratio = self.ratio.sqrt().max(FINEST_RATIO);
                // Whether none is better does not depend on the ratio.
                self.tried.retain(|way| *way == Move::Off);
                continue;
            };
            let wanted = match way {
                Move::Up => (self.interval * self.ratio).min(limit),
                Move::Down => self.interval / self.ratio,
                Move::Off => none,
            };
            let other = self.bounds.fit(Seconds::new(wanted)).get();
            let is_another = match way {
                Move::Up => other > self.interval * ANOTHER,
                Move::Down => other < self.interval / ANOTHER && other >= least,
                // What was found to help by so much at this load is not doubted for a while.
                Move::Off => !self.is_undoubted || self.is_long_unjudged(),
            };
            if is_another {
                // Whether none is better is asked in blocks that tell of any gain, also where a large one was found in shorter ones; in
                // patient ones only where it was found in such.
                let scale = match way == Move::Off && !self.holds_patiently {
                    true => self.noise.scale(&self.pace, self.tuning.max_pairs)?,
                    false => scale,
                };
                self.scale = Some(scale);
                return Some(Comparison::new(self.interval, other, way, response, scale));
            }
            self.tried.push(way);
        }
    }

    /// Whether none is to be compared with before anything else: something is owed, or it is long ago. What makes batches help may end and
    /// leave the response with them as it was.
    fn is_none_due(&self) -> bool {
        self.ledger.left(self.tuning.budget) < 0.0 || self.unjudged >= JUDGED || self.is_long_unjudged()
    }

    /// Whether batches have been in force for so long that they are to be compared with none, whatever it waits for.
    pub(super) fn is_long_unjudged(&self) -> bool {
        // A block without batches adds what these save.
        let dear = UNJUDGED.1.max(self.gain.exp_m1() / DOUBTS);
        let pace = match self.holds_patiently {
            true => self.scaled(),
            false => self.pace.scaled(self.scale.map_or(1, |scale| scale.times)),
        };
        let most = UNJUDGED.0.max(dear * pace.block());
        !self.is_off() && f64::from(self.since_judged) >= most
    }

    /// Periods until a patient attempt can afford its whole share, for what it finds grows with the interval; `None` where it can now.
    pub(super) fn saves_for(&mut self) -> Option<f64> {
        let scale = self.noise.patient(&self.pace, self.tuning.max_pairs)?;
        let pace = scale.of(&self.pace);
        let usual = pace.requests * self.load.response()?;
        let needed = self.shares[1] * 0.5 * pace.holds(SEARCHES) * usual * AFFORDED;
        let missing = needed - self.ledger.free(self.tuning.budget);
        (missing > 0.0).then(|| missing / Ledger::income(1.0, usual, self.tuning.budget))
    }

    /// The share of the mean response time that an attempt can have without waiting for long: half of it is added to each response time
    /// of a block.
    fn affordable(&self, response: f64) -> f64 {
        let usual = self.pace.requests * response;
        let (budget, pace) = (self.tuning.budget, self.scaled());
        let patience = PATIENCE.0.max(PATIENCE.1 * pace.block());
        let soon = self.ledger.free(budget) + Ledger::income(patience, usual, budget);
        let share = soon / (0.5 * pace.holds(SEARCHES) * usual);
        share.max(SHARES.0)
    }

    /// Why not even the shortest attempt would come to an end soon, where that is so.
    pub(super) fn endless(&self) -> Option<String> {
        let times = self.scale.map_or(1, |scale| scale.times);
        let periods = self
            .pace
            .scaled(times)
            .comparison(0.5 * SHARES.0, self.tuning.budget);
        (periods > LONGEST).then(|| {
            format!(
                "a response takes {:.1} periods of this loop, so that a comparison takes {periods:.0} or more; over {LONGEST:.0} \
                 none is made",
                self.pace.lag
            )
        })
    }
}
