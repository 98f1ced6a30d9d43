//! Random streams.
//!
//! Two kinds, each with its own way from bits to an exponential or normal draw, because a seed's draws are published:
//!
//! - [`Rng`], for simulations: xoshiro256++ (D. Blackman and S. Vigna, "Scrambled linear pseudorandom number generators",
//!   2021) with the ziggurat method, as fast as it gets. There is one for each purpose, so that what is drawn for one never
//!   shifts what is drawn for another: two runs with the same seed see the same arrivals and the same sizes whatever the
//!   law does. These common random numbers take the noise of the load out of a comparison of laws.
//! - [`ChaCha8Rng`], for traces, sites and live loads: by inversion and Box-Muller, so that a seed gives the same values
//!   with any version of a distribution library.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A source of draws.
///
/// ```
/// use headroom_workload::random::{Draw, Purpose, Rng};
///
/// let mut rng = Rng::new(1, Purpose::Arrivals);
/// assert!((0.0..1.0).contains(&rng.uniform()));
/// assert!(rng.exponential() >= 0.0);
/// ```
pub trait Draw {
    /// Uniform in [0, 1), 53 bits.
    fn uniform(&mut self) -> f64;

    /// Exponential with mean 1.
    fn exponential(&mut self) -> f64;

    /// Normal with mean 0 and variance 1.
    fn normal(&mut self) -> f64;
}

impl Draw for ChaCha8Rng {
    fn uniform(&mut self) -> f64 {
        self.random()
    }

    fn exponential(&mut self) -> f64 {
        // The logarithm's argument is in (0, 1], so the result is finite.
        -(1.0 - self.uniform()).ln()
    }

    fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// A random stream of a simulation. Its streams are 2^192 draws apart.
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
}

impl Draw for Rng {
    #[inline]
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    #[inline]
    fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }

    #[inline]
    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
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

    fn moments<R: Draw>(mut rng: R, draw: impl Fn(&mut R) -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..200_000).map(|_| draw(&mut rng)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, variance)
    }

    fn check_moments<R: Draw + Clone>(rng: &R) {
        // Standard errors at 200,000 draws: 0.0022 and 0.0063 of the exponential, 0.0022 and 0.0032 of the normal.
        let (mean, variance) = moments(rng.clone(), R::exponential);
        assert!(
            (mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.03,
            "{mean} {variance}"
        );
        let (mean, variance) = moments(rng.clone(), R::normal);
        assert!(
            mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
    }

    #[test]
    fn both_kinds_have_the_moments_of_their_distributions() {
        check_moments(&ChaCha8Rng::seed_from_u64(5));
        check_moments(&Rng::new(5, Purpose::Sizes));
    }
}
