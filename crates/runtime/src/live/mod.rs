//! The closed loop, live: one period after another, what is seen goes to the law, and what it decides to the machine.
//!
//! The loop knows neither gateway nor cgroup: it is given a [`Telemetry`] and [`Device`]s. What a period leaves
//! behind goes to [`Sink`]s (recorder, metrics, view), which can neither delay nor change the loop.
//!
//! Where nobody can tell what happens to the requests, everything is put to full:
//!
//! ```
//! use headroom_console::Stop;
//! use headroom_control::{CoreRange, Decision, Fixed, Plant, PowerEnvelope, Slo, Stack};
//! use headroom_runtime::live::{ControlLoop, Device, DevicePeriod, Frame, ManualClock, Telemetry, TrafficPeriod};
//! use headroom_units::{Cores, Ratio, Seconds, Setting, Watts};
//! use std::time::{Duration, Instant};
//!
//! /// A service whose limits are kept in memory.
//! struct Service(Setting);
//! impl Device for Service {
//!     fn observe(&mut self, _period: &mut DevicePeriod) {}
//!     fn in_force(&self) -> Setting {
//!         self.0
//!     }
//!     fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
//!         self.0 = decision.setting;
//!         Ok(())
//!     }
//! }
//!
//! /// Telemetry that is lost.
//! struct Lost;
//! impl Telemetry for Lost {
//!     fn take(&mut self, _patience: Duration) -> Option<TrafficPeriod> {
//!         None
//!     }
//! }
//!
//! let cores = CoreRange::new(Cores::new(0.2), Cores::new(2.0), Cores::new(0.1))?;
//! let power = PowerEnvelope { base: Watts::new(6.0), per_core: Watts::new(2.9), lowest_cap: Watts::new(6.4) };
//! let plant = Plant::new(cores, power)?;
//! let mut law = Stack::of(Box::new(Fixed::new(plant)), plant, 3)?;
//! let mut service = Service(Setting::default());
//! let mut control = ControlLoop {
//!     frame: Frame {
//!         period: Duration::from_secs(1),
//!         slo: Slo::new(Ratio::from_percent(95.0), Seconds::new(0.25))?,
//!         dry: false,
//!     },
//!     law: &mut law,
//!     laws: None,
//!     devices: vec![&mut service],
//!     telemetry: Some(&mut Lost),
//!     clock: &ManualClock::new(),
//!     sinks: Vec::new(),
//! };
//! let periods = control.run(&Stop::default(), |at| at >= Seconds::new(3.0));
//! assert_eq!((periods, service.0), (3, plant.full()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod admin;
pub mod calibrate;
mod certificates;
mod clock;
pub mod config_reload;
pub mod control;
mod device;
pub(crate) mod front;
pub mod guard;
mod late;
mod machine;
mod metrics;
mod news;
mod outage;
mod outcomes;
mod reflex;
pub mod run;
pub mod service_manager;
mod sinks;
mod sizes;
mod telemetry;
mod tick;
pub mod undo;
pub mod view;

pub use clock::{Clock, ManualClock, SystemClock};
pub use device::{Device, DevicePeriod, Missing, Refused};
pub use machine::CgroupMachine;
pub(crate) use outcomes::demand;
pub use outcomes::{Outcomes, failures};
pub use reflex::{Bell, Watch};
pub use sinks::RecorderSink;
pub use sizes::{SizedBackend, SizesPeriod};
pub use telemetry::{GatewayTelemetry, Other, ReportedLatency, Telemetry, TrafficPeriod};
use telemetry::{LOST, lost_words};
pub(crate) use tick::shows_answers;
pub use tick::{BackendTick, Levers, Tick};

use hdrhistogram::Histogram;
use headroom_console::Stop;
use headroom_control::{
    Decision, Distribution, Fixed, Guardian, Latency, Observation, Plant, Reason, Slo, Stack, Traffic,
    missed_latency,
};
use headroom_node::restore;
use headroom_units::{Part, Role, Seconds, Setting, quantile_of_answered};
use late::Lateness;
use outage::Outage;
use reflex::Reflexes;
use std::time::{Duration, Instant};

/// A control thread that gives no sign of life for so many periods, and for so long, hangs.
const SILENT_PERIODS: u32 = 3;
const MIN_SILENCE: Duration = Duration::from_secs(2);

