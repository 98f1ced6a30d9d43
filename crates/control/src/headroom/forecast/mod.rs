//! The arrival rate of the next period, and how far it may be off.
//!
//! Several forecasters run side by side, and each keeps the record of its own errors one period ahead, all of them
//! out of sample:
//!
//! - the line: SLO-Power's ([`crate::estimate`]), with the trend of the last periods;
//! - the level: the mean since the last jump (`level`), which beats the line on a steady load because it does not
//!   extrapolate noise;
//! - trends: a level and a slope, smoothed slowly and less slowly (`trend`), for a load that changes gradually;
//! - seasons: what recurs in the history (`season`), at several resolutions, scaled by how the present cycle compares
//!   with the former ones.
//!
//! The line speaks until another has been better than it for a while. What is stated with a rate is the distribution
//! of the errors of the forecaster that speaks, measured in its own standard deviation (the Poisson noise of the counts
//! and the error beyond it), so that a jump which happens every tenth period is in it.

mod level;
mod season;
mod trend;

use crate::estimate::LineEstimator;
use crate::history::LoadHistory;
use headroom_units::PerSecond;
use level::StepLevel;
use season::{History, RESOLUTIONS};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use trend::Trend;

/// Periods of the line, as SLO-Power has it.
const LINE: usize = 5;
/// The most periods that a level, and that a season's scale, is averaged over.
const LEVEL_MEMORY: f64 = 30.0;
const SCALE_MEMORY: f64 = 12.0;
/// Smoothing of the trends: their gains.
const TRENDS: [f64; 2] = [0.15, 0.3];
/// Errors kept of each forecaster.
const ERRORS: usize = 512;
/// Errors before a forecaster may speak.
const PROBATION: f64 = 24.0;
/// Weight of the newest error in the mean square, once there are enough.
const FORGET: f64 = 1.0 / 160.0;
/// What another forecaster's mean square must fall under, relative to that of the one that speaks.
const BETTER: f64 = 0.93;
/// As many errors of a normal distribution stand in for what has not been seen yet.
const PRIOR_ERRORS: f64 = 48.0;
/// How much wider than the stated deviation that distribution is.
const PRIOR_WIDTH: f64 = 1.25;
/// A season that moves by at most this share is the same season.
const SAME_SEASON: f64 = 0.02;
/// Moments of a longer time that a season is asked of.
const MOMENTS: usize = 16;
/// Lengths that a period may have, in seconds; of others nothing is learned.
const PERIOD_S: RangeInclusive<f64> = 1e-3..=86_400.0;
/// What lasts less than this share of the periods before it is a fragment of one.
const FRAGMENT: f64 = 0.1;
/// After more lost periods than this everything is learned anew.
const MAX_LOST: u64 = 600;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Method {
    Line,
    Level,
    Trend,
    /// A season of this many periods.
    Season(f64),
}

/// What is expected of the next period.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Forecast {
    /// Expected arrivals per second.
    pub rate: f64,
    /// Standard deviation, per second.
    pub deviation: f64,
    /// The distribution of the rate around it: rate and probability, ascending.
    pub cases: Vec<(f64, f64)>,
    pub method: Method,
}

/// One forecaster's record.
#[derive(Clone, Debug)]
struct Record {
    /// What it said of the coming period.
    said: Option<f64>,
    mean_square: f64,
    /// Variance beyond the Poisson noise, relative to the square of the rate.
    excess: f64,
    errors: f64,
    /// Errors in standard deviations, the newest last, and the same ascending.
    standardised: VecDeque<f64>,
    sorted: Vec<f64>,
}

impl Record {
    const fn new() -> Self {
        Self {
            said: None,
            mean_square: 0.0,
            excess: 0.01,
            errors: 0.0,
            standardised: VecDeque::new(),
            sorted: Vec::new(),
        }
    }

    fn deviation(&self, rate: f64, length: f64) -> f64 {
        (poisson(rate, length) + self.excess * rate * rate).sqrt()
    }

