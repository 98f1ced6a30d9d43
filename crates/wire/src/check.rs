//! Checks of single fields of a message that came over the network.

use crate::proto;
use headroom_units::{Ratio, Source};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest text that is shown of a value that was refused, in characters.
const SHOWN: usize = 80;

/// A message that breaks the contract: what it says in one field is no value of that field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{field} is {value}: expected {expected}")]
pub struct Invalid {
    /// The field, as in the `.proto` file.
    pub field: String,
    /// What was given, cut to 80 characters.
    pub value: String,
    /// What was expected.
    pub expected: String,
}

impl Invalid {
    /// A value of a field that is none; a long value is cut.
    pub fn new(field: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        let value = value.to_string();
        let short: String = value.chars().take(SHOWN).collect();
        let value = if short.len() < value.len() {
            format!("{short}...")
        } else {
            short
        };
        Self {
            field: field.into(),
            value,
            expected: expected.into(),
        }
    }

    /// A field that must be there and is not.
    pub(crate) fn missing(field: impl Into<String>) -> Self {
        Self::new(field, "missing", "a value")
    }
}

/// A revision of the contract that is spoken here.
pub(crate) fn protocol(spoken: u32) -> Result<(), Invalid> {
    if spoken == crate::PROTOCOL {
        return Ok(());
    }
    let expected = format!("{}: run one version of headroom on both ends", crate::PROTOCOL);
    Err(Invalid::new("protocol", spoken, expected))
}

/// A message within another that must be there.
pub(crate) fn required<M, T>(field: &str, message: Option<M>) -> Result<T, Invalid>
where
    T: TryFrom<M, Error = Invalid>,
{
    message.ok_or_else(|| Invalid::missing(field))?.try_into()
}

/// A finite number that is not negative.
pub(crate) fn amount(field: &str, value: f64) -> Result<f64, Invalid> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(Invalid::new(field, value, "a number from 0, not infinite"))
    }
}

/// [`amount`] of a field that may be absent.
pub(crate) fn optional_amount(field: &str, value: Option<f64>) -> Result<Option<f64>, Invalid> {
    value.map(|value| amount(field, value)).transpose()
}

/// A share from 0 to 1; what rounding put a little above is 1.
pub(crate) fn share(field: &str, value: f64) -> Result<Ratio, Invalid> {
    if (0.0..=1.000_001).contains(&value) {
        Ok(Ratio::new(value.min(1.0)))
    } else {
        Err(Invalid::new(field, value, "a share from 0 to 1"))
    }
}

/// A list of at most so many.
pub(crate) fn at_most<T>(field: &str, list: Vec<T>, most: usize) -> Result<Vec<T>, Invalid> {
    if list.len() <= most {
        Ok(list)
    } else {
        Err(Invalid::new(
            field,
            format!("{} long", list.len()),
            format!("at most {most}"),
        ))
    }
}

/// Messages of a list that is no longer than its limit.
pub(crate) fn each<M, T>(field: &str, list: Vec<M>, most: usize) -> Result<Vec<T>, Invalid>
where
    T: TryFrom<M, Error = Invalid>,
{
    at_most(field, list, most)?.into_iter().map(T::try_from).collect()
}

/// The source of a value.
pub(crate) fn source(field: &str, value: i32) -> Result<Source, Invalid> {
    match proto::Source::try_from(value) {
        Ok(proto::Source::Measured) => Ok(Source::Measured),
        Ok(proto::Source::Estimated) => Ok(Source::Estimated),
        Ok(proto::Source::Emulated) => Ok(Source::Emulated),
        Ok(proto::Source::Simulated) => Ok(Source::Simulated),
        Ok(proto::Source::Unspecified) | Err(_) => Err(Invalid::new(
            field,
            value,
            "1 measured, 2 estimated, 3 emulated or 4 simulated",
        )),
    }
}

/// The number of a source in a message.
pub(crate) fn source_number(source: Source) -> i32 {
    let number = match source {
        Source::Measured => proto::Source::Measured,
        Source::Estimated => proto::Source::Estimated,
        Source::Emulated => proto::Source::Emulated,
        Source::Simulated => proto::Source::Simulated,
    };
    number.into()
}

/// Whole microseconds; beyond what a message holds, its maximum.
pub(crate) fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded up: a lease that lives is never said to have none left.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_amounts_pass() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1] {
            let error = amount("cores", bad).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("cores is {bad}: expected a number"))
            );
        }
        assert_eq!(amount("cores", 0.0), Ok(0.0));
    }

    #[test]
    fn a_source_must_be_said() {
        for said in [
            Source::Measured,
            Source::Estimated,
            Source::Emulated,
            Source::Simulated,
        ] {
            assert_eq!(source("source", source_number(said)), Ok(said));
        }
        assert!(
            source("source", 0).is_err() && source("source", 5).is_err() && source("source", -1).is_err()
        );
    }

    #[test]
    fn a_long_value_is_cut_and_says_so() {
        let error = Invalid::new("holder", "é".repeat(200), "a name");
        assert_eq!(error.value, format!("{}...", "é".repeat(80)));
    }

    #[test]
    fn a_lease_that_lives_has_some_time_left() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(micros(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_share_is_between_nothing_and_all() {
        assert_eq!(share("x", 1.000_000_5), Ok(Ratio::new(1.0)));
        assert!(share("x", 1.1).is_err() && share("x", -0.1).is_err() && share("x", f64::NAN).is_err());
    }
}
