//! This machine, with one control group on it, as an agent serves it and a run in this process controls it.

mod eyes;
mod identity;
mod levers;

use super::machine::{About, Counters, Machine, MachineError, NoLever, PutBack, Ranges};
use crate::Roots;
use crate::cap::{self, Applied, Binding, LimitError, Limiter, LimiterOptions};
use crate::cgroup::{CgroupError, Target, TargetSpec};
use crate::cpu::{self, CpuError, QuotaBounds};
use crate::frequency::FrequencyBounds;
use crate::limit::{CapBounds, LeverKind};
use crate::power::{Allocated, Choice, MeterError, MeterPreference, ModelError, PowerModel};
use crate::restore::{Outcome, Registry};
use eyes::Eyes;
use headroom_units::{Cores, Source};
use headroom_wire::message::{Allocation, PowerEnvelope, Range};
use levers::LeverWatch;

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
    /// How limits are set. An agent has leases of its own, and needs none here; where there is one, each reading renews it.
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
    levers: LeverWatch,
    /// Why the service cannot be limited now: its control group is gone.
    gone: Option<String>,
}

/// Between what a service on this machine can be limited now.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Cores.
    pub cores: QuotaBounds,
    /// Power caps where the hardware holds them; where the quota does, its model bounds them.
    pub cap: Option<CapBounds>,
    /// The limit on the frequency; why there is none.
    pub frequency: Result<FrequencyBounds, String>,
}

impl Bounds {
    fn of(limiter: &Limiter) -> Result<Self, LimitError> {
        Ok(Self {
            cores: limiter.bounds()?,
            cap: limiter.cap_bounds(),
            frequency: limiter.frequency(),
        })
    }
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
        let caps = possible(&options, Bounds::of(&limiter)?).caps;
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
            levers: LeverWatch::default(),
            gone: None,
        })
    }

    /// Opens the limits now and not with the first allocation, so that nobody else takes them meanwhile, and waits until it
    /// is known which zones of the meter count. Changes nothing.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn hold(&mut self) -> Result<(), OpenError> {
        let now = self.limiter()?.allocated().now();
        self.allocated.set(now);
        Ok(self.eyes.settle()?)
    }

    /// Which meter is in use, and which were passed over and why.
    pub fn meter(&self) -> &Choice {
        self.eyes.choice()
    }

    /// What holds caps; nothing while the control group is gone.
    pub fn lever(&self) -> Option<LeverKind> {
        self.gone.is_none().then_some(self.lever)
    }

    /// Why the service cannot be limited now: its control group is gone. It is looked for with each allocation.
    pub fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    /// The cores that the service can use: as allocated last, or as found.
    pub fn allocated(&self) -> Cores {
        self.allocated.now()
    }

    /// Whether a lever was not in force as commanded since the last call, or another one than at first holds the cap.
    pub fn levers_lost(&mut self) -> bool {
        self.levers.lost()
    }

    /// Between what the service can be limited now; where nothing is limited, limits are opened to be asked.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bounds(&self) -> Result<Bounds, OpenError> {
        match &self.limiter {
            Some(limiter) => Ok(Bounds::of(limiter)?),
            None => {
                let target = Target::resolve(&self.options.roots, &self.options.target)?;
                let limiter = open_limiter(&self.options, &target, &self.registry)?;
                Ok(Bounds::of(&limiter)?)
            }
        }
    }

    /// What can be asked of the limits as they are now; where nobody holds the node, of limits opened to be asked.
    fn look(&self) -> Result<Possible, OpenError> {
        let now = possible(&self.options, self.bounds()?);
        if self.limiter.is_none() {
            return Ok(now);
        }
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
                self.caps = possible(&self.options, Bounds::of(&limiter)?).caps;
                if self.gone.take().is_some() {
                    self.eyes.reopen();
                    self.eyes.settle()?;
                    let again = format!("the control group of {} is there again, and limited", target.name);
                    self.eyes.note(std::iter::once(again));
                }
                limiter
            }
        };
        self.lever = limiter.lever().chosen;
        Ok(self.limiter.insert(limiter))
    }

    /// Puts an allocation in force and says all of what is: [`Machine::apply`] without the words.
    ///
    /// # Errors
    /// [`OpenError`]: the machine refused, or the service's control group is gone ([`LocalMachine::gone`]); where nobody would
    /// lift limits, everything was put back.
    pub fn set(&mut self, allocation: Allocation) -> Result<Applied, OpenError> {
        let limiter = self.limiter()?;
        let applied = apply(limiter, allocation).inspect_err(|error| match error {
            // It was all given back: what is in force is what was found.
            LimitError::Unguarded { .. } => {
                for failure in self.put_back().failed {
                    tracing::error!("{failure}");
                }
            }
            error if error.is_gone() => self.lose(&error.to_string()),
            _ => {}
        })?;
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
        Ok(applied)
    }

    /// Gives up what limits a control group that is gone.
    fn lose(&mut self, why: &str) {
        let gone = format!(
            "the control group of {} is gone, so that nothing is limited: it is taken up again when it is there ({why})",
            self.options.target
        );
        self.eyes.note(std::iter::once(gone.clone()));
        self.gone = Some(gone);
        self.limiter = None;
        self.in_force = Allocation::AS_FOUND;
    }

    /// Takes what the limiter reports.
    fn take_events(&mut self, limiter: &Limiter) {
        let events = limiter.take_events();
        events.iter().for_each(|event| self.levers.note(event));
        self.eyes.note(events.iter().map(ToString::to_string));
    }

    fn limit(&mut self, allocation: Allocation) -> Result<Vec<String>, MachineError> {
        let applied = self.set(allocation).map_err(MachineError::new)?;
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
        if let (Some(bounds), Some(cores)) = (applied.bounded, allocation.cores) {
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

fn apply(limiter: &Limiter, allocation: Allocation) -> Result<Applied, LimitError> {
    let cores = match allocation.cores {
        Some(cores) => cores,
        None => limiter.bounds()?.largest,
    };
    limiter.apply(cap::Allocation {
        cores,
        cap: allocation.cap,
        frequency: allocation.frequency,
    })
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

fn possible(options: &LocalOptions, bounds: Bounds) -> Possible {
    let Bounds {
        cores,
        cap,
        frequency,
    } = bounds;
    let caps = match cap {
        Some(caps) => Range::new(caps.smallest.get(), caps.largest.get()),
        None => {
            let floor = options.limiter.cap.floor.max(cores.smallest);
            let lowest = options.model.minimum_cap(cores.smallest, floor);
            Range::new(lowest.get(), options.model.maximum_cap().get())
        }
    };
    let frequency = frequency.map(|bounds| Range {
        minimum: bounds.lowest.get(),
        maximum: bounds.highest.get(),
        step: bounds.step.get(),
    });
    Possible {
        cores: Range::new(cores.smallest.get(), cores.largest.get()),
        caps,
        frequency,
    }
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
            self.take_events(&limiter);
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
        // Whoever asks does not hang, also while it decides nothing yet.
        if let Some(limiter) = self.limiter.take() {
            limiter.renew();
            self.take_events(&limiter);
            self.limiter = Some(limiter);
        }
        Counters {
            usable: self.limiter.as_ref().map(|limiter| limiter.status().quota),
            ..self.eyes.read()
        }
    }
}

#[cfg(test)]
mod tests;