/// How long the control thread may be silent: then its guard lifts all limits, and so does the limiter of this process; and
/// what it decided so long ago is not carried out any more.
pub fn silence(period: Duration) -> Duration {
    (period * SILENT_PERIODS).max(MIN_SILENCE)
}

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
    /// The SLO.
    pub slo: Slo,
    /// Decide and say, and set nothing.
    pub dry: bool,
}

/// The turns of a control loop, which end with it: a service manager then waits for no more.
struct Signs<'a>(&'a restore::Watch);

impl<'a> Signs<'a> {
    fn new(watch: &'a restore::Watch) -> Self {
        Self(watch)
    }
}

impl Drop for Signs<'_> {
    fn drop(&mut self) {
        self.0.end_turns();
    }
}

/// Makes the laws for a plant.
pub type Laws<'a> = dyn Fn(Plant) -> anyhow::Result<Stack> + 'a;

/// The closed loop.
pub struct ControlLoop<'a, 'd> {
    /// What stays the same.
    pub frame: Frame,
    /// The laws.
    pub law: &'a mut Stack,
    /// The laws for another plant, where there can be one.
    pub laws: Option<&'a Laws<'a>>,
    /// What is controlled. Each is shown what those before it saw in a period.
    pub devices: Vec<&'d mut dyn Device>,
    /// What is known of the requests; `None` where no law goes by it.
    pub telemetry: Option<&'d mut dyn Telemetry>,
    /// The time it goes by.
    pub clock: &'a dyn Clock,
    /// What takes what each period leaves behind.
    pub sinks: Vec<&'a mut dyn Sink>,
}

