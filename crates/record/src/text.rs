//! Figures as short texts.

/// What stands where a value does not exist.
pub(crate) const NONE: &str = "-";

/// A number with so many decimals, or `-`.
pub(crate) fn number_or_none(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.decimals$}"))
}

/// A number as short as it can be written to three decimals.
pub(crate) fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
