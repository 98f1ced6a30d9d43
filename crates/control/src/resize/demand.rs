//! What is known of a whole cluster where only some of its servers could be read.

use super::PowerState;
use crate::observation::NodeObservation;
use headroom_units::PerSecond;

/// What was counted at a server's accept queue in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counts {
    /// So many attempts to connect a second.
    Attempts(PerSecond),
    /// Nobody listens: who comes there is refused, and counted nowhere. So many a second came while somebody did.
    Nobody(PerSecond),
    /// It could not be read, or it is not watched.
    Unknown,
}

/// What a balancer sends to all servers, as attempts to connect a second.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    per_s: f64,
    /// Whether what is counted at each server is what the balancer sent there: then what it sent again to another came once.
    is_all: bool,
}

impl Sent {
    /// Of so many requests that come to it a second, of which it holds so many [back](super::HeldBack), with so many attempts for each.
    pub fn of(came: PerSecond, held_back_per_s: f64, each: Option<f64>, is_all: bool) -> Self {
        Self {
            per_s: (came.get() - held_back_per_s).max(0.0) * each.unwrap_or(1.0),
            is_all,
        }
    }
}

/// The arrival rate at a whole cluster, of what was counted at its servers; `None` where of none that takes requests anything
/// is known, and where nobody listens at any of them. The balancer spreads requests evenly, so that a server that could not be read has what
/// the others have. One that takes requests and where nobody listens any more has what it had: until the balancer finds it dead it is sent as much,
/// and a demand that fell with each server that dies would have the others switched off. A balancer may send to the others at once what one
/// that has died refuses: then it is counted there. So that comes on top no further than up to what the balancer says that it `sent` to all, where
/// it says so; and where [all](Sent) is counted by the balancer nothing is more than that.
pub fn demand(
    servers: impl IntoIterator<Item = (PowerState, Counts)>,
    sent: Option<Sent>,
) -> Option<PerSecond> {
    let (mut sum, mut nobody, mut known, mut serving, mut listening) = (0.0, 0.0, 0_u32, 0_u32, 0_u32);
    for (state, counts) in servers {
        let takes = u32::from(state.takes_requests());
        serving += takes;
        match counts {
            Counts::Attempts(rate) => {
                sum += rate.get();
                known += takes;
                listening += takes;
            }
            Counts::Nobody(before) if state.takes_requests() => {
                nobody += before.get();
                known += takes;
            }
            Counts::Nobody(_) => {}
            Counts::Unknown => {}
        }
    }
    match (listening, serving) {
        // For as long as the balancer has not found them dead.
        (0, 1..) => Some(PerSecond::new(sum + nobody)).filter(|sum| *sum > PerSecond::ZERO),
        (_, 0) => Some(PerSecond::new(sum)),
        _ => {
            let all = |sum: f64| sum * f64::from(serving) / f64::from(known);
            let most = match sent {
                Some(sent) if sent.is_all => sent.per_s,
                Some(sent) => sent.per_s.max(all(sum)),
                None => f64::INFINITY,
            };
            Some(PerSecond::new(all(sum + nobody).min(most)))
        }
    }
}

/// Gives each server that takes requests, and whose accept queue says nothing, what the balancer counted there, in requests a second: as many
/// attempts to connect for `each` as those come to at the servers of which both are known now, or were last. Where they never were of any, one
/// for each to a server whose queue `is_uncounted` for good, and nothing to one whose queue is not read for the moment.
pub fn fill_in(
    servers: &mut [(PowerState, Counts)],
    requests: &[Option<PerSecond>],
    each: &mut Option<f64>,
    is_uncounted: &[bool],
) {
    let requests = |at: usize| requests.get(at).copied().flatten().map(PerSecond::get);
    let both = servers
        .iter()
        .enumerate()
        .filter_map(|(at, server)| match server {
            (state, Counts::Attempts(rate)) if state.takes_requests() => Some((rate.get(), requests(at)?)),
            _ => None,
        });
    let (attempts, of_requests) = both.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if of_requests > 0.0 {
        *each = Some(attempts / of_requests);
    }
    for (at, (state, counts)) in servers.iter_mut().enumerate() {
        let each = each.or_else(|| is_uncounted.get(at).is_some_and(|is| *is).then_some(1.0));
        if let (true, Counts::Unknown, Some(rate), Some(each)) =
            (state.takes_requests(), &counts, requests(at), each)
        {
            *counts = Counts::Attempts(PerSecond::new(rate * each));
        }
    }
}

