//! What the servers, their switches and the balancer are told.

use super::Cluster;
use crate::resize::balancer::{Admission, Wanted};
use crate::resize::switch_worker::PowerOrder;
use headroom_control::resize::{Cause, Command, Order, PowerState, exact_mean};

impl Cluster {
    pub(super) fn carry_out(&mut self, orders: &[Order], before: &[PowerState]) {
        for order in orders {
            let at = order.server;
            match order.command {
                Command::PowerOn => self.parts.servers[at].switch_worker.order(PowerOrder::On),
                Command::PowerOff => {
                    // One that was told before, and is still on.
                    let force = before[at] == PowerState::Failed(Cause::Stop);
                    self.parts.servers[at]
                        .switch_worker
                        .order(PowerOrder::Off { force });
                }
                Command::Enable => {
                    let peers = exact_mean(&self.nodes());
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

    pub(super) fn tell_balancer(&mut self) -> Result<(), String> {
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
}
