//! `headroom gateway`: the data plane alone.

use crate::config::agent::{TlsConfig, listen_of_flags};
use anyhow::{Context, anyhow};
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::args::{milliseconds, seconds_or_none, size, whole_content_bytes};
use headroom_console::say;
use headroom_gateway::{
    BackendConfig, BatchConfig, BatchKey, CacheConfig, CachePolicy, Gateway, GatewayConfig, GatewayError,
    Handle, HealthConfig, LimitConfig, SizesConfig, TlsListenConfig,
};
use headroom_runtime::cluster::gateway_port::BoundPort;
use headroom_runtime::door::hand_over::{self, NEW_SOCKETS, Offer, Taken};
use headroom_runtime::live::{GatewayTelemetry, ReportedLatency, Telemetry, undo};
use headroom_runtime::{descriptors, door};
use headroom_units::FailedStatus;
use headroom_wire::access::Rules;
use headroom_wire::server::Listen;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `headroom gateway`.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Address to serve HTTP/1.1 and cleartext HTTP/2 on. May be given more than once.
    #[arg(long, value_name = "ADDR", required_unless_present = "launched")]
    pub listen: Vec<SocketAddr>,
    /// A backend, as http://HOST:PORT. May be given more than once.
    #[arg(long, value_name = "URL", required_unless_present = "launched")]
    pub backend: Vec<String>,
    /// Threads, each with its own runtime, listener and connection pools.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
    /// Take over from the gateways of this user and run folder that listen on these addresses, without a lost connection: they hand
    /// over their listening sockets, and as soon as this one serves they finish what they serve, and end. --control must be another
    /// address than theirs. One that gives no sockets (an earlier version, another run folder) is listened beside, for you to stop then:
    /// what waits in its sockets when it closes them may be reset. Without this an address in use is an error.
    #[arg(long)]
    pub takeover: bool,
    /// Folder where a successor finds this gateway to take over from it. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Become this user, without any privilege, as soon as all is listened on: for a gateway that is started by root. Files of
    /// certificates that it cannot read then are not read again when they change.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// How a backend is chosen.
    #[arg(long, value_enum, default_value_t = Balance::LeastConnections)]
    pub balance: Balance,
    /// Address to serve HTTPS on (HTTP/1.1 and HTTP/2 by ALPN); needs --tls-cert and --tls-key.
    #[arg(long, value_name = "ADDR", requires_all = ["tls_cert", "tls_key"])]
    pub tls_listen: Option<SocketAddr>,
    /// Certificate chain, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub tls_cert: Option<PathBuf>,
    /// Private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub tls_key: Option<PathBuf>,
    /// Path to ask each backend for every 2 s; a backend that does not answer it is left out, unless most do not.
    #[arg(long, value_name = "PATH")]
    pub health: Option<String>,
    /// Kept-alive connections to each backend, for each thread. With 0 each request is a connection of its own, so that a
    /// backend's accept queue sees every request (which `headroom resize` can go by).
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub backend_idle: usize,
    /// Requests in flight to each backend, and with them connections; more wait in the gateway, in turn. For a server that
    /// gives each connection a worker: its workers, and as much of its accept queue as may fill.
    #[arg(long, default_value_t = LimitConfig::default().max_in_flight_per_backend, value_name = "N")]
    pub max_in_flight: usize,
    /// How many requests may wait so, for a second each; the answer to the others is 503.
    #[arg(long, default_value_t = LimitConfig::default().max_queued, value_name = "N")]
    pub max_queued: usize,
    /// Answer from memory what may be: a shared HTTP cache (RFC 9111) of so many bytes, as 64MiB. What is stored, and for how
    /// long, the service's Cache-Control says; where it says nothing and the answer has a Last-Modified, a tenth of its age, at most a day
    /// (RFC 9111, 4.2.2): a service whose pages differ by Cookie must say so, by `Vary: Cookie` or `Cache-Control: private`. Each answer's
    /// Cache-Status says how it came about. A controller's law may make it
    /// smaller, over --control. By default none.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache: Option<ByteSize>,
    /// The largest body that is kept.
    #[arg(long, default_value_t = ByteSize(CacheConfig::default().max_object_bytes), value_name = "SIZE", value_parser = size, requires = "cache")]
    pub cache_object: ByteSize,
    /// What goes when the cache is full.
    #[arg(long, value_enum, default_value_t = Policy::S3Fifo, value_name = "POLICY", requires = "cache")]
    pub cache_policy: Policy,
    /// Let every request fetch what the cache has not: by default a request waits for another that fetches the same. With --batch those
    /// of one batch still do.
    #[arg(long, requires = "cache")]
    pub cache_no_collapse: bool,
    /// Hold GET and HEAD requests until the end of intervals of so many milliseconds, grouped by what they ask for; then the largest
    /// group goes first. What the cache can answer is held too. For a small --cache before a slow service under heavy load; it makes light
    /// load slower. At most half of --target-ms, and --batch-max-wait, and of a request at most the wait that it grants by `Prefer: wait`,
    /// `grpc-timeout` or `x-envoy-expected-rq-timeout-ms`. With 0 none is held until a controller's law sets an interval, over --control. By
    /// default there is no batcher.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub batch: Option<u64>,
    /// The longest that a request is held, whatever interval a controller's law sets, in milliseconds.
    #[arg(long, default_value_t = BatchConfig::default().max_wait_ms, value_name = "MS", value_parser = milliseconds, requires = "batch")]
    pub batch_max_wait: u64,
    /// How many requests may be held at once; one more passes at once. Where the backends' accept queues are short, give
    /// --max-in-flight too: what their workers take.
    #[arg(long, default_value_t = BatchConfig::default().max_held, value_name = "N", requires = "batch")]
    pub batch_max_held: usize,
    /// What those have in common that go together, beside method and host.
    #[arg(long, value_enum, default_value_t = Key::Target, value_name = "KEY", requires = "batch")]
    pub batch_key: Key,
    /// Tell requests apart by the size of their answers: the largest content of each class but the last, growing, with commas
    /// between them (4K,64K or 4096,65536 makes three classes; at most 7). Each thread learns what the answers of a method, host and path have, and a
    /// controller's law may send each class to backends of its own, over --control. By default sizes are not looked at.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = whole_content_bytes)]
    pub size_bounds: Vec<u64>,
    /// Statuses of a backend's answer with which a request counts as failed, so that it misses the SLO: the classes 4xx
    /// and 5xx, and single statuses, with commas between them.
    #[arg(long, default_value_t = FailedStatus::default(), value_name = "LIST")]
    pub failed_status: FailedStatus,
    /// The latency SLO, in milliseconds: a client that goes away after it has waited longer for an answer counts as
    /// failed by the backend.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub target_ms: Option<u64>,
    /// Let a controller observe and command this gateway here: unix:/path, or an IP address and a port with
    /// certificates. May be given more than once.
    #[arg(long, value_name = "ADDR")]
    pub control: Vec<String>,
    /// For --control over TCP: the authority's certificate, as `headroom certs` makes it.
    #[arg(long, value_name = "FILE", requires_all = ["control", "control_cert", "control_key"])]
    pub control_ca: Option<PathBuf>,
    /// For --control over TCP: this gateway's certificate (`headroom certs issue-node`).
    #[arg(long, value_name = "FILE", requires = "control_ca")]
    pub control_cert: Option<PathBuf>,
    /// For --control over TCP: the key to it.
    #[arg(long, value_name = "FILE", requires = "control_ca")]
    pub control_key: Option<PathBuf>,
    /// For --control over TCP: the authority's revocation list (`headroom certs revoke`).
    #[arg(long, value_name = "FILE", requires = "control_ca")]
    pub control_revoked: Option<PathBuf>,
    /// For --control: who may command, by the name of a certificate or as uid:NUMBER over a Unix socket. May be given more
    /// than once. By default certificates of `headroom certs issue-controller`, and the socket's owner and root.
    #[arg(long, value_name = "NAME", requires = "control")]
    pub control_operator: Vec<String>,
    /// For --control: who may ask what the gateway is, and nothing else. By default certificates of
    /// `headroom certs issue-reader`.
    #[arg(long, value_name = "NAME", requires = "control")]
    pub control_reader: Vec<String>,
    /// Take everything from standard input, as `headroom up` sends it, which starts this.
    #[arg(long, hide = true, exclusive = true)]
    pub launched: bool,
    /// How long to wait for requests being served when asked to stop, in seconds.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = seconds_or_none)]
    pub drain: f64,
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

