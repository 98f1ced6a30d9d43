//! A path of a class, with what is below it.

use crate::readings::{decoded, in_capitals, readings};

/// A path as it is configured, which readings of requests' paths are compared with.
#[derive(Debug)]
pub(crate) struct Folder {
    /// As a request has it: what may not stand in a path is escaped. Without a slash at the end.
    written: Vec<u8>,
    decoded: Vec<u8>,
}

impl Folder {
    /// `None` where an escape is malformed.
    pub(crate) fn new(path: &str) -> Option<Self> {
        let written = in_capitals(&as_requested(path.trim_end_matches('/')))?;
        let decoded = decoded(&written);
        Some(Self { written, decoded })
    }

    /// Whether this reading is its path or below it.
    pub(crate) fn has(&self, reading: &[u8]) -> bool {
        let below = |start: &Vec<u8>| {
            reading
                .strip_prefix(start.as_slice())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        below(&self.written) || below(&self.decoded)
    }

    /// Whether all that the other has is its own.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.has(&other.written) && self.has(&other.decoded)
    }

    /// Whether every path is below it.
    pub(crate) fn is_root(&self) -> bool {
        self.written.is_empty()
    }

    /// Whether a request that is for this very path has it in every reading.
    pub(crate) fn is_read_alike(&self) -> bool {
        readings(&self.written).is_some_and(|all| all.iter().all(|reading| self.has(reading)))
    }
}

/// With what may not stand in the path of a request escaped (RFC 3986 section 3.3); escapes that are there stay.
fn as_requested(path: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            _ if byte.is_ascii_alphanumeric() || b"/%-._~!$&'()*+,;=:@\\".contains(&byte) => out.push(byte),
            _ => out.extend(format!("%{byte:02X}").bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folder(path: &str) -> Folder {
        Folder::new(path).unwrap()
    }

    #[test]
    fn a_folder_has_its_path_and_what_is_below_it_escaped_or_not() {
        for (path, reading, is_in) in [
            ("/cart", "/cart", true),
            ("/cart/", "/cart/7", true),
            ("/cart", "/carts", false),
            ("/cart", "*", false),
            ("/", "/x", true),
            ("/café", "/caf%C3%A9/7", true),
            ("/caf%c3%a9", "/café", true),
            ("/a\"b", "/a%22b", true),
            ("/a\"b", "/a\"b", true),
        ] {
            assert_eq!(folder(path).has(reading.as_bytes()), is_in, "{path} {reading}");
        }
    }

    #[test]
    fn a_folder_that_nobody_can_ask_for_shows() {
        for path in [
            "/", "/cart", "/café", "/a\"b", "/50%25", "/a.b/..c", "/%63art", "/a%2fb",
        ] {
            assert!(folder(path).is_read_alike(), "{path}");
        }
        for path in [
            "/pay/..;/x",
            "/x/..%2fy",
            "/a;b",
            "/a/../b",
            "/a//b",
            "/a%5cb",
            "/a\\b",
            "/x%00",
        ] {
            assert!(!folder(path).is_read_alike(), "{path}");
        }
        assert!(Folder::new("/x%zz").is_none());
    }

    proptest! {
        #[test]
        fn what_covers_another_has_all_that_it_has(
            path in "(/[abé]){0,2}",
            other in "(/[abé]){0,3}",
            below in "(/[ab]){0,2}",
        ) {
            let (path, other_folder) = (folder(&path), folder(&other));
            let all = format!("{other}{below}");
            prop_assert!(other_folder.has(all.as_bytes()));
            prop_assert!(!path.covers(&other_folder) || path.has(all.as_bytes()));
        }
    }
}
