//! An HAProxy, through its statistics socket.

use super::balancer::{Admission, Balancer, Look, Member, Traffic, Wanted};
use crate::live::{Outcomes, TrafficPeriod};
use headroom_telemetry::haproxy::{
    Responses, RowKind, ServerRow, ServerState, StatisticsAddress, StatisticsError, StatisticsSocket,
};
use std::time::{Duration, Instant};

/// The backend's counters, of one process.
#[derive(Clone, Copy, Debug)]
struct Counted {
    pid: u64,
    at: Instant,
    sessions: u64,
    in_flight: u64,
    responses: Responses,
}

impl Counted {
    /// What came between an earlier reading and this; `None` where another process counts meanwhile, from zero.
    fn since(&self, before: &Self) -> Option<Traffic> {
        let arrivals = self
            .sessions
            .checked_sub(before.sessions)
            .filter(|_| self.pid == before.pid)?;
        let classes = |at: usize| {
            let (now, then) = (self.responses.by_class[at], before.responses.by_class[at]);
            now.saturating_sub(then)
        };
        let by_class: [u64; 5] = std::array::from_fn(classes);
        let other = self.responses.other.saturating_sub(before.responses.other);
        Some(Traffic {
            length: self.at.duration_since(before.at),
            requests: TrafficPeriod {
                arrivals,
                completions: by_class[..4].iter().sum(),
                // None of the classes: most often a client that went away.
                failures: by_class[4] + other,
                in_flight: Some(self.in_flight),
                outcomes: Outcomes {
                    failed_by_client: other,
                    responses: Some(by_class),
                    causes: vec![("failed_status", by_class[4]), ("aborted_by_client", other)],
                },
                ..TrafficPeriod::default()
            },
        })
    }
}

/// An HAProxy.
#[derive(Debug)]
pub struct HaproxyServers {
    socket: StatisticsSocket,
    backend: String,
    /// The servers' names, in the controller's order.
    names: Vec<String>,
    warm_up_weight_percent: u32,
    /// What the last look showed of the servers, in the controller's order.
    rows: Vec<ServerRow>,
    /// What it had counted when it was read last.
    before: Option<Counted>,
}

impl HaproxyServers {
    /// The servers of a backend; nothing is asked yet.
    pub const fn new(
        address: StatisticsAddress,
        backend: String,
        names: Vec<String>,
        warm_up_weight_percent: u32,
    ) -> Self {
        Self {
            socket: StatisticsSocket::new(address),
            backend,
            names,
            warm_up_weight_percent,
            rows: Vec::new(),
            before: None,
        }
    }

    fn read(&mut self, patience: Duration) -> Result<Look, String> {
        let words = |error: StatisticsError| error.to_string();
        // Each of the two has half of the time.
        let half = patience / 2;
        let reported = self.socket.servers(&self.backend, half).map_err(words)?;
        let at = Instant::now();
        let counted = self.socket.read(half).map_err(words)?;
        let mut rows = Vec::with_capacity(self.names.len());
        let mut members = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let Some(row) = reported.iter().find(|row| row.name == *name) else {
                let others: Vec<&str> = reported.iter().map(|row| row.name.as_str()).collect();
                return Err(format!(
                    "HAProxy's backend {} has no server {name}: it has {}",
                    self.backend,
                    others.join(", ")
                ));
            };
            let sessions = counted
                .rows
                .iter()
                .find(|row| row.kind == RowKind::Server && row.proxy == self.backend && row.name == *name)
                .map(|row| row.sessions);
            members.push(Member {
                admission: match row.state {
                    ServerState::Ready => Admission::Ready,
                    ServerState::Drain => Admission::Drain,
                    ServerState::Maintenance => Admission::Out,
                },
                in_flight: sessions,
                well: row.checked.then_some(row.up),
            });
            rows.push(row.clone());
        }
        let backend = counted
            .rows
            .iter()
            .find(|row| row.kind == RowKind::Backend && row.proxy == self.backend);
        let now = backend.map(|row| Counted {
            pid: counted.pid,
            at,
            sessions: row.sessions_total,
            in_flight: row.sessions,
            responses: row.responses.unwrap_or_default(),
        });
        let traffic = self.before.zip(now).and_then(|(before, now)| now.since(&before));
        self.before = now;
        self.rows = rows;
        Ok(Look { members, traffic })
    }
}

impl Balancer for HaproxyServers {
    fn name(&self) -> String {
        format!("HAProxy's backend {} ({})", self.backend, self.socket.address())
    }

    fn look(&mut self, patience: Duration) -> Result<Look, String> {
        let look = self.read(patience);
        if look.is_err() {
            // What came while it could not be read is in no period.
            self.before = None;
        }
        look
    }

    fn want(&mut self, wanted: &[Wanted], patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        for (row, wanted) in self.rows.iter_mut().zip(wanted) {
            let state = match wanted.admission {
                None => row.state,
                Some(Admission::Ready) => ServerState::Ready,
                Some(Admission::Drain) => ServerState::Drain,
                Some(Admission::Out) => ServerState::Maintenance,
            };
            let percent = if wanted.warming && state == ServerState::Ready {
                self.warm_up_weight_percent
            } else {
                100
            };
            // As HAProxy computes it: a share of the configured weight, and not nothing.
            let weight = (row.configured_weight * percent / 100).max(u32::from(row.configured_weight > 0));
            let left = || {
                let left = until.saturating_duration_since(Instant::now());
                (!left.is_zero())
                    .then_some(left)
                    .ok_or_else(|| "HAProxy did not take all changes within the period".to_owned())
            };
            let (backend, name) = (&self.backend, &row.name);
            // Before it gets requests, so that it never has more than its share.
            if self.warm_up_weight_percent < 100 && weight != row.weight {
                let set = self.socket.set_weight_percent(backend, name, percent, left()?);
                set.map_err(|error| error.to_string())?;
                row.weight = weight;
            }
            if state != row.state {
                let set = self.socket.set_state(backend, name, state, left()?);
                set.map_err(|error| error.to_string())?;
                row.state = state;
            }
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        self.rows
            .iter()
            .filter(|row| !row.checked)
            .map(|row| {
                format!(
                    "HAProxy does not check {}/{}: add `check` to its `server` line, or it gets requests while it is down",
                    self.backend, row.name
                )
            })
            .collect()
    }
}
