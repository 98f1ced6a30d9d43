//! Whose turn it is, and when it ends.

use super::arm::{Next, Out, Sample};
use super::verdict::{HOPELESS, HOPELESS_ROUNDS, MIN_ROUNDS, mean_and_error};
use super::watch::{Against, MAX_DRAIN, MAX_STRIKES, against, asked_less, far_longer, is_drained};
use super::{After, Foretold, Trial};

/// A setting that has this share less of queries per second than the first one in each of some rounds loses load.
const FAR_LESS: f64 = 0.1;
/// As one that has this share less in the mean of more rounds, beyond their spread.
const LESS: f64 = 0.03;
/// By so many standard deviations of Poisson counts less is no chance of few queries.
pub(super) const NO_CHANCE: f64 = 3.0;
/// Turns in a row without anything that could be scored after which a comparison is given up.
const MAX_EMPTY: u32 = 3;
/// Why a comparison is given up.
const NOTHING: &str = "nothing was answered or no watts were known";
const OVERLOAD: &str = "what a turn left is not served without a delay either";

impl<T: Clone + PartialEq> Trial<T> {
    /// Takes what a period scored with [`setting`](Self::setting) in force, where it could be scored, and what was measured in it; a turn
    /// begins where `foretold` has nothing against it.
    pub(in crate::oncall::law) fn observe(
        &mut self,
        score: Option<f64>,
        sample: &Sample,
        foretold: Foretold<'_, T>,
    ) {
        if self.done {
            return;
        }
        if let Some(periods) = self.draining {
            self.drain(periods + 1, sample, foretold);
            return;
        }
        self.periods += 1;
        self.now.add(sample);
        let score = score.filter(|score| score.is_finite());
        if self.at > 0 && self.is_cut(score, sample) {
            return;
        }
        if self.at == 0
            && self.pace.keeps_load
            && matches!(against(sample, self.pace.target), Some(Against::Late(_)))
        {
            self.arms[0].strikes += 1;
        }
        if self.periods <= self.pace.settle {
            return;
        }
        if let Some(score) = score {
            self.scores.push(score);
            self.turn.add(sample);
        }
        // What cannot be scored in twice its turn scores nothing: a setting under which nothing is answered.
        let patience = self.pace.settle + 2 * self.pace.block;
        if self.scores.len() < self.pace.block as usize && self.periods < patience {
            return;
        }
        if self.scores.is_empty() {
            // A pause, or a meter that is gone, says nothing of this setting: it has its turn again.
            self.forget_turn();
            self.empty += 1;
            self.given_up = (self.empty >= MAX_EMPTY).then_some(NOTHING);
            self.done = self.given_up.is_some();
            return;
        }
        let score = self.scores.iter().sum::<f64>() / self.scores.len() as f64;
        self.end_turn(score);
        self.drop_where_load_is_lost();
        self.go_on(foretold);
    }

    fn end_turn(&mut self, score: f64) {
        let turn = std::mem::take(&mut self.turn);
        self.arms[self.at].add_turn(score, turn);
        (self.empty, self.lately) = (0, self.now);
        self.forget_turn();
    }

    /// Cuts the turn where this period says that it harms clients.
    fn is_cut(&mut self, score: Option<f64>, sample: &Sample) -> bool {
        if self.pace.keeps_load {
            let first = self.arms[0].loads.last();
            // While nobody is on call a query waits for no slot.
            let waits = sample.oldest_waiting.filter(|_| !self.arms[self.at].is_beside);
            let sample = &Sample {
                oldest_waiting: waits,
                ..*sample
            };
            let against = against(sample, self.pace.target).or_else(|| asked_less(sample, first?));
            // As often as the first setting is late, it is not for the setting.
            let most = MAX_STRIKES + self.arms[0].strikes;
            let arm = &mut self.arms[self.at];
            let (is_dropped, why) = match against {
                None => return false,
                Some(Against::Fails(why)) => (true, why),
                Some(Against::Late(why)) => {
                    arm.strikes += 1;
                    (arm.strikes >= most, why)
                }
            };
            arm.why = Some(why);
            self.then = match is_dropped {
                true => After::Next,
                false => After::Again,
            };
            if is_dropped {
                self.drop_from(self.at, Out::Unjudged);
            }
            self.forget_turn();
        } else {
            let longest = self.arms[0].sums.longest;
            let Some(why) = far_longer(sample, longest, self.pace.target) else {
                return false;
            };
            // Where nothing was scored yet this period is what there is; nothing answered is worse than anything that was.
            let worst = self.arms[0].turns.last().map(|first| first - 2.0 * HOPELESS);
            self.scores.extend(score);
            let count = self.scores.len() as f64;
            let Some(mean) = (count > 0.0)
                .then(|| self.scores.iter().sum::<f64>() / count)
                .or(worst)
            else {
                return false;
            };
            self.turn.add(sample);
            self.arms[self.at].why = Some(why);
            self.then = After::Next;
            self.end_turn(mean);
        }
        self.draining = Some(0);
        true
    }

