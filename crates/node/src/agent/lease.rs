//! Who may command this node, and until when: a state machine without a clock of its own.
//!
//! One holder at a time. A lease belongs to the peer that asked, by what it proved to be, and to the number that it drew:
//! another peer that knows the number is another holder. A lease lives for its length from each accepted request, and is over at the very moment that
//! it runs out. Of one holder's requests each has a larger sequence number than the one before; the number before may
//! be sent once more with the same content, since an answer can be lost on the way. A number that was overtaken is refused, also after the
//! lease's end: what arrives late must not undo what came after it.

use headroom_wire::Refusal;
use headroom_wire::message::{Apply, Holder, LeaseState};
use std::time::Duration;

/// The lease of a node. Times are on any clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    held: Option<Held>,
    /// The request that was accepted last, kept when the lease is over.
    last: Option<Accepted>,
}

/// A request and the peer that it came from.
#[derive(Clone, Debug, PartialEq)]
struct Accepted {
    peer: String,
    apply: Apply,
}

impl Accepted {
    fn is_of(&self, peer: &str, holder: &Holder) -> bool {
        self.peer == peer && self.apply.holder.lease_id() == holder.lease_id()
    }
}

#[derive(Clone, Debug)]
struct Held {
    peer: String,
    holder: Holder,
    ends: Duration,
    length: Duration,
}

/// A request that may be granted: nobody else holds the node, and nothing overtook it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    accepted: Accepted,
    /// Nobody held the node.
    pub fresh: bool,
}

impl Lease {
    /// Whether a request may be granted now. `peer` is what the asker proved to be. Changes nothing: the machine may still
    /// refuse it.
    ///
    /// # Errors
    /// [`Refusal::HeldByAnother`], [`Refusal::Stale`], [`Refusal::Conflict`].
    pub fn claim(&self, now: Duration, peer: &str, apply: &Apply) -> Result<Claim, Refusal> {
        let held = self.held(now);
        if let Some(held) = held.filter(|held| !held.is_of(peer, &apply.holder)) {
            return Err(held.refuse(now));
        }
        if let Some(last) = self.last.as_ref().filter(|last| last.is_of(peer, &apply.holder)) {
            let (given, newest) = (apply.sequence, last.apply.sequence);
            // While the lease lives, the last request may be repeated; afterwards its effect is undone, and a repetition
            // would be a new beginning that its sender may not have meant.
            if given < newest || (given == newest && held.is_none()) {
                return Err(Refusal::Stale { given, last: newest });
            }
            if given == newest && *apply != last.apply {
                return Err(Refusal::Conflict { sequence: given });
            }
        }
        Ok(Claim {
            accepted: Accepted {
                peer: peer.to_owned(),
                apply: apply.clone(),
            },
            fresh: held.is_none(),
        })
    }

    /// Grants a claim, for the length of time that it asks for, from now.
    pub fn grant(&mut self, now: Duration, claim: Claim) {
        let Accepted { peer, apply } = claim.accepted.clone();
        self.last = Some(claim.accepted);
        self.held = Some(Held {
            peer,
            holder: apply.holder,
            ends: now.saturating_add(apply.length),
            length: apply.length,
        });
    }

    /// Ends the lease. Whether there was one; releasing what is over already is no error.
    ///
    /// # Errors
    /// [`Refusal::HeldByAnother`].
    pub fn release(&mut self, now: Duration, peer: &str, holder: &Holder) -> Result<bool, Refusal> {
        match self.held(now) {
            Some(held) if !held.is_of(peer, holder) => Err(held.refuse(now)),
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
            sequence: self.last.as_ref().map_or(0, |last| last.apply.sequence),
        })
    }

    fn held(&self, now: Duration) -> Option<&Held> {
        self.held.as_ref().filter(|held| now < held.ends)
    }
}

impl Held {
    fn is_of(&self, peer: &str, holder: &Holder) -> bool {
        self.peer == peer && self.holder.lease_id() == holder.lease_id()
    }

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
    use headroom_units::{Lever, Setting};
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PEER: &str = "controller-a";

