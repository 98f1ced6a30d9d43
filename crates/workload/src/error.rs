//! What can be wrong with a process or a distribution that a file states.

use std::fmt;

/// A figure out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct FigureError {
    /// The key, as a dotted path into the file: `arrivals.rate_per_s`.
    pub key: String,
    /// The value, what is wrong with it and what it must be.
    pub why: String,
}

/// The fields below a key, to be checked one by one.
pub(crate) struct Fields<'a>(pub(crate) &'a str);

impl Fields<'_> {
    /// Refuses a field's value that is not what it must be.
    pub(crate) fn require(
        &self,
        holds: bool,
        field: &str,
        value: impl fmt::Display,
        rule: &str,
    ) -> Result<(), FigureError> {
        if holds {
            return Ok(());
        }
        Err(FigureError {
            key: format!("{}.{field}", self.0),
            why: format!("is {value}: it must be {rule}"),
        })
    }
}
