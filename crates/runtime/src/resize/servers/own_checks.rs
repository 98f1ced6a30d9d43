//! What comes to a server's accept queue because the controller itself, or the balancer, asks whether it answers: that is no demand, and no
//! answer.

use crate::resize::queues::Counted;
use headroom_control::capacity::Capacity;
use headroom_control::resize::PowerState;
use headroom_units::PerSecond;

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
        self.owed = self.owed.min(MAX_OWED) + new as f64;
        let found = self.owed.min(came).max(0.0);
        self.owed -= found;
        came - found
    }

    /// The same of the balancer's checks, of which so many were begun since the last call.
    pub(super) fn leave_new(&mut self, came: f64, new: u64) -> f64 {
        self.leave(came, self.begun + new)
    }

    /// Whether clients were accepted among what was counted, where so many checks were begun since the start; `None` for checks that come
    /// elsewhere. Where more wait than checks can be, some are clients, whoever of them it is that a slow server accepts.
    pub(super) fn leave_clients(&mut self, counted: &Counted, begun: Option<u64>) -> bool {
        let clients = match begun {
            Some(begun) => self.leave(counted.accepts, begun),
            None => counted.accepts,
        };
        let some_wait = counted.waiting.is_some_and(|waiting| waiting > MAX_OWED);
        clients > 0.0 || counted.accepts > 0.0 && some_wait
    }
}

/// The most checks a second that are looked for where a balancer does not tell how many it makes: HAProxy's are one in two seconds unless `inter`
/// says otherwise.
const MAX_UNTOLD: f64 = 2.0;
/// The time over which checks are counted in what a server served, seconds.
const SERVED_S: f64 = 10.0;

/// The checks of one server that come to its accept queue besides requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BalancerChecks {
    own: OwnChecks,
    /// Checks a second of late, the controller's among them.
    per_s: f64,
}

impl BalancerChecks {
    /// Of those that came in this time how many are no checks of the balancer's, which tells how many it `made`, or at least what it `sent`.
    pub(super) fn leave(&mut self, came: f64, length_s: f64, made: Option<u64>, sent: Option<f64>) -> f64 {
        match (made, sent) {
            (Some(made), _) => self.own.leave_new(came, made),
            (None, Some(sent)) => came - (came - sent).clamp(0.0, MAX_UNTOLD * length_s.max(0.0)),
            (None, None) => came,
        }
    }

    /// Takes how many of what came in this time were checks of whomever.
    pub(super) fn count(&mut self, checks: f64, length_s: f64) {
        if length_s > 0.0 {
            let kept = (-length_s / SERVED_S).exp();
            self.per_s = self.per_s * kept + checks / length_s * (1.0 - kept);
        }
    }

    /// What is known of a capacity of which only what was served is known: checks are no requests. Of one that served nothing else it is known
    /// that it takes that.
    pub(super) fn leave_of(self, capacity: Capacity) -> Capacity {
        match capacity {
            Capacity::LowerBound(served) => {
                Capacity::LowerBound(PerSecond::new((served.get() - self.per_s).max(0.0)))
            }
            known => known,
        }
    }
}

/// Whether a server in this state answers by what it accepted, anybody or clients, though its check is not answered. An overloaded one lets a
/// check wait, and is not lost. Of one that shuts down, or that an operator has (`is_out`), it is asked whether it is still there. One that is to
/// take requests takes none before its check says so.
pub(super) const fn answers_by_accepts(
    state: PowerState,
    is_out: bool,
    (anybody, clients): (bool, bool),
) -> bool {
    match state {
        PowerState::Warming | PowerState::Serving | PowerState::Leaving | PowerState::Draining => clients,
        PowerState::Stopping => anybody,
        PowerState::Maintenance => is_out && anybody,
        PowerState::Off | PowerState::Booting | PowerState::Failed(_) => false,
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
        assert_eq!(checks.leave(50.0, 100), 47.0);
        assert_eq!(checks.leave(50.0, 101), 49.0);
    }

    #[test]
    fn the_balancers_checks_are_no_demand_and_show_no_capacity() {
        let mut told = BalancerChecks::default();
        // Ten gateways that check once in two seconds, and 3 requests a second.
        for _ in 0..100 {
            let requests = told.leave(8.0, 1.0, Some(5), None);
            assert_eq!(requests, 3.0);
            told.count(8.0 - requests, 1.0);
        }
        let served = |served: f64| Capacity::LowerBound(PerSecond::new(served));
        let left = told.leave_of(served(8.0)).value().unwrap().get();
        assert!((left - 3.0).abs() < 0.01, "{left}");
        assert_eq!(told.leave_of(served(4.9)), served(0.0));
        let exact = Capacity::Exact(PerSecond::new(4.0));
        assert_eq!(told.leave_of(exact), exact);
        // HAProxy tells what it sent.
        let mut untold = BalancerChecks::default();
        assert_eq!(untold.leave(3.5, 1.0, None, Some(3.0)), 3.0);
        assert_eq!(untold.leave(3.0, 1.0, None, Some(3.5)), 3.0);
        assert_eq!(untold.leave(90.0, 1.0, None, Some(3.0)), 88.0, "others come too");
        assert_eq!(untold.leave(3.5, 1.0, None, None), 3.5);
    }

    fn counted(accepts: f64, waiting: f64) -> Counted {
        Counted {
            accepts,
            waiting: Some(waiting),
            length_s: 1.0,
            ..Counted::default()
        }
    }

    #[test]
    fn a_check_that_is_accepted_is_no_client_and_a_slow_server_that_has_some_accepts_them() {
        let mut checks = OwnChecks::default();
        for begun in 1..10 {
            assert!(!checks.leave_clients(&counted(1.0, 0.0), Some(begun)));
        }
        assert!(checks.leave_clients(&counted(2.0, 0.0), Some(10)));
        // Checks that wait for as long as they may, at one that accepts one connection in a while.
        for begun in 11..20 {
            assert!(checks.leave_clients(&counted(1.0, 30.0), Some(begun)));
            assert!(
                !checks.leave_clients(&counted(0.0, 30.0), Some(begun)),
                "it hangs"
            );
        }
        assert!(checks.leave_clients(&counted(1.0, 0.0), None));
    }

    #[test]
    fn only_one_that_takes_requests_answers_by_its_clients() {
        use headroom_control::resize::Cause;
        let of = |state, is_out| {
            let by = |seen| answers_by_accepts(state, is_out, seen);
            [by((false, false)), by((true, false)), by((true, true))]
        };
        for state in [PowerState::Serving, PowerState::Leaving, PowerState::Draining] {
            assert_eq!(of(state, false), [false, false, true], "{state:?}");
        }
        for state in [
            PowerState::Booting,
            PowerState::Off,
            PowerState::Failed(Cause::Boot),
        ] {
            assert_eq!(of(state, false), [false; 3], "{state:?}");
        }
        assert_eq!(of(PowerState::Stopping, false), [false, true, true]);
        assert_eq!(of(PowerState::Maintenance, true), [false, true, true]);
        assert_eq!(of(PowerState::Maintenance, false), [false; 3], "given back");
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
