//! Figures as short texts.

/// What stands where a value does not exist.
pub(crate) const NONE: &str = "-";

/// A number with so many decimals, or `-`.
pub(crate) fn number_or_none(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(
        || NONE.to_owned(),
        |value| {
            let text = format!("{value:.decimals$}");
            // What rounds to nothing has no sign.
            match text.strip_prefix('-') {
                Some(nothing) if nothing.trim_matches(['0', '.']).is_empty() => nothing.to_owned(),
                _ => text,
            }
        },
    )
}

/// A number as short as it can be written to three decimals.
pub(crate) fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounds_to_nothing_has_no_sign() {
        assert_eq!(number_or_none(Some(-0.002), 1), "0.0");
        assert_eq!(number_or_none(Some(-0.4), 0), "0");
        assert_eq!(number_or_none(Some(-0.06), 1), "-0.1");
        assert_eq!(number_or_none(None, 1), "-");
    }
}
