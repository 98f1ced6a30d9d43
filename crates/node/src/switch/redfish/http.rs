//! Requests to one service processor, one at a time.

use super::super::{SwitchError, quoted};
use super::tls;
use base64::Engine;
use bytes::Bytes;
use headroom_client::{Client, ClientError};
use headroom_wire::without_user;
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body_util::Full;
use rustls::client::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::time::Duration;

/// The longest answer that is read: a system's resource takes some ten kilobytes.
const MAX_BYTES: usize = 1 << 20;
/// The most redirections of one request.
const MAX_REDIRECTIONS: usize = 3;
/// The end of a connection is waited for no longer than this.
const CLOSE: Duration = Duration::from_secs(1);
const BROKE: &str = "the connection broke; it is tried again with the next action";

/// Where the service processor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
    authority: String,
}

impl Endpoint {
    pub(super) fn parse(url: &str) -> Result<Self, SwitchError> {
        let wrong = |expected: &str| SwitchError::Value {
            key: "url",
            value: format!("{:?}", without_user(url)),
            expected: expected.into(),
        };
        let uri: Uri = url
            .parse()
            .map_err(|_| wrong("an address as https://bmc1 or https://10.0.0.5:8443"))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("https:// it must be, for a password goes there"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user and password are keys of their own"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong(
                "a host and no path: Redfish begins at /redfish/v1 everywhere",
            ));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        ServerName::try_from(host.as_str()).map_err(|_| wrong("its host is no name and no address"))?;
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(443),
            authority: authority.to_string(),
        })
    }
}

impl Endpoint {
    /// Whether this is a path there, or an address of the same host and port with encryption.
    fn is_at(&self, target: &Uri) -> bool {
        match (target.scheme_str(), target.authority()) {
            (None, None) => target.path().starts_with('/'),
            (Some("https"), Some(authority)) => {
                let host = authority.host().trim_start_matches('[').trim_end_matches(']');
                host.eq_ignore_ascii_case(&self.host) && authority.port_u16().unwrap_or(443) == self.port
            }
            _ => false,
        }
    }
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) json: Option<Value>,
    /// `Location`: a path, or a whole address.
    location: Option<Uri>,
    /// `X-Auth-Token`, kept out of logs.
    pub(super) token: Option<HeaderValue>,
    /// `Retry-After`, in seconds.
    pub(super) retry_after: Option<Duration>,
}

impl Answer {
    pub(super) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }

    /// The path of `Location`. Of a whole address only the path is used, so that nobody is sent elsewhere.
    pub(super) fn location(&self) -> Option<String> {
        let path = self.location.as_ref()?.path_and_query()?;
        Some(path.to_string())
    }

    /// Whether it asks that the same be asked elsewhere (RFC 9110, 15.4); of what changes something, only where it must not
    /// be made a GET by that.
    fn is_redirection(&self, method: &str) -> bool {
        matches!((self.status, method), (307 | 308, _) | (301..=303, "GET"))
    }
}

/// The connection, opened when it is needed and again where the other end closed it.
pub(super) struct Connection {
    endpoint: Endpoint,
    client: Client,
    basic: Option<HeaderValue>,
}

impl Connection {
    pub(super) fn new(endpoint: Endpoint, tls: ClientConfig) -> Self {
        Self {
            endpoint,
            client: Client::new(Some(tls)),
            basic: None,
        }
    }

    /// Closes it, and tells the other end; where that takes too long, it is cut off.
    pub(super) async fn close(self) {
        self.client.close(CLOSE).await;
    }

    /// From now on each request carries name and password (RFC 7617).
    pub(super) fn basic(&mut self, user: &str, password: &str) {
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let mut value = HeaderValue::from_str(&format!("Basic {text}")).ok();
        // It is kept out of logs.
        value.iter_mut().for_each(|value| value.set_sensitive(true));
        self.basic = value;
    }

    fn failed(&self, cause: impl std::fmt::Display, remedy: &str) -> SwitchError {
        SwitchError::Network {
            who: format!("https://{}", self.endpoint.authority),
            cause: cause.to_string(),
            remedy: remedy.into(),
        }
    }

