//! Numbers of bytes as people write them.

use bytesize::ByteSize;
use serde::de::{Deserializer, Error, Visitor};
use std::fmt;

/// The units of what is said exactly, the largest first.
const UNITS: [(u64, &str); 8] = [
    (1 << 40, "TiB"),
    (1_000_000_000_000, "TB"),
    (1 << 30, "GiB"),
    (1_000_000_000, "GB"),
    (1 << 20, "MiB"),
    (1_000_000, "MB"),
    (1 << 10, "KiB"),
    (1_000, "kB"),
];

/// So many bytes: exactly, in the largest unit that they are a whole number of; where there is none, about so many.
pub(super) fn in_words(bytes: u64) -> String {
    let whole = UNITS
        .iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let about = UNITS
        .iter()
        .find(|(unit, name)| bytes >= *unit && name.contains('i'));
    match (whole, about) {
        // The machine's memory is a whole number of KiB, which says nothing.
        (Some((unit, name)), _) if bytes / unit < 10_000 => format!("{}{name}", bytes / unit),
        (_, Some((unit, name))) => format!("{:.1}{name}", bytes as f64 / *unit as f64),
        _ => format!("{bytes} bytes"),
    }
}

/// A number of bytes, or a text with a unit as `"64MiB"`.
///
/// # Errors
/// What is neither, with an example.
pub(super) fn bytes<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    input.deserialize_any(Bytes { or_none: false })
}

/// The same, or `"none"`, which is 0.
///
/// # Errors
/// As [`bytes`].
pub(super) fn bytes_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    input.deserialize_any(Bytes { or_none: true })
}

struct Bytes {
    or_none: bool,
}

impl Bytes {
    fn example(&self) -> &'static str {
        match self.or_none {
            false => "67108864 or \"64MiB\"",
            true => "67108864 or \"64MiB\", or \"none\"",
        }
    }
}

impl Visitor<'_> for Bytes {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number of bytes, as {}", self.example())
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| {
            E::custom(format_args!(
                "{bytes} is no number of bytes: write it as {}",
                self.example()
            ))
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        if self.or_none && text.trim() == "none" {
            return Ok(0);
        }
        text.trim().parse().map(|ByteSize(bytes)| bytes).map_err(|_| {
            E::custom(format_args!(
                "{text:?} is no number of bytes: write it as {}",
                self.example()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_said_as_people_write_them() {
        for (bytes, words) in [
            (1000 << 40, "1000TiB"),
            (64 << 20, "64MiB"),
            (20_000_000, "20MB"),
            (1_114_112, "1088KiB"),
            (7, "7 bytes"),
            (0, "0 bytes"),
            (16_753_414_144, "15.6GiB"),
            (1_001, "1001 bytes"),
        ] {
            assert_eq!(in_words(bytes), words);
        }
    }
}
