//! Servers switched on and off by a law: the orders of the live cluster's [`Fleet`], carried out on simulated nodes.

use super::World;
use super::change::Change;
use crate::error::ScenarioError;
use crate::node::{Node, NodeState};
use crate::scenario::{NodeGroup, Scenario};
use headroom_control::NodeObservation;
use headroom_control::capacity::Capacity;
use headroom_control::resize::{Command, Fleet, Health, Work, kinds};
use headroom_units::{Seconds, Setting};

/// The fleet of a scenario whose servers can be switched, all serving; `None` where they cannot be.
///
/// # Errors
/// [`ScenarioError`] where its times are none.
pub(super) fn of(scenario: &Scenario) -> Result<Option<Fleet>, ScenarioError> {
    let Some(tuning) = scenario.power_states else {
        return Ok(None);
    };
    let serving = vec![true; scenario.each_node().count()];
    let machine = |node: &'_ NodeGroup| (node.cores, node.speed, node.machine.clone());
    let machines: Vec<_> = scenario.each_node().map(machine).collect();
    match Fleet::new(tuning, &serving, Seconds::ZERO) {
        Ok(fleet) => Ok(Some(fleet.of_kinds(kinds(&machines)))),
        Err(error) => Err(ScenarioError::new("power_states", error.to_string())),
    }
}

/// What is observed of a node from outside.
fn health(node: &Node) -> Health {
    Health {
        answering: node.state.serves(),
        powered: Some(!matches!(node.state, NodeState::Off | NodeState::Lost)),
        connections: Some(node.server.jobs() as u64),
        command_failed: false,
        in_doubt: false,
        failing: false,
    }
}

impl World<'_> {
    /// The servers as a law observes them.
    pub(super) fn servers(&self) -> Vec<NodeObservation> {
        let servers = self.fleet.as_ref().map_or(&[][..], Fleet::servers);
        let observed = servers.iter().map(|server| NodeObservation {
            state: server.state(),
            capacity: Capacity::Unknown,
            answered: None,
        });
        observed.collect()
    }

    /// What each server did in the period that ends now.
    pub(super) fn work(&mut self) -> Vec<Work> {
        let work = |node: &mut Node| Work {
            requests: std::mem::take(&mut node.requests),
            in_flight: node.server.jobs() as u64,
        };
        self.nodes.iter_mut().map(work).collect()
    }

    /// Switches servers as a decision asks.
    pub(super) fn switch(&mut self, setting: &Setting) {
        let Some(fleet) = &mut self.fleet else { return };
        let health: Vec<Health> = self.nodes.iter().map(health).collect();
        let wanted = setting.servers().unwrap_or(self.nodes.len());
        let orders = fleet.steer(Seconds::new(self.now_s), wanted, &health);
        for order in orders {
            self.carry_out_order(order.server, order.command);
        }
    }

    fn carry_out_order(&mut self, node: usize, command: Command) {
        match command {
            Command::PowerOn => self.power_on(node),
            Command::Enable => self.balancer.list(node, true),
            Command::Disable => self.balancer.list(node, false),
            Command::PowerOff => {
                self.balancer.list(node, false);
                // A soft shutdown is ordered of an empty server, or of one that has taken too long: what it has is lost.
                self.lose_requests(node);
                let state = &mut self.nodes[node];
                state.set_state(self.now_s, NodeState::ShuttingDown);
                let (change, length_s) = (state.change, state.shutdown_s);
                self.agenda
                    .add(self.now_s + length_s, Change::Off { node, change });
            }
        }
    }
}
