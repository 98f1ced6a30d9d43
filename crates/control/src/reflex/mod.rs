//! The reflex between periods: what is put in force at once when more requests are in flight than a law expects until its
//! next decision, or one of them is older.
//!
//! With each [`Decision`](crate::Decision) a law may give a [`Reflex`]: two bounds, and the setting that is to be in force
//! when one of them is passed. Whoever counts the requests compares; nobody asks the law, which finds in
//! [`Observation::reflexes`](crate::Observation::reflexes) that it has happened. A reflex gives and never takes, fires at most
//! once a decision, and ends with the next.
//!
//! How our own laws choose the bounds: `plan`.

mod plan;

pub(crate) use plan::{Past, Planned, Queue, ReflexPlan};

use headroom_units::{Lever, Seconds, Setting};
use serde::{Deserialize, Serialize};

/// The levers that act within milliseconds: those that a reflex can raise.
pub const LEVERS: [Lever; 3] = [Lever::Cores, Lever::Cap, Lever::Frequency];

/// What is to be in force at once when a bound is passed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reflex {
    /// More requests in flight at the whole service than this fire it.
    pub bound: u64,
    /// A request that has been served for longer than this fires it; `None` where age fires nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Seconds>,
    /// What is in force then, of [`LEVERS`]; no limit where a lever has no value.
    pub setting: Setting,
}

impl Reflex {
    /// Whether so many requests in flight, or one of that age, fire it.
    pub fn is_passed(&self, in_flight: u64, oldest: Option<Seconds>) -> bool {
        in_flight > self.bound || self.oldest.zip(oldest).is_some_and(|(bound, age)| age > bound)
    }

    /// What is in force after it where `now` is before: of each of [`LEVERS`] the more generous value, all others as they are.
    pub fn raised(&self, now: &Setting) -> Setting {
        let most = self.setting.most(*now);
        let raise = |all: Setting, lever| all.with(lever, most.get(lever));
        LEVERS.into_iter().fold(*now, raise)
    }

    /// Whether it would give anything where `now` is in force.
    pub fn gives(&self, now: &Setting) -> bool {
        now.takes_from(&self.raised(now))
    }

    /// Of several laws' reflexes over what they decided together: the lowest bounds, and each law's levers as it wants them.
    pub(crate) fn joined<'a>(
        decided: &Setting,
        all: impl IntoIterator<Item = (Self, &'a [Lever])>,
    ) -> Option<Self> {
        let mut joined: Option<Self> = None;
        for (one, levers) in all {
            let before = joined.unwrap_or(Self {
                setting: *decided,
                ..one
            });
            let oldest = match (before.oldest, one.oldest) {
                (Some(before), Some(one)) => Some(if one < before { one } else { before }),
                (before, one) => before.or(one),
            };
            let take = |all: Setting, lever: &Lever| all.with(*lever, one.setting.get(*lever));
            joined = Some(Self {
                bound: before.bound.min(one.bound),
                oldest,
                setting: levers
                    .iter()
                    .filter(|lever| LEVERS.contains(lever))
                    .fold(before.setting, take),
            });
        }
        joined.filter(|joined| joined.gives(decided))
    }
}

#[cfg(test)]
mod tests;
