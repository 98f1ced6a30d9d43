//! An HAProxy, through its statistics socket.

use super::balancer::{Admission, AtServer, Balancer, Look, Member, Traffic, Wanted};
use crate::live::{Outcomes, TrafficPeriod};
use headroom_telemetry::haproxy::{
    Responses, Row, RowKind, ServerRow, ServerState, StatisticsAddress, StatisticsError, StatisticsSocket,
};
use std::time::{Duration, Instant};

/// One answer in so many beyond the requests shows that some are interim ones.
const INTERIM: u64 = 100;

/// A server's counters, or a backend's.
#[derive(Clone, Copy, Debug)]
struct Server {
    /// Requests that were sent to it (`stot`), and those that it has now (`scur`).
    sessions: u64,
    in_flight: u64,
    /// Those of them that it answered with 2xx to 4xx.
    answered: u64,
    failed_answers: u64,
    /// Answers of the first class.
    first_class: u64,
    /// Those that it had answered and that had not ended: HAProxy counts an answer as it begins.
    under_way: u64,
}

impl Server {
    /// `None` of a proxy that does not see requests.
    fn of(row: &Row) -> Option<Self> {
        let responses = row.responses?;
        Some(Self {
            sessions: row.sessions_total,
            in_flight: row.sessions,
            answered: responses.by_class[1..4].iter().sum(),
            failed_answers: responses.by_class[4],
            first_class: responses.by_class[0],
            under_way: 0,
        })
    }

    /// Connections that changed their protocol (101, as a WebSocket does) since an earlier reading, each of which is an answer; none where
    /// requests have interim answers besides their own, which are counted as these are: there are more answers than requests then.
    fn upgraded_since(&self, before: &Self) -> u64 {
        let all = self.answered + self.failed_answers + self.first_class;
        match all <= self.sessions + self.sessions / INTERIM {
            true => self.first_class.saturating_sub(before.first_class),
            false => 0,
        }
    }

    /// What came between an earlier reading of the same process and this. What ended and was not answered failed: a server that hangs, refuses or
    /// closes has no answer counted.
    fn since(&mut self, before: &Self) -> Option<AtServer> {
        let requests = self.sessions.checked_sub(before.sessions)?;
        let answered = self.answered.checked_sub(before.answered)? + self.upgraded_since(before);
        let failed_answers = self.failed_answers.checked_sub(before.failed_answers)?;
        let ended = (before.in_flight + requests).saturating_sub(self.in_flight);
        let begun = before.under_way + answered;
        self.under_way = begun.saturating_sub(ended).min(self.in_flight);
        Some(AtServer {
            requests,
            failures: ended.saturating_sub(begun),
            // One that begins shows as much as one that ended.
            answers: failed_answers + answered.saturating_sub(ended),
            under_way: self.under_way,
        })
    }
}

/// The backend's counters, of one process.
#[derive(Clone, Debug)]
struct Counted {
    pid: u64,
    at: Instant,
    sessions: u64,
    in_flight: u64,
    responses: Responses,
    /// The same as of a server.
    all: Option<Server>,
    /// Of each server, in the controller's order.
    servers: Vec<Option<Server>>,
}

impl Counted {
    /// What came to each server between an earlier reading and this.
    fn at_servers(&mut self, before: &Self) -> Vec<Option<AtServer>> {
        let is_same = self.pid == before.pid;
        let both = self.servers.iter_mut().zip(&before.servers);
        both.map(|(now, before)| now.as_mut().filter(|_| is_same)?.since(before.as_ref()?))
            .collect()
    }

