//! What comes to a server's accept queue because the controller itself asks whether it answers: that is no demand.

use headroom_units::Seconds;

/// So many checks may be owed at most: what did not come within as many was not counted there.
const MAX_OWED: f64 = 2.0;

/// The checks of one server that are to come to its accept queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnChecks {
    /// How many were sent and not found among what came; a part of one is sent within a part of the time between two.
    owed: f64,
}

impl OwnChecks {
    /// How many of those that came in a step of this length are no checks, of which one is sent in each `every`.
    pub(super) fn leave(&mut self, came: f64, length: Seconds, every: Seconds) -> f64 {
        if every > Seconds::ZERO {
            self.owed = (self.owed + length / every).min(MAX_OWED);
        }
        let found = self.owed.min(came).max(0.0);
        self.owed -= found;
        came - found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn second(checks: &mut OwnChecks, came: f64) -> f64 {
        checks.leave(came, Seconds::new(1.0), Seconds::new(1.0))
    }

    #[test]
    fn checks_alone_are_no_demand_however_they_fall_into_the_steps() {
        let mut checks = OwnChecks::default();
        assert_eq!(
            [1.0, 0.0, 2.0, 1.0].map(|came| second(&mut checks, came)),
            [0.0, 0.0, 0.0, 0.0]
        );
        assert_eq!(second(&mut checks, 11.0), 10.0);
        // Steps shorter than the time between two, and longer.
        let mut checks = OwnChecks::default();
        let half = Seconds::new(0.5);
        assert_eq!(checks.leave(0.0, half, Seconds::new(1.0)), 0.0);
        assert_eq!(checks.leave(1.0, half, Seconds::new(1.0)), 0.0);
        assert_eq!(checks.leave(2.0, Seconds::new(2.0), Seconds::new(1.0)), 0.0);
    }

    #[test]
    fn checks_that_never_come_there_hide_no_more_than_a_few() {
        let mut checks = OwnChecks::default();
        for _ in 0..100 {
            assert_eq!(second(&mut checks, 0.0), 0.0);
        }
        assert_eq!(second(&mut checks, 50.0), 48.0);
        assert_eq!(second(&mut checks, 50.0), 49.0);
    }

    proptest! {
        /// What is left is never negative nor more than came, and less by no more than was sent.
        #[test]
        fn no_more_is_taken_for_checks_than_was_sent(came in proptest::collection::vec((0.0..50.0, 0.0..3.0), 1..40)) {
            let mut checks = OwnChecks::default();
            let (mut taken, mut sent) = (0.0, 0.0);
            for (came, length_s) in came {
                let left = checks.leave(came, Seconds::new(length_s), Seconds::new(1.0));
                prop_assert!((0.0..=came).contains(&left));
                taken += came - left;
                sent += length_s;
                prop_assert!(taken <= sent + 1e-9);
            }
        }
    }
}
