//! The flags of `headroom gateway` that set keys of its configuration, by what they are about.

use super::backends::SpokenFlags;
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use headroom_console::args::{milliseconds, size, socket_address, whole_content_bytes};
use headroom_gateway::{
    BackendConfig, BatchKey, CachePolicy, CertificateConfig, GatewayConfig, HttpListenConfig, MAX_WEIGHT,
    Network, TlsListenConfig,
};
use headroom_units::FailedStatus;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A configuration on which flags are put, and which flag each key is given by.
pub struct Given {
    /// What they are put on.
    pub config: GatewayConfig,
    /// Each key that has a flag, and its flag.
    names: Vec<(&'static str, &'static str)>,
    /// The keys that were given.
    keys: Vec<&'static str>,
}

impl Given {
    /// Nothing is given yet.
    pub fn new(config: GatewayConfig) -> Self {
        Self {
            config,
            names: vec![("cache", "--cache"), ("batch", "--batch")],
            keys: Vec::new(),
        }
    }

    /// The flag of a key, where it has one.
    pub fn flag(&self, key: &str) -> Option<&'static str> {
        let key = bare(key);
        let named = self.names.iter().find(|(known, _)| *known == key);
        named.map(|(_, flag)| *flag)
    }

    /// Whether a key was given by its flag.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains(&&*bare(key))
    }

    /// A text in which keys stand between backticks, with the flags of those that have one.
    pub fn in_flags(&self, text: &str) -> String {
        let mut said = text.to_owned();
        for (key, flag) in &self.names {
            said = said.replace(&format!("`{key}`"), flag);
        }
        said
    }

    /// Sets a key where its flag is given.
    pub fn set<T>(
        &mut self,
        key: &'static str,
        flag: &'static str,
        value: Option<T>,
        put: impl FnOnce(&mut GatewayConfig, T),
    ) {
        self.names.push((key, flag));
        if let Some(value) = value {
            put(&mut self.config, value);
            self.keys.push(key);
        }
    }
}

/// A key without the numbers of the entries of lists: `tls.certificates.key` of `tls[0].certificates[2].key`.
fn bare(key: &str) -> String {
    let mut parts = key.split('[');
    let first = parts.next().unwrap_or_default();
    parts.fold(first.to_owned(), |bare, part| {
        bare + part.split_once(']').map_or(part, |(_, rest)| rest)
    })
}

/// Several values, where any is given.
fn several<T: Clone>(values: &[T]) -> Option<Vec<T>> {
    (!values.is_empty()).then(|| values.to_vec())
}

/// `http://HOST:PORT` or `https://HOST:PORT`, and `,weight=N` after it.
fn backend(text: &str) -> Result<BackendConfig, String> {
    let mut parts = text.split(',');
    let mut backend = BackendConfig::new(parts.next().unwrap_or_default());
    for part in parts {
        let weight = part.trim().strip_prefix("weight=").map(str::parse);
        let Some(Ok(weight)) = weight else {
            return Err(format!(
                "{part:?} is nothing to be said of a backend: write http://HOST:PORT or http://HOST:PORT,weight=3"
            ));
        };
        if weight > MAX_WEIGHT {
            return Err(format!(
                "weight={weight}: allowed is 0 to {MAX_WEIGHT}, the share beside the other backends'"
            ));
        }
        backend.weight = weight;
    }
    Ok(backend)
}

/// A number of bytes, or `none`.
fn size_or_none(text: &str) -> Result<ByteSize, String> {
    match text.trim() {
        "none" => Ok(ByteSize(0)),
        text => size(text).map_err(|why| format!("{why}, or none")),
    }
}

