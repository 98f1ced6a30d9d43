//! Which meter is taken, in the user's order of preference, and why the others were not.

use super::hsmp::HsmpMeter;
use super::hwmon::HwmonMeter;
use super::in_use::MeterInUse;
use super::model::PowerModel;
use super::modelled::ModelledMeter;
use super::perf::PerfMeter;
use super::rapl::{RaplMeter, RaplTotal};
use super::{Meter, MeterError, perf, trial};
use crate::cgroup::Target;
use crate::order::{self, NoChoice, Order, PassedOver, Preference, Word};
use crate::{Roots, hsmp, powercap};
use headroom_units::Source;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A kind of meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterKind {
    /// The machine's RAPL counters by powercap: packages and memory.
    Rapl,
    /// RAPL's counter of the whole platform, whatever its board counts in it.
    Psys,
    /// The same counters by perf's energy events.
    Perf,
    /// AMD's socket power by HSMP.
    Hsmp,
    /// Power and energy sensors of hwmon: the machine's, else its processors'.
    Hwmon,
    /// The power model.
    Model,
}

impl MeterKind {
    /// The source of what it yields on real hardware; [`Choice::source`] says it of the machine at hand.
    pub fn source(self) -> Source {
        match self {
            Self::Model => Source::Estimated,
            _ => Source::Measured,
        }
    }

    /// What [`crate::probe`] calls it.
    pub const fn finding(self) -> &'static str {
        match self {
            Self::Rapl => "RAPL energy",
            Self::Psys => "RAPL platform energy",
            Self::Perf => "perf energy events",
            Self::Hsmp => "HSMP socket power (AMD)",
            Self::Hwmon => "hwmon power sensors",
            Self::Model => "modelled power",
        }
    }
}

impl MeterKind {
    /// Opens it where it is of hardware; nothing for the model, which needs a service and figures.
    pub(crate) fn open(self, roots: &Roots) -> Result<Option<Box<dyn Meter>>, MeterError> {
        Ok(Some(match self {
            Self::Rapl => Box::new(RaplMeter::open(roots)?),
            Self::Psys => Box::new(RaplMeter::open_total(roots, RaplTotal::Platform)?),
            Self::Perf => Box::new(PerfMeter::open(roots)?),
            Self::Hsmp => Box::new(HsmpMeter::open(roots)?),
            Self::Hwmon => Box::new(HwmonMeter::open(roots)?),
            Self::Model => return Ok(None),
        }))
    }

    /// Where it is looked for.
    pub(crate) fn evidence(self, roots: &Roots) -> PathBuf {
        match self {
            Self::Rapl | Self::Psys => powercap::dir(roots),
            Self::Perf => perf::dir(roots),
            Self::Hsmp => hsmp::DEVICE.into(),
            Self::Hwmon => roots.sys("class/hwmon"),
            Self::Model => roots.sys("devices/system/cpu/online"),
        }
    }
}

impl Word for MeterKind {
    const ALL: &'static [Self] = &[
        Self::Rapl,
        Self::Psys,
        Self::Perf,
        Self::Hsmp,
        Self::Hwmon,
        Self::Model,
    ];
    const AUTO: &'static [Self] = &[Self::Rapl, Self::Perf, Self::Hsmp, Self::Hwmon, Self::Model];
    const WHAT: &'static str = "meter";

    fn as_str(self) -> &'static str {
        match self {
            Self::Rapl => "rapl",
            Self::Psys => "psys",
            Self::Perf => "perf",
            Self::Hsmp => "hsmp",
            Self::Hwmon => "hwmon",
            Self::Model => "model",
        }
    }
}

impl fmt::Display for MeterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which meter is wanted; `auto` is what measures where there is one (RAPL by powercap or by perf, HSMP, hwmon), else the
/// model.
pub type MeterPreference = Preference<MeterKind>;

/// Which meter was chosen, and what was passed over on the way: to be said at the start of a run and in its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The meter in use.
    pub chosen: MeterKind,
    /// Where its values come from: measured, estimated, or emulated where the hardware is.
    pub source: Source,
    /// In the order in which they were tried.
    pub passed_over: Vec<PassedOver<MeterKind>>,
}

