//! What a user may set, with the defaults, and the checks that need no socket.

mod admission;
mod backend;
mod check;
mod listen;
mod size;
mod sources;
mod whole;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

pub use admission::{AdmissionClass, AdmissionConfig, HeaderCondition};
pub use listen::{
    CertificateConfig, HttpListenConfig, MAX_CERTIFICATES, Network, TlsListenConfig, UnknownName,
};
pub use sources::{ResolverConfig, SourceLimitConfig};

use headroom_units::FailedStatus;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::grpc::FailedGrpcStatus;

pub use backend::{BackendConfig, BackendProtocol, BackendTlsConfig, ProxyVersion};

/// Largest number of backends of one gateway. Each costs a small histogram per core, so it is bounded.
pub const MAX_BACKENDS: usize = 256;

/// Largest number of core threads of one gateway.
pub const MAX_THREADS: usize = 256;

/// The objects of the largest size that a shard of the cache has room for at least, as it is configured.
const OBJECTS_A_SHARD: u64 = 16;
/// The most shards of a cache.
const MAX_SHARDS: u64 = 16;
/// What a cache must have room for beside the largest body.
const CACHE_HEAD_BYTES: u64 = 64 * 1024;

/// The most classes of sizes, beside the requests whose size nobody knows.
pub const MAX_SIZE_CLASSES: usize = 8;

/// The most routes whose sizes a core remembers: 16 MiB.
pub const MAX_ROUTES: usize = 1 << 20;

/// Largest weight of a backend. A weight of 0 takes no new requests.
pub const MAX_WEIGHT: u32 = 1000;

/// Everything the data plane needs to know to start.
///
/// Deserialised with unknown keys refused; every key has a default except `backends`.
///
/// ```
/// let config: headroom_gateway::GatewayConfig = toml::from_str(
///     r#"
///     listen = ["0.0.0.0:8080"]
///     balance = "least_connections"
///     backends = [{ url = "http://web1:8081" }, { url = "http://web2:8081", weight = 2 }]
///     limits = { max_in_flight_per_backend = 64 }
///     "#,
/// )?;
/// assert!(config.check().is_ok());
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Addresses for cleartext HTTP/1.1 and HTTP/2 with prior knowledge (h2c). Default `["127.0.0.1:8080"]`.
    /// Port 0 takes a free port; [`crate::Handle::local_addrs`] tells which.
    pub listen: Vec<SocketAddr>,
    /// More of them, each with what there is to say of it. Default none.
    pub http: Vec<HttpListenConfig>,
    /// Addresses for TLS, with ALPN `h2` and `http/1.1`. Default none.
    pub tls: Vec<TlsListenConfig>,
    /// Where requests go; at least one.
    pub backends: Vec<BackendConfig>,
    /// Core threads, each with its own runtime, listeners and pool. 0 (the default) is one per available CPU.
    pub threads: usize,
    /// How a core chooses among the backends. Default `least_connections`: servers that are not alike, or not always, each get what they bear.
    pub balance: Balance,
    /// Active checks and passive ejection.
    pub health: HealthConfig,
    /// Every wait of the data plane has an end; these are the ends.
    pub timeouts: TimeoutConfig,
    /// Repeating a request that a dead kept-alive connection swallowed.
    pub retry: RetryConfig,
    /// Bounds on sizes and counts.
    pub limits: LimitConfig,
    /// Who is served first, and who is turned away first, where not all can be served.
    pub admission: AdmissionConfig,
    /// What one source may ask.
    pub sources: SourceLimitConfig,
    /// How the names of backends become addresses.
    pub resolver: ResolverConfig,
    /// What the backend learns about the client.
    pub forwarding: ForwardingConfig,
    /// Answering from memory.
    pub cache: CacheConfig,
    /// Holding requests, to let those for the same go together.
    pub batch: BatchConfig,
    /// Telling requests apart by the size of their answers, to send each class to backends of its own.
    pub sizes: SizesConfig,
    /// Statuses of a backend's answer with which a request counts as failed, not as completed. Default every 5xx.
    /// `headroom up` takes them from its own `slo.failed_status`.
    pub failed_status: FailedStatus,
    /// Statuses of gRPC with which a call counts as failed, by name or code. Default `UNKNOWN`, `DEADLINE_EXCEEDED`,
    /// `RESOURCE_EXHAUSTED`, `INTERNAL`, `UNAVAILABLE` and `DATA_LOSS`.
    pub failed_grpc_status: FailedGrpcStatus,
    /// The latency that is promised, in milliseconds: a client that goes away after it has waited longer for an answer, or for the
    /// next piece of one, was failed by the backend; what the client itself was waited for is not counted. `headroom up` takes it from
    /// its own `slo.target_ms`; nothing where it is not known.
    #[serde(deserialize_with = "whole::milliseconds")]
    pub target_ms: Option<u64>,
    /// How long [`crate::Handle::shutdown`] waits for requests in flight unless told otherwise, in
    /// milliseconds. Default 30 000.
    pub drain_timeout_ms: u64,
    /// What the end (FIN) of an HTTP/1 client's side says while its request is answered. `false`, the default: nothing but that it
    /// sends no more; it gets its answer, and is gone once its connection is reset or broken. `true`: it is gone, and its
    /// request is cancelled: fewer answers to nobody, but clients that close their side early get none.
    pub cancel_on_fin: bool,
    /// Listen although another gateway of this user still listens on the same address: to take over from it
    /// without a refused connection. The kernel shares connections out between the two until the other one
    /// drains; what waits in the other's sockets then is lost unless they were inherited
    /// ([`crate::Gateway::bind_inheriting`]). Default false: an address in use is an error.
    pub takeover: bool,
    /// The user that `headroom up`, where it is root, has the data plane run as: a name or a number. Default: `headroom`
    /// where there is such a user, else `nobody`. [`crate::Gateway`] itself changes no user.
    pub user: Option<String>,
}

