//! Which servers are run under whom, and what is assumed of them.

use headroom_control::oncall::delay::TAIL_BATCH;
use headroom_sim::threads::{
    ClassFigures, DisengagementTarget, GateFigures, KernelPolicy, QueryArrivals, SloChange, ThreadsScenario,
};
use headroom_workload::Shape;
use serde::Serialize;

/// Connections of Figures 3 and 12 to 14.
pub const CONNECTIONS: [u32; 4] = [64, 128, 256, 512];
/// Connections of all other figures.
pub const MOST: u32 = 512;
/// Cores of Figures 4 and 5; the paper's 2 to 40 are hyperthreads.
pub const PACKED: [u32; 8] = [2, 4, 6, 8, 10, 12, 16, 24];
/// Workers at once of the profile that C and AppleS' P are taken from.
pub const WORKERS: [u32; 10] = [4, 8, 12, 16, 20, 23, 32, 64, 128, 500];
/// The three of them that AppleS' curve is fitted to: 8, 32 and one near the number of connections.
pub const APPLES_POINTS: [u32; 3] = [8, 32, 500];
/// C is below the number of cores: "leaving headroom for the OS and co-located workloads" (Section 3.3).
pub const MOST_WORKERS: u32 = 23;
/// Load limits of Figure 9, percent of the throughput at saturation. The paper begins at 100.
pub const LIMITS: [u32; 9] = [80, 85, 90, 95, 100, 105, 110, 120, 150];
/// The load limit of all other figures.
pub const LIMIT: u32 = 105;
/// Batch sizes of Figure 10.
pub const BATCHES: [u32; 5] = [1, 2, 4, 8, 16];
/// The batch sizes that the paper names: for tails, and for throughput (Section 3.4).
pub const NAMED_BATCHES: [u32; 2] = [TAIL_BATCH, 8];
/// Delays of Figure 11, microseconds.
pub const INTERVALS_US: [u32; 9] = [200, 500, 1_000, 2_000, 5_000, 10_000, 40_000, 100_000, 1_000_000];
/// Offered loads of the idle periods, percent of the throughput at saturation.
pub const LOADS: [u32; 6] = [10, 20, 30, 50, 70, 90];
/// The load whose idle periods are plotted.
pub const HALF: u32 = 50;
/// Where users begin to give up, and where all have, seconds: assumed, for the paper prints no curve.
const DISENGAGED: [(f64, f64); 2] = [(0.04, 0.0), (0.4, 1.0)];
/// The class of the server's connections beside other applications.
pub const SERVER: &str = "server";
/// The share of users who may (Section 5.2).
const MAY_DISENGAGE: f64 = 0.001;
/// The least throughput of best-effort connections, per second (Section 5.4).
pub const BEST_EFFORT_PER_S: f64 = 12_500.0;
/// The end of the warm-up where cores are divided, seconds.
const PROFILED_S: f64 = 8.0;
/// The end of a run's warm-up, seconds.
const WARM_UP_S: f64 = 2.0;

/// The served application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// A key-value store bound by its disks.
    Mongodb,
    /// A relational database bound by its processor.
    Mysql,
}

impl Server {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Mongodb, Self::Mysql];

    /// As words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mongodb => "MongoDB-like",
            Self::Mysql => "MySQL-like",
        }
    }

    /// L, what AppleS lets a user send in a turn: 16 for MySQL before 8.0.20, and the paper's is 8.0.15.
    pub const fn apples_tokens(self) -> u32 {
        match self {
            Self::Mongodb => 4,
            Self::Mysql => 16,
        }
    }
}

/// Who says how many queries a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Nobody: all are alike.
    Alike,
    /// AppleS.
    Apples,
    /// In PSLO's style.
    Pslo,
    /// In UTSLO's style.
    Utslo,
}

/// What stands between connections and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// Threads serve themselves; a policy admits P users at once, without rounds or delay.
    SelfServing,
    /// REEF with this N: threads on call, who keep their slots while they wait for the disk, as C is to bound accesses too.
    Reef(u32),
    /// The same as `headroom wrap` has it: who waits for the disk gives its slot back meanwhile.
    Wrap(u32),
}

/// Who divides the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Division {
    /// Nobody.
    Whole,
    /// In Demeter's style.
    Demeter,
    /// QoS-centric workload consolidation, Algorithm 1.
    Consolidation,
    /// In SATORI's style, among applications.
    Satori,
}

