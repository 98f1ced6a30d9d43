//! What bounds a machine beside its cores and its link, from what it was measured to serve at most.
//!
//! A server of one thread, or one whose threads wait for a lock, is full before the machine is. What that resource is no profile says; how
//! many requests of a size it lets pass each cell with connections that always ask says. So the maximum of a size is a resource of its own:
//! a machine that serves a share of one size's maximum has the rest of that share for others.
//!
//! Where that is what bounds a machine, its latency is that of fewer cores: as many as were busy at the maximum, or one that takes as long for a
//! request as the maximum says.

use super::fit::Fitted;
use super::latency::limit;
use crate::plant::Slo;
use headroom_physics::serving::{RequestCost, ServingMachine};
use headroom_units::{PerSecond, Ratio, Seconds};
use std::fmt;

/// Where less than this share of what cores and link allow was measured, neither of them was full; as in a profile's own verdict on a cell.
const FULL: f64 = 0.9;

/// The resource of a machine that is full first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstFull {
    /// Its cores.
    Cores,
    /// Its link.
    Link,
    /// Something else, of which is known what it let pass when it was measured.
    Other,
}

impl fmt::Display for FirstFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cores => "cores",
            Self::Link => "link",
            Self::Other => "other, as measured",
        })
    }
}

/// What is full first where a machine serves requests of this cost alone, of which it was measured to serve `most`.
pub fn first_full(machine: &ServingMachine, cost: RequestCost, most: Option<PerSecond>) -> FirstFull {
    let capacity = machine.capacity(cost);
    if most.is_some_and(|most| most.get() < FULL * capacity.get()) {
        return FirstFull::Other;
    }
    match machine.load([(cost, capacity)]).is_bound_by_cpu() {
        true => FirstFull::Cores,
        false => FirstFull::Link,
    }
}

/// How busy a machine may be, as [`limit`], where it was measured to serve at most this many requests of this cost.
pub fn measured_limit(
    machine: &ServingMachine,
    cost: RequestCost,
    most: Option<PerSecond>,
    slo: Slo,
    guard: Ratio,
) -> Option<Ratio> {
    let Some(most) = most.filter(|most| first_full(machine, cost, Some(*most)) == FirstFull::Other) else {
        return limit(machine, cost, slo, guard);
    };
    let busy = (most.get() * cost.cpu.get() + 1e-9).floor().max(1.0);
    let narrow = ServingMachine {
        cores: (busy as usize).min(machine.cores),
        ..machine.clone()
    };
    let cost = RequestCost {
        cpu: cost.cpu.max(Seconds::new(busy / most.get())),
        ..cost
    };
    limit(&narrow, cost, slo, guard)
}

