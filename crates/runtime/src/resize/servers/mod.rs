//! The servers of a cluster as a device of the control loop.

mod apply;
mod capacity;
mod failing;
mod held;
mod maintenance;
mod observe;
mod own_checks;
mod reused;
mod seen;
mod unheard;

pub use maintenance::{GoesOut, HandedOver, MaintenanceChange, TakenOut};

use super::balancer::{Admission, AtServer, Balancer};
use super::check::{Checks, NoAnswer};
use super::queues::Queue;
use super::switch_worker::SwitchWorker;
use crate::live::{Device, DevicePeriod};
use anyhow::anyhow;
use failing::Failing;
use headroom_console::Stop;
use headroom_control::Decision;
use headroom_control::resize::{
    Cause, Energy, FirstAttempts, Fleet, Found, Health, HeldBack, InHand, Maintenance, Met, Order,
    PowerState, PowerTuning, Presumed, Server,
};
use headroom_units::{PerSecond, Seconds, Setting};
use held::Held;
use own_checks::{BalancerChecks, OwnChecks};
use reused::Reused;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use unheard::Unheard;

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
    /// What works its power switch.
    pub switch_worker: SwitchWorker,
    /// Its accept queue, where it is watched.
    pub queue: Option<Queue>,
    /// Whether its check comes to that queue, too.
    pub is_checked_there: bool,
}

/// What a cluster is made of.
pub struct Parts {
    /// The servers.
    pub servers: Vec<ServerParts>,
    /// What is in front of them.
    pub balancer: Box<dyn Balancer>,
    /// Whether they answer.
    pub checks: Checks,
    /// The time limits of the power states.
    pub tuning: PowerTuning,
    /// Where the arrival rate comes from.
    pub demand: Demand,
    /// One capacity for all, where it was given and none is estimated.
    pub fixed: Option<PerSecond>,
    /// The model of what servers draw.
    pub energy: Option<Energy>,
    /// Which of them are equal machines: those of the same number.
    pub kinds: Vec<usize>,
    /// Within which time of its coming a request is to be answered: no server is given more at a time than that lets, where the balancer
    /// can hold them back; `None` for as many as come.
    pub in_hand: Option<Seconds>,
    /// Which of them an operator takes out.
    pub taken_out: TakenOut,
    /// The control period.
    pub period: Duration,
}

impl Parts {
    /// How an operator takes each server out.
    fn maintenance(&self) -> Vec<Option<Maintenance>> {
        let each = self.servers.iter();
        each.map(|server| self.taken_out.of(&server.name)).collect()
    }

    /// Whether a server is taken for one that answers when it is found. One that gets requests and lets its check wait at a port where somebody
    /// listens may have workers that connections hold; whether it does is seen.
    fn is_found_answering(&mut self, at: usize, admission: Admission) -> bool {
        let server = &mut self.servers[at];
        match self.checks.answers(at) {
            Ok(()) => true,
            Err(NoAnswer::Refused(_)) => false,
            Err(NoAnswer::Silent(_)) => {
                let is_on = server.switch_worker.powered() != Some(false) && admission == Admission::Ready;
                is_on && server.queue.as_mut().is_some_and(Queue::is_heard)
            }
        }
    }

    /// How a server is found. One that is to be taken out was handed over by the run before where that left so, whatever gateways that were
    /// started since give it; and it is shut down where that is asked for since. Where nobody remembers, or that run had not come so far, one
    /// that gets nothing was handed over or taken out by somebody's hand: that it answers is no reason to give it any. One that only gets
    /// nothing new was still being drained, perhaps on trial: whether the others do without it nobody knows, so it is taken out anew.
    fn found(
        &self,
        at: usize,
        health: &Health,
        admission: Option<Admission>,
        remembered: Option<&HandedOver>,
    ) -> Found {
        let name = &self.servers[at].name;
        let Some(how) = self.taken_out.of(name) else {
            return Found::from(health);
        };
        let was = remembered.and_then(|those| those.get(name));
        match (was, admission) {
            (Some(Some(was)), _) if was.power_off || !how.power_off => Found::Maintenance,
            (Some(Some(_)), _) | (Some(None), Some(Admission::Out)) => Found::Leaving,
            (None, Some(Admission::Out)) => Found::Maintenance,
            (Some(None) | None, _) => Found::from(health),
        }
    }
}

