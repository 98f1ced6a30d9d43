//! The latency of a class of requests on a machine, and how busy a machine may be for it.
//!
//! A request is served by the cores and then passes the link, both shared by all that are present: M/G/k and M/G/1 processor sharing. The
//! requests present have the same distribution whatever the sizes of the others are (insensitivity), and
//! [`sharing_percentile`] gives the percentile of a request of a fixed size among them. Approximations:
//!
//! - the others count as of the class's own size where it is said how fast the congestion that it meets passes, so a small request among
//!   large ones is somewhat later than predicted, and a large one among small ones somewhat earlier;
//! - the percentile of the sum of both is taken as the sum of the percentiles, which is about what it is (simulated at their limits, up to 4 % more on
//!   machines of the paper): the guard is for that too;
//! - a limit holds for both resources alike: the latency at the limit is that with cores and link as busy as it allows.

use crate::plant::Slo;
use crate::queueing::percentile::{ServiceSizes, sharing_percentile};
use headroom_physics::serving::{RequestCost, ServingLoad, ServingMachine};
use headroom_units::{Cores, Ratio, Seconds};

/// No machine is planned busier than this, whatever the SLO allows: beyond it a percentile of the model is one of its error.
pub const MAX_LIMIT: Ratio = Ratio::new(0.95);

/// Limits are rounded down to so many parts of 1: machines with nearly the same limit are then one group.
const LIMIT_PARTS: f64 = 100.0;

/// The percentile of the latency of requests of this cost on a machine that is as busy as this.
pub fn percentile_at(
    machine: &ServingMachine,
    cost: RequestCost,
    load: ServingLoad,
    percentile: Ratio,
) -> Seconds {
    let sizes = ServiceSizes::deterministic();
    let cores = Cores::new(machine.cores as f64);
    let at_cores = sharing_percentile(cores, load.cpu, &sizes, percentile);
    let at_link = sharing_percentile(Cores::new(1.0), load.link, &sizes, percentile);
    cost.cpu * at_cores + Seconds::new(cost.bytes / machine.link_bytes_per_s) * at_link
}

/// How busy the cores and the link of a machine may be, so that the percentile of requests of this cost stays within `guard` of the
/// target: at most [`MAX_LIMIT`], rounded down to a hundredth. `None` where it is over that even on an idle machine.
pub fn limit(machine: &ServingMachine, cost: RequestCost, slo: Slo, guard: Ratio) -> Option<Ratio> {
    let allowed = slo.target() * guard.get();
    let keeps = |busy: f64| {
        let load = ServingLoad {
            cpu: Ratio::new(busy),
            link: Ratio::new(busy),
        };
        percentile_at(machine, cost, load, slo.percentile()) <= allowed
    };
    if !keeps(0.0) {
        return None;
    }
    // The percentile rises with the load.
    let (mut low, mut high) = (0, (MAX_LIMIT.get() * LIMIT_PARTS).round() as u32);
    while low < high {
        let middle = (low + high).div_ceil(2);
        match keeps(f64::from(middle) / LIMIT_PARTS) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    (low > 0).then(|| Ratio::new(f64::from(low) / LIMIT_PARTS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_physics::ServerFigures;
    use headroom_units::Watts;
    use proptest::prelude::*;

    fn machine(cores: usize) -> ServingMachine {
        ServingMachine {
            name: "m".to_owned(),
            cores,
            link_bytes_per_s: 125e6,
            idle: Watts::new(10.0),
            busy: Watts::new(10.0),
            link: Watts::new(1.0),
            server: ServerFigures::default(),
        }
    }

    fn slo(target_ms: f64) -> Slo {
        Slo::new(Ratio::new(0.95), Seconds::from_millis(target_ms)).unwrap()
    }

    #[test]
    fn a_request_that_is_late_on_an_idle_machine_has_no_limit() {
        let cost = RequestCost {
            cpu: Seconds::from_millis(100.0),
            bytes: 1e3,
        };
        assert_eq!(limit(&machine(4), cost, slo(90.0), Ratio::new(1.0)), None);
        assert_eq!(limit(&machine(4), cost, slo(120.0), Ratio::new(0.8)), None);
        assert!(limit(&machine(4), cost, slo(300.0), Ratio::new(0.8)).is_some());
    }

    #[test]
    fn many_cores_may_be_busier_than_few() {
        let cost = RequestCost {
            cpu: Seconds::from_millis(50.0),
            bytes: 1e3,
        };
        let limits =
            [1, 4, 16].map(|cores| limit(&machine(cores), cost, slo(250.0), Ratio::new(0.8)).unwrap());
        assert!(limits[0] < limits[1] && limits[1] < limits[2], "{limits:?}");
    }

    proptest! {
        #[test]
        fn the_percentile_keeps_the_guard_at_the_limit(cpu_ms in 0.05..150.0f64, bytes in 1e2..1e7f64, target_ms in 20.0..500.0f64) {
            let cost = RequestCost { cpu: Seconds::from_millis(cpu_ms), bytes };
            let at = |busy: f64| {
                let load = ServingLoad { cpu: Ratio::new(busy), link: Ratio::new(busy) };
                percentile_at(&machine(4), cost, load, Ratio::new(0.95))
            };
            let allowed = Seconds::from_millis(target_ms * 0.8);
            match limit(&machine(4), cost, slo(target_ms), Ratio::new(0.8)) {
                None => prop_assert!(at(0.0) > allowed || at(0.01) > allowed),
                Some(limit) => {
                    prop_assert!(at(limit.get()) <= allowed && limit <= MAX_LIMIT);
                    prop_assert!(limit >= MAX_LIMIT - Ratio::new(1e-9) || at(limit.get() + 0.0101) > allowed);
                }
            }
        }
    }
}
