//! Which servers of a cluster are on: from a number to commands for each.

use super::server::{Command, Found, Health, Maintenance, Others, PowerState, Server};
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
/// is still booting goes first, then one that is warming, then of those that serve a slow one, then the last. A server that fails makes
/// room for another at once, for it is no longer on its way. The last one that takes requests keeps them while it is silent, and
/// another is started: that the checks fail is no proof, and no server at all is worse.
///
/// A law that knows the servers apart [ranks](Self::rank) them. Then those of the largest rank go first and come last, and of the same rank
/// the one goes first that has served longest, and the one comes first that was off longest: so that all wear alike.
///
/// Those that an operator [takes out](Self::take_out) are none of the number: each serves on until so many others take requests, which are
/// started where they have to be, and only then it is drained.
#[derive(Clone, Debug)]
pub struct Fleet {
    servers: Vec<Server>,
    slow: Slow,
    /// Empty where the law does not rank them.
    ranks: Vec<u16>,
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
            balancer_lost: false,
        })
    }

    /// Takes how an operator takes each server out, in their order; one of which nothing is said is in the fleet.
    pub fn take_out(&mut self, maintenance: &[Option<Maintenance>]) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            server.take_out(maintenance.get(at).copied().flatten());
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

    /// Takes the order in which servers are kept on: [`Decision::server_ranks`](crate::Decision::server_ranks).
    pub fn rank(&mut self, ranks: &[u16]) {
        // In a period in which the law was not asked they stay.
        if !ranks.is_empty() {
            self.ranks.clear();
            self.ranks.extend(ranks);
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
        let mut wanted: Vec<bool> = self
            .servers
            .iter()
            .map(|one| leaving_rank(one).is_some())
            .collect();
        let on = wanted
            .iter()
            .zip(&self.servers)
            .filter(|(wanted, server)| **wanted && !server.is_silent())
            .count();
        if on > target {
            let mut leaving: Vec<usize> = (0..self.servers.len()).filter(|at| wanted[*at]).collect();
            leaving.sort_by_key(|at| {
                let rank = leaving_rank(&self.servers[*at]);
                let (kept, since) = self.rank_of(*at);
                (rank, self.slow(*at).is_none(), Reverse(kept), since, Reverse(*at))
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
        self.carry(now, wanted, seen, target)
    }

    fn carry(&mut self, now: Seconds, wanted: &[bool], seen: &[Health], target: usize) -> Vec<Order> {
        let stay = |server: &&Server| server.state().is_capacity() && !server.is_silent();
        let take_the_load = self.servers.iter().filter(stay).count() >= target.max(1);
        let balancer_lost = self.balancer_lost;
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UP: Health = Health {
        answering: true,
        powered: Some(true),
        connections: Some(0),
        command_failed: false,
    };
    const DOWN: Health = Health {
        answering: false,
        powered: Some(false),
        connections: None,
        command_failed: false,
    };

    fn states(fleet: &Fleet) -> Vec<&'static str> {
        fleet.servers().iter().map(|one| one.state().name()).collect()
    }

    fn order(server: usize, command: Command) -> Order {
        Order { server, command }
    }

    #[test]
    fn the_first_that_is_off_comes_and_the_last_that_serves_goes() {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, false, false], Seconds::ZERO).unwrap();
        let at = Seconds::new;
        let orders = fleet.steer(at(1.0), 2, &[UP, DOWN, DOWN]);
        assert_eq!(orders, [order(1, Command::PowerOn)]);
        // One on its way is one on its way.
        assert_eq!(fleet.steer(at(2.0), 2, &[UP, DOWN, DOWN]), []);
        fleet.steer(at(3.0), 2, &[UP, UP, DOWN]);
        fleet.steer(at(20.0), 2, &[UP, UP, DOWN]);
        assert_eq!(states(&fleet), ["serving", "serving", "off"]);
        assert_eq!(
            fleet.steer(at(21.0), 1, &[UP, UP, DOWN]),
            [order(1, Command::Disable)]
        );
        // The draining one comes back before the one that is off.
        assert_eq!(
            fleet.steer(at(21.5), 2, &[UP, UP, DOWN]),
            [order(1, Command::Enable)]
        );
    }

    #[test]
    fn another_takes_the_place_of_one_that_fails_to_boot() {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, false, false], Seconds::ZERO).unwrap();
        fleet.steer(Seconds::new(1.0), 2, &[UP, DOWN, DOWN]);
        let orders = fleet.steer(Seconds::new(302.0), 2, &[UP, DOWN, DOWN]);
        assert_eq!(orders, [order(1, Command::Disable)]);
        let orders = fleet.steer(Seconds::new(303.0), 2, &[UP, DOWN, DOWN]);
        assert_eq!(orders, [order(2, Command::PowerOn)]);
        assert_eq!(states(&fleet), ["serving", "off", "booting"]);
        // With nobody left, it is tried again when its wait is over, and not before.
        assert_eq!(fleet.steer(Seconds::new(331.0), 3, &[UP, DOWN, DOWN]), []);
        let orders = fleet.steer(Seconds::new(332.0), 3, &[UP, DOWN, DOWN]);
        assert_eq!(orders, [order(1, Command::PowerOn)]);
    }

    #[test]
    fn a_slow_server_goes_first_and_comes_last() {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true; 3], Seconds::ZERO).unwrap();
        let work = |in_flight| {
            Some(Work {
                requests: 20,
                in_flight,
            })
        };
        for _ in 0..100 {
            fleet.observe(&[work(30), work(10), work(11)]);
        }
        let slow: Vec<bool> = (0..3).map(|at| fleet.slow(at).is_some()).collect();
        assert_eq!(slow, [true, false, false]);
        let at = Seconds::new;
        let leaves = fleet.steer(at(1.0), 1, &[UP, UP, UP]);
        assert_eq!(leaves, [order(0, Command::Disable), order(2, Command::Disable)]);
        for second in 2..10 {
            fleet.steer(at(f64::from(second)), 1, &[DOWN, UP, DOWN]);
        }
        assert_eq!(states(&fleet), ["off", "serving", "off"]);
        let comes = fleet.steer(at(700.0), 2, &[DOWN, UP, DOWN]);
        assert_eq!(comes, [order(2, Command::PowerOn)]);
        let comes = fleet.steer(at(701.0), 3, &[DOWN, UP, DOWN]);
        assert_eq!(comes, [order(0, Command::PowerOn)]);
    }

    /// Not answering, and nobody says that it is off.
    const SILENT: Health = Health {
        answering: false,
        ..UP
    };

    #[test]
    fn a_controller_that_stood_still_takes_nobody_out() {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, true], Seconds::ZERO).unwrap();
        fleet.steer(Seconds::new(1.0), 2, &[UP, UP]);
        // Its own checks stood still as well.
        assert_eq!(fleet.steer(Seconds::new(21.0), 2, &[SILENT, SILENT]), []);
        assert_eq!(fleet.steer(Seconds::new(22.0), 2, &[UP, UP]), []);
        assert_eq!(states(&fleet), ["serving", "serving"]);
    }

    #[test]
    fn the_last_that_takes_requests_keeps_them_until_another_does() {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, false], Seconds::ZERO).unwrap();
        let mut orders = Vec::new();
        for second in 1..=30 {
            orders.extend(fleet.steer(Seconds::new(f64::from(second)), 1, &[SILENT, DOWN]));
        }
        assert_eq!(orders, [order(1, Command::PowerOn)]);
        assert_eq!(states(&fleet), ["serving", "booting"]);
        assert_eq!(
            fleet.steer(Seconds::new(31.0), 1, &[SILENT, UP]),
            [order(1, Command::Enable)]
        );
        assert_eq!(
            fleet.steer(Seconds::new(32.0), 1, &[SILENT, UP]),
            [order(0, Command::Disable)]
        );
        assert_eq!(states(&fleet), ["failed", "warming"]);
    }

    #[test]
    fn a_boot_that_is_no_longer_wanted_ends_without_a_request() {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, false], Seconds::ZERO).unwrap();
        fleet.steer(Seconds::new(1.0), 2, &[UP, DOWN]);
        assert_eq!(fleet.steer(Seconds::new(2.0), 1, &[UP, DOWN]), []);
        let orders = fleet.steer(Seconds::new(50.0), 1, &[UP, UP]);
        assert_eq!(orders, [order(1, Command::PowerOff)]);
    }

    #[test]
    fn those_that_are_named_are_on_wherever_they_stand() {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, false, false], Seconds::ZERO).unwrap();
        let at = Seconds::new;
        let orders = fleet.steer_to(at(1.0), &[true, false, true], &[UP, DOWN, DOWN]);
        assert_eq!(orders, [order(2, Command::PowerOn)]);
        fleet.steer_to(at(2.0), &[true, false, true], &[UP, DOWN, UP]);
        // The one that is not named goes; of one of which nothing is said the same is true.
        let orders = fleet.steer_to(at(30.0), &[false, false, true], &[UP, DOWN, UP]);
        assert_eq!(orders, [order(0, Command::Disable)]);
        assert_eq!(fleet.steer_to(at(31.0), &[], &[UP, DOWN, UP]).len(), 2);
    }

    #[test]
    fn a_law_s_ranks_say_who_goes_and_of_equals_who_has_served_longest() {
        let at = Seconds::new;
        let up = [UP; 4];
        let mut fleet =
            Fleet::new(PowerTuning::default(), &[true, true, true, false], Seconds::ZERO).unwrap();
        // As published: the last.
        assert_eq!(
            fleet.clone().steer(at(1.0), 2, &[UP, UP, UP, DOWN]),
            [order(2, Command::Disable)]
        );
        fleet.rank(&[2, 0, 1, 1]);
        assert_eq!(
            fleet.clone().steer(at(1.0), 2, &[UP, UP, UP, DOWN]),
            [order(0, Command::Disable)]
        );
        // A period without ranks changes nothing.
        fleet.rank(&[]);
        assert_eq!(
            fleet.clone().steer(at(1.0), 2, &[UP, UP, UP, DOWN]),
            [order(0, Command::Disable)]
        );
        // All alike: the fourth is started, and the one that has served longest goes, not the newest.
        fleet.rank(&[0, 0, 0, 0]);
        fleet.steer(at(1.0), 4, &[UP, UP, UP, DOWN]);
        fleet.steer(at(60.0), 4, &up);
        fleet.steer(at(120.0), 4, &up);
        let gone = fleet.steer(at(121.0), 3, &up);
        assert_eq!(gone, [order(2, Command::Disable)]);
        let states: Vec<bool> = fleet
            .servers()
            .iter()
            .map(|one| one.state().takes_requests())
            .collect();
        assert_eq!(states, [true, true, false, true]);
    }

    #[test]
    fn a_drained_server_stays_powered_for_its_trial_and_comes_back_at_once() {
        let tuning = PowerTuning {
            drained_for_s: Some(30.0),
            ..PowerTuning::default()
        };
        let at = Seconds::new;
        let mut fleet = Fleet::new(tuning, &[true, true], Seconds::ZERO).unwrap();
        let empty = Health {
            connections: Some(0),
            ..UP
        };
        assert_eq!(fleet.steer(at(1.0), 1, &[UP, UP]), [order(1, Command::Disable)]);
        for second in 2..31 {
            assert_eq!(fleet.steer(at(f64::from(second)), 1, &[UP, empty]), []);
        }
        let mut missed = fleet.clone();
        assert_eq!(
            missed.steer(at(30.5), 2, &[UP, empty]),
            [order(1, Command::Enable)]
        );
        assert_eq!(
            fleet.steer(at(31.0), 1, &[UP, empty]),
            [order(1, Command::PowerOff)]
        );
    }

    #[test]
    fn a_fleet_of_nobody_is_refused() {
        assert!(Fleet::new(PowerTuning::default(), &[], Seconds::ZERO).is_err());
        let tuning = PowerTuning {
            backoff_s: 0.0,
            ..PowerTuning::default()
        };
        assert!(Fleet::new(tuning, &[true], Seconds::ZERO).is_err());
    }

    proptest! {
        /// A fleet of machines that obey ends where it is told to be, from wherever it was led.
        #[test]
        fn machines_that_obey_end_at_the_target(
            serving in proptest::collection::vec(any::<bool>(), 1..8),
            targets in proptest::collection::vec(0..9usize, 1..6),
        ) {
            let count = serving.len();
            let mut fleet = Fleet::new(PowerTuning::default(), &serving, Seconds::ZERO).unwrap();
            let mut powered = serving.clone();
            let mut at_s = 0.0;
            for target in targets {
                let target = target.min(count);
                for _ in 0..200 {
                    at_s += 1.0;
                    let seen: Vec<Health> = powered.iter().map(|on| if *on { UP } else { DOWN }).collect();
                    for order in fleet.steer(Seconds::new(at_s), target, &seen) {
                        match order.command {
                            Command::PowerOn => powered[order.server] = true,
                            Command::PowerOff => powered[order.server] = false,
                            Command::Enable | Command::Disable => {}
                        }
                    }
                }
                let on = fleet.servers().iter().filter(|one| one.state() == PowerState::Serving).count();
                let off = fleet.servers().iter().filter(|one| one.state() == PowerState::Off).count();
                prop_assert_eq!((on, off), (target, count - target));
            }
        }
    }
}
