//! The laws on servers that are formulas.

mod either;
mod elsewhere;
mod partial;
mod release;
mod resting;
mod saturated;
mod stalls;

use super::*;
use crate::law::Law;
use crate::observation::{Distribution, Latency, Traffic};
use crate::plant::Slo;
use headroom_units::{LeverRange, Ratio, Reading, Source, Verdict, Watts};

/// A server of two cores whose throughput, tail and power follow from what is in force.
struct Server {
    /// Queries a second that C, N and D can serve.
    most: fn(Option<f64>, f64) -> f64,
    /// P99 in ms.
    tail: fn(Option<f64>, f64, f64) -> f64,
    /// Watts at a delay in ms.
    watts: Option<fn(f64) -> f64>,
    /// Queries a second that come; infinite in a closed loop.
    demand: f64,
    noise: u64,
    cores: u64,
    /// Clients that wait for their answers, and never for a slot: a delay makes them ask less.
    closed: bool,
    /// Clients that always have a query there: the mean latency is theirs by Little's law, and a share of the tail where none are told.
    clients: Option<f64>,
}

impl Server {
    fn observation(&mut self, period: u64, in_force: Setting) -> Observation {
        // xorshift64: 4 % of noise.
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        let noise = 1.0 + 0.04 * ((self.noise >> 11) as f64 / (1_u64 << 53) as f64 - 0.5);
        let workers = in_force.get(Lever::Concurrency);
        let batch = in_force.get(Lever::QueryBatch).unwrap_or(1.0);
        let delay_ms = in_force.get(Lever::RoundDelay).unwrap_or(0.0) * 1e3;
        let most = (self.most)(workers, batch) * noise;
        let rate = match self.closed {
            // As MariaDB was measured with two clients.
            true => most / (1.0 + 30.0 * delay_ms),
            false => most.min(self.demand),
        };
        let tail = Seconds::from_millis((self.tail)(workers, batch, delay_ms));
        let saturated = self.demand >= most && !self.closed;
        let always_wait = match (saturated, workers) {
            (true, Some(_)) => 40,
            _ => 0,
        };
        Observation {
            period,
            length: Seconds::new(0.25),
            at: Seconds::new(0.25 * (period + 1) as f64),
            in_force,
            power: self
                .watts
                .map(|watts| Reading::new(Watts::new(watts(delay_ms)), Source::Estimated)),
            traffic: Some(Traffic {
                arrivals: (rate * 0.25) as u64,
                completions: (rate * 0.25) as u64,
                latency: Some(Latency {
                    at_slo: tail,
                    missed: false,
                    distribution: Some(Distribution {
                        mean: self
                            .clients
                            .map_or(tail * 0.3, |clients| Seconds::new(clients / rate)),
                        p50: tail * 0.2,
                        p95: tail * 0.8,
                        p99: tail,
                        p999: tail * 2.0,
                    }),
                }),
                ..Traffic::default()
            }),
            oncall: Some(OncallObservation {
                queries: (rate * 0.25) as u64,
                rounds: 50,
                waiting_least: Some(always_wait),
                waiting_share: OncallObservation::share_of(always_wait, 64, None),
                connections: 64,
                cores: Some(self.cores),
                // Each ms of delay is a hundredth of the cores' time more in idle periods that pay.
                long_idle: Some(Ratio::new(0.2 + 0.01 * delay_ms)),
                ..OncallObservation::default()
            }),
            ..Observation::default()
        }
    }

    fn run(&mut self, law: &mut dyn Law, periods: u64) -> Setting {
        let mut in_force = Setting::default();
        for period in 0..periods {
            let decision = law.decide(&self.observation(period, in_force));
            assert!(!decision.reasons.is_empty());
            in_force = decision.setting;
        }
        in_force
    }
}

fn plant() -> Plant {
    let range = LeverRange::new(1.0, 4096.0, 1.0).unwrap();
    let delay = LeverRange::between(0.0, 1.0);
    Plant::of_servers(1)
        .with_range(Lever::Concurrency, range)
        .and_then(|plant| plant.with_range(Lever::QueryBatch, range))
        .and_then(|plant| plant.with_range(Lever::RoundDelay, delay))
        .unwrap()
}

fn slo(ms: f64) -> Slo {
    Slo::new(Ratio::new(0.99), Seconds::from_millis(ms)).unwrap()
}

fn ours(ms: f64, goal: GoalName) -> OnCall {
    let tuning = OncallTuning {
        goal,
        ..OncallTuning::default()
    };
    OnCall::new(slo(ms), plant(), Some(&MachineFigures::broadwell(12)), tuning).unwrap()
}

const fn workers(setting: &Setting) -> Option<f64> {
    setting.get(Lever::Concurrency)
}

/// One that a tenth of what it could serve is asked of, and whose watts a delay of 2 ms saves.
fn partly_loaded() -> Server {
    Server {
        demand: 2_000.0,
        tail: |_, _, delay| 1.0 + 1.3 * delay,
        watts: Some(|delay| if delay >= 2.0 { 60.0 } else { 80.0 }),
        ..oversubscribed()
    }
}

/// As MariaDB was measured at 512 connections: more with more queries a round and some workers more than cores, little as it is.
fn oversubscribed() -> Server {
    Server {
        most: |workers, batch| match workers {
            None => 22_000.0,
            Some(workers) if workers < 3.0 => 20_000.0,
            Some(workers) if workers > 6.0 => 22_500.0,
            Some(_) if batch >= 4.0 => 26_000.0,
            Some(_) => 21_000.0,
        },
        tail: |workers, batch, _| match workers {
            None => 900.0,
            Some(_) => 30.0 + 15.0 * batch,
        },
        watts: None,
        demand: f64::INFINITY,
        noise: 7,
        cores: 2,
        closed: false,
        clients: None,
    }
}