impl GatewayConfig {
    /// What its user should know where classes of importance are configured and not each has places of its own to wait.
    pub fn note_of_places(&self) -> Option<String> {
        let (names, places) = (crate::admission::names(&self.admission), self.limits.max_queued);
        let last = names.last().filter(|_| places < names.len())?;
        Some(match places {
            0 => "limits.max_queued is 0, so nobody waits, and the classes of [admission] change nothing: give places to wait".to_owned(),
            _ => format!(
                "limits.max_queued is {places} for {} classes of importance: the last, `{last}`, has a place to wait only where no other waits; \
                 give at least one for each class",
                names.len()
            ),
        })
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            http: Vec::new(),
            tls: Vec::new(),
            backends: Vec::new(),
            threads: 0,
            balance: Balance::LeastConnections,
            health: HealthConfig::default(),
            timeouts: TimeoutConfig::default(),
            retry: RetryConfig::default(),
            limits: LimitConfig::default(),
            admission: AdmissionConfig::default(),
            sources: SourceLimitConfig::default(),
            resolver: ResolverConfig::default(),
            forwarding: ForwardingConfig::default(),
            cache: CacheConfig::default(),
            batch: BatchConfig::default(),
            sizes: SizesConfig::default(),
            failed_status: FailedStatus::default(),
            failed_grpc_status: FailedGrpcStatus::default(),
            target_ms: None,
            drain_timeout_ms: 30_000,
            cancel_on_fin: false,
            takeover: false,
            user: None,
        }
    }
}

/// How a core chooses among the backends that may take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// In turn, in proportion to the weights, interleaved as evenly as the weights allow.
    #[serde(alias = "round-robin")]
    RoundRobin,
    /// The backend with the fewest requests in flight, of all cores, per unit of weight; of equals in turn, as above.
    #[serde(alias = "least-connections")]
    LeastConnections,
}

