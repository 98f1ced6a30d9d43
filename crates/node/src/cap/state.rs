//! What a limiter holds and how it changes: under one lock, by the allocations and by the cap's loop.

use super::event::Event;
use super::hardware::{Hardware, Verdict};
use super::law::{Binding, CapInput, SoftwareCap};
use super::limiter::{Applied, CapStatus, LimitError};
use super::pace::Pace;
use super::pacing::{Pacing, PacingInput};
use crate::cpu::{CpuError, CpusetActuator, InForce, QuotaActuator};
use crate::frequency::FrequencyError;
use crate::limit::{self, CapInForce, LeverChoice, LeverKind, PowerLimitError};
use crate::order::PassedOver;
use crate::power::MeterError;
use crate::restore::{Registry, RestoreError};
use headroom_units::{Cores, Hertz, Ratio, Reading, Seconds, Setting, Watts};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Events that are kept until they are taken; beyond it the oldest go, and are counted.
pub const MAX_EVENTS: usize = 256;
/// A cap that stays exceeded by this share for so many steps, with the quota at its floor, is reported as not kept.
const EXCESS: f64 = 1.05;
const EXCESS_STEPS: u32 = 40;
/// The time constant with which the power is followed for it, seconds: one reading says little.
const MEAN_TAU_S: f64 = 0.5;
/// Changes of the quota smaller than this share of the allocation are not written: they are noise.
const DEAD_BAND: f64 = 0.002;

/// How long hardware that is gone is waited for until the law takes over: a driver that is loaded anew is back by then.
const GONE_PATIENCE: Duration = Duration::from_secs(3);

/// What the loop saw in one look.
pub(super) struct Sample {
    pub(super) power: Result<Option<Reading<Watts>>, MeterError>,
    /// Of that, the packages together.
    pub(super) packages: Option<Watts>,
    /// Cores that the service had busy.
    pub(super) busy: Option<Cores>,
    pub(super) throttled: bool,
    pub(super) frequency: Ratio,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) law: SoftwareCap,
    /// Whether anything may be written at all.
    pub(super) registry: Registry,
    pub(super) cap: Option<Watts>,
    /// What holds caps instead of the law; nothing from the moment on that it is given up.
    pub(super) hardware: Option<Hardware>,
    /// Whether the law may take over where the hardware cannot hold a cap.
    pub(super) fallback: bool,
    /// Since when the hardware's files are gone.
    pub(super) hardware_gone: Option<Instant>,
    pub(super) lever_choice: LeverChoice,
    pub(super) quota: QuotaActuator,
    pub(super) cpuset: Option<CpusetActuator>,
    pub(super) pace: Pace,
    /// What holds caps by the frequency; nothing where something else does, or from the moment on that it is given up.
    pub(super) pacing: Option<Pacing>,
    pub(super) cores: Cores,
    pub(super) frequency: Ratio,
    pub(super) renewed_at: Instant,
    pub(super) stop: bool,
    /// Nothing is limited by us: nothing was applied yet, or it was all given back.
    pub(super) given_back: bool,
    pub(super) meter_lost: bool,
    pub(super) write_fails: bool,
    pub(super) excess_steps: u32,
    pub(super) mean_power: Option<Watts>,
    pub(super) status: CapStatus,
    pub(super) events: VecDeque<Event>,
}

