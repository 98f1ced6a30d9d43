//! SLO-Power whole, and its two components alone (the ablation of Section V-B, Figure 6).

use crate::decision::Allocation;
use crate::plant::Plant;
use headroom_units::Lever;

/// Which of the two actuators the Control Unit may trigger.
///
/// | mode | Figure 6 | cores | cap |
/// |---|---|---|---|
/// | [`Joint`](Mode::Joint) | (c), (d) | Elastic Scaler | Power Allocator |
/// | [`PowerOnly`](Mode::PowerOnly) | (a) | all, always ("the full cluster size capacity") | Power Allocator |
/// | [`ElasticOnly`](Mode::ElasticOnly) | (b) | Elastic Scaler | the limit of all cores, always ("no capping is applied": 193 W of 276 W is the 70 % that the paper states) |
///
/// Everything else is the same: the guard, the utilisation threshold, the hold band, D, the estimators. What a mode does
/// not control counts as being where it stays: with the cap at its limit a late period asks for cores at once, and with
/// all cores on it is answered by power alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Both, as published.
    #[default]
    Joint,
    /// The cap alone.
    PowerOnly,
    /// The cores alone.
    ElasticOnly,
}

impl Mode {
    /// The law's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joint => "slo-power",
            Self::PowerOnly => "power-only",
            Self::ElasticOnly => "elastic-only",
        }
    }

    /// The levers that it moves.
    pub const fn levers(self) -> &'static [Lever] {
        match self {
            Self::Joint => &[Lever::Cores, Lever::Cap],
            Self::PowerOnly => &[Lever::Cap],
            Self::ElasticOnly => &[Lever::Cores],
        }
    }

    /// The allocation with what this mode does not control where it stays.
    pub(super) fn pinned(self, allocation: Allocation, plant: Plant) -> Allocation {
        let full = plant.full_allocation();
        match self {
            Self::Joint => allocation,
            Self::PowerOnly => Allocation {
                cores: full.cores,
                ..allocation
            },
            Self::ElasticOnly => Allocation {
                cap: full.cap,
                ..allocation
            },
        }
    }
}
