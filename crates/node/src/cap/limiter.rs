//! One service's limits in force: the cores allocated to it, and the power cap that a thread holds by quota.

use super::event::Event;
use super::hardware::Hardware;
use super::law::{Binding, CapOptions, SoftwareCap};
use super::pace::Pace;
use super::pacing::Pacing;
use super::state::{Sample, State};
use crate::Roots;
use crate::cgroup::Target;
use crate::cpu::{CpuError, CpuList, CpusetActuator, QuotaActuator, QuotaBounds, QuotaOptions, UsageMeter};
use crate::frequency::{FrequencyBounds, FrequencyError, FrequencyReader, FrequencyUse};
use crate::limit::{self, CapBounds, LeverChoice, LeverKind, LeverPreference, NoLever, PowerLimitError};
use crate::power::{
    Choice, HsmpMeter, Meter, MeterError, MeterKind, MeterPreference, MeterSample, PowerModel, RaplMeter,
    choose, choose_tried,
};
use crate::restore::{Outcome, Registry, Watch};
use headroom_units::{Cores, Hertz, Ratio, Reading, Seconds, Setting, Watts};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread that holds a cap hangs where it gives no sign of life for so many steps, and for so long.
const SILENT_STEPS: u32 = 20;
const MIN_SILENCE: Duration = Duration::from_secs(2);

/// What is in force after an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The cores, after bounding and rounding.
    pub cores: Cores,
    /// The cap.
    pub cap: Option<Watts>,
    /// The CPU quota: the smaller of the cores and of what fits under the cap.
    pub effective_quota: Cores,
    /// What holds the service back: the cap also where the hardware holds it and the quota is the allocation.
    pub binding: Binding,
    /// Where the cores asked for were beyond a bound, the bounds.
    pub bounded: Option<QuotaBounds>,
    /// Where the cap asked for was beyond what the hardware can hold, its bounds.
    pub cap_bounded: Option<CapBounds>,
    /// What holds the cap.
    pub lever: LeverKind,
    /// The CPUs chosen, where the limiter chooses them.
    pub cpus: Option<CpuList>,
    /// The limit on the frequency, as read back of the fastest policy; nothing where none is in force.
    pub frequency: Option<Hertz>,
    /// Why the limit on the frequency that was asked for is not in force. The rest of the allocation is.
    pub frequency_refused: Option<String>,
}

/// How limits are set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimiterOptions {
    /// The CPU quota.
    pub quota: QuotaOptions,
    /// The meters of the preference were tried under load when this machine was first opened: they are not tried again.
    pub meter_tried: bool,
    /// What holds caps: the hardware where it can, else the quota.
    pub lever: LeverPreference,
    /// The software cap's law.
    pub cap: CapOptions,
    /// How often the cap's loop runs while there is a cap: 50 ms by default.
    pub step: Seconds,
    /// Whether whole CPUs are chosen as well (cpuset), the allocation rounded up to them.
    pub cpuset: bool,
    /// Whether the frequency is limited where an allocation says so.
    pub frequency: FrequencyUse,
    /// If no allocation comes for so long, everything is given back: losing the controller may cost energy, never
    /// latency. Nothing for no such limit.
    pub lease: Option<Seconds>,
}

impl Default for LimiterOptions {
    fn default() -> Self {
        Self {
            quota: QuotaOptions::default(),
            meter_tried: false,
            lever: LeverPreference::default(),
            cap: CapOptions::default(),
            step: Seconds::from_millis(50.0),
            cpuset: false,
            frequency: FrequencyUse::default(),
            lease: None,
        }
    }
}

/// A limiter that cannot be opened, or an allocation that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// Cores.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// Power.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// The hardware's power limit.
    #[error(transparent)]
    Power(#[from] PowerLimitError),
    /// The frequency.
    #[error(transparent)]
    Frequency(#[from] FrequencyError),
    /// What was to hold caps cannot, and nothing else was to.
    #[error(
        "no power cap can be held by \"{wanted}\": {reason}; set the power lever to auto or software to go without it"
    )]
    NoLever {
        /// The preference.
        wanted: LeverPreference,
        /// What is missing of it.
        reason: String,
    },
    /// An option out of its range.
    #[error("{option} is {value}: {expected}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: f64,
        /// Its range.
        expected: &'static str,
    },
    /// Nobody would lift the limits if this process were killed or hung: everything was given back.
    #[error("nothing is limited: {why}")]
    Unguarded {
        /// Why it may not be.
        why: String,
    },
    /// The loop's thread could not be started.
    #[error("cannot start the thread that holds the power cap: {0}")]
    Thread(#[source] std::io::Error),
}