    fn judge(&mut self, rate: f64, length: f64) {
        let Some(said) = self.said else {
            return;
        };
        let off = rate - said;
        let place =
            |sorted: &[f64], value: f64| sorted.partition_point(|other| other.total_cmp(&value).is_lt());
        if self.standardised.len() == ERRORS
            && let Some(oldest) = self.standardised.pop_front()
        {
            self.sorted.remove(place(&self.sorted, oldest));
        }
        let newest = off / self.deviation(said, length);
        self.standardised.push_back(newest);
        self.sorted.insert(place(&self.sorted, newest), newest);
        self.errors += 1.0;
        let weight = (1.0 / self.errors).max(FORGET);
        self.mean_square += weight * (off * off - self.mean_square);
        let beyond = (off * off - poisson(said, length)) / (said * said).max(1.0);
        // The prior counts as eight errors; a single jump must not make everything uncertain for long.
        let weight = (1.0 / (self.errors + 8.0)).max(FORGET);
        self.excess = (self.excess + weight * (beyond.min(4.0) - self.excess)).clamp(1e-4, 1.0);
    }

    /// Errors in standard deviations, with probabilities: the steps of the empirical distribution, finer towards the
    /// dangerous side, and a normal one for what has not been seen yet.
    fn distribution(&self) -> Vec<(f64, f64)> {
        const SHARES: [f64; 9] = [0.0, 0.4, 0.7, 0.85, 0.93, 0.965, 0.982, 0.991, 0.996];
        const NORMAL: [(f64, f64); 6] = [
            (-0.8, 0.5),
            (0.52, 0.3),
            (1.24, 0.12),
            (1.76, 0.05),
            (2.2, 0.02),
            (2.67, 0.01),
        ];
        let known = self.sorted.len();
        let unseen = PRIOR_ERRORS / (known as f64 + PRIOR_ERRORS);
        let mut cases: Vec<(f64, f64)> = NORMAL
            .iter()
            .map(|(z, share)| (z * PRIOR_WIDTH, share * unseen))
            .collect();
        for (i, from) in SHARES.iter().enumerate() {
            let until = SHARES.get(i + 1).copied().unwrap_or(1.0);
            let place = |share: f64| (share * known as f64).round() as usize;
            let part = &self.sorted[place(*from)..place(until)];
            if !part.is_empty() {
                let count = part.len() as f64;
                cases.push((
                    part.iter().sum::<f64>() / count,
                    count / known as f64 * (1.0 - unseen),
                ));
            }
        }
        cases.sort_by(|a, b| a.0.total_cmp(&b.0));
        cases
    }
}

/// Variance of a rate that Poisson arrivals give.
fn poisson(rate: f64, length: f64) -> f64 {
    (rate * length).max(1.0) / (length * length)
}

/// One season, at one resolution.
#[derive(Clone, Debug)]
struct Season {
    periods: f64,
    /// How the present cycle compares with the former ones.
    scale: StepLevel,
    /// What the former cycles say of the coming period.
    shape: Option<f64>,
    record: Record,
}

/// All forecasters.
#[derive(Clone, Debug)]
pub(crate) struct Forecaster {
    line: LineEstimator,
    line_record: Record,
    level: StepLevel,
    level_record: Record,
    trends: [(Trend, Record); 2],
    histories: [History; 4],
    /// The shortest and the strongest season of each resolution.
    seasons: [[Option<Season>; 2]; 4],
    speaks: Speaker,
    length: f64,
    /// Seconds that periods last; `None` before the first.
    usual: Option<f64>,
    period: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Speaker {
    Line,
    Level,
    Trend(usize),
    Season(usize, usize),
}

impl Forecaster {
    pub(crate) fn new() -> Self {
        Self {
            line: LineEstimator::new(LINE),
            line_record: Record::new(),
            level: StepLevel::new(LEVEL_MEMORY),
            level_record: Record::new(),
            trends: TRENDS.map(|gain| (Trend::new(gain), Record::new())),
            histories: RESOLUTIONS.map(History::new),
            seasons: Default::default(),
            speaks: Speaker::Line,
            length: 1.0,
            usual: None,
            period: None,
        }
    }