/// A policy, a runtime and a division of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Who {
    /// Who decides.
    pub policy: Policy,
    /// What carries it out.
    pub runtime: Runtime,
    /// Who has which cores.
    pub division: Division,
}

impl Who {
    /// The server as it is.
    pub const ALONE: Self = Self::of(Policy::Alike, Runtime::SelfServing);
    /// AppleS.
    pub const APPLES: Self = Self::of(Policy::Apples, Runtime::SelfServing);

    /// What is built, all connections alike.
    pub const WRAP: Self = Self::of(Policy::Alike, Runtime::Wrap(TAIL_BATCH));

    /// This policy under this runtime.
    pub const fn of(policy: Policy, runtime: Runtime) -> Self {
        Self {
            policy,
            runtime,
            division: Division::Whole,
        }
    }

    /// The same with divided cores.
    pub const fn divided(self, division: Division) -> Self {
        Self { division, ..self }
    }

    /// REEF, all connections alike.
    pub const fn reef(batch: u32) -> Self {
        Self::of(Policy::Alike, Runtime::Reef(batch))
    }

    /// As words.
    pub fn name(self) -> String {
        let policy = match self.policy {
            Policy::Alike => "",
            Policy::Apples => "AppleS",
            Policy::Pslo => "PSLO-style",
            Policy::Utslo => "UTSLO-style",
        };
        let division = match self.division {
            Division::Whole => "",
            Division::Demeter => " + Demeter-style",
            Division::Consolidation => " + QoS-WC",
            Division::Satori => " + SATORI-style",
        };
        let plus = if policy.is_empty() { "" } else { " + " };
        match self.runtime {
            Runtime::SelfServing if policy.is_empty() => format!("alone{division}"),
            Runtime::SelfServing => format!("{policy}{division}"),
            Runtime::Reef(batch) => format!("{policy}{plus}REEF{division}, N {batch}"),
            Runtime::Wrap(batch) => format!("{policy}{plus}as built{division}, N {batch}"),
        }
    }
}

/// What a server is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// So many workers at once, everybody in turn.
    Workers(u32),
    /// So many connections that send as soon as they are answered.
    Connections(u32),
    /// The same 512 on so many cores.
    Packed(u32),
    /// 512 connections that send at random, so many percent of the throughput at saturation together.
    Load(u32),
    /// The load limit λ, percent.
    Limit(u32),
    /// D held at so many microseconds.
    Interval(u32),
    /// 16 of 512 connections have tail SLOs.
    Tails,
    /// 16 of 512 have a user disengagement ratio.
    Disengagement,
    /// The tail SLOs are tightened when half of the run is over.
    Tightened,
    /// The kernel's scheduler is ghOSt's SOL.
    Sol,
    /// Three applications that compute run on the same machine.
    Colocated,
}

impl World {
    /// As words.
    pub fn name(self) -> String {
        match self {
            Self::Workers(count) => format!("{count} workers at once"),
            Self::Connections(count) => format!("{count} connections"),
            Self::Packed(cores) => format!("{cores} cores"),
            Self::Load(percent) => format!("{percent} % load"),
            Self::Limit(percent) => format!("load limit {percent} %"),
            Self::Interval(us) => format!("D {} ms", f64::from(us) / 1e3),
            Self::Tails => "16 of 512 with tail SLOs".to_owned(),
            Self::Disengagement => "16 of 512 with a UDR".to_owned(),
            Self::Tightened => "tail SLOs, tightened".to_owned(),
            Self::Sol => "ghOSt SOL".to_owned(),
            Self::Colocated => "beside three applications".to_owned(),
        }
    }
}

/// The schemes of Figures 18 to 20.
pub const SCHEMES: [Who; 3] = [
    Who::of(Policy::Pslo, Runtime::SelfServing).divided(Division::Demeter),
    Who::of(Policy::Pslo, Runtime::Reef(TAIL_BATCH)).divided(Division::Demeter),
    Who::of(Policy::Pslo, Runtime::Reef(TAIL_BATCH)).divided(Division::Consolidation),
];

