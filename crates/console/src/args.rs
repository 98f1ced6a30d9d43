//! Values of arguments that several commands have, as `clap`'s value parsers take them.

use bytesize::ByteSize;
use headroom_units::Seconds;
use std::net::{IpAddr, SocketAddr};

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

/// A number of bytes, with a unit or without. Few of them without one are refused: 64 bytes are nobody's wish, and 64 MiB are meant.
///
/// # Errors
/// As [`seconds`].
pub fn size(text: &str) -> Result<ByteSize, String> {
    const EXAMPLE: &str = "write it as 64MiB, 500kB or 65536B";
    match text.trim().parse::<u64>() {
        Ok(few @ 1..1024) => Err(format!("it has no unit, and {few} bytes are too few; {EXAMPLE}")),
        Ok(bytes) => Ok(ByteSize(bytes)),
        Err(_) => text
            .trim()
            .parse()
            .map_err(|_| format!("it is no number of bytes with a unit; {EXAMPLE}")),
    }
}

/// The content of an answer in bytes: as they are, or with K, KB or KiB, or M, MB or MiB, of 1024 as papers on web servers have them.
///
/// # Errors
/// What it must be, for clap to say.
pub fn content_bytes(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 7] = [
        ("KIB", 1024.0),
        ("KB", 1024.0),
        ("K", 1024.0),
        ("MIB", 1_048_576.0),
        ("MB", 1_048_576.0),
        ("M", 1_048_576.0),
        ("B", 1.0),
    ];
    let upper = text.trim().to_ascii_uppercase();
    let with_unit = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((upper.strip_suffix(unit)?, *factor)));
    let (number, factor) = with_unit.unwrap_or((&upper, 1.0));
    let number = number.trim().parse().unwrap_or(f64::NAN);
    match (1.0..=1e12).contains(&(number * factor)) {
        true => Ok(number * factor),
        false => Err(format!(
            "{text:?} is no size: give bytes, or K or M of 1024, as 10K or 999KB"
        )),
    }
}

/// The same in whole bytes, at most a gigabyte.
///
/// # Errors
/// As [`content_bytes`].
pub fn whole_content_bytes(text: &str) -> Result<u64, String> {
    let bytes = content_bytes(text)?;
    match bytes.fract() == 0.0 && bytes <= 1_073_741_824.0 {
        true => Ok(bytes as u64),
        false => Err(format!("{text:?} is no size: give whole bytes, at most 1 GB")),
    }
}

/// An IP address and a port.
///
/// # Errors
/// What is wrong with it and what a right one looks like, for clap to say.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| address_objection(text, SocketAddr::from(([127, 0, 0, 1], 8080))))
}

/// What is wrong with a text that is no address with a port, and what a right one looks like, with what is right of it.
pub(crate) fn address_objection(text: &str, example: SocketAddr) -> String {
    let written = text.trim();
    let port = example.port();
    let bare = written.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return format!("it has no port: write {}", SocketAddr::new(ip, port));
    }
    let Some((host, after)) = written.rsplit_once(':') else {
        return format!("it is no IP address with a port: write one as {example}");
    };
    let (ip, number) = (
        host.trim_matches(['[', ']']).parse::<IpAddr>(),
        after.parse::<u16>(),
    );
    match (ip, number) {
        (Ok(ip), Ok(number)) => format!("write it as {}", SocketAddr::new(ip, number)),
        (Ok(ip), Err(_)) => {
            let right = SocketAddr::new(ip, port);
            format!("{after:?} is no port, which is a number from 0 to 65535: write it as {right}")
        }
        (Err(_), Ok(number)) if host.is_empty() => format!(
            "there is no address before the port: write {}:{number}, or 0.0.0.0:{number} for every address of this machine",
            example.ip()
        ),
        (Err(_), _) => format!("{host:?} is no IP address: write address and port as {example}"),
    }
}