    /// The last periods say nothing of the next one any more; the day, and how good everybody was at it, stay.
    pub(crate) fn lose_telemetry(&mut self) {
        self.line = LineEstimator::new(LINE);
        self.line_record.said = None;
        self.level = StepLevel::new(LEVEL_MEMORY);
        self.level_record.said = None;
        for ((trend, record), gain) in self.trends.iter_mut().zip(TRENDS) {
            *trend = Trend::new(gain);
            record.said = None;
        }
    }

    /// Takes what came in before the first period. Over a gap that is longer than [`MAX_LOST`] only a season leads; where none
    /// is known yet, what was before it is forgotten. `then` is called after each period, with its rate, and after each gap.
    pub(crate) fn recall(&mut self, history: &LoadHistory, mut then: impl FnMut(&Self, Option<f64>)) {
        let (length, mut lost, mut period) = (history.period().get(), 0, 0);
        let mut newest = None;
        for rate in history.rates() {
            let Some(rate) = rate.map(PerSecond::get) else {
                lost += 1;
                continue;
            };
            if lost > 0 {
                self.recall_gap(lost, newest);
                then(self, None);
            }
            (lost, newest) = (0, Some(rate));
            self.observe(period, rate, length);
            then(self, Some(rate));
            period += 1;
        }
        if lost > 0 {
            self.recall_gap(lost, newest);
            self.lose_telemetry();
            then(self, None);
        }
        self.period = None;
    }

    fn recall_gap(&mut self, lost: u64, newest: Option<f64>) {
        let recurs = self.seasons.iter().flatten().flatten().next().is_some();
        match newest {
            Some(rate) if lost <= MAX_LOST || recurs => self.bridge(lost, rate),
            _ => *self = Self::new(),
        }
    }

    /// Takes a period's length, in seconds: whether its counts are a rate that the next one may have. Those of a fragment, as
    /// where a clock jumped, are not: a burst within milliseconds would be remembered as a load that nothing can serve. What is
    /// usual moves by a factor of two at most, so that no single length makes the periods after it fragments, and where all that
    /// come are as short they are soon whole.
    pub(crate) fn take_length(&mut self, length: f64) -> bool {
        if !PERIOD_S.contains(&length) {
            return false;
        }
        let usual = self.usual.unwrap_or(length);
        self.usual = Some(length.clamp(usual / 2.0, usual * 2.0));
        length >= FRAGMENT * usual
    }

    /// Takes the newest period: its number, and `rate` arrivals per second over `length` seconds. Periods that were
    /// lost since the last one leave their place in the history, so that the day goes on.
    pub(crate) fn observe(&mut self, period: u64, rate: f64, length: f64) {
        if !(rate >= 0.0 && rate.is_finite() && length > 0.0 && length.is_finite()) {
            return;
        }
        let lost = self
            .period
            .map_or(0, |last| period.saturating_sub(last).saturating_sub(1));
        self.period = Some(period);
        if lost > MAX_LOST {
            *self = Self {
                period: self.period,
                ..Self::new()
            };
        } else {
            self.bridge(lost, rate);
        }
        self.length = length;
        let noise = poisson(rate, length);
        self.line_record.judge(rate, length);
        self.level_record.judge(rate, length);
        self.line.push(rate);
        for (trend, record) in &mut self.trends {
            record.judge(rate, length);
            trend.push(rate);
            record.said = trend.next();
        }
        let expected = self.level.level().unwrap_or(rate);
        self.level.push(rate, poisson(expected, length));
        for season in self.seasons.iter_mut().flatten().flatten() {
            season.record.judge(rate, length);
            if let Some(shape) = season.shape.filter(|shape| *shape > 0.0) {
                season
                    .scale
                    .push(rate / shape, noise.max(shape / length) / (shape * shape));
            }
        }
        for (history, seasons) in self.histories.iter_mut().zip(&mut self.seasons) {
            history.push(rate);
            if let Some(found) = history.search() {
                let [short, strong] = found;
                keep(&mut seasons[0], short);
                keep(&mut seasons[1], strong.filter(|periods| Some(*periods) != short));
            }
        }
        self.say_of_seasons();
        self.line_record.said = self.line.next();
        self.level_record.said = self.level.level();
        self.elect();
    }

