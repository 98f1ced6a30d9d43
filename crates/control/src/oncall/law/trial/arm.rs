//! What is summed of one of the settings that are compared.

use headroom_units::{Joules, Reading, Seconds, Source};

/// What was measured in a period, beside its score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::oncall::law) struct Sample {
    /// Queries answered.
    pub queries: u64,
    /// Its length.
    pub length: Seconds,
    /// Energy; `None` where no meter answered.
    pub energy: Option<Reading<Joules>>,
    /// Latency at the SLO's percentile.
    pub at_slo: Option<Seconds>,
    /// Mean latency.
    pub mean: Option<Seconds>,
    /// P99.
    pub p99: Option<Seconds>,
    /// For how long the query waits at the end of the period that waits longest for a slot.
    pub oldest_waiting: Option<Seconds>,
    /// The least share of the connections that waited for a slot in the period.
    pub waiting_share: Option<f64>,
    /// Connections at its end.
    pub connections: u64,
    /// The effective number of those that asked in it, where it is told.
    pub asking: Option<f64>,
    /// The busy share of the cores that the server may use; 0 to 1.
    pub utilisation: Option<f64>,
    /// The share of their time in idle periods over the break-even time; 0 to 1.
    pub long_idle: Option<f64>,
}

impl Sample {
    /// The longest that is known of in the period.
    pub(super) fn longest(&self) -> Option<Seconds> {
        let longest = self.at_slo.into_iter().chain(self.oldest_waiting);
        longest.reduce(Seconds::max)
    }
}

/// Sums of samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) periods: u64,
    pub(super) queries: u64,
    pub(super) length: Seconds,
    /// `None` from the first period on whose energy is not known, or is of another source than before.
    pub(super) energy: Option<Reading<Joules>>,
    /// Latencies at the SLO's percentile, one of each period that has one.
    at_slo: Vec<Seconds>,
    /// Whether any of it is a model's.
    is_modelled: bool,
    /// Mean latencies: sum and count.
    mean: (Seconds, u32),
    /// Sum and count.
    pub(super) p99: (Seconds, u32),
    /// The longest of any period.
    pub(super) longest: Option<Seconds>,
    /// Shares of time in idle periods that pay: sum and count.
    long_idle: (f64, u32),
    /// Busy shares of the cores: sum and count.
    busy: (f64, u32),
}

/// A share of the cores' time by which idle periods that pay are to be longer, for a delay to be their cause, or by which they are to be less busy.
const LEAST_SHARE: f64 = 0.005;

impl Sums {
    pub(super) fn add(&mut self, sample: &Sample) {
        self.energy = match (self.periods, self.energy, sample.energy) {
            (0, _, energy) => energy,
            (_, Some(one), Some(two)) => one.plus(two).ok(),
            _ => None,
        };
        self.is_modelled |= sample
            .energy
            .is_some_and(|energy| energy.source == Source::Estimated);
        self.periods += 1;
        self.queries += sample.queries;
        self.length += sample.length;
        self.at_slo.extend(sample.at_slo);
        if let Some(mean) = sample.mean {
            self.mean = (self.mean.0 + mean, self.mean.1 + 1);
        }
        if let Some(p99) = sample.p99 {
            self.p99 = (self.p99.0 + p99, self.p99.1 + 1);
        }
        self.longest = later(self.longest, sample.longest());
        if let Some(long_idle) = sample.long_idle {
            self.long_idle = (self.long_idle.0 + long_idle, self.long_idle.1 + 1);
        }
        if let Some(busy) = sample.utilisation {
            self.busy = (self.busy.0 + busy, self.busy.1 + 1);
        }
    }

    /// Whether a model says that a setting saves, and the cores were no longer in idle periods that pay than under another, as far as is known:
    /// what it seems to save has no cause then. A sensor's watts need none.
    pub(super) fn saves_without_sleep(&self, other: &Self) -> bool {
        let (one, two) = (mean(self.long_idle), mean(other.long_idle));
        self.is_modelled && one.zip(two).is_none_or(|(one, two)| one < two + LEAST_SHARE)
    }

    /// Whether a sensor says what it drew.
    pub(super) fn is_sensed(&self) -> bool {
        self.energy.is_some() && !self.is_modelled
    }

    /// Whether the cores were less busy with this server than under another, as far as is known.
    pub(super) fn works_less(&self, other: &Self) -> bool {
        let (one, two) = (mean(self.busy), mean(other.busy));
        one.zip(two).is_some_and(|(one, two)| one <= two - LEAST_SHARE)
    }

    /// Adds the sums of a turn.
    pub(super) fn add_turn(&mut self, turn: Self) {
        self.energy = match (self.periods, self.energy, turn.energy) {
            (0, _, energy) => energy,
            (_, Some(one), Some(two)) => one.plus(two).ok(),
            _ => None,
        };
        self.is_modelled |= turn.is_modelled;
        self.periods += turn.periods;
        self.queries += turn.queries;
        self.length += turn.length;
        self.at_slo.extend(turn.at_slo);
        self.mean = (self.mean.0 + turn.mean.0, self.mean.1 + turn.mean.1);
        self.p99 = (self.p99.0 + turn.p99.0, self.p99.1 + turn.p99.1);
        self.longest = later(self.longest, turn.longest);
        for (sum, more) in [(&mut self.long_idle, turn.long_idle), (&mut self.busy, turn.busy)] {
            *sum = (sum.0 + more.0, sum.1 + more.1);
        }
    }

