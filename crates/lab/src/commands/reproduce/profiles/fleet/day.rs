//! The fleet, the day that it serves, and what is decided beforehand: the advisor's plan, and weights by hand.

use headroom_console::Failure;
use headroom_control::placement::advisor::{
    self, Kind, PlannedStep, Problem, Routing as Spread, Serving, Step, alternatives,
};
use headroom_control::placement::{KindFigures, PlacementTuning, Routes, limit};
use headroom_control::resize::PowerTuning;
use headroom_control::{Plant, PlantError, Slo};
use headroom_physics::serving::RequestCost;
use headroom_physics::{ServingKind, ServingMachine, StudiedService};
use headroom_sim::scenario::Limits;
use headroom_sim::sizes::fleet::{FleetMachine, FleetScenario, RouteGroup, Routing, SwitchPlan};
use headroom_units::{Lever, LeverRange, PerSecond, Ratio, Seconds};
use headroom_workload::arrivals::Spacing;
use headroom_workload::{ArrivalProcess, Shape};
use std::collections::BTreeMap;
use std::f64::consts::TAU;

/// What is asked for, in units of 1024 bytes: Apache's of the paper.
pub const SIZES_KB: [u32; 3] = [1, 10, 100];
/// The hours of a day.
pub const HOURS: usize = 24;
/// The latency that 95 % of the requests are promised, of each size and of all.
pub const TARGET_MS: f64 = 20.0;
/// What of it is planned for.
pub const GUARD: f64 = 0.8;
/// Seconds between two decisions.
pub const PERIOD_S: f64 = 1.0;
/// The kinds, and how many of each, in the order in which a law of numbers switches them on: what draws least first.
pub const FLEET: [(ServingKind, u32); 3] = [
    (ServingKind::Arm, 4),
    (ServingKind::Xeon, 1),
    (ServingKind::Atom, 2),
];

/// A day of the fleet.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// How long an hour takes, simulated seconds: boots and shutdowns are shortened by as much.
    pub hour_s: f64,
    /// The load, as a share of the day's.
    pub scale: f64,
}

/// A curve over the day: least, most, and the hour of the most.
fn curve(least: f64, most: f64, peak: f64, hour: usize) -> f64 {
    // The middle of the hour.
    let angle = (hour as f64 + 0.5 - peak) / HOURS as f64 * TAU;
    least + (most - least) * (1.0 + angle.cos()) / 2.0
}

impl Day {
    /// Requests a second of each size in an hour: small ones by day, large ones at night.
    pub fn rates(self, hour: usize) -> [f64; 3] {
        [
            curve(1_000.0, 14_000.0, 14.0, hour),
            curve(300.0, 1_500.0, 20.0, hour),
            curve(60.0, 800.0, 3.0, hour),
        ]
        .map(|rate| rate * self.scale)
    }

    /// How many times as fast as a real one the day goes by.
    fn hastens(self) -> f64 {
        3_600.0 / self.hour_s
    }

    /// A machine of a kind in this day.
    pub fn machine(self, kind: ServingKind) -> ServingMachine {
        let mut machine = kind.machine();
        machine.server.boot = machine.server.boot / self.hastens();
        machine.server.shutdown = machine.server.shutdown / self.hastens();
        machine
    }

    /// The kinds of all machines, in their order.
    pub fn kinds() -> impl Iterator<Item = ServingKind> {
        FLEET
            .into_iter()
            .flat_map(|(kind, count)| (0..count).map(move |_| kind))
    }

    /// The SLO.
    ///
    /// # Errors
    /// None: the target and the percentile are constants.
    pub fn slo() -> Result<Slo, PlantError> {
        Slo::new(Ratio::new(0.95), Seconds::from_millis(TARGET_MS))
    }

