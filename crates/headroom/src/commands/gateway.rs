//! `headroom gateway`: the data plane alone.

mod backends;
mod configured;
mod flags;

use crate::config::agent::{TlsConfig, listen_of_flags};
use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use configured::{Configured, example};
use flags::{BackendFlags, FrontFlags, LimitFlags, ListenFlags};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::args::seconds_or_none;
use headroom_console::say;
use headroom_gateway::{Gateway, GatewayConfig, GatewayError, Handle, HealthConfig};
use headroom_runtime::cluster::gateway_port::BoundPort;
use headroom_runtime::door::hand_over::{self, NEW_SOCKETS, Offer, Taken};
use headroom_runtime::live::{GatewayTelemetry, ReportedLatency, Telemetry, undo};
use headroom_runtime::{descriptors, door};
use headroom_wire::access::Rules;
use headroom_wire::server::{Listen, ListenError};
use std::collections::HashSet;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// `headroom gateway`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("has_cache").args(["cache", "config"]).multiple(true))]
#[command(group = ArgGroup::new("has_health").args(["health", "config"]).multiple(true))]
#[command(group = ArgGroup::new("has_batch").args(["batch", "config"]).multiple(true))]
pub struct GatewayArgs {
    /// The configuration file, with every key that there is (--example); a flag goes before what is written there.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration and what it needs of this machine, serve nothing, and stop.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Folder where a successor finds this gateway to take over from it. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Become this user, without any privilege, as soon as all is listened on: for a gateway that is started by root. Files of
    /// certificates that it cannot read then are not read again when they change.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// How long to wait for requests being served when asked to stop, in seconds. By default 30, and as --config says.
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_none)]
    pub drain: Option<f64>,
    /// What is listened on.
    #[command(flatten)]
    pub listen: ListenFlags,
    /// Where requests go.
    #[command(flatten)]
    pub backends: BackendFlags,
    /// What is limited.
    #[command(flatten)]
    pub limits: LimitFlags,
    /// What is in front of the backends.
    #[command(flatten)]
    pub front: FrontFlags,
    /// Who may command it.
    #[command(flatten)]
    pub control: ControlFlags,
    /// Take everything from standard input, as `headroom up` sends it, which starts this.
    #[arg(long, hide = true, exclusive = true)]
    pub launched: bool,
}

/// Who may observe and command it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Control")]
pub struct ControlFlags {
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
    if args.example {
        return say::result(example().trim_end());
    }
    descriptors::raise_limit();
    let configured = Configured::read(args)?;
    let config = configured.config();
    let control = control_places(&args.control)?;
    control_apart(&control, config).map_err(|error| configured.refused(error))?;
    for note in notes(config, !control.is_empty()) {
        say::note!("note: {note}");
    }
    let named = |names: &[String]| (!names.is_empty()).then(|| names.to_vec());
    let rules = Rules::new(
        named(&args.control.control_operator),
        named(&args.control.control_reader),
    )
    .map_err(Failure::usage)?;
    let user = args.user.clone().or_else(|| config.user.clone());
    let drain = match args.drain {
        Some(seconds) => Duration::from_secs_f64(seconds.clamp(0.0, 3600.0)),
        None => Duration::from_millis(config.drain_timeout_ms),
    };
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    if args.check {
        Gateway::check(config, |_| false).map_err(|error| configured.refused(error))?;
        check_beside(config, &control, user.as_deref())?;
        if let Err(error) = Offer::check_in(&run_dir) {
            say::note!("note: {}", no_hand_over(error));
        }
        return say::result(
            "the configuration is right: all of it is understood, every file can be read and every address listened on",
        );
    }
    let addresses = hand_over::addresses(config);
    let mut sockets = door::passed(&addresses).map_err(Failure::Usage)?;
    let mut taken = match config.takeover {
        true => hand_over::take_in(&run_dir, &addresses),
        false => Taken::default(),
    };
    if config.takeover && taken.predecessors().is_empty() {
        say::note!(
            "note: no gateway in {} gives its listening sockets on these addresses: {NEW_SOCKETS}",
            run_dir.display()
        );
    }
    sockets.append(&mut taken.sockets);
    let bound =
        Gateway::bind_inheriting(config.clone(), sockets).map_err(|error| configured.refused(error))?;
    let shared = bound
        .share()
        .context("no descriptor is left for a successor")
        .map_err(Failure::Run)?;
    // It serves all the same where no successor can find it.
    let offer = Offer::open_in(&run_dir)
        .map_err(|error| tracing::warn!("{}", no_hand_over(error)))
        .ok();
    let port = match control.is_empty() {
        true => None,
        false => {
            let port = BoundPort::open(control);
            Some(port.map_err(|error| Failure::Usage(of_control(config, error)))?)
        }
    };
    // Before any thread: each would keep what this one gives up.
    if let Some(user) = &user {
        if !door::is_root() {
            say::note!(
                "--user {user} changes nothing: only root can become another user, and this process is not root's"
            );
        }
        door::give_up(Some(user)).map_err(|error| Failure::Usage(error.context("--user")))?;
    }
    let serving = Arc::new(OnceLock::<Weak<Handle>>::new());
    let reloading = Arc::clone(&serving);
    // In a terminal that is closed it ends, as everything does there.
    let stop = match std::io::stderr().is_terminal() {
        true => Stop::at_signals()?,
        false => Stop::at_end_or_hang_up(move || reload(&reloading))?,
    };
    let gateway = Arc::new(bound.start().map_err(Failure::usage)?);
    // It is set once, here.
    let _ = serving.set(Arc::downgrade(&gateway));
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
    let report = gateway.hand_over_blocking(drain, idle);
    if report.connections_cut > 0 {
        let seconds = drain.as_secs_f64();
        let cut = report.connections_cut;
        say::note!("{cut} connections were cut, which were not done within {seconds} s (--drain)");
    }
    tracing::info!(?report, "drained");
    Ok(())
}

