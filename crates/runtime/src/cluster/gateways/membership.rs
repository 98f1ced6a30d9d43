//! Which gateways are in the sum of a period.
//!
//! A gateway that nobody can ask may have the slow requests, so without it a period is lost. One whose control port *refuses*
//! connections is another matter: nobody listens there, its process has ended, and what it served goes elsewhere. After some periods
//! of that in a row it leaves the sum, unless it is the last one. One that times out, hangs, answers with an error or refuses the
//! certificate is not known to be dead, and stays.
//!
//! A gateway that comes back, or is new, joins: the period in which it answers is whole without it, and what it counted in that comes
//! with the next period.

use headroom_wire::client::CallError;

/// Periods in a row in which a gateway's control port refuses connections, until it leaves the sum.
pub const REFUSED_PERIODS: u32 = 3;

/// What a period showed of the connection to a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contact {
    /// It stood at the end.
    Connected,
    /// Nobody listened when it was tried last.
    Refused,
    /// It failed in another way, so that the gateway may serve.
    Unknown,
    /// It was not connected, and no try has ended.
    NoNews,
}

impl Contact {
    /// What a failed try means; `answered` where the gateway has answered before. A path without a socket says that a gateway has ended
    /// only where there was one: else the path may be misspelt, and the gateway serve.
    pub fn of_failed(error: &CallError, answered: bool) -> Self {
        match error {
            CallError::NotListening { is_missing, .. } if answered || !is_missing => Self::Refused,
            _ => Self::Unknown,
        }
    }
}

/// What a gateway is to one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// Part of the sum: without its counts the period is lost.
    #[default]
    Counted,
    /// Not yet part of it.
    Joining,
    /// No part of it: its process has ended.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InSum,
    /// New, and awaited for so many periods.
    Awaited(u32),
    Out,
}

/// What is kept of a gateway from period to period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    place: Place,
    /// Periods in a row in which it refused.
    refused: u32,
}

impl Member {
    /// One that is in the sum from the start of a run.
    pub const fn at_start() -> Self {
        Self {
            place: Place::InSum,
            refused: 0,
        }
    }

    /// One that comes to a run that goes on.
    pub const fn joining() -> Self {
        Self {
            place: Place::Awaited(0),
            refused: 0,
        }
    }

    /// What it is to the next period.
    pub const fn standing(&self) -> Standing {
        match self.place {
            Place::InSum => Standing::Counted,
            Place::Awaited(_) => Standing::Joining,
            Place::Out => Standing::Dead,
        }
    }

    /// Takes what a period showed of it. May leave the sum where `is_spared`, which is that another one stays.
    fn step(&mut self, contact: Contact, limit: u32, is_spared: bool) -> Standing {
        match contact {
            Contact::Connected | Contact::Unknown => self.refused = 0,
            Contact::Refused => self.refused = self.refused.saturating_add(1),
            Contact::NoNews => {}
        }
        let is_dead = self.refused >= limit && is_spared;
        match (self.place, contact) {
            (Place::InSum, _) if is_dead => self.place = Place::Out,
            (Place::InSum, _) => {}
            (Place::Awaited(_) | Place::Out, Contact::Connected) => {
                self.place = Place::InSum;
                // What it counted of this period is a part.
                return Standing::Joining;
            }
            (Place::Awaited(periods), _) => {
                let periods = periods.saturating_add(1);
                self.place = match (periods < limit, is_dead) {
                    (true, _) => Place::Awaited(periods),
                    (false, true) => Place::Out,
                    (false, false) => Place::InSum,
                };
            }
            // Something is there again, and may serve.
            (Place::Out, Contact::Unknown) => self.place = Place::InSum,
            (Place::Out, _) => {}
        }
        self.standing()
    }
}

/// Takes what a period showed of all gateways, each with its contact: what each is to this period. Where none is in the sum there is no
/// sum.
pub(super) fn step(members: &mut [Member], contacts: &[Contact], limit: u32) -> Vec<Standing> {
    let limit = limit.max(1);
    let mut standings = Vec::with_capacity(members.len());
    for (at, contact) in contacts.iter().enumerate().take(members.len()) {
        let others = members.iter().enumerate().filter(|(other, _)| *other != at);
        let is_spared = others.into_iter().any(|(_, member)| member.place == Place::InSum);
        standings.push(members[at].step(*contact, limit, is_spared));
    }
    if members.iter().all(|member| member.place != Place::InSum) {
        // The one that stayed has been taken away. Of those that are left any may be the next to serve.
        for (member, standing) in members.iter_mut().zip(&mut standings) {
            if member.place == Place::Out {
                member.place = Place::InSum;
                *standing = Standing::Counted;
            }
        }
    }
    standings
}

#[cfg(test)]
mod tests {
    use super::*;
    use Contact::{Connected, NoNews, Refused, Unknown};
    use Standing::{Counted, Dead, Joining};
    use headroom_wire::Address;
    use proptest::prelude::*;

    /// What each gateway is to each period, a row a period.
    fn run<const N: usize>(members: &mut [Member; N], periods: &[[Contact; N]]) -> Vec<Vec<Standing>> {
        periods
            .iter()
            .map(|contacts| step(members, contacts, 3))
            .collect()
    }

