//! The parameters of the autoscaler.

use super::behaviour::Rules;
use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use serde::{Deserialize, Serialize};

/// What an autoscaler goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Busy share of the pods' cores.
    Utilisation,
    /// Requests per second and pod: a custom metric.
    Requests,
}

impl Metric {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Utilisation => "utilisation",
            Self::Requests => "requests per pod",
        }
    }
}

/// The parameters of the Horizontal Pod Autoscaler, by default those of kube-controller-manager. The keys are those of
/// the configuration file's `[law.hpa]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HpaTuning {
    /// The metrics; of several, the one that asks for the most pods counts. Utilisation alone.
    pub metrics: Vec<Metric>,
    /// The utilisation aimed at. 0.8, which Kubernetes takes where nothing is said.
    pub target_utilisation: f64,
    /// The requests per second and pod aimed at. Where absent, what a pod serves at the utilisation aimed at.
    pub target_requests_per_pod_s: Option<f64>,
    /// Cores of a pod. The smallest change of the machine's cores where absent.
    pub cores_per_pod: Option<f64>,
    /// Fewest pods; what the machine allows where absent.
    pub min_pods: Option<u32>,
    /// Most pods; what the machine allows where absent.
    pub max_pods: Option<u32>,
    /// Seconds between two decisions. 15.
    pub sync_s: f64,
    /// A metric this near to its target, as a share of it, changes nothing. 0.1.
    pub tolerance: f64,
    /// A pod given less than this many seconds ago is not ready. 0: a core serves at once.
    pub pod_start_s: f64,
    /// The rules of more pods.
    pub up: Rules,
    /// The rules of fewer.
    pub down: Rules,
}

impl Default for HpaTuning {
    fn default() -> Self {
        Self {
            metrics: vec![Metric::Utilisation],
            target_utilisation: 0.8,
            target_requests_per_pod_s: None,
            cores_per_pod: None,
            min_pods: None,
            max_pods: None,
            sync_s: 15.0,
            tolerance: 0.1,
            pod_start_s: 0.0,
            up: Rules::default(),
            down: Rules::default(),
        }
    }
}

impl Parameters for HpaTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let metrics = self.metrics.len();
        let twice = metrics == 2 && self.metrics[0] == self.metrics[1];
        let names = "a list of \"utilisation\" or \"requests\" or both";
        let positive = |key, value: Option<f64>| Bound::Positive.check(key, value.unwrap_or(1.0));
        let pods = |key, pods: Option<u32>| require(key, 0.0, pods != Some(0), "1 or more");
        refused([
            require(
                "metrics",
                metrics as f64,
                (1..=2).contains(&metrics) && !twice,
                names,
            ),
            Bound::Share.check("target_utilisation", self.target_utilisation),
            positive("target_requests_per_pod_s", self.target_requests_per_pod_s),
            positive("cores_per_pod", self.cores_per_pod),
            pods("min_pods", self.min_pods),
            pods("max_pods", self.max_pods),
            Bound::Seconds(1.0, 3_600.0).check("sync_s", self.sync_s),
            Bound::NotNegative.check("tolerance", self.tolerance),
            Bound::Seconds(0.0, 3_600.0).check("pod_start_s", self.pod_start_s),
            self.up.check("up"),
            self.down.check("down"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn the_defaults_pass_and_what_is_outside_is_named() {
        assert_refused(
            HpaTuning::check,
            &[
                (r#"{"metrics": []}"#, "metrics is 0"),
                (r#"{"target_utilisation": 80}"#, "target_utilisation is 80"),
                (r#"{"cores_per_pod": 0}"#, "cores_per_pod is 0"),
                (r#"{"min_pods": 0}"#, "min_pods is 0"),
                (r#"{"sync_s": 0.5}"#, "sync_s is 0.5"),
                (r#"{"tolerance": -1}"#, "tolerance is -1"),
            ],
        );
    }

    #[test]
    fn a_file_s_tables_keep_the_defaults_of_what_they_leave_out() {
        let text = r#"{"metrics": ["requests"], "down": {"policies": [{"kind": "pods", "value": 1, "period_s": 60}]}}"#;
        let tuning: HpaTuning = serde_json::from_str(text).unwrap();
        assert_eq!(tuning.metrics, [Metric::Requests]);
        assert_eq!(tuning.down.stabilisation_window_s, None);
        assert_eq!(tuning.up, Rules::default());
        assert!(serde_json::from_str::<HpaTuning>(r#"{"metric": "requests"}"#).is_err());
    }
}
