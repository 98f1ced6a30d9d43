//! What goes wrong, and when.

use crate::error::ScenarioError;
use serde::{Deserialize, Serialize};

/// Something that happens to the world at a time given beforehand. Nodes count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// A node loses its power: what it was serving fails, it draws nothing, and requests fail until the balancer notices.
    /// On its return it boots, and serves with all its cores and no limit until it is told otherwise.
    NodeLoss {
        /// The node's number, from 0.
        node: usize,
        /// When, seconds from the start.
        at_s: f64,
        /// When its power comes back; not given: never.
        until_s: Option<f64>,
    },
    /// A node is switched off as planned: it is sent no more requests, finishes those it has, shuts down, and is off.
    /// On its return it boots. One that is not on at the time (lost before, still booting) stays as it is.
    Shutdown {
        /// The node's number, from 0.
        node: usize,
        /// When, seconds from the start.
        at_s: f64,
        /// When it is switched on again; not given: never.
        until_s: Option<f64>,
    },
    /// Periods that end within this time have no telemetry of requests.
    TelemetryLost {
        /// From, seconds from the start.
        at_s: f64,
        /// Until.
        until_s: f64,
    },
    /// A node accepts caps and shows them, and does nothing about them.
    CapIgnored {
        /// The node's number, from 0.
        node: usize,
        /// From, seconds from the start.
        at_s: f64,
        /// Until.
        until_s: f64,
    },
    /// A node's cores do less work in the same time at the same power (a neighbour in its caches, a dying fan).
    SlowNode {
        /// The node's number, from 0.
        node: usize,
        /// Its speed over what it is otherwise.
        factor: f64,
        /// From, seconds from the start.
        at_s: f64,
        /// Until.
        until_s: f64,
    },
}

impl Fault {
    /// When it begins, and when it ends where it does: seconds from the start.
    pub fn times_s(&self) -> (f64, Option<f64>) {
        match *self {
            Self::NodeLoss { at_s, until_s, .. } | Self::Shutdown { at_s, until_s, .. } => (at_s, until_s),
            Self::TelemetryLost { at_s, until_s }
            | Self::CapIgnored { at_s, until_s, .. }
            | Self::SlowNode { at_s, until_s, .. } => (at_s, Some(until_s)),
        }
    }

    /// The node it happens to, from 0; `None` where it happens to none.
    pub fn node(&self) -> Option<usize> {
        match *self {
            Self::NodeLoss { node, .. }
            | Self::Shutdown { node, .. }
            | Self::CapIgnored { node, .. }
            | Self::SlowNode { node, .. } => Some(node.saturating_sub(1)),
            Self::TelemetryLost { .. } => None,
        }
    }

    /// Faults of the same number on the same node cannot overlap: the end of one would end the other.
    fn lever(&self) -> u8 {
        match self {
            Self::NodeLoss { .. } | Self::Shutdown { .. } => 0,
            Self::CapIgnored { .. } => 1,
            Self::SlowNode { .. } => 2,
            Self::TelemetryLost { .. } => 3,
        }
    }

    /// Checks that no two overlap that cannot.
    pub(crate) fn check_overlaps(faults: &[Self]) -> Result<(), ScenarioError> {
        let mut order: Vec<usize> = (0..faults.len()).collect();
        let place = |at: &usize| (faults[*at].lever(), faults[*at].node());
        order.sort_by(|a, b| {
            place(a)
                .cmp(&place(b))
                .then(faults[*a].times_s().0.total_cmp(&faults[*b].times_s().0))
        });
        for pair in order.windows(2) {
            let ((_, until_s), (at_s, _)) = (faults[pair[0]].times_s(), faults[pair[1]].times_s());
            if place(&pair[0]) == place(&pair[1]) && until_s.is_none_or(|until_s| at_s < until_s) {
                let why = format!(
                    "is {at_s}: the one before it, faults.{}, has not ended by then",
                    pair[0]
                );
                return Err(ScenarioError::new(format!("faults.{}.at_s", pair[1]), why));
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self, key: &str, nodes: usize) -> Result<(), ScenarioError> {
        let bad = |field: &str, why: String| Err(ScenarioError::new(format!("{key}.{field}"), why));
        let (at_s, until_s) = self.times_s();
        if !(0.0..=1e12).contains(&at_s) {
            return bad(
                "at_s",
                format!("is {at_s}: a time is 0 or more seconds from the start"),
            );
        }
        if let Some(until_s) = until_s
            && !(until_s > at_s && until_s <= 1e12)
        {
            return bad("until_s", format!("is {until_s}: it must be after at_s, {at_s}"));
        }
        if let Self::NodeLoss { node, .. }
        | Self::Shutdown { node, .. }
        | Self::CapIgnored { node, .. }
        | Self::SlowNode { node, .. } = *self
            && !(1..=nodes).contains(&node)
        {
            return bad("node", format!("is {node}: there are nodes 1 to {nodes}"));
        }
        if let Self::SlowNode { factor, .. } = *self
            && !(factor > 0.0 && factor <= 10.0)
        {
            return bad(
                "factor",
                format!("is {factor}: it must be above 0 and at most 10"),
            );
        }
        Ok(())
    }
}
