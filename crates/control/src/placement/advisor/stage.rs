//! One step: which of the machines that are on serves what, for the least power.

use super::bounds::Asked;
use super::{AdvisorError, Group};
use headroom_physics::serving::ServingLoad;
use headroom_units::{PerSecond, Ratio};
use microlp::{ComparisonOp, Error, OptimizationDirection, SolveOptions, SolveOutcome, Variable};

/// Nodes of the search in one step of a plan: some hundred times what three kinds and six classes take.
const MAX_NODES: u64 = 20_000;
/// Nodes of the search for a law, which has a period for it and can do with less than the best.
pub(super) const MAX_NODES_OF_LAW: u64 = 200;
/// Shares of a machine below this are none: the solver wants coefficients of similar orders.
const NEGLIGIBLE: f64 = 1e-7;
/// What a share of a class that is not served counts where not all can be, beside which no watt does.
const UNMET_W: f64 = 1e5;

/// The machines that may be on in a step.
#[derive(Clone, Copy)]
pub(super) enum On<'a> {
    /// These are.
    Fixed(&'a [u32]),
    /// At most these, as many as cost the least.
    AtMost(&'a [u32]),
}

/// What one step takes.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    /// What the work adds to machines that idle, and with [`On::AtMost`] what being on adds too, W.
    pub(super) watts: f64,
    /// No other way takes less, W.
    pub(super) bound: f64,
    /// How many of each kind are on.
    pub(super) on: Vec<u32>,
    /// Who serves what.
    pub(super) groups: Vec<Group>,
}

/// A group of machines in the programme.
struct Mode {
    kind: usize,
    limit: f64,
    /// How many there are, where that is sought; else it is given.
    machines: Option<Variable>,
    given: u32,
    /// Of each class the share that it serves.
    shares: Vec<Option<Variable>>,
}

/// Solves a step; `None` where the machines are not enough.
pub(super) fn solve(problem: Asked<'_>, step: usize, on: On<'_>) -> Result<Option<Stage>, AdvisorError> {
    solve_within(problem, step, on, MAX_NODES)
}

/// The same with a search of so many nodes.
pub(super) fn solve_within(
    problem: Asked<'_>,
    step: usize,
    on: On<'_>,
    nodes: u64,
) -> Result<Option<Stage>, AdvisorError> {
    Ok(programme(problem, step, on, false, nodes)?.map(|(stage, _)| stage))
}

/// What cannot be served by these machines, where as much as possible is served.
pub(super) fn unmet(problem: Asked<'_>, step: usize, on: &[u32]) -> Result<AdvisorError, AdvisorError> {
    let (rates, peak) = (&problem.steps[step].rates, problem.peak(step));
    let found = programme(problem, step, On::Fixed(on), true, MAX_NODES)?;
    let unmet = found.map_or_else(|| vec![1.0; rates.len()], |(_, unmet)| unmet);
    let most = (0..rates.len())
        .max_by(|one, two| (unmet[*one] * rates[*one].get()).total_cmp(&(unmet[*two] * rates[*two].get())));
    let most = most.unwrap_or(0);
    Ok(AdvisorError::Unmet {
        step,
        class: problem.classes[most].clone(),
        unmet_per_s: unmet[most] * rates[most].get() * peak,
        asked_per_s: rates[most].get() * peak,
        peak,
        spare: if problem.spare {
            " with one machine to spare"
        } else {
            ""
        },
    })
}

