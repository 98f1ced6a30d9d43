//! Several laws in one period, each on its levers.
//!
//! Each law has a [`Guardian`] of its own, so that a law whose telemetry is lost gives up its levers only. A law that decides
//! rarely, such as one that switches servers, has a period that is a multiple of the loop's: it is given what was observed over
//! the whole of it, and what it decided stays until its next. Periods without telemetry are left out of that, and none of them is
//! one of a decision. Its guardian watches every period of the loop: where telemetry stays lost or requests fail, everything is on
//! at once, and what the law decides by begins anew.
//!
//! ```
//! use headroom_control::resize::AlwaysOn;
//! use headroom_control::stack::{Part, Stack};
//! use headroom_control::{CoreRange, Observation, Plant, PowerEnvelope, Powersave, FrequencyRange};
//! use headroom_units::{Cores, Hertz, Lever, Watts};
//!
//! let cores = CoreRange::new(Cores::new(1.0), Cores::new(4.0), Cores::new(1.0))?;
//! let power = PowerEnvelope { base: Watts::new(6.0), per_core: Watts::new(2.0), lowest_cap: Watts::new(7.0) };
//! let ghz = |ghz: f64| Hertz::new(ghz * 1e9);
//! let frequency = FrequencyRange::new(ghz(1.0), ghz(3.0), ghz(0.1))?;
//! let plant = Plant::new(cores, power)?.with_frequency(frequency).with_servers(3);
//! let parts = vec![Part::new(Box::new(Powersave::new(plant)?)), Part::new(Box::new(AlwaysOn)).every(10)];
//! let mut stack = Stack::new(parts, plant, 5)?;
//! let decision = stack.decide(&Observation::default());
//! // What no law moves is full.
//! assert_eq!(decision.setting.cores(), Some(Cores::new(4.0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::decision::{Decision, Reason};
use crate::guardian::{FailingLimits, Guardian};
use crate::history::LoadHistory;
use crate::law::Law;
use crate::observation::{Observation, Traffic};
use crate::placement::Routes;
use crate::plant::Plant;
use crate::reflex::Reflex;
use headroom_units::{Lever, PerSecond, Ratio, Seconds, Setting, Watts};

/// Why some laws cannot run together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// No law at all.
    #[error("there is no law to run: name one")]
    Empty,
    /// Two laws move one lever.
    #[error("{first} and {second} both move the lever {lever}: run one of them, or laws whose levers differ")]
    Contested {
        /// The lever.
        lever: Lever,
        /// The law that is named first.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A law moves a lever that the plant lacks.
    #[error(
        "{law} moves the lever {lever}, which is not here: {}; or choose another law", remedy(*lever)
    )]
    Missing {
        /// The law.
        law: &'static str,
        /// The lever.
        lever: Lever,
    },
    /// A period of no periods.
    #[error("{law} would decide every 0 periods: it must be 1 or more")]
    Period {
        /// The law.
        law: &'static str,
    },
}

/// Why a law cannot run on a plant that lacks a lever which it moves, for a law that cannot even be built there.
pub(crate) fn missing(law: &'static str, lever: Lever) -> StackError {
    StackError::Missing { law, lever }
}

/// How a plant comes by a lever.
const fn remedy(lever: Lever) -> &'static str {
    match lever {
        Lever::Cores | Lever::Cap => {
            "`headroom up`, an agent, or `headroom wrap --steered` with an `up` has it; a controller of servers that are only switched, and \
             `wrap` alone, have not"
        }
        Lever::Frequency => {
            "the processors' frequency cannot be limited on each machine of the service, and `headroom doctor`, run there, says why"
        }
        Lever::Servers => {
            "a controller has it with one of static, dynamic, scheduled or always-on, whose lever it then is"
        }
        Lever::Coalescing => "every agent needs `[nic]` in its configuration, and `headroom up` has none",
        Lever::BatchInterval => {
            "a gateway of this program has it where `gateway.batch.interval_ms` is configured (0 for a batcher that begins off) or \
             `--batch` is given, another proxy has none"
        }
        Lever::CacheSize => {
            "a gateway of this program has it where `gateway.cache.bytes` is configured or `--cache` is given, another proxy has none"
        }
        Lever::Placement => {
            "a gateway of this program has it where `gateway.sizes.bounds_bytes` is configured, another proxy has none"
        }
        Lever::Concurrency | Lever::QueryBatch | Lever::RoundDelay => {
            "a server that was started by `headroom wrap` has it, which runs the laws that move it itself, or with --steered leaves it to the \
             `headroom up` whose [oncall] names the server; of a controller's nodes each agent needs [oncall]"
        }
    }
}

/// A law of a stack.
pub struct Part {
    law: Box<dyn Law>,
    every: u32,
}

impl Part {
    /// A law that decides in every period.
    pub fn new(law: Box<dyn Law>) -> Self {
        Self { law, every: 1 }
    }

    /// A law that decides every so many periods.
    #[must_use]
    pub fn every(self, periods: u32) -> Self {
        Self {
            every: periods,
            ..self
        }
    }
}

