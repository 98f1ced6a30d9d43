//! What is known of each server's capacity, and how many requests it is given at a time by that.

use super::Servers;
use crate::live::BackendTick;
use crate::resize::balancer::Look;
use crate::resize::queues::{Queue, Shown};
use headroom_control::NodeObservation;
use headroom_control::capacity::Capacity;
use headroom_control::decision::Reason;
use headroom_control::resize::{InHand, InHandPeriod, InHandUnread, PowerState};
use headroom_units::Seconds;

impl Servers {
    /// Each server as it is known by its own estimator.
    pub(super) fn estimates(&self) -> Vec<NodeObservation> {
        let nodes = self.power_states().into_iter().enumerate();
        nodes
            .map(|(at, state)| NodeObservation {
                state,
                capacity: self.estimated(at),
                answered: None,
            })
            .collect()
    }

    fn estimated(&self, server: usize) -> Capacity {
        let queue = self.parts.servers[server].queue.as_ref();
        let estimate = queue.and_then(Queue::estimate);
        // A rate of connections says nothing of requests.
        let of_requests = self.reused[server].capacity();
        let of_connections = || {
            let estimated = estimate.map_or(Capacity::Unknown, |estimate| estimate.capacity);
            self.balancer_checks[server].leave_of(estimated)
        };
        of_requests.unwrap_or_else(of_connections)
    }

    /// What a server takes as it was given or it has shown itself: what a law goes by.
    pub(super) fn own_capacity(&self, server: usize) -> Capacity {
        match self.parts.fixed {
            Some(fixed) => Capacity::Exact(fixed),
            None => self.estimated(server),
        }
    }

    /// The same, or what it is presumed to take until it has shown that.
    pub(super) fn capacity(&self, server: usize) -> Capacity {
        match (self.presumed[server], self.presumption(server)) {
            (Some(presumed), Some(_)) => Capacity::Presumed(presumed.per_s),
            _ => self.own_capacity(server),
        }
    }

    /// Why a server's capacity is presumed; `None` where it is not.
    pub(super) fn presumption(&self, server: usize) -> Option<Reason> {
        let presumed = self.presumed[server].filter(|_| self.parts.fixed.is_none())?;
        presumed.unless_shown(self.parts.servers[server].queue.as_ref()?.estimate())
    }

    /// How many requests each is given at a time, by what is known of it now.
    pub(super) fn bound_in_flight(
        &mut self,
        shown: &[Option<Shown>],
        look: &Result<Look, String>,
        states: &[PowerState],
        backends: &[BackendTick],
        period: Seconds,
    ) {
        if self.parts.in_hand.is_none() {
            return;
        }
        for at in 0..states.len() {
            let member = look.as_ref().ok().map(|look| look.members[at]);
            let in_flight = member
                .and_then(|member| member.in_flight)
                .map(|count| count as f64);
            let counted = match &shown[at] {
                Some(Shown::Counted(counted)) if states[at].takes_requests() => counted,
                // A moment without a reading is no other server.
                Some(Shown::Unknown(_)) if states[at].takes_requests() => {
                    let (sent, left, gone) = self.sent(at, backends);
                    self.most_in_flight[at] = self.in_hand[at].unread(&InHandUnread {
                        length: period,
                        sent,
                        left,
                        gone,
                        in_flight,
                    });
                    continue;
                }
                found => {
                    let places = match found {
                        Some(Shown::Counted(counted)) => counted.places,
                        _ => None,
                    };
                    self.most_in_flight[at] = self.bound_before_it_joins(at, places, period);
                    continue;
                }
            };
            let (sent, left, gone) = self.sent(at, backends);
            let seen = InHandPeriod {
                length: Seconds::new(counted.length_s),
                capacity: self.capacity(at),
                accepts: counted.accepts,
                drops: counted.drops,
                waiting: counted.waiting,
                places: counted.places,
                working: counted.working,
                sent,
                left,
                gone,
                in_flight,
            };
            self.most_in_flight[at] = self.in_hand[at].observe(&seen);
        }
        // One of which nothing is known yet is given as many as the one that may have the most, as far as its queue has places.
        let taking = |(at, most): (usize, &Option<u32>)| most.filter(|_| states[at].takes_requests());
        let most = self.most_in_flight.iter().enumerate().filter_map(taking).max();
        for (at, state) in states.iter().enumerate() {
            let is_new = self.capacity(at) == Capacity::Unknown && state.takes_requests();
            if is_new && self.most_in_flight[at].is_none() {
                let places = self.in_hand[at]
                    .places()
                    .map_or(u32::MAX, |places| places.max(1.0) as u32);
                self.most_in_flight[at] = most.map(|most| most.min(places));
            }
        }
    }

    /// How many requests a server is given at a time that takes none yet: what waits may be given to it at once.
    fn bound_before_it_joins(&mut self, at: usize, places: Option<f64>, length: Seconds) -> Option<u32> {
        // Where others' connections carry several requests, nothing in connections bounds them.
        let was_bounded = self.in_hand.iter().any(InHand::was_bounded);
        let presumed = match self.parts.fixed {
            Some(fixed) => Some(fixed),
            None => self.met.presumed(at).map(|presumed| presumed.per_s),
        };
        let others = self.in_hand.iter().filter_map(InHand::places).reduce(f64::min);
        let places = places.or_else(|| self.in_hand[at].places()).or(others);
        self.in_hand[at].rest(length, places, presumed.filter(|_| was_bounded))
    }
}

#[cfg(test)]
#[path = "capacity_tests.rs"]
mod tests;
