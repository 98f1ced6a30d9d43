//! What the servers, their switches and the balancer are commanded.

use super::Servers;
use crate::resize::balancer::{Admission, Wanted};
use crate::resize::switch_worker::PowerOrder;
use headroom_control::Decision;
use headroom_control::resize::{Cause, Command, PowerState, Resize, exact_mean, hold};
use headroom_units::{Lever, Seconds};

impl Servers {
    /// Brings the number of servers that are on towards the one decided. While the balancer cannot be relied on, nobody could keep
    /// requests from a server that goes: then more may be started, and none is taken away.
    pub(super) fn steer(&mut self, decision: &mut Decision) {
        let before = self.power_states();
        // At the start and the end of a run nothing was observed by which to hold.
        let Some(servers) = decision.setting.servers().filter(|_| !self.health.is_empty()) else {
            return;
        };
        let mut servers = servers;
        if let Some(why) = &self.trouble {
            let decided = Resize {
                servers,
                ..Resize::of(decision, before.len())
            };
            let held = hold(decided, why, &self.fleet.states_for_laws(), &self.health);
            servers = held.servers;
            decision.setting = decision.setting.with(Lever::Servers, Some(servers as f64));
            decision.reasons.insert(0, held.reason.of(&[Lever::Servers]));
        }
        let now = Seconds::from(self.last.duration_since(self.started));
        self.fleet.lose_balancer(self.trouble.is_some());
        self.fleet.rank(&decision.server_ranks);
        self.orders = self.fleet.steer(now, servers, &self.health);
        if !self.dry {
            self.carry_out(&before);
            self.unreported = self.tell_balancer().err();
        }
    }

    fn carry_out(&mut self, before: &[PowerState]) {
        for order in &self.orders.clone() {
            let at = order.server;
            match order.command {
                Command::PowerOn => self.parts.servers[at].switch_worker.order(PowerOrder::On),
                Command::PowerOff => {
                    self.count_cut(at, before[at]);
                    // One that was told before, and is still on.
                    let force = before[at] == PowerState::Failed(Cause::Stop);
                    self.parts.servers[at]
                        .switch_worker
                        .order(PowerOrder::Off { force });
                }
                Command::Enable => {
                    let peers = exact_mean(&self.estimates());
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
            server.switch_worker.set_eager(matches!(
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

    /// Says which sessions a server still has that is switched off because it has drained for as long as it may.
    fn count_cut(&mut self, at: usize, before: PowerState) {
        let sessions = self.health[at].connections.unwrap_or(0);
        if before == PowerState::Draining && sessions > 0 {
            self.cut[at] += sessions;
            tracing::warn!(
                server = self.parts.servers[at].name,
                sessions,
                "it is switched off with sessions that it did not end within power.drain_timeout_s = {}",
                self.parts.tuning.drain_timeout_s
            );
        }
    }

    fn tell_balancer(&mut self) -> Result<(), String> {
        let wanted: Vec<Wanted> = self
            .fleet
            .servers()
            .iter()
            .map(|server| Wanted {
                admission: match server.state() {
                    PowerState::Warming | PowerState::Serving | PowerState::Leaving => Admission::Ready,
                    PowerState::Draining => Admission::Drain,
                    PowerState::Off
                    | PowerState::Booting
                    | PowerState::Stopping
                    | PowerState::Maintenance
                    | PowerState::Failed(_) => Admission::Out,
                },
                warming: server.state() == PowerState::Warming,
            })
            .collect();
        self.parts.balancer.want(&wanted, self.parts.period / 4)
    }
}
