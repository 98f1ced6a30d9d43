//! The Power Allocator: the cap that goes with a decision (Section III-D, Equation 4).

use super::tuning::{PowerReference, Tuning};
use crate::decision::Allocation;
use crate::observation::Observation;
use crate::plant::Plant;
use headroom_units::{Cores, Reading, Seconds, Watts};

/// The authors count a cap within 6 W of a limit of 92 W as at the limit.
const AUTHORS_MARGIN: f64 = 6.0 / 92.28;

/// A new cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapChange {
    /// What Equation 4 asks for.
    pub asked: Watts,
    /// What is given: `asked`, bounded to what the cores can need and the machine accepts.
    pub cap: Watts,
}

/// Why a cap is not lowered.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NotLowered {
    /// It is close to the consumption already.
    #[error(
        "the cap of {cap_w:.2} W stays: lower would be under {factor} times the {consumed_w:.2} W consumed"
    )]
    NearConsumption {
        /// The cap, in watts.
        cap_w: f64,
        /// The factor.
        factor: f64,
        /// The consumption, in watts.
        consumed_w: f64,
    },
    /// The consumption is unknown.
    #[error("the cap stays: no meter answered, so what the machine consumes is unknown")]
    ConsumptionUnknown,
    /// The machine accepts no lower cap.
    #[error("the cap is the lowest that the machine accepts, {lowest_w:.2} W")]
    AtLowest {
        /// The lowest cap, in watts.
        lowest_w: f64,
    },
}

/// The arithmetic of Equation 4, with the bounds of the authors' code.
#[derive(Clone, Debug)]
pub struct PowerAllocator {
    plant: Plant,
    reference: Seconds,
    eta: Watts,
    decrement: Watts,
    margin: Watts,
    floor_over_consumed: f64,
    consumed: Option<Reading<Watts>>,
}

impl PowerAllocator {
    /// An allocator for this machine and target.
    pub fn new(plant: Plant, target: Seconds, tuning: &Tuning) -> Self {
        let eta = tuning
            .power_step_w_per_core
            .map_or(plant.power().per_core, Watts::new);
        let limit = plant.power().limit(plant.cores().max());
        Self {
            plant,
            reference: match tuning.power_reference {
                PowerReference::Target => target,
                PowerReference::Guarded => target * tuning.guard,
            },
            eta,
            decrement: eta * plant.cores().step().get() / f64::from(tuning.sustained_periods.max(1)),
            margin: tuning
                .at_limit_margin_w
                .map_or(limit * AUTHORS_MARGIN, Watts::new),
            floor_over_consumed: tuning.cap_floor_over_consumed,
            consumed: None,
        }
    }

    /// Takes the power of the newest period.
    pub fn observe(&mut self, observation: &Observation) {
        self.consumed = observation.power;
    }

    /// The most that these cores can need.
    pub fn limit(&self, cores: Cores) -> Watts {
        self.plant.bound_cap(self.plant.power().limit(cores), cores)
    }

    /// The cap limits nothing that these cores could use: only more cores can help.
    pub fn at_limit(&self, now: Allocation) -> bool {
        now.cap >= self.limit(now.cores) - self.margin
    }

    /// Equation 4, first row: p + η (c_{t+1} − c_t).
    pub fn follow_cores(&self, now: Allocation, cores: Cores) -> CapChange {
        self.bounded(now.cap + self.eta * (cores - now.cores).get(), cores)
    }

    /// The first row for fewer cores. The cap never falls under the floor over the consumption because of it.
    pub fn follow_cores_down(&self, observation: &Observation, cores: Cores) -> CapChange {
        let now = self.plant.needed(&observation.in_force);
        let asked = now.cap + self.eta * (cores - now.cores).get();
        let floor = match self.consumed {
            _ if self.floor_over_consumed == 0.0 => asked,
            Some(consumed) => (consumed.value * self.floor_over_consumed).min(now.cap),
            None => now.cap,
        };
        CapChange {
            asked,
            ..self.bounded(asked.max(floor), cores)
        }
    }

    /// Equation 4, second row: p + |(T − T_t) / T_t| p.
    pub fn raise_for_latency(&self, now: Allocation, latency: Seconds) -> CapChange {
        let share = ((self.reference - latency) / latency).abs();
        self.bounded(now.cap + now.cap * share, now.cores)
    }

    /// One core step's power more, where cores cannot be added.
    pub fn raise_one_step(&self, now: Allocation) -> CapChange {
        self.bounded(now.cap + self.eta * self.plant.cores().step().get(), now.cores)
    }

    /// Equation 4, third row: p − η/D (scaled by the core step, see the module's head).
    ///
    /// # Errors
    /// [`NotLowered`] where the cap stays: it is at its lowest, near the consumption, or this is unknown.
    pub fn lower(&self, observation: &Observation) -> Result<CapChange, NotLowered> {
        let now = self.plant.needed(&observation.in_force);
        let cap = now.cap;
        let lowest = self.plant.power().lowest_cap;
        if cap <= lowest {
            return Err(NotLowered::AtLowest {
                lowest_w: lowest.get(),
            });
        }
        if self.floor_over_consumed > 0.0 {
            let consumed = self.consumed.ok_or(NotLowered::ConsumptionUnknown)?.value;
            if cap < consumed * self.floor_over_consumed {
                return Err(NotLowered::NearConsumption {
                    cap_w: cap.get(),
                    factor: self.floor_over_consumed,
                    consumed_w: consumed.get(),
                });
            }
        }
        Ok(self.bounded(cap - self.decrement, now.cores))
    }

    /// Forgets the consumption.
    pub fn forget(&mut self) {
        self.consumed = None;
    }

    fn bounded(&self, asked: Watts, cores: Cores) -> CapChange {
        CapChange {
            asked,
            cap: self.plant.bound_cap(asked, cores),
        }
    }
}
