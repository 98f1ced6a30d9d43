//! Connection-level QoS policies: how many queries each connection may send in a turn.
//!
//! Source: REEF Section 3.4, the query batch regulator [F]; the public implementation of AppleS for its rule and the tail-SLO mode [F]. The growth of
//! a latency-sensitive quota by doubling is ours [D], for only its bound of 64 L is published; so is all of UTSLO's loop [D].
//! The controller equations of PSLO are not public to us: [`PsloStyle`] is in its style, no more.

use crate::decision::Reason;
use headroom_units::{Ratio, Seconds};
use std::collections::BTreeMap;

/// The longest that a connection waits without a token: AppleS' rule.
pub const MAX_WAIT: Seconds = Seconds::new(20.0);
/// Tokens of one turn at most, whatever a policy answers.
pub const MAX_TOKENS: u32 = 1_024;
/// By what a violation ratio is multiplied before it is compared.
const TRIGGER: f64 = 1.05;
/// The quota of a latency-sensitive connection at most, in L.
const MAX_QUOTA: u32 = 64;
/// The quota of a latency-sensitive connection at least.
const MIN_QUOTA: u32 = 2;
/// After how long a connection without tokens tries again.
const RETRY: Seconds = Seconds::new(200e-6);
/// The same of best-effort connections while an SLO is violated.
const RETRY_VIOLATED: Seconds = Seconds::new(20e-3);

/// An SLO of a connection and how it was kept in the period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kept {
    /// A percentile: this share of queries missed its target.
    Percentile {
        /// p, such as 0.99.
        percentile: Ratio,
        /// The share of queries that missed the target.
        violations: Ratio,
    },
    /// A user disengagement ratio.
    Disengagement {
        /// The ratio that may be.
        target: Ratio,
        /// The ratio that was.
        measured: Ratio,
    },
}

/// A connection in one period.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Which one.
    pub id: u64,
    /// The name of its class.
    pub class: String,
    /// Its weight; what is not positive counts as 1.
    pub weight: f64,
    /// Queries that it completed.
    pub queries: u64,
    /// Their mean latency, where there were any.
    pub mean: Option<Seconds>,
    /// Their coefficient of variation, where there were enough.
    pub cv: Option<Ratio>,
    /// Its SLOs: none of a best-effort connection.
    pub slos: Vec<Kept>,
    /// Tokens of a turn in force.
    pub tokens: u32,
}

impl Connection {
    fn weight(&self) -> f64 {
        if self.weight > 0.0 && self.weight.is_finite() {
            self.weight
        } else {
            1.0
        }
    }
}

/// What a connection may do until the next period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// Which connection.
    pub id: u64,
    /// N, queries of one turn; 0 is no turn.
    pub tokens: u32,
    /// Its share of the turns of C relative to the others: a weight.
    pub share: f64,
    /// Whether it may run in two rounds in a row.
    pub again: bool,
    /// Whether it is skipped until all others hold their tokens.
    pub yields: bool,
    /// After how long without a token it tries again.
    pub retry: Seconds,
}

impl Grant {
    fn new(id: u64, tokens: u32) -> Self {
        Self {
            id,
            tokens,
            share: 1.0,
            again: false,
            yields: false,
            retry: RETRY,
        }
    }
}

/// The answer of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grants {
    /// One for each connection.
    pub grants: Vec<Grant>,
    /// Why; at least one.
    pub reasons: Vec<Reason>,
}

/// A policy: a deterministic state machine, one call a period.
pub trait Policy: Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Answers every connection. A connection without an answer has no turn.
    fn decide(&mut self, connections: &[Connection]) -> Grants;
}

/// Weighted round robin: tokens in proportion to the weight, where the least weight has `tokens`, at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fair {
    /// Tokens of the connection with the least weight.
    pub tokens: u32,
}

impl Policy for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        let least = connections
            .iter()
            .map(Connection::weight)
            .fold(f64::INFINITY, f64::min);
        let tokens = |of: &Connection| (f64::from(self.tokens.max(1)) * of.weight() / least).round() as u32;
        let grants = connections.iter().map(|of| Grant {
            again: true,
            ..Grant::new(of.id, tokens(of))
        });
        answer(
            grants.collect(),
            "policy-fair",
            "tokens are in proportion to weights",
        )
    }
}

/// AppleS: L tokens each, no two turns in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Apples {
    /// L: 1 for MySQL from 8.0.20, 16 before, 4 for MongoDB.
    pub tokens: u32,
}

impl Policy for Apples {
    fn name(&self) -> &'static str {
        "apples"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        let grants = connections.iter().map(|of| Grant::new(of.id, self.tokens.max(1)));
        answer(
            grants.collect(),
            "policy-apples",
            "L tokens each, and no two turns in a row",
        )
    }
}

/// Quotas of latency-sensitive connections, by id.
#[derive(Clone, Debug)]
struct Quotas {
    tokens: u32,
    of: BTreeMap<u64, u32>,
}

