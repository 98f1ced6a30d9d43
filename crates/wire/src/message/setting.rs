//! Settings, and what can be commanded of a node's levers.

use super::{MAX_LEVERS, Range, range};
use crate::check::{Invalid, amount, at_most};
use crate::{Refusal, proto};
use headroom_units::{Lever, LeverRange, Seconds, Setting};
use std::collections::BTreeMap;

/// Why a node lacks a lever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoLever {
    /// Why it cannot be set.
    pub reason: String,
    /// What would help; empty where nothing does.
    pub remedy: String,
}

/// What can be commanded of each lever of a node, or why it has none.
///
/// ```
/// use headroom_units::{Lever, LeverRange, Setting};
/// use headroom_wire::message::Ranges;
///
/// let ranges = Ranges::default().with(Lever::Cores, Ok(LeverRange::between(0.1, 4.0)));
/// let setting = |lever, value| Setting::default().with(lever, Some(value));
/// assert!(ranges.check(&setting(Lever::Cores, 2.0)).is_ok());
/// let refused = ranges.check(&setting(Lever::Cap, 40.0)).unwrap_err();
/// assert!(refused.to_string().contains("this node cannot set cap"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranges(BTreeMap<Lever, Result<LeverRange, NoLever>>);

impl Ranges {
    /// The same with a lever's range, or why there is none.
    #[must_use]
    pub fn with(mut self, lever: Lever, range: Result<LeverRange, NoLever>) -> Self {
        self.0.insert(lever, range);
        self
    }

    /// The range of a lever that the node has.
    pub fn get(&self, lever: Lever) -> Option<LeverRange> {
        self.0.get(&lever)?.as_ref().ok().copied()
    }

    /// Why the node lacks a lever that it knows.
    pub fn missing(&self, lever: Lever) -> Option<&NoLever> {
        self.0.get(&lever)?.as_ref().err()
    }

    /// The levers that the node knows, each with its range or why there is none.
    pub fn each(&self) -> impl Iterator<Item = (Lever, &Result<LeverRange, NoLever>)> {
        self.0.iter().map(|(lever, range)| (*lever, range))
    }

    /// The same with other ranges.
    #[must_use]
    pub fn map(self, change: impl Fn(Lever, LeverRange) -> LeverRange) -> Self {
        let each = |(lever, range): (Lever, Result<LeverRange, NoLever>)| {
            (lever, range.map(|range| change(lever, range)))
        };
        Self(self.0.into_iter().map(each).collect())
    }

    /// Whether a setting lies in them.
    ///
    /// # Errors
    /// [`Refusal::OutOfRange`] with the value and the range, [`Refusal::NoLever`].
    pub fn check(&self, setting: &Setting) -> Result<(), Refusal> {
        for (lever, value) in setting.iter() {
            let none = match self.0.get(&lever) {
                Some(Ok(range)) => {
                    Refusal::check_range(lever.name(), value, (*range).into(), lever.info().unit)?;
                    continue;
                }
                Some(Err(none)) => none.clone(),
                None => NoLever {
                    reason: "it has no such lever".to_owned(),
                    remedy: String::new(),
                },
            };
            return Err(Refusal::NoLever {
                field: lever.name().to_owned(),
                reason: none.reason,
                remedy: none.remedy,
            });
        }
        Ok(())
    }
}

impl FromIterator<(Lever, Result<LeverRange, NoLever>)> for Ranges {
    fn from_iter<I: IntoIterator<Item = (Lever, Result<LeverRange, NoLever>)>>(ranges: I) -> Self {
        Self(ranges.into_iter().collect())
    }
}

impl From<LeverRange> for Range {
    fn from(range: LeverRange) -> Self {
        Self {
            minimum: range.min,
            maximum: range.max,
            step: range.step,
        }
    }
}

/// The lever of this name.
fn lever(field: &str, name: &str) -> Result<Lever, Invalid> {
    Lever::named(name).ok_or_else(|| {
        let known: Vec<&str> = Lever::ALL.into_iter().map(Lever::name).collect();
        let expected = format!(
            "a lever that this version knows ({}): run one version of headroom on both ends",
            known.join(", ")
        );
        Invalid::new(field, format!("{name:?}"), expected)
    })
}

impl From<Setting> for proto::Setting {
    fn from(setting: Setting) -> Self {
        let levers = setting.iter().map(|(lever, value)| proto::LeverSetting {
            lever: lever.name().to_owned(),
            value,
        });
        Self {
            levers: levers.collect(),
        }
    }
}

impl TryFrom<proto::Setting> for Setting {
    type Error = Invalid;
    fn try_from(message: proto::Setting) -> Result<Self, Invalid> {
        let mut all = Self::default();
        for proto::LeverSetting { lever: name, value } in
            at_most("setting.levers", message.levers, MAX_LEVERS)?
        {
            let lever = lever("setting.lever", &name)?;
            if all.get(lever).is_some() {
                let expected = "each lever once";
                return Err(Invalid::new("setting.lever", format!("{name:?} twice"), expected));
            }
            let value = amount(&format!("setting.{name}"), value)?;
            all = all.with(lever, Some(value));
        }
        Ok(all)
    }
}

impl From<Ranges> for Vec<proto::LeverRange> {
    fn from(ranges: Ranges) -> Self {
        let each = |(lever, range): (Lever, Result<LeverRange, NoLever>)| {
            let (range, none) = match range {
                Ok(range) => (Some(range), NoLever::default()),
                Err(none) => (None, none),
            };
            proto::LeverRange {
                lever: lever.name().to_owned(),
                delay_ms: range.map_or(0.0, |range| range.delay.as_millis()),
                range: range.map(Into::into),
                reason: none.reason,
                remedy: none.remedy,
            }
        };
        ranges.0.into_iter().map(each).collect()
    }
}

impl TryFrom<Vec<proto::LeverRange>> for Ranges {
    type Error = Invalid;
    fn try_from(messages: Vec<proto::LeverRange>) -> Result<Self, Invalid> {
        let each = |message: proto::LeverRange| {
            let lever = lever("ranges.lever", &message.lever)?;
            if message.range.is_none() {
                let (reason, remedy) = (message.reason, message.remedy);
                return Ok((lever, Err(NoLever { reason, remedy })));
            }
            let accepted = range("ranges.range", message.range)?;
            let range = LeverRange {
                min: accepted.minimum,
                max: accepted.maximum,
                step: accepted.step,
                delay: Seconds::from_millis(amount("ranges.delay_ms", message.delay_ms)?),
            };
            Ok((lever, Ok(range)))
        };
        at_most("ranges", messages, MAX_LEVERS)?
            .into_iter()
            .map(each)
            .collect()
    }
}
