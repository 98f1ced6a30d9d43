//! The worlds of `headroom compare --worlds`: clusters, loads and disturbances.

use crate::args::WorldArgs;
use crate::commands::demo::cluster::world as demo;
use crate::simulate::{Setting, named_trace, recorded_load};
use headroom_console::Failure;
use headroom_physics::MachineFigures;
use headroom_sim::Fault;
use headroom_sim::power::Machine;
use headroom_sim::scenario::NodeGroup;
use headroom_units::{PerSecond, Seconds};
use headroom_workload::Trace;
use headroom_workload::families::Family;
use headroom_workload::generate::{Diurnal, diurnal};
use std::sync::Arc;

/// Cores of a small server.
const SMALL: f64 = 8.0;
/// A day's highest load, as a share of what all servers can do; its mean is 0.6 of that.
const BUSY: f64 = 0.6;
/// The same where a part of the cluster is slow: what is left can serve it.
const CALM: f64 = 0.3;
/// Values of a day, each held for so many seconds: a day of two hours, in which a boot lasts as long as twelve minutes of a
/// real day do.
const DAY_VALUES: usize = 1_800;
const DAY_STEP_S: f64 = 4.0;
/// Days of which the load is on record, where it is.
const KNOWN_DAYS: usize = 4;
/// What one server takes by a benchmark, as a share of what its cores can do: beyond it P95 grows steeply.
const BENCHMARK: f64 = 0.75;

/// What comes in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Two days whose highest load is such a share of the cluster's capacity, each value held for so many seconds.
    Days(f64, f64),
    /// The same, and what came in on the days before is on record.
    KnownDays(f64, f64),
    /// A day of 24 hours with that highest load.
    Day(f64),
    /// The same, and what came in on the days before is on record.
    KnownDay(f64),
    /// One of the two traces that the SLO-Power authors published, as `headroom compare --traces` names it.
    Published(&'static str),
    /// The day of `headroom demo`, and those before it on record.
    Demo,
    /// Two crowds, each after nearly an hour of quiet.
    Crowds,
    /// A family of generated traces.
    Family(Family),
}

/// One world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it is, in one line.
    pub what: &'static str,
    nodes: fn() -> Vec<NodeGroup>,
    load: Load,
    /// What is other than in the scenario.
    change: fn(&mut Setting),
    /// What goes wrong with so many nodes in a run of so many seconds.
    faults: fn(usize, f64) -> Vec<Fault>,
}

fn small(count: u32) -> NodeGroup {
    NodeGroup {
        count,
        cores: SMALL,
        ..NodeGroup::default()
    }
}

/// An older kind: more cores, each slower, and it sleeps less well.
fn older(count: u32) -> NodeGroup {
    NodeGroup {
        count,
        cores: 12.0,
        speed: 0.7,
        machine: Machine::Broadwell {},
        ..NodeGroup::default()
    }
}

fn four() -> Vec<NodeGroup> {
    vec![small(4)]
}

const DAY: World = World {
    name: "four",
    what: "4 equal servers, two days of 10 to 60 % load",
    nodes: four,
    load: Load::Days(BUSY, DAY_STEP_S),
    change: |_| {},
    faults: |_, _| Vec::new(),
};