impl State {
    /// Whoever takes the events says them: here they are not logged, so that each is said once.
    pub(super) fn report(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
            self.status.dropped_events += 1;
        }
        self.events.push_back(event);
    }

    /// Writes a quota and notes what is in force.
    fn write(&mut self, quota: Cores) -> Result<InForce, CpuError> {
        match self.quota.set(quota) {
            Ok(in_force) => {
                if let Some(foreign) = in_force.foreign.clone() {
                    self.status.foreign_writes += 1;
                    self.report(Event::Foreign(foreign));
                }
                if std::mem::take(&mut self.write_fails) {
                    self.report(Event::WriteBack);
                }
                self.status.quota = in_force.cores;
                Ok(in_force)
            }
            Err(error) => {
                if !matches!(error, CpuError::Restore(RestoreError::Paused { .. })) {
                    self.report_failed_write(&error);
                }
                Err(error)
            }
        }
    }

    /// The cores that the service can have.
    pub(super) fn all_cores(&self) -> Result<Cores, CpuError> {
        match &self.cpuset {
            Some(cpuset) => Ok(Cores::new(cpuset.allowed()?.len() as f64)),
            None => Ok(self.quota.bounds()?.largest),
        }
    }

    pub(super) fn apply(&mut self, setting: Setting) -> Result<Applied, LimitError> {
        let asked = match setting.cores() {
            Some(cores) => cores,
            None => self.all_cores()?,
        };
        let cap = setting.cap();
        if asked.get().is_nan() || asked <= Cores::ZERO {
            return Err(CpuError::NotCores { asked }.into());
        }
        cap.map(limit::check).transpose()?;
        if self.registry.is_paused() {
            let what = "the allocation".to_owned();
            return Err(CpuError::Restore(RestoreError::Paused { what }).into());
        }
        let speed = setting.frequency();
        if let Some(asked) = speed.filter(|speed| !(speed.is_finite() && speed.get() > 0.0)) {
            return Err(FrequencyError::NotAFrequency { asked }.into());
        }
        // The CPUs come first: how large the quota may be follows from them.
        let cpus = match &mut self.cpuset {
            None => None,
            Some(cpuset) => {
                match cpuset.set(asked) {
                    Ok(chosen) => {
                        if let Some(foreign) = chosen.foreign {
                            self.status.foreign_writes += 1;
                            self.report(Event::Foreign(foreign));
                        }
                        Some(chosen.cpus)
                    }
                    // That fewer CPUs cannot be recorded must not keep a larger quota from the service.
                    Err(error @ CpuError::Restore(RestoreError::Ledger(_))) => {
                        self.report_failed_write(&error);
                        None
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let bounds = self.quota.bounds()?;
        let cores = asked.clamp(bounds.smallest, bounds.largest);
        let cap_bounded = self.hold(cap)?.and_then(|in_force| in_force.bounded);
        self.pace_cap(|pacing, highest, cap| pacing.set_cap(cap, cores, highest));
        let quota = match self.is_paced() {
            true => cores,
            false => self.law.quota(cores, self.frequency, true),
        };
        let in_force = self.write(quota)?;
        // Last, since what fails here must not keep cores from the service.
        let (frequency, frequency_refused) = self.limit_frequency(speed);
        self.given_back = false;
        // Where the quota is the allocation, what is reported is what the kernel has: somebody else's, where it is left
        // alone, and all where less could not be recorded.
        let is_read = quota >= cores || in_force.held || in_force.cores > cores;
        let cores = if is_read { in_force.cores } else { cores };
        self.cores = cores;
        self.status.binding = match (&self.hardware, self.is_slowed()) {
            (Some(hardware), _) => hardware.binding(),
            (None, true) if quota >= cores => Binding::Cap,
            (None, _) => self.law.binding(quota, cores),
        };
        let beyond = !in_force.held && (asked < bounds.smallest || asked > bounds.largest);
        Ok(Applied {
            cores,
            cap: cap.map(|cap| {
                let held = self.hardware.as_ref().and_then(Hardware::held_cap);
                held.unwrap_or(cap)
            }),
            effective_quota: in_force.cores,
            binding: self.status.binding,
            bounded: beyond.then_some(bounds),
            cap_bounded,
            lever: self.status.lever,
            cpus,
            frequency,
            frequency_refused,
        })
    }

    /// Limits the frequency; what is in force of it, and why it is not what was asked for.
    fn limit_frequency(&mut self, limit: Option<Hertz>) -> (Option<Hertz>, Option<String>) {
        match self.pace.limit(limit) {
            Ok(None) => (None, None),
            Ok(Some(reported)) => {
                for foreign in reported.foreign {
                    self.status.foreign_writes += 1;
                    self.report(Event::Foreign(foreign));
                }
                // A cap that holds it lower is no part of the allocation.
                let in_force = |asked| match self.pace.is_capped_under(asked) {
                    true => asked,
                    false => reported.limit,
                };
                (limit.map(in_force), None)
            }
            Err(reason) => {
                self.status.failed_writes += 1;
                (None, Some(reason))
            }
        }
    }

    /// Whether the frequency holds the cap, and can hold it alone.
    fn is_paced(&self) -> bool {
        self.pacing.as_ref().is_some_and(|pacing| !pacing.is_at_lowest())
    }

    /// Whether the cap slows the processors.
    fn is_slowed(&self) -> bool {
        let highest = self.pace.allocated();
        self.pacing
            .as_ref()
            .is_some_and(|pacing| pacing.ratio() < highest)
    }

    /// Limits the frequency as the cap's law says; where that cannot be done, the quota holds caps from then on.
    fn pace_cap(&mut self, decide: impl FnOnce(&mut Pacing, Ratio, Option<Watts>) -> Ratio) {
        let highest = self.pace.allocated();
        let Some(pacing) = &mut self.pacing else { return };
        let ratio = decide(pacing, highest, self.cap);
        match self.pace.cap(self.cap.map(|_| ratio)) {
            Ok(reported) => {
                for foreign in reported.into_iter().flat_map(|reported| reported.foreign) {
                    self.status.foreign_writes += 1;
                    self.report(Event::Foreign(foreign));
                }
            }
            // What is not written now may be later.
            Err(_) if self.registry.is_blocked() => self.status.failed_writes += 1,
            Err(reason) => {
                self.status.failed_writes += 1;
                self.pacing = None;
                // It was lifted where it failed; what is allocated is asked for again with the next allocation.
                let _ = self.pace.cap(None);
                let lever = LeverKind::Frequency;
                self.lever_choice.passed_over.push(PassedOver {
                    what: lever,
                    reason: reason.clone(),
                });
                self.lever_choice.chosen = LeverKind::Software;
                self.status.lever = LeverKind::Software;
                self.report(Event::LeverGivenUp { lever, reason });
            }
        }
    }

    /// Tells whatever holds caps the cap. What is in force of it is known of the hardware alone.
    fn hold(&mut self, cap: Option<Watts>) -> Result<Option<CapInForce>, LimitError> {
        self.cap = cap;
        let Some(hardware) = &mut self.hardware else {
            self.law.set_cap(cap);
            return Ok(None);
        };
        match hardware.hold(cap) {
            Ok(in_force) => {
                self.hardware_gone = None;
                self.note_limit(&in_force);
                Ok(Some(in_force))
            }
            Err(error) if self.registry.is_blocked() || self.may_come_back(&error) => {
                self.report_failed_write(&error);
                Ok(None)
            }
            Err(error) if self.fallback => {
                self.give_up(&error.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether to wait for hardware that failed: its files are gone, and were there a moment ago.
    fn may_come_back(&mut self, error: &PowerLimitError) -> bool {
        if !error.is_gone() {
            return false;
        }
        self.hardware_gone.get_or_insert_with(Instant::now).elapsed() < GONE_PATIENCE
    }

    fn report_failed_write(&mut self, error: &dyn std::error::Error) {
        self.status.failed_writes += 1;
        if !std::mem::replace(&mut self.write_fails, true) {
            self.report(Event::WriteFailed {
                reason: error.to_string(),
            });
        }
    }

    /// Notes what the hardware has.
    fn note_limit(&mut self, in_force: &CapInForce) {
        self.status.hardware_limit = self.cap.map(|_| in_force.limit);
        for foreign in in_force.foreign.clone() {
            self.status.foreign_writes += 1;
            self.report(Event::Foreign(foreign));
        }
    }

    /// Leaves caps to the law from now on, and puts the hardware's limits back to what was found.
    fn give_up(&mut self, reason: &str) {
        let Some(hardware) = self.hardware.take() else {
            return;
        };
        let lever = hardware.kind();
        let mut reason = reason.to_string();
        for outcome in hardware.restore().iter().filter(|outcome| !outcome.is_clean()) {
            reason.push_str(&format!("; {outcome}"));
        }
        self.lever_choice.passed_over.push(PassedOver {
            what: lever,
            reason: reason.clone(),
        });
        self.lever_choice.chosen = LeverKind::Software;
        (self.status.lever, self.status.hardware_limit) = (LeverKind::Software, None);
        self.law.set_cap(self.cap);
        self.report(Event::LeverGivenUp { lever, reason });
    }

    /// Everything was put back by an operator, and nothing may be written.
    pub(super) fn note_pause(&mut self) -> Result<(), LimitError> {
        let most = self.quota.bounds()?.largest;
        self.cap = None;
        self.law.set_cap(None);
        self.cores = most;
        (self.status.quota, self.status.binding) = (most, Binding::Allocation);
        self.status.hardware_limit = None;
        self.given_back = true;
        Ok(())
    }

    /// Everything that may be had, and no cap.
    pub(super) fn give_back(&mut self) -> Result<Applied, LimitError> {
        let applied = self.apply(Setting::default())?;
        if let Some(reason) = applied.frequency_refused.clone() {
            self.report(Event::WriteFailed { reason });
        }
        self.given_back = true;
        Ok(applied)
    }

    pub(super) fn step(&mut self, seen: Sample, dt: Seconds) {
        let Some(cap) = self.cap.filter(|_| !self.registry.is_paused()) else {
            return;
        };
        self.status.steps += 1;
        let measured = match seen.power {
            Ok(power) => {
                if std::mem::take(&mut self.meter_lost) {
                    self.report(Event::MeterBack);
                }
                power
            }
            Err(error) => {
                if !std::mem::replace(&mut self.meter_lost, true) {
                    self.report(Event::MeterLost {
                        reason: error.to_string(),
                    });
                }
                None
            }
        };
        self.status.blind_steps += u64::from(measured.is_none());
        self.status.power = measured;
        self.frequency = seen.frequency;
        let measured = measured.map(|reading| reading.value);
        let binding = match self.hardware.is_some() {
            true => self.step_hardware(measured, seen.packages, dt),
            false => None,
        };
        if self.hardware.is_none() {
            let (busy, throttled, allocated) = (seen.busy, seen.throttled, self.cores);
            self.pace_cap(|pacing, highest, _| {
                pacing.step(PacingInput {
                    measured,
                    busy,
                    throttled,
                    allocated,
                    highest,
                    dt,
                })
            });
        }
        let binding = binding.unwrap_or_else(|| self.step_law(measured, seen.throttled, dt));
        self.mean_power = measured.map(|now| {
            let mean = self.mean_power.unwrap_or(now);
            mean + (now - mean) * (1.0 - (-dt.get().max(0.0) / MEAN_TAU_S).exp())
        });
        let exceeded = self.mean_power.is_some_and(|watts| watts > cap * EXCESS);
        match exceeded && binding == Binding::Floor {
            true => self.excess_steps = self.excess_steps.saturating_add(1),
            false => self.excess_steps = 0,
        }
        if self.excess_steps == EXCESS_STEPS {
            self.report(Event::CapNotKept {
                cap,
                measured: self.mean_power.unwrap_or_default(),
            });
        }
    }

    /// The hardware's step; nothing where it was given up.
    fn step_hardware(
        &mut self,
        measured: Option<Watts>,
        packages: Option<Watts>,
        dt: Seconds,
    ) -> Option<Binding> {
        let hardware = self.hardware.as_mut()?;
        let lever = hardware.kind();
        let step: Result<(Option<CapInForce>, Verdict), PowerLimitError> =
            hardware.step(measured, packages, dt);
        match step {
            Ok((set, verdict)) => {
                if let Some(in_force) = set {
                    self.hardware_gone = None;
                    self.note_limit(&in_force);
                }
                if let Verdict::Inert { limit, packages } = verdict {
                    let event = Event::CapInert {
                        lever,
                        limit,
                        measured: packages,
                    };
                    let reason = event.to_string();
                    self.report(event);
                    if self.fallback {
                        self.give_up(&reason);
                    }
                }
            }
            Err(error) if self.fallback && !self.registry.is_blocked() && !self.may_come_back(&error) => {
                self.give_up(&error.to_string());
            }
            Err(error) => {
                self.report_failed_write(&error);
                return Some(self.status.binding);
            }
        }
        let binding = self.hardware.as_ref()?.binding();
        if self.write_fails {
            // What failed may have been the quota, which is the allocation while the hardware holds the cap.
            let _ = self.write(self.cores);
        }
        self.status.binding = binding;
        Some(binding)
    }

    /// The law's step.
    fn step_law(&mut self, measured: Option<Watts>, throttled: bool, dt: Seconds) -> Binding {
        if self.is_paced() {
            let binding = match self.is_slowed() {
                true => Binding::Cap,
                false => Binding::Allocation,
            };
            self.status.binding = binding;
            if self.write_fails || self.status.quota < self.cores {
                let _ = self.write(self.cores);
            }
            return binding;
        }
        let quota = self.law.step(CapInput {
            measured,
            throttled,
            allocated: self.cores,
            frequency: self.frequency,
            dt,
        });
        let binding = self.law.binding(quota, self.cores);
        let change = (quota.get() - self.status.quota.get()).abs();
        let edge = binding != self.status.binding;
        self.status.binding = binding;
        self.status.correction = self.law.correction();
        if edge || self.write_fails || change > DEAD_BAND * self.cores.get() {
            // A failure is reported where it happens, and the next step tries again.
            let _ = self.write(quota);
        }
        binding
    }
}
