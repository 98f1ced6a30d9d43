//! A level that holds for a while and then jumps: the mean since the last change, which a test on the Poisson noise of
//! the counts finds.

/// Standard deviations by which one value must lie off the level to be a new one.
const ONE_VALUE: f64 = 3.5;
/// The same for the mean of the last few.
const FEW_VALUES: f64 = 2.8;
/// How many the last few are.
const FEW: usize = 3;

/// The level since the last change, over at most `memory` values.
#[derive(Clone, Debug)]
pub(super) struct StepLevel {
    level: f64,
    values: f64,
    memory: f64,
    last: [f64; FEW],
}

impl StepLevel {
    pub(super) const fn new(memory: f64) -> Self {
        Self {
            level: 0.0,
            values: 0.0,
            memory,
            last: [0.0; FEW],
        }
    }

    /// The level, where there is one.
    pub(super) fn level(&self) -> Option<f64> {
        (self.values > 0.0).then_some(self.level)
    }

    /// Takes the next value, which has this variance at the present level.
    pub(super) fn push(&mut self, value: f64, variance: f64) {
        self.last.rotate_left(1);
        self.last[FEW - 1] = value;
        let off = |mean: f64, count: f64| {
            (mean - self.level).abs() / (variance * (1.0 / count + 1.0 / self.values)).sqrt()
        };
        if self.values < 1.0 || off(value, 1.0) > ONE_VALUE {
            self.level = value;
            self.values = 1.0;
            return;
        }
        let few = FEW as f64;
        let recent = self.last.iter().sum::<f64>() / few;
        if self.values > few && off(recent, few) > FEW_VALUES {
            self.level = recent;
            self.values = few;
            return;
        }
        self.values = (self.values + 1.0).min(self.memory);
        self.level += (value - self.level) / self.values;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_level_is_the_mean_and_a_jump_a_new_level() {
        let mut level = StepLevel::new(30.0);
        assert_eq!(level.level(), None);
        for value in [100.0, 104.0, 96.0, 100.0] {
            level.push(value, 100.0);
        }
        assert!((level.level().unwrap() - 100.0).abs() < 1e-9);
        level.push(170.0, 100.0);
        assert_eq!(level.level(), Some(170.0));
    }

    #[test]
    fn a_small_jump_is_found_within_a_few_values() {
        let mut level = StepLevel::new(30.0);
        for _ in 0..30 {
            level.push(100.0, 100.0);
        }
        for _ in 0..3 {
            level.push(120.0, 100.0);
        }
        assert_eq!(level.level(), Some(120.0));
    }
}
