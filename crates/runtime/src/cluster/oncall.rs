//! The servers on call of many nodes as one: their queries as telemetry, and what they do as one observation.
//!
//! Every node has the same C, N and D, so that what a law says of C is of each node: the cores that it is bounded by are those of the
//! node with the most. Queries always waited where they did at every node.

use super::Shared;
use super::node::NodeState;
use crate::live::{Outcomes, ReportedLatency, Telemetry, TrafficPeriod};
use hdrhistogram::Histogram;
use headroom_control::OncallObservation;
use headroom_telemetry::latency_histogram;
use headroom_units::{Part, Ratio, Seconds, Sensor};
use headroom_wire::message::{OnCallCounters, OnCallNow, Sample};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a node's server had counted, by which run of its agent.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    run: u64,
    uptime: Duration,
    counters: OnCallCounters,
}

impl Counted {
    /// What a sample says; `None` while there is no server.
    fn of(sample: &Sample) -> Option<(Self, OnCallNow)> {
        let oncall = sample.oncall.as_ref()?;
        let counted = Self {
            run: sample.agent_run,
            uptime: sample.uptime,
            counters: oncall.counters.clone(),
        };
        Some((counted, *oncall.now.as_ref().ok()?))
    }

    /// What was counted between; `None` where the agent was started again.
    fn since(&self, before: &Self) -> Option<OnCallCounters> {
        if self.run != before.run {
            return None;
        }
        let (now, then) = (&self.counters, &before.counters);
        // Both lists grow.
        let mut earlier = then.latencies.iter().copied().peekable();
        let latencies = now.latencies.iter().map(|(us, count)| {
            while earlier.next_if(|(at, _)| at < us).is_some() {}
            let before = earlier.next_if(|(at, _)| at == us).map_or(0, |(_, count)| count);
            (*us, count.saturating_sub(before))
        });
        Some(OnCallCounters {
            arrivals: now.arrivals.saturating_sub(then.arrivals),
            queries: now.queries.saturating_sub(then.queries),
            failures: now.failures.saturating_sub(then.failures),
            rounds: now.rounds.saturating_sub(then.rounds),
            given_back: now.given_back.saturating_sub(then.given_back),
            context_switches: now
                .context_switches
                .zip(then.context_switches)
                .map(|(now, then)| now.saturating_sub(then)),
            measured: now.measured.saturating_sub(then.measured),
            long_idle: now.long_idle.saturating_sub(then.long_idle),
            latencies: latencies.filter(|(_, count)| *count > 0).collect(),
        })
    }
}

/// What one node's server did in a period.
#[derive(Clone, Debug)]
pub(super) struct Served {
    now: OnCallNow,
    since: OnCallCounters,
    /// The fewest that waited, by all samples of the period.
    waiting_least: u32,
    /// Between the two samples.
    length: Duration,
}

impl Served {
    /// By the sample of now and what was counted at the last call, which is replaced; `None` where there is no server, where the sample is
    /// that of the last call, and where it says of more than a period: a law would see the queries of none in one, and of two in another.
    pub(super) fn of(
        sample: Option<&Sample>,
        waiting_least: Option<u32>,
        period: Duration,
        before: &mut Option<Counted>,
    ) -> Option<Self> {
        let found = sample.and_then(Counted::of);
        let then = before.take();
        let (counted, now) = found?;
        let counted = before.insert(counted);
        let then = then?;
        let since = counted.since(&then)?;
        let length = counted.uptime.saturating_sub(then.uptime);
        (!length.is_zero() && length < period * 3 / 2).then_some(Self {
            now,
            since,
            waiting_least: waiting_least.unwrap_or(now.waiting),
            length,
        })
    }

    /// The effective number of connections that asked, where its agent tells it.
    fn asking(&self) -> Option<f64> {
        self.now
            .asking_thousandths
            .map(|thousandths| f64::from(thousandths) / 1e3)
    }

    fn long_idle(&self) -> Option<Ratio> {
        share(self.since.long_idle, self.since.measured)
    }

    /// Of a node's part what its server did.
    pub(super) fn on(&self, part: Part) -> Part {
        let seconds = self.length.as_secs_f64();
        let rate = (seconds > 0.0).then(|| self.since.queries as f64 / seconds);
        let switches = self.since.context_switches.filter(|_| self.since.queries > 0);
        part.with(Sensor::Connections, Some(f64::from(self.now.connections)))
            .with(Sensor::WaitingForSlot, Some(f64::from(self.now.waiting)))
            .with(
                Sensor::OldestWaiting,
                self.now.oldest_waiting.map(|age| age.as_secs_f64()),
            )
            .with(Sensor::ServiceRate, rate)
            .with(
                Sensor::SwitchesPerQuery,
                switches.map(|count| count as f64 / self.since.queries as f64),
            )
            .with(Sensor::LongIdle, self.long_idle().map(Ratio::get))
    }
}

