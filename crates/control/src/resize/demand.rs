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

/// The arrival rate at a whole cluster, of what was counted at its servers; `None` where of none that takes requests anything
/// is known, and where nobody listens at any of them. The balancer spreads requests evenly, so that a server that could not be read has what
/// the others have. One that takes requests and where nobody listens any more has what it had: until the balancer finds it dead it is sent as much,
/// and a demand that fell with each server that dies would have the others switched off.
pub fn demand(servers: impl IntoIterator<Item = (PowerState, Counts)>) -> Option<PerSecond> {
    let (mut sum, mut known, mut serving, mut listening) = (0.0, 0_u32, 0_u32, 0_u32);
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
                sum += before.get();
                known += takes;
            }
            Counts::Nobody(_) => {}
            Counts::Unknown => {}
        }
    }
    match (listening, serving) {
        // For as long as the balancer has not found them dead.
        (0, 1..) => (sum > 0.0).then(|| PerSecond::new(sum)),
        (_, 0) => Some(PerSecond::new(sum)),
        _ => Some(PerSecond::new(sum * f64::from(serving) / f64::from(known))),
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
        let of = |servers: &[(PowerState, Counts)]| demand(servers.iter().copied()).map(PerSecond::get);
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

    #[test]
    fn only_what_is_exact_and_takes_requests_makes_the_mean() {
        let node = |state, capacity| NodeObservation { state, capacity };
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
