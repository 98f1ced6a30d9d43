//! Which gateways a run has, and how they come and go while it goes on.

use super::division::Divided;
use super::state::GatewayState;
use super::task::{MIN_PART, PARTS, Task};
use crate::cluster::{Shared, Spawner};
use headroom_wire::Address;
use headroom_wire::client::{ClientOptions, Observer};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// One gateway, for whoever asks or commands it.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    pub name: String,
    pub address: Address,
    pub state: Arc<Shared<GatewayState>>,
    /// Rung when another state of a backend is wanted.
    pub bell: Arc<Notify>,
    /// Rung when levers are to be set, or set again.
    pub lever_bell: Arc<Notify>,
    /// Raised when it is to be released.
    pub leaves: Arc<watch::Sender<bool>>,
}

impl Gateway {
    pub fn new(name: String, address: Address, state: GatewayState) -> Self {
        Self {
            name,
            address,
            state: Arc::new(Shared::new(state)),
            bell: Arc::default(),
            lever_bell: Arc::default(),
            leaves: Arc::new(watch::Sender::new(false)),
        }
    }
}

/// The gateways that there are now, in the order of their file.
#[derive(Debug)]
pub(super) struct Roster(Mutex<Arc<[Gateway]>>);

impl Roster {
    pub fn of(gateways: Vec<Gateway>) -> Self {
        Self(Mutex::new(gateways.into()))
    }

    pub fn now(&self) -> Arc<[Gateway]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The gateways of a run, for whoever says which they are while it goes on. A clone is of the same.
#[derive(Clone, Debug)]
pub struct GatewayMembers {
    roster: Arc<Roster>,
    divided: Arc<Divided>,
    spawner: Spawner,
    stopping: watch::Receiver<bool>,
    client: ClientOptions,
    period: Duration,
    /// What the run is there for.
    observer: Observer,
}

/// What came of another list of gateways, each by its name and address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewaysChanged {
    /// Those that are new: they are in the sum from the first whole period on.
    pub joined: Vec<String>,
    /// Those that are released: their levers are as configured, and they are in no sum any more.
    pub left: Vec<String>,
}

impl GatewaysChanged {
    /// Whether the list is what it was.
    pub fn is_nothing(&self) -> bool {
        self.joined.is_empty() && self.left.is_empty()
    }
}

impl GatewayMembers {
    pub(super) fn new(
        spawner: Spawner,
        stopping: watch::Receiver<bool>,
        client: ClientOptions,
        (period, observer): (Duration, Observer),
    ) -> Self {
        Self {
            roster: Arc::new(Roster::of(Vec::new())),
            divided: Arc::default(),
            spawner,
            stopping,
            client,
            period,
            observer,
        }
    }

    pub(super) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    pub(super) fn divided(&self) -> &Arc<Divided> {
        &self.divided
    }

    /// Starts to connect to the gateways that a run begins with.
    pub(super) fn begin(&self, gateways: Vec<(String, Address)>) -> io::Result<()> {
        self.change(gateways, GatewayState::default).map(|_| ())
    }

    /// Has these gateways be those of the run, by name and address: the ones that it has already stay as they are, the others are
    /// connected to or released. A new one is given what the others have of levers and of backends' states before it is in the sum.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for none at all, which would be no telemetry; the run has ended. Nothing is changed then.
    pub fn replace(&self, gateways: Vec<(String, Address)>) -> io::Result<GatewaysChanged> {
        if gateways.is_empty() {
            let why = "none is left: without a gateway nobody can tell what happens to the requests";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let now = self.roster.now();
        let like = || match now.first() {
            Some(other) => GatewayState::like(&other.state.lock()),
            None => GatewayState::default(),
        };
        self.change(gateways, like)
    }

    fn change(
        &self,
        gateways: Vec<(String, Address)>,
        new: impl Fn() -> GatewayState,
    ) -> io::Result<GatewaysChanged> {
        let mut roster = self.roster.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = GatewaysChanged::default();
        let (mut next, mut started) = (Vec::new(), Vec::new());
        for (name, address) in gateways {
            let same = |one: &&Gateway| one.name == name && one.address == address;
            if let Some(known) = roster.iter().find(same) {
                next.push(known.clone());
                continue;
            }
            changed.joined.push(format!("{name} at {address}"));
            let gateway = Gateway::new(name, address, new());
            started.push(gateway.clone());
            next.push(gateway);
        }
        let stays = |one: &Gateway| next.iter().any(|next| Arc::ptr_eq(&next.state, &one.state));
        let left: Vec<Gateway> = roster.iter().filter(|one| !stays(one)).cloned().collect();
        // All or none: what cannot be started is no member.
        let tasks = started.into_iter().map(|gateway| self.task(gateway));
        self.spawner.spawn(tasks.collect())?;
        for gateway in &left {
            changed
                .left
                .push(format!("{} at {}", gateway.name, gateway.address));
            gateway.leaves.send_replace(true);
        }
        *roster = next.into();
        Ok(changed)
    }

    fn task(&self, gateway: Gateway) -> crate::cluster::Attending {
        let task = Task {
            client: None,
            bounded: None,
            share: self.divided.place(),
            gateway,
            options: self.client.clone(),
            part: (self.period / PARTS).max(MIN_PART),
            period: self.period,
            observer: self.observer,
        };
        Box::pin(task.attend(self.stopping.clone()))
    }
}
