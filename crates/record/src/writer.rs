//! The recorder's own thread: it alone touches the disk.

use crate::clock::unix_ms;
use crate::histogram::{self, Buckets};
use crate::limits::Limits;
use crate::model::{PeriodRecord, RunId, RunMeta};
use crate::prune::{Ages, prune};
use crate::recorder::Shared;
use crate::rows;
use crate::summary::RunSummary;
use crate::totals::RunTotals;
use headroom_units::Ratio;
use rusqlite::{Connection, ToSql, TransactionBehavior, params};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

/// How often totals and histograms are written while a run goes on: an interrupted run's percentiles end at most
/// this long before the run did.
pub(crate) const PERSIST_EVERY: Duration = Duration::from_secs(10);

/// Messages taken from the queue into one transaction.
const MAX_BATCH: usize = 256;

/// Rows after which the limits are looked at, besides every [`PERSIST_EVERY`]: a simulated run writes many a second.
const PRUNE_EVERY_ROWS: u64 = 1_000;

/// What the recorder's handles ask of its thread.
pub(crate) enum Message {
    Period {
        run: RunId,
        period: Box<PeriodRecord>,
        buckets: Buckets,
    },
    /// Anything else, which is done once the periods before it are written.
    Change(Box<dyn FnOnce(&mut Writer) + Send>),
}

/// A run that is being recorded.
pub(crate) struct OpenRun {
    meta: RunMeta,
    totals: RunTotals,
    dropped: Arc<AtomicU64>,
    unwritten: u64,
}

