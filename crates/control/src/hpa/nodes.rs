//! The Horizontal Pod Autoscaler with the Cluster Autoscaler of Kubernetes: pods by utilisation, and nodes by whether the
//! pods find room.
//!
//! The cluster autoscaler looks at what pods request, never at what they use: a pod that finds no node asks for one, and a
//! node whose pods request less than half of it for ten minutes, and whose pods fit elsewhere, is drained and removed, one at
//! a time (its FAQ, "How does scale-up work?" and "How does scale-down work?"; the defaults are its flags').

use super::{Hpa, HpaTuning};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use crate::plant::Plant;
use headroom_physics::MachineFigures;
use headroom_units::{Cores, Lever, PerSecond};
use serde::{Deserialize, Serialize};

/// The parameters of the nodes' part, by default the cluster autoscaler's; the keys are those of `[law.hpa-nodes]`. The pods'
/// part is `[law.hpa]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HpaNodesTuning {
    /// `--scan-interval`, seconds. 10.
    pub scan_s: f64,
    /// `--scale-down-utilization-threshold`: requested over allocatable below which a node is not needed. 0.5.
    pub unneeded_below: f64,
    /// `--scale-down-unneeded-time`, seconds. 600.
    pub unneeded_s: f64,
    /// `--scale-down-delay-after-add`, seconds. 600.
    pub after_add_s: f64,
}

impl Default for HpaNodesTuning {
    fn default() -> Self {
        Self {
            scan_s: 10.0,
            unneeded_below: 0.5,
            unneeded_s: 600.0,
            after_add_s: 600.0,
        }
    }
}

impl Parameters for HpaNodesTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let within_a_day = |key, value| Bound::Between(0.0, 86_400.0).check(key, value);
        refused([
            Bound::Share.check("unneeded_below", self.unneeded_below),
            within_a_day("scan_s", self.scan_s),
            within_a_day("unneeded_s", self.unneeded_s),
            within_a_day("after_add_s", self.after_add_s),
        ])
    }
}

/// Both autoscalers as one law.
#[derive(Clone, Debug)]
pub struct HpaNodes {
    hpa: Hpa,
    tuning: HpaNodesTuning,
    /// Cores of each node, in the order in which they are switched on.
    nodes: Vec<f64>,
    /// Cores that all pods request, those that have found no node yet included.
    requested: f64,
    pending_until_s: f64,
    on: usize,
    next_scan_s: f64,
    unneeded_since_s: Option<f64>,
    added_s: f64,
}

impl HpaNodes {
    /// The law for a cluster of these machines, all on.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(
        plant: Plant,
        machines: &[MachineFigures],
        service_rate: PerSecond,
        pods: HpaTuning,
        tuning: HpaNodesTuning,
    ) -> Result<Self, OutOfRange> {
        tuning.check()?;
        let nodes: Vec<f64> = machines
            .iter()
            .map(|machine| machine.processor.cores as f64)
            .collect();
        Ok(Self {
            hpa: Hpa::new(plant, service_rate, pods)?,
            tuning,
            requested: nodes.iter().sum(),
            pending_until_s: f64::NEG_INFINITY,
            on: nodes.len(),
            nodes,
            next_scan_s: 0.0,
            unneeded_since_s: None,
            added_s: f64::NEG_INFINITY,
        })
    }

    /// Cores of the first so many nodes.
    fn room(&self, nodes: usize) -> f64 {
        self.nodes.iter().take(nodes).sum()
    }

    fn scan(&mut self, now_s: f64) -> Reason {
        let requested = self.requested;
        let needed = (1..=self.nodes.len())
            .find(|nodes| self.room(*nodes) + 1e-9 >= requested)
            .unwrap_or(self.nodes.len());
        let share = requested / self.room(self.on).max(1e-9);
        let numbers = [("requested_cores", requested), ("requested_share", share)];
        if needed > self.on {
            self.on = needed;
            (self.added_s, self.unneeded_since_s) = (now_s, None);
            let text = format!("pods request {requested:.0} cores: {needed} nodes have room for them");
            return Reason::new("scale-up-nodes", text, &numbers);
        }
        let fits = self.on > 1 && self.room(self.on - 1) + 1e-9 >= requested;
        if !fits || share >= self.tuning.unneeded_below {
            self.unneeded_since_s = None;
            let text = format!(
                "pods request {:.0} % of {} nodes: all are needed",
                share * 100.0,
                self.on
            );
            return Reason::new("nodes-needed", text, &numbers);
        }
        let since_s = *self.unneeded_since_s.get_or_insert(now_s);
        let for_s = now_s - since_s;
        if for_s < self.tuning.unneeded_s || now_s - self.added_s < self.tuning.after_add_s {
            let text = format!("a node has not been needed for {for_s:.0} s: it stays for now");
            return Reason::new("node-unneeded", text, &numbers);
        }
        self.on -= 1;
        let text = format!(
            "a node has not been needed for {for_s:.0} s: {} nodes stay",
            self.on
        );
        Reason::new("scale-down-nodes", text, &numbers)
    }
}

