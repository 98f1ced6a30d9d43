//! A run, and what is kept of it.

use super::plan::{
    APPLICATIONS, BEST_EFFORT_PER_S, Case, Division, LIMIT, Policy, Profile, Runtime, SERVER, STEP_S,
    THREADS, World, scenario,
};
use anyhow::Context;
use headroom_console::Failure;
use headroom_control::oncall::areas::{
    AreaDecision, AreaLaw, ConsolidationTuning, CoreArea, DemeterStyle, DemeterTuning, NoAreas,
    QosConsolidation, SatoriStyle, SatoriTuning,
};
use headroom_control::oncall::delay::{IsrDelay, LOAD_LIMIT, Round};
use headroom_control::oncall::policy::{Apples, Policy as Turns, PsloStyle, Running, UtsloStyle};
use headroom_control::plant::FrequencyRange;
use headroom_control::{Decision, Observation};
use headroom_sim::threads::{ThreadsScenario, ThreadsTotals, run_areas};
use headroom_units::{Lever, PerSecond, Seconds, Setting};
use serde::Serialize;

/// A run's figures, after its warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Queries answered a second.
    pub throughput_per_s: f64,
    /// Mean latency.
    pub mean_ms: f64,
    /// Its 99th percentile.
    pub p99_ms: f64,
    /// Its 99.9th percentile.
    pub p999_ms: f64,
    /// Mean power of processors, memory and storage.
    pub power_w: f64,
    /// EE(TPP), queries per second and watt.
    pub ee_tpp: f64,
    /// EE(P99).
    pub ee_p99: f64,
    /// EE(P99.9).
    pub ee_p999: f64,
    /// Instructions per query over those with one thread.
    pub ipq: f64,
    /// Context switches per query.
    pub switches: f64,
    /// Threads that run or could, percent of their time.
    pub runnable_percent: f64,
    /// Threads that wait for client, gate or lock.
    pub sleeping_percent: f64,
    /// Threads that wait for the disk.
    pub disk_percent: f64,
    /// Busy share of the disks, percent.
    pub disks_busy_percent: f64,
    /// Busy share of the cores, percent.
    pub cores_busy_percent: f64,
    /// Cores' time in each idle state, percent.
    pub idle_percent: Vec<f64>,
    /// C6 opportunity, Equation 2, percent.
    pub opportunity_percent: f64,
    /// Cores' time in idle periods over the break-even time, percent.
    pub long_idle_percent: f64,
    /// D at the end of the run, milliseconds.
    pub delay_ms: f64,
    /// CPU time that is no query's work, microseconds per turn of N queries.
    pub overhead_us: f64,
    /// Queries a second of connections with an SLO.
    pub sensitive_per_s: f64,
    /// Of the others.
    pub best_effort_per_s: f64,
    /// Share of queries over target, by what may be: the most of the classes. 0 where there is none.
    pub missed: f64,
    /// Idle periods: length in microseconds, and the share of idle time in periods of at most that.
    #[serde(skip)]
    pub idle: Vec<(f64, f64)>,
    /// Periods after the warm-up in which no connection missed an SLO by its last latencies, percent.
    pub kept_percent: f64,
    /// Cores that had no connection, in the mean.
    pub cold_cores: f64,
    /// Throughput of each other application over that on cores of its own, in the mean over them; 0 where there is none.
    pub others_share: f64,
    /// Period by period, where cores are divided.
    #[serde(skip)]
    pub moments: Vec<Moment>,
}

/// A figure of a run.
pub type Pick = fn(&Run) -> f64;

/// A period of a run whose cores are divided.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Its end, seconds.
    pub at_s: f64,
    /// Cores of the strictest area.
    pub hot: f64,
    /// Cores without connections.
    pub cold: f64,
    /// Connections that miss an SLO by their last latencies.
    pub missed: f64,
    /// Queries a second of connections without an SLO.
    pub best_effort_per_s: f64,
}

/// Runs a case for so many seconds after its warm-up.
///
/// # Errors
/// A run that does not end.
pub fn measure(case: &Case, duration_s: f64, profile: Option<&Profile>, seed: u64) -> Result<Run, Failure> {
    let scenario = scenario(case, duration_s, profile);
    let mut regulator = Regulator::of(case, &scenario, profile)?;
    let mut moments = Vec::new();
    let mut law = |observation: &Observation| {
        if case.world == World::Tightened {
            moments.push(moment(observation));
        }
        regulator.as_mut().map(|law| law.decide(observation))
    };
    let mut noted = Noted {
        law: division(case, &scenario)?,
        cores: scenario.machine.processor.cores as u32,
        zones: Vec::new(),
    };
    let totals = run_areas(&scenario, &mut law, &mut noted, seed)?;
    let delay_s = regulator.map_or(0.0, |law| law.delay.get());
    for (moment, (hot, cold)) in moments.iter_mut().zip(noted.zones) {
        (moment.hot, moment.cold) = (f64::from(hot), f64::from(cold));
    }
    let mut run = run_of(case, &scenario, &totals, delay_s);
    moments.retain(|moment| moment.at_s > scenario.warm_up_s * (1.0 + 1e-9));
    if !moments.is_empty() {
        let periods = moments.len() as f64;
        let kept = moments.iter().filter(|moment| moment.missed == 0.0).count();
        run.kept_percent = 100.0 * kept as f64 / periods;
        run.cold_cores = moments.iter().map(|moment| moment.cold).sum::<f64>() / periods;
    }
    run.moments = moments;
    Ok(run)
}

