//! Whether what batches save lasts.
//!
//! The laws compare intervals over some response times. What batches add later is not seen by then: a cache that grows stale, a backlog
//! behind the service, users who go away. So now and then there are none for as long as such an effect needs to show, and what a response
//! takes at the end of that is compared with what it took at the end of the time with batches before. A look goes on for as long as
//! responses still become shorter. Where they are less without batches, by more than such times differ by themselves, and a second look says
//! the same, there are no batches for half an hour, then for twice as long each time, and the next time with batches is short.
//!
//! A look ends at once where it shows what batches are good for: where the response is far longer without, or the target is missed without
//! and not with them. It then says nothing of later, and what a saving of that size costs later is not looked for.

use crate::observation::Observation;
use headroom_units::Seconds;
use std::collections::VecDeque;

/// What is waited for and then measured, each a half of a look, in mean response times at least.
const HALF_RESPONSES: f64 = 4.0;
/// Seconds with batches, in halves of a look, before the first look, before the second of two that are to agree, and at most.
const FIRST: f64 = 5.0;
const SECOND: f64 = 4.0;
/// And in those that a look needed that found something, before the next: what adds by and by takes as long to come as to go.
const GROWS: f64 = 2.0;
const MOST_S: f64 = 2.0 * 3_600.0;
/// The factor to the next after a look that found that batches keep on saving.
const RARER: f64 = 2.0;
/// Seconds without batches after they were found not to, at first and at most.
const NONE_S: (f64, f64) = (1_800.0, 6.0 * 3_600.0);
/// How much less a response must take without batches, as a logarithm, and in standard errors.
const LEAST: f64 = 0.02;
const ERRORS: f64 = 2.5;
/// Departures of these from a straight line that say something, and how many are remembered, of which the median counts.
const KNOWN: usize = 2;
const MEMORY: usize = 8;
/// The median of what a normal distribution gives, in its deviations, and how many times as much three vary on a line as two do.
const MEDIAN: f64 = 0.674;
const OF_THREE: f64 = 1.732;
/// Halves of a look at most.
const MOST_HALVES: u32 = 16;
/// One that is so much longer, as a logarithm, shows at once what batches are good for.
const PLAIN: f64 = 0.6;
/// Periods over the target, after which that is so too where they are more than with batches, by so many times what such a number varies.
const MISSED: u32 = 2;
const MORE: f64 = 3.0;
/// Periods that the share with batches is a mean over.
const SHARE_OVER: f64 = 60.0;
/// After this many mean response times what is answered was not held.
const ANSWERED: f64 = 2.0;

/// An interval that is longer than none by no more, in seconds, is none.
const SAME_S: f64 = 1e-4;

/// What a law is to do in a period.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gate {
    /// To decide.
    Open,
    /// To hold nothing, for this reason.
    Closed(String),
    /// The same, for batches were found to cost so much more in the long run, as a logarithm.
    Condemned(f64, String),
    /// To begin anew without batches, and to decide.
    Anew,
}

/// What of a period is used.
#[derive(Clone, Copy, Debug)]
struct Period {
    length: f64,
    answers: f64,
    response: f64,
    is_missed: bool,
}

/// Sums over some time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    seconds: f64,
    answers: f64,
    total: f64,
    /// Periods in which something was answered, and the sums of their means and of the squares of these.
    periods: f64,
    means: f64,
    squares: f64,
}

impl Sums {
    fn push(&mut self, period: &Period) {
        self.seconds += period.length;
        self.answers += period.answers;
        self.total += period.answers * period.response;
        if period.answers > 0.0 {
            self.periods += 1.0;
            self.means += period.response;
            self.squares += period.response.powi(2);
        }
    }

    /// Standard error of the mean, as a share of it.
    fn error(&self) -> f64 {
        let mean = self.means / self.periods;
        let variance = (self.squares / self.periods - mean.powi(2)).max(0.0);
        let error = (variance / self.periods).sqrt() / mean;
        if error.is_finite() { error } else { 0.0 }
    }

    fn mean(&self) -> Option<f64> {
        (self.answers > 0.0).then(|| self.total / self.answers)
    }
}

