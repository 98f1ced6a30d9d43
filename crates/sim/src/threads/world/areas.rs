//! Areas of cores: who runs where, how fast, and how much.

use super::World;
use crate::error::{ScenarioError, within};
use headroom_control::oncall::areas::AreaDecision;
use headroom_units::Hertz;

impl World<'_> {
    pub(super) fn carry_out_areas(&mut self, decision: &AreaDecision) -> Result<(), ScenarioError> {
        let refused = |why: String| ScenarioError::new("areas", why);
        let cores = self.scenario.machine.processor.cores as u32;
        decision
            .check(cores)
            .map_err(|error| refused(error.to_string()))?;
        let ranges = decision.cpusets();
        let sets: Vec<Vec<u32>> = match ranges.is_empty() {
            true => vec![(0..cores).collect()],
            false => ranges.iter().map(|range| range.clone().collect()).collect(),
        };
        let mut area_of = vec![sets.len() as u32 - 1; self.threads.len()];
        for (number, area) in decision.areas.iter().enumerate() {
            for id in &area.connections {
                let known = area_of.get_mut(*id as usize);
                let why = || refused(format!("have the connection {id}, which is none"));
                *known.ok_or_else(why)? = number as u32;
            }
        }
        let limits: Vec<Option<u32>> = match ranges.is_empty() {
            true => vec![None],
            false => decision.areas.iter().map(|area| area.workers).collect(),
        };
        match &mut self.gate {
            Some(gate) => gate.set_areas(&limits, &area_of),
            None if limits.iter().any(Option::is_some) => {
                let why = "limit the workers at once, and the scenario has no gate: give it one";
                return Err(refused(why.to_owned()));
            }
            None => {}
        }
        let weights = self.classes.iter().flat_map(|class| {
            let decided = decision.weights.get(&class.figures.name).copied();
            let weight = class.figures.cpu_weight * decided.unwrap_or(1.0);
            std::iter::repeat_n(weight, class.members.len())
        });
        self.cpu.set_weights(self.now_s, weights.collect());
        self.cpu.set_areas(self.now_s, sets, area_of, &mut self.events);
        // Cores that run nothing of the server idle at their lowest.
        let lowest = self.scenario.machine.processor.frequency.lowest;
        let mut of_cores = match decision.areas.is_empty() {
            true => vec![None; cores as usize],
            false => vec![Some(lowest); cores as usize],
        };
        for (area, range) in decision.areas.iter().zip(ranges) {
            range
                .into_iter()
                .for_each(|core| of_cores[core as usize] = area.frequency);
        }
        for frequency in of_cores.iter().flatten() {
            self.check_frequency("areas.frequency", *frequency)?;
        }
        self.core_frequencies = of_cores;
        self.apply_frequencies();
        Ok(())
    }

    /// Limits the frequency of all cores.
    pub(super) fn set_frequency(&mut self, frequency: Option<Hertz>) -> Result<(), ScenarioError> {
        if let Some(frequency) = frequency {
            self.check_frequency("decision.frequency", frequency)?;
        }
        if frequency != self.frequency {
            self.frequency = frequency;
            self.apply_frequencies();
        }
        Ok(())
    }

    fn check_frequency(&self, key: &str, frequency: Hertz) -> Result<(), ScenarioError> {
        let range = self.scenario.machine.processor.frequency;
        // A decision's sums may exceed the highest by their rounding.
        let highest = range.highest.get() * (1.0 + 1e-9);
        within(key, frequency.get(), range.lowest.get(), highest, " hertz")
    }

    /// Each core at the lower of its area's limit and that of all.
    fn apply_frequencies(&mut self) {
        let limits = self
            .core_frequencies
            .iter()
            .map(|own| match (*own, self.frequency) {
                (Some(own), Some(all)) => Some(own.min(all)),
                (own, all) => own.or(all),
            });
        self.cpu
            .set_frequencies(self.now_s, limits.collect(), &mut self.events);
    }
}
