//! The cluster and the loop's one step.

mod orders;
mod server_ticks;
mod snapshot;

use super::balancer::Balancer;
use super::check::Checks;
use super::queues::Queue;
use super::switch_worker::SwitchWorker;
use super::tick::{BalancerTick, Tick};
use anyhow::anyhow;
use headroom_console::Stop;
use headroom_control::resize::{Energy, Fleet, Found, Health, PowerState, PowerTuning, Resize, Server, hold};
use headroom_control::{Law, Observation};
use headroom_units::{PerSecond, Seconds};
use serde::Deserialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the servers are looked at while they are being found.
const FIND_AGAIN: Duration = Duration::from_millis(20);

/// Where the arrival rate is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// Connections that arrive at the servers' accept queues.
    AcceptQueue,
    /// Requests that the balancer counts.
    Balancer,
}

impl Demand {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::AcceptQueue => "connections at the accept queues",
            Self::Balancer => "requests at the balancer",
        }
    }
}

/// One server's parts.
#[derive(Debug)]
pub struct ServerParts {
    /// Its name.
    pub name: String,
    /// The hand on its power switch.
    pub switch_worker: SwitchWorker,
    /// Its accept queue, where it is watched.
    pub queue: Option<Queue>,
}

/// What a cluster is made of.
pub struct Parts {
    /// The servers.
    pub servers: Vec<ServerParts>,
    /// What is in front of them.
    pub balancer: Box<dyn Balancer>,
    /// Whether they answer.
    pub checks: Checks,
    /// The controller.
    pub resizer: Box<dyn Law>,
    /// The time limits of the power states.
    pub tuning: PowerTuning,
    /// Where the arrival rate comes from.
    pub demand: Demand,
    /// One capacity for all, where it was given and none is estimated.
    pub fixed: Option<PerSecond>,
    /// The model of what servers draw.
    pub energy: Option<Energy>,
    /// The control period.
    pub period: Duration,
}

/// A live cluster.
pub struct Cluster {
    pub(super) parts: Parts,
    fleet: Fleet,
    /// Decide and say, and do nothing.
    dry: bool,
    started: Instant,
    last: Instant,
    period: u64,
    /// Why a change did not reach the balancer.
    unreported: Option<String>,
}

impl Cluster {
    /// Finds the servers as they are: waits until each was checked and its switch asked, and the balancer can be relied on.
    /// Nothing where `stop` was raised before.
    ///
    /// # Errors
    /// The balancer cannot be relied on within `patience`; a parameter outside its range.
    pub fn find(
        mut parts: Parts,
        dry: bool,
        patience: Duration,
        stop: &Stop,
    ) -> anyhow::Result<Option<Self>> {
        let until = Instant::now() + patience;
        loop {
            let asked = parts.servers.iter().all(|server| server.switch_worker.asked());
            let look = parts.balancer.look(patience.min(parts.period));
            let over = Instant::now() >= until;
            match look {
                // A switch that does not come back is no reason to wait longer: its server is asked whether it answers.
                Ok(_) if parts.checks.all_checked() && (asked || over) => break,
                Err(why) if over => {
                    return Err(anyhow!("{} cannot be relied on: {why}", parts.balancer.name()));
                }
                _ => {}
            }
            if stop.wait_until(Instant::now() + FIND_AGAIN) {
                return Ok(None);
            }
        }
        let now = Instant::now();
        let found: Vec<Found> = parts
            .servers
            .iter()
            .enumerate()
            .map(|(at, server)| {
                Found::from(&Health {
                    answering: parts.checks.answers(at).is_ok(),
                    powered: server.switch_worker.powered(),
                    ..Health::default()
                })
            })
            .collect();
        let fleet = Fleet::found(parts.tuning, &found, Seconds::ZERO)?;
        for (server, found) in parts.servers.iter_mut().zip(&found) {
            if let Some(queue) = server.queue.as_mut().filter(|_| *found == Found::Answering) {
                queue.join(None)?;
            }
        }
        Ok(Some(Self {
            parts,
            fleet,
            dry,
            started: now,
            last: now,
            period: 0,
            unreported: None,
        }))
    }

    /// Each server's name and state.
    pub fn states(&self) -> Vec<(String, PowerState)> {
        let states = self.fleet.servers().iter().map(Server::state);
        let names = self.parts.servers.iter().map(|server| server.name.clone());
        names.zip(states).collect()
    }

    /// The controller's name.
    pub fn resizer_name(&self) -> &'static str {
        self.parts.resizer.name()
    }

    /// The balancer, in words.
    pub fn balancer_name(&self) -> String {
        self.parts.balancer.name()
    }

    /// Each watched accept queue's server and place, in words.
    pub fn queues(&self) -> Vec<(String, String)> {
        let watched = |server: &ServerParts| Some((server.name.clone(), server.queue.as_ref()?.place()));
        self.parts.servers.iter().filter_map(watched).collect()
    }

    /// What a user should know at the start.
    pub fn notes(&mut self) -> Vec<String> {
        let mut notes = self.parts.balancer.notes();
        for server in &mut self.parts.servers {
            let obstacle = server.queue.as_mut().and_then(Queue::obstacle);
            notes.extend(obstacle.map(|why| format!("{}: {why}", server.name)));
            notes.extend(
                server
                    .switch_worker
                    .trouble()
                    .map(|why| format!("{}: {why}", server.name)),
            );
        }
        notes
    }

    /// One period: looks, decides, orders.
    pub fn tick(&mut self) -> Tick {
        let at = Instant::now();
        let length = Seconds::from(at.duration_since(std::mem::replace(&mut self.last, at)));
        let now = Seconds::from(at.duration_since(self.started));
        let mut shown = self.sample_queues();
        let snapshot = self.look(&shown);
        if self.dry {
            self.find_again(&snapshot.health, now);
        }
        let before: Vec<PowerState> = self.fleet.servers().iter().map(|one| one.state()).collect();
        let arrival_rate = self.arrival_rate(&shown, &snapshot.look);
        let seen = self.seen(&before, &snapshot.look);
        let decision = self.parts.resizer.decide(&Observation {
            period: self.period,
            at: now,
            clock: Seconds::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            length,
            demand: arrival_rate,
            nodes: seen,
            ..Observation::default()
        });
        let decided = Resize::of(decision, before.len());
        let trouble = snapshot
            .look
            .as_ref()
            .err()
            .cloned()
            .or_else(|| self.unreported.clone());
        let resize = match &trouble {
            Some(why) => hold(decided, why, &before, &snapshot.health),
            None => decided,
        };
        let orders = self.fleet.steer(now, resize.servers, &snapshot.health);
        if !self.dry {
            self.carry_out(&orders, &before);
            self.unreported = self.tell_balancer().err();
        }
        let servers = self.server_ticks(now, &before, &orders, &snapshot, &mut shown);
        self.spend(length, &servers, arrival_rate);
        let tick = Tick {
            period: self.period,
            at: now,
            length,
            arrival_rate,
            balancer: BalancerTick::new(snapshot.look.ok().and_then(|look| look.traffic), trouble),
            resize,
            servers,
            energy: self.parts.energy.map(|energy| energy.sum),
        };
        self.period += 1;
        tick
    }
}
