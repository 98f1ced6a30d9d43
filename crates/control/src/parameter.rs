//! What is wrong with a parameter of a law.

use std::borrow::Cow;

/// A parameter lies outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} is {value}: it must be {range}")]
pub struct OutOfRange {
    /// The parameter's key, as in the configuration file's table of the law.
    pub key: Cow<'static, str>,
    /// Its value.
    pub value: f64,
    /// What it may be, in words.
    pub range: Cow<'static, str>,
}

impl OutOfRange {
    /// This value of this key, and what it may be.
    pub fn new(key: impl Into<Cow<'static, str>>, value: f64, range: impl Into<Cow<'static, str>>) -> Self {
        Self {
            key: key.into(),
            value,
            range: range.into(),
        }
    }
}

/// A bound on a number, with its words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// More than 0 and at most 1.
    Share,
    /// More than 0, and finite.
    Positive,
    /// Not below 0, and finite.
    NotNegative,
    /// A length of time from this to that, in seconds.
    Seconds(f64, f64),
}

impl Bound {
    /// Refuses what is outside.
    pub(crate) fn check(self, key: impl Into<Cow<'static, str>>, value: f64) -> Result<(), OutOfRange> {
        let (fits, range) = match self {
            Self::Share => (
                value > 0.0 && value <= 1.0,
                Cow::Borrowed("greater than 0 and at most 1"),
            ),
            Self::Positive => (value > 0.0 && value.is_finite(), Cow::Borrowed("greater than 0")),
            Self::NotNegative => (value >= 0.0 && value.is_finite(), Cow::Borrowed("0 or more")),
            Self::Seconds(least, most) => (
                (least..=most).contains(&value),
                Cow::Owned(format!("between {least} and {most} s")),
            ),
        };
        match fits {
            true => Ok(()),
            false => Err(OutOfRange::new(key, value, range)),
        }
    }
}
