//! What the model misses at particular numbers of cores, learned number by number.
//!
//! Eight cores on three nodes are 3 + 3 + 2, and the node of two is the one that is late: nine are better by more than
//! a core, and ten no better than nine. The law knows of no nodes (nor of sockets, or of siblings that share a core),
//! but it sees that some numbers of cores queue more than others.

use crate::plant::CoreRange;

/// The most numbers of cores that are distinguished; of more, neighbours share a place.
const PLACES: usize = 512;
/// Standard deviation of an offset before anything is seen.
const PRIOR: f64 = 0.3;
/// Periods after which half of an offset is forgotten where its number of cores is not seen again, and what certainty
/// is lost in one.
const HALF_LIFE: f64 = 1_500.0;
/// Bounds of an offset.
const BOUNDS: (f64, f64) = (-0.5, 1.0);

#[derive(Clone, Copy, Debug)]
struct Offset {
    value: f64,
    variance: f64,
    period: u64,
}

/// For each number of cores, what is added to the power that the queueing's share is raised to.
#[derive(Clone, Debug)]
pub(super) struct Uneven {
    first: f64,
    width: f64,
    places: Vec<Option<Offset>>,
    period: u64,
}

impl Uneven {
    pub(super) fn new(range: CoreRange) -> Self {
        let steps = ((range.max() - range.min()) / range.step()).round().max(0.0) as usize + 1;
        let each = steps.div_ceil(PLACES);
        Self {
            first: range.min().get(),
            width: range.step().get() * each as f64,
            places: vec![None; steps.div_ceil(each)],
            period: 0,
        }
    }

    fn place(&self, cores: f64) -> usize {
        let place = ((cores - self.first) / self.width + 1e-6).max(0.0) as usize;
        place.min(self.places.len() - 1)
    }

    fn present(&self, place: usize) -> (f64, f64) {
        let Some(offset) = self.places[place] else {
            return (0.0, PRIOR * PRIOR);
        };
        let left = 0.5f64.powf((self.period - offset.period) as f64 / HALF_LIFE);
        let variance = PRIOR * PRIOR - (PRIOR * PRIOR - offset.variance) * left * left;
        (offset.value * left, variance)
    }

    /// The offset at this number of cores.
    pub(super) fn at(&self, cores: f64) -> f64 {
        self.present(self.place(cores)).0
    }

    /// Variance of the offset at this number of cores.
    pub(super) fn variance(&self, cores: f64) -> f64 {
        self.present(self.place(cores)).1
    }

    /// Takes what a period's ln lay off everything that is expected, this offset included, with the queueing's ln and the
    /// variance of the rest.
    pub(super) fn observe(&mut self, cores: f64, queueing: f64, off: f64, noise: f64) {
        self.period += 1;
        if queueing <= 0.0 || !off.is_finite() || !noise.is_finite() || noise <= 0.0 {
            return;
        }
        let place = self.place(cores);
        let (value, variance) = self.present(place);
        let gain = variance * queueing / (variance * queueing * queueing + noise);
        self.places[place] = Some(Offset {
            value: (value + gain * off).clamp(BOUNDS.0, BOUNDS.1),
            variance: variance * (1.0 - gain * queueing),
            period: self.period,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Cores;

    fn uneven(max: f64, step: f64) -> Uneven {
        Uneven::new(CoreRange::new(Cores::new(step), Cores::new(max), Cores::new(step)).unwrap())
    }

    #[test]
    fn a_bad_number_of_cores_is_found_and_forgotten() {
        let mut uneven = uneven(48.0, 1.0);
        for _ in 0..200 {
            let off = 0.4 * (0.5 - uneven.at(8.0));
            uneven.observe(8.0, 0.4, off, 0.02);
        }
        assert!((uneven.at(8.0) - 0.5).abs() < 0.05, "{}", uneven.at(8.0));
        assert_eq!(uneven.at(9.0), 0.0);
        for _ in 0..3_000 {
            uneven.observe(9.0, 0.4, 0.0, 0.02);
        }
        assert!((uneven.at(8.0) - 0.125).abs() < 0.02, "{}", uneven.at(8.0));
    }

    #[test]
    fn places_are_bounded() {
        let mut uneven = uneven(10_000.0, 0.1);
        assert!(uneven.places.len() <= PLACES);
        for cores in [0.1, 5_000.0, 1e9] {
            uneven.observe(cores, 0.4, 0.1, 0.02);
            assert!(uneven.at(cores) > 0.0);
        }
    }
}
