//! What a period says of the service: its load, what a request costs, how late it is, what is drawn.

use super::Joint;
use crate::everything_on::SETTLED_AFTER;
use crate::growth::Growth;
use crate::headroom::latency::Measured;
use crate::observation::{NodeObservation, Observation, Traffic};
use crate::reflex::{Past, Queue};
use crate::resize::PowerState;
use headroom_units::{Hertz, PerSecond};

impl Joint {
    pub(super) fn serving(&self, observation: &Observation) -> usize {
        match observation.nodes.is_empty() {
            true => self.draw.servers(),
            false => observation
                .nodes
                .iter()
                .filter(|node| node.state.takes_requests())
                .count()
                .max(1),
        }
    }

    /// Servers that serve, or will without another order.
    pub(super) fn ordered(&self, observation: &Observation) -> usize {
        let on = |node: &&NodeObservation| {
            matches!(
                node.state,
                PowerState::Booting | PowerState::Warming | PowerState::Serving
            )
        };
        match observation.nodes.is_empty() {
            true => self.draw.servers(),
            false => observation.nodes.iter().filter(on).count(),
        }
    }

    pub(super) fn limit_in_force(&self, observation: &Observation) -> (Option<Hertz>, f64) {
        if let Some(capped) = &self.capped {
            return capped.in_force(observation.frequency.map(|reading| reading.value));
        }
        let limit = observation.in_force.frequency();
        let highest = self.plant.frequency().map(|range| range.max());
        let pace = limit
            .zip(highest)
            .map_or(1.0, |(limit, highest)| (limit / highest).clamp(0.05, 1.0));
        (limit, pace)
    }

    /// The share of the cores of so many servers that is not parked.
    pub(super) fn on_in_force(&self, observation: &Observation, serving: usize) -> f64 {
        let cores = observation.in_force.cores().filter(|_| self.plant.parks());
        let share = cores.map_or(1.0, |cores| cores.get() / self.draw.cores(serving));
        if share < 1.0 - 1e-6 { share } else { 1.0 }
    }

    /// Whether anything was limited that acts at once.
    pub(super) fn is_limited(&self, observation: &Observation, serving: usize) -> bool {
        let slowed = match &self.capped {
            Some(capped) => capped.limits(),
            None => observation.in_force.frequency().is_some(),
        };
        slowed || self.on_in_force(observation, serving) < 1.0
    }

    /// Periods of this length until a server that is ordered now serves: what is observed of a period is decided at its end.
    pub(super) fn horizon(&self, length: f64) -> usize {
        let horizon_s = self.draw.longest_boot_s() + self.tuning.warm_s;
        (horizon_s / length.max(1e-3)).ceil() as usize + 1
    }

    pub(super) fn observe_growth(&mut self, rate: f64, length: f64) {
        let horizon = self.horizon(length);
        self.observed_s += length;
        self.growth
            .get_or_insert_with(|| Growth::new(horizon))
            .observe(rate, length, &self.forecaster);
    }

    pub(super) fn learn(&mut self, observation: &Observation, traffic: &Traffic) {
        let length = observation.length.get();
        let serving = self.serving(observation);
        let on = self.on_in_force(observation, serving);
        let cores = self.draw.cores(serving) * on;
        let (limit, pace) = self.limit_in_force(observation);
        let fired = observation.reflexes > 0;
        self.steady = match self.steady.0 == serving {
            true => (serving, self.steady.1.saturating_add(1)),
            false => (serving, 0),
        };
        // A reflex lifts the cap in the middle of a period.
        if let Some(capped) = self.capped.as_mut().filter(|_| !fired) {
            capped.observe(observation.frequency.map(|reading| reading.value));
        }
        let Some(rate) = observation.arrival_rate().map(PerSecond::get) else {
            return;
        };
        self.forecaster.observe(observation.period, rate, length);
        self.observe_growth(rate, length);
        let in_flight = observation.at_work(traffic);
        self.reflex.observe(&Past {
            queue: Queue {
                rate,
                cost: self.cost.at(pace),
                cores,
                length,
            },
            in_flight: traffic
                .in_flight
                .and_then(|_| traffic.mean_in_flight(observation.length)),
            // A gateway's alarm counts those that it holds too.
            at_end: traffic.left_at_end(observation.length),
            fired,
            late: traffic.latency_to_judge() > self.slo.target(),
            limited: self.is_limited(observation, serving),
        });
        // After a server began to serve, cores seem parked that are its own, as long as its agent is not heard.
        let unheard = on < 1.0 && self.steady.1 < SETTLED_AFTER;
        if fired || unheard {
            // Two points were in force, or it is not known which was: the period says nothing of either.
            self.in_flight = Some((observation.period, in_flight));
            return;
        }
        if let Some(share) = observation.utilisation {
            // A server may serve before its agent is heard: what is in force, and the share, are then of the others alone.
            let in_force = observation.in_force.cores().map_or(cores, |cores| cores.get());
            let busy = share.get().clamp(0.0, 1.0) * in_force.max(cores);
            let before = self
                .in_flight
                .filter(|(period, _)| period + 1 == observation.period);
            let change = in_flight - before.map_or(in_flight, |(_, before)| before);
            self.cost
                .observe(busy * length, traffic.completions as f64, change, pace);
        }
        self.in_flight = Some((observation.period, in_flight));
        let settled = |state: PowerState| {
            matches!(
                state,
                PowerState::Serving | PowerState::Off | PowerState::Maintenance
            )
        };
        let cost = self.cost.at(pace);
        if let Some(power) = observation.power
            && observation.nodes.iter().all(|node| settled(node.state))
        {
            let figures = self.draw.by_figures(serving, on, rate, cost, limit);
            self.draw.observe(power.value.get(), figures);
        }
        if let Some(latency) = traffic.latency.filter(|latency| !latency.missed) {
            self.latency.observe(&Measured {
                cores,
                load: rate * cost / cores,
                cost,
                completions: traffic.completions as f64,
                length,
                at_slo: latency.at_slo.get(),
                median_and_p95: latency.distribution.map(|d| (d.p50.get(), d.p95.get())),
            });
        }
    }
}
