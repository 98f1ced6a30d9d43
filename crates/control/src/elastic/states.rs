//! The states that the servers are in, and what a boot takes.

use super::Elastic;
use crate::observation::NodeObservation;
use crate::resize::{Leave, PowerState};

/// A boot that takes so many times as long as it usually does, and so many seconds more, is not waited for any longer.
const OVERDUE: (f64, f64) = (1.5, 3.0);
/// A boot weighs so much in what a boot usually takes.
const BOOT_WEIGHT: f64 = 0.3;

/// What is remembered of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    pub state: PowerState,
    pub since_s: f64,
    /// When it goes, where an operator takes it out.
    pub leave: Leave,
}

/// What a period comes to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// That take requests and stay.
    pub taking: usize,
    pub booting: usize,
    pub overdue: usize,
    /// That take requests until the others do without them.
    pub leaving: usize,
    /// That an operator has.
    pub out: usize,
}

impl Counts {
    pub(super) const fn takes_any(&self) -> bool {
        self.taking + self.leaving > 0
    }
}

/// When one goes that enters a state: one to be taken out waits until it is said otherwise, and what was said of it holds until it is out.
fn leave(before: Option<&Remembered>, state: PowerState) -> Leave {
    match (before, state) {
        (_, PowerState::Leaving) => Leave::Waits,
        (Some(before), PowerState::Maintenance) if before.state == PowerState::Leaving => before.leave,
        _ => Leave::Replaced,
    }
}

impl Elastic {
    /// Follows each server's state, and learns what a boot takes.
    pub(super) fn follow(&mut self, now_s: f64, nodes: &[NodeObservation]) -> Counts {
        let entered = |node: &NodeObservation| Remembered {
            state: node.state,
            since_s: now_s,
            leave: leave(None, node.state),
        };
        if self.servers.len() != nodes.len() {
            self.servers = nodes.iter().map(entered).collect();
            let is_on =
                |node: &&NodeObservation| node.state.is_capacity() || node.state == PowerState::Booting;
            self.target = nodes.iter().filter(is_on).count();
        }
        let mut counts = Counts::default();
        let takes = |before: &Remembered, node: &NodeObservation| {
            before.state.takes_requests() != node.state.takes_requests()
        };
        if self
            .servers
            .iter()
            .zip(nodes)
            .any(|(before, node)| takes(before, node))
        {
            self.sojourn.regroup();
            self.takes.regroup();
        }
        for (before, node) in self.servers.iter_mut().zip(nodes) {
            if before.state != node.state {
                if before.state == PowerState::Booting && node.state.takes_requests() {
                    let took_s = now_s - before.since_s;
                    self.boot_s = took_s.max(self.boot_s + BOOT_WEIGHT * (took_s - self.boot_s));
                }
                // One that warms up and then serves has served since it came.
                let goes_on = before.state.takes_requests() && node.state.takes_requests();
                *before = Remembered {
                    state: node.state,
                    since_s: if goes_on { before.since_s } else { now_s },
                    leave: leave(Some(before), node.state),
                };
            }
            counts.taking += usize::from(node.state.is_capacity());
            counts.leaving += usize::from(node.state == PowerState::Leaving);
            counts.out += usize::from(node.state == PowerState::Maintenance);
            if node.state == PowerState::Booting {
                counts.booting += 1;
                let waited_s = now_s - before.since_s;
                counts.overdue += usize::from(waited_s > OVERDUE.0 * self.boot_s + OVERDUE.1);
            }
        }
        counts
    }
}
