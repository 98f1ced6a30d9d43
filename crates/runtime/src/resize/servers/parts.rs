//! What a period is told as.

use super::Cluster;
use super::snapshot::ClusterSnapshot;
use crate::resize::balancer::Member;
use crate::resize::queues::Shown;
use crate::resize::tick::ServerTick;
use headroom_control::resize::{Order, PowerState, ServerLoad};
use headroom_units::{PerSecond, Seconds};

impl Cluster {
    pub(super) fn server_ticks(
        &self,
        now: Seconds,
        before: &[PowerState],
        orders: &[Order],
        snapshot: &ClusterSnapshot,
        shown: &mut [Option<Shown>],
    ) -> Vec<ServerTick> {
        let members: Option<&[Member]> = snapshot.look.as_ref().ok().map(|look| &look.members[..]);
        self.parts
            .servers
            .iter()
            .zip(self.fleet.servers())
            .enumerate()
            .map(|(at, (server, power))| {
                let mut trouble: Vec<String> = Vec::new();
                trouble.extend(
                    snapshot.failed[at]
                        .clone()
                        .or_else(|| server.switch_worker.trouble()),
                );
                trouble.extend(
                    snapshot.silence[at]
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
                ServerTick {
                    name: server.name.clone(),
                    state: power.state(),
                    before: before[at],
                    for_s: (now - power.since()).get().max(0.0),
                    failures: power.failures(),
                    capacity: self.capacity(at),
                    given: self.parts.fixed.is_some(),
                    estimated: server
                        .queue
                        .as_ref()
                        .and_then(|queue| queue.capacity().1.cloned()),
                    counted,
                    powered: snapshot.health[at].powered,
                    answering: snapshot.health[at].answering,
                    admission: member.map(|member| member.admission),
                    in_flight: member.and_then(|member| member.in_flight),
                    command: orders
                        .iter()
                        .find(|order| order.server == at)
                        .map(|order| order.command),
                    orders: server.switch_worker.outcomes(),
                    trouble,
                }
            })
            .collect()
    }

    pub(super) fn spend(&mut self, length: Seconds, servers: &[ServerTick], arrival_rate: Option<PerSecond>) {
        let Some(energy) = &mut self.parts.energy else {
            return;
        };
        let taking = servers
            .iter()
            .filter(|one| one.before.takes_requests())
            .count()
            .max(1) as f64;
        let share = arrival_rate.map(|rate| rate.get() / taking);
        let loads: Vec<ServerLoad> = servers
            .iter()
            .map(|one| {
                let rate = one.counted.map(|counted| counted.arrival_rate()).or(share);
                let capacity = one
                    .capacity
                    .value()
                    .map(PerSecond::get)
                    .filter(|rate| *rate > 0.0);
                ServerLoad {
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
