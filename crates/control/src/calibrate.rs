//! μ where nobody gave it: everything on until the traffic has shown how many requests a core serves, then the law,
//! built with it; and built again where that number drifts.
//!
//! μ is requests answered per second of CPU time, over periods that can tell: their requests and their CPU time are
//! known, also those of the period before, for what was counted while they were not comes with the next; no node is missing, hardly
//! any failed, no backlog grew, no limit slowed the processors down. It takes as long as it takes: a
//! service without traffic runs with everything on.
//!
//! A μ that is too high gives too few cores, and that alone makes a service less busy, backlogged and failing. So every
//! period whose CPU time is known is evidence for a lower μ, with whatever speaks for a higher one counted in its favour;
//! only those that can tell, and are as busy as those that μ was taken from, are evidence for a higher one.

use crate::decision::{Decision, Reason};
use crate::history::LoadHistory;
use crate::law::Law;
use crate::observation::Observation;
use crate::plant::Plant;
use headroom_units::{Hertz, Lever, PerSecond, Reading, Seconds};
use std::fmt;

/// Fewer requests than this say little about their mean cost.
pub const MIN_REQUESTS: u64 = 200;
/// Less CPU time than this is too near to the accounting's own grain.
pub const MIN_CPU: Seconds = Seconds::new(0.5);
/// μ in use and the one observed may differ by this factor, up or down.
pub const MAX_DRIFT: f64 = 1.25;
/// So many windows in a row must lie on the same side of that bound before the law is built anew.
pub const MIN_WINDOWS_APART: u32 = 3;

/// A period with more failures than this share of its answers tells nothing of what an answer costs.
const MAX_FAILED_SHARE: f64 = 0.05;
/// A period less busy than this share of those that μ was taken from shows no higher μ.
const MIN_BUSY_SHARE: f64 = 0.5;
/// Nor does one in which the processors ran slower than this share of their frequency then.
const MIN_FREQUENCY_SHARE: f64 = 0.9;

/// The rule while μ is not known.
pub const CALIBRATING: &str = "calibrating";
const CALIBRATED: &str = "calibrated";
const RECALIBRATED: &str = "recalibrated";
const REFUSED: &str = "calibration-refused";

/// What was answered, at what cost, over some periods.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: u64,
    cpu: Seconds,
    length: Seconds,
    /// Sum and number of the periods' frequencies, all of one source.
    frequency: Option<(Reading<Hertz>, f64)>,
}

impl Totals {
    fn add(&mut self, period: &Evidence) {
        self.requests += period.requests;
        self.cpu += period.cpu;
        self.length += period.length;
        self.frequency = match (self.frequency, period.frequency) {
            (Some((sum, count)), Some(more)) if sum.source == more.source => {
                let value = sum.value + more.value;
                Some((Reading { value, ..sum }, count + 1.0))
            }
            (None, Some(first)) => Some((first, 1.0)),
            (known, _) => known,
        };
    }

    fn suffice(&self, length: Seconds) -> bool {
        self.requests >= MIN_REQUESTS && self.cpu >= MIN_CPU && self.length >= length
    }

    fn rate(&self) -> PerSecond {
        PerSecond::new(self.requests as f64 / self.cpu.get())
    }

    /// Cores that were busy in the mean.
    fn busy(&self) -> f64 {
        self.cpu / self.length
    }

    /// The processors' pace in a period, as a share of theirs in these; `None` where they were slowed, and by how much
    /// is not known.
    fn pace(&self, period: &Evidence) -> Option<f64> {
        match (self.frequency, period.frequency) {
            (Some((sum, count)), Some(now)) if sum.source == now.source => {
                Some(now.value.get() * count / sum.value.get())
            }
            _ => period.limited_to,
        }
    }
}

/// What one period says of μ.
struct Evidence {
    /// Requests answered; where too many failed, those that failed too, so that μ comes out too high rather than too low.
    requests: u64,
    cpu: Seconds,
    length: Seconds,
    frequency: Option<Reading<Hertz>>,
    /// The share of their highest frequency that the processors were limited to; `None` where that is not known.
    limited_to: Option<f64>,
    /// Whether an answer's cost follows from it, and not only that μ is lower.
    tells: bool,
}

impl Evidence {
    /// Nothing where the period has no requests or no known CPU time.
    fn of(observation: &Observation, plant: &Plant, is_after_loss: bool) -> Option<Self> {
        let traffic = observation.traffic.as_ref()?;
        let cpu = observation.cpu_time?;
        let failed = traffic.failures as f64 > MAX_FAILED_SHARE * traffic.completions as f64;
        // What is begun and not answered has cost CPU time that belongs to no answer yet.
        let behind = observation.at_work(traffic) > traffic.completions as f64;
        let limit = observation.in_force.frequency();
        let counted = cpu > Seconds::ZERO && observation.length > Seconds::ZERO && traffic.completions > 0;
        counted.then(|| Self {
            requests: traffic.completions + if failed { traffic.failures } else { 0 },
            cpu,
            length: observation.length,
            frequency: observation.frequency,
            limited_to: match limit {
                None => Some(1.0),
                Some(limit) => plant.frequency().map(|range| limit / range.max()),
            },
            tells: !failed && !behind && limit.is_none() && !is_after_loss && observation.nodes_missing == 0,
        })
    }
}

