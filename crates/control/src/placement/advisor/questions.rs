//! The questions that the paper leaves open (Sections 6 and 7), for a user's own machines: how many small machines equal a large one,
//! whether to consolidate or to spread, and when work moves from one kind to another.

use super::bounds::{Asked, Bounds};
use super::{Plan, Problem};
use headroom_units::{PerSecond, Ratio, Watts};

/// Demands at which two kinds are compared for the break-even.
const COMPARED: u32 = 1_000;

/// Machines of one kind in the place of one of another, for one class of requests or for the mix of the whole day.
#[derive(Clone, Debug, PartialEq)]
pub struct Equivalence {
    /// The class; `None` for the mix.
    pub class: Option<usize>,
    /// The kind of which there is one.
    pub one: usize,
    /// The kind that is to take its place.
    pub many: usize,
    /// What the one can serve within the SLO.
    pub capacity: PerSecond,
    /// How many of the others serve as much, in fractions.
    pub machines: f64,
    /// What the one draws at its capacity.
    pub power: Watts,
    /// What the others draw at that, so many of them on as are needed, evenly loaded.
    pub power_of_many: Watts,
    /// The least demand from which on, up to its capacity, the one draws less than the others; `None` where the others draw less at its
    /// capacity.
    pub break_even: Option<PerSecond>,
}

/// What one kind draws at one demand.
#[derive(Clone, Debug, PartialEq)]
pub struct DemandLevel {
    /// The kind.
    pub kind: usize,
    /// The demand, as a share of what all machines of the kind can serve of the day's mix.
    pub share: Ratio,
    /// The demand.
    pub rate: PerSecond,
    /// The fewest machines that serve it.
    pub fewest: u32,
    /// What these draw, with the others off.
    pub consolidated: Watts,
    /// What all machines draw, evenly loaded.
    pub spread: Watts,
}

/// A class that moves: most of it is served by another kind than in the step before.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// The step in which it is there, from 0.
    pub step: usize,
    /// The class.
    pub class: usize,
    /// The kind that served most of it before.
    pub from: usize,
    /// The kind that serves most of it now.
    pub to: usize,
    /// The arrivals of the class.
    pub rate: PerSecond,
}

/// What a request of a mix takes on a kind of machine.
pub(super) struct Mixed {
    /// The share of a machine for one request a second.
    pub(super) uses: f64,
    /// The watts that this adds.
    pub(super) watts: f64,
    /// How busy a machine may be.
    pub(super) limit: f64,
}

/// What a request of the mix takes on a kind of machine; `None` where it cannot serve some of it.
pub(super) fn mixed(problem: Asked<'_>, index: usize, mix: &[f64]) -> Option<Mixed> {
    let kind = &problem.problem.kinds[index];
    let (mut uses, mut watts, mut limit) = ([0.0; 3], 0.0, 1.0f64);
    for (class, share) in mix.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        limit = limit.min(kind.serves[class].limit?.get());
        let of = problem.uses(index, class);
        uses = [0, 1, 2].map(|resource| uses[resource] + share * of[resource]);
        watts += share * kind.work_w(class);
    }
    let uses = uses.into_iter().fold(0.0, f64::max);
    (uses > 0.0).then_some(Mixed { uses, watts, limit })
}

/// The share of each class in all requests of the day.
pub(super) fn mix(problem: &Problem) -> Vec<f64> {
    let of = |class: usize| -> f64 {
        let steps = problem.steps.iter();
        steps
            .map(|step| step.rates[class].get() * step.length.get())
            .sum()
    };
    let counts: Vec<f64> = (0..problem.classes.len()).map(of).collect();
    let all: f64 = counts.iter().sum();
    counts
        .into_iter()
        .map(|count| if all > 0.0 { count / all } else { 0.0 })
        .collect()
}

