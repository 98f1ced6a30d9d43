//! A path as a server behind reads it: what is written in several ways has one.

use std::borrow::Cow;

/// The path without dot segments and repeated slashes, and with what need not be escaped unescaped (RFC 3986 sections 6.2.2 and 5.2.4). An
/// escaped slash counts as a slash, as nginx takes it. A path with a malformed escape is as it is.
pub(crate) fn plain_path(path: &str) -> Cow<'_, str> {
    if is_plain(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    match unescaped(path).map(|path| String::from_utf8(without_dot_segments(&path))) {
        Some(Ok(plain)) => Cow::Owned(plain),
        _ => Cow::Borrowed(path),
    }
}

/// Whether servers differ in how they read it: it leaves a folder (`..`), and beside that has a malformed escape, an escaped slash, a backslash or
/// what stands behind a semicolon, which some take for a part of the name and others do not.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    let bytes = path.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b';' | b'\\')) {
        return false;
    }
    let lower = path.to_ascii_lowercase();
    let leaves = lower.replace("%2e", ".").contains("..");
    let has = |what: &str| lower.contains(what);
    leaves && (has("%2f") || has("%5c") || has("\\") || has(";") || has("%3b") || unescaped(path).is_none())
}

/// Whether nothing in it has another way to be written: nearly always.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|byte| {
        let is_plain = !(*byte == b'%' || before == b'/' && matches!(byte, b'/' | b'.'));
        before = *byte;
        is_plain
    })
}

/// With the escapes of unreserved characters and of the slash undone, and those of others in capitals; `None` where one is malformed.
fn unescaped(path: &str) -> Option<Vec<u8>> {
    let mut bytes = path.bytes();
    let mut out = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let escaped = u8::try_from(digit()? * 16 + digit()?).ok()?;
        match escaped {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(escaped),
            _ => out.extend(format!("%{escaped:02X}").bytes()),
        }
    }
    Some(out)
}

/// Each slash once, and what `.` and `..` mean carried out; of a path that begins with a slash.
fn without_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                out.truncate(parent);
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
        if is_last && matches!(segment, b"" | b"." | b"..") {
            out.push(b'/');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_servers_read_differently_is_known() {
        for path in [
            "/cart/../x%zz",
            "/cart/../%",
            "/search/..%2fcart",
            "/cart/..;/x",
            "/cart/%2e%2e;a=1/x",
            "/cart/..%5Cx",
            "/cart\\..\\x",
        ] {
            assert!(is_ambiguous(path), "{path}");
        }
        for path in [
            "/cart/../x",
            "/a;b=1/x",
            "/50%",
            "/a%2fb",
            "/a..b",
            "/caf%c3%a9/..",
        ] {
            assert!(!is_ambiguous(path), "{path}");
        }
    }

    #[test]
    fn what_a_server_reads_alike_is_alike() {
        for (written, plain) in [
            ("/cart/../x", "/x"),
            ("/cart/%2e%2E/x", "/x"),
            ("/cart/.%2e", "/"),
            ("/cart/..%2fx", "/x"),
            ("/cart//../x", "/x"),
            ("/%63art", "/cart"),
            ("//cart", "/cart"),
            ("/x/./..//cart///7/", "/cart/7/"),
            ("/../../cart/.", "/cart/"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            // It is unescaped once.
            ("/%2563art", "/%2563art"),
            ("/cart/...", "/cart/..."),
            ("/", "/"),
            ("//", "/"),
            // Malformed: no two servers agree on what that is.
            ("/cart/../%6", "/cart/../%6"),
            ("/cart/../%zz", "/cart/../%zz"),
            ("/cart/../%", "/cart/../%"),
        ] {
            assert_eq!(plain_path(written), plain, "{written}");
        }
    }

    #[test]
    fn a_plain_path_is_not_copied() {
        for path in ["/", "/cart/7", "/a.b/c..d/e.", "*", "", "/style.css"] {
            assert!(matches!(plain_path(path), Cow::Borrowed(same) if same == path));
        }
    }

    proptest! {
        #[test]
        fn what_is_plain_stays_so(path in "(/|[a-d.]|%2[eEfF]|%6[1-4]|%25|%){0,24}") {
            let path = format!("/{path}");
            let once = plain_path(&path).into_owned();
            prop_assert!(once.starts_with('/'));
            prop_assert_eq!(plain_path(&once), once.as_str());
            if unescaped(&path).is_some() {
                prop_assert!(!once.contains("//") && !once.split('/').any(|part| part == ".." || part == "."));
            }
        }
    }
}
