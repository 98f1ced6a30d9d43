//! Who may command this node, and until when: a state machine without a clock of its own.
//!
//! One holder at a time. A lease lives for its length from each accepted request, and is over at the very moment that
//! it runs out. Of one holder's requests each has a larger sequence number than the one before; the number before may
//! be sent once more, since an answer can be lost on the way. A number that was overtaken is refused, also after the
//! lease's end: what arrives late must not undo what came after it.

use headroom_wire::Refusal;
use headroom_wire::message::{Holder, LeaseState};
use std::time::Duration;

/// The lease of a node. Times are on any clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    held: Option<Held>,
    /// The holder and sequence number that were accepted last, kept when the lease is over.
    last: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Held {
    holder: Holder,
    ends: Duration,
    length: Duration,
}

/// A request that may be granted: nobody else holds the node, and nothing overtook it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    holder: Holder,
    sequence: u64,
    /// Nobody held the node.
    pub fresh: bool,
}

impl Lease {
    /// Whether a request may be granted now. Changes nothing: the machine may still refuse it.
    ///
    /// # Errors
    /// [`Refusal::HeldByAnother`], [`Refusal::Stale`].
    pub fn claim(&self, now: Duration, holder: &Holder, sequence: u64) -> Result<Claim, Refusal> {
        let held = self.held(now);
        if let Some(held) = held.filter(|held| held.holder.lease_id() != holder.lease_id()) {
            return Err(held.refuse(now));
        }
        if let Some((_, last)) = self.last.filter(|(lease_id, _)| *lease_id == holder.lease_id()) {
            // While the lease lives, the last request may be repeated; afterwards its effect is undone, and a repetition
            // would be a new beginning that its sender may not have meant.
            if sequence < last || (sequence == last && held.is_none()) {
                return Err(Refusal::Stale {
                    given: sequence,
                    last,
                });
            }
        }
        Ok(Claim {
            holder: holder.clone(),
            sequence,
            fresh: held.is_none(),
        })
    }

    /// Grants a claim for a length of time from now.
    pub fn grant(&mut self, now: Duration, claim: Claim, length: Duration) {
        self.last = Some((claim.holder.lease_id(), claim.sequence));
        self.held = Some(Held {
            holder: claim.holder,
            ends: now.saturating_add(length),
            length,
        });
    }

