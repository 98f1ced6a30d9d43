//! How the autoscalers of Kubernetes would size a cluster of one server a node, given what a server takes: a reference.
//!
//! The Horizontal Pod Autoscaler asks for `ceil(load / (target x capacity))` each 15 s within its tolerance of a tenth, and takes the
//! highest of what it asked for in the last five minutes; the Cluster Autoscaler lets a node go when it was not needed for ten minutes, and not
//! within ten minutes of adding one (their documentation's defaults).

use super::{PowerState, Resize};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::needed::Needed;
use crate::observation::Observation;
use headroom_units::{Lever, PerSecond};

/// How often the Horizontal Pod Autoscaler asks, seconds.
const SYNC_S: f64 = 15.0;
/// It leaves alone what is off by less.
const TOLERANCE: f64 = 0.1;
/// The highest of what it asked for in so many seconds counts.
const STABLE_S: f64 = 300.0;
/// The Cluster Autoscaler's `scale-down-unneeded-time` and `scale-down-delay-after-add`, seconds.
const UNNEEDED_S: f64 = 600.0;

/// The law.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    capacity: PerSecond,
    target: f64,
    asked_s: f64,
    pods: usize,
    stable: Needed,
    unneeded_since_s: Option<f64>,
    added_s: f64,
    nodes: usize,
}

impl Autoscaler {
    /// For servers that take so much, of which this share is aimed at (Kubernetes' examples have 0.5 to 0.8).
    pub const fn new(capacity: PerSecond, target: f64) -> Self {
        Self {
            capacity,
            target,
            asked_s: f64::NEG_INFINITY,
            pods: 1,
            stable: Needed::new(),
            unneeded_since_s: None,
            added_s: f64::NEG_INFINITY,
            nodes: 0,
        }
    }
}

impl Law for Autoscaler {
    fn name(&self) -> &'static str {
        "autoscaler"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Servers]
    }

    fn is_informed(&self, observation: &Observation) -> bool {
        observation.demand().is_some()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let (now_s, all) = (observation.at.get(), observation.nodes.len());
        let is_on = |state: PowerState| state.is_capacity() || state == PowerState::Booting;
        if self.nodes == 0 {
            self.nodes = observation.nodes.iter().filter(|node| is_on(node.state)).count();
            self.pods = self.nodes.max(1);
        }
        let rate = observation.demand().map(PerSecond::get);
        if let Some(rate) = rate.filter(|_| now_s - self.asked_s >= SYNC_S) {
            self.asked_s = now_s;
            let serving = observation
                .nodes
                .iter()
                .filter(|node| node.state.is_capacity())
                .count();
            let used = rate / (serving.max(1) as f64 * self.capacity.get());
            let wanted = match (used / self.target - 1.0).abs() <= TOLERANCE {
                true => self.pods,
                false => (serving.max(1) as f64 * used / self.target).ceil().max(1.0) as usize,
            };
            let period = (now_s / SYNC_S) as u64;
            self.pods = self
                .stable
                .observe(period, wanted, (STABLE_S / SYNC_S) as u64)
                .min(all);
        }
        if self.pods > self.nodes {
            (self.nodes, self.added_s, self.unneeded_since_s) = (self.pods, now_s, None);
        } else if self.pods < self.nodes {
            let since_s = *self.unneeded_since_s.get_or_insert(now_s);
            if now_s - since_s >= UNNEEDED_S && now_s - self.added_s >= UNNEEDED_S {
                (self.nodes, self.unneeded_since_s) = (self.pods, None);
            }
        } else {
            self.unneeded_since_s = None;
        }
        let numbers = [("pods", self.pods as f64), ("nodes", self.nodes as f64)];
        let text = format!("{} pods on {} nodes", self.pods, self.nodes);
        let reason = Reason::new("autoscaler", text, &numbers);
        let servers = self.nodes;
        Resize { servers, reason }.into()
    }

    fn forget(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::observation::NodeObservation;
    use headroom_units::Seconds;

    #[test]
    fn it_grows_at_its_next_look_and_shrinks_after_its_delays() {
        let mut law = Autoscaler::new(PerSecond::new(100.0), 0.7);
        let mut on = 1;
        let mut at = |second: u32, rate: f64| {
            let node = |at: usize| NodeObservation {
                state: if at < on {
                    PowerState::Serving
                } else {
                    PowerState::Off
                },
                capacity: Capacity::Unknown,
                answered: None,
            };
            let observation = Observation {
                at: Seconds::new(f64::from(second)),
                demand: Some(PerSecond::new(rate)),
                nodes: (0..8).map(node).collect(),
                ..Observation::default()
            };
            on = law.decide(&observation).setting.servers().unwrap();
            on
        };
        assert_eq!(at(0, 50.0), 1);
        assert_eq!(at(1, 350.0), 1);
        assert_eq!(at(15, 350.0), 5);
        // Five minutes of its own memory, and ten of the nodes'.
        let falls = (16..3_000).find(|second| at(*second, 70.0) < 5).unwrap();
        assert!((900..935).contains(&falls), "{falls}");
    }
}
