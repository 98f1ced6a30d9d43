//! One step under a balancer that does not tell classes apart: each machine that is on gets the same mix.
//!
//! Round robin gives each the same number, weighted round robin as many as it can serve of the whole day's mix, in proportion. Least connections gives each as many as keep the number in flight alike: the mean number
//! present at its cores (M/M/k, whose number present is that of M/G/k processor sharing) and at its link (M/M/1) is the same at all.

use super::bounds::Asked;
use super::questions::{mix, mixed};
use super::stage::group;
use super::{Group, Routing};
use crate::placement::population::present;
use headroom_units::{PerSecond, Ratio};

/// Halvings in which a share is sought.
const HALVINGS: usize = 40;

/// What one step takes, whether or not it keeps the SLO.
#[derive(Clone, Debug)]
pub(super) struct Blind {
    /// What the work adds to machines that idle, W; of machines that are overloaded what full ones draw.
    pub(super) watts: f64,
    /// Who serves what.
    pub(super) groups: Vec<Group>,
    /// The kind and class that miss the SLO; `None` where none does.
    pub(super) late: Option<(usize, usize)>,
}

/// Solves a step; `None` where something is asked for and nothing on.
pub(super) fn solve(problem: Asked<'_>, step: usize, on: &[u32], routing: Routing) -> Option<Blind> {
    let rates = &problem.steps[step].rates;
    let asked: Vec<usize> = (0..rates.len())
        .filter(|class| rates[*class] > PerSecond::ZERO)
        .collect();
    let there: Vec<usize> = (0..on.len()).filter(|kind| on[*kind] > 0).collect();
    if there.is_empty() {
        let nothing = Blind {
            watts: 0.0,
            groups: Vec::new(),
            late: None,
        };
        return asked.is_empty().then_some(nothing);
    }
    // How busy one machine of each kind would be with everything.
    let whole: Vec<[f64; 3]> = (0..problem.kinds.len())
        .map(|kind| {
            [0, 1, 2].map(|resource| {
                asked
                    .iter()
                    .map(|class| problem.uses(kind, *class)[resource] * rates[*class].get())
                    .sum()
            })
        })
        .collect();
    let machines: u32 = there.iter().map(|kind| on[*kind]).sum();
    let shares = match routing {
        Routing::LeastConnections => by_number(problem, on, &there, &whole),
        Routing::WeightedRoundRobin => by_capacity(problem, on, &there),
        _ => None,
    };
    let shares = shares.unwrap_or_else(|| vec![1.0 / f64::from(machines); on.len()]);
    let (mut watts, mut late, mut groups) = (0.0, None, Vec::new());
    for kind in there {
        let of = &problem.kinds[kind];
        let count = f64::from(on[kind]);
        let limits = asked
            .iter()
            .map(|class| (of.serves[*class].limit.map_or(0.0, Ratio::get), *class));
        let tightest = limits.min_by(|one, two| one.0.total_cmp(&two.0));
        let busy = whole[kind].map(|whole| whole * shares[kind]);
        if let Some((limit, class)) = tightest
            && busy.into_iter().fold(0.0, f64::max) * problem.peak(step) > limit + 1e-9
        {
            late = late.or(Some((kind, class)));
        }
        let served = rates.iter().map(|rate| *rate * (shares[kind] * count));
        let limit = Ratio::new(tightest.map_or(0.0, |(limit, _)| limit));
        groups.push(group(problem, kind, on[kind], limit, served.collect()));
        // What else is full holds back cores and link too.
        let passes = busy[2].max(1.0).recip();
        let [cores, link] = [busy[0], busy[1]].map(|busy| (busy * passes).min(1.0));
        watts += count * (of.machine.busy.get() * cores + of.machine.link.get() * link);
    }
    Some(Blind { watts, groups, late })
}

/// The share of all requests that a machine of each kind gets by its capacity for the whole day's mix; `None` where one has none.
fn by_capacity(problem: Asked<'_>, on: &[u32], there: &[usize]) -> Option<Vec<f64>> {
    let mix = mix(&problem);
    let mut shares = vec![0.0; on.len()];
    for kind in there {
        let of = mixed(problem, *kind, &mix)?;
        shares[*kind] = of.limit / of.uses;
    }
    let sum: f64 = there
        .iter()
        .map(|kind| f64::from(on[*kind]) * shares[*kind])
        .sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    Some(shares)
}

/// The share of all requests that a machine of each kind gets under least connections; `None` where nothing comes in, or more than all
/// can take, where the numbers in flight grow without bound and the machines are full in any case.
fn by_number(problem: Asked<'_>, on: &[u32], there: &[usize], whole: &[[f64; 3]]) -> Option<Vec<f64>> {
    let most = |kind: usize| whole[kind].into_iter().fold(0.0, f64::max).recip();
    let full: f64 = there.iter().map(|kind| f64::from(on[*kind]) * most(*kind)).sum();
    if !full.is_finite() || full <= 1.0 {
        return None;
    }
    let share = |kind: usize, number: f64| {
        let (mut low, mut high) = (0.0, most(kind));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let busy = whole[kind].map(|whole| whole * middle);
            let there = present(problem.kinds[kind].machine.cores, busy[0]) + present(1, busy[1]);
            // Something else that is full first has its own queue; where it is nearly what cores and link allow, it is theirs.
            if there.max(present(1, busy[2])) < number {
                low = middle
            } else {
                high = middle
            }
        }
        low
    };
    let all = |number: f64| -> f64 {
        there
            .iter()
            .map(|kind| f64::from(on[*kind]) * share(*kind, number))
            .sum()
    };
    let (mut low, mut high) = (0.0, 1.0);
    while all(high) < 1.0 && high < 1e6 {
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if all(middle) < 1.0 {
            low = middle
        } else {
            high = middle
        }
    }
    let mut shares = vec![0.0; on.len()];
    for kind in there {
        shares[*kind] = share(*kind, high);
    }
    let sum = all(high);
    shares.iter_mut().for_each(|share| *share /= sum);
    Some(shares)
}
