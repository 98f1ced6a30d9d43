//! The expert fuzzy control of the CPU frequency (Section V), as a part that a law runs.
//!
//! α is the relative change of the throughput since the control's last period (Equation 12), β how much longer the processing of a batch
//! took than what it left of the interval (Equation 13): T_p against T_w, which make the interval together. β stands for the use of the
//! CPUs. Ours is the utilisation against a target, ρ/ρ_t - 1: like Equation 13 it is 0 where the CPUs are as busy as they should be, -1
//! where they are idle, and grows with the work per time; but it is there without batches too, and is the same whatever the interval.

use super::rules::RuleTable;
use crate::decision::Reason;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use crate::plant::{FrequencyRange, Plant};
use crate::registry::LawError;
use crate::stack;
use headroom_units::{Hertz, Lever, PerSecond, Seconds};
use serde::Deserialize;

/// What β is of, where both are observed; where one is not, it is of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuUse {
    /// The utilisation of the CPUs against its target.
    Utilisation,
    /// T_p against T_w, Equation 13.
    Batches,
}

/// `[law.dvfs]`: the expert fuzzy control of the frequency.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DvfsTuning {
    /// Periods from one decision about the frequency to the next. 4, as in Section VI.B.
    pub every_periods: u32,
    /// The frequency levels, in any order. The plant's range in its steps where absent; the paper's processor has 2.0, 2.33 and 2.83.
    pub frequencies_ghz: Option<Vec<f64>>,
    /// The α that is positive large: 0.5, ours.
    pub alpha_large: f64,
    /// The β that is positive large: 1, ours.
    pub beta_large: f64,
    /// What tells how busy the CPUs are: `utilisation`, or `batches` as in the paper, whose T_p and T_w depend on the interval too, so that
    /// a law that tries intervals moves the frequency with them. `utilisation`.
    pub cpu_use: CpuUse,
    /// ρ_t: the utilisation that is neither high nor low. 0.7, ours.
    pub target_utilisation: f64,
    /// The rule table: rows by α, cells by β, from NL to PL.
    pub rules: RuleTable,
}

impl Default for DvfsTuning {
    fn default() -> Self {
        Self {
            every_periods: 4,
            frequencies_ghz: None,
            alpha_large: 0.5,
            beta_large: 1.0,
            cpu_use: CpuUse::Utilisation,
            target_utilisation: 0.7,
            rules: RuleTable::default(),
        }
    }
}

impl Parameters for DvfsTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let levels = self.frequencies_ghz.iter().flatten().enumerate();
        let each = levels.map(|(at, ghz)| Bound::Positive.check(format!("frequencies_ghz[{at}]"), *ghz));
        let count = self.frequencies_ghz.as_ref().map_or(2, Vec::len);
        let checks = [
            Bound::Between(1.0, 1_000.0).check("every_periods", f64::from(self.every_periods)),
            Bound::Positive.check("alpha_large", self.alpha_large),
            Bound::Positive.check("beta_large", self.beta_large),
            Bound::Share.check("target_utilisation", self.target_utilisation),
            require("frequencies_ghz", count as f64, count >= 2, "2 levels or more"),
        ];
        refused(checks.into_iter().chain(each))
    }
}

impl DvfsTuning {
    /// All that is wrong with it.
    pub(crate) fn mistakes(&self) -> Vec<LawError> {
        let wrong = |error| LawError::new("law.dvfs.rules", error);
        let of_rules = self.rules.check_shape().map_err(wrong).err();
        let outside = self.outside().into_iter().map(LawError::of("dvfs"));
        outside.chain(of_rules).collect()
    }

