//! The gateway's side: from root to nobody, then serving until it is asked to end.

use super::{Launch, Record, Report, gateway_objection, privileges, started};
use crate::cluster::gateway_port::{BoundPort, ControlPort};
use crate::descriptors;
use anyhow::{Context, anyhow};
use headroom_console::Failure;
use headroom_gateway::{Gateway, Handle};
use headroom_wire::access::Rules;
use headroom_wire::server::Listen;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// While a successor listens: how long a client's connection that waits for its next request is kept for it.
const IDLE_AT_HAND_OVER: Duration = Duration::from_secs(5);

/// Serves what standard input says, until SIGTERM (no more clients are accepted, requests finish) or SIGUSR1 (the same,
/// and a successor serves already).
///
/// # Errors
/// Whatever keeps it from serving; it was reported to who launched it.
pub fn serve_launched() -> Result<(), Failure> {
    // What ends `up` from its terminal must not end this with it, and this is to have no way to that terminal.
    rustix::process::setsid().context("--launched is for `headroom up`")?;
    privileges::close_inherited();
    let launch: Launch = serde_json::from_reader(std::io::stdin())
        .context("--launched is for `headroom up`, and its input")?;
    // A terminal that is closed ends `up`, which then ends this; it has none itself, so that SIGHUP is free to mean something else.
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
    descriptors::raise_limit();
    let (gateway, port) = match begin(&launch) {
        Ok((gateway, port, listen)) => {
            answer(&Report::Serving { listen })?;
            (gateway, port)
        }
        Err((key, error)) => {
            let why = format!("{error:#}");
            return answer(&Report::Refused { key, why });
        }
    };
    let reloading = Arc::downgrade(&gateway);
    let arriving = listen_to(signals, move || {
        if let Some(gateway) = reloading.upgrade() {
            // What is wrong with the files is logged there.
            let _ = gateway.reload_certificates();
        }
    })?;
    // The thread that sends lives as long as the process.
    let signal = arriving.recv().unwrap_or(SIGTERM);
    let idle = if signal == SIGUSR1 {
        IDLE_AT_HAND_OVER
    } else {
        Duration::ZERO
    };
    tracing::info!(signal, "draining");
    if idle.is_zero() {
        drop(port);
    }
    let report = gateway.hand_over_blocking(gateway.drain_timeout(), idle);
    tracing::info!(?report, "drained");
    Ok(())
}

type Serving = (Arc<Handle>, ControlPort, Vec<SocketAddr>);

/// Opens all, gives up what privileges there are, serves. An error comes with the key it is about.
fn begin(launch: &Launch) -> Result<Serving, (String, anyhow::Error)> {
    let about = |key: &str| {
        let key = key.to_owned();
        |error: anyhow::Error| (key, error)
    };
    let config = launch.gateway.clone();
    let bound =
        // Its own words name the cause already, and are those of a check.
        Gateway::bind(config).map_err(|error| {
            let (key, why) = gateway_objection(&launch.gateway, &error);
            (key, anyhow!(why))
        })?;
    let place = Listen::Unix {
        path: launch.socket.clone(),
    };
    let port = BoundPort::open(vec![place]).map_err(about("gateway"))?;
    let listen = bound.local_addrs().to_vec();
    let pid = std::process::id();
    let record = Record {
        pid,
        started: started(pid).unwrap_or_default(),
        socket: launch.socket.clone(),
        listen: listen.clone(),
        identity: launch.identity.clone(),
    };
    record
        .write(&launch.record)
        .with_context(|| format!("{} cannot be written", launch.record.display()))
        .map_err(about("gateway"))?;
    privileges::give_up(launch.gateway.user.as_deref()).map_err(about("gateway.user"))?;
    let gateway = bound
        .start()
        .map_err(|error| ("gateway".to_owned(), anyhow!("{error}")))?;
    let gateway = Arc::new(gateway);
    // Over its socket, which only root and whoever started it may command.
    let port = port
        .serve(Arc::clone(&gateway), Rules::default())
        .map_err(about("gateway"))?;
    Ok((gateway, port, listen))
}

fn answer(report: &Report) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(report)?)?;
    Ok(out.flush()?)
}

/// The first signal that says to end; the second ends the process at once. SIGHUP says to read certificates again.
fn listen_to(
    mut signals: Signals,
    reload: impl Fn() + Send + 'static,
) -> std::io::Result<mpsc::Receiver<i32>> {
    let (sender, arriving) = mpsc::channel();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let signals = signals.forever().filter(|signal| {
                let ends = *signal != SIGHUP;
                if !ends {
                    reload();
                }
                ends
            });
            for (count, signal) in signals.enumerate() {
                if count > 0 {
                    std::process::exit(128 + signal);
                }
                let _ = sender.send(signal);
            }
        })?;
    Ok(arriving)
}