impl Choice {
    /// What to open again where this choice was made: the meters of the same kind of source, so that what is counted
    /// during a run never changes from measured to estimated or back, without those that were passed over.
    pub fn again(&self, preference: MeterPreference) -> MeterPreference {
        let mut order = preference.order();
        order.retain(|kind| {
            kind.source() == self.chosen.source() && !self.passed_over.iter().any(|over| over.what == *kind)
        });
        // The chosen one is in its own order, so that there is one at least.
        Order::new(&order).map_or(preference, Preference::Ordered)
    }
}

impl Choice {
    /// What was passed over, without the reasons, to stand after what is in use: `: no rapl, psys here (\`headroom doctor\` says why)`;
    /// nothing where nothing was.
    pub fn passed_over_in_short(&self) -> String {
        let unusable: Vec<&str> = self.passed_over.iter().map(|over| over.what.as_str()).collect();
        match unusable.is_empty() {
            true => String::new(),
            false => format!(": no {} here (`headroom doctor` says why)", unusable.join(", ")),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "power is {} by {}", self.source, self.chosen)?;
        for PassedOver { what, reason } in &self.passed_over {
            write!(f, "; {what} cannot be used: {reason}")?;
        }
        Ok(())
    }
}

/// Opens a meter of a kind on the machine at hand.
pub(super) type Opener = Box<dyn Fn(MeterKind) -> Result<Box<dyn Meter>, MeterError> + Send>;

fn opener(roots: &Roots, modelled: Modelled) -> Opener {
    let roots = roots.clone();
    Box::new(move |kind| match kind.open(&roots)? {
        Some(meter) => Ok(meter),
        None => modelled(),
    })
}

/// Opens the model of a service.
type Modelled = Box<dyn Fn() -> Result<Box<dyn Meter>, MeterError> + Send>;

fn of_target(roots: &Roots, target: &Target, model: &PowerModel) -> Modelled {
    let (roots, target, model) = (roots.clone(), target.clone(), model.clone());
    Box::new(move || Ok(Box::new(ModelledMeter::open(&roots, &target, model.clone())?)))
}

/// As [`choose`], for a service that is no control group: its model is opened by whoever knows it.
///
/// # Errors
/// As [`choose`].
pub fn choose_of(
    preference: MeterPreference,
    roots: &Roots,
    modelled: impl Fn() -> Result<Box<dyn Meter>, MeterError> + Send + 'static,
) -> Result<(Box<dyn Meter>, Choice), MeterError> {
    choose_by(preference, roots, Box::new(modelled), trial::moves)
}

/// Opens the first meter of the preference's order that works: that can be read, and that moves while a processor
/// works (`trial`). When it stands still during the run, the next of the order with the same kind of source takes
/// its place.
///
/// # Errors
/// [`MeterError::Unavailable`] where none of the order works.
pub fn choose(
    preference: MeterPreference,
    roots: &Roots,
    target: &Target,
    model: &PowerModel,
) -> Result<(Box<dyn Meter>, Choice), MeterError> {
    choose_by(preference, roots, of_target(roots, target, model), trial::moves)
}

/// As [`choose`], of meters that were tried when this machine was first opened, and without a trial.
///
/// # Errors
/// As [`choose`].
pub fn choose_tried(
    preference: MeterPreference,
    roots: &Roots,
    target: &Target,
    model: &PowerModel,
) -> Result<(Box<dyn Meter>, Choice), MeterError> {
    choose_by(preference, roots, of_target(roots, target, model), |_| Ok(()))
}

/// Tries the meters of an order without the model as [`choose`] does, and closes them again: what cannot be used is so known before there is a
/// service. The model always can be.
///
/// # Errors
/// As [`choose`].
pub fn check(preference: MeterPreference, roots: &Roots) -> Result<(), MeterError> {
    let order = preference.order();
    if order.contains(&MeterKind::Model) {
        return Ok(());
    }
    let tried = |kind: MeterKind| match kind.open(roots)? {
        Some(mut meter) => trial::moves(&mut *meter),
        None => Ok(()),
    };
    match order::choose(&order, tried, |_| false) {
        Ok(_) => Ok(()),
        Err(none) => Err(unavailable(preference, &none)),
    }
}