/// Serves until a signal comes, then drains.
///
/// # Errors
/// A value that makes no sense, an address that cannot be listened on.
pub fn run(args: &GatewayArgs) -> Result<(), Failure> {
    if args.launched {
        // Before any thread is started: privileges are a thread's.
        return door::serve_launched();
    }
    descriptors::raise_limit();
    let tls = args
        .tls_listen
        .zip(args.tls_cert.clone())
        .zip(args.tls_key.clone());
    let config = GatewayConfig {
        listen: args.listen.clone(),
        tls: tls
            .map(|((listen, certificate), key)| TlsListenConfig {
                listen,
                certificate,
                key,
            })
            .into_iter()
            .collect(),
        backends: args.backend.iter().map(BackendConfig::new).collect(),
        threads: args.threads,
        takeover: args.takeover,
        failed_status: args.failed_status,
        target_ms: args.target_ms,
        balance: Some(match args.balance {
            Balance::RoundRobin => headroom_gateway::Balance::RoundRobin,
            Balance::LeastConnections => headroom_gateway::Balance::LeastConnections,
        }),
        health: HealthConfig {
            path: args.health.clone(),
            ..HealthConfig::default()
        },
        limits: LimitConfig {
            max_idle_per_backend_per_core: args.backend_idle,
            max_in_flight_per_backend: args.max_in_flight,
            max_queued: args.max_queued,
            ..LimitConfig::default()
        },
        batch: BatchConfig {
            interval_ms: args.batch,
            max_wait_ms: args.batch_max_wait,
            max_held: args.batch_max_held,
            key: match args.batch_key {
                Key::Target => BatchKey::Target,
                Key::Path => BatchKey::Path,
            },
        },
        sizes: SizesConfig {
            bounds_bytes: args.size_bounds.clone(),
            ..SizesConfig::default()
        },
        cache: CacheConfig {
            bytes: args.cache.map_or(0, |size| size.as_u64()),
            max_object_bytes: args.cache_object.as_u64(),
            policy: match args.cache_policy {
                Policy::Lru => CachePolicy::Lru,
                Policy::S3Fifo => CachePolicy::S3Fifo,
            },
            collapse: !args.cache_no_collapse,
            ..CacheConfig::default()
        },
        ..GatewayConfig::default()
    };
    let control = control_places(args)?;
    if args.batch == Some(0) && control.is_empty() {
        say::note!(
            "note: --batch 0 holds nothing, and without --control no law can ever set another interval: give --control"
        );
    }
    if !args.size_bounds.is_empty() && control.is_empty() {
        say::note!(
            "note: --size-bounds only counts, and without --control nobody reads that, nor can a law ever place requests: give --control"
        );
    }
    if args.batch.is_some_and(|ms| ms > 0) && args.cache.is_none() {
        say::note!(
            "note: --batch holds requests so that those for the same content are answered together, and without --cache nothing could do that: \
             each goes to a backend by itself"
        );
    }
    let named = |names: &[String]| (!names.is_empty()).then(|| names.to_vec());
    let rules =
        Rules::new(named(&args.control_operator), named(&args.control_reader)).map_err(Failure::usage)?;
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let addresses = hand_over::addresses(&config);
    let mut sockets = door::passed(&addresses).map_err(Failure::Usage)?;
    let mut taken = match args.takeover {
        true => hand_over::take_in(&run_dir, &addresses),
        false => Taken::default(),
    };
    if args.takeover && taken.predecessors().is_empty() {
        say::note!(
            "note: no gateway in {} gives its listening sockets on these addresses: {NEW_SOCKETS}",
            run_dir.display()
        );
    }
    sockets.append(&mut taken.sockets);
    let bound = Gateway::bind_inheriting(config, sockets).map_err(refused)?;
    let shared = bound
        .share()
        .context("no descriptor is left for a successor")
        .map_err(Failure::Run)?;
    // It serves all the same where no successor can find it.
    let offer = Offer::open_in(&run_dir)
        .inspect_err(|error| tracing::warn!("{error:#}"))
        .ok();
    let port = match control.is_empty() {
        true => None,
        false => Some(BoundPort::open(control).map_err(Failure::Usage)?),
    };
    // Before any thread: each would keep what this one gives up.
    if let Some(user) = &args.user {
        door::give_up(Some(user)).map_err(|error| Failure::Usage(error.context("--user")))?;
    }
    let stop = Stop::at_signals()?;
    let gateway = Arc::new(bound.start().map_err(Failure::usage)?);
    for address in gateway.local_addrs() {
        say::note!("listening on {address}");
    }
    let port = if let Some(port) = port {
        let port = port.serve(Arc::clone(&gateway), rules).map_err(Failure::Usage)?;
        for address in port.addresses() {
            say::note!("control on {address}");
        }
        Some(port)
    } else {
        None
    };
    if taken.serving() {
        for pid in taken.predecessors() {
            say::note!("taken over from the gateway of process {pid}, which finishes what it serves");
        }
    }
    drop(taken);
    let handed_over = Arc::new(AtomicBool::new(false));
    let offering = offer
        .map(|offer| {
            let (stop, handed_over) = (stop.clone(), Arc::clone(&handed_over));
            offer.serve(shared, move |pid| {
                say::note!("process {pid} has taken over");
                handed_over.store(true, Ordering::Release);
                stop.raise();
            })
        })
        .transpose()?;
    match &port {
        // Periods are the controller's: what were taken here would be missing there.
        Some(_) => stop.wait(),
        None => tell_each_second(&gateway, &stop),
    }
    drop((port, offering));
    say::note!("draining");
    let idle = match handed_over.load(Ordering::Acquire) {
        true => door::IDLE_AT_HAND_OVER,
        false => Duration::ZERO,
    };
    let report = gateway.hand_over_blocking(Duration::from_secs_f64(args.drain.clamp(0.0, 3600.0)), idle);
    tracing::info!(?report, "drained");
    Ok(())
}

