//! How important a request is, for when not all can be served.

use http::request::Parts;
use http::{HeaderName, Method};

use std::borrow::Cow;

use crate::config::{AdmissionClass, AdmissionConfig};
use crate::plain_path::{is_ambiguous, plain_path};

/// The most classes that may be configured.
pub const MAX_ADMISSION_CLASSES: usize = 8;

/// The most ranks that there are: one for each class, and one for what is of none.
pub(crate) const MAX_RANKS: usize = MAX_ADMISSION_CLASSES + 1;

/// A class as requests are compared with it.
#[derive(Debug)]
struct Class {
    /// Without a slash at the end.
    paths: Vec<String>,
    hosts: Vec<String>,
    methods: Vec<Method>,
    /// With what the value holds, in small letters.
    headers: Vec<(HeaderName, Vec<u8>)>,
}

impl Class {
    /// `None` for what [`crate::GatewayConfig::check`] refuses.
    fn new(config: &AdmissionClass) -> Option<Self> {
        let header = |one: &crate::config::HeaderCondition| {
            let name = HeaderName::try_from(&one.name).ok()?;
            Some((
                name,
                one.contains
                    .clone()
                    .unwrap_or_default()
                    .to_ascii_lowercase()
                    .into_bytes(),
            ))
        };
        Some(Self {
            paths: config
                .paths
                .iter()
                .map(|path| plain_path(path).trim_end_matches('/').to_owned())
                .collect(),
            hosts: config.hosts.clone(),
            methods: config
                .methods
                .iter()
                .map(|method| Method::from_bytes(method.as_bytes()).ok())
                .collect::<Option<_>>()?,
            headers: config.headers.iter().map(header).collect::<Option<_>>()?,
        })
    }

