//! A path as servers read it: what is written in several ways is read in several ways.

/// The most readings of one path that are looked at, and the most bytes of them together: what a client writes is not to cost a core more.
const MOST_READINGS: usize = 32;
const MOST_BYTES: usize = 16 * 1024;

/// What a server does to all of a path.
type Step = fn(&[u8]) -> Vec<u8>;

/// What servers do before they go by it, in any order.
const STEPS: [Step; 7] = [
    |path| unescaped(path, is_unreserved),
    |path| unescaped(path, |byte| byte != b'/'),
    |path| unescaped(path, |_| true),
    with_slashes,
    without_parameters,
    without_empty_segments,
    without_dot_segments,
];

/// Whether there is one reading of it alone, as it is written: nearly always.
pub(crate) fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|byte| {
        let is_other = matches!(byte, b'%' | b';' | b'\\' | 0x80..);
        let begins_other = before == b'/' && matches!(byte, b'/' | b'.');
        before = *byte;
        !is_other && !begins_other
    })
}

/// All ways in which servers in use read it, the first as it is written; whether the digits of an escape are capitals never matters.
/// `None` where it has what no two servers agree on, or more readings than are looked at.
pub(crate) fn readings(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all = vec![in_capitals(path)?];
    let mut bytes = path.len();
    let mut at = 0;
    while at < all.len() {
        for step in STEPS {
            let next = step(&all[at]);
            if all.contains(&next) {
                continue;
            }
            bytes += next.len();
            if all.len() == MOST_READINGS || bytes > MOST_BYTES {
                return None;
            }
            all.push(next);
        }
        at += 1;
    }
    (!all.iter().any(|reading| is_undecided(reading))).then_some(all)
}

/// With each escape undone.
pub(crate) fn decoded(path: &[u8]) -> Vec<u8> {
    unescaped(path, |_| true)
}

/// Where a NUL ends a string for some, or a character is written with more bytes than it needs (RFC 3629 section 3), which some take for
/// that character.
fn is_undecided(path: &[u8]) -> bool {
    let is_overlong = |pair: &[u8]| {
        matches!(
            pair,
            [0xC0 | 0xC1, 0x80..=0xBF] | [0xE0, 0x80..=0x9F] | [0xF0, 0x80..=0x8F]
        )
    };
    path.contains(&0) || path.windows(2).any(is_overlong)
}

/// The byte that is escaped at the beginning of this.
fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

/// With the digits of escapes in capitals; `None` where one is malformed.
pub(crate) fn in_capitals(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = path.to_vec();
    for at in 0..out.len() {
        if out[at] == b'%' {
            escaped(&out[at..])?;
            out[at + 1..at + 3].make_ascii_uppercase();
        }
    }
    Some(out)
}

/// With the escapes undone of what is to be; one that is none stays.
fn unescaped(path: &[u8], is_undone: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        let undone = escaped(&path[at..]).filter(|byte| is_undone(*byte));
        at += if undone.is_some() { 3 } else { 1 };
        out.push(undone.unwrap_or(*byte));
    }
    out
}

/// What means the same whether it is escaped or not (RFC 3986 section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn with_slashes(path: &[u8]) -> Vec<u8> {
    let slash = |byte: &u8| if *byte == b'\\' { b'/' } else { *byte };
    path.iter().map(slash).collect()
}

/// Without what stands behind a semicolon in each segment.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut is_name = true;
    let mut out = path.to_vec();
    out.retain(|byte| {
        is_name = *byte == b'/' || is_name && *byte != b';';
        is_name
    });
    out
}

/// Each slash once.
fn without_empty_segments(path: &[u8]) -> Vec<u8> {
    let mut before = 0;
    let mut out = path.to_vec();
    out.retain(|byte| {
        let is_more = before == b'/' && *byte == b'/';
        before = *byte;
        !is_more
    });
    out
}