    fn apply(holder: &Holder, sequence: u64, length: Duration) -> Apply {
        Apply {
            holder: holder.clone(),
            sequence,
            length,
            setting: Setting::default(),
        }
    }

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
        take_as(lease, now, PEER, lease_id, sequence, length)
    }

    fn take_as(
        lease: &mut Lease,
        now: Duration,
        peer: &str,
        lease_id: u64,
        sequence: u64,
        length: Duration,
    ) -> Result<bool, Refusal> {
        let claim = lease.claim(now, peer, &apply(&holder(lease_id), sequence, length))?;
        let fresh = claim.fresh;
        lease.grant(now, claim);
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
        let claim = lease.claim(Duration::ZERO, PEER, &apply(&a, 1, SECOND)).unwrap();
        lease.grant(Duration::ZERO, claim);
        assert!(lease.claim(Duration::ZERO, PEER, &apply(&b, 1, SECOND)).is_err());
    }

    #[test]
    fn the_same_number_of_another_peer_is_another_holder() {
        let mut lease = Lease::default();
        take(&mut lease, Duration::ZERO, 1, 1, SECOND).unwrap();
        let refused = take_as(&mut lease, Duration::ZERO, "controller-b", 1, 2, SECOND);
        assert!(
            matches!(refused, Err(Refusal::HeldByAnother { .. })),
            "{refused:?}"
        );
        let refused = lease.release(Duration::ZERO, "controller-b", &holder(1));
        assert!(
            matches!(refused, Err(Refusal::HeldByAnother { .. })),
            "{refused:?}"
        );
        assert_eq!(
            take(&mut lease, Duration::ZERO, 1, 2, SECOND),
            Ok(false),
            "its owner goes on"
        );
    }

    #[test]
    fn the_same_sequence_with_another_content_is_refused() {
        let mut lease = Lease::default();
        let first = apply(&holder(1), 5, SECOND);
        let claim = lease.claim(Duration::ZERO, PEER, &first).unwrap();
        lease.grant(Duration::ZERO, claim);
        let more = Apply {
            setting: Setting::default().with(Lever::Cores, Some(0.1)),
            ..first.clone()
        };
        let longer = apply(&holder(1), 5, SECOND * 2);
        for other in [more, longer] {
            let refused = lease.claim(Duration::ZERO, PEER, &other);
            assert_eq!(refused, Err(Refusal::Conflict { sequence: 5 }));
        }
        assert!(
            lease.claim(Duration::ZERO, PEER, &first).is_ok(),
            "the answer was lost"
        );
    }

    #[test]
    fn a_lease_is_over_at_the_moment_it_runs_out_and_can_then_be_taken_over() {
        let mut lease = Lease::default();
        take(&mut lease, Duration::ZERO, 1, 1, SECOND).unwrap();
        let before = SECOND - Duration::from_nanos(1);
        assert_eq!(lease.expire(before), None);
        assert!(lease.claim(before, PEER, &apply(&holder(2), 1, SECOND)).is_err());
        assert_eq!(lease.expire(SECOND), Some(holder(1)));
        assert_eq!(lease.expire(SECOND), None, "reported once");
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
        assert_eq!(lease.release(Duration::ZERO, PEER, &holder(1)), Ok(true));
        assert_eq!(take(&mut lease, Duration::ZERO, 1, 5, SECOND), stale(5));
        assert_eq!(take(&mut lease, Duration::ZERO, 1, 6, SECOND), Ok(true));
    }

    #[test]
    fn only_the_holder_releases_and_twice_is_no_error() {
        let mut lease = Lease::default();
        take(&mut lease, Duration::ZERO, 1, 1, SECOND).unwrap();
        assert!(matches!(
            lease.release(Duration::ZERO, PEER, &holder(2)),
            Err(Refusal::HeldByAnother { .. })
        ));
        assert_eq!(lease.release(Duration::ZERO, PEER, &holder(1)), Ok(true));
        assert_eq!(lease.release(Duration::ZERO, PEER, &holder(1)), Ok(false));
        assert_eq!(lease.release(Duration::ZERO, PEER, &holder(2)), Ok(false));
    }

    /// A peer and the number that it drew.
    type Who = (&'static str, u64);

    fn who() -> impl Strategy<Value = Who> {
        (prop_oneof![Just("a"), Just("b")], 1..3u64)
    }

    #[derive(Clone, Debug)]
    enum Act {
        Take { who: Who, sequence: u64, length: u64 },
        Release { who: Who },
        Expire,
    }

    fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
        let act = prop_oneof![
            4 => (who(), 0..12u64, 1..40u64).prop_map(|(who, sequence, length)| Act::Take { who, sequence, length }),
            1 => who().prop_map(|who| Act::Release { who }),
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
            let mut model: Option<(Who, Duration)> = None;
            let mut last: Option<(Who, u64, Duration)> = None;
            for (pause, act) in acts {
                now += SECOND * pause as u32;
                let alive = model.filter(|(_, ends)| now < *ends);
                match act {
                    Act::Take { who, sequence, length } => {
                        let length = SECOND * length as u32;
                        let others = alive.is_some_and(|(holder, _)| holder != who);
                        let of_it = last.filter(|(id, ..)| *id == who);
                        let stale = of_it.is_some_and(|(_, number, _)| {
                            sequence < number || sequence == number && alive.is_none()
                        });
                        let conflict = !stale && of_it.is_some_and(|(_, number, content)| {
                            sequence == number && content != length
                        });
                        let outcome = take_as(&mut lease, now, who.0, who.1, sequence, length);
                        match outcome {
                            Err(Refusal::HeldByAnother { remaining, .. }) => {
                                prop_assert!(others);
                                prop_assert_eq!(now + remaining, alive.unwrap().1);
                            }
                            Err(Refusal::Stale { .. }) => prop_assert!(stale && !others),
                            Err(Refusal::Conflict { .. }) => prop_assert!(conflict && !others),
                            Ok(fresh) => {
                                prop_assert!(!others && !stale && !conflict);
                                prop_assert_eq!(fresh, alive.is_none());
                                model = Some((who, now + length));
                                last = Some((who, sequence, length));
                            }
                            Err(other) => prop_assert!(false, "{}", other),
                        }
                    }
                    Act::Release { who } => match lease.release(now, who.0, &holder(who.1)) {
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