/// A look in the making.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Mean response time at the end of the time with batches before it, and its standard error, as a share.
    with: f64,
    error: f64,
    seconds: f64,
    /// What was answered once what is answered was not held, and of that what the half in the making has, and the one before it.
    all: Sums,
    now: Sums,
    before: Option<f64>,
    halves: u32,
    missed: u32,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Batches,
    Look(Look),
    /// No batches for so many seconds more, which cost so much more, as a share.
    None(f64, f64),
}

/// The looks.
#[derive(Clone, Debug)]
pub(super) struct LongLook {
    none: f64,
    target: f64,
    /// Half a look, in seconds, at least; 0 where none are wanted.
    half: f64,
    stage: Stage,
    /// Seconds with batches since the last look.
    since: f64,
    /// Seconds with batches to the next look, in those of the first.
    rarity: f64,
    /// Halves of looks with batches and nothing else, the latest last, and the one in the making.
    halves: VecDeque<f64>,
    now: Sums,
    /// By how much three in a row depart from a straight line, as logarithms: what grows by and by is no noise.
    differences: VecDeque<f64>,
    /// The share of periods with batches that miss the target, and of how many that is known.
    missed: f64,
    judged: f64,
    /// Whether the first of two looks found that, and the seconds that the last that did needed for it.
    suspects: bool,
    showed: f64,
    /// Whether batches were found not to keep on saving, and for how long there were then none.
    none_for: Option<f64>,
}

impl LongLook {
    /// With looks of this length at least, none where that is 0.
    pub(super) fn new(none: Seconds, target: Seconds, length: Seconds) -> Self {
        Self {
            none: none.get(),
            target: target.get(),
            half: 0.5 * length.get(),
            stage: Stage::Batches,
            since: 0.0,
            rarity: 1.0,
            halves: VecDeque::new(),
            now: Sums::default(),
            differences: VecDeque::new(),
            missed: 0.0,
            judged: 0.0,
            suspects: false,
            showed: 0.0,
            none_for: None,
        }
    }

    /// Takes a period, of a law that holds requests other than to try it or does not, and says what the law is to do.
    pub(super) fn gate(&mut self, observation: &Observation, holds: bool) -> Gate {
        if self.half <= 0.0 {
            return Gate::Open;
        }
        let interval = observation
            .in_force
            .batch_interval()
            .map(Seconds::get)
            .filter(|interval| interval.is_finite());
        let Some((period, interval)) = self.period(observation).zip(interval) else {
            return match &self.stage {
                Stage::Batches => Gate::Open,
                _ => self.closed(),
            };
        };
        match &mut self.stage {
            Stage::Batches if holds => self.with_batches(&period, interval),
            Stage::Batches => {
                self.now = Sums::default();
                Gate::Open
            }
            Stage::Look(look) => {
                look.seconds += period.length;
                // Before that what is answered was held.
                if look.seconds > ANSWERED * look.with {
                    look.all.push(&period);
                    look.now.push(&period);
                    look.missed += u32::from(period.is_missed);
                }
                let look = *look;
                self.judge(look)
            }
            Stage::None(left, _) => {
                *left -= period.length;
                if *left > 0.0 {
                    return self.closed();
                }
                self.begin();
                Gate::Anew
            }
        }
    }

    fn period(&self, observation: &Observation) -> Option<Period> {
        let traffic = observation.traffic.as_ref()?;
        let length = observation.length.get();
        let response = match traffic.completions {
            0 => 0.0,
            _ => super::bounds::mean_response(observation)?.get(),
        };
        (length > 0.0 && length.is_finite()).then(|| Period {
            length,
            answers: traffic.completions as f64,
            response,
            is_missed: traffic.completions > 0 && traffic.latency_to_judge().get() > self.target,
        })
    }

    /// A time with batches begins.
    fn begin(&mut self) {
        self.stage = Stage::Batches;
        self.since = 0.0;
        self.halves.clear();
        self.now = Sums::default();
    }

    /// Telemetry was lost for a while: what was begun is given up.
    pub(super) fn lose(&mut self) {
        match self.stage {
            Stage::None(..) => {}
            _ => self.begin(),
        }
    }

