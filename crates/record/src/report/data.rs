//! What a report needs of one run, read from its file.

use super::columns::{Columns, MAX_POINTS, Moment};
use super::compared::Comparisons;
use super::decisions::Decisions;
use super::key::{self, Key};
use super::parts::Parts;
use crate::archive::{Archive, RunInfo, RunState};
use crate::error::Error;
use crate::figures::of_connections;
use crate::model::RunId;
use crate::summary::RunSummary;
use hdrhistogram::Histogram;
use headroom_units::Sensor;

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
    pub(crate) comparisons: Comparisons,
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
        let mut comparisons = Comparisons::default();
        let (mut row, mut expected) = (0_u64, Vec::new());
        archive.for_each_period(id, |period| {
            if row.is_multiple_of(periods_per_point) {
                moments.push(Moment::at(&period));
            }
            let values = key::of_period(&period);
            let levers = key::levers(&values);
            // A forecast stands in the record of the period in which it was made; it is drawn where it came due.
            let (foreseen, seen): (Vec<_>, Vec<_>) =
                values.into_iter().partition(|(key, _)| key.is_foreseen());
            for (key, value) in seen.into_iter().chain(std::mem::replace(&mut expected, foreseen)) {
                columns.add(moments.len(), key, value);
            }
            if let Some(moment) = moments.last_mut() {
                moment.add(&period, target);
            }
            parts.add(moments.len(), &period);
            decisions.add(&period, &levers);
            comparisons.add(&period);
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
            comparisons,
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
            // At an accept queue each retry of a SYN counts.
            Key::By(Sensor::ArrivalRate) if of_connections(&self.summary) => {
                "Connection attempts, retries included".to_owned()
            }
            Key::By(Sensor::Capacity) if of_connections(&self.summary) => {
                "Capacity, in connections".to_owned()
            }
            Key::CapacityAtLeast if of_connections(&self.summary) => {
                "Capacity, at least, in connections".to_owned()
            }
            Key::By(Sensor::FailureRate) if of_connections(&self.summary) => "SYNs dropped".to_owned(),
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