/// Which backends are thought to be alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthConfig {
    /// Path of the active check, e.g. `/healthz`; a 2xx or 3xx answer passes. Default none: no active check.
    pub path: Option<String>,
    /// Time between two active checks of one backend, in milliseconds. Default 2 000.
    pub interval_ms: u64,
    /// Longest an active check may take, in milliseconds. Default 1 000.
    pub timeout_ms: u64,
    /// Checks in a row that must pass before a backend counts as healthy again. Default 2.
    pub rise: u32,
    /// Checks in a row that must fail before a backend counts as unhealthy. Default 3.
    pub fall: u32,
    /// Passive ejection: a backend to which connections fail is passed over for this long, doubling each time that
    /// the one connection which then probes it fails too, in milliseconds. 0 turns passive ejection off. It is only a
    /// preference: a backend is tried all the same where no other is left. Default 200.
    pub ejection_ms: u64,
    /// The longest such ejection, in milliseconds. Default 10 000.
    pub ejection_max_ms: u64,
    /// Refused connections in a row (nobody listens, or there is no way there) after which a backend is ejected; 0
    /// for never. Default 1.
    pub eject_after_refusals: u32,
    /// Connections in a row that time out, with nothing else heard of the backend meanwhile, after which it is
    /// ejected; 0 for never. A backend that still answers other requests, or accepts other connections, is there and
    /// has a full accept queue: to pass it over would only make the others' overflow. Default 5.
    pub eject_after_timeouts: u32,
    /// Failures in exchanges with a backend (an answer with a `failed_status`, none in time, a fresh connection that died, an answer that
    /// broke off), seen by one core within 5 to 10 seconds, after which it is ejected if it clearly stands out: at least
    /// `eject_failure_percent` of its exchanges failed, twice the others' share, and more than chance makes. One request
    /// at a time then shows whether it is back. 0 for never. Default 5.
    pub eject_after_failures: u32,
    /// A backend of whose exchanges fewer fail is not ejected for that, 0 to 100 percent: to do without it costs more.
    /// Default 5.
    pub eject_failure_percent: u32,
    /// The largest share of the backends in service (up, with a weight) that may be away at one time, unhealthy ones
    /// included, for another one to be ejected because of timeouts or failures, 0 to 100 percent: the rest must not be overrun.
    /// Backends that refuse connections are always passed over: they could take nothing. Default 50.
    pub max_ejection_percent: u32,
    /// While fewer of the backends in service than this pass their active checks, 0 to 100 percent, the checks are
    /// disregarded: then it is rather overload that fails them, and one backend less fails the next. 0 for never.
    /// Default 50.
    pub panic_percent: u32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            path: None,
            interval_ms: 2_000,
            timeout_ms: 1_000,
            rise: 2,
            fall: 3,
            ejection_ms: 200,
            ejection_max_ms: 10_000,
            eject_after_refusals: 1,
            eject_after_timeouts: 5,
            eject_after_failures: 5,
            eject_failure_percent: 5,
            max_ejection_percent: 50,
            panic_percent: 50,
        }
    }
}

/// The ends of every wait. A sweep looks for what is overdue every tenth of the shortest of them (at least
/// every 5 ms, at most every 100 ms), so a timeout is late by up to two sweeps, never early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutConfig {
    /// Opening a connection to a backend, with TLS and the beginning of HTTP/2 where it has them, in milliseconds; past it the next backend is tried, and where none is left
    /// one that is alive, with a full accept queue, once more ([`RetryConfig::max_retries`]); then 504. Default 1 000.
    pub connect_timeout_ms: u64,
    /// Waiting for a backend below its limit of requests in flight, in milliseconds; then 503. Default 1 000.
    pub queue_timeout_ms: u64,
    /// From the last byte of the request sent to the backend until its response head, in milliseconds; then
    /// 504. Default 60 000.
    pub response_header_timeout_ms: u64,
    /// How long a backend may stay silent to `Expect: 100-continue` until the client is asked for the body all the same, in
    /// milliseconds (RFC 9110 section 10.1.1); 0 for at once. Default 1 000.
    pub expect_timeout_ms: u64,
    /// Longest pause in a request or response body, or in an upgraded connection's traffic while the gateway
    /// waits for either side, in milliseconds. Default 60 000.
    pub body_timeout_ms: u64,
    /// Bytes a second that a client must send of its request, and take of its answer, while it is the client that is waited
    /// for; below it the request is answered 408, the answer broken off. What the client's machine has acknowledged
    /// counts as taken. 0 for none. Default 240, as Kestrel's.
    pub min_client_rate_bytes_per_s: u64,
    /// The same of a client that holds a backend while other requests wait for one below its limit of requests in flight, after a
    /// grace of a second at most where it sends: so few slow ones do not keep all others out. 0 for none. Default 16 384.
    pub pressed_client_rate_bytes_per_s: u64,
    /// How long a client may be waited for before its rate counts, in milliseconds. Default 5 000.
    pub client_grace_ms: u64,
    /// Longest that a request may take, from its head to the last byte of its answer, the client's own time included, in
    /// milliseconds; then 408, 504, or the answer broken off. 0, the default, for none: the other bounds end what stands still.
    pub request_timeout_ms: u64,
    /// A connection's first request head, from its first byte to its last, and a TLS handshake, in
    /// milliseconds; then 408 or a closed connection. Default 10 000.
    pub request_header_timeout_ms: u64,
    /// A client's kept-alive connection without a request, in milliseconds. Default 75 000.
    pub idle_timeout_ms: u64,
    /// A backend's pooled connection without a request, in milliseconds. Keep it below the backend's own
    /// keep-alive timeout. Default 15 000.
    pub pool_idle_timeout_ms: u64,
    /// A connection to a backend over HTTP/2 on which nothing came for so long, with requests under way, is sent a PING, and closed, its
    /// requests broken off, if nothing comes for as long again: so a backend whose machine is gone is noticed. 0 for never. gRPC servers
    /// send away who pings without traffic more than twice, where they do not allow it (`PermitWithoutStream` and `MinTime` of grpc-go,
    /// 5 minutes by default): where streams are to be silent for longer, raise it. In milliseconds. Default 30 000.
    pub backend_ping_ms: u64,
    /// An upgraded connection (WebSocket) on which neither side sends anything, in milliseconds. Default
    /// 600 000.
    pub tunnel_idle_timeout_ms: u64,
}