    /// `path`: as a server reads it.
    fn has(&self, parts: &Parts, path: &str) -> bool {
        let below = |start: &String| {
            path.strip_prefix(start.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let any_path = self.paths.is_empty() || self.paths.iter().any(below);
        any_path
            && (self.methods.is_empty() || self.methods.contains(&parts.method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| is_for(parts, host)))
            && (self.headers.is_empty() || self.headers.iter().any(|(name, text)| says(parts, name, text)))
    }
}

/// Whether a request is for this host, at whatever port.
fn is_for(parts: &Parts, host: &str) -> bool {
    let of_field = || parts.headers.get(http::header::HOST)?.to_str().ok();
    let Some(authority) = parts.uri.authority().map(|one| one.as_str()).or_else(of_field) else {
        return false;
    };
    let end = match authority.rfind(':') {
        // The colons of an address in brackets are none of a port.
        Some(colon) if !authority[colon..].contains(']') => colon,
        _ => authority.len(),
    };
    authority[..end].eq_ignore_ascii_case(host)
}

/// Whether a field of this name holds the text, which is in small letters.
fn says(parts: &Parts, name: &HeaderName, text: &[u8]) -> bool {
    let holds = |value: &[u8]| {
        text.is_empty()
            || value
                .windows(text.len())
                .any(|part| part.eq_ignore_ascii_case(text))
    };
    parts
        .headers
        .get_all(name)
        .iter()
        .any(|value| holds(value.as_bytes()))
}

/// How important requests are, by what is configured.
#[derive(Debug)]
pub(crate) struct Ranking {
    classes: Vec<(usize, Class)>,
    /// Some class is one of paths.
    asks_paths: bool,
    /// The rank of what is in none of them.
    rest: usize,
    /// The least important.
    least: usize,
}

impl Ranking {
    /// `None` where all are equal.
    pub(crate) fn new(config: &AdmissionConfig) -> Option<Self> {
        if config.classes.is_empty() {
            return None;
        }
        let rest = config.classes.iter().position(AdmissionClass::is_the_rest);
        let conditional = config.classes.iter().enumerate();
        Some(Self {
            classes: conditional
                .filter(|(at, _)| Some(*at) != rest)
                .filter_map(|(at, class)| Some((at, Class::new(class)?)))
                .collect(),
            asks_paths: config.classes.iter().any(|class| !class.paths.is_empty()),
            rest: rest.unwrap_or(config.classes.len()),
            least: ranks(config) - 1,
        })
    }

    /// 0 for the most important.
    pub(crate) fn of(&self, parts: &Parts) -> usize {
        let path = match self.asks_paths {
            // Who writes a path that servers read differently may mean any class.
            true if is_ambiguous(parts.uri.path()) => return self.least,
            true => plain_path(parts.uri.path()),
            false => Cow::default(),
        };
        let found = self.classes.iter().find(|(_, class)| class.has(parts, &path));
        found.map_or(self.rest, |(rank, _)| *rank)
    }
}

/// How many ranks there are by a configuration: one where all are equal.
pub(crate) fn ranks(config: &AdmissionConfig) -> usize {
    match config.classes.is_empty() {
        true => 1,
        false if config.classes.iter().any(AdmissionClass::is_the_rest) => config.classes.len(),
        false => config.classes.len() + 1,
    }
}

/// The names of the ranks, in their order; none where all are equal.
pub(crate) fn names(config: &AdmissionConfig) -> Vec<&str> {
    let named = config.classes.iter().map(|class| class.name.as_str());
    let is_more = !config.classes.is_empty() && ranks(config) > config.classes.len();
    named.chain(is_more.then_some(OTHERS)).collect()
}

/// What is in no class that is configured.
pub(crate) const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use proptest::prelude::*;

    fn ranking(text: &str) -> Ranking {
        Ranking::new(&toml::from_str(text).unwrap()).unwrap()
    }

    fn request(line: &str, headers: &[(&str, &str)]) -> Parts {
        let (method, target) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const SHOP: &str = r#"
        [[classes]]
        name = "checkout"
        paths = ["/cart", "/pay/"]
        [[classes]]
        name = "everybody"
        [[classes]]
        name = "crawlers"
        headers = [{ name = "User-Agent", contains = "Bot" }, { name = "x-crawler" }]
    "#;

    #[test]
    fn a_request_is_of_the_first_class_that_it_meets_else_of_the_rest() {
        let shop = ranking(SHOP);
        for (line, headers, rank) in [
            ("GET /cart", &[][..], 0),
            ("GET /cart/7?x=/y", &[], 0),
            ("GET /carts", &[], 1),
            ("POST /pay", &[], 0),
            // As a server behind reads them.
            ("GET /cart/../x", &[], 1),
            ("GET /cart/%2e%2E/x", &[], 1),
            ("GET /%63art", &[], 0),
            ("GET //cart/7", &[], 0),
            ("GET /x/./../cart", &[], 0),
            ("GET /cart/../%", &[], 2),
            ("GET /", &[("user-agent", "curl")], 1),
            (
                "GET /",
                &[("user-agent", "Mozilla (compatible; GoogleBOT/2.1)")],
                2,
            ),
            ("GET /", &[("x-crawler", "")], 2),
            // A crawler that pays is a customer.
            ("GET /pay", &[("x-crawler", "1")], 0),
        ] {
            assert_eq!(shop.of(&request(line, headers)), rank, "{line} {headers:?}");
        }
        let text: AdmissionConfig = toml::from_str(SHOP).unwrap();
        assert_eq!(
            (ranks(&text), names(&text)),
            (3, vec!["checkout", "everybody", "crawlers"])
        );
    }

    #[test]
    fn what_is_of_several_kinds_is_needed_of_each_and_others_come_last() {
        let text = r#"
            [[classes]]
            name = "orders"
            hosts = ["shop.example", "[::1]"]
            methods = ["POST", "PUT"]
        "#;
        let orders = ranking(text);
        for (line, host, rank) in [
            ("POST /", "shop.example", 0),
            ("PUT /", "SHOP.example:8080", 0),
            ("POST /", "[::1]:80", 0),
            ("POST /", "[::1]", 0),
            ("GET /", "shop.example", 1),
            ("POST /", "other.example", 1),
        ] {
            assert_eq!(
                orders.of(&request(line, &[("host", host)])),
                rank,
                "{line} {host}"
            );
        }
        let text: AdmissionConfig = toml::from_str(text).unwrap();
        assert_eq!((ranks(&text), names(&text)), (2, vec!["orders", "others"]));
        assert!(Ranking::new(&AdmissionConfig::default()).is_none());
        assert_eq!(ranks(&AdmissionConfig::default()), 1);
    }

    proptest! {
        #[test]
        fn every_request_has_a_rank_that_there_is(
            path in "/[a-z/]{0,12}",
            values in proptest::collection::vec("[ -~]{0,20}", 0..4),
            host in "[a-z\\[\\]:0-9]{0,12}",
        ) {
            let shop = ranking(SHOP);
            let mut headers: Vec<(&str, &str)> = values.iter().map(|value| ("user-agent", value.as_str())).collect();
            headers.push(("host", &host));
            let line = format!("GET {path}");
            prop_assert!(shop.of(&request(&line, &headers)) < MAX_RANKS);
        }
    }
}
