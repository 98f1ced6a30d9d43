//! This machine, with one control group on it, as an agent serves it and a run in this process controls it.

mod identity;
mod levers;
mod sensors;

use super::Actuator;
use super::machine::{About, Counters, Machine, MachineError, PutBack};
use crate::Roots;
use crate::cap::{Applied, Binding, LimitError, Limiter, LimiterOptions};
use crate::cgroup::{CgroupError, Target, TargetSpec};
use crate::cpu::{self, CpuError, QuotaBounds};
use crate::frequency::FrequencyBounds;
use crate::limit::{CapBounds, LeverKind};
use crate::power::{Choice, MeterError, MeterPreference, PowerModel};
use crate::program::{NicOptions, ProgramLever};
use crate::restore::{Outcome, Registry};
use headroom_units::{Cores, Hertz, Lever, LeverRange, Setting, Source, Watts};
use headroom_wire::message::{NoLever, PowerEnvelope, Ranges};
use levers::LeverWatch;
use sensors::Sensors;

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
    /// Whether the modelled meter goes by the lengths of idle periods: where something makes these longer, its watts show it.
    pub idle_by_periods: bool,
    /// How limits are set. An agent has leases of its own, and needs none here; where there is one, each reading renews it.
    pub limiter: LimiterOptions,
    /// The roots are emulated hardware, also where their tree does not say so itself: every figure is labelled so.
    pub emulated: bool,
    /// The node's name; the host's where none is given.
    pub name: Option<String>,
    /// The network card whose interrupts may be delayed.
    pub nic: Option<NicOptions>,
}

impl LocalOptions {
    /// A service on the machine of these trees, with the defaults of everything else.
    pub fn of(roots: Roots, target: TargetSpec, model: PowerModel) -> Self {
        Self {
            roots,
            target,
            model,
            meter: MeterPreference::Auto,
            idle_by_periods: false,
            limiter: LimiterOptions::default(),
            emulated: false,
            name: None,
            nic: None,
        }
    }
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
    /// The limits cannot be set.
    #[error(transparent)]
    Limit(Box<LimitError>),
    /// Another lever cannot be set.
    #[error(transparent)]
    Lever(#[from] MachineError),
}

impl From<LimitError> for OpenError {
    fn from(error: LimitError) -> Self {
        Self::Limit(Box::new(error))
    }
}

/// This machine. Limits are opened with the first setting and given up when everything is put back, so that what is
/// "found" is always what was there just before.
#[derive(Debug)]
pub struct LocalMachine {
    options: LocalOptions,
    registry: Registry,
    sensors: Sensors,
    /// Sets cores, cap and frequency.
    limiter: Option<Limiter>,
    /// The other levers.
    actuators: Vec<Box<dyn Actuator>>,
    /// The caps that could be held when the limits were opened last, and all that was said since of what can be.
    caps: LeverRange,
    /// What held caps then.
    lever: LeverKind,
    /// By the limiter's doing.
    in_force: Setting,
    /// The cores that the service can use.
    allocated: Cores,
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

/// The levers that the limiter sets.
const LIMITED: [Lever; 3] = [Lever::Cores, Lever::Cap, Lever::Frequency];

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
            // A tree that says that it is emulated is, whoever opens it.
            emulated: options.emulated || options.roots.source() == Source::Emulated,
            ..options
        };
        let target = Target::resolve(&options.roots, &options.target)?;
        let allocated = Cores::new(cpu::effective(&options.roots, &target)?.len() as f64);
        let sensors = Sensors::open(&options, &target)?;
        // What was taken now stays: limiters are opened again and again, and none of them tries the meters anew.
        let options = LocalOptions {
            meter: sensors.choice().again(options.meter),
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
        let nic = match &options.nic {
            Some(nic) => {
                let lever = ProgramLever::coalescing(nic, &options.roots, &registry);
                Some(lever.map_err(MachineError::new)?)
            }
            None => None,
        };
        let machine = Self {
            options,
            registry,
            sensors,
            limiter: None,
            actuators: Vec::new(),
            caps,
            lever,
            in_force: Setting::default(),
            allocated,
            levers: LeverWatch::default(),
            gone: None,
        };
        match nic {
            Some(nic) => Ok(machine.with(Box::new(nic))?),
            None => Ok(machine),
        }
    }

