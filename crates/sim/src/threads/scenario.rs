//! What an oversubscribed server is made of.

use super::classes::ClassFigures;
use super::curve::IpqCurve;
use crate::scenario::Limits;
use headroom_physics::{MachineFigures, Placement};
use headroom_workload::Shape;
use serde::{Deserialize, Serialize};

/// How queries reach the connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum QueryArrivals {
    /// Each connection sends its next query a while after the last was answered.
    Closed {
        /// Mean of that while, seconds; at least the round trip to the client.
        think_s: f64,
        /// How it is distributed.
        think: Shape,
    },
    /// A Poisson stream, each query on a connection drawn at random; a connection answers its queries in their order.
    Open {
        /// Queries per second on all connections.
        rate_per_s: f64,
    },
}

impl Default for QueryArrivals {
    /// No think time, and a round trip of 0.1 ms in a data centre.
    fn default() -> Self {
        Self::Closed {
            think_s: 1e-4,
            think: Shape::Exponential {},
        }
    }
}

/// The CPU work of a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueryFigures {
    /// Mean instructions of a query with one thread (IPQ).
    pub instructions: f64,
    /// How they are distributed.
    pub shape: Shape,
    /// How they grow with the number of active threads.
    pub inflation: IpqCurve,
    /// Instructions per second of a core at its highest frequency.
    pub instructions_per_s: f64,
}

impl Default for QueryFigures {
    /// 0.5 million instructions at one per cycle of 2.1 GHz, 0.24 ms: six cores then serve some 25,000 queries per second, the
    /// throughput class of REEF's MongoDB, which saturates at six cores (Figure 4a). The split is assumed, not published.
    fn default() -> Self {
        Self {
            instructions: 5e5,
            shape: Shape::Exponential {},
            inflation: IpqCurve::mongodb(),
            instructions_per_s: 2.1e9,
        }
    }
}

/// The disks behind the server, as one queue in front of parallel servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskFigures {
    /// The share of queries that access the disk.
    pub probability: f64,
    /// Accesses of such a query, spread evenly over its instructions.
    pub accesses: u32,
    /// Accesses that are served at once.
    pub parallel: u32,
    /// Mean service time, seconds.
    pub service_s: f64,
    /// How it is distributed.
    pub service: Shape,
    /// What the disks draw, watts: REEF adds the nameplates.
    pub power_w: f64,
}

impl Default for DiskFigures {
    /// Five SATA SSDs, as in REEF's testbed, each with two accesses at once of 0.4 ms: 25,000 accesses per second; 3 W each. The
    /// times are assumed.
    fn default() -> Self {
        Self {
            probability: 0.8,
            accesses: 1,
            parallel: 10,
            service_s: 4e-4,
            service: Shape::Exponential {},
            power_w: 15.0,
        }
    }
}

/// Locks on hot rows. A transaction locks one row at most, so that transactions alone never deadlock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LockFigures {
    /// The share of transactions that lock a row.
    pub probability: f64,
    /// H, hot rows, all asked for equally often.
    pub rows: u32,
    /// Queries of a transaction: the first takes the lock, the last releases it. In between the holder is parked or waits for its client.
    pub queries: u32,
    /// The share of the first query's instructions before the lock is taken.
    pub from: f64,
    /// The share of the last query's instructions after which it is released.
    pub until: f64,
}

impl Default for LockFigures {
    /// No locks; 50 rows where a probability is given, as in the measurement of the deadlock.
    fn default() -> Self {
        Self {
            probability: 0.0,
            rows: 50,
            queries: 1,
            from: 0.2,
            until: 1.0,
        }
    }
}

/// How the kernel chooses who runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelPolicy {
    /// A queue per core in turn; a thread wakes on an idle core, else on the one with the shortest queue; a core without work takes
    /// some from the longest. Like Linux' fair scheduler with equal weights, without its credit for sleepers.
    #[default]
    FairPerCore,
    /// One queue for all cores in turn.
    FairGlobal,
    /// ghOSt's SOL: one FIFO, slices of 1 ms, and who is preempted goes to its front. A core whose thread ran a full slice is free.
    Sol,
}

/// The kernel's scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelFigures {
    /// Who runs.
    pub policy: KernelPolicy,
    /// How long a thread runs while others wait, seconds; not given: 3 ms, and 1 ms under [`KernelPolicy::Sol`].
    pub slice_s: Option<f64>,
    /// What a switch to another thread costs, seconds of the core ("a few microseconds", REEF, Section 3.2).
    pub switch_s: f64,
    /// Wake-up preemption: a thread that wakes preempts one that ran for at least so long, seconds. Not given: it waits.
    pub preempt_after_s: Option<f64>,
    /// Which idle core a thread wakes on when its last is busy.
    pub placement: Placement,
}

impl Default for KernelFigures {
    fn default() -> Self {
        Self {
            policy: KernelPolicy::default(),
            slice_s: None,
            switch_s: 2e-6,
            preempt_after_s: None,
            placement: Placement::default(),
        }
    }
}

impl KernelFigures {
    /// The slice in force, seconds.
    pub fn slice_s(&self) -> f64 {
        let of_policy = match self.policy {
            KernelPolicy::FairPerCore | KernelPolicy::FairGlobal => 0.003,
            KernelPolicy::Sol => 0.001,
        };
        self.slice_s.unwrap_or(of_policy)
    }
}

