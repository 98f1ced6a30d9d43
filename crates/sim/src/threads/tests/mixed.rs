//! A mixed population as in REEF's Sections 5.2 and 5.4: 16 latency-sensitive of 512 connections, whose SLOs are tightened while the server
//! runs.

mod orders;

use super::*;
use headroom_control::oncall::areas::{
    AreaDecision, AreaLaw, CgroupWeights, ConsolidationTuning, DemeterStyle, DemeterTuning, NoAreas,
    QosConsolidation, SatoriStyle, SatoriTuning,
};
use headroom_control::oncall::policy::{Paced, Policy, PsloStyle, Running, UtsloStyle};
use headroom_control::plant::FrequencyRange;
use headroom_control::{Decision, Observation};
use headroom_units::{Lever, PerSecond, Setting};

/// 4 connections with P95 of 20 ms, 4 with P99 of 40 ms, tightened to 30 ms, 8 with P99.9 of 60 ms, tightened to 50 ms, and 496 best-effort
/// ones.
fn population(tightened_s: f64) -> Vec<ClassFigures> {
    let tightened = |scale| {
        vec![SloChange {
            at_s: tightened_s,
            scale,
        }]
    };
    vec![
        ClassFigures::with_tail("p95", 4, 0.95, 20.0),
        ClassFigures {
            changes: tightened(0.75),
            ..ClassFigures::with_tail("p99", 4, 0.99, 40.0)
        },
        ClassFigures {
            changes: tightened(50.0 / 60.0),
            ..ClassFigures::with_tail("p999", 8, 0.999, 60.0)
        },
        ClassFigures::best_effort("be", 496),
    ]
}

/// How a scheme uses the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gating {
    /// Threads serve themselves.
    None,
    /// A policy of turns alone: tokens and retries, and no limit of the workers at once.
    Turns,
    /// On call: C, N and turns.
    OnCall(f64, f64),
}

/// The law of the levers of a scheme: constant C, N and D, and the turns of a policy.
struct Levers {
    setting: Setting,
    policy: Option<Running>,
}

impl Levers {
    fn new(gating: Gating, policy: Option<Box<dyn Policy>>) -> Self {
        let setting = match gating {
            Gating::None => Setting::default(),
            Gating::Turns => Setting::default().with(Lever::Concurrency, Some(1e6)),
            Gating::OnCall(concurrency, delay_s) => Setting::default()
                .with(Lever::Concurrency, Some(concurrency))
                .with(Lever::RoundDelay, Some(delay_s)),
        };
        Self {
            setting: setting.with(Lever::QueryBatch, Some(4.0)),
            policy: policy.map(Running::new),
        }
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let each = observation.oncall.as_ref().map(|oncall| &oncall.each[..]);
        let grants = self
            .policy
            .as_mut()
            .map(|policy| policy.decide(observation.length, each.unwrap_or_default()));
        Decision {
            grants: grants.map(|of| of.grants).unwrap_or_default(),
            ..Decision::of(self.setting)
        }
    }
}

/// What a run of a scheme came to.
struct Run {
    totals: ThreadsTotals,
    /// The share of periods after the tightening and 2 s in which all SLOs were kept by the last latencies, as in Figure 20.
    kept: f64,
    /// The cores of each area at the end.
    areas: Vec<u32>,
    reason: String,
}

impl Run {
    /// The most of any class's missed share over what it may miss, all its connections together.
    fn missed(&self) -> f64 {
        let missed = self.totals.classes.iter().filter_map(|class| class.missed);
        missed.fold(0.0, f64::max)
    }

    fn best_effort(&self) -> f64 {
        self.totals
            .classes
            .last()
            .map_or(0.0, |class| class.queries as f64 / self.totals.length_s)
    }

    fn sensitive(&self) -> f64 {
        self.totals.throughput() - self.best_effort()
    }
}

/// Notes what a law of areas answers.
struct Noted<'a> {
    law: &'a mut dyn AreaLaw,
    last: AreaDecision,
}

impl AreaLaw for Noted<'_> {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let decision = self.law.decide(observation)?;
        self.last.clone_from(&decision);
        Some(decision)
    }
}

