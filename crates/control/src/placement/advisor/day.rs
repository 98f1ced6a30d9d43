//! The day: how many machines are on in each step, switching included.

use super::bounds::Asked;
use super::stage::{self, On, unmet};
use super::{AdvisorError, MAX_STATES, Plan, PlannedStep, Routing, blind};
use headroom_units::{Joules, Watts};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of machines whose bounds are computed for one step; beyond it those next to the best ones alone are considered.
const MAX_ENUMERATED: usize = 1_000_000;

/// Numbers of machines.
type Numbers = Vec<u32>;

/// The plan of least energy with at most these machines on.
pub(super) fn solve(problem: Asked<'_>, most: &[u32], routing: Routing) -> Result<Plan, AdvisorError> {
    Day::new(problem, most, routing)?.solve()
}

struct Day<'a> {
    problem: Asked<'a>,
    most: &'a [u32],
    routing: Routing,
    /// The first step with the same rates and peak.
    alike: Vec<usize>,
    /// The least power of each step by itself, by size, without what is off, and the numbers that it takes.
    least: Vec<(f64, Numbers)>,
    /// What each number of machines draws in a step; infinite where it does not keep the SLO.
    known: Vec<BTreeMap<Numbers, f64>>,
}

impl<'a> Day<'a> {
    fn new(problem: Asked<'a>, most: &'a [u32], routing: Routing) -> Result<Self, AdvisorError> {
        let steps = &problem.problem.steps;
        let alike: Vec<usize> = (0..steps.len())
            .map(|step| {
                (0..step)
                    .find(|other| {
                        steps[*other].rates == steps[step].rates && problem.peak(*other) == problem.peak(step)
                    })
                    .unwrap_or(step)
            })
            .collect();
        let mut day = Self {
            problem,
            most,
            routing,
            alike,
            least: Vec::new(),
            known: vec![BTreeMap::new(); steps.len()],
        };
        for step in 0..steps.len() {
            let least = match day.alike[step] {
                other if other < step => day.least[other].clone(),
                _ => match stage::solve(problem, step, On::AtMost(most))? {
                    Some(stage) => (stage.bound, stage.on),
                    None => return Err(unmet(problem, step, most)?),
                },
            };
            day.least.push(least);
        }
        Ok(day)
    }

    /// The power of a step with these machines on, without what is off; infinite where they do not keep the SLO.
    fn power(&mut self, step: usize, on: &[u32]) -> Result<f64, AdvisorError> {
        let step = self.alike[step];
        let mut watts = self.power_of(step, on)?;
        if self.problem.spare && watts.is_finite() {
            let mut fewer = on.to_vec();
            for kind in 0..on.len() {
                if on[kind] > 0 {
                    fewer[kind] -= 1;
                    if self.power_of(step, &fewer)?.is_infinite() {
                        watts = f64::INFINITY;
                    }
                    fewer[kind] += 1;
                }
            }
        }
        Ok(watts)
    }

    fn power_of(&mut self, step: usize, on: &[u32]) -> Result<f64, AdvisorError> {
        if let Some(watts) = self.known[step].get(on) {
            return Ok(*watts);
        }
        let work = match self.routing {
            Routing::BySize => stage::solve(self.problem, step, On::Fixed(on))?.map(|stage| stage.watts),
            blind => blind::solve(self.problem, step, on, blind)
                .filter(|step| step.late.is_none())
                .map(|step| step.watts),
        };
        let watts = work.map_or(f64::INFINITY, |work| work + self.idle(on));
        self.known[step].insert(on.to_vec(), watts);
        Ok(watts)
    }

    /// What machines that are on draw above off ones, without work, W.
    fn idle(&self, on: &[u32]) -> f64 {
        let kinds = self.problem.kinds.iter().zip(on);
        kinds.map(|(kind, on)| kind.on_w() * f64::from(*on)).sum()
    }

    /// What the work of a step takes at least, wherever it is served, W.
    fn least_work(&self, step: usize) -> f64 {
        let rates = &self.problem.steps[step].rates;
        let least = |class: usize| {
            let kinds = self
                .problem
                .kinds
                .iter()
                .zip(self.most)
                .filter(|(_, most)| **most > 0);
            let able = kinds.filter(|(kind, _)| kind.serves[class].limit.is_some());
            able.map(|(kind, _)| kind.work_w(class))
                .fold(f64::INFINITY, f64::min)
        };
        let asked = (0..rates.len()).filter(|class| rates[*class].get() > 0.0);
        asked.map(|class| least(class) * rates[class].get()).sum()
    }

    fn seconds(&self, step: usize) -> f64 {
        self.problem.steps[step].length.get()
    }

