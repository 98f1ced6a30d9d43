//! The request head as the backend is sent it, written straight into the output.
//!
//! The parsed head is only read, so a request can be sent again to another connection at no cost, and what the
//! gateway says about the client never passes through a header map.

use http::header;
use http::{HeaderMap, HeaderName, Method, Uri, Version};

use crate::config::{ForwardPolicy, ForwardingConfig};
use crate::headers::{ClientIdentity, write_forwarded_element};

/// What the backend learns of the way the body comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// No body (a `Content-Length: 0` of the client is passed on).
    None,
    /// The client's Content-Length is passed on.
    Length,
    /// Chunked.
    Chunked,
}

/// Everything a request head is written from.
pub(crate) struct RequestHead<'a> {
    pub method: &'a Method,
    /// Origin form or `*`.
    pub target: &'a Uri,
    /// Connection-specific fields are removed already; there is at most one Host.
    pub headers: &'a HeaderMap,
    /// The version it was received in.
    pub received: Version,
    /// Sent instead of the client's Host.
    pub host: Option<&'a [u8]>,
    /// The backend's own, sent where there is no other: HTTP/1.0 may do without a Host, HTTP/1.1 may not (RFC 9112 section 3.2).
    pub authority: &'a [u8],
    pub framing: BodyFraming,
    /// The protocol asked for.
    pub upgrade: Option<&'a [u8]>,
    pub te_trailers: bool,
    /// The backend is asked whether it wants the body (RFC 9110 section 10.1.1).
    pub expects: bool,
    pub client: &'a ClientIdentity,
    pub config: &'a ForwardingConfig,
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes what came and then one element more, as one field.
fn joined(out: &mut Vec<u8>, headers: &HeaderMap, name: &str, element: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    for value in headers.get_all(name).iter().filter(|value| !value.is_empty()) {
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b", ");
    }
    element(out);
    out.extend_from_slice(b"\r\n");
}

/// Whether a name is another spelling of an X-Forwarded field: CGI and what came of it know `X-Forwarded-For` and
/// `x_forwarded_for` (and some `x.forwarded.for`) by one name, HTTP_X_FORWARDED_FOR (RFC 3875 section 4.1.18), so that a client
/// could speak there in the gateway's name.
fn reads_as_forwarded(name: &str) -> bool {
    let reads_as = |field: &str| {
        name.len() == field.len()
            && name
                .bytes()
                .zip(field.bytes())
                .all(|(is, be)| is == be || be == b'-' && !is.is_ascii_alphanumeric())
    };
    name.starts_with('x')
        && [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x-forwarded-client-cert",
        ]
        .iter()
        .any(|field| name != *field && reads_as(field))
}

/// Methods whose body has a meaning: without one they say so (RFC 9110 section 8.6).
fn expects_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

impl RequestHead<'_> {
    /// Whether the gateway writes this field itself, so that what came is left out.
    pub(crate) fn is_rewritten(&self, name: &HeaderName) -> bool {
        match name.as_str() {
            "host" | "forwarded" | "x-forwarded-for" | "x-forwarded-client-cert" => true,
            "via" => self.config.via,
            "x-forwarded-proto" | "x-forwarded-host" => self.config.x_forwarded != ForwardPolicy::Append,
            "content-length" => self.framing == BodyFraming::Chunked,
            name => reads_as_forwarded(name),
        }
    }

    /// Appends the head, with its empty line, to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        match self.target.path_and_query() {
            Some(target) => out.extend_from_slice(target.as_str().as_bytes()),
            None => out.push(b'/'),
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let came = self.headers.get(header::HOST).map(|host| host.as_bytes());
        field(out, "host", self.host.or(came).unwrap_or(self.authority));
        for (name, value) in self.headers {
            if !self.is_rewritten(name) {
                field(out, name.as_str(), value.as_bytes());
            }
        }
        self.write_forwarding(out, came);
        match self.framing {
            BodyFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            BodyFraming::None
                if expects_body(self.method) && !self.headers.contains_key(header::CONTENT_LENGTH) =>
            {
                out.extend_from_slice(b"content-length: 0\r\n");
            }
            BodyFraming::None | BodyFraming::Length => {}
        }
        if self.expects {
            out.extend_from_slice(b"expect: 100-continue\r\n");
        }
        match (self.upgrade, self.te_trailers) {
            (None, false) => {}
            (None, true) => out.extend_from_slice(b"te: trailers\r\nconnection: te\r\n"),
            (Some(protocol), te_trailers) => {
                field(out, "upgrade", protocol);
                out.extend_from_slice(if te_trailers {
                    b"te: trailers\r\nconnection: upgrade, te\r\n"
                } else {
                    b"connection: upgrade\r\n"
                });
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Appends what the gateway says of the client and the way, a line for each field.
    pub(crate) fn write_forwarding(&self, out: &mut Vec<u8>, host: Option<&[u8]>) {
        let host = host.filter(|host| !host.is_empty());
        match self.config.x_forwarded {
            ForwardPolicy::Replace => {
                out.extend_from_slice(&self.client.x_forwarded);
                if let Some(host) = host {
                    field(out, "x-forwarded-host", host);
                }
            }
            ForwardPolicy::Append => {
                joined(out, self.headers, "x-forwarded-for", |out| {
                    out.extend_from_slice(self.client.address.as_bytes());
                });
                if !self.headers.contains_key("x-forwarded-proto") {
                    field(out, "x-forwarded-proto", self.client.proto.as_bytes());
                }
                if let Some(host) = host.filter(|_| !self.headers.contains_key("x-forwarded-host")) {
                    field(out, "x-forwarded-host", host);
                }
            }
            ForwardPolicy::Remove => {}
        }
        match self.config.forwarded {
            ForwardPolicy::Replace => {
                out.extend_from_slice(b"forwarded: ");
                write_forwarded_element(out, self.client, host);
                out.extend_from_slice(b"\r\n");
            }
            ForwardPolicy::Append => {
                joined(out, self.headers, "forwarded", |out| {
                    write_forwarded_element(out, self.client, host)
                });
            }
            ForwardPolicy::Remove => {}
        }
        self.write_client_certificate(out);
        if self.config.via {
            let version: &[u8] = match self.received {
                Version::HTTP_2 => b"2.0 headroom",
                Version::HTTP_10 => b"1.0 headroom",
                _ => b"1.1 headroom",
            };
            if self.headers.contains_key(header::VIA) {
                joined(out, self.headers, "via", |out| out.extend_from_slice(version));
            } else {
                field(out, "via", version);
            }
        }
    }

    /// What came of it is never passed on by itself: a backend that goes by it lets in whoever writes it.
    fn write_client_certificate(&self, out: &mut Vec<u8>) {
        const NAME: &str = "x-forwarded-client-cert";
        let certificate = self.client.certificate.as_ref();
        match (self.config.client_certificate, certificate) {
            (ForwardPolicy::Remove, _) | (ForwardPolicy::Replace, None) => {}
            (ForwardPolicy::Replace, Some(certificate)) => field(out, NAME, &certificate.field),
            (ForwardPolicy::Append, Some(certificate)) => {
                joined(out, self.headers, NAME, |out| {
                    out.extend_from_slice(&certificate.field)
                });
            }
            (ForwardPolicy::Append, None) => {
                for value in self.headers.get_all(NAME) {
                    field(out, NAME, value.as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "request_head_tests.rs"]
mod tests;