impl Default for TimeoutConfig {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 1_000,
            queue_timeout_ms: 1_000,
            response_header_timeout_ms: 60_000,
            expect_timeout_ms: 1_000,
            body_timeout_ms: 60_000,
            min_client_rate_bytes_per_s: 240,
            pressed_client_rate_bytes_per_s: 16_384,
            client_grace_ms: 5_000,
            request_timeout_ms: 0,
            request_header_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            pool_idle_timeout_ms: 15_000,
            backend_ping_ms: 30_000,
            tunnel_idle_timeout_ms: 600_000,
        }
    }
}

/// Retries of requests that are safe to repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// How often one request may be repeated after its connection died without a whole head of an answer, or after a
    /// backend could not be connected to. A request that may have reached a backend is repeated only if its method is
    /// idempotent (RFC 9110 section 9.2.2) and its body was not begun; at another backend where there is one. Default 2.
    pub max_retries: u32,
    /// Of the requests of the last 5 to 10 seconds, so many percent may be repeated after they may have reached a backend,
    /// 0 to 100: a service that fails must not be sent its load several times over. Default 20.
    pub budget_percent: u32,
    /// So many a second may be repeated whatever the share, over all cores. Default 10.
    pub budget_min_per_s: u32,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_retries: 2,
            budget_percent: 20,
            budget_min_per_s: 10,
        }
    }
}