/// The servers, the balancer in front of them, and how many are to be on.
pub struct Servers {
    pub(super) parts: Parts,
    fleet: Fleet,
    /// Look, and do nothing.
    dry: bool,
    started: Instant,
    last: Instant,
    /// Whether it could be kept last which servers an operator has.
    keeps_handed_over: bool,
    /// Why a change did not reach the balancer.
    unreported: Option<String>,
    /// How the servers were found in the period that was observed last.
    health: Vec<Health>,
    /// Why the balancer cannot be relied on in it.
    trouble: Option<String>,
    /// Who comes to each server's accept queue for the first time.
    first: Vec<FirstAttempts>,
    /// The checks that come to each server's accept queue.
    own_checks: Vec<OwnChecks>,
    /// The same among what each accepts.
    accepted_checks: Vec<OwnChecks>,
    /// The demand at each while it was counted last.
    before: Vec<PerSecond>,
    /// What came to each in the step before, and how long that was in seconds.
    step_before: Vec<(f64, f64)>,
    /// Whether nobody listens where what comes to each is counted.
    unheard: Vec<Unheard>,
    /// Whether requests come to each over connections that stay open.
    reused: Vec<Reused>,
    /// Whether each fails most of what it is sent.
    failing: Vec<Failing>,
    /// Whether connections that stay open may hold several servers.
    held: Held,
    /// The balancer's own checks of each.
    balancer_checks: Vec<BalancerChecks>,
    /// What the balancer itself counted at each in the last period, where it does.
    at_balancer: Vec<Option<AtServer>>,
    /// Attempts to connect for each request, as they were counted last.
    attempts_a_request: Option<f64>,
    /// What the gateways hold back.
    held_back: HeldBack,
    /// What was met of each, and what each that joined is presumed to take until it shows it.
    met: Met,
    presumed: Vec<Option<Presumed>>,
    /// How many requests each is given at a time.
    in_hand: Vec<InHand>,
    /// What that comes to; `None` for as many as come.
    most_in_flight: Vec<Option<u32>>,
    /// What was ordered since.
    orders: Vec<Order>,
    /// Sessions that each had left when it was switched off, since the start.
    cut: Vec<u64>,
    /// Why the last order to each switch failed, until the next is carried out.
    failed: Vec<Option<String>>,
    /// Whether somebody stands who switches them on where this process cannot; nothing where nobody is asked to.
    guard_stands: Option<Arc<AtomicBool>>,
    /// Since when every server is being started, because the run before could not.
    back_since: Option<Instant>,
}

