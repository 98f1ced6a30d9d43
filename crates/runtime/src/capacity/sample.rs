//! What a meter shows, as the estimators take it, and as a row for records.

use super::way::{Way, summary};
use headroom_control::capacity::{Estimate, UtilisationReading};
use headroom_node::queue::{Counters, QueueMethod, QueuePeriod, QueueSample, Scope};
use headroom_record::CapacitySummary;
use headroom_units::{PerSecond, Ratio, Seconds};

/// One sample of one method.
#[derive(Clone, Debug)]
pub struct Row {
    /// When, since the start.
    pub at: Seconds,
    /// By which method.
    pub method: QueueMethod,
    /// The time since the sample before that did not fail.
    pub interval: Option<Seconds>,
    /// What it shows, or why it shows nothing.
    pub shown: Result<Shown, String>,
    /// What it says of the capacity.
    pub estimates: Vec<(Way, Estimate)>,
    /// Whether its counts are the whole machine's, and nothing has shown that they are this port's.
    pub is_shared: bool,
    /// What is counted: connections, or requests where a status page counts nothing else.
    pub unit: &'static str,
}

/// What all ways to measure count but some status pages.
pub const CONNECTIONS: &str = "connections";

impl Row {
    /// What one of its estimates says.
    pub fn summary(&self, way: Way, estimate: &Estimate) -> CapacitySummary {
        let unit = match way {
            Way::Static => CONNECTIONS,
            _ => self.unit,
        };
        summary(estimate, way.assumes(self.is_shared), unit)
    }
}

/// What a sample counts.
pub fn unit(sample: &QueueSample) -> &'static str {
    let counters = [&sample.port, &sample.server, &sample.machine];
    let any = |of: fn(&Counters) -> Option<u64>| counters.iter().any(|one| of(one).is_some());
    match any(|one| one.enqueued.or(one.accepts)) {
        false if any(|one| one.requests) => "requests",
        _ => CONNECTIONS,
    }
}

/// What a meter showed since the sample before.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Whose events these are, where there are any.
    pub scope: Option<Scope>,
    /// Attempts, accepts or requests, and the dropped share.
    pub arrival_rate: Option<PerSecond>,
    /// What was served.
    pub service_rate: Option<PerSecond>,
    /// The dropped share of the attempts.
    pub drop_ratio: Option<Ratio>,
    /// Connections (or requests, where those are not reported) since the start.
    pub connections: Option<u64>,
    /// Drops since the start.
    pub drops: Option<u64>,
    /// The mean length of the queue that arrivals found, else its length now.
    pub queue_mean: Option<f64>,
    /// The connections that the queue holds at most.
    pub backlog: Option<u64>,
    /// The length that can overflow within a step (Equation 2).
    pub threshold: Option<f64>,
    /// Share of the CPU time that was used.
    pub cpu: Option<Ratio>,
    /// Why there is no difference to the sample before, where there is none.
    pub note: Option<String>,
}

impl Shown {
    /// The difference between two samples.
    pub fn between(before: Option<&QueueSample>, now: &QueueSample) -> Self {
        let period = before.map(|before| now.since(before));
        let (period, note) = match period {
            None => (None, None),
            Some(Ok(period)) => (Some(period), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        let arrivals = period.as_ref().and_then(QueuePeriod::arrival_rate);
        let served = period.as_ref().and_then(QueuePeriod::service_rate);
        let counters = [now.port, now.server, now.machine];
        let narrowest = |of: fn(&Counters) -> Option<u64>| counters.iter().find_map(of);
        Self {
            scope: arrivals
                .or(served)
                .map(|(_, scope)| scope)
                .or(before.map(|_| widest(now))),
            arrival_rate: arrivals.map(|(rate, _)| rate),
            // Of a whole machine only openings are counted; in the long run as many are served.
            service_rate: served
                .map(|(rate, _)| rate)
                .or_else(|| period.as_ref().and_then(openings)),
            drop_ratio: period
                .as_ref()
                .and_then(QueuePeriod::drop_ratio)
                .map(|(ratio, _)| ratio),
            connections: narrowest(|one| one.enqueued.or(one.accepts).or(one.requests)),
            drops: narrowest(|one| one.drops),
            queue_mean: period
                .as_ref()
                .and_then(|period| period.seen_mean)
                .or(now.length.map(|length| length.now as f64)),
            backlog: now.places(),
            threshold: None,
            cpu: now.cpu_busy,
            note,
        }
    }
}

fn openings(period: &QueuePeriod) -> Option<PerSecond> {
    let enqueued = period.machine.enqueued? as f64;
    Some(PerSecond::new(enqueued / period.duration.get()))
}

fn widest(sample: &QueueSample) -> Scope {
    match (sample.port, sample.server) {
        (port, _) if port.enqueued.is_some() => Scope::Port,
        (_, server) if server != Counters::default() => Scope::Server,
        _ => Scope::Machine,
    }
}

/// What a meter of throughput and CPU showed. `cpu` is whose CPU it is to be, where it is not what the meter shows.
pub fn reading(length: Seconds, sample: &QueueSample, cpu: Option<Option<Ratio>>) -> UtilisationReading {
    let served = |counters: &Counters| counters.accepts.or(counters.requests);
    UtilisationReading {
        length,
        identity: sample.epoch,
        served: served(&sample.port)
            .or_else(|| served(&sample.server))
            .or(sample.machine.enqueued),
        utilisation: cpu.unwrap_or(sample.cpu_busy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_node::queue::Length;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::{Duration, Instant};

    fn socket(cookie: u64, now: u64, enqueued: u64) -> headroom_node::queue::Listener {
        headroom_node::queue::Listener {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 80)),
            cookie,
            length: Length { now, limit: 63 },
            drops: Some(0),
            enqueued: Some(enqueued),
        }
    }

    fn sample(sockets: Vec<headroom_node::queue::Listener>) -> QueueSample {
        let now = sockets.iter().map(|one| one.length.now).sum();
        QueueSample {
            method: QueueMethod::Ebpf,
            at: Instant::now(),
            epoch: 3,
            port: Counters {
                enqueued: Some(100),
                accepts: Some(90),
                drops: Some(7),
                ..Counters::default()
            },
            server: Counters::default(),
            machine: Counters::default(),
            length: Some(Length {
                now,
                limit: 63 * sockets.len() as u64,
            }),
            seen: None,
            cpu_busy: None,
            connections: None,
            loops_busy: None,
            listeners: sockets,
        }
    }

    #[test]
    fn of_a_whole_machine_what_is_opened_is_what_is_served() {
        let mut by_kernel = sample(vec![socket(1, 10, 0)]);
        by_kernel.port = Counters {
            drops: Some(7),
            ..Counters::default()
        };
        by_kernel.machine.enqueued = Some(500);
        let mut later = by_kernel.clone();
        later.at += Duration::from_secs(2);
        later.machine.enqueued = Some(560);
        let shown = Shown::between(Some(&by_kernel), &later);
        assert_eq!(shown.service_rate, Some(PerSecond::new(30.0)));
        assert_eq!(
            (shown.scope, shown.queue_mean),
            (Some(Scope::Machine), Some(10.0))
        );
        later.epoch += 1;
        let shown = Shown::between(Some(&by_kernel), &later);
        assert!(shown.service_rate.is_none() && shown.note.unwrap().contains("came or went"));
    }
}