/// Bounds. What happens at each bound is part of its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Bytes of a request head (request line and headers), 8 192 to 1 048 576; larger is answered 431.
    /// Default 32 768.
    pub max_header_bytes: usize,
    /// Header fields of a request or response, 1 to 1 000; a request with more is answered 431, a response
    /// with more is a 502. Default 100.
    pub max_headers: usize,
    /// Interim answers (100, 102, 103 and other 1xx) of a backend before its final one; more are a 502. HTTP/1.1 clients are sent
    /// them; while a client does not read, as many wait for it as are in `max_header_bytes`, and others are dropped. Default 1 000.
    pub max_interim: u32,
    /// Bytes of a request body; larger is answered 413. A body passes as it comes, whatever its length, but for `request_buffer_bytes`. A number,
    /// or a text with a unit as `"2GiB"`; 0 or `"none"` for no limit. Default 1 GiB.
    #[serde(deserialize_with = "size::bytes_or_none")]
    pub max_request_body_bytes: u64,
    /// Bytes of a request's body that are taken before a backend is asked, so that a slow client holds no backend; a longer
    /// body goes on as it comes from there. Not of gRPC, nor of what expects `100-continue`. 0: each body goes on as it
    /// comes. Default 64 KiB.
    pub request_buffer_bytes: usize,
    /// Bytes of an answer that are read ahead of its client, so that a slow client gives its backend free; while others wait
    /// for a backend below its limit 64 times as many. Default 256 KiB.
    pub response_buffer_bytes: usize,
    /// Bytes of requests and answers that may be held so, over all cores (each core has an equal part); past them bodies go
    /// on as they come. Default 64 MiB.
    pub max_buffered_bytes: u64,
    /// Client connections per core; at the limit a core stops accepting and further connections wait in the
    /// kernel's accept queue. Default 16 384.
    pub max_connections_per_core: usize,
    /// Kept-alive connections per backend per core; one more is closed instead of kept. Default 256.
    pub max_idle_per_backend_per_core: usize,
    /// Requests in flight per backend over all cores, and with them the connections opened to it, those kept for later
    /// requests included. A request that finds every backend at its limit waits in the gateway. For a server
    /// that gives each connection a worker (Apache's prefork), set it to its workers plus as much of its accept
    /// queue as may fill: then an overload waits here, in turn, and not in SYNs that the server drops and TCP repeats
    /// after a second. An upgraded connection (a WebSocket's) is no longer a request and does not count, though it
    /// keeps its worker: set the limit lower by as many as there may be. Default 16 384.
    pub max_in_flight_per_backend: usize,
    /// Requests that may wait for a backend below its limit, over all cores, and as many again for another one than those to which they could
    /// not be connected; one more, or one that has waited `queue_timeout_ms`, is answered 503 with Retry-After. 0 for none.
    /// Default 1 024.
    pub max_queued: usize,
    /// Streams a client may have open on one HTTP/2 connection; more are refused by RST_STREAM. Default 128.
    pub max_concurrent_streams: u32,
    /// Bytes of one HTTP/2 stream's request body that a client may send ahead of the backend's reading; and of one stream's response
    /// body that a backend over HTTP/2 may send ahead of the client's reading (its connection has room for those of all streams, so
    /// that none blocks another). Default 65 535, which is also the protocol's.
    pub h2_window_bytes: u32,
    /// The same of all streams of a connection: so many uploads that stand still leave room for others as fit into it.
    /// Default 1 MiB.
    pub h2_connection_window_bytes: u32,
    /// Requests of one HTTP/2 connection that its client may cancel before they are answered, beyond those that it let be
    /// answered; one more closes the connection, for each can cost a backend a connection. 0 for no limit. Default 100.
    pub max_h2_resets: u32,
    /// Length of the kernel's accept queue per listener. Default 4 096 (the kernel caps it at somaxconn).
    pub listen_backlog: u32,
}

impl LimitConfig {
    /// Bytes that a request body may have.
    pub(crate) fn request_body(&self) -> u64 {
        match self.max_request_body_bytes {
            0 => u64::MAX,
            bytes => bytes,
        }
    }
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            max_header_bytes: 32_768,
            max_headers: 100,
            max_interim: 1_000,
            max_request_body_bytes: 1 << 30,
            request_buffer_bytes: 64 * 1024,
            response_buffer_bytes: 256 * 1024,
            max_buffered_bytes: 64 << 20,
            max_connections_per_core: 16_384,
            max_idle_per_backend_per_core: 256,
            max_in_flight_per_backend: 16_384,
            max_queued: 1_024,
            max_concurrent_streams: 128,
            h2_window_bytes: 65_535,
            h2_connection_window_bytes: 1 << 20,
            max_h2_resets: 100,
            listen_backlog: 4_096,
        }
    }
}

/// The cache of answers: a shared HTTP cache (RFC 9111) in memory.
///
/// Nothing is stored that its origin does not allow a shared cache to store, nor what sets a cookie without being `public`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Bytes of answers kept, with their header fields and the tables' own: past them what `policy` chooses goes. Bodies that are being
    /// fetched, or are gone from the cache and still read by a client, are beside them: together at most as many bytes again. Where there
    /// is no room for another it passes as its client reads it, and is not kept. 0, the default, for no cache. A number, or a text with a
    /// unit as `"64MiB"`.
    #[serde(deserialize_with = "size::bytes")]
    pub bytes: u64,
    /// Bytes of the largest body that is kept; larger ones pass. Default 1 MiB. Written as `bytes` is.
    #[serde(deserialize_with = "size::bytes")]
    pub max_object_bytes: u64,
    /// What goes when there is no more room. Default `s3-fifo`.
    pub policy: CachePolicy,
    /// Whether a request waits for another that fetches the same. `false`: only those of one batch do, as where a cache knows no
    /// such thing. Default `true`.
    pub collapse: bool,
    /// How long it waits for that, in milliseconds, and no longer than half of `target_ms` and half of what its client grants
    /// (`Prefer: wait`, `Grpc-Timeout`); past it it goes by itself. Default 5 000.
    pub collapse_timeout_ms: u64,
}