impl OpenRun {
    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The file that was opened, and which one it was.
pub(crate) struct OpenFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl OpenFile {
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            identity: identity(path),
        }
    }

    /// Why nobody will find in it what is written from now on.
    fn misplaced(&self) -> Option<String> {
        let now = identity(&self.path);
        let path = self.path.display();
        match (self.identity, now) {
            (Some(_), None) => Some(format!(
                "{path} was removed or renamed since the start: move it back, or start again, which makes another"
            )),
            (Some(then), Some(now)) if then != now => Some(format!(
                "{path} is another file than at the start: move the first one back, or start again"
            )),
            _ => None,
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}

pub(crate) struct Writer {
    connection: Connection,
    file: OpenFile,
    limits: Limits,
    shared: Arc<Shared>,
    open: BTreeMap<i64, OpenRun>,
    rows_since_prune: u64,
    ages: Ages,
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        file: OpenFile,
        limits: Limits,
        shared: Arc<Shared>,
    ) -> rusqlite::Result<Self> {
        let ages = Ages::at_opening(&connection, unix_ms(SystemTime::now()))?;
        Ok(Self {
            connection,
            file,
            limits,
            shared,
            open: BTreeMap::new(),
            rows_since_prune: 0,
            ages,
        })
    }

    /// Works until every handle is gone.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        self.prune();
        let mut next_persist = Instant::now() + PERSIST_EVERY;
        loop {
            let wait = next_persist.saturating_duration_since(Instant::now());
            match messages.recv_timeout(wait) {
                Ok(first) => {
                    let mut batch = vec![first];
                    batch.extend(messages.try_iter().take(MAX_BATCH - 1));
                    self.apply(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let persist_due = Instant::now() >= next_persist;
            if persist_due || self.rows_since_prune >= PRUNE_EVERY_ROWS {
                self.persist_all();
                self.prune();
                next_persist = Instant::now() + PERSIST_EVERY;
            }
        }
        let left: Vec<i64> = self.open.keys().copied().collect();
        for run in left {
            self.abandon(run);
        }
    }

    fn apply(&mut self, batch: Vec<Message>) {
        let mut periods = Vec::new();
        for message in batch {
            match message {
                Message::Period { run, period, buckets } => periods.push((run.0, period, buckets)),
                Message::Change(change) => {
                    // It is about the state that the periods before it lead to.
                    self.write_periods(&mut periods);
                    change(self);
                }
            }
        }
        self.write_periods(&mut periods);
    }

    pub(crate) fn start(&mut self, meta: RunMeta, dropped: Arc<AtomicU64>) -> rusqlite::Result<RunId> {
        let id = rows::insert_run(&self.connection, &meta, unix_ms(SystemTime::now()))?;
        let totals = RunTotals::new(meta.slo.map(|slo| slo.target))
            .unmeasured(meta.slo.and_then(|slo| slo.unmeasured()))
            .with_usual_period(meta.period);
        self.open.insert(
            id,
            OpenRun {
                meta,
                totals,
                dropped,
                unwritten: 0,
            },
        );
        self.persist(id)?;
        self.persist_all();
        self.prune();
        Ok(RunId(id))
    }

    /// Adds periods to their runs' totals, and writes their rows in one transaction. The totals hold whatever the
    /// disk does; rows that it refuses are counted.
    fn write_periods(&mut self, periods: &mut Vec<(i64, Box<PeriodRecord>, Buckets)>) {
        if periods.is_empty() {
            return;
        }
        let is_lost = self.is_lost(periods.len() as u64);
        for (run, period, buckets) in periods.iter() {
            if let Some(open) = self.open.get_mut(run) {
                open.totals.add_buckets(period, buckets);
                open.unwritten += u64::from(is_lost);
            }
        }
        if is_lost {
            periods.clear();
            return;
        }
        let result = self.insert_rows(periods);
        let rows = periods.len() as u64;
        match result {
            Ok(()) => {
                self.rows_since_prune += rows;
                self.shared.written(rows);
            }
            Err(error) => {
                for (run, ..) in periods.iter() {
                    if let Some(open) = self.open.get_mut(run) {
                        open.unwritten += 1;
                    }
                }
                self.shared.failed(rows, "writing periods", &error);
            }
        }
        periods.clear();
    }

    /// Whether the file is not where it was opened. Nothing is written then: what its log (WAL) has goes into it, for the log stays under the
    /// file's name, and whoever puts another there would have it replayed into that.
    fn is_lost(&self, rows: u64) -> bool {
        let Some(why) = self.file.misplaced() else {
            return false;
        };
        let emptied = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error) = emptied {
            tracing::debug!(%error, "what was written last may be missing from the flight recorder's file");
        }
        self.shared.lost(rows, why);
        true
    }

    fn insert_rows(&mut self, periods: &[(i64, Box<PeriodRecord>, Buckets)]) -> rusqlite::Result<()> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (run, period, _) in periods {
            rows::insert_period(&transaction, *run, period)?;
        }
        transaction.commit()
    }

    pub(crate) fn note(&mut self, run: i64, text: &str) {
        if let Err(error) = self.add_note(run, text) {
            self.shared.failed(0, "writing a note", &error);
        }
    }

    fn add_note(&mut self, run: i64, text: &str) -> rusqlite::Result<()> {
        let mut notes = match self.open.get(&run) {
            Some(open) => open.meta.notes.clone(),
            // It has ended: what is known of it is in the file.
            None => rows::notes_of(&self.connection, run)?,
        };
        if notes.len() >= rows::MAX_NOTES || notes.iter().any(|note| note == text) {
            return Ok(());
        }
        notes.push(rows::cut(text, rows::MAX_TEXT_BYTES));
        let written = rows::notes_text(&notes);
        // The totals of a run go by its notes in memory, whatever the disk says to this.
        if let Some(open) = self.open.get_mut(&run) {
            open.meta.notes = notes;
        }
        if self.is_lost(0) {
            return Ok(());
        }
        self.connection
            .execute("UPDATE runs SET notes = ?2 WHERE id = ?1", params![run, written])?;
        Ok(())
    }

    pub(crate) fn describe(&mut self, run: i64, config: &str) -> rusqlite::Result<()> {
        let config = rows::cut(config, rows::MAX_CONFIG_BYTES);
        if !self.is_lost(0) {
            self.update(run, "config", &config)?;
        }
        if let Some(open) = self.open.get_mut(&run) {
            open.meta.config = config;
        }
        Ok(())
    }

    fn update(&self, run: i64, column: &str, value: &dyn ToSql) -> rusqlite::Result<()> {
        let sql = format!("UPDATE runs SET {column} = ?2 WHERE id = ?1");
        match self.connection.execute(&sql, params![run, value])? {
            0 => Err(rusqlite::Error::QueryReturnedNoRows),
            _ => Ok(()),
        }
    }

    pub(crate) fn keep_bystanders(&self, run: i64, share: Ratio) -> rusqlite::Result<()> {
        if self.is_lost(0) {
            return Ok(());
        }
        self.update(run, "bystanders", &share.get())
    }

    /// Writes a run's totals and histogram, which together cover the same periods.
    fn persist(&self, run: i64) -> rusqlite::Result<()> {
        let Some(open) = self.open.get(&run) else {
            return Ok(());
        };
        let unwritable = |error: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
        let totals = serde_json::to_string(open.totals.counts()).map_err(unwritable)?;
        let buckets = histogram::buckets(open.totals.latency());
        let histogram = serde_json::to_string(&buckets).map_err(unwritable)?;
        self.connection
            .prepare_cached(
                "UPDATE runs SET totals = ?2, histogram = ?3, covered = ?4, updated_at = ?5, dropped = ?6,
                    unwritten = ?7 WHERE id = ?1",
            )?
            .execute(params![
                run,
                totals,
                histogram,
                open.totals.counts().last_index.map_or(-1, rows::count),
                unix_ms(SystemTime::now()),
                rows::count(open.dropped()),
                rows::count(open.unwritten),
            ])?;
        Ok(())
    }

    fn persist_all(&mut self) {
        if self.open.is_empty() || self.is_lost(0) {
            return;
        }
        for &run in self.open.keys() {
            if let Err(error) = self.persist(run) {
                self.shared.failed(0, "writing a run's totals", &error);
                return;
            }
        }
        if !self.open.is_empty() {
            self.shared.written(0);
        }
    }

    /// Ends a run; its summary comes from memory, so it is whole even where the disk refused rows.
    pub(crate) fn finish(&mut self, run: i64, ended_at: SystemTime) -> Option<RunSummary> {
        self.close(run, "finished", Some(unix_ms(ended_at)));
        let open = self.open.remove(&run)?;
        self.prune();
        let mut summary = open.totals.summary(&open.meta);
        finish_summary(&mut summary, RunId(run), open.dropped(), open.unwritten);
        Some(summary)
    }

    pub(crate) fn abandon(&mut self, run: i64) {
        self.close(run, "abandoned", None);
        self.open.remove(&run);
    }

    fn close(&mut self, run: i64, state: &str, ended_at_ms: Option<i64>) {
        if self.is_lost(0) {
            return;
        }
        let result = self.persist(run).and_then(|()| {
            self.connection.execute(
                "UPDATE runs SET state = ?2, ended_at = ?3 WHERE id = ?1",
                params![run, state, ended_at_ms],
            )
        });
        if let Err(error) = result {
            self.shared.failed(0, "writing the end of a run", &error);
        }
    }

    fn prune(&mut self) {
        if self.file.misplaced().is_some() {
            return;
        }
        self.rows_since_prune = 0;
        let now_ms = unix_ms(SystemTime::now());
        if let Err(error) = prune(
            &mut self.connection,
            &self.limits,
            &self.open,
            now_ms,
            &mut self.ages,
        ) {
            self.shared
                .failed(0, "keeping the file inside its limits", &error);
        }
    }
}

/// Adds to a summary what only the recorder knows.
pub(crate) fn finish_summary(summary: &mut RunSummary, run: RunId, dropped: u64, unwritten: u64) {
    summary.run = Some(run);
    summary.dropped_periods = dropped;
    if dropped > 0 {
        summary.notes.push(format!(
            "{dropped} periods were dropped by the recorder because its disk was too slow: they are in none of the sums"
        ));
    }
    if unwritten > 0 {
        summary.notes.push(format!(
            "{unwritten} periods could not be written to the recorder's disk: they are in the sums, but not in plots, tables or exports"
        ));
    }
}
