//! What bounds the batch interval, and what a period says of it.

use super::model::Sample;
use crate::observation::Observation;
use crate::registry::LawError;
use crate::stack;
use headroom_units::{Lever, LeverRange, Ratio, Seconds};

/// Periods in a row of which it is not read back which interval was in force, before none is asked for: what nobody sees is bound by nothing.
const UNREAD: u32 = 20;
/// For how many periods then, at first and at most.
const RESTS: (u32, u32) = (60, 3_600);

/// Whether it is read back which interval was in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    /// For how many periods in a row it was not.
    periods: u32,
    /// For how many more none is asked for, and for how many the next time.
    left: u32,
    next: u32,
}

impl Default for Unread {
    fn default() -> Self {
        Self {
            periods: 0,
            left: 0,
            next: RESTS.0,
        }
    }
}

impl Unread {
    /// Takes a period; whether none is to be asked for.
    pub(super) fn observe(&mut self, observation: &Observation) -> bool {
        let read = observation.in_force.batch_interval();
        self.periods = match read.is_some_and(|read| read.get().is_finite()) {
            true => 0,
            false => self.periods.saturating_add(1),
        };
        if self.periods == UNREAD {
            self.left = self.next;
            self.next = self.next.saturating_mul(2).min(RESTS.1);
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0 || self.periods > UNREAD
    }

    /// In words.
    pub(super) const WORDS: &'static str = "none: it is not observed which interval is in force";
}

/// The interval's bounds: those of the plant, the SLA, and what the configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IntervalBounds {
    pub(crate) least: Seconds,
    pub(crate) most: Seconds,
    step: f64,
}

/// The range of the interval, or why a law that moves it cannot run where it has none.
pub(super) fn there(range: Option<LeverRange>, law: &'static str) -> Result<LeverRange, LawError> {
    range.ok_or_else(|| LawError::new("law.name", stack::missing(law, Lever::BatchInterval)))
}

impl IntervalBounds {
    /// Between what is asked for in the law's `table` and what is possible; the interval never exceeds the SLA (Section IV.C).
    pub(super) fn new(
        range: LeverRange,
        sla: Seconds,
        asked_ms: (f64, Option<f64>),
        table: &str,
    ) -> Result<Self, LawError> {
        let (bounds, wrong) = Self::judged(range, sla, asked_ms, table);
        wrong.into_iter().next().map_or(Ok(bounds), Err)
    }

    /// The same with all that is wrong with what is asked for, in the place of which stands what is possible.
    pub(super) fn judged(
        range: LeverRange,
        sla: Seconds,
        asked_ms: (f64, Option<f64>),
        table: &str,
    ) -> (Self, Vec<LawError>) {
        let (least, possible) = (Seconds::new(range.min), sla.min(Seconds::new(range.max)));
        let (least_ms, most_ms) = (asked_ms.0, asked_ms.1);
        let mut wrong = Vec::new();
        let mut refuse = |key: &str, value: f64, why: String| {
            let (key, why) = (format!("law.{table}.{key}"), format!("is {value}: {why}"));
            wrong.push(LawError::new(key, why));
        };
        if let Some(most_ms) = most_ms
            && Seconds::from_millis(most_ms) > possible
        {
            let why = match sla <= Seconds::new(range.max) {
                true => format!(
                    "an interval over the SLA, {} ms, breaks it by itself",
                    sla.as_millis()
                ),
                false => format!(
                    "the gateway holds requests for {} ms at most",
                    possible.as_millis()
                ),
            };
            let why = format!("{why}; give at most {}", possible.as_millis());
            refuse("max_interval_ms", most_ms, why);
        }
        let most = most_ms.map_or(possible, Seconds::from_millis).min(possible);
        let asked = Seconds::from_millis(least_ms).max(least);
        if asked > most {
            let why = format!(
                "it must be at most {}, the longest interval, in ms",
                most.as_millis()
            );
            refuse("min_interval_ms", asked.as_millis(), why);
        }
        let bounds = Self {
            least: asked.min(most),
            most,
            step: range.step,
        };
        (bounds, wrong)
    }

    /// An interval within the bounds and on a step of the lever: the one below.
    pub(crate) fn fit(&self, interval: Seconds) -> Seconds {
        // What is no number is no reason to hold requests.
        let interval = if interval.is_finite() {
            interval
        } else {
            self.least
        };
        let stepped = match self.step > 0.0 {
            true => Seconds::new((interval.get() / self.step + 1e-9).floor() * self.step),
            false => interval,
        };
        stepped.clamp(self.least, self.most)
    }
}

/// The mean response time of a period; `None` where none was answered or the source of telemetry gives no mean.
pub(crate) fn mean_response(observation: &Observation) -> Option<Seconds> {
    let traffic = observation.traffic.as_ref()?;
    let mean = traffic.latency?.distribution?.mean;
    (traffic.completions > 0 && mean.is_finite() && mean >= Seconds::ZERO).then_some(mean)
}

impl Sample {
    /// u, h and r of a period; `None` where the interval in force or the mean response time was not observed. Where nothing was looked for
    /// in the cache, the hit ratio is what it was before; without a cache it is 0 in every period.
    pub fn of(observation: &Observation, hit_ratio_before: Option<Ratio>) -> Option<Self> {
        let hit_ratio = observation.cache.and_then(|cache| cache.hit_ratio());
        let in_force = observation.in_force.batch_interval();
        Some(Self {
            interval: in_force.filter(|one| one.is_finite())?,
            hit_ratio: hit_ratio.or(hit_ratio_before).unwrap_or(Ratio::ZERO),
            response: mean_response(observation)?,
        })
    }
}
