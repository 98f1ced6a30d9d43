//! In the style of SATORI: Bayesian optimisation of throughput and fairness over how cores are divided.

use super::gaussian::Gaussian;
use super::{AreaDecision, AreaLaw, CoreArea};
use crate::decision::Reason;
use crate::observation::{Observation, OncallObservation};
use crate::parameter::{OutOfRange, require};
use headroom_units::Seconds;
use std::collections::{BTreeMap, VecDeque};

/// The most ways to divide the cores: each is looked at once a period.
const MAX_DIVISIONS: usize = 5_000;
/// Samples that are remembered.
const MAX_SAMPLES: usize = 40;
/// Periods on all cores from which each group's throughput is normalised.
const BASE_PERIODS: u32 = 10;
/// Bounds of the weights of throughput and fairness.
const WEIGHTS: (f64, f64) = (0.25, 0.75);
/// How often the weights favour the lagging goal, and over how long they are 0.5 in the mean.
const SHORT: Seconds = Seconds::new(1.0);
const LONG: Seconds = Seconds::new(10.0);

/// What SATORI-style is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SatoriTuning {
    /// Cores of the server.
    pub cores: u32,
}

/// Why it cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SatoriError {
    /// A parameter.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// SATORI-style \[R\]: as recalled from the paper, not the authors' code. Groups are the classes of connections, as SATORI's are applications.
/// Each period the division of cores with the largest expected improvement of w_T T + w_F F is put in force, T the mean of the groups'
/// throughput over that on all cores together, F = 1/(1 + CoV²) of the same. Samples remember T and F apart, so that they are scored anew
/// when weights change. It knows no SLO.
pub struct SatoriStyle {
    cores: u32,
    base: Option<BTreeMap<String, f64>>,
    base_periods: u32,
    sums: BTreeMap<String, f64>,
    length_s: f64,
    divisions: Vec<Vec<u32>>,
    samples: VecDeque<Sample>,
    in_force: Option<Vec<u32>>,
    weight: f64,
    /// The sum of the weight's distance from 0.5 over time in the long window, and the times.
    owed: f64,
    short_s: f64,
    long_s: f64,
}

#[derive(Clone, Debug)]
struct Sample {
    point: Vec<f64>,
    throughput: f64,
    fairness: f64,
}

impl Sample {
    fn score(&self, weight: f64) -> f64 {
        weight * self.throughput + (1.0 - weight) * self.fairness
    }
}

impl SatoriStyle {
    /// Begins with some periods on all cores.
    ///
    /// # Errors
    /// [`SatoriError`] for no cores.
    pub fn new(tuning: SatoriTuning) -> Result<Self, SatoriError> {
        require("cores", f64::from(tuning.cores), tuning.cores >= 1, "1 or more")?;
        Ok(Self {
            cores: tuning.cores,
            base: None,
            base_periods: 0,
            sums: BTreeMap::new(),
            length_s: 0.0,
            divisions: Vec::new(),
            samples: VecDeque::new(),
            in_force: None,
            weight: 0.5,
            owed: 0.0,
            short_s: 0.0,
            long_s: 0.0,
        })
    }

    /// Measures the groups on all cores; what is answered meanwhile.
    fn measure(&mut self, oncall: &OncallObservation, length_s: f64) -> AreaDecision {
        for class in &oncall.classes {
            *self.sums.entry(class.name.clone()).or_default() += class.queries as f64;
        }
        self.length_s += length_s;
        self.base_periods += 1;
        if self.base_periods == BASE_PERIODS {
            let rate = |sum: f64| (sum / self.length_s).max(1e-9);
            self.base = Some(
                self.sums
                    .iter()
                    .map(|(name, sum)| (name.clone(), rate(*sum)))
                    .collect(),
            );
            self.divisions = divisions(self.cores, oncall.classes.len()).unwrap_or_default();
        }
        let text = "the throughput of each class on all cores is measured".to_owned();
        AreaDecision::everywhere(Reason::new("satori-base", text, &[]))
    }

    /// T and F of a period.
    fn goals(&self, oncall: &OncallObservation, length_s: f64) -> Option<(f64, f64)> {
        let base = self.base.as_ref()?;
        let speedups: Vec<f64> = oncall
            .classes
            .iter()
            .filter_map(|class| Some(class.queries as f64 / length_s / base.get(&class.name)?))
            .collect();
        let count = speedups.len() as f64;
        let mean = speedups.iter().sum::<f64>() / count;
        if mean.is_nan() || mean <= 0.0 {
            return None;
        }
        let variance = speedups.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Some((mean, 1.0 / (1.0 + variance / (mean * mean))))
    }

