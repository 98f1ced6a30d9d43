//! Which requests are served first, and which are turned away first, where not all can be.

use super::check::Wrong;
use crate::admission::{MAX_ADMISSION_CLASSES, OTHERS};
use crate::folder::Folder;
use serde::{Deserialize, Deserializer, Serialize};

/// Classes of requests by importance, for the time in which every backend is at its limit of requests in flight
/// (`limits.max_in_flight_per_backend`, and what a controller finds a server to bear). Then what is more important is served first, and
/// each less important class may have fewer of the places of those that wait (`limits.max_queued`): of K classes the most important all,
/// the next (K-1)/K of them, the last 1/K. Who finds no place, or waits for longer than `timeouts.queue_timeout_ms`, is answered 503 with
/// Retry-After: about as long as waiting takes. Where no place is free for a more important one, the youngest of the least important that
/// waits is answered so in its place. While backends have room nobody waits, and classes change nothing.
///
/// ```
/// let config: headroom_gateway::GatewayConfig = toml::from_str(
///     r#"
///     backends = [{ url = "http://10.0.0.2" }]
///
///     [[admission.classes]]
///     name = "checkout"
///     paths = ["/cart", "/pay"]
///
///     [[admission.classes]]
///     name = "everybody" # without a condition: whatever is in no other class
///
///     [[admission.classes]]
///     name = "crawlers"
///     headers = [{ name = "user-agent", contains = "bot" }]
///     "#,
/// )?;
/// assert!(config.check().is_ok());
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionConfig {
    /// The classes, the most important first, at most 8. A request is of the first whose conditions it meets, else of the one without
    /// conditions, else less important than all. Default none: first come, first served.
    pub classes: Vec<AdmissionClass>,
}

/// A class of requests. What it names of several kinds is needed of each kind, and of one kind any one will do. A client may write into its
/// request what it likes: what is in a header is its own word, unless a proxy in front sets that header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionClass {
    /// Its name, in metrics: letters, digits, `-` and `_`, at most 32.
    pub name: String,
    /// Paths, each with what is below it: `/cart` is also `/cart/7`, and not `/carts`. What may not stand in the path of a request is
    /// escaped here: `/café` is `/caf%C3%A9`. Servers read some paths in several ways: unescaped or not, with dot segments carried out,
    /// repeated slashes merged, parameters behind a semicolon cut off, `%2f`, `%5c` and `\` as slashes. A request is of the least important
    /// class among those of all readings of its path, so `/search/../cart` is no more important than `/search`. A path with a malformed
    /// escape, a NUL or an overlong character, which no two servers read alike, is of the least important class.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Hosts, without ports.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Methods, as `"POST"`.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Header fields.
    #[serde(default)]
    pub headers: Vec<HeaderCondition>,
}

/// Paths that are written: an empty list would be no condition, and perhaps one that all requests are of.
fn named<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::deserialize(list)?;
    match list.is_empty() {
        true => Err(serde::de::Error::custom(
            "an empty list: name a path at least, or leave the key out for a class of any path; one without any condition is whatever \
             is in no other class",
        )),
        false => Ok(list),
    }
}

/// What a header field is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderCondition {
    /// Its name.
    pub name: String,
    /// What its value holds somewhere, whatever the case of the letters; without it the field needs only be there.
    pub contains: Option<String>,
}

/// Whether it is written as a path.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains(['?', '#', ' ', '*'])
}

impl AdmissionClass {
    /// Whether every request is of it that is of no other.
    pub(crate) fn is_the_rest(&self) -> bool {
        self.paths.is_empty() && self.hosts.is_empty() && self.methods.is_empty() && self.headers.is_empty()
    }

    /// Which of its paths is that of every request, where it asks for nothing else.
    fn path_of_all(&self) -> Option<usize> {
        let is_of_paths = self.hosts.is_empty() && self.methods.is_empty() && self.headers.is_empty();
        let is_all = |path: &String| is_path(path) && Folder::new(path).is_some_and(|path| path.is_root());
        self.paths.iter().position(is_all).filter(|_| is_of_paths)
    }

    /// Whether every request of another class is of this one too, by all but its paths.
    fn asks_no_more(&self, other: &Self) -> bool {
        fn all_in<T>(some: &[T], own: &[T], is_in: impl Fn(&T, &T) -> bool) -> bool {
            let has = |one: &T| own.iter().any(|own| is_in(one, own));
            own.is_empty() || !some.is_empty() && some.iter().all(has)
        }
        let holds = |one: &HeaderCondition, own: &HeaderCondition| {
            let text = |condition: &HeaderCondition| {
                let text = condition.contains.as_deref().unwrap_or_default();
                text.to_ascii_lowercase()
            };
            one.name.eq_ignore_ascii_case(&own.name) && text(one).contains(&text(own))
        };
        all_in(&other.hosts, &self.hosts, |one, own| {
            one.eq_ignore_ascii_case(own)
        }) && all_in(&other.methods, &self.methods, |one, own| one == own)
            && all_in(&other.headers, &self.headers, holds)
    }

    /// Whether it has every request of this path; `None` is any path.
    fn has_path(&self, path: Option<&Folder>) -> bool {
        let covers = |own: Folder| path.map_or(own.is_root(), |path| own.covers(path));
        self.paths.is_empty() || self.paths.iter().filter_map(|own| Folder::new(own)).any(covers)
    }

