//! The laws of a server on call: C, N and D, and which connection has how many turns.
//!
//! [`Reef`] is as published: C is the fewest workers that saturate throughput (Section 3.3), N follows from the goal (Figure 10), D from
//! the load limit and the break-even time (Section 3.4). [`OnCall`] is ours \[D\]: it believes none of them and compares what the server does
//! with each, for the goal that is asked for.

mod areas;
mod ours;
mod reef;
mod trial;
mod tuning;
mod vain;

#[cfg(test)]
mod tests;

pub use areas::{AreaLawName, AreasTuning};
pub use ours::OnCall;
pub use reef::Reef;
pub use tuning::{GoalName, OncallTuning, PolicyName, ReefTuning, TableRow};

use super::policy::{Connection, Fair, Grant, MAX_TOKENS, Policy, Running};
use crate::decision::{Decision, Reason};
use crate::observation::{Observation, OncallObservation};
use crate::plant::Plant;
use headroom_physics::MachineFigures;
use headroom_units::{Lever, Seconds, Setting};
use vain::Vain;

/// The levers that both move.
const LEVERS: [Lever; 3] = [Lever::Concurrency, Lever::QueryBatch, Lever::RoundDelay];

/// C, N and D. Without a bound on the workers the server is not on call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    workers: Option<u32>,
    batch: u32,
    delay: Seconds,
}

impl Point {
    const fn new(workers: u32, batch: u32) -> Self {
        Self {
            workers: Some(workers),
            batch,
            delay: Seconds::ZERO,
        }
    }

    /// As without us.
    const OFF: Self = Self {
        workers: None,
        batch: 1,
        delay: Seconds::ZERO,
    };

    fn setting(self) -> Setting {
        match self.workers {
            None => Setting::default(),
            Some(workers) => Setting::from([
                (Lever::Concurrency, f64::from(workers)),
                (Lever::QueryBatch, f64::from(self.batch)),
                (Lever::RoundDelay, self.delay.get()),
            ]),
        }
    }

    /// Whether it is what is in force.
    fn is(self, in_force: &Setting) -> bool {
        let wanted = self.setting();
        let same = |lever: Lever| match (wanted.get(lever), in_force.get(lever)) {
            (Some(one), Some(two)) => (one - two).abs() <= 1e-6 * one.abs().max(1.0),
            (one, two) => one.is_none() && two.is_none(),
        };
        match self.workers {
            None => same(Lever::Concurrency),
            Some(_) => LEVERS.into_iter().all(same),
        }
    }

    fn in_words(self) -> String {
        match self.workers {
            None => "not on call".to_owned(),
            Some(workers) if self.delay > Seconds::ZERO => {
                format!(
                    "C = {workers}, N = {}, D = {:.1} ms",
                    self.batch,
                    self.delay.as_millis()
                )
            }
            Some(workers) => format!("C = {workers}, N = {}", self.batch),
        }
    }

    fn numbers(self) -> [(&'static str, f64); 3] {
        [
            ("concurrency", self.workers.map_or(f64::INFINITY, f64::from)),
            ("query_batch", f64::from(self.batch)),
            ("round_delay_ms", self.delay.as_millis()),
        ]
    }
}

/// The most workers that a plant lets run at once.
fn most_workers(plant: &Plant) -> u32 {
    plant
        .bounds(Lever::Concurrency)
        .map_or(u32::MAX, |(_, most)| most.min(f64::from(u32::MAX)) as u32)
}

/// From so long on an idle period saves energy: as given, else by the deepest idle state of the machine that saves anything beside the
/// shallowest.
fn break_even(given_ms: Option<f64>, machine: Option<&MachineFigures>) -> Option<Seconds> {
    let given = given_ms.map(Seconds::from_millis);
    given.or_else(|| {
        let states = &machine?.processor.idle_states;
        let deepest = states.last()?;
        let saves = deepest.power < states.first()?.power;
        saves
            .then_some(deepest.break_even)
            .filter(|time| *time > Seconds::ZERO)
    })
}

/// What both answer where nothing is known of the server.
fn unknown(observation: &Observation) -> Decision {
    let text = "nothing is known of the server on call: what is in force stays".to_owned();
    Decision {
        reasons: vec![Reason::new("oncall-unknown", text, &[])],
        ..Decision::of(observation.in_force)
    }
}

/// The cores that the server may use.
fn cores(oncall: &OncallObservation, plant: &Plant) -> u32 {
    let all = plant.cores().max().get().ceil().max(1.0) as u64;
    u32::try_from(oncall.cores.unwrap_or(all).max(1)).unwrap_or(u32::MAX)
}

/// The policy, asked once a period where it has anything to say.
struct Turns {
    policy: Running,
    name: PolicyName,
    gives_up: bool,
    vain: Vain,
    /// What it granted last.
    granted: Vec<Grant>,
}

impl Turns {
    fn new(tuning: &OncallTuning) -> Self {
        Self {
            policy: Running::new(tuning.policy()),
            name: tuning.policy,
            gives_up: tuning.gives_up,
            vain: Vain::default(),
            granted: Vec::new(),
        }
    }

    /// Whether some are to go first, by SLOs of theirs or a table: nobody does while nobody is on call.
    fn has_favourites(&self) -> bool {
        !matches!(self.name, PolicyName::Fair | PolicyName::Apples)
    }

    /// What each connection may do, and why; nothing where all are the same to the policy.
    fn decide(
        &mut self,
        observation: &Observation,
        oncall: &OncallObservation,
        batch: u32,
    ) -> (Vec<Grant>, Vec<Reason>) {
        let weight = oncall.each.first().map(|one| one.weight);
        let all_alike = oncall.each.iter().all(|one| Some(one.weight) == weight);
        if self.name == PolicyName::Fair && all_alike {
            return (Vec::new(), Vec::new());
        }
        let mut grants = self.policy.decide(observation.length, &oncall.each);
        // N is that of the least weight, or of those without an SLO, which lose nothing by a round of several queries.
        let takes_batch = |grant: &Grant| match self.name {
            PolicyName::Fair => true,
            PolicyName::Paced => grant.yields,
            _ => false,
        };
        for grant in grants.grants.iter_mut().filter(|grant| takes_batch(grant)) {
            grant.tokens = grant.tokens.saturating_mul(batch).min(MAX_TOKENS);
        }
        // Whose turns are not in force is not served by them.
        let is_in_force = observation.in_force.get(Lever::Concurrency).is_some();
        let granted = if is_in_force && self.gives_up {
            &self.granted[..]
        } else {
            &[]
        };
        let rests = self.vain.read(observation.length, &oncall.each, granted);
        self.granted.clone_from(&grants.grants);
        match rests {
            None => (grants.grants, grants.reasons),
            Some(left) => (the_same(&oncall.each, batch), vec![in_vain(left)]),
        }
    }
}

/// Turns by weight alone.
fn the_same(connections: &[Connection], batch: u32) -> Vec<Grant> {
    Fair { tokens: batch }.decide(connections).grants
}

/// Why all have the same turns.
fn in_vain(left: Seconds) -> Reason {
    let text = format!(
        "warning: connections with an SLO missed it though all others gave way: all have turns by weight for {:.0} s more, then it is tried again; what asks \
         too much is their target, or the load",
        left.get()
    );
    Reason::new("policy-in-vain", text, &[("left_s", left.get())])
}
