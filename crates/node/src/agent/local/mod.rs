//! This machine, with one control group on it, as an agent serves it.

mod eyes;
mod identity;

use super::machine::{About, Counters, Machine, MachineError, NoLever, PutBack, Ranges};
use crate::Roots;
use crate::cap::{self, Binding, LimitError, Limiter, LimiterOptions};
use crate::cgroup::{CgroupError, Target, TargetSpec};
use crate::cpu::{self, CpuError};
use crate::limit::LeverKind;
use crate::power::{Allocated, Choice, MeterError, MeterPreference, ModelError, PowerModel};
use crate::restore::{Outcome, Registry};
use eyes::Eyes;
use headroom_units::{Cores, Source};
use headroom_wire::message::{Allocation, PowerEnvelope, Range};

/// What an agent serves, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalOptions {
    /// Where `/sys` and `/proc` are.
    pub roots: Roots,
    /// The service.
    pub target: TargetSpec,
    /// What the machine draws; the model of the software cap, and the meter where there is no sensor.
    pub model: PowerModel,
    /// Which meter.
    pub meter: MeterPreference,
    /// How limits are set. The agent's own lease is the only one: [`LimiterOptions::lease`] is not used.
    pub limiter: LimiterOptions,
    /// The roots are emulated hardware, also where their tree does not say so itself: every figure is labelled so.
    pub emulated: bool,
    /// The node's name; the host's where none is given.
    pub name: Option<String>,
}

/// A machine that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The service was not found.
    #[error(transparent)]
    Target(#[from] CgroupError),
    /// Its processor time or its limit cannot be read or written.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// No power meter can be used.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// The model's figures are none.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The limits cannot be set.
    #[error(transparent)]
    Limit(Box<LimitError>),
}

impl From<LimitError> for OpenError {
    fn from(error: LimitError) -> Self {
        Self::Limit(Box::new(error))
    }
}

/// This machine. Limits are opened with the first allocation and given up when everything is put back, so that what is
/// "found" is always what was there just before.
#[derive(Debug)]
pub struct LocalMachine {
    options: LocalOptions,
    registry: Registry,
    eyes: Eyes,
    limiter: Option<Limiter>,
    /// The caps that could be held when the limits were opened last.
    caps: Range,
    /// What held caps then.
    lever: LeverKind,
    in_force: Allocation,
    allocated: Allocated,
}

impl LocalMachine {
    /// Opens what will be read, and tries what will be written without writing it.
    ///
    /// What it changes is a part of the registry, and is put back by itself; other services of this process may have
    /// theirs in the same.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing was changed then.
    pub fn open(options: LocalOptions, registry: &Registry) -> Result<Self, OpenError> {
        let options = LocalOptions {
            model: options.model.validated()?,
            // A tree that says that it is emulated is, whoever opens it.
            emulated: options.emulated || options.roots.source() == Source::Emulated,
            limiter: LimiterOptions {
                lease: None,
                ..options.limiter
            },
            ..options
        };
        let target = Target::resolve(&options.roots, &options.target)?;
        let allocated = Allocated::new(Cores::new(cpu::effective(&options.roots, &target)?.len() as f64));
        let eyes = Eyes::open(&options, &target, &allocated)?;
        // What was taken now stays: limiters are opened again and again, and none of them tries the meters anew.
        let options = LocalOptions {
            meter: eyes.choice().again(options.meter),
            limiter: LimiterOptions {
                meter_tried: true,
                ..options.limiter
            },
            ..options
        };
        // Tried once, so that an agent that could never limit anything does not start.
        let limiter = open_limiter(&options, &target, registry)?;
        let caps = possible(&options, &limiter)?.caps;
        let lever = limiter.lever().chosen;
        drop(limiter);
        let registry = registry.part();
        Ok(Self {
            options,
            registry,
            eyes,
            limiter: None,
            caps,
            lever,
            in_force: Allocation::AS_FOUND,
            allocated,
        })
    }

    /// Which meter is in use, and which were passed over and why.
    pub fn meter(&self) -> &Choice {
        self.eyes.choice()
    }