    /// The levels, the lowest first.
    fn levels(&self, range: FrequencyRange) -> Result<Vec<Hertz>, LawError> {
        let Some(given) = &self.frequencies_ghz else {
            let steps = ((range.max() - range.min()) / range.step() - 1e-9)
                .ceil()
                .max(0.0) as usize;
            let level = |step: usize| range.round_down(range.max() - range.step() * step as f64);
            let mut levels: Vec<Hertz> = (0..=steps).rev().map(level).collect();
            levels.dedup();
            return Ok(levels);
        };
        // A level written with few decimals is the end of the range that it is next to.
        let slack = 1e-6 * range.max().get();
        for (at, ghz) in given.iter().enumerate() {
            let hertz = ghz * 1e9;
            if hertz < range.min().get() - slack || hertz > range.max().get() + slack {
                let why = format!(
                    "is {ghz} GHz: it must be between {} and {} GHz, between which this processor can be set",
                    range.min().get() / 1e9,
                    range.max().get() / 1e9
                );
                return Err(LawError::new(format!("law.dvfs.frequencies_ghz[{at}]"), why));
            }
        }
        let mut levels: Vec<Hertz> = given
            .iter()
            .map(|ghz| Hertz::new(ghz * 1e9).clamp(range.min(), range.max()))
            .collect();
        levels.sort_by(|one, two| one.get().total_cmp(&two.get()));
        levels.dedup();
        Ok(levels)
    }
}

/// What the control's periods were like, until it decides.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    periods: u32,
    length: Seconds,
    completions: u64,
    processing: (Seconds, u64),
    waiting: (Seconds, u64),
    utilisation: (f64, f64),
}

/// What the control asks for, and why.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) frequency: Hertz,
    pub(super) reason: Reason,
    /// By how many levels it goes up, or down where negative.
    pub(super) levels: i64,
}

/// The control.
#[derive(Clone, Debug)]
pub(super) struct FrequencyControl {
    tuning: DvfsTuning,
    levels: Vec<Hertz>,
    window: Window,
    /// V(k-1).
    throughput: Option<PerSecond>,
}

impl FrequencyControl {
    /// The control of a law of this name.
    pub(super) fn new(law: &'static str, plant: &Plant, tuning: DvfsTuning) -> Result<Self, LawError> {
        tuning.mistakes().into_iter().next().map_or(Ok(()), Err)?;
        let missing = || LawError::new("law.name", stack::missing(law, Lever::Frequency));
        let levels = tuning.levels(plant.frequency().ok_or_else(missing)?)?;
        let wrong = |error| LawError::new("law.dvfs.rules", error);
        tuning.rules.check(levels.len()).map_err(wrong)?;
        Ok(Self {
            tuning,
            levels,
            window: Window::default(),
            throughput: None,
        })
    }

    /// The place of the level in force: the highest that does not exceed it, the lowest where all do.
    fn level(&self, observation: &Observation) -> usize {
        let Some(in_force) = observation.in_force.frequency() else {
            return self.levels.len() - 1;
        };
        let below = in_force.get() * (1.0 + 1e-6);
        let at = self.levels.iter().rposition(|level| level.get() <= below);
        at.unwrap_or(0)
    }