fn share(part: Duration, all: Duration) -> Option<Ratio> {
    (!all.is_zero()).then(|| Ratio::new((part.as_secs_f64() / all.as_secs_f64()).min(1.0)))
}

/// As many connections as make each of them ask as often as those of the node where they ask most often, since a round delay bounds each
/// node's queries by its own connections. A node whose agent does not tell how many ask has all of its own ask; `None` where no agent tells.
fn asking(served: &[&Served]) -> Option<f64> {
    served.iter().find_map(|one| one.asking())?;
    let all: u64 = served.iter().map(|one| one.since.queries).sum();
    let of = |one: &&Served| {
        let asking = one.asking().unwrap_or(f64::from(one.now.connections)).max(1.0);
        asking * all as f64 / one.since.queries as f64
    };
    let busy = served.iter().filter(|one| one.since.queries > 0);
    busy.map(of).reduce(f64::min).or(Some(0.0))
}

/// The servers of all nodes as one; `None` where there is none, and where one of the nodes that has a server cannot tell of it.
pub(super) fn together(served: &[Option<Served>]) -> Option<OncallObservation> {
    let served: Vec<&Served> = served.iter().map(Option::as_ref).collect::<Option<_>>()?;
    if served.is_empty() {
        return None;
    }
    let sum = |of: fn(&Served) -> u64| served.iter().map(|one| of(one)).sum();
    let (measured, long_idle) = served.iter().fold((Duration::ZERO, Duration::ZERO), |sum, one| {
        (sum.0 + one.since.measured, sum.1 + one.since.long_idle)
    });
    let switches = served.iter().map(|one| one.since.context_switches);
    Some(OncallObservation {
        queries: sum(|one| one.since.queries + one.since.failures),
        failed: sum(|one| one.since.failures),
        rounds: sum(|one| one.since.rounds),
        running: sum(|one| one.now.running.into()),
        waiting: sum(|one| one.now.waiting.into()),
        waiting_least: served.iter().map(|one| one.waiting_least.into()).min(),
        // One server whose queries pile up is enough, however many others have room.
        waiting_share: served
            .iter()
            .filter_map(|one| {
                OncallObservation::share_of(
                    one.waiting_least.into(),
                    one.now.connections.into(),
                    one.asking(),
                )
            })
            .reduce(Ratio::max),
        oldest_waiting: served
            .iter()
            .filter_map(|one| one.now.oldest_waiting)
            .max()
            .map(Seconds::from),
        connections: sum(|one| one.now.connections.into()),
        asking: asking(&served),
        given_back: sum(|one| one.since.given_back),
        context_switches: switches.sum(),
        cores: served.iter().map(|one| one.now.cores.into()).max(),
        long_idle: share(long_idle, measured),
        ..OncallObservation::default()
    })
}

/// A sample over more periods than these is of an agent, or of a process of ours, that stood still.
const MAX_PERIODS: u32 = 3;

/// A node, as its queries are read.
#[derive(Debug)]
struct Node {
    name: String,
    state: Arc<Shared<NodeState>>,
    before: Option<Counted>,
}

/// What a node's sample is to a period.
enum Told {
    /// What its server did in it.
    Whole(OnCallCounters, OnCallNow),
    /// It has not come yet: what it says comes with the next.
    Late(String),
    /// It says nothing of it, and why.
    Nothing(String),
    /// The node is off as it was ordered.
    Off,
}

/// The queries of the nodes' servers as telemetry. The periods of all are added; where one cannot tell, the period is lost, for its
/// queries may be the slow ones. Where samples were late alone, what all counted in it comes with the next whole one, of few periods; else what
/// the others counted is in none, for it may be that of a long time.
#[derive(Debug)]
pub struct ClusterQueries {
    nodes: Vec<Node>,
    period: Duration,
    /// Periods before this one in which samples were late alone: what was counted in them is to come.
    late: u32,
    /// Why the last period was lost: said when it changes.
    lost: Vec<String>,
    /// Whether a period has begun: what was counted before is of none.
    has_begun: bool,
}

