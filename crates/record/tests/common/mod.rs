//! A synthetic compressed day under two laws: what the tests, the example and the benchmark record.
//!
//! The world is crude on purpose (latency of an M/G/1-PS core with noise, power linear in busy cores): it only has to
//! give records the shapes that real ones have.
#![allow(dead_code, reason = "each test binary uses its own part")]

use hdrhistogram::Histogram;
use headroom_record::{LatencySummary, PeriodRecord, Reason, RunMeta, Slo, World};
use headroom_units::{
    Cores, Joules, Lever, Part, PerSecond, Ratio, Reading, Role, Seconds, Sensor, Source, Watts,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::SystemTime;

/// Requests a second that one core can serve.
const MU: f64 = 24.0;
/// Cores of the machine.
const CORES: f64 = 16.0;
/// Latency target in milliseconds.
pub const TARGET_MS: f64 = 250.0;

/// The description of a run of a law.
pub fn meta(law: &str) -> RunMeta {
    RunMeta {
        name: format!("day-{law}"),
        law: law.to_owned(),
        trace: "diurnal day, 1 s = 96 s".to_owned(),
        seed: 7,
        world: World::Live,
        period: Seconds::new(1.0),
        slo: Some(Slo {
            percentile: 95.0,
            target: Seconds::from_millis(TARGET_MS),
            guard: Some(Ratio::new(0.8)),
            is_unmeasured: false,
        }),
        power_source: Some(Source::Estimated),
        notes: vec!["power is estimated by a model: this machine has no RAPL".to_owned()],
        config: "[service]\nname = \"wiki\"\n".to_owned(),
        version: "0.1.0".to_owned(),
        host: "test".to_owned(),
        started_at: SystemTime::now(),
        energy_bound: None,
        nodes: Vec::new(),
        provenance: headroom_record::Provenance::default(),
    }
}

/// An empty histogram of microseconds, as a gateway has it.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).unwrap()
}

/// A day under a law, period by period.
pub struct Day {
    rng: ChaCha8Rng,
    elastic: bool,
    index: u64,
    length: u64,
    cores: f64,
    cap: f64,
    calm: u32,
    rates: Vec<f64>,
}

impl Day {
    /// A day of so many periods; `fixed` keeps everything on, any other law moves cores and cap.
    pub fn new(law: &str, length: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(7),
            elastic: law != "fixed",
            index: 0,
            length,
            cores: CORES,
            cap: limit(CORES),
            calm: 0,
            rates: Vec::new(),
        }
    }

    fn rate(&mut self) -> f64 {
        let x = self.index as f64 / self.length as f64;
        let day = 140.0 - 80.0 * (std::f64::consts::TAU * (x + 0.05)).cos() + 18.0 * (x * 40.0).sin();
        let spike = if self.index % 211 > 203 { 60.0 } else { 0.0 };
        (day + spike + self.rng.random_range(-12.0..12.0)).max(5.0)
    }
}

/// Power limit of so many cores, in watts.
fn limit(cores: f64) -> f64 {
    2.86 * cores + 46.52
}

impl Iterator for Day {
    type Item = (PeriodRecord, Histogram<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.length {
            return None;
        }
        let rate = self.rate();
        let rho = (rate / (MU * self.cores)).min(1.4);
        let slowdown = if rho < 0.97 {
            1.0 / (1.0 - rho)
        } else {
            40.0 + (rho - 0.97) * 60.0
        };
        let mut latencies = histogram();
        let arrivals = rate.round() as u64;
        for _ in 0..arrivals {
            let size = -self.rng.random_range(1e-6..1.0_f64).ln();
            let core_share = 0.3 + 0.7 * slowdown.min(40.0) / 4.0;
            latencies.saturating_record((1e6 / MU * 0.55 * size * core_share) as u64 + 900);
        }
        let busy = (rate / MU).min(self.cores);
        let watts = 31.0 + 3.6 * busy + 0.35 * self.cores + self.rng.random_range(-0.6..0.6);
        let power = Reading::new(Watts::new(watts.min(self.cap)), Source::Estimated);
        let slo = Seconds::from_micros(latencies.value_at_percentile(95.0) as f64);
        let mut record = PeriodRecord::new(
            self.index,
            Seconds::new(self.index as f64),
            Seconds::new(1.0),
            Cores::new(self.cores),
        );
        record.arrivals = arrivals;
        record.completions = arrivals;
        record.in_flight = (rate * 0.05) as u64;
        record.latency = LatencySummary::of_micros(&latencies);
        record.slo_latency = Some(slo);
        record.cap = Some(Watts::new(self.cap));
        record.cap_at_limit = self.cap >= limit(self.cores) - 6.0;
        record.power = Some(power);
        record.energy = Some(power.map(|watts| watts * Seconds::new(1.0)));
        record.utilisation = Some(Ratio::new(busy / self.cores));
        record.throttled = Some(Ratio::new((rho - 0.85).clamp(0.0, 0.4)));
        self.rates.push(rate);
        let recent = &self.rates[self.rates.len().saturating_sub(5)..];
        let forecast = (2.0 * rate - recent.iter().sum::<f64>() / recent.len() as f64).max(1.0);
        record.forecast = Some(PerSecond::new(forecast));
        record.seen = serde_json::json!({"rate_per_s": rate, "p95_ms": slo.as_millis(), "cores": self.cores});
        record.reasons = vec![self.decide(slo.as_millis(), forecast, watts)];
        record.decided = serde_json::json!({"cores": self.cores, "cap_w": self.cap});
        self.index += 1;
        Some((record, latencies))
    }
}