fn run_scheme(
    scenario: &ThreadsScenario,
    gating: Gating,
    policy: Option<Box<dyn Policy>>,
    areas: &mut dyn AreaLaw,
    from_s: f64,
) -> Run {
    run_seed(scenario, gating, policy, areas, from_s, 1)
}

fn run_seed(
    scenario: &ThreadsScenario,
    gating: Gating,
    policy: Option<Box<dyn Policy>>,
    areas: &mut dyn AreaLaw,
    from_s: f64,
    seed: u64,
) -> Run {
    let mut scenario = scenario.clone();
    let gate = scenario.gate.take().unwrap_or_default();
    scenario.gate = (gating != Gating::None).then_some(gate);
    let mut levers = Levers::new(gating, policy);
    let (mut periods, mut kept) = (0.0, 0.0);
    let mut noted = Noted {
        law: areas,
        last: AreaDecision::default(),
    };
    let mut law = |period: &Observation| {
        if period.at.get() >= from_s {
            let missed = period
                .oncall
                .iter()
                .flat_map(|oncall| &oncall.classes)
                .map(|class| class.missed);
            periods += 1.0;
            kept += f64::from(u8::from(missed.sum::<u64>() == 0));
        }
        Some(levers.decide(period))
    };
    // Without a gate the law only watches.
    let totals = match gating {
        Gating::None => run_areas(
            &scenario,
            &mut |period| {
                law(period);
                None
            },
            &mut noted,
            seed,
        ),
        _ => run_areas(&scenario, &mut law, &mut noted, seed),
    };
    Run {
        totals: totals.unwrap(),
        kept: kept / periods,
        areas: noted.last.areas.iter().map(|area| area.cores).collect(),
        reason: noted
            .last
            .reasons
            .first()
            .map(|reason| reason.text.clone())
            .unwrap_or_default(),
    }
}

fn pslo() -> Option<Box<dyn Policy>> {
    Some(Box::new(PsloStyle::new(4)))
}

fn paced() -> Option<Box<dyn Policy>> {
    Some(Box::new(Paced::new(4)))
}

/// The least total throughput of best-effort connections, and more than that, per second: REEF's 12,500 for MongoDB, assumed for MySQL.
const BEST_EFFORT_PER_S: [[f64; 2]; 2] = [[12_500.0, 22_000.0], [5_000.0, 8_000.0]];

fn mixed(mysql: bool) -> ThreadsScenario {
    let mut scenario = match mysql {
        true => ThreadsScenario::mysql(512),
        false => ThreadsScenario {
            connections: 512,
            ..ThreadsScenario::default()
        },
    };
    scenario.classes = population(25.0);
    (scenario.duration_s, scenario.warm_up_s) = (50.0, 15.0);
    scenario
}

fn cores(scenario: &ThreadsScenario) -> u32 {
    scenario.machine.processor.cores as u32
}

fn demeter(scenario: &ThreadsScenario, best_effort_per_s: f64) -> DemeterStyle {
    let of = scenario.machine.processor.frequency;
    DemeterStyle::new(DemeterTuning {
        cores: cores(scenario),
        best_effort: PerSecond::new(best_effort_per_s),
        frequency: FrequencyRange::new(of.lowest, of.highest, of.step).unwrap(),
        clean_periods: 10,
    })
    .unwrap()
}

fn consolidation(scenario: &ThreadsScenario, best_effort_per_s: f64, per_core: f64) -> QosConsolidation {
    QosConsolidation::new(ConsolidationTuning {
        workers_per_core: Some(per_core),
        ..ConsolidationTuning::of(cores(scenario), PerSecond::new(best_effort_per_s))
    })
    .unwrap()
}

fn satori(scenario: &ThreadsScenario) -> SatoriStyle {
    let cores = cores(scenario);
    SatoriStyle::new(SatoriTuning { cores }).unwrap()
}

fn print(name: &str, run: &Run) {
    let totals = &run.totals;
    let tails = totals.classes.iter().map(|class| {
        let [p95, p99, p999] = class
            .latency
            .at([0.95, 0.99, 0.999])
            .map(|value| value.as_millis());
        format!("{p95:.1}/{p99:.1}/{p999:.1}")
    });
    let tails: Vec<String> = tails.collect();
    println!(
        "{name}: LS {:.0}/s BE {:.0}/s missed {:.2} kept {:.2}, P95/P99/P99.9 {} ms, areas {:?}, ipq {:.2}, {:.1} W, EE {:.1} {:.2} {:.2}, {}",
        run.sensitive(),
        run.best_effort(),
        run.missed(),
        run.kept,
        tails.join(" "),
        run.areas,
        totals.ipq,
        totals.power().get(),
        totals.ee_tpp(),
        totals.ee_tail(0.99),
        totals.ee_tail(0.999),
        run.reason,
    );
}

