//! What holds a power cap, in the user's order of preference, and why others do not.

use super::{HardwareCap, HsmpLimits, PowerLimitError, RaplLimits};
use crate::Roots;
use crate::order::{Choice, NoChoice, Preference, Word, choose};
use crate::restore::{Registry, RestoreError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What can hold a power cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeverKind {
    /// RAPL power limits.
    Rapl,
    /// AMD's socket limits by HSMP.
    Hsmp,
    /// The processors' frequency (cpufreq), by feedback from the meter, and CPU quota below the lowest.
    Frequency,
    /// CPU quota, by feedback from the meter.
    Software,
}

impl LeverKind {
    /// What [`crate::probe`] calls it.
    pub const fn finding(self) -> &'static str {
        match self {
            Self::Rapl => "RAPL power limits",
            Self::Hsmp => "HSMP power limits (AMD)",
            Self::Frequency => crate::probe::FREQUENCY_LIMIT,
            Self::Software => "software power cap",
        }
    }
}

impl Word for LeverKind {
    const ALL: &'static [Self] = &[Self::Rapl, Self::Hsmp, Self::Frequency, Self::Software];
    const AUTO: &'static [Self] = Self::ALL;
    const WHAT: &'static str = "power lever";

    fn as_str(self) -> &'static str {
        match self {
            Self::Rapl => "rapl",
            Self::Hsmp => "hsmp",
            Self::Frequency => "frequency",
            Self::Software => "software",
        }
    }

    fn in_use(self) -> String {
        let words = match self {
            Self::Rapl => "power caps are held by the hardware (RAPL)",
            Self::Hsmp => "power caps are held by the hardware (HSMP)",
            Self::Frequency => {
                "power caps are held by the processors' frequency, and by CPU quota below the lowest"
            }
            Self::Software => "power caps are held in software, by CPU quota",
        };
        words.to_owned()
    }
}

impl fmt::Display for LeverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is to hold caps; `auto` is the hardware where it can, else the frequency, else the quota.
pub type LeverPreference = Preference<LeverKind>;

/// Which lever holds caps, and what was passed over or given up.
pub type LeverChoice = Choice<LeverKind>;

/// Why no lever could be opened: one that would be used is another program's, or none of them works.
pub type NoLever = NoChoice<LeverKind, PowerLimitError>;

/// A lever in use: nothing where caps are held by a loop, over the frequency or the quota.
pub type Opened = (Option<Box<dyn HardwareCap>>, LeverChoice);

/// Opens the first lever of the order that works; caps by frequency and by quota are held by a loop of their own.
/// `measured` says whether the meter in use measures: a hardware limit holds true watts, which a model's are not.
/// `frequency` says why the frequency cannot be limited.
///
/// # Errors
/// [`NoLever`]: none of the order works, or one of them is another program's.
pub fn open(
    preference: LeverPreference,
    roots: &Roots,
    measured: bool,
    frequency: &Result<(), String>,
    registry: &Registry,
) -> Result<Opened, NoLever> {
    let open = |kind| -> Result<Option<Box<dyn HardwareCap>>, PowerLimitError> {
        match kind {
            LeverKind::Software => Ok(None),
            LeverKind::Frequency => match frequency {
                Ok(()) => Ok(None),
                Err(why) => Err(PowerLimitError::NoLimits { why: why.clone() }),
            },
            _ if !measured => Err(PowerLimitError::NoLimits {
                why: "the power is modelled, and a hardware limit holds watts that are measured".into(),
            }),
            LeverKind::Rapl => RaplLimits::open(roots, registry).map(|limits| Some(Box::new(limits) as _)),
            LeverKind::Hsmp => HsmpLimits::open(roots, registry).map(|limits| Some(Box::new(limits) as _)),
        }
    };
    // To hold caps by another lever beside that program's would be two caps on one machine.
    let in_use =
        |error: &PowerLimitError| matches!(error, PowerLimitError::Restore(RestoreError::InUse { .. }));
    choose(&preference.order(), open, in_use)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<LeverPreference, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_word_or_a_list_of_words_is_a_preference() {
        assert_eq!(read("\"auto\""), Ok(LeverPreference::Auto));
        assert_eq!(
            read("\"software\""),
            Ok(LeverPreference::one(LeverKind::Software))
        );
        let listed = read("[\"hsmp\", \"software\"]").unwrap();
        assert_eq!(listed.order(), [LeverKind::Hsmp, LeverKind::Software]);
        assert_eq!("hsmp,software".parse(), Ok(listed));
        for preference in [
            LeverPreference::Auto,
            LeverPreference::one(LeverKind::Software),
            listed,
        ] {
            assert_eq!(read(&serde_json::to_string(&preference).unwrap()), Ok(preference));
        }
        assert!(
            read("\"quota\"")
                .unwrap_err()
                .contains("\"quota\" is no power lever")
        );
    }

    #[test]
    fn a_machine_without_limits_falls_to_the_quota_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::at(dir.path(), dir.path());
        let none = Err("no cpufreq".to_owned());
        let (lever, choice) = open(LeverPreference::Auto, &roots, true, &none, &Registry::new()).unwrap();
        assert!(lever.is_none());
        assert_eq!(
            (choice.chosen, choice.passed_over.len()),
            (LeverKind::Software, 3)
        );
        assert!(
            choice.to_string().contains("by CPU quota; rapl cannot be used"),
            "{choice}"
        );
        let rapl = LeverPreference::one(LeverKind::Rapl);
        let why = |measured| match open(rapl, &roots, measured, &none, &Registry::new()) {
            Err(NoLever::PassedOver(over)) => over[0].reason.clone(),
            other => panic!("{other:?}"),
        };
        assert!(why(true).contains("no powercap directory"));
        assert!(why(false).contains("modelled"));
        let (lever, choice) = open(LeverPreference::Auto, &roots, false, &Ok(()), &Registry::new()).unwrap();
        assert!(lever.is_none());
        assert_eq!(
            (choice.chosen, choice.passed_over.len()),
            (LeverKind::Frequency, 2),
            "the frequency holds modelled watts, too"
        );
    }
}
