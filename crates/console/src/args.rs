//! Values of arguments that several commands have, as `clap`'s value parsers take them.

/// A length of time: more than nothing, and at most a hundred years.
pub fn seconds(text: &str) -> Result<f64, String> {
    match seconds_or_none(text)? {
        0.0 => Err("give more than 0 seconds".to_owned()),
        seconds => Ok(seconds),
    }
}

/// A length of time that may be nothing.
pub fn seconds_or_none(text: &str) -> Result<f64, String> {
    let most = 36_525.0 * 86_400.0;
    let seconds = text.parse().ok().filter(|seconds| (0.0..=most).contains(seconds));
    seconds.ok_or_else(|| format!("give a number of seconds, at most {most}"))
}
