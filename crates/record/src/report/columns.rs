//! A run as columns over time, thinned to what a plot can show.

use super::decisions::Decisions;
use crate::archive::{Archive, RunInfo, RunState};
use crate::error::Error;
use crate::model::{PeriodRecord, RunId};
use crate::summary::RunSummary;
use hdrhistogram::Histogram;
use headroom_units::{Cores, PerSecond, Ratio, Seconds, Source, Watts};

/// Points that a plot's line has at most. A longer run is thinned: a point then stands for several periods and keeps
/// their smallest and largest value.
pub(crate) const POINTS_MAX: u64 = 1_200;

/// The sources in the order in which their columns are kept.
pub(crate) const SOURCES: [Source; 4] = [
    Source::Measured,
    Source::Estimated,
    Source::Emulated,
    Source::Simulated,
];

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

    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.low = self.low.min(value);
            self.high = self.high.max(value);
            self.sum += value;
            self.count += 1;
        }
    }

    /// Whether any of the periods has a value.
    pub(crate) fn is_known(self) -> bool {
        self.count > 0
    }

    /// The mean of the periods that have a value.
    pub(crate) fn mean(self) -> Option<f64> {
        self.is_known().then(|| self.sum / f64::from(self.count))
    }

    /// The largest value.
    pub(crate) fn max(self) -> Option<f64> {
        self.is_known().then_some(self.high)
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
    /// Whether most of its periods were over the target.
    pub(crate) fn mostly_over(&self) -> bool {
        self.periods_over * 2 > self.periods
    }
}

/// The columns of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) moments: Vec<Moment>,
    pub(crate) slo_ms: Column,
    pub(crate) p50_ms: Column,
    pub(crate) p99_ms: Column,
    pub(crate) cores: Column,
    pub(crate) cap_w: Column,
    /// Power by source, in the order of [`SOURCES`].
    pub(crate) power_w: [Column; 4],
    pub(crate) ratio: Column,
    pub(crate) utilisation: Column,
    pub(crate) throttled: Column,
    pub(crate) rate: Column,
    pub(crate) forecast: Column,
    pub(crate) failures: Column,
    pub(crate) frequency_ghz: Column,
    pub(crate) frequency_limit_ghz: Column,
    /// What the period before expected of this one.
    expected: Option<f64>,
}

impl Columns {
    fn all(&mut self) -> [&mut Column; 17] {
        let [one, two, three, four] = &mut self.power_w;
        [
            &mut self.slo_ms,
            &mut self.p50_ms,
            &mut self.p99_ms,
            &mut self.cores,
            &mut self.cap_w,
            one,
            two,
            three,
            four,
            &mut self.ratio,
            &mut self.utilisation,
            &mut self.throttled,
            &mut self.rate,
            &mut self.forecast,
            &mut self.failures,
            &mut self.frequency_ghz,
            &mut self.frequency_limit_ghz,
        ]
    }

    fn add(&mut self, period: &PeriodRecord, new_point: bool, target: Option<Seconds>) {
        if new_point || self.moments.is_empty() {
            self.moments.push(Moment {
                at_s: period.at.get(),
                index: period.index,
                worst_ms: f64::NEG_INFINITY,
                ..Moment::default()
            });
            self.all()
                .into_iter()
                .for_each(|column| column.push(Point::UNKNOWN));
        }
        let power = period.mean_power();
        let by_source = |wanted: Source| {
            power
                .filter(|power| power.source == wanted)
                .map(|power| power.value.get())
        };
        let ratio = power
            .zip(period.cap)
            .filter(|(_, cap)| *cap > Watts::ZERO)
            .map(|(power, cap)| power.value / cap);
        let length = period.duration.get();
        let per_second = |count: u64| (length > 0.0).then(|| count as f64 / length);
        let slo_ms = period.slo_latency.map(Seconds::as_millis);
        // A forecast stands in the record of the period in which it was made; it is drawn where it came due.
        let expected = std::mem::replace(&mut self.expected, period.forecast.map(PerSecond::get));
        let values = [
            slo_ms,
            period.latency.map(|latency| latency.p50.as_millis()),
            period.latency.map(|latency| latency.p99.as_millis()),
            period.cores.map(Cores::get),
            period.cap.map(Watts::get),
            by_source(SOURCES[0]),
            by_source(SOURCES[1]),
            by_source(SOURCES[2]),
            by_source(SOURCES[3]),
            ratio,
            period.utilisation.map(Ratio::as_percent),
            period.throttled.map(Ratio::as_percent),
            per_second(period.arrivals).filter(|_| !period.telemetry_lost || period.arrivals > 0),
            expected,
            Some(period.failures as f64),
            period.frequency.map(|frequency| frequency.get() / 1e9),
            period.frequency_limit.map(|limit| limit.get() / 1e9),
        ];
        for (column, value) in self.all().into_iter().zip(values) {
            if let Some(point) = column.last_mut() {
                point.add(value);
            }
        }
        if let Some(moment) = self.moments.last_mut() {
            moment.end_s = period.at.get() + length;
            let over = period
                .slo_latency
                .zip(target)
                .is_some_and(|(latency, target)| latency > target);
            moment.over |= over;
            moment.periods += 1;
            moment.periods_over += u32::from(over);
            moment.lost |= period.telemetry_lost;
            let worst_ms = slo_ms.unwrap_or(f64::NEG_INFINITY);
            if worst_ms >= moment.worst_ms
                && let Some(reason) = period.reasons.first()
            {
                moment.worst_ms = worst_ms;
                moment.why = format!("{}: {}", reason.rule, reason.text);
            }
        }
    }
}

/// Points that are no periods: a figure over whatever stands on the axis below. Thinned as a run is; a value that is not
/// finite is a gap.
pub(crate) fn of_points(points: &[(f64, f64)]) -> (Vec<Moment>, Column) {
    let each = points.len().div_ceil(POINTS_MAX as usize).max(1);
    let mut moments = Vec::new();
    let mut column = Column::new();
    for several in points.chunks(each) {
        let mut point = Point::UNKNOWN;
        several.iter().for_each(|(_, value)| point.add(Some(*value)));
        column.push(point);
        moments.push(Moment {
            at_s: several.first().map_or(0.0, |first| first.0),
            end_s: several.last().map_or(0.0, |last| last.0),
            ..Moment::default()
        });
    }
    (moments, column)
}

/// Whether a column has a value anywhere.
pub(crate) fn is_known(column: &Column) -> bool {
    column.iter().any(|point| point.is_known())
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
    pub(crate) columns: Columns,
    pub(crate) decisions: Decisions,
    /// Periods that one point stands for.
    pub(crate) periods_per_point: u64,
}

impl RunData {
    pub(crate) fn load(archive: &Archive, id: RunId) -> Result<Self, Error> {
        let info = archive.run(id)?;
        let (mut summary, totals) = archive.totals(id)?;
        let target = info.meta.slo.map(|slo| slo.target);
        let periods_per_point = info.rows.div_ceil(POINTS_MAX).max(1);
        let mut columns = Columns::default();
        let mut decisions = Decisions::new(target);
        let mut row = 0_u64;
        archive.for_each_period(id, |period| {
            columns.add(&period, row.is_multiple_of(periods_per_point), target);
            decisions.add(&period);
            row += 1;
            Ok(())
        })?;
        decisions.end();
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
            columns,
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

    /// Start and end of what the columns hold, in seconds.
    pub(crate) fn span(&self) -> (f64, f64) {
        let moments = &self.columns.moments;
        let start = moments.first().map_or(0.0, |moment| moment.at_s);
        (start, moments.last().map_or(start, |moment| moment.end_s))
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
