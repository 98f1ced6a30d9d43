//! Keeping a recorder file inside its limits.

use crate::limits::Limits;
use crate::writer::OpenRun;
use rusqlite::{Connection, TransactionBehavior, params};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a run without an end counts as one that may still be recorded by another process, since its writer's
/// last sign of life, where that process cannot be asked.
pub(crate) const SILENCE_MS: i64 = 60_000;

/// The share of the size limit down to which is pruned, so that not every period prunes again.
const TARGET_SHARE: f64 = 0.9;

/// Rows removed in one transaction: short ones leave other writers room.
const ROWS_AT_ONCE: i64 = 2_000;

/// Periods of a run which are not removed while the run itself stays.
const PERIODS_KEPT: i64 = 60;

/// Pages given back to the file system in one step.
const PAGES_AT_ONCE: i64 = 2_000;

/// The share of the runs that one opening of the file may remove for their age.
const MAX_AGED_SHARE: usize = 10;

/// Names that one message holds.
const MAX_NAMED: usize = 10;

/// By what the age of runs is counted, for one opening of a file: from the newest record that was there then, and on with a
/// clock that nobody sets. A wall clock that is wrong by years makes no run old.
#[derive(Debug)]
pub(crate) struct Ages {
    newest_ms: i64,
    opened: Instant,
    /// Runs that may still be removed for their age.
    left: usize,
}

impl Ages {
    /// Of a file as it is when it is opened; of one without a run from now on.
    pub(crate) fn at_opening(connection: &Connection, now_ms: i64) -> rusqlite::Result<Self> {
        let (runs, newest): (i64, Option<i64>) = connection.query_row(
            "SELECT count(*), max(coalesce(ended_at, updated_at)) FROM runs",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let runs = usize::try_from(runs).unwrap_or(0);
        Ok(Self {
            newest_ms: newest.unwrap_or(now_ms),
            opened: Instant::now(),
            left: (runs / MAX_AGED_SHARE).max(1),
        })
    }

    /// Runs that ended before this are too old, in Unix time.
    fn too_old_ms(&self, max_age: Duration) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.newest_ms
            .saturating_add(ms(self.opened.elapsed()))
            .saturating_sub(ms(max_age))
    }
}

/// Runs that were removed, to be said in one message.
#[derive(Default)]
struct Removed {
    count: usize,
    names: Vec<String>,
}

impl Removed {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < MAX_NAMED {
            self.names.push(name);
        }
    }

    fn say(&self, why: &str) {
        let (count, names) = (self.count, self.names.join(", "));
        match count - self.names.len() {
            _ if count == 0 => {}
            0 => tracing::warn!("the recorder removed {count} runs ({why}): {names}"),
            more => tracing::warn!("the recorder removed {count} runs ({why}): {names} and {more} more"),
        }
    }
}

/// Removes what exceeds the limits, and says which runs went. Of a run that stays only rows go that its stored totals
/// cover. For their age at most a tenth of the runs go at one opening of the file, at least one.
pub(crate) fn prune(
    connection: &mut Connection,
    limits: &Limits,
    open: &BTreeMap<i64, OpenRun>,
    now_ms: i64,
    ages: &mut Ages,
) -> rusqlite::Result<()> {
    let mut removed = false;
    let mut aged = Removed::default();
    let too_old = ages.too_old_ms(limits.max_age);
    while ages.left > 0
        && let Some(run) = oldest_removable(connection, open, now_ms, too_old, None)?
    {
        aged.add(remove_run(connection, run)?);
        ages.left -= 1;
        removed = true;
    }
    let days = limits.max_age.as_secs_f64() / 86_400.0;
    aged.say(&format!("more than {days} days older than the newest record"));
    let mut large = Removed::default();
    let max_bytes = i64::try_from(limits.max_bytes).unwrap_or(i64::MAX);
    if used_bytes(connection)? > max_bytes {
        let latest: Option<i64> = connection.query_row("SELECT max(id) FROM runs", [], |row| row.get(0))?;
        let target = (max_bytes as f64 * TARGET_SHARE) as i64;
        while used_bytes(connection)? > target {
            if let Some(run) = oldest_removable(connection, open, now_ms, i64::MAX, latest)? {
                large.add(remove_run(connection, run)?);
            } else if !remove_oldest_periods(connection, open.keys().copied().chain(latest), target)? {
                break;
            }
            removed = true;
        }
    }
    large.say(&format!("the file exceeds {} bytes", limits.max_bytes));
    if removed {
        shrink(connection)?;
    }
    Ok(())
}