impl Fitted {
    /// The most requests of this size that the machine was measured to serve. Between measured sizes the time for each is interpolated; below
    /// the smallest the maximum is that of the smallest, beyond the largest as many bytes as of the largest: neither was measured, and both
    /// are no more than a cost that rises with the size allows.
    pub fn most_of(&self, size_bytes: f64) -> Option<PerSecond> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        if size_bytes <= first.size_bytes {
            return Some(first.throughput);
        }
        if size_bytes >= last.size_bytes {
            return Some(last.throughput * (last.size_bytes / size_bytes));
        }
        let at = self
            .points
            .partition_point(|point| point.size_bytes <= size_bytes)
            .clamp(1, self.points.len() - 1);
        let (low, high) = (&self.points[at - 1], &self.points[at]);
        let part = (size_bytes - low.size_bytes) / (high.size_bytes - low.size_bytes);
        let [low, high] = [low, high].map(|point| point.throughput.get().recip());
        Some(PerSecond::new((low + part * (high - low)).recip()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::{Baselines, Cell, MachineDescription, fit};
    use super::*;
    use headroom_units::{Cores, Watts};
    use proptest::prelude::*;

    /// Eight cores, of which a server of one thread has one: 1 ms a request of 1 KB, 4 ms of 100 KB.
    fn one_thread() -> Fitted {
        let cell = |size_bytes, rate| Cell {
            size_bytes,
            density: Ratio::new(1.0),
            throughput: PerSecond::new(rate),
            busy_cores: Cores::new(1.0),
            generator_cores: Cores::ZERO,
            link_bytes_per_s: rate * size_bytes,
            power: Watts::new(30.0),
            marked: false,
        };
        let machine = MachineDescription {
            name: "m".to_owned(),
            cores: 8,
            link_bytes_per_s: Some(125e6),
        };
        let baselines = Baselines {
            idle: Some(Watts::new(20.0)),
            ..Baselines::default()
        };
        fit(
            &machine,
            &[cell(1024.0, 1000.0), cell(102_400.0, 250.0)],
            &baselines,
        )
        .unwrap()
    }

    #[test]
    fn a_server_of_one_thread_is_bound_by_neither_cores_nor_link() {
        let fitted = one_thread();
        let cost = fitted.cost_of(1024.0);
        assert_eq!(
            fitted.machine.capacity(cost).get().round(),
            8000.0,
            "what the cores alone would allow"
        );
        let most = fitted.most_of(1024.0);
        assert_eq!(most, Some(PerSecond::new(1000.0)));
        assert_eq!(first_full(&fitted.machine, cost, most), FirstFull::Other);
        assert_eq!(first_full(&fitted.machine, cost, None), FirstFull::Cores);
        let nearly = Some(PerSecond::new(7900.0));
        assert_eq!(first_full(&fitted.machine, cost, nearly), FirstFull::Cores);
        let large = RequestCost { bytes: 1e6, ..cost };
        assert_eq!(first_full(&fitted.machine, large, None), FirstFull::Link);
    }

    #[test]
    fn the_latency_of_one_thread_is_that_of_one_core() {
        let fitted = one_thread();
        let (cost, most) = (fitted.cost_of(1024.0), fitted.most_of(1024.0));
        let slo = Slo::new(Ratio::new(0.95), Seconds::from_millis(10.0)).unwrap();
        let guard = Ratio::new(0.8);
        let narrow = measured_limit(&fitted.machine, cost, most, slo, guard).unwrap();
        let one_core = ServingMachine {
            cores: 1,
            ..fitted.machine.clone()
        };
        assert_eq!(Some(narrow), limit(&one_core, cost, slo, guard));
        assert!(narrow < measured_limit(&fitted.machine, cost, None, slo, guard).unwrap());
        // Where it waits for more than cores, a request takes as long as the maximum says.
        let slower = Some(PerSecond::new(100.0));
        assert_eq!(measured_limit(&fitted.machine, cost, slower, slo, guard), None);
    }

    #[test]
    fn what_a_short_burst_had_is_no_maximum() {
        let cell = |density: f64, rate: f64| Cell {
            size_bytes: 1024.0,
            density: Ratio::new(density),
            throughput: PerSecond::new(rate * density),
            busy_cores: Cores::new(density),
            generator_cores: Cores::ZERO,
            link_bytes_per_s: 1e6,
            power: Watts::new(20.0 + density),
            marked: false,
        };
        let machine = MachineDescription {
            name: "m".to_owned(),
            cores: 2,
            link_bytes_per_s: Some(125e6),
        };
        let cells = [cell(0.25, 1_500.0), cell(0.98, 990.0), cell(1.0, 1_000.0)];
        let fitted = fit(&machine, &cells, &Baselines::default()).unwrap();
        assert_eq!(fitted.most_of(1024.0), Some(PerSecond::new(1_000.0)));
    }

    proptest! {
        #[test]
        fn nothing_is_promised_that_was_not_measured(size in 1.0..1e8f64, more in 1.0..10.0f64) {
            let fitted = one_thread();
            let most = |size: f64| fitted.most_of(size).unwrap().get();
            prop_assert!(most(size) <= 1000.0 && most(size * more) <= most(size) * (1.0 + 1e-9));
            prop_assert!(size < 102_400.0 || most(size) * size <= 250.0 * 102_400.0 * (1.0 + 1e-9));
            prop_assert!(size > 102_400.0 || most(size) >= 250.0 * (1.0 - 1e-9));
        }
    }
}
