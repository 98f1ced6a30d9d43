//! The load that earlier runs saw: what a law recalls that begins anew.

use super::Archive;
use crate::error::Error;
use crate::model::{RunId, World};
use headroom_units::{PerSecond, Seconds};
use rusqlite::params;
use std::time::{Duration, SystemTime};

/// Runs that are looked at, the latest first.
const MAX_RUNS: u32 = 200;

/// What earlier runs saw arrive, on an even grid of periods.
#[derive(Clone, Debug, PartialEq)]
pub struct PastLoad {
    /// Arrivals per second of each period, the oldest first, up to now; `None` where no run saw anything.
    pub rates: Vec<Option<PerSecond>>,
    /// The runs that it is of.
    pub runs: Vec<RunId>,
    /// Two of them that ran at the same time, where there are such: then they were of several services, and `rates` is empty.
    pub at_once: Option<(RunId, RunId)>,
}

impl Archive {
    /// The load that runs of this name and period saw on this machine's clock in the last `at_most` periods before `until`.
    /// Simulated runs saw none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn past_load(
        &self,
        name: &str,
        period: Seconds,
        until: SystemTime,
        at_most: usize,
    ) -> Result<PastLoad, Error> {
        let (period_s, most) = (period.get(), at_most as f64);
        let length = Duration::try_from_secs_f64(period_s * most).unwrap_or(Duration::MAX);
        let from = until.checked_sub(length).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut found = self.list(
            "WHERE name = ?1 ORDER BY id DESC LIMIT ?2",
            params![name, MAX_RUNS],
        )?;
        found.retain(|run| {
            let same = (run.meta.period.get() - period_s).abs() <= 1e-6 * period_s;
            same && run.meta.world != World::Simulated && run.updated_at > from && run.meta.started_at < until
        });
        found.sort_by_key(|run| run.meta.started_at);
        let mut rates = vec![None; at_most];
        let mut before: Option<(RunId, f64)> = None;
        for run in &found {
            let began_s = match run.meta.started_at.duration_since(from) {
                Ok(after) => after.as_secs_f64(),
                Err(before) => -before.duration().as_secs_f64(),
            };
            if let Some((other, _)) = before.filter(|(_, ended_s)| *ended_s > began_s + period_s) {
                return Ok(PastLoad {
                    rates: Vec::new(),
                    runs: Vec::new(),
                    at_once: Some((other, run.id)),
                });
            }
            let mut ended_s = began_s;
            self.arrivals(run.id, |at_s, duration_s, arrivals| {
                ended_s = began_s + at_s + duration_s;
                let middle_s = began_s + at_s + duration_s / 2.0;
                let place = (middle_s / period_s).floor();
                if (0.0..most).contains(&place) && duration_s > 0.0 {
                    rates[place as usize] = Some(PerSecond::new(arrivals / duration_s));
                }
            })?;
            before = Some((run.id, ended_s));
        }
        let known = rates.iter().position(Option::is_some).unwrap_or(rates.len());
        rates.drain(..known);
        bridge_grid(&mut rates);
        Ok(PastLoad {
            rates,
            runs: found.iter().map(|run| run.id).collect(),
            at_once: None,
        })
    }

    /// Start, length and arrivals of each of a run's periods of which telemetry was there.
    pub(crate) fn arrivals(&self, id: RunId, mut visit: impl FnMut(f64, f64, f64)) -> Result<(), Error> {
        let failed = |source| self.row_error(id, "a period", source);
        let asked = "SELECT t_s, duration_s, arrivals FROM periods WHERE run = ?1 AND telemetry_lost = 0 ORDER BY idx";
        let mut statement = self.connection.prepare_cached(asked).map_err(failed)?;
        let mut rows = statement.query([id.0]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let read = |column| row.get::<_, f64>(column).map_err(failed);
            visit(read(0)?, read(1)?, row.get::<_, i64>(2).map_err(failed)? as f64);
        }
        Ok(())
    }
}

/// A live period is a little longer or shorter than the grid's, so that now and then one of the grid has none: it had what the
/// one before it had.
fn bridge_grid(rates: &mut [Option<PerSecond>]) {
    for at in 1..rates.len().saturating_sub(1) {
        if rates[at].is_none() && rates[at + 1].is_some() {
            rates[at] = rates[at - 1];
        }
    }
}
