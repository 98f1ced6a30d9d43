//! Values of arguments that several commands have, as `clap`'s value parsers take them.

/// A length of time in seconds: more than nothing, and at most a hundred years.
///
/// # Errors
/// What it must be, for clap to say.
pub fn seconds(text: &str) -> Result<f64, String> {
    match seconds_or_none(text)? {
        0.0 => Err("give more than 0 seconds".to_owned()),
        seconds => Ok(seconds),
    }
}

/// The same, but it may be nothing.
///
/// # Errors
/// As [`seconds`].
pub fn seconds_or_none(text: &str) -> Result<f64, String> {
    let most = 36_525.0 * 86_400.0;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => f64::NAN,
    };
    let seconds = digits.trim().parse().ok().map(|number: f64| number * unit);
    let seconds = seconds.filter(|seconds| (0.0..=most).contains(seconds));
    seconds.ok_or_else(|| {
        format!("give a number of seconds, or with ms, s, m, h or d as 90s or 10m, at most {most} s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_in_seconds_or_has_its_unit() {
        for (text, wanted) in [
            ("10", 10.0),
            ("10s", 10.0),
            ("1.5m", 90.0),
            ("500ms", 0.5),
            ("2h", 7200.0),
        ] {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for text in ["", "s", "10 x", "nan", "NaN", "inf", "-1", "-1s", "0s", "999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(seconds_or_none("0s"), Ok(0.0));
    }
}
