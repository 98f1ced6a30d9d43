//! A schedule as a law.

use headroom_control::{Decision, Law, Observation, Plant, Reason};
use headroom_units::{Lever, Setting};

/// The law that does what a schedule says: its n-th setting after the n-th period.
#[derive(Clone, Debug)]
pub struct Replay {
    plant: Plant,
    levers: Vec<Lever>,
    schedule: Vec<Setting>,
}

impl Replay {
    /// Replays a schedule; after its end, everything.
    pub fn new(plant: Plant, schedule: Vec<Setting>) -> Self {
        Self {
            levers: plant.levers(),
            plant,
            schedule,
        }
    }
}

impl Law for Replay {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn levers(&self) -> &[Lever] {
        &self.levers
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let planned = self.schedule.get(observation.period as usize).copied();
        Decision {
            setting: planned.unwrap_or_else(|| self.plant.full()),
            expected_rate: None,
            reflex: None,
            reasons: vec![Reason::new(
                "replay",
                format!("what the schedule says for period {}", observation.period + 1),
                &[],
            )],
            ..Decision::default()
        }
    }

    fn forget(&mut self) {}
}
