//! REEF's QoS-centric workload consolidation (Section 4, Algorithm 1): SLOs to budgets, budgets to areas, areas to cores.

use super::{AreaDecision, AreaLaw, CoreArea, Parts};
use crate::decision::Reason;
use crate::observation::{Observation, OncallObservation};
use crate::oncall::consolidation::{AreaBudget, AreaPeriod, Consolidation, Profile};
use crate::oncall::kmeans::{self, AreasError};
use crate::oncall::policy::Connection;
use crate::parameter::{Bound, OutOfRange, require};
use headroom_units::{PerSecond, Seconds};
use std::collections::BTreeMap;

/// Numbers of cores that are profiled at most; those in between are on straight lines.
const MAX_PROFILED: u32 = 8;
/// By what an area's budget must change to be divided anew.
const CHANGED: f64 = 0.1;
/// The use of the cores from which on the throughput is theirs, and not the demand's, also where nobody waits for a slot.
const BUSY: f64 = 0.9;

/// What the law is given.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsolidationTuning {
    /// C of the algorithm: cores of the server, 1 or more.
    pub cores: u32,
    /// R: areas at most (the paper's tests: 2, hot and warm).
    pub areas: u32,
    /// The least total throughput of best-effort connections, from which their mean-latency budget follows by Little's law (REEF: 12,500
    /// per second).
    pub best_effort: PerSecond,
    /// Whether best-effort connections always have the last area to themselves, and only the others are clustered (ours \[D\]). If not, all
    /// are clustered by their mean budgets as published: where latencies vary little, a tail SLO allows a longer mean than the
    /// best-effort target asks for, and the two change places or share an area.
    pub best_effort_apart: bool,
    /// Throughput by cores, where it was measured before; `None`: the law measures it first, which costs SLOs as long as it lasts.
    pub profile: Option<Profile>,
    /// Periods for which a number of cores is measured, of which the first third is left out.
    pub profile_periods: u32,
    /// Periods with a violation after which fewer cores are measured no more (ours); they count as if they served in proportion to
    /// the fewest that were. With it, measuring also waits until there is a connection with an SLO and all cores are saturated: else it
    /// would measure the demand. `None`: measured at once and to the end, as in the paper's tests.
    pub late_profile_periods: Option<u32>,
    /// Periods without a violation before a core moves proactively (10 of 100 ms are the paper's second).
    pub clean_periods: u32,
    /// Whether cores that the loosest area gave may return: see [`crate::oncall::consolidation`].
    pub give_back: bool,
    /// C of each area over its cores, so that each has an on-call gate of its own; `None`: the lever is of all.
    pub workers_per_core: Option<f64>,
}

impl ConsolidationTuning {
    /// Hot and warm areas as in the paper's tests.
    pub const fn of(cores: u32, best_effort: PerSecond) -> Self {
        Self {
            cores,
            areas: 2,
            best_effort,
            best_effort_apart: true,
            profile: None,
            profile_periods: 6,
            late_profile_periods: None,
            clean_periods: 10,
            give_back: true,
            workers_per_core: None,
        }
    }
}

/// Which connections are in an area, and what they ask for.
#[derive(Clone, Debug, PartialEq)]
struct Members {
    ids: Vec<u64>,
    budget: PerSecond,
}

enum State {
    /// Measures throughput: the numbers of cores to come, the last first, and what was measured.
    Profiling {
        left: Vec<u32>,
        periods: u32,
        sum: f64,
        length_s: f64,
        measured: BTreeMap<u32, f64>,
        saturated: bool,
        late: u32,
    },
    /// Divides cores.
    Running {
        profile: Profile,
        areas: Vec<Members>,
        cores: Option<Consolidation>,
    },
}

/// The law.
pub struct QosConsolidation {
    tuning: ConsolidationTuning,
    state: State,
}

