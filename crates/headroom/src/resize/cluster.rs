//! The cluster and the loop's one step.

use super::balancer::{Admission, Balancer, Look, Member, Wanted};
use super::check::Checks;
use super::energy::{Energy, Load};
use super::hand::{Hand, PowerOrder};
use super::queues::{Queue, Shown};
use super::tick::{ServerTick, Tick};
use crate::config::resize::Demand;
use crate::stop::Stop;
use anyhow::anyhow;
use headroom_control::capacity::Capacity;
use headroom_control::decision::Reason;
use headroom_control::resize::{
    Cause, ClusterSeen, Command, Fleet, Found, Health, Order, PowerState, PowerTuning, Resize, Resizer,
    ServerSeen,
};
use headroom_units::{PerSecond, Seconds};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The rule of a decision that was overruled because the balancer cannot be relied on.
pub const BALANCER_LOST: &str = "balancer-lost";
/// How often the servers are looked at while they are being found.
const FIND_AGAIN: Duration = Duration::from_millis(20);

/// One server's parts.
#[derive(Debug)]
pub struct ServerParts {
    /// Its name.
    pub name: String,
    /// The hand on its power switch.
    pub hand: Hand,
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
    pub resizer: Box<dyn Resizer>,
    /// The time limits of the power states.
    pub tuning: PowerTuning,
    /// Where the arrival rate comes from.
    pub demand: Demand,
    /// One capacity for all, where it was given and none is estimated.
    pub fixed: Option<PerSecond>,
    /// For a controller that goes by the time of day: by how many seconds its clock is ahead of UTC.
    pub clock_offset_s: Option<f64>,
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
    untold: Option<String>,
}