impl CacheConfig {
    /// The parts that the store is in, each behind a lock of its own. Each has [`OBJECTS_A_SHARD`] times the largest object, so that a
    /// small cache is one and its order of use one order.
    pub(crate) fn shards(&self) -> u64 {
        (self.bytes / (OBJECTS_A_SHARD * self.max_object_bytes).max(1)).clamp(1, MAX_SHARDS)
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            bytes: 0,
            max_object_bytes: 1 << 20,
            policy: CachePolicy::S3Fifo,
            collapse: true,
            collapse_timeout_ms: 5_000,
        }
    }
}

/// The batcher: requests that may be repeated are held for an interval and grouped by what they ask for; at its end the largest group goes
/// first. With a small cache behind it, more of them are then answered from memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchConfig {
    /// The interval, in milliseconds, at most `max_wait_ms` and half of `target_ms`. Absent, the default, there is no batcher. With 0 there is one
    /// that holds nothing until it is given another interval while it runs ([`crate::Handle::set_batch_interval`]), as by a law.
    pub interval_ms: Option<u64>,
    /// The longest that a request is held, whatever the interval, in milliseconds; no longer than `target_ms` either, but that its batch is
    /// let go. At most 60 000. Default 1 000.
    pub max_wait_ms: u64,
    /// Requests that may be held at once, over all cores (each core has an equal part, rounded up); one more passes at once. At most 1 048 576.
    /// Default 4 096.
    pub max_held: usize,
    /// What those have in common that go together. Default `target`.
    pub key: BatchKey,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            interval_ms: None,
            max_wait_ms: 1_000,
            max_held: 4_096,
            key: BatchKey::Target,
        }
    }
}

/// Classes of requests by the size of their answers. Each core learns what the answers of a route (method, host, path without query) have
/// of content; of a path that nobody asked for yet it goes by the others of its directory and extension, where their sizes agree. What is not
/// known is a class of its own. Where a class goes is set while the gateway runs ([`crate::Handle::set_routes`]), as by a law; until then
/// `balance` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SizesConfig {
    /// The largest content of each class but the last, in bytes, growing: `[4096, 65536]` makes three classes. At most 7. Empty, the
    /// default: sizes are not looked at.
    pub bounds_bytes: Vec<u64>,
    /// Routes that each core remembers, 64 to 1 048 576, each in 20 bytes; rounded up to a power of two. Past them new ones take the places of
    /// others that were asked for once, and of popular ones only what is asked for more often. Default 8 192.
    pub routes: usize,
}

impl SizesConfig {
    /// The classes whose size is known; 0 where sizes are not looked at.
    pub fn classes(&self) -> usize {
        match self.bounds_bytes.len() {
            0 => 0,
            bounds => bounds + 1,
        }
    }

    /// All classes, the one of requests whose size nobody knows included; 0 where sizes are not looked at.
    pub fn all_classes(&self) -> usize {
        match self.classes() {
            0 => 0,
            known => known + 1,
        }
    }
}

impl Default for SizesConfig {
    fn default() -> Self {
        Self {
            bounds_bytes: Vec::new(),
            routes: 8_192,
        }
    }
}

/// By what requests are grouped, beside method and host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchKey {
    /// Path and query.
    Target,
    /// The path alone: for services whose query says little of what is answered.
    Path,
}

/// What a full cache gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// What was not asked for for the longest time.
    Lru,
    /// What was asked for once and not again soon (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023): a
    /// visit to everything does not drive out what is popular.
    #[serde(rename = "s3-fifo", alias = "s3_fifo")]
    S3Fifo,
}

