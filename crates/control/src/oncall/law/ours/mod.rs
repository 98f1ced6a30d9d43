//! Our own law of a server on call: by comparison.
//!
//! Two questions, by what the load is:
//!
//! - While queries always wait, the server is saturated, and C and N decide how much it serves and how long the tail is. Which is best is
//!   compared: few workers with one query each, some more with several, and *not on call at all*, since there are servers that it
//!   does not help. Then neighbours of the best, again and again, ever more rarely.
//! - Else it serves what comes, and D decides how long its cores sleep. Whether that saves anything is compared too, by the watts that the
//!   meter shows: without a meter, or an idle state that would pay, D is 0. The SLO bounds it, and two periods over the target end one
//!   that was found. Where a model says the watts, a delay under which the cores are no longer idle than without one saves nothing. *Not on
//!   call at all* is compared with them: where it leaves the cores less busy and no delay saves more, nobody is until the server fills up.
//!
//! Where queries are late without a delay, though none always waits for a slot, it is compared whether they are so without us too.
//!
//! A comparison is paired ([`super::trial::Trial`]): what is compared changes every few periods.

mod arms;
mod foretell;
mod late;
mod regime;
mod release;
mod score;
mod search;
mod shelf;

use super::areas::Areas;
use super::{LEVERS, OncallTuning, Point, Turns, break_even, cores, unknown};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{OutOfRange, Parameters};
use crate::plant::{Plant, Slo};
use headroom_physics::MachineFigures;
use headroom_units::{Comparison, Lever, Seconds, Setting, Source};
use late::Often;
use regime::Regime;
use release::Release;
use search::Search;
use shelf::{Shelf, rate_of};

/// Queries of a period below which it says nothing.
const MIN_QUERIES: u64 = 10;
/// Periods without a watt after which there is no meter.
const NO_METER: u32 = 8;

/// The law.
pub struct OnCall {
    slo: Slo,
    plant: Plant,
    tuning: OncallTuning,
    break_even: Option<Seconds>,
    turns: Turns,
    areas: Areas,
    regime: Option<Regime>,
    /// Periods in a row that say that the load is of the other kind.
    other: u32,
    saturated: Search,
    partial: Search,
    elsewhere: Search,
    late: u32,
    /// Periods in a row over the target, whatever was in force.
    late_for: u32,
    often: Often,
    /// What was found at partial load, for how much, and whether it is put aside.
    shelf: Shelf,
    /// Comparisons so far.
    trials: u32,
    /// When everybody went last.
    release: Release,
    /// Periods in a row with too few queries.
    quiet: u32,
    /// Whether watts are scored; not known in the first periods.
    metered: Option<bool>,
    /// Whether it would be seen that a delay saves: by a sensor's watts, or by a model's beside the lengths of idle periods.
    sees_savings: Option<bool>,
    /// The same of less work: by a sensor's watts, or by how busy the cores are.
    sees_work: Option<bool>,
    periods: u32,
    /// The end of the period that is decided on.
    at: Seconds,
    /// Comparisons that ended with it.
    ended: Vec<Comparison>,
    wanted: Point,
    /// What else is in force on the machine, as of the period before.
    machine: Option<Setting>,
    /// Whether that changed since a comparison was last told.
    is_disturbed: bool,
}

impl std::fmt::Debug for OnCall {
    /// Without the policy, which has no form of its own to show.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnCall")
            .field("regime", &self.regime)
            .field("wanted", &self.wanted)
            .field("saturated", &self.saturated)
            .field("partial", &self.partial)
            .finish_non_exhaustive()
    }
}

impl OnCall {
    /// The law for a service with this SLO on this machine, whose idle states say from when on a delay can pay.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn new(
        slo: Slo,
        plant: Plant,
        machine: Option<&MachineFigures>,
        tuning: OncallTuning,
    ) -> Result<Self, OutOfRange> {
        tuning.check()?;
        let cores = plant.cores().max().get().ceil().max(1.0) as u32;
        Ok(Self {
            slo,
            plant,
            break_even: break_even(tuning.break_even_ms, machine),
            turns: Turns::new(&tuning),
            areas: Areas::new(&tuning.areas, cores)?,
            tuning,
            regime: None,
            other: 0,
            saturated: Search::new(),
            partial: Search::new(),
            elsewhere: Search::new(),
            late: 0,
            late_for: 0,
            often: Often::default(),
            shelf: Shelf::default(),
            trials: 0,
            release: Release::default(),
            quiet: 0,
            metered: None,
            sees_savings: None,
            sees_work: None,
            periods: 0,
            at: Seconds::ZERO,
            ended: Vec::new(),
            wanted: Point::new(cores + 2, 1),
            machine: None,
            is_disturbed: false,
        })
    }

    /// Whether settings are compared: whoever moves the machine's levers meanwhile changes what is measured.
    pub(crate) fn is_comparing(&self) -> bool {
        let mut all = [&self.saturated, &self.partial, &self.elsewhere].into_iter();
        all.any(Search::is_comparing)
    }

    /// Takes note of what else is in force.
    fn watch_machine(&mut self, in_force: &Setting) {
        let machine = LEVERS
            .iter()
            .fold(*in_force, |rest, lever| rest.with(*lever, None));
        let before = self.machine.replace(machine);
        self.is_disturbed = self.is_comparing() && before.is_some_and(|before| before != machine);
    }

    /// Nothing that was found is believed any more.
    fn forget_found(&mut self) {
        for search in [&mut self.saturated, &mut self.partial, &mut self.elsewhere] {
            *search = Search::new();
        }
        self.shelf.clear();
    }

    /// Too few queries to compare anything by: what was found at partial load, or no delay.
    fn stay_quiet(&self, cores: u32) -> (Point, Reason) {
        let found = match self.regime {
            Some(Regime::Elsewhere) => self.elsewhere.best,
            _ => self
                .partial
                .best
                .or(self.saturated.best.filter(|found| *found != Point::OFF)),
        };
        let point = found.unwrap_or(self.start(cores));
        let text = format!("{}: too few queries to compare anything by", point.in_words());
        (point, reason("oncall-quiet", text, point, &[]))
    }
}