struct Member {
    law: Guardian,
    levers: Vec<Lever>,
    every: u32,
    /// Periods since it decided, and what was observed in them.
    periods: u32,
    observed: Option<Observation>,
    /// What it decided last; `None` before its first decision.
    setting: Option<Setting>,
    /// Where it sends requests by the size of their answers, as long as that setting stands.
    routes: Option<Routes>,
}

/// Laws that run together.
pub struct Stack {
    plant: Plant,
    members: Vec<Member>,
    /// What came in so far, for laws that begin later.
    history: Option<LoadHistory>,
}

impl Stack {
    /// The laws of a plant; each puts its levers to full in the `patience`-th period of the loop without telemetry.
    ///
    /// # Errors
    /// [`StackError`]: what cannot run together, by name.
    pub fn new(parts: Vec<Part>, plant: Plant, patience: u32) -> Result<Self, StackError> {
        if parts.is_empty() {
            return Err(StackError::Empty);
        }
        let there = plant.levers();
        for (at, part) in parts.iter().enumerate() {
            let law = part.law.name();
            if part.every == 0 {
                return Err(StackError::Period { law });
            }
            for lever in part.law.levers() {
                let before = parts[..at].iter().find(|one| one.law.levers().contains(lever));
                if let Some(one) = before {
                    return Err(StackError::Contested {
                        lever: *lever,
                        first: one.law.name(),
                        second: law,
                    });
                }
                if !there.contains(lever) {
                    return Err(StackError::Missing { law, lever: *lever });
                }
            }
        }
        let member = |part: Part| Member {
            levers: part.law.levers().to_vec(),
            law: Guardian::new(part.law, plant, patience),
            // The first period is one of a decision.
            periods: part.every - 1,
            every: part.every,
            observed: None,
            setting: None,
            routes: None,
        };
        Ok(Self {
            plant,
            members: parts.into_iter().map(member).collect(),
            history: None,
        })
    }

    /// One law alone, in every period.
    ///
    /// # Errors
    /// As [`Stack::new`].
    pub fn of(law: Box<dyn Law>, plant: Plant, patience: u32) -> Result<Self, StackError> {
        Self::new(vec![Part::new(law)], plant, patience)
    }

    /// With other limits on failing requests.
    #[must_use]
    pub fn with_failing(mut self, limits: FailingLimits) -> Self {
        for member in &mut self.members {
            member.law.set_failing(limits);
        }
        self
    }

    /// The laws' names, joined.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self
            .members
            .iter()
            .map(|member| member.law.law().name())
            .collect();
        names.join("+")
    }

    /// What it puts everything to that no law moves.
    pub const fn plant(&self) -> &Plant {
        &self.plant
    }

    /// Goes on with the laws of another plant: those that switch servers stay as they are, all others begin anew, and recall the
    /// load so far.
    pub fn follow(&mut self, new: Self) {
        let old = std::mem::take(&mut self.members);
        let mut kept: Vec<Member> = old
            .into_iter()
            .filter(|member| member.levers == [Lever::Servers])
            .collect();
        let each = new.members.into_iter().map(|member| {
            let same = |one: &Member| one.levers == member.levers;
            kept.iter()
                .position(same)
                .map_or(member, |at| kept.swap_remove(at))
        });
        self.members = each.collect();
        self.plant = new.plant;
        if let Some(history) = self.history.take() {
            self.recall(history);
        }
    }

    /// The latency above which a law repairs: the lowest of those that have such a one.
    pub fn guard(&self) -> Option<Seconds> {
        let guards = self.members.iter().filter_map(|member| member.law.law().guard());
        guards.min_by(|one, two| one.get().total_cmp(&two.get()))
    }

    /// Periods without telemetry up to now, in a row: the most of any law's.
    pub fn lost_periods(&self) -> u32 {
        let lost = self.members.iter().map(|member| member.law.lost_periods());
        lost.max().unwrap_or(0)
    }

    /// Whether any law learns of the load over time.
    pub fn recalls(&self) -> bool {
        self.members.iter().any(|member| member.law.law().recalls())
    }

    /// Lets the laws recall what came in before their first period, in periods of the loop.
    pub fn recall(&mut self, history: LoadHistory) {
        for member in &mut self.members {
            match member.every {
                1 => member.law.recall(&history),
                every => member.law.recall(&history.of_every(every as usize)),
            }
        }
        self.history = Some(history);
    }

    /// Takes one period's observation and decides about the next: each law's levers as it wants them, all others full.
    pub fn decide(&mut self, observation: &Observation) -> Decision {
        let mut all = Decision {
            setting: self.plant.full(),
            expected_rate: None,
            reflex: None,
            reasons: Vec::new(),
            ..Decision::default()
        };
        self.history
            .get_or_insert_with(|| LoadHistory::new(observation.length))
            .push(observation.arrival_rate());
        let mut reflexes = Vec::new();
        let mut wait = u32::MAX;
        for member in &mut self.members {
            if let Some(decision) = member.decide(observation) {
                all.expected_rate = all.expected_rate.or(decision.expected_rate);
                all.grants.extend(decision.grants);
                all.comparisons.extend(decision.comparisons);
                all.areas.extend(decision.areas);
                if all.server_ranks.is_empty() {
                    (all.server_ranks, all.leave) = (decision.server_ranks, decision.leave);
                }
                reflexes.extend(decision.reflex.map(|reflex| (reflex, &*member.levers)));
                // A law of several levers may say of which each reason is.
                let reasons = decision.reasons.into_iter();
                all.reasons
                    .extend(reasons.map(|reason| match reason.levers.is_empty() {
                        true => reason.of(&member.levers),
                        false => reason,
                    }));
            }
            all.routes = all.routes.or_else(|| member.routes.clone());
            wait = wait.min(member.every - member.periods);
            let setting = member.setting.unwrap_or(observation.in_force);
            for lever in &member.levers {
                all.setting = all.setting.with(*lever, setting.get(*lever));
            }
        }
        all.reflex = Reflex::joined(&all.setting, reflexes);
        if all.reasons.is_empty() {
            let text = format!("the next decision is in {wait} periods: what is in force stays");
            all.reasons
                .push(Reason::new(BETWEEN, text, &[("periods", f64::from(wait))]));
        }
        all
    }
}

