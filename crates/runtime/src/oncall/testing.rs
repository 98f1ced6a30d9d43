//! What tests of attached servers and of classes share.

use super::attached::AttachOptions;
use super::class::Class;
use super::clients::Clients;
use super::connections::Connections;
use super::costs::processors;
use super::wrapped::{Offer, Wrapped, WrappedAt};
use headroom_node::Roots;
use headroom_oncall::{ConnectionTotals, Steering};
use headroom_units::Seconds;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A wrap, of which this process is also the server.
pub(super) struct Wrap {
    pub(super) offer: Offer,
    pub(super) region: PathBuf,
    pub(super) steering: Option<Steering>,
}

impl Wrap {
    pub(super) fn start(folder: &Path, number: u32) -> Self {
        let region = folder.join(format!("region-{number}"));
        let steering = Steering::create_for_others(&region).unwrap();
        let mut offer = at(folder).take().unwrap();
        offer
            .publish(&Wrapped {
                name: "db".to_owned(),
                program: "/usr/sbin/mariadbd".into(),
                server: std::process::id(),
                wrap: std::process::id(),
                region: region.clone(),
            })
            .unwrap();
        Self {
            offer,
            region,
            steering: Some(steering),
        }
    }

    pub(super) fn workers(&self) -> Option<u32> {
        let commanded = self.steering.as_ref().unwrap().commanded();
        commanded.enabled.then_some(commanded.concurrency)
    }
}

pub(super) fn at(folder: &Path) -> WrappedAt {
    WrappedAt::new(folder, "db").unwrap()
}

pub(super) fn options() -> AttachOptions {
    AttachOptions {
        linger: Duration::from_micros(200),
        lease: Duration::from_secs(5),
        classes: Vec::new(),
        each: false,
        cpus: processors(&Roots::default(), "self").unwrap(),
        break_even: Seconds::from_millis(1.0),
        connections: Arc::new(Connections::new(Vec::new(), 0)),
    }
}

/// A connection of a client, with its last latencies.
pub(super) fn connection(
    place: usize,
    client: Option<&str>,
    queries: u64,
    recent_ms: &[f64],
) -> ConnectionTotals {
    ConnectionTotals {
        place: (place, 1),
        client: client.map(|client| client.parse().unwrap()),
        user: None,
        fd: 7,
        tid: None,
        in_transaction: None,
        holds_locks: false,
        is_blocked: false,
        unanswered: None,
        queries,
        failures: None,
        latency: Seconds::from_millis(recent_ms.iter().sum()),
        between: Seconds::ZERO,
        recent: recent_ms.iter().map(|ms| Seconds::from_millis(*ms)).collect(),
    }
}

/// A class of a network and of the Unix socket, with two SLOs.
pub(super) fn gold() -> Class {
    Class {
        name: "gold".to_owned(),
        clients: vec!["10.1.0.0/16".parse().unwrap(), Clients::Unix],
        weight: 4.0,
        p95_ms: Some(20.0),
        p99_ms: None,
        p999_ms: Some(60.0),
        disengagement: None,
    }
}