    /// Ends the lease. Whether there was one; releasing what is over already is no error.
    ///
    /// # Errors
    /// [`Refusal::HeldByAnother`].
    pub fn release(&mut self, now: Duration, holder: &Holder) -> Result<bool, Refusal> {
        match self.held(now) {
            Some(held) if held.holder.lease_id() != holder.lease_id() => Err(held.refuse(now)),
            Some(_) => {
                self.held = None;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The holder whose lease has run out since this was last asked; everything is to be put back then.
    pub fn expire(&mut self, now: Duration) -> Option<Holder> {
        if self.held(now).is_some() {
            return None;
        }
        self.held.take().map(|held| held.holder)
    }

    /// When the lease runs out, if there is one.
    pub fn ends(&self) -> Option<Duration> {
        self.held.as_ref().map(|held| held.ends)
    }

    /// Who holds the node now.
    pub fn state(&self, now: Duration) -> Option<LeaseState> {
        self.held(now).map(|held| LeaseState {
            holder: held.holder.name().into(),
            remaining: held.ends.saturating_sub(now),
            length: held.length,
            sequence: self.last.map_or(0, |(_, sequence)| sequence),
        })
    }

    fn held(&self, now: Duration) -> Option<&Held> {
        self.held.as_ref().filter(|held| now < held.ends)
    }
}

impl Held {
    fn refuse(&self, now: Duration) -> Refusal {
        Refusal::HeldByAnother {
            holder: self.holder.name().into(),
            remaining: self.ends.saturating_sub(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn holder(lease_id: u64) -> Holder {
        Holder::new(format!("controller {lease_id}"), lease_id).unwrap()
    }

    fn take(
        lease: &mut Lease,
        now: Duration,
        lease_id: u64,
        sequence: u64,
        length: Duration,
    ) -> Result<bool, Refusal> {
        let claim = lease.claim(now, &holder(lease_id), sequence)?;
        let fresh = claim.fresh;
        lease.grant(now, claim, length);
        Ok(fresh)
    }

    #[test]
    fn the_second_holder_is_refused_while_the_first_lives_and_is_told_who_and_how_long() {
        let mut lease = Lease::default();
        assert_eq!(take(&mut lease, SECOND, 1, 1, SECOND * 10), Ok(true));
        let refused = take(&mut lease, SECOND * 4, 2, 1, SECOND).unwrap_err();
        let expected = Refusal::HeldByAnother {
            holder: "controller 1".into(),
            remaining: SECOND * 7,
        };
        assert_eq!(refused, expected);
        // Nobody took it over by asking, and the first may go on.
        assert_eq!(take(&mut lease, SECOND * 10, 1, 2, SECOND * 10), Ok(false));
        assert_eq!(lease.ends(), Some(SECOND * 20));
    }

    #[test]
    fn the_same_name_with_another_number_is_another_holder() {
        let mut lease = Lease::default();
        let (a, b) = (Holder::new("c", 1).unwrap(), Holder::new("c", 2).unwrap());
        let claim = lease.claim(Duration::ZERO, &a, 1).unwrap();
        lease.grant(Duration::ZERO, claim, SECOND);
        assert!(lease.claim(Duration::ZERO, &b, 1).is_err());
    }

    #[test]
    fn a_lease_is_over_at_the_moment_it_runs_out_and_can_then_be_taken_over() {
        let mut lease = Lease::default();
        take(&mut lease, Duration::ZERO, 1, 1, SECOND).unwrap();
        let before = SECOND - Duration::from_nanos(1);
        assert_eq!(lease.expire(before), None);
        assert!(lease.claim(before, &holder(2), 1).is_err());
        assert_eq!(lease.expire(SECOND), Some(holder(1)));
        assert_eq!(lease.expire(SECOND), None, "told once");
        assert_eq!(take(&mut lease, SECOND, 2, 1, SECOND), Ok(true));
    }

    #[test]
    fn a_request_that_was_overtaken_is_refused_also_after_the_end() {
        let mut lease = Lease::default();
        take(&mut lease, Duration::ZERO, 1, 5, SECOND).unwrap();
        let stale = |given| Err(Refusal::Stale { given, last: 5 });
        assert_eq!(take(&mut lease, Duration::ZERO, 1, 4, SECOND), stale(4));
        assert_eq!(
            take(&mut lease, Duration::ZERO, 1, 5, SECOND),
            Ok(false),
            "the answer was lost"
        );
        assert_eq!(lease.release(Duration::ZERO, &holder(1)), Ok(true));
        assert_eq!(take(&mut lease, Duration::ZERO, 1, 5, SECOND), stale(5));
        assert_eq!(take(&mut lease, Duration::ZERO, 1, 6, SECOND), Ok(true));
    }

    #[test]
    fn only_the_holder_releases_and_twice_is_no_error() {
        let mut lease = Lease::default();
        take(&mut lease, Duration::ZERO, 1, 1, SECOND).unwrap();
        assert!(matches!(
            lease.release(Duration::ZERO, &holder(2)),
            Err(Refusal::HeldByAnother { .. })
        ));
        assert_eq!(lease.release(Duration::ZERO, &holder(1)), Ok(true));
        assert_eq!(lease.release(Duration::ZERO, &holder(1)), Ok(false));
        assert_eq!(lease.release(Duration::ZERO, &holder(2)), Ok(false));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Take { who: u64, sequence: u64, length: u64 },
        Release { who: u64 },
        Expire,
    }

    fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
        let act = prop_oneof![
            4 => (1..4u64, 0..12u64, 1..40u64).prop_map(|(who, sequence, length)| Act::Take { who, sequence, length }),
            1 => (1..4u64).prop_map(|who| Act::Release { who }),
            1 => Just(Act::Expire),
        ];
        proptest::collection::vec((0..20u64, act), 1..120)
    }

    proptest! {
        /// Against a model of few lines: who holds, until when, and the largest number of each lease in a row.
        #[test]
        fn at_most_one_holds_and_only_as_long_as_was_granted(acts in acts()) {
            let mut lease = Lease::default();
            let mut now = Duration::ZERO;
            let mut model: Option<(u64, Duration)> = None;
            let mut last: Option<(u64, u64)> = None;
            for (pause, act) in acts {
                now += SECOND * pause as u32;
                let alive = model.filter(|(_, ends)| now < *ends);
                match act {
                    Act::Take { who, sequence, length } => {
                        let length = SECOND * length as u32;
                        let others = alive.is_some_and(|(holder, _)| holder != who);
                        let stale = last.is_some_and(|(id, number)| {
                            id == who && (sequence < number || sequence == number && alive.is_none())
                        });
                        let outcome = take(&mut lease, now, who, sequence, length);
                        match outcome {
                            Err(Refusal::HeldByAnother { remaining, .. }) => {
                                prop_assert!(others);
                                prop_assert_eq!(now + remaining, alive.unwrap().1);
                            }
                            Err(Refusal::Stale { .. }) => prop_assert!(stale && !others),
                            Ok(fresh) => {
                                prop_assert!(!others && !stale);
                                prop_assert_eq!(fresh, alive.is_none());
                                model = Some((who, now + length));
                                last = Some((who, sequence));
                            }
                            Err(other) => prop_assert!(false, "{}", other),
                        }
                    }
                    Act::Release { who } => match lease.release(now, &holder(who)) {
                        Ok(was_held) => {
                            prop_assert_eq!(was_held, alive.is_some_and(|(holder, _)| holder == who));
                            if was_held {
                                model = None;
                            }
                        }
                        Err(_) => prop_assert!(alive.is_some_and(|(holder, _)| holder != who)),
                    },
                    Act::Expire => {
                        let ran_out = lease.expire(now);
                        prop_assert_eq!(ran_out.is_some(), model.is_some() && alive.is_none());
                        if ran_out.is_some() {
                            model = None;
                        }
                    }
                }
                let alive = model.filter(|(_, ends)| now < *ends);
                let state = lease.state(now);
                prop_assert_eq!(state.map(|state| now + state.remaining), alive.map(|(_, ends)| ends));
            }
        }
    }
}
