//! Which meter is taken, in the user's order of preference, and why the others were not.

use super::allocated::Allocated;
use super::model::PowerModel;
use super::modelled::ModelledMeter;
use super::rapl::RaplMeter;
use super::{Meter, MeterError};
use crate::Roots;
use crate::cgroup::Target;
use headroom_units::Source;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterKind {
    /// The machine's RAPL counters.
    Rapl,
    /// The power model.
    Model,
}

impl MeterKind {
    /// The source of what it yields.
    pub fn source(self) -> Source {
        match self {
            Self::Rapl => Source::Measured,
            Self::Model => Source::Estimated,
        }
    }
}

impl fmt::Display for MeterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rapl => "rapl",
            Self::Model => "model",
        })
    }
}

/// What the user wants: a certain meter, or the first of the list that works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterPreference {
    /// RAPL where it can be read, else the model.
    #[default]
    Auto,
    /// RAPL or nothing.
    Rapl,
    /// The model, also where RAPL could be read.
    Model,
}

impl MeterPreference {
    /// The kinds to try, in order.
    pub fn order(self) -> &'static [MeterKind] {
        match self {
            Self::Auto => &[MeterKind::Rapl, MeterKind::Model],
            Self::Rapl => &[MeterKind::Rapl],
            Self::Model => &[MeterKind::Model],
        }
    }
}

impl fmt::Display for MeterPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Rapl => "rapl",
            Self::Model => "model",
        })
    }
}

/// A meter that was preferred to the chosen one and could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// Which.
    pub meter: MeterKind,
    /// Why not.
    pub reason: String,
}

/// Which meter was chosen, and what was passed over on the way: to be said at the start of a run and in its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The meter in use.
    pub chosen: MeterKind,
    /// In the order in which they were tried.
    pub passed_over: Vec<PassedOver>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "power is {} by {}", self.chosen.source(), self.chosen)?;
        for PassedOver { meter, reason } in &self.passed_over {
            write!(f, "; {meter} cannot be used: {reason}")?;
        }
        Ok(())
    }
}

/// Opens the first meter of the preference's order that works.
///
/// # Errors
/// [`MeterError::Model`] where the model's figures are none, whichever meter is preferred: a wrong configuration is
/// said before it is needed. [`MeterError::Unavailable`] where none of the order works.
pub fn choose(
    preference: MeterPreference,
    roots: &Roots,
    target: &Target,
    model: PowerModel,
    allocated: &Allocated,
) -> Result<(Box<dyn Meter>, Choice), MeterError> {
    let model = model.validated()?;
    let mut passed_over = Vec::new();
    for &kind in preference.order() {
        let opened: Result<Box<dyn Meter>, MeterError> = match kind {
            MeterKind::Rapl => RaplMeter::open(roots).map(|meter| Box::new(meter) as _),
            MeterKind::Model => {
                ModelledMeter::open(roots, target, model, allocated.clone()).map(|meter| Box::new(meter) as _)
            }
        };
        match opened {
            Ok(meter) => {
                return Ok((
                    meter,
                    Choice {
                        chosen: kind,
                        passed_over,
                    },
                ));
            }
            Err(error) => passed_over.push(PassedOver {
                meter: kind,
                reason: error.to_string(),
            }),
        }
    }
    let reasons: Vec<String> = passed_over
        .iter()
        .map(|p| format!("{}: {}", p.meter, p.reason))
        .collect();
    Err(MeterError::Unavailable {
        wanted: preference,
        reason: reasons.join("; "),
    })
}
