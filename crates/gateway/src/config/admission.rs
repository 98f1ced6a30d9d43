//! Which requests are served first, and which are turned away first, where not all can be.

use serde::{Deserialize, Serialize};

/// Classes of requests by importance, for the time in which every backend is at its limit of requests in flight
/// (`limits.max_in_flight_per_backend`, and what a controller finds a server to bear). Then what is more important is served first, and
/// each less important class may have fewer of the places of those that wait (`limits.max_queued`): of K classes the most important all,
/// the next (K-1)/K of them, the last 1/K. Who finds no place, or waits for longer than `timeouts.queue_timeout_ms`, is answered 503 with
/// Retry-After: about as long as waiting takes. While backends have room nobody waits, and classes change nothing.
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
    /// Paths, each with what is below it: `/cart` is also `/cart/7`, and not `/carts`.
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
    #[serde(default)]
    pub contains: String,
}

impl AdmissionClass {
    /// Whether every request is of it that is of no other.
    pub(crate) fn is_the_rest(&self) -> bool {
        self.paths.is_empty() && self.hosts.is_empty() && self.methods.is_empty() && self.headers.is_empty()
    }
}