/// How many machines of each kind equal one of each other kind, for each class and for the mix of the day. Pairs of which one kind cannot serve
/// the class within the SLO are left out. All is of a steady load: a step's peak does not count.
pub fn equivalences(problem: &Problem, bounds: &Bounds) -> Vec<Equivalence> {
    let asked = Asked { problem, bounds };
    let classes = problem.classes.len();
    let alone = (0..classes).map(|class| {
        let mix = (0..classes).map(|other| f64::from(u8::from(other == class)));
        (Some(class), mix.collect())
    });
    let mixes: Vec<(Option<usize>, Vec<f64>)> = alone.chain([(None, mix(problem))]).collect();
    let mut found = Vec::new();
    for (class, mix) in &mixes {
        for one in 0..problem.kinds.len() {
            let others = (0..problem.kinds.len()).filter(|many| *many != one);
            found.extend(others.filter_map(|many| equivalence(asked, *class, mix, one, many)));
        }
    }
    found
}

fn equivalence(
    problem: Asked<'_>,
    class: Option<usize>,
    mix: &[f64],
    one: usize,
    many: usize,
) -> Option<Equivalence> {
    let idle = |index: usize| problem.kinds[index].machine.idle.get();
    let (large, small) = (mixed(problem, one, mix)?, mixed(problem, many, mix)?);
    let (capacity, each) = (large.limit / large.uses, small.limit / small.uses);
    let of_one = |rate: f64| idle(one) + large.watts * rate;
    let needed = |rate: f64| (rate / each - 1e-9).ceil().max(1.0);
    let of_many = |rate: f64| idle(many) * needed(rate) + small.watts * rate;
    let from_above = (1..=COMPARED)
        .rev()
        .map(|part| capacity * f64::from(part) / f64::from(COMPARED));
    let cheaper = from_above.take_while(|rate| of_one(*rate) < of_many(*rate));
    Some(Equivalence {
        class,
        one,
        many,
        capacity: PerSecond::new(capacity),
        machines: capacity / each,
        power: Watts::new(of_one(capacity)),
        power_of_many: Watts::new(of_many(capacity)),
        break_even: cheaper.last().map(PerSecond::new),
    })
}

/// What each kind draws by itself at each tenth of the day's mix that all its machines can serve: with the fewest machines, and with all.
/// A kind that cannot serve some of the mix within the SLO is left out. All is of a steady load: a step's peak does not count.
pub fn consolidation(problem: &Problem, bounds: &Bounds) -> Vec<DemandLevel> {
    let mix = mix(problem);
    let mut found = Vec::new();
    for (index, kind) in problem
        .kinds
        .iter()
        .enumerate()
        .filter(|(_, kind)| kind.count > 0)
    {
        let Some(of) = mixed(Asked { problem, bounds }, index, &mix) else {
            continue;
        };
        let (each, count) = (of.limit / of.uses, f64::from(kind.count));
        let (idle, off) = (kind.machine.idle.get(), kind.machine.server.off.get());
        found.extend((1..=10).map(|tenth| {
            let share = f64::from(tenth) / 10.0;
            let rate = share * each * count;
            let fewest = (rate / each - 1e-9).ceil().max(1.0);
            DemandLevel {
                kind: index,
                share: Ratio::new(share),
                rate: PerSecond::new(rate),
                fewest: fewest as u32,
                consolidated: Watts::new(idle * fewest + off * (count - fewest) + of.watts * rate),
                spread: Watts::new(idle * count + of.watts * rate),
            }
        }));
    }
    found
}

/// When classes move between kinds in a plan.
pub fn migrations(problem: &Problem, plan: &Plan) -> Vec<Migration> {
    let mut at: Vec<Option<usize>> = vec![None; problem.classes.len()];
    let mut found = Vec::new();
    for (step, planned) in plan.steps.iter().enumerate() {
        for (class, at) in at.iter_mut().enumerate() {
            let rate = problem.steps[step].rates[class];
            if rate <= PerSecond::ZERO {
                continue;
            }
            let kinds = 0..problem.kinds.len();
            let most = kinds.max_by(|one, two| {
                planned
                    .rate(*one, class)
                    .get()
                    .total_cmp(&planned.rate(*two, class).get())
            });
            let (Some(to), from) = (most, *at) else { continue };
            if let Some(from) = from.filter(|from| *from != to) {
                found.push(Migration {
                    step,
                    class,
                    from,
                    to,
                    rate,
                });
            }
            *at = Some(to);
        }
    }
    found
}