/// The flag that a key of the configuration is given by.
const FLAGS: [(&str, &str); 13] = [
    ("listen", "--listen"),
    ("threads", "--threads"),
    ("backends", "--backend"),
    ("backends.url", "--backend"),
    ("health.path", "--health"),
    ("limits.max_in_flight_per_backend", "--max-in-flight"),
    ("cache.bytes", "--cache"),
    ("cache.max_object_bytes", "--cache-object"),
    ("batch.interval_ms", "--batch"),
    ("batch.max_wait_ms", "--batch-max-wait"),
    ("batch.max_held", "--batch-max-held"),
    ("sizes.bounds_bytes", "--size-bounds"),
    ("target_ms", "--target-ms"),
];

/// What the gateway refuses of its configuration, in the words of the command line.
fn refused(error: GatewayError) -> Failure {
    let GatewayError::Config { key, value, allowed } = &error else {
        return Failure::usage(error);
    };
    let Some((_, flag)) = FLAGS.iter().find(|(known, _)| known == key) else {
        return Failure::usage(error);
    };
    // What is allowed names other keys between backticks.
    let allowed = FLAGS.iter().fold(allowed.clone(), |text, (key, flag)| {
        text.replace(&format!("`{key}`"), flag)
    });
    Failure::usage(anyhow!("{flag} {value}: allowed is {allowed}"))
}

