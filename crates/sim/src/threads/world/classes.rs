//! The classes of connections at work, and how each keeps its SLOs.

use crate::error::ScenarioError;
use crate::threads::classes::ClassFigures;
use crate::threads::query::Work;
use crate::threads::recent::Recent;
use crate::threads::scenario::ThreadsScenario;
use headroom_control::oncall::policy::Kept;
use headroom_control::oncall::tail::{Disengagement, TailSlo};
use headroom_units::{Ratio, Seconds};
use headroom_workload::Distribution;
use std::collections::BTreeMap;
use std::ops::Range;

/// The steps in which a coefficient of variation counts.
const CV_STEP: f64 = 0.02;

/// A class at work.
pub(super) struct Class {
    pub(super) figures: ClassFigures,
    pub(super) members: Range<u32>,
    pub(super) work: Work,
    /// The think time of closed-loop clients.
    pub(super) think: Option<Distribution>,
    /// The targets in force.
    targets_s: Vec<f64>,
    disengagement: Option<Disengagement>,
    scale: f64,
    /// The mean budgets of the SLOs in force by steps of the coefficient of variation: few, and each costs milliseconds.
    budgets: BTreeMap<u32, Vec<Option<Seconds>>>,
}

impl Class {
    pub(super) fn all(scenario: &ThreadsScenario) -> Vec<Self> {
        let mut first = 0;
        let of = |figures: ClassFigures| {
            let members = first..first + figures.connections;
            first = members.end;
            let mut class = Self {
                work: Work::new(scenario, &figures),
                think: None,
                targets_s: Vec::new(),
                disengagement: None,
                scale: f64::NAN,
                budgets: BTreeMap::new(),
                members,
                figures,
            };
            class.pass(0.0);
            class
        };
        scenario.all_classes().into_iter().map(of).collect()
    }

    /// Puts the targets of a time in force.
    pub(super) fn pass(&mut self, now_s: f64) {
        let scale = self.figures.scale_at(now_s);
        if scale == self.scale {
            return;
        }
        self.scale = scale;
        self.budgets.clear();
        let targets_s = self.figures.percentiles.iter().map(|slo| slo.target_s * scale);
        self.targets_s = targets_s.collect();
        // Checked with the scenario: it is such a function at any positive scale.
        self.disengagement = self
            .figures
            .disengagement
            .as_ref()
            .and_then(|slo| slo.scaled(scale).ok());
    }

    /// How a connection's last latencies keep the SLOs in force.
    pub(super) fn kept(&mut self, recent: &Recent) -> Result<Vec<Kept>, ScenarioError> {
        let slos = self.figures.percentiles.len() + usize::from(self.disengagement.is_some());
        if slos == 0 {
            return Ok(Vec::new());
        }
        let cv = recent.cv().map(|cv| (cv.get() / CV_STEP).round() as u32);
        let budgets = match cv {
            None => vec![None; slos],
            Some(step) => match self.budgets.get(&step) {
                Some(budgets) => budgets.clone(),
                None => {
                    let budgets = self.estimate(Ratio::new(f64::from(step) * CV_STEP))?;
                    self.budgets.insert(step, budgets.clone());
                    budgets
                }
            },
        };
        let percentiles = self.figures.percentiles.iter().zip(&self.targets_s).zip(&budgets);
        let percentiles = percentiles.map(|((slo, target_s), budget)| Kept::Percentile {
            percentile: Ratio::new(slo.percentile),
            violations: recent.above(*target_s),
            budget: *budget,
        });
        let disengagement = self
            .figures
            .disengagement
            .as_ref()
            .zip(self.disengagement.as_ref());
        let disengagement = disengagement.map(|(slo, of)| Kept::Disengagement {
            target: Ratio::new(slo.target),
            measured: recent.disengaged(of),
            budget: budgets.last().copied().flatten(),
        });
        Ok(percentiles.chain(disengagement).collect())
    }

    /// The mean budget of each SLO at a coefficient of variation.
    fn estimate(&self, cv: Ratio) -> Result<Vec<Option<Seconds>>, ScenarioError> {
        let none = Ratio::ZERO;
        let mut budgets = Vec::new();
        for (slo, target_s) in self.figures.percentiles.iter().zip(&self.targets_s) {
            let slo = TailSlo {
                percentile: Ratio::new(slo.percentile),
                target: Seconds::new(*target_s),
            };
            let kept = Kept::percentile(slo, none, Some(cv))
                .map_err(|error| ScenarioError::new("classes.percentiles", error.to_string()))?;
            budgets.push(kept.budget());
        }
        if let (Some(slo), Some(of)) = (&self.figures.disengagement, &self.disengagement) {
            budgets.push(Kept::disengagement(Ratio::new(slo.target), none, of, Some(cv)).budget());
        }
        Ok(budgets)
    }

    /// Adds what a query's latency misses to a connection's sums, one for each SLO.
    pub(super) fn judge(&self, latency_s: f64, missed: &mut Vec<f64>) {
        let of = self.targets_s.len() + usize::from(self.disengagement.is_some());
        missed.resize(of, 0.0);
        for (sum, target_s) in missed.iter_mut().zip(&self.targets_s) {
            *sum += f64::from(u8::from(latency_s > *target_s));
        }
        if let (Some(of), Some(sum)) = (&self.disengagement, missed.last_mut()) {
            *sum += of.at(Seconds::new(latency_s)).get();
        }
    }

    /// What may be missed of one query, for each SLO.
    pub(super) fn allowed(&self) -> Vec<f64> {
        let percentiles = self.figures.percentiles.iter().map(|slo| 1.0 - slo.percentile);
        let disengagement = self.figures.disengagement.as_ref().map(|slo| slo.target);
        percentiles.chain(disengagement).collect()
    }
}
