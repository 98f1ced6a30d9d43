//! Policies that guard the SLOs of connections: in the style of PSLO and of UTSLO.
//!
//! Source: see [`policy`](super::policy), which has both. Two things make an SLO count as violated. *Measured*: of the last latencies too many
//! missed the target. *Estimated*: the mean latency is above the mean budget at which the SLO would be just kept, by the generalised
//! exponential of the connection's coefficient of variation. The estimate sees a tail before it has happened; the measurement is the check
//! of it. Reasons say which it was.

use super::policy::{Connection, Grant, Grants, Kept, MAX_TOKENS, Policy, answer};
use headroom_units::Seconds;
use std::collections::BTreeMap;

/// The quota of a latency-sensitive connection at most, in L.
const MAX_QUOTA: u32 = 64;
/// The quota of a latency-sensitive connection at least.
const MIN_QUOTA: u32 = 2;
/// After how long a best-effort connection without tokens tries again while an SLO is violated.
const RETRY_VIOLATED: Seconds = Seconds::new(20e-3);
/// What is said while no connection has an SLO that the policy guards.
const NOBODY: &str = "no connection with such an SLO is there: all have the same turns";
/// The last queries over which a mean is compared with its budget: as many latencies as are kept of a connection.
const WINDOW: f64 = 128.0;

/// What is remembered of a latency-sensitive connection.
#[derive(Clone, Copy, Debug)]
struct Guarded {
    quota: u32,
    /// Its mean latency over about the last [`WINDOW`] queries.
    mean: Option<Seconds>,
}

/// How a connection keeps the SLOs that a policy guards.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    measured: bool,
    estimated: bool,
}

/// Quotas of latency-sensitive connections, by id.
#[derive(Clone, Debug)]
struct Quotas {
    tokens: u32,
    of: BTreeMap<u64, Guarded>,
}

impl Quotas {
    const fn new(tokens: u32) -> Self {
        Self {
            tokens,
            of: BTreeMap::new(),
        }
    }

    /// `guards` says which SLOs count. Violated is who misses one as measured, and who would by its mean: that is above its budget.
    fn decide(&mut self, connections: &[Connection], guards: impl Fn(&Kept) -> bool) -> Grants {
        let l = self.tokens.max(1);
        let before = std::mem::take(&mut self.of);
        let mut states: BTreeMap<u64, State> = BTreeMap::new();
        for of in connections {
            let mut slos = of.slos.iter().filter(|slo| guards(slo)).peekable();
            if slos.peek().is_none() {
                continue;
            }
            let known = before.get(&of.id);
            let mean = recent(known.and_then(|known| known.mean), of);
            let quota = known.map_or(l.max(MIN_QUOTA), |known| known.quota);
            let mut state = State::default();
            for slo in slos {
                state.measured |= slo.is_violated();
                state.estimated |= mean.zip(slo.budget()).is_some_and(|(mean, budget)| mean > budget);
            }
            states.insert(of.id, state);
            self.of.insert(of.id, Guarded { quota, mean });
        }
        let count = |which: fn(&State) -> bool| states.values().filter(|state| which(state)).count();
        let measured = count(|state| state.measured);
        let estimated = count(|state| state.estimated && !state.measured);
        let violated = measured + estimated > 0;
        // Longer turns are taken from those that ask beside. With nobody there they are taken from one's own kind, whose tails they make.
        let others_ask = connections
            .iter()
            .any(|of| of.queries > 0 && !states.contains_key(&of.id));
        let grant = |of: &Connection| {
            let (Some(state), Some(guarded)) = (states.get(&of.id), self.of.get_mut(&of.id)) else {
                return match violated {
                    true => Grant {
                        yields: true,
                        retry: RETRY_VIOLATED,
                        ..Grant::new(of.id, 1)
                    },
                    false => Grant::new(of.id, l),
                };
            };
            let quota = match (violated, state.measured || state.estimated) {
                (true, true) if others_ask => {
                    guarded.quota.saturating_mul(2).min(l.saturating_mul(MAX_QUOTA))
                }
                (true, true) => (guarded.quota / 2).max(MIN_QUOTA),
                (true, false) => guarded.quota,
                (false, _) => guarded.quota.saturating_sub(1).max(MIN_QUOTA),
            };
            guarded.quota = quota.min(MAX_TOKENS);
            Grant {
                again: violated,
                ..Grant::new(of.id, guarded.quota)
            }
        };
        let grants: Vec<Grant> = connections.iter().map(grant).collect();
        let (rule, text) = match (measured, estimated) {
            _ if states.is_empty() => ("policy-idle", NOBODY),
            (0, 0) => (
                "policy-kept",
                "all SLOs are kept: connections with one have a query less in a round, if they had more than the least",
            ),
            (0, _) => (
                "policy-over-budget",
                "SLOs are kept as measured, and by its mean latency a connection would miss one: those without one have one query \
                 in a round, after all others, and pause before the next",
            ),
            _ => (
                "policy-violated",
                "an SLO is missed as measured: connections without one have one query in a round, after all others, and pause before the next",
            ),
        };
        let mut answer = answer(grants, rule, text);
        for reason in &mut answer.reasons {
            let numbers = [
                ("violated_measured", measured),
                ("violated_estimated_only", estimated),
            ];
            let numbers = numbers.map(|(name, count)| (name.into(), count as f64));
            reason.numbers.extend(numbers);
        }
        answer
    }
}