/// The worlds that are no family: clusters, published traces, disturbances.
static OWN: [World; 28] = [
    World {
        name: "one",
        what: "1 server, two days of 10 to 60 % load",
        nodes: || vec![small(1)],
        ..DAY
    },
    DAY,
    World {
        name: "four-recalled",
        what: "the same, and the load of the four days before is on record",
        load: Load::KnownDays(BUSY, DAY_STEP_S),
        ..DAY
    },
    World {
        name: "sixteen",
        what: "16 equal servers, two days twice as long",
        nodes: || vec![small(16)],
        load: Load::Days(BUSY, 2.0 * DAY_STEP_S),
        ..DAY
    },
    World {
        name: "sixteen-recalled",
        what: "the same, and the load of the four days before is on record",
        nodes: || vec![small(16)],
        load: Load::KnownDays(BUSY, 2.0 * DAY_STEP_S),
        ..DAY
    },
    World {
        name: "day",
        what: "16 equal servers, one real day",
        nodes: || vec![small(16)],
        load: Load::Day(BUSY),
        ..DAY
    },
    World {
        name: "day-recalled",
        what: "the same, and the load of the four days before is on record",
        nodes: || vec![small(16)],
        load: Load::KnownDay(BUSY),
        ..DAY
    },
    World {
        name: "demo",
        what: "the demo's day on one of its clusters of small servers, in 90 s; 5 % of the periods may be late",
        nodes: demo::nodes,
        load: Load::Demo,
        change: demo::change,
        ..DAY
    },
    World {
        name: "mixed-four",
        what: "2 servers and 2 older ones with more and slower cores",
        nodes: || vec![small(2), older(2)],
        ..DAY
    },
    World {
        name: "mixed-sixteen",
        what: "8 servers and 8 older ones, two days twice as long",
        nodes: || vec![small(8), older(8)],
        load: Load::Days(BUSY, 2.0 * DAY_STEP_S),
        ..DAY
    },
    World {
        name: "wikipedia",
        what: "the paper's 3 servers of 16 cores, the Wikipedia-like trace",
        nodes: || vec![NodeGroup::default()],
        load: Load::Published("wikipedia"),
        ..DAY
    },
    World {
        name: "azure",
        what: "the same, the Azure-like trace",
        nodes: || vec![NodeGroup::default()],
        load: Load::Published("azure"),
        ..DAY
    },
    World {
        name: "slow-node",
        what: "one of 4 servers at half speed from the fifth minute on, half the load",
        load: Load::Days(CALM, DAY_STEP_S),
        faults: |_, end_s| {
            vec![Fault::SlowNode {
                node: 1,
                factor: 0.5,
                at_s: 300.0,
                until_s: end_s.max(301.0),
            }]
        },
        ..DAY
    },
    World {
        name: "slow-later",
        what: "one of 4 servers at half speed for a sixth of the run, when others are off, half the load",
        load: Load::Days(CALM, DAY_STEP_S),
        faults: |_, end_s| {
            vec![Fault::SlowNode {
                node: 1,
                factor: 0.5,
                at_s: end_s / 3.0,
                until_s: end_s / 2.0,
            }]
        },
        ..DAY
    },
    World {
        name: "pauses",
        what: "one of 4 servers stands still for 250 ms every 6 s",
        faults: |_, end_s| {
            let pause = |at: u32| {
                let at_s = 6.0 * f64::from(at) + 3.0;
                Fault::SlowNode {
                    node: 1,
                    factor: 0.001,
                    at_s,
                    until_s: at_s + 0.25,
                }
            };
            (0..(end_s / 6.0) as u32).map(pause).collect()
        },
        ..DAY
    },
    World {
        name: "node-loss",
        what: "one of 4 servers loses its power for ten minutes at a third of the run; joint is asked for a spare",
        change: |setting| setting.law.joint.spare = 1,
        faults: lost,
        ..DAY
    },
    World {
        name: "node-loss-bare",
        what: "the same, and nobody asked for a spare",
        faults: lost,
        ..DAY
    },
    World {
        name: "late-telemetry",
        what: "telemetry 2 s late, latency with 20 % and power with 5 % noise",
        change: |setting| {
            let telemetry = &mut setting.scenario.telemetry;
            telemetry.delay_s = 2.0 * setting.scenario.service.period_s;
            (telemetry.latency_noise, telemetry.power_noise) = (0.2, 0.05);
        },
        ..DAY
    },
    World {
        name: "lost-telemetry",
        what: "every tenth period without telemetry",
        change: |setting| setting.scenario.telemetry.loss = 0.1,
        ..DAY
    },
    World {
        name: "mu-too-high",
        what: "the laws are given twice the requests per core and second that are true",
        change: |setting| assume(setting, 2.0),
        ..DAY
    },
    World {
        name: "mu-too-low",
        what: "the laws are given half of the requests per core and second that are true",
        change: |setting| assume(setting, 0.5),
        ..DAY
    },
    World {
        name: "wrong-watts",
        what: "the laws are given half the watts of what servers draw at rest, and twice those of work",
        change: |setting| {
            take_for(setting, |machine| {
                machine.platform = machine.platform * 0.5;
                let processor = &mut machine.processor;
                processor.uncore = processor.uncore * 0.5;
                processor.uncore_asleep = processor.uncore_asleep * 0.5;
                processor.frequency.dynamic = processor.frequency.dynamic * 2.0;
                processor.frequency.leakage = processor.frequency.leakage * 2.0;
            });
        },
        ..DAY
    },
    World {
        name: "wrong-boot",
        what: "the laws are told that a server boots within 15 s; it takes a minute",
        change: |setting| take_for(setting, |machine| machine.server.boot = Seconds::new(15.0)),
        ..DAY
    },
    World {
        name: "drift",
        what: "all servers become slower, in ten steps, to half their speed; half the load",
        load: Load::Days(CALM, DAY_STEP_S),
        faults: |nodes, end_s| {
            let step_s = end_s / 11.0;
            let slower = |(step, node): (u32, usize)| Fault::SlowNode {
                node,
                factor: 1.0 - 0.05 * f64::from(step),
                at_s: step_s * f64::from(step),
                until_s: step_s * f64::from(step + 1),
            };
            let each = (1..=10).flat_map(|step| (1..=nodes).map(move |node| (step, node)));
            each.map(slower).collect()
        },
        ..DAY
    },
    World {
        name: "small-requests",
        what: "requests of a fiftieth of the size, P95 within 5 ms: cores wake fifty times as often",
        change: |setting| {
            let service = &mut setting.scenario.service;
            service.rate_per_core_s *= 50.0;
            service.target_ms /= 50.0;
        },
        load: Load::Days(BUSY, 0.2 * DAY_STEP_S),
        ..DAY
    },
    World {
        name: "no-frequency",
        what: "the firmware keeps the frequency to itself: caps alone lower it",
        change: |setting| setting.scenario.frequency_lever = false,
        ..DAY
    },
    World {
        name: "first-crowd",
        what: "55 min of 6 % load, then 5 min of 60 %, twice: the first crowd is larger than anything before",
        load: Load::Crowds,
        ..DAY
    },
    World {
        name: "heavy-tail",
        what: "sizes with a squared coefficient of variation of 4, P95 within 500 ms",
        change: |setting| {
            setting.scenario.service.size = headroom_workload::Shape::Lognormal { scv: 4.0 };
            setting.scenario.service.target_ms = 500.0;
        },
        ..DAY
    },
];

