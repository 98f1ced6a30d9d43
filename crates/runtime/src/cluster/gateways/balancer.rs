//! Which servers get requests, as the gateways' control ports are commanded and read back.

use super::member;
use super::roster::{Gateway, Roster};
use crate::resize::balancer::{Admission, Balancer, Look, Member, Wanted};
use headroom_wire::message::{Backend, BackendState};
use std::sync::Arc;
use std::time::Duration;

/// Gateways in front of servers that are switched on and off.
#[derive(Debug)]
pub struct GatewayBalancer {
    roster: Arc<Roster>,
    /// The backends' URLs, in the controller's order.
    members: Vec<String>,
}

impl GatewayBalancer {
    pub(super) const fn new(roster: Arc<Roster>, members: Vec<String>) -> Self {
        Self { roster, members }
    }

    /// What one gateway gives each member; why it cannot be relied on.
    fn of_gateway(&self, gateway: &Gateway) -> Result<Vec<(BackendState, Option<u64>)>, String> {
        let state = gateway.state.lock();
        let Some(backends) = &state.backends else {
            return Err(state
                .trouble
                .clone()
                .unwrap_or_else(|| "it does not answer".to_owned()));
        };
        let of_member = |wanted: &String| {
            let same = |backend: &Backend| member(&backend.url) == member(wanted);
            let at = backends.iter().position(same).ok_or_else(|| {
                let urls: Vec<&str> = backends.iter().map(|backend| backend.url.as_str()).collect();
                format!("it has no backend {wanted}: it has {}", urls.join(", "))
            })?;
            Ok((backends[at].state, state.in_flight.get(at).copied().flatten()))
        };
        self.members.iter().map(of_member).collect()
    }
}

/// What goes on at all connected gateways, with one more request for each, and at how many of them something does.
fn going_on(gateways: &[Gateway]) -> (u64, u64) {
    let of_one = |gateway: &Gateway| {
        let state = gateway.state.lock();
        state.backends.as_ref().map(|_| state.going_on)
    };
    let each: Vec<u64> = gateways.iter().filter_map(of_one).collect();
    let busy = each.iter().filter(|going_on| **going_on > 0).count() as u64;
    (each.iter().map(|going_on| going_on + 1).sum(), busy)
}

/// A gateway's part of what a server may have in hand: half of it in proportion to what goes on there, so that one through which nearly all
/// requests come has most of it, and half of it equal for all at which something goes on, for what waits in a long queue at one may be
/// less important than what another has.
fn part(most: u32, going_on: u64, all: u64, busy: u64) -> u32 {
    let by_load = (going_on + 1) as f64 / all.max(going_on + 1) as f64;
    let share = match (going_on, busy) {
        (_, 0) => by_load,
        (0, _) => by_load / 2.0,
        (_, busy) => (by_load + 1.0 / busy as f64) / 2.0,
    };
    (f64::from(most) * share).ceil().max(1.0) as u32
}

impl Balancer for GatewayBalancer {
    fn name(&self) -> String {
        let gateways = self.roster.now();
        let names: Vec<&str> = gateways.iter().map(|gateway| gateway.name.as_str()).collect();
        format!("headroom's gateways ({})", names.join(", "))
    }

    fn url(&self, server: usize) -> Option<&str> {
        self.members.get(server).map(String::as_str)
    }