impl LimitError {
    /// The control group is gone.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Cpu(CpuError::File(error)) => error.is_gone(),
            Self::Cpu(CpuError::Gone { .. }) => true,
            _ => false,
        }
    }
}

/// How the cap's loop fares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapStatus {
    /// Steps since the limiter was opened.
    pub steps: u64,
    /// Steps without a measurement.
    pub blind_steps: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Times somebody else had changed what we control.
    pub foreign_writes: u64,
    /// Events dropped because nobody took them.
    pub dropped_events: u64,
    /// The last measurement.
    pub power: Option<Reading<Watts>>,
    /// The quota in force.
    pub quota: Cores,
    /// What holds it.
    pub binding: Binding,
    /// What holds caps now.
    pub lever: LeverKind,
    /// The hardware's limit on the packages together, where it holds the cap.
    pub hardware_limit: Option<Watts>,
    /// What the software cap's law has learnt about the machine: watts added to the cap before the model is inverted.
    pub correction: Watts,
}

/// Holds one service to its cores and the machine to its cap. Dropping it puts back what was found.
#[derive(Debug)]
pub struct Limiter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    watch: Watch,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limiter {
    /// Opens everything that will be written and checks that it may be, without writing; opens the cap's own meter;
    /// starts the thread that holds caps. Nothing is limited until the first allocation.
    ///
    /// # Errors
    /// [`LimitError`]: a file is missing or may not be written, the preferred meter cannot be used, an option is out
    /// of range. Nothing was changed then.
    pub fn open(
        roots: &Roots,
        target: &Target,
        model: PowerModel,
        meter: MeterPreference,
        options: LimiterOptions,
        registry: &Registry,
    ) -> Result<(Self, Choice), LimitError> {
        let step = options.step.get();
        if !(0.005..=10.0).contains(&step) {
            let expected = "give a time between 5 ms and 10 s";
            return Err(LimitError::Option {
                option: "the cap's step, in seconds,",
                value: step,
                expected,
            });
        }
        let (floor, tau) = (options.cap.floor.get(), options.cap.time_constant.get());
        if !(floor > 0.0 && floor.is_finite()) {
            let expected = "give a number of cores above zero";
            return Err(LimitError::Option {
                option: "the cap's floor, in cores,",
                value: floor,
                expected,
            });
        }
        if !(tau > 0.0 && tau.is_finite()) {
            let expected = "give a time above zero";
            return Err(LimitError::Option {
                option: "the cap's time constant, in seconds,",
                value: tau,
                expected,
            });
        }
        let lease = options.lease.map(Seconds::get);
        if let Some(value) = lease.filter(|lease| !(*lease > 0.0 && lease.is_finite())) {
            let expected = "give a time above zero";
            return Err(LimitError::Option {
                option: "the lease, in seconds,",
                value,
                expected,
            });
        }
        let quota = QuotaActuator::open(roots, target, options.quota, registry)?;
        let cpuset = match options.cpuset {
            true => Some(CpusetActuator::open(roots, target, registry)?),
            false => None,
        };
        let bounds = quota.bounds()?;
        let now = quota.read()?.unwrap_or(bounds.largest).min(bounds.largest);
        // Before the meters, each of which would only say that it is not there instead.
        let usage = UsageMeter::open(roots, target)?;
        let choose = match options.meter_tried {
            true => choose_tried,
            false => choose,
        };
        let (meter, choice) = choose(meter, roots, target, &model)?;
        let measured = choice.chosen != MeterKind::Model;
        let pace = Pace::open(roots, options.frequency, registry)?;
        let paced = pace.bounds().map(drop);
        let (lever, lever_choice) =
            limit::open(options.lever, roots, measured, &paced, registry).map_err(|none| match none {
                NoLever::Fatal(error) => LimitError::Power(error),
                none => LimitError::NoLever {
                    wanted: options.lever,
                    reason: none.to_string(),
                },
            })?;
        let packages = lever
            .as_ref()
            .and_then(|lever| packages_meter(roots, &*meter, lever.kind()));
        let fallback = options.lever.order().contains(&LeverKind::Software);
        // The quota cannot go below its own smallest share, so neither can the cap's.
        let cap = CapOptions {
            floor: options.cap.floor.max(bounds.smallest),
            ..options.cap
        };
        let state = State {
            registry: registry.clone(),
            law: SoftwareCap::new(model.clone(), cap),
            cap: None,
            hardware: lever.map(Hardware::new),
            fallback,
            hardware_gone: None,
            quota,
            cpuset,
            pacing: (lever_choice.chosen == LeverKind::Frequency).then(|| {
                let lowest = pace.bounds().map_or(Hertz::ZERO, |bounds| bounds.lowest);
                Pacing::new(model, options.cap.time_constant, pace.relative(lowest))
            }),
            pace,
            cores: now,
            frequency: Ratio::new(1.0),
            renewed_at: Instant::now(),
            stop: false,
            given_back: true,
            meter_lost: false,
            write_fails: false,
            excess_steps: 0,
            mean_power: None,
            status: CapStatus {
                steps: 0,
                blind_steps: 0,
                failed_writes: 0,
                foreign_writes: 0,
                dropped_events: 0,
                power: None,
                quota: now,
                binding: Binding::Allocation,
                lever: lever_choice.chosen,
                hardware_limit: None,
                correction: Watts::ZERO,
            },
            lever_choice,
            events: VecDeque::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            watch: registry.watch().clone(),
        });
        let sensors = Sensors {
            meter,
            packages,
            usage,
            frequency: FrequencyReader::open(roots),
        };
        let (step, lease) = (
            options.step.to_duration(),
            options.lease.map(Seconds::to_duration),
        );
        let thread = std::thread::Builder::new()
            .name("power-cap".into())
            .spawn({
                let shared = shared.clone();
                move || run(&shared, sensors, step, lease)
            })
            .map_err(LimitError::Thread)?;
        Ok((
            Self {
                shared,
                thread: Some(thread),
            },
            choice,
        ))
    }

    /// Puts cores, cap and frequency in force: the cores at once, the cap at once by the model and from then on by the loop.
    /// All cores where the setting names none; no cap and no limit on the frequency likewise. Renews the lease.
    ///
    /// # Errors
    /// [`LimitError`]: not a number of cores or watts (nothing changes then), or the machine refuses; the allocation
    /// before stays in force as far as the machine lets it. [`LimitError::Unguarded`]: everything was given back.
    pub fn apply(&self, setting: Setting) -> Result<Applied, LimitError> {
        let mut state = self.shared.lock();
        state.renewed_at = Instant::now();
        let applied = match self.shared.watch.hindrance() {
            None => Some(state.apply(setting)?),
            Some(_) => None,
        };
        // The guard may have gone while this was written: what it can lift no more must not stay.
        if let Some(why) = self.shared.watch.hindrance() {
            state.give_back()?;
            return Err(LimitError::Unguarded { why });
        }
        self.shared.changed.notify_all();
        match applied {
            Some(applied) => Ok(applied),
            // It came back between the two questions: the next allocation finds it.
            None => Err(LimitError::Unguarded {
                why: "the guard came back just now".to_owned(),
            }),
        }
    }

    /// Renews the lease without changing anything.
    pub fn renew(&self) {
        self.shared.lock().renewed_at = Instant::now();
    }

    /// Takes note that an operator has paused control and everything was put back: no cap is held until the next
    /// allocation.
    ///
    /// # Errors
    /// [`LimitError`] where the machine cannot be read.
    pub fn note_pause(&self) -> Result<(), LimitError> {
        self.shared.lock().note_pause()
    }

    /// Gives everything back that may be had, without a cap: for lost telemetry, and before the end.
    ///
    /// # Errors
    /// [`LimitError`] where the machine refuses.
    pub fn give_back(&self) -> Result<Applied, LimitError> {
        let mut state = self.shared.lock();
        state.renewed_at = Instant::now();
        state.give_back()
    }

    /// Gives up this service's part in the limit on the machine's frequency, for good; what was put back of it, which is
    /// nothing while other services of this process have a part in it.
    pub fn leave_frequency(&self) -> Vec<Outcome> {
        self.shared.lock().pace.leave()
    }

    /// Between which shares cores can be allocated now.
    ///
    /// # Errors
    /// [`LimitError`] where the machine cannot be read.
    pub fn bounds(&self) -> Result<QuotaBounds, LimitError> {
        let state = self.shared.lock();
        Ok(QuotaBounds {
            largest: state.all_cores()?,
            ..state.quota.bounds()?
        })
    }

    /// Between which caps the machine can be held now, as the meter reports them; nothing where the quota holds them (its
    /// bounds are the model's: [`PowerModel::minimum_cap`], [`PowerModel::maximum_cap`]).
    pub fn cap_bounds(&self) -> Option<CapBounds> {
        self.shared.lock().hardware.as_ref().map(Hardware::bounds)
    }

    /// Between which frequencies the processors can be limited.
    ///
    /// # Errors
    /// Why they cannot be, in words.
    pub fn frequency(&self) -> Result<FrequencyBounds, String> {
        self.shared.lock().pace.bounds()
    }

    /// What holds caps, and what was passed over or given up, and why.
    pub fn lever(&self) -> LeverChoice {
        self.shared.lock().lever_choice.clone()
    }

    /// The cores that are allocated now.
    pub fn allocated(&self) -> Cores {
        self.shared.lock().cores
    }

    /// How the cap's loop fares.
    pub fn status(&self) -> CapStatus {
        self.shared.lock().status.clone()
    }

    /// What happened since the events were last taken, oldest first; at most [`super::MAX_EVENTS`].
    pub fn take_events(&self) -> Vec<Event> {
        self.shared.lock().events.drain(..).collect()
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that holds the power cap had panicked");
        }
    }
}