/// All schemes: `cargo test -p headroom-sim --lib threads::tests::mixed::schemes -- --ignored --nocapture`. Missed: the share of queries
/// over target over the share that may be, the most of the classes. Kept: the share of periods in which all SLOs were kept by the last 128
/// latencies.
#[test]
#[ignore = "prints figures"]
fn schemes() {
    for mysql in [false, true] {
        let scenario = mixed(mysql);
        let keeps_slots = |scenario: &ThreadsScenario| ThreadsScenario {
            gate: Some(GateFigures {
                disk_gives_back: false,
                ..GateFigures::default()
            }),
            ..scenario.clone()
        };
        let [least, more] = BEST_EFFORT_PER_S[usize::from(mysql)];
        let sol = ThreadsScenario {
            kernel: KernelFigures {
                policy: KernelPolicy::Sol,
                ..KernelFigures::default()
            },
            ..scenario.clone()
        };
        let oncall = Gating::OnCall(36.0, 0.0);
        type Scheme<'a> = (
            &'a str,
            &'a ThreadsScenario,
            Gating,
            Option<Box<dyn Policy>>,
            Box<dyn AreaLaw>,
        );
        let bounded = keeps_slots(&scenario);
        let schemes: Vec<Scheme<'_>> = vec![
            ("alone", &scenario, Gating::None, None, Box::new(NoAreas)),
            (
                "cgroup weights",
                &scenario,
                Gating::None,
                None,
                Box::new(CgroupWeights::following()),
            ),
            ("SOL", &sol, Gating::None, None, Box::new(NoAreas)),
            (
                "SATORI-style",
                &scenario,
                Gating::None,
                None,
                Box::new(satori(&scenario)),
            ),
            (
                "Demeter-style",
                &scenario,
                Gating::None,
                None,
                Box::new(demeter(&scenario, least)),
            ),
            ("PSLO-style", &scenario, Gating::Turns, pslo(), Box::new(NoAreas)),
            (
                "PSLO-style, cgroup weights",
                &scenario,
                Gating::Turns,
                pslo(),
                Box::new(CgroupWeights::following()),
            ),
            (
                "PSLO-style, Demeter-style",
                &scenario,
                Gating::Turns,
                pslo(),
                Box::new(demeter(&scenario, least)),
            ),
            ("on call", &scenario, oncall, None, Box::new(NoAreas)),
            (
                "on call, PSLO-style",
                &scenario,
                oncall,
                pslo(),
                Box::new(NoAreas),
            ),
            ("on call, paced", &scenario, oncall, paced(), Box::new(NoAreas)),
            (
                "on call, PSLO-style, Demeter-style",
                &scenario,
                oncall,
                pslo(),
                Box::new(demeter(&scenario, least)),
            ),
            (
                "on call, PSLO-style, consolidation",
                &scenario,
                oncall,
                pslo(),
                Box::new(consolidation(&scenario, least, 1.5)),
            ),
            (
                "on call, consolidation",
                &scenario,
                oncall,
                None,
                Box::new(consolidation(&scenario, least, 1.5)),
            ),
            (
                "on call, consolidation with more best effort",
                &scenario,
                oncall,
                None,
                Box::new(consolidation(&scenario, more, 1.5)),
            ),
            (
                "C bounds disk waits: on call",
                &bounded,
                oncall,
                None,
                Box::new(NoAreas),
            ),
            (
                "C bounds disk waits: on call, PSLO-style",
                &bounded,
                oncall,
                pslo(),
                Box::new(NoAreas),
            ),
            (
                "C bounds disk waits: on call, paced",
                &bounded,
                oncall,
                paced(),
                Box::new(NoAreas),
            ),
            (
                "C bounds disk waits: on call, PSLO-style, consolidation",
                &bounded,
                oncall,
                pslo(),
                Box::new(consolidation(&scenario, least, 3.0)),
            ),
            (
                "C bounds disk waits: on call, consolidation with more best effort",
                &bounded,
                oncall,
                None,
                Box::new(consolidation(&scenario, more, 3.0)),
            ),
        ];
        for (name, scenario, gating, policy, mut areas) in schemes {
            let run = run_scheme(scenario, gating, policy, &mut *areas, 27.0);
            print(&format!("mysql {mysql}, {name}"), &run);
        }
    }
}

