//! How a cap on all packages is split over them: a pure function.

use super::{CapBounds, PowerLimitError};
use headroom_units::Watts;

/// The least of a package where nothing names it, as a share of its maximum: under it, processors run at their lowest
/// frequency and stop their clocks besides.
const MIN_SHARE: f64 = 0.2;

/// What one package may get, and how its share is weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// In proportion to this: its maximum power, or 1 for all where one of them has none.
    pub weight: f64,
    /// The least.
    pub smallest: Watts,
    /// The most.
    pub largest: Watts,
}

impl Share {
    /// What a package may get: at most what was found (somebody's decision) or its maximum, whichever is less; a limit
    /// of zero is none.
    ///
    /// # Errors
    /// [`PowerLimitError::NoLimits`]: neither is known.
    pub(super) fn of(
        name: &str,
        found: Option<Watts>,
        min: Option<Watts>,
        max: Option<Watts>,
    ) -> Result<Self, PowerLimitError> {
        let found = found.filter(|watts| watts.get() > 0.0);
        let largest = match (found, max) {
            (Some(found), Some(max)) => found.min(max),
            (Some(watts), None) | (None, Some(watts)) => watts,
            (None, None) => {
                let why = format!("{name} names neither a limit nor a maximum");
                return Err(PowerLimitError::NoLimits { why });
            }
        };
        let smallest = min.unwrap_or(max.unwrap_or(largest) * MIN_SHARE);
        Ok(Self {
            weight: max.map_or(0.0, Watts::get),
            smallest: smallest.min(largest),
            largest,
        })
    }
}

/// Weights in different currencies cannot be compared: all by their maximum, or all alike where one names none.
pub(super) fn comparable<'a>(shares: impl Iterator<Item = &'a mut Share>) {
    let mut shares: Vec<&mut Share> = shares.collect();
    if shares.iter().any(|share| share.weight <= 0.0) {
        shares.iter_mut().for_each(|share| share.weight = 1.0);
    }
}

/// The bounds of all packages together.
pub fn bounds(shares: &[Share]) -> CapBounds {
    CapBounds {
        smallest: shares.iter().map(|share| share.smallest).sum(),
        largest: shares.iter().map(|share| share.largest).sum(),
    }
}

/// Splits a cap in proportion to the weights, within each package's bounds; what a package cannot take goes to the
/// others. The parts add up to the cap, bounded to what all packages together can take.
pub fn split(cap: Watts, shares: &[Share]) -> Vec<Watts> {
    let CapBounds { smallest, largest } = bounds(shares);
    let cap = cap.clamp(smallest, largest.max(smallest)).get();
    // The parts grow with the level, so the level that gives the cap is found by halving.
    let part = |share: &Share, level: f64| {
        (share.weight.max(f64::MIN_POSITIVE) * level)
            .clamp(share.smallest.get(), share.largest.max(share.smallest).get())
    };
    let at = |level: f64| -> f64 { shares.iter().map(|share| part(share, level)).sum() };
    let steepest = shares
        .iter()
        .map(|share| share.largest.get() / share.weight.max(f64::MIN_POSITIVE))
        .fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, steepest);
    for _ in 0..100 {
        let middle = low + (high - low) / 2.0;
        match at(middle) > cap {
            true => high = middle,
            false => low = middle,
        }
    }
    let level = if at(high) <= cap { high } else { low };
    shares
        .iter()
        .map(|share| Watts::new(part(share, level)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn share(weight: f64, smallest: f64, largest: f64) -> Share {
        Share {
            weight,
            smallest: Watts::new(smallest),
            largest: Watts::new(largest),
        }
    }

    fn parts(cap: f64, shares: &[Share]) -> Vec<f64> {
        let parts = split(Watts::new(cap), shares);
        parts
            .into_iter()
            .map(|part| (part.get() * 1e6).round() / 1e6)
            .collect()
    }

    #[test]
    fn equal_packages_get_equal_parts_and_larger_ones_more() {
        let two = [share(50.0, 10.0, 50.0); 2];
        assert_eq!(parts(60.0, &two), [30.0, 30.0]);
        assert_eq!(
            parts(90.0, &[share(100.0, 5.0, 100.0), share(50.0, 5.0, 50.0)]),
            [60.0, 30.0]
        );
    }

    #[test]
    fn what_one_cannot_take_goes_to_the_other() {
        assert_eq!(
            parts(80.0, &[share(1.0, 5.0, 20.0), share(1.0, 5.0, 100.0)]),
            [20.0, 60.0]
        );
        assert_eq!(
            parts(40.0, &[share(1.0, 30.0, 90.0), share(1.0, 5.0, 90.0)]),
            [30.0, 10.0]
        );
    }

    #[test]
    fn a_cap_beyond_the_bounds_gives_the_bounds() {
        let two = [share(50.0, 10.0, 50.0); 2];
        assert_eq!(parts(1.0, &two), [10.0, 10.0]);
        assert_eq!(parts(1e6, &two), [50.0, 50.0]);
    }

    proptest! {
        #[test]
        fn the_parts_are_within_bounds_and_add_up(
            cap in 0.0..3_000.0f64,
            shares in proptest::collection::vec((0.1..400.0f64, 0.0..100.0f64, 0.0..400.0f64), 1..9),
        ) {
            let shares: Vec<Share> =
                shares.into_iter().map(|(weight, low, width)| share(weight, low, low + width)).collect();
            let parts = split(Watts::new(cap), &shares);
            for (part, share) in parts.iter().zip(&shares) {
                prop_assert!(*part >= share.smallest && *part <= share.largest);
            }
            let CapBounds { smallest, largest } = bounds(&shares);
            let sum: Watts = parts.into_iter().sum();
            let wanted = Watts::new(cap).clamp(smallest, largest);
            prop_assert!((sum - wanted).get().abs() < 1e-6 * (1.0 + cap), "{sum} of {wanted}");
        }
    }
}