    /// What can be asked of the limits as they are now; where nobody holds the node, of limits opened to be asked.
    fn look(&self) -> Result<Possible, OpenError> {
        let Some(limiter) = &self.limiter else {
            let target = Target::resolve(&self.options.roots, &self.options.target)?;
            let limiter = open_limiter(&self.options, &target, &self.registry)?;
            return Ok(possible(&self.options, &limiter)?);
        };
        let now = possible(&self.options, limiter)?;
        // A hardware limit is on the packages, and what the rest of the machine draws is learnt under the lease: a cap that
        // was accepted when it began must not be refused at its renewal.
        let caps = Range::new(
            now.caps.minimum.min(self.caps.minimum),
            now.caps.maximum.max(self.caps.maximum),
        );
        Ok(Possible { caps, ..now })
    }

    /// The label of a figure: on emulated hardware there is one alone.
    fn label(&self, source: Source) -> Source {
        if self.options.emulated {
            Source::Emulated
        } else {
            source
        }
    }

    fn limiter(&mut self) -> Result<&Limiter, OpenError> {
        let limiter = match self.limiter.take() {
            Some(limiter) => limiter,
            None => {
                // The service may have been started anew since, in a group of another name.
                let target = Target::resolve(&self.options.roots, &self.options.target)?;
                let limiter = open_limiter(&self.options, &target, &self.registry)?;
                self.caps = possible(&self.options, &limiter)?.caps;
                limiter
            }
        };
        self.lever = limiter.lever().chosen;
        Ok(self.limiter.insert(limiter))
    }

    fn tell(&mut self, allocation: Allocation) -> Result<(Cores, cap::Applied), OpenError> {
        let limiter = self.limiter()?;
        let cores = match allocation.cores {
            Some(cores) => cores,
            None => limiter.bounds()?.largest,
        };
        let applied = limiter.apply(cap::Allocation {
            cores,
            cap: allocation.cap,
            frequency: allocation.frequency,
        })?;
        Ok((cores, applied))
    }

    fn limit(&mut self, allocation: Allocation) -> Result<Vec<String>, MachineError> {
        let told = self.tell(allocation);
        if let Err(OpenError::Limit(error)) = &told
            && matches!(**error, LimitError::Unguarded { .. })
        {
            // It was all given back: what is in force is what was found.
            for failure in self.put_back().failed {
                tracing::error!("{failure}");
            }
        }
        let (cores, applied) = told.map_err(MachineError::new)?;
        let cap = match &applied.cap_bounded {
            Some(bounds) => applied.cap.map(|cap| cap.clamp(bounds.smallest, bounds.largest)),
            None => applied.cap,
        };
        self.in_force = Allocation {
            cores: allocation.cores.map(|_| applied.cores),
            cap,
            frequency: applied.frequency,
        };
        self.allocated.set(applied.cores);
        if let Some(why) = applied.frequency_refused {
            return Err(MachineError::new(format!(
                "the limit on the frequency is not in force: {why}"
            )));
        }
        let mut notes = Vec::new();
        if applied.binding == Binding::Floor {
            notes.push(format!(
                "the cap leaves less than the smallest quota: {:.2} stay, and the power may exceed it",
                applied.effective_quota
            ));
        }
        if let Some(bounds) = applied.bounded {
            notes.push(format!(
                "{cores:.2} were bounded to {:.2} to {:.2}",
                bounds.smallest, bounds.largest
            ));
        }
        if let (Some(bounds), Some(asked)) = (applied.cap_bounded, allocation.cap) {
            notes.push(format!(
                "a cap of {asked:.1} was bounded to what {} can hold, {:.1} to {:.1}",
                applied.lever, bounds.smallest, bounds.largest
            ));
        }
        Ok(notes)
    }
}

impl Drop for LocalMachine {
    fn drop(&mut self) {
        for failure in self.put_back().failed {
            tracing::error!("{failure}");
        }
    }
}

fn open_limiter(options: &LocalOptions, target: &Target, registry: &Registry) -> Result<Limiter, LimitError> {
    let opened = Limiter::open(
        &options.roots,
        target,
        options.model,
        options.meter,
        options.limiter,
        registry,
    );
    opened.map(|(limiter, _)| limiter)
}

/// What limits can hold now.
struct Possible {
    /// In cores.
    cores: Range,
    /// In watts: the hardware's where it holds caps, else the model's.
    caps: Range,
    /// In hertz; why the frequency cannot be limited.
    frequency: Result<Range, String>,
}

