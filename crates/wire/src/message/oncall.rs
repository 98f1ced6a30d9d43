//! A server whose workers are on call, as its node's agent tells of it.

use super::gateway::latencies;
use super::queue::count;
use crate::check::{Invalid, amount, micros, required};
use crate::proto;
use headroom_units::Seconds;
use std::time::Duration;

/// The longest text that says why a server is not there, in bytes.
pub const MAX_AWAY: usize = 1024;
/// The longest name of a server, in bytes: a file's.
const MAX_NAME: usize = 255;
/// The most different latencies of a server's queries: its library tells no more of them apart.
const MAX_QUERY_LATENCIES: usize = 1024;

/// A server on call of a node, there or not.
#[derive(Clone, Debug, PartialEq)]
pub struct OnCallServer {
    /// What the agent's configuration calls it.
    pub name: String,
    /// From so long on an idle period of its processors saves energy.
    pub break_even: Seconds,
}

/// A server on call at the end of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnCallSample {
    /// As in [`OnCallServer`].
    pub server: String,
    /// What it does now; why it is not there, in at most [`MAX_AWAY`] bytes.
    pub now: Result<OnCallNow, String>,
    /// What was counted since the agent began, of whatever process had its name.
    pub counters: OnCallCounters,
}

/// What a server on call does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnCallNow {
    /// Connections that may be on call.
    pub connections: u32,
    /// Workers with a slot.
    pub running: u32,
    /// Connections with a query and no slot.
    pub waiting: u32,
    /// The least of these since the sample before.
    pub waiting_least: u32,
    /// For how long the one waits that waits longest; `None` where none does.
    pub oldest_waiting: Option<Duration>,
    /// Queries that have come and are not answered.
    pub in_flight: u64,
    /// The age of the oldest of these.
    pub oldest_in_flight: Option<Duration>,
    /// Processors that it may use; at least 1.
    pub cores: u32,
    /// As how many connections the queries since the agent's reading before came, would all ask alike, in thousandths; `None` where it is
    /// not known.
    pub asking_thousandths: Option<u32>,
}

/// What was counted of a server on call. Nothing here ever falls while an agent runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnCallCounters {
    /// Queries that came.
    pub arrivals: u64,
    /// Queries answered, and not by a failure.
    pub queries: u64,
    /// Queries that the server failed, as far as its answers are read.
    pub failures: u64,
    /// Rounds ended.
    pub rounds: u64,
    /// Slots that workers gave back, or lost, in the midst of a query.
    pub given_back: u64,
    /// Context switches; `None` where they cannot be read.
    pub context_switches: Option<u64>,
    /// Time of its processors over which idle periods were measured.
    pub measured: Duration,
    /// The part of that in idle periods longer than the break-even time.
    pub long_idle: Duration,
    /// Latencies of the queries answered, in microseconds, growing, and how many had each.
    pub latencies: Vec<(u64, u64)>,
}

/// A text of at most so many bytes.
fn bounded(field: &str, text: String, most: usize) -> Result<String, Invalid> {
    if text.len() <= most {
        return Ok(text);
    }
    Err(Invalid::new(field, text, format!("at most {most} bytes")))
}

impl From<OnCallServer> for proto::OnCallServer {
    fn from(server: OnCallServer) -> Self {
        Self {
            name: server.name,
            break_even_us: server.break_even.get() * 1e6,
        }
    }
}

impl TryFrom<proto::OnCallServer> for OnCallServer {
    type Error = Invalid;
    fn try_from(message: proto::OnCallServer) -> Result<Self, Invalid> {
        let break_even_us = amount("oncall.break_even_us", message.break_even_us)?;
        Ok(Self {
            name: bounded("oncall.name", message.name, MAX_NAME)?,
            break_even: Seconds::new(break_even_us / 1e6),
        })
    }
}

impl From<OnCallSample> for proto::OnCallSample {
    fn from(sample: OnCallSample) -> Self {
        let (now, away) = match sample.now {
            Ok(now) => (Some(now.into()), String::new()),
            Err(why) => (None, why),
        };
        Self {
            server: sample.server,
            now,
            away,
            counters: Some(sample.counters.into()),
        }
    }
}

impl TryFrom<proto::OnCallSample> for OnCallSample {
    type Error = Invalid;
    fn try_from(message: proto::OnCallSample) -> Result<Self, Invalid> {
        let away = bounded("oncall.away", message.away, MAX_AWAY)?;
        let now = match message.now {
            Some(now) => Ok(now.try_into()?),
            None => Err(away),
        };
        Ok(Self {
            server: bounded("oncall.server", message.server, MAX_NAME)?,
            now,
            counters: required("oncall.counters", message.counters)?,
        })
    }
}

impl From<OnCallNow> for proto::OnCallNow {
    fn from(now: OnCallNow) -> Self {
        Self {
            connections: now.connections,
            running: now.running,
            waiting: now.waiting,
            waiting_least: now.waiting_least,
            oldest_waiting_us: now.oldest_waiting.map(micros),
            in_flight: now.in_flight,
            oldest_in_flight_us: now.oldest_in_flight.map(micros),
            cores: now.cores,
            asking_thousandths: now.asking_thousandths,
        }
    }
}

