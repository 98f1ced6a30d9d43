//! What the turns come to: which settings are dropped, which is found, and what is told of each.

use super::Trial;
use super::arm::Out;
use headroom_units::{Compared, Joules, PerSecond, Ratio, Reading, Seconds, Setting, Verdict};

/// Rounds of turns before anything is dropped by the standard error of its differences: fewer have none that can be relied on.
pub(super) const MIN_ROUNDS: usize = 3;
/// A score is a logarithm: a setting this much worse than the best in any round is dropped at once (half as good).
pub(super) const HOPELESS: f64 = 0.7;
/// Rounds in which it was, all of them so far.
pub(super) const HOPELESS_ROUNDS: usize = 2;

impl<T: Clone + PartialEq> Trial<T> {
    /// By how much the setting found scores more than another in the mean: the logarithm of a ratio; `None` where they were not
    /// compared.
    pub(in crate::oncall::law) fn gain_over(&self, other: &T) -> Option<f64> {
        let found = &self.arms[self.at];
        let other = self.arms.iter().find(|arm| arm.setting == *other)?;
        let pairs = found.turns.iter().zip(&other.turns);
        let gains: Vec<f64> = pairs.map(|(one, two)| one - two).collect();
        (gains.len() >= MIN_ROUNDS).then(|| gains.iter().sum::<f64>() / gains.len() as f64)
    }

    /// Whether no other setting than the one found had a turn.
    pub(in crate::oncall::law) fn is_alone(&self) -> bool {
        let mut others = (0..self.arms.len()).filter(|at| *at != self.at);
        others.all(|at| self.arms[at].turns.is_empty())
    }

    /// What each setting did, the preferred first, each as `setting` has it.
    pub(in crate::oncall::law) fn compared(&self, setting: impl Fn(&T) -> Setting) -> Vec<Compared> {
        let best = self.best();
        let verdict = |at: usize| match self.done && self.given_up.is_none() {
            false => Verdict::Open,
            true if at == self.at => Verdict::Found,
            // What had no whole turn is no worse than anything, nor is what something else than its score or a loss of load ended.
            true if self.arms[at].turns.is_empty() => Verdict::Open,
            true => match self.arms[at].out {
                Some(Out::Unjudged) => Verdict::Open,
                None if self.is_as_good(at, best) => Verdict::AsGood,
                None | Some(Out::Worse) => Verdict::Worse,
            },
        };
        // Beside the best of the others, by the rounds in which both had a turn.
        let gain = |at: usize| {
            let others = (0..self.arms.len()).filter(|other| *other != at);
            let behind = others.filter_map(|other| {
                let behind = self.behind(at, other);
                (!behind.is_empty()).then(|| mean_and_error(&behind).0)
            });
            let behind = behind.max_by(f64::total_cmp)?;
            Some(Ratio::new((-behind).exp_m1()))
        };
        let arms = self.arms.iter().enumerate();
        arms.map(|(at, arm)| {
            let sums = &arm.sums;
            let mean = |(sum, count): (Seconds, u32)| (count > 0).then(|| sum / f64::from(count));
            let queries = sums.queries as f64;
            let per_query = |energy: Reading<Joules>| Reading::new(energy.value / queries, energy.source);
            Compared {
                setting: setting(&arm.setting),
                turns: arm.turns.len() as u64,
                periods: sums.periods,
                rate: (sums.length > Seconds::ZERO).then(|| PerSecond::new(queries / sums.length.get())),
                energy_per_query: sums.energy.filter(|_| sums.queries > 0).map(per_query),
                latency_at_slo: sums.mean_at_slo(),
                p99: mean(sums.p99),
                gain: gain(at),
                verdict: verdict(at),
                why: arm.why.clone(),
            }
        })
        .collect()
    }

    /// Whether a setting missed the SLO in the mean of its turns, where none but the first may.
    pub(super) fn is_late(&self, at: usize) -> bool {
        let mean = self.arms[at].sums.mean_at_slo();
        self.pace.keeps_load && at > 0 && mean.is_some_and(|mean| mean > self.pace.target)
    }

