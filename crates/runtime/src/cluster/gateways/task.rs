//! What talks to one gateway: it connects, again and again, adds up what is reported, and sets what is wanted.

use super::division::Share;
use super::roster::Gateway;
use super::{levers, member};
use crate::cluster::{BackOff, stop_requested};
use crate::live::Watch;
use headroom_units::Seconds;
use headroom_wire::client::{BoundWatch, CallError, ClientOptions, GatewayClient, Observer};
use headroom_wire::message::{Backend, BackendState, InFlightBound, SetBackend};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A gateway is asked for so many periods in one of the control loop's, whose clock is another: what belongs to the
/// neighbouring period is at most one of them.
pub(super) const PARTS: u32 = 10;
/// But none shorter than this.
pub(super) const MIN_PART: Duration = Duration::from_millis(20);

/// How long a gateway is waited for that is to have its levers as configured, at the end.
const MAX_RELEASE: Duration = Duration::from_secs(1);

/// The shortest lease of the bounds of what backends may have in flight.
const MIN_BOUND_LEASE: Duration = Duration::from_secs(5);
/// A lease is as long as so many periods at least, and renewed three times in it.
const BOUND_LEASE_PERIODS: u32 = 5;

/// What talks to one gateway.
pub(super) struct Task {
    pub gateway: Gateway,
    /// Its share of the bound that is watched.
    pub share: Share,
    pub options: ClientOptions,
    pub part: Duration,
    /// The control loop's period: the time between two looks at the backends' states, which others may change, where states are
    /// wanted; and in each one there is a try to connect.
    pub period: Duration,
    /// What its periods are for.
    pub observer: Observer,
    /// The connection that there is.
    pub client: Option<GatewayClient>,
    /// When the bounds of all backends were set last.
    pub bounded: Option<Instant>,
}

impl Task {
    pub(super) async fn attend(mut self, mut stop: watch::Receiver<bool>) {
        let mut leaves = self.gateway.leaves.subscribe();
        let mut back_off = BackOff::new();
        loop {
            let error = tokio::select! {
                error = self.talk(&mut back_off) => error,
                () = stop_requested(&mut stop) => return self.release().await,
                () = stop_requested(&mut leaves) => return self.leave().await,
            };
            self.client = None;
            self.share.connected(false);
            self.gateway.state.change(|state| {
                if state.lost(&error) {
                    tracing::warn!(gateway = self.gateway.name, "the gateway is lost: {error}");
                }
            });
            tokio::select! {
                () = tokio::time::sleep(back_off.again().min(self.period / 2)) => {}
                () = stop_requested(&mut stop) => return,
                () = stop_requested(&mut leaves) => return self.leave().await,
            }
        }
    }

    /// Has the gateway put back what was set of its levers; where it cannot be reached it does so when the lease ends.
    async fn release(&self) {
        let Some(client) = &self.client else { return };
        if self.gateway.state.lock().levers.is_set() {
            let released = client.set_levers(Vec::new(), Duration::ZERO);
            if !matches!(tokio::time::timeout(MAX_RELEASE, released).await, Ok(Ok(_))) {
                tracing::warn!(
                    gateway = self.gateway.name,
                    "the gateway's levers were not given back: they are as configured when their lease ends"
                );
            }
        }
    }

    /// Lets go of a gateway in a run that goes on: its levers are as configured, and every server gets requests from it, for nobody
    /// says when one that is off comes back.
    async fn leave(mut self) {
        self.release().await;
        let is_kept_away = self.gateway.state.change(|state| {
            state
                .wanted
                .values_mut()
                .for_each(|wanted| *wanted = BackendState::Up);
            state.bounds.values_mut().for_each(|bound| *bound = None);
            !state.wanted.is_empty()
        });
        if !is_kept_away {
            return;
        }
        let given = match self.client.clone() {
            Some(client) => {
                let set = tokio::time::timeout(MAX_RELEASE, self.set(&client));
                set.await.is_ok_and(|set| set.is_ok())
            }
            None => false,
        };
        if !given {
            let why = self.gateway.state.lock().left_untold();
            tracing::warn!(gateway = self.gateway.name, "{why}");
        }
    }