    /// A period in which the first setting served what a turn left.
    fn drain(&mut self, periods: u32, sample: &Sample, foretold: Foretold<'_, T>) {
        let target = self.pace.target;
        let bound = match self.pace.keeps_load {
            true => target,
            // Everybody waits: as long as with the first in its own turns, and no longer, is served.
            false => self.arms[0]
                .sums
                .longest
                .map_or(target, |longest| longest.max(target)),
        };
        self.draining = Some(periods);
        let is_drained = is_drained(sample, self.pace.keeps_load, bound);
        if !is_drained && periods < MAX_DRAIN {
            return;
        }
        self.draining = None;
        if !is_drained && self.pace.keeps_load {
            // This is no load that all settings can serve.
            (self.done, self.given_up, self.at) = (true, Some(OVERLOAD), 0);
            return;
        }
        match self.then {
            After::Again => {}
            After::Next => self.go_on(foretold),
        }
    }

    /// Drops a setting, and those after it, which are slower still and are not judged.
    fn drop_from(&mut self, at: usize, out: Out) {
        self.arms[at].out.get_or_insert(out);
        if self.arms[at].is_beside {
            return;
        }
        for arm in self.arms[at..].iter_mut().filter(|arm| !arm.is_beside) {
            arm.out.get_or_insert(Out::Unjudged);
            arm.why
                .get_or_insert_with(|| "dropped with a shorter one".to_owned());
        }
    }

    /// The next turn in which nothing is foretold to go wrong.
    pub(super) fn go_on(&mut self, foretold: Foretold<'_, T>) {
        loop {
            match self.next() {
                Some(next) => self.at = next,
                None => self.end_round(),
            }
            if self.done || self.at == 0 || !self.pace.keeps_load || self.arms[self.at].is_beside {
                return;
            }
            let measured = self.arms[..=self.at].iter();
            let measured = measured.filter_map(|arm| Some((&arm.setting, arm.sums.median_at_slo()?)));
            let next = Next {
                setting: &self.arms[self.at].setting,
                measured: measured.collect(),
                undelayed: self.arms[0].sums.mean_latency(),
                had_turn: !self.arms[self.at].turns.is_empty(),
                lately: self.lately,
            };
            let Some(why) = foretold(&next) else { return };
            let at = self.at;
            self.arms[at].why = Some(why);
            self.drop_from(at, Out::Unjudged);
            if self.left() == 1 {
                self.found_the_first();
                return;
            }
        }
    }

    fn found_the_first(&mut self) {
        (self.done, self.at) = (true, 0);
    }

    /// Drops a setting, and those after it, where it was asked less than the first in each round in which both had a turn.
    fn drop_where_load_is_lost(&mut self) {
        if !self.pace.keeps_load {
            return;
        }
        let left = (1..self.arms.len()).filter(|at| self.arms[*at].out.is_none());
        let lost = left.into_iter().find_map(|at| Some((at, self.load_lost(at)?)));
        if let Some((at, why)) = lost {
            self.arms[at].why = Some(why);
            self.drop_from(at, Out::Worse);
        }
    }

    /// In words, what load a setting lost; `None` where its rounds do not say that it did.
    ///
    /// By the spread of the rounds, since a load comes in bursts, but no less than that of Poisson counts: three rounds may be alike by chance.
    fn load_lost(&self, at: usize) -> Option<String> {
        let pairs = self.arms[0].loads.iter().zip(&self.arms[at].loads);
        let expected = pairs.filter_map(|(first, this)| {
            let (expected, variance) = first.expected(this.queries, this.length)?;
            (expected > 0.0).then_some((expected, this.queries, variance))
        });
        let expected: Vec<(f64, f64, f64)> = expected.collect();
        let losses: Vec<f64> = expected
            .iter()
            .map(|(expected, had, _)| 1.0 - had / expected)
            .collect();
        let (all, had, variance) = expected.iter().fold((0.0, 0.0, 0.0), |sum, one| {
            (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
        });
        let is_chance = all - had <= NO_CHANCE * variance.sqrt();
        let least = losses.iter().copied().fold(f64::MAX, f64::min);
        let is_far_less = losses.len() >= HOPELESS_ROUNDS && least > FAR_LESS;
        let (mean, error) = mean_and_error(&losses);
        let is_less = losses.len() >= MIN_ROUNDS && mean > LESS.max(self.pace.significance * error);
        ((is_far_less || is_less) && !is_chance).then(|| {
            format!(
                "asked {:.0} % of the queries per second of the first setting's turns, in the mean of {} rounds",
                (1.0 - mean) * 100.0,
                losses.len()
            )
        })
    }

    /// Whose turn is next in this round: in every other round the last goes first, so that a drift favours nobody.
    fn next(&self) -> Option<usize> {
        let is_left = |at: &usize| self.arms[*at].out.is_none();
        match self.round.is_multiple_of(2) {
            true => (self.at + 1..self.arms.len()).find(is_left),
            false => (0..self.at).rev().find(is_left),
        }
    }

    pub(super) fn first_of_round(&self) -> Option<usize> {
        let mut left = (0..self.arms.len()).filter(|at| self.arms[*at].out.is_none());
        match self.round.is_multiple_of(2) {
            true => left.next(),
            false => left.next_back(),
        }
    }
}
