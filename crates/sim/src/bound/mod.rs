//! The clairvoyant bound: the least energy with which the SLO can be kept in this plant when every arrival and every
//! size is known beforehand. How far is a law from the possible?
//!
//! The least energy itself is out of reach (it is the optimum over all ways of changing cores and frequencies while
//! requests come and go), so it is enclosed from both sides:
//!
//! **From below, [`lower_bound`], provable.** Let P(w) be the least power at which the nodes do w seconds of full-speed
//! work per second, over all allowed numbers of cores (as if they could be fractions), frequencies and duty cycles, node by
//! node; and P̂ its convex envelope. At each moment a schedule that works at rate w(t) draws at least P̂(w(t)), so
//! by Jensen's inequality over a run of length D in which the work W is done its energy is at least D · P̂(W/D). W is what
//! arrives until T before the end: the bound is one for schedules that have answered everything that is due. Deadlines
//! inside the run are relaxed away; they can only cost more. What is left out is therefore the price of variability: of
//! requests that come in bunches, and of cores that must wait for them.
//!
//! **From below, prompt ([`Least::prompt`]).** The same of schedules that leave no work waiting for long, with whole servers, and
//! boots that cost energy: `prompt`.
//!
//! **From above, [`clairvoyant`], achieved.** A schedule of one allocation (cores, frequency) a period, found by a beam
//! search that knows what will arrive, and then *replayed* through the simulator by an ordinary law, [`Replay`]: its totals
//! are those of a run. In each period each number of cores is tried with the lowest frequency at which the period's
//! percentile is within the target, and the next ones above; kept are the few states with the least energy, counting the
//! work that is left over at its marginal price. A period that no allocation can keep gets the one with the fewest late
//! requests.
//!
//! Where servers can be switched, the schedule is instead the best of some plans with hindsight: the cheapest path of the
//! number of servers, and the lowest frequency for it, late no more often than the joint law may be.
//!
//! The optimum lies between the two.

mod envelope;
mod fleet;
mod period;
mod prompt;
mod replay;
mod search;
mod trial;

pub use envelope::{Least, least, lower_bound};
pub use prompt::WAIT_TARGETS;
pub use replay::Replay;
pub use search::clairvoyant;

use crate::error::ScenarioError;
use crate::faults::Fault;
use crate::requests::Requests;
use crate::scenario::Scenario;
use crate::totals::Totals;
use headroom_units::{Ratio, Setting};

/// The bound of one scenario and seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// What schedules need at least.
    pub least: Least,
    /// What the schedule that was found comes to, replayed through the simulator.
    pub totals: Totals,
    /// The schedule: the setting for each period from the second on; in the first everything is on.
    pub schedule: Vec<Setting>,
}

impl Bound {
    /// By how much of what a prompt schedule needs at least the two sides differ.
    pub fn gap(&self) -> Ratio {
        Ratio::new(self.totals.energy / self.least.prompt - 1.0)
    }
}

/// Refuses what no schedule is sought for: the search knows no nodes but sound ones.
fn check_sound(scenario: &Scenario) -> Result<(), ScenarioError> {
    if !scenario.faults.is_empty() {
        let why = "is not empty: a schedule is sought for nodes that stay as they are. Leave faults out";
        return Err(ScenarioError::new("faults", why));
    }
    check(scenario)
}

/// Refuses what a bound is not defined for.
fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    scenario.check()?;
    if scenario.arrivals.mean_rate_per_s().is_none() {
        let why = "is a closed loop: what arrives depends on the schedule, so nobody can know it beforehand. \
                   Use an open loop";
        return Err(ScenarioError::new("arrivals.kind", why));
    }
    // A slow node does less work on the same energy: what no schedule can go under without it, none can with it.
    let only_slows = |fault: &Fault| matches!(fault, Fault::SlowNode { factor, .. } if *factor <= 1.0);
    if !scenario.faults.iter().all(only_slows) {
        let why = "has one that does more than to slow a node: the bound supposes that all nodes stay. Leave it out";
        return Err(ScenarioError::new("faults", why));
    }
    Ok(())
}

/// Every request of a run, in order: when it arrives and its size, both in seconds.
fn requests(scenario: &Scenario, seed: u64) -> impl Iterator<Item = (f64, f64)> {
    let mean_s = scenario.mean_service().get();
    let mut requests = Requests::new(&scenario.arrivals, &scenario.service.size, mean_s, seed);
    let end_s = scenario.duration().get();
    std::iter::from_fn(move || {
        let at_s = requests.next_s();
        Some((at_s, requests.take().0))
    })
    .take_while(move |(at_s, _)| *at_s < end_s)
}
