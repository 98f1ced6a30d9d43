//! The frequency as part of an allocation: a limit on every processor of the machine.

use crate::Roots;
use crate::frequency::{FrequencyBounds, FrequencyError, FrequencyInForce, FrequencyUse, SharedFrequency};
use crate::restore::{Outcome, Registry, RestoreError};
use headroom_units::{Hertz, Ratio};

/// The lever for the frequency, or why there is none.
#[derive(Debug)]
pub(super) struct Pace {
    lever: Result<SharedFrequency, String>,
    /// Something was set: until then nothing of ours is there to be lifted.
    set: bool,
    /// What the allocation limits it to.
    allocated: Option<Hertz>,
    /// What is left of it under a power cap.
    capped: Option<Hertz>,
}

impl Pace {
    /// Opens the lever where the machine has it and it is wanted. Writes nothing.
    ///
    /// # Errors
    /// The frequency is another program's to limit.
    pub(super) fn open(
        roots: &Roots,
        wanted: FrequencyUse,
        registry: &Registry,
    ) -> Result<Self, FrequencyError> {
        let lever = match wanted {
            FrequencyUse::Off => Err("the configuration leaves the frequency alone".to_owned()),
            FrequencyUse::Auto => match SharedFrequency::join(roots, registry) {
                Err(error @ FrequencyError::Restore(RestoreError::InUse { .. })) => return Err(error),
                opened => opened.map_err(|error| error.to_string()),
            },
        };
        Ok(Self {
            lever,
            set: false,
            allocated: None,
            capped: None,
        })
    }

    /// Between which frequencies a limit can lie; why there can be none.
    pub(super) fn bounds(&self) -> Result<FrequencyBounds, String> {
        let lever = self.lever.as_ref().map_err(Clone::clone)?;
        Ok(lever.bounds())
    }

    /// A frequency relative to the highest of the hardware.
    pub(super) fn relative(&self, frequency: Hertz) -> Ratio {
        let highest = self
            .lever
            .as_ref()
            .map_or(Hertz::ZERO, |lever| lever.hardware_highest());
        match highest > Hertz::ZERO {
            true => Ratio::new((frequency / highest).min(1.0)),
            false => Ratio::new(1.0),
        }
    }

    /// Whether a power cap holds the frequency under this.
    pub(super) fn is_capped_under(&self, frequency: Hertz) -> bool {
        self.capped.is_some_and(|capped| capped < frequency)
    }

    /// The highest frequency that an allocation leaves, relative to the highest of the hardware.
    pub(super) fn allocated(&self) -> Ratio {
        let found = self.bounds().map_or(Hertz::ZERO, |bounds| bounds.highest);
        self.relative(self.allocated.map_or(found, |limit| limit.min(found)))
    }

    /// Limits the frequency for a power cap to a share of the highest of the hardware, besides what is allocated; nothing
    /// lifts that. It is moved by whole steps: down at once, up where there is room for one and a half.
    ///
    /// # Errors
    /// Why the limit is not in force.
    pub(super) fn cap(&mut self, ratio: Option<Ratio>) -> Result<Option<FrequencyInForce>, String> {
        let capped = match ratio {
            None => None,
            Some(ratio) => {
                let lever = self.lever.as_ref().map_err(Clone::clone)?;
                let (bounds, highest) = (lever.bounds(), lever.hardware_highest());
                let wanted = highest * ratio.get();
                let steps = (wanted / bounds.step + 1e-6).floor();
                let whole = (bounds.step * steps).clamp(bounds.lowest.min(bounds.highest), bounds.highest);
                match self.capped {
                    Some(now)
                        if whole > now && wanted < now + bounds.step * 1.5 && wanted < bounds.highest =>
                    {
                        Some(now)
                    }
                    _ => Some(whole),
                }
            }
        };
        if capped == self.capped {
            return Ok(None);
        }
        self.capped = capped;
        self.write()
    }

    /// Limits all processors from now on; nothing lifts the limit. Where that fails, none is left in force: a limit that
    /// is not known costs latency that nobody can account for.
    ///
    /// # Errors
    /// Why the limit is not in force.
    pub(super) fn limit(&mut self, limit: Option<Hertz>) -> Result<Option<FrequencyInForce>, String> {
        self.allocated = limit;
        self.write()
    }

    /// Limits nothing from now on; what was put back of it.
    pub(super) fn leave(&mut self) -> Vec<Outcome> {
        let lever = std::mem::replace(&mut self.lever, Err("it was given up".to_owned()));
        lever.map_or_else(|_| Vec::new(), |lever| lever.leave())
    }

    fn write(&mut self) -> Result<Option<FrequencyInForce>, String> {
        let limit = match (self.allocated, self.capped) {
            (Some(allocated), Some(capped)) => Some(allocated.min(capped)),
            (allocated, capped) => allocated.or(capped),
        };
        if limit.is_none() && !self.set {
            return Ok(None);
        }
        let lever = self.lever.as_mut().map_err(|why| why.clone())?;
        self.set = true;
        let reported: Result<FrequencyInForce, FrequencyError> = lever.set(limit);
        match reported {
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
