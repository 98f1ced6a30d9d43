//! The advisor: which machines are on and which of them serves what, step by step of a day, for the least energy within the SLO: [`plan`].
//!
//! **What is decided.** For each step (an hour, or any length) how many machines of each kind are on, and how much of each class of
//! requests each kind serves. A machine draws its idle watts while it is on, its off watts while it is not, and for each request what its
//! cores and its link add ([`ServingMachine::power`]); switching adds what a boot and a shutdown draw above an off machine. The day begins
//! with what its first step needs, at no cost.
//!
//! **The SLO.** How busy a machine may be depends on the classes that it serves ([`limit`](super::limit)), so machines of a kind are
//! divided into groups: a group with a limit serves only the classes whose own limit is at least that. Within a group all machines are
//! alike. That is exact but for the rounding of limits. [`Bounds`] hold a plan to what machines were measured to serve, and to the peak of a
//! step above its mean; watts are those of the mean.
//!
//! **The solver.** Of one step, with the machines given, it is a linear programme, or with several groups a mixed-integer one, solved by
//! `microlp` (pure Rust, deterministic: it has no random numbers, and is bounded here by nodes and not by time). Over the day it is a
//! shortest path over the numbers of machines on. The optimum of each step by itself bounds the day from below, and any plan from above;
//! a step's numbers of machines that lie further above its optimum than these two are apart can be part of no better plan and are left out.
//! At most [`MAX_STATES`] are kept for a step; where that leaves out any that might count, [`Plan::gap`] says how far the plan can be from
//! the best, else it is 0.

mod alternatives;
mod blind;
mod bounds;
mod day;
mod questions;
mod stage;

pub use alternatives::{Alternative, Routing, alternatives, alternatives_within};
pub use bounds::{Bounds, MAX_PEAK};
pub use questions::{DemandLevel, Equivalence, Migration, consolidation, equivalences, migrations};

use bounds::Asked;
use headroom_physics::serving::{RequestCost, ServingLoad, ServingMachine};
use headroom_units::{Joules, PerSecond, Ratio, Seconds, Watts};

/// The most kinds of machines.
pub const MAX_KINDS: usize = 8;
/// The most classes of requests.
pub const MAX_CLASSES: usize = 32;
/// The most steps: a week of ten minutes.
pub const MAX_STEPS: usize = 1_008;
/// The most machines of a kind.
pub const MAX_MACHINES: u32 = 1_000;
/// The most numbers of machines that are considered for one step.
pub const MAX_STATES: usize = 2_000;

/// What is to be placed, on what.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The classes of requests, by name.
    pub classes: Vec<String>,
    /// The kinds of machines.
    pub kinds: Vec<Kind>,
    /// What comes in.
    pub steps: Vec<Step>,
    /// Whether the rest must still keep the SLO when any one of the machines on is lost (N+1).
    pub spare: bool,
}

/// Machines of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// What each is.
    pub machine: ServingMachine,
    /// How many there are.
    pub count: u32,
    /// What a request of each class takes there.
    pub serves: Vec<Serving>,
}

/// A class of requests on a kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Serving {
    /// What a request takes.
    pub cost: RequestCost,
    /// How busy a machine may be that serves it; `None` where it misses the SLO on an idle one.
    pub limit: Option<Ratio>,
}

/// A step of the day.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// How long it lasts.
    pub length: Seconds,
    /// Arrivals of each class.
    pub rates: Vec<PerSecond>,
}

/// What to do, step by step.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<PlannedStep>,
    /// What all machines draw over the day, switching included.
    pub energy: Joules,
    /// Of this, what switching adds.
    pub switching: Joules,
    /// No plan takes less than this.
    pub bound: Joules,
}

/// What to do in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    /// How many of each kind are on.
    pub on: Vec<u32>,
    /// The groups of machines that are alike.
    pub groups: Vec<Group>,
    /// What all machines draw, those that are off among them, without switching.
    pub power: Watts,
}

/// Machines of a kind that serve the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Their kind.
    pub kind: usize,
    /// How many.
    pub machines: u32,
    /// How busy each may be.
    pub limit: Ratio,
    /// How busy each is.
    pub load: ServingLoad,
    /// What each serves as a share of what it was measured to serve at most ([`Bounds::most`]); 0 where nothing was measured.
    pub measured: Ratio,
    /// What of each class they serve together.
    pub rates: Vec<PerSecond>,
}

