//! What a run comes to.

use crate::energy::EnergyByCause;
use crate::histogram::LatencyHistogram;
use headroom_units::{Joules, Seconds, Watts};

/// The idle periods of all cores: from the last work of a core to its next. What wakes a core without work for the service
/// (timers) does not end one here, as it lasts microseconds; the energy has it.
#[derive(Clone, Debug, PartialEq)]
pub struct IdlePeriods {
    /// T, seconds.
    pub break_even_s: f64,
    /// Their lengths.
    pub lengths: LatencyHistogram,
    /// The sum of those above T, core-seconds.
    pub long_s: f64,
}

impl IdlePeriods {
    pub(super) fn new(break_even_s: f64) -> Self {
        Self {
            break_even_s,
            lengths: LatencyHistogram::new(),
            long_s: 0.0,
        }
    }

    pub(super) fn record(&mut self, length_s: f64) {
        if length_s <= 0.0 {
            return;
        }
        self.lengths.record(Seconds::new(length_s));
        if length_s > self.break_even_s {
            self.long_s += length_s;
        }
    }
}

/// Where the threads' time went, as shares of all threads' time (REEF, Figure 4a).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadShares {
    /// R: runs or could.
    pub runnable: f64,
    /// S: waits for its client, the gate or a lock.
    pub sleeping: f64,
    /// D: waits for the disk.
    pub disk: f64,
}

/// The connections of one class, from the end of the warm-up on.
#[derive(Clone, Debug)]
pub struct ClassTotals {
    /// Its name.
    pub name: String,
    /// Its connections.
    pub connections: u32,
    /// Queries answered.
    pub queries: u64,
    /// From sent to answered.
    pub latency: LatencyHistogram,
    /// The share of queries over target, by the share that may be, of all its connections together: the most of its SLOs, kept at 1
    /// or less (REEF, Section 5.4). Of a disengagement SLO the ratio over the one that may be. `None` without an SLO.
    pub missed: Option<f64>,
    /// The same of the connection that is worst off.
    pub missed_worst: Option<f64>,
}

/// A run, from the end of its warm-up on.
#[derive(Clone, Debug)]
pub struct ThreadsTotals {
    /// Measured time, seconds.
    pub length_s: f64,
    /// Cores of the machine.
    pub cores: usize,
    /// Queries that the server answered; as all figures of queries, without the steps of other applications.
    pub queries: u64,
    /// The same by class, in the order of the scenario, with those.
    pub classes: Vec<ClassTotals>,
    /// From sent to answered.
    pub latency: LatencyHistogram,
    /// Queries that were sent and not answered, in the mean.
    pub mean_in_system: f64,
    /// Core-seconds for which cores ran: queries, switches, waking.
    pub busy: Seconds,
    /// Instructions over those of the same queries with one thread.
    pub ipq: f64,
    /// Switches of a core to another thread.
    pub switches: u64,
    /// Disk accesses begun.
    pub accesses: u64,
    /// Busy share of the disks.
    pub disk_utilisation: f64,
    /// Waits for a lock.
    pub lock_waits: u64,
    /// The longest that a connection waited for a slot of the gate, in the whole run: also one that waits at its end.
    pub longest_wait: Seconds,
    /// Rounds of the gate in which a worker was admitted.
    pub rounds: u64,
    /// The threads' states.
    pub threads: ThreadShares,
    /// The machine's energy by its cause, without disks.
    pub energy: EnergyByCause,
    /// The disks' energy.
    pub disks: Joules,
    /// Core-seconds in each idle state, in the order of the machine's table.
    pub idle_states: Vec<Seconds>,
    /// Package-seconds asleep.
    pub package_asleep: Seconds,
    /// The cores' idle periods.
    pub idle: IdlePeriods,
}

impl ThreadsTotals {
    /// Queries per second.
    pub fn throughput(&self) -> f64 {
        self.queries as f64 / self.length_s
    }

    /// Mean latency; zero of nothing.
    pub fn mean(&self) -> Seconds {
        self.latency.mean().unwrap_or(Seconds::ZERO)
    }

    /// P50, P99 and P99.9 of the latency.
    pub fn percentiles(&self) -> [Seconds; 3] {
        self.latency.at([0.5, 0.99, 0.999])
    }

    /// CPU time per query, with switches and waking.
    pub fn cpu_per_query(&self) -> Seconds {
        Seconds::new(self.busy.get() / self.queries as f64)
    }

    /// Context switches per query.
    pub fn switches_per_query(&self) -> f64 {
        self.switches as f64 / self.queries as f64
    }

    /// Share of the cores' time in their deepest idle state.
    pub fn c6_residency(&self) -> f64 {
        let deepest = self.idle_states.last().map_or(0.0, |state| state.get());
        deepest / (self.cores as f64 * self.length_s)
    }

    /// C6 opportunity as REEF's Equation 2 prints it: core-seconds in idle periods above T, over all idle core-seconds and
    /// T_proc / M. That adds a mean per core to a sum over cores, so it exceeds [`Self::long_idle_share`] at load.
    pub fn c6_opportunity(&self) -> f64 {
        let total_s = self.idle.lengths.sum_s() + self.busy.get() / self.cores as f64;
        self.idle.long_s / total_s
    }

    /// Share of the cores' time in idle periods above T.
    pub fn long_idle_share(&self) -> f64 {
        self.idle.long_s / (self.cores as f64 * self.length_s)
    }

    /// Mean power of what REEF counts: processors, memory and storage (Section 3.1), without the platform.
    pub fn power(&self) -> Watts {
        let counted = self.energy.total() - self.energy.platform + self.disks;
        Watts::new(counted.get() / self.length_s)
    }

    /// EE(TPP), queries per second and watt (REEF, Table 2).
    pub fn ee_tpp(&self) -> f64 {
        self.throughput() / self.power().get()
    }

    /// EE(Px), queries per second and watt: TPP over the tail's ratio to the mean (REEF, Table 2). `share` is 0.99 for P99.
    pub fn ee_tail(&self, share: f64) -> f64 {
        let [tail] = self.latency.at([share]);
        self.ee_tpp() * self.mean().get() / tail.get()
    }
}
