//! Two spellings of one target are one (RFC 3986 section 6.2.2), by percent-encoding alone.

use std::borrow::Cow;
use std::fmt::Write;

/// The target with escapes of unreserved characters decoded and the digits of all others in capitals. Dot segments stay: a server may
/// know them otherwise.
pub(crate) fn normalised(target: &str) -> Cow<'_, str> {
    if !target.contains('%') {
        return Cow::Borrowed(target);
    }
    let mut parts = target.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let escaped = part
            .get(..2)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(byte) = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            text.push('%');
            text.push_str(part);
            continue;
        };
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing into a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text.push_str(&part[2..]);
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_an_escape_stands_for_is_what_counts() {
        for (target, same) in [
            ("/a?b=c", "/a?b=c"),
            ("/%7euser/%41%2d", "/~user/A-"),
            ("/a%2fb%2Fc", "/a%2Fb%2Fc"),
            ("/100%", "/100%"),
            ("/%zz%4", "/%zz%4"),
            ("/%%41", "/%A"),
            ("/%\u{e9}%41", "/%\u{e9}A"),
        ] {
            assert_eq!(normalised(target), same);
        }
    }

    proptest! {
        #[test]
        fn twice_is_once_for_escapes_alone(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let escaped: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
            let once = normalised(&escaped).into_owned();
            prop_assert_eq!(normalised(&once), once.as_str());
        }
    }
}