/// What is listened on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub struct ListenFlags {
    /// Address to serve HTTP/1.1 and cleartext HTTP/2 on. May be given more than once.
    #[arg(long, value_name = "ADDR", value_parser = socket_address, required_unless_present_any = ["launched", "config", "example", "tls_listen"])]
    listen: Vec<SocketAddr>,
    /// Address to serve HTTPS on (HTTP/1.1 and HTTP/2 by ALPN); needs --tls-cert and --tls-key.
    #[arg(long, value_name = "ADDR", value_parser = socket_address, requires_all = ["tls_cert", "tls_key"])]
    tls_listen: Option<SocketAddr>,
    /// Certificate chain, PEM. May be given more than once, each with its --tls-key: a client is shown the one with the name that it asks
    /// for (SNI), and the first where none has it. Read again when the file changes, and at SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_cert: Vec<PathBuf>,
    /// Private key, PEM; the first of the first --tls-cert, and so on.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_key: Vec<PathBuf>,
    /// Authorities whose client certificates are accepted, PEM (mutual TLS); backends learn of a client's by X-Forwarded-Client-Cert.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_client_ca: Option<PathBuf>,
    /// Let clients in that have no certificate, too.
    #[arg(long, requires = "tls_client_ca")]
    tls_client_optional: bool,
    /// Take each connection for one of a proxy that sends the PROXY protocol (version 1 or 2), and the address in it for the client's:
    /// the proxies' addresses or networks, as 10.0.0.0/8, with commas between them. Connections from elsewhere are closed.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    proxy_protocol_from: Vec<Network>,
    /// Threads, each with its own runtime, listener and connection pools; 0: one for each processor. By default 1, and as --config says.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Take over from the gateways of this user and run folder that listen on these addresses, without a lost connection: they hand
    /// over their listening sockets, and as soon as this one serves they finish what they serve, and end. --control must be another
    /// address than theirs. One that gives no sockets (an earlier version, another run folder) is listened beside, for you to stop then:
    /// what waits in its sockets when it closes them may be reset. Without this an address in use is an error.
    #[arg(long)]
    takeover: bool,
}

impl ListenFlags {
    /// Puts what is given on a configuration.
    ///
    /// # Errors
    /// A certificate without a key.
    pub fn put(&self, on: &mut Given) -> Result<(), String> {
        if self.tls_cert.len() != self.tls_key.len() {
            return Err(format!(
                "--tls-cert is given {} times and --tls-key {} times: each certificate has a key",
                self.tls_cert.len(),
                self.tls_key.len()
            ));
        }
        on.set("listen", "--listen", several(&self.listen), |it, listen| {
            it.listen = listen
        });
        let certificates =
            self.tls_cert
                .iter()
                .zip(&self.tls_key)
                .map(|(certificate, key)| CertificateConfig {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    names: Vec::new(),
                });
        let tls = self.tls_listen.map(|listen| TlsListenConfig {
            certificates: certificates.collect(),
            client_ca: self.tls_client_ca.clone(),
            require: !self.tls_client_optional,
            ..TlsListenConfig::without_certificate(listen)
        });
        let is_tls = || self.tls_listen.map(|_| ());
        on.set("tls", "--tls-listen", tls, |it, tls| it.tls = vec![tls]);
        for (key, flag) in [
            ("tls.listen", "--tls-listen"),
            ("tls.certificates.certificate", "--tls-cert"),
            ("tls.certificates.key", "--tls-key"),
            ("tls.client_ca", "--tls-client-ca"),
        ] {
            on.set(key, flag, is_tls(), |_, ()| {});
        }
        let trusted = several(&self.proxy_protocol_from);
        on.set("http", "--proxy-protocol-from", trusted, |it, trusted| {
            // Those of the file that say so by themselves keep their own.
            for tls in it.tls.iter_mut().filter(|tls| !tls.proxy_protocol) {
                tls.proxy_protocol = true;
                tls.trusted.clone_from(&trusted);
            }
            let plain = it.listen.drain(..).map(|listen| HttpListenConfig {
                proxy_protocol: true,
                trusted: trusted.clone(),
                ..HttpListenConfig::new(listen)
            });
            it.http.extend(plain);
        });
        // Where the flags alone say what is, each is one of --listen that --proxy-protocol-from has moved.
        on.set("http.listen", "--listen", None::<()>, |_, ()| {});
        on.set("threads", "--threads", self.threads, |it, threads| {
            it.threads = threads
        });
        on.set(
            "takeover",
            "--takeover",
            self.takeover.then_some(true),
            |it, takeover| it.takeover = takeover,
        );
        Ok(())
    }
}

