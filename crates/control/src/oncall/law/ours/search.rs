//! What is known at one kind of load, and the comparison that goes on there.

use super::foretell::foretold;
use super::regime::Regime;
use super::{OnCall, reason};
use crate::decision::Reason;
use crate::oncall::law::trial::{Pace, Sample, Trial};
use crate::oncall::law::{GoalName, Point};
use headroom_units::{Comparison, Seconds, Setting};

/// What was found at so many connections is not believed at more than this times as many, or as few.
const OTHER_CONNECTIONS: f64 = 1.5;
/// Periods over the target in a row after which what was found is compared anew, and four times as many since it was.
pub(super) const LATE_TO_RETRY: u32 = 12;
/// The waits before another comparison double so often at most.
pub(super) const MAX_DOUBLINGS: u32 = 3;
/// After so many periods it is compared anew whether to be on call where queries were late and none waited for a slot; twice as many each time that
/// the same is found.
const ELSEWHERE_RETRY: u32 = 160;
/// Up to this share of periods that are late with all on call, it is not compared by the SLO whether they are to be.
const SELDOM: f64 = 1.0 / 13.0;
/// A comparison rests while the load is of another kind, and ends after so many periods.
const MAX_PAUSE: u32 = 480;
/// What is compared at each load, for people.
pub(super) const SATURATED: &str = "workers and queries in a round, while queries always wait";
pub(super) const PARTIAL: &str =
    "delays between rounds, and nobody on call, while the server serves what comes";
pub(super) const ELSEWHERE: &str = "on call or not, while queries are late and none always waits for a slot";

/// What is known for one kind of load.
#[derive(Clone, Debug)]
pub(super) struct Search {
    pub(super) best: Option<Point>,
    pub(super) trial: Option<Trial<Point>>,
    /// Since when it rests.
    paused: Option<Paused>,
    /// When the comparison began.
    pub(super) began: Seconds,
    pub(super) held: u32,
    pub(super) doublings: u32,
    pub(super) connections: u64,
}

/// A comparison that rests.
#[derive(Clone, Copy, Debug)]
struct Paused {
    periods: u32,
    /// What else was in force on the machine when it began to.
    machine: Option<Setting>,
}

impl Search {
    pub(super) const fn new() -> Self {
        Self {
            best: None,
            trial: None,
            paused: None,
            began: Seconds::ZERO,
            held: 0,
            doublings: 0,
            connections: 0,
        }
    }

    /// Ends the comparison, whether it has an answer or not; what it was, where there was one.
    pub(super) fn end(&mut self, at: Seconds, about: &str) -> Option<Comparison> {
        let trial = self.trial.take()?;
        (self.held, self.paused) = (0, None);
        Some(Comparison {
            began: self.began,
            ended: at,
            about: about.to_owned(),
            compared: trial.compared(|point| point.setting()),
        })
    }

    /// The load is of another kind for now.
    fn pause(&mut self, machine: Option<Setting>) {
        if let Some(trial) = &mut self.trial {
            trial.pause();
            self.paused = Some(Paused { periods: 0, machine });
        }
    }

    /// Whether the comparison goes on where the load is of its kind again: on the same machine.
    fn resume(&mut self, machine: Option<Setting>) -> bool {
        self.paused.take().is_none_or(|paused| paused.machine == machine)
    }

    /// Counts a period of another kind of load; whether the comparison has rested for too long.
    fn rests_too_long(&mut self) -> bool {
        self.paused.as_mut().is_some_and(|paused| {
            paused.periods += 1;
            paused.periods > MAX_PAUSE
        })
    }

    pub(super) fn point(&self) -> Option<Point> {
        self.trial.as_ref().map(|trial| *trial.setting()).or(self.best)
    }

    /// Whether settings are compared now.
    pub(super) const fn is_comparing(&self) -> bool {
        self.trial.is_some() && self.paused.is_none()
    }

    /// Whether the first setting serves what a turn left.
    pub(super) fn is_draining(&self) -> bool {
        self.trial.as_ref().is_some_and(Trial::is_draining)
    }
}

impl OnCall {
    /// What is known and compared at this kind of load, and how that is called.
    pub(super) const fn search(&mut self, regime: Regime) -> (&mut Search, &'static str) {
        match regime {
            Regime::Saturated => (&mut self.saturated, SATURATED),
            Regime::Partial => (&mut self.partial, PARTIAL),
            Regime::Elsewhere => (&mut self.elsewhere, ELSEWHERE),
        }
    }

