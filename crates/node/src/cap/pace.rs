//! The frequency as part of an allocation: a limit on every processor of the machine.

use crate::Roots;
use crate::frequency::{
    FrequencyActuator, FrequencyBounds, FrequencyError, FrequencyInForce, FrequencyMode, FrequencyUse,
};
use crate::restore::Registry;
use headroom_units::Hertz;

/// The lever for the frequency, or why there is none.
#[derive(Debug)]
pub(super) struct Pace {
    lever: Result<FrequencyActuator, String>,
    /// Something was set: until then nothing of ours is there to be lifted.
    set: bool,
}

impl Pace {
    /// Opens the lever where the machine has it and it is wanted. Writes nothing.
    pub(super) fn open(roots: &Roots, wanted: FrequencyUse, registry: &Registry) -> Self {
        let lever = match wanted {
            FrequencyUse::Off => Err("the configuration leaves the frequency alone".to_owned()),
            FrequencyUse::Auto => FrequencyActuator::open(roots, FrequencyMode::Max, registry)
                .map_err(|error| error.to_string()),
        };
        Self { lever, set: false }
    }

    /// Between which frequencies a limit can lie; why there can be none.
    pub(super) fn bounds(&self) -> Result<FrequencyBounds, String> {
        let lever = self.lever.as_ref().map_err(Clone::clone)?;
        Ok(lever.bounds())
    }

    /// Limits all processors from now on; nothing lifts the limit. Where that fails, none is left in force: a limit that
    /// is not known costs latency that nobody can account for.
    ///
    /// # Errors
    /// Why the limit is not in force.
    pub(super) fn limit(&mut self, limit: Option<Hertz>) -> Result<Option<FrequencyInForce>, String> {
        if limit.is_none() && !self.set {
            return Ok(None);
        }
        let lever = self.lever.as_mut().map_err(|why| why.clone())?;
        self.set = true;
        let told: Result<FrequencyInForce, FrequencyError> = lever.set(limit);
        match told {
            Ok(in_force) => {
                self.set = limit.is_some();
                Ok(Some(in_force))
            }
            Err(error) => {
                let mut why = error.to_string();
                match lever.set(None) {
                    Ok(_) => self.set = false,
                    Err(error) => why.push_str(&format!("; nor could it be lifted: {error}")),
                }
                Err(why)
            }
        }
    }
}
