//! What a fleet is made of, and what it is asked.

use super::router::Routing;
use crate::error::{ScenarioError, within};
use crate::scenario::Limits;
use headroom_control::Slo;
use headroom_control::resize::{MAX_SERVERS, PowerTuning};
use headroom_physics::ServingMachine;
use headroom_physics::serving::StudiedCost;
use headroom_workload::{ArrivalProcess, Shape};

/// The most routes of all groups together: what a router learns of each is kept.
const MAX_ROUTES: u64 = 1_000_000;
/// The most groups of routes, and the most bounds of classes.
const MAX_GROUPS: usize = 64;

/// A machine, and what the service takes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetMachine {
    /// The machine. Those of one name are of one kind.
    pub machine: ServingMachine,
    /// What a request takes by the size of its answer.
    pub cost: StudiedCost,
}

/// Routes whose answers are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteGroup {
    /// What they are.
    pub name: String,
    /// How many; each request asks for one of them, all as often.
    pub routes: u32,
    /// Mean content of an answer, bytes.
    pub mean_bytes: f64,
    /// How answers spread around it, also those of one route.
    pub bytes: Shape,
    /// How many times as large as at the beginning answers are at the end of the run, growing evenly in ratio; 1 where they stay.
    pub grow: f64,
    /// When requests come: an open loop.
    pub arrivals: ArrivalProcess,
}

/// Which machines are on, planned beforehand: in the place of a law's number, which cannot say which.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchPlan {
    /// How long each step lasts, seconds.
    pub hold_s: f64,
    /// Of each step, whether each machine is on. The last one stays.
    pub on: Vec<Vec<bool>>,
    /// How long before a step its machines are switched on, seconds: what the slowest boot takes.
    pub ahead_s: f64,
}

/// A machine that is lost with all that it holds, and can be started again later. It is lost, and seen to be, at the end of the period in
/// which it falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// Which.
    pub machine: usize,
    /// When, seconds.
    pub from_s: f64,
    /// Until when no boot of it succeeds, seconds.
    pub until_s: f64,
}

/// Machines behind a router, and the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetScenario {
    /// The machines, in the order in which they are switched on.
    pub machines: Vec<FleetMachine>,
    /// How many of them serve at the beginning, the first ones.
    pub serving: usize,
    /// Which machines are on; `None` where a law says how many. With a plan, its first step serves at the beginning.
    pub plan: Option<SwitchPlan>,
    /// Machines that are lost.
    pub lost: Vec<Lost>,
    /// The requests.
    pub groups: Vec<RouteGroup>,
    /// The largest content of each class of sizes but the largest, bytes, rising. What a law is told of and routes by.
    pub bounds_bytes: Vec<u64>,
    /// Where requests go.
    pub routing: Routing,
    /// How the processor time of requests spreads around what their size takes.
    pub cpu: Shape,
    /// Seconds between two decisions.
    pub period_s: f64,
    /// Simulated time, seconds.
    pub duration_s: f64,
    /// What requests are promised.
    pub slo: Slo,
    /// The time limits of the machines' power states.
    pub power_states: PowerTuning,
    /// What ends a run that would not end.
    pub limits: Limits,
}

impl FleetScenario {
    /// Checks the figures.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let count = self.machines.len();
        within("machines", count as f64, 1.0, MAX_SERVERS as f64, "")?;
        within("serving", self.serving as f64, 1.0, count as f64, "")?;
        within("groups", self.groups.len() as f64, 1.0, MAX_GROUPS as f64, "")?;
        within(
            "bounds_bytes",
            self.bounds_bytes.len() as f64,
            0.0,
            MAX_GROUPS as f64,
            "",
        )?;
        within("period_s", self.period_s, 1e-3, 3_600.0, " seconds")?;
        within("duration_s", self.duration_s, self.period_s, 1e9, " seconds")?;
        for (at, one) in self.machines.iter().enumerate() {
            let key = |key: &str| format!("machines.{at}.{key}");
            let bad =
                |error: headroom_physics::FigureError| ScenarioError::new(key("machine"), error.to_string());
            one.machine.check().map_err(bad)?;
            let least = one.cost.of(0.0);
            within(&key("cost.cpu"), least.cpu.get(), 1e-9, 3_600.0, " seconds")?;
        }
        let mut routes = 0;
        for (at, group) in self.groups.iter().enumerate() {
            let key = |key: &str| format!("groups.{at}.{key}");
            within(
                &key("routes"),
                f64::from(group.routes),
                1.0,
                MAX_ROUTES as f64,
                "",
            )?;
            within(&key("mean_bytes"), group.mean_bytes, 1.0, 1e12, " bytes")?;
            group.bytes.check(&key("bytes"))?;
            within(&key("grow"), group.grow, 1e-3, 1e3, "")?;
            group.arrivals.check(&key("arrivals"))?;
            if group.arrivals.mean_rate_per_s().is_none() {
                let why = "is a closed loop: a fleet is asked by open loops, as poisson or series";
                return Err(ScenarioError::new(key("arrivals"), why));
            }
            routes += u64::from(group.routes);
        }
        within(
            "groups",
            routes as f64,
            1.0,
            MAX_ROUTES as f64,
            " routes together",
        )?;
        if !self.bounds_bytes.is_sorted_by(|one, next| one < next) {
            return Err(ScenarioError::new(
                "bounds_bytes",
                "must rise from one to the next",
            ));
        }
        if let Some(plan) = &self.plan {
            plan.check(count)?;
        }
        for (at, lost) in self.lost.iter().enumerate() {
            let key = |key: &str| format!("lost.{at}.{key}");
            within(&key("machine"), lost.machine as f64, 0.0, count as f64 - 1.0, "")?;
            within(&key("from_s"), lost.from_s, 0.0, 1e9, " seconds")?;
            within(&key("until_s"), lost.until_s, lost.from_s, 1e9, " seconds")?;
        }
        self.cpu.check("cpu")?;
        self.power_states.check().map_err(|error| {
            let why = format!("{}: it must be {}", error.is(), error.range);
            ScenarioError::new(format!("power_states.{}", error.key), why)
        })
    }
}

impl SwitchPlan {
    fn check(&self, machines: usize) -> Result<(), ScenarioError> {
        within("plan.hold_s", self.hold_s, 1e-3, 1e9, " seconds")?;
        within("plan.ahead_s", self.ahead_s, 0.0, 1e9, " seconds")?;
        within("plan.on", self.on.len() as f64, 1.0, 1e6, " steps")?;
        for (at, step) in self.on.iter().enumerate() {
            if step.len() != machines {
                let why = format!("says {} machines, of {machines}", step.len());
                return Err(ScenarioError::new(format!("plan.on.{at}"), why));
            }
            if !step.contains(&true) {
                let why = "leaves nobody on: one machine at least serves";
                return Err(ScenarioError::new(format!("plan.on.{at}"), why));
            }
        }
        Ok(())
    }

    /// Which are to be on at a time: those of its step, and those of the steps that begin until [`ahead_s`](Self::ahead_s) later.
    pub(super) fn wanted(&self, now_s: f64) -> Vec<bool> {
        let step = |time_s: f64| ((time_s / self.hold_s + 1e-9) as usize).min(self.on.len() - 1);
        let mut wanted = self.on[step(now_s)].clone();
        for step in &self.on[step(now_s) + 1..=step(now_s + self.ahead_s)] {
            wanted.iter_mut().zip(step).for_each(|(wanted, on)| *wanted |= on);
        }
        wanted
    }
}
