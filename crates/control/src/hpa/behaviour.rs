//! What becomes of a proposal: stabilised over a window, then limited in its rate, then clipped.
//!
//! | step | up | down |
//! |---|---|---|
//! | stabilise | not above the lowest proposal of the window (0 s) | not below the highest (300 s) |
//! | limit | the highest of what the policies allow: 4 pods more or twice as many as 15 s ago | the lowest: none at all (100 % in 15 s) |
//! | clip | the most replicas | the fewest |
//!
//! Source: Kubernetes documentation, "Horizontal Pod Autoscaling, Configurable scaling behavior", and the public code of
//! kube-controller-manager. Its limits on the windows and periods (3600 s, 1800 s) bound the histories here.

use crate::parameter::{Bound, OutOfRange};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What a policy's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// Pods.
    Pods,
    /// Percent of the replicas at the period's start.
    Percent,
}

/// How far the number of replicas may move within a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// What the value counts.
    pub kind: PolicyKind,
    /// The most that may be added, or taken away.
    pub value: u32,
    /// The period, in seconds.
    pub period_s: f64,
}

/// Which of several policies binds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Select {
    /// The one that allows the largest change.
    #[default]
    Max,
    /// The one that allows the smallest.
    Min,
    /// No change in this direction at all.
    Disabled,
}

/// The rules of one direction; what is absent has the source's default, which differs between up and down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// The stabilisation window, in seconds. 0 up, 300 down.
    pub stabilisation_window_s: Option<f64>,
    /// Which policy binds.
    pub select: Select,
    /// The policies. Up: 4 pods and 100 % in 15 s. Down: 100 % in 15 s.
    pub policies: Option<Vec<Policy>>,
}

/// The most policies of one direction.
const MAX_POLICIES: usize = 16;

impl Rules {
    pub(super) fn check(&self, direction: &str) -> Result<(), OutOfRange> {
        let window = self.stabilisation_window_s.unwrap_or(0.0);
        Bound::Seconds(0.0, 3_600.0).check(format!("{direction}.stabilisation_window_s"), window)?;
        let Some(policies) = &self.policies else {
            return Ok(());
        };
        let key = format!("{direction}.policies");
        if !(1..=MAX_POLICIES).contains(&policies.len()) {
            let range = format!("a list of 1 to {MAX_POLICIES} policies");
            return Err(OutOfRange::new(key, policies.len() as f64, range));
        }
        for policy in policies {
            if !(1..=1_000_000).contains(&policy.value) {
                let range = "between 1 and 1000000 in each policy's value";
                return Err(OutOfRange::new(key, f64::from(policy.value), range));
            }
            Bound::Seconds(1.0, 1_800.0).check(format!("{direction}.policies.period_s"), policy.period_s)?;
        }
        Ok(())
    }
}

/// The step that decided the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// None: it is what was proposed.
    No,
    /// The stabilisation window.
    Window,
    /// A policy's rate.
    Rate,
    /// The fewest or the most replicas.
    Range,
}

/// A number of replicas after all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normalised {
    /// After the stabilisation alone.
    pub stabilised: u32,
    /// The number to have.
    pub replicas: u32,
    /// What made it differ from the proposal; the last of the steps that did.
    pub bounded: Bounded,
}

/// The rules of both directions with the histories that they need. Time is the controller's own, in seconds.
#[derive(Clone, Debug)]
pub struct Behaviour {
    up: Direction,
    down: Direction,
    proposals: VecDeque<(f64, u32)>,
}

#[derive(Clone, Debug)]
struct Direction {
    window_s: f64,
    select: Select,
    policies: Vec<Policy>,
    /// When how many replicas were added or taken away.
    changes: VecDeque<(f64, u32)>,
}

impl Behaviour {
    /// The histories start empty.
    pub fn new(up: &Rules, down: &Rules) -> Self {
        let (pods, percent) = (
            Policy {
                kind: PolicyKind::Pods,
                value: 4,
                period_s: 15.0,
            },
            Policy {
                kind: PolicyKind::Percent,
                value: 100,
                period_s: 15.0,
            },
        );
        Self {
            up: Direction::new(up, 0.0, vec![pods, percent]),
            down: Direction::new(down, 300.0, vec![percent]),
            proposals: VecDeque::new(),
        }
    }

    /// What becomes of `proposed` while `current` replicas are in force. The change, if any, is taken for made.
    pub fn normalise(&mut self, now_s: f64, current: u32, proposed: u32, range: (u32, u32)) -> Normalised {
        if self.proposals.is_empty() {
            // What is in force when the controller starts counts as proposed then.
            self.proposals.push_back((now_s, current));
        }
        let stabilised = self.stabilise(now_s, current, proposed);
        let limited = if stabilised > current {
            stabilised.min(self.most(now_s, current).max(current))
        } else if stabilised < current {
            stabilised.max(self.fewest(now_s, current).min(current))
        } else {
            stabilised
        };
        let replicas = limited.clamp(range.0, range.1);
        if replicas > current {
            self.up.record(now_s, replicas - current);
        } else if replicas < current {
            self.down.record(now_s, current - replicas);
        }
        let bounded = if replicas != limited {
            Bounded::Range
        } else if limited != stabilised {
            Bounded::Rate
        } else if stabilised != proposed {
            Bounded::Window
        } else {
            Bounded::No
        };
        Normalised {
            stabilised,
            replicas,
            bounded,
        }
    }

