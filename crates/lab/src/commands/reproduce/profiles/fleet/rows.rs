//! The ways to run the fleet that are compared.

use super::day::{self, Day};
use headroom_console::Failure;
use headroom_control::placement::{Placement, Routes};
use headroom_control::resize::{ResizeTuning, Stepwise};
use headroom_control::stack::{Part, Stack};
use headroom_control::{Decision, Observation};
use headroom_sim::Controller;
use headroom_sim::sizes::fleet::{FleetScenario, Routing};
use headroom_units::Seconds;

/// Periods without telemetry after which everything is put to full.
const PATIENCE: u32 = 5;

/// A way to run the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All on, the next in turn.
    RoundRobin,
    /// All on, where the fewest are.
    LeastConnections,
    /// All on, each machine as much of a size as it can serve of it.
    ByCapacity,
    /// All on, the law of placement.
    Placement,
    /// What the controller of a fixed capacity switches, least connections.
    StaticLeastConnections,
    /// What the controller of a fixed capacity switches, the law of placement.
    StaticPlacement,
    /// The machines of the plan for least connections.
    PlanLeastConnections,
    /// The machines of the plan by size, the law of placement.
    PlanPlacement,
    /// The machines and routes of the plan by size.
    Plan,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::RoundRobin,
        Self::LeastConnections,
        Self::ByCapacity,
        Self::Placement,
        Self::StaticLeastConnections,
        Self::StaticPlacement,
        Self::PlanLeastConnections,
        Self::PlanPlacement,
        Self::Plan,
    ];

    /// Those that leave everything on.
    pub const ALL_ON: [Self; 4] = [
        Self::RoundRobin,
        Self::LeastConnections,
        Self::ByCapacity,
        Self::Placement,
    ];

    /// As the tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "all on, round robin",
            Self::LeastConnections => "all on, least connections",
            Self::ByCapacity => "all on, weights by capacity",
            Self::Placement => "all on, placement",
            Self::StaticLeastConnections => "static, least connections",
            Self::StaticPlacement => "static, placement",
            Self::PlanLeastConnections => "plan for least connections",
            Self::PlanPlacement => "plan by size, placement",
            Self::Plan => "plan by size, its routes",
        }
    }

    /// The world.
    ///
    /// # Errors
    /// A load that the fleet cannot be planned for.
    pub fn scenario(self, day: Day) -> Result<FleetScenario, Failure> {
        let routing = match self {
            Self::RoundRobin => Routing::RoundRobin,
            Self::LeastConnections | Self::StaticLeastConnections | Self::PlanLeastConnections => {
                Routing::LeastConnections
            }
            Self::ByCapacity | Self::Placement | Self::StaticPlacement | Self::PlanPlacement | Self::Plan => {
                Routing::ByLaw
            }
        };
        let by_size = match self {
            Self::PlanLeastConnections => Some(false),
            Self::PlanPlacement | Self::Plan => Some(true),
            _ => None,
        };
        let plan = by_size.map(|by_size| day.plan(by_size)).transpose()?;
        Ok(FleetScenario {
            plan: plan.map(|steps| day.switching(&steps)),
            ..day.scenario(routing)?
        })
    }

    /// The law.
    ///
    /// # Errors
    /// A load that the fleet cannot be planned for; none of the laws' own, whose parameters are constants.
    pub fn law(self, day: Day) -> Result<Box<dyn Controller>, Failure> {
        Ok(match self {
            Self::RoundRobin | Self::LeastConnections | Self::PlanLeastConnections => {
                Box::new(Beforehand::of(day, Vec::new()))
            }
            Self::ByCapacity => Box::new(Beforehand::of(day, vec![day::by_capacity()])),
            Self::Plan => {
                let steps = day.plan(true)?;
                Box::new(Beforehand::of(day, steps.iter().map(day::routes).collect()))
            }
            Self::Placement | Self::PlanPlacement => Box::new(stack(vec![placement()?])?),
            Self::StaticLeastConnections => Box::new(stack(vec![by_number(day)?])?),
            Self::StaticPlacement => Box::new(stack(vec![by_number(day)?, placement()?])?),
        })
    }
}

fn stack(parts: Vec<Part>) -> Result<Stack, Failure> {
    let plant = day::plant()?;
    Ok(Stack::new(parts, plant, PATIENCE)?)
}

fn placement() -> Result<Part, Failure> {
    let slo = Day::slo()?;
    let plant = day::plant()?;
    let law = Placement::new(slo, &plant, day::tuning())?;
    Ok(Part::new(Box::new(law)))
}

fn by_number(day: Day) -> Result<Part, Failure> {
    let tuning = ResizeTuning {
        // Boots are shortened with the day, and so is what is waited for after them.
        warm_up_s: day::PERIOD_S,
        spare_for_s: 3.0 * day::PERIOD_S,
        ..ResizeTuning::default()
    };
    let law = Stepwise::fixed(day::safe_capacity(day)?, tuning)?;
    Ok(Part::new(Box::new(law)))
}

/// Routes that were decided beforehand, hour by hour; the last ones stay.
#[derive(Clone, Debug)]
struct Beforehand {
    hour: Seconds,
    routes: Vec<Routes>,
}

impl Beforehand {
    const fn of(day: Day, routes: Vec<Routes>) -> Self {
        Self {
            hour: Seconds::new(day.hour_s),
            routes,
        }
    }
}

impl Controller for Beforehand {
    fn decide(&mut self, observation: &Observation) -> Decision {
        // The hour of the period that begins.
        let hour = (observation.at / self.hour + 1e-9) as usize;
        let routes = self.routes.get(hour).or(self.routes.last());
        Decision {
            routes: routes.cloned(),
            ..Decision::default()
        }
    }
}
