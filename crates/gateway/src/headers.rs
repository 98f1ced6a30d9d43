//! Header fields that end at a proxy, and those a proxy writes.
//!
//! RFC 9110 section 7.6.1: a proxy removes `Connection`, every field it names, and the connection-specific
//! fields. `Trailer` is passed on: since RFC 9110 it is no longer one of them, and the trailer fields it
//! announces are.

use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri, Version, request};

use crate::authority::is_authority;
use crate::send_proxy::Ends;
use crate::tls::{Binding, ClientCertificate};

/// Our `Via` element.
const VIA: HeaderValue = HeaderValue::from_static("1.1 headroom");
const VIA_HTTP_2: HeaderValue = HeaderValue::from_static("2.0 headroom");

/// What the connection-specific fields of a message said, once they are removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HopByHop {
    /// `Connection: upgrade` together with an `Upgrade` field: its value.
    pub upgrade: Option<HeaderValue>,
    /// `TE` lists `trailers`.
    pub te_trailers: bool,
    /// `Transfer-Encoding` was there, and it was exactly one field saying `chunked`.
    pub transfer_encoding: Option<bool>,
}

/// The connection-specific fields, one bit each.
pub(crate) const CONNECTION: u16 = 1;
pub(crate) const TRANSFER_ENCODING: u16 = 1 << 1;
pub(crate) const TE: u16 = 1 << 2;
pub(crate) const UPGRADE: u16 = 1 << 3;
static SPECIFIC: [(u16, HeaderName); 10] = [
    (CONNECTION, header::CONNECTION),
    (TRANSFER_ENCODING, header::TRANSFER_ENCODING),
    (TE, header::TE),
    (UPGRADE, header::UPGRADE),
    (1 << 4, HeaderName::from_static("keep-alive")),
    (1 << 5, HeaderName::from_static("proxy-connection")),
    (1 << 6, header::PROXY_AUTHENTICATE),
    (1 << 7, header::PROXY_AUTHORIZATION),
    (1 << 8, HeaderName::from_static("proxy-authentication-info")),
    (1 << 9, HeaderName::from_static("http2-settings")),
];

/// The bit of a field that is connection-specific by its own name; 0 for any other.
pub(crate) fn specific(name: &HeaderName) -> u16 {
    match name.as_str() {
        "connection" => CONNECTION,
        "transfer-encoding" => TRANSFER_ENCODING,
        "te" => TE,
        "upgrade" => UPGRADE,
        "keep-alive" => 1 << 4,
        "proxy-connection" => 1 << 5,
        "proxy-authenticate" => 1 << 6,
        "proxy-authorization" => 1 << 7,
        "proxy-authentication-info" => 1 << 8,
        "http2-settings" => 1 << 9,
        _ => 0,
    }
}

/// Fields that a peer must not be able to have removed by naming them in `Connection`: they carry the
/// message's framing and routing, or what a trusted proxy in front of us said about the client.
pub(crate) fn is_protected(name: &str) -> bool {
    [
        "host",
        "content-length",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-client-cert",
        "via",
    ]
    .iter()
    .any(|protected| protected.eq_ignore_ascii_case(name))
}

/// The comma-separated elements of every field of this name, trimmed, without empty ones.
fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        // What is no text is no element of this field; those beside it are.
        .filter_map(|element| std::str::from_utf8(element).ok())
        .map(str::trim)
        .filter(|element| !element.is_empty())
}

/// Removes every connection-specific field and says what they said.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) -> HopByHop {
    let mut hop = HopByHop::default();
    // One pass over the names says which there are; only those are looked up and removed.
    let present = headers.keys().fold(0, |present, name| present | specific(name));
    if present == 0 {
        return hop;
    }
    if present & CONNECTION != 0 {
        let mut named: Vec<HeaderName> = Vec::new();
        let mut wants_upgrade = false;
        for option in elements(headers, &header::CONNECTION) {
            if option.eq_ignore_ascii_case("keep-alive") {
                // The field of that name is removed below.
            } else if option.eq_ignore_ascii_case("upgrade") {
                wants_upgrade = true;
            } else if !is_protected(option)
                && let Ok(name) = HeaderName::try_from(option)
            {
                named.push(name);
            }
        }
        if wants_upgrade {
            hop.upgrade = headers.get(header::UPGRADE).cloned();
        }
        for name in &named {
            // What the message says about its own framing is still to be read.
            if specific(name) == 0 {
                headers.remove(name);
            }
        }
    }
    if present & TE != 0 {
        hop.te_trailers =
            elements(headers, &header::TE).any(|coding| coding.eq_ignore_ascii_case("trailers"));
    }
    if present & TRANSFER_ENCODING != 0 {
        let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
        hop.transfer_encoding = encodings
            .next()
            .map(|only| encodings.next().is_none() && only.as_bytes().eq_ignore_ascii_case(b"chunked"));
    }
    for (bit, name) in &SPECIFIC {
        if present & bit != 0 {
            headers.remove(name);
        }
    }
    hop
}

