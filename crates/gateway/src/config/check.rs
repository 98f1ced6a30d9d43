//! What a configuration may say: the checks that need no socket.

use super::size::in_words;
use super::{
    BackendConfig, CACHE_HEAD_BYTES, GatewayConfig, MAX_BACKENDS, MAX_CERTIFICATES, MAX_ROUTES,
    MAX_SIZE_CLASSES, MAX_THREADS, Network, ms,
};
use crate::backend::Backend;
use crate::error::GatewayError;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The longest that a request may be held.
const MAX_WAIT_MS: u64 = 60_000;
/// The most that may be held at once.
const MAX_HELD: u64 = 1 << 20;

/// Networks in one list.
const MAX_NETWORKS: usize = 256;

/// A path as it is written.
fn show(path: &Option<PathBuf>) -> String {
    path.as_ref()
        .map_or_else(|| "none".to_owned(), |path| path.display().to_string())
}

/// Whether this can be a name of a certificate: labels, of which the first may be a wildcard.
fn is_name(name: &str) -> bool {
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    labels.split('.').all(is_label)
}

/// Whether two listeners cannot have these addresses both. Every address of this machine (`0.0.0.0`) has each of them; those of IPv6 have
/// none of IPv4 (`IPV6_V6ONLY`). Port 0 is another free port each time.
fn are_one(one: SocketAddr, other: SocketAddr) -> bool {
    let of_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    let same = one.ip() == other.ip() || of_all && one.is_ipv4() == other.is_ipv4();
    same && one.port() == other.port() && one.port() != 0
}

/// Who may send PROXY headers is said where they are expected, and only there.
fn check_trusted(wrong: &mut Wrong, table: &str, expected: bool, trusted: &[Network]) {
    let key = format!("{table}.trusted");
    let count = trusted.len();
    if expected {
        let allowed = format!(
            "1 to 256 addresses or networks of the proxies, as [\"10.0.0.0/8\"], with `{table}.proxy_protocol`: whoever may send \
             its header may name any client (0.0.0.0/0 and ::/0: everybody may)"
        );
        wrong.need((1..=MAX_NETWORKS).contains(&count), &key, count, allowed);
    } else {
        let allowed =
            format!("none without `{table}.proxy_protocol = true`: nobody is asked for whom it connects");
        wrong.need(count == 0, &key, count, allowed);
    }
}

/// What is wrong so far.
#[derive(Default)]
pub(super) struct Wrong(Vec<GatewayError>);

impl Wrong {
    /// What does not hold is wrong: a key, its value and what is allowed.
    pub(super) fn need(&mut self, holds: bool, key: &str, value: impl ToString, allowed: impl Into<String>) {
        if !holds {
            self.0.push(GatewayError::Config {
                key: key.to_owned(),
                value: value.to_string(),
                allowed: allowed.into(),
            });
        }
    }
}

