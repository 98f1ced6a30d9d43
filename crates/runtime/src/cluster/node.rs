//! One agent, seen from the controller: the task that keeps the connection, and what is known.

use super::{BackOff, Shared, stop_requested};
use headroom_units::{Lever, Setting};
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::{Apply, Description, Holder, LeaseState, Sample};
use headroom_wire::{Address, Refusal};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A node that was booted and serves has its agent within this time, tries to connect included; else that is missing.
const MAX_RETURN: Duration = Duration::from_secs(10);

/// What is known of a node, and what is wanted of it.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    /// What it said it is, when the connection was made last; `None` while it is not connected.
    pub(super) description: Option<Description>,
    /// What it said last, of a connection that was lost: what it counts as until it is back.
    pub(super) last: Option<Description>,
    /// The newest sample of this connection.
    pub(super) sample: Option<Sample>,
    /// The fewest connections that waited at its server on call, by the samples since this was taken last.
    pub(super) waiting_least: Option<u32>,
    /// What is in force, as it was answered last.
    pub(super) in_force: Setting,
    /// Who keeps it from us.
    pub(super) held_by: Option<String>,
    /// Why it cannot be reached, or refuses, in words; `None` while all is well.
    pub(super) trouble: Option<String>,
    /// The last wish that was answered, well or not.
    pub(super) answered: u64,
    /// Whether that wish was refused by the machine.
    pub(super) refused: bool,
    /// Connections made.
    pub(super) connections: u64,
    /// Why its connection was lost, until that was reported: whoever reports it knows whether it was switched off.
    pub(super) lost: Option<String>,
    /// When it was off, booted or stopped as ordered last, so that its agent's absence is no loss; `None` once that was back.
    pub(super) switched: Option<Instant>,
}

impl NodeState {
    /// Whether its agent is not there because the node was switched, or booted a moment ago.
    pub(super) fn is_switched(&self) -> bool {
        self.switched.is_some_and(|at| at.elapsed() < MAX_RETURN)
    }

    /// Takes in who has a lease of it: one of another name keeps it from us, one of our own may be ours from before.
    pub(super) fn see_lease(&mut self, lease: Option<&LeaseState>, holder: &Holder) {
        self.held_by = lease
            .map(|lease| lease.holder.clone())
            .filter(|name| name != holder.name());
        self.trouble = self
            .held_by
            .as_ref()
            .map(|holder| format!("it is held by {holder:?}"));
    }

    /// Takes in a sample. Until we have commanded it, nothing else tells that another's lease has ended.
    pub(super) fn report(&mut self, sample: Sample, commanded: bool, holder: &Holder) {
        if !commanded {
            self.see_lease(sample.lease.as_ref(), holder);
        }
        // A lease that ran out unnoticed shows here.
        if sample.lease.is_none() {
            self.in_force = sample.in_force;
        }
        let now = sample.oncall.as_ref().and_then(|oncall| oncall.now.as_ref().ok());
        let least = [self.waiting_least, now.map(|now| now.waiting_least)];
        self.waiting_least = least.into_iter().flatten().min();
        self.sample = Some(sample);
    }

    /// Whether it is there and ours to command.
    pub(super) fn is_live(&self) -> bool {
        self.description.is_some() && self.held_by.is_none()
    }
}

/// What a node is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wish {
    /// Counts the wishes, from 1; 0 where nothing is wished yet.
    pub(super) number: u64,
    /// What is to be in force.
    pub(super) setting: Setting,
    /// When the control loop wished it, or last said that it still does.
    pub(super) at: Option<Instant>,
}

/// How a node is reached and commanded.
#[derive(Clone, Debug)]
pub(super) struct NodeOptions {
    pub(super) name: String,
    pub(super) address: Address,
    pub(super) client: ClientOptions,
    pub(super) holder: Holder,
    /// How long a lease lives.
    pub(super) lease: Duration,
    /// A control loop that has wished nothing for this long is stuck: its leases are not renewed.
    pub(super) stuck: Duration,
    /// How often the node is observed.
    pub(super) period: Duration,
}

/// The task of one node.
pub(super) struct NodeTask {
    pub(super) options: NodeOptions,
    pub(super) state: Arc<Shared<NodeState>>,
    pub(super) wish: watch::Receiver<Wish>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) sequence: u64,
}

impl NodeTask {
    /// Connects, observes and commands until it is stopped; then releases the node.
    pub(super) async fn run(mut self) {
        let mut back_off = BackOff::new();
        while !*self.stop.borrow() {
            let mut stop = self.stop.clone();
            let connected = tokio::select! {
                connected = Client::connect(&self.options.address, &self.options.client) => connected,
                () = stop_requested(&mut stop) => return,
            };
            let ended = match connected {
                Ok(client) => {
                    back_off = BackOff::new();
                    self.connected(&client);
                    self.attend(&client).await
                }
                Err(error) => Some(error),
            };
            let Some(error) = ended else { return };
            self.lost(&error);
            tokio::select! {
                () = tokio::time::sleep(back_off.again()) => {}
                () = stop_requested(&mut stop) => {}
            }
        }
    }

