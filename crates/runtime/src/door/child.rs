//! The gateway's side: from root to nobody, then serving until it is asked to end.

use super::hand_over::{self, NEW_SOCKETS, Offer, Offering, Taken};
use super::{
    IDLE_AT_HAND_OVER, Launch, Record, Report, gateway_objection, offer_beside, privileges, started,
};
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
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Why it ends.
enum End {
    Signal(i32),
    /// A successor, this process, serves.
    HandedOver(i32),
}

/// Serves what standard input says, until SIGTERM (no more clients are accepted, requests finish), until a successor has
/// its listening sockets and serves, or until SIGUSR1 (a successor that has sockets of its own serves).
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
    let (ends, end) = mpsc::channel();
    let Serving {
        gateway,
        port,
        offering,
        taken,
    } = match begin(&launch, &ends) {
        Ok(serving) => serving,
        Err((key, error)) => {
            let why = format!("{error:#}");
            return answer(&Report::Refused { key, why });
        }
    };
    let handed_over = taken.serving();
    answer(&Report::Serving {
        listen: gateway.local_addrs().to_vec(),
        handed_over,
    })?;
    drop(taken);
    let reloading = Arc::downgrade(&gateway);
    listen_to(signals, ends, move || {
        if let Some(gateway) = reloading.upgrade() {
            // What is wrong with the files is logged there.
            let _ = gateway.reload_certificates();
        }
    })?;
    // The threads that send live as long as the process.
    let idle = match end.recv().unwrap_or(End::Signal(SIGTERM)) {
        End::HandedOver(pid) => {
            tracing::info!(pid, "a successor has the listening sockets and serves: draining");
            IDLE_AT_HAND_OVER
        }
        End::Signal(SIGUSR1) => {
            tracing::info!("a successor serves: draining");
            IDLE_AT_HAND_OVER
        }
        End::Signal(signal) => {
            tracing::info!(signal, "draining");
            Duration::ZERO
        }
    };
    if idle.is_zero() {
        drop(port);
    }
    drop(offering);
    let report = gateway.hand_over_blocking(gateway.drain_timeout(), idle);
    tracing::info!(?report, "drained");
    Ok(())
}

/// What serves.
struct Serving {
    gateway: Arc<Handle>,
    port: ControlPort,
    /// `None` where it could not be offered, which was said.
    offering: Option<Offering>,
    taken: Taken,
}

/// Opens all, gives up what privileges there are, serves. An error comes with the key it is about.
fn begin(launch: &Launch, ends: &mpsc::Sender<End>) -> Result<Serving, (String, anyhow::Error)> {
    let about = |key: &str| {
        let key = key.to_owned();
        |error: anyhow::Error| (key, error)
    };
    let config = launch.gateway.clone();
    let mut taken = take_from(launch);
    let sockets = std::mem::take(&mut taken.sockets);
    let bound =
        // Its own words name the cause already, and are those of a check.
        Gateway::bind_inheriting(config, sockets).map_err(|error| {
            let (key, why) = gateway_objection(&launch.gateway, &error);
            (key, anyhow!(why))
        })?;
    let place = Listen::Unix {
        path: launch.socket.clone(),
    };
    let port = BoundPort::open(vec![place]).map_err(about("gateway"))?;
    let shared = bound
        .share()
        .context("no descriptor is left for a successor")
        .map_err(about("gateway"))?;
    // It serves all the same where nobody can be given its sockets: then a successor opens its own beside them.
    let offer = Offer::open(&offer_beside(&launch.socket))
        .inspect_err(|error| tracing::warn!("{error:#}"))
        .ok();
    let pid = std::process::id();
    let record = Record {
        pid,
        started: started(pid).unwrap_or_default(),
        socket: launch.socket.clone(),
        offer: offer.as_ref().map(|_| offer_beside(&launch.socket)),
        listen: bound.local_addrs().to_vec(),
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
    let ends = ends.clone();
    let offering = offer
        .map(|offer| {
            offer.serve(shared, move |pid| {
                // Where it ends already, that is as well.
                let _ = ends.send(End::HandedOver(pid));
            })
        })
        .transpose()
        .context("the thread that hands over cannot be started")
        .map_err(about("gateway"))?;
    Ok(Serving {
        gateway,
        port,
        offering,
        taken,
    })
}

/// The sockets of the gateway that this one replaces, where it gives them.
fn take_from(launch: &Launch) -> Taken {
    let Some(path) = &launch.predecessor else {
        if launch.gateway.takeover {
            tracing::warn!(
                "the gateway that serves gives no listening sockets, as earlier versions: {NEW_SOCKETS}"
            );
        }
        return Taken::default();
    };
    hand_over::take(path, &hand_over::addresses(&launch.gateway)).unwrap_or_else(|error| {
        tracing::warn!("{error:#}: {NEW_SOCKETS}");
        Taken::default()
    })
}

fn answer(report: &Report) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(report)?)?;
    Ok(out.flush()?)
}

/// Sends the first signal that says to end; the second ends the process at once. SIGHUP says to read certificates again.
fn listen_to(
    mut signals: Signals,
    ends: mpsc::Sender<End>,
    reload: impl Fn() + Send + 'static,
) -> std::io::Result<()> {
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
                let _ = ends.send(End::Signal(signal));
            }
        })?;
    Ok(())
}
