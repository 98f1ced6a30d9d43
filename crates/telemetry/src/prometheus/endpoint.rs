//! The address of a Prometheus server, and what is wrong with one.

use rustls::pki_types::ServerName;

/// Where the query API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub tls: bool,
    /// Host name or address, without the brackets of IPv6.
    pub host: String,
    pub port: u16,
    /// As in the Host header.
    pub authority: String,
    /// The path of the query API.
    pub path: String,
}

impl Endpoint {
    /// Takes `http://host:port/prefix` or `https://…` apart; the error is what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        let uri: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("it must begin with http:// or https://".into()),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("a name and password in it are not used; set the authorization instead".into());
        }
        if uri.query().is_some() {
            return Err("it must have no query; give the base address only".into());
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty() {
            return Err("it has no host".into());
        }
        if tls {
            ServerName::try_from(host.as_str()).map_err(|error| format!("{host:?}: {error}"))?;
        }
        let prefix = uri.path().trim_end_matches('/');
        let prefix = prefix.strip_suffix("/api/v1/query").unwrap_or(prefix);
        Ok(Self {
            tls,
            host,
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: format!("{prefix}/api/v1/query"),
        })
    }
}

/// The body of a query: `name=value` pairs, each byte that is not unreserved (RFC 3986, section 2.3) escaped.
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (name, value) in pairs {
        if !body.is_empty() {
            body.push('&');
        }
        body.push_str(name);
        body.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                body.push(char::from(byte));
            } else {
                body.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let plain = Endpoint::parse("http://127.0.0.1:9090").unwrap();
        assert_eq!(
            (plain.tls, plain.port, plain.path.as_str()),
            (false, 9090, "/api/v1/query")
        );
        let nested = Endpoint::parse("https://[::1]/prometheus/").unwrap();
        assert_eq!(
            (nested.host.as_str(), nested.port, nested.path.as_str()),
            ("::1", 443, "/prometheus/api/v1/query")
        );
        for wrong in [
            "127.0.0.1:9090",
            "ftp://x",
            "http://",
            "http://a:b@x/",
            "http://x/?a=b",
            "",
        ] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_query_is_escaped() {
        assert_eq!(
            form(&[("query", "a{b=\"ü\"} + 1")]),
            "query=a%7Bb%3D%22%C3%BC%22%7D%20%2B%201"
        );
    }
}
