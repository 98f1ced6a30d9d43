//! What is counted in a period, as a law is given it.

use crate::histogram::LatencyHistogram;
use headroom_control::placement::{BackendObservation, ClassOnBackend, SizeClass, SizesObservation};
use headroom_control::{Slo, Traffic};

/// One class on one machine.
#[derive(Clone, Debug, Default)]
struct Cell {
    arrivals: u64,
    latency: LatencyHistogram,
}

#[derive(Clone, Debug, Default)]
struct Class {
    arrivals: u64,
    failures: u64,
    bytes: f64,
    latency: LatencyHistogram,
    machines: Vec<Cell>,
}

/// The counts of a period.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    classes: Vec<Class>,
    latency: LatencyHistogram,
    bounds_bytes: Vec<u64>,
}

impl Counts {
    pub(super) fn new(bounds_bytes: &[u64], machines: usize) -> Self {
        let class = Class {
            machines: vec![Cell::default(); machines],
            ..Class::default()
        };
        Self {
            classes: vec![class; bounds_bytes.len() + 2],
            latency: LatencyHistogram::new(),
            bounds_bytes: bounds_bytes.to_vec(),
        }
    }

    /// A request came, and went to this machine.
    pub(super) fn arrived(&mut self, class: usize, machine: Option<usize>) {
        let class = &mut self.classes[class];
        class.arrivals += 1;
        match machine {
            Some(at) => class.machines[at].arrivals += 1,
            None => class.failures += 1,
        }
    }

    pub(super) fn answered(
        &mut self,
        class: usize,
        machine: usize,
        latency: headroom_units::Seconds,
        bytes: f64,
    ) {
        let class = &mut self.classes[class];
        class.bytes += bytes;
        class.latency.record(latency);
        class.machines[machine].latency.record(latency);
        self.latency.record(latency);
    }

    pub(super) fn failed(&mut self, class: usize) {
        self.classes[class].failures += 1;
    }

    /// All requests of the period.
    pub(super) fn traffic(&self, slo: Slo, in_flight: u64) -> Traffic {
        let sum = |of: fn(&Class) -> u64| self.classes.iter().map(of).sum();
        let failures = sum(|class| class.failures);
        Traffic {
            arrivals: sum(|class| class.arrivals),
            completions: self.latency.count(),
            failures,
            in_flight: Some(in_flight),
            latency: self.latency.latency(slo, failures),
            ..Traffic::default()
        }
    }

    /// By class and machine.
    pub(super) fn sizes(&self, slo: Slo, backends: Vec<BackendObservation>) -> SizesObservation {
        let known = self.bounds_bytes.len() + 1;
        let class = |(at, class): (usize, &Class)| SizeClass {
            up_to: self.bounds_bytes.get(at).copied(),
            known: at < known,
            arrivals: class.arrivals,
            completions: class.latency.count(),
            failures: class.failures,
            bytes: class.bytes.round() as u64,
            latency: class.latency.latency(slo, class.failures),
            backends: class
                .machines
                .iter()
                .map(|cell| ClassOnBackend {
                    arrivals: cell.arrivals,
                    completions: cell.latency.count(),
                    mean: cell.latency.mean(),
                    at_slo: cell.latency.percentile(slo.percentile()),
                })
                .collect(),
        };
        SizesObservation {
            backends,
            classes: self.classes.iter().enumerate().map(class).collect(),
        }
    }

    /// Begins a period.
    pub(super) fn clear(&mut self) {
        self.latency.clear();
        for class in &mut self.classes {
            (class.arrivals, class.failures, class.bytes) = (0, 0, 0.0);
            class.latency.clear();
            for cell in &mut class.machines {
                cell.arrivals = 0;
                cell.latency.clear();
            }
        }
    }
}