    /// Empties the histories.
    pub fn forget(&mut self) {
        self.proposals.clear();
        self.up.changes.clear();
        self.down.changes.clear();
    }

    fn stabilise(&mut self, now_s: f64, current: u32, proposed: u32) -> u32 {
        let within = |window_s: f64| {
            let recent = move |(at, _): &&(f64, u32)| *at > now_s - window_s;
            self.proposals
                .iter()
                .filter(recent)
                .map(|(_, proposal)| *proposal)
        };
        let lowest = within(self.up.window_s).fold(proposed, u32::min);
        let highest = within(self.down.window_s).fold(proposed, u32::max);
        let longest = self.up.window_s.max(self.down.window_s);
        while self
            .proposals
            .front()
            .is_some_and(|(at, _)| *at <= now_s - longest)
        {
            self.proposals.pop_front();
        }
        self.proposals.push_back((now_s, proposed));
        current.max(lowest).min(highest)
    }

    /// The most replicas that the policies allow.
    fn most(&self, now_s: f64, current: u32) -> u32 {
        let allowed = |policy: &Policy| {
            let start = self.at_start(now_s, current, policy);
            match policy.kind {
                PolicyKind::Pods => start.saturating_add(policy.value),
                // Rounded up: a small share of few pods would otherwise never add one.
                PolicyKind::Percent => {
                    (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0) - 1e-9).ceil() as u32
                }
            }
        };
        let all = self.up.policies.iter().map(allowed);
        match self.up.select {
            Select::Disabled => None,
            Select::Max => all.max(),
            Select::Min => all.min(),
        }
        .unwrap_or(current)
    }

    /// The fewest.
    fn fewest(&self, now_s: f64, current: u32) -> u32 {
        let allowed = |policy: &Policy| {
            let start = self.at_start(now_s, current, policy);
            match policy.kind {
                PolicyKind::Pods => start.saturating_sub(policy.value),
                PolicyKind::Percent => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as u32,
            }
        };
        let all = self.down.policies.iter().map(allowed);
        match self.down.select {
            Select::Disabled => None,
            Select::Max => all.min(),
            Select::Min => all.max(),
        }
        .unwrap_or(current)
    }

    /// The replicas when the policy's period began.
    fn at_start(&self, now_s: f64, current: u32, policy: &Policy) -> u32 {
        let added = self.up.changed_within(now_s, policy.period_s);
        let taken = self.down.changed_within(now_s, policy.period_s);
        current.saturating_add(taken).saturating_sub(added)
    }
}

impl Direction {
    fn new(rules: &Rules, window_s: f64, policies: Vec<Policy>) -> Self {
        Self {
            window_s: rules.stabilisation_window_s.unwrap_or(window_s),
            select: rules.select,
            policies: rules.policies.clone().unwrap_or(policies),
            changes: VecDeque::new(),
        }
    }

    fn changed_within(&self, now_s: f64, period_s: f64) -> u32 {
        let recent = |(at, _): &&(f64, u32)| *at > now_s - period_s;
        self.changes.iter().filter(recent).map(|(_, by)| *by).sum()
    }