/// Reads certificates again; what is wrong with them is logged there.
fn reload(serving: &OnceLock<Weak<Handle>>) {
    if let Some(gateway) = serving.get().and_then(Weak::upgrade) {
        let _ = gateway.reload_certificates();
    }
}

/// Where controllers may command it.
fn control_places(args: &ControlFlags) -> Result<Vec<Listen>, Failure> {
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

/// That none is where requests are served, or is given twice.
fn control_apart(control: &[Listen], config: &GatewayConfig) -> Result<(), GatewayError> {
    let addresses = control.iter().filter_map(|place| match place {
        Listen::Tcp { address, .. } => Some(*address),
        Listen::Unix { .. } => None,
    });
    let mut before: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        let own = |other: &&SocketAddr| **other == address && address.port() != 0;
        let again = before.iter().find(own);
        let also = again
            .map(|other| ("--control".to_owned(), *other))
            .or_else(|| config.listener_at(address));
        if let Some((also, other)) = also {
            return Err(GatewayError::ListenTwice {
                key: "--control".to_owned(),
                address,
                also,
                other,
            });
        }
        before.push(address);
    }
    Ok(())
}

/// What a start looks at beside the configuration of the data plane.
fn check_beside(config: &GatewayConfig, control: &[Listen], user: Option<&str>) -> Result<(), Failure> {
    let mut paths: Vec<&Path> = Vec::new();
    for place in control {
        let again = match place {
            Listen::Unix { path } if paths.contains(&path.as_path()) => true,
            Listen::Unix { path } => {
                paths.push(path);
                false
            }
            Listen::Tcp { .. } => false,
        };
        let checked = match again {
            true => Err(anyhow!("it is given twice: leave one out")),
            false => place.check().map_err(anyhow::Error::from),
        };
        checked.map_err(|error| Failure::Usage(of_control(config, error.context("the control port"))))?;
    }
    if let Some(user) = user {
        door::whom(Some(user)).map_err(|error| Failure::Usage(error.context("--user")))?;
    }
    Ok(())
}

/// Why it cannot be commanded where --control says. Of who takes over, it is perhaps the other gateway that still listens there.
fn of_control(config: &GatewayConfig, error: anyhow::Error) -> anyhow::Error {
    let in_use = error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(ListenError::InUse { .. })));
    match config.takeover && in_use {
        true => error.context(
            "--control must be another address than that of the gateway that is taken over, which listens there until this one serves: \
             give another path or port, and name it to the controller",
        ),
        false => error,
    }
}

/// What it means that no successor can find this gateway, which serves all the same.
fn no_hand_over(error: anyhow::Error) -> String {
    format!(
        "no gateway can take over from this one without a lost connection (--takeover), for it cannot offer its listening sockets: {}",
        // A cause that a message quotes is said once.
        Failure::Run(error)
    )
}

/// What is allowed, and is perhaps not meant.
fn notes(config: &GatewayConfig, has_control: bool) -> Vec<String> {
    let (interval, has_cache) = (config.batch.interval_ms, config.cache.bytes > 0);
    let mut notes = Vec::new();
    if interval == Some(0) && !has_control {
        notes.push(
            "--batch 0 holds nothing, and without --control no law can ever set another interval: give --control".to_owned(),
        );
    }
    if !config.sizes.bounds_bytes.is_empty() && !has_control {
        notes.push(
            "--size-bounds only counts, and without --control nobody reads that, nor can a law ever place requests: give --control"
                .to_owned(),
        );
    }
    if interval.is_some_and(|ms| ms > 0) && !has_cache {
        notes.push(
            "--batch holds requests so that those for the same content are answered together, and without --cache nothing could do \
             that: each goes to a backend by itself"
                .to_owned(),
        );
    }
    notes.extend(config.note_of_places());
    let (health, usual) = (&config.health, HealthConfig::default());
    let checks = |health: &HealthConfig| {
        let HealthConfig {
            interval_ms,
            timeout_ms,
            rise,
            fall,
            panic_percent,
            ..
        } = *health;
        (interval_ms, timeout_ms, rise, fall, panic_percent)
    };
    if health.path.is_none() && checks(health) != checks(&usual) {
        notes.push(
            "health.interval_ms, timeout_ms, rise, fall and panic_percent are of active checks, and without health.path (--health) there \
             are none"
                .to_owned(),
        );
    }
    if !config.backends.is_empty() && config.backends.iter().all(|backend| backend.weight == 0) {
        notes.push(
            "every backend has weight 0, which takes no new requests: each is answered 502 until one is given another weight".to_owned(),
        );
    }
    let mut seen = HashSet::new();
    for backend in &config.backends {
        if !seen.insert(backend.url.trim_end_matches('/')) {
            notes.push(format!(
                "the backend {0} is given more than once, and each counts as a backend of its own, with its own limits and health: for a \
                 larger share give it once with a weight (weight=2)",
                backend.url
            ));
        }
    }
    notes
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