    /// What came between an earlier reading and this; `None` where another process counts meanwhile, from zero.
    fn since(&self, before: &Self) -> Option<Traffic> {
        // What is being answered for long, as a stream is, is not what requests wait for. A server's answers are counted as they begin, the
        // backend's as they end.
        let under_way: u64 = self.servers.iter().flatten().map(|server| server.under_way).sum();
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
        let both = self.all.zip(before.all);
        let upgraded = both.map_or(0, |(now, then)| now.upgraded_since(&then));
        Some(Traffic {
            length: self.at.duration_since(before.at),
            requests: TrafficPeriod {
                arrivals,
                completions: by_class[1..4].iter().sum::<u64>() + upgraded,
                // None of the classes: most often a client that went away.
                failures: by_class[4] + other,
                in_flight: Some(self.in_flight.saturating_sub(under_way)),
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
        let mut servers = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let Some(row) = reported.iter().find(|row| row.name == *name) else {
                let others: Vec<&str> = reported.iter().map(|row| row.name.as_str()).collect();
                return Err(format!(
                    "HAProxy's backend {} has no server {name}: it has {}",
                    self.backend,
                    others.join(", ")
                ));
            };
            let of_server = counted
                .rows
                .iter()
                .find(|row| row.kind == RowKind::Server && row.proxy == self.backend && row.name == *name);
            servers.push(of_server.and_then(Server::of));
            members.push(Member {
                admission: match row.state {
                    ServerState::Ready => Admission::Ready,
                    ServerState::Drain => Admission::Drain,
                    ServerState::Maintenance => Admission::Out,
                },
                in_flight: of_server.map(|row| row.sessions),
                well: row.checked.then_some(row.up),
                counted: None,
            });
            rows.push(row.clone());
        }
        let backend = counted
            .rows
            .iter()
            .find(|row| row.kind == RowKind::Backend && row.proxy == self.backend);
        let mut now = backend.map(|row| Counted {
            pid: counted.pid,
            at,
            sessions: row.sessions_total,
            in_flight: row.sessions,
            responses: row.responses.unwrap_or_default(),
            all: Server::of(row),
            servers,
        });
        let both = self.before.as_ref().zip(now.as_mut());
        let (traffic, at_servers) = both.map_or_else(Default::default, |(before, now)| {
            let at_servers = now.at_servers(before);
            (now.since(before), at_servers)
        });
        for (member, counted) in members.iter_mut().zip(at_servers) {
            member.counted = counted;
        }
        self.before = now;
        self.rows = rows;
        Ok(Look { members, traffic })
    }
}

impl Balancer for HaproxyServers {
    fn name(&self) -> String {
        format!("HAProxy's backend {} ({})", self.backend, self.socket.address())
    }

    fn no_reuse(&self) -> &'static str {
        "`option http-server-close` in HAProxy's backend"
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As `show stat` tells it of a server: `stot`, `scur`, and `hrsp_1xx` to `hrsp_5xx`.
    fn row(sessions_total: u64, sessions: u64, by_class: Option<[u64; 5]>) -> Row {
        Row {
            proxy: "app".to_owned(),
            name: "web1".to_owned(),
            kind: RowKind::Server,
            status: "UP".to_owned(),
            weight: Some(1),
            sessions,
            sessions_total,
            requests_total: None,
            responses: by_class.map(|by_class| Responses { by_class, other: 0 }),
        }
    }

    #[test]
    fn what_ended_at_a_server_and_was_not_answered_has_failed() {
        let of = |stot, scur, ok, failed| Server::of(&row(stot, scur, Some([0, ok, 0, 0, failed]))).unwrap();
        let told = |mut now: Server, before: Server| {
            let counted = now.since(&before)?;
            Some((counted.requests, counted.failures, counted.answers))
        };
        // As HAProxy 2.6 counted six clients of a server: all answered, each second one with 500, closed without an answer.
        assert_eq!(told(of(180, 0, 180, 0), of(156, 3, 153, 0)), Some((24, 0, 0)));
        assert_eq!(
            told(of(300, 0, 180, 120), of(180, 0, 180, 0)),
            Some((120, 120, 120))
        );
        assert_eq!(
            told(of(420, 0, 180, 120), of(300, 0, 180, 120)),
            Some((120, 120, 0))
        );
        // It hangs; what it has fails later, where less comes than fails.
        assert_eq!(told(of(428, 4, 180, 120), of(424, 0, 180, 120)), Some((4, 0, 0)));
        assert_eq!(told(of(429, 1, 180, 120), of(428, 4, 180, 120)), Some((1, 4, 0)));
        // Interim answers are none: the one that asked for leave to send its body hangs.
        let interim =
            |stot, scur, ok, interim| Server::of(&row(stot, scur, Some([interim, ok, 0, 0, 0]))).unwrap();
        assert_eq!(
            told(interim(20, 5, 10, 20), interim(0, 0, 0, 0)),
            Some((20, 5, 0))
        );
        // Three WebSockets are open for long, two of which end; then a request fails, which shows when the third ends.
        let upgraded =
            |stot, scur, ok, first| Server::of(&row(stot, scur, Some([first, ok, 0, 0, 0]))).unwrap();
        let mut open = upgraded(23, 3, 20, 3);
        let counted = open.since(&upgraded(0, 0, 0, 0)).unwrap();
        assert_eq!((counted.failures, counted.under_way, open.under_way), (0, 3, 3));
        let mut ended = upgraded(23, 1, 20, 3);
        let counted = ended.since(&open).unwrap();
        assert_eq!((counted.failures, counted.under_way), (0, 1));
        let mut failed = upgraded(24, 1, 20, 3);
        assert_eq!(failed.since(&ended).unwrap().failures, 0);
        assert_eq!(told(upgraded(24, 0, 20, 3), failed), Some((0, 1, 0)));
        // Both are read one after the other: an answer may be counted whose request still is.
        assert_eq!(told(of(10, 2, 9, 0), of(5, 2, 3, 0)), Some((5, 0, 1)));
        // Counters were cleared.
        assert_eq!(told(of(3, 0, 3, 0), of(5, 2, 3, 0)), None);
        assert!(Server::of(&row(10, 2, None)).is_none());
    }

    #[test]
    fn an_answer_that_lasts_is_counted_as_it_begins_and_is_no_failure_as_it_ends() {
        let of = |stot, scur, ok| Server::of(&row(stot, scur, Some([0, ok, 0, 0, 0]))).unwrap();
        // Eight requests are answered at once, each over two readings, and end; then one more fails.
        let readings = [
            of(0, 0, 0),
            of(8, 8, 8),
            of(8, 8, 8),
            of(8, 0, 8),
            of(9, 1, 8),
            of(9, 0, 8),
        ];
        let mut before = readings[0];
        let mut told = Vec::new();
        for mut now in readings.into_iter().skip(1) {
            let counted = now.since(&before).unwrap();
            told.push((counted.requests, counted.failures, counted.answers));
            before = now;
        }
        assert_eq!(told, [(8, 0, 8), (0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0)]);
    }

    #[test]
    fn what_is_being_answered_is_not_what_the_backends_requests_wait_for() {
        let counted = |sessions_total, sessions, at_server: [u64; 2], ended| Counted {
            pid: 7,
            at: Instant::now(),
            sessions: sessions_total,
            in_flight: sessions,
            responses: Responses {
                by_class: [0, ended, 0, 0, 0],
                other: 0,
            },
            all: None,
            servers: vec![Server::of(&row(
                sessions_total,
                sessions,
                Some([0, at_server[0], 0, 0, at_server[1]]),
            ))],
        };
        let before = counted(100, 2, [98, 0], 98);
        // Sixty streams were begun, and three requests wait.
        let mut now = counted(170, 63, [167, 0], 107);
        assert_eq!(now.at_servers(&before)[0].unwrap().under_way, 60);
        let requests = now.since(&before).unwrap().requests;
        assert_eq!((requests.in_flight, requests.completions), (Some(3), 9));
    }

    #[test]
    fn another_process_counts_from_zero() {
        let counted = |pid, servers: &[Row]| Counted {
            pid,
            at: Instant::now(),
            sessions: 0,
            in_flight: 0,
            responses: Responses::default(),
            all: None,
            servers: servers.iter().map(Server::of).collect(),
        };
        let rows = |stot, ok| [row(stot, 0, Some([0, ok, 0, 0, 0])), row(stot, 0, None)];
        let before = counted(7, &rows(10, 10));
        let requests = |mut now: Counted| -> Vec<_> {
            let each = now.at_servers(&before).into_iter();
            each.map(|one| one.map(|one| one.requests)).collect()
        };
        assert_eq!(requests(counted(7, &rows(30, 30))), [Some(20), None]);
        assert_eq!(requests(counted(8, &rows(30, 30))), [None, None]);
    }
}