/// What is added to a seed for the load that came before: no seed that is compared.
const EARLIER: u64 = 1_000_003;

/// One server loses its power for ten minutes at a third of the run.
fn lost(_: usize, end_s: f64) -> Vec<Fault> {
    vec![Fault::NodeLoss {
        node: 2,
        at_s: end_s / 3.0,
        until_s: Some(end_s / 3.0 + 600.0),
    }]
}

fn assume(setting: &mut Setting, factor: f64) {
    setting.control.assumed_rate_per_core_s = Some(setting.scenario.service.rate_per_core_s * factor);
}

/// The laws take the servers for other machines.
fn take_for(setting: &mut Setting, change: fn(&mut MachineFigures)) {
    let mut machine = MachineFigures::skylake(SMALL as usize);
    change(&mut machine);
    setting.control.assumed_machine = Some(headroom_physics::Machine::Figures(Box::new(machine)));
}

fn days(days: usize, step_s: f64, seed: u64, most: PerSecond) -> Result<Trace, Failure> {
    let trace = diurnal(&Diurnal {
        days,
        points_per_day: DAY_VALUES,
        step: Seconds::new(step_s),
        seed,
        ..Diurnal::default()
    });
    let trace = trace.and_then(|trace| trace.scaled_to_peak(most));
    Ok(trace.map_err(Failure::usage)?.named("days"))
}

