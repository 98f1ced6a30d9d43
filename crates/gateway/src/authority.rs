//! `host [ ":" port ]`, as a Host field, `:authority` and the authority of an absolute target have it (RFC 9110 section 7.2,
//! RFC 3986 section 3.2.2).

use std::net::Ipv6Addr;

/// Whether these bytes are a host and, if there is one, a port that TCP has. An empty host is one: a client that knows none
/// sends an empty Host (RFC 9112 section 3.2), but then without a port. User information is none of it (RFC 9110 section 4.2.4).
pub(crate) fn is_authority(authority: &[u8]) -> bool {
    let (host_is_one, rest) = match authority.strip_prefix(b"[") {
        Some(literal) => {
            let Some(end) = literal.iter().position(|byte| *byte == b']') else {
                return false;
            };
            (is_ip_literal(&literal[..end]), &literal[end + 1..])
        }
        None => {
            let end = authority.iter().position(|byte| *byte == b':');
            let (host, rest) = authority.split_at(end.unwrap_or(authority.len()));
            (is_reg_name(host) && (rest.is_empty() || !host.is_empty()), rest)
        }
    };
    host_is_one
        && match rest {
            [] => true,
            [b':', port @ ..] => is_port(port),
            _ => false,
        }
}

/// `*DIGIT`, and no more than a port can be.
fn is_port(port: &[u8]) -> bool {
    let mut value = 0_u32;
    port.iter().all(|byte| {
        value = value
            .saturating_mul(10)
            .saturating_add(u32::from(byte.wrapping_sub(b'0')));
        byte.is_ascii_digit()
    }) && value <= u32::from(u16::MAX)
}

/// Which bytes are `unreserved` or `sub-delims`: every request's Host is asked for each of its bytes.
const UNRESERVED_OR_SUB_DELIM: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~!$&'()*+,;=";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

fn is_unreserved_or_sub_delim(byte: u8) -> bool {
    UNRESERVED_OR_SUB_DELIM[usize::from(byte)]
}

/// `*( unreserved / pct-encoded / sub-delims )`, which an IPv4 address is too.
fn is_reg_name(host: &[u8]) -> bool {
    let mut bytes = host.iter();
    while let Some(byte) = bytes.next() {
        let is_escape = *byte == b'%'
            && bytes.next().is_some_and(u8::is_ascii_hexdigit)
            && bytes.next().is_some_and(u8::is_ascii_hexdigit);
        if !is_escape && !is_unreserved_or_sub_delim(*byte) {
            return false;
        }
    }
    true
}

/// What stands between the brackets: an IPv6 address without a zone, or `"v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )`.
fn is_ip_literal(literal: &[u8]) -> bool {
    if let [b'v' | b'V', future @ ..] = literal {
        let digits = future.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        return match &future[digits..] {
            [b'.', address @ ..] => {
                let is_one = |byte: &u8| *byte == b':' || is_unreserved_or_sub_delim(*byte);
                digits > 0 && !address.is_empty() && address.iter().all(is_one)
            }
            _ => false,
        };
    }
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_host_is_what_the_grammar_says() {
        for host in [
            "",
            "a",
            "a.example",
            "a.example:",
            "a.example:0",
            "a:65535",
            "192.0.2.7:80",
            "[::1]",
            "[2001:db8::1]:8080",
            "[::ffff:192.0.2.7]",
            "[v1.fe:d]",
            "a%20b",
            "a_b",
            "a,b",
            "x!$&'()*+;=~",
            "999.999.1.1",
        ] {
            assert!(is_authority(host.as_bytes()), "{host}");
        }
        for host in [
            ":80",
            "a:65536",
            "a:99999999999999999999",
            "a:8o",
            "a:-1",
            "a:+1",
            "a:80:80",
            "a: 80",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::1]80",
            "[a.example]",
            "[192.0.2.7]",
            "[::1%25eth0]",
            "[v.a]",
            "[v1.]",
            "[vx.a]",
            "[1:2]",
            "a]",
            "a[b",
            "u@a",
            "u:p@a",
            "a/b",
            "a?b",
            "a#b",
            "a b",
            "a\tb",
            "a%2",
            "a%zz",
            "a%",
            "a\"b",
            "a\\b",
            "a<b>",
            "a|b",
            "é",
        ] {
            assert!(!is_authority(host.as_bytes()), "{host}");
        }
    }

    proptest! {
        #[test]
        fn every_address_and_port_is_one(v6 in any::<u128>(), v4 in any::<u32>(), port in any::<u16>()) {
            let (v6, v4) = (Ipv6Addr::from(v6), std::net::Ipv4Addr::from(v4));
            let (six, four) = (format!("[{v6}]:{port}"), format!("{v4}:{port}"));
            prop_assert!(is_authority(six.as_bytes()));
            prop_assert!(is_authority(four.as_bytes()));
        }

        #[test]
        fn none_breaks_out_of_a_field_or_a_quoted_string(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if is_authority(&bytes) {
                prop_assert!(bytes.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\/?#@".contains(byte)));
            }
        }
    }
}