    fn connected(&mut self, client: &Client) {
        let description = client.agent().clone();
        self.state.change(|state| {
            if state.connections > 0 && !state.is_switched() {
                tracing::warn!(node = self.options.name, "the node is back");
            }
            state.connections += 1;
            state.switched = None;
            state.in_force = description.in_force;
            state.see_lease(description.lease.as_ref(), &self.options.holder);
            state.sample = None;
            state.description = Some(description);
        });
    }

    fn lost(&self, error: &CallError) {
        let why = error.to_string();
        self.state.change(|state| {
            if let Some(description) = state.description.take() {
                state.last = Some(description);
                state.lost = Some(why.clone());
            }
            state.sample = None;
            state.trouble = Some(why);
        });
    }

    /// Observes and commands until the connection ends, which is an error, or until it is stopped.
    async fn attend(&mut self, client: &Client) -> Option<CallError> {
        let mut samples = match client.observe(self.options.period).await {
            Ok(samples) => samples,
            Err(error) => return Some(error),
        };
        let mut stop = self.stop.clone();
        let mut wish = self.wish.clone();
        let mut renew = tokio::time::interval(self.options.lease / 3);
        renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let sampled = tokio::select! {
                sample = samples.next() => Some(sample),
                Ok(()) = wish.changed() => None,
                _ = renew.tick() => None,
                () = stop_requested(&mut stop) => {
                    let ours = self.sequence > 0 && self.state.lock().held_by.is_none();
                    if ours && let Err(error) = client.release(&self.options.holder).await {
                        tracing::warn!(node = self.options.name, "not released, its lease must end by itself: {error}");
                    }
                    return None;
                }
            };
            match sampled {
                Some(Ok(Some(sample))) => self.sampled(sample),
                Some(Ok(None)) => {
                    return Some(CallError::Unreachable {
                        address: self.options.address.clone(),
                        why: "the agent has ended".to_owned(),
                    });
                }
                Some(Err(error)) => return Some(error),
                None => {
                    if let Err(error) = self.look_again(client).await {
                        return Some(error);
                    }
                    let wanted = *wish.borrow_and_update();
                    if let Err(error) = self.apply(client, wanted).await {
                        return Some(error);
                    }
                }
            }
        }
    }

    /// Asks a node that had no lever, or could not say what it draws, when it was described last, what it has now. Nothing
    /// is asked of such a node, so that no refusal would ever tell that its levers are back.
    async fn look_again(&self, client: &Client) -> Result<(), CallError> {
        let lacks = |description: &Description| {
            let limited = [Lever::Cores, Lever::Cap];
            limited
                .iter()
                .any(|lever| description.ranges.get(*lever).is_none())
                || description.envelope.is_none()
        };
        if !self.state.lock().description.as_ref().is_some_and(lacks) {
            return Ok(());
        }
        let description = client.describe().await?;
        if !lacks(&description) {
            tracing::warn!(node = self.options.name, "the node can be commanded again");
        }
        self.state.change(|state| state.description = Some(description));
        Ok(())
    }

    fn sampled(&self, sample: Sample) {
        for trouble in &sample.troubles {
            tracing::warn!(node = self.options.name, "{trouble}");
        }
        let commanded = self.sequence > 0;
        self.state
            .change(|state| state.report(sample, commanded, &self.options.holder));
    }

    /// Puts a wish in force, or renews its lease. Only what ends the connection is an error.
    async fn apply(&mut self, client: &Client, wish: Wish) -> Result<(), CallError> {
        let Some(at) = wish.at else { return Ok(()) };
        if at.elapsed() > self.options.stuck {
            // Whoever decides has fallen silent: the lease is left to end.
            return Ok(());
        }
        self.sequence += 1;
        let apply = Apply {
            holder: self.options.holder.clone(),
            sequence: self.sequence,
            length: self.options.lease,
            setting: wish.setting,
        };
        let answer = client.apply(apply).await;
        let (in_force, held_by, trouble) = match answer {
            Ok(applied) => (Some(applied.in_force), None, None),
            Err(CallError::Refused(Refusal::HeldByAnother { holder, remaining })) => {
                let why = format!(
                    "it is held by {holder:?} for another {:.1} s",
                    remaining.as_secs_f64()
                );
                (None, Some(holder), Some(why))
            }
            Err(CallError::Refused(refusal)) => {
                let in_force = match &refusal {
                    Refusal::MachineRefused { in_force, .. } => Some(**in_force),
                    _ => None,
                };
                (in_force, None, Some(refusal.to_string()))
            }
            Err(error) => return Err(error),
        };
        let refused = trouble.is_some();
        if refused {
            // What can be asked of it may have changed.
            let description = client.describe().await?;
            self.state.change(|state| {
                state.in_force = in_force.unwrap_or(description.in_force);
                state.description = Some(description);
            });
        }
        self.state.change(|state| {
            if refused && state.trouble != trouble {
                let why = trouble.as_deref().unwrap_or_default();
                tracing::warn!(node = self.options.name, "{why}");
            }
            if state.held_by.is_some() && held_by.is_none() {
                tracing::warn!(node = self.options.name, "the node is ours now");
            }
            state.in_force = in_force.unwrap_or(state.in_force);
            state.refused = refused;
            state.held_by = held_by;
            state.trouble = trouble;
            state.answered = state.answered.max(wish.number);
        });
        Ok(())
    }
}