/// The on-call gate in front of the threads (REEF, Sections 3.3 and 3.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateFigures {
    /// C, the concurrency limit: workers with a slot at once.
    pub concurrency: u32,
    /// N, tokens: queries of a connection in a round.
    pub tokens: u32,
    /// D, the inter-scheduling-round delay, seconds: from the last slot given back in a round to the next round. At 0 a round
    /// begins as soon as nobody waits in the one before.
    pub delay_s: f64,
    /// How long a worker with tokens left keeps its slot for its connection's next query, seconds.
    pub linger_s: f64,
    /// Whether a worker that lingered in vain keeps its tokens for the rest of the round, as in the live runtime. If not, its batch is
    /// done and it has its next turn in the next round (REEF, Section 3.3), so that rounds are shorter.
    pub keeps_tokens: bool,
    /// CPU time to admit a worker, seconds (REEF, Section 4: 2.35 us for a signal).
    pub wake_s: f64,
    /// Whether a worker that waits for the disk gives its slot back meanwhile. If not, C bounds the accesses too.
    pub disk_gives_back: bool,
    /// Whether a worker that waits for a lock gives its slot back meanwhile. If not, the server can deadlock: every slot waits for
    /// a lock whose holder is parked.
    pub lock_gives_back: bool,
}

impl Default for GateFigures {
    fn default() -> Self {
        Self {
            concurrency: 12,
            tokens: 8,
            delay_s: 0.0,
            linger_s: 2e-4,
            keeps_tokens: false,
            wake_s: 2.35e-6,
            disk_gives_back: true,
            lock_gives_back: true,
        }
    }
}

/// Something that befalls a server once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Incident {
    /// Each connection is sent so many queries more, all at one moment.
    Storm {
        /// When, seconds.
        at_s: f64,
        /// Queries of each connection.
        queries: u32,
    },
    /// The disks begin no access for a while; those that are under way end.
    Stall {
        /// When, seconds.
        at_s: f64,
        /// For how long, seconds.
        length_s: f64,
    },
    /// A connection is killed, and its client comes back at once: the query that is served ends before its next step, the row that its
    /// transaction holds is free, and a wait for one is over. What waits to be served is served.
    Kill {
        /// When, seconds.
        at_s: f64,
        /// Which, from 0.
        connection: u32,
    },
    /// The scenario's open loop sends more, or less, from then on: this times its rate. Classes with arrivals of their own go on as before.
    Load {
        /// When, seconds.
        at_s: f64,
        /// Its rate from then on, over that of the scenario.
        scale: f64,
    },
}

impl Incident {
    /// When, seconds.
    pub const fn at_s(&self) -> f64 {
        match self {
            Self::Storm { at_s, .. }
            | Self::Stall { at_s, .. }
            | Self::Kill { at_s, .. }
            | Self::Load { at_s, .. } => *at_s,
        }
    }
}

/// A server with a thread for each connection. By default REEF's testbed with a MongoDB-like load (Section 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThreadsScenario {
    /// Simulated time, seconds.
    pub duration_s: f64,
    /// What is not measured at the beginning, seconds.
    pub warm_up_s: f64,
    /// Between two decisions of the policy, seconds (REEF, Section 4: 0.1).
    pub period_s: f64,
    /// Connections, each with a thread.
    pub connections: u32,
    /// Their classes, in the order of the connections' numbers; not given: all are of one, without an SLO.
    pub classes: Vec<ClassFigures>,
    /// The percentile that a period's latency is of, such as 0.99.
    pub slo_percentile: f64,
    /// When queries come.
    pub arrivals: QueryArrivals,
    /// CPU work.
    pub query: QueryFigures,
    /// Disks.
    pub disk: DiskFigures,
    /// Locks.
    pub locks: LockFigures,
    /// The scheduler.
    pub kernel: KernelFigures,
    /// The gate; not given: threads serve themselves.
    pub gate: Option<GateFigures>,
    /// What befalls it, in any order.
    pub incidents: Vec<Incident>,
    /// The machine: cores, idle states, power.
    pub machine: MachineFigures,
    /// T of Equation 2, seconds: from so long on an idle period in C6 pays.
    pub break_even_s: f64,
    /// What ends a run that would not end.
    pub limits: Limits,
}

impl Default for ThreadsScenario {
    fn default() -> Self {
        // Two packages with twelve cores; figures of the uncore are per package.
        let mut machine = MachineFigures::broadwell(12);
        machine.processor.cores = 24;
        machine.processor.packages = 2;
        Self {
            duration_s: 20.0,
            warm_up_s: 2.0,
            period_s: 0.1,
            connections: 64,
            classes: Vec::new(),
            slo_percentile: 0.99,
            arrivals: QueryArrivals::default(),
            query: QueryFigures::default(),
            disk: DiskFigures::default(),
            locks: LockFigures::default(),
            kernel: KernelFigures::default(),
            gate: None,
            incidents: Vec::new(),
            machine,
            break_even_s: 1e-3,
            limits: Limits::default(),
        }
    }
}

impl ThreadsScenario {
    /// A MySQL-like load: the processor is the bottleneck, and IPQ grows without a plateau (REEF, Figure 3). Four million instructions
    /// are assumed for an OLTP query with its share of commits, and a disk access for one query in five.
    pub fn mysql(connections: u32) -> Self {
        let default = Self::default();
        Self {
            connections,
            query: QueryFigures {
                instructions: 4e6,
                inflation: IpqCurve::mysql(),
                ..default.query
            },
            disk: DiskFigures {
                probability: 0.2,
                ..default.disk
            },
            ..default
        }
    }
}
