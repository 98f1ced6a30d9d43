//! The address of a Prometheus server, and what is wrong with one.

use http::Uri;
use rustls::pki_types::ServerName;

/// The address of the query API below `http://host:port/prefix` or `https://…`; the error is what is wrong with it.
pub(super) fn address(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("it must begin with http:// or https://".into());
    }
    let authority = uri.authority().ok_or("it has no host")?;
    if authority.as_str().contains('@') {
        return Err(
            "a name and password in it are not used, and would be shown: give `user` and `password_file`"
                .into(),
        );
    }
    if uri.query().is_some() {
        return Err("it must have no query; give the base address only".into());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err("it has no host".into());
    }
    ServerName::try_from(host).map_err(|error| format!("{host:?}: {error}"))?;
    let prefix = uri.path().trim_end_matches('/');
    let prefix = prefix.strip_suffix("/api/v1/query").unwrap_or(prefix);
    let path = format!("{prefix}/api/v1/query");
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(path.parse().map_err(|error| format!("{error}"))?);
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

/// An address without what stands before its `@`: that may be secret.
pub(super) fn without_secret(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or(("", url), |(scheme, rest)| (scheme, rest));
    let end = rest.find('/').unwrap_or(rest.len());
    // A password that is written as it is may have a slash.
    match rest[..end].rfind('@').or_else(|| rest.rfind('@')) {
        Some(at) => format!(
            "{scheme}{}…{}",
            if scheme.is_empty() { "" } else { "://" },
            &rest[at..]
        ),
        None => url.to_owned(),
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
        for (url, taken) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090/api/v1/query"),
            (
                "https://[::1]/prometheus/",
                "https://[::1]/prometheus/api/v1/query",
            ),
            ("http://h/p/api/v1/query", "http://h/p/api/v1/query"),
        ] {
            assert_eq!(address(url).unwrap(), taken);
        }
        for wrong in [
            "127.0.0.1:9090",
            "ftp://x",
            "http://",
            "http://a:b@x/",
            "http://x/?a=b",
            "",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        for (url, shown) in [
            ("http://me:hidden@h:9090/p", "http://…@h:9090/p"),
            ("http://me:hid/den@h:9090/p", "http://…@h:9090/p"),
            ("me:hidden@h", "…@h"),
            ("http://h:9090/p", "http://h:9090/p"),
        ] {
            assert_eq!(without_secret(url), shown);
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