/// UTSLO-style: `cargo test -p headroom-sim --lib threads::tests::mixed::disengagement -- --ignored --nocapture`. 16 connections with a
/// ratio of 0.1 %, where a user is the likelier to give up the longer than 20 ms it waits.
#[test]
#[ignore = "prints figures"]
fn disengagement() {
    for mysql in [false, true] {
        let mut scenario = mixed(mysql);
        let target = DisengagementTarget {
            target: 0.001,
            points: vec![(0.02, 0.0), (0.2, 0.1), (2.0, 1.0)],
        };
        let sensitive = ClassFigures {
            disengagement: Some(target),
            ..ClassFigures::best_effort("us", 16)
        };
        scenario.classes = vec![sensitive, ClassFigures::best_effort("be", 496)];
        let [least, _] = BEST_EFFORT_PER_S[usize::from(mysql)];
        let utslo = || -> Option<Box<dyn Policy>> { Some(Box::new(UtsloStyle::new(4))) };
        let oncall = Gating::OnCall(36.0, 0.0);
        let of = |name: &str, gating, policy, areas: &mut dyn AreaLaw| {
            let run = run_scheme(&scenario, gating, policy, areas, 27.0);
            print(&format!("mysql {mysql}, {name}"), &run);
        };
        of("alone", Gating::None, None, &mut NoAreas);
        of("UTSLO-style", Gating::Turns, utslo(), &mut NoAreas);
        of("on call, UTSLO-style", oncall, utslo(), &mut NoAreas);
        let mut areas = consolidation(&scenario, least, 1.5);
        of("on call, UTSLO-style, consolidation", oncall, utslo(), &mut areas);
    }
}

/// The main schemes with five seeds, the least and the most of each figure:
/// `cargo test -p headroom-sim --lib threads::tests::mixed::seeds -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn seeds() {
    for mysql in [false, true] {
        let mut scenario = mixed(mysql);
        scenario.gate = Some(GateFigures {
            disk_gives_back: false,
            ..GateFigures::default()
        });
        let [least, _] = BEST_EFFORT_PER_S[usize::from(mysql)];
        let oncall = Gating::OnCall(36.0, 0.0);
        for name in [
            "PSLO-style",
            "on call, PSLO-style",
            "on call, paced",
            "on call, PSLO-style, consolidation",
        ] {
            let runs = (1..=5).map(|seed| {
                let mut areas: Box<dyn AreaLaw> = match name.ends_with("consolidation") {
                    true => Box::new(consolidation(&scenario, least, 3.0)),
                    false => Box::new(NoAreas),
                };
                let (gating, policy) = match name {
                    "PSLO-style" => (Gating::Turns, pslo()),
                    "on call, paced" => (oncall, paced()),
                    _ => (oncall, pslo()),
                };
                run_seed(&scenario, gating, policy, &mut *areas, 27.0, seed)
            });
            let runs: Vec<Run> = runs.collect();
            let range = |of: &dyn Fn(&Run) -> f64| {
                let values = runs.iter().map(of);
                let (low, high) = values.fold((f64::INFINITY, 0.0), |(low, high), value| {
                    (f64::min(low, value), f64::max(high, value))
                });
                format!("{low:.2} to {high:.2}")
            };
            println!(
                "mysql {mysql}, {name}: LS {}, BE {}, missed {}, of the worst connection {}, kept {}, W {}, EE {}",
                range(&Run::sensitive),
                range(&Run::best_effort),
                range(&Run::missed),
                range(&|run| {
                    let classes = run.totals.classes.iter();
                    classes.filter_map(|class| class.missed_worst).fold(0.0, f64::max)
                }),
                range(&|run| run.kept),
                range(&|run| run.totals.power().get()),
                range(&|run| run.totals.ee_tpp()),
            );
        }
    }
}