/// A name by which something can be found again.
///
/// # Errors
/// It is empty, or nothing but blanks.
pub fn name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("an empty name finds nothing again: give one, or leave the option out".to_owned()),
        "latest" => Err("latest is how the newest run is found: give another name".to_owned()),
        number if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err("runs are found by their numbers, so a name has more than digits".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// A whole number of milliseconds, without a unit.
///
/// # Errors
/// As [`seconds`].
pub fn milliseconds(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| {
        // `100ms` and `0.1s` say what they mean: the right words for it can be given.
        let whole = |number: &str, scale: f64| {
            let ms = number.trim().parse::<f64>().ok()? * scale;
            ((0.0..1e15).contains(&ms) && ms.fract() == 0.0).then_some(ms as u64)
        };
        let meant = match text.trim() {
            text if text.ends_with("ms") => whole(&text[..text.len() - 2], 1.0),
            text if text.ends_with('s') => whole(&text[..text.len() - 1], 1e3),
            _ => None,
        };
        format!(
            "it is a whole number of milliseconds, without a unit: write {}",
            meant.unwrap_or(100)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_and_what_is_none_is_answered_with_an_example() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("20MB", 20_000_000),
            ("70 KiB", 70 << 10),
            ("0", 0),
            ("67108864", 64 << 20),
        ] {
            assert_eq!(size(text), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["64", "", "64MBytes", "MiB", "-1MiB"] {
            let why = size(text).unwrap_err();
            assert!(why.contains("64MiB"), "{text}: {why}");
        }
        assert!(size("64").unwrap_err().contains("no unit"));
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_with_a_right_one() {
        assert_eq!(socket_address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        for (text, said) in [
            ("127.0.0.1", "it has no port: write 127.0.0.1:8080"),
            ("::1", "it has no port: write [::1]:8080"),
            ("[::1]", "it has no port: write [::1]:8080"),
            (
                ":23100",
                "there is no address before the port: write 127.0.0.1:23100, or 0.0.0.0:23100 for every address of this machine",
            ),
            (
                "127.0.0.1:80x",
                "\"80x\" is no port, which is a number from 0 to 65535: write it as 127.0.0.1:8080",
            ),
            (
                "10.0.0.1:70000",
                "\"70000\" is no port, which is a number from 0 to 65535: write it as 10.0.0.1:8080",
            ),
            (
                "localhost:80",
                "\"localhost\" is no IP address: write address and port as 127.0.0.1:8080",
            ),
            ("", "it is no IP address with a port: write one as 127.0.0.1:8080"),
            (
                "8080",
                "it is no IP address with a port: write one as 127.0.0.1:8080",
            ),
            (" 127.0.0.1:80 ", "write it as 127.0.0.1:80"),
        ] {
            assert_eq!(socket_address(text).unwrap_err(), said, "{text}");
        }
    }

    #[test]
    fn content_is_in_bytes_or_in_units_of_1024() {
        let sizes =
            ["1KB", "999 KB", "1.5kb", "2MiB", "700", "700B"].map(|text| whole_content_bytes(text).unwrap());
        assert_eq!(sizes, [1024, 999 * 1024, 1536, 2 << 20, 700, 700]);
        for bad in ["", "KB", "-1KB", "0", "1.3", "2000MB", "1GB2"] {
            assert!(
                whole_content_bytes(bad).unwrap_err().contains("is no size"),
                "{bad}"
            );
        }
    }

    #[test]
    fn milliseconds_are_a_whole_number_and_the_right_one_is_named_where_it_can_be() {
        assert_eq!(milliseconds("100"), Ok(100));
        for (text, right) in [
            ("100ms", "write 100"),
            ("0.3s", "write 300"),
            ("1.5", "write 100"),
            ("-5", "write 100"),
            ("", "write 100"),
        ] {
            let why = milliseconds(text).unwrap_err();
            assert!(
                why.contains("without a unit") && why.ends_with(right),
                "{text}: {why}"
            );
        }
    }
}
