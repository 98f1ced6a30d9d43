//! Which classes go to which backends: the programme of one step of the advisor, with the backends that are in service as the machines on.

use super::speed::Slowness;
use super::state::State;
use crate::placement::advisor::{Kind, Problem, Serving, Step, cheapest, needed};
use crate::placement::{MAX_LIMIT, Routes, limit};
use crate::plant::Slo;
use headroom_physics::serving::RequestCost;
use headroom_units::{PerSecond, Ratio, Seconds};
use std::collections::BTreeMap;

/// Limits that are kept; beyond it all are forgotten, and computed again as they are needed.
const MAX_CACHED: usize = 4_096;
/// Limits are rounded down to these, so that a backend's classes fall in few groups.
const LIMIT_STEP: f64 = 0.05;
/// New routes leave so much of each limit, so that chance alone does not put them over it; where that is too much, the whole limit is used.
const MARGIN: f64 = 0.93;
/// How many times the limits are exceeded, the least that will do, where the backends cannot serve all under the guard: in a fleet of
/// several kinds the fewest requests are no measure of what a backend bears, so routes over the guard are late less than least connections.
const OVER_LIMITS: [f64; 4] = [1.1, 1.25, 1.5, 2.0];
/// For what share of what comes in routes are found where all of it overloads the backends, the most that will do: figures that are a little
/// too slow are no reason to let requests go where they are late in any case.
const SHARES_SERVED: [f64; 3] = [0.95, 0.9, 0.8];
/// A share of a class below this is none.
const LEAST_SHARE: f64 = 0.005;

/// Limits by kind, steps of its slowness, and size and tail in steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits(BTreeMap<(String, [i32; 2], i32, i32), Option<f64>>);

/// Routes, and what is expected of them.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) routes: Routes,
    /// What the work draws above idle machines, W.
    pub(super) work_w: f64,
    /// How much of its limit the busiest backend uses; over 1 where the backends cannot serve all under the guard.
    pub(super) strain: f64,
    /// How busy the busiest backend would be.
    pub(super) busiest: f64,
}

/// How busy a backend would be.
pub(super) struct Load {
    /// Its kind.
    pub(super) kind: usize,
    /// Its number.
    pub(super) backend: usize,
    /// Cores and link, with what is placed.
    placed: [f64; 2],
    /// The same with what is not placed.
    pub(super) all: [f64; 2],
    /// Placed requests, a second.
    pub(super) rate: f64,
}

/// What the law chooses by: the backends as kinds of machines.
pub(super) struct Model {
    problem: Problem,
    /// The backends of each kind.
    members: Vec<Vec<usize>>,
    /// The classes of the problem, by their number among the classes of known size.
    classes: Vec<usize>,
    /// All classes of known size.
    known: usize,
    /// How busy the backends of each kind are with what is not placed: cores and link.
    background: Vec<[f64; 2]>,
}

