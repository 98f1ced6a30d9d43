//! How important a request is, for when not all can be served.

use http::request::Parts;
use http::{HeaderName, Method};

use crate::config::{AdmissionClass, AdmissionConfig};
use crate::folder::Folder;
use crate::readings::{is_plain, readings};

/// The most classes that may be configured.
pub const MAX_ADMISSION_CLASSES: usize = 8;

/// The most ranks that there are: one for each class, and one for what is of none.
pub(crate) const MAX_RANKS: usize = MAX_ADMISSION_CLASSES + 1;

/// A class as requests are compared with it.
#[derive(Debug)]
struct Class {
    paths: Vec<Folder>,
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
                .map(|path| Folder::new(path))
                .collect::<Option<_>>()?,
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
    fn has(&self, parts: &Parts, path: &[u8]) -> bool {
        let any_path = self.paths.is_empty() || self.paths.iter().any(|folder| folder.has(path));
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

    /// 0 for the most important. Who writes a path that servers read in several ways may mean any of them: such a request is of the least
    /// important class among those of all readings.
    pub(crate) fn of(&self, parts: &Parts) -> usize {
        let path = parts.uri.path().as_bytes();
        if !self.asks_paths || is_plain(path) {
            return self.of_reading(parts, path);
        }
        let ranks = readings(path).map(|all| {
            all.iter()
                .map(|path| self.of_reading(parts, path))
                .max()
                .unwrap_or(self.rest)
        });
        ranks.unwrap_or(self.least)
    }

    fn of_reading(&self, parts: &Parts, path: &[u8]) -> usize {
        let found = self.classes.iter().find(|(_, class)| class.has(parts, path));
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
            // As servers behind read them.
            ("GET /cart/../x", &[], 1),
            ("GET /cart/%2e%2E/x", &[], 1),
            ("GET /%63art", &[], 1),
            ("GET //cart/7", &[], 1),
            ("GET /x/./../cart", &[], 1),
            ("GET /cart/%252e%252e/x", &[], 1),
            ("GET /cart/../cart", &[], 0),
            ("GET /cart//7/./8;a=1", &[], 0),
            ("GET /cart/%", &[], 2),
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

    const EXPORT: &str = r#"
        [[classes]]
        name = "cart"
        paths = ["/cart", "/café"]
        [[classes]]
        name = "everybody"
        [[classes]]
        name = "export"
        paths = ["/export", "/search"]
    "#;

    #[test]
    fn a_path_is_as_important_as_its_least_important_reading() {
        let export = ranking(EXPORT);
        for (path, rank) in [
            ("/search/../cart", 2),
            ("/search//../cart", 2),
            ("/search/x//../../cart", 2),
            ("/search/..%2fcart", 2),
            ("/search;a/../cart", 2),
            ("/cart/%u002e%u002e/x", 2),
            ("/cart/%c0%ae%c0%ae/x", 2),
            ("/x%00/../cart", 2),
            ("/export;a", 2),
            ("/export%3b/", 2),
            ("/export\\", 2),
            ("/export%2f1", 2),
            ("/export/%zz", 2),
            ("/%65xport/%zz", 2),
            ("/x/%2e%2e/export%zz", 2),
            ("/export%20", 1),
            ("/cart/..;/x", 1),
            ("/cart;jsessionid=1/pay", 1),
            ("/cart/compare/main...feature%2Flogin", 0),
            ("/cart/a..b%2fc", 0),
            ("/cart/v1..v2;a", 0),
            ("/cart/50%25", 0),
            ("/cart/a%20b/%E2%82%AC;x=1//y", 0),
            ("/caf%C3%A9", 0),
            ("/caf%c3%a9/7", 0),
        ] {
            let line = format!("GET {path}");
            assert_eq!(export.of(&request(&line, &[])), rank, "{path}");
        }
    }

    /// Servers, by what they do to a path, in this order.
    mod servers {
        fn hex(text: &str) -> Option<u8> {
            text.get(..2).and_then(|two| u8::from_str_radix(two, 16).ok())
        }

        fn decode(path: &str, keeps_slash: bool) -> String {
            let mut parts = path.split('%');
            let mut out = parts.next().unwrap().as_bytes().to_vec();
            for part in parts {
                match hex(part).filter(|byte| !keeps_slash || *byte != b'/') {
                    Some(byte) => {
                        out.push(byte);
                        out.extend(&part.as_bytes()[2..]);
                    }
                    None => out.extend(format!("%{part}").bytes()),
                }
            }
            String::from_utf8_lossy(&out).into_owned()
        }

        fn dots(path: &str) -> String {
            let mut kept = Vec::new();
            let segments: Vec<&str> = path.split('/').skip(1).collect();
            for (at, segment) in segments.iter().enumerate() {
                match *segment {
                    "." => {}
                    ".." => drop(kept.pop()),
                    name => kept.push(name),
                }
                if at + 1 == segments.len() && matches!(*segment, "." | "..") {
                    kept.push("");
                }
            }
            format!("/{}", kept.join("/"))
        }

        fn merge(path: &str) -> String {
            let mut path = path.to_owned();
            while path.contains("//") {
                path = path.replace("//", "/");
            }
            path
        }

        fn cut(path: &str) -> String {
            let names = path.split('/').map(|segment| segment.split(';').next().unwrap());
            names.collect::<Vec<_>>().join("/")
        }

        pub(super) fn raw(path: &str) -> String {
            path.to_owned()
        }

        pub(super) fn nginx(path: &str) -> String {
            dots(&merge(&decode(path, false)))
        }

        pub(super) fn apache(path: &str) -> String {
            merge(&dots(&decode(path, true)))
        }

        pub(super) fn tomcat(path: &str) -> String {
            dots(&merge(&decode(&cut(path), false).replace('\\', "/")))
        }

        pub(super) fn jetty(path: &str) -> String {
            decode(&dots(&cut(path)), false)
        }

        pub(super) fn iis(path: &str) -> String {
            dots(&merge(&decode(path, false).replace('\\', "/")))
        }

        pub(super) fn go(path: &str) -> String {
            dots(&merge(path))
        }

        pub(super) fn proxied(path: &str) -> String {
            nginx(&nginx(path))
        }
    }

    proptest! {
        #[test]
        fn no_server_reads_a_path_as_one_of_a_less_important_class(
            path in "(/|/cart|/search|/export|/x|\\.|%2[eEfF]|%5[cC]|\\\\|;a|%3b|%25|%6[35]|x|caf%C3%A9|%zz|%c0%ae|%00){1,10}",
        ) {
            let export = ranking(EXPORT);
            let path = format!("/{path}");
            let rank = export.of(&request(&format!("GET {path}"), &[]));
            let parts = request("GET /", &[]);
            for server in [
                servers::raw,
                servers::nginx,
                servers::apache,
                servers::tomcat,
                servers::jetty,
                servers::iis,
                servers::go,
                servers::proxied,
            ] {
                let read = server(&path);
                prop_assert!(rank >= export.of_reading(&parts, read.as_bytes()), "{} is {}", path, read);
            }
        }

        #[test]
        fn ordinary_paths_have_the_rank_of_their_class(
            class in 0..3_usize,
            below in "(/[a-z0-9_~-][a-z0-9.]{0,6}(%20|%C3%A9|%2[fF]|%25|;v=[0-9])?(\\.\\.x)?){0,3}/?",
        ) {
            let export = ranking(EXPORT);
            let path = format!("GET {}{below}", ["/cart", "/other", "/search"][class]);
            prop_assert_eq!(export.of(&request(&path, &[])), class);
        }

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
