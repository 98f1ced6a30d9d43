//! A schedule as a law.

use headroom_control::{Allocation, Decision, Law, Observation, Plant, Reason};
use headroom_units::Lever;

/// The law that does what a schedule says: its n-th allocation after the n-th period.
#[derive(Clone, Debug)]
pub struct Replay {
    plant: Plant,
    schedule: Vec<Allocation>,
}

impl Replay {
    /// Replays a schedule; after its end, everything.
    pub const fn new(plant: Plant, schedule: Vec<Allocation>) -> Self {
        Self { plant, schedule }
    }
}

impl Law for Replay {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores, Lever::Cap, Lever::Frequency]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let planned = self.schedule.get(observation.period as usize).copied();
        let allocation = planned.unwrap_or_else(|| self.plant.full_allocation());
        Decision {
            setting: allocation.into(),
            expected_rate: None,
            reasons: vec![Reason::new(
                "replay",
                format!("what the schedule says for period {}", observation.period + 1),
                &[("cores", allocation.cores.get())],
            )],
        }
    }

    fn forget(&mut self) {}
}
