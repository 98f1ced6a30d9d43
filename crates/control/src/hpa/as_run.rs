//! "K8S" of the SLO-Power paper's Figure 8, as its authors ran it.

use super::Window;
use crate::decision::{Allocation, Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use crate::plant::Plant;
use headroom_units::{Cores, Lever};
use serde::{Deserialize, Serialize};

/// The parameters, by default those of the authors' code. The keys are those of the configuration file's
/// `[law.k8s-as-run]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct K8sAsRunTuning {
    /// The utilisation aimed at. 0.8.
    pub target_utilisation: f64,
    /// Seconds between two decisions. 2.
    pub interval_s: f64,
    /// Nodes that the cores are spread over evenly: each gets the same whole number. 1.
    pub nodes: u32,
}

impl Default for K8sAsRunTuning {
    fn default() -> Self {
        Self {
            target_utilisation: 0.8,
            interval_s: 2.0,
            nodes: 1,
        }
    }
}

impl Parameters for K8sAsRunTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        refused([
            Bound::Share.check("target_utilisation", self.target_utilisation),
            Bound::Seconds(0.1, 3_600.0).check("interval_s", self.interval_s),
            Bound::Between(1.0, 100_000.0).check("nodes", f64::from(self.nodes)),
        ])
    }
}

/// The utilisation of a node counts as this at most, so that at full load a node grows by 0.99/0.8 at a time.
const MAX_UTILISATION: f64 = 0.99;

/// Every 2 s and on each node alike: cores = ceil(cores × mean utilisation / 0.8), clipped to what the node has (2 to
/// 16 in the paper). No tolerance, no stabilisation, no limit on the rate, and the cap at the limit of all cores.
///
/// Steps are the machine's: with quotas, the cores are rounded up to the quota's step and not to whole ones.
#[derive(Clone, Debug)]
pub struct K8sAsRun {
    plant: Plant,
    tuning: K8sAsRunTuning,
    window: Window,
    seen_s: f64,
}

impl K8sAsRun {
    /// The law for a machine, or for a cluster of equal nodes.
    ///
    /// # Errors
    /// A parameter outside its range, or more nodes than there are steps of cores.
    pub fn new(plant: Plant, tuning: K8sAsRunTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        // A hair below a whole number belongs to it: 2.3 cores are 23 steps of 0.1.
        let steps = (plant.cores().max() / plant.cores().step() + 1e-9).floor();
        if f64::from(tuning.nodes) > steps {
            let range = format!("at most {steps}, one step of cores a node");
            return Err(OutOfRange::new("nodes", f64::from(tuning.nodes), range));
        }
        Ok(Self {
            plant,
            tuning,
            window: Window::default(),
            seen_s: 0.0,
        })
    }

    fn scale(&self, now: Cores, utilisation: f64) -> (Cores, Reason) {
        let busy = utilisation.clamp(0.0, MAX_UTILISATION);
        let nodes = f64::from(self.tuning.nodes);
        let step = self.plant.cores().step().get();
        let model = now.get() / nodes * (busy / self.tuning.target_utilisation);
        let each = (model / step - 1e-9).ceil() * step;
        let cores = self.plant.cores().round_up(Cores::new(each * nodes));
        let rule = match cores.partial_cmp(&now) {
            Some(std::cmp::Ordering::Greater) => "scale-up",
            Some(std::cmp::Ordering::Less) => "scale-down",
            _ => "hold",
        };
        let text = format!(
            "utilisation {:.0} % of {now}, {:.0} % aimed at: {cores}",
            busy * 100.0,
            self.tuning.target_utilisation * 100.0
        );
        let numbers = [
            ("utilisation", busy),
            ("model_cores", model * nodes),
            ("cores", cores.get()),
        ];
        (cores, Reason::new(rule, text, &numbers))
    }
}

impl Law for K8sAsRun {
    fn name(&self) -> &'static str {
        "k8s-as-run"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let now = self.plant.allocation(&observation.in_force).cores;
        self.window.add(observation, now);
        let length = observation.length.get().max(0.0);
        self.seen_s += length;
        let (cores, reason) = if self.seen_s < self.tuning.interval_s - length / 2.0 {
            let left_s = (self.tuning.interval_s - self.seen_s).max(0.0);
            let text = format!("the next look is in {left_s:.1} s");
            (
                now,
                Reason::new("between-syncs", text, &[("next_sync_s", left_s)]),
            )
        } else {
            let utilisation = self.window.utilisation();
            self.forget();
            match utilisation {
                Some(utilisation) => self.scale(now, utilisation),
                None => {
                    let text = "utilisation could not be read: the cores stay".to_owned();
                    (now, Reason::new("hold-unobserved", text, &[("cores", now.get())]))
                }
            }
        };
        Decision {
            reflex: None,
            setting: Allocation {
                cores,
                ..self.plant.full_allocation()
            }
            .into(),
            expected_rate: None,
            reasons: vec![reason],
            ..Decision::default()
        }
    }

    fn forget(&mut self) {
        self.window = Window::default();
        self.seen_s = 0.0;
    }
}