impl Quotas {
    fn decide(&mut self, connections: &[Connection], state: impl Fn(&Connection) -> Option<bool>) -> Grants {
        let violated = connections.iter().any(|of| state(of) == Some(true));
        let (l, before) = (self.tokens.max(1), std::mem::take(&mut self.of));
        let grant = |of: &Connection| {
            let Some(violates) = state(of) else {
                return match violated {
                    true => Grant {
                        yields: true,
                        retry: RETRY_VIOLATED,
                        ..Grant::new(of.id, 1)
                    },
                    false => Grant::new(of.id, l),
                };
            };
            let quota = before.get(&of.id).copied().unwrap_or(l.max(MIN_QUOTA));
            let quota = match (violated, violates) {
                (true, true) => quota.saturating_mul(2).min(l.saturating_mul(MAX_QUOTA)),
                (true, false) => quota,
                (false, _) => quota.saturating_sub(1).max(MIN_QUOTA),
            };
            let quota = quota.min(MAX_TOKENS);
            self.of.insert(of.id, quota);
            Grant {
                again: violated,
                ..Grant::new(of.id, quota)
            }
        };
        let grants = connections.iter().map(grant).collect();
        match violated {
            true => answer(
                grants,
                "policy-violated",
                "an SLO is violated: best-effort connections have 1 token and yield",
            ),
            false => answer(grants, "policy-kept", "all SLOs are kept: quotas fall by 1"),
        }
    }
}

/// In the style of PSLO: guards percentile SLOs. Violated where the violation ratio x 1.05 exceeds 1 - p.
#[derive(Clone, Debug)]
pub struct PsloStyle(Quotas);

impl PsloStyle {
    /// With L tokens of a best-effort connection.
    pub const fn new(tokens: u32) -> Self {
        Self(Quotas {
            tokens,
            of: BTreeMap::new(),
        })
    }
}

impl Policy for PsloStyle {
    fn name(&self) -> &'static str {
        "pslo-style"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        let missed = |slo: &Kept| match slo {
            Kept::Percentile {
                percentile,
                violations,
            } => Some(violations.get() * TRIGGER > 1.0 - percentile.get()),
            Kept::Disengagement { .. } => None,
        };
        self.0.decide(connections, |of| {
            of.slos
                .iter()
                .filter_map(missed)
                .reduce(|one, other| one || other)
        })
    }
}

/// In the style of UTSLO: the same loop for user disengagement ratios. Violated where the ratio x 1.05 exceeds its target.
#[derive(Clone, Debug)]
pub struct UtsloStyle(Quotas);

impl UtsloStyle {
    /// With L tokens of a best-effort connection.
    pub const fn new(tokens: u32) -> Self {
        Self(Quotas {
            tokens,
            of: BTreeMap::new(),
        })
    }
}

impl Policy for UtsloStyle {
    fn name(&self) -> &'static str {
        "utslo-style"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        let missed = |slo: &Kept| match slo {
            Kept::Disengagement { target, measured } => Some(measured.get() * TRIGGER > target.get()),
            Kept::Percentile { .. } => None,
        };
        self.0.decide(connections, |of| {
            of.slos
                .iter()
                .filter_map(missed)
                .reduce(|one, other| one || other)
        })
    }
}

/// A user's own table: tokens and share of turns by the name of a class. A class that is not in it has no turn but the one
/// that [`Running`] gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(pub BTreeMap<String, (u32, f64)>);

impl Policy for Table {
    fn name(&self) -> &'static str {
        "table"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        let grant = |of: &Connection| {
            let (tokens, share) = self.0.get(&of.class).copied().unwrap_or((0, 1.0));
            Grant {
                share,
                again: true,
                ..Grant::new(of.id, tokens)
            }
        };
        answer(
            connections.iter().map(grant).collect(),
            "policy-table",
            "tokens are those of the class in the table",
        )
    }
}

fn answer(grants: Vec<Grant>, rule: &'static str, text: &str) -> Grants {
    let tokens = grants.iter().map(|grant| f64::from(grant.tokens)).sum();
    let numbers = [("connections", grants.len() as f64), ("tokens", tokens)];
    Grants {
        grants,
        reasons: vec![Reason::new(rule, text.to_owned(), &numbers)],
    }
}

/// Runs a policy: completes its answer, bounds tokens, and lets nobody starve.
pub struct Running {
    policy: Box<dyn Policy>,
    waited: BTreeMap<u64, Seconds>,
}

impl Running {
    /// Runs this policy.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            waited: BTreeMap::new(),
        }
    }

    /// The policy's answer about a period of this length: one grant for each connection in their order. Who would have had no
    /// token for [`MAX_WAIT`] has one.
    pub fn decide(&mut self, length: Seconds, connections: &[Connection]) -> Grants {
        let Grants { grants, mut reasons } = self.policy.decide(connections);
        let by_id: BTreeMap<u64, Grant> = grants.into_iter().map(|grant| (grant.id, grant)).collect();
        let before = std::mem::take(&mut self.waited);
        let mut starved = 0.0;
        let mut complete = Vec::with_capacity(connections.len());
        for of in connections {
            let mut grant = by_id.get(&of.id).copied().unwrap_or(Grant::new(of.id, 0));
            grant.tokens = grant.tokens.min(MAX_TOKENS);
            if grant.tokens == 0 {
                let waited = before.get(&of.id).copied().unwrap_or(Seconds::ZERO) + length.max(Seconds::ZERO);
                if waited >= MAX_WAIT {
                    grant.tokens = 1;
                    starved += 1.0;
                } else {
                    self.waited.insert(of.id, waited);
                }
            }
            complete.push(grant);
        }
        if starved > 0.0 {
            let text = format!(
                "{starved} connections had no token for {} s: one each",
                MAX_WAIT.get()
            );
            reasons.push(Reason::new("policy-starved", text, &[("connections", starved)]));
        }
        Grants {
            grants: complete,
            reasons,
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