/// The mean over about the last [`WINDOW`] queries, with those of a period.
fn recent(before: Option<Seconds>, of: &Connection) -> Option<Seconds> {
    let Some(mean) = of.mean else { return before };
    let share = (of.queries as f64 / WINDOW).min(1.0);
    Some(before.map_or(mean, |before| before + (mean - before) * share))
}

/// In the style of PSLO: guards percentile SLOs. Violated where the violation ratio x 1.05 exceeds 1 - p (measured), or where the mean latency
/// is above the budget at which the percentile would be at its target (estimated, by the generalised exponential).
#[derive(Clone, Debug)]
pub struct PsloStyle(Quotas);

impl PsloStyle {
    /// With L tokens of a best-effort connection.
    pub const fn new(tokens: u32) -> Self {
        Self(Quotas::new(tokens))
    }
}

impl Policy for PsloStyle {
    fn name(&self) -> &'static str {
        "pslo-style"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        self.0
            .decide(connections, |slo| matches!(slo, Kept::Percentile { .. }))
    }
}

/// In the style of UTSLO: the same loop for user disengagement ratios. Violated where the ratio x 1.05 exceeds its target (measured), or
/// where the mean latency is above the budget for it (estimated).
#[derive(Clone, Debug)]
pub struct UtsloStyle(Quotas);

impl UtsloStyle {
    /// With L tokens of a best-effort connection.
    pub const fn new(tokens: u32) -> Self {
        Self(Quotas::new(tokens))
    }
}

impl Policy for UtsloStyle {
    fn name(&self) -> &'static str {
        "utslo-style"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        self.0
            .decide(connections, |slo| matches!(slo, Kept::Disengagement { .. }))
    }
}

/// Latency-sensitive connections first, but no faster than they must be: ours \[D\].
///
/// The loops above serve latency-sensitive connections by turns of violation and rest: while all is kept they wait for their round like
/// everybody, which is longer than their SLO where many connections wait. Here best-effort connections always yield, so that a
/// sensitive one that asks is next; and it asks only a while after its last turn (the grant's `retry`). That while grows by a twentieth of
/// its mean budget each period in which its mean is below 60 % of that, and halves where an SLO is violated, as measured or estimated. It is no longer than 60 % of the budget, for a
/// live server keeps to it only while somebody waits. So each has about the throughput 1/m that its budget asks for (Little's law), and best effort has the rest.
#[derive(Clone, Debug)]
pub struct Paced {
    tokens: u32,
    of: BTreeMap<u64, Pace>,
}

/// What is remembered of a paced connection.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    pause: Seconds,
    mean: Option<Seconds>,
}

/// Up to this share of its budget a mean leaves room for a longer pause.
const ROOM: f64 = 0.6;
/// By what share of the budget a pause grows.
const GROWS: f64 = 0.05;

impl Paced {
    /// With L tokens of a best-effort connection.
    pub const fn new(tokens: u32) -> Self {
        Self {
            tokens,
            of: BTreeMap::new(),
        }
    }
}

impl Policy for Paced {
    fn name(&self) -> &'static str {
        "paced"
    }

    fn decide(&mut self, connections: &[Connection]) -> Grants {
        let before = std::mem::take(&mut self.of);
        let (mut sensitive, mut violated, mut longest) = (0u32, 0u32, Seconds::ZERO);
        let grant = |of: &Connection| {
            if of.slos.is_empty() {
                return Grant {
                    yields: true,
                    ..Grant::new(of.id, self.tokens.max(1))
                };
            }
            let mut pace = before.get(&of.id).copied().unwrap_or_default();
            pace.mean = recent(pace.mean, of);
            let (mean, budget) = (pace.mean, of.budget());
            let is_over = mean.zip(budget).is_some_and(|(mean, budget)| mean > budget);
            if of.violates() || is_over {
                violated += 1;
                pace.pause = pace.pause * 0.5;
            } else if let (Some(mean), Some(budget)) = (mean, budget)
                && mean < budget * ROOM
            {
                // While nobody waits it is not kept to, and nothing else bounds it.
                pace.pause = (pace.pause + budget * GROWS).min(budget * ROOM);
            }
            sensitive += 1;
            longest = longest.max(pace.pause);
            self.of.insert(of.id, pace);
            Grant {
                again: true,
                retry: pace.pause,
                ..Grant::new(of.id, 1)
            }
        };
        let grants = connections.iter().map(grant).collect();
        let (rule, text) = match (sensitive, violated) {
            (0, _) => ("policy-idle", NOBODY),
            (_, 0) => (
                "policy-paced",
                "all SLOs are kept: connections with an SLO go before all others, and the pause before each of their turns grows as long \
                 as their mean latency leaves room for it",
            ),
            _ => (
                "policy-paced",
                "an SLO is missed, as measured or by its mean latency: its connections pause for half as long before a turn",
            ),
        };
        let mut answer = answer(grants, rule, text);
        for reason in &mut answer.reasons {
            let numbers = [
                ("sensitive", f64::from(sensitive)),
                ("violated", f64::from(violated)),
                ("longest_pause_ms", longest.as_millis()),
            ];
            reason
                .numbers
                .extend(numbers.map(|(name, value)| (name.into(), value)));
        }
        answer
    }
}