    /// What each season says of the period that comes.
    fn say_of_seasons(&mut self) {
        for (history, seasons) in self.histories.iter().zip(&mut self.seasons) {
            for season in seasons.iter_mut().flatten() {
                season.shape = history.shape(season.periods, -1.0);
                let scale = season.scale.level().unwrap_or(1.0).clamp(0.1, 10.0);
                season.record.said = season.shape.map(|shape| shape * scale);
            }
        }
    }

    /// Fills the histories for lost periods: with what the season says, else with the newest rate.
    fn bridge(&mut self, lost: u64, rate: f64) {
        for _ in 0..lost {
            for (history, seasons) in self.histories.iter_mut().zip(&self.seasons) {
                let season = seasons.iter().flatten().next();
                let shape = season.and_then(|season| history.shape(season.periods, -1.0));
                history.push(shape.unwrap_or(rate));
            }
        }
        if lost > 0 {
            // What was said was said of the first lost period.
            self.say_of_seasons();
        }
    }

    fn record(&self, speaker: Speaker) -> Option<&Record> {
        match speaker {
            Speaker::Line => Some(&self.line_record),
            Speaker::Level => Some(&self.level_record),
            Speaker::Trend(which) => Some(&self.trends[which].1),
            Speaker::Season(at, which) => self.seasons[at][which].as_ref().map(|season| &season.record),
        }
        .filter(|record| record.said.is_some())
    }

    /// Whoever is clearly better than the present speaker becomes it; a season that was lost gives back to the line.
    fn elect(&mut self) {
        if self.record(self.speaks).is_none() {
            self.speaks = Speaker::Line;
        }
        let trends = (0..TRENDS.len()).map(Speaker::Trend);
        let seasons = (0..RESOLUTIONS.len()).flat_map(|at| [Speaker::Season(at, 0), Speaker::Season(at, 1)]);
        let candidates = [Speaker::Line, Speaker::Level]
            .into_iter()
            .chain(trends)
            .chain(seasons);
        let mut best = (
            self.speaks,
            self.record(self.speaks)
                .map_or(f64::INFINITY, |record| record.mean_square * BETTER),
        );
        for candidate in candidates.filter(|candidate| *candidate != self.speaks) {
            if let Some(record) = self.record(candidate)
                && record.errors >= PROBATION
                && record.mean_square < best.1
            {
                best = (candidate, record.mean_square);
            }
        }
        self.speaks = best.0;
    }

    /// What is expected of the next period; `None` before the first.
    pub(crate) fn next(&self) -> Option<Forecast> {
        let record = self.record(self.speaks)?;
        let rate = record.said?.max(0.0);
        let deviation = record.deviation(rate, self.length);
        let cases = record
            .distribution()
            .into_iter()
            .map(|(z, share)| ((rate + z * deviation).max(0.0), share))
            .collect();
        let method = match self.speaks {
            Speaker::Line => Method::Line,
            Speaker::Level => Method::Level,
            Speaker::Trend(_) => Method::Trend,
            Speaker::Season(at, which) => Method::Season(
                self.seasons[at][which]
                    .as_ref()
                    .map_or(0.0, |season| season.periods),
            ),
        };
        Some(Forecast {
            rate,
            deviation,
            cases,
            method,
        })
    }

