//! What other ways to run the same machines would take, so that what routing alone and what switching alone saves is seen apart.

use super::bounds::{Asked, Bounds};
use super::{AdvisorError, Plan, PlannedStep, Problem, blind, day, stage};
use headroom_units::{Joules, Watts};

/// How requests are spread over the machines that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Each class where it takes the least.
    BySize,
    /// Each machine the same number of requests.
    RoundRobin,
    /// Each machine as many as it can serve of the whole day's mix, in proportion.
    WeightedRoundRobin,
    /// As many to each machine as keep the requests in flight alike.
    LeastConnections,
}

/// Another way to run the machines.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// What it is, in words.
    pub name: String,
    /// How it spreads requests.
    pub routing: Routing,
    /// Whether machines are switched off.
    pub switched: bool,
    /// What it takes and does; or why it cannot be done.
    pub plan: Result<Plan, AdvisorError>,
    /// Steps in which it misses the SLO; what it draws then is that of machines as full as they can be. An alternative that is switched has
    /// none: where it cannot keep the SLO, it cannot be done.
    pub late: Vec<usize>,
}

/// The alternatives to [`plan`](super::plan): one kind alone, each; all machines on, with each routing; and the fewest machines with
/// routing that does not tell classes apart.
///
/// # Errors
/// [`AdvisorError`] of the problem itself.
pub fn alternatives(problem: &Problem) -> Result<Vec<Alternative>, AdvisorError> {
    alternatives_within(problem, Bounds::NONE)
}

/// The same within these bounds, as [`plan_within`](super::plan_within).
///
/// # Errors
/// [`AdvisorError`] of the problem itself.
pub fn alternatives_within(problem: &Problem, bounds: &Bounds) -> Result<Vec<Alternative>, AdvisorError> {
    problem.check()?;
    bounds.check(problem)?;
    let problem = Asked { problem, bounds };
    let counts = problem.counts();
    let mut all = Vec::new();
    if problem.kinds.len() > 1 {
        for (index, kind) in problem.kinds.iter().enumerate() {
            let mut only = vec![0; counts.len()];
            only[index] = kind.count;
            all.push(Alternative {
                name: format!("{} only", kind.machine.name),
                routing: Routing::BySize,
                switched: true,
                plan: day::solve(problem, &only, Routing::BySize),
                late: Vec::new(),
            });
        }
    }
    let blind = [
        (Routing::RoundRobin, "round robin"),
        (Routing::WeightedRoundRobin, "weighted round robin"),
        (Routing::LeastConnections, "least connections"),
    ];
    for (routing, words) in blind.into_iter().chain([(Routing::BySize, "by size")]) {
        all.push(all_on(problem, &counts, routing, words));
    }
    for (routing, words) in blind {
        all.push(Alternative {
            name: format!("switched, {words}"),
            routing,
            switched: true,
            plan: day::solve(problem, &counts, routing),
            late: Vec::new(),
        });
    }
    Ok(all)
}

fn all_on(problem: Asked<'_>, counts: &[u32], routing: Routing, words: &str) -> Alternative {
    let idle: f64 = problem
        .kinds
        .iter()
        .map(|kind| (kind.machine.idle * f64::from(kind.count)).get())
        .sum();
    let (mut steps, mut late, mut energy) = (Vec::new(), Vec::new(), 0.0);
    let mut failed = None;
    for (index, step) in problem.steps.iter().enumerate() {
        let solved = match routing {
            Routing::BySize => match stage::solve(problem, index, stage::On::Fixed(counts)) {
                Ok(Some(stage)) => Some((stage.watts, stage.groups)),
                Ok(None) => None,
                Err(error) => {
                    failed.get_or_insert(error);
                    None
                }
            },
            routing => blind::solve(problem, index, counts, routing).map(|stage| {
                if stage.late.is_some() {
                    late.push(index);
                }
                (stage.watts, stage.groups)
            }),
        };
        let Some((watts, groups)) = solved else {
            let why = stage::unmet(problem, index, counts).unwrap_or_else(|error| error);
            failed.get_or_insert(why);
            break;
        };
        energy += (watts + idle) * step.length.get();
        steps.push(PlannedStep {
            on: counts.to_vec(),
            groups,
            power: Watts::new(watts + idle),
        });
    }
    let energy = Joules::new(energy);
    let plan = Plan {
        steps,
        energy,
        switching: Joules::ZERO,
        bound: energy,
    };
    Alternative {
        name: format!("all on, {words}"),
        routing,
        switched: false,
        plan: failed.map_or(Ok(plan), Err),
        late,
    }
}
