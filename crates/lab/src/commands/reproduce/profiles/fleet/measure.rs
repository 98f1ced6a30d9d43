//! A run of the fleet's day, and what it comes to.

use super::day::{Day, HOURS, SIZES_KB};
use super::rows::Way;
use headroom_console::Failure;
use headroom_control::Latency;
use headroom_sim::RunError;
use headroom_sim::sizes::SizesEnergy;
use headroom_sim::sizes::fleet::{FleetStep, FleetTotals, run};
use headroom_units::Ratio;
use serde::Serialize;

/// Mean power by cause, W.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ByCause {
    /// Machines that are on.
    pub idle_w: f64,
    /// Busy cores.
    pub work_w: f64,
    /// Busy links.
    pub link_w: f64,
    /// Machines that are off.
    pub off_w: f64,
    /// Boots and shutdowns.
    pub switching_w: f64,
}

impl ByCause {
    fn over(energy: SizesEnergy, length_s: f64) -> Self {
        Self {
            idle_w: energy.idle.get() / length_s,
            work_w: energy.work.get() / length_s,
            link_w: energy.link.get() / length_s,
            off_w: energy.off.get() / length_s,
            switching_w: energy.switching.get() / length_s,
        }
    }

    /// All of it, W.
    pub fn total(&self) -> f64 {
        self.idle_w + self.work_w + self.link_w + self.off_w + self.switching_w
    }

    /// What requests draw, wherever they are served, W.
    pub fn served_w(&self) -> f64 {
        self.work_w + self.link_w
    }
}

/// What a run comes to.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Mean power by cause.
    pub power: ByCause,
    /// The same of each hour.
    pub hours: Vec<ByCause>,
    /// Periods in which the percentile of all requests was over the target, percent.
    pub late_percent: f64,
    /// The same of the requests of each size.
    pub late_by_size_percent: [f64; 3],
    /// The percentile of each size over the whole day, ms.
    pub p95_ms: [f64; 3],
    /// Requests answered.
    pub completed: u64,
    /// Requests refused, or lost with their machine.
    pub failed: u64,
    /// How often routes changed.
    pub route_changes: u64,
}

/// A run that ended, or when more requests were waiting than can be.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ended.
    Ended(Box<Run>),
    /// The fleet was overloaded: at this hour.
    Overloaded {
        /// The hour.
        hour: f64,
    },
}

impl Outcome {
    /// The run, if it ended.
    pub fn run(&self) -> Option<&Run> {
        match self {
            Self::Ended(run) => Some(run),
            Self::Overloaded { .. } => None,
        }
    }
}

/// Runs a day.
///
/// # Errors
/// A load that the fleet cannot be planned for, a run that does not end.
pub fn measure(way: Way, day: Day, seed: u64) -> Result<Outcome, Failure> {
    let scenario = way.scenario(day)?;
    let mut law = way.law(day)?;
    let mut hours = vec![SizesEnergy::default(); HOURS];
    let (mut late, mut weights, mut route_changes) = ([0u64; 3], None, 0);
    let mut sink = |step: &FleetStep<'_>| {
        // The middle of the period that ended.
        let at_s = (step.observation.at - step.observation.length * 0.5).get();
        let hour = ((at_s / day.hour_s) as usize).min(HOURS - 1);
        step.energy.iter().for_each(|energy| hours[hour] += *energy);
        let classes = step.observation.sizes.iter().flat_map(|sizes| &sizes.classes);
        for (late, class) in late.iter_mut().zip(classes) {
            let missed = |latency: Latency| latency.missed || latency.at_slo > scenario.slo.target();
            *late += u64::from(class.latency.is_some_and(missed));
        }
        // Bounds follow the load in every period.
        let decided = step.decision.routes.as_ref().map(|routes| routes.weights.clone());
        if decided != weights {
            route_changes += u64::from(step.observation.period > 0);
            weights = decided;
        }
    };
    match run(&scenario, &mut *law, seed, &mut sink) {
        Ok(totals) => Ok(Outcome::Ended(Box::new(come_to(
            &totals,
            day,
            &hours,
            late,
            route_changes,
        )))),
        Err(RunError::TooManyInFlight { at_s, .. }) => Ok(Outcome::Overloaded {
            hour: at_s / day.hour_s,
        }),
        Err(error) => Err(error.into()),
    }
}

fn come_to(totals: &FleetTotals, day: Day, hours: &[SizesEnergy], late: [u64; 3], route_changes: u64) -> Run {
    let percent = |periods: u64| periods as f64 / totals.periods as f64 * 100.0;
    let p95 = |size: usize| {
        let latency = totals.groups[size].latency.percentile(Ratio::new(0.95));
        latency.map_or(f64::NAN, |latency| latency.as_millis())
    };
    let by_size: [usize; SIZES_KB.len()] = std::array::from_fn(|size| size);
    Run {
        power: ByCause::over(totals.energy(), day.hour_s * HOURS as f64),
        hours: hours
            .iter()
            .map(|energy| ByCause::over(*energy, day.hour_s))
            .collect(),
        late_percent: percent(totals.periods_missed),
        late_by_size_percent: late.map(percent),
        p95_ms: by_size.map(p95),
        completed: totals.completed,
        failed: totals.refused + totals.lost,
        route_changes,
    }
}