    fn record(&mut self, now_s: f64, by: u32) {
        // The other direction's policies look at these changes too, and none looks back further than this.
        while self.changes.front().is_some_and(|(at, _)| *at <= now_s - 1_800.0) {
            self.changes.pop_front();
        }
        self.changes.push_back((now_s, by));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RANGE: (u32, u32) = (1, 100);

    fn defaults() -> Behaviour {
        Behaviour::new(&Rules::default(), &Rules::default())
    }

    fn rules(window_s: f64, select: Select, policies: &[(PolicyKind, u32, f64)]) -> Rules {
        let policy = |&(kind, value, period_s): &_| Policy {
            kind,
            value,
            period_s,
        };
        Rules {
            stabilisation_window_s: Some(window_s),
            select,
            policies: Some(policies.iter().map(policy).collect()),
        }
    }

    #[test]
    fn up_goes_at_once_by_four_or_to_the_double_in_15_seconds() {
        for (current, proposed, given, bounded) in [
            (2, 3, 3, Bounded::No),
            (2, 50, 6, Bounded::Rate),
            (10, 50, 20, Bounded::Rate),
            (60, 110, 100, Bounded::Range),
        ] {
            let normalised = defaults().normalise(0.0, current, proposed, RANGE);
            assert_eq!((normalised.replicas, normalised.bounded), (given, bounded));
        }
    }

    #[test]
    fn a_period_s_changes_count_from_its_start() {
        let up = rules(0.0, Select::Max, &[(PolicyKind::Pods, 4, 60.0)]);
        let mut behaviour = Behaviour::new(&up, &Rules::default());
        let mut replicas = 2;
        let mut course = Vec::new();
        for sync in 0..6 {
            replicas = behaviour
                .normalise(f64::from(sync) * 15.0, replicas, 50, RANGE)
                .replicas;
            course.push(replicas);
        }
        // 2 + 4 at once; then nothing until the 60 s are over.
        assert_eq!(course, [6, 6, 6, 6, 10, 10]);
    }

    #[test]
    fn down_waits_for_the_highest_proposal_of_300_seconds() {
        let mut behaviour = defaults();
        assert_eq!(behaviour.normalise(0.0, 10, 9, RANGE).bounded, Bounded::Window);
        for sync in 1..20 {
            let normalised = behaviour.normalise(f64::from(sync) * 15.0, 10, 4, RANGE);
            assert_eq!(normalised.replicas, 10, "at {} s", sync * 15);
        }
        // What was in force at 0 is 300 s old now; the highest since then is 4.
        assert_eq!(behaviour.normalise(300.0, 10, 4, RANGE).replicas, 4);
    }

    #[test]
    fn a_window_upwards_takes_the_lowest_proposal() {
        let up = Rules {
            stabilisation_window_s: Some(60.0),
            ..Rules::default()
        };
        let mut behaviour = Behaviour::new(&up, &Rules::default());
        assert_eq!(behaviour.normalise(0.0, 4, 8, RANGE).replicas, 4);
        // At 60 s what was in force at 0 is old, and the lowest since then is 6.
        for (at, current, proposed, given) in [
            (15.0, 4, 7, 4),
            (30.0, 4, 6, 4),
            (60.0, 4, 9, 6),
            (75.0, 6, 9, 6),
            (90.0, 6, 9, 9),
        ] {
            let normalised = behaviour.normalise(at, current, proposed, RANGE);
            assert_eq!(normalised.replicas, given, "at {at} s");
        }
    }

    #[test]
    fn the_policy_selected_binds() {
        let both = [(PolicyKind::Pods, 4, 60.0), (PolicyKind::Percent, 10, 60.0)];
        for (select, fewest) in [(Select::Max, 72), (Select::Min, 76), (Select::Disabled, 80)] {
            let down = rules(0.0, select, &both);
            let mut behaviour = Behaviour::new(&Rules::default(), &down);
            assert_eq!(behaviour.normalise(0.0, 80, 10, RANGE).replicas, fewest);
        }
        for (select, most) in [(Select::Max, 84), (Select::Min, 82), (Select::Disabled, 80)] {
            let up = rules(
                0.0,
                select,
                &[(PolicyKind::Pods, 4, 60.0), (PolicyKind::Percent, 2, 60.0)],
            );
            let mut behaviour = Behaviour::new(&up, &Rules::default());
            assert_eq!(behaviour.normalise(0.0, 80, 99, RANGE).replicas, most);
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let error = rules(4_000.0, Select::Max, &[]).check("up").unwrap_err();
        assert_eq!(
            error.to_string(),
            "up.stabilisation_window_s is 4000: it must be between 0 and 3600 s"
        );
        let error = rules(0.0, Select::Max, &[]).check("down").unwrap_err();
        assert_eq!(
            error.to_string(),
            "down.policies is 0: it must be a list of 1 to 16 policies"
        );
        assert!(
            rules(0.0, Select::Max, &[(PolicyKind::Pods, 0, 15.0)])
                .check("up")
                .is_err()
        );
        assert!(
            rules(0.0, Select::Max, &[(PolicyKind::Pods, 1, 0.0)])
                .check("up")
                .is_err()
        );
        assert!(Rules::default().check("up").is_ok());
    }

    proptest! {
        #[test]
        fn the_steps_never_turn_a_proposal_around_and_never_leave_the_range(
            proposals in prop::collection::vec(0u32..200, 1..60), start in 1u32..100,
            up_window in 0.0..120.0f64, down_window in 0.0..600.0f64,
        ) {
            let (up, down) = (
                Rules { stabilisation_window_s: Some(up_window), ..Rules::default() },
                Rules { stabilisation_window_s: Some(down_window), ..Rules::default() },
            );
            let mut behaviour = Behaviour::new(&up, &down);
            let mut current = start;
            for (sync, proposed) in proposals.iter().enumerate() {
                let normalised = behaviour.normalise(sync as f64 * 15.0, current, *proposed, RANGE);
                let replicas = normalised.replicas;
                prop_assert!((RANGE.0..=RANGE.1).contains(&replicas));
                prop_assert!(replicas <= (current + 4).max(2 * current));
                if *proposed >= current {
                    prop_assert!(replicas >= current.min(RANGE.1));
                } else {
                    prop_assert!(replicas <= current);
                }
                current = replicas;
            }
            prop_assert!(behaviour.proposals.len() <= 3_600 / 15 + 2);
        }
    }
}
