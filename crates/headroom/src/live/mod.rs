//! The closed loop, live: one period after another, what is seen goes to the law, and what it decides to the machine.
//!
//! The loop knows neither gateway nor cgroup: it is given a [`Telemetry`] and a [`Machine`]. What a period leaves
//! behind goes to [`Sink`]s (recorder, metrics, view), which can neither delay nor change the loop.

pub mod admin;
pub mod calibrate;
mod machine;
mod metrics;
mod outcomes;
pub mod run;
mod sinks;
pub mod start;
mod telemetry;
mod tick;
pub mod undo;
pub mod view;

pub use machine::{CgroupMachine, Machine, MachinePeriod, Refused};
pub use outcomes::{Outcomes, failures};
pub use telemetry::{GatewayTelemetry, Haproxy, Known, Prometheus, Telemetry, TrafficPeriod};
pub use tick::{BackendTick, Tick};

use crate::stop::Stop;
use headroom_control::{
    Allocation, Distribution, Guardian, Latency, Law, Seen, Slo, Traffic, missed_latency,
};
use headroom_units::{Seconds, quantile_of_answered};
use std::time::{Duration, Instant};

/// Takes what each period leaves behind.
pub trait Sink {
    /// Takes one period.
    fn tick(&mut self, tick: &Tick);
}

/// What stays the same during a run.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Length of a period.
    pub period: Duration,
    /// The promise.
    pub slo: Slo,
    /// The latency above which the law repairs, where it has such a threshold.
    pub guard: Option<Seconds>,
}

/// The closed loop.
pub struct ControlLoop<'a> {
    /// What stays the same.
    pub frame: Frame,
    /// The law.
    pub law: &'a mut Guardian<Box<dyn Law>>,
    /// What is controlled.
    pub machine: &'a mut dyn Machine,
    /// What is seen of the requests.
    pub telemetry: &'a mut dyn Telemetry,
    /// Who is told.
    pub sinks: Vec<&'a mut dyn Sink>,
}

impl ControlLoop<'_> {
    /// Runs until `stop` is raised or `done` says so after a period; how many periods there were.
    pub fn run(&mut self, stop: &Stop, mut done: impl FnMut(Seconds) -> bool) -> u64 {
        let begin = Instant::now();
        let mut last = begin;
        let mut due = begin;
        let mut index = 0;
        // What the machine and the gateway counted before the run belongs to no period of it.
        self.machine.observe();
        self.telemetry.take(self.frame.period / 2);
        loop {
            due += self.frame.period;
            if stop.wait_until(due) {
                return index;
            }
            let now = Instant::now();
            if now > due + self.frame.period {
                tracing::warn!(
                    late_s = (now - due).as_secs_f64(),
                    "the control loop is late: periods are skipped"
                );
                due = now;
            }
            let tick = self.period(index, Seconds::from(now - last), Seconds::from(now - begin));
            last = now;
            for sink in &mut self.sinks {
                sink.tick(&tick);
            }
            index += 1;
            if done(tick.at) {
                return index;
            }
        }
    }

    fn period(&mut self, index: u64, length: Seconds, at: Seconds) -> Tick {
        // Half a period is left for the machine and the law.
        let telemetry = self.telemetry.take(self.frame.period / 2);
        let machine = self.machine.observe();
        let seen = Seen {
            period: index,
            length,
            allocated: self.machine.allocated(),
            traffic: telemetry.as_ref().map(|period| self.traffic(period)),
            utilisation: machine.utilisation,
            power: machine.power,
            frequency: machine.frequency,
        };
        let decision = self.law.decide(&seen);
        let actuation_failed = match self.machine.apply(decision.allocation) {
            Ok(()) => false,
            Err(error) => {
                let Allocation {
                    cores,
                    cap,
                    frequency,
                } = decision.allocation;
                let frequency = frequency.map(|limit| limit.to_string());
                tracing::error!(%cores, %cap, frequency, "the decision could not be carried out: {error:#}");
                true
            }
        };
        if seen.traffic.is_none() {
            tracing::warn!(
                lost_periods = self.law.lost_periods(),
                "telemetry lost: {}",
                decision.reasons.first().map_or("", |reason| &reason.text)
            );
        }

        let queue = telemetry.as_ref().and_then(|period| period.queue);
        let outcomes = telemetry.as_ref().map(|period| period.outcomes.clone());
        let (histogram, backends) = match telemetry {
            Some(TrafficPeriod {
                latency: Known::Histogram(histogram),
                backends,
                ..
            }) => (Some(histogram), backends),
            Some(period) => (None, period.backends),
            None => (None, Vec::new()),
        };
        Tick {
            at,
            seen,
            decision,
            in_force: self.machine.allocated(),
            actuation_failed,
            energy: machine.energy,
            zone: machine.zone,
            throttled: machine.throttled,
            refused: machine.refused,
            target: self.frame.slo.target(),
            guard: self.frame.guard,
            histogram,
            backends,
            queue,
            outcomes: outcomes.unwrap_or_default(),
        }
    }

    fn traffic(&self, period: &TrafficPeriod) -> Traffic {
        Traffic {
            arrivals: period.arrivals,
            completions: period.completions,
            failures: period.failures,
            failed_by_client: period.outcomes.failed_by_client,
            in_flight: period.in_flight,
            oldest_in_flight: period.oldest_in_flight,
            latency: latency(period, self.frame.slo),
        }
    }
}

/// The latency of a period, the requests that the service failed being the slowest; `None` where none ended.
fn latency(period: &TrafficPeriod, slo: Slo) -> Option<Latency> {
    let percentile = slo.percentile();
    let failed = period.failures.saturating_sub(period.outcomes.failed_by_client);
    let (answered, longest) = match &period.latency {
        Known::AtSlo(at_slo) => (period.completions, *at_slo),
        Known::Histogram(histogram) => (
            histogram.len(),
            (!histogram.is_empty()).then(|| Seconds::from_micros(histogram.max() as f64)),
        ),
    };
    let quantile = quantile_of_answered(percentile, answered, failed);
    let missed = quantile.is_none();
    let missed_at = missed_latency(slo.target(), longest);
    let histogram = match &period.latency {
        Known::Histogram(histogram) => histogram,
        // The source's own percentile is of whatever its query takes in: as long as it is not missed, that is it.
        Known::AtSlo(_) if missed => {
            return Some(Latency {
                at_slo: missed_at,
                missed,
                distribution: None,
            });
        }
        Known::AtSlo(at_slo) => {
            return at_slo.map(|at_slo| Latency {
                at_slo,
                missed,
                distribution: None,
            });
        }
    };
    let at = |percent: f64| Seconds::from_micros(histogram.value_at_percentile(percent) as f64);
    let at_slo = match quantile {
        None => missed_at,
        Some(_) if histogram.is_empty() => return None,
        Some(_) if failed == 0 => at(percentile.as_percent()),
        Some(quantile) => at(quantile * 100.0),
    };
    Some(Latency {
        at_slo,
        missed,
        distribution: (!histogram.is_empty()).then(|| Distribution {
            mean: Seconds::from_micros(histogram.mean()),
            p50: at(50.0),
            p95: at(95.0),
            p99: at(99.0),
            p999: at(99.9),
        }),
    })
}

#[cfg(test)]
mod tests;