/// Where requests go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Backends")]
pub struct BackendFlags {
    /// A backend, as http://HOST:PORT, https://HOST:PORT or http://HOST:PORT,weight=3 (its share beside the others', 0 to 1000, by default 1). May be given
    /// more than once. All addresses of a name are used in turn, and looked up again when their time to live is over.
    #[arg(long, value_name = "URL", value_parser = backend, required_unless_present_any = ["launched", "config", "example"])]
    backend: Vec<BackendConfig>,
    /// How they are spoken to.
    #[command(flatten)]
    spoken: SpokenFlags,
    /// How a backend is chosen. By default least-connections, and as --config says.
    #[arg(long, value_enum)]
    balance: Option<Balance>,
    /// Path to ask each backend for; a backend that does not answer it is left out, unless most do not.
    #[arg(long, value_name = "PATH")]
    health: Option<String>,
    /// How often that is asked, in milliseconds. By default 2000.
    #[arg(long, value_name = "MS", value_parser = milliseconds, requires = "has_health")]
    health_interval: Option<u64>,
    /// Kept-alive connections to each backend, for each thread, by default 256. With 0 each request is a connection of its own, so that a
    /// backend's accept queue sees every request (which `headroom resize` can go by).
    #[arg(long, value_name = "N")]
    backend_idle: Option<usize>,
    /// Requests in flight to each backend, and with them connections; more wait in the gateway, in turn. For a server that
    /// gives each connection a worker: its workers, and as much of its accept queue as may fill. By default 16384.
    #[arg(long, value_name = "N")]
    max_in_flight: Option<usize>,
    /// How many requests may wait so, for --queue-timeout each; the answer to the others is 503. By default 1024.
    #[arg(long, value_name = "N")]
    max_queued: Option<usize>,
    /// How often a request that is safe to repeat is repeated, where a backend cannot be connected to or a kept connection ended. By
    /// default 2.
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// Statuses of a backend's answer with which a request counts as failed, so that it misses the SLO: the classes 4xx
    /// and 5xx, and single statuses, with commas between them. By default 5xx.
    #[arg(long, value_name = "LIST")]
    failed_status: Option<FailedStatus>,
    /// The latency SLO, in milliseconds: a client that goes away after it has waited longer for an answer counts as
    /// failed by the backend.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    target_ms: Option<u64>,
    /// Tell requests apart by the size of their answers: the largest content of each class but the last, growing, with commas
    /// between them (4K,64K or 4096,65536 makes three classes; at most 7). Each thread learns what the answers of a method, host and path have, and a
    /// controller's law may send each class to backends of its own, over --control. By default sizes are not looked at.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = whole_content_bytes)]
    size_bounds: Vec<u64>,
}

