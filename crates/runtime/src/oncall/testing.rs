//! What tests of attached servers share.

use super::attached::AttachOptions;
use super::connections::Connections;
use super::costs::processors;
use super::wrapped::{Offer, Wrapped, WrappedAt};
use headroom_node::Roots;
use headroom_oncall::Steering;
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