/// A demand that cannot be placed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AdvisorError {
    /// The problem describes nothing that can be planned.
    #[error("{0}")]
    Problem(String),
    /// No kind serves a class within the SLO.
    #[error(
        "class {class}: no kind of machine serves it within the SLO even when idle; allow more time, or add a quicker kind"
    )]
    Unplaceable {
        /// The class.
        class: String,
    },
    /// All machines together are not enough.
    #[error(
        "step {step}: all machines together cannot serve {unmet_per_s:.1} requests/s of class {class} (of {asked_per_s:.1} at the peak of the \
             step, {peak:.2} times its mean) within the SLO{spare}; add machines, or allow more time"
    )]
    Unmet {
        /// The step, from 0.
        step: usize,
        /// The class of which the most is missing.
        class: String,
        /// What of it cannot be served, requests a second.
        unmet_per_s: f64,
        /// What is asked for, requests a second.
        asked_per_s: f64,
        /// How many times its mean the load of the step is planned for; both figures are at that.
        peak: f64,
        /// " with one machine to spare", or nothing.
        spare: &'static str,
    },
    /// Routing that tells no classes apart misses the SLO with any of the machines on.
    #[error(
        "step {step}: with no number of machines on does this routing keep the SLO at the peak of the step, {peak:.2} times its mean"
    )]
    Late {
        /// The step, from 0.
        step: usize,
        /// How many times its mean the load of the step is planned for.
        peak: f64,
    },
    /// The solver gave up.
    #[error("step {step}: the solver failed ({why}): give rates and counts of similar orders of magnitude")]
    Solver {
        /// The step, from 0.
        step: usize,
        /// What it said.
        why: String,
    },
}

impl Plan {
    /// Of its energy, what machines that are off draw.
    pub fn standby(&self, problem: &Problem) -> Joules {
        let steps = problem.steps.iter().zip(&self.steps);
        let watts = |planned: &PlannedStep| -> Watts {
            let kinds = problem.kinds.iter().zip(&planned.on);
            kinds.fold(Watts::ZERO, |sum, (kind, on)| {
                sum + kind.machine.server.off * f64::from(kind.count - on)
            })
        };
        steps.fold(Joules::ZERO, |sum, (step, planned)| {
            sum + watts(planned) * step.length
        })
    }

    /// The machines of each kind that are on in no step, and of its energy what these draw: in a fleet without them it takes so much less.
    pub fn never_on(&self, problem: &Problem) -> (Vec<u32>, Joules) {
        let on = |kind: usize| self.steps.iter().map(|step| step.on[kind]).max().unwrap_or(0);
        let counts = problem.kinds.iter().enumerate();
        let never: Vec<u32> = counts.map(|(at, kind)| kind.count - on(at)).collect();
        let kinds = problem.kinds.iter().zip(&never);
        let off = kinds.fold(Watts::ZERO, |sum, (kind, never)| {
            sum + kind.machine.server.off * f64::from(*never)
        });
        let length = problem
            .steps
            .iter()
            .fold(Seconds::ZERO, |sum, step| sum + step.length);
        (never, off * length)
    }

    /// How far it may be from the best plan, as a share of its own energy; 0 where none is better.
    pub fn gap(&self) -> Ratio {
        Ratio::new(((self.energy - self.bound).get() / self.energy.get().max(1e-9)).max(0.0))
    }
}

impl PlannedStep {
    /// What of a class a kind serves.
    pub fn rate(&self, kind: usize, class: usize) -> PerSecond {
        let groups = self.groups.iter().filter(|group| group.kind == kind);
        groups.fold(PerSecond::ZERO, |sum, group| sum + group.rates[class])
    }
}

impl Kind {
    /// The power that a request of a class a second adds here, W.
    fn work_w(&self, class: usize) -> f64 {
        let (machine, cost) = (&self.machine, self.serves[class].cost);
        machine.busy.get() * cost.cpu.get() / machine.cores as f64
            + machine.link.get() * cost.bytes / machine.link_bytes_per_s
    }

    /// What one of its cores and its link are busy with for one request of a class a second, as shares of a machine.
    pub(crate) fn uses(&self, class: usize) -> [f64; 2] {
        let (machine, cost) = (&self.machine, self.serves[class].cost);
        [
            cost.cpu.get() / machine.cores as f64,
            cost.bytes / machine.link_bytes_per_s,
        ]
    }

    /// What a machine that is on draws above one that is off, without work, W.
    fn on_w(&self) -> f64 {
        (self.machine.idle - self.machine.server.off).get()
    }

    /// What a boot adds to an off machine, and a shutdown, J.
    fn switching_j(&self) -> [f64; 2] {
        let server = &self.machine.server;
        [
            ((server.booting - server.off) * server.boot).get().max(0.0),
            ((server.shutting_down - server.off) * server.shutdown)
                .get()
                .max(0.0),
        ]
    }
}

