//! Reading a recorder file.

mod past;

pub use past::PastLoad;

use crate::clock::{from_unix_ms, unix_ms, utc_text};
use crate::error::Error;
use crate::histogram::Buckets;
use crate::model::{PeriodRecord, RunId, RunMeta};
use crate::prune::is_being_recorded;
use crate::rows::{META_COLUMNS, PERIOD_COLUMNS, last_parts, read_meta, read_parts, read_period};
use crate::schema;
use crate::summary::RunSummary;
use crate::totals::{Counts, RunTotals};
use crate::writer::finish_summary;
use hdrhistogram::Histogram;
use headroom_units::{Ratio, Role};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Candidates that an error about a run names at most.
const MAX_CANDIDATES: i64 = 10;

/// A recorder file, open for reading; another process may be writing it.
pub struct Archive {
    pub(crate) connection: Connection,
    path: PathBuf,
}

/// Whether a run has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// It is being recorded.
    Running,
    /// It ended in order.
    Finished,
    /// Its process was killed, or gave it up.
    Interrupted,
}

impl RunState {
    /// The word shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run as a list of runs shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInfo {
    /// Its number.
    pub id: RunId,
    /// Its description.
    pub meta: RunMeta,
    /// When it ended; `None` where it has not, or nobody wrote it down.
    pub ended_at: Option<SystemTime>,
    /// The writer's last sign of life.
    pub updated_at: SystemTime,
    /// Whether it has ended.
    pub state: RunState,
    /// Rows of periods in the file.
    pub rows: u64,
    /// Rows that were removed to stay inside the size limit; the summary covers them.
    pub pruned: u64,
    /// How many parts it had of each role, and in which states, when any was last recorded.
    pub parts: Vec<(Role, Option<String>, u64)>,
}

impl Archive {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// There is no such file, it cannot be read, is no recorder file, or another version's.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            connection: schema::open_reader(path)?,
            path: path.to_owned(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// So many runs at most, the latest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn runs(&self, at_most: u32) -> Result<Vec<RunInfo>, Error> {
        self.list("ORDER BY id DESC LIMIT ?1", params![at_most])
    }

    fn list(&self, condition: &str, values: &[&dyn ToSql]) -> Result<Vec<RunInfo>, Error> {
        let now_ms = unix_ms(SystemTime::now());
        let read = || -> rusqlite::Result<Vec<RunInfo>> {
            let mut statement = self.connection.prepare(&format!(
                "SELECT {META_COLUMNS}, id, ended_at, updated_at, state, writer, pruned,
                    (SELECT count(*) FROM periods WHERE run = runs.id) AS kept_rows
                    FROM runs {condition}"
            ))?;
            let mut runs: Vec<RunInfo> = statement
                .query_map(values, |row| read_info(row, now_ms))?
                .collect::<Result<_, _>>()?;
            for run in &mut runs {
                run.parts = last_parts(&self.connection, run.id.0)?;
            }
            Ok(runs)
        };
        read().map_err(|source| self.database("listing runs", source))
    }

    /// One run by its number.
    ///
    /// # Errors
    /// There is no such run; the error lists which there are.
    pub fn run(&self, id: RunId) -> Result<RunInfo, Error> {
        let found = self.list("WHERE id = ?1", params![id.0])?.pop();
        found.ok_or_else(|| self.no_such_run(&id.to_string()))
    }

