//! How long a server must be one too many before it goes: what a boot is worth, and more where that was regretted.
//!
//! Near the capacity of so many servers the noise of the load and of the estimates lets one go and asks for it again, for ever. Where
//! one is asked for soon after one went, or requests are late within twice the wait, the next waits twice as long; where not, half as long again.

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
    /// One was asked for since, when it had been away for as long as a boot is worth.
    grown: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            times: 1.0,
            shrunk_s: None,
            grown: false,
        }
    }
}

impl Patience {
    /// For so long one must be one too many, seconds.
    pub(super) fn away_s(&mut self, now_s: f64, break_even_s: f64) -> f64 {
        let away_s = break_even_s * self.times;
        if self.shrunk_s.is_some_and(|at_s| now_s - at_s > FORGIVEN * away_s) {
            if !self.grown {
                self.times = (self.times / 2.0).max(1.0);
            }
            self.shrunk_s = None;
        }
        break_even_s * self.times
    }

    pub(super) fn has_shrunk(&mut self, now_s: f64) {
        self.shrunk_s = Some(now_s);
        self.grown = false;
    }

    pub(super) fn has_grown(&mut self, now_s: f64, away_s: f64) {
        match self.shrunk_s.is_some_and(|at_s| now_s - at_s <= away_s) {
            true => self.is_missed(),
            false => self.grown = true,
        }
    }

    /// Requests are late, or fail.
    pub(super) fn was_late(&mut self, now_s: f64, away_s: f64) {
        if self
            .shrunk_s
            .is_some_and(|at_s| now_s - at_s <= FORGIVEN * away_s)
        {
            self.is_missed();
        }
    }

    fn is_missed(&mut self) {
        self.shrunk_s = None;
        self.times = (2.0 * self.times).min(MAX_TIMES);
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

    #[test]
    fn one_that_went_before_requests_were_late_was_missed_though_it_was_away_for_what_a_boot_is_worth() {
        let mut patience = Patience::default();
        patience.has_shrunk(0.0);
        patience.has_grown(110.0, 100.0);
        patience.was_late(112.0, 100.0);
        patience.was_late(113.0, 100.0);
        assert_eq!(patience.away_s(114.0, 100.0), 200.0, "once for each that went");
        // Late long after, or before any went.
        patience.was_late(500.0, 200.0);
        patience.has_shrunk(1_000.0);
        patience.was_late(1_401.0, 200.0);
        assert_eq!(patience.away_s(1_402.0, 100.0), 100.0);
        // Asked for in time, and nobody was late: neither.
        patience.has_shrunk(2_000.0);
        patience.was_late(2_001.0, 100.0);
        patience.has_shrunk(3_000.0);
        patience.has_grown(3_300.0, 200.0);
        assert_eq!(patience.away_s(3_500.0, 100.0), 200.0);
    }
}
