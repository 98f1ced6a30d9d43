//! QoS-centric workload consolidation: how many cores each area of threads has.
//!
//! Source: REEF Section 4 and Algorithm 1 \[F\]. Areas are ordered from the strictest SLO (index 0) to the loosest. Where the
//! paper is ambiguous, this is what is done here \[D\]:
//!
//! - The correction factor α is TP[Cores\[k\]] / measured. An area with little demand has a large α and gives nothing; one that
//!   served nothing has none and gives nothing, unless it has no thread.
//! - Lines 24 to 27 have no `break`, so a donor could give several cores on one measurement. Here an area gives at most one
//!   core a period, and a proactive phase moves one core in all: each move changes what was measured.
//! - The loosest area has no looser donor, so cores that it gave never return. With `give_back`, where a violating area finds
//!   no looser donor, the loosest stricter area that meets its SLO and has more cores than at first gives one back, and the
//!   wait before the next proactive move doubles.
//! - The text monitors every 100 ms, the algorithm every second: a proactive move comes after `clean_periods` periods without
//!   a violation.
//! - The paper does not check that the strictest area's rest keeps its budget; here that is infeasible.

use crate::decision::Reason;
use headroom_units::PerSecond;

/// Doublings of the wait before a proactive move at most.
const MAX_DOUBLINGS: u32 = 6;

/// Why areas cannot have what they ask for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConsolidationError {
    /// The profile is empty or has a value that is not a positive number.
    #[error("the throughput profile must have a positive, finite value for every number of cores from 1")]
    Profile,
    /// A budget is negative or not finite, or its area has threads and no budget or the reverse.
    #[error("area {0} must have a budget greater than 0 with threads, and 0 without")]
    Budget(usize),
    /// The sum of the budgets exceeds what the application can sustain.
    #[error("the areas ask for {asked:.1}/s in sum, and the application sustains {sustained:.1}/s")]
    Throughput {
        /// The sum of the budgets, per second.
        asked: f64,
        /// The most of the profile, per second.
        sustained: f64,
    },
    /// The least cores of all areas are more than there are.
    #[error("the areas need {asked} cores in sum, and there are {cores}")]
    Cores {
        /// The sum of the least cores of each area.
        asked: usize,
        /// The cores that there are.
        cores: usize,
    },
}

/// TP[1..C]: the application's throughput by the number of cores, measured beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile(Vec<PerSecond>);

impl Profile {
    /// Throughputs of 1, 2, ... cores, in queries per second.
    ///
    /// # Errors
    /// [`ConsolidationError::Profile`].
    pub fn new(throughputs: Vec<PerSecond>) -> Result<Self, ConsolidationError> {
        let fits = throughputs.iter().all(|tp| tp.get() > 0.0 && tp.is_finite());
        match fits && !throughputs.is_empty() {
            true => Ok(Self(throughputs)),
            false => Err(ConsolidationError::Profile),
        }
    }

    /// C, the number of cores.
    pub fn cores(&self) -> usize {
        self.0.len()
    }

    /// TP of this many cores: 0 of none, the last value beyond C.
    pub fn at(&self, cores: usize) -> PerSecond {
        match cores {
            0 => PerSecond::ZERO,
            _ => self.0[cores.min(self.0.len()) - 1],
        }
    }

    /// The fewest cores with at least this throughput; `None` where none has it.
    pub fn least(&self, budget: PerSecond) -> Option<usize> {
        (0..=self.cores()).find(|cores| self.at(*cores) >= budget)
    }
}

/// An area's threads and B_r, the sum of their throughput budgets in queries per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AreaBudget {
    /// Threads in the area.
    pub threads: usize,
    /// B_r.
    pub budget: PerSecond,
}

/// The first allocation of Algorithm 1, lines 6 to 12: the least cores for every area but the strictest, which has the rest.
///
/// # Errors
/// [`ConsolidationError`] where a budget cannot be, or the budgets cannot all be kept.
pub fn allocate(areas: &[AreaBudget], profile: &Profile) -> Result<Vec<usize>, ConsolidationError> {
    for (index, area) in areas.iter().enumerate() {
        let budget = area.budget.get();
        if !(budget >= 0.0 && budget.is_finite()) || (area.threads > 0) != (budget > 0.0) {
            return Err(ConsolidationError::Budget(index));
        }
    }
    let asked: f64 = areas.iter().map(|area| area.budget.get()).sum();
    let sustained = (1..=profile.cores())
        .map(|cores| profile.at(cores).get())
        .fold(0.0, f64::max);
    let least: Option<Vec<usize>> = areas.iter().map(|area| profile.least(area.budget)).collect();
    let least = least.filter(|_| asked <= sustained);
    let Some(mut cores) = least else {
        return Err(ConsolidationError::Throughput { asked, sustained });
    };
    let needed: usize = cores.iter().sum();
    let rest = profile
        .cores()
        .checked_sub(needed)
        .ok_or(ConsolidationError::Cores {
            asked: needed,
            cores: profile.cores(),
        })?;
    if let Some(strictest) = cores.first_mut() {
        *strictest += rest;
    }
    Ok(cores)
}

