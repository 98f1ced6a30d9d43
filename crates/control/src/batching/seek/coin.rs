//! The law's own coin: what decides in which order two intervals are in force, and for how long.
//!
//! A load that repeats itself at the pace of a comparison makes one side of it look better than the other, for as long as both are in force
//! in turn. Where a coin that the load knows nothing of decides the order, what the load does to a pair counts for either side alike, and
//! over many pairs comes to nothing. The coin is a seeded generator, so that a run can be repeated.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(super) struct Coin(u64);

impl Coin {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// One of two, each as often.
    pub(super) const fn flip(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// Between two shares, evenly; the second excluded.
    pub(super) fn between(&mut self, (least, most): (f64, f64)) -> f64 {
        let drawn = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        least + drawn * (most - least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_and_each_side_as_often() {
        let draw = |seed| {
            let mut coin = Coin::new(seed);
            (0..10_000)
                .map(|_| (coin.flip(), coin.between((1.0, 2.5))))
                .collect::<Vec<_>>()
        };
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        let share = |is: fn(&(bool, f64)) -> bool| drawn.iter().filter(|one| is(one)).count() as f64 / 1e4;
        assert!((share(|one| one.0) - 0.5).abs() < 0.02);
        assert!(drawn.iter().all(|one| (1.0..2.5).contains(&one.1)));
        assert!((share(|one| one.1 < 1.5) - 1.0 / 3.0).abs() < 0.02);
        // Nor does one side follow the other more often than not.
        let follows = drawn.windows(2).filter(|two| two[0].0 == two[1].0).count() as f64 / 1e4;
        assert!((follows - 0.5).abs() < 0.02, "{follows}");
    }
}