/// What a period says of SLOs and of connections without one.
fn moment(observation: &Observation) -> Moment {
    let each = observation.oncall.iter().flat_map(|oncall| &oncall.each);
    let free = each
        .filter(|of| of.slos.is_empty())
        .map(|of| of.queries)
        .sum::<u64>();
    let classes = observation.oncall.iter().flat_map(|oncall| &oncall.classes);
    Moment {
        at_s: observation.at.get(),
        missed: classes.map(|class| class.missed as f64).sum(),
        best_effort_per_s: free as f64 / observation.length.get(),
        ..Moment::default()
    }
}

/// Who divides the cores of a case.
fn division(case: &Case, scenario: &ThreadsScenario) -> Result<Box<dyn AreaLaw>, Failure> {
    let cores = scenario.machine.processor.cores as u32;
    let best_effort = PerSecond::new(BEST_EFFORT_PER_S);
    Ok(match (case.world, case.who.division) {
        (World::Packed(cores), _) => Box::new(Packed(cores)),
        (_, Division::Whole) => Box::new(NoAreas),
        (_, Division::Demeter) => {
            let of = scenario.machine.processor.frequency;
            let frequency = FrequencyRange::new(of.lowest, of.highest, of.step).context("the frequencies")?;
            let tuning = DemeterTuning {
                cores,
                best_effort,
                frequency,
                clean_periods: 10,
            };
            Box::new(DemeterStyle::new(tuning).context("Demeter's parameters")?)
        }
        (_, Division::Satori) => Box::new(Available {
            law: SatoriStyle::new(SatoriTuning { cores }).context("SATORI's parameters")?,
            concurrency: scenario.gate.as_ref().map(|gate| gate.concurrency),
        }),
        (_, Division::Consolidation) => {
            // C is one for all areas, as the paper's.
            let tuning = ConsolidationTuning::of(cores, best_effort);
            Box::new(QosConsolidation::new(tuning).context("the consolidation's parameters")?)
        }
    })
}

/// C is at most C_avail, the cores that the server may use (REEF, Section 3.3).
struct Available {
    law: SatoriStyle,
    concurrency: Option<u32>,
}

impl AreaLaw for Available {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let mut decision = self.law.decide(observation)?;
        for area in decision.areas.iter_mut().filter(|area| area.name == SERVER) {
            area.workers = self.concurrency.map(|concurrency| concurrency.min(area.cores));
        }
        Some(decision)
    }
}

/// Notes how a law divides the cores: those of the first area, and those of none.
struct Noted {
    law: Box<dyn AreaLaw>,
    cores: u32,
    zones: Vec<(u32, u32)>,
}

impl AreaLaw for Noted {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let decision = self.law.decide(observation);
        let before = self.zones.last().copied().unwrap_or((self.cores, 0));
        self.zones.push(match &decision {
            Some(AreaDecision { areas, .. }) if !areas.is_empty() => {
                let used: u32 = areas.iter().map(|area| area.cores).sum();
                (areas[0].cores, self.cores - used)
            }
            Some(_) => (self.cores, 0),
            None => before,
        });
        decision
    }
}

