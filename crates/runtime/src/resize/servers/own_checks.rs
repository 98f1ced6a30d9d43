//! What comes to a server's accept queue because the controller itself asks whether it answers: that is no demand.

/// So many checks may be owed at most: what did not come before as many others was not counted there.
const MAX_OWED: f64 = 2.0;

/// The checks of one server that are to come to its accept queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnChecks {
    /// How many were begun.
    begun: u64,
    /// How many of these were not found among what came.
    owed: f64,
}

impl OwnChecks {
    /// How many of those that came are no checks, of which so many were begun since the start.
    pub(super) fn leave(&mut self, came: f64, begun: u64) -> f64 {
        let new = begun.saturating_sub(std::mem::replace(&mut self.begun, begun));
        self.owed = (self.owed + new as f64).min(MAX_OWED);
        let found = self.owed.min(came).max(0.0);
        self.owed -= found;
        came - found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn checks_alone_are_no_demand_however_they_fall_into_the_steps() {
        let mut checks = OwnChecks::default();
        let steps = [(1.0, 1), (0.0, 2), (2.0, 3), (1.0, 4)];
        assert_eq!(steps.map(|(came, begun)| checks.leave(came, begun)), [0.0; 4]);
        assert_eq!(checks.leave(11.0, 5), 10.0);
        // While one waits for its answer none is sent.
        assert_eq!([11.0; 3].map(|came| checks.leave(came, 5)), [11.0; 3]);
    }

    #[test]
    fn checks_that_never_come_there_hide_no_more_than_a_few() {
        let mut checks = OwnChecks::default();
        for begun in 1..100 {
            assert_eq!(checks.leave(0.0, begun), 0.0);
        }
        assert_eq!(checks.leave(50.0, 100), 48.0);
        assert_eq!(checks.leave(50.0, 101), 49.0);
    }

    proptest! {
        /// What is left is never negative nor more than came, and less by no more than was begun.
        #[test]
        fn no_more_is_taken_for_checks_than_was_begun(came in proptest::collection::vec((0.0..50.0, 0..4u64), 1..40)) {
            let mut checks = OwnChecks::default();
            let (mut taken, mut begun) = (0.0, 0);
            for (came, new) in came {
                begun += new;
                let left = checks.leave(came, begun);
                prop_assert!((0.0..=came).contains(&left));
                taken += came - left;
                prop_assert!(taken <= begun as f64 + 1e-9);
            }
        }
    }
}