impl QosConsolidation {
    /// Begins with the profile, if there is none.
    ///
    /// # Errors
    /// [`OutOfRange`] for parameters that cannot be.
    pub fn new(tuning: ConsolidationTuning) -> Result<Self, OutOfRange> {
        require("cores", f64::from(tuning.cores), tuning.cores >= 1, "1 or more")?;
        require("areas", f64::from(tuning.areas), tuning.areas >= 1, "1 or more")?;
        let periods = f64::from(tuning.profile_periods);
        require(
            "profile_periods",
            periods,
            tuning.profile_periods >= 3,
            "3 or more",
        )?;
        Bound::Positive.check("best_effort", tuning.best_effort.get())?;
        if let Some(per_core) = tuning.workers_per_core {
            Bound::Between(0.1, 1e3).check("workers_per_core", per_core)?;
        }
        if let Some(profile) = &tuning.profile {
            let fits = profile.cores() == tuning.cores as usize;
            require(
                "profile_per_s",
                profile.cores() as f64,
                fits,
                "one value for each core",
            )?;
        }
        let state = match tuning.profile.clone() {
            Some(profile) => State::Running {
                profile,
                areas: Vec::new(),
                cores: None,
            },
            None => State::Profiling {
                left: profiled(tuning.cores),
                periods: 0,
                sum: 0.0,
                length_s: 0.0,
                measured: BTreeMap::new(),
                saturated: true,
                late: 0,
            },
        };
        Ok(Self { tuning, state })
    }

    /// Cores of each area, the strictest first; empty while it profiles or where the budgets cannot be kept.
    pub fn cores(&self) -> &[usize] {
        match &self.state {
            State::Running { cores: Some(of), .. } => of.cores(),
            _ => &[],
        }
    }

    /// TP[1..C]; `None` while it is measured.
    pub const fn profile(&self) -> Option<&Profile> {
        match &self.state {
            State::Running { profile, .. } => Some(profile),
            State::Profiling { .. } => None,
        }
    }

    /// One more period of the profile: what is in force next, or nothing where it is done.
    fn profile_on(&mut self, observation: &Observation, oncall: &OncallObservation) -> Option<AreaDecision> {
        let State::Profiling {
            left,
            periods,
            sum,
            length_s,
            measured,
            saturated,
            late,
        } = &mut self.state
        else {
            return None;
        };
        if let Some(most) = self.tuning.late_profile_periods {
            let has_slo = oncall.each.iter().any(|of| !of.slos.is_empty());
            let all_busy = observation.utilisation.is_some_and(|used| used.get() > BUSY);
            let is_saturated = all_busy || oncall.waiting_least.is_none_or(|least| least > 0);
            let is_full = left.last() == Some(&self.tuning.cores);
            if is_full && !(has_slo && is_saturated) {
                (*periods, *sum, *length_s) = (0, 0.0, 0.0);
                let text = match has_slo {
                    false => "the throughput of cores is not measured yet: no connection has an SLO",
                    true => "the throughput of cores is not measured yet: not all are busy all the time",
                };
                return Some(AreaDecision::everywhere(Reason::new(
                    "area-waits",
                    text.to_owned(),
                    &[],
                )));
            }
            *late += u32::from(!is_full && oncall.each.iter().any(Connection::violates));
            if *late >= most {
                if let Some(cores) = left.last().filter(|_| *length_s > 0.0) {
                    measured.insert(*cores, (*sum / *length_s).max(1.0));
                }
                measured.insert(0, 0.0);
                left.clear();
            }
        }
        // The first call is about a period before any number of cores was in force.
        if *periods > self.tuning.profile_periods / 3 {
            *sum += oncall.queries as f64;
            *length_s += observation.length.get();
            *saturated &= oncall.waiting_least.is_none_or(|least| least > 0);
        }
        *periods += 1;
        if *periods > self.tuning.profile_periods && !left.is_empty() {
            let cores = left.pop().unwrap_or(self.tuning.cores);
            measured.insert(cores, (*sum / length_s.max(f64::MIN_POSITIVE)).max(1.0));
            (*periods, *sum, *length_s) = (1, 0.0, 0.0);
        }
        let Some(cores) = left.last().copied() else {
            let throughputs = (1..=self.tuning.cores).map(|cores| between(measured, cores));
            let profile = Profile::new(throughputs.map(PerSecond::new).collect()).ok()?;
            self.state = State::Running {
                profile,
                areas: Vec::new(),
                cores: None,
            };
            return None;
        };
        let text = match saturated {
            true => format!("the throughput of {cores} cores is measured"),
            false => format!(
                "the throughput of {cores} cores is measured, and at times nobody waited: it may be the demand's, not the server's"
            ),
        };
        let numbers = [("cores", f64::from(cores)), ("left", left.len() as f64)];
        Some(AreaDecision {
            areas: vec![CoreArea {
                name: "profile".to_owned(),
                cores,
                connections: oncall.each.iter().map(|of| of.id).collect(),
                workers: workers(&self.tuning, cores as usize),
                frequency: None,
            }],
            ..AreaDecision::everywhere(Reason::new("area-profile", text, &numbers))
        })
    }