    /// Talks until the connection ends; why it did.
    async fn talk(&mut self, back_off: &mut BackOff) -> CallError {
        match self.converse(back_off).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// Adds period to period, and sets the states that are wanted, until the connection ends.
    async fn converse(&mut self, back_off: &mut BackOff) -> Result<std::convert::Infallible, CallError> {
        let client = GatewayClient::connect(&self.gateway.address, &self.options).await?;
        // First what is to be in force: what it counts before is in no period.
        let backends = self.prepare(&client).await?;
        let mut periods = client.observe(self.part, self.observer).await?;
        self.client = Some(client.clone());
        *back_off = BackOff::new();
        self.gateway
            .state
            .change(|state| state.connected(backends, &client));
        self.share.connected(true);
        let mut watched = self.share.watched();
        watched.mark_changed();
        let mut passed: Option<(Watch, BoundWatch)> = None;
        let mut again = tokio::time::interval(self.period);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                period = periods.next() => match period? {
                    Some(period) => {
                        if let Some((watch, _)) = &passed
                            && watch.oldest.zip(period.oldest_in_flight).is_some_and(|(bound, age)| Seconds::from(age) > bound)
                        {
                            watch.passed();
                        }
                        self.share.reported(period.in_flight);
                        self.gateway.state.change(|state| state.add(period));
                    }
                    None => return Err(CallError::Unreachable {
                        address: self.gateway.address.clone(),
                        why: "the gateway has ended".to_owned(),
                    }),
                },
                _ = watched.changed() => {
                    let watch = watched.borrow_and_update().clone();
                    passed = match watch {
                        Some(watch) => match client.watch(watch.bound).await {
                            Ok(stream) => Some((watch, stream)),
                            // Without it there is no reflex; a connection that is lost ends the periods too.
                            Err(error) => {
                                tracing::warn!(gateway = self.gateway.name, "nothing is watched between periods: {error}");
                                None
                            }
                        },
                        None => None,
                    };
                }
                in_flight = passed_bound(&mut passed) => {
                    if let Some(in_flight) = in_flight {
                        self.share.passed(in_flight);
                    }
                }
                () = self.gateway.bell.notified() => self.set(&client).await?,
                () = self.gateway.lever_bell.notified() => levers::ask(&self.gateway, &client).await?,
                _ = again.tick() => {
                    if self.gateway.state.lock().wanted.is_empty() {
                        continue;
                    }
                    let backends = client.describe().await?.backends;
                    self.gateway.state.change(|state| state.backends = Some(backends));
                    self.set(&client).await?;
                }
            }
        }
    }

    /// Has a gateway that was just connected to be as it is to be; its backends then.
    async fn prepare(&self, client: &GatewayClient) -> Result<Vec<Backend>, CallError> {
        let mut backends = client.gateway().backends.clone();
        for change in self.changes(&backends, true) {
            let set = client.set_backend(change).await?;
            if let Some(slot) = place(&mut backends, &change) {
                *slot = set;
            }
        }
        levers::ask_again(&self.gateway, client, &backends).await?;
        Ok(backends)
    }

    /// What is to be changed of backends that are in these states.
    fn changes(&self, backends: &[Backend], renews: bool) -> Vec<SetBackend> {
        let state = self.gateway.state.lock();
        let lease = self.bound_lease();
        let change = |(at, backend): (usize, &Backend)| {
            let url = member(&backend.url);
            let wanted = state.wanted.get(url).filter(|wanted| **wanted != backend.state);
            // What nobody ever bounded here is left to whoever else does.
            let most = state.bounds.get(url).copied().unwrap_or(backend.most_in_flight);
            let is_bound = most != backend.most_in_flight || renews && most.is_some();
            (wanted.is_some() || is_bound).then(|| SetBackend {
                backend: u32::try_from(at).unwrap_or(u32::MAX),
                state: wanted.copied(),
                weight: None,
                bound: is_bound.then_some(InFlightBound { most, lease }),
            })
        };
        backends.iter().enumerate().filter_map(change).collect()
    }

    fn bound_lease(&self) -> Duration {
        (self.period * BOUND_LEASE_PERIODS).max(MIN_BOUND_LEASE)
    }

    /// Whether the leases of the bounds are to be renewed now.
    fn renews(&mut self) -> bool {
        let every = self.bound_lease() / 3;
        let renews = self.bounded.is_none_or(|before| before.elapsed() >= every);
        if renews {
            self.bounded = Some(Instant::now());
        }
        renews
    }

    /// Sets each backend's state that is not the one wanted.
    async fn set(&mut self, client: &GatewayClient) -> Result<(), CallError> {
        let backends = self.gateway.state.lock().backends.clone().unwrap_or_default();
        let renews = self.renews();
        for change in self.changes(&backends, renews) {
            let backend = client.set_backend(change).await?;
            self.gateway.state.change(|state| {
                if let Some(slot) = state.backends.as_mut().and_then(|all| place(all, &change)) {
                    *slot = backend;
                }
                // What was counted before says nothing of the time since.
                if change.state.is_some()
                    && let Some(slot) = state.in_flight.get_mut(change.backend as usize)
                {
                    *slot = None;
                }
            });
        }
        Ok(())
    }
}

/// The backend that a change is of.
fn place<'a>(backends: &'a mut [Backend], change: &SetBackend) -> Option<&'a mut Backend> {
    backends.get_mut(change.backend as usize)
}

/// Waits until a watched bound is passed: the requests in flight then; `None` where the watch has ended without it.
async fn passed_bound(passed: &mut Option<(Watch, BoundWatch)>) -> Option<u64> {
    let Some((_, stream)) = passed else {
        return std::future::pending().await;
    };
    // A connection that is lost ends the periods too.
    let found = stream.next().await.ok().flatten().map(|passed| passed.in_flight);
    *passed = None;
    found
}
