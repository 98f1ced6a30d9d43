//! What became of a period's requests beyond answered and failed: statuses by class, failures by cause.

use headroom_gateway::Counts;
use headroom_telemetry::TelemetryPeriod;
use headroom_wire::message::FailureCounts;

/// The classes of HTTP statuses, as metrics name them.
pub const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What became of a period's requests, as far as the telemetry says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Requests whose client went away. They are among the failures and miss no SLO.
    pub failed_by_client: u64,
    /// Answers by the class of their status; `None` where the telemetry does not say.
    pub responses: Option<[u64; 5]>,
    /// Failures by cause.
    pub causes: Vec<(&'static str, u64)>,
}

impl Outcomes {
    /// As the gateway of this process counted them.
    pub fn of_gateway(counts: &Counts) -> Self {
        Self::of_counts(failures(counts), Some(counts.statuses))
    }

    /// As a gateway elsewhere reported them.
    pub fn of_counts(failures: FailureCounts, responses: Option<[u64; 5]>) -> Self {
        Self {
            failed_by_client: failures.aborted_by_client,
            responses,
            causes: vec![
                ("failed_status", failures.failed_answers),
                ("unreachable", failures.unreachable),
                ("over_limit", failures.over_limit),
                ("timed_out", failures.timed_out),
                ("aborted_by_backend", failures.aborted_by_backend),
                ("aborted_by_client", failures.aborted_by_client),
            ],
        }
    }

    /// Of a server whose workers count its answers, and of which nothing else is known.
    pub fn of_failed_answers(count: u64) -> Self {
        Self {
            causes: vec![("failed_status", count)],
            ..Self::default()
        }
    }

    /// As another proxy, or a Prometheus, reported them.
    pub fn of_telemetry(period: &TelemetryPeriod) -> Self {
        let failed = &period.failed;
        Self {
            failed_by_client: failed.by_client,
            responses: period.statuses,
            causes: vec![
                ("failed_status", failed.by_status),
                ("server", failed.by_server),
                ("proxy", failed.by_proxy),
                ("aborted_by_client", failed.by_client),
                ("unattributed", failed.unattributed),
            ],
        }
    }

    /// Adds another gateway's.
    pub fn add(&mut self, other: &Self) {
        self.failed_by_client += other.failed_by_client;
        if let Some(counts) = other.responses {
            let sums = self.responses.get_or_insert_default();
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        for (cause, count) in &other.causes {
            match self.causes.iter_mut().find(|(known, _)| known == cause) {
                Some((_, sum)) => *sum += count,
                None => self.causes.push((cause, *count)),
            }
        }
    }
}

/// Of the requests that came to a gateway in a period, those that were demand: what is malformed, too large or over its source's rate is no
/// work of the service, and a flood of it is no reason to give the service more. A request is refused when it comes or not at all, so
/// that no demand of another period is touched.
pub(crate) fn demand(arrivals: u64, refused: u64) -> u64 {
    arrivals.saturating_sub(refused)
}

/// The gateway's failures by cause, as the wire has them.
pub fn failures(counts: &Counts) -> FailureCounts {
    FailureCounts {
        unreachable: counts.unreachable,
        over_limit: counts.over_limit,
        timed_out: counts.timed_out,
        aborted_by_backend: counts.aborted_by_backend,
        aborted_by_client: counts.aborted_by_client,
        failed_answers: counts.failed_answers,
    }
}