    /// The highest rate within so many periods by the season that was best so far; `None` where none recurs. Of a long time
    /// some moments are looked at.
    pub(crate) fn highest_of_season(&self, within: usize) -> Option<f64> {
        let of = |at: usize| {
            let seasons = self.seasons[at].iter().flatten();
            seasons.map(move |season| (&self.histories[at], season))
        };
        let known = (0..RESOLUTIONS.len())
            .flat_map(of)
            .filter(|(_, season)| season.record.errors >= PROBATION && season.record.said.is_some());
        let (history, season) =
            known.min_by(|(_, a), (_, b)| a.record.mean_square.total_cmp(&b.record.mean_square))?;
        let scale = season.scale.level().unwrap_or(1.0).clamp(0.1, 10.0);
        let moments = within.clamp(1, MOMENTS);
        let ages = (1..=moments).map(|moment| -((moment * within) as f64 / moments as f64).max(1.0));
        let shapes = ages.filter_map(|age| history.shape(season.periods, age));
        shapes.reduce(f64::max).map(|shape| shape * scale)
    }
}

/// Keeps a season's record where it is found again, if a little off; starts one where it is new.
fn keep(slot: &mut Option<Season>, found: Option<f64>) {
    let Some(periods) = found else {
        *slot = None;
        return;
    };
    match slot {
        Some(season) if (season.periods - periods).abs() <= SAME_SEASON * periods => season.periods = periods,
        _ => {
            *slot = Some(Season {
                periods,
                scale: StepLevel::new(SCALE_MEMORY),
                shape: None,
                record: Record::new(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A small generator of its own, so that the tests need no crate: uniform in 0..1.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        /// About normal with the variance of a Poisson count.
        fn count(&mut self, mean: f64) -> f64 {
            let normal: f64 = (0..12).map(|_| self.roll()).sum::<f64>() - 6.0;
            (mean + mean.sqrt() * normal).round().max(0.0)
        }
    }

    fn mean_square(of: impl Fn(usize) -> f64, periods: usize, from: usize) -> (f64, f64, Forecaster) {
        let mut dice = Dice(7);
        let mut forecaster = Forecaster::new();
        let mut line = LineEstimator::new(LINE);
        let (mut ours, mut lines) = (0.0, 0.0);
        for i in 0..periods {
            let rate = dice.count(of(i));
            if i >= from {
                ours += (forecaster.next().unwrap().rate - rate).powi(2);
                lines += (line.next().unwrap() - rate).powi(2);
            }
            forecaster.observe(i as u64, rate, 1.0);
            line.push(rate);
        }
        (ours, lines, forecaster)
    }

    #[test]
    fn a_fragment_is_told_from_a_period_and_no_single_length_makes_the_next_ones_fragments() {
        let mut forecaster = Forecaster::new();
        let mut whole = |lengths: &[f64]| -> Vec<bool> {
            lengths.iter().map(|one| forecaster.take_length(*one)).collect()
        };
        assert_eq!(whole(&[1.0, 0.5, 0.0025, 1.0]), [true, true, false, true]);
        // What is no length of a period changes nothing.
        let none = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e6, 5e-4];
        assert_eq!(whole(&none), [false; 6]);
        assert_eq!(whole(&[80_000.0, 1.0]), [true, true]);
        assert_eq!(whole(&[0.01; 8])[6..], [true, true], "short for good");
    }

    #[test]
    fn the_line_speaks_at_first() {
        let mut forecaster = Forecaster::new();
        assert_eq!(forecaster.next(), None);
        for (i, rate) in [10.0, 12.0, 14.0, 16.0, 18.0].into_iter().enumerate() {
            forecaster.observe(i as u64, rate, 1.0);
        }
        let next = forecaster.next().unwrap();
        assert_eq!((next.rate, next.method), (20.0, Method::Line));
    }

    #[test]
    fn a_steady_load_is_a_level() {
        let (ours, line, forecaster) = mean_square(|_| 100.0, 600, 100);
        assert_eq!(forecaster.next().unwrap().method, Method::Level);
        assert!(ours < 0.65 * line, "{ours} against {line}");
    }

    #[test]
    fn a_ramp_is_a_trend() {
        let (ours, line, forecaster) = mean_square(|i| 1_000.0 + 60.0 * i as f64, 600, 100);
        assert_eq!(forecaster.next().unwrap().method, Method::Trend);
        assert!(ours < 0.75 * line, "{ours} against {line}");
    }

    #[test]
    fn a_day_is_learned_and_its_jumps_with_it() {
        // 24 values, each held for 10 periods; six days.
        let day = |i: usize| [60.0, 70.0, 160.0, 240.0, 230.0, 120.0, 110.0, 180.0][(i / 30) % 8];
        let (ours, line, forecaster) = mean_square(day, 6 * 240, 3 * 240);
        let next = forecaster.next().unwrap();
        assert!(
            matches!(next.method, Method::Season(p) if (p / 240.0).fract() == 0.0),
            "{:?}",
            next.method
        );
        assert!(ours < 0.5 * line, "{ours} against {line}");
    }

    #[test]
    fn the_stated_errors_cover_what_happens() {
        let mut dice = Dice(3);
        let mut forecaster = Forecaster::new();
        let (mut beyond, mut periods) = (0.0, 0.0);
        let mut mean = 100.0;
        for i in 0..3_000u64 {
            if i % 10 == 0 {
                mean = 60.0 + 120.0 * dice.roll();
            }
            let rate = dice.count(mean);
            if let Some(next) = forecaster.next().filter(|_| i > 300) {
                let mut above = 0.0;
                let bound = next.cases.iter().rev().find(|(_, share)| {
                    above += share;
                    above > 0.02
                });
                periods += 1.0;
                beyond += f64::from(u8::from(rate > bound.unwrap().0));
            }
            forecaster.observe(i, rate, 1.0);
        }
        let share = beyond / periods;
        assert!((0.003..0.05).contains(&share), "{share} beyond the 98 % bound");
    }

    #[test]
    fn a_learned_day_survives_lost_telemetry() {
        let day = |i: usize| [60.0, 70.0, 160.0, 240.0, 230.0, 120.0, 110.0, 180.0][(i / 30) % 8];
        let (_, _, mut forecaster) = mean_square(day, 4 * 240, 1);
        for i in 4 * 240 + 37..4 * 240 + 60 {
            forecaster.observe(i as u64, day(i), 1.0);
        }
        let next = forecaster.next().unwrap();
        assert!(matches!(next.method, Method::Season(_)), "{:?}", next.method);
        // The jump from 70 to 160 that comes now is known.
        assert!((next.rate / 160.0 - 1.0).abs() < 0.1, "{}", next.rate);
    }

    #[test]
    fn a_season_is_not_judged_by_what_it_said_of_the_first_lost_period() {
        let day = |i: usize| [60.0, 70.0, 160.0, 240.0, 230.0, 120.0, 110.0, 180.0][(i / 30) % 8];
        let (_, _, mut forecaster) = mean_square(day, 4 * 240, 1);
        let before = forecaster.record(forecaster.speaks).unwrap().mean_square;
        // From the valley into the middle of the peak.
        forecaster.observe(4 * 240 + 105, day(4 * 240 + 105), 1.0);
        let record = forecaster.record(forecaster.speaks).unwrap();
        assert!(
            record.mean_square < 1.5 * before,
            "{} after {before}",
            record.mean_square
        );
        let next = forecaster.next().unwrap();
        assert!((next.rate / 240.0 - 1.0).abs() < 0.1, "{}", next.rate);
    }

    proptest! {
        #[test]
        fn a_forecast_is_a_distribution(
            rates in prop::collection::vec(0.0..1e6f64, 1..300), gap in prop::sample::select(vec![1u64, 2, 50, 700]),
        ) {
            let mut forecaster = Forecaster::new();
            for (i, rate) in rates.into_iter().enumerate() {
                forecaster.observe(i as u64 * gap, rate, 1.0);
                let next = forecaster.next().unwrap();
                prop_assert!(next.rate.is_finite() && next.rate >= 0.0 && next.deviation > 0.0);
                prop_assert!((next.cases.iter().map(|c| c.1).sum::<f64>() - 1.0).abs() < 1e-6);
                prop_assert!(next.cases.iter().all(|c| c.0 >= 0.0 && c.0.is_finite()));
            }
        }
    }
}
