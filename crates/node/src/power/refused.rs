//! What was not believed, counted by zone and reason.

use super::counter::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// More zones and reasons than any meter has; refusals beyond it are not counted.
const MAX_ENTRIES: usize = 4096;

/// How often readings of one zone were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The zone.
    pub zone: String,
    /// The reason.
    pub reason: Refusal,
    /// How often since the meter was opened.
    pub count: u64,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} reading(s) of {} refused: {}",
            self.count, self.zone, self.reason
        )
    }
}

/// The counts of one meter.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<(String, Refusal), u64>);

impl Refusals {
    /// Counts one, and says the first of its kind in the log.
    pub(super) fn count(&mut self, zone: &str, reason: Refusal) {
        let key = (zone.to_string(), reason);
        if let Some(count) = self.0.get_mut(&key) {
            *count += 1;
        } else if self.0.len() < MAX_ENTRIES {
            tracing::warn!("a reading of {zone} was refused: {reason}; further ones are counted");
            self.0.insert(key, 1);
        }
    }

    /// All of them.
    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// By zone and reason.
    pub(super) fn list(&self) -> Vec<Refused> {
        self.0
            .iter()
            .map(|((zone, reason), count)| Refused {
                zone: zone.clone(),
                reason: *reason,
                count: *count,
            })
            .collect()
    }
}
