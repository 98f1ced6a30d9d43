//! What the servers, their switches and the balancer are commanded.

use super::Servers;
use crate::resize::balancer::{Admission, Wanted};
use crate::resize::switch_worker::PowerOrder;
use headroom_console::say;
use headroom_control::resize::{
    BALANCER_LOST, BROUGHT_BACK, Cause, Command, GUARD_LOST, PowerState, Resize, exact_mean, hold,
};
use headroom_control::{Decision, Reason};
use headroom_units::{Lever, Seconds};
use std::sync::atomic::Ordering;

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
        if let Some((rule, why)) = self.obstacle() {
            let decided = Resize {
                servers,
                ..Resize::of(decision, before.len())
            };
            let held = hold(rule, decided, why, &self.fleet.states_for_laws(), &self.health);
            servers = held.servers;
            decision.setting = decision.setting.with(Lever::Servers, Some(servers as f64));
            decision.reasons.insert(0, held.reason.of(&[Lever::Servers]));
        }
        if self.brings_back() && servers < before.len() {
            let all = before.len();
            let text = format!(
                "the run before could not start every server: all {all} are on first, though {servers} would do"
            );
            let numbers = [("servers", all as f64), ("decided", servers as f64)];
            servers = all;
            decision.setting = decision.setting.with(Lever::Servers, Some(servers as f64));
            let reason = Reason::new(BROUGHT_BACK, text, &numbers);
            decision.reasons.insert(0, reason.of(&[Lever::Servers]));
        }
        let now = Seconds::from(self.last.duration_since(self.started));
        self.fleet.lose_balancer(self.trouble.is_some());
        self.fleet.rank(&decision.server_ranks);
        self.fleet.let_go(&decision.leave);
        self.orders = self.fleet.steer(now, servers, &self.health);
        self.hand_over();
        if !self.dry {
            self.carry_out(&before);
            self.unreported = self.tell_balancer().err();
        }
    }

    /// Says which servers their operators have, and what each is.
    fn hand_over(&mut self) {
        self.parts.taken_out.are(self.states().into_iter().collect());
        let servers = self.parts.servers.iter().zip(self.fleet.servers());
        let theirs = servers.map(|(server, power)| (server.name.clone(), power.handed_over()));
        let kept = self.parts.taken_out.hand_over(theirs.collect());
        let was_kept = std::mem::replace(&mut self.keeps_handed_over, kept.is_ok());
        if let Err(error) = kept
            && was_kept
        {
            tracing::warn!(
                "which servers are in maintenance cannot be kept in the run folder, so a start goes by what the gateways remember, and leaves on what is on: {error}"
            );
        }
    }

    /// Why no server may be switched off now, and the rule of that.
    fn obstacle(&self) -> Option<(&'static str, &str)> {
        let balancer = self.trouble.as_deref().map(|why| (BALANCER_LOST, why));
        let stands = self.guard_stands.as_ref();
        let unguarded = stands.is_some_and(|stands| !stands.load(Ordering::Relaxed));
        balancer.or(unguarded.then_some((GUARD_LOST, "no guard stands")))
    }

    /// Whether every server is still to be started for the run before. It is over once all take requests and whatever that run had
    /// ordered to stop would have fallen silent; or when each had the time for a boot in vain and another.
    fn brings_back(&mut self) -> bool {
        let Some(since) = self.back_since else {
            return false;
        };
        let tuning = &self.parts.tuning;
        let (settled_s, given_up_s) = (
            tuning.stop_timeout_s,
            tuning.stop_timeout_s + 2.0 * tuning.boot_timeout_s,
        );
        let since_s = since.elapsed().as_secs_f64();
        // Of one that an operator takes out nobody waits for what it does.
        let states = self.fleet.states_for_laws();
        let are_all_back = states
            .iter()
            .all(|state| state.takes_requests() || *state == PowerState::Maintenance);
        if since_s < settled_s || !are_all_back && since_s < given_up_s {
            return true;
        }
        self.back_since = None;
        match are_all_back {
            true => say::note!("every server is back after the end of the run before"),
            false => say::note!("warning: not every server is back: the law goes on with those that are"),
        }
        false
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
                    self.presumed[at] = self.met.presumed(at);
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
        let servers = self.parts.servers.iter_mut().zip(&mut self.presumed);
        for ((server, presumed), power) in servers.zip(self.fleet.servers()) {
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
                *presumed = None;
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
            .zip(&self.most_in_flight)
            .map(|(server, most)| Wanted {
                most_in_flight: most.filter(|_| server.state().takes_requests()),
                admission: Some(match server.state() {
                    PowerState::Warming | PowerState::Serving | PowerState::Leaving => Admission::Ready,
                    PowerState::Draining => Admission::Drain,
                    PowerState::Off
                    | PowerState::Booting
                    | PowerState::Stopping
                    | PowerState::Maintenance
                    | PowerState::Failed(_) => Admission::Out,
                }),
                warming: server.state() == PowerState::Warming,
            })
            .collect();
        self.parts.balancer.want(&wanted, self.parts.period / 4)
    }
}
