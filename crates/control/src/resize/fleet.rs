//! Which servers of a cluster are on: from a number to commands for each.

use super::bound::Bound;
use super::server::{Command, Found, Health, Leave, Maintenance, Others, PowerState, Server};
use super::slow::{Slow, Work};
use super::tuning::PowerTuning;
use crate::parameter::OutOfRange;
use headroom_units::{Lever, Seconds, Setting};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// A command for one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which server, by its place in the list.
    pub server: usize,
    /// What is to be done to it.
    pub command: Command,
}

/// The servers of a cluster.
///
/// Where more are needed, one that is draining comes back first (it is still up), then one that failed and answers again,
/// then one that is off, then one that failed and whose wait is over; among equals one that was not [slow](Self::slow), then the one with the fewest failures, then the first. Where fewer are, one that
/// is still booting goes first, then one that is warming, then of those that serve one of which it is [in doubt](Health::in_doubt) whether it answers, then a slow one, then the last. A server that fails makes
/// room for another at once, for it is no longer on its way. The last one that takes requests keeps them while it is silent, and
/// another is started: that the checks fail is no proof, and no server at all is worse.
///
/// A law that knows the servers apart [ranks](Self::rank) them. Then those of the largest rank go first and come last, and of the same rank
/// the one goes first to which clearly fewer [sessions are bound](Self::bind), then the one that has served longest, and the one comes first
/// that was off longest: so that all wear alike.
///
/// Those that an operator [takes out](Self::take_out) are none of the number: each serves on until so many others take requests, which are
/// started where they have to be, and only then it is drained. It comes back while it still drains if the others are not enough. A law that
/// knows more of it says [when](Self::let_go).
#[derive(Clone, Debug)]
pub struct Fleet {
    servers: Vec<Server>,
    slow: Slow,
    /// Empty where the law does not rank them.
    ranks: Vec<u16>,
    /// When those go that an operator takes out; empty where the law says nothing of it.
    leave: Vec<Leave>,
    bound: Bound,
    /// Whether nobody can keep requests from a server.
    balancer_lost: bool,
}

impl Fleet {
    /// A fleet of servers, each found serving (`true`) or off.
    ///
    /// # Errors
    /// A parameter outside its range; no server, or more than [`super::MAX_SERVERS`].
    pub fn new(tuning: PowerTuning, serving: &[bool], now: Seconds) -> Result<Self, OutOfRange> {
        let found = |serving: &bool| if *serving { Found::Answering } else { Found::Off };
        Self::found(tuning, &serving.iter().map(found).collect::<Vec<_>>(), now)
    }