/// What the loop looks with; it belongs to the thread, so that reading the machine never delays an allocation.
struct Sensors {
    meter: Box<dyn Meter>,
    /// Where the meter does not tell the packages from the rest and the hardware holds caps on them.
    packages: Option<Box<dyn Meter>>,
    usage: UsageMeter,
    frequency: Option<FrequencyReader>,
}

impl Sensors {
    fn sample(&mut self) -> Sample {
        let sample = self.meter.sample();
        let packages = match &mut self.packages {
            Some(meter) => meter.sample().ok().as_ref().and_then(packages_of),
            None => sample.as_ref().ok().and_then(packages_of),
        };
        let usage = self.usage.sample();
        Sample {
            power: sample.map(|sample| sample.power),
            packages,
            busy: usage.as_ref().ok().map(|usage| usage.busy),
            // A burst may be throttled now and then under any quota: it binds where most periods are. Without an answer
            // it is taken as binding: the correction then follows the meter both ways.
            throttled: usage.map_or(true, |usage| {
                usage.throttled_periods > 0 && usage.throttled_periods * 2 >= usage.periods
            }),
            frequency: self
                .frequency
                .as_ref()
                .and_then(FrequencyReader::ratio)
                .unwrap_or(Ratio::new(1.0)),
        }
    }
}

