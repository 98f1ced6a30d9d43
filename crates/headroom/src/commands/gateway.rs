//! `headroom gateway`: the data plane alone.

use crate::cli::{Balance, GatewayArgs};
use crate::config::agent::{TlsConfig, listen_of_flags};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::say;
use headroom_gateway::{
    BackendConfig, Gateway, GatewayConfig, Handle, HealthConfig, LimitConfig, TlsListenConfig,
};
use headroom_runtime::cluster::gateway_port::BoundPort;
use headroom_runtime::live::{GatewayTelemetry, ReportedLatency, Telemetry};
use headroom_runtime::{descriptors, door};
use headroom_wire::access::Rules;
use headroom_wire::server::Listen;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        balance: match args.balance {
            Balance::RoundRobin => headroom_gateway::Balance::RoundRobin,
            Balance::LeastConnections => headroom_gateway::Balance::LeastConnections,
        },
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
        ..GatewayConfig::default()
    };
    let control = control_places(args)?;
    let named = |names: &[String]| (!names.is_empty()).then(|| names.to_vec());
    let rules =
        Rules::new(named(&args.control_operator), named(&args.control_reader)).map_err(Failure::usage)?;
    let bound = Gateway::bind(config).map_err(Failure::usage)?;
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
    match &port {
        // Periods are the controller's: what were taken here would be missing there.
        Some(_) => stop.wait(),
        None => tell_each_second(&gateway, &stop),
    }
    drop(port);
    say::note!("draining");
    let report = gateway.shutdown_blocking(Duration::from_secs_f64(args.drain.clamp(0.0, 3600.0)));
    tracing::info!(?report, "drained");
    Ok(())
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
            "one second"
        );
    }
}
