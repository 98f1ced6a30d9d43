//! Control groups: no cores of their own, but more weight for the threads of classes that violate their SLOs.

use super::{AreaDecision, AreaLaw};
use crate::decision::Reason;
use crate::observation::Observation;
use std::collections::BTreeMap;

/// The largest `cpu.weight` over that of the others: 10,000 over the default of 100.
const MAX_WEIGHT: f64 = 100.0;
/// Clean periods before a weight falls.
const CLEAN: u32 = 10;
/// By what it falls then.
const FALL: f64 = 0.9;

/// Weights as a law. REEF's baseline has equal weights ([`CgroupWeights::equal`]); how weights would follow SLOs is ours \[D\]: that of a
/// class with a violation doubles, up to 100; after ten periods without one it falls by a tenth each.
#[derive(Clone, Debug)]
pub struct CgroupWeights {
    follows: bool,
    weights: BTreeMap<String, (f64, u32)>,
}

impl CgroupWeights {
    /// Equal weights, as in the paper.
    pub const fn equal() -> Self {
        Self {
            follows: false,
            weights: BTreeMap::new(),
        }
    }

    /// Weights that follow the SLOs.
    pub const fn following() -> Self {
        Self {
            follows: true,
            weights: BTreeMap::new(),
        }
    }
}

impl AreaLaw for CgroupWeights {
    fn name(&self) -> &'static str {
        "cgroup-weights"
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let oncall = observation.oncall.as_ref()?;
        if !self.follows {
            let text = "all threads have the same weight".to_owned();
            return Some(AreaDecision::everywhere(Reason::new("cgroup-equal", text, &[])));
        }
        let mut violates: BTreeMap<&str, bool> = BTreeMap::new();
        for of in oncall.each.iter().filter(|of| !of.slos.is_empty()) {
            *violates.entry(&of.class).or_default() |= of.violates();
        }
        for (class, violates) in &violates {
            let (weight, clean) = self.weights.entry((*class).to_owned()).or_insert((1.0, 0));
            if *violates {
                (*weight, *clean) = ((*weight * 2.0).min(MAX_WEIGHT), 0);
            } else {
                *clean = clean.saturating_add(1);
                if *clean > CLEAN {
                    *weight = (*weight * FALL).max(1.0);
                }
            }
        }
        let count = violates.values().filter(|violates| **violates).count();
        let most = self
            .weights
            .values()
            .map(|(weight, _)| *weight)
            .fold(1.0, f64::max);
        let text = format!("{count} classes violate an SLO: the largest weight is {most:.2}");
        let numbers = [("violating_classes", count as f64), ("largest_weight", most)];
        Some(AreaDecision {
            weights: self
                .weights
                .iter()
                .map(|(class, (weight, _))| (class.clone(), *weight))
                .collect(),
            ..AreaDecision::everywhere(Reason::new("cgroup-weights", text, &numbers))
        })
    }
}