impl Servers {
    /// Finds the servers as they are: waits until each was checked and its switch asked, and the balancer can be relied on.
    /// Nothing where `stop` was raised before. With `dry` nothing is ever done to them.
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
        let members = loop {
            let asked = parts.servers.iter().all(|server| server.switch_worker.asked());
            let look = parts.balancer.look(patience.min(parts.period));
            let over = Instant::now() >= until;
            match look {
                // A switch that does not come back is no reason to wait longer: its server is asked whether it answers.
                Ok(look) if parts.checks.all_checked() && (asked || over) => break look.members,
                Err(why) if over => {
                    return Err(anyhow!("{} cannot be relied on: {why}", parts.balancer.name()));
                }
                _ => {}
            }
            if stop.wait_until(Instant::now() + FIND_AGAIN) {
                return Ok(None);
            }
        };
        let now = Instant::now();
        let remembered = parts.taken_out.handed_over();
        let answering: Vec<bool> = (0..members.len())
            .map(|at| parts.is_found_answering(at, members[at].admission))
            .collect();
        let found: Vec<Found> = parts
            .servers
            .iter()
            .enumerate()
            .map(|(at, server)| {
                let health = Health {
                    answering: answering[at],
                    powered: server.switch_worker.powered(),
                    ..Health::default()
                };
                let found = parts.found(at, &health, Some(members[at].admission), remembered.as_ref());
                let is_to_be_off = parts.taken_out.of(&server.name).is_some_and(|how| how.power_off);
                let is_remembered = remembered
                    .as_ref()
                    .is_some_and(|those| those.contains_key(&server.name));
                if found == Found::Maintenance && is_to_be_off && !is_remembered && health.powered.unwrap_or(health.answering) {
                    tracing::warn!(
                        server = server.name,
                        "it is in maintenance, and on although it is to be off: who started it nobody remembers, so it is left on; to have it shut \
                         down, write `maintenance = true`, send SIGHUP, write `{{ power_off = true }}` again and send SIGHUP"
                    );
                }
                found
            })
            .collect();
        let mut fleet = Fleet::found(parts.tuning, &found, Seconds::ZERO)?.of_kinds(parts.kinds.clone());
        fleet.take_out(&parts.maintenance());
        for (server, found) in parts.servers.iter_mut().zip(&found) {
            if let Some(queue) = server.queue.as_mut().filter(|_| *found == Found::Answering) {
                queue.join(None)?;
            }
        }
        Ok(Some(Self {
            failed: vec![None; parts.servers.len()],
            cut: vec![0; parts.servers.len()],
            first: vec![FirstAttempts::default(); parts.servers.len()],
            own_checks: vec![OwnChecks::default(); parts.servers.len()],
            accepted_checks: vec![OwnChecks::default(); parts.servers.len()],
            before: vec![PerSecond::ZERO; parts.servers.len()],
            step_before: vec![(0.0, 0.0); parts.servers.len()],
            unheard: vec![Unheard::default(); parts.servers.len()],
            reused: vec![Reused::default(); parts.servers.len()],
            failing: vec![Failing::default(); parts.servers.len()],
            held: Held::default(),
            balancer_checks: vec![BalancerChecks::default(); parts.servers.len()],
            at_balancer: vec![None; parts.servers.len()],
            attempts_a_request: None,
            held_back: HeldBack::default(),
            in_hand: vec![InHand::new(parts.in_hand.unwrap_or(Seconds::ZERO)); parts.servers.len()],
            most_in_flight: vec![None; parts.servers.len()],
            met: Met::of_kinds(parts.kinds.clone()),
            presumed: vec![None; parts.servers.len()],
            parts,
            fleet,
            dry,
            started: now,
            last: now,
            unreported: None,
            health: Vec::new(),
            trouble: Some("nothing was observed yet".to_owned()),
            orders: Vec::new(),
            keeps_handed_over: true,
            guard_stands: None,
            back_since: None,
        }))
    }

    /// From now on no server is switched off while `stands` is false.
    pub fn guarded(&mut self, stands: Arc<AtomicBool>) {
        self.guard_stands = Some(stands);
    }

    /// Starts every server before the law decides how many are on: the run before was to, and could not.
    pub fn bring_back(&mut self) {
        self.back_since = Some(Instant::now());
    }

    /// Which servers an operator takes out, for whoever is told of others.
    pub fn taken_out(&self) -> TakenOut {
        self.parts.taken_out.clone()
    }

    fn power_states(&self) -> Vec<PowerState> {
        self.fleet.servers().iter().map(Server::state).collect()
    }

    /// Each server's name and state.
    pub fn states(&self) -> Vec<(String, PowerState)> {
        let names = self.parts.servers.iter().map(|server| server.name.clone());
        names.zip(self.power_states()).collect()
    }

    /// For how long each is known to be silent although it was started: one that failed to boot for a whole boot time.
    pub(super) fn silent_for(&self) -> Vec<Duration> {
        let now = Seconds::from(self.started.elapsed());
        let boot_s = self.parts.tuning.boot_timeout_s;
        let each = self.fleet.servers().iter().map(|server| {
            let since_s = (now - server.since()).get().max(0.0);
            Duration::from_secs_f64(match server.state() {
                PowerState::Failed(Cause::Boot | Cause::Stop) => boot_s + since_s,
                PowerState::Booting | PowerState::Failed(Cause::Lost | Cause::Command) => since_s,
                _ => 0.0,
            })
        });
        each.collect()
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

    /// The servers that answer while nobody listens at their accept queues, but those that an operator has.
    pub fn unheard(&mut self) -> Vec<String> {
        let (checks, taken_out) = (&self.parts.checks, &self.parts.taken_out);
        let servers = self.parts.servers.iter_mut().enumerate();
        let serves = servers.filter(|(_, server)| taken_out.of(&server.name).is_none());
        let unheard = serves.filter_map(|(at, server)| {
            let queue = server.queue.as_mut().filter(|_| checks.answers(at).is_ok())?;
            queue.is_unheard().then(|| server.name.clone())
        });
        unheard.collect()
    }

    /// Why the first accept queue cannot be measured, where none can: what each server takes is never known then. Of one at which nobody
    /// listens nothing is known yet.
    pub fn unmeasured(&mut self) -> Option<String> {
        let mut first = None;
        let servers = self.parts.servers.iter_mut();
        for queue in servers.filter_map(|server| server.queue.as_mut()) {
            match queue.obstacle() {
                Some(why) => first = first.or(Some(why)),
                None if queue.is_unheard() => {}
                None => return None,
            }
        }
        first
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
        for (at, server) in self.parts.servers.iter().enumerate() {
            if server.switch_worker.powered() == Some(false) && self.parts.checks.answers(at).is_ok() {
                notes.push(format!(
                    "{0}: its switch says that it is off, and it answers at its check: nodes.{0}.power asks another machine, or nodes.{0}.check is \
                     another's address",
                    server.name
                ));
            }
        }
        notes
    }
}

impl Device for Servers {
    fn observe(&mut self, period: &mut DevicePeriod) {
        self.look(period);
    }

    fn in_force(&self) -> Setting {
        self.fleet.in_force()
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        self.steer(decision);
        Ok(())
    }
}