fn programme(
    problem: Asked<'_>,
    step: usize,
    on: On<'_>,
    may_miss: bool,
    nodes: u64,
) -> Result<Option<(Stage, Vec<f64>)>, AdvisorError> {
    let (rates, peak) = (&problem.steps[step].rates, problem.peak(step));
    let asked = |class: usize| rates[class].get() > 0.0;
    let (On::Fixed(most) | On::AtMost(most)) = on;
    let mut programme = microlp::Problem::new(OptimizationDirection::Minimize);
    let mut modes = Vec::new();
    for (index, kind) in problem
        .kinds
        .iter()
        .enumerate()
        .filter(|(index, _)| most[*index] > 0)
    {
        let mut limits: Vec<f64> = (0..rates.len())
            .filter(|class| asked(*class))
            .filter_map(|class| kind.serves[class].limit.map(Ratio::get))
            .collect();
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        let given = matches!(on, On::Fixed(_)) && limits.len() < 2;
        let on_w = if matches!(on, On::AtMost(_)) {
            kind.on_w()
        } else {
            0.0
        };
        for limit in limits {
            let machines = (!given).then(|| programme.add_integer_var(on_w, (0, most[index] as i32)));
            let shares = (0..rates.len()).map(|class| {
                let fits = asked(class) && kind.serves[class].limit.is_some_and(|of| of.get() >= limit);
                fits.then(|| programme.add_var(kind.work_w(class) * rates[class].get(), (0.0, 1.0)))
            });
            let shares = shares.collect();
            modes.push(Mode {
                kind: index,
                limit,
                machines,
                given: most[index],
                shares,
            });
        }
    }
    let missed: Vec<Option<Variable>> = (0..rates.len())
        .map(|class| (may_miss && asked(class)).then(|| programme.add_var(UNMET_W, (0.0, 1.0))))
        .collect();
    for class in (0..rates.len()).filter(|class| asked(*class)) {
        let served = modes
            .iter()
            .filter_map(|mode| mode.shares[class])
            .chain(missed[class]);
        let terms: Vec<(Variable, f64)> = served.map(|share| (share, 1.0)).collect();
        if terms.is_empty() {
            return Ok(None);
        }
        programme.add_constraint(terms, ComparisonOp::Eq, 1.0);
    }
    for mode in &modes {
        for resource in 0..3 {
            let used = mode.shares.iter().enumerate().filter_map(|(class, share)| {
                let needs = problem.uses(mode.kind, class)[resource] * rates[class].get() * peak / mode.limit;
                share.filter(|_| needs > NEGLIGIBLE).map(|share| (share, needs))
            });
            let mut terms: Vec<(Variable, f64)> = used.collect();
            if terms.is_empty() {
                continue;
            }
            let mut there = f64::from(mode.given);
            if let Some(machines) = mode.machines {
                terms.push((machines, -1.0));
                there = 0.0;
            }
            programme.add_constraint(terms, ComparisonOp::Le, there);
        }
    }
    for (kind, most) in most.iter().enumerate() {
        let machines = modes
            .iter()
            .filter(|mode| mode.kind == kind)
            .filter_map(|mode| mode.machines);
        let terms: Vec<(Variable, f64)> = machines.map(|machines| (machines, 1.0)).collect();
        if terms.len() > 1 {
            programme.add_constraint(terms, ComparisonOp::Le, f64::from(*most));
        }
    }
    let failed = |why: String| AdvisorError::Solver { step, why };
    let mut options = SolveOptions::default();
    options.node_limit = Some(nodes);
    let solution = match programme.solve_with(options) {
        Ok(SolveOutcome::Solution(solution)) => solution,
        Ok(SolveOutcome::Interrupted(_)) => return Err(failed(format!("no plan after {nodes} nodes"))),
        Err(Error::Infeasible) => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    let watts = solution.objective();
    let gap = solution.gap().unwrap_or(0.0);
    let groups = modes.iter().filter_map(|mode| {
        let machines = mode
            .machines
            .map_or(mode.given, |machines| solution.var_value(machines).round() as u32);
        let share = |class: usize| mode.shares[class].map_or(0.0, |share| solution.var_value(share).max(0.0));
        let served = (0..rates.len()).map(|class| rates[class] * share(class));
        (machines > 0).then(|| {
            group(
                problem,
                mode.kind,
                machines,
                Ratio::new(mode.limit),
                served.collect(),
            )
        })
    });
    let groups: Vec<Group> = groups.collect();
    let mut counted = vec![0; problem.kinds.len()];
    for group in &groups {
        counted[group.kind] += group.machines;
    }
    let missed = missed
        .iter()
        .map(|missed| missed.map_or(0.0, |missed| solution.var_value(missed).max(0.0)));
    let missed = missed.collect();
    let stage = Stage {
        watts,
        bound: watts - gap * watts.abs(),
        on: match on {
            On::Fixed(on) => on.to_vec(),
            On::AtMost(_) => counted,
        },
        groups,
    };
    Ok(Some((stage, missed)))
}

/// A group with what it serves.
pub(super) fn group(
    problem: Asked<'_>,
    kind: usize,
    machines: u32,
    limit: Ratio,
    rates: Vec<PerSecond>,
) -> Group {
    let mut load = [0.0; 3];
    for (class, rate) in rates.iter().enumerate() {
        let uses = problem.uses(kind, class);
        load = [0, 1, 2].map(|resource| load[resource] + uses[resource] * rate.get() / f64::from(machines));
    }
    Group {
        kind,
        machines,
        limit,
        load: ServingLoad {
            cpu: Ratio::new(load[0]),
            link: Ratio::new(load[1]),
        },
        measured: Ratio::new(load[2]),
        rates,
    }
}