/// The rule of a period in which no law decides.
const BETWEEN: &str = "between-decisions";

impl Member {
    /// What is decided; nothing between the law's periods unless its guardian steps in.
    fn decide(&mut self, observation: &Observation) -> Option<Decision> {
        self.periods = (self.periods + 1).min(self.every);
        let informed = self.law.law().is_informed(observation);
        if informed {
            self.observed = Some(match self.observed.take() {
                None => observation.clone(),
                Some(before) => together(before, observation),
            });
        }
        let due = informed && self.periods == self.every;
        let window = self.observed.take_if(|_| due);
        // What is in force may still be on its way to what a slow law decided last.
        let kept = self.setting.filter(|_| self.every > 1);
        let kept = kept.unwrap_or(observation.in_force);
        let mut decision = self.law.decide_on(observation, window.as_ref(), kept)?;
        // A guardian that keeps what is in force knows no routes: they stay too. Where nobody knows them, as after a restart, a gateway is not
        // told to place without them.
        let places = decision
            .setting
            .get(Lever::Placement)
            .is_some_and(|placement| placement > 0.0);
        if places && decision.routes.is_none() && self.levers.contains(&Lever::Placement) {
            decision.routes.clone_from(&self.routes);
            if decision.routes.is_none() {
                decision.setting = decision.setting.with(Lever::Placement, Some(0.0));
            }
        }
        if due || Guardian::is_full(&decision) {
            (self.periods, self.observed) = (0, None);
        }
        self.setting = Some(decision.setting);
        self.routes.clone_from(&decision.routes);
        Some(decision)
    }
}

/// Two periods that follow each other as one: what was counted adds up, what is a mean is weighted by time, what is a state is
/// the later one. The latency is the worse of the two, for percentiles of parts make none of the whole; the numbers of the
/// periods are the later's.
fn together(before: Observation, observation: &Observation) -> Observation {
    let (then, now) = (before.length.get(), observation.length.get());
    let mean = |one: f64, two: f64| match then + now > 0.0 {
        true => (one * then + two * now) / (then + now),
        false => two,
    };
    let demand = before.demand().zip(observation.demand());
    Observation {
        length: before.length + observation.length,
        reflexes: before.reflexes.saturating_add(observation.reflexes),
        traffic: before
            .traffic
            .zip(observation.traffic.clone())
            .map(|(one, two)| both(one, two)),
        utilisation: before
            .utilisation
            .zip(observation.utilisation)
            .map(|(one, two)| Ratio::new(mean(one.get(), two.get()))),
        power: before.power.zip(observation.power).and_then(|(mut one, two)| {
            one.value = Watts::new(mean(one.value.get(), two.value.get()));
            (one.source == two.source).then_some(one)
        }),
        cpu_time: before
            .cpu_time
            .zip(observation.cpu_time)
            .map(|(one, two)| one + two),
        demand: demand.map(|(one, two)| PerSecond::new(mean(one.get(), two.get()))),
        cache: both_or_one(before.cache, observation.cache, |one, two| one + two),
        batching: both_or_one(before.batching, observation.batching, |one, two| one + two),
        sizes: both_or_one(before.sizes, observation.sizes.clone(), |one, two| one + two),
        oncall: both_or_one(before.oncall, observation.oncall.clone(), |one, two| one + two),
        ..observation.clone()
    }
}

fn both_or_one<T>(one: Option<T>, two: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(add(one, two)),
        (one, two) => one.or(two),
    }
}

fn both(one: Traffic, two: Traffic) -> Traffic {
    let worse = match (one.latency, two.latency) {
        (Some(one), Some(two)) => Some(if one.at_slo > two.at_slo { one } else { two }),
        (one, two) => one.or(two),
    };
    Traffic {
        arrivals: one.arrivals + two.arrivals,
        completions: one.completions + two.completions,
        failures: one.failures + two.failures,
        failed_by_client: one.failed_by_client + two.failed_by_client,
        latency: worse,
        ..two
    }
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