    fn no_reuse(&self) -> &'static str {
        "--backend-idle 0 at headroom gateway"
    }

    fn look(&mut self, _patience: Duration) -> Result<Look, String> {
        let mut members = vec![
            Member {
                admission: Admission::Out,
                in_flight: Some(0),
                well: None,
                // The gateways' requests are the run's telemetry.
                counted: None,
            };
            self.members.len()
        ];
        let gateways = self.roster.now();
        // One that is dead sends nothing to anybody, and one that has not come yet is made as the others are first.
        let is_there = |gateway: &&Gateway| {
            let state = gateway.state.lock();
            state.backends.is_some() || state.is_missed()
        };
        let there: Vec<&Gateway> = gateways.iter().filter(is_there).collect();
        if there.is_empty() {
            return Err("no gateway can be reached".to_owned());
        }
        for gateway in there {
            let given = self
                .of_gateway(gateway)
                .map_err(|why| format!("gateway {}: {why}", gateway.name))?;
            for (member, (state, in_flight)) in members.iter_mut().zip(given) {
                // What any gateway still gives it counts.
                member.admission = match (member.admission, state) {
                    (Admission::Ready, _) | (_, BackendState::Up) => Admission::Ready,
                    (Admission::Drain, _) | (_, BackendState::Drain) => Admission::Drain,
                    (Admission::Out, BackendState::Down) => Admission::Out,
                };
                member.in_flight = member.in_flight.zip(in_flight).map(|(one, two)| one + two);
            }
        }
        Ok(Look {
            members,
            traffic: None,
        })
    }

    fn want(&mut self, wanted: &[Wanted], _patience: Duration) -> Result<(), String> {
        let gateways = self.roster.now();
        let (all, busy) = going_on(&gateways);
        for gateway in gateways.iter() {
            gateway.state.change(|state| {
                for (url, wanted) in self.members.iter().zip(wanted) {
                    let part = wanted
                        .most_in_flight
                        .map(|most| part(most, state.going_on, all, busy));
                    state.bounds.insert(member(url).to_owned(), part);
                    let wanted = match wanted.admission {
                        None => continue,
                        Some(Admission::Ready) => BackendState::Up,
                        Some(Admission::Drain) => BackendState::Drain,
                        Some(Admission::Out) => BackendState::Down,
                    };
                    state.wanted.insert(member(url).to_owned(), wanted);
                }
            });
            gateway.bell.notify_one();
        }
        Ok(())
    }

    fn answered(&mut self) -> Vec<bool> {
        let mut answered = vec![false; self.members.len()];
        for gateway in self.roster.now().iter() {
            gateway.state.change(|state| {
                let told = std::mem::take(&mut state.answered);
                let backends = state.backends.iter().flatten().zip(told);
                for (backend, told) in backends {
                    let same = |wanted: &&String| member(&backend.url) == member(wanted);
                    if let Some(at) = self.members.iter().position(|wanted| same(&wanted)) {
                        answered[at] |= told;
                    }
                }
            });
        }
        answered
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::gateways::state::GatewayState;
    use headroom_wire::Address;

    #[test]
    fn an_answer_at_any_gateway_is_told_once_in_the_order_of_the_members() {
        let backend = |url: &&str| Backend {
            url: (*url).to_owned(),
            state: BackendState::Up,
            healthy: true,
            weight: 1,
            most_in_flight: None,
        };
        let gateway = |name: &str, urls: &[&str], answered: &[bool]| {
            let mut state = GatewayState::default();
            state.backends = Some(urls.iter().map(backend).collect());
            state.answered = answered.to_vec();
            let address = format!("unix:/tmp/{name}").parse::<Address>().unwrap();
            Gateway::new(name.to_owned(), address, state)
        };
        let hung = GatewayState::default();
        let roster = Roster::of(vec![
            gateway(
                "a",
                &["http://h:1", "http://h:2", "http://h:9"],
                &[false, true, true],
            ),
            gateway("b", &["http://h:3/", "http://h:1/"], &[true, false]),
            Gateway::new("c".to_owned(), "unix:/tmp/c".parse().unwrap(), hung),
        ]);
        let members = ["http://h:1", "http://h:2/", "http://h:3"].map(str::to_owned);
        let mut balancer = GatewayBalancer::new(Arc::new(roster), members.to_vec());
        assert_eq!(balancer.answered(), [false, true, true]);
        assert_eq!(balancer.answered(), [false; 3]);
    }

    #[test]
    fn a_gateway_has_the_part_of_what_goes_on_there() {
        assert_eq!(part(30, 0, 1, 0), 30);
        assert_eq!([part(30, 99, 101, 1), part(30, 0, 101, 1)], [30, 1]);
        assert_eq!([part(30, 9, 20, 2), part(30, 9, 20, 2)], [15, 15]);
        // A flood at one leaves the other a quarter.
        assert_eq!([part(40, 399, 401, 2), part(40, 1, 401, 2)], [30, 11]);
        assert_eq!(part(1, 0, 1_000, 1), 1, "none is without any");
        // What is going on may have grown since all were added up.
        assert_eq!(part(30, 50, 20, 1), 30);
    }
}