impl Model {
    /// The model of what is known, of the backends that are in service and answer; `None` where there is none.
    pub(super) fn new(state: &State, slo: Slo, guard: f64, limits: &mut Limits) -> Option<Self> {
        let mut groups: BTreeMap<(String, [i32; 2]), Vec<usize>> = BTreeMap::new();
        for (index, backend) in state
            .backends
            .iter()
            .enumerate()
            .filter(|(_, one)| one.is_relied_on())
        {
            let group = (backend.kind.clone(), backend.slow.steps());
            groups.entry(group).or_default().push(index);
        }
        let in_service: usize = groups.values().map(Vec::len).sum();
        if in_service == 0 {
            return None;
        }
        let asked =
            |class: &usize| state.classes[*class].rate > 0.0 && state.classes[*class].mean_bytes.is_some();
        let all: Vec<usize> = (0..state.classes.len()).filter(asked).collect();
        let mut kinds = Vec::new();
        for ((name, slow), members) in &groups {
            let figures = state.backends[members[0]].figures;
            let (machine, service) = (figures.machine(name), figures.service());
            let serves = all.iter().map(|class| {
                let class = &state.classes[*class];
                let cost = Slowness::of_steps(*slow).of(service.of(class.mean_bytes.unwrap_or(0.0)));
                let tail = class.tail;
                let steps = |value: f64| (value.max(1.0).ln() / 1.05f64.ln()).ceil() as i32;
                let key = (name.clone(), *slow, steps(cost.bytes), steps(tail));
                if limits.0.len() >= MAX_CACHED {
                    limits.0.clear();
                }
                let busy = *limits.0.entry(key).or_insert_with(|| {
                    let late = RequestCost {
                        cpu: cost.cpu * tail,
                        bytes: cost.bytes * tail,
                    };
                    let found = limit(&machine, late, slo, Ratio::new(guard))?.get();
                    Some(((found / LIMIT_STEP + 1e-9).floor() * LIMIT_STEP).max(found.min(LIMIT_STEP)))
                });
                Serving {
                    cost,
                    limit: busy.map(Ratio::new),
                }
            });
            kinds.push(Kind {
                serves: serves.collect(),
                machine,
                count: members.len() as u32,
            });
        }
        let placeable = |at: &usize| kinds.iter().any(|kind| kind.serves[*at].limit.is_some());
        let placed: Vec<usize> = (0..all.len()).filter(placeable).collect();
        // What is not placed is spread by the balancer: about evenly.
        let unknown = state.unknown.mean_bytes.map(|bytes| (bytes, state.unknown.rate));
        let left = (0..all.len()).filter(|at| !placed.contains(at)).map(|at| {
            let class = &state.classes[all[at]];
            (class.mean_bytes.unwrap_or(0.0), class.rate)
        });
        let spread: Vec<(f64, f64)> = left.chain(unknown).collect();
        let mut background = Vec::new();
        for (kind, ((_, slow), members)) in kinds.iter_mut().zip(&groups) {
            let service = state.backends[members[0]].figures.service();
            let requests = spread.iter().map(|(bytes, rate)| {
                let cost = Slowness::of_steps(*slow).of(service.of(*bytes));
                (cost, PerSecond::new(rate / in_service as f64))
            });
            let load = kind.machine.load(requests);
            kind.serves = placed.iter().map(|at| kind.serves[*at]).collect();
            for serving in &mut kind.serves {
                let left = serving.limit.map(|limit| limit.get() - load.most().get());
                serving.limit = left.filter(|left| *left > 0.0).map(Ratio::new);
            }
            background.push([load.cpu.get(), load.link.get()]);
        }
        let rates = placed
            .iter()
            .map(|at| PerSecond::new(state.classes[all[*at]].rate));
        Some(Self {
            problem: Problem {
                classes: placed.iter().map(|at| all[*at].to_string()).collect(),
                kinds,
                steps: vec![Step {
                    length: Seconds::new(1.0),
                    rates: rates.collect(),
                }],
                spare: false,
            },
            members: groups.into_values().collect(),
            classes: placed.iter().map(|at| all[*at]).collect(),
            known: state.classes.len(),
            background,
        })
    }