fn unavailable(wanted: MeterPreference, none: &NoChoice<MeterKind, MeterError>) -> MeterError {
    MeterError::Unavailable {
        wanted,
        reason: none.to_string(),
    }
}

fn choose_by(
    preference: MeterPreference,
    roots: &Roots,
    modelled: Modelled,
    moves: fn(&mut dyn Meter) -> Result<(), MeterError>,
) -> Result<(Box<dyn Meter>, Choice), MeterError> {
    let emulated = roots.source() == Source::Emulated;
    let open = opener(roots, modelled);
    let order = preference.order();
    let tried = |kind| {
        let mut meter = open(kind)?;
        if kind != MeterKind::Model {
            moves(&mut *meter)?;
        }
        Ok::<_, MeterError>(meter)
    };
    let (meter, order::Choice { chosen, passed_over }) =
        order::choose(&order, tried, |_| false).map_err(|none| unavailable(preference, &none))?;
    // Those after it, of the same kind of source.
    let mut rest: Vec<MeterKind> = order.into_iter().skip(passed_over.len() + 1).collect();
    rest.retain(|other| other.source() == chosen.source());
    let choice = Choice {
        chosen,
        source: if emulated {
            Source::Emulated
        } else {
            chosen.source()
        },
        passed_over,
    };
    Ok((Box::new(MeterInUse::new(meter, open, rest)), choice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tree, says};

    fn read(json: &str) -> Result<MeterPreference, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_word_or_a_list_of_words_is_a_preference() {
        assert_eq!(read("\"auto\""), Ok(MeterPreference::Auto));
        assert_eq!(read("\"rapl\""), Ok(MeterPreference::one(MeterKind::Rapl)));
        assert_eq!(
            read("[\"rapl\"]"),
            Ok(MeterPreference::one(MeterKind::Rapl)),
            "one way to say one thing"
        );
        assert_eq!(read("\"model\""), Ok(MeterPreference::one(MeterKind::Model)));
        let listed = read("[\"rapl\", \"hwmon\", \"model\"]").unwrap();
        assert_eq!(
            listed.order(),
            [MeterKind::Rapl, MeterKind::Hwmon, MeterKind::Model]
        );
        assert_eq!("rapl,hwmon, model".parse(), Ok(listed));
        assert_eq!(listed.to_string(), "rapl,hwmon,model");
        for preference in [
            listed,
            MeterPreference::Auto,
            MeterPreference::one(MeterKind::Model),
            read("\"psys\"").unwrap(),
        ] {
            assert_eq!(read(&serde_json::to_string(&preference).unwrap()), Ok(preference));
        }
    }

    #[test]
    fn a_meter_that_is_not_there_is_known_before_there_is_a_service_and_the_model_always_is() {
        let roots = Tree::new().roots();
        says(
            check(MeterPreference::one(MeterKind::Rapl), &roots).unwrap_err(),
            &["\"rapl\" cannot be used", "powercap", "auto or model"],
        );
        for preference in ["auto", "rapl,model", "model"] {
            assert!(check(preference.parse().unwrap(), &roots).is_ok(), "{preference}");
        }
    }

    #[test]
    fn what_is_no_preference_is_said_with_what_is() {
        for (json, word) in [
            ("\"rapple\"", "\"rapple\" is no meter"),
            ("[\"rapl\", \"rapl\"]", "twice"),
            ("[]", "empty"),
            ("[\"auto\"]", "\"auto\" is no meter"),
            ("5", "one or a list of"),
        ] {
            says(read(json).unwrap_err(), &[word]);
        }
    }

    #[test]
    fn every_meter_can_be_in_one_list_and_the_model_is_the_last_of_auto() {
        let all = Preference::Ordered(Order::new(MeterKind::ALL).unwrap());
        assert_eq!(all.order(), MeterKind::ALL);
        assert_eq!(MeterPreference::Auto.order().last(), Some(&MeterKind::Model));
    }
}