    /// The load is of another kind from now on: what was compared rests, and goes on where it is of its kind again soon. Of what was found where
    /// queries are late for something else nothing is believed: it may be for another thing the next time.
    pub(super) fn turn_to(&mut self, regime: Regime) {
        let (at, machine) = (self.at, self.machine);
        if let Some(before) = self.regime.replace(regime) {
            self.search(before).0.pause(machine);
        }
        self.elsewhere.best = None;
        let (search, about) = self.search(regime);
        if !search.resume(machine) {
            let about = format!("{about}: ended, for the machine changed while the load was another");
            let ended = search.end(at, &about);
            self.ended.extend(ended);
        }
    }

    /// Ends comparisons that have rested for too long.
    pub(super) fn watch_pauses(&mut self) {
        for regime in [Regime::Saturated, Regime::Partial, Regime::Elsewhere] {
            let at = self.at;
            let (search, about) = self.search(regime);
            if search.rests_too_long() {
                let ended = search.end(at, &format!("{about}: ended, for the load changed"));
                self.ended.extend(ended);
            }
        }
    }

    pub(super) fn pace(&self, regime: Regime) -> Pace {
        Pace {
            // A delay must not lose queries: clients that wait for their answers would ask less, and draw less.
            keeps_load: regime == Regime::Partial,
            target: self.slo.target(),
            settle: self.tuning.settle_periods,
            block: self.tuning.block_periods,
            rounds: self.tuning.max_rounds,
            significance: self.tuning.significance,
            least_gain: self.tuning.least_gain,
        }
    }

