//! Values of arguments that several commands have, as `clap`'s value parsers take them.

use headroom_units::Seconds;

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
    text.parse().map(Seconds::get)
}
