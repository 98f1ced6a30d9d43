//! Where requests go by the size of their answers as one more lever, where gateways tell sizes apart and the machines' figures are
//! given: the joint law moves it as the law [`Placement`] does, and its other levers as without it.

use super::Joint;
use crate::decision::Decision;
use crate::law::Law;
use crate::observation::Observation;
use crate::placement::{Placement, PlacementTuning};
use crate::registry::LawError;
use headroom_units::Lever;

/// The lever.
const PLACED: Lever = Lever::Placement;

impl Joint {
    /// The same law, which places requests too where the plant has that lever and `[law.placement]` names machines.
    ///
    /// # Errors
    /// A parameter outside its range, a machine of a kind without figures.
    pub fn with_placement(mut self, tuning: PlacementTuning) -> Result<Self, LawError> {
        if self.plant.range(PLACED).is_some() && !tuning.machines.is_empty() {
            self.placement = Some(Box::new(Placement::new(self.slo, &self.plant, tuning)?));
            self.levers.push(PLACED);
        }
        Ok(self)
    }

    /// Adds the routes to what was decided of the other levers.
    pub(super) fn add_placement(&mut self, mut decision: Decision, observation: &Observation) -> Decision {
        let Some(placement) = &mut self.placement else {
            return decision;
        };
        let mut placed = placement.decide(observation);
        for reason in &mut decision.reasons {
            // What is said of all levers is said of all others.
            if reason.levers.is_empty() {
                reason.levers.clone_from(&self.levers);
            }
            reason.levers.retain(|lever| *lever != PLACED);
        }
        for reason in &mut placed.reasons {
            reason.levers = vec![PLACED];
        }
        decision.setting = decision.setting.with(PLACED, placed.setting.get(PLACED));
        decision.routes = placed.routes;
        decision.reasons.extend(placed.reasons);
        decision
    }
}
