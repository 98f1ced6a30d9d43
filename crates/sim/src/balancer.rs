//! Which node a request goes to.

use crate::error::{ScenarioError, within};
use serde::{Deserialize, Serialize};

/// The rule of the balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// One after another.
    RoundRobin {},
    /// The node that serves the fewest requests; of equals the next in the ring.
    LeastConnections {},
    /// Round robin by weight, smoothed: a node of weight 2 gets every second request, not two in a row.
    Weighted {
        /// A weight for each node, above 0.
        weights: Vec<f64>,
    },
    /// By the request's size: node 1 gets those up to the first bound, node 2 those up to the second, the last one the
    /// rest (size-interval task assignment; M. Harchol-Balter et al., 1999). The balancer knows the size, as one that
    /// knows the URL does. A request whose node is not there goes to the next that is.
    BySize {
        /// A bound between each node and the next, ascending: seconds of one core at full speed.
        bounds_s: Vec<f64>,
    },
}

/// The balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Balancing {
    /// Its rule.
    pub rule: Rule,
    /// From the loss of a node until no more requests are sent there, seconds; those sent meanwhile fail.
    pub detection_s: f64,
}

impl Default for Balancing {
    /// Round robin, as in the SLO-Power testbed; a lost node is noticed within 2 s, HAProxy's default check interval.
    fn default() -> Self {
        Self {
            rule: Rule::RoundRobin {},
            detection_s: 2.0,
        }
    }
}

impl Balancing {
    pub(crate) fn check(&self, key: &str, nodes: usize) -> Result<(), ScenarioError> {
        let bad = |field: &str, why: String| Err(ScenarioError::new(format!("{key}.{field}"), why));
        within(
            &format!("{key}.detection_s"),
            self.detection_s,
            0.0,
            1e6,
            " seconds",
        )?;
        match &self.rule {
            Rule::Weighted { weights } if weights.len() != nodes => bad(
                "rule.weights",
                format!(
                    "has {} values for {nodes} nodes: give one for each",
                    weights.len()
                ),
            ),
            Rule::Weighted { weights } => {
                match weights.iter().find(|weight| !(**weight > 0.0 && **weight <= 1e6)) {
                    Some(weight) => bad(
                        "rule.weights",
                        format!("has {weight}: each must be above 0 and at most 1000000"),
                    ),
                    None => Ok(()),
                }
            }
            Rule::BySize { bounds_s } if bounds_s.len() + 1 != nodes => bad(
                "rule.bounds_s",
                format!(
                    "has {} values for {nodes} nodes: give one between each and the next",
                    bounds_s.len()
                ),
            ),
            Rule::BySize { bounds_s } => {
                let ascends = bounds_s.windows(2).all(|pair| pair[0] < pair[1]);
                if ascends && bounds_s.iter().all(|bound| *bound > 0.0) {
                    Ok(())
                } else {
                    bad(
                        "rule.bounds_s",
                        format!("is {bounds_s:?}: bounds must be above 0 and ascend"),
                    )
                }
            }
            Rule::RoundRobin {} | Rule::LeastConnections {} => Ok(()),
        }
    }
}

/// The balancer at work.
#[derive(Clone, Debug)]
pub(crate) struct Balancer {
    rule: Rule,
    last: usize,
    /// Of the smoothed weights: what each node is owed.
    owed: Vec<f64>,
    listed: Vec<bool>,
}

impl Balancer {
    pub(crate) fn new(rule: Rule, nodes: usize) -> Self {
        Self {
            rule,
            last: nodes - 1,
            owed: vec![0.0; nodes],
            listed: vec![true; nodes],
        }
    }

    /// Requests are sent to a node from now on, or no more.
    pub(crate) fn list(&mut self, node: usize, listed: bool) {
        self.listed[node] = listed;
        self.owed[node] = 0.0;
    }

