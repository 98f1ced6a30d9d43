//! What one control period leaves behind, for whoever shows, counts or records it.

use super::device::{Missing, Refused};
use super::outcomes::Outcomes;
use hdrhistogram::Histogram;
use headroom_control::{Decision, Observation, Traffic};
use headroom_gateway::{
    BatchCounts, CacheCounts, ConnectCounts, QueueCounts, RankCounts, RetryCounts, SourceCounts,
};
use headroom_units::{
    Cores, Joules, Lever, Part, PerSecond, Ratio, Reading, Role, Seconds, Sensor, Setting, Watts,
};

/// One control period.
#[derive(Clone, Debug, Default)]
pub struct Tick {
    /// Time from the start of the run to the end of the period.
    pub at: Seconds,
    /// What the law was given.
    pub observation: Observation,
    /// What it answered.
    pub decision: Decision,
    /// What is in force after that.
    pub in_force: Setting,
    /// Whether the cap in force during the period was all that the cores can need.
    pub cap_at_limit: bool,
    /// Why the decision could not be carried out, wholly or in part.
    pub not_carried_out: Vec<String>,
    /// What keeps the levers from being moved.
    pub levers: Levers,
    /// Energy consumed in the period.
    pub energy: Option<Reading<Joules>>,
    /// The meter's zone.
    pub zone: String,
    /// Share of the quota's periods in which the service was throttled.
    pub throttled: Option<Ratio>,
    /// Readings that meters refused, for each node and its meter.
    pub refused: Vec<Refused>,
    /// Whether a lever was not in force as commanded, or another one than at the start held the cap.
    pub levers_lost: bool,
    /// Nodes that could not be reached, and what they count as.
    pub missing: Missing,
    /// What the meter counts beside what caps are on.
    pub beside_caps: Watts,
    /// The SLO's target; `None` for a run that is held to no SLO.
    pub target: Option<Seconds>,
    /// The share of requests that the SLO covers; likewise.
    pub percentile: Option<Ratio>,
    /// The latency above which the law repairs, where it has such a threshold.
    pub guard: Option<Seconds>,
    /// Latencies of the period, in microseconds; `None` where they are not known one by one.
    pub histogram: Option<Histogram<u64>>,
    /// The backends.
    pub backends: Vec<BackendTick>,
    /// Requests that had to wait for a backend below its limit; `None` where the telemetry does not tell.
    pub queue: Option<QueueCounts>,
    /// Those of each class of importance, by its name; none where all requests are equal.
    pub importance: Vec<(String, RankCounts)>,
    /// What the gateway's cache did; `None` where there is none.
    pub cache: Option<CacheCounts>,
    /// What the gateway's batcher did; `None` where there is none.
    pub batch: Option<BatchCounts>,
    /// Times that the gateway paused accepting clients because they had their share of its descriptors.
    pub accept_pauses: u64,
    /// Microseconds that clients took beyond what the latencies count.
    pub client_us: u64,
    /// What the gateway refused of sources over their limits, and of proxies' headers.
    pub sources: SourceCounts,
    /// Requests that the gateway sent to a backend once more.
    pub retries: RetryCounts,
    /// Requests that the gateway refused; they are not among the arrivals.
    pub requests_refused: u64,
    /// Statuses, and failures by cause.
    pub outcomes: Outcomes,
    /// Whether telemetry was expected, and did not come.
    pub telemetry_lost: bool,
    /// Whether nothing that the run was configured with measures latencies: one that is not known is no sign of anything then.
    pub is_unmeasured: bool,
    /// The cluster, its nodes and its gateways, where the run has such.
    pub parts: Vec<Part>,
}

impl Tick {
    /// Cores and cap of the whole run in the period, where they are levers of it: what was in force where it is commanded, and
    /// everything of a node that could not be reached. The cap is on all that the meter counts.
    pub fn held(&self) -> (Option<Cores>, Option<Watts>) {
        let in_force = &self.observation.in_force;
        (
            in_force.cores().map(|cores| cores + self.missing.cores),
            in_force
                .cap()
                .map(|cap| cap + self.missing.cap + self.beside_caps),
        )
    }

    /// The run as a whole, with this in force: `all`, with everything of a node that could not be reached.
    pub fn whole(&self, in_force: &Setting) -> Part {
        let seen = &self.observation;
        let busy = seen.utilisation.zip(seen.in_force.cores());
        let latency = seen.traffic.as_ref().and_then(|traffic| traffic.latency);
        let with_missing = |value: Option<f64>, missing: f64| value.map(|value| value + missing);
        let mut whole = Part::new("all", Role::Cluster)
            .set_to(in_force)
            .with(
                Lever::Cores,
                with_missing(in_force.get(Lever::Cores), self.missing.cores.get()),
            )
            .with(
                Lever::Cap,
                with_missing(
                    in_force.get(Lever::Cap),
                    (self.missing.cap + self.beside_caps).get(),
                ),
            )
            .with(Sensor::ArrivalRate, seen.demand().map(PerSecond::get))
            .with(
                Sensor::LatencyAtSlo,
                latency
                    .filter(|latency| !latency.missed)
                    .map(|latency| latency.at_slo.get()),
            )
            .with(Sensor::Power, self.power().map(|power| power.value.get()))
            .with(Sensor::Utilisation, seen.utilisation.map(Ratio::get))
            .with(
                Sensor::BusyCores,
                busy.map(|(utilisation, cores)| cores.get() * utilisation.get()),
            )
            .with(
                Sensor::FrequencyMean,
                seen.frequency.map(|frequency| frequency.value.get()),
            )
            .with(Sensor::Throttled, self.throttled.map(Ratio::get));
        whole.source = self.power().map(|power| power.source);
        for part in self.parts_of(Role::Cluster) {
            let more = part
                .values
                .iter()
                .filter(|(quantity, _)| !whole.values.contains_key(quantity));
            let more: Vec<_> = more.map(|(quantity, value)| (*quantity, *value)).collect();
            whole.values.extend(more);
        }
        whole
    }