    /// Asks, and asks where it is sent, as long as that is on the same service processor.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&HeaderValue>,
        body: Option<&Value>,
    ) -> Result<Answer, SwitchError> {
        let mut path = path.to_owned();
        for _ in 0..=MAX_REDIRECTIONS {
            let answer = self.ask_once(method, &path, token, body).await?;
            let Some(target) = answer.location.as_ref().filter(|_| answer.is_redirection(method)) else {
                return Ok(answer);
            };
            if !self.endpoint.is_at(target) {
                return Err(self.failed(
                    format!("{} redirects to {}", quoted(&path), quoted(&target.to_string())),
                    "a password is not taken elsewhere; if that is where it should go, correct url",
                ));
            }
            path = answer.location().unwrap_or_default();
        }
        Err(self.failed(
            format!(
                "it redirects more than {MAX_REDIRECTIONS} times, to {} at last",
                quoted(&path)
            ),
            "does a browser get further?",
        ))
    }

    async fn ask_once(
        &self,
        method: &str,
        path: &str,
        token: Option<&HeaderValue>,
        body: Option<&Value>,
    ) -> Result<Answer, SwitchError> {
        let request = self.request(method, path, token, body)?;
        // What is a POST may be done already where its answer is lost.
        let answer = self.client.ask(request, MAX_BYTES, method != "POST").await;
        let response = answer.map_err(|error| match error {
            ClientError::Connect(cause) => {
                self.failed(cause, "is the address right and the service processor reachable?")
            }
            ClientError::Tls { cause, error } => {
                let (cause, remedy) = tls::refused(cause, error.as_ref());
                self.failed(cause, remedy)
            }
            other => self.failed(other, BROKE),
        })?;
        let mut answer = Answer {
            status: response.status().as_u16(),
            json: serde_json::from_slice(response.body()).ok(),
            text: quoted(&String::from_utf8_lossy(response.body())),
            ..Answer::default()
        };
        answer.read_head(response.headers());
        Ok(answer)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        token: Option<&HeaderValue>,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, SwitchError> {
        // Of what the service named only the path is used, so that nobody is sent elsewhere.
        let uri = Uri::builder()
            .scheme("https")
            .authority(self.endpoint.authority.as_str())
            .path_and_query(path)
            .build()
            .map_err(|error| self.failed(error, "it named a path that is none"))?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            .header("OData-Version", "4.0");
        if let Some(basic) = &self.basic {
            request = request.header(header::AUTHORIZATION, basic);
        }
        if let Some(token) = token {
            request = request.header("X-Auth-Token", token);
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        request
            .body(Full::new(bytes))
            .map_err(|error| self.failed(error, "it named a path that is none"))
    }
}

impl Answer {
    fn read_head(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        self.token = headers.get("x-auth-token").cloned();
        self.token.iter_mut().for_each(|token| token.set_sensitive(true));
        self.location = text("location").and_then(|location| location.parse().ok());
        self.retry_after = text("retry-after")
            .and_then(|seconds| seconds.parse().ok())
            .map(Duration::from_secs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_stays_at_the_same_host_and_port_and_encrypted() {
        let here = Endpoint::parse("https://bmc1:8443").unwrap();
        for (target, is_here) in [
            ("/redfish/v1/", true),
            ("https://bmc1:8443/redfish/v1/", true),
            ("https://BMC1:8443/redfish/v1/", true),
            ("https://bmc1/redfish/v1/", false),
            ("https://bmc1:443/redfish/v1/", false),
            ("http://bmc1:8443/redfish/v1/", false),
            ("https://bmc2:8443/redfish/v1/", false),
            ("https://bmc1.example:8443/redfish/v1/", false),
            ("bmc1:8443", false),
            ("*", false),
        ] {
            assert_eq!(here.is_at(&target.parse().unwrap()), is_here, "{target}");
        }
        // The port that is not named is that of HTTPS.
        let here = Endpoint::parse("https://[::1]").unwrap();
        for (target, is_here) in [
            ("https://[::1]/redfish/v1/", true),
            ("https://[::1]:443/redfish/v1/", true),
            ("https://[::1]:8443/redfish/v1/", false),
        ] {
            assert_eq!(here.is_at(&target.parse().unwrap()), is_here, "{target}");
        }
    }

    #[test]
    fn an_address_is_named_without_user_and_password() {
        for (url, named) in [
            (
                "https://admin:S3CRETx@127.0.0.1:22999",
                "https://…@127.0.0.1:22999",
            ),
            ("https://admin:S3 CRETx@bmc1", "https://…@bmc1"),
            ("https://admin:S3/CRETx@bmc1", "https://…@bmc1"),
            ("http://admin:S3@CRETx@bmc1", "http://…@bmc1"),
            ("admin:S3CRETx@bmc1", "…@bmc1"),
            ("http://bmc1", "http://bmc1"),
        ] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(error.contains(&format!("{named:?}")), "{error}");
            assert!(!error.contains("S3") && !error.contains("CRETx"), "{error}");
        }
    }

    #[test]
    fn a_session_token_is_in_no_debug_output() {
        let mut headers = HeaderMap::new();
        headers.insert("x-auth-token", HeaderValue::from_static("se-cret"));
        let mut answer = Answer::default();
        answer.read_head(&headers);
        assert_eq!(answer.token.as_ref().unwrap(), "se-cret", "it can be sent");
        assert!(!format!("{answer:?} {:?}", answer.token).contains("se-cret"));
    }
}