impl Day {
    fn decide(&mut self, p95_ms: f64, forecast: f64, watts: f64) -> Reason {
        if !self.elastic {
            return Reason::new("everything-on", "every core on, no cap", &[("cores", CORES)]);
        }
        let guard = 0.8 * TARGET_MS;
        let needed = (guard / 1e3 * forecast / (guard / 1e3 * MU - 1.0)).clamp(2.0, CORES);
        if p95_ms > guard && self.cap >= limit(self.cores) - 6.0 {
            let before = self.cores;
            self.cores = needed.max(self.cores + 1.0).min(CORES).ceil();
            self.cap = limit(self.cores);
            self.calm = 0;
            return Reason::new(
                "latency-over-guard",
                format!(
                    "P95 {p95_ms:.0} ms > guard {guard:.0} ms and power at its limit for {before:.0} cores: \
                     Eq. 3 asks for {needed:.1} cores, {:.0} given",
                    self.cores
                ),
                &[("p95_ms", p95_ms), ("guard_ms", guard), ("cores", self.cores)],
            );
        }
        if p95_ms > guard {
            self.cap = (self.cap + 9.0).min(limit(self.cores));
            self.calm = 0;
            return Reason::new(
                "power-up",
                format!(
                    "P95 {p95_ms:.0} ms > guard {guard:.0} ms: cap raised to {:.1} W",
                    self.cap
                ),
                &[("p95_ms", p95_ms), ("cap_w", self.cap)],
            );
        }
        self.calm += 1;
        if self.calm >= 5 && self.cores - 1.0 >= needed * 0.9 {
            self.calm = 0;
            self.cores -= 1.0;
            self.cap = limit(self.cores);
            return Reason::new(
                "cores-down",
                format!(
                    "P95 under the guard for 5 periods and Eq. 3 asks for {needed:.1} cores: {:.0} given",
                    self.cores
                ),
                &[("cores", self.cores)],
            );
        }
        if self.cap > 1.1 * watts {
            self.cap -= 0.6;
            return Reason::new(
                "power-down",
                format!("cap lowered to {:.1} W", self.cap),
                &[("cap_w", self.cap)],
            );
        }
        Reason::new(
            "hold",
            format!("P95 {p95_ms:.0} ms under the guard: nothing to do"),
            &[("p95_ms", p95_ms)],
        )
    }
}

/// One joule reading of a source.
pub fn joules(value: f64, source: Source) -> Option<Reading<Joules>> {
    Some(Reading::new(Joules::new(value), source))
}

/// A run of three nodes with cores, caps and states behind two gateways, and of the cluster that they are: one node is switched
/// on and off with the load, one cannot be reached for a while.
pub fn cluster(periods: u64) -> impl Iterator<Item = PeriodRecord> {
    let name = |number: u64| format!("web{number}");
    Day::new("slo-power", periods).map(move |(mut period, _)| {
        let share = period.index as f64 / periods as f64;
        let rate = period.arrivals as f64;
        let share_of = [0.4, 0.33, 0.27];
        let nodes: Vec<Part> = (1..=3)
            .map(|number| {
                let state = match (number, share) {
                    (3, ..0.25) | (3, 0.85..) => "off",
                    (3, 0.25..0.29) => "booting",
                    (3, 0.82..0.85) => "draining",
                    (2, 0.5..0.56) => "unreachable",
                    _ => "serving",
                };
                let serving = state == "serving";
                let part = Part::new(name(number), Role::Node).in_state(state);
                let cores = (rate / 60.0 + number as f64 / 2.0).ceil();
                let mut part = part
                    .with(Lever::Cores, serving.then_some(cores))
                    .with(Lever::Cap, serving.then_some(limit(cores)))
                    .with(
                        Sensor::Power,
                        (state != "unreachable").then_some(if state == "off" {
                            1.5
                        } else {
                            8.0 + 3.5 * cores
                        }),
                    )
                    .with(
                        Sensor::Utilisation,
                        serving.then_some((rate * share_of[number as usize - 1] / (MU * cores)).min(1.0)),
                    )
                    .with(
                        Sensor::ArrivalRate,
                        serving.then_some(rate * share_of[number as usize - 1]),
                    )
                    .with(Sensor::Capacity, serving.then_some(MU * cores))
                    .with(Sensor::QueueMean, serving.then_some((rate / 90.0).powi(3)))
                    .with(
                        Sensor::DropRatio,
                        serving.then_some(((rate - 200.0) / 1e4).max(0.0)),
                    );
                part.source = Some(Source::Emulated);
                if state == "unreachable" {
                    part.trouble = vec!["the agent does not answer: connection refused".to_owned()];
                }
                part.fact("meter", "emulated")
            })
            .collect();
        let gateways = [0.6, 0.4].into_iter().enumerate().map(|(number, part)| {
            Part::new(format!("gateway{}", number + 1), Role::Gateway)
                .in_state("ready")
                .with(Sensor::ArrivalRate, Some(rate * part))
                .with(Sensor::InFlight, Some(rate * part * 0.05))
                .with(
                    Sensor::LatencyAtSlo,
                    period.slo_latency.map(|latency| latency.get() * (0.8 + part)),
                )
        });
        let on = nodes
            .iter()
            .filter(|node| node.get(Lever::Cores).is_some())
            .count() as f64;
        let mut whole = Part::new("cluster", Role::Cluster)
            .with(Lever::Servers, Some(on))
            .with(Sensor::Capacity, Some(on * MU * 6.0))
            .with(Sensor::Power, period.power.map(|power| power.value.get()))
            .with(
                Sensor::PowerAlwaysOn,
                period
                    .power
                    .map(|power| power.value.get() + 9.0 * (3.0 - on) + 6.0),
            );
        whole.source = Some(Source::Estimated);
        period.parts = std::iter::once(whole).chain(nodes).chain(gateways).collect();
        period
    })
}