    /// Lines 1 to 4: budgets of the connections, clustered, the strictest area first.
    fn cluster(&self, parts: &Parts<'_>) -> Result<Option<Vec<Members>>, AreasError> {
        let others = parts.best_effort.len() as f64;
        // Little's law with one query in flight: each best-effort connection has its part of the throughput.
        let common = Seconds::new(others / self.tuning.best_effort.get());
        // An SLO without a budget yet (too few latencies) is as strict as any.
        let known = parts.sensitive.iter().filter_map(|of| of.budget());
        let strictest = known
            .filter(|budget| budget.get() > 0.0)
            .min_by(|one, other| one.get().total_cmp(&other.get()));
        let Some(strictest) = strictest.or(parts.sensitive.is_empty().then_some(common)) else {
            return Ok(None);
        };
        let budget = |of: &&Connection| match of.slos.is_empty() {
            true => common,
            false => of.budget().unwrap_or(strictest),
        };
        let groups = |of: &[&Connection], count: u32| -> Result<Vec<Members>, AreasError> {
            if of.is_empty() {
                return Ok(Vec::new());
            }
            let budgets: Vec<Seconds> = of.iter().map(budget).collect();
            let areas = kmeans::areas(&budgets, count as usize)?;
            let members = areas.into_iter().map(|area| {
                let mut ids: Vec<u64> = area.members.iter().map(|at| of[*at].id).collect();
                ids.sort_unstable();
                let sum: f64 = area.members.iter().map(|at| 1.0 / budgets[*at].get()).sum();
                Members {
                    ids,
                    budget: PerSecond::new(sum),
                }
            });
            Ok(members.collect())
        };
        let count = self.tuning.areas;
        if self.tuning.best_effort_apart && count > 1 {
            let mut areas = groups(&parts.sensitive, count - 1)?;
            areas.extend(groups(&parts.best_effort, 1)?);
            return Ok(Some(areas));
        }
        let all = parts.sensitive.iter().chain(&parts.best_effort);
        let all: Vec<&Connection> = all.copied().collect();
        Ok(Some(groups(&all, count)?))
    }

    /// Lines 13 to 28.
    fn run(&mut self, parts: &Parts<'_>) -> AreaDecision {
        let wanted = match self.cluster(parts) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => {
                let text = "no connection has a budget yet: too few of its latencies are known".to_owned();
                return AreaDecision::everywhere(Reason::new("area-unknown", text, &[]));
            }
            Err(error) => {
                let text = format!("warning: {error}: no areas");
                return AreaDecision::everywhere(Reason::new("area-infeasible", text, &[]));
            }
        };
        let State::Running {
            profile,
            areas,
            cores,
        } = &mut self.state
        else {
            let text = "the profile has no value that can be used: no areas".to_owned();
            return AreaDecision::everywhere(Reason::new("area-unknown", text, &[]));
        };
        let mut reasons = Vec::new();
        let budgets: Vec<AreaBudget> = wanted
            .iter()
            .map(|area| AreaBudget {
                threads: area.ids.len(),
                budget: area.budget,
            })
            .collect();
        let is_same = wanted.len() == areas.len()
            && wanted
                .iter()
                .zip(areas.iter())
                .all(|(one, other)| one.ids == other.ids);
        let is_changed = |(one, other): (&Members, &Members)| {
            (one.budget.get() / other.budget.get() - 1.0).abs() > CHANGED
        };
        let changed = wanted.iter().zip(areas.iter()).any(is_changed);
        let was_divided = wanted.len() == areas.len() && cores.is_some();
        // Connections come and go: cores stay where they have moved as long as there are as many areas.
        let stays = wanted.len() == areas.len();
        let next = match cores.as_mut().filter(|_| stays) {
            Some(running) if changed || !is_same => running.rebudget(budgets).map(|()| {
                reasons.push(Reason::new(
                    "area-budgets",
                    "the budgets of areas changed".to_owned(),
                    &[],
                ));
                areas.clone_from(&wanted);
            }),
            Some(_) => Ok(()),
            None => Consolidation::new(
                budgets,
                profile.clone(),
                self.tuning.clean_periods,
                self.tuning.give_back,
            )
            .map(|first| {
                let text = format!("cores are divided among {} areas by their budgets", wanted.len());
                let numbers = [("areas", wanted.len() as f64)];
                reasons.push(Reason::new("area-divided", text, &numbers));
                *cores = Some(first);
                areas.clone_from(&wanted);
            }),
        };
        if let Err(error) = next {
            // The paper issues a warning; what is in force stays, and without anything in force everybody runs everywhere.
            let text = format!("warning: the SLOs cannot be met: {error}");
            reasons.push(Reason::new("area-infeasible", text, &[]));
        }
        let Some(running) = cores else {
            return AreaDecision {
                reasons,
                ..AreaDecision::default()
            };
        };
        let periods: Vec<AreaPeriod> = areas.iter().map(|area| period(parts, area)).collect();
        // A period before the division says nothing of it.
        if was_divided {
            reasons.extend(running.observe(&periods).into_iter().map(|moved| moved.reason));
        }
        if reasons.is_empty() {
            let violating = periods.iter().filter(|period| period.violates).count();
            let text = format!("no core can or need move: {violating} areas violate an SLO");
            reasons.push(Reason::new(
                "area-kept",
                text,
                &[("violating_areas", violating as f64)],
            ));
        }
        let each = areas.iter().zip(running.cores()).enumerate();
        let each = each.map(|(number, (area, cores))| CoreArea {
            name: name(number, areas.len()),
            cores: *cores as u32,
            connections: area.ids.clone(),
            workers: workers(&self.tuning, *cores),
            frequency: None,
        });
        AreaDecision {
            areas: each.collect(),
            reasons,
            ..AreaDecision::default()
        }
    }
}