/// What one period measured of an area.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AreaPeriod {
    /// Whether any of its threads violates its SLO.
    pub violates: bool,
    /// Its total throughput, in queries per second.
    pub throughput: PerSecond,
}

/// One core that moves.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreMove {
    /// The donor, by area.
    pub from: usize,
    /// The receiver, by area.
    pub to: usize,
    /// Why.
    pub reason: Reason,
}

/// The running part of Algorithm 1, lines 13 to 28.
#[derive(Clone, Debug)]
pub struct Consolidation {
    areas: Vec<AreaBudget>,
    profile: Profile,
    first: Vec<usize>,
    cores: Vec<usize>,
    clean_periods: u32,
    give_back: bool,
    clean: u32,
    doublings: u32,
}

impl Consolidation {
    /// Begins with the first allocation. A proactive move needs `clean_periods` periods without a violation before it
    /// (10 of 100 ms are the paper's second); `give_back` as in the module's text, `false` for the paper as published.
    ///
    /// # Errors
    /// As [`allocate`].
    pub fn new(
        areas: Vec<AreaBudget>,
        profile: Profile,
        clean_periods: u32,
        give_back: bool,
    ) -> Result<Self, ConsolidationError> {
        let first = allocate(&areas, &profile)?;
        let cores = first.clone();
        Ok(Self {
            areas,
            profile,
            first,
            cores,
            clean_periods,
            give_back,
            clean: 0,
            doublings: 0,
        })
    }

    /// Other budgets of the same areas from now on. Cores stay where they are: from there they move.
    ///
    /// # Errors
    /// As [`allocate`]; the budgets of before stay then.
    pub fn rebudget(&mut self, areas: Vec<AreaBudget>) -> Result<(), ConsolidationError> {
        self.first = allocate(&areas, &self.profile)?;
        self.areas = areas;
        Ok(())
    }

    /// Cores of each area; their sum never changes.
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// Takes a period's measurement of every area, in order, and moves cores. An area without a measurement neither violates
    /// nor gives.
    pub fn observe(&mut self, periods: &[AreaPeriod]) -> Vec<CoreMove> {
        let violates = |area: usize| periods.get(area).is_some_and(|period| period.violates);
        let count = self.areas.len();
        let mut gave = vec![false; count];
        let mut moves = Vec::new();
        if !(0..count).any(violates) {
            self.clean = self.clean.saturating_add(1);
            if self.clean > self.clean_periods.saturating_mul(1 << self.doublings) {
                let pairs = (0..count).flat_map(|to| (to + 1..count).rev().map(move |from| (from, to)));
                let needs = |to: &usize| self.areas[*to].threads > 0;
                let pair = pairs
                    .filter(|(_, to)| needs(to))
                    .find(|(from, _)| self.can_give(*from, periods));
                if let Some((from, to)) = pair {
                    moves.push(self.transfer(from, to, "area-proactive", periods));
                    self.clean = 0;
                }
            }
            return moves;
        }
        self.clean = 0;
        for to in (0..count).filter(|area| violates(*area)) {
            let donor = |from: &usize| !gave[*from] && self.can_give(*from, periods);
            let looser = (to + 1..count).rev().find(donor);
            if let Some(from) = looser {
                gave[from] = true;
                moves.push(self.transfer(from, to, "area-reactive", periods));
            } else if self.give_back && self.cores[to] < self.first[to] {
                let returns =
                    |from: &usize| !gave[*from] && !violates(*from) && self.cores[*from] > self.first[*from];
                if let Some(from) = (0..to).rev().find(returns) {
                    gave[from] = true;
                    self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
                    moves.push(self.transfer(from, to, "area-give-back", periods));
                }
            }
        }
        moves
    }

    /// TP[Cores\[k\] - 1] > α B_k, and a core is left where there is a thread.
    fn can_give(&self, area: usize, periods: &[AreaPeriod]) -> bool {
        let (cores, of) = (self.cores[area], self.areas[area]);
        let Some(period) = periods.get(area) else {
            return false;
        };
        if cores == 0 || period.violates {
            return false;
        }
        if of.threads == 0 {
            return true;
        }
        let factor = self.profile.at(cores).get() / period.throughput.get();
        cores > 1 && factor > 0.0 && self.profile.at(cores - 1).get() > factor * of.budget.get()
    }

