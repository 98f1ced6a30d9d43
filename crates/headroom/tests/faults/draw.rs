//! Seeded choices, each noted, so that a run that fails can be read and run again.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

/// Where all that is random in one run comes from.
pub struct Draw {
    rng: Xoshiro256PlusPlus,
    notes: Vec<String>,
}

impl Draw {
    /// That of a run.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            notes: Vec::new(),
        }
    }

    /// A duration of milliseconds in a range.
    pub fn ms(&mut self, what: &str, range: std::ops::Range<u64>) -> Duration {
        let ms = self.rng.random_range(range);
        self.note(&format!("{what} {ms} ms"));
        Duration::from_millis(ms)
    }

    /// One of several.
    pub fn one<'a>(&mut self, what: &str, of: &[&'a str]) -> &'a str {
        let chosen = of[self.rng.random_range(0..of.len())];
        self.note(&format!("{what} {chosen}"));
        chosen
    }

    /// An index below `count`, which is not noted.
    pub fn index(&mut self, count: usize) -> usize {
        self.rng.random_range(0..count)
    }

    /// A value in a range, which is not noted.
    pub fn number(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.rng.random_range(range)
    }

    /// Keeps a remark.
    pub fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    /// All remarks.
    pub fn notes(&self) -> String {
        self.notes.join(", ")
    }
}