impl ControlLoop<'_, '_> {
    /// Runs until `stop` is raised or `done` says so after a period; how many periods there were.
    pub fn run(&mut self, stop: &Stop, mut done: impl FnMut(Seconds) -> bool) -> u64 {
        let signs = Signs::new(restore::global().watch());
        let mut pulse = signs.0.pulse("the control loop");
        pulse.beat(silence(self.frame.period * 3 / 2));
        // What the machine and the gateway counted before the run belongs to no period of it. A gateway that is a process of
        // its own reports its first period when that is over.
        self.take(self.frame.period * 3 / 2);
        self.observe(None);
        let begin = self.clock.now();
        let mut last = begin;
        let mut due = begin;
        let mut index = 0;
        // What was said of it last: a node that is away for an hour is said to be once.
        let mut not_carried_out = Vec::new();
        let mut reflexes = Reflexes::new(stop);
        let mut lateness = Lateness::default();
        let mut outage = Outage::default();
        loop {
            pulse.beat(silence(self.frame.period));
            signs.0.turn();
            due += self.frame.period;
            loop {
                if self.clock.wait_until(due, stop, &|| reflexes.is_due()) {
                    return index;
                }
                // Where this thread stood still, limits were lifted meanwhile: what was decided before must not return.
                let stood_still = self.clock.now() - last > silence(self.frame.period);
                if stood_still || !reflexes.is_due() {
                    break;
                }
                reflexes.fire(&mut self.devices);
            }
            let now = self.clock.now();
            if now > due + self.frame.period {
                if let Some(late) = lateness.note(now, now - due) {
                    tracing::warn!(
                        late_s = late.most.as_secs_f64(),
                        times = late.times,
                        "the control loop is late: periods are skipped"
                    );
                }
                due = now;
            }
            let times = (Seconds::from(now - last), Seconds::from(now - begin));
            let tick = self.period(index, times, reflexes.take(), &mut outage);
            last = now;
            let reflex = tick.decision.reflex.filter(|_| !self.frame.dry);
            let watch = reflexes.arm(reflex);
            if let Some(telemetry) = &mut self.telemetry {
                telemetry.watch(watch);
            }
            if tick.not_carried_out != not_carried_out {
                not_carried_out.clone_from(&tick.not_carried_out);
                let setting = tick.decision.setting;
                match not_carried_out.join("; ") {
                    none if none.is_empty() => tracing::warn!(%setting, "decisions are carried out again"),
                    why => tracing::error!(%setting, "the decision could not be carried out: {why}"),
                }
            }
            for sink in &mut self.sinks {
                sink.tick(&tick);
            }
            index += 1;
            if done(tick.at) {
                return index;
            }
        }
    }

    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        self.telemetry.as_mut()?.take(patience)
    }

    fn observe(&mut self, telemetry: Option<&TrafficPeriod>) -> DevicePeriod {
        let mut period = DevicePeriod {
            backends: telemetry.map_or_else(Vec::new, |telemetry| telemetry.backends.clone()),
            arrivals: telemetry.map(|telemetry| telemetry.arrivals),
            counted_over: telemetry.and_then(|telemetry| telemetry.over),
            queue: telemetry.and_then(|telemetry| telemetry.queue),
            ..DevicePeriod::default()
        };
        for device in &mut self.devices {
            device.observe(&mut period);
        }
        period
    }

    fn in_force(&self) -> Setting {
        let all = self.devices.iter().map(|device| device.in_force());
        all.fold(Setting::default(), |sum, one| sum.over(&one))
    }

    /// Has each device carry out its part of a decision; why some could not.
    fn apply(&mut self, decision: &mut Decision, begin: Instant) -> Vec<String> {
        // This thread may have been stopped meanwhile: then limits were lifted, and must not return on what was seen before.
        let age = self.clock.now() - begin;
        if age > silence(self.frame.period) {
            let age = age.as_secs_f64();
            return vec![format!(
                "it was made {age:.1} s ago, before this thread stood still"
            )];
        }
        let applied = self.devices.iter_mut().map(|device| device.apply(decision));
        applied
            .filter_map(|applied| Some(format!("{:#}", applied.err()?)))
            .collect()
    }

    /// Gives the laws the plant that a device has now. Where they cannot be made for it, everything is on from then on.
    fn follow(&mut self) {
        let plants: Vec<Plant> = self
            .devices
            .iter_mut()
            .filter_map(|device| device.grown())
            .collect();
        let Some(laws) = self.laws else { return };
        for plant in plants {
            let full = plant.full();
            match laws(plant) {
                Ok(stack) => {
                    self.law.follow(stack);
                    tracing::warn!(
                        "more nodes are known: the laws that set machines begin anew, with {full} as full"
                    );
                }
                Err(error) => {
                    tracing::error!(
                        "the laws do not fit the nodes known now, everything is on ({full}): {error:#}"
                    );
                    // A stack of a law that keeps everything on lacks nothing.
                    if let Ok(stack) = Stack::of(Box::new(Fixed::new(plant)), plant, 1) {
                        self.law.follow(stack);
                    }
                }
            }
        }
    }

    fn period(
        &mut self,
        index: u64,
        (length, at): (Seconds, Seconds),
        reflexes: u32,
        outage: &mut Outage,
    ) -> Tick {
        let begin = self.clock.now();
        // Half a period is left for the devices and the law.
        let telemetry = self.take(self.frame.period / 2);
        let mut period = self.observe(telemetry.as_ref());
        self.follow();
        let telemetry_lost = self.telemetry.is_some() && telemetry.is_none();
        let told = self
            .telemetry
            .as_ref()
            .map_or_else(Vec::new, |telemetry| telemetry.parts());
        period.parts.extend(told.iter().cloned());
        // A balancer's own count, where there is nothing better.
        let telemetry = telemetry.or(period.traffic.take().filter(|_| self.telemetry.is_none()));
        let cache = telemetry.as_ref().and_then(|period| period.cache.as_ref());
        let batching = telemetry.as_ref().and_then(|period| period.batch.as_ref());
        let (cache, batching) = (cache.map(front::cache), batching.map(front::batching));
        if cache.is_some() || batching.is_some() {
            let cluster = Part::new(DevicePeriod::CLUSTER, Role::Cluster);
            period.add(front::with_front(cluster, cache.as_ref(), batching.as_ref()));
        }
        let sizes = telemetry.as_ref().and_then(|period| period.sizes.as_ref());
        for part in sizes.iter().flat_map(|sizes| sizes.parts(length, self.frame.slo)) {
            period.add(part);
        }
        let sizes = sizes.map(|sizes| sizes.observation(self.frame.slo));
        let importance = telemetry.iter().flat_map(|period| &period.importance);
        for (name, counts) in importance {
            period.add(front::importance(name, *counts, length));
        }
        let seen = Observation {
            period: index,
            length,
            at,
            clock: self.clock.time_of_day(),
            in_force: self.in_force(),
            reflexes,
            traffic: telemetry.as_ref().map(|period| self.traffic(period)),
            utilisation: period.utilisation,
            power: period.power,
            frequency: period.frequency,
            cpu_time: period.cpu_time,
            nodes_missing: period.missing.nodes,
            demand: period.demand,
            cache,
            batching,
            oncall: period.oncall,
            sizes,
            nodes: period.nodes,
        };
        let power = self.law.plant().power();
        let limit = power.limit(seen.in_force.cores().unwrap_or_default());
        let cap_at_limit = seen.in_force.cap().is_some_and(|cap| cap >= limit);
        let mut decision = self.law.decide(&seen);
        let not_carried_out = match self.frame.dry {
            true => Vec::new(),
            false => self.apply(&mut decision, begin),
        };
        if telemetry_lost {
            let reasons = &decision.reasons;
            // A law that goes by no telemetry may be the first and speak of something else.
            let of_guardian = |reason: &&Reason| Guardian::RULES.contains(&&*reason.rule);
            let guardians = reasons.iter().find(of_guardian);
            let kind = outage::kind(&told, guardians.map_or("", |reason| &reason.rule));
            if outage.note(&kind, at) {
                let reason = guardians.or(reasons.first());
                tracing::warn!(
                    lost_periods = self.law.lost_periods(),
                    "{}",
                    lost_words(&told, reason.map_or("", |reason| &reason.text))
                );
            }
        } else if let Some(lost_periods) = outage.over() {
            headroom_console::say::settle(LOST);
            tracing::warn!(lost_periods, "telemetry is there again");
        }

        let TrafficPeriod {
            latency,
            backends,
            queue,
            importance,
            cache,
            batch,
            accept_pauses,
            client_us,
            sources,
            retries,
            refused,
            outcomes,
            ..
        } = telemetry.unwrap_or_default();
        Tick {
            at,
            observation: seen,
            decision,
            in_force: self.in_force(),
            cap_at_limit,
            levers_lost: period.levers_lost || !not_carried_out.is_empty(),
            not_carried_out,
            levers: period.levers,
            energy: period.energy,
            zone: period.zone,
            throttled: period.throttled,
            refused: period.refused,
            missing: period.missing,
            beside_caps: period.beside_caps,
            target: Some(self.frame.slo.target()),
            percentile: Some(self.frame.slo.percentile()),
            guard: self.law.guard(),
            histogram: match latency {
                ReportedLatency::Histogram(histogram) => Some(histogram),
                ReportedLatency::AtSlo(_) => None,
            },
            backends,
            queue,
            importance,
            cache,
            batch,
            accept_pauses,
            client_us,
            sources,
            retries,
            requests_refused: refused,
            outcomes,
            telemetry_lost,
            is_unmeasured: self.telemetry.is_none(),
            parts: period.parts,
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
    let failed = period.failures.saturating_sub(period.outcomes.failed_by_client);
    match &period.latency {
        ReportedLatency::Histogram(histogram) => latency_of(histogram, failed, slo),
        // The source's own percentile is of whatever its query takes in: as long as it is not missed, that is it.
        ReportedLatency::AtSlo(at_slo) => {
            let missed = quantile_of_answered(slo.percentile(), period.completions, failed).is_none();
            let at_slo = match missed {
                true => Some(missed_latency(slo.target(), *at_slo)),
                false => *at_slo,
            };
            at_slo.map(|at_slo| Latency {
                at_slo,
                missed,
                distribution: None,
            })
        }
    }
}

/// The latency of requests of which these were answered, and so many more failed; `None` where none ended.
fn latency_of(histogram: &Histogram<u64>, failed: u64, slo: Slo) -> Option<Latency> {
    let percentile = slo.percentile();
    let quantile = quantile_of_answered(percentile, histogram.len(), failed);
    let longest = (!histogram.is_empty()).then(|| Seconds::from_micros(histogram.max() as f64));
    let at = |percent: f64| Seconds::from_micros(histogram.value_at_percentile(percent) as f64);
    let at_slo = match quantile {
        None => missed_latency(slo.target(), longest),
        Some(_) if histogram.is_empty() => return None,
        Some(_) if failed == 0 => at(percentile.as_percent()),
        Some(quantile) => at(quantile * 100.0),
    };
    Some(Latency {
        at_slo,
        missed: quantile.is_none(),
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
