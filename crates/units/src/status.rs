//! Which HTTP statuses count as failed, and what failed requests do to a percentile.

use crate::Ratio;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The smallest status of a response.
const MIN_STATUS: u16 = 100;
/// Words of 64 statuses, for 100 to 611.
const WORDS: usize = 8;

/// Statuses with which a request counts as failed: classes (`5xx`) and single statuses (`429`) of 400 to 599. By default
/// every 5xx. In a configuration it is a list of words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct FailedStatus([u64; WORDS]);

/// A word that is no failed status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no failed status: write the class \"4xx\" or \"5xx\", or a status from \"400\" to \"599\""
)]
pub struct FailedStatusError(String);

impl FailedStatus {
    /// None at all.
    pub const fn none() -> Self {
        Self([0; WORDS])
    }

    /// Whether a request with this status failed.
    pub const fn contains(&self, status: u16) -> bool {
        let Some(at) = status.checked_sub(MIN_STATUS) else {
            return false;
        };
        let (word, bit) = ((at / 64) as usize, at % 64);
        word < WORDS && self.0[word] & (1 << bit) != 0
    }

    fn add(&mut self, first: u16, count: u16) {
        for at in first - MIN_STATUS..first - MIN_STATUS + count {
            self.0[usize::from(at / 64)] |= 1 << (at % 64);
        }
    }

    /// The words that name it, classes first.
    fn words(&self) -> Vec<String> {
        let mut rest = *self;
        let mut words = Vec::new();
        for class in [400, 500] {
            if (class..class + 100).all(|status| self.contains(status)) {
                words.push(format!("{}xx", class / 100));
                for at in class - MIN_STATUS..class - MIN_STATUS + 100 {
                    rest.0[usize::from(at / 64)] &= !(1 << (at % 64));
                }
            }
        }
        words.extend(
            (400..600)
                .filter(|status| rest.contains(*status))
                .map(|status| status.to_string()),
        );
        words
    }
}

impl Default for FailedStatus {
    fn default() -> Self {
        let mut every_5xx = Self::none();
        every_5xx.add(500, 100);
        every_5xx
    }
}

impl TryFrom<Vec<String>> for FailedStatus {
    type Error = FailedStatusError;

    fn try_from(words: Vec<String>) -> Result<Self, FailedStatusError> {
        let mut all = Self::none();
        for word in words {
            match word.trim() {
                "4xx" => all.add(400, 100),
                "5xx" => all.add(500, 100),
                status => match status.parse() {
                    Ok(status @ 400..=599) => all.add(status, 1),
                    _ => return Err(FailedStatusError(word.chars().take(40).collect())),
                },
            }
        }
        Ok(all)
    }
}

impl FromStr for FailedStatus {
    type Err = FailedStatusError;

    /// Words with commas between them.
    fn from_str(text: &str) -> Result<Self, FailedStatusError> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect::<Vec<_>>().try_into()
    }
}

impl From<FailedStatus> for Vec<String> {
    fn from(statuses: FailedStatus) -> Self {
        statuses.words()
    }
}

impl fmt::Display for FailedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(","))
    }
}

impl fmt::Debug for FailedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailedStatus({self})")
    }
}

/// The rank, from 1, of the smallest of `count` ascending values that at least this share of them (0 to 1) does not
/// exceed. A product such as 0.999 · 1000, which is a little over 999 in binary, is no reason for the next rank.
pub fn rank_of(share: f64, count: u64) -> u64 {
    (share * count as f64 - 1e-9).ceil().max(1.0) as u64
}

/// The part of the answered requests (0 to 1) at whose end lies a percentile of all requests that ended, when the
/// `failed` ones are slower than every answered one: what to ask the distribution of the answered ones for. `None` where
/// the percentile lies among the failed ones: the SLO is missed, whatever the others' latency.
///
/// Where none failed it is the percentile itself.
pub fn quantile_of_answered(percentile: Ratio, answered: u64, failed: u64) -> Option<f64> {
    if failed == 0 {
        return Some(percentile.get());
    }
    let rank = rank_of(percentile.get(), answered + failed) as f64;
    // The middle of the rank, so that rounding takes it to no neighbour.
    (rank <= answered as f64).then(|| (rank - 0.5) / answered as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn failed_requests_are_the_slowest_of_all() {
        let at = |answered, failed| quantile_of_answered(Ratio::from_percent(95.0), answered, failed);
        assert_eq!(at(100, 0), Some(0.95));
        // Of 100 that ended the 95th is asked for: it is answered as long as at most 5 failed.
        assert_eq!(at(98, 2), Some(94.5 / 98.0));
        assert_eq!(at(95, 5), Some(94.5 / 95.0));
        assert_eq!(at(94, 6), None);
        assert_eq!((at(0, 1), at(1, 1), at(0, 0)), (None, None, Some(0.95)));
    }

    #[test]
    fn as_many_failures_as_a_percentile_leaves_miss_nothing() {
        for (percent, left) in [(95.0, 50), (99.0, 10), (99.9, 1)] {
            for thousands in 1..=100 {
                let at = |failed| {
                    quantile_of_answered(Ratio::from_percent(percent), thousands * 1000 - failed, failed)
                };
                let left = left * thousands;
                assert!(at(left).is_some(), "P{percent}, {left} of {thousands} thousand");
                assert_eq!(
                    at(left + 1),
                    None,
                    "P{percent}, {left} + 1 of {thousands} thousand"
                );
            }
        }
    }

    fn of(text: &str) -> Result<FailedStatus, FailedStatusError> {
        text.parse()
    }

    #[test]
    fn every_5xx_by_default_and_what_is_named_otherwise() {
        let default = FailedStatus::default();
        for status in 0..=u16::MAX {
            assert_eq!(default.contains(status), (500..600).contains(&status), "{status}");
        }
        let some = of("5xx, 429").unwrap();
        assert!(some.contains(429) && some.contains(599) && !some.contains(428) && !some.contains(600));
        assert_eq!(some.to_string(), "5xx,429");
        assert_eq!(of(""), Ok(FailedStatus::none()));
        for wrong in ["2xx", "200", "399", "600", "5XX", "five", "-1", "99999"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("\"5xx\""), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(statuses in proptest::collection::vec(400u16..600, 0..20), all in any::<bool>()) {
            let mut words: Vec<String> = statuses.iter().map(u16::to_string).collect();
            words.extend(all.then(|| "4xx".to_owned()));
            let set = FailedStatus::try_from(words).unwrap();
            let json = serde_json::to_string(&set).unwrap();
            prop_assert_eq!(serde_json::from_str::<FailedStatus>(&json).unwrap(), set);
            prop_assert_eq!(set.to_string().parse::<FailedStatus>().unwrap(), set);
        }
    }
}