/// Bytes in use, without the pages that only wait to be given back.
fn used_bytes(connection: &Connection) -> rusqlite::Result<i64> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    Ok((pragma("page_count")? - pragma("freelist_count")?) * pragma("page_size")?)
}

/// The oldest run that ended before a time, is recorded by nobody and is not the one to be kept.
fn oldest_removable(
    connection: &Connection,
    open: &BTreeMap<i64, OpenRun>,
    now_ms: i64,
    ended_before_ms: i64,
    kept: Option<i64>,
) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, state, updated_at, writer FROM runs WHERE coalesce(ended_at, updated_at) < ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([ended_before_ms])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let state: String = row.get(1)?;
        let writer: Option<String> = row.get(3)?;
        let in_use = kept == Some(id)
            || open.contains_key(&id)
            || state == "running" && is_being_recorded(row.get(2)?, writer.as_deref(), now_ms);
        if !in_use {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Whether a run whose end was never written is still being recorded: its writer gave a sign of life within
/// [`SILENCE_MS`], and its process has not ended as far as can be known from here.
pub(crate) fn is_being_recorded(updated_at_ms: i64, writer: Option<&str>, now_ms: i64) -> bool {
    now_ms.saturating_sub(updated_at_ms) < SILENCE_MS
        && writer.and_then(crate::clock::still_runs).unwrap_or(true)
}

/// Removes a run; its number and name.
fn remove_run(connection: &mut Connection, run: i64) -> rusqlite::Result<String> {
    while remove_periods(connection, run, i64::MAX, ROWS_AT_ONCE)? > 0 {}
    let name: String =
        connection.query_row("DELETE FROM runs WHERE id = ?1 RETURNING name", [run], |row| {
            row.get(0)
        })?;
    Ok(format!("{run} ({name})"))
}

/// Removes the oldest of a run's periods up to an index; answers how many.
fn remove_periods(connection: &mut Connection, run: i64, up_to: i64, at_most: i64) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let removed = transaction.execute(
        "DELETE FROM periods WHERE rowid IN
            (SELECT rowid FROM periods WHERE run = ?1 AND idx <= ?2 ORDER BY idx LIMIT ?3)",
        params![run, up_to, at_most],
    )?;
    transaction.execute(
        "DELETE FROM parts WHERE run = ?1 AND idx < coalesce((SELECT min(idx) FROM periods WHERE run = ?1), ?2)",
        params![run, i64::MAX],
    )?;
    transaction.execute(
        "UPDATE runs SET pruned = pruned + ?2 WHERE id = ?1",
        params![run, i64::try_from(removed).unwrap_or(i64::MAX)],
    )?;
    transaction.commit()?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}

/// Removes a part of the periods of the run with most rows among these; answers whether there were any to remove.
fn remove_oldest_periods(
    connection: &mut Connection,
    runs: impl Iterator<Item = i64>,
    target_bytes: i64,
) -> rusqlite::Result<bool> {
    let mut largest: Option<(i64, i64)> = None;
    for run in runs {
        let rows = number(connection, "SELECT count(*) FROM periods WHERE run = ?1", run)?;
        if largest.is_none_or(|(_, most)| rows > most) {
            largest = Some((run, rows));
        }
    }
    let Some((run, rows)) = largest.filter(|(_, rows)| *rows > PERIODS_KEPT) else {
        return Ok(false);
    };
    let excess = 1.0 - target_bytes as f64 / used_bytes(connection)?.max(1) as f64;
    let removable = rows - PERIODS_KEPT;
    let goal = ((rows as f64 * excess).ceil() as i64).clamp(1, removable);
    let covered = number(connection, "SELECT covered FROM runs WHERE id = ?1", run)?;
    let mut removed = 0;
    while removed < goal {
        let step = remove_periods(connection, run, covered, ROWS_AT_ONCE.min(goal - removed))?;
        if step == 0 {
            break;
        }
        removed += step;
    }
    Ok(removed > 0)
}

fn number(connection: &Connection, sql: &str, run: i64) -> rusqlite::Result<i64> {
    connection.query_row(sql, [run], |row| row.get(0))
}

/// Gives free pages back to the file system.
fn shrink(connection: &Connection) -> rusqlite::Result<()> {
    let free = || connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
    let mut before = free()?;
    while before > 0 {
        let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        let after = free()?;
        if after >= before {
            break;
        }
        before = after;
    }
    // The file itself shrinks when the log is written back to it. A reader can delay that; the next one does it.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}
