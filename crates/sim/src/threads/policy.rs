//! What a policy of the gate is given once a period.

use headroom_units::Seconds;

/// One connection in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConnectionObservation {
    /// Its queries answered.
    pub queries: u64,
    /// Mean of their latencies; zero of none.
    pub mean: Seconds,
    /// Standard deviation of their latencies over the mean; zero of none.
    pub cv: f64,
    /// Its queries sent and not answered at the end of the period.
    pub in_system: u32,
    /// Whether it waits for a slot at the end of the period.
    pub waiting: bool,
}

/// A period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateObservation {
    /// Its end, from the start of the run.
    pub at: Seconds,
    /// Its length.
    pub length: Seconds,
    /// Each connection.
    pub connections: Vec<ConnectionObservation>,
    /// Queries answered per second.
    pub throughput: f64,
    /// Connections that wait for a slot at its end.
    pub waiting: usize,
    /// P50, P99 and P99.9 of all latencies; zero of none.
    pub percentiles: [Seconds; 3],
    /// Core-seconds for which cores ran.
    pub busy: Seconds,
}

/// Sums over a connection's latencies of a period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    queries: u64,
    sum_s: f64,
    squares: f64,
}

impl Recent {
    pub(super) fn record(&mut self, latency_s: f64) {
        self.queries += 1;
        self.sum_s += latency_s;
        self.squares += latency_s * latency_s;
    }

    /// Queries, mean and coefficient of variation; forgets them.
    pub(super) fn take(&mut self) -> (u64, Seconds, f64) {
        let Self {
            queries,
            sum_s,
            squares,
        } = std::mem::take(self);
        if queries == 0 {
            return (0, Seconds::ZERO, 0.0);
        }
        let mean_s = sum_s / queries as f64;
        let variance = (squares / queries as f64 - mean_s * mean_s).max(0.0);
        (queries, Seconds::new(mean_s), variance.sqrt() / mean_s)
    }
}
