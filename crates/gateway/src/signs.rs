//! Signs of life: how often each backend was heard of, counted by each core on cache lines of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters on one cache line; with a neighbour, for processors fetch them in pairs.
const PER_LINE: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; PER_LINE]);

/// What all cores heard of all backends.
#[derive(Debug)]
pub(crate) struct Signs(Vec<Box<[Line]>>);

impl Signs {
    pub(crate) fn new(cores: usize, backends: usize) -> Self {
        let lines = || {
            (0..backends.div_ceil(PER_LINE))
                .map(|_| Line::default())
                .collect()
        };
        Self((0..cores).map(|_| lines()).collect())
    }

    /// This core heard of this backend: a connection was opened, or an answer came.
    pub(crate) fn heard(&self, core: usize, backend: usize) {
        let count = &self.0[core][backend / PER_LINE].0[backend % PER_LINE];
        // Only this core writes it: no other write can be lost between the two.
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// How often any core heard of this backend.
    pub(crate) fn count(&self, backend: usize) -> u64 {
        let of_core = |lines: &[Line]| lines[backend / PER_LINE].0[backend % PER_LINE].load(Relaxed);
        self.0
            .iter()
            .map(|lines| of_core(lines))
            .fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_is_counted_over_all_cores() {
        let signs = Signs::new(2, 20);
        for (core, backend) in [(0, 3), (1, 3), (1, 19)] {
            signs.heard(core, backend);
        }
        assert_eq!([3, 19, 0].map(|backend| signs.count(backend)), [2, 1, 0]);
    }
}