/// The schemes of Figure 21: the paper's SATORI, AppleS, REEF, and both.
pub const COLOCATED: [Who; 4] = [
    Who::ALONE.divided(Division::Satori),
    Who::APPLES,
    Who::reef(TAIL_BATCH),
    Who::reef(TAIL_BATCH).divided(Division::Satori),
];
/// The applications of Figure 21 (PARSEC): so many threads each, as many as cores together; assumed.
pub const APPLICATIONS: [&str; 3] = ["freqmine", "streamcluster", "fluidanimate"];
/// Threads of each.
pub const THREADS: u32 = 8;
/// A step of their work is 0.1 s of a core.
pub const STEP_S: f64 = 0.1;

/// One of many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Which server.
    pub server: Server,
    /// What for.
    pub world: World,
    /// Who decides.
    pub who: Who,
}

/// What is known of a server before its figures are run (Section 3.4: "before deployment").
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Profile {
    /// C.
    pub workers: u32,
    /// P of AppleS.
    pub users: u32,
    /// The throughput at saturation, per second: the most of the profile.
    pub saturated_per_s: f64,
}

/// The profile's runs.
pub fn profile_cases() -> Vec<Case> {
    let each = Server::ALL.into_iter().flat_map(|server| {
        let world = WORKERS.into_iter().map(World::Workers);
        world.map(move |world| Case {
            server,
            world,
            who: Who::reef(TAIL_BATCH),
        })
    });
    each.collect()
}

/// All others.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |server: Server, world: World, who: Who| cases.push(Case { server, world, who });
    let [tails, throughput] = NAMED_BATCHES.map(Who::reef);
    for server in Server::ALL {
        for count in CONNECTIONS {
            for who in [Who::ALONE, Who::APPLES, tails, throughput, Who::WRAP] {
                add(server, World::Connections(count), who);
            }
        }
        let apples_on_call = Who::of(Policy::Apples, Runtime::Reef(TAIL_BATCH));
        for world in [World::Connections(MOST), World::Sol] {
            add(server, world, apples_on_call);
        }
        add(server, World::Sol, Who::APPLES);
    }
    let server = Server::Mongodb;
    for batch in BATCHES.into_iter().filter(|batch| !NAMED_BATCHES.contains(batch)) {
        add(server, World::Connections(MOST), Who::reef(batch));
    }
    for cores in PACKED {
        add(server, World::Packed(cores), Who::ALONE);
        add(server, World::Packed(cores), tails);
    }
    for limit in LIMITS {
        add(server, World::Limit(limit), tails);
        add(server, World::Limit(limit), throughput);
    }
    for us in INTERVALS_US {
        add(server, World::Interval(us), tails);
    }
    for load in LOADS {
        add(server, World::Load(load), Who::ALONE);
        add(server, World::Load(load), tails);
    }
    for (world, policy) in [
        (World::Tails, Policy::Pslo),
        (World::Disengagement, Policy::Utslo),
    ] {
        add(server, world, Who::ALONE);
        add(server, world, Who::of(policy, Runtime::SelfServing));
        for batch in [TAIL_BATCH, server.apples_tokens()] {
            add(server, world, Who::of(policy, Runtime::Reef(batch)));
        }
    }
    for who in SCHEMES {
        add(server, World::Tightened, who);
    }
    for who in COLOCATED {
        add(Server::Mysql, World::Colocated, who);
    }
    cases
}

