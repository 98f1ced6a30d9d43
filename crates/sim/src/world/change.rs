//! What happens beside requests: periods end, decisions take effect, nodes come and go.

use super::{Outcome, World};
use crate::faults::Fault;
use crate::node::NodeState;
use crate::world::Controller;
use headroom_control::Reflex;
use headroom_units::Hertz;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Something that happens at a time known beforehand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    PeriodEnds,
    Decide,
    Cores {
        node: usize,
        change: u32,
        cores: f64,
    },
    Cap {
        node: usize,
        change: u32,
        cap_w: f64,
    },
    Frequency {
        node: usize,
        change: u32,
        limit: Option<Hertz>,
    },
    HoldCap {
        node: usize,
    },
    /// A request may be as old as the reflex of this decision allows.
    OldestDue {
        number: u64,
    },
    /// The reflex of this decision has fired.
    Reflex {
        number: u64,
        reflex: Reflex,
    },
    FaultBegins(usize),
    FaultEnds(usize),
    Unlist {
        node: usize,
        change: u32,
    },
    Off {
        node: usize,
        change: u32,
    },
    Booted {
        node: usize,
        change: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_s: f64,
    /// Of changes at the same time the first that was added comes first.
    number: u64,
    change: Change,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_s
            .total_cmp(&other.at_s)
            .then(self.number.cmp(&other.number))
    }
}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}

/// What is going to happen. Bounded: of each node there are at most three changes a decision for as many decisions as fall
/// into the longest delay, and its next choice of a level; a reflex and the next check of the oldest request for as many; of the
/// rest, the faults and the end of the period.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at_s: f64, change: Change) {
        let number = self.added;
        self.added += 1;
        self.entries.push(Reverse(Entry { at_s, number, change }));
    }

    #[inline]
    pub(super) fn next_s(&self) -> f64 {
        self.entries.peek().map_or(f64::INFINITY, |entry| entry.0.at_s)
    }

    fn take(&mut self) -> Option<Change> {
        self.entries.pop().map(|entry| entry.0.change)
    }
}