    /// The scenario, every machine on.
    ///
    /// # Errors
    /// As [`slo`](Self::slo).
    pub fn scenario(self, routing: Routing) -> Result<FleetScenario, Failure> {
        let machines = Self::kinds().map(|kind| FleetMachine {
            machine: self.machine(kind),
            cost: kind.cost(StudiedService::Apache),
        });
        let machines: Vec<FleetMachine> = machines.collect();
        let group = |(size, kb): (usize, u32)| RouteGroup {
            name: format!("{kb} KB"),
            routes: 50,
            mean_bytes: f64::from(kb) * 1024.0,
            bytes: Shape::Lognormal { scv: 0.05 },
            grow: 1.0,
            arrivals: ArrivalProcess::Series {
                rates_per_s: (0..HOURS).map(|hour| self.rates(hour)[size]).collect(),
                hold_s: self.hour_s,
                spacing: Spacing::Poisson,
            },
        };
        Ok(FleetScenario {
            serving: machines.len(),
            machines,
            plan: None,
            lost: Vec::new(),
            groups: SIZES_KB.into_iter().enumerate().map(group).collect(),
            bounds_bytes: vec![4 * 1024, 32 * 1024],
            routing,
            cpu: Shape::Exponential {},
            period_s: PERIOD_S,
            duration_s: self.hour_s * HOURS as f64,
            slo: Self::slo()?,
            power_states: PowerTuning {
                warm_up_s: PowerTuning::default().warm_up_s / self.hastens(),
                ..PowerTuning::default()
            },
            limits: Limits {
                in_flight: 200_000,
                ..Limits::default()
            },
        })
    }

    /// What a request of a size takes of a kind.
    pub fn cost(kind: ServingKind, kb: u32) -> RequestCost {
        kind.cost(StudiedService::Apache).of(f64::from(kb) * 1024.0)
    }

    /// What the advisor is asked.
    fn problem(self) -> Result<Problem, Failure> {
        let slo = Self::slo()?;
        let kinds = FLEET.map(|(kind, count)| {
            let machine = self.machine(kind);
            let serves = SIZES_KB.map(|kb| {
                let cost = Self::cost(kind, kb);
                let limit = limit(&machine, cost, slo, Ratio::new(GUARD));
                Serving { cost, limit }
            });
            Kind {
                machine,
                count,
                serves: serves.to_vec(),
            }
        });
        let steps = (0..HOURS).map(|hour| Step {
            length: Seconds::new(self.hour_s),
            rates: self.rates(hour).map(PerSecond::new).to_vec(),
        });
        Ok(Problem {
            classes: SIZES_KB.map(|kb| format!("{kb} KB")).to_vec(),
            kinds: kinds.to_vec(),
            steps: steps.collect(),
            spare: false,
        })
    }

    /// The advisor's plan for this load, hour by hour; switched for least connections where `by_size` is false.
    ///
    /// # Errors
    /// A load that the fleet cannot serve.
    pub fn plan(self, by_size: bool) -> Result<Vec<PlannedStep>, Failure> {
        let problem = self.problem()?;
        if by_size {
            return Ok(advisor::plan(&problem)?.steps);
        }
        let all = alternatives(&problem)?;
        let switched = all
            .into_iter()
            .find(|one| one.switched && one.routing == Spread::LeastConnections);
        let plan = switched.map(|one| one.plan);
        let plan = plan.unwrap_or(Err(advisor::AdvisorError::Problem(
            "there is no alternative that switches machines under least connections".to_owned(),
        )));
        Ok(plan?.steps)
    }

    /// The machines of a plan, the first of each kind first.
    pub fn switching(self, steps: &[PlannedStep]) -> SwitchPlan {
        let on = steps.iter().map(|step| {
            let kinds = FLEET.iter().zip(&step.on);
            kinds
                .flat_map(|((_, count), on)| (0..*count).map(move |at| at < *on))
                .collect()
        });
        let boots = FLEET.map(|(kind, _)| self.machine(kind).server.boot.get());
        SwitchPlan {
            hold_s: self.hour_s,
            on: on.collect(),
            ahead_s: PERIOD_S + boots.into_iter().fold(0.0, f64::max),
        }
    }
}

/// The weights of a plan's step.
pub fn routes(step: &PlannedStep) -> Routes {
    let machines = Day::kinds().count();
    let mut weights = vec![vec![0; machines]; SIZES_KB.len()];
    let mut next: Vec<u32> = FLEET.iter().scan(0, first_of).collect();
    for group in &step.groups {
        for _ in 0..group.machines {
            let at = next[group.kind] as usize;
            next[group.kind] += 1;
            for (class, row) in weights.iter_mut().enumerate() {
                let whole: f64 = step.groups.iter().map(|one| one.rates[class].get()).sum();
                let own = group.rates[class].get() / f64::from(group.machines);
                row[at] = (own / whole.max(1e-9) * f64::from(Routes::MAX_WEIGHT)).round() as u32;
            }
        }
    }
    Routes {
        weights,
        ..Routes::default()
    }
}