/// Where controllers may command it.
fn control_places(args: &GatewayArgs) -> Result<Vec<Listen>, Failure> {
    let files = args
        .control_ca
        .clone()
        .zip(args.control_cert.clone())
        .zip(args.control_key.clone());
    let tls = files.map(|((ca, certificate), key)| TlsConfig {
        ca,
        certificate,
        key,
        revoked: args.control_revoked.clone(),
    });
    let tls_at = "by --control-ca, --control-cert and --control-key";
    Ok(listen_of_flags("--control", &args.control, tls.as_ref(), tls_at)?)
}

fn tell_each_second(gateway: &Handle, stop: &Stop) {
    let mut telemetry = GatewayTelemetry::new(gateway);
    let mut next = Instant::now();
    loop {
        next += Duration::from_secs(1);
        if stop.wait_until(next) {
            return;
        }
        let Some(period) = telemetry.take(Duration::from_millis(500)) else {
            continue;
        };
        let ReportedLatency::Histogram(histogram) = &period.latency else {
            continue;
        };
        let at = |percentile| histogram.value_at_percentile(percentile) as f64 / 1e3;
        tracing::info!(
            arrivals = period.arrivals,
            failures = period.failures,
            in_flight = period.in_flight,
            p50_ms = at(50.0),
            p95_ms = at(95.0),
            p99_ms = at(99.0),
            cache_hit_rate = period.cache.and_then(|cache| cache.hit_rate()),
            "one second"
        );
    }
}