/// Whether an `Upgrade` request may be tunnelled: a single protocol that is not HTTP itself. (Passing `h2c`
/// on would open an HTTP/2 connection to the backend behind the gateway's back.)
pub(crate) fn may_tunnel(upgrade: &HeaderValue) -> bool {
    upgrade.to_str().is_ok_and(|protocol| {
        let protocol = protocol.trim();
        let lower = protocol.to_ascii_lowercase();
        !protocol.is_empty()
            && !protocol.contains(',')
            && !lower.starts_with("h2")
            && !lower.starts_with("http")
            && !lower.starts_with("tls")
    })
}

/// A request the gateway itself refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub reason: &'static str,
}

impl Refusal {
    /// Whether it is how the body came that is refused, which may show long after the request has arrived.
    pub(crate) fn is_of_body(self) -> bool {
        matches!(
            self.status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE
        )
    }
}

/// A refusal with 400.
pub(crate) fn bad_request(reason: &'static str) -> Refusal {
    Refusal {
        status: StatusCode::BAD_REQUEST,
        reason,
    }
}

/// Makes the request's target and Host one and the same truth (RFC 9112 section 3.2, RFC 9113 section 8.3.1):
/// afterwards the URI is in origin form (or `*`), and there is exactly one Host, or of HTTP/1.0 at most one.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn normalise_target(parts: &mut request::Parts) -> Result<(), Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal {
            status: StatusCode::NOT_IMPLEMENTED,
            reason: "CONNECT is not supported",
        });
    }
    let http2 = parts.version == Version::HTTP_2;
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad_request("more than one Host"));
    }
    if host.is_some_and(|host| !is_authority(host.as_bytes())) {
        return Err(bad_request("Host is not a host"));
    }
    match parts.uri.authority() {
        None => {
            if host.is_none() && parts.version != Version::HTTP_10 {
                return Err(bad_request("Host is missing"));
            }
        }
        Some(authority) => {
            let scheme = parts.uri.scheme_str();
            let is_http = matches!(scheme, Some("http" | "https"));
            if !(is_http || http2 && scheme.is_none()) {
                return Err(bad_request("the request target is not an http URI"));
            }
            if authority.as_str().contains('@') {
                return Err(bad_request("the request target contains user information"));
            }
            if authority.as_str().starts_with(':') || !is_authority(authority.as_str().as_bytes()) {
                return Err(bad_request("the request target is not a host"));
            }
            if http2
                && host.is_some_and(|host| {
                    !host
                        .as_bytes()
                        .eq_ignore_ascii_case(authority.as_str().as_bytes())
                })
            {
                return Err(bad_request("Host differs from :authority"));
            }
            // RFC 9112 section 3.2: every HTTP/1.1 request has a Host, this one too.
            if host.is_none() && parts.version == Version::HTTP_11 {
                return Err(bad_request("Host is missing"));
            }
            // An Authority holds visible ASCII only, all of it valid in a field value.
            let value = HeaderValue::from_str(authority.as_str())
                .map_err(|_| bad_request("the request target is not a host"))?;
            parts.headers.insert(header::HOST, value);
        }
    }
    if parts.uri.path() == "*" && parts.method != Method::OPTIONS {
        return Err(bad_request("the target * is for OPTIONS only"));
    }
    if parts.uri.scheme().is_some() || parts.uri.authority().is_some() {
        let Some(target) = parts.uri.path_and_query().cloned() else {
            return Err(bad_request("the request target has no path"));
        };
        let target = match target.as_str().starts_with('?') {
            // RFC 9112 section 3.2.1: an empty path is sent as `/`, before a query too. As text it has that slash already.
            true => target
                .to_string()
                .parse()
                .map_err(|_| bad_request("the request target is not valid"))?,
            false => target,
        };
        parts.uri = Uri::from(target);
    }
    Ok(())
}