fn possible(options: &LocalOptions, limiter: &Limiter) -> Result<Possible, LimitError> {
    let bounds = limiter.bounds()?;
    let caps = match limiter.cap_bounds() {
        Some(caps) => Range::new(caps.smallest.get(), caps.largest.get()),
        None => {
            let floor = options.limiter.cap.floor.max(bounds.smallest);
            let lowest = options.model.minimum_cap(bounds.smallest, floor);
            Range::new(lowest.get(), options.model.maximum_cap().get())
        }
    };
    let frequency = limiter.frequency().map(|bounds| Range {
        minimum: bounds.lowest.get(),
        maximum: bounds.highest.get(),
        step: bounds.step.get(),
    });
    Ok(Possible {
        cores: Range::new(bounds.smallest.get(), bounds.largest.get()),
        caps,
        frequency,
    })
}

impl Machine for LocalMachine {
    fn about(&mut self) -> About {
        let model = &self.options.model;
        let lever = self
            .limiter
            .as_ref()
            .map_or(self.lever, |limiter| limiter.lever().chosen);
        let (levers, meters) = identity::devices(&self.options, self.eyes.choice(), lever);
        About {
            node: identity::node(&self.options.roots, self.options.name.as_deref()),
            service: self.options.target.to_string(),
            levers,
            meters,
            envelope: Some(PowerEnvelope {
                idle: model.idle(Cores::ZERO),
                full: model.maximum_cap(),
                source: self.label(Source::Estimated),
            }),
            source: self.label(self.eyes.choice().source),
        }
    }

    fn ranges(&mut self) -> Ranges {
        let none = |reason| NoLever {
            reason,
            remedy: String::new(),
        };
        match self.look() {
            Ok(possible) => Ranges {
                cores: Ok(possible.cores),
                cap: Ok(possible.caps),
                frequency: possible.frequency.map_err(none),
            },
            Err(error) => {
                let none = none(error.to_string());
                Ranges {
                    cores: Err(none.clone()),
                    cap: Err(none.clone()),
                    frequency: Err(none),
                }
            }
        }
    }

    fn apply(&mut self, allocation: Allocation) -> Result<Vec<String>, MachineError> {
        if allocation == Allocation::AS_FOUND {
            let done = self.put_back();
            return match done.failed.is_empty() {
                true => Ok(done.notes),
                false => Err(MachineError::new(done.failed.join("; "))),
            };
        }
        if self.registry.is_paused() {
            self.put_back();
            return Err(MachineError::new(
                "an operator has paused this node: everything is on until `headroom resume` there",
            ));
        }
        self.limit(allocation)
    }

    fn put_back(&mut self) -> PutBack {
        let mut done = PutBack::default();
        let limiter = self.limiter.take();
        if let Some(limiter) = &limiter {
            // Without a cap its thread writes no more, so that nothing comes between here and the restoration. Where this
            // fails, so does what follows, and that is told.
            let _ = limiter.give_back();
        }
        let mut outcomes = limiter.as_ref().map_or_else(Vec::new, Limiter::leave_frequency);
        // What has failed is in the registry, and tried again there.
        outcomes.retain(|outcome| !matches!(outcome, Outcome::Failed { .. }));
        // Also where nothing is limited: what could not be put back earlier is tried again.
        outcomes.extend(self.registry.restore_all().outcomes);
        for outcome in outcomes {
            match outcome {
                Outcome::Failed { .. } => done.failed.push(outcome.to_string()),
                _ => done.notes.push(outcome.to_string()),
            }
        }
        if let Some(limiter) = limiter {
            self.eyes
                .note(limiter.take_events().iter().map(ToString::to_string));
        }
        self.in_force = Allocation::AS_FOUND;
        if let Ok(possible) = self.look() {
            self.allocated.set(Cores::new(possible.cores.maximum));
        }
        done
    }

    fn in_force(&self) -> Allocation {
        self.in_force
    }

    fn read(&mut self) -> Counters {
        if self.limiter.is_some() && self.registry.is_paused() {
            self.put_back();
        }
        if let Some(limiter) = &self.limiter {
            self.eyes
                .note(limiter.take_events().iter().map(ToString::to_string));
        }
        Counters {
            usable: self.limiter.as_ref().map(|limiter| limiter.status().quota),
            ..self.eyes.read()
        }
    }
}

#[cfg(test)]
mod tests;