    /// A fleet of servers, each as it is found: after a restart of the controller nothing else is known.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn found(tuning: PowerTuning, found: &[Found], now: Seconds) -> Result<Self, OutOfRange> {
        tuning.check()?;
        if !(1..=super::MAX_SERVERS).contains(&found.len()) {
            let range = format!("between 1 and {}", super::MAX_SERVERS);
            return Err(OutOfRange::new("servers", found.len() as f64, range));
        }
        let servers: Vec<Server> = found
            .iter()
            .map(|found| Server::new(tuning, *found, now))
            .collect();
        let slow = Slow::new(vec![0; servers.len()]);
        Ok(Self {
            servers,
            slow,
            ranks: Vec::new(),
            leave: Vec::new(),
            bound: Bound::default(),
            balancer_lost: false,
        })
    }

    /// Takes how an operator takes each server out, in their order; one of which nothing is said is in the fleet.
    pub fn take_out(&mut self, maintenance: &[Option<Maintenance>]) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            let out = maintenance.get(at).copied().flatten();
            server.take_out(out);
            // What was said of it before it was given back is not said of the next time.
            if let Some(leave) = self.leave.get_mut(at).filter(|_| out.is_none()) {
                *leave = Leave::default();
            }
        }
    }

    /// Takes whether the balancer cannot be relied on: then no server is drained for maintenance.
    pub fn lose_balancer(&mut self, is_lost: bool) {
        self.balancer_lost = is_lost;
    }

    /// Each server's state as laws are given it.
    pub fn states_for_laws(&self) -> Vec<PowerState> {
        self.servers.iter().map(Server::state_for_laws).collect()
    }

    /// The same fleet, whose servers are of these kinds: those of the same number are equal machines. Without it all are.
    #[must_use]
    pub fn of_kinds(mut self, mut kinds: Vec<usize>) -> Self {
        kinds.resize(self.servers.len(), 0);
        self.slow = Slow::new(kinds);
        self
    }

    /// Takes what each server did in a period, in their order; `None` where that is not known.
    pub fn observe(&mut self, work: &[Option<Work>]) {
        let states: Vec<PowerState> = self.servers.iter().map(Server::state).collect();
        self.slow.observe(&states, work);
    }

    /// Takes the sessions that are bound to each server in a period, in their order; `None` where that is not known.
    pub fn bind(&mut self, sessions: &[Option<u64>]) {
        self.bound.observe(sessions);
    }

    /// Takes the order in which servers are kept on: [`Decision::server_ranks`](crate::Decision::server_ranks).
    pub fn rank(&mut self, ranks: &[u16]) {
        // In a period in which the law was not asked they stay.
        if !ranks.is_empty() {
            self.ranks.clear();
            self.ranks.extend(ranks);
        }
    }

    /// Takes when those go that an operator takes out: [`Decision::leave`](crate::Decision::leave).
    pub fn let_go(&mut self, leave: &[Leave]) {
        // As with ranks.
        if !leave.is_empty() {
            self.leave.clear();
            self.leave.extend(leave);
        }
    }

    /// A server's rank, and since when it is in its state, in milliseconds; nothing to tell them apart by where the law does not rank them.
    fn rank_of(&self, at: usize) -> (u16, i64) {
        let since_ms = (self.servers[at].since().get() * 1e3) as i64;
        self.ranks.get(at).map_or((0, 0), |rank| (*rank, since_ms))
    }

    /// Takes the servers as they were found anew, and keeps what was observed of them.
    pub fn find_again(&mut self, found: Self) {
        self.servers = found.servers;
    }

    /// How many times as long as at equal servers a request takes at this one, where that is significant and over 1.4: such a
    /// server goes first and comes last.
    pub fn slow(&self, server: usize) -> Option<f64> {
        self.slow.at(server)
    }

    /// The servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// How many are on or should be: what was decided, as far as it is in force. One that drains or that is taken out is on its way out.
    pub fn in_force(&self) -> Setting {
        let goes = |server: &&Server| {
            use PowerState::{Draining, Leaving, Maintenance, Off, Stopping};
            let state = server.state_for_laws();
            matches!(state, Off | Stopping | Draining | Leaving | Maintenance)
        };
        let on = self.servers.len() - self.servers.iter().filter(goes).count();
        Setting::default().with(Lever::Servers, Some(on as f64))
    }

    /// Takes the time, how many servers should be on and what was seen of each, in their order; answers with what to do.
    /// A server of which nothing was seen counts as not answering.
    pub fn steer(&mut self, now: Seconds, target: usize, seen: &[Health]) -> Vec<Order> {
        let health = |at: usize| seen.get(at).copied().unwrap_or_default();
        self.hurry();
        let mut wanted: Vec<bool> = self
            .servers
            .iter()
            .map(|one| leaving_rank(one).is_some())
            .collect();
        let on = wanted
            .iter()
            .zip(&self.servers)
            .enumerate()
            .filter(|(at, (wanted, server))| **wanted && !server.is_silent() && !health(*at).failing)
            .count();
        if on > target {
            let mut leaving: Vec<usize> = (0..self.servers.len()).filter(|at| wanted[*at]).collect();
            leaving.sort_by_key(|at| {
                let rank = leaving_rank(&self.servers[*at]);
                let (kept, since) = self.rank_of(*at);
                let bound = match self.ranks.is_empty() {
                    true => 0,
                    false => self.bound.steps(*at),
                };
                (
                    rank,
                    !health(*at).failing,
                    !health(*at).in_doubt,
                    self.slow(*at).is_none(),
                    Reverse(kept),
                    bound,
                    since,
                    Reverse(*at),
                )
            });
            leaving
                .iter()
                .take(on - target)
                .for_each(|at| wanted[*at] = false);
        } else {
            let rank = |at: usize| coming_rank(&self.servers[at], now, &health(at));
            let mut coming: Vec<usize> = (0..self.servers.len()).filter(|at| rank(*at).is_some()).collect();
            coming.sort_by_key(|at| {
                let failures = self.servers[*at].failures();
                (
                    rank(*at),
                    self.slow(*at).is_some(),
                    failures,
                    self.rank_of(*at),
                    *at,
                )
            });
            coming.iter().take(target - on).for_each(|at| wanted[*at] = true);
        }
        self.carry(now, &wanted, seen, target)
    }

    /// The same where it is said which servers should be on, in their order: for a plan that tells machines of different kinds apart. One of
    /// which nothing is said is not wanted.
    pub fn steer_to(&mut self, now: Seconds, wanted: &[bool], seen: &[Health]) -> Vec<Order> {
        let target = wanted.iter().filter(|wanted| **wanted).count();
        self.hurry();
        self.carry(now, wanted, seen, target)
    }

    /// Where no server takes requests none waits for long after a failure.
    fn hurry(&mut self) {
        let takes = |server: &Server| server.state().takes_requests() && !server.is_silent();
        if !self.servers.iter().any(takes) {
            self.servers.iter_mut().for_each(Server::hurry);
        }
    }

    fn carry(&mut self, now: Seconds, wanted: &[bool], seen: &[Health], target: usize) -> Vec<Order> {
        let stay = |server: &&Server| server.state().is_capacity() && !server.is_silent();
        let take_the_load = self.servers.iter().filter(stay).count() >= target.max(1);
        let (balancer_lost, leave) = (self.balancer_lost, &self.leave);
        let health = |at: usize| seen.get(at).copied().unwrap_or_default();
        let takes = |server: &Server| usize::from(server.state().takes_requests());
        let mut taking: usize = self.servers.iter().map(takes).sum();
        self.servers
            .iter_mut()
            .enumerate()
            .filter_map(|(at, server)| {
                taking -= takes(server);
                let wanted = wanted.get(at).copied().unwrap_or(false);
                let others = Others {
                    take_requests: taking > 0,
                    take_the_load,
                    balancer_lost,
                    leave: leave.get(at).copied().unwrap_or_default(),
                };
                let command = server.tick_beside(now, wanted, &health(at), others);
                taking += takes(server);
                Some(Order {
                    server: at,
                    command: command?,
                })
            })
            .collect()
    }
}

/// In what order servers that are on or on their way go, the smallest first; `None` for the others, and for those that are taken out.
fn leaving_rank(server: &Server) -> Option<u8> {
    match server.state_for_laws() {
        PowerState::Booting => Some(0),
        PowerState::Warming => Some(1),
        PowerState::Serving => Some(2),
        PowerState::Off
        | PowerState::Draining
        | PowerState::Stopping
        | PowerState::Failed(_)
        | PowerState::Leaving
        | PowerState::Maintenance => None,
    }
}

/// In what order the others come, the smallest first; `None` for those that cannot.
fn coming_rank(server: &Server, now: Seconds, health: &Health) -> Option<u8> {
    match server.state() {
        _ if server.maintenance().is_some() => None,
        PowerState::Draining if health.answering => Some(0),
        PowerState::Failed(_) | PowerState::Off | PowerState::Maintenance if health.answering => Some(1),
        PowerState::Off | PowerState::Maintenance if server.may_start(now) => Some(2),
        PowerState::Failed(_) if server.may_start(now) => Some(3),
        _ => None,
    }
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
