//! One page over HTTP, bounded in time and length.

use headroom_client::ClientError;
use headroom_wire::without_user;
use http::Uri;
use http::uri::InvalidUri;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A server has this long for the whole exchange.
const PATIENCE: Duration = Duration::from_secs(1);
/// A status page with one character for each of 20 000 workers is shorter.
const MAX_PAGE_BYTES: usize = 64 << 10;

/// The address of a server's status page: `http://host[:port]/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPage(Uri);

impl FromStr for StatusPage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = without_user(text);
        let fail = |why: &str| format!("\"{shown}\" is no address of a status page: {why}");
        let uri: Uri = text
            .parse()
            .map_err(|error: InvalidUri| fail(&error.to_string()))?;
        if uri.scheme_str() != Some("http") {
            return Err(fail("it starts with http://"));
        }
        match uri.authority() {
            Some(authority) if authority.as_str().contains('@') => {
                Err(fail("nobody logs in to it: leave out what stands before the @"))
            }
            Some(_) => Ok(Self(uri)),
            None => Err(fail("after http:// comes a host")),
        }
    }
}

impl fmt::Display for StatusPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StatusPage {
    /// Gets the page. A refusal's status is an error.
    pub(super) fn get(&self) -> Result<String, ClientError> {
        let page = headroom_client::get(&self.to_string(), PATIENCE, MAX_PAGE_BYTES)?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_has_a_host_and_a_path() {
        for (text, shown) in [
            (
                "http://127.0.0.1:81/nginx_status",
                "http://127.0.0.1:81/nginx_status",
            ),
            (
                "http://localhost/server-status?auto",
                "http://localhost/server-status?auto",
            ),
            ("http://[::1]:80", "http://[::1]:80/"),
        ] {
            assert_eq!(text.parse::<StatusPage>().unwrap().to_string(), shown);
        }
        for text in [
            "https://a/",
            "a/b",
            "http:///b",
            "http://a/b c",
            "http://u@a/",
            "http://a/\r\nX: y",
        ] {
            assert!(
                text.parse::<StatusPage>()
                    .unwrap_err()
                    .contains("no address of a status page"),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*") {
            let _ = text.parse::<StatusPage>();
        }
    }
}