impl TryFrom<proto::OnCallNow> for OnCallNow {
    type Error = Invalid;
    fn try_from(message: proto::OnCallNow) -> Result<Self, Invalid> {
        if message.cores == 0 {
            return Err(Invalid::new("oncall.now.cores", 0, "1 or more"));
        }
        count("oncall.now.in_flight", message.in_flight)?;
        Ok(Self {
            connections: message.connections,
            running: message.running,
            waiting: message.waiting,
            waiting_least: message.waiting_least,
            oldest_waiting: message.oldest_waiting_us.map(Duration::from_micros),
            in_flight: message.in_flight,
            oldest_in_flight: message.oldest_in_flight_us.map(Duration::from_micros),
            cores: message.cores,
            asking_thousandths: message.asking_thousandths,
        })
    }
}

impl From<OnCallCounters> for proto::OnCallCounters {
    fn from(counters: OnCallCounters) -> Self {
        let (latency_us, latency_count) = counters.latencies.into_iter().unzip();
        Self {
            arrivals: counters.arrivals,
            queries: counters.queries,
            failures: counters.failures,
            rounds: counters.rounds,
            given_back: counters.given_back,
            context_switches: counters.context_switches,
            measured_us: micros(counters.measured),
            long_idle_us: micros(counters.long_idle),
            latency_us,
            latency_count,
        }
    }
}

impl TryFrom<proto::OnCallCounters> for OnCallCounters {
    type Error = Invalid;
    fn try_from(message: proto::OnCallCounters) -> Result<Self, Invalid> {
        for (field, value) in [
            ("oncall.arrivals", message.arrivals),
            ("oncall.queries", message.queries),
            ("oncall.failures", message.failures),
            ("oncall.rounds", message.rounds),
            ("oncall.given_back", message.given_back),
            (
                "oncall.context_switches",
                message.context_switches.unwrap_or_default(),
            ),
            ("oncall.measured_us", message.measured_us),
        ] {
            count(field, value)?;
        }
        if message.long_idle_us > message.measured_us {
            let expected = format!("at most measured_us, {}", message.measured_us);
            return Err(Invalid::new(
                "oncall.long_idle_us",
                message.long_idle_us,
                expected,
            ));
        }
        for value in &message.latency_count {
            count("oncall.latency_count", *value)?;
        }
        Ok(Self {
            arrivals: message.arrivals,
            queries: message.queries,
            failures: message.failures,
            rounds: message.rounds,
            given_back: message.given_back,
            context_switches: message.context_switches,
            measured: Duration::from_micros(message.measured_us),
            long_idle: Duration::from_micros(message.long_idle_us),
            latencies: latencies(message.latency_us, message.latency_count, MAX_QUERY_LATENCIES)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_COUNT;
    use super::*;

    fn message() -> proto::OnCallSample {
        proto::OnCallSample {
            server: "db".into(),
            now: Some(proto::OnCallNow {
                cores: 2,
                ..proto::OnCallNow::default()
            }),
            away: String::new(),
            counters: Some(proto::OnCallCounters {
                latency_us: vec![90, 110],
                latency_count: vec![4, 1],
                measured_us: 10,
                long_idle_us: 4,
                ..proto::OnCallCounters::default()
            }),
        }
    }

    #[test]
    fn a_sample_that_cannot_be_is_refused_by_its_field() {
        assert!(OnCallSample::try_from(message()).is_ok());
        type Spoil = fn(&mut proto::OnCallSample);
        fn counters(it: &mut proto::OnCallSample) -> &mut proto::OnCallCounters {
            it.counters.as_mut().unwrap()
        }
        let spoilt: [(&str, Spoil); 12] = [
            ("oncall.server", |it| it.server = "x".repeat(MAX_NAME + 1)),
            ("oncall.counters", |it| it.counters = None),
            ("oncall.now.cores", |it| it.now.as_mut().unwrap().cores = 0),
            ("oncall.now.in_flight", |it| {
                it.now.as_mut().unwrap().in_flight = u64::MAX
            }),
            ("oncall.away", |it| it.away = "x".repeat(MAX_AWAY + 1)),
            ("oncall.queries", |it| counters(it).queries = MAX_COUNT + 1),
            ("oncall.failures", |it| counters(it).failures = MAX_COUNT + 1),
            ("oncall.context_switches", |it| {
                counters(it).context_switches = Some(u64::MAX)
            }),
            ("oncall.long_idle_us", |it| counters(it).long_idle_us = 11),
            ("oncall.latency_count", |it| {
                counters(it).latency_count = vec![1, u64::MAX]
            }),
            ("latency_count", |it| counters(it).latency_count = vec![1]),
            ("latency_us", |it| counters(it).latency_us = vec![110, 90]),
        ];
        for (field, spoil) in spoilt {
            let mut bad = message();
            spoil(&mut bad);
            assert_eq!(OnCallSample::try_from(bad).unwrap_err().field, field);
        }
        let mut many = message();
        counters(&mut many).latency_us = (0..=MAX_QUERY_LATENCIES as u64).collect();
        let error = OnCallSample::try_from(many).unwrap_err().to_string();
        assert_eq!(error, "latency_us is 1025 long: expected at most 1024");
    }

    #[test]
    fn a_server_has_a_files_name() {
        let server = |name: String| {
            OnCallServer::try_from(proto::OnCallServer {
                name,
                break_even_us: 600.0,
            })
        };
        assert_eq!(
            server("x".repeat(MAX_NAME)).unwrap().break_even,
            Seconds::new(600e-6)
        );
        assert_eq!(server("x".repeat(MAX_NAME + 1)).unwrap_err().field, "oncall.name");
    }

    #[test]
    fn a_server_that_is_away_says_why() {
        let mut away = message();
        (away.now, away.away) = (None, "nobody is there".into());
        let sample = OnCallSample::try_from(away).unwrap();
        assert_eq!(sample.now, Err("nobody is there".to_owned()));
    }
}