impl ClusterQueries {
    pub(super) fn new(
        nodes: impl Iterator<Item = (String, Arc<Shared<NodeState>>)>,
        period: Duration,
    ) -> Self {
        let node = |(name, state)| Node {
            name,
            state,
            before: None,
        };
        Self {
            nodes: nodes.map(node).collect(),
            period,
            late: 0,
            lost: Vec::new(),
            has_begun: false,
        }
    }
}

impl Node {
    /// What it tells of its queries since the last call, and what it has counted up to now, where its server is there.
    fn ask(&self, deadline: Instant, period: Duration) -> (Told, Option<Counted>) {
        let seen = self.before.as_ref().map(|before| (before.run, before.uptime));
        let is_new = |state: &NodeState| {
            let now = state.sample.as_ref().map(|now| (now.agent_run, now.uptime));
            now.is_some() && now != seen
        };
        let ready = |state: &NodeState| is_new(state) || state.description.is_none();
        self.state.wait(deadline, ready);
        let state = self.state.lock();
        if state.is_switched() {
            return (Told::Off, None);
        }
        let trouble = state.trouble.as_deref();
        let why = trouble.unwrap_or("its agent sent no sample in time").to_owned();
        let Some(sample) = &state.sample else {
            return (Told::Nothing(why), None);
        };
        if !is_new(&state) {
            return (Told::Late(why), self.before.clone());
        }
        let Some((now, of_now)) = Counted::of(sample) else {
            let away = sample
                .oncall
                .as_ref()
                .and_then(|oncall| oncall.now.as_ref().err());
            let why = away.map_or("its agent has no server on call", String::as_str);
            return (Told::Nothing(why.to_owned()), None);
        };
        let since = self.before.as_ref().and_then(|before| {
            let length = now.uptime.saturating_sub(before.uptime);
            Some((now.since(before)?, length))
        });
        let told = match since {
            None => Told::Nothing("its queries are counted from now on".to_owned()),
            Some((_, length)) if length > period * MAX_PERIODS => Told::Nothing(format!(
                "it told of {:.1} s at once: one of the two processes stood still",
                length.as_secs_f64()
            )),
            Some((since, _)) => Told::Whole(since, of_now),
        };
        (told, Some(now))
    }
}

impl Telemetry for ClusterQueries {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        let deadline = Instant::now() + patience;
        let (mut all, mut latencies) = (TrafficPeriod::default(), latency_histogram());
        let (mut lost, mut only_late, mut counted) = (Vec::new(), true, Vec::new());
        for node in &self.nodes {
            let (told, now) = node.ask(deadline, self.period);
            counted.push(now);
            match told {
                Told::Whole(since, now) => {
                    all.add(&of(&since, now));
                    record(&mut latencies, &since);
                }
                Told::Late(why) => lost.push(format!("{}: {why}", node.name)),
                Told::Nothing(why) => {
                    only_late = false;
                    lost.push(format!("{}: {why}", node.name));
                }
                Told::Off => {}
            }
        }
        // What is awaited for longer is that of a long time, also of those whose samples came.
        let is_awaited = !lost.is_empty() && only_late && self.late + 1 < MAX_PERIODS;
        self.late = if is_awaited { self.late + 1 } else { 0 };
        if !is_awaited {
            for (node, counted) in self.nodes.iter_mut().zip(counted) {
                node.before = counted;
            }
        }
        if std::mem::replace(&mut self.has_begun, true) && lost != self.lost {
            match lost.is_empty() {
                true => tracing::info!("the queries of all nodes are known"),
                false => tracing::warn!("the queries of this period are not known: {}", lost.join("; ")),
            }
            self.lost.clone_from(&lost);
        }
        all.latency = ReportedLatency::Histogram(latencies);
        lost.is_empty().then_some(all)
    }
}

fn of(since: &OnCallCounters, now: OnCallNow) -> TrafficPeriod {
    TrafficPeriod {
        arrivals: since.arrivals,
        completions: since.queries,
        failures: since.failures,
        in_flight: Some(now.in_flight),
        oldest_in_flight: now.oldest_in_flight.map(Seconds::from),
        outcomes: Outcomes::of_failed_answers(since.failures),
        ..TrafficPeriod::default()
    }
}

fn record(latencies: &mut Histogram<u64>, since: &OnCallCounters) {
    for (us, count) in &since.latencies {
        latencies.saturating_record_n((*us).max(1), *count);
    }
}

#[cfg(test)]
#[path = "oncall_tests.rs"]
mod tests;