/// The windows that are looked at for a drift of μ to one side.
#[derive(Debug, Default)]
struct Side {
    /// The one that is being filled.
    window: Totals,
    /// Those in a row that lay apart, added up without the first, which may be of two loads.
    apart: Totals,
    windows_apart: u32,
}

impl Side {
    /// Takes one period; what μ is to be taken from now on, where enough windows lay `apart`.
    fn take(
        &mut self,
        period: &Evidence,
        length: Seconds,
        apart: impl Fn(PerSecond) -> bool,
    ) -> Option<Totals> {
        self.window.add(period);
        if !self.window.suffice(length) {
            return None;
        }
        let window = std::mem::take(&mut self.window);
        if !apart(window.rate()) {
            self.windows_apart = 0;
            return None;
        }
        self.windows_apart += 1;
        if self.windows_apart == 1 {
            self.apart = Totals::default();
        } else {
            self.apart.requests += window.requests;
            self.apart.cpu += window.cpu;
            self.apart.length += window.length;
            self.apart.frequency = window.frequency;
        }
        (self.windows_apart >= MIN_WINDOWS_APART).then_some(self.apart)
    }
}

/// A law with the μ that it was built with.
struct Built {
    law: Box<dyn Law>,
    /// What μ was taken from.
    basis: Totals,
    lower: Side,
    higher: Side,
}

impl Built {
    fn new(law: Box<dyn Law>, basis: Totals) -> Self {
        Self {
            law,
            basis,
            lower: Side::default(),
            higher: Side::default(),
        }
    }

    /// Takes one period's evidence; what μ is to be taken from now on, where it has drifted for long enough.
    fn drifted(&mut self, period: &Evidence, length: Seconds) -> Option<Totals> {
        let pace = self.basis.pace(period)?;
        let rate = self.basis.rate();
        let busy = period.cpu / period.length >= MIN_BUSY_SHARE * self.basis.busy();
        let higher = if period.tells && busy && pace >= MIN_FREQUENCY_SHARE {
            self.higher.take(period, length, |now| now / rate > MAX_DRIFT)
        } else {
            None
        };
        // What slower processors took for it, faster ones would have done in no less than this.
        let cpu = period.cpu * if pace < MIN_FREQUENCY_SHARE { pace } else { 1.0 };
        let lower = self.lower.take(&Evidence { cpu, ..*period }, length, |now| {
            now / rate < 1.0 / MAX_DRIFT
        });
        lower.or(higher)
    }
}

enum State {
    Collecting {
        totals: Totals,
        /// Why the law could not be built with the μ that was found last.
        refused: Option<String>,
    },
    Built(Built),
}

/// A law whose μ is observed.
pub struct Calibrating<F> {
    /// The law with some μ: what it says of itself, such as its name, does not depend on that.
    prototype: Box<dyn Law>,
    plant: Plant,
    length: Seconds,
    build: F,
    state: State,
    /// What a law that is built now is told of the time before: it does not begin to learn the day anew.
    history: Option<LoadHistory>,
    /// The last period whose requests and CPU time were known, of all nodes; what was left out may come with the one after a loss.
    known: Option<u64>,
}

impl<F> fmt::Debug for Calibrating<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calibrating")
            .field("law", &self.prototype.name())
            .field("service_rate", &self.service_rate())
            .finish_non_exhaustive()
    }
}

impl<F> Calibrating<F> {
    /// The law that `prototype` is with some μ, which `build` makes of the real one (or says why it cannot) once periods of
    /// `length` together, with [`MIN_REQUESTS`] and [`MIN_CPU`] at least, have shown it. Drift is observed over windows of
    /// that length.
    pub fn new(prototype: Box<dyn Law>, plant: Plant, length: Seconds, build: F) -> Self {
        let totals = Totals {
            requests: 0,
            cpu: Seconds::ZERO,
            length: Seconds::ZERO,
            frequency: None,
        };
        Self {
            prototype,
            plant,
            length,
            build,
            state: State::Collecting {
                totals,
                refused: None,
            },
            history: None,
            known: None,
        }
    }

    /// μ in use, in requests per second and core; `None` while it is not known.
    pub fn service_rate(&self) -> Option<PerSecond> {
        match &self.state {
            State::Collecting { .. } => None,
            State::Built(built) => Some(built.basis.rate()),
        }
    }

    fn full(&self, reason: Reason) -> Decision {
        Decision {
            setting: self.plant.full(),
            expected_rate: None,
            reflex: None,
            reasons: vec![reason],
            ..Decision::default()
        }
    }
}