    fn with_batches(&mut self, period: &Period, interval: f64) -> Gate {
        if interval <= self.none + SAME_S {
            self.now = Sums::default();
            return Gate::Open;
        }
        self.since += period.length;
        self.judged = (self.judged + 1.0).min(SHARE_OVER);
        self.missed += (f64::from(u8::from(period.is_missed)) - self.missed) / self.judged;
        self.now.push(period);
        let response = self.now.mean().unwrap_or(0.0);
        let half = self.half.max(HALF_RESPONSES * response);
        if self.now.seconds < half {
            return Gate::Open;
        }
        let now = std::mem::take(&mut self.now);
        let Some(mean) = now.mean() else {
            return Gate::Open;
        };
        self.halves.push_back(mean);
        if let [first, second, third] = *self.halves.make_contiguous() {
            self.differences
                .push_back((first * third / second.powi(2)).ln().abs());
            self.halves.pop_front();
            if self.differences.len() > MEMORY {
                self.differences.pop_front();
            }
        }
        let needed = match (self.suspects, self.none_for) {
            (false, None) => (FIRST * half * self.rarity).min(MOST_S.max(FIRST * half)),
            _ => (SECOND * half).max(GROWS * self.showed),
        };
        if self.since < needed || self.differences.len() < KNOWN {
            return Gate::Open;
        }
        self.stage = Stage::Look(Look {
            with: mean,
            error: now.error(),
            seconds: 0.0,
            all: Sums::default(),
            now: Sums::default(),
            before: None,
            halves: 0,
            missed: 0,
        });
        self.closed()
    }

    /// By how much halves depart from each other by themselves, as a logarithm.
    fn spread(&self) -> f64 {
        let mut sorted: Vec<f64> = self.differences.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        median / (MEDIAN * OF_THREE)
    }

    fn judge(&mut self, mut look: Look) -> Gate {
        let is_answered = look.all.seconds >= ANSWERED * look.with;
        let is_plain = is_answered
            && look
                .all
                .mean()
                .is_some_and(|mean| (mean / look.with).ln() > PLAIN);
        let usual = self.missed * look.all.periods;
        let varies = (usual * (1.0 - self.missed)).sqrt();
        let is_needed = look.missed >= MISSED && f64::from(look.missed) > usual + MORE * varies;
        if is_plain || is_needed {
            return self.keeps();
        }
        if look.now.seconds < self.half.max(HALF_RESPONSES * look.with) {
            return self.closed();
        }
        let now = std::mem::take(&mut look.now);
        let Some(without) = now.mean() else {
            // Nothing is answered, which says nothing.
            self.begin();
            return Gate::Open;
        };
        let noise = |error: f64| LEAST.max(ERRORS * error.hypot(now.error()));
        look.halves += 1;
        let falls = look
            .before
            .is_none_or(|before| (before / without).ln() > noise(now.error()));
        look.before = Some(without);
        self.stage = Stage::Look(look);
        if falls && look.halves < MOST_HALVES {
            return self.closed();
        }
        let more = (look.with / without).ln();
        if more <= noise(look.error).max(self.spread()) {
            return self.keeps();
        }
        self.showed = look.seconds;
        if !self.suspects && self.none_for.is_none() {
            self.suspects = true;
            self.begin();
            return Gate::Open;
        }
        self.suspects = false;
        let seconds = self
            .none_for
            .map_or(NONE_S.0, |before| (2.0 * before).min(NONE_S.1));
        self.none_for = Some(seconds);
        self.stage = Stage::None(seconds, more.exp_m1());
        Gate::Condemned(more, self.says())
    }

    /// Batches save for as long as that can be seen.
    fn keeps(&mut self) -> Gate {
        if !self.suspects && self.none_for.is_none() {
            self.rarity *= RARER;
        }
        self.suspects = false;
        self.none_for = None;
        self.begin();
        Gate::Open
    }

    /// It holds nothing instead of the law.
    fn closed(&self) -> Gate {
        Gate::Closed(self.says())
    }

    fn says(&self) -> String {
        match &self.stage {
            Stage::None(left, more) => format!(
                "no batches for {left:.0} s: a response with them took {:.0} % longer in the long run than without",
                more * 100.0
            ),
            _ => "no batches for some time, to see whether what they save lasts".to_owned(),
        }
    }
}