    /// The cost of going from one to the other, J.
    fn switching(&self, from: &[u32], to: &[u32]) -> f64 {
        let kinds = self.problem.kinds.iter().zip(from.iter().zip(to));
        kinds
            .map(|(kind, (from, to))| {
                let [boot, shutdown] = kind.switching_j();
                boot * f64::from(to.saturating_sub(*from)) + shutdown * f64::from(from.saturating_sub(*to))
            })
            .sum()
    }

    fn solve(mut self) -> Result<Plan, AdvisorError> {
        let steps = self.problem.steps.len();
        let bound: f64 = (0..steps)
            .map(|step| self.least[step].0 * self.seconds(step))
            .sum();
        let first = self.first_candidates()?;
        let mut path = self.shortest(&first);
        let mut exact = true;
        // A second round from a better plan leaves out more.
        for _ in 0..2 {
            let slack = path.1 - bound;
            let mut candidates = Vec::new();
            exact = true;
            for step in 0..steps {
                let (of_step, all) = self.within(step, slack, &path.0[step])?;
                exact &= all;
                candidates.push(of_step);
            }
            let better = self.shortest(&candidates);
            let is_better = better.1 < path.1 * (1.0 - 1e-9);
            path = better;
            if exact || !is_better {
                break;
            }
        }
        let off_j: f64 = (0..steps)
            .map(|step| self.problem.off_w() * self.seconds(step))
            .sum();
        self.planned(path, if exact { None } else { Some(bound + off_j) })
    }

    /// Numbers with which a first plan can be made: what each step takes by itself, in every step, with one more of each kind where one is to
    /// be spare; and all machines.
    fn first_candidates(&mut self) -> Result<Vec<Vec<(Numbers, f64)>>, AdvisorError> {
        let (steps, most) = (self.problem.steps.len(), self.most);
        let mut seeds: BTreeSet<Numbers> = BTreeSet::from([most.to_vec()]);
        let mut own: Vec<Numbers> = self.least.iter().map(|(_, on)| on.clone()).collect();
        for kind in 0..most.len() {
            let mut only = vec![0; most.len()];
            only[kind] = most[kind];
            own.push(only);
        }
        let join = |one: &Numbers, two: &Numbers| -> Numbers {
            one.iter().zip(two).map(|(one, two)| *one.max(two)).collect()
        };
        for step in 1..self.least.len() {
            own.push(join(&self.least[step - 1].1, &self.least[step].1));
        }
        for on in own {
            seeds.insert(
                on.iter()
                    .zip(most)
                    .map(|(on, most)| (on + u32::from(*on > 0)).min(*most))
                    .collect(),
            );
            seeds.insert(on);
        }
        let seeds: Vec<Numbers> = seeds.into_iter().take(MAX_STATES).collect();
        let mut candidates = Vec::new();
        for step in 0..steps {
            let mut of_step = Vec::new();
            for on in &seeds {
                let watts = self.power(step, on)?;
                if watts.is_finite() {
                    of_step.push((on.clone(), watts));
                }
            }
            if of_step.is_empty() {
                // By size all machines serve what any of them do: where these do not, it is the spare one that is missing. Other routing may
                // keep the SLO with some numbers and miss it with more.
                let (all, _) = self.within(step, f64::INFINITY, most)?;
                of_step = all;
            }
            if of_step.is_empty() && self.routing != Routing::BySize {
                let peak = self.problem.peak(step);
                return Err(AdvisorError::Late { step, peak });
            }
            if of_step.is_empty() {
                let fewer: Numbers = most
                    .iter()
                    .map(|most| most.saturating_sub(u32::from(self.problem.spare)))
                    .collect();
                return Err(unmet(self.problem, step, &fewer)?);
            }
            candidates.push(of_step);
        }
        Ok(candidates)
    }

    /// The numbers of machines that can be part of a plan better than one that is `slack_j` above the bound, and whether these are all;
    /// `sure` is among them if it keeps the SLO.
    fn within(
        &mut self,
        step: usize,
        slack_j: f64,
        sure: &[u32],
    ) -> Result<(Vec<(Numbers, f64)>, bool), AdvisorError> {
        let most_w = self.least[step].0 + slack_j / self.seconds(step) + 1e-6;
        let work = self.least_work(step);
        let mut found: Vec<(f64, Numbers)> = Vec::new();
        let all = self.enumerate(most_w - work, &mut found);
        found.sort_by(|one, two| one.0.total_cmp(&two.0).then_with(|| one.1.cmp(&two.1)));
        let exact = all && found.len() <= MAX_STATES;
        let mut of_step = Vec::new();
        let kept = found.into_iter().map(|(_, on)| on).take(MAX_STATES);
        for on in kept.chain([sure.to_vec()]).collect::<BTreeSet<_>>() {
            let watts = self.power(step, &on)?;
            if watts.is_finite() && (watts <= most_w || on == sure) {
                of_step.push((on, watts));
            }
        }
        Ok((of_step, exact))
    }

