//! How long a server must be one too many before it goes: what a boot is worth, and more where that was regretted.
//!
//! Near the capacity of so many servers the noise of the load and of the estimates lets one go and asks for it again, for ever. Where
//! one is asked for soon after one went, the next waits twice as long; where not, half as long again.

/// So many times the wait after one went nobody misses it any more.
const FORGIVEN: f64 = 2.0;
/// The longest wait, as a multiple of what a boot is worth.
const MAX_TIMES: f64 = 4.0;

/// How long one waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    times: f64,
    /// When one went last, and was not judged yet.
    shrunk_s: Option<f64>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            times: 1.0,
            shrunk_s: None,
        }
    }
}

impl Patience {
    /// For so long one must be one too many, seconds.
    pub(super) fn away_s(&mut self, now_s: f64, break_even_s: f64) -> f64 {
        let away_s = break_even_s * self.times;
        if self.shrunk_s.is_some_and(|at_s| now_s - at_s > FORGIVEN * away_s) {
            self.shrunk_s = None;
            self.times = (self.times / 2.0).max(1.0);
        }
        break_even_s * self.times
    }

    pub(super) fn has_shrunk(&mut self, now_s: f64) {
        self.shrunk_s = Some(now_s);
    }

    pub(super) fn has_grown(&mut self, now_s: f64, away_s: f64) {
        if self.shrunk_s.take().is_some_and(|at_s| now_s - at_s <= away_s) {
            self.times = (2.0 * self.times).min(MAX_TIMES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_missed_makes_the_next_wait_and_one_that_was_not_lets_it_go() {
        let mut patience = Patience::default();
        assert_eq!(patience.away_s(0.0, 100.0), 100.0);
        patience.has_shrunk(0.0);
        patience.has_grown(30.0, 100.0);
        assert_eq!(patience.away_s(31.0, 100.0), 200.0);
        patience.has_shrunk(300.0);
        patience.has_grown(400.0, 200.0);
        assert_eq!(patience.away_s(401.0, 100.0), 400.0);
        // Growth that nobody's going caused.
        patience.has_grown(500.0, 400.0);
        assert_eq!(patience.away_s(501.0, 100.0), 400.0);
        patience.has_shrunk(1_000.0);
        assert_eq!(patience.away_s(1_700.0, 100.0), 400.0);
        assert_eq!(patience.away_s(1_900.0, 100.0), 200.0);
    }
}