/// A meter of the packages, where the meter in use speaks of the machine as a whole.
fn packages_meter(roots: &Roots, meter: &dyn Meter, lever: LeverKind) -> Option<Box<dyn Meter>> {
    if meter.name() != "hwmon" {
        return None;
    }
    match lever {
        LeverKind::Hsmp => HsmpMeter::open(roots).ok().map(|meter| Box::new(meter) as _),
        _ => RaplMeter::open(roots).ok().map(|meter| Box::new(meter) as _),
    }
}

/// What the packages draw together; nothing where one of them is not known.
fn packages_of(sample: &MeterSample) -> Option<Watts> {
    let mut packages = sample
        .zones
        .iter()
        .filter(|zone| zone.zone.starts_with("package"))
        .peekable();
    packages.peek()?;
    packages.map(|zone| Some(zone.power?.value)).sum()
}

fn run(shared: &Shared, mut sensors: Sensors, step: Duration, lease: Option<Duration>) {
    let mut looked_at = None;
    let mut pulse = shared.watch.pulse("the thread that holds the power cap");
    let silent_after = (step * SILENT_STEPS).max(MIN_SILENCE);
    let mut state = shared.lock();
    while !state.stop {
        let now = Instant::now();
        if state.cap.is_some() && !state.given_back && shared.watch.hindrance().is_some() {
            // A failure is reported by the write itself; whoever allocates next is refused and gives back once more.
            let _ = state.give_back();
        }
        let left = lease.map(|lease| (state.renewed_at + lease).saturating_duration_since(now));
        if left == Some(Duration::ZERO) && !state.given_back {
            state.report(Event::LeaseExpired);
            // A failure is reported by the write itself; the lease counts anew, so it is tried again.
            let _ = state.give_back();
            state.renewed_at = now;
        }
        if state.cap.is_none() {
            looked_at = None;
            pulse.rest();
            state = match left {
                None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let left = left.max(Duration::from_millis(5));
                    shared
                        .changed
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
            continue;
        }
        pulse.beat(silent_after);
        drop(state);
        let seen = sensors.sample();
        let before = looked_at.replace(now);
        state = shared.lock();
        // The first look after a time without a cap covers all that time: it only starts the interval.
        if let Some(before) = before {
            state.step(seen, Seconds::from(now.duration_since(before)));
        }
        let due = now + step;
        while !state.stop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
