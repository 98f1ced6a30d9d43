//! What is known of the servers in one period.

use super::Cluster;
use super::Demand;
use crate::resize::balancer::{Admission, Look, Traffic};
use crate::resize::queues::Shown;
use headroom_control::NodeObservation;
use headroom_control::capacity::Capacity;
use headroom_control::resize::{Counts, Fleet, Found, Health, PowerState, Server, demand};
use headroom_units::{PerSecond, Seconds};
use std::time::Duration;

/// What is known of the servers at one time.
pub(super) struct ClusterSnapshot {
    pub(super) look: Result<Look, String>,
    pub(super) health: Vec<Health>,
    /// Why each does not answer.
    pub(super) silence: Vec<Option<String>>,
    /// Why the last order to each switch failed.
    pub(super) failed: Vec<Option<String>>,
}

impl Cluster {
    pub(super) fn sample_queues(&mut self) -> Vec<Option<Shown>> {
        let states = self.fleet.servers().iter().map(|one| one.state());
        self.parts
            .servers
            .iter_mut()
            .zip(states)
            .map(|(server, state)| Some(server.queue.as_mut()?.step(state.takes_requests())))
            .collect()
    }

    pub(super) fn look(&mut self, shown: &[Option<Shown>]) -> ClusterSnapshot {
        let look = self.parts.balancer.look(self.parts.period / 2);
        let (mut health, mut silence, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (at, server) in self.parts.servers.iter().enumerate() {
            // An overloaded server lets a check wait, and is not lost: it accepts connections.
            let accepts = matches!(&shown[at], Some(Shown::Counted(counted)) if counted.accepts > 0.0);
            let answers = self.parts.checks.answers(at);
            let member = look.as_ref().ok().map(|look| look.members[at]);
            let failure = server.switch_worker.take_failure();
            health.push(Health {
                answering: accepts || answers.is_ok(),
                powered: server.switch_worker.powered(),
                // What it has is what it will have only once the balancer gives it nothing new.
                connections: member
                    .filter(|member| member.admission != Admission::Ready)
                    .and_then(|member| member.in_flight),
                command_failed: failure.is_some(),
            });
            silence.push(answers.err().filter(|_| !accepts));
            failed.push(failure);
        }
        ClusterSnapshot {
            look,
            health,
            silence,
            failed,
        }
    }

    /// In a dry run nothing that was decided has happened: the servers are found anew.
    pub(super) fn find_again(&mut self, health: &[Health], now: Seconds) {
        let found: Vec<Found> = health.iter().map(Found::from).collect();
        // The same parameters and as many servers as at the start, so it cannot fail where that did not.
        if let Ok(fleet) = Fleet::found(self.parts.tuning, &found, now) {
            self.fleet = fleet;
        }
    }

    pub(super) fn arrival_rate(
        &self,
        shown: &[Option<Shown>],
        look: &Result<Look, String>,
    ) -> Option<PerSecond> {
        match self.parts.demand {
            Demand::Balancer => rate_of(look.as_ref().ok()?.traffic.as_ref()?, self.parts.period),
            Demand::AcceptQueue => {
                let states = self.fleet.servers().iter().map(Server::state);
                demand(states.zip(shown.iter().map(|shown| match shown {
                    Some(Shown::Counted(counted)) => Counts::Attempts(PerSecond::new(counted.arrival_rate())),
                    Some(Shown::Nobody) => Counts::Nobody,
                    Some(Shown::Unknown(_)) | None => Counts::Unknown,
                })))
            }
        }
    }

    /// Each server as it is known by its own estimator.
    pub(super) fn nodes(&self) -> Vec<NodeObservation> {
        let states = self.fleet.servers().iter().map(Server::state);
        let estimated = self.parts.servers.iter().map(|server| match &server.queue {
            Some(queue) => queue.capacity().0,
            None => Capacity::Unknown,
        });
        let nodes = states.zip(estimated);
        nodes
            .map(|(state, capacity)| NodeObservation { state, capacity })
            .collect()
    }

    pub(super) fn capacity(&self, server: usize) -> Capacity {
        match (&self.parts.servers[server].queue, self.parts.fixed) {
            (_, Some(fixed)) => Capacity::Exact(fixed),
            (Some(queue), None) => queue.capacity().0,
            (None, None) => Capacity::Unknown,
        }
    }

    /// What the controller is shown. A server that was told to the balancer and is not given requests yet is on its way.
    pub(super) fn seen(&self, states: &[PowerState], look: &Result<Look, String>) -> Vec<NodeObservation> {
        let admission = |at: usize| look.as_ref().ok().map(|look| look.members[at].admission);
        states
            .iter()
            .enumerate()
            .map(|(at, state)| {
                let waits = state.takes_requests()
                    && admission(at).is_some_and(|reported| reported != Admission::Ready);
                NodeObservation {
                    state: if waits { PowerState::Booting } else { *state },
                    capacity: self.capacity(at),
                }
            })
            .collect()
    }
}

/// The rate of arrivals at the balancer; none where it told of less than half a period, as just after it was connected: of
/// so short a time even many requests a second may show none.
fn rate_of(traffic: &Traffic, period: Duration) -> Option<PerSecond> {
    let length_s = traffic.length.as_secs_f64();
    (length_s >= period.as_secs_f64() / 2.0 && length_s > 0.0)
        .then(|| PerSecond::new(traffic.arrivals as f64 / length_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_no_rate() {
        let traffic = |length_ms, arrivals| Traffic {
            length: Duration::from_millis(length_ms),
            arrivals,
            completions: None,
            failures: None,
            latencies: None,
        };
        let period = Duration::from_millis(200);
        assert_eq!(rate_of(&traffic(200, 10), period), Some(PerSecond::new(50.0)));
        assert_eq!(rate_of(&traffic(100, 0), period), Some(PerSecond::ZERO));
        assert_eq!(rate_of(&traffic(20, 0), period), None);
        assert_eq!(rate_of(&traffic(0, 3), Duration::ZERO), None);
    }
}