    /// About every second the goal that lags behind its best weighs more; about every ten seconds the weights make good what is missing
    /// to a mean of 0.5.
    fn weigh(&mut self, length_s: f64, throughput: f64, fairness: f64) {
        self.owed += (self.weight - 0.5) * length_s;
        self.short_s += length_s;
        self.long_s += length_s;
        if self.long_s >= LONG.get() {
            self.weight = (0.5 - self.owed / SHORT.get()).clamp(WEIGHTS.0, WEIGHTS.1);
            (self.long_s, self.short_s, self.owed) = (0.0, 0.0, 0.0);
        } else if self.short_s >= SHORT.get() {
            self.short_s = 0.0;
            let best = |of: fn(&Sample) -> f64| self.samples.iter().map(of).fold(1e-9, f64::max);
            let lag_t = 1.0 - throughput / best(|sample| sample.throughput);
            let lag_f = 1.0 - fairness / best(|sample| sample.fairness);
            let sum = lag_t + lag_f;
            let share = if sum > 0.0 { lag_t / sum } else { 0.5 };
            self.weight = share.clamp(WEIGHTS.0, WEIGHTS.1);
        }
    }

    fn choose(&self) -> Option<&Vec<u32>> {
        let points: Vec<Vec<f64>> = self.samples.iter().map(|sample| sample.point.clone()).collect();
        let scores: Vec<f64> = self
            .samples
            .iter()
            .map(|sample| sample.score(self.weight))
            .collect();
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let Some(of) = Gaussian::fit(&points, &scores) else {
            return self.divisions.get(self.divisions.len() / 2);
        };
        let improvement = |division: &&Vec<u32>| of.improvement(&point(division, self.cores), best);
        self.divisions
            .iter()
            .max_by(|one, other| improvement(one).total_cmp(&improvement(other)))
    }
}

impl AreaLaw for SatoriStyle {
    fn name(&self) -> &'static str {
        "satori-style"
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let (oncall, length_s) = (observation.oncall.as_ref()?, observation.length.get());
        if length_s <= 0.0 {
            return None;
        }
        if self.base.is_none() {
            return Some(self.measure(oncall, length_s));
        }
        let goals = self.goals(oncall, length_s);
        if let (Some((throughput, fairness)), Some(in_force)) = (goals, &self.in_force) {
            let sample = Sample {
                point: point(in_force, self.cores),
                throughput,
                fairness,
            };
            self.samples.push_back(sample);
            if self.samples.len() > MAX_SAMPLES {
                self.samples.pop_front();
            }
            self.weigh(length_s, throughput, fairness);
        }
        let Some(division) = self.choose().filter(|of| of.len() == oncall.classes.len()) else {
            let text = format!(
                "warning: {} cores cannot be divided among {} classes, or in too many ways",
                self.cores,
                oncall.classes.len()
            );
            return Some(AreaDecision::everywhere(Reason::new(
                "satori-infeasible",
                text,
                &[],
            )));
        };
        let division = division.clone();
        let of_class = |name: &str| {
            let members = oncall.each.iter().filter(|of| of.class == name);
            members.map(|of| of.id).collect()
        };
        let areas = oncall
            .classes
            .iter()
            .zip(&division)
            .map(|(class, cores)| CoreArea {
                name: class.name.clone(),
                cores: *cores,
                connections: of_class(&class.name),
                ..CoreArea::default()
            });
        let (throughput, fairness) = goals.unwrap_or((0.0, 0.0));
        let text = format!(
            "the division {division:?} of cores has the largest expected improvement at a weight of {:.2} for throughput",
            self.weight
        );
        let numbers = [
            ("throughput", throughput),
            ("fairness", fairness),
            ("throughput_weight", self.weight),
            ("samples", self.samples.len() as f64),
        ];
        let decision = AreaDecision {
            areas: areas.collect(),
            ..AreaDecision::everywhere(Reason::new("satori-improve", text, &numbers))
        };
        self.in_force = Some(division);
        Some(decision)
    }
}

/// A division as a point: the shares of all groups but the last, which has the rest.
fn point(division: &[u32], cores: u32) -> Vec<f64> {
    let shares = division.iter().map(|part| f64::from(*part) / f64::from(cores));
    shares.take(division.len().saturating_sub(1)).collect()
}

/// All ways to divide cores among groups with 1 or more each; `None` where there are none or too many.
fn divisions(cores: u32, groups: usize) -> Option<Vec<Vec<u32>>> {
    if groups == 0 || groups > cores as usize {
        return None;
    }
    // So many there are: cores - 1 over groups - 1.
    let ways = (1..groups).fold(1.0, |ways, at| ways * (f64::from(cores) - at as f64) / at as f64);
    if ways > MAX_DIVISIONS as f64 {
        return None;
    }
    let mut all: Vec<Vec<u32>> = vec![Vec::new()];
    for group in 0..groups {
        let after = (groups - group - 1) as u32;
        all = all
            .into_iter()
            .flat_map(|begun| {
                let left = cores - begun.iter().sum::<u32>();
                let parts = if after == 0 { left..=left } else { 1..=left - after };
                parts.map(move |part| {
                    let mut next = begun.clone();
                    next.push(part);
                    next
                })
            })
            .collect();
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_are_all_and_not_too_many() {
        assert_eq!(divisions(4, 2).unwrap(), [[1, 3], [2, 2], [3, 1]]);
        assert_eq!(divisions(24, 4).unwrap().len(), 1771);
        assert_eq!(divisions(3, 1).unwrap(), [[3]]);
        assert!(divisions(1, 2).is_none() && divisions(200, 4).is_none());
    }
}
