//! How many requests a backend may have in flight and be sent more by its weight: as many as the model says are there.
//!
//! Weights say where a class goes on the whole; they do not see that a backend hangs, is slower than its figures, or that more comes in than a
//! period ago. What all of these have in common is that more requests are present than the model says. So each class's routes go with
//! a bound for each backend, above which the gateways send on: the number that is exceeded at most once in [`SELDOM`] at the load that is
//! planned (of cores and link apart, added up, so that it is exceeded less often), and no more than there can be without a request of the class being late that shares its machine with them. A backend that
//! the class is not planned for takes some of what is sent on while it has no more than there are, at the SLO's percentile, where it is as
//! busy as it may be for the class.

use super::choose::Model;
use crate::placement::population::most_present;
use crate::placement::{MAX_LIMIT, Routes};
use crate::plant::Slo;
use headroom_units::Seconds;

/// The share of the time in which more may be there by chance alone, at the load that is planned.
const SELDOM: f64 = 1e-2;
/// How many deviations above its mean the number on the path between is reckoned with.
const DEVIATIONS: f64 = 3.0;

impl Model {
    /// The bounds of each class of known size at each backend under these routes. `allowed`: the latency that is allowed at the SLO's percentile;
    /// `path`: what a request takes beside the work of its machine.
    pub(super) fn most_in_flight(
        &self,
        routes: &Routes,
        backends: usize,
        slo: Slo,
        allowed: Seconds,
        path: Seconds,
    ) -> Vec<Vec<u32>> {
        let late = 1.0 - slo.percentile().get();
        let mut most = vec![vec![0; backends]; self.known()];
        for load in self.loads(routes) {
            let machine = &self.kind(load.kind).machine;
            let there = |[cores, link]: [f64; 2], beyond: f64| {
                let part = |servers: usize, busy: f64| match busy > 0.0 {
                    true => most_present(servers, busy.min(MAX_LIMIT.get()), beyond),
                    false => 0.0,
                };
                part(machine.cores, cores) + part(1, link)
            };
            let planned = there(load.all, SELDOM);
            let on_path = load.rate * path.get();
            let on_path = on_path + DEVIATIONS * on_path.sqrt();
            for (at, class) in self.classes().iter().enumerate() {
                let Some(limit) = self.limit(load.kind, at) else {
                    continue;
                };
                let is_planned = routes.weights[*class][load.backend] > 0;
                let bound = match is_planned {
                    true => planned,
                    false => {
                        // As busy as it may be with what it serves, or with this class where it serves nothing.
                        let serves = load.all.iter().any(|busy| *busy > 0.0);
                        let mix = if serves {
                            load.all
                        } else {
                            self.kind(load.kind).uses(at)
                        };
                        let busiest = mix[0].max(mix[1]);
                        there(mix.map(|busy| busy * limit / busiest), late)
                    }
                };
                // With so many at the resource that it takes the longest of, its own share of that makes it late.
                let cost = self.kind(load.kind).serves[at].cost;
                let alone = cost.cpu / machine.cores as f64;
                let alone = alone.max(Seconds::new(cost.bytes / machine.link_bytes_per_s));
                let in_time = (allowed / alone).floor();
                // As many as its cores serve at once wait for nothing.
                let bound = bound.min(in_time).max(machine.cores as f64) + on_path;
                most[*class][load.backend] = bound.ceil().min(f64::from(u32::MAX)) as u32;
            }
        }
        most
    }
}
