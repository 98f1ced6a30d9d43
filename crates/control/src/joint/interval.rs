//! The batch interval as one more lever, where a gateway has it: the joint law moves it as the law [`Seek`] does, and its other levers as
//! without it.

use super::Joint;
use crate::batching::{Seek, SeekTuning};
use crate::decision::Decision;
use crate::law::Law;
use crate::observation::Observation;
use crate::registry::LawError;
use headroom_units::Lever;

/// The lever that is sought.
const SOUGHT: Lever = Lever::BatchInterval;

impl Joint {
    /// The same law, which seeks the batch interval too where the plant has that lever.
    ///
    /// # Errors
    /// A parameter outside its range, an interval bound above the target.
    pub fn with_interval(self, tuning: SeekTuning) -> Result<Self, LawError> {
        let seek = match self.plant.range(SOUGHT) {
            Some(_) => Some(Seek::new(self.slo, self.plant, tuning)?),
            None => None,
        };
        Ok(Self { seek, ..self })
    }

    /// Adds the interval to what was decided of the other levers.
    pub(super) fn add_interval(&mut self, mut decision: Decision, observation: &Observation) -> Decision {
        let Some(seek) = &mut self.seek else {
            return decision;
        };
        let interval = seek.decide(observation);
        for reason in &mut decision.reasons {
            // What is said of all levers is said of all others.
            if reason.levers.is_empty() {
                reason.levers.clone_from(&self.levers);
            }
            reason.levers.retain(|lever| *lever != SOUGHT);
        }
        decision.setting = decision.setting.with(SOUGHT, interval.setting.get(SOUGHT));
        decision.reasons.extend(interval.reasons);
        decision
    }
}