    #[test]
    fn one_that_refuses_for_three_periods_leaves_and_joins_when_it_answers() {
        let mut members = [Member::at_start(); 2];
        let rows = run(
            &mut members,
            &[
                [Connected, Connected],
                [Connected, Refused],
                [Connected, Refused],
                [Connected, Refused],
                [Connected, NoNews],
                [Connected, Refused],
                [Connected, Connected],
                [Connected, Connected],
            ],
        );
        assert_eq!(
            rows,
            [
                [Counted, Counted],
                [Counted, Counted],
                [Counted, Counted],
                [Counted, Dead],
                [Counted, Dead],
                [Counted, Dead],
                [Counted, Joining],
                [Counted, Counted],
            ]
        );
        // It dies again, and is given as long as before.
        let rows = run(&mut members, &[[Connected, Refused]; 3]);
        assert_eq!(rows, [[Counted, Counted], [Counted, Counted], [Counted, Dead]]);
    }

    #[test]
    fn one_that_may_serve_stays_however_long_and_starts_the_count_anew() {
        let mut members = [Member::at_start(); 2];
        let rows = run(&mut members, &[[Connected, Unknown]; 50]);
        assert!(rows.iter().all(|row| row == &[Counted, Counted]));
        let rows = run(
            &mut members,
            &[
                [Connected, Refused],
                [Connected, Refused],
                [Connected, Unknown],
                [Connected, Refused],
                // A try that has not ended is no refusal and no end of them.
                [Connected, NoNews],
                [Connected, Refused],
            ],
        );
        assert!(rows.iter().all(|row| row == &[Counted, Counted]), "{rows:?}");
        assert_eq!(run(&mut members, &[[Connected, Refused]]), [[Counted, Dead]]);
        // Its machine starts again: something hangs there, which may be a gateway that serves.
        assert_eq!(run(&mut members, &[[Connected, Unknown]]), [[Counted, Counted]]);
    }

    #[test]
    fn the_last_one_never_leaves() {
        let mut alone = [Member::at_start()];
        assert!(
            run(&mut alone, &[[Refused]; 20])
                .iter()
                .all(|row| row == &[Counted])
        );

        let mut both = [Member::at_start(); 2];
        let rows = run(&mut both, &[[Refused, Refused]; 10]);
        assert_eq!(rows[2], [Dead, Counted]);
        assert_eq!(rows[9], [Dead, Counted]);
        // The other one returns: from then on the sum is its alone.
        let rows = run(
            &mut both,
            &[[Connected, Refused], [Connected, Refused], [Connected, Refused]],
        );
        assert_eq!(rows, [[Joining, Dead], [Counted, Dead], [Counted, Dead]]);

        // Whoever stayed is taken out of the file: a dead one alone is no empty sum.
        let mut left = [both[1]];
        assert_eq!(run(&mut left, &[[Refused]]), [[Counted]]);
    }

    #[test]
    fn a_new_one_is_awaited_for_as_long_as_one_that_refuses() {
        let members = [Member::at_start(), Member::joining()];
        let with = |contacts: &[Contact]| -> Vec<Standing> {
            let mut members = members;
            let of_new = |contact: &Contact| step(&mut members, &[Connected, *contact], 3)[1];
            contacts.iter().map(of_new).collect()
        };
        assert_eq!(with(&[Connected, Connected]), [Joining, Counted]);
        assert_eq!(
            with(&[NoNews, Unknown, Connected, Unknown]),
            [Joining, Joining, Joining, Counted]
        );
        assert_eq!(
            with(&[Unknown, Unknown, Unknown, Connected]),
            [Joining, Joining, Counted, Counted]
        );
        assert_eq!(
            with(&[Refused, Refused, Refused, Connected, Connected]),
            [Joining, Joining, Dead, Joining, Counted]
        );
    }

    #[test]
    fn what_refuses_is_told_from_what_may_serve() {
        let address: Address = "unix:/run/g.sock".parse().unwrap();
        let why = String::new();
        let not_listening = |is_missing| CallError::NotListening {
            address: address.clone(),
            why: why.clone(),
            is_missing,
        };
        for (error, before, after) in [
            (not_listening(false), Refused, Refused),
            (not_listening(true), Unknown, Refused),
            (
                CallError::Unreachable {
                    address: address.clone(),
                    why: "the certificate is not accepted".to_owned(),
                },
                Unknown,
                Unknown,
            ),
            (
                CallError::NoAnswer {
                    address: address.clone(),
                    after: std::time::Duration::from_secs(1),
                },
                Unknown,
                Unknown,
            ),
        ] {
            assert_eq!(Contact::of_failed(&error, false), before, "{error:?}");
            assert_eq!(Contact::of_failed(&error, true), after, "{error:?}");
        }
    }

    proptest! {
        /// Whatever comes: somebody is in the sum or about to be, and nobody is dead who did not refuse for so many periods.
        #[test]
        fn nobody_is_dead_without_refusing_and_never_all_are(
            new in 0..4usize,
            periods in proptest::collection::vec(proptest::collection::vec(0..4u8, 4), 1..60),
        ) {
            let mut members = [Member::at_start(); 4];
            members[..new.min(3)].fill(Member::joining());
            let mut refused = [0u32; 4];
            for row in periods {
                let contacts: Vec<Contact> =
                    row.iter().map(|one| [Connected, Refused, Unknown, NoNews][usize::from(*one)]).collect();
                let standings = step(&mut members, &contacts, 3);
                for (count, contact) in refused.iter_mut().zip(&contacts) {
                    *count = match contact {
                        Refused => *count + 1,
                        NoNews => *count,
                        Connected | Unknown => 0,
                    };
                }
                for (standing, count) in standings.iter().zip(refused) {
                    prop_assert!(*standing != Dead || count >= 3);
                }
                prop_assert!(members.iter().any(|member| member.standing() == Counted));
            }
        }
    }
}
