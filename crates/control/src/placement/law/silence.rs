//! Whether a backend answers at all.
//!
//! A backend that hangs accepts requests and completes none: no latency tells, for nothing that it was sent has one. What tells is that
//! requests are in flight there from one period's end to the next, and none was completed between. Such a backend is sent nothing but single
//! requests on trial until it completes one.

use headroom_units::Seconds;

/// Periods in a row without an answer that make a backend silent.
const SILENT_PERIODS: u32 = 2;

/// What is known of a backend's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Silence {
    /// Requests in flight at the end of the last period.
    in_flight: u64,
    /// Periods in which requests were in flight all along and none was completed.
    periods: u32,
    /// Their length together.
    length: Seconds,
}

impl Silence {
    /// A period ended with so many in flight, in which so many were completed. One in which nothing was in flight says nothing: that clients
    /// gave up is no answer.
    pub(super) fn observe(&mut self, in_flight: u64, completions: u64, length: Seconds) {
        if completions > 0 {
            *self = Self::default();
        } else if self.in_flight > 0 && in_flight > 0 {
            self.periods = self.periods.saturating_add(1);
            self.length += length;
        }
        self.in_flight = in_flight;
    }

    /// Whether it answered nothing for longer than an answer may take.
    pub(super) fn is_silent(&self, allowed: Seconds) -> bool {
        self.periods >= SILENT_PERIODS && self.length > allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_ends_it() {
        let (second, allowed) = (Seconds::new(1.0), Seconds::from_millis(200.0));
        let mut one = Silence::default();
        let mut after = |in_flight, completions| {
            one.observe(in_flight, completions, second);
            one.is_silent(allowed)
        };
        // An idle backend is not silent, and neither is one with a request that came just now.
        assert!(!after(0, 0) && !after(3, 0) && !after(5, 0));
        assert!(after(5, 0));
        // Its clients gave up.
        assert!(after(0, 0) && after(1, 0));
        assert!(!after(4, 1) && !after(4, 0) && after(4, 0));
    }

    #[test]
    fn an_slo_of_longer_than_two_periods_is_waited_for() {
        let mut one = Silence::default();
        let mut told = Vec::new();
        for _ in 0..6 {
            one.observe(1, 0, Seconds::new(1.0));
            told.push(one.is_silent(Seconds::new(4.0)));
        }
        assert_eq!(told, [false, false, false, false, false, true]);
    }
}