fn run_of(case: &Case, scenario: &ThreadsScenario, totals: &ThreadsTotals, delay_s: f64) -> Run {
    let [_, p99, p999] = totals.percentiles();
    let cores_s = totals.cores as f64 * totals.length_s;
    let query = &scenario.query;
    // All queries have as many instructions where this is read.
    let work_s = totals.queries as f64 * totals.ipq * query.instructions / query.instructions_per_s;
    let turn = scenario.gate.as_ref().map_or(1.0, |gate| f64::from(gate.tokens));
    let per_turn = |seconds: f64| seconds * turn / totals.queries.max(1) as f64;
    let of_classes = |sensitive: bool| -> f64 {
        let classes = totals.classes.iter();
        let counts = classes.filter(|class| class.missed.is_some() == sensitive);
        counts.map(|class| class.queries).sum::<u64>() as f64 / totals.length_s
    };
    let missed = totals.classes.iter().filter_map(|class| class.missed);
    let alone_per_s = f64::from(THREADS) / STEP_S;
    let others = APPLICATIONS.iter().filter_map(|name| {
        let class = totals.classes.iter().find(|class| class.name == **name)?;
        Some(class.queries as f64 / totals.length_s / alone_per_s)
    });
    let others: Vec<f64> = others.collect();
    let all_s = totals.idle.lengths.sum_s();
    let mut sum_s = 0.0;
    let idle = totals.idle.lengths.buckets().map(|(micros, count)| {
        sum_s += micros as f64 * 1e-6 * count as f64;
        (micros as f64, 100.0 * (sum_s / all_s).min(1.0))
    });
    let overhead_us = match case.world {
        World::Interval(_) => per_turn(totals.busy.get() - work_s) * 1e6,
        _ => f64::NAN,
    };
    Run {
        throughput_per_s: totals.throughput(),
        mean_ms: totals.mean().as_millis(),
        p99_ms: p99.as_millis(),
        p999_ms: p999.as_millis(),
        power_w: totals.power().get(),
        ee_tpp: totals.ee_tpp(),
        ee_p99: totals.ee_tail(0.99),
        ee_p999: totals.ee_tail(0.999),
        ipq: totals.ipq,
        switches: totals.switches_per_query(),
        runnable_percent: 100.0 * totals.threads.runnable,
        sleeping_percent: 100.0 * totals.threads.sleeping,
        disk_percent: 100.0 * totals.threads.disk,
        disks_busy_percent: 100.0 * totals.disk_utilisation,
        cores_busy_percent: 100.0 * totals.busy.get() / cores_s,
        idle_percent: totals
            .idle_states
            .iter()
            .map(|state| 100.0 * state.get() / cores_s)
            .collect(),
        opportunity_percent: 100.0 * totals.c6_opportunity(),
        long_idle_percent: 100.0 * totals.long_idle_share(),
        delay_ms: delay_s * 1e3,
        overhead_us,
        sensitive_per_s: of_classes(true),
        best_effort_per_s: of_classes(false),
        missed: missed.fold(0.0, f64::max),
        idle: idle.collect(),
        kept_percent: f64::NAN,
        cold_cores: f64::NAN,
        others_share: others.iter().sum::<f64>() / others.len().max(1) as f64,
        moments: Vec::new(),
    }
}

/// Everybody on the first so many cores.
struct Packed(u32);

impl AreaLaw for Packed {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        // Once: areas stay as they are.
        (observation.period == 0).then(|| AreaDecision {
            areas: vec![CoreArea {
                name: "all".to_owned(),
                cores: self.0,
                ..CoreArea::default()
            }],
            ..AreaDecision::default()
        })
    }
}

/// C, N and D of a server on call, and who may send how much.
struct Regulator {
    concurrency: u32,
    tokens: u32,
    /// Moves D; D is held where there is none.
    isr: Option<IsrDelay>,
    delay: Seconds,
    policy: Option<Running>,
}

impl Regulator {
    /// None where threads serve themselves.
    fn of(
        case: &Case,
        scenario: &ThreadsScenario,
        profile: Option<&Profile>,
    ) -> Result<Option<Self>, Failure> {
        let Some(gate) = &scenario.gate else {
            return Ok(None);
        };
        let isr = match (case.world, case.who.runtime, profile) {
            (World::Interval(_) | World::Load(_), ..) | (_, Runtime::SelfServing, _) | (.., None) => None,
            (world, _, Some(profile)) => {
                let percent = match world {
                    World::Limit(percent) => percent,
                    _ => LIMIT,
                };
                // The regulator multiplies by its limit, which is that of the paper.
                let saturated = profile.saturated_per_s * f64::from(percent) / 100.0 / LOAD_LIMIT;
                let break_even = Seconds::new(scenario.break_even_s);
                let isr = IsrDelay::new(PerSecond::new(saturated), break_even, None);
                Some(isr.context("the regulator of the delay")?)
            }
        };
        let policy: Option<Box<dyn Turns>> = match case.who.policy {
            Policy::Alike => None,
            Policy::Apples => Some(Box::new(Apples { tokens: gate.tokens })),
            Policy::Pslo => Some(Box::new(PsloStyle::new(gate.tokens))),
            Policy::Utslo => Some(Box::new(UtsloStyle::new(gate.tokens))),
        };
        Ok(Some(Self {
            concurrency: gate.concurrency,
            tokens: gate.tokens,
            isr,
            delay: Seconds::new(gate.delay_s),
            policy: policy.map(Running::new),
        }))
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let setting = |delay: Seconds| {
            Setting::default()
                .with(Lever::Concurrency, Some(f64::from(self.concurrency)))
                .with(Lever::QueryBatch, Some(f64::from(self.tokens)))
                .with(Lever::RoundDelay, Some(delay.get()))
        };
        let Some(oncall) = &observation.oncall else {
            return Decision::of(setting(self.delay));
        };
        if let Some(isr) = &self.isr
            && oncall.rounds > 0
        {
            // The period's rounds, on average.
            let rounds = oncall.rounds as f64;
            let each = observation.length / rounds;
            let mean = Round {
                queries: (oncall.queries as f64 / rounds).round() as u64,
                elapsed: (each - self.delay).max(Seconds::ZERO),
                backlog: oncall.waiting_least.is_some_and(|waiting| waiting > 0),
            };
            self.delay = isr.after(&mean).delay;
        }
        let mut decision = Decision::of(setting(self.delay));
        if let Some(policy) = &mut self.policy {
            let grants = policy.decide(observation.length, &oncall.each);
            (decision.grants, decision.reasons) = (grants.grants, grants.reasons);
        }
        decision
    }
}
