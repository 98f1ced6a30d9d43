//! How many replicas a metric asks for: the HPA's replica calculator.
//!
//! | situation | what is asked for |
//! |---|---|
//! | ratio = mean metric of the ready pods / target, within the tolerance of 1 | as many as now |
//! | outside it, every pod ready and seen | ceil(ratio × ready pods) |
//! | some missing, ratio < 1 | the same, with the missing ones at their whole request (or at the target, where that is higher or the metric is no utilisation) |
//! | some missing, ratio > 1 | the same, with the missing ones at 0 |
//! | some unready, ratio > 1 | the same, with the unready ones at 0 |
//! | the new ratio is within the tolerance, or on the other side of 1, or asks for a change the other way | as many as now |
//!
//! Source: Kubernetes documentation, "Horizontal Pod Autoscaling, Algorithm details", and the public replica
//! calculator of kube-controller-manager.

/// One pod, as its metrics are reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pod {
    /// It can serve. A pod that cannot has no say, whatever it reports.
    pub ready: bool,
    /// The metric: a share of the request for a utilisation, the metric's own unit otherwise. `None` where it is
    /// missing.
    pub metric: Option<f64>,
}

/// What a metric is measured against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The value per pod that is aimed at.
    pub value: f64,
    /// The change that is too small to act on, as a share of the target. 0.1.
    pub tolerance: f64,
    /// The metric is a share of the pods' request.
    pub of_request: bool,
}

/// Why so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The ratio asks for another number.
    Ratio,
    /// The ratio is within the tolerance.
    WithinTolerance,
    /// Pods that are missing or unready could turn the direction around.
    DirectionUnsure,
}

/// What a metric asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// Replicas.
    pub replicas: u32,
    /// Mean metric of the ready pods over the target.
    pub ratio: f64,
    /// The rule that decided the number.
    pub because: Because,
}

impl Target {
    /// What the pods ask for while `current` replicas are in force; `None` where no ready pod has a metric.
    pub fn propose(&self, current: u32, pods: &[Pod]) -> Option<Proposal> {
        let seen = || pods.iter().filter(|pod| pod.ready).filter_map(|pod| pod.metric);
        let ready = seen().count();
        if ready == 0 {
            return None;
        }
        let sum: f64 = seen().sum();
        let ratio = self.ratio(sum, ready);
        let proposal = |replicas, because| {
            Some(Proposal {
                replicas,
                ratio,
                because,
            })
        };
        let missing = pods
            .iter()
            .filter(|pod| pod.ready && pod.metric.is_none())
            .count();
        let unready = pods.iter().filter(|pod| !pod.ready).count();
        let counted_unready = if ratio > 1.0 { unready } else { 0 };
        if missing == 0 && counted_unready == 0 {
            return match self.within_tolerance(ratio) {
                true => proposal(current, Because::WithinTolerance),
                false => proposal(whole(ratio * ready as f64), Because::Ratio),
            };
        }
        let assumed = if ratio >= 1.0 {
            0.0
        } else if self.of_request {
            self.value.max(1.0)
        } else {
            self.value
        };
        // At a ratio of exactly 1 there is no direction that the missing pods could be held against.
        let counted_missing = if ratio == 1.0 { 0 } else { missing };
        let counted = ready + counted_missing + counted_unready;
        let cautious = self.ratio(sum + assumed * counted_missing as f64, counted);
        if self.within_tolerance(cautious) {
            return proposal(current, Because::WithinTolerance);
        }
        let replicas = whole(cautious * counted as f64);
        let turned = (ratio < 1.0) != (cautious < 1.0);
        let against = (cautious < 1.0 && replicas > current) || (cautious > 1.0 && replicas < current);
        if turned || against {
            return proposal(current, Because::DirectionUnsure);
        }
        proposal(replicas, Because::Ratio)
    }

    fn ratio(&self, sum: f64, pods: usize) -> f64 {
        sum / pods as f64 / self.value
    }

    fn within_tolerance(&self, ratio: f64) -> bool {
        (1.0 - ratio).abs() <= self.tolerance + 1e-9
    }
}