impl GatewayConfig {
    /// Whether this backend's address, as it is written, is one that the gateway listens at.
    fn listens_at(&self, backend: &BackendConfig) -> bool {
        let Ok(uri) = backend.url.parse::<http::Uri>() else {
            return false;
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let ip = match host {
            "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            _ => host.parse().ok(),
        };
        let port = uri
            .port_u16()
            .unwrap_or(if backend.is_https() { 443 } else { 80 });
        ip.is_some_and(|ip: IpAddr| {
            self.listeners().any(|(address, ..)| {
                let here = address.ip() == ip || (address.ip().is_unspecified() && ip.is_loopback());
                address.port() == port && here
            })
        })
    }

    /// Checks every value that can be judged without the network.
    ///
    /// # Errors
    /// The first of [`GatewayConfig::mistakes`].
    pub fn check(&self) -> Result<(), GatewayError> {
        self.mistakes().into_iter().next().map_or(Ok(()), Err)
    }

    /// All that is wrong without a look at the network: [`GatewayError::Config`] naming the key, its value and what is allowed, and
    /// URLs that are none.
    pub fn mistakes(&self) -> Vec<GatewayError> {
        let mut wrong = Wrong::default();
        let listens = self.listeners().next().is_some();
        let allowed = "at least one address in `listen` or one `[[gateway.http]]` or `[[gateway.tls]]` table";
        wrong.need(listens, "listen", "[]", allowed);
        self.check_edge(&mut wrong);
        wrong.0.extend(self.listened_twice());
        let count = self.backends.len();
        let allowed = "1 to 256 backends, each `{ url = \"http://host:port\" }`";
        wrong.need((1..=MAX_BACKENDS).contains(&count), "backends", count, allowed);
        for backend in self.backends.iter().take(MAX_BACKENDS) {
            backend.check(&mut wrong);
            let own = self.listens_at(backend);
            let allowed = "where the service listens; this is this gateway's own address, and each request would come back to it";
            wrong.need(!own, "backends.url", &backend.url, allowed);
            wrong.0.extend(Backend::new(backend).err());
        }
        self.check_ranges(&mut wrong);
        self.check_front(&mut wrong);
        if let Some(path) = &self.health.path {
            let holds = path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
            wrong.need(holds, "health.path", path, "an absolute path such as /healthz");
        }
        wrong.0
    }

    /// The listener that has this address, or has it among others: its key, with its number where it is one of several, and its address.
    pub fn listener_at(&self, address: SocketAddr) -> Option<(String, SocketAddr)> {
        let mut all = self.keyed_listeners();
        all.find(|(_, other)| are_one(*other, address))
    }

    /// Every listener's address with its key.
    fn keyed_listeners(&self) -> impl Iterator<Item = (String, SocketAddr)> {
        let plain = self.listen.iter().enumerate();
        let plain = plain.map(|(at, address)| (format!("listen[{at}]"), *address));
        let http = self.http.iter().enumerate();
        let http = http.map(|(at, http)| (format!("http[{at}].listen"), http.listen));
        let tls = self.tls.iter().enumerate();
        let tls = tls.map(|(at, tls)| (format!("tls[{at}].listen"), tls.listen));
        plain.chain(http).chain(tls)
    }

    /// The listeners that are to have an address that one before them has. What is tried with the sockets cannot tell: there the other
    /// process that has the port would be this one.
    fn listened_twice(&self) -> Vec<GatewayError> {
        let mut before: Vec<(String, SocketAddr)> = Vec::new();
        let mut twice = Vec::new();
        for (key, address) in self.keyed_listeners() {
            let same = before.iter().find(|(_, other)| are_one(*other, address));
            twice.extend(same.map(|(also, other)| GatewayError::ListenTwice {
                key: key.clone(),
                address,
                also: also.clone(),
                other: *other,
            }));
            before.push((key, address));
        }
        twice
    }

    /// What listeners, sources and names may be given.
    fn check_edge(&self, wrong: &mut Wrong) {
        for tls in &self.tls {
            let allowed = "both `tls.certificate` and `tls.key`, or neither: a certificate is of no use without its key";
            let is_pair = tls.certificate.is_some() == tls.key.is_some();
            wrong.need(is_pair, "tls.certificate", show(&tls.certificate), allowed);
            let count = tls.pairs().count();
            let allowed = "1 to 1024: give `tls.certificate` and `tls.key`, or `tls.certificates`";
            let holds = (1..=MAX_CERTIFICATES).contains(&count) || !is_pair;
            wrong.need(holds, "tls.certificates", count, allowed);
            for name in tls.certificates.iter().flat_map(|pair| &pair.names) {
                let allowed = "names as a.example, or *.b.example for any one label there";
                wrong.need(is_name(name), "tls.certificates.names", name, allowed);
            }
            let holds = tls.client_revoked.is_none() || tls.client_ca.is_some();
            let allowed = "none without `tls.client_ca`: no client shows a certificate then";
            wrong.need(holds, "tls.client_revoked", show(&tls.client_revoked), allowed);
            let holds = tls.require || tls.client_ca.is_some();
            let allowed = "nothing without `tls.client_ca`: no client is asked for a certificate then";
            wrong.need(holds, "tls.require", tls.require, allowed);
            check_trusted(wrong, "tls", tls.proxy_protocol, &tls.trusted);
        }
        for http in &self.http {
            check_trusted(wrong, "http", http.proxy_protocol, &http.trusted);
        }
        let sources = &self.sources;
        for (key, burst, per_s, of) in [
            (
                "sources.connections_burst",
                sources.connections_burst,
                sources.connections_per_s,
                "sources.connections_per_s",
            ),
            (
                "sources.requests_burst",
                sources.requests_burst,
                sources.requests_per_s,
                "sources.requests_per_s",
            ),
        ] {
            let allowed = format!("0 without `{of}`: there is no rate to exceed for a moment");
            wrong.need(burst == 0 || per_s > 0, key, burst, allowed);
        }
        self.admission.check(wrong);
        let exempt = sources.exempt.len();
        let allowed = "at most 256 networks: they are compared one by one";
        wrong.need(exempt <= MAX_NETWORKS, "sources.exempt", exempt, allowed);
        let servers = self.resolver.nameservers.len();
        let allowed = "at most 8 nameservers: all are asked";
        wrong.need(servers <= 8, "resolver.nameservers", servers, allowed);
    }

    /// What is a number between two others.
    fn check_ranges(&self, wrong: &mut Wrong) {
        let (limits, health, times) = (&self.limits, &self.health, &self.timeouts);
        for (key, value, (least, most), allowed) in [
            (
                "threads",
                self.threads as u64,
                (0, MAX_THREADS as u64),
                "0 (one per CPU) to 256",
            ),
            (
                "limits.max_header_bytes",
                limits.max_header_bytes as u64,
                (8_192, 1 << 20),
                "8192 to 1048576",
            ),
            (
                "limits.max_headers",
                limits.max_headers as u64,
                (1, 1_000),
                "1 to 1000",
            ),
            (
                "limits.h2_window_bytes",
                limits.h2_window_bytes.into(),
                (16_384, 1 << 30),
                "16384 to 1073741824",
            ),
            (
                "limits.h2_connection_window_bytes",
                limits.h2_connection_window_bytes.into(),
                (65_535, 1 << 30),
                "65535 to 1073741824, and no less than limits.h2_window_bytes",
            ),
            (
                "health.max_ejection_percent",
                health.max_ejection_percent.into(),
                (0, 100),
                "0 to 100",
            ),
            (
                "health.eject_failure_percent",
                health.eject_failure_percent.into(),
                (0, 100),
                "0 to 100",
            ),
            (
                "batch.max_wait_ms",
                self.batch.max_wait_ms,
                (1, MAX_WAIT_MS),
                "1 to 60000: past a minute clients and the proxies between have given up, and what is held for them is fetched in vain",
            ),
            (
                "batch.max_held",
                self.batch.max_held as u64,
                (1, MAX_HELD),
                "1 to 1048576: each request that is held keeps its head and its connection in memory, and more \
                 pass at once all the same",
            ),
            (
                "sizes.routes",
                self.sizes.routes as u64,
                (64, MAX_ROUTES as u64),
                "64 to 1048576: each core remembers so many, in 20 bytes each",
            ),
            (
                "retry.budget_percent",
                self.retry.budget_percent.into(),
                (0, 100),
                "0 to 100",
            ),
            (
                "sources.max_sources",
                self.sources.max_sources as u64,
                (64, 1 << 22),
                "64 to 4194304: each takes some 150 bytes",
            ),
            (
                "health.panic_percent",
                health.panic_percent.into(),
                (0, 100),
                "0 to 100",
            ),
        ] {
            wrong.need((least..=most).contains(&value), key, value, allowed);
        }
        for (key, value) in [
            (
                "limits.max_connections_per_core",
                limits.max_connections_per_core as u64,
            ),
            (
                "limits.max_in_flight_per_backend",
                limits.max_in_flight_per_backend as u64,
            ),
            (
                "limits.max_concurrent_streams",
                limits.max_concurrent_streams.into(),
            ),
            ("limits.listen_backlog", limits.listen_backlog.into()),
            ("timeouts.connect_timeout_ms", times.connect_timeout_ms),
            ("timeouts.queue_timeout_ms", times.queue_timeout_ms),
            (
                "timeouts.response_header_timeout_ms",
                times.response_header_timeout_ms,
            ),
            ("timeouts.body_timeout_ms", times.body_timeout_ms),
            (
                "timeouts.request_header_timeout_ms",
                times.request_header_timeout_ms,
            ),
            ("timeouts.idle_timeout_ms", times.idle_timeout_ms),
            ("timeouts.pool_idle_timeout_ms", times.pool_idle_timeout_ms),
            ("timeouts.tunnel_idle_timeout_ms", times.tunnel_idle_timeout_ms),
            ("resolver.interval_ms", self.resolver.interval_ms),
            ("cache.max_object_bytes", self.cache.max_object_bytes),
            ("cache.collapse_timeout_ms", self.cache.collapse_timeout_ms),
            ("health.interval_ms", health.interval_ms),
            ("health.timeout_ms", health.timeout_ms),
            ("health.rise", health.rise.into()),
            ("health.fall", health.fall.into()),
        ] {
            wrong.need(value > 0, key, value, "1 or more");
        }
    }

    /// What the cache and the batcher may be given.
    fn check_front(&self, wrong: &mut Wrong) {
        if let (Some(interval), Some(most)) = (self.batch.interval_ms, self.max_batch_interval()) {
            let by = match self.target_ms {
                Some(target) if ms(target) / 2 == most => "half of the latency that is promised, `target_ms`",
                _ => "the longest that a request may be held, `batch.max_wait_ms`",
            };
            let allowed = format!("0 to {}: {by}", most.as_millis());
            wrong.need(ms(interval) <= most, "batch.interval_ms", interval, allowed);
        }
        let bounds = &self.sizes.bounds_bytes;
        let grow = bounds.is_sorted_by(|one, next| one < next) && bounds.first() != Some(&0);
        wrong.need(
            grow && bounds.len() < MAX_SIZE_CLASSES,
            "sizes.bounds_bytes",
            format!("{bounds:?}"),
            "at most 7 sizes in bytes, each larger than the one before, as [4096, 65536]; none, and sizes are not looked at",
        );
        let cache = &self.cache;
        if cache.bytes > 0 {
            let room = cache.max_object_bytes.saturating_add(CACHE_HEAD_BYTES);
            let example = in_words(room.checked_next_power_of_two().unwrap_or(room));
            let allowed = format!(
                "0 for no cache, or {} and more: room for one object of `cache.max_object_bytes` and its head, as {example}",
                in_words(room)
            );
            wrong.need(cache.bytes >= room, "cache.bytes", in_words(cache.bytes), allowed);
        }
    }

    /// Checks that the cache fits into a machine of so much memory.
    pub(crate) fn check_memory(&self, memory: u64) -> Result<(), GatewayError> {
        let bytes = self.cache.bytes;
        if bytes > memory {
            return Err(GatewayError::Config {
                key: "cache.bytes".to_owned(),
                value: in_words(bytes),
                allowed: format!(
                    "at most the {} of memory of this machine, of which bodies under way can take as many again: {} at most fill it",
                    in_words(memory),
                    in_words(memory / 2)
                ),
            });
        }
        if bytes > memory / 2 {
            tracing::warn!(
                bytes,
                memory,
                "a cache of more than half of this machine's memory: bodies under way can take as many bytes again, and the kernel may \
                 then end this program; set cache.bytes (--cache) lower"
            );
        }
        Ok(())
    }
}