/// What to do with a header field that tells about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardPolicy {
    /// Trust what came and add to it: only behind another proxy of one's own.
    Append,
    /// Discard what came and write one's own.
    Replace,
    /// Discard what came and write nothing.
    Remove,
}

/// What the backend learns about the client and the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardingConfig {
    /// `X-Forwarded-For`, `-Proto` and `-Host`. With `append`, For is appended to, while Proto and Host are
    /// written only if absent. Default `replace`.
    pub x_forwarded: ForwardPolicy,
    /// `Forwarded` (RFC 7239). Default `remove`: most services read the X- fields, and one truth is enough.
    pub forwarded: ForwardPolicy,
    /// Add `Via: 1.1 headroom` (RFC 9110 section 7.6.3) to requests and responses. Default true.
    pub via: bool,
    /// `X-Forwarded-Client-Cert`: what a client's certificate says, where [`TlsListenConfig::client_ca`] asked for one. `replace`, the
    /// default: what came is discarded, and written where the client has shown a certificate:
    /// `Hash=<SHA-256 of its DER, hexadecimal>;Subject="<RFC 4514>";URI=<each>;DNS=<each>`, of the field's usual form (Envoy). `append`
    /// keeps what came before it: only behind another proxy of one's own. `remove` discards what came and writes nothing.
    pub client_certificate: ForwardPolicy,
    /// Pass the client's Host on; otherwise the backend's own authority is sent. Default true.
    pub preserve_host: bool,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        Self {
            x_forwarded: ForwardPolicy::Replace,
            forwarded: ForwardPolicy::Remove,
            client_certificate: ForwardPolicy::Replace,
            via: true,
            preserve_host: true,
        }
    }
}

impl GatewayConfig {
    /// All addresses to be listened on: those of `listen` in their order, then those of `tls`, then those of `http`; with what is said of
    /// TLS, and who may name another client.
    pub(crate) fn listeners(
        &self,
    ) -> impl Iterator<Item = (SocketAddr, Option<&TlsListenConfig>, Option<&[Network]>)> {
        let trusted = |proxy_protocol, trusted| if proxy_protocol { Some(trusted) } else { None };
        let plain = self.listen.iter().map(|address| (*address, None, None));
        let tls = self.tls.iter().map(move |tls| {
            let trusted = trusted(tls.proxy_protocol, &tls.trusted[..]);
            (tls.listen, Some(tls), trusted)
        });
        let http = self.http.iter().map(move |http| {
            let trusted = trusted(http.proxy_protocol, &http.trusted[..]);
            (http.listen, None, trusted)
        });
        plain.chain(tls).chain(http)
    }

    /// The addresses that are listened on.
    pub fn listen_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners().map(|(address, ..)| address)
    }

    /// Whether a backend's answer with this status has failed. One above 599 is no status, and counts as a 500: clients are to take it for
    /// a server's failure (RFC 9110 section 15).
    pub(crate) fn has_failed(&self, status: StatusCode) -> bool {
        self.failed_status.contains(match status.as_u16() {
            600.. => 500,
            status => status,
        })
    }

    /// The longest interval that its batcher can be given: `batch.max_wait_ms`, and not more than half of `target_ms`, for what is held for
    /// an interval may take another to be let go; `None` without a batcher.
    pub fn max_batch_interval(&self) -> Option<Duration> {
        self.batch.interval_ms?;
        let most = ms(self.batch.max_wait_ms);
        Some(self.target_ms.map_or(most, |target| most.min(ms(target) / 2)))
    }

    /// The bytes that its cache can be given while it runs: from what has room for one object of the largest size, with its head, in
    /// each part of the cache, to `cache.bytes`; `None` without a cache.
    pub fn cache_bytes_range(&self) -> Option<RangeInclusive<u64>> {
        let cache = &self.cache;
        let object = cache.max_object_bytes.saturating_add(CACHE_HEAD_BYTES);
        let least = cache.shards().saturating_mul(object).min(cache.bytes);
        (cache.bytes > 0).then_some(least..=cache.bytes)
    }

    /// The number of core threads that [`crate::Gateway::start`] will run: `threads`, or one per CPU for 0.
    pub fn core_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(MAX_THREADS),
            n => n,
        }
    }
}

/// A configured number of milliseconds as a duration.
pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