impl BackendFlags {
    /// Puts what is given on a configuration.
    pub fn put(&self, on: &mut Given) {
        on.set("backends", "--backend", several(&self.backend), |it, backends| {
            it.backends = backends
        });
        for key in ["backends.url", "backends.weight"] {
            on.set(key, "--backend", several(&self.backend), |_, _| {});
        }
        self.spoken.put(on);
        on.set("balance", "--balance", self.balance, |it, balance| {
            it.balance = match balance {
                Balance::RoundRobin => headroom_gateway::Balance::RoundRobin,
                Balance::LeastConnections => headroom_gateway::Balance::LeastConnections,
            };
        });
        on.set("health.path", "--health", self.health.clone(), |it, path| {
            it.health.path = Some(path)
        });
        on.set(
            "health.interval_ms",
            "--health-interval",
            self.health_interval,
            |it, ms| {
                it.health.interval_ms = ms;
            },
        );
        on.set(
            "limits.max_idle_per_backend_per_core",
            "--backend-idle",
            self.backend_idle,
            |it, most| {
                it.limits.max_idle_per_backend_per_core = most;
            },
        );
        on.set(
            "limits.max_in_flight_per_backend",
            "--max-in-flight",
            self.max_in_flight,
            |it, most| {
                it.limits.max_in_flight_per_backend = most;
            },
        );
        on.set(
            "limits.max_queued",
            "--max-queued",
            self.max_queued,
            |it, most| it.limits.max_queued = most,
        );
        on.set("retry.max_retries", "--retries", self.retries, |it, most| {
            it.retry.max_retries = most
        });
        on.set(
            "failed_status",
            "--failed-status",
            self.failed_status,
            |it, failed| it.failed_status = failed,
        );
        on.set("target_ms", "--target-ms", self.target_ms, |it, ms| {
            it.target_ms = Some(ms)
        });
        on.set(
            "sizes.bounds_bytes",
            "--size-bounds",
            several(&self.size_bounds),
            |it, bounds| {
                it.sizes.bounds_bytes = bounds;
            },
        );
    }
}

/// How a backend is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Balance {
    /// In turn, by weight.
    #[value(alias = "round_robin")]
    RoundRobin,
    /// The one with the fewest requests in flight, by weight.
    #[value(alias = "least_connections")]
    LeastConnections,
}

/// What is limited, and for how long is waited.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits and timeouts")]
pub struct LimitFlags {
    /// The largest request body, as 2GiB; a larger one is answered 413. It passes as it comes. By default
    /// 1GiB; none, or 0: no limit.
    #[arg(long, value_name = "SIZE", value_parser = size_or_none)]
    max_request_body: Option<ByteSize>,
    /// The largest head of a request, as 32KiB (8KiB to 1MiB); a larger one is answered 431. By default 32KiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_header: Option<ByteSize>,
    /// Client connections of each thread; more wait in the kernel. By default 16384.
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Connections that one source may have open, over all threads: an IPv4 address, or the first 64 bits of an IPv6 address. One more
    /// is closed. By default no limit.
    #[arg(long, value_name = "N")]
    source_connections: Option<u32>,
    /// Connections a second that one source may open; one more is closed. By default no limit.
    #[arg(long, value_name = "N")]
    source_connects_per_s: Option<u32>,
    /// Requests a second that one source may send; one more is answered 429. By default no limit.
    #[arg(long, value_name = "N")]
    source_requests_per_s: Option<u32>,
    /// The longest that a connection to a backend may take to open, in milliseconds. By default 1000.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    connect_timeout: Option<u64>,
    /// The longest that a request waits for a backend below --max-in-flight, in milliseconds; then 503. By default 1000.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    queue_timeout: Option<u64>,
    /// The longest from a request that is sent to the head of its answer, in milliseconds; then 504. By default 60000.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    response_timeout: Option<u64>,
    /// The longest pause in a body, in milliseconds. By default 60000.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    body_timeout: Option<u64>,
    /// The longest that a request's head, a TLS handshake or a PROXY header may take, in milliseconds; then 408, or the end. By default
    /// 10000.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    header_timeout: Option<u64>,
    /// The longest that a client's connection is kept without a request, in milliseconds. By default 75000.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    idle_timeout: Option<u64>,
}

