//! Random streams: one for each purpose, so that what is drawn for one never shifts what is drawn for another.
//!
//! Two runs with the same seed see the same arrivals and the same sizes whatever the law does: common random numbers,
//! which take the noise of the load out of a comparison of laws. The generator is xoshiro256++ (D. Blackman and
//! S. Vigna, "Scrambled linear pseudorandom number generators", 2021); streams are 2^192 draws apart.

use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A random stream.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

/// What a stream is for. The order is part of the meaning of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// When requests arrive.
    Arrivals,
    /// How much work each request is.
    Sizes,
    /// Noise and loss of telemetry.
    Telemetry,
    /// Which points a search tries.
    Search,
}

impl Rng {
    /// The stream of a seed for a purpose.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for _ in 0..purpose as u32 {
            rng.long_jump();
        }
        Self(rng)
    }

    /// The stream of one user of closed-loop sessions, for think times and sizes. Users' streams are seeded, not
    /// jumped to: a jump costs more than a short session draws.
    pub fn of_user(seed: u64, user: u32) -> Self {
        // Odd multiplier of the golden ratio: distinct users get distinct seeds, which the generator then scrambles.
        let mixed = seed.rotate_left(32) ^ (u64::from(user) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }

    /// Normal with mean 0 and variance 1.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    /// Uniform in [0, 1), 53 bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_a_seed_never_change() {
        let mut rng = Rng::new(1, Purpose::Arrivals);
        let drawn: Vec<u64> = (0..3).map(|_| (rng.uniform() * 1e9) as u64).collect();
        let mut sizes = Rng::new(1, Purpose::Sizes);
        let other: Vec<u64> = (0..3).map(|_| (sizes.exponential() * 1e9) as u64).collect();
        assert_eq!(
            (drawn, other),
            (
                vec![811_612_158, 747_104_716, 100_150_903],
                vec![344_408_120, 885_720_454, 616_406_610]
            )
        );
    }

    #[test]
    fn purposes_and_users_draw_different_numbers() {
        let first = |mut rng: Rng| rng.uniform();
        let all = [
            first(Rng::new(7, Purpose::Arrivals)),
            first(Rng::new(7, Purpose::Sizes)),
            first(Rng::new(7, Purpose::Telemetry)),
            first(Rng::of_user(7, 0)),
            first(Rng::of_user(7, 1)),
            first(Rng::of_user(8, 0)),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other != one), "{all:?}");
        }
    }
}
