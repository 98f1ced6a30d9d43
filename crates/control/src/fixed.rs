//! Everything on, always: all cores, no cap that limits. What is saved is measured against this.

use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::plant::Plant;
use headroom_units::Lever;

/// The law that allocates everything.
#[derive(Clone, Debug)]
pub struct Fixed {
    plant: Plant,
    levers: Vec<Lever>,
}

impl Fixed {
    /// Everything of this plant.
    pub fn new(plant: Plant) -> Self {
        let levers = plant.levers();
        Self { plant, levers }
    }
}

impl Law for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    /// All of the plant's: a law beside it would take away what it is to keep on.
    fn levers(&self) -> &[Lever] {
        &self.levers
    }

    fn decide(&mut self, _seen: &Observation) -> Decision {
        let allocation = self.plant.full_allocation();
        let (cores, cap) = (allocation.cores.get(), allocation.cap.get());
        // Of a plant that cannot be capped the cap is no figure.
        let text = match self.levers.contains(&Lever::Cap) {
            true => format!("all {cores} cores, and a cap of {cap:.1} W that limits nothing"),
            false => "everything is left on".to_owned(),
        };
        Decision {
            setting: self.plant.full(),
            expected_rate: None,
            reflex: None,
            reasons: vec![Reason::new(
                "everything-on",
                text,
                &[("cores", cores), ("cap_w", cap)],
            )],
            ..Decision::default()
        }
    }

    fn forget(&mut self) {}
}