/// The mean of what is known exactly of the servers that take requests: what the published estimator of one that joins them starts with,
/// for all have the same hardware and serve the same requests (Section 3).
pub fn exact_mean<'a>(servers: impl IntoIterator<Item = &'a NodeObservation>) -> Option<PerSecond> {
    let exact: Vec<f64> = servers
        .into_iter()
        .filter(|one| one.state.takes_requests())
        .filter_map(|one| one.capacity.met().map(PerSecond::get))
        .collect();
    (!exact.is_empty()).then(|| PerSecond::new(exact.iter().sum::<f64>() / exact.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;

    const fn attempts(per_s: f64) -> Counts {
        Counts::Attempts(PerSecond::new(per_s))
    }

    const fn nobody(before_per_s: f64) -> Counts {
        Counts::Nobody(PerSecond::new(before_per_s))
    }

    #[test]
    fn a_server_that_could_not_be_read_has_what_the_others_have() {
        use PowerState::{Draining, Off, Serving, Warming};
        let of = |servers: &[(PowerState, Counts)]| demand(servers.iter().copied(), None).map(PerSecond::get);
        assert_eq!(
            of(&[(Serving, attempts(20.0)), (Serving, Counts::Unknown)]),
            Some(40.0)
        );
        // What still drains counts, and makes no other one's share.
        let draining = [
            (Serving, attempts(20.0)),
            (Draining, attempts(2.0)),
            (Off, Counts::Unknown),
        ];
        assert_eq!(of(&draining), Some(22.0));
        assert_eq!(
            of(&[(Serving, attempts(20.0)), (Warming, nobody(0.0))]),
            Some(20.0)
        );
        assert_eq!(of(&[(Serving, Counts::Unknown)]), None);
        // Nine of ten die: that a tenth is still counted is no reason to switch that one off.
        let survivor = [(Serving, attempts(47.0)), (Serving, nobody(423.0))];
        assert_eq!(of(&survivor), Some(470.0));
        assert_eq!(
            of(&[(Serving, attempts(20.0)), (Draining, nobody(5.0))]),
            Some(20.0)
        );
        // Who comes to servers that have all died is counted nowhere.
        assert_eq!(of(&[(Serving, nobody(0.0)), (Serving, nobody(0.0))]), None);
        assert_eq!(
            of(&[(Serving, attempts(20.0)), (Serving, nobody(0.0))]),
            Some(20.0)
        );
        assert_eq!(of(&[(Off, Counts::Unknown)]), Some(0.0));
    }

    fn sent_of(per_s: f64, is_all: bool) -> Sent {
        Sent::of(PerSecond::new(per_s), 0.0, None, is_all)
    }

    #[test]
    fn what_is_sent_again_to_another_came_once() {
        use PowerState::Serving;
        let counts = [(Serving, attempts(75.0)), (Serving, attempts(71.0))];
        let of = |sent: Option<Sent>| demand(counts, sent).map(PerSecond::get);
        assert_eq!(of(Some(sent_of(117.0, true))), Some(117.0));
        assert_eq!(of(Some(sent_of(200.0, true))), Some(146.0));
        // Others may come to the servers by themselves.
        assert_eq!(of(Some(sent_of(117.0, false))), Some(146.0));
        assert_eq!(of(None), Some(146.0));
        // What waits at the balancer is added by who counts it, and each may need several attempts.
        let held = Sent::of(PerSecond::new(100.0), 40.0, Some(1.5), true);
        assert_eq!(of(Some(held)), Some(90.0));
        let drained = Sent::of(PerSecond::new(100.0), -30.0, None, true);
        assert_eq!(of(Some(drained)), Some(130.0));
    }

    #[test]
    fn what_a_dead_server_had_comes_on_top_no_further_than_to_what_is_sent() {
        use PowerState::Serving;
        let of = |servers: &[(PowerState, Counts)], sent: f64| {
            demand(servers.iter().copied(), Some(sent_of(sent, false))).map(PerSecond::get)
        };
        // What it refuses is sent to the others, or is lost.
        assert_eq!(
            of(&[(Serving, attempts(60.0)), (Serving, nobody(30.0))], 60.0),
            Some(60.0)
        );
        assert_eq!(
            of(&[(Serving, attempts(30.0)), (Serving, nobody(30.0))], 60.0),
            Some(60.0)
        );
        assert_eq!(
            of(&[(Serving, attempts(50.0)), (Serving, nobody(30.0))], 60.0),
            Some(60.0)
        );
        // A balancer knows of its own requests alone, and answers many by itself.
        assert_eq!(
            of(&[(Serving, attempts(60.0)), (Serving, nobody(30.0))], 10.0),
            Some(60.0)
        );
        assert_eq!(
            of(&[(Serving, attempts(60.0)), (Serving, nobody(30.0))], 500.0),
            Some(90.0)
        );
        let unread = (Serving, Counts::Unknown);
        assert_eq!(
            of(
                &[(Serving, attempts(60.0)), (Serving, nobody(30.0)), unread],
                60.0
            ),
            Some(90.0)
        );
        // Of servers that are all dead only what they had is known: their clients may be gone for now.
        assert_eq!(
            of(&[(Serving, nobody(60.0)), (Serving, nobody(30.0))], 5.0),
            Some(90.0)
        );
    }

    #[test]
    fn one_whose_queue_says_nothing_has_what_the_balancer_counted_there() {
        use PowerState::{Draining, Serving};
        let filled = |mut servers: Vec<(PowerState, Counts)>, requests: &[f64]| {
            let requests: Vec<_> = requests.iter().map(|rate| Some(PerSecond::new(*rate))).collect();
            let mut each = None;
            fill_in(&mut servers, &requests, &mut each, &[true, true]);
            demand(servers, None).map(PerSecond::get)
        };
        let unread = (Serving, Counts::Unknown);
        assert_eq!(
            filled(vec![(Serving, attempts(60.0)), unread], &[60.0, 140.0]),
            Some(200.0)
        );
        // Where connections carry four requests each, there too.
        assert_eq!(
            filled(vec![(Serving, attempts(15.0)), unread], &[60.0, 140.0]),
            Some(50.0)
        );
        assert_eq!(filled(vec![unread, unread], &[60.0, 140.0]), Some(200.0));
        // Whom the balancer counts nothing of has what the others have, and one that drains makes nobody's share.
        assert_eq!(
            filled(vec![(Serving, attempts(60.0)), unread], &[60.0]),
            Some(120.0)
        );
        let draining = vec![(Serving, attempts(60.0)), (Draining, Counts::Unknown)];
        assert_eq!(filled(draining, &[60.0, 5.0]), Some(60.0));
    }

    #[test]
    fn a_moment_without_a_reading_takes_no_requests_for_connections() {
        use PowerState::Serving;
        let requests = [Some(PerSecond::new(60.0)), Some(PerSecond::new(140.0))];
        let unread = [(Serving, Counts::Unknown), (Serving, Counts::Unknown)];
        let (mut each, none) = (None, [false, false]);
        let mut blind = unread;
        fill_in(&mut blind, &requests, &mut each, &none);
        assert_eq!(demand(blind, None), None);
        // Twenty requests a connection, as was counted before.
        let mut counted = [(Serving, attempts(3.0)), (Serving, attempts(7.0))];
        fill_in(&mut counted, &requests, &mut each, &none);
        let mut blind = unread;
        fill_in(&mut blind, &requests, &mut each, &none);
        assert_eq!(demand(blind, None), Some(PerSecond::new(10.0)));
    }

    #[test]
    fn only_what_is_exact_and_takes_requests_makes_the_mean() {
        let node = |state, capacity| NodeObservation::new(state, capacity);
        let exact = |per_s| Capacity::Exact(PerSecond::new(per_s));
        let nodes = [
            node(PowerState::Serving, exact(100.0)),
            node(PowerState::Warming, exact(200.0)),
            node(PowerState::Serving, Capacity::LowerBound(PerSecond::new(900.0))),
            node(PowerState::Draining, exact(900.0)),
        ];
        assert_eq!(exact_mean(&nodes), Some(PerSecond::new(150.0)));
        assert_eq!(exact_mean(&nodes[2..]), None);
    }
}
