//! The interface of every law.

use crate::decision::Decision;
use crate::history::LoadHistory;
use crate::observation::Observation;
use headroom_units::{Lever, Seconds};

/// A control law: a deterministic state machine, one call a period.
///
/// What is in force comes with [`Observation`], so a law needs no memory of what it asked for: what the machine
/// could really do is what counts.
pub trait Law: Send {
    /// The law's name, as in the run summary and the metrics.
    fn name(&self) -> &'static str;

    /// The levers that it moves; it leaves all others alone.
    fn levers(&self) -> &[Lever];

    /// Whether a period has what it decides by; where it does not, telemetry counts as lost to it, and a
    /// [`Guardian`](crate::Guardian) decides.
    fn is_informed(&self, observation: &Observation) -> bool {
        observation.traffic.is_some()
    }

    /// The latency above which it repairs, where it has such a one below the target: a line to draw.
    fn guard(&self) -> Option<Seconds> {
        None
    }

    /// Takes one period's observation and decides about the next period.
    fn decide(&mut self, observation: &Observation) -> Decision;

    /// Forgets what is no longer true because telemetry was lost for a while: the law begins again from everything on. What it
    /// learned that time does not change, such as how the day goes, it may keep.
    fn forget(&mut self);

    /// Recalls what came in before its first period. A law that learns nothing of the load over time ignores it.
    fn recall(&mut self, _history: &LoadHistory) {}

    /// Whether it learns of the load over time, and so recalls what came in before.
    fn recalls(&self) -> bool {
        false
    }
}