    /// What of it no request can be, for those before it have it.
    fn check_before(&self, at: usize, before: &[Self], wrong: &mut Wrong) {
        if self.is_the_rest() {
            return;
        }
        // A class of every request is wrong itself.
        let first_with = |path: Option<&Folder>| {
            let mut conditional = before
                .iter()
                .filter(|class| !class.is_the_rest() && class.path_of_all().is_none());
            conditional.find(|class| class.asks_no_more(self) && class.has_path(path))
        };
        let allowed = |first: &Self| {
            format!(
                "what is not all in a class before it, for a request is of the first whose conditions it meets, and each of these is of \
                 `{}`: put this class before that one, or leave it out",
                first.name
            )
        };
        let key = format!("admission.classes[{at}]");
        if self.paths.is_empty()
            && let Some(first) = first_with(None)
        {
            wrong.need(false, &key, &self.name, allowed(first));
        }
        for (number, path) in self.paths.iter().enumerate() {
            let folder = Folder::new(path).filter(|_| is_path(path));
            if let Some(first) = folder.and_then(|folder| first_with(Some(&folder))) {
                wrong.need(false, &format!("{key}.paths[{number}]"), path, allowed(first));
            }
        }
    }

    /// What is wrong with what it says, by its place among the classes.
    fn check(&self, at: usize, wrong: &mut Wrong) {
        let key = |of: &str, number: usize| format!("admission.classes[{at}].{of}[{number}]");
        for (number, path) in self.paths.iter().enumerate() {
            let key = key("paths", number);
            if !is_path(path) {
                let allowed = "a path from its first slash on, without a query and without *, as /cart: what is below it is meant too";
                wrong.need(false, &key, path, allowed);
                continue;
            }
            let is_alike = Folder::new(path).is_some_and(|path| path.is_read_alike());
            let allowed = "a path that all servers read alike, without dot segments, empty segments, ; and \\, escaped or not, %00 or \
                           malformed escapes: a request for this one would never be of this class, for another reading of \
                           it is less important. Write the path that the service goes by";
            wrong.need(is_alike, &key, path, allowed);
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let is_host = !host.contains('*')
                && http::uri::Authority::try_from(host.as_str())
                    .is_ok_and(|authority| authority.host() == host && authority.port().is_none());
            let allowed = "a whole host without a port and without *, as shop.example";
            wrong.need(is_host, &key("hosts", number), host, allowed);
        }
        for (number, method) in self.methods.iter().enumerate() {
            // Methods are told apart by case, and nobody sends one of the usual ones in small letters.
            let is_method = http::Method::from_bytes(method.as_bytes()).is_ok()
                && !method.bytes().any(|byte| byte.is_ascii_lowercase());
            let allowed = "a method as it is sent, in capital letters, as POST";
            wrong.need(is_method, &key("methods", number), method, allowed);
        }
        for (number, header) in self.headers.iter().enumerate() {
            let is_name = http::HeaderName::try_from(&header.name).is_ok();
            let key = |of: &str| format!("{}.{of}", key("headers", number));
            wrong.need(is_name, &key("name"), &header.name, "the name of a header field");
            let holds = header.contains.as_deref() != Some("");
            let allowed = "what the value is to hold; where the field needs only be there, leave this out";
            wrong.need(holds, &key("contains"), "empty", allowed);
        }
    }
}

impl AdmissionConfig {
    /// What is wrong with the classes.
    pub(super) fn check(&self, wrong: &mut Wrong) {
        let classes = &self.classes;
        let is_few = classes.len() <= MAX_ADMISSION_CLASSES;
        wrong.need(is_few, "admission.classes", classes.len(), "at most 8 classes");
        let mut rest = classes
            .iter()
            .enumerate()
            .filter(|(_, class)| class.is_the_rest());
        if let (Some((_, first)), Some((at, _))) = (rest.next(), rest.next()) {
            let allowed = format!(
                "paths, hosts, methods or headers here, for one class without conditions is whatever is in no other, and that is `{}`",
                first.name
            );
            let key = format!("admission.classes[{at}]");
            wrong.need(false, &key, "without conditions", allowed);
        }
        for (at, class) in classes.iter().enumerate() {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let is_named = (1..=32).contains(&class.name.len()) && class.name.bytes().all(is_name);
            let key = format!("admission.classes[{at}].name");
            let allowed = "1 to 32 letters, digits, - and _";
            wrong.need(is_named, &key, &class.name, allowed);
            let before = classes[..at].iter().position(|other| other.name == class.name);
            match before.filter(|_| is_named) {
                Some(before) => {
                    let allowed = format!("a name of its own: `admission.classes[{before}]` has this one");
                    wrong.need(false, &key, &class.name, allowed);
                }
                None => class.check_before(at, &classes[..at], wrong),
            }
            let allowed = "any other name: this one is of what is in no class";
            wrong.need(class.name != OTHERS, &key, &class.name, allowed);
            class.check(at, wrong);
            let hides = at + 1 < classes.len() || classes.iter().any(AdmissionClass::is_the_rest);
            if let Some(number) = class.path_of_all().filter(|_| hides) {
                let key = format!("admission.classes[{at}].paths[{number}]");
                let allowed = "a path that is not of every request, for no request would be left to the classes behind this one; leave \
                               paths out where this is to be what is in no other class";
                wrong.need(false, &key, &class.paths[number], allowed);
            }
        }
    }
}
