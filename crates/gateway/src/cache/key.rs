//! What a request is of: scheme, authority and target, in one spelling.

use bytes::Bytes;
use http::header;
use http::{Uri, request};

use crate::target::normalised;

/// The key of a request that came over this scheme.
pub(super) fn key(proto: &str, parts: &request::Parts) -> Bytes {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    key_of(proto, host(parts), target)
}

fn host(parts: &request::Parts) -> &[u8] {
    parts
        .headers
        .get(header::HOST)
        .map_or(&b""[..], |host| host.as_bytes())
}

fn key_of(proto: &str, host: &[u8], target: &str) -> Bytes {
    let (host, target) = (without_default_port(proto, host), normalised(target));
    let mut key = Vec::with_capacity(proto.len() + host.len() + target.len() + 1);
    key.extend_from_slice(proto.as_bytes());
    key.push(b' ');
    key.extend(host.iter().map(u8::to_ascii_lowercase));
    // No host has a slash in it, and each target begins with one.
    key.extend_from_slice(target.as_bytes());
    key.into()
}

/// The port that a scheme has by itself is as good as none (RFC 9110 section 4.2.3).
fn without_default_port<'a>(proto: &str, host: &'a [u8]) -> &'a [u8] {
    let port: &[u8] = if proto == "https" { b":443" } else { b":80" };
    host.strip_suffix(port)
        .or(host.strip_suffix(b":"))
        .unwrap_or(host)
}

/// The key of a place that an answer to this request names, where that is of the same origin (RFC 9111 section 4.4).
pub(super) fn place_key(proto: &str, parts: &request::Parts, place: &[u8]) -> Option<Bytes> {
    let place: Uri = std::str::from_utf8(place).ok()?.parse().ok()?;
    let host = host(parts);
    if place
        .scheme_str()
        .is_some_and(|scheme| !scheme.eq_ignore_ascii_case(proto))
    {
        return None;
    }
    if let Some(authority) = place.authority() {
        let named = without_default_port(proto, authority.as_str().as_bytes());
        if !named.eq_ignore_ascii_case(without_default_port(proto, host)) {
            return None;
        }
    }
    let target = place.path_and_query()?.as_str();
    target.starts_with('/').then(|| key_of(proto, host, target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(host: &str, target: &str) -> request::Parts {
        let request = Request::get(target).header("host", host);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn two_spellings_of_one_target_have_one_key() {
        let own = key("http", &parts("h", "/a?b=c"));
        for (host, target) in [("H", "/a?b=c"), ("h:80", "/%61?b=c"), ("h:", "/a?%62=c")] {
            assert_eq!(key("http", &parts(host, target)), own, "{host}{target}");
        }
        for (proto, host, target) in [
            ("https", "h", "/a?b=c"),
            ("http", "h:443", "/a?b=c"),
            ("http", "h", "/A?b=c"),
            ("http", "h", "/a%3fb=c"),
        ] {
            assert_ne!(key(proto, &parts(host, target)), own, "{proto} {host}{target}");
        }
    }

    #[test]
    fn a_place_is_of_the_same_origin_or_has_no_key() {
        let from = parts("h", "/d/a");
        let own = key("http", &parts("h", "/v"));
        for place in ["/v", "http://h/v", "http://H:80/v", "/%76"] {
            assert_eq!(
                place_key("http", &from, place.as_bytes()),
                Some(own.clone()),
                "{place}"
            );
        }
        for place in [
            "https://h/v",
            "http://h:81/v",
            "http://other/v",
            "http://h@other/v",
            "ftp://h/v",
            "*",
        ] {
            assert_eq!(place_key("http", &from, place.as_bytes()), None, "{place}");
        }
    }
}