    /// The node for a request of a size; none where none is listed.
    #[inline]
    pub(crate) fn choose(&mut self, size_s: f64, jobs: impl Fn(usize) -> usize) -> Option<usize> {
        let nodes = self.listed.len();
        if nodes == 1 {
            return self.listed[0].then_some(0);
        }
        let chosen = match &self.rule {
            Rule::RoundRobin {} => self.next_from(self.last + 1)?,
            Rule::LeastConnections {} => {
                let ring = (1..=nodes).map(|step| (self.last + step) % nodes);
                ring.filter(|node| self.listed[*node])
                    .min_by_key(|node| jobs(*node))?
            }
            Rule::Weighted { weights } => {
                let mut total = 0.0;
                let mut most: Option<usize> = None;
                for (node, weight) in weights.iter().enumerate() {
                    if self.listed[node] {
                        self.owed[node] += weight;
                        total += weight;
                        if most.is_none_or(|most| self.owed[node] > self.owed[most]) {
                            most = Some(node);
                        }
                    }
                }
                let most = most?;
                self.owed[most] -= total;
                most
            }
            Rule::BySize { bounds_s } => self.next_from(bounds_s.partition_point(|bound| *bound < size_s))?,
        };
        self.last = chosen;
        Some(chosen)
    }

    fn next_from(&self, begin: usize) -> Option<usize> {
        let nodes = self.listed.len();
        (0..nodes)
            .map(|step| (begin + step) % nodes)
            .find(|node| self.listed[*node])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(rule: Rule, nodes: usize, sizes: &[f64]) -> Vec<usize> {
        let mut balancer = Balancer::new(rule, nodes);
        sizes
            .iter()
            .map(|size| balancer.choose(*size, |node| [3, 1, 2][node]).unwrap())
            .collect()
    }

    #[test]
    fn each_rule_chooses_as_it_says() {
        assert_eq!(picks(Rule::RoundRobin {}, 3, &[1.0; 4]), [0, 1, 2, 0]);
        assert_eq!(picks(Rule::LeastConnections {}, 3, &[1.0; 2]), [1, 1]);
        let weighted = Rule::Weighted {
            weights: vec![2.0, 1.0, 1.0],
        };
        assert_eq!(picks(weighted, 3, &[1.0; 8]), [0, 1, 2, 0, 0, 1, 2, 0]);
        let by_size = Rule::BySize {
            bounds_s: vec![0.1, 1.0],
        };
        assert_eq!(picks(by_size, 3, &[0.05, 0.1, 0.5, 2.0]), [0, 0, 1, 2]);
    }

    #[test]
    fn equals_take_turns_and_nodes_that_are_not_listed_get_nothing() {
        let mut balancer = Balancer::new(Rule::LeastConnections {}, 3);
        let pick = |balancer: &mut Balancer| balancer.choose(1.0, |_| 0);
        assert_eq!(
            [pick(&mut balancer), pick(&mut balancer), pick(&mut balancer)],
            [Some(0), Some(1), Some(2)]
        );
        balancer.list(0, false);
        balancer.list(1, false);
        assert_eq!([pick(&mut balancer), pick(&mut balancer)], [Some(2), Some(2)]);
        balancer.list(2, false);
        assert_eq!(pick(&mut balancer), None);
    }

    #[test]
    fn rules_that_do_not_fit_the_nodes_are_named() {
        let check = |rule: Rule| {
            Balancing {
                rule,
                detection_s: 1.0,
            }
            .check("balancer", 3)
            .unwrap_err()
            .to_string()
        };
        assert!(
            check(Rule::Weighted { weights: vec![1.0] })
                .contains("balancer.rule.weights: has 1 values for 3 nodes")
        );
        assert!(
            check(Rule::Weighted {
                weights: vec![1.0, 0.0, 1.0]
            })
            .contains("has 0")
        );
        assert!(
            check(Rule::BySize {
                bounds_s: vec![2.0, 1.0]
            })
            .contains("must be above 0 and ascend")
        );
    }
}
