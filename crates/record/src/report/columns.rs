//! A run as columns over time, thinned to what a plot can show.

use super::key::Key;
use crate::model::PeriodRecord;
use crate::totals::WARM_UP_PERIODS;
use headroom_units::Seconds;
use std::collections::BTreeMap;

/// Points that a plot's line has at most. A longer run is thinned: a point then stands for several periods and keeps
/// their smallest and largest value.
pub(crate) const MAX_POINTS: u64 = 1_200;

/// The values of one point: of one period, or of several neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) low: f64,
    pub(crate) high: f64,
    sum: f64,
    count: u32,
}

impl Point {
    const UNKNOWN: Self = Self {
        low: f64::INFINITY,
        high: f64::NEG_INFINITY,
        sum: 0.0,
        count: 0,
    };

    fn add(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        self.sum += value;
        self.count += 1;
    }

    /// Whether any of the periods has a value.
    pub(crate) fn is_known(self) -> bool {
        self.count > 0
    }

    /// The mean of the periods that have a value.
    pub(crate) fn mean(self) -> Option<f64> {
        self.is_known().then(|| self.sum / f64::from(self.count))
    }

    /// What a table or the crosshair shows: the mean, or the largest value of what is about peaks.
    pub(crate) fn shown(self, largest: bool) -> Option<f64> {
        match largest {
            true => self.is_known().then_some(self.high),
            false => self.mean(),
        }
    }
}

/// One quantity over time.
pub(crate) type Column = Vec<Point>;

/// What one point tells besides its numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// When the first of its periods began, in seconds.
    pub(crate) at_s: f64,
    /// When the last of its periods ended, in seconds.
    pub(crate) end_s: f64,
    /// The number of the first of its periods.
    pub(crate) index: u64,
    /// Why: rule and text of the period with the highest latency, or of the last.
    pub(crate) why: String,
    /// Whether a period's latency was over the target, or so many failed that it had none at the SLO's percentile.
    pub(crate) over: bool,
    /// Whether that was so of a period.
    pub(crate) failed: bool,
    /// Whether a period's telemetry was lost.
    pub(crate) lost: bool,
    periods: u32,
    periods_over: u32,
    worst_ms: f64,
}

impl Moment {
    pub(crate) fn at(period: &PeriodRecord) -> Self {
        Self {
            at_s: period.at.get(),
            index: period.index,
            worst_ms: f64::NEG_INFINITY,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, period: &PeriodRecord, target: Option<Seconds>) {
        self.end_s = (period.at + period.duration).get();
        let over = period.latency_to_judge().zip(target);
        let judged = period.index >= WARM_UP_PERIODS;
        let failed = judged && target.is_some() && period.is_percentile_among_failed();
        let over = failed || judged && over.is_some_and(|(latency, target)| latency > target);
        self.failed |= failed;
        self.over |= over;
        self.periods += 1;
        self.periods_over += u32::from(over);
        self.lost |= period.telemetry_lost;
        let worst_ms = period.slo_latency.map_or(f64::NEG_INFINITY, Seconds::as_millis);
        if worst_ms >= self.worst_ms && !period.reasons.is_empty() {
            self.worst_ms = worst_ms;
            let each = period.foremost();
            let each = each.map(|reason| format!("{}: {}", reason.rule, reason.text));
            self.why = each.collect::<Vec<_>>().join("; ");
        }
    }

    /// Whether most of its periods were over the target.
    pub(crate) fn mostly_over(&self) -> bool {
        self.periods_over * 2 > self.periods
    }
}

/// Columns by what they hold; one that never has a value does not exist, and one may end before the last point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns(BTreeMap<Key, Column>);

impl Columns {
    /// Adds a value to the last of so many points.
    pub(crate) fn add(&mut self, points: usize, key: Key, value: f64) {
        if value.is_finite() {
            let column = self.0.entry(key).or_default();
            column.resize(points, Point::UNKNOWN);
            if let Some(point) = column.last_mut() {
                point.add(key.shown(value));
            }
        }
    }

    /// A column, where anything is known of it.
    pub(crate) fn get(&self, key: Key) -> Option<&Column> {
        self.0.get(&key)
    }

    /// What is known, in the order of pages.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Column)> {
        self.0.iter().map(|(key, column)| (*key, column))
    }
}

/// Points that are no periods: a figure over whatever stands on the axis below. Thinned as a run is; a value that is not
/// finite is a gap.
pub(crate) fn of_points(points: &[(f64, f64)]) -> (Vec<Moment>, Column) {
    let each = points.len().div_ceil(MAX_POINTS as usize).max(1);
    let mut moments = Vec::new();
    let mut column = Column::new();
    for several in points.chunks(each) {
        let mut point = Point::UNKNOWN;
        let finite = several
            .iter()
            .map(|(_, value)| *value)
            .filter(|value| value.is_finite());
        finite.for_each(|value| point.add(value));
        column.push(point);
        moments.push(Moment {
            at_s: several.first().map_or(0.0, |first| first.0),
            end_s: several.last().map_or(0.0, |last| last.0),
            ..Moment::default()
        });
    }
    (moments, column)
}

/// The largest value of a column; 0 where there is none.
pub(crate) fn largest(column: &Column) -> f64 {
    column
        .iter()
        .filter(|point| point.is_known())
        .map(|point| point.high)
        .fold(0.0, f64::max)
}