impl Problem {
    /// What all machines draw while they are off, W.
    fn off_w(&self) -> f64 {
        let kinds = self.kinds.iter();
        kinds
            .map(|kind| kind.machine.server.off.get() * f64::from(kind.count))
            .sum()
    }

    /// The numbers of machines.
    fn counts(&self) -> Vec<u32> {
        self.kinds.iter().map(|kind| kind.count).collect()
    }

    /// Checks that it can be planned.
    ///
    /// # Errors
    /// [`AdvisorError::Problem`], [`AdvisorError::Unplaceable`].
    pub fn check(&self) -> Result<(), AdvisorError> {
        let refuse = |why: String| Err(AdvisorError::Problem(why));
        let sizes = [
            ("kinds of machines", self.kinds.len(), MAX_KINDS),
            ("classes", self.classes.len(), MAX_CLASSES),
            ("steps", self.steps.len(), MAX_STEPS),
        ];
        for (what, count, most) in sizes {
            if !(1..=most).contains(&count) {
                return refuse(format!("{count} {what}: give 1 to {most}"));
            }
        }
        for kind in &self.kinds {
            let name = &kind.machine.name;
            if let Err(error) = kind.machine.check() {
                return refuse(format!("machines of kind {name}: {error}"));
            }
            if kind.count > MAX_MACHINES {
                return refuse(format!(
                    "{} machines of kind {name}: give at most {MAX_MACHINES}",
                    kind.count
                ));
            }
            if kind.serves.len() != self.classes.len() {
                return refuse(format!(
                    "kind {name} says what {} classes take, of {}",
                    kind.serves.len(),
                    self.classes.len()
                ));
            }
            for (class, serving) in self.classes.iter().zip(&kind.serves) {
                let limit = serving.limit.map_or(0.5, Ratio::get);
                let cost = [serving.cost.cpu.get(), serving.cost.bytes];
                if !(limit > 0.0 && limit < 1.0 && cost.iter().all(|cost| cost.is_finite() && *cost > 0.0)) {
                    return refuse(format!(
                        "class {class} on {name} takes {} s and {} bytes up to a utilisation of {limit}: all must be greater than 0, the \
                         last below 1",
                        cost[0], cost[1]
                    ));
                }
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            let rates = step.rates.len() == self.classes.len();
            let fits = |rate: &PerSecond| rate.is_finite() && *rate >= PerSecond::ZERO;
            if !(rates
                && step.rates.iter().all(fits)
                && step.length > Seconds::ZERO
                && step.length.is_finite())
            {
                return refuse(format!(
                    "step {index}: give a length above 0 and a rate of 0 or more for each class"
                ));
            }
        }
        for (class, name) in self.classes.iter().enumerate() {
            let asked = self.steps.iter().any(|step| step.rates[class] > PerSecond::ZERO);
            let mut kinds = self.kinds.iter();
            if asked && !kinds.any(|kind| kind.count > 0 && kind.serves[class].limit.is_some()) {
                return Err(AdvisorError::Unplaceable { class: name.clone() });
            }
        }
        Ok(())
    }
}

/// The plan of least energy.
///
/// # Errors
/// [`AdvisorError`].
pub fn plan(problem: &Problem) -> Result<Plan, AdvisorError> {
    plan_within(problem, Bounds::NONE)
}

/// The plan of least energy within these bounds.
///
/// # Errors
/// [`AdvisorError`].
pub fn plan_within(problem: &Problem, bounds: &Bounds) -> Result<Plan, AdvisorError> {
    problem.check()?;
    bounds.check(problem)?;
    day::solve(Asked { problem, bounds }, &problem.counts(), Routing::BySize)
}

/// Who serves what in a step with these machines on, for the least watts that a short search finds; `None` where they are not enough, or it
/// finds nothing.
pub(crate) fn cheapest(problem: &Problem, step: usize, on: &[u32]) -> Option<Vec<Group>> {
    let asked = Asked {
        problem,
        bounds: Bounds::NONE,
    };
    let solved = stage::solve_within(asked, step, stage::On::Fixed(on), stage::MAX_NODES_OF_LAW)
        .ok()
        .flatten();
    solved.map(|stage| stage.groups)
}

/// How many of at most these machines cost the least in a step, by a short search; `None` where they are not enough, or it finds nothing.
pub(crate) fn needed(problem: &Problem, step: usize, most: &[u32]) -> Option<Vec<u32>> {
    let asked = Asked {
        problem,
        bounds: Bounds::NONE,
    };
    let solved = stage::solve(asked, step, stage::On::AtMost(most)).ok().flatten();
    solved.map(|stage| stage.on)
}

#[cfg(test)]
mod tests;
