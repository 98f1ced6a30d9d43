//! Tests on small plants of formulas.

mod incident;
mod lasting;
mod laws;
mod least;
mod model;
mod seek;
mod seek_cycles;
mod seek_doubt;
mod seek_late;
mod seek_uneven;
mod slow;

use crate::common::{frequencies, plant};
use crate::plant::Plant;
use headroom_units::{Lever, LeverRange, Seconds};

/// A noise that repeats: about normal, of deviation 1, by the sum of twelve uniform numbers.
#[derive(Clone, Debug)]
pub(super) struct Noise(u64);

impl Noise {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn uniform(&mut self) -> f64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// A plant with a gateway that holds requests for a second at most, and a frequency.
pub(super) fn with_interval() -> Plant {
    let range = LeverRange::between(0.0, 1.0);
    plant([0.2, 4.0, 0.1], [6.0, 2.86, 6.2])
        .with_frequency(frequencies(0.8, 2.1))
        .with_range(Lever::BatchInterval, range)
        .unwrap()
}

/// Mean response times over the interval as Table II of the paper has them, roughly: about a second at both ends of 0 to half a second,
/// 850 ms at 300 ms, and steeply more beyond.
pub(super) fn u_shaped(interval: Seconds) -> f64 {
    let off = interval.get() - 0.3;
    0.85 + 2.0 * off * off + if off > 0.0 { 1.6 * off * off } else { 0.0 }
}