impl<F> Calibrating<F>
where
    F: FnMut(PerSecond) -> Result<Box<dyn Law>, String> + Send,
{
    /// Decides; the period itself is not in the history yet.
    fn decide_now(&mut self, observation: &Observation) -> Decision {
        let next = self.known.map_or(0, |known| known.saturating_add(1));
        let is_after_loss = observation.period > next;
        let is_whole = observation.traffic.is_some() && observation.nodes_missing == 0;
        if is_whole && observation.cpu_time.is_some() {
            self.known = Some(observation.period);
        }
        let evidence = Evidence::of(observation, &self.plant, is_after_loss);
        match &mut self.state {
            State::Built(built) => {
                let drifted = evidence.and_then(|period| built.drifted(&period, self.length));
                match drifted {
                    None => built.law.decide(observation),
                    Some(basis) => {
                        let before = built.basis.rate();
                        self.rebuild(basis, Some(before), observation)
                    }
                }
            }
            State::Collecting { totals, refused } => {
                if let Some(period) = evidence.as_ref().filter(|period| period.tells) {
                    totals.add(period);
                }
                if totals.suffice(self.length) {
                    let basis = *totals;
                    return self.rebuild(basis, None, observation);
                }
                let numbers = [
                    ("requests", totals.requests as f64),
                    ("requests_needed", MIN_REQUESTS as f64),
                    ("cpu_s", totals.cpu.get()),
                    ("cpu_needed_s", MIN_CPU.get()),
                    ("length_s", totals.length.get()),
                    ("length_needed_s", self.length.get()),
                ];
                let mut text = format!(
                    "what one core serves is not known yet: {} requests in {:.2} s of CPU time over {:.1} s, and {} in {} \
                     s over {} s are needed: everything on",
                    totals.requests,
                    totals.cpu.get(),
                    totals.length.get(),
                    MIN_REQUESTS,
                    MIN_CPU.get(),
                    self.length.get()
                );
                if observation.cpu_time.is_none() {
                    text.push_str(" (the service's CPU time cannot be read)");
                }
                if observation.nodes_missing > 0 {
                    text.push_str(&format!(
                        " (of {} nodes that cannot be reached it is not known)",
                        observation.nodes_missing
                    ));
                }
                if let Some(why) = refused {
                    text.push_str(&format!(
                        " (with what was found before, the law cannot be built: {why})"
                    ));
                }
                let reason = Reason::new(CALIBRATING, text, &numbers);
                self.full(reason)
            }
        }
    }

    /// Builds the law on what was observed, and has it decide.
    fn rebuild(&mut self, basis: Totals, before: Option<PerSecond>, observation: &Observation) -> Decision {
        let rate = basis.rate();
        let mut numbers = vec![
            ("requests_per_core_s", rate.get()),
            ("requests", basis.requests as f64),
            ("cpu_s", basis.cpu.get()),
        ];
        numbers.extend(before.map(|before| ("requests_per_core_s_before", before.get())));
        match (self.build)(rate) {
            Ok(law) => {
                let mut built = Built::new(law, basis);
                if let Some(history) = &self.history {
                    built.law.recall(history);
                }
                let mut decision = built.law.decide(observation);
                self.state = State::Built(built);
                let (rule, text) = match before {
                    None => (
                        CALIBRATED,
                        format!("one core serves {:.1} requests/s", rate.get()),
                    ),
                    Some(before) => {
                        let (now, before) = (rate.get(), before.get());
                        (
                            RECALIBRATED,
                            format!(
                                "one core serves {now:.1} requests/s now, and {before:.1} before: the law begins anew"
                            ),
                        )
                    }
                };
                decision.reasons.insert(0, Reason::new(rule, text, &numbers));
                decision
            }
            Err(why) => {
                let text = format!(
                    "one core serves {:.1} requests/s, and the law cannot be built with that ({why}): everything on",
                    rate.get()
                );
                self.state = State::Collecting {
                    totals: Totals::default(),
                    refused: Some(why),
                };
                self.full(Reason::new(REFUSED, text, &numbers))
            }
        }
    }
}

impl<F> Law for Calibrating<F>
where
    F: FnMut(PerSecond) -> Result<Box<dyn Law>, String> + Send,
{
    fn name(&self) -> &'static str {
        self.prototype.name()
    }

    fn levers(&self) -> &[Lever] {
        self.prototype.levers()
    }

    fn guard(&self) -> Option<Seconds> {
        self.prototype.guard()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let decision = self.decide_now(observation);
        self.history
            .get_or_insert_with(|| LoadHistory::new(observation.length))
            .push(observation.arrival_rate());
        decision
    }

    fn recalls(&self) -> bool {
        self.prototype.recalls()
    }

    fn recall(&mut self, history: &LoadHistory) {
        self.history = Some(history.clone());
        if let State::Built(built) = &mut self.state {
            built.law.recall(history);
        }
    }

    fn forget(&mut self) {
        if let State::Built(built) = &mut self.state {
            built.law.forget();
        }
    }
}

#[cfg(test)]
#[path = "calibrate_tests.rs"]
mod tests;
