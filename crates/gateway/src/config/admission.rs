//! Which requests are served first, and which are turned away first, where not all can be.

use super::check::Wrong;
use crate::admission::{MAX_ADMISSION_CLASSES, OTHERS};
use crate::plain_path::plain_path;
use serde::{Deserialize, Serialize};

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
    /// Paths, each with what is below it: `/cart` is also `/cart/7`, and not `/carts`. They are compared as servers read them: without dot
    /// segments and repeated slashes, and with what need not be escaped unescaped, so `//%63art/./7` is `/cart/7`, and `/cart/../x` is
    /// `/x`; a path with a malformed escape as it is written. One that servers read differently, which leaves a folder (`..`) and has a
    /// malformed escape, an escaped slash, a backslash or a semicolon, is of the least important class.
    #[serde(default)]
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

/// What a header field is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderCondition {
    /// Its name.
    pub name: String,
    /// What its value holds somewhere, whatever the case of the letters; without it the field needs only be there.
    pub contains: Option<String>,
}

impl AdmissionClass {
    /// Whether every request is of it that is of no other.
    pub(crate) fn is_the_rest(&self) -> bool {
        self.paths.is_empty() && self.hosts.is_empty() && self.methods.is_empty() && self.headers.is_empty()
    }

    /// Which of its paths is that of every request, where it asks for nothing else.
    fn path_of_all(&self) -> Option<usize> {
        let is_of_paths = self.hosts.is_empty() && self.methods.is_empty() && self.headers.is_empty();
        let is_all = |path: &String| plain_path(path).trim_end_matches('/').is_empty();
        self.paths.iter().position(is_all).filter(|_| is_of_paths)
    }

    /// What is wrong with what it says, by its place among the classes.
    fn check(&self, at: usize, wrong: &mut Wrong) {
        let key = |of: &str, number: usize| format!("admission.classes[{at}].{of}[{number}]");
        for (number, path) in self.paths.iter().enumerate() {
            let is_path = path.starts_with('/') && !path.contains(['?', '#', ' ', '*']);
            let allowed = "a path from its first slash on, without a query and without *, as /cart: what is below it is meant too";
            wrong.need(is_path, &key("paths", number), path, allowed);
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
            if let Some(before) = before.filter(|_| is_named) {
                let allowed = format!("a name of its own: `admission.classes[{before}]` has this one");
                wrong.need(false, &key, &class.name, allowed);
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
