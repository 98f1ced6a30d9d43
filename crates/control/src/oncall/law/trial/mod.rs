//! Settings that are compared by what they score: each in turn for some periods, again and again, until one is left or the
//! difference is too small to matter.
//!
//! Ours \[D\]. What is compared changes within one round of turns and what the load does meanwhile is common to all, so that the
//! *differences within a round* are what counts: a mean over them and its standard error, as in a paired test. What is far worse
//! than another in two rounds of two is not tried again; one turn may be that of a pause.
//!
//! Where the load is said to be what clients ask for, and not what the setting lets them ([`Pace::keeps_load`]), that is watched: with
//! clients that wait for their answers a slower setting has fewer queries, and so fewer watts. A setting that is asked less than the first
//! one in all rounds, by far or beyond their spread, is dropped, and with it all after it, which are slower still.
//!
//! A comparison must not harm the clients. There, a setting has its first turn only after the one before it had one, and each turn begins only
//! where it is foretold to keep the SLO and the load; what queries pile up under is dropped in that period, and what is late, or asked far less in
//! a period than the first was, has its turn cut, and another one, for a pause of the machine looks the same. At saturation, where everybody waits, a turn is cut short that
//! has somebody wait far longer than the first setting has; what it scored counts. After a cut the first setting is in force until what
//! was left is served, and these periods count for nobody. What a turn had is added to its setting when it ends as a whole.
//!
//! A setting may stand beside these ([`Trial::beside`]): no slower than any, so that what is dropped or foretold of them says nothing of it, and
//! preferred to all where it scores as much and the cores are less busy with it.

mod arm;
mod turns;
mod verdict;
mod watch;

pub(super) use arm::{Lately, Next, Sample};
pub(super) use watch::PILED;

use arm::{Arm, Sums};
use headroom_units::Seconds;

/// How settings are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Periods after a change that belong to no setting.
    pub settle: u32,
    /// Periods of a turn that are scored.
    pub block: u32,
    /// Rounds of turns at most.
    pub rounds: u32,
    /// Standard errors by which a setting must be worse than the best to be dropped.
    pub significance: f64,
    /// A setting that scores less than the best by no more than this is as good: the first of those is taken.
    pub least_gain: f64,
    /// Whether the load is to be the same under all settings, each slower than the one before, and none but the first may miss the SLO.
    pub keeps_load: bool,
    /// The SLO's target.
    pub target: Seconds,
}

/// Why a setting's turn may not begin, in words; `None` where it may.
pub(super) type Foretold<'a, T> = &'a dyn Fn(&Next<'_, T>) -> Option<String>;

/// A comparison of settings, the preferred first.
#[derive(Clone, Debug)]
pub(super) struct Trial<T> {
    pace: Pace,
    arms: Vec<Arm<T>>,
    at: usize,
    round: usize,
    /// Periods of the turn so far, with those that are not scored.
    periods: u32,
    scores: Vec<f64>,
    /// Of the periods of the turn that are scored.
    turn: Sums,
    empty: u32,
    /// The load in this turn so far, and in the last one.
    now: Lately,
    lately: Lately,
    /// The first setting is in force for so many periods to serve what a turn left.
    draining: Option<u32>,
    /// What the turn that was cut is followed by.
    then: After,
    /// How often this round began anew.
    restarts: u32,
    done: bool,
    given_up: Option<&'static str>,
}

/// What comes after what a turn left is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The same turn again.
    Again,
    /// The next one.
    Next,
}

/// A round begins anew so often at most because the machine was changed.
const MAX_RESTARTS: u32 = 3;

impl<T: Clone + PartialEq> Trial<T> {
    /// Compares these settings; of several that score alike the first is taken. None of them twice.
    pub(super) fn new(pace: Pace, settings: Vec<T>) -> Self {
        let mut arms: Vec<Arm<T>> = Vec::new();
        for setting in settings {
            if !arms.iter().any(|arm| arm.setting == setting) {
                arms.push(Arm::new(setting, false));
            }
        }
        Self {
            pace,
            done: arms.len() < 2,
            arms,
            at: 0,
            round: 0,
            periods: 0,
            scores: Vec::new(),
            turn: Sums::default(),
            empty: 0,
            now: Lately::default(),
            lately: Lately::default(),
            draining: None,
            then: After::Next,
            restarts: 0,
            given_up: None,
        }
    }

    /// Compares one more, which is no slower than the others, and is preferred to them where the cores are less busy with it.
    pub(super) fn beside(mut self, setting: T) -> Self {
        self.arms.push(Arm::new(setting, true));
        self.done = self.arms.len() < 2;
        self
    }

    /// Why it has ended without an answer.
    pub(super) const fn given_up(&self) -> Option<&'static str> {
        self.given_up
    }

    /// The one that is preferred where all score alike.
    pub(super) fn first(&self) -> &T {
        &self.arms[0].setting
    }

    /// Queries per second in the turns of the first; `None` before it had one.
    pub(super) fn rate(&self) -> Option<f64> {
        let sums = &self.arms[0].sums;
        (sums.length > Seconds::ZERO).then(|| sums.queries as f64 / sums.length.get())
    }

    /// The setting whose turn it is, or the one that was found; while what a turn left is served, the first.
    pub(super) fn setting(&self) -> &T {
        match self.draining {
            Some(_) => self.first(),
            None => &self.arms[self.at].setting,
        }
    }

    /// Whether the first setting serves what a turn left.
    pub(super) const fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// The setting whose turn was cut last, and why.
    pub(super) fn cut(&self) -> Option<(&T, &str)> {
        let arm = &self.arms[self.at];
        self.draining?;
        Some((&arm.setting, arm.why.as_deref()?))
    }

    /// Something else than the settings changed: what this round had so far is worth nothing, and it begins anew. Whether it does: on a
    /// machine that changes all the time settings are compared as it is, and what a turn left is served in any case.
    pub(super) fn begins_anew(&mut self) -> bool {
        if self.done || self.draining.is_some() || self.restarts >= MAX_RESTARTS {
            return false;
        }
        self.restarts += 1;
        for arm in &mut self.arms {
            arm.turns.truncate(self.round);
            arm.loads.truncate(self.round);
            arm.sums.clone_from(&arm.before_round);
        }
        self.forget_turn();
        self.at = self.first_of_round().unwrap_or(self.at);
        true
    }

    /// The load is another for a while: the turn goes on when the comparison does, once what was in force meanwhile is settled, or the next one
    /// begins where it was cut.
    pub(super) fn pause(&mut self) {
        self.periods = 0;
        if self.draining.take().is_some() && self.then == After::Next {
            self.go_on(&|_| None);
        }
    }

    /// The share of the first setting's periods in which the SLO was missed.
    pub(super) fn late_share_of_first(&self) -> f64 {
        self.arms[0].sums.late_share(self.pace.target)
    }

    /// What the turn had so far counts for nobody.
    fn forget_turn(&mut self) {
        (self.periods, self.scores) = (0, Vec::new());
        (self.turn, self.now) = (Sums::default(), Lately::default());
    }

    /// Whether it has its answer.
    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// Settings still compared.
    pub(super) fn left(&self) -> usize {
        self.arms.iter().filter(|arm| arm.out.is_none()).count()
    }

    /// Rounds of turns that are over.
    pub(super) const fn rounds(&self) -> usize {
        self.round
    }
}

#[cfg(test)]
mod tests;