    /// Mean of the periods' mean latencies.
    pub(super) fn mean_latency(&self) -> Option<Seconds> {
        let (sum, count) = self.mean;
        (count > 0).then(|| sum / f64::from(count))
    }

    /// Mean of the periods' latencies at the SLO's percentile.
    pub(super) fn mean_at_slo(&self) -> Option<Seconds> {
        let count = self.at_slo.len() as f64;
        let sum = self
            .at_slo
            .iter()
            .fold(Seconds::ZERO, |sum, at_slo| sum + *at_slo);
        (count > 0.0).then(|| sum / count)
    }

    /// The share of the periods with such a latency in which it was over this.
    pub(super) fn late_share(&self, target: Seconds) -> f64 {
        let late = self.at_slo.iter().filter(|at_slo| **at_slo > target);
        late.count() as f64 / self.at_slo.len().max(1) as f64
    }

    /// Median of these: what one pause of the machine does not move.
    pub(super) fn median_at_slo(&self) -> Option<Seconds> {
        let mut all = self.at_slo.clone();
        let middle = all.len().checked_sub(1)? / 2;
        let (_, median, _) = all.select_nth_unstable_by(middle, |one, two| one.get().total_cmp(&two.get()));
        Some(*median)
    }
}

fn later(one: Option<Seconds>, two: Option<Seconds>) -> Option<Seconds> {
    one.into_iter().chain(two).reduce(Seconds::max)
}

/// The load of a turn, by the periods of it that are scored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) queries: f64,
    pub(super) length: Seconds,
}

impl Load {
    /// What of it was to come in so long a time, and the variance of the difference between that and the count that did: both counts are
    /// Poisson's, whose variance is the mean, and the one that is scaled has it scaled twice. `None` where it has no length.
    pub(super) fn expected(&self, queries: f64, length: Seconds) -> Option<(f64, f64)> {
        let share = (self.length > Seconds::ZERO).then(|| length / self.length)?;
        let expected = self.queries * share;
        Some((expected, queries + expected * share))
    }
}

/// Why a setting is compared no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// It scored less, or lost load, in all of several rounds.
    Worse,
    /// For another reason, which says nothing of what it would have scored.
    Unjudged,
}

/// One of the settings.
#[derive(Clone, Debug)]
pub(super) struct Arm<T> {
    pub(super) setting: T,
    /// Whether it is none of those of which each is slower than the one before.
    pub(super) is_beside: bool,
    pub(super) sums: Sums,
    /// Those up to the beginning of this round, which hold again where it begins anew.
    pub(super) before_round: Sums,
    /// The mean score of each of its turns; of a round in which it had none there is none.
    pub(super) turns: Vec<f64>,
    /// The load in each of its turns.
    pub(super) loads: Vec<Load>,
    /// Why it is compared no more; `None` while it is.
    pub(super) out: Option<Out>,
    /// Periods that were late or lost load, each of which ended a turn.
    pub(super) strikes: u32,
    /// Why it was dropped, had no turn, or had one cut short, in words.
    pub(super) why: Option<String>,
}

impl<T> Arm<T> {
    pub(super) fn new(setting: T, is_beside: bool) -> Self {
        Self {
            setting,
            is_beside,
            sums: Sums::default(),
            before_round: Sums::default(),
            turns: Vec::new(),
            loads: Vec::new(),
            out: None,
            strikes: 0,
            why: None,
        }
    }

    /// Adds a turn of this mean score.
    pub(super) fn add_turn(&mut self, score: f64, turn: Sums) {
        self.turns.push(score);
        self.loads.push(Load {
            queries: turn.queries as f64,
            length: turn.length,
        });
        self.sums.add_turn(turn);
    }
}

/// Queries that came lately, and what they cost: the sums of the last turn.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::oncall::law) struct Lately {
    queries: u64,
    length: Seconds,
    utilisation: (f64, u32),
    asking: (f64, u32),
    /// Connections at the end of its last period.
    pub connections: u64,
}

impl Lately {
    pub(in crate::oncall::law) fn add(&mut self, sample: &Sample) {
        self.queries += sample.queries;
        self.length += sample.length;
        self.connections = sample.connections;
        let sums = [&mut self.utilisation, &mut self.asking];
        for (sum, value) in sums.into_iter().zip([sample.utilisation, sample.asking]) {
            if let Some(value) = value {
                *sum = (sum.0 + value, sum.1 + 1);
            }
        }
    }

    /// Queries per second; `None` before any period.
    pub fn rate(&self) -> Option<f64> {
        (self.length > Seconds::ZERO).then(|| self.queries as f64 / self.length.get())
    }

    /// The busy share of the cores in the mean; `None` where it is not told.
    pub fn utilisation(&self) -> Option<f64> {
        mean(self.utilisation)
    }

    /// The connections that ask, at least one: the effective number in the mean, else all there are.
    pub fn asking(&self) -> f64 {
        mean(self.asking).unwrap_or(self.connections as f64).max(1.0)
    }
}

fn mean((sum, count): (f64, u32)) -> Option<f64> {
    (count > 0).then(|| sum / f64::from(count))
}

/// A setting whose turn would begin, and what is known before it does.
pub(in crate::oncall::law) struct Next<'a, T> {
    /// The setting.
    pub setting: &'a T,
    /// It and those before it as far as they had a turn, in their order, each with the median of its periods' latencies at the SLO's
    /// percentile.
    pub measured: Vec<(&'a T, Seconds)>,
    /// The mean latency under the first setting.
    pub undelayed: Option<Seconds>,
    /// Whether it had a turn, in which the load was kept.
    pub had_turn: bool,
    /// The load.
    pub lately: Lately,
}