/// Rounded up; a hair above a whole number belongs to it (three pods at 0.8 of a target of 0.8 are three).
fn whole(replicas: f64) -> u32 {
    (replicas - 1e-9).ceil().max(0.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CPU: Target = Target {
        value: 0.5,
        tolerance: 0.1,
        of_request: true,
    };
    const REQUESTS: Target = Target {
        value: 20.0,
        tolerance: 0.1,
        of_request: false,
    };

    fn seen(metric: f64) -> Pod {
        Pod {
            ready: true,
            metric: Some(metric),
        }
    }
    const MISSING: Pod = Pod {
        ready: true,
        metric: None,
    };
    const UNREADY: Pod = Pod {
        ready: false,
        metric: Some(0.9),
    };

    fn propose(target: Target, pods: &[Pod]) -> (u32, Because) {
        let proposal = target.propose(pods.len() as u32, pods).unwrap();
        (proposal.replicas, proposal.because)
    }

    #[test]
    fn each_row_of_the_table() {
        use Because::{DirectionUnsure, Ratio, WithinTolerance};
        type Row = (&'static str, Target, Vec<Pod>, (u32, Because));
        let rows: [Row; 12] = [
            (
                "at 110 %: tolerated",
                CPU,
                vec![seen(0.55); 4],
                (4, WithinTolerance),
            ),
            (
                "at 90 %: tolerated",
                CPU,
                vec![seen(0.45); 4],
                (4, WithinTolerance),
            ),
            ("ceil(1.2 x 4)", CPU, vec![seen(0.6); 4], (5, Ratio)),
            ("ceil(0.6 x 4)", CPU, vec![seen(0.3); 4], (3, Ratio)),
            ("another metric", REQUESTS, vec![seen(50.0); 3], (8, Ratio)),
            // 0.1, 0.1, 0.1 and one at 100 %: 1.3 / 4 / 0.5 = 0.65; ceil(2.6).
            (
                "missing on the way down counts as all of its request",
                CPU,
                vec![seen(0.1), seen(0.1), seen(0.1), MISSING],
                (3, Ratio),
            ),
            // 0.3, 0.3 and one at 100 %: 1.6 / 3 / 0.5 = 1.067: tolerated.
            (
                "which may bring it into the tolerance",
                CPU,
                vec![seen(0.3), seen(0.3), MISSING],
                (3, WithinTolerance),
            ),
            // 0.4 and one at 100 %: 1.4 / 2 / 0.5 = 1.4: up, where the pods seen said down.
            (
                "or turn it around",
                CPU,
                vec![seen(0.4), MISSING],
                (2, DirectionUnsure),
            ),
            // 2.7 / 4 / 0.5 = 1.35; ceil(5.4).
            (
                "missing on the way up counts as nothing",
                CPU,
                vec![seen(0.9), seen(0.9), seen(0.9), MISSING],
                (6, Ratio),
            ),
            (
                "so does unready",
                CPU,
                vec![seen(0.9), seen(0.9), seen(0.9), UNREADY],
                (6, Ratio),
            ),
            (
                "which may turn it around too",
                CPU,
                vec![seen(0.6), UNREADY, UNREADY],
                (3, DirectionUnsure),
            ),
            // On the way down an unready pod is left out: ceil(0.4 x 2 ready).
            (
                "unready on the way down is left out",
                CPU,
                vec![seen(0.2), seen(0.2), UNREADY],
                (1, Ratio),
            ),
        ];
        for (name, target, pods, expected) in rows {
            assert_eq!(propose(target, &pods), expected, "{name}");
        }
        // Not a utilisation: missing counts as the target itself. 5 + 5 + 20 of 60: ceil(1.5).
        assert_eq!(propose(REQUESTS, &[seen(5.0), seen(5.0), MISSING]), (2, Ratio));
        assert_eq!(REQUESTS.propose(2, &[MISSING, UNREADY]), None, "nothing to go by");
    }

    fn any_pod() -> impl Strategy<Value = Pod> {
        (
            prop::bool::weighted(0.8),
            proptest::option::weighted(0.7, 0.0..1.5f64),
        )
            .prop_map(|(ready, metric)| Pod { ready, metric })
    }

    proptest! {
        #[test]
        fn missing_and_unready_pods_never_turn_the_direction(
            pods in prop::collection::vec(any_pod(), 1..40), of_request: bool, value in 0.05..1.0f64,
        ) {
            let target = Target { value, tolerance: 0.1, of_request };
            let current = pods.len() as u32;
            if let Some(proposal) = target.propose(current, &pods) {
                if proposal.ratio <= 1.0 {
                    prop_assert!(proposal.replicas <= current);
                } else {
                    prop_assert!(proposal.replicas >= current);
                }
            }
        }

        #[test]
        fn what_is_proposed_brings_the_mean_to_the_target_and_one_pod_fewer_would_not(
            pods in prop::collection::vec((0.0..2.0f64).prop_map(seen), 1..40),
        ) {
            let proposal = CPU.propose(pods.len() as u32, &pods).unwrap();
            if proposal.because == Because::Ratio {
                let sum: f64 = pods.iter().filter_map(|pod| pod.metric).sum();
                prop_assert!(sum <= CPU.value * f64::from(proposal.replicas) + 1e-6);
                prop_assert!(sum > CPU.value * (f64::from(proposal.replicas) - 1.0));
            }
        }
    }
}