    /// All numbers of machines that draw at most this when idle; whether they are all.
    fn enumerate(&self, most_w: f64, found: &mut Vec<(f64, Numbers)>) -> bool {
        let kinds = &self.problem.kinds;
        let mut on = vec![0; kinds.len()];
        // A kind that draws less idle than off lowers the bound of all others' numbers.
        let lowest: Vec<f64> = kinds
            .iter()
            .zip(self.most)
            .map(|(kind, most)| (kind.on_w() * f64::from(*most)).min(0.0))
            .collect();
        fn go(
            day: &Day<'_>,
            kind: usize,
            watts: f64,
            most_w: f64,
            lowest: &[f64],
            on: &mut Numbers,
            found: &mut Vec<(f64, Numbers)>,
        ) -> bool {
            if kind == on.len() {
                found.push((watts, on.clone()));
                return found.len() < MAX_ENUMERATED;
            }
            let each = day.problem.kinds[kind].on_w();
            let rest: f64 = lowest[kind + 1..].iter().sum();
            for number in 0..=day.most[kind] {
                let with = watts + each * f64::from(number);
                if with + rest > most_w {
                    if each >= 0.0 {
                        break;
                    }
                    continue;
                }
                on[kind] = number;
                if !go(day, kind + 1, with, most_w, lowest, on, found) {
                    return false;
                }
            }
            on[kind] = 0;
            true
        }
        go(self, 0, 0.0, most_w, &lowest, &mut on, found)
    }

    /// The cheapest way through these numbers, and its energy without what is off.
    fn shortest(&self, candidates: &[Vec<(Numbers, f64)>]) -> (Vec<Numbers>, f64) {
        let mut came: Vec<Vec<usize>> = Vec::new();
        let mut costs: Vec<f64> = Vec::new();
        for (step, of_step) in candidates.iter().enumerate() {
            let seconds = self.seconds(step);
            let mut next = Vec::with_capacity(of_step.len());
            let mut from = Vec::with_capacity(of_step.len());
            for (on, watts) in of_step {
                let before = costs
                    .iter()
                    .enumerate()
                    .fold((0, f64::INFINITY), |best, (index, cost)| {
                        if *cost >= best.1 {
                            return best;
                        }
                        let cost = cost + self.switching(&candidates[step - 1][index].0, on);
                        if cost < best.1 { (index, cost) } else { best }
                    });
                let before = if step == 0 { (0, 0.0) } else { before };
                from.push(before.0);
                next.push(before.1 + watts * seconds);
            }
            came.push(from);
            costs = next;
        }
        let (mut at, energy) = costs
            .iter()
            .enumerate()
            .fold((0, f64::INFINITY), |best, (index, cost)| {
                if *cost < best.1 { (index, *cost) } else { best }
            });
        let mut path: Vec<Numbers> = Vec::new();
        for step in (0..candidates.len()).rev() {
            path.push(candidates[step][at].0.clone());
            at = came[step][at];
        }
        path.reverse();
        (path, energy)
    }

    /// The plan of a path; without a bound it is the best.
    fn planned(&self, (path, _): (Vec<Numbers>, f64), bound: Option<f64>) -> Result<Plan, AdvisorError> {
        let (mut energy, mut switching) = (0.0, 0.0);
        let mut steps: Vec<PlannedStep> = Vec::new();
        for (step, on) in path.iter().enumerate() {
            let (watts, groups) = match self.routing {
                Routing::BySize => {
                    let Some(stage) = stage::solve(self.problem, step, On::Fixed(on))? else {
                        return Err(unmet(self.problem, step, on)?);
                    };
                    (stage.watts, stage.groups)
                }
                blind => {
                    let Some(stage) = blind::solve(self.problem, step, on, blind) else {
                        return Err(unmet(self.problem, step, on)?);
                    };
                    (stage.watts, stage.groups)
                }
            };
            let power = watts + self.idle(on) + self.problem.off_w();
            if step > 0 {
                switching += self.switching(&path[step - 1], on);
            }
            energy += power * self.seconds(step);
            steps.push(PlannedStep {
                on: on.clone(),
                groups,
                power: Watts::new(power),
            });
        }
        let energy = Joules::new(energy + switching);
        Ok(Plan {
            steps,
            energy,
            switching: Joules::new(switching),
            bound: bound.map_or(energy, Joules::new).min(energy),
        })
    }
}