impl Law for HpaNodes {
    fn name(&self) -> &'static str {
        "hpa-nodes"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores, Lever::Servers]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let now_s = observation.at.get();
        let in_force = observation.in_force.cores().unwrap_or(Cores::ZERO);
        let mut decision = self.hpa.decide(observation);
        let wanted = decision.setting.cores().unwrap_or(in_force).get();
        // Pods that have found no node stay requested until the autoscaler has looked at the pods anew.
        if wanted != in_force.get() || now_s >= self.pending_until_s {
            self.requested = wanted;
            self.pending_until_s = now_s + 2.0 * self.hpa.tuning.sync_s;
        }
        if now_s >= self.next_scan_s {
            self.next_scan_s = now_s + self.tuning.scan_s;
            let reason = self.scan(now_s);
            decision.reasons.push(reason.of(&[Lever::Servers]));
        }
        let setting = decision
            .setting
            .with(Lever::Cores, Some(self.requested))
            .with(Lever::Servers, Some(self.on as f64));
        Decision { setting, ..decision }
    }

    fn forget(&mut self) {
        self.hpa.forget();
        self.on = self.nodes.len();
        self.requested = self.room(self.on);
        self.unneeded_since_s = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CoreRange, PowerEnvelope};
    use headroom_units::{Ratio, Seconds, Setting, Watts};

    fn law() -> HpaNodes {
        let range = CoreRange::new(Cores::new(1.0), Cores::new(32.0), Cores::new(1.0)).unwrap();
        let power = PowerEnvelope {
            base: Watts::new(40.0),
            per_core: Watts::new(4.0),
            lowest_cap: Watts::new(40.0),
        };
        let plant = Plant::new(range, power).unwrap().with_servers(4);
        let machines = vec![MachineFigures::skylake(8); 4];
        HpaNodes::new(
            plant,
            &machines,
            PerSecond::new(24.0),
            HpaTuning::default(),
            HpaNodesTuning::default(),
        )
        .unwrap()
    }

    /// Runs it with so many busy cores for so many seconds; what it wants at the end.
    fn run(law: &mut HpaNodes, from_s: u64, seconds: u64, busy: f64, in_force: &mut f64) -> usize {
        let mut servers = 4;
        for period in from_s..from_s + seconds {
            let observation = Observation {
                period,
                length: Seconds::new(1.0),
                at: Seconds::new(period as f64 + 1.0),
                in_force: Setting::default().with(Lever::Cores, Some(*in_force)),
                utilisation: Some(Ratio::new((busy / *in_force).min(1.0))),
                traffic: Some(crate::Traffic::default()),
                ..Observation::default()
            };
            let setting = law.decide(&observation).setting;
            servers = setting.servers().unwrap();
            *in_force = setting.cores().unwrap().get().min(8.0 * servers as f64);
        }
        servers
    }

    #[test]
    fn nodes_go_ten_minutes_after_their_pods_fit_elsewhere_and_come_at_once() {
        let mut law = law();
        let mut in_force = 32.0;
        // Six busy cores at 80 %: 8 pods, a quarter of the cluster; the window of scaling down is five minutes.
        assert_eq!(run(&mut law, 0, 600, 6.0, &mut in_force), 4);
        // 8 pods on 2 nodes are half of them: not less, so both stay.
        assert_eq!(run(&mut law, 600, 1200, 6.0, &mut in_force), 2);
        assert!(run(&mut law, 1800, 60, 8.0, &mut in_force) >= 2);
        assert_eq!(run(&mut law, 1860, 120, 24.0, &mut in_force), 4);
    }

    #[test]
    fn a_threshold_that_is_no_share_is_refused() {
        let bad = HpaNodesTuning {
            unneeded_below: 1.5,
            ..HpaNodesTuning::default()
        };
        assert!(bad.check().is_err());
    }
}
