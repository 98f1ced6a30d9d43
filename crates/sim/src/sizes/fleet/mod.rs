//! Several machines of several kinds behind a router.

mod observe;
mod router;
mod scenario;
mod totals;
mod world;

pub use router::Routing;
pub use scenario::{FleetMachine, FleetScenario, Lost, RouteGroup, SwitchPlan};
pub use totals::{FleetStep, FleetTotals, GroupTotals, MachineTotals};
pub use world::run;