/// What comes in, and what came in on the first days, which are on record.
fn recorded(all: Trace) -> Result<(Trace, Option<Trace>), Failure> {
    let (begins, ends) = (all.step() * (KNOWN_DAYS * DAY_VALUES) as f64, all.duration());
    let before = all.clone().slice(Seconds::ZERO, begins).map_err(Failure::usage)?;
    let trace = all.slice(begins, ends).map_err(Failure::usage)?;
    Ok((trace, Some(before)))
}

impl World {
    /// All of them: the clusters, the published traces, the disturbances, then the families of traces.
    pub fn all() -> Vec<Self> {
        let of_family = |family: Family| Self {
            name: family.name(),
            what: family.what(),
            load: Load::Family(family),
            ..DAY
        };
        OWN.iter().copied().chain(Family::all().map(of_family)).collect()
    }

    /// This world under a seed, in the place of the scenario's nodes, load and faults; with the trace that comes in. The
    /// service, its SLO and the parameters of the laws are the scenario's.
    ///
    /// # Errors
    /// A scenario that is none with these nodes.
    pub fn setting(&self, file: &Setting, args: &WorldArgs, seed: u64) -> Result<(Setting, Trace), Failure> {
        let mut setting = file.clone();
        let scenario = &mut setting.scenario;
        scenario.name = self.name.to_owned();
        scenario.nodes = (self.nodes)();
        scenario.power_states.get_or_insert_default();
        if let Load::Family(family) = self.load {
            for group in &mut scenario.nodes {
                group.count = group.count.saturating_mul(family.plants());
            }
        }
        (self.change)(&mut setting);
        let (trace, before) = self.trace(&setting, seed)?;
        let before = match before {
            None if args.recalled => Some(self.trace(&setting, seed.wrapping_add(EARLIER))?.0),
            known => known,
        };
        setting.history = before.map(|before| {
            let period = Seconds::new(setting.scenario.service.period_s);
            recorded_load(&Arc::new(before), args.arrivals.into(), seed, period)
        });
        let whole_s = trace.duration().get();
        let length_s = args.duration.map_or(whole_s, |given| given.min(whole_s));
        let nodes = setting.scenario.each_node().count();
        setting.scenario.faults = (self.faults)(nodes, length_s);
        let capacity = setting.scenario.full_capacity().get();
        let nodes = nodes as u32;
        setting.law.k8s_as_run.nodes = nodes;
        setting.law.fixed_capacity.capacity_per_s = Some(capacity / f64::from(nodes) * BENCHMARK);
        let setting = setting.with_rates(&trace, args)?;
        Ok((setting, trace))
    }

    /// The trace that comes in, and that which came in before where it is on record.
    fn trace(&self, setting: &Setting, seed: u64) -> Result<(Trace, Option<Trace>), Failure> {
        let capacity = setting.scenario.full_capacity();
        let trace = match self.load {
            Load::Published(name) => named_trace(name, Seconds::new(10.0), seed),
            Load::Family(family) => family.trace(capacity, seed).map_err(Failure::usage),
            Load::Days(most, step_s) => days(2, step_s, seed, capacity * most),
            Load::KnownDays(most, step_s) => {
                return recorded(days(KNOWN_DAYS + 2, step_s, seed, capacity * most)?);
            }
            Load::KnownDay(most) => {
                let step_s = 86_400.0 / DAY_VALUES as f64;
                return recorded(days(KNOWN_DAYS + 1, step_s, seed, capacity * most)?);
            }
            Load::Crowds => {
                let hour = (0..360).map(|step| capacity * if step < 330 { 0.06 } else { BUSY });
                let rates: Vec<PerSecond> = hour.clone().chain(hour).collect();
                let trace = Trace::new("crowds", Seconds::new(10.0), rates);
                trace.map_err(Failure::usage)
            }
            Load::Demo => return demo::load(capacity, seed),
            Load::Day(most) => days(1, 86_400.0 / DAY_VALUES as f64, seed, capacity * most),
        };
        Ok((trace?, None))
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl std::str::FromStr for World {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Self::all();
        let found = all.iter().find(|world| world.name == name).copied();
        found.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|world| world.name).collect();
            format!("there is no world of that name; there are {}", names.join(", "))
        })
    }
}