impl AreaLaw for QosConsolidation {
    fn name(&self) -> &'static str {
        "qos-consolidation"
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let oncall = observation.oncall.as_ref()?;
        if let Some(decision) = self.profile_on(observation, oncall) {
            return Some(decision);
        }
        let parts = Parts::of(observation)?;
        if parts.sensitive.is_empty() && parts.best_effort.is_empty() {
            return None;
        }
        Some(self.run(&parts))
    }
}

/// What a period was in an area: best-effort connections violate nothing of their own, but their area does that serves less than its
/// budget while it has nothing else.
fn period(parts: &Parts<'_>, area: &Members) -> AreaPeriod {
    let is_member = |of: &&&Connection| area.ids.binary_search(&of.id).is_ok();
    let sensitive: Vec<&Connection> = parts.sensitive.iter().filter(is_member).copied().collect();
    let others: Vec<&Connection> = parts.best_effort.iter().filter(is_member).copied().collect();
    let throughput = parts.throughput(&sensitive) + parts.throughput(&others);
    let is_short = sensitive.is_empty() && throughput < area.budget;
    AreaPeriod {
        violates: is_short || sensitive.iter().any(|of| of.violates()),
        throughput,
    }
}

fn workers(tuning: &ConsolidationTuning, cores: usize) -> Option<u32> {
    let per_core = tuning.workers_per_core?;
    Some((cores as f64 * per_core).round().max(1.0) as u32)
}

/// `hot`, `warm`, or a number where there are more.
fn name(number: usize, count: usize) -> String {
    match (number, count) {
        (0, _) => "hot".to_owned(),
        (1, 2) => "warm".to_owned(),
        _ => format!("warm-{number}"),
    }
}

/// The numbers of cores to measure, the largest last: it is taken first.
fn profiled(cores: u32) -> Vec<u32> {
    let steps = cores.min(MAX_PROFILED);
    let mut counts: Vec<u32> = (1..=steps)
        .map(|step| (f64::from(cores).powf(f64::from(step) / f64::from(steps))).round() as u32)
        .map(|count| count.clamp(1, cores))
        .collect();
    counts.push(1);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The value at a number of cores, on a straight line between those that were measured; no less than with fewer.
fn between(measured: &BTreeMap<u32, f64>, cores: u32) -> f64 {
    let below = measured.range(..=cores).next_back();
    let above = measured.range(cores..).next();
    match (below, above) {
        (Some((low, least)), Some((high, most))) if high > low => {
            let along = f64::from(cores - low) / f64::from(high - low);
            least + along * (most - least)
        }
        (Some((_, value)), _) | (None, Some((_, value))) => *value,
        (None, None) => 1.0,
    }
}