    /// One run as people ask for it: its number, `latest`, its name, or the start of its name where that names one
    /// run only.
    ///
    /// # Errors
    /// No run fits, or several do; the error lists the candidates.
    pub fn find(&self, asked: &str) -> Result<RunInfo, Error> {
        let one = |mut found: Vec<RunInfo>| match found.len() {
            0 => Ok(None),
            1 => Ok(found.pop()),
            _ => Err(Error::Ambiguous {
                path: self.path.clone(),
                asked: asked.to_owned(),
                candidates: candidates(&found),
            }),
        };
        let number = asked.parse::<i64>().ok();
        let (latest, id) = (asked == "latest", number.unwrap_or(-1));
        let ways: [(bool, &str, &[&dyn ToSql]); 4] = [
            (latest, "ORDER BY id DESC LIMIT 1", params![]),
            (number.is_some(), "WHERE id = ?1", params![id]),
            (
                !latest,
                "WHERE name = ?1 ORDER BY id DESC LIMIT ?2",
                params![asked, MAX_CANDIDATES],
            ),
            (
                !latest,
                "WHERE substr(name, 1, length(?1)) = ?1 AND ?1 <> '' ORDER BY id DESC LIMIT ?2",
                params![asked, MAX_CANDIDATES],
            ),
        ];
        for (applies, condition, values) in ways {
            if applies && let Some(run) = one(self.list(condition, values)?)? {
                return Ok(run);
            }
        }
        Err(self.no_such_run(asked))
    }

    fn no_such_run(&self, asked: &str) -> Error {
        let there = self
            .list("ORDER BY id DESC LIMIT ?1", params![MAX_CANDIDATES])
            .unwrap_or_default();
        let candidates = if there.is_empty() {
            "The file holds no run yet".to_owned()
        } else {
            format!("The latest are: {}", candidates(&there))
        };
        Error::NoSuchRun {
            path: self.path.clone(),
            asked: asked.to_owned(),
            candidates,
        }
    }

    /// Calls with each of a run's periods that the file holds, in order. Holds one period in memory at a time.
    ///
    /// # Errors
    /// The file cannot be read, a row is damaged, or what is called fails.
    pub fn for_each_period(
        &self,
        id: RunId,
        mut visit: impl FnMut(PeriodRecord) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.periods_after(id, -1, &mut visit)
    }

    /// A run's periods, all in memory: about a kilobyte each. For long runs use [`Archive::for_each_period`].
    ///
    /// # Errors
    /// As [`Archive::for_each_period`].
    pub fn periods(&self, id: RunId) -> Result<Vec<PeriodRecord>, Error> {
        let mut periods = Vec::new();
        self.for_each_period(id, |period| {
            periods.push(period);
            Ok(())
        })?;
        Ok(periods)
    }