    /// Learns from a period, and decides in every so many-th; between, the level in force stays.
    pub(super) fn step(&mut self, observation: &Observation, may_move: bool) -> Step {
        let at = self.level(observation);
        let stay = |text: String, numbers: &[(&'static str, f64)]| Step {
            frequency: self.levels[at],
            reason: reason("dvfs-keep", text, numbers),
            levels: 0,
        };
        self.window.observe(observation);
        if self.window.periods < self.tuning.every_periods {
            let left = self.tuning.every_periods - self.window.periods;
            return stay(
                format!("the next decision about the frequency is in {left} periods: it stays"),
                &[("periods", f64::from(left))],
            );
        }
        let window = std::mem::take(&mut self.window);
        let throughput = window.throughput();
        let before = std::mem::replace(&mut self.throughput, throughput);
        let alpha = before.zip(throughput).map(|(before, now)| change(before, now));
        let beta = window.beta(&self.tuning);
        let (Some(alpha), Some((beta, of)), true) = (alpha, beta, may_move) else {
            let text = match may_move {
                true => {
                    "nothing to compare the throughput or the use of the CPUs with yet: the frequency stays"
                }
                false => "the batch interval is being explored: the frequency stays meanwhile",
            };
            return stay(text.to_owned(), &[]);
        };
        let output = self
            .tuning
            .rules
            .output(alpha / self.tuning.alpha_large, beta / self.tuning.beta_large);
        let to = at
            .saturating_add_signed(output as isize)
            .min(self.levels.len() - 1);
        let moved = to as i64 - at as i64;
        let ghz = self.levels[to].get() / 1e9;
        let (verb, rule) = match moved {
            1.. => ("raised to", "dvfs-raise"),
            0 => ("kept at", "dvfs-keep"),
            _ => ("lowered to", "dvfs-lower"),
        };
        let text = format!(
            "{verb} {ghz:.2} GHz: throughput {:+.0} %, {of} {beta:+.2}",
            alpha * 100.0
        );
        let numbers = [
            ("alpha", alpha),
            ("beta", beta),
            ("output", output as f64),
            ("frequency_hz", self.levels[to].get()),
        ];
        Step {
            frequency: self.levels[to],
            reason: reason(rule, text, &numbers),
            levels: moved,
        }
    }

    /// What was observed of a window that a lost period is in says nothing.
    pub(super) fn lose(&mut self) {
        self.window = Window::default();
        self.throughput = None;
    }
}

/// α: the relative change; from nothing to something it is as large as it can be.
fn change(before: PerSecond, now: PerSecond) -> f64 {
    match (before.get() > 0.0, now.get() > 0.0) {
        (true, _) => (now - before) / before,
        (false, true) => f64::from(f32::MAX),
        (false, false) => 0.0,
    }
}

impl Window {
    fn observe(&mut self, observation: &Observation) {
        self.periods += 1;
        let Some(traffic) = &observation.traffic else {
            return;
        };
        let length = observation.length;
        self.length += length;
        self.completions += traffic.completions;
        if let Some(batches) = observation.batching {
            self.processing.0 += batches.processing;
            self.processing.1 += batches.answered;
            self.waiting.0 += batches.waiting;
            self.waiting.1 += batches.batches;
        }
        if let Some(busy) = observation.utilisation.filter(|busy| busy.is_finite()) {
            self.utilisation.0 += busy.get() * length.get();
            self.utilisation.1 += length.get();
        }
    }

    /// V(k).
    fn throughput(&self) -> Option<PerSecond> {
        (self.length > Seconds::ZERO).then(|| PerSecond::new(self.completions as f64 / self.length.get()))
    }

    /// β, and what it is of.
    fn beta(&self, tuning: &DvfsTuning) -> Option<(f64, &'static str)> {
        let mean = |(sum, count): (Seconds, u64)| (count > 0).then(|| sum.get() / count as f64);
        let of_batches = || {
            let (processing, waiting) = mean(self.processing).zip(mean(self.waiting))?;
            let beta = match waiting > 0.0 {
                true => (processing - waiting) / waiting,
                // A batch takes longer than an interval, and leaves nothing of it.
                false => f64::from(f32::MAX),
            };
            (processing > 0.0).then_some((beta, "processing against waiting"))
        };
        let of_time = || {
            let (busy, time) = self.utilisation;
            let utilisation = (time > 0.0).then(|| busy / time)?;
            let beta = utilisation / tuning.target_utilisation - 1.0;
            Some((beta, "utilisation against its target"))
        };
        match tuning.cpu_use {
            CpuUse::Batches => of_batches().or_else(of_time),
            CpuUse::Utilisation => of_time().or_else(of_batches),
        }
    }
}

fn reason(rule: &'static str, text: String, numbers: &[(&'static str, f64)]) -> Reason {
    Reason::new(rule, text, numbers).of(&[Lever::Frequency])
}