/// What is known of the servers at one time.
struct Sight {
    look: Result<Look, String>,
    health: Vec<Health>,
    /// Why each does not answer.
    silence: Vec<Option<String>>,
    /// Why the last order to each switch failed.
    failed: Vec<Option<String>>,
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
            let asked = parts.servers.iter().all(|server| server.hand.asked());
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
                    powered: server.hand.powered(),
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
            untold: None,
        }))
    }

    /// Each server's name and state.
    pub fn states(&self) -> Vec<(String, PowerState)> {
        let states = self
            .fleet
            .servers()
            .iter()
            .map(headroom_control::resize::Server::state);
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

    /// What a user should know at the start.
    pub fn notes(&mut self) -> Vec<String> {
        let mut notes = self.parts.balancer.notes();
        for server in &mut self.parts.servers {
            let obstacle = server.queue.as_mut().and_then(Queue::obstacle);
            notes.extend(obstacle.map(|why| format!("{}: {why}", server.name)));
            notes.extend(server.hand.trouble().map(|why| format!("{}: {why}", server.name)));
        }
        notes
    }

    /// One period: looks, decides, orders.
    pub fn tick(&mut self) -> Tick {
        let at = Instant::now();
        let length = Seconds::from(at.duration_since(std::mem::replace(&mut self.last, at)));
        let now = Seconds::from(at.duration_since(self.started));
        let mut shown = self.sample_queues();
        let sight = self.look(&shown);
        if self.dry {
            self.find_again(&sight.health, now);
        }
        let before: Vec<PowerState> = self.fleet.servers().iter().map(|one| one.state()).collect();
        let arrival_rate = self.arrival_rate(&shown, &sight.look);
        let seen = self.seen(&before, &sight.look);
        let by_the_clock = self.parts.clock_offset_s.map(|offset_s| {
            let utc = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Seconds::new(utc.as_secs_f64() + offset_s)
        });
        let decided = self.parts.resizer.decide(&ClusterSeen {
            now: by_the_clock.unwrap_or(now),
            arrival_rate,
            servers: &seen,
        });
        let trouble = sight.look.as_ref().err().cloned().or_else(|| self.untold.clone());
        let resize = match &trouble {
            Some(why) => hold(decided, why, &before, &sight.health),
            None => decided,
        };
        let orders = self.fleet.steer(now, resize.servers, &sight.health);
        if !self.dry {
            self.carry_out(&orders, &before);
            self.untold = self.tell_balancer().err();
        }
        let servers = self.server_ticks(now, &before, &orders, &sight, &mut shown);
        self.spend(length, &servers, arrival_rate);
        let tick = Tick {
            period: self.period,
            at: now,
            length,
            arrival_rate,
            traffic: sight.look.ok().and_then(|look| look.traffic),
            resize,
            servers,
            balancer_trouble: trouble,
            energy: self.parts.energy,
        };
        self.period += 1;
        tick
    }

    fn sample_queues(&mut self) -> Vec<Option<Shown>> {
        let states = self.fleet.servers().iter().map(|one| one.state());
        self.parts
            .servers
            .iter_mut()
            .zip(states)
            .map(|(server, state)| Some(server.queue.as_mut()?.step(state.takes_requests())))
            .collect()
    }

    fn look(&mut self, shown: &[Option<Shown>]) -> Sight {
        let look = self.parts.balancer.look(self.parts.period / 2);
        let (mut health, mut silence, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (at, server) in self.parts.servers.iter().enumerate() {
            // An overloaded server lets a check wait, and is not lost: it accepts connections.
            let accepts = matches!(&shown[at], Some(Shown::Counted(counted)) if counted.accepts > 0.0);
            let answers = self.parts.checks.answers(at);
            let member = look.as_ref().ok().map(|look| look.members[at]);
            let failure = server.hand.take_failure();
            health.push(Health {
                answering: accepts || answers.is_ok(),
                powered: server.hand.powered(),
                // What it has is what it will have only once the balancer gives it nothing new.
                connections: member
                    .filter(|member| member.admission != Admission::Ready)
                    .and_then(|member| member.in_flight),
                command_failed: failure.is_some(),
            });
            silence.push(answers.err().filter(|_| !accepts));
            failed.push(failure);
        }
        Sight {
            look,
            health,
            silence,
            failed,
        }
    }

    /// In a dry run nothing that was decided has happened: the servers are found anew.
    fn find_again(&mut self, health: &[Health], now: Seconds) {
        let found: Vec<Found> = health.iter().map(Found::from).collect();
        // The same parameters and as many servers as at the start, so it cannot fail where that did not.
        if let Ok(fleet) = Fleet::found(self.parts.tuning, &found, now) {
            self.fleet = fleet;
        }
    }

    fn arrival_rate(&self, shown: &[Option<Shown>], look: &Result<Look, String>) -> Option<PerSecond> {
        match self.parts.demand {
            Demand::Balancer => {
                let traffic = look.as_ref().ok()?.traffic.as_ref()?;
                let length_s = traffic.length.as_secs_f64();
                (length_s > 0.0).then(|| PerSecond::new(traffic.arrivals as f64 / length_s))
            }
            Demand::AcceptQueue => {
                let (mut sum, mut known, mut serving) = (0.0, 0_u32, 0_u32);
                for (server, shown) in self.fleet.servers().iter().zip(shown) {
                    let takes = server.state().takes_requests();
                    serving += u32::from(takes);
                    match shown {
                        Some(Shown::Counted(counted)) => {
                            sum += counted.arrival_rate();
                            known += u32::from(takes);
                        }
                        Some(Shown::Nobody) => known += u32::from(takes),
                        Some(Shown::Unknown(_)) | None => {}
                    }
                }
                // The balancer spreads requests evenly, so a server that could not be read has what the others have.
                match (known, serving) {
                    (0, 1..) => None,
                    (_, 0) => Some(PerSecond::new(sum)),
                    _ => Some(PerSecond::new(sum * f64::from(serving) / f64::from(known))),
                }
            }
        }
    }

    fn capacity(&self, server: usize) -> Capacity {
        match (&self.parts.servers[server].queue, self.parts.fixed) {
            (_, Some(fixed)) => Capacity::Exact(fixed),
            (Some(queue), None) => queue.capacity().0,
            (None, None) => Capacity::Unknown,
        }
    }

    /// What the controller is shown. A server that was told to the balancer and is not given requests yet is on its way.
    fn seen(&self, states: &[PowerState], look: &Result<Look, String>) -> Vec<ServerSeen> {
        let admission = |at: usize| look.as_ref().ok().map(|look| look.members[at].admission);
        states
            .iter()
            .enumerate()
            .map(|(at, state)| {
                let waits =
                    state.takes_requests() && admission(at).is_some_and(|told| told != Admission::Ready);
                ServerSeen {
                    state: if waits { PowerState::Booting } else { *state },
                    capacity: self.capacity(at),
                }
            })
            .collect()
    }

    fn carry_out(&mut self, orders: &[Order], before: &[PowerState]) {
        for order in orders {
            let at = order.server;
            match order.command {
                Command::PowerOn => self.parts.servers[at].hand.order(PowerOrder::On),
                Command::PowerOff => {
                    // One that was told before, and is still on.
                    let force = before[at] == PowerState::Failed(Cause::Stop);
                    self.parts.servers[at].hand.order(PowerOrder::Off { force });
                }
                Command::Enable => {
                    let peers = self.exact_mean();
                    if let Some(Err(error)) = self.parts.servers[at]
                        .queue
                        .as_mut()
                        .map(|queue| queue.join(peers))
                    {
                        // The parameters were checked when the file was read.
                        tracing::error!(server = self.parts.servers[at].name, "{error}");
                    }
                }
                Command::Disable => {}
            }
        }
        for (server, power) in self.parts.servers.iter_mut().zip(self.fleet.servers()) {
            let state = power.state();
            server.hand.set_eager(matches!(
                state,
                PowerState::Booting | PowerState::Stopping | PowerState::Failed(_)
            ));
            if let Some(queue) = &mut server.queue
                && !state.takes_requests()
                && state != PowerState::Draining
            {
                queue.forget();
            }
        }
    }

    /// The mean of what is known exactly of the servers that take requests.
    fn exact_mean(&self) -> Option<PerSecond> {
        let servers = self.parts.servers.iter().zip(self.fleet.servers());
        let exact: Vec<f64> = servers
            .filter(|(_, power)| power.state().takes_requests())
            .filter_map(|(server, _)| match server.queue.as_ref()?.capacity().0 {
                Capacity::Exact(capacity) => Some(capacity.get()),
                Capacity::LowerBound(_) | Capacity::Unknown => None,
            })
            .collect();
        (!exact.is_empty()).then(|| PerSecond::new(exact.iter().sum::<f64>() / exact.len() as f64))
    }

    fn tell_balancer(&mut self) -> Result<(), String> {
        let wanted: Vec<Wanted> = self
            .fleet
            .servers()
            .iter()
            .map(|server| Wanted {
                admission: match server.state() {
                    PowerState::Warming | PowerState::Serving => Admission::Ready,
                    PowerState::Draining => Admission::Drain,
                    PowerState::Off | PowerState::Booting | PowerState::Stopping | PowerState::Failed(_) => {
                        Admission::Out
                    }
                },
                warming: server.state() == PowerState::Warming,
            })
            .collect();
        self.parts.balancer.want(&wanted, self.parts.period / 4)
    }

    fn server_ticks(
        &self,
        now: Seconds,
        before: &[PowerState],
        orders: &[Order],
        sight: &Sight,
        shown: &mut [Option<Shown>],
    ) -> Vec<ServerTick> {
        let members: Option<&[Member]> = sight.look.as_ref().ok().map(|look| &look.members[..]);
        self.parts
            .servers
            .iter()
            .zip(self.fleet.servers())
            .enumerate()
            .map(|(at, (server, power))| {
                let mut trouble: Vec<String> = Vec::new();
                trouble.extend(sight.failed[at].clone().or_else(|| server.hand.trouble()));
                trouble.extend(
                    sight.silence[at]
                        .clone()
                        .filter(|_| power.state().takes_requests()),
                );
                let member = members.map(|members| members[at]);
                if member.is_some_and(|member| member.well == Some(false)) && power.state().takes_requests() {
                    trouble.push("the balancer's own check finds it down".to_owned());
                }
                let counted = match shown[at].take() {
                    Some(Shown::Counted(counted)) => Some(counted),
                    Some(Shown::Unknown(why)) => {
                        trouble.push(why);
                        None
                    }
                    Some(Shown::Nobody) | None => None,
                };
                let outcomes = server.hand.outcomes();
                ServerTick {
                    name: server.name.clone(),
                    state: power.state(),
                    before: before[at],
                    for_s: (now - power.since()).get().max(0.0),
                    failures: power.failures(),
                    capacity: self.capacity(at),
                    estimated: server
                        .queue
                        .as_ref()
                        .and_then(|queue| queue.capacity().1.cloned()),
                    counted,
                    powered: sight.health[at].powered,
                    answering: sight.health[at].answering,
                    admission: member.map(|member| member.admission),
                    in_flight: member.and_then(|member| member.in_flight),
                    command: orders
                        .iter()
                        .find(|order| order.server == at)
                        .map(|order| order.command),
                    orders: (outcomes.done, outcomes.failed),
                    trouble,
                }
            })
            .collect()
    }

    fn spend(&mut self, length: Seconds, servers: &[ServerTick], arrival_rate: Option<PerSecond>) {
        let Some(energy) = &mut self.parts.energy else {
            return;
        };
        let taking = servers
            .iter()
            .filter(|one| one.before.takes_requests())
            .count()
            .max(1) as f64;
        let share = arrival_rate.map(|rate| rate.get() / taking);
        let loads: Vec<Load> = servers
            .iter()
            .map(|one| {
                let rate = one.counted.map(|counted| counted.arrival_rate()).or(share);
                let capacity = one
                    .capacity
                    .value()
                    .map(PerSecond::get)
                    .filter(|rate| *rate > 0.0);
                Load {
                    // What it was during the period.
                    state: one.before,
                    powered: one.powered,
                    used: rate.zip(capacity).map(|(rate, capacity)| rate / capacity),
                }
            })
            .collect();
        energy.add(length, &loads);
    }
}

/// While the balancer cannot be relied on, nobody who is up goes.
fn hold(decided: Resize, why: &str, states: &[PowerState], health: &[Health]) -> Resize {
    let up = states
        .iter()
        .zip(health)
        .filter(|(state, health)| match state {
            PowerState::Booting | PowerState::Warming | PowerState::Serving => true,
            PowerState::Draining => health.answering,
            PowerState::Off | PowerState::Stopping | PowerState::Failed(_) => false,
        })
        .count();
    if decided.servers >= up {
        return decided;
    }
    Resize {
        servers: up,
        reason: Reason::new(
            BALANCER_LOST,
            format!(
                "{why}: all {up} servers that are up stay, though {} would do",
                decided.servers
            ),
            &[("servers", up as f64), ("decided", decided.servers as f64)],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_while_the_balancer_cannot_be_told() {
        let decided = |servers| Resize {
            servers,
            reason: Reason::new("shrink", String::new(), &[]),
        };
        let states = [PowerState::Serving, PowerState::Draining, PowerState::Off];
        let up = Health {
            answering: true,
            ..Health::default()
        };
        let health = [up, up, Health::default()];
        let held = hold(decided(1), "no answer", &states, &health);
        assert_eq!((held.servers, held.reason.rule.as_ref()), (2, BALANCER_LOST));
        assert!(held.reason.text.starts_with("no answer: all 2 servers"));
        // More are still started.
        let more = hold(decided(3), "no answer", &states, &health);
        assert_eq!((more.servers, more.reason.rule.as_ref()), (3, "shrink"));
        // One that drains and does not answer cannot come back.
        let health = [up, Health::default(), Health::default()];
        assert_eq!(hold(decided(1), "no answer", &states, &health).servers, 1);
    }
}
