//! Connection-level QoS policies: how many queries each connection may send in a turn.
//!
//! Source: REEF Section 3.4, the query batch regulator \[F\]; the public implementation of AppleS for its rule and the tail-SLO mode \[F\]. The growth of
//! a latency-sensitive quota by doubling is ours \[D\], for only its bound of 64 L is published; so is all of UTSLO's loop \[D\].
//! The controller equations of PSLO are not public to us: [`PsloStyle`] is in its style, no more.

use super::tail::{self, Disengagement, Shape, TailError, TailSlo};
use crate::decision::Reason;
use headroom_units::{Ratio, Seconds};
use std::collections::BTreeMap;

pub use super::guarded::{Paced, PsloStyle, UtsloStyle};

/// The longest that a connection waits without a token: AppleS' rule.
pub const MAX_WAIT: Seconds = Seconds::new(20.0);
/// The longest that a connection which yields is left out for others; then it has a turn in the first round in which no other such one had it.
/// It may hold locks of the server for which those wait that it yields to.
pub const MAX_YIELD: Seconds = Seconds::new(1.0);
/// Tokens of one turn at most, whatever a policy answers.
pub const MAX_TOKENS: u32 = 1_024;
/// By what a violation ratio is multiplied before it is compared.
const TRIGGER: f64 = 1.05;
/// After how long a connection without tokens tries again.
const RETRY: Seconds = Seconds::new(200e-6);

/// An SLO of a connection and how it was kept in the period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kept {
    /// A percentile: this share of queries missed its target.
    Percentile {
        /// p, such as 0.99.
        percentile: Ratio,
        /// The share of queries that missed the target.
        violations: Ratio,
        /// The mean latency with which it is just kept, as estimated; `None` where nothing estimates it.
        budget: Option<Seconds>,
    },
    /// A user disengagement ratio.
    Disengagement {
        /// The ratio that may be.
        target: Ratio,
        /// The ratio that was.
        measured: Ratio,
        /// The mean latency with which it is just kept, as estimated; `None` where nothing estimates it.
        budget: Option<Seconds>,
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

impl Kept {
    /// A percentile SLO that this share of queries missed, and its mean budget by the generalised exponential of this coefficient of
    /// variation ([`tail::mean_budget`]); without one it is not estimated.
    ///
    /// # Errors
    /// [`TailError`] for a percentile or a target that cannot be.
    pub fn percentile(slo: TailSlo, violations: Ratio, cv: Option<Ratio>) -> Result<Self, TailError> {
        let budget = match cv {
            Some(cv) => tail::mean_budget(&[slo], Shape::of_cv_clamped(cv).0, 1)?,
            None => None,
        };
        Ok(Self::Percentile {
            percentile: slo.percentile,
            violations,
            budget,
        })
    }

    /// The same of a user disengagement ratio with its d(latency). A target below d(0) has no budget: it is never kept.
    pub fn disengagement(target: Ratio, measured: Ratio, of: &Disengagement, cv: Option<Ratio>) -> Self {
        let estimate = |cv| match of.mean_budget(target, Shape::of_cv_clamped(cv).0) {
            Ok(budget) => budget,
            Err(_) => Some(Seconds::ZERO),
        };
        Self::Disengagement {
            target,
            measured,
            budget: cv.and_then(estimate),
        }
    }

    /// Its mean budget.
    pub const fn budget(&self) -> Option<Seconds> {
        match self {
            Self::Percentile { budget, .. } | Self::Disengagement { budget, .. } => *budget,
        }
    }

    /// No query of its connection is answered any more, and one waits for longer than each target: the SLO is missed, whatever was before.
    pub fn stall(&mut self) {
        match self {
            Self::Percentile { violations, .. } => *violations = Ratio::new(1.0),
            Self::Disengagement { measured, .. } => *measured = Ratio::new(1.0),
        }
    }

    /// Whether it was missed as measured, with the margin that AppleS takes: where the violation ratio x 1.05 exceeds what may be.
    pub fn is_violated(&self) -> bool {
        match self {
            Self::Percentile {
                percentile,
                violations,
                ..
            } => violations.get() * TRIGGER > 1.0 - percentile.get(),
            Self::Disengagement { target, measured, .. } => measured.get() * TRIGGER > target.get(),
        }
    }
}

impl Connection {
    /// Whether any of its SLOs was missed, as [`Kept::is_violated`] has it.
    pub fn violates(&self) -> bool {
        self.slos.iter().any(Kept::is_violated)
    }

    /// m, the mean latency with which it keeps all its SLOs, as estimated: the least of theirs.
    pub fn budget(&self) -> Option<Seconds> {
        let budgets = self.slos.iter().filter_map(Kept::budget);
        budgets.min_by(|one, other| one.get().total_cmp(&other.get()))
    }

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
    pub(super) fn new(id: u64, tokens: u32) -> Self {
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

/// A user's own table: tokens and share of turns by the name of a class. A class that is not in it has one token and all of its turns; one
/// with no tokens has no turn but the one that [`Running`] gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(pub BTreeMap<String, (u32, f64)>);

impl Policy for Table {
    fn name(&self) -> &'static str {
        "table"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        let grant = |of: &Connection| {
            let (tokens, share) = self.0.get(&of.class).copied().unwrap_or((1, 1.0));
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

pub(super) fn answer(grants: Vec<Grant>, rule: &'static str, text: &str) -> Grants {
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