    /// The same machine with one lever more, where nothing else here sets that one.
    ///
    /// # Errors
    /// The lever is set by something else here.
    pub fn with(mut self, actuator: Box<dyn Actuator>) -> Result<Self, MachineError> {
        let lever = actuator.lever();
        let taken = LIMITED.contains(&lever) || self.actuators.iter().any(|one| one.lever() == lever);
        if taken {
            let why = format!("the lever {lever} has two actuators on this machine: configure one of them");
            return Err(MachineError::new(why));
        }
        self.actuators.push(actuator);
        Ok(self)
    }

    /// Opens the limits now and not with the first setting, so that nobody else takes them meanwhile, and waits until it
    /// is known which zones of the meter count. Changes nothing.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn hold(&mut self) -> Result<(), OpenError> {
        self.allocated = self.limiter()?.allocated();
        Ok(self.sensors.settle()?)
    }

    /// Which meter is in use, and which were passed over and why.
    pub fn meter(&self) -> &Choice {
        self.sensors.choice()
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
    pub const fn allocated(&self) -> Cores {
        self.allocated
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
    fn possible(&mut self) -> Result<Possible, OpenError> {
        let now = possible(&self.options, self.bounds()?);
        if self.limiter.is_none() {
            return Ok(now);
        }
        // A hardware limit is on the packages, and what the rest of the machine draws is measured under the lease, so that the
        // ends of the range move with each reading. Whoever was given one asks within it until it hears of another: a cap that
        // was accepted when the lease began, or said to be possible since, is not refused. What the hardware cannot hold of it
        // by then is bounded, and said.
        self.caps = LeverRange::between(now.caps.min.min(self.caps.min), now.caps.max.max(self.caps.max));
        Ok(Possible {
            caps: self.caps,
            ..now
        })
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
                    self.sensors.reopen();
                    self.sensors.settle()?;
                    let again = format!("the control group of {} is there again, and limited", target.name);
                    self.sensors.note(std::iter::once(again));
                }
                limiter
            }
        };
        self.lever = limiter.lever().chosen;
        Ok(self.limiter.insert(limiter))
    }

    /// Puts cores, cap and frequency in force and says all of what is: [`Machine::apply`] without the words and the other
    /// levers.
    ///
    /// # Errors
    /// [`OpenError`]: the machine refused, or the service's control group is gone ([`LocalMachine::gone`]); where nobody would
    /// lift limits, everything was put back.
    pub fn set(&mut self, setting: Setting) -> Result<Applied, OpenError> {
        let limiter = self.limiter()?;
        let applied = limiter.apply(setting).inspect_err(|error| match error {
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
        let cores = setting.cores().map(|_| applied.cores);
        self.in_force = Setting::default()
            .with(Lever::Cores, cores.map(Cores::get))
            .with(Lever::Cap, cap.map(Watts::get))
            .with(Lever::Frequency, applied.frequency.map(Hertz::get));
        self.allocated = applied.cores;
        Ok(applied)
    }

    /// Gives up what limits a control group that is gone.
    fn lose(&mut self, why: &str) {
        let gone = format!(
            "the control group of {} is gone, so that nothing is limited: it is taken up again when it is there ({why})",
            self.options.target
        );
        self.sensors.note(std::iter::once(gone.clone()));
        self.gone = Some(gone);
        self.limiter = None;
        self.in_force = Setting::default();
    }

    /// Takes what the limiter reports.
    fn take_events(&mut self, limiter: &Limiter) {
        let events = limiter.take_events();
        events.iter().for_each(|event| self.levers.note(event));
        self.sensors.note(events.iter().map(ToString::to_string));
    }

    fn limit(&mut self, setting: Setting) -> Result<Vec<String>, MachineError> {
        let applied = self.set(setting).map_err(MachineError::new)?;
        // What one lever refuses keeps no other from being set.
        let mut refused = Vec::new();
        if let Some(why) = applied.frequency_refused {
            refused.push(format!("the limit on the frequency is not in force: {why}"));
        }
        let mut notes = Vec::new();
        for actuator in &mut self.actuators {
            match setting.get(actuator.lever()) {
                Some(value) => refused.extend(actuator.set(value).err()),
                None => notes.extend(actuator.put_back().iter().map(ToString::to_string)),
            }
        }
        if !refused.is_empty() {
            return Err(MachineError::new(refused.join("; ")));
        }
        if applied.binding == Binding::Floor {
            notes.push(format!(
                "the cap leaves less than the smallest quota: {:.2} stay, and the power may exceed it",
                applied.effective_quota
            ));
        }
        if let (Some(bounds), Some(cores)) = (applied.bounded, setting.cores()) {
            notes.push(format!(
                "{cores:.2} were bounded to {:.2} to {:.2}",
                bounds.smallest, bounds.largest
            ));
        }
        if let (Some(bounds), Some(asked)) = (applied.cap_bounded, setting.cap()) {
            notes.push(format!(
                "a cap of {asked:.1} was bounded to what {} can hold, {:.1} to {:.1}",
                applied.lever, bounds.smallest, bounds.largest
            ));
        }
        Ok(notes)
    }
}

fn open_limiter(options: &LocalOptions, target: &Target, registry: &Registry) -> Result<Limiter, LimitError> {
    let opened = Limiter::open(
        &options.roots,
        target,
        options.model.clone(),
        options.meter,
        options.limiter,
        registry,
    );
    opened.map(|(limiter, _)| limiter)
}

/// What limits can hold now.
struct Possible {
    /// In cores.
    cores: LeverRange,
    /// In watts: the hardware's where it holds caps, else the model's.
    caps: LeverRange,
    /// In hertz; why the frequency cannot be limited.
    frequency: Result<LeverRange, String>,
}

fn possible(options: &LocalOptions, bounds: Bounds) -> Possible {
    let Bounds {
        cores,
        cap,
        frequency,
    } = bounds;
    let caps = match cap {
        Some(caps) => LeverRange::between(caps.smallest.get(), caps.largest.get()),
        None => {
            let floor = options.limiter.cap.floor.max(cores.smallest);
            let lowest = options.model.minimum_cap(floor.min(cores.smallest));
            LeverRange::between(lowest.get(), options.model.maximum_cap().get())
        }
    };
    let frequency = frequency.map(|bounds| LeverRange {
        step: bounds.step.get(),
        ..LeverRange::between(bounds.lowest.get(), bounds.highest.get())
    });
    Possible {
        cores: LeverRange::between(cores.smallest.get(), cores.largest.get()),
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
        let (mut devices, meters) = identity::devices(&self.options, self.sensors.choice(), lever);
        for device in &mut devices {
            let mut usable = self.actuators.iter().filter(|one| one.range().is_ok());
            device.in_use |= usable.any(|one| one.device() == device.name);
        }
        About {
            node: identity::node(&self.options.roots, self.options.name.as_deref()),
            service: self.options.target.to_string(),
            devices,
            meters,
            envelope: Some(PowerEnvelope {
                idle: model.limit(Cores::ZERO),
                full: model.maximum_cap(),
                source: self.label(Source::Estimated),
            }),
            source: self.label(self.sensors.choice().source),
            oncall: None,
        }
    }

    fn ranges(&mut self) -> Ranges {
        let none = |reason| NoLever {
            reason,
            remedy: String::new(),
        };
        let limited = match self.possible() {
            Ok(possible) => [
                (Lever::Cores, Ok(possible.cores)),
                (Lever::Cap, Ok(possible.caps)),
                (Lever::Frequency, possible.frequency.map_err(none)),
            ],
            Err(error) => LIMITED.map(|lever| (lever, Err(none(error.to_string())))),
        };
        let others = self.actuators.iter().map(|one| (one.lever(), one.range()));
        limited.into_iter().chain(others).collect()
    }

    fn apply(&mut self, setting: Setting) -> Result<Vec<String>, MachineError> {
        if setting.is_empty() {
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
        self.limit(setting)
    }

    fn put_back(&mut self) -> PutBack {
        let mut done = PutBack::default();
        let limiter = self.limiter.take();
        if let Some(limiter) = &limiter {
            // Without a cap its thread writes no more, so that nothing comes between here and the restoration. Where this
            // fails, so does what follows, and that is reported.
            let _ = limiter.give_back();
        }
        let mut outcomes = limiter.as_ref().map_or_else(Vec::new, Limiter::leave_frequency);
        outcomes.extend(self.actuators.iter_mut().flat_map(|one| one.put_back()));
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
        self.in_force = Setting::default();
        if let Ok(possible) = self.possible() {
            self.allocated = Cores::new(possible.cores.max);
        }
        done
    }

    fn in_force(&self) -> Setting {
        let others = self.actuators.iter();
        others.fold(self.in_force, |all, one| all.with(one.lever(), one.in_force()))
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
            ..self.sensors.read()
        }
    }
}

#[cfg(test)]
mod tests;