    /// Whether anything can be placed.
    pub(super) fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }

    /// The routes of least watts under the guard, or where the backends cannot serve all under it, near it; `None` where they are overloaded.
    pub(super) fn best(&self, backends: usize) -> Option<Choice> {
        let counts: Vec<u32> = self.problem.kinds.iter().map(|kind| kind.count).collect();
        let mut easy = self.problem.clone();
        for serving in easy.kinds.iter_mut().flat_map(|kind| &mut kind.serves) {
            serving.limit = serving.limit.map(|limit| limit * MARGIN);
        }
        // With one limit for all that a kind serves nothing is searched for.
        let mut strict = self.problem.clone();
        for kind in &mut strict.kinds {
            let limits = kind.serves.iter().filter_map(|serving| serving.limit);
            let least = limits.fold(Ratio::new(1.0), Ratio::min);
            for serving in &mut kind.serves {
                serving.limit = serving.limit.map(|_| least);
            }
        }
        let groups = cheapest(&easy, 0, &counts)
            .or_else(|| cheapest(&self.problem, 0, &counts))
            .or_else(|| cheapest(&strict, 0, &counts))
            .or_else(|| {
                let mut over = OVER_LIMITS.into_iter();
                over.find_map(|over| cheapest(&self.over_limits(over), 0, &counts))
            });
        let in_part = || {
            let part = |share: f64| {
                let mut problem = self.over_limits(OVER_LIMITS[OVER_LIMITS.len() - 1]);
                for rate in problem.steps.iter_mut().flat_map(|step| &mut step.rates) {
                    *rate = *rate * share;
                }
                let mut groups = cheapest(&problem, 0, &counts)?;
                for rate in groups.iter_mut().flat_map(|group| &mut group.rates) {
                    *rate = *rate / share;
                }
                Some(groups)
            };
            SHARES_SERVED.into_iter().find_map(part)
        };
        let groups = groups.or_else(in_part)?;
        let mut shares = vec![vec![0.0; backends]; self.known];
        let mut next = vec![0; self.members.len()];
        for group in &groups {
            let members = &self.members[group.kind][next[group.kind]..][..group.machines as usize];
            next[group.kind] += members.len();
            self.share_out(&mut shares, members, |at| group.rates[at].get());
        }
        // What a kind serves takes the same watts wherever within it; over all of it no backend is near its limit before it must be.
        let mut routes = weighted(&shares);
        let mut strain = self.strain(&routes);
        for (kind, members) in self.members.iter().enumerate() {
            let of_kind = || groups.iter().filter(|group| group.kind == kind);
            let mut even = shares.clone();
            self.share_out(&mut even, members, |at| {
                of_kind().map(|group| group.rates[at].get()).sum()
            });
            let evened = weighted(&even);
            let strained = self.strain(&evened);
            if strained <= strain.max(MARGIN) {
                (shares, routes, strain) = (even, evened, strained);
            }
        }
        let work_w = self.work_w(&routes);
        Some(Choice {
            work_w,
            busiest: self.busiest(&routes),
            strain,
            routes,
        })
    }

    /// The same with limits that are exceeded so many times, but for what no machine is planned busier than.
    fn over_limits(&self, over: f64) -> Problem {
        let mut problem = self.problem.clone();
        for (kind, [cores, link]) in problem.kinds.iter_mut().zip(&self.background) {
            let most = MAX_LIMIT.get() - cores.max(*link);
            for serving in &mut kind.serves {
                let exceeded = serving
                    .limit
                    .map(|limit| (limit.get() * over).min(most).max(limit.get()));
                serving.limit = exceeded.map(Ratio::new);
            }
        }
        problem
    }

    /// Gives each of these backends an equal part of the share of each class that they serve together.
    fn share_out(&self, shares: &mut [Vec<f64>], members: &[usize], together: impl Fn(usize) -> f64) {
        for (at, class) in self.classes.iter().enumerate() {
            let share = together(at) / self.problem.steps[0].rates[at].get();
            let each = match share >= LEAST_SHARE {
                true => share / members.len().max(1) as f64,
                false => 0.0,
            };
            for backend in members {
                shares[*class][*backend] = each;
            }
        }
    }

    /// How busy each backend would be under these routes.
    pub(super) fn loads(&self, routes: &Routes) -> Vec<Load> {
        let mut loads = Vec::new();
        for (kind, members) in self.members.iter().enumerate() {
            for backend in members {
                let (mut placed, mut rates) = ([0.0; 2], 0.0);
                for (at, class) in self.classes.iter().enumerate() {
                    let rate = self.problem.steps[0].rates[at].get() * self.share(routes, *class, *backend);
                    let uses = self.problem.kinds[kind].uses(at);
                    placed = [0, 1].map(|resource| placed[resource] + uses[resource] * rate);
                    rates += rate;
                }
                let background = self.background[kind];
                loads.push(Load {
                    kind,
                    backend: *backend,
                    placed,
                    all: [0, 1].map(|resource| placed[resource] + background[resource]),
                    rate: rates,
                });
            }
        }
        loads
    }

    /// Classes whose size is known, placed or not.
    pub(super) fn known(&self) -> usize {
        self.known
    }

    /// The classes that can be placed, by their number among those of known size.
    pub(super) fn classes(&self) -> &[usize] {
        &self.classes
    }

    /// A kind of backends.
    pub(super) fn kind(&self, kind: usize) -> &Kind {
        &self.problem.kinds[kind]
    }

    /// How busy a kind may be for a class that can be placed, with what is not placed; `None` where it is late there in any case.
    pub(super) fn limit(&self, kind: usize, at: usize) -> Option<f64> {
        let [cores, link] = self.background[kind];
        let limit = self.problem.kinds[kind].serves[at].limit?;
        Some((limit.get() + cores.max(link)).min(MAX_LIMIT.get()))
    }

    /// The share of a class that a backend gets; evenly where the routes leave it to the balancer.
    fn share(&self, routes: &Routes, class: usize, backend: usize) -> f64 {
        let in_service: usize = self.members.iter().map(Vec::len).sum();
        routes.share(class, backend).unwrap_or(1.0 / in_service as f64)
    }

    /// What the placed work draws under these routes, W.
    pub(super) fn work_w(&self, routes: &Routes) -> f64 {
        let loads = self.loads(routes).into_iter();
        loads
            .map(|load| {
                let machine = &self.problem.kinds[load.kind].machine;
                let [cores, link] = load.placed;
                machine.busy.get() * cores.min(1.0) + machine.link.get() * link.min(1.0)
            })
            .sum()
    }

    /// How much of its limit the busiest backend uses under these routes, 1 is all of it; infinite where a class is where it cannot be, or goes
    /// to a backend that is not in service.
    pub(super) fn strain(&self, routes: &Routes) -> f64 {
        let there: Vec<usize> = self.members.iter().flatten().copied().collect();
        let gone = |class: &usize| {
            let row = routes.weights.get(*class).map_or(&[][..], Vec::as_slice);
            let mut used = row
                .iter()
                .enumerate()
                .filter(|(_, weight)| **weight > 0)
                .map(|(backend, _)| backend);
            row.iter().all(|weight| *weight == 0) || used.any(|backend| !there.contains(&backend))
        };
        if self.classes.iter().any(gone) {
            return f64::INFINITY;
        }
        let mut most: f64 = 0.0;
        for load in self.loads(routes) {
            let busiest = load.placed[0].max(load.placed[1]);
            for (at, class) in self.classes.iter().enumerate() {
                if self.share(routes, *class, load.backend) > 0.0 {
                    let serving = self.problem.kinds[load.kind].serves[at];
                    most = most.max(busiest / serving.limit.map_or(0.0, Ratio::get));
                }
            }
        }
        most
    }

    /// How busy the busiest backend is under these routes, with all that it serves.
    pub(super) fn busiest(&self, routes: &Routes) -> f64 {
        let loads = self.loads(routes).into_iter();
        loads.map(|load| load.all[0].max(load.all[1])).fold(0.0, f64::max)
    }

    /// How many of the backends in service are not needed, and what they draw idle, W.
    pub(super) fn not_needed(&self) -> (u32, f64) {
        let counts: Vec<u32> = self.problem.kinds.iter().map(|kind| kind.count).collect();
        let Some(on) = needed(&self.problem, 0, &counts) else {
            return (0, 0.0);
        };
        let kinds = self.problem.kinds.iter().zip(on);
        kinds.fold((0, 0.0), |(machines, watts), (kind, on)| {
            let spare = kind.count.saturating_sub(on);
            (
                machines + spare,
                watts + kind.machine.idle.get() * f64::from(spare),
            )
        })
    }
}