    /// Whether the latency to judge is over the target: that of what was answered, or, where nothing was although something waits,
    /// for how long the oldest does.
    pub fn is_over(&self) -> bool {
        let traffic = self.observation.traffic.as_ref();
        let over = |traffic: &Traffic| {
            self.target
                .is_some_and(|target| traffic.latency_to_judge() > target)
        };
        traffic.is_some_and(over)
    }

    /// The SLO's percentile as people write it: `P99`.
    pub(super) fn percentile_name(&self) -> Option<String> {
        Some(format!("P{}", self.percentile?.as_percent()))
    }

    /// The parts of a role.
    pub fn parts_of(&self, role: Role) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(move |part| part.role == role)
    }

    /// Mean power of the whole run in the period; not known where a node could not be reached.
    pub fn power(&self) -> Option<Reading<Watts>> {
        self.observation.power.filter(|_| self.missing.nodes == 0)
    }
}

/// What keeps levers from being moved, other than the law.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levers {
    /// An operator has paused control: everything is as it was found.
    pub paused: bool,
    /// What somebody else wrote and is left alone, in words.
    pub left_alone: Vec<String>,
    /// Writes of somebody else since the start.
    pub foreign_writes: u64,
    /// Why the service cannot be limited: its control group is gone.
    pub gone: Option<String>,
}

/// One backend in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTick {
    /// Its URL.
    pub name: String,
    /// Requests sent to it.
    pub requests: u64,
    /// Requests it failed.
    pub failures: u64,
    /// Whether requests are sent to it.
    pub healthy: bool,
    /// Connections to it; `None` where the telemetry does not tell.
    pub connects: Option<ConnectCounts>,
    /// Requests whose clients left before they were answered, which are none of its failures; `None` where the telemetry does not tell.
    pub left_by_clients: Option<u64>,
    /// Requests that it answered and whose clients were found to have left then; `None` where the telemetry does not tell.
    pub answered_to_nobody: Option<u64>,
    /// Of its failures those that it answered with a failed status; `None` where the telemetry does not tell.
    pub failed_answers: Option<u64>,
    /// The balancer's own checks that were sent to it; `None` where the telemetry does not tell.
    pub checks: Option<u64>,
}

/// The share of the requests of a period that shows that a server answers: what a balancer counts and has in flight is not read at one instant,
/// and a surge asks for many times what a server answers.
const MIN_ANSWERED: f64 = 0.05;

impl BackendTick {
    /// Requests that were sent to it, less those whose clients left and those that failed or came to no connection: of those that came to no
    /// connection some failed too, where no other server had room.
    pub fn kept(&self) -> f64 {
        let unconnected = self
            .connects
            .map_or(0, |connects| connects.refused + connects.timed_out);
        let left = self.left_by_clients.unwrap_or(0);
        self.requests as f64 - (self.failures.max(unconnected) + left) as f64
    }

    /// Whether it answered any, with whatever status, where it had so many in flight before and at the end.
    pub fn has_answered(&self, before: u64, now: u64) -> bool {
        let failed_answers = self.failed_answers.unwrap_or(0) as f64;
        shows_answers(
            self.requests as f64,
            self.kept() + failed_answers - (now as f64 - before as f64),
        )
    }
}

/// Whether so many answers to so many requests that were sent show that a server answers.
pub fn shows_answers(sent: f64, answers: f64) -> bool {
    answers >= (MIN_ANSWERED * sent).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_over_the_target_once_the_oldest_waits_for_longer() {
        let tick = |oldest_s: Option<f64>, completions: u64| {
            let mut tick = Tick {
                target: Some(Seconds::new(0.1)),
                ..Tick::default()
            };
            tick.observation.traffic = Some(Traffic {
                completions,
                in_flight: Some(3),
                oldest_in_flight: oldest_s.map(Seconds::new),
                ..Traffic::default()
            });
            tick
        };
        assert!(tick(Some(0.2), 0).is_over());
        assert!(!tick(Some(0.05), 0).is_over());
        assert!(!tick(None, 0).is_over(), "no queries");
        assert!(!Tick::default().is_over(), "nothing is known");
    }
}