    /// Whether any part of a run was recorded.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn has_parts(&self, id: RunId) -> Result<bool, Error> {
        let asked = "SELECT EXISTS (SELECT 1 FROM parts WHERE run = ?1)";
        self.connection
            .query_row(asked, [id.0], |row| row.get(0))
            .map_err(|source| self.database("reading a run's parts", source))
    }

    fn periods_after(
        &self,
        id: RunId,
        after: i64,
        visit: &mut dyn FnMut(PeriodRecord) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let failed = |source| self.row_error(id, "a period", source);
        let mut statement = self
            .connection
            .prepare_cached(&format!(
                "SELECT {PERIOD_COLUMNS} FROM periods WHERE run = ?1 AND idx > ?2 ORDER BY idx"
            ))
            .map_err(failed)?;
        let mut rows = statement.query(params![id.0, after]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let mut period = read_period(row).map_err(failed)?;
            period.parts = read_parts(&self.connection, id.0, period.index).map_err(failed)?;
            visit(period)?;
        }
        Ok(())
    }

    /// A run's summary. Of a run that ended in order it is what [`crate::RunRecorder::finish`] answered; of one that
    /// is running or was interrupted it covers every period in the file, with the latency percentiles of all but the
    /// last few seconds (a note says how many periods those are).
    ///
    /// # Errors
    /// There is no such run, the file cannot be read, or what it holds is damaged.
    pub fn summary(&self, id: RunId) -> Result<RunSummary, Error> {
        Ok(self.totals(id)?.0)
    }

    /// The latencies of a run, in microseconds: all that its percentiles are computed from.
    ///
    /// # Errors
    /// As [`Archive::summary`].
    pub fn latencies(&self, id: RunId) -> Result<Histogram<u64>, Error> {
        Ok(self.totals(id)?.1.latency().clone())
    }

    pub(crate) fn totals(&self, id: RunId) -> Result<(RunSummary, RunTotals), Error> {
        let info = self.run(id)?;
        // What covers which periods is read in one statement; rows after it are added in the order in which they
        // were written, so that the sums are the same to the last bit as the recorder's own.
        let asked =
            "SELECT totals, histogram, covered, dropped, unwritten, bystanders FROM runs WHERE id = ?1";
        type TotalsRow = (String, String, i64, i64, i64, Option<f64>);
        let row = self
            .connection
            .query_row(asked, [id.0], |row| TotalsRow::try_from(row))
            .optional();
        let (counts, buckets, covered, dropped, unwritten, bystanders) = row
            .map_err(|source| self.database("reading a run's totals", source))?
            .ok_or_else(|| self.no_such_run(&id.to_string()))?;
        let damaged = |what| {
            move |error: serde_json::Error| Error::Damaged {
                path: self.path.clone(),
                run: id.0,
                what,
                detail: error.to_string(),
            }
        };
        let counts: Counts = serde_json::from_str(&counts).map_err(damaged("its totals"))?;
        let buckets: Buckets = serde_json::from_str(&buckets).map_err(damaged("its latency histogram"))?;
        let mut totals = RunTotals::resume(info.meta.slo.map(|slo| slo.target), counts, &buckets)
            .unmeasured(info.meta.slo.and_then(|slo| slo.unmeasured()))
            .with_usual_period(info.meta.period);
        let mut uncovered = 0_u64;
        self.periods_after(id, covered, &mut |period| {
            uncovered += u64::from(period.completions > 0);
            totals.add_row(&period);
            Ok(())
        })?;
        let mut summary = totals.summary(&info.meta);
        let natural = |value: i64| u64::try_from(value).unwrap_or(0);
        finish_summary(&mut summary, id, natural(dropped), natural(unwritten));
        summary.conditions.bystanders = bystanders.map(Ratio::new);
        if uncovered > 0 {
            summary.notes.push(format!(
                "the run is {}: the latency percentiles of the whole run leave out its last {uncovered} periods",
                info.state
            ));
        }
        if info.state == RunState::Interrupted {
            summary.notes.push(format!(
                "the run was interrupted: it has no end, its last sign of life is {}",
                utc_text(unix_ms(info.updated_at))
            ));
        }
        Ok((summary, totals))
    }

    fn database(&self, doing: &'static str, source: rusqlite::Error) -> Error {
        Error::Database {
            path: self.path.clone(),
            doing,
            source,
        }
    }

    pub(crate) fn row_error(&self, id: RunId, what: &'static str, source: rusqlite::Error) -> Error {
        match source {
            rusqlite::Error::FromSqlConversionFailure(_, _, detail) => Error::Damaged {
                path: self.path.clone(),
                run: id.0,
                what,
                detail: detail.to_string(),
            },
            source => self.database("reading periods", source),
        }
    }
}

fn read_info(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<RunInfo> {
    let meta = read_meta(row)?;
    let updated_at: i64 = row.get("updated_at")?;
    let state: String = row.get("state")?;
    let writer: Option<String> = row.get("writer")?;
    let state = match state.as_str() {
        "finished" => RunState::Finished,
        "running" if is_being_recorded(updated_at, writer.as_deref(), now_ms) => RunState::Running,
        _ => RunState::Interrupted,
    };
    let natural = |value: i64| u64::try_from(value).unwrap_or(0);
    Ok(RunInfo {
        id: RunId(row.get("id")?),
        meta,
        ended_at: row.get::<_, Option<i64>>("ended_at")?.map(from_unix_ms),
        updated_at: from_unix_ms(updated_at),
        state,
        rows: natural(row.get("kept_rows")?),
        pruned: natural(row.get("pruned")?),
        parts: Vec::new(),
    })
}

fn candidates(runs: &[RunInfo]) -> String {
    let named = runs.iter().map(|run| {
        let (meta, started) = (&run.meta, utc_text(unix_ms(run.meta.started_at)));
        format!("{} ({}, {}, {started})", run.id, meta.name, meta.law)
    });
    named.collect::<Vec<_>>().join("; ")
}