    /// Why a setting is not found whatever it scored; `None` where it may be.
    fn unfit(&self, at: usize) -> Option<&'static str> {
        if self.is_late(at) {
            return Some("the SLO is missed in the mean of its turns");
        }
        let (this, first) = (&self.arms[at].sums, &self.arms[0].sums);
        if !self.pace.keeps_load || at == 0 {
            return None;
        }
        if self.arms[at].is_beside {
            let is_sure = this.is_sensed() || this.works_less(first);
            return (!is_sure).then_some(
                "the cores were no less busy than under the first setting: what it seems to save has no cause",
            );
        }
        this.saves_without_sleep(first).then_some(
            "the cores were in idle periods that pay for no longer than under the first setting: what it seems to save has no cause",
        )
    }

    pub(super) fn end_round(&mut self) {
        (self.round, self.restarts) = (self.round + 1, 0);
        for arm in &mut self.arms {
            arm.before_round.clone_from(&arm.sums);
        }
        if self.round >= MIN_ROUNDS {
            // Before anything is compared with them.
            for at in 0..self.arms.len() {
                let is_left = self.arms[at].out.is_none();
                if let Some(why) = self.unfit(at).filter(|_| is_left) {
                    self.arms[at].out = Some(Out::Unjudged);
                    self.arms[at].why = Some(why.to_owned());
                }
            }
        }
        let best = self.best();
        let mut first_is_worse = false;
        for at in 0..self.arms.len() {
            // Where the load is to be kept, all is held against what the first has.
            let is_reference = self.pace.keeps_load && at == 0;
            if at == best || self.arms[at].out.is_some() {
                continue;
            }
            let behind: Vec<f64> = self.behind(at, best);
            let least = behind.iter().copied().fold(f64::MAX, f64::min);
            let hopeless = behind.len() >= HOPELESS_ROUNDS && least > HOPELESS;
            let (mean, error) = mean_and_error(&behind);
            let clear =
                behind.len() >= MIN_ROUNDS && mean > self.pace.least_gain.max(self.pace.significance * error);
            match is_reference {
                true => first_is_worse = clear,
                false => self.arms[at].out = (hopeless || clear).then_some(Out::Worse),
            }
        }
        let over = self.round >= self.pace.rounds as usize;
        self.done = over || self.left() == 1 || (first_is_worse && self.left() == 2);
        self.at = match self.done {
            // The first that is as good as the best, as far as can be told.
            true => (self.by_preference())
                .find(|at| {
                    self.arms[*at].out.is_none() && self.unfit(*at).is_none() && self.is_as_good(*at, best)
                })
                .unwrap_or_else(|| if self.unfit(best).is_some() { 0 } else { best }),
            false => self.first_of_round().unwrap_or(best),
        };
    }

    /// All settings, what stands beside the others first where the cores are less busy with it.
    fn by_preference(&self) -> impl Iterator<Item = usize> {
        let is_first = |wanted: bool| {
            move |at: &usize| {
                let arm = &self.arms[*at];
                (arm.is_beside && arm.sums.works_less(&self.arms[0].sums)) == wanted
            }
        };
        let all = 0..self.arms.len();
        all.clone()
            .filter(is_first(true))
            .chain(all.filter(is_first(false)))
    }

    /// Whether what stands beside the others scored no less than the first, as far as can be told, with less work.
    pub(in crate::oncall::law) fn is_beside_as_good(&self) -> bool {
        let beside = (0..self.arms.len()).find(|at| self.arms[*at].is_beside);
        beside.is_some_and(|at| {
            let arm = &self.arms[at];
            let is_judged = arm.turns.len() >= MIN_ROUNDS && arm.out != Some(Out::Unjudged);
            let works_less = arm.sums.works_less(&self.arms[0].sums);
            is_judged && works_less && !self.is_late(at) && self.is_as_good(at, 0)
        })
    }

    pub(super) fn is_as_good(&self, at: usize, best: usize) -> bool {
        let (mean, error) = mean_and_error(&self.behind(at, best));
        at == best || mean <= self.pace.least_gain.max(self.pace.significance * error)
    }

    /// By how much a setting scored less than another in each round in which both had a turn.
    pub(super) fn behind(&self, at: usize, best: usize) -> Vec<f64> {
        let pairs = self.arms[best].turns.iter().zip(&self.arms[at].turns);
        pairs.map(|(best, one)| best - one).collect()
    }

    /// The best in the mean of those that are left: these had all turns.
    pub(super) fn best(&self) -> usize {
        let left = (0..self.arms.len()).filter(|at| self.arms[*at].out.is_none());
        let mean = |at: usize| {
            let turns = &self.arms[at].turns;
            turns.iter().sum::<f64>() / turns.len().max(1) as f64
        };
        left.max_by(|one, two| mean(*one).total_cmp(&mean(*two)).then(two.cmp(one)))
            .unwrap_or(0)
    }
}

pub(super) fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    if values.is_empty() {
        return (0.0, f64::INFINITY);
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = match values.len() {
        1 => f64::INFINITY,
        _ => (squares / (count - 1.0) / count).sqrt(),
    };
    (mean, error)
}