fn reason(rule: &'static str, text: String, point: Point, more: &[(&'static str, f64)]) -> Reason {
    let numbers: Vec<_> = point
        .numbers()
        .into_iter()
        .chain(more.iter().copied())
        .filter(|(_, value)| value.is_finite())
        .collect();
    Reason::new(rule, text, &numbers)
}

impl Law for OnCall {
    fn name(&self) -> &'static str {
        "on-call"
    }

    fn levers(&self) -> &[Lever] {
        &LEVERS
    }

    fn is_informed(&self, observation: &Observation) -> bool {
        observation.oncall.is_some() && observation.traffic.is_some()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let Some(oncall) = &observation.oncall else {
            return unknown(observation);
        };
        self.periods = self.periods.saturating_add(1);
        self.at = observation.at;
        self.watch_machine(&observation.in_force);
        let is_over = self.periods >= NO_METER;
        let known = |before: Option<bool>, is_seen: bool| match before {
            _ if is_seen => Some(true),
            None if is_over => Some(false),
            before => before,
        };
        let power = observation.power;
        let has_idle = oncall.long_idle.is_some();
        self.metered = known(self.metered, power.is_some());
        self.sees_savings = known(
            self.sees_savings,
            power.is_some_and(|power| has_idle || power.source != Source::Estimated),
        );
        let is_sensed = power.is_some_and(|power| power.source != Source::Estimated);
        self.sees_work = known(self.sees_work, is_sensed || observation.utilisation.is_some());
        let cores = cores(oncall, &self.plant);
        let is_in_force = self.wanted.is(&observation.in_force);
        let score = (self.score(observation, oncall), self.sample(observation, oncall));
        self.count_late(observation, oncall);
        self.follow_regime(
            self.regime_now(observation, oncall)
                .filter(|_| oncall.queries > 0),
        );
        self.shelf.observe(rate_of(observation, oncall));
        let late = self.end_late(observation, cores);
        self.watch_quiet(oncall.queries);
        self.watch_pauses();
        let let_go = self.let_go(observation, oncall);
        let is_let_go = let_go.is_some();
        let (point, reason) = match (let_go.or(late), self.regime) {
            (Some(at_once), _) => at_once,
            (None, _) if self.areas.is_measuring() => {
                let start = self.start(cores);
                let text = format!("{} while the cores of areas are measured", start.in_words());
                (start, reason("oncall-measures-areas", text, start, &[]))
            }
            (None, Some(_)) if oncall.queries < MIN_QUERIES => self.stay_quiet(cores),
            (None, Some(regime)) if self.metered.is_some() && self.sees_savings.is_some() => {
                // Where all who are on call wait, more is asked than is answered, whatever was asked of late.
                let is_free = oncall.always_waiting() == 0;
                match is_free.then(|| self.take_back(regime)).flatten() {
                    Some(again) => again,
                    None => self.advance(regime, (cores, oncall.connections), score, is_in_force),
                }
            }
            (None, _) => {
                let start = self.start(cores);
                let text = format!("{} to begin with, until the load shows itself", start.in_words());
                (start, reason("oncall-start", text, start, &[]))
            }
        };
        self.wanted = point;
        let (grants, reasons) = self.turns.decide(observation, oncall, point.batch);
        let (areas, of_areas) = match is_let_go {
            // Something stood still: everybody goes, and everywhere.
            true => (Vec::new(), Vec::new()),
            false => self.areas.decide(observation, point),
        };
        Decision {
            grants,
            comparisons: std::mem::take(&mut self.ended),
            areas,
            reasons: std::iter::once(reason).chain(reasons).chain(of_areas).collect(),
            ..Decision::of(point.setting())
        }
    }

    fn forget(&mut self) {
        (self.regime, self.other, self.late, self.late_for) = (None, 0, 0, 0);
        self.often = Often::default();
        self.forget_found();
        (self.machine, self.is_disturbed) = (None, false);
    }
}