    fn transfer(&mut self, from: usize, to: usize, rule: &'static str, periods: &[AreaPeriod]) -> CoreMove {
        let numbers = [
            ("from_area", from as f64),
            ("to_area", to as f64),
            ("from_cores", self.cores[from] as f64),
            ("to_cores", self.cores[to] as f64),
            ("from_budget_per_s", self.areas[from].budget.get()),
            (
                "from_measured_per_s",
                periods.get(from).map_or(0.0, |period| period.throughput.get()),
            ),
        ];
        self.cores[from] -= 1;
        self.cores[to] += 1;
        let text = format!(
            "a core of area {from}, which has {} left, goes to area {to}",
            self.cores[from]
        );
        CoreMove {
            from,
            to,
            reason: Reason::new(rule, text, &numbers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn profile(cores: usize) -> Profile {
        Profile::new(
            (1..=cores)
                .map(|cores| PerSecond::new(100.0 * cores as f64))
                .collect(),
        )
        .unwrap()
    }

    fn area(budget: f64) -> AreaBudget {
        AreaBudget {
            threads: usize::from(budget > 0.0),
            budget: PerSecond::new(budget),
        }
    }

    fn period(violates: bool, throughput: f64) -> AreaPeriod {
        AreaPeriod {
            violates,
            throughput: PerSecond::new(throughput),
        }
    }

    #[test]
    fn the_strictest_has_the_rest_and_sums_are_named_where_it_fails() {
        assert_eq!(
            allocate(&[area(150.0), area(250.0), area(0.0)], &profile(8)),
            Ok(vec![5, 3, 0])
        );
        let much = allocate(&[area(500.0), area(400.0)], &profile(8))
            .unwrap_err()
            .to_string();
        assert_eq!(
            much,
            "the areas ask for 900.0/s in sum, and the application sustains 800.0/s"
        );
        let cores = allocate(&[area(110.0), area(110.0), area(110.0)], &profile(5)).unwrap_err();
        assert_eq!(cores, ConsolidationError::Cores { asked: 6, cores: 5 });
        assert_eq!(
            allocate(
                &[AreaBudget {
                    threads: 1,
                    ..area(0.0)
                }],
                &profile(1)
            ),
            Err(ConsolidationError::Budget(0))
        );
    }

    #[test]
    fn a_violation_takes_from_the_loosest_that_can_give() {
        let mut running =
            Consolidation::new(vec![area(100.0), area(100.0), area(250.0)], profile(5), 0, true).unwrap();
        assert_eq!(running.cores(), [1, 1, 3]);
        // α = 300 / 400: 200 > 187.5.
        let moves = running.observe(&[period(true, 90.0), period(false, 100.0), period(false, 400.0)]);
        assert_eq!(
            (moves.len(), moves[0].from, &*moves[0].reason.rule),
            (1, 2, "area-reactive")
        );
        assert_eq!(running.cores(), [2, 1, 2]);
        // α = 200 / 150: nothing to give. It violates now, and has its core back.
        let moves = running.observe(&[period(false, 90.0), period(false, 100.0), period(true, 150.0)]);
        assert_eq!(
            (moves[0].from, moves[0].to, &*moves[0].reason.rule),
            (0, 2, "area-give-back")
        );
        let moves = running.observe(&[period(false, 90.0), period(false, 100.0), period(false, 0.0)]);
        assert!(moves.is_empty());
    }

    #[test]
    fn cores_move_to_the_strictest_while_all_is_met() {
        let mut running = Consolidation::new(vec![area(100.0), area(150.0)], profile(4), 2, true).unwrap();
        let met = [period(false, 100.0), period(false, 400.0)];
        let moved: Vec<usize> = (0..4).map(|_| running.observe(&met).len()).collect();
        assert_eq!(moved, [0, 0, 1, 0]);
        assert_eq!(running.cores(), [3, 1]);
    }

    proptest! {
        /// Whatever is measured, the sum of cores is kept and no area with a thread loses its last core.
        #[test]
        fn sums_are_kept(
            budgets in proptest::collection::vec(0.0..300.0f64, 1..6),
            periods in proptest::collection::vec(proptest::collection::vec((any::<bool>(), 0.0..3_000.0f64), 6), 1..60),
        ) {
            let areas: Vec<_> = budgets.iter().map(|budget| area(*budget)).collect();
            let Ok(mut running) = Consolidation::new(areas.clone(), profile(24), 1, true) else { return Ok(()) };
            for of in periods {
                let of: Vec<_> = of.into_iter().map(|(violates, tp)| period(violates, tp)).collect();
                running.observe(&of);
                prop_assert_eq!(running.cores().iter().sum::<usize>(), 24);
                prop_assert!(running.cores().iter().zip(&areas).all(|(cores, area)| *cores > 0 || area.threads == 0));
            }
        }
    }
}
