//! SLO-Power as published (Savasci et al., "SLO-Power: SLO and Power-aware Elastic Scaling for Web Services",
//! Sections III and IV, Equations 1-4, Algorithm 1, Figures 2-3).
//!
//! | part of the paper | here |
//! |---|---|
//! | Control Unit (III-B, Figure 3) | [`SloPower`] |
//! | Elastic Scaler (III-C, Equations 1-3) | [`elastic`] |
//! | Power Allocator (III-D, Equation 4) | [`allocator`] |
//! | its parameters | [`Tuning`] |
//! | either component alone (V-B, Figure 6) | [`Mode`] |
//!
//! Three places where the paper leaves a choice, and what is done:
//! - Algorithm 1, line 10 scales down if `c_{t+1} - curr_cores >= delta`, which would remove cores where more are
//!   needed. Its text says that c_{t+1} limits the saving, so the test here is `curr_cores - c_{t+1} >= delta`, as
//!   in the authors' code.
//! - A core step delta below 1 (CPU quotas) scales the power decrement with it: eta * delta / D, so that D
//!   decrements still take the power of one core step. With delta = 1 this is Equation 4 to the letter.
//! - Proactive scaling, the sole user of Equation 2, is triggered by the utilisation forecast exceeding beta.

pub mod allocator;
pub mod elastic;
mod mode;
mod tuning;

pub use mode::Mode;
pub use tuning::{PowerReference, Tuning};

use crate::decision::{Allocation, Decision, Reason};
use crate::estimate::LineEstimator;
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::Parameters;
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use allocator::{CapChange, PowerAllocator};
use elastic::ElasticScaler;
use headroom_units::{Cores, Lever, PerSecond, Ratio, Seconds};

/// The Control Unit: watches latency and utilisation, and triggers the Elastic Scaler or the Power Allocator.
/// "Fast to repair, slow to save, power before cores."
#[derive(Clone, Debug)]
pub struct SloPower {
    slo: Slo,
    plant: Plant,
    mode: Mode,
    tuning: Tuning,
    elastic: ElasticScaler,
    power: PowerAllocator,
    utilisation: LineEstimator,
    /// Consecutive periods with latency and utilisation under their thresholds (`counter` of Algorithm 1).
    sustained: u32,
}

impl SloPower {
    /// The law for an SLO, a machine and a service rate of μ requests per second and core.
    ///
    /// # Errors
    /// A parameter out of its range, or a target that no number of cores can meet, by its key.
    pub fn new(slo: Slo, plant: Plant, service_rate: PerSecond, tuning: Tuning) -> Result<Self, LawError> {
        Self::with_mode(slo, plant, service_rate, tuning, Mode::Joint)
    }

    /// The same, whole or one of its components alone.
    ///
    /// # Errors
    /// As [`SloPower::new`].
    pub fn with_mode(
        slo: Slo,
        plant: Plant,
        service_rate: PerSecond,
        tuning: Tuning,
        mode: Mode,
    ) -> Result<Self, LawError> {
        tuning.check().map_err(LawError::of("slo-power"))?;
        let guarded = slo.target() * tuning.guard;
        let elastic = ElasticScaler::new(
            plant.cores(),
            service_rate,
            slo.target(),
            guarded,
            tuning.request_window_periods,
        )
        .map_err(|error| LawError::new("slo.target_ms", error))?;
        Ok(Self {
            slo,
            plant,
            mode,
            elastic,
            power: PowerAllocator::new(plant, slo.target(), &tuning),
            utilisation: LineEstimator::new(tuning.utilisation_window_periods),
            sustained: 0,
            tuning,
        })
    }

    /// αT: the latency above which something is done.
    fn guarded_target(&self) -> Seconds {
        self.slo.target() * self.tuning.guard
    }