impl LimitFlags {
    /// Puts what is given on a configuration.
    pub fn put(&self, on: &mut Given) {
        let body = self.max_request_body.map(|size| size.as_u64());
        on.set(
            "limits.max_request_body_bytes",
            "--max-request-body",
            body,
            |it, bytes| {
                it.limits.max_request_body_bytes = bytes;
            },
        );
        let header = self
            .max_header
            .map(|size| usize::try_from(size.as_u64()).unwrap_or(usize::MAX));
        on.set("limits.max_header_bytes", "--max-header", header, |it, bytes| {
            it.limits.max_header_bytes = bytes;
        });
        on.set(
            "limits.max_connections_per_core",
            "--max-connections",
            self.max_connections,
            |it, most| {
                it.limits.max_connections_per_core = most;
            },
        );
        on.set(
            "sources.max_connections",
            "--source-connections",
            self.source_connections,
            |it, most| {
                it.sources.max_connections = most;
            },
        );
        on.set(
            "sources.connections_per_s",
            "--source-connects-per-s",
            self.source_connects_per_s,
            |it, rate| {
                it.sources.connections_per_s = rate;
            },
        );
        on.set(
            "sources.requests_per_s",
            "--source-requests-per-s",
            self.source_requests_per_s,
            |it, rate| {
                it.sources.requests_per_s = rate;
            },
        );
        on.set(
            "timeouts.connect_timeout_ms",
            "--connect-timeout",
            self.connect_timeout,
            |it, ms| {
                it.timeouts.connect_timeout_ms = ms;
            },
        );
        on.set(
            "timeouts.queue_timeout_ms",
            "--queue-timeout",
            self.queue_timeout,
            |it, ms| {
                it.timeouts.queue_timeout_ms = ms;
            },
        );
        on.set(
            "timeouts.response_header_timeout_ms",
            "--response-timeout",
            self.response_timeout,
            |it, ms| {
                it.timeouts.response_header_timeout_ms = ms;
            },
        );
        on.set(
            "timeouts.body_timeout_ms",
            "--body-timeout",
            self.body_timeout,
            |it, ms| {
                it.timeouts.body_timeout_ms = ms;
            },
        );
        on.set(
            "timeouts.request_header_timeout_ms",
            "--header-timeout",
            self.header_timeout,
            |it, ms| {
                it.timeouts.request_header_timeout_ms = ms;
            },
        );
        on.set(
            "timeouts.idle_timeout_ms",
            "--idle-timeout",
            self.idle_timeout,
            |it, ms| {
                it.timeouts.idle_timeout_ms = ms;
            },
        );
    }
}

/// What is answered from memory, and what is held.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cache and batcher")]
pub struct FrontFlags {
    /// Answer from memory what may be: a shared HTTP cache (RFC 9111) of so many bytes, as 64MiB. What is stored, and for how
    /// long, the service's Cache-Control says; where it says nothing and the answer has a Last-Modified, a tenth of its age, at most a day
    /// (RFC 9111, 4.2.2): a service whose pages differ by Cookie must say so, by `Vary: Cookie` or `Cache-Control: private`. Each answer's
    /// Cache-Status says how it came about. A controller's law may make it
    /// smaller, over --control. By default none.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<ByteSize>,
    /// The largest body that is kept. By default 1MiB.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "has_cache")]
    cache_object: Option<ByteSize>,
    /// What goes when the cache is full. By default s3-fifo.
    #[arg(long, value_enum, value_name = "POLICY", requires = "has_cache")]
    cache_policy: Option<Policy>,
    /// Let every request fetch what the cache has not: by default a request waits for another that fetches the same. With --batch those
    /// of one batch still do.
    #[arg(long, requires = "has_cache")]
    cache_no_collapse: bool,
    /// Hold GET and HEAD requests until the end of intervals of so many milliseconds, grouped by what they ask for; then the largest
    /// group goes first. What the cache can answer is held too. For a small --cache before a slow service under heavy load; it makes light
    /// load slower. At most half of --target-ms, and --batch-max-wait, and of a request at most the wait that it grants by `Prefer: wait`,
    /// `grpc-timeout` or `x-envoy-expected-rq-timeout-ms`. With 0 none is held until a controller's law sets an interval, over --control. By
    /// default there is no batcher.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    batch: Option<u64>,
    /// The longest that a request is held, whatever interval a controller's law sets, in milliseconds. By default 1000.
    #[arg(long, value_name = "MS", value_parser = milliseconds, requires = "has_batch")]
    batch_max_wait: Option<u64>,
    /// How many requests may be held at once; one more passes at once. Where the backends' accept queues are short, give
    /// --max-in-flight too: what their workers take. By default 4096.
    #[arg(long, value_name = "N", requires = "has_batch")]
    batch_max_held: Option<usize>,
    /// What those have in common that go together, beside method and host. By default target.
    #[arg(long, value_enum, value_name = "KEY", requires = "has_batch")]
    batch_key: Option<Key>,
}

