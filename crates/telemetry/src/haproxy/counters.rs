//! HAProxy's counters of the requests in a scope, and what they say of a period.

use super::statistics::{Row, RowKind, Statistics};
use super::tally::Scope;

/// So many names of those that there are stand in a message.
const MOST_NAMED: usize = 20;

/// Why there are no counters at the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The statistics socket does not answer, or with something else.
    #[error("{0}")]
    Statistics(String),
    /// A name of the scope's is none of HAProxy's.
    #[error(transparent)]
    Name(#[from] NoSuchName),
}

/// A frontend or backend that HAProxy does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "HAProxy has no {kind} {name:?} in `mode http`: write one of those that it has ({})",
    listed(known)
)]
pub struct NoSuchName {
    /// `frontend` or `backend`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// Which of the scope's names it is, from 0.
    pub at: usize,
    /// Those that it has.
    pub known: Vec<String>,
}

fn listed(names: &[String]) -> String {
    match names.len().checked_sub(MOST_NAMED) {
        Some(more @ 1..) => format!("{} and {more} more", names[..MOST_NAMED].join(", ")),
        _ if names.is_empty() => "none".to_owned(),
        _ => names.join(", "),
    }
}

/// The counters of the scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pid: u64,
    arrivals: u64,
    ended: u64,
    /// What is open now: connections of frontends, or requests of backends. At least as many as are in flight, but with HTTP/2.
    open: u64,
    /// Log lines that HAProxy could not send.
    dropped_logs: Option<u64>,
    /// The scope is one that the counters can be summed over.
    pub countable: bool,
}

/// What the counters say of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub arrivals: u64,
    pub ended: u64,
    /// What was open at its beginning.
    pub open_before: u64,
    pub reloaded: bool,
}

impl Totals {
    /// What was counted since an earlier look. After a restart or reload the counters began at nothing, and what
    /// the old process counted after the earlier look is unknown.
    pub fn since(&self, earlier: &Self) -> Counted {
        let reloaded =
            self.pid != earlier.pid || self.arrivals < earlier.arrivals || self.ended < earlier.ended;
        let base = if reloaded { Self::default() } else { *earlier };
        Counted {
            arrivals: self.arrivals - base.arrivals,
            ended: self.ended - base.ended,
            open_before: earlier.open,
            reloaded,
        }
    }

    /// Log lines that HAProxy could not send since an earlier look; `None` where it does not say.
    pub fn dropped_since(&self, earlier: &Self) -> Option<u64> {
        let (now, before) = (self.dropped_logs?, earlier.dropped_logs?);
        // A process that was started meanwhile counts from nothing.
        Some(now.checked_sub(before).unwrap_or(now))
    }

    /// The counters of the scope, summed.
    ///
    /// # Errors
    /// A frontend or backend that HAProxy does not have.
    pub fn of(statistics: &Statistics, scope: &Scope) -> Result<Self, NoSuchName> {
        let (kind, word, names) = if scope.backends.is_empty() {
            (RowKind::Frontend, "frontend", &scope.frontends)
        } else {
            (RowKind::Backend, "backend", &scope.backends)
        };
        let of_kind = || {
            let rows = statistics.rows.iter();
            rows.filter(|row| row.kind == kind && row.responses.is_some())
        };
        let rows: Vec<&Row> = of_kind()
            .filter(|row| names.is_empty() || names.contains(&row.proxy))
            .collect();
        let is_absent = |name: &String| !rows.iter().any(|row| row.proxy == *name);
        if let Some(at) = names.iter().position(is_absent) {
            return Err(NoSuchName {
                kind: word,
                name: names[at].clone(),
                at,
                known: of_kind().map(|row| row.proxy.clone()).collect(),
            });
        }
        let ended = |row: &&Row| match (kind, row.requests_total, row.responses) {
            (RowKind::Backend, Some(requests), _) => requests,
            (_, _, responses) => responses.map_or(0, |responses| responses.total()),
        };
        let arrived = |row: &&Row| match kind {
            RowKind::Backend => row.sessions_total,
            _ => row.requests_total.unwrap_or(0),
        };
        Ok(Self {
            pid: statistics.pid,
            arrivals: rows.iter().map(arrived).sum(),
            ended: rows.iter().map(ended).sum(),
            open: rows.iter().map(|row| row.sessions).sum(),
            dropped_logs: statistics.dropped_logs,
            // HAProxy does not count by both.
            countable: scope.frontends.is_empty() || scope.backends.is_empty(),
        })
    }
}
