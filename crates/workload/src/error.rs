//! What can be wrong with a process or a distribution that a file states.

/// A figure out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct FigureError {
    /// The key, as a dotted path into the file: `arrivals.rate_per_s`.
    pub key: String,
    /// The value, what is wrong with it and what it must be.
    pub why: String,
}

impl FigureError {
    /// A field below a key is not what it must be.
    pub(crate) fn new(key: &str, field: &str, value: &str, rule: &str) -> Self {
        Self {
            key: format!("{key}.{field}"),
            why: format!("is {value}: it must be {rule}"),
        }
    }
}