/// Makes the Content-Lengths one, where there are several that are equal (RFC 9110 section 8.6). HTTP/2 lets them through as
/// they come.
///
/// # Errors
/// One is no number, or two differ.
pub(crate) fn join_lengths(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = values.next() else {
        return Ok(());
    };
    let number = |value: &HeaderValue| -> Option<u64> {
        let text = value.to_str().ok()?;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    let Some(length) = number(first) else {
        return Err(bad_request("Content-Length is not a number"));
    };
    let mut more = false;
    for value in values {
        if number(value) != Some(length) {
            return Err(bad_request("more than one Content-Length"));
        }
        more = true;
    }
    if more {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(())
}

/// Whether a value begins or ends with a blank: what HTTP/1.1 forgives is malformed in HTTP/2 (RFC 9113 section 8.2.1).
pub(crate) fn is_padded(value: &HeaderValue) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_blank(value.as_bytes().first()) || is_blank(value.as_bytes().last())
}

/// HTTP/2 may split Cookie into several fields; HTTP/1.1 has one (RFC 9113 section 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    if cookies.next().is_none() || cookies.next().is_none() {
        return;
    }
    let mut joined: Vec<u8> = Vec::new();
    for cookie in headers.get_all(header::COOKIE) {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(cookie.as_bytes());
    }
    // Field values joined by "; " are a field value again.
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)) {
        headers.insert(header::COOKIE, value);
    }
}

/// What is the same for every request of one client connection.
#[derive(Debug, Clone)]
pub(crate) struct ClientIdentity {
    /// The client's address.
    pub address: String,
    /// Both ends of its connection, where a backend is to be told of them.
    pub ends: Option<Ends>,
    /// `http` or `https`.
    pub proto: &'static str,
    /// X-Forwarded-For and -Proto, ready to be written.
    pub x_forwarded: Vec<u8>,
    /// `for=` and `proto=` of RFC 7239, quoted where IPv6 needs it.
    forwarded: String,
    /// What it has shown of itself, where it was asked to.
    pub certificate: Option<ClientCertificate>,
    /// The certificate that it was shown, where only requests for its names may come (mutual TLS).
    pub binding: Option<Binding>,
}

impl ClientIdentity {
    pub(crate) fn new(peer: SocketAddr, tls: bool) -> Self {
        let proto = if tls { "https" } else { "http" };
        let ip = peer.ip().to_canonical();
        let forwarded = match ip {
            IpAddr::V4(v4) => format!("for={v4};proto={proto}"),
            IpAddr::V6(v6) => format!("for=\"[{v6}]\";proto={proto}"),
        };
        let x_forwarded = format!("x-forwarded-for: {ip}\r\nx-forwarded-proto: {proto}\r\n").into_bytes();
        Self {
            address: ip.to_string(),
            ends: None,
            proto,
            x_forwarded,
            forwarded,
            certificate: None,
            binding: None,
        }
    }

    /// Whether requests for this Host may come over its connection.
    pub(crate) fn may_ask(&self, headers: &HeaderMap) -> bool {
        let is_for = |binding: &Binding| {
            let host = headers.get(header::HOST);
            host.is_some_and(|host| binding.is_for(host.as_bytes()))
        };
        self.binding.as_ref().is_none_or(is_for)
    }
}

/// One element of RFC 7239: `for=192.0.2.7;proto=http;host="a.example:80"`. The Host passed [`is_authority`], so
/// it holds neither a quote nor a backslash.
pub(crate) fn write_forwarded_element(out: &mut Vec<u8>, client: &ClientIdentity, host: Option<&[u8]>) {
    out.extend_from_slice(client.forwarded.as_bytes());
    if let Some(host) = host {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
}

/// Adds our element to a response's `Via`, with the version that the backend spoke.
pub(crate) fn add_via(headers: &mut HeaderMap, http2: bool) {
    let via = if http2 { VIA_HTTP_2 } else { VIA };
    match headers.entry(header::VIA) {
        header::Entry::Vacant(entry) => drop(entry.insert(via)),
        header::Entry::Occupied(mut entry) => entry.append(via),
    }
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
