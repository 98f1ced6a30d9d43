//! Seeded choices. A seed decides what each thread chooses, and in which order; when the threads come to it the machine decides.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::time::Duration;

/// Where all that is random in one thread comes from.
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// That of the thread with this number under a seed.
    pub fn new(seed: u64, thread: u64) -> Self {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// A whole number in a range.
    pub fn number(&mut self, range: Range<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// A duration of whole milliseconds in a range.
    pub fn ms(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    /// Whether something is, that is so once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.number(0..times) == 0
    }

    /// One of several.
    pub fn of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.number(0..several.len() as u64) as usize]
    }

    /// One of several by weight.
    pub fn weighed<T: Copy>(&mut self, several: &[(u64, T)]) -> T {
        let total = several.iter().map(|(weight, _)| weight).sum();
        let mut at = self.number(0..total);
        for (weight, one) in several {
            match at.checked_sub(*weight) {
                None => return *one,
                Some(left) => at = left,
            }
        }
        several[0].1
    }
}