/// Shares as weights, of which the largest of a class is the largest there is. What is rounded goes over to the next, so that many small
/// shares come to what they are together, whichever of like backends has it.
fn weighted(shares: &[Vec<f64>]) -> Routes {
    let row = |row: &Vec<f64>| {
        let most = row.iter().copied().fold(0.0, f64::max);
        let mut over = 0.0;
        let mut weight = |share: &f64| {
            let exact = share / most * f64::from(Routes::MAX_WEIGHT);
            let weight = match exact > 0.0 {
                true => (exact + over).round().clamp(0.0, f64::from(Routes::MAX_WEIGHT)),
                false => 0.0,
            };
            over += exact - weight;
            weight as u32
        };
        match most > 0.0 {
            true => row.iter().map(&mut weight).collect(),
            false => vec![0; row.len()],
        }
    };
    Routes {
        weights: shares.iter().map(row).collect(),
        ..Routes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_shares_of_many_backends_are_not_rounded_away() {
        // A tenth of a class over 250 backends: each would have less than half of the least weight.
        let mut shares = vec![0.9];
        shares.extend(vec![0.1 / 250.0; 250]);
        let routes = weighted(&[shares, vec![0.0; 251]]);
        let small: f64 = (1..=250).filter_map(|backend| routes.share(0, backend)).sum();
        assert!((small - 0.1).abs() < 0.001, "{small}");
        assert_eq!(routes.share(1, 0), None);
    }

    proptest! {
        #[test]
        fn weights_are_the_shares_but_for_one_of_the_least(shares in prop::collection::vec(0.0..1.0f64, 1..250)) {
            let sum: f64 = shares.iter().sum();
            let most = shares.iter().copied().fold(0.0, f64::max);
            prop_assume!(most > 0.01);
            let routes = weighted(std::slice::from_ref(&shares));
            let mut before = [0.0; 2];
            for (share, weight) in shares.iter().zip(&routes.weights[0]) {
                prop_assert!(*share > 0.0 || *weight == 0);
                before[0] += share / most * 1000.0;
                before[1] += f64::from(*weight);
                prop_assert!((before[0] - before[1]).abs() < 1.0 + 1e-6, "{before:?} of {sum}");
            }
        }
    }
}
