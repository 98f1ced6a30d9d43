//! A run as columns over time, thinned to what a plot can show.

use super::decisions::Decisions;
use super::key::{self, Key};
use super::parts::Parts;
use crate::archive::{Archive, RunInfo, RunState};
use crate::error::Error;
use crate::model::{PeriodRecord, RunId};
use crate::summary::RunSummary;
use hdrhistogram::Histogram;
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
    /// Whether a period's latency was over the target.
    pub(crate) over: bool,
    /// Whether a period's telemetry was lost.
    pub(crate) lost: bool,
    periods: u32,
    periods_over: u32,
    worst_ms: f64,
}

impl Moment {
    fn at(period: &PeriodRecord) -> Self {
        Self {
            at_s: period.at.get(),
            index: period.index,
            worst_ms: f64::NEG_INFINITY,
            ..Self::default()
        }
    }

    fn add(&mut self, period: &PeriodRecord, target: Option<Seconds>) {
        self.end_s = (period.at + period.duration).get();
        let over = period.slo_latency.zip(target);
        let over = over.is_some_and(|(latency, target)| latency > target);
        self.over |= over;
        self.periods += 1;
        self.periods_over += u32::from(over);
        self.lost |= period.telemetry_lost;
        let worst_ms = period.slo_latency.map_or(f64::NEG_INFINITY, Seconds::as_millis);
        if worst_ms >= self.worst_ms
            && let Some(reason) = period.reasons.first()
        {
            self.worst_ms = worst_ms;
            self.why = format!("{}: {}", reason.rule, reason.text);
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

/// Everything that a report shows of one run.
pub(crate) struct RunData {
    pub(crate) info: RunInfo,
    pub(crate) summary: RunSummary,
    pub(crate) latencies: Histogram<u64>,
    pub(crate) moments: Vec<Moment>,
    /// What is known of the whole.
    pub(crate) columns: Columns,
    pub(crate) parts: Parts,
    pub(crate) decisions: Decisions,
    /// Periods that one point stands for.
    pub(crate) periods_per_point: u64,
}

impl RunData {
    pub(crate) fn load(archive: &Archive, id: RunId) -> Result<Self, Error> {
        let info = archive.run(id)?;
        let (mut summary, totals) = archive.totals(id)?;
        let target = info.meta.slo.map(|slo| slo.target);
        let periods_per_point = info.rows.div_ceil(MAX_POINTS).max(1);
        let (mut moments, mut columns) = (Vec::new(), Columns::default());
        let mut parts = Parts::default();
        let mut decisions = Decisions::new(target);
        let (mut row, mut expected) = (0_u64, None);
        archive.for_each_period(id, |period| {
            if row.is_multiple_of(periods_per_point) {
                moments.push(Moment::at(&period));
            }
            let mut values = key::of_period(&period);
            let levers = key::levers(&values);
            // A forecast stands in the record of the period in which it was made; it is drawn where it came due.
            let due = std::mem::replace(&mut expected, values.remove(&Key::Forecast));
            let due = due.map(|rate| (Key::Forecast, rate));
            for (key, value) in values.into_iter().chain(due) {
                columns.add(moments.len(), key, value);
            }
            if let Some(moment) = moments.last_mut() {
                moment.add(&period, target);
            }
            parts.add(moments.len(), &period);
            decisions.add(&period, &levers);
            row += 1;
            Ok(())
        })?;
        decisions.end();
        parts.end();
        if info.pruned > 0 {
            summary.notes.push(format!(
                "the recorder removed the first {} periods to stay inside its size limit: plots and tables begin after \
                 them, the figures cover all of the run",
                info.pruned
            ));
        }
        if info.state == RunState::Running {
            summary
                .notes
                .push("the run is still being recorded: these are its figures so far".to_owned());
        }
        Ok(Self {
            info,
            summary,
            latencies: totals.latency().clone(),
            moments,
            columns,
            parts,
            decisions,
            periods_per_point,
        })
    }

    /// The target of the run's SLO, in milliseconds.
    pub(crate) fn target_ms(&self) -> Option<f64> {
        self.info.meta.slo.map(|slo| slo.target.as_millis())
    }

    /// What the latency that the SLO is of is called: `P95`.
    pub(crate) fn slo_name(&self) -> String {
        self.info
            .meta
            .slo
            .map_or_else(|| "latency".to_owned(), |slo| slo.name())
    }

    /// What a quantity of the whole is called.
    pub(crate) fn title(&self, key: Key) -> String {
        match key {
            Key::Slo => self.slo_name(),
            key => key.title(),
        }
    }

    /// Start and end of what the columns hold, in seconds.
    pub(crate) fn span(&self) -> (f64, f64) {
        let start = self.moments.first().map_or(0.0, |moment| moment.at_s);
        (start, self.moments.last().map_or(start, |moment| moment.end_s))
    }
}

/// Start of the first and end of the last of several runs, in seconds.
pub(crate) fn whole_span(runs: &[RunData]) -> (f64, f64) {
    runs.iter()
        .map(RunData::span)
        .fold((f64::INFINITY, 0.0_f64), |whole, one| {
            (whole.0.min(one.0), whole.1.max(one.1))
        })
}