impl World<'_> {
    /// The next change happens.
    pub(super) fn change(&mut self, law: &mut dyn Controller, sink: &mut dyn FnMut(&Outcome<'_>)) {
        let Some(change) = self.agenda.take() else {
            return;
        };
        let now_s = self.now_s;
        match change {
            Change::PeriodEnds => self.end_period(law, sink),
            Change::Decide => self.decide(law, sink),
            Change::Cores { node, change, cores } if self.is_current(node, change) => {
                let due_s = self.nodes[node].set_cores(now_s, cores);
                self.regulated(node, due_s);
            }
            Change::Cap { node, change, cap_w } if self.is_current(node, change) => {
                let due_s = self.nodes[node].set_cap(now_s, cap_w);
                self.regulated(node, due_s);
            }
            Change::Frequency { node, change, limit } if self.is_current(node, change) => {
                let due_s = self.nodes[node].set_frequency(now_s, limit);
                self.regulated(node, due_s);
            }
            Change::HoldCap { node } => {
                self.nodes[node].hold_due = false;
                if self.nodes[node].holding {
                    let due_s = self.nodes[node].hold_cap(now_s);
                    self.regulated(node, due_s);
                }
            }
            Change::OldestDue { number } => self.oldest_due(number),
            Change::Reflex { number, reflex } => self.reflex(number, &reflex),
            Change::FaultBegins(index) => self.fault_begins(self.scenario.faults[index]),
            Change::FaultEnds(index) => self.fault_ends(self.scenario.faults[index]),
            Change::Unlist { node, change } if self.is_current(node, change) => {
                self.balancer.list(node, false)
            }
            Change::Off { node, change } if self.is_current(node, change) => {
                self.nodes[node].set_state(now_s, NodeState::Off);
            }
            Change::Booted { node, change } if self.is_current(node, change) => {
                self.nodes[node].set_state(now_s, NodeState::On);
                let due_s = self.nodes[node].unlimit(now_s);
                self.regulated(node, due_s);
                // Where a fleet is steered, its order gives the node requests.
                if self.fleet.is_none() {
                    self.balancer.list(node, true);
                }
            }
            // Overtaken: the node was lost, or switched off or on, meanwhile.
            Change::Cores { .. }
            | Change::Cap { .. }
            | Change::Frequency { .. }
            | Change::Unlist { .. }
            | Change::Off { .. }
            | Change::Booted { .. } => {}
        }
    }

    fn is_current(&self, node: usize, change: u32) -> bool {
        self.nodes[node].change == change
    }

    /// A node has chosen its level: its next request is done at another time, and it may have a cap to hold.
    fn regulated(&mut self, node: usize, due_s: f64) {
        self.completions.set(node, due_s);
        let state = &mut self.nodes[node];
        if state.holding && !state.hold_due {
            state.hold_due = true;
            self.agenda
                .add(self.now_s + state.capping.interval_s, Change::HoldCap { node });
        }
    }

    fn fault_begins(&mut self, fault: Fault) {
        let now_s = self.now_s;
        let node = fault.node().unwrap_or_default();
        match fault {
            Fault::NodeLoss { .. } => {
                self.lose_requests(node);
                self.nodes[node].set_state(now_s, NodeState::Lost);
                let change = self.nodes[node].change;
                let noticed_s = now_s + self.scenario.balancer.detection_s;
                self.agenda.add(noticed_s, Change::Unlist { node, change });
            }
            Fault::Shutdown { .. } if self.nodes[node].state == NodeState::On => {
                self.balancer.list(node, false);
                self.nodes[node].set_state(now_s, NodeState::Draining);
                // It goes on as it was: a cap that it holds, it holds until it is empty.
                let due_s = self.nodes[node].hold_cap(now_s);
                self.regulated(node, due_s);
                self.drained(node);
            }
            // A node that is not on cannot be shut down.
            Fault::Shutdown { .. } => {}
            Fault::TelemetryLost { .. } => self.period.blind += 1,
            Fault::CapIgnored { .. } => {
                let due_s = self.nodes[node].set_cap_ignored(now_s, true);
                self.regulated(node, due_s);
            }
            Fault::SlowNode { factor, .. } => {
                let due_s = self.nodes[node].set_slowed(now_s, factor);
                self.regulated(node, due_s);
            }
        }
    }

    /// All requests of a node fail.
    pub(super) fn lose_requests(&mut self, node: usize) {
        let now_s = self.now_s;
        let (jobs, remaining_s) = self.nodes[node].lose(now_s);
        self.completions.set(node, f64::INFINITY);
        self.accounts.failed_remaining_s += remaining_s;
        self.accounts.in_flight -= jobs.len() as u64;
        for job in &jobs {
            self.accounts.failed_sojourn_s += now_s - job.arrived;
            self.period.failures += 1;
            self.answered(job.user);
        }
    }

    fn fault_ends(&mut self, fault: Fault) {
        let now_s = self.now_s;
        let node = fault.node().unwrap_or_default();
        match fault {
            Fault::NodeLoss { .. } | Fault::Shutdown { .. } => self.boot(node),
            Fault::TelemetryLost { .. } => self.period.blind -= 1,
            Fault::CapIgnored { .. } => {
                let due_s = self.nodes[node].set_cap_ignored(now_s, false);
                self.regulated(node, due_s);
            }
            Fault::SlowNode { .. } => {
                let due_s = self.nodes[node].set_slowed(now_s, 1.0);
                self.regulated(node, due_s);
            }
        }
    }

    /// A node that has no more requests after being told to finish shuts down.
    pub(super) fn drained(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        if state.state == NodeState::Draining && state.server.jobs() == 0 {
            state.set_state(self.now_s, NodeState::ShuttingDown);
            let (change, length_s) = (state.change, state.shutdown_s);
            self.agenda
                .add(self.now_s + length_s, Change::Off { node, change });
        }
    }

    /// A node is switched on. One that is draining goes on serving; one that is shutting down starts anew.
    fn boot(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        match state.state {
            NodeState::On | NodeState::Booting => {}
            NodeState::Draining => {
                state.set_state(self.now_s, NodeState::On);
                let due_s = state.hold_cap(self.now_s);
                self.regulated(node, due_s);
                self.balancer.list(node, true);
            }
            NodeState::ShuttingDown | NodeState::Off | NodeState::Lost => self.power_on(node),
        }
    }

    /// A node boots.
    pub(super) fn power_on(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        state.set_state(self.now_s, NodeState::Booting);
        let (change, length_s) = (state.change, state.boot_s);
        // Requests go there only once it has booted, however soon it came back.
        self.balancer.list(node, false);
        self.agenda
            .add(self.now_s + length_s, Change::Booted { node, change });
    }
}