/// What `.` and `..` mean carried out (RFC 3986 section 5.2.4), where an empty segment is one that `..` leaves.
fn without_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut segments = path
        .strip_prefix(b"/")
        .unwrap_or(path)
        .split(|byte| *byte == b'/')
        .peekable();
    while let Some(segment) = segments.next() {
        if segment == b".." {
            let parent = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            out.truncate(parent);
        }
        let is_dots = segment == b"." || segment == b"..";
        if !is_dots || segments.peek().is_none() {
            out.push(b'/');
        }
        if !is_dots {
            out.extend_from_slice(segment);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(path: &str) -> Vec<String> {
        let mut all: Vec<_> = readings(path.as_bytes())
            .unwrap()
            .iter()
            .map(|reading| String::from_utf8_lossy(reading).into_owned())
            .collect();
        all[1..].sort();
        all
    }

    #[test]
    fn a_path_has_every_reading_that_a_server_may_have() {
        for (written, all) in [
            ("/search/../cart", &["/search/../cart", "/cart"][..]),
            (
                "/search//../cart",
                // As it is; with empty segments; without.
                &["/search//../cart", "/cart", "/search/../cart", "/search/cart"],
            ),
            ("/%63art", &["/%63art", "/cart"]),
            ("/caf%c3%a9", &["/caf%C3%A9", "/café"]),
            ("/export;a/b;c", &["/export;a/b;c", "/export/b"]),
            ("/a%2fb", &["/a%2Fb", "/a/b"]),
            ("/a%5cb", &["/a%5Cb", "/a/b", "/a\\b"]),
            // Unescaped twice by two servers in line.
            ("/%2563art", &["/%2563art", "/%63art", "/cart"]),
            ("/cart/...", &["/cart/..."]),
            ("/.well-known/x", &["/.well-known/x"]),
            ("/a..b/c", &["/a..b/c"]),
            ("/../../cart/.", &["/../../cart/.", "/cart/"]),
            ("/50%25", &["/50%25", "/50%"]),
        ] {
            assert_eq!(read(written), all, "{written}");
        }
    }

    #[test]
    fn what_nobody_agrees_on_has_no_readings() {
        for path in [
            "/x%zz",
            "/%",
            "/%6",
            "/cart/%u002e%u002e/x",
            "/cart/%c0%ae%c0%ae/x",
            "/cart%c0%afx",
            "/cart/%e0%80%ae/x",
            "/cart/%f0%80%80%ae/x",
            "/x%00/../cart",
            "/x%2500",
            &format!("/{}", "a%2f".repeat(8_000)),
            &format!("/%{}", "25".repeat(100)),
        ] {
            assert_eq!(readings(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn what_is_written_in_one_way_alone_is_plain() {
        for path in ["/", "/cart/7", "/a.b/c..d/e.", "*", "", "/style.css", "/a'b"] {
            assert!(is_plain(path.as_bytes()), "{path}");
        }
        for path in ["/a%20b", "/a;b", "/a\\b", "//a", "/a/../b", "/.a", "/é"] {
            assert!(!is_plain(path.as_bytes()), "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_is_plain_has_one_reading(path in "(/|[a-d.;]|%2[eEfF]|%6[1-4]){0,12}") {
            let path = format!("/{path}");
            if is_plain(path.as_bytes()) {
                prop_assert_eq!(readings(path.as_bytes()), Some(vec![path.into_bytes()]));
            }
        }

        #[test]
        fn whatever_is_done_to_a_reading_is_a_reading(
            path in "/(/|[ad.;]|%2[eEfF]|%5c|\\\\|%25|%3b|%6[1-4]){0,12}",
            steps in proptest::collection::vec(0..STEPS.len(), 0..6),
        ) {
            if let Some(all) = readings(path.as_bytes()) {
                let one = steps.iter().fold(all[0].clone(), |path, step| STEPS[*step](&path));
                prop_assert!(one.starts_with(b"/"));
                prop_assert!(all.contains(&one));
            }
        }
    }
}