    fn repair(&mut self, observation: &Observation, latency: Seconds) -> (Allocation, Vec<Reason>) {
        self.sustained = 0;
        let now = self.plant.allocation(&observation.in_force);
        let judged = observation.traffic.as_ref();
        let late = judged.map_or_else(String::new, |traffic| {
            traffic.late_in_words(self.slo, self.guarded_target())
        });
        let numbers = [
            ("latency_ms", latency.as_millis()),
            ("guard_ms", self.guarded_target().as_millis()),
        ];
        if !self.power.at_limit(now) {
            let change = self.power.raise_for_latency(now, latency);
            let text = format!(
                "{late}: power is below its limit for {}, Eq. 4 raises the cap from {:.2} to {:.2} W",
                written(now.cores),
                now.cap.get(),
                change.cap.get()
            );
            let reason = Reason::new(
                "scale-up-power",
                text,
                &[
                    numbers[0],
                    numbers[1],
                    ("cap_w", change.cap.get()),
                    ("asked_w", change.asked.get()),
                ],
            );
            return (Allocation::new(now.cores, change.cap), vec![reason]);
        }
        let wanted = self.elastic.reactive(now.cores);
        let late = format!("{late} and power at its limit for {}", written(now.cores));
        if wanted.cores <= now.cores {
            let text = format!("{late}, which are all there are: everything is on already");
            let allocation = Allocation::new(wanted.cores, self.power.limit(wanted.cores));
            return (allocation, vec![Reason::new("at-maximum", text, &numbers)]);
        }
        let text = format!(
            "{late}: Eq. 3 asks for {:.2}, {} given",
            wanted.model, wanted.cores
        );
        let reason = Reason::new(
            "scale-up-cores",
            text,
            &[
                numbers[0],
                numbers[1],
                ("eq3_cores", wanted.model.get()),
                ("cores", wanted.cores.get()),
                ("expected_rate_per_s", wanted.expected_rate.get()),
            ],
        );
        self.with_power_of_cores(now, wanted.cores, reason)
    }

    fn prepare(&mut self, observation: &Observation, expected: Ratio) -> (Allocation, Vec<Reason>) {
        self.sustained = 0;
        let now = self.plant.allocation(&observation.in_force);
        let busy = format!(
            "utilisation {:.0} % expected > threshold {:.0} %",
            expected.as_percent(),
            self.tuning.utilisation_threshold * 100.0
        );
        let numbers = [
            ("expected_utilisation", expected.get()),
            ("threshold", self.tuning.utilisation_threshold),
        ];
        let wanted = self.elastic.proactive(now.cores);
        if wanted.cores <= now.cores {
            let change = self.power.raise_one_step(now);
            let all = written(now.cores);
            let text = match self.mode {
                Mode::ElasticOnly => format!("{busy} with all {all} on: there is no more to give"),
                _ => format!(
                    "{busy} with all {all} on: the cap goes to {:.2} W",
                    change.cap.get()
                ),
            };
            let allocation = Allocation::new(wanted.cores, change.cap);
            return (allocation, vec![Reason::new("at-maximum", text, &numbers)]);
        }
        let text = format!(
            "{busy}: Eq. 2 asks for {:.2}, {} given",
            wanted.model, wanted.cores
        );
        let reason = Reason::new(
            "scale-up-proactive",
            text,
            &[
                numbers[0],
                numbers[1],
                ("eq2_cores", wanted.model.get()),
                ("cores", wanted.cores.get()),
                ("expected_rate_per_s", wanted.expected_rate.get()),
            ],
        );
        self.with_power_of_cores(now, wanted.cores, reason)
    }

    fn save(&mut self, observation: &Observation) -> (Allocation, Vec<Reason>) {
        let now = match self.mode {
            Mode::ElasticOnly => self.plant.allocation(&observation.in_force),
            _ => self.plant.needed(&observation.in_force),
        };
        self.sustained = self.sustained.saturating_add(1);
        let duration = self.tuning.sustained_periods;
        if self.sustained >= duration
            && self.mode != Mode::PowerOnly
            && let Some(wanted) = self.elastic.scale_down(now.cores)
        {
            self.sustained = 0;
            let text = format!(
                "{duration} periods under both thresholds and Eq. 3 needs only {:.2}: {} given, {} fewer",
                wanted.model,
                written(wanted.cores),
                written(now.cores - wanted.cores)
            );
            let reason = Reason::new(
                "scale-down-cores",
                text,
                &[
                    ("sustained_periods", f64::from(duration)),
                    ("eq3_cores", wanted.model.get()),
                    ("cores", wanted.cores.get()),
                    ("expected_rate_per_s", wanted.expected_rate.get()),
                ],
            );
            return self.with_power_of_cores_at_least_consumed(observation, wanted.cores, reason);
        }
        let sustained = f64::from(self.sustained);
        if self.mode == Mode::ElasticOnly {
            let text = format!(
                "under both thresholds for {} periods, {duration} of which take a step of cores that Eq. 3 can spare: \
                 {} stay",
                self.sustained,
                written(now.cores)
            );
            let numbers = [("sustained_periods", sustained), ("cores", now.cores.get())];
            return (now, vec![Reason::new("hold-cores", text, &numbers)]);
        }
        match self.power.lower(observation) {
            Ok(change) => {
                let text = format!(
                    "under both thresholds for {} periods: Eq. 4 lowers the cap from {:.2} to {:.2} W",
                    self.sustained,
                    now.cap.get(),
                    change.cap.get()
                );
                let numbers = [("sustained_periods", sustained), ("cap_w", change.cap.get())];
                let reason = Reason::new("scale-down-power", text, &numbers);
                (Allocation::new(now.cores, change.cap), vec![reason])
            }
            Err(why) => {
                let reason = Reason::new(
                    "hold-cap",
                    why.to_string(),
                    &[("sustained_periods", sustained), ("cap_w", now.cap.get())],
                );
                (now, vec![reason])
            }
        }
    }