/// The figures of a case, which last so many seconds after the warm-up.
pub fn scenario(case: &Case, duration_s: f64, profile: Option<&Profile>) -> ThreadsScenario {
    let connections = match case.world {
        World::Connections(count) => count,
        _ => MOST,
    };
    let mut scenario = match case.server {
        Server::Mysql => ThreadsScenario::mysql(connections),
        Server::Mongodb => ThreadsScenario {
            connections,
            ..ThreadsScenario::default()
        },
    };
    let warm_up_s = match case.world {
        // Algorithm 1 measures the server's throughput on several numbers of cores first.
        World::Tightened => PROFILED_S,
        // SATORI measures each application on all cores first, and samples divisions for a while.
        World::Colocated => PROFILED_S,
        _ => WARM_UP_S.min(duration_s / 2.0),
    };
    // Cores move one a second.
    let duration_s = duration_s * if case.world == World::Tightened { 4.0 } else { 1.0 };
    scenario.warm_up_s = warm_up_s;
    scenario.duration_s = warm_up_s + duration_s;
    let workers = match (case.world, case.who.runtime) {
        (World::Workers(count), _) => count,
        // A packed server has fewer cores than C.
        (World::Packed(cores), _) => profile.map_or(cores, |profile| profile.workers),
        (_, Runtime::SelfServing) => profile.map_or(MOST_WORKERS, |profile| profile.users),
        (_, Runtime::Reef(_)) => profile.map_or(MOST_WORKERS, |profile| profile.workers),
        (_, Runtime::Wrap(_)) => MOST_WORKERS,
    };
    let tokens = match case.who.runtime {
        Runtime::SelfServing => case.server.apples_tokens(),
        Runtime::Reef(batch) | Runtime::Wrap(batch) => batch,
    };
    let delay_s = match case.world {
        World::Interval(us) => f64::from(us) * 1e-6,
        // The paper's least: the load limit alone asks for none at part load.
        World::Load(_) => scenario.break_even_s,
        _ => 0.0,
    };
    let default = GateFigures::default();
    let is_alone = (case.who.policy, case.who.runtime) == (Policy::Alike, Runtime::SelfServing);
    scenario.gate = (!is_alone).then_some(GateFigures {
        concurrency: workers,
        tokens,
        delay_s,
        disk_gives_back: matches!(case.who.runtime, Runtime::Wrap(_)),
        ..default
    });
    match case.world {
        World::Load(percent) => {
            let saturated_per_s = profile.map_or(1.0, |profile| profile.saturated_per_s);
            scenario.arrivals = QueryArrivals::Open {
                rate_per_s: saturated_per_s * f64::from(percent) / 100.0,
            };
        }
        // All queries alike, so that what is not their work is known.
        World::Interval(_) => scenario.query.shape = Shape::Deterministic {},
        World::Sol => scenario.kernel.policy = KernelPolicy::Sol,
        World::Tails => scenario.classes = tails(None),
        World::Tightened => scenario.classes = tails(Some(warm_up_s + duration_s / 2.0)),
        World::Colocated => {
            let step = STEP_S * scenario.query.instructions_per_s;
            let others = APPLICATIONS.map(|name| ClassFigures::other_application(name, THREADS, step));
            scenario.classes = vec![ClassFigures::best_effort(SERVER, MOST)];
            scenario.classes.extend(others);
            scenario.connections += THREADS * APPLICATIONS.len() as u32;
        }
        World::Disengagement => {
            let target = DisengagementTarget {
                target: MAY_DISENGAGE,
                points: DISENGAGED.to_vec(),
            };
            let sensitive = ClassFigures {
                disengagement: Some(target),
                ..ClassFigures::best_effort("US", 16)
            };
            scenario.classes = vec![sensitive, ClassFigures::best_effort("BE", MOST - 16)];
        }
        _ => {}
    }
    scenario
}

/// The latency-sensitive connections of Section 5.2, and the others; the targets are tightened then, as in Section 5.4.
fn tails(tightened_s: Option<f64>) -> Vec<ClassFigures> {
    let tightened = |class: ClassFigures, scale: f64| ClassFigures {
        changes: tightened_s
            .map(|at_s| SloChange { at_s, scale })
            .into_iter()
            .collect(),
        ..class
    };
    vec![
        ClassFigures::with_tail("LS P95 20 ms", 4, 0.95, 20.0),
        tightened(
            ClassFigures::with_tail("LS P99 40 ms", 4, 0.99, 40.0),
            30.0 / 40.0,
        ),
        tightened(
            ClassFigures::with_tail("LS P99.9 60 ms", 8, 0.999, 60.0),
            50.0 / 60.0,
        ),
        ClassFigures::best_effort("BE", MOST - 16),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_world_and_no_case_is_twice() {
        let profile = Profile {
            workers: 20,
            users: 40,
            saturated_per_s: 30_000.0,
        };
        let all = [profile_cases(), cases()].concat();
        for (at, case) in all.iter().enumerate() {
            let scenario = scenario(case, 3.0, Some(&profile));
            scenario
                .check()
                .unwrap_or_else(|error| panic!("{case:?}: {error}"));
            assert!(!all[..at].contains(case), "{case:?}");
        }
        assert!(APPLES_POINTS.iter().all(|point| WORKERS.contains(point)));
    }
}