impl FrontFlags {
    /// Puts what is given on a configuration.
    pub fn put(&self, on: &mut Given) {
        let bytes = self.cache.map(|size| size.as_u64());
        on.set("cache.bytes", "--cache", bytes, |it, bytes| {
            it.cache.bytes = bytes
        });
        let object = self.cache_object.map(|size| size.as_u64());
        on.set("cache.max_object_bytes", "--cache-object", object, |it, bytes| {
            it.cache.max_object_bytes = bytes
        });
        on.set(
            "cache.policy",
            "--cache-policy",
            self.cache_policy,
            |it, policy| {
                it.cache.policy = match policy {
                    Policy::Lru => CachePolicy::Lru,
                    Policy::S3Fifo => CachePolicy::S3Fifo,
                };
            },
        );
        let apart = self.cache_no_collapse.then_some(false);
        on.set("cache.collapse", "--cache-no-collapse", apart, |it, collapse| {
            it.cache.collapse = collapse
        });
        on.set("batch.interval_ms", "--batch", self.batch, |it, ms| {
            it.batch.interval_ms = Some(ms)
        });
        on.set(
            "batch.max_wait_ms",
            "--batch-max-wait",
            self.batch_max_wait,
            |it, ms| it.batch.max_wait_ms = ms,
        );
        on.set(
            "batch.max_held",
            "--batch-max-held",
            self.batch_max_held,
            |it, most| it.batch.max_held = most,
        );
        on.set("batch.key", "--batch-key", self.batch_key, |it, key| {
            it.batch.key = match key {
                Key::Target => BatchKey::Target,
                Key::Path => BatchKey::Path,
            };
        });
    }
}

/// What a full cache gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// What was not asked for for the longest time.
    Lru,
    /// What was asked for once and not again soon: a visit to everything does not drive out what is popular.
    #[value(alias = "s3_fifo")]
    S3Fifo,
}

/// By what requests are held together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Key {
    /// Path and query.
    Target,
    /// The path alone: for services whose query says little of what is answered.
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_a_weight_where_it_is_written() {
        let with = |text: &str| backend(text).map(|backend| (backend.url, backend.weight));
        assert_eq!(with("http://a:1"), Ok(("http://a:1".to_owned(), 1)));
        assert_eq!(with("http://a:1,weight=7"), Ok(("http://a:1".to_owned(), 7)));
        let why = with("http://a:1,weight=5000").unwrap_err();
        assert_eq!(
            why,
            "weight=5000: allowed is 0 to 1000, the share beside the other backends'"
        );
        for bad in ["http://a:1,7", "http://a:1,weight=-1", "http://a:1,waight=7"] {
            assert!(with(bad).unwrap_err().contains("weight=3"), "{bad}");
        }
    }

    #[test]
    fn a_key_is_the_same_whatever_the_number_of_its_entry() {
        for (key, wanted) in [
            ("threads", "threads"),
            ("listen[3]", "listen"),
            ("tls[0].certificates[12].key", "tls.certificates.key"),
        ] {
            assert_eq!(bare(key), wanted);
        }
    }

    #[test]
    fn a_size_may_be_none() {
        assert_eq!(size_or_none("none"), Ok(ByteSize(0)));
        assert_eq!(size_or_none("2GiB"), Ok(ByteSize(2 << 30)));
        assert_eq!(size_or_none("0"), Ok(ByteSize(0)));
        assert!(size_or_none("64").unwrap_err().ends_with("or none"));
    }
}
