//! What is wrong with a parameter of a law.

use std::borrow::Cow;

/// A parameter lies outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} {}: it must be {range}", self.is())]
pub struct OutOfRange {
    /// The parameter's key, as in the configuration file's table of the law.
    pub key: Cow<'static, str>,
    /// Its value; none where it has to be given and is not.
    pub value: Option<f64>,
    /// What it may be, in words.
    pub range: Cow<'static, str>,
}

impl OutOfRange {
    /// This value of this key, and what it may be.
    pub fn new(key: impl Into<Cow<'static, str>>, value: f64, range: impl Into<Cow<'static, str>>) -> Self {
        Self {
            key: key.into(),
            value: Some(value),
            range: range.into(),
        }
    }

    /// A key that is not there, and what it has to be.
    pub fn missing(key: impl Into<Cow<'static, str>>, range: impl Into<Cow<'static, str>>) -> Self {
        Self {
            key: key.into(),
            value: None,
            range: range.into(),
        }
    }

    /// What is so of the key: `is 5`, `is missing`.
    pub fn is(&self) -> String {
        self.value
            .map_or_else(|| "is missing".to_owned(), |value| format!("is {value}"))
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
    /// From 0 to below 1.
    BelowOne,
    /// From this to that.
    Between(f64, f64),
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
            Self::BelowOne => (
                (0.0..1.0).contains(&value),
                Cow::Borrowed("0 or more and below 1"),
            ),
            Self::Between(least, most) => (
                (least..=most).contains(&value),
                Cow::Owned(format!("between {least} and {most}")),
            ),
            Self::Seconds(least, most) => (
                (least..=most).contains(&value),
                Cow::Owned(format!("between {least} and {most} s")),
            ),
        };
        require(key, value, fits, range)
    }
}

/// Parameters of a law, each with its range.
pub(crate) trait Parameters {
    /// All that lie outside their range.
    fn outside(&self) -> Vec<OutOfRange>;

    /// Refuses what is outside, by the first.
    fn check(&self) -> Result<(), OutOfRange> {
        self.outside().into_iter().next().map_or(Ok(()), Err)
    }
}

/// What of a list of checks was refused.
pub(crate) fn refused(checks: impl IntoIterator<Item = Result<(), OutOfRange>>) -> Vec<OutOfRange> {
    checks.into_iter().filter_map(Result::err).collect()
}

/// Refuses a value that does not fit.
pub(crate) fn require(
    key: impl Into<Cow<'static, str>>,
    value: f64,
    fits: bool,
    range: impl Into<Cow<'static, str>>,
) -> Result<(), OutOfRange> {
    match fits {
        true => Ok(()),
        false => Err(OutOfRange::new(key, value, range)),
    }
}

/// Changes the defaults by a JSON table each, and expects that the check then fails with a text that begins like this.
#[cfg(test)]
pub(crate) fn assert_refused<T>(check: impl Fn(&T) -> Result<(), OutOfRange>, cases: &[(&str, &str)])
where
    T: Default + serde::de::DeserializeOwned,
{
    assert_eq!(check(&T::default()), Ok(()));
    for (table, start) in cases {
        let error = check(&serde_json::from_str(table).unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(start), "{table}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bound_holds_what_is_no_number() {
        let bounds = [
            Bound::Share,
            Bound::Positive,
            Bound::NotNegative,
            Bound::BelowOne,
            Bound::Between(0.0, 1.0),
            Bound::Seconds(0.0, 1.0),
        ];
        for bound in bounds {
            let error = bound.check("key", f64::NAN).unwrap_err().to_string();
            assert!(error.starts_with("key is NaN: it must be "), "{error}");
        }
        for bound in [Bound::Positive, Bound::NotNegative] {
            assert!(bound.check("key", f64::INFINITY).is_err());
        }
    }
}