/// The first machine of a kind, and the first after it.
fn first_of(next: &mut u32, (_, count): &(ServingKind, u32)) -> Option<u32> {
    let first = *next;
    *next += count;
    Some(first)
}

/// What a good operator sets by hand: each machine as much of a size as it can serve of it.
pub fn by_capacity() -> Routes {
    let row = |kb| {
        let most: Vec<f64> = Day::kinds()
            .map(|kind| kind.machine().capacity(Day::cost(kind, kb)).get())
            .collect();
        let largest = most.iter().copied().fold(0.0, f64::max);
        most.iter()
            .map(|one| (one / largest * f64::from(Routes::MAX_WEIGHT)).round() as u32)
            .collect()
    };
    Routes {
        weights: SIZES_KB.into_iter().map(row).collect(),
        ..Routes::default()
    }
}

/// What the law is told.
pub fn tuning() -> PlacementTuning {
    let machines = Day::kinds()
        .enumerate()
        .map(|(at, kind)| (format!("{}-{at}", kind.name()), kind.name().to_owned()));
    let kinds: BTreeMap<String, KindFigures> = ServingKind::ALL
        .into_iter()
        .map(|kind| {
            let service = kind.cost(StudiedService::Apache).base;
            (kind.name().to_owned(), KindFigures::of(&kind.machine(), &service))
        })
        .collect();
    PlacementTuning {
        guard: GUARD,
        machines: machines.collect(),
        kinds,
        // There is no network and no gateway between the router and its machines here.
        path_ms: 0.0,
        ..PlacementTuning::default()
    }
}

/// What an operator who switches by number has to take for what any machine serves, requests a second: the weakest kind under the guard,
/// with the mix of the day of which it serves the fewest.
///
/// # Errors
/// None: target and percentile are constants.
pub fn safe_capacity(day: Day) -> Result<PerSecond, Failure> {
    let slo = Day::slo()?;
    let arm = ServingKind::Arm.machine();
    let busy = |kb| limit(&arm, Day::cost(ServingKind::Arm, kb), slo, Ratio::new(GUARD));
    let busy = SIZES_KB
        .into_iter()
        .filter_map(busy)
        .fold(Ratio::new(1.0), Ratio::min);
    let of_hour = |hour| {
        let rates = day.rates(hour);
        let requests = SIZES_KB.into_iter().zip(rates);
        let load =
            arm.load(requests.map(|(kb, rate)| (Day::cost(ServingKind::Arm, kb), PerSecond::new(rate))));
        rates.iter().sum::<f64>() / load.most().get() * busy.get()
    };
    Ok(PerSecond::new(
        (0..HOURS).map(of_hour).fold(f64::INFINITY, f64::min),
    ))
}

/// The plant of the fleet's laws.
///
/// # Errors
/// None: the range is a constant.
pub fn plant() -> Result<Plant, PlantError> {
    Plant::of_servers(Day::kinds().count()).with_range(Lever::Placement, LeverRange::between(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_come_by_day_and_large_ones_at_night() {
        let day = Day {
            hour_s: 30.0,
            scale: 1.0,
        };
        let [small, _, large] = day.rates(14);
        let [fewer, _, more] = day.rates(3);
        assert!(
            small > 8.0 * fewer && more > 5.0 * large,
            "{small} {fewer} {more} {large}"
        );
    }

    #[test]
    fn a_plan_s_weights_are_its_rates_and_nobody_who_is_off_has_one() {
        let day = Day {
            hour_s: 30.0,
            scale: 1.0,
        };
        let steps = day.plan(true).unwrap();
        let switching = day.switching(&steps);
        assert_eq!((steps.len(), switching.on.len()), (HOURS, HOURS));
        for (step, on) in steps.iter().zip(&switching.on) {
            let routes = routes(step);
            for (class, row) in routes.weights.iter().enumerate() {
                assert!((990..=1_010).contains(&row.iter().sum::<u32>()), "{row:?}");
                assert!(
                    row.iter().zip(on).all(|(weight, on)| *weight == 0 || *on),
                    "{row:?} {on:?}"
                );
                let whole: f64 = (0..FLEET.len()).map(|kind| step.rate(kind, class).get()).sum();
                let arms = f64::from(row[..4].iter().sum::<u32>()) / f64::from(row.iter().sum::<u32>());
                let planned = step.rate(0, class).get() / whole;
                assert!((arms - planned).abs() < 0.01, "{row:?} {planned}");
            }
        }
    }
}
