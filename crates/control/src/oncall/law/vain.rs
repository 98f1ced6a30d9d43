//! SLOs that nobody can keep: what is done for them costs others and brings nothing.
//!
//! A policy that has connections with an SLO go first does so as long as one of these is missed. Where it is missed all the same, as with a
//! target under what a query takes or a class that is most of the load, all others would have next to no turn for good. Ours \[D\]: after a
//! while of that all have the same turns for a while, then the policy has another try, ever more rarely.

use super::super::policy::{Connection, Grant};
use headroom_units::Seconds;
use std::collections::HashMap;

/// Of so much time more in which it was missed than in which it was kept.
const AFTER: Seconds = Seconds::new(10.0);
/// Then all are the same for so long at first, twice as long each time, and this at most.
const REST: Seconds = Seconds::new(20.0);
const LONGEST_REST: Seconds = Seconds::new(320.0);
/// Whoever pauses for longer before its turns could be served more.
const NO_PAUSE: Seconds = Seconds::new(1e-3);

/// For how long SLOs were missed though all was done, and for how long nothing is done for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vain {
    missed: Seconds,
    rests: Seconds,
    length: Seconds,
}

impl Vain {
    /// Reads a period of this length, in which these grants were in force; for how long all have the same turns from now on, where they do.
    pub(super) fn read(
        &mut self,
        length: Seconds,
        connections: &[Connection],
        granted: &[Grant],
    ) -> Option<Seconds> {
        if self.rests > Seconds::ZERO {
            self.rests = (self.rests - length).max(Seconds::ZERO);
            return Some(self.rests).filter(|rests| *rests > Seconds::ZERO);
        }
        let (asked, missed) = missed(connections, granted);
        if asked == 0 {
            return None;
        }
        if 2 * missed < asked {
            // One such period among many says little.
            self.missed = (self.missed - length).max(Seconds::ZERO);
            if self.missed == Seconds::ZERO {
                self.length = Seconds::ZERO;
            }
            return None;
        }
        self.missed += length;
        if self.missed < AFTER {
            return None;
        }
        self.length = match self.length > Seconds::ZERO {
            true => (self.length * 2.0).min(LONGEST_REST),
            false => REST,
        };
        (self.missed, self.rests) = (Seconds::ZERO, self.length);
        Some(self.rests)
    }
}

/// How many connections with an SLO asked in a period, for which others gave way, and how many of these missed it: by their last queries, and by
/// the mean of the period itself.
fn missed(connections: &[Connection], granted: &[Grant]) -> (usize, usize) {
    if !granted.iter().any(|grant| grant.yields) {
        return (0, 0);
    }
    let granted: HashMap<u64, &Grant> = granted.iter().map(|grant| (grant.id, grant)).collect();
    let is_served_first = |of: &Connection| {
        let grant = granted.get(&of.id);
        grant.is_some_and(|grant| !grant.yields && grant.retry < NO_PAUSE)
    };
    let is_late = |of: &Connection| {
        of.violates()
            && of
                .mean
                .zip(of.budget())
                .is_some_and(|(mean, budget)| mean > budget)
    };
    let asked = connections
        .iter()
        .filter(|of| !of.slos.is_empty() && of.queries > 0);
    asked.fold((0, 0), |(asked, late), of| {
        (asked + 1, late + usize::from(is_late(of) && is_served_first(of)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::policy::Kept;
    use super::*;
    use headroom_units::Ratio;

    const PERIOD: Seconds = Seconds::new(0.25);

    fn connections(mean_ms: f64, violations: f64) -> Vec<Connection> {
        let of = |id: u64| Connection {
            id,
            class: if id < 4 { "gold" } else { "rest" }.to_owned(),
            weight: 1.0,
            queries: 50,
            mean: Some(Seconds::from_millis(mean_ms)),
            cv: Some(Ratio::new(1.0)),
            slos: Vec::new(),
            tokens: 1,
        };
        let slo = Kept::Percentile {
            percentile: Ratio::new(0.99),
            violations: Ratio::new(violations),
            budget: Some(Seconds::from_millis(1.0)),
        };
        (0..8)
            .map(|id| Connection {
                slos: if id < 4 { vec![slo] } else { Vec::new() },
                ..of(id)
            })
            .collect()
    }

    fn grants(pause_ms: f64) -> Vec<Grant> {
        (0..8)
            .map(|id| Grant {
                yields: id >= 4,
                retry: Seconds::from_millis(pause_ms),
                ..Grant::new(id, 1)
            })
            .collect()
    }

    /// For how many of so many periods all have the same turns.
    fn rests(vain: &mut Vain, periods: usize, connections: &[Connection], grants: &[Grant]) -> usize {
        (0..periods)
            .filter(|_| vain.read(PERIOD, connections, grants).is_some())
            .count()
    }

    #[test]
    fn what_is_missed_though_all_is_done_is_given_up_ever_longer() {
        let (hopeless, all) = (connections(5.0, 1.0), grants(0.0));
        let mut vain = Vain::default();
        assert_eq!(rests(&mut vain, 39, &hopeless, &all), 0);
        // 10 s of tries, 20 s of rest; then twice as long.
        assert_eq!(rests(&mut vain, 80, &hopeless, &all), 80);
        assert_eq!(rests(&mut vain, 40, &hopeless, &all), 0);
        assert_eq!(rests(&mut vain, 160, &hopeless, &all), 160);
        let share = rests(&mut vain, 20_000, &hopeless, &all) as f64 / 20_000.0;
        assert!(share > 0.95, "{share}");
    }

    #[test]
    fn what_is_kept_or_could_be_or_costs_nobody_is_not_given_up() {
        let (kept, late_before) = (connections(0.5, 0.0), connections(0.5, 0.1));
        let hopeless = connections(5.0, 1.0);
        for (connections, grants) in [
            (&kept, grants(0.0)),
            // Their last queries were late, and those of the period are not.
            (&late_before, grants(0.0)),
            // They pause: less of that is to be tried first.
            (&hopeless, grants(8.0)),
            // Nobody gives way to them.
            (&hopeless, vec![Grant::new(0, 1)]),
        ] {
            assert_eq!(rests(&mut Vain::default(), 400, connections, &grants), 0);
        }
        let mut vain = Vain::default();
        rests(&mut vain, 39, &hopeless, &grants(0.0));
        rests(&mut vain, 39, &kept, &grants(0.0));
        assert_eq!(rests(&mut vain, 39, &hopeless, &grants(0.0)), 0);
        // One that is kept among many that are not changes little.
        rests(&mut vain, 1, &kept, &grants(0.0));
        assert!(rests(&mut vain, 39, &hopeless, &grants(0.0)) > 0);
    }
}