    /// Takes a period in which what was wanted was in force, and goes on from there.
    pub(super) fn advance(
        &mut self,
        regime: Regime,
        (cores, connections): (u32, u64),
        (score, sample): (Option<f64>, Sample),
        is_in_force: bool,
    ) -> (Point, Reason) {
        let options = |law: &Self| match regime {
            Regime::Saturated => law.workers(cores),
            Regime::Partial => law.delays(cores),
            Regime::Elsewhere => law.on_call_or_not(cores),
        };
        let pace = self.pace(regime);
        let (retry, reference, late_for) = (self.tuning.retry_periods, options(self)[0], self.late_for);
        let (before, target) = (self.wanted, self.slo.target());
        let is_disturbed = std::mem::take(&mut self.is_disturbed);
        let (search, about) = match regime {
            Regime::Saturated => (&mut self.saturated, SATURATED),
            Regime::Partial => (&mut self.partial, PARTIAL),
            Regime::Elsewhere => (&mut self.elsewhere, ELSEWHERE),
        };
        if let Some(trial) = &mut search.trial {
            let begins_anew = is_disturbed && trial.begins_anew();
            // In a quiet period something else was in force.
            if !begins_anew && is_in_force && *trial.setting() == before {
                trial.observe(score, &sample, &|next| foretold(next, target));
            }
            if let Some((cut, why)) = trial.cut().filter(|_| !trial.is_done()) {
                let (point, cut, why) = (*trial.setting(), cut.in_words(), why.to_owned());
                let text = format!(
                    "{} until what still waits since the turn of \"{cut}\" is answered: {why}",
                    point.in_words()
                );
                return (point, reason(Comparison::DRAINING, text, point, &[]));
            }
            if !trial.is_done() {
                let point = *trial.setting();
                let text = format!(
                    "{} of {} settings is compared, round {}",
                    point.in_words(),
                    trial.left(),
                    trial.rounds() + 1
                );
                return (
                    point,
                    reason(
                        Comparison::UNDER_WAY,
                        text,
                        point,
                        &[("settings", trial.left() as f64)],
                    ),
                );
            }
            if let Some(why) = trial.given_up() {
                let about = format!("{about}: given up, for {why}");
                self.ended.extend(search.end(self.at, &about));
                // What was found at another load is no better known than what is compared first.
                let point = match regime {
                    Regime::Saturated => search.best.unwrap_or(reference),
                    Regime::Partial | Regime::Elsewhere => reference,
                };
                match regime {
                    Regime::Elsewhere => self.often.found(true),
                    Regime::Partial => self.shelf.lay_aside(),
                    Regime::Saturated => {}
                }
                search.best = Some(point);
                search.connections = connections;
                let text = format!("{}: the comparison was given up, for {why}", point.in_words());
                return (point, reason("oncall-given-up", text, point, &[]));
            }
            if regime == Regime::Elsewhere && trial.late_share_of_first() <= SELDOM {
                // Nobody on call may well draw less, and that is asked where delays are.
                self.often.found(true);
                self.ended.extend(search.end(self.at, about));
                self.turn_to(Regime::Partial);
                let point = self.partial.point().unwrap_or(reference);
                let text = format!(
                    "{}: queries are not late any more with all on call",
                    point.in_words()
                );
                return (point, reason("oncall-served", text, point, &[]));
            }
            let found = *trial.setting();
            let other = match regime {
                Regime::Saturated => Point::OFF,
                Regime::Elsewhere if found == reference => Point::OFF,
                Regime::Partial | Regime::Elsewhere => reference,
            };
            let gain = trial.gain_over(&other).filter(|_| found != other);
            let is_alone = trial.is_alone();
            if regime == Regime::Elsewhere {
                self.often.found(found != Point::OFF);
            }
            if regime == Regime::Partial {
                let second = trial.is_beside_as_good().then_some(Point::OFF);
                self.shelf.found((found, second), reference, trial.rate());
            }
            search.doublings = match search.best == Some(found) {
                true => (search.doublings + 1).min(MAX_DOUBLINGS),
                false => 0,
            };
            self.ended.extend(search.end(self.at, about));
            search.best = Some(found);
            search.connections = connections;
            let text = match gain {
                _ if is_alone => format!(
                    "{} is kept: nothing else could be tried, or not to the end of a turn",
                    found.in_words()
                ),
                Some(gain) if gain > f64::ln(2.0) => format!(
                    "{} is the best of what was compared, more than twice as good as {}",
                    found.in_words(),
                    other.in_words()
                ),
                Some(gain) if gain <= 0.0 => format!(
                    "{} is kept: no worse than {} as far as can be told, and preferred",
                    found.in_words(),
                    other.in_words()
                ),
                Some(gain) => format!(
                    "{} is the best of what was compared: by {}, {:+.1} % beside {}",
                    found.in_words(),
                    worth_of(self.tuning.goal),
                    gain.exp_m1() * 100.0,
                    other.in_words()
                ),
                None => format!("{} is the best of what was compared", found.in_words()),
            };
            let gain = gain.map(|gain| ("gain_percent", gain.exp_m1() * 100.0));
            return (found, reason("oncall-found", text, found, gain.as_slice()));
        }
        search.held = search.held.saturating_add(1);
        let many = connections as f64;
        let then = search.connections as f64;
        let moved =
            search.best.is_some() && (many > then * OTHER_CONNECTIONS || many * OTHER_CONNECTIONS < then);
        // The neighbours of what was found first are compared at once.
        let wait = match search.doublings {
            // While nobody is on call nothing says that they would not be late any more.
            doublings if regime == Regime::Elsewhere => ELSEWHERE_RETRY.min(retry) << doublings,
            0 if search.best.is_some() && regime == Regime::Saturated => retry / 4,
            doublings => retry << doublings,
        };
        let is_bad = late_for >= LATE_TO_RETRY
            && search.held >= LATE_TO_RETRY << (search.doublings.min(MAX_DOUBLINGS) + 2);
        if search.best.is_none() || moved || is_bad || search.held >= wait {
            self.trials = self.trials.wrapping_add(1);
            let trial = Trial::new(pace, options(self));
            let trial = match regime == Regime::Partial && self.asks_off() {
                true => trial.beside(Point::OFF),
                false => trial,
            };
            let at = self.at;
            let search = self.search(regime).0;
            let point = *trial.setting();
            if trial.is_done() {
                (search.best, search.held, search.connections) = (Some(point), 0, connections);
                return (point, self.nothing_to_compare(regime, point));
            }
            let text = format!(
                "{} settings are compared, {} first",
                trial.left(),
                point.in_words()
            );
            let numbers = [("settings", trial.left() as f64)];
            (search.trial, search.began) = (Some(trial), at);
            return (point, reason(Comparison::UNDER_WAY, text, point, &numbers));
        }
        let point = search.point().unwrap_or(self.wanted);
        let text = format!("{} is kept as the best found", point.in_words());
        (point, reason("oncall-hold", text, point, &[]))
    }
}

/// What a goal's score is of, for people.
const fn worth_of(goal: GoalName) -> &'static str {
    match goal {
        GoalName::Slo => "queries per joule, less for what is over the SLO",
        GoalName::Throughput => "queries per joule",
        GoalName::P99 => "queries per joule over the P99",
        GoalName::P999 => "queries per joule over the P99.9",
    }
}