    /// A core change and the power that goes with it (Equation 4, first row).
    fn with_power_of_cores(&self, now: Allocation, cores: Cores, why: Reason) -> (Allocation, Vec<Reason>) {
        self.finish_core_change(now, cores, self.power.follow_cores(now, cores), why)
    }

    /// The same for fewer cores, where the cap must not fall under what the machine consumes.
    fn with_power_of_cores_at_least_consumed(
        &self,
        observation: &Observation,
        cores: Cores,
        why: Reason,
    ) -> (Allocation, Vec<Reason>) {
        self.finish_core_change(
            self.plant.allocation(&observation.in_force),
            cores,
            self.power.follow_cores_down(observation, cores),
            why,
        )
    }

    fn finish_core_change(
        &self,
        now: Allocation,
        cores: Cores,
        change: CapChange,
        why: Reason,
    ) -> (Allocation, Vec<Reason>) {
        if self.mode == Mode::ElasticOnly {
            return (Allocation::new(cores, now.cap), vec![why]);
        }
        let text = format!(
            "Eq. 4 moves the cap with the cores, from {:.2} to {:.2} W",
            now.cap.get(),
            change.cap.get()
        );
        let numbers = [("cap_w", change.cap.get()), ("asked_w", change.asked.get())];
        let follows = Reason::new("power-follows-cores", text, &numbers);
        (Allocation::new(cores, change.cap), vec![why, follows])
    }

    fn hold_near_target(&self, observation: &Observation, latency: Seconds) -> (Allocation, Vec<Reason>) {
        let guard = self.guarded_target().as_millis();
        let text = format!(
            "{} {:.0} ms is within {:.0} ms of the guard {guard:.0} ms: close enough, nothing changes",
            self.slo.name(),
            latency.as_millis(),
            self.tuning.hold_band_ms,
        );
        let numbers = [("latency_ms", latency.as_millis()), ("guard_ms", guard)];
        (
            self.plant.allocation(&observation.in_force),
            vec![Reason::new("hold-near-target", text, &numbers)],
        )
    }

    fn hold_unobserved(&self, observation: &Observation) -> (Allocation, Vec<Reason>) {
        let text = "utilisation could not be read: nothing is saved while it is unknown".to_owned();
        (
            self.plant.allocation(&observation.in_force),
            vec![Reason::new("hold-unobserved", text, &[])],
        )
    }
}

impl Law for SloPower {
    fn name(&self) -> &'static str {
        self.mode.name()
    }

    fn guard(&self) -> Option<Seconds> {
        Some(self.guarded_target())
    }

    fn levers(&self) -> &'static [Lever] {
        self.mode.levers()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        if let Some(rate) = observation.arrival_rate() {
            self.elastic.observe(rate);
        }
        if let Some(utilisation) = observation.utilisation {
            self.utilisation.push(utilisation.get());
        }
        self.power.observe(observation);
        let observation = &Observation {
            in_force: self
                .mode
                .pinned(self.plant.allocation(&observation.in_force), self.plant)
                .into(),
            ..observation.clone()
        };

        let latency = observation
            .traffic
            .as_ref()
            .map_or(Seconds::ZERO, |t| t.latency_to_judge());
        let guarded = self.guarded_target();
        let expected = observation
            .utilisation
            .and_then(|_| self.utilisation.next())
            .map(Ratio::new);
        let close = guarded - latency <= Seconds::from_millis(self.tuning.hold_band_ms);

        let (allocation, reasons) = match expected {
            _ if latency > guarded => self.repair(observation, latency),
            Some(expected) if expected.get() > self.tuning.utilisation_threshold => {
                self.prepare(observation, expected)
            }
            _ if self.tuning.hold_band_ms > 0.0 && close => self.hold_near_target(observation, latency),
            None => self.hold_unobserved(observation),
            Some(_) => self.save(observation),
        };
        let allocation = self.mode.pinned(allocation, self.plant);
        Decision {
            reflex: None,
            // The paper's system leaves the frequency to the cap.
            setting: Allocation {
                frequency: None,
                ..allocation
            }
            .into(),
            expected_rate: self.elastic.expected_rate(),
            reasons,
            ..Decision::default()
        }
    }

    fn forget(&mut self) {
        self.elastic.forget();
        self.power.forget();
        self.utilisation.clear();
        self.sustained = 0;
    }
}

/// Cores as people write them: 0.9, without the dust that sums of tenths leave.
fn written(cores: Cores) -> Cores {
    Cores::new((cores.get() * 1e3).round() / 1e3)
}
