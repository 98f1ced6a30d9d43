//! `headroom compare`: laws x traces x seeds, under common random numbers.

mod ordering;
mod unseen;

use crate::cli::CompareArgs;
use crate::origin;
use crate::simulate::{Figures, Progress, Setting, figures, jobs, sheet_text, write_sheet};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_console::say;
use headroom_control::LawName;
use headroom_record::report::{Bars, Grid, Section, Sheet};
use headroom_record::statistics::Estimate;
use headroom_record::{Experiment, Provenance, late_reference};
use headroom_sim::bound::{clairvoyant, lower_bound};
use headroom_sim::{ScenarioError, run_many};
use headroom_units::Ratio;
use serde::Serialize;
use std::time::Instant;

/// States that the search for a schedule keeps from period to period.
const WIDTH: usize = 4;
/// The name under which that schedule is listed.
const CLAIRVOYANT: &str = "clairvoyant";
/// What is said of the bound under every table that has it.
const BOUND_REMARK: &str = "simulated: every figure is a model's; \"over the bound\" is energy over what no schedule can go under \
                            that answers every request, even one that knows them all beforehand (\"-\": the law left some unanswered)";
/// The laws and the seeds where none are asked for.
const LAWS: [LawName; 5] = [
    LawName::FIXED,
    LawName::HEADROOM,
    LawName::SLO_POWER,
    LawName::PEGASUS_AS_RUN,
    LawName::K8S_AS_RUN,
];
/// As [`LAWS`].
const SEEDS: u64 = 20;

/// A law on a trace, over all seeds.
#[derive(Debug, Serialize)]
struct Row {
    law: String,
    trace: String,
    energy_j: Estimate,
    /// Energy over the first law's under the same seed, less one, percent.
    energy_over_first_percent: Estimate,
    /// Energy over that which no schedule can go under, less one, percent; `None` where there is no bound, or where the law
    /// left requests unanswered and so needed less.
    energy_over_bound_percent: Option<Estimate>,
    joules_per_request: Estimate,
    latency_p95_ms: Estimate,
    periods_over_percent: Estimate,
    periods_over_first_percent: Estimate,
    cores: Estimate,
    utilisation_percent: Estimate,
    power_w: Estimate,
    allocated_w: Estimate,
    power_ratio: Estimate,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<Figures>,
}

#[derive(Serialize)]
struct Comparison<'a> {
    first_law: String,
    seeds: u64,
    first_seed: u64,
    confidence: f64,
    provenance: Provenance,
    rows: &'a [Row],
}

/// What is run: a law, or the search for the best schedule.
#[derive(Clone, Copy)]
enum Runner {
    Law(LawName),
    Clairvoyant,
}

impl Runner {
    fn name(self) -> String {
        match self {
            Self::Law(law) => law.to_string(),
            Self::Clairvoyant => CLAIRVOYANT.to_owned(),
        }
    }

    fn run(self, setting: &Setting, seed: u64) -> Result<Figures, Failure> {
        match self {
            Self::Law(law) => figures(setting, law, seed),
            Self::Clairvoyant => clairvoyant(&setting.scenario, seed, WIDTH)
                .map(|bound| Figures::of(&bound.totals))
                .map_err(|error| setting.run_error(error)),
        }
    }
}

/// A runner in a world, seed by seed.
type Runs = Vec<Result<Figures, Failure>>;

/// What is compared: the runners, the first being what differences are from, and the seeds.
struct Field {
    file: Setting,
    runners: Vec<Runner>,
    seeds: Vec<u64>,
    threads: usize,
}

impl Field {
    /// As asked for, with this many seeds where none were.
    ///
    /// # Errors
    /// A scenario that is none, a law that is named twice or cannot be built.
    fn of(args: &CompareArgs, laws: &[LawName], seeds: u64) -> Result<Self, Failure> {
        let asked = if args.laws.is_empty() { laws } else { &args.laws };
        let mut laws: Vec<LawName> = Vec::new();
        for law in asked {
            if laws.contains(law) {
                return Err(Failure::usage(anyhow!(
                    "--laws names {law} twice: name each once"
                )));
            }
            laws.push(*law);
        }
        let file = Setting::read(args.world.scenario.as_deref())?;
        // Each law is built once, so that a mistake is said before anything runs.
        for law in &laws {
            file.guarded(*law)?;
        }
        let mut runners: Vec<Runner> = laws.into_iter().map(Runner::Law).collect();
        if args.clairvoyant {
            runners.push(Runner::Clairvoyant);
        }
        let seeds = args.seeds.unwrap_or(seeds);
        Ok(Self {
            file,
            runners,
            seeds: (args.first_seed..args.first_seed.saturating_add(seeds)).collect(),
            threads: jobs(args.jobs),
        })
    }

    /// The name of what the others' differences are from.
    fn first(&self) -> String {
        self.runners
            .first()
            .map_or_else(String::new, |first| first.name())
    }

    /// Where a table of these runs comes from.
    fn provenance(&self, worlds: &[Vec<Setting>], traces: Vec<String>) -> Provenance {
        let settings = || worlds.iter().flatten();
        let arrivals = settings().map(|setting| &setting.scenario.arrivals);
        let service = &self.file.scenario.service;
        // As the scenario or the trace says; the same for all, or not said.
        let mut lengths: Vec<Option<f64>> = settings().map(|setting| setting.scenario.duration_s).collect();
        lengths.dedup();
        origin::provenance()
            .configured_by(&self.file.text())
            .with_load(Some(origin::of_arrivals(arrivals, &self.seeds)))
            .of_experiment(Experiment {
                scenario: self.file.scenario.name.clone(),
                traces,
                seeds: (
                    self.seeds.first().copied().unwrap_or_default(),
                    self.seeds.last().copied().unwrap_or_default(),
                ),
                duration_s: match lengths.as_slice() {
                    [length] => *length,
                    _ => None,
                },
                slo: Some(format!("P{} under {} ms", service.percentile, service.target_ms)),
            })
    }

    /// Runs every runner in every world under every seed; the results by world, runner and seed, and the number of runs.
    /// `worlds` has one setting for each seed.
    fn run(&self, worlds: &[Vec<Setting>]) -> (Vec<Vec<Runs>>, usize) {
        let (runners, seeds) = (self.runners.len(), self.seeds.len());
        let mut plan = Vec::new();
        // The longest jobs first, so that no thread is left with one at the end.
        for runner in (0..runners).rev() {
            for world in 0..worlds.len() {
                plan.extend((0..seeds).map(|seed| (runner, world, seed)));
            }
        }
        let progress = Progress::new("comparing", plan.len() as u64);
        let done = run_many(&plan, self.threads, |_, (runner, world, seed)| {
            let result = self.runners[*runner].run(&worlds[*world][*seed], self.seeds[*seed]);
            progress.add(1);
            result
        });
        drop(progress);
        let mut by_world: Vec<Vec<Vec<_>>> = worlds
            .iter()
            .map(|_| (0..runners).map(|_| Vec::with_capacity(seeds)).collect())
            .collect();
        for ((runner, world, _), result) in plan.iter().zip(done) {
            by_world[*world][*runner].push(result);
        }
        (by_world, plan.len())
    }

    /// What no schedule can go under, for each world and seed, in joules.
    fn bounds(&self, worlds: &[Vec<Setting>]) -> Vec<Result<Vec<f64>, ScenarioError>> {
        let plan: Vec<(usize, usize)> = (0..worlds.len())
            .flat_map(|world| (0..self.seeds.len()).map(move |seed| (world, seed)))
            .collect();
        let mut done = run_many(&plan, self.threads, |_, (world, seed)| {
            lower_bound(&worlds[*world][*seed].scenario, self.seeds[*seed]).map(|joules| joules.get())
        })
        .into_iter();
        worlds
            .iter()
            .map(|_| done.by_ref().take(self.seeds.len()).collect())
            .collect()
    }
}

/// Runs everything and prints the table.
///
/// # Errors
/// A scenario, a trace or a law that is wrong, a run that does not end, a report that cannot be written.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    if args.unseen || !args.families.is_empty() {
        return unseen::run(args);
    }
    let field = Field::of(args, &LAWS, SEEDS)?;
    let mut worlds = Vec::new();
    for trace in &args.traces {
        let with = field.seeds.iter().map(|seed| {
            let (setting, _) = field.file.with_trace(Some(trace.as_str()), &args.world, *seed)?;
            Ok(setting)
        });
        worlds.push(with.collect::<Result<Vec<_>, Failure>>()?);
    }
    let started = Instant::now();
    let (done, runs) = field.run(&worlds);
    let mut rows = Vec::new();
    let mut remarks = Vec::new();
    for ((results, bounds), trace) in done.into_iter().zip(field.bounds(&worlds)).zip(&args.traces) {
        let bounds = bounds
            .map_err(|error| remarks.push(format!("no bound: {error}")))
            .ok();
        let results = results
            .into_iter()
            .map(|runs| runs.into_iter().collect::<Result<Vec<_>, _>>())
            .collect::<Result<Vec<_>, _>>()?;
        let first = results.first().map_or(&[][..], Vec::as_slice);
        for (runner, runs) in field.runners.iter().zip(&results) {
            rows.extend(row(runner.name(), trace, runs, first, bounds.as_deref()));
        }
    }
    remarks.dedup();
    remarks.extend(
        rows.iter()
            .filter(|row| row.law == field.first())
            .filter_map(|row| {
                let late = Ratio::from_percent(row.periods_over_percent.mean);
                let why = late_reference(&row.law, Some(late))?;
                Some(format!(
                    "on {} energy against the first law is no saving: {why}",
                    row.trace
                ))
            }),
    );
    let provenance = field.provenance(&worlds, args.traces.clone());
    let took_s = started.elapsed().as_secs_f64();
    say::note!("{runs} runs in {took_s:.1} s, {} at once", field.threads);
    let mut sheet = sheet(args, &field, &rows, remarks);
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, &args.out)?;
    if args.json {
        let comparison = Comparison {
            first_law: field.first(),
            seeds: field.seeds.len() as u64,
            first_seed: args.first_seed,
            confidence: 0.95,
            provenance,
            rows: &rows,
        };
        return say::result(serde_json::to_string(&comparison)?);
    }
    say::result(format_args!(
        "{}report: {}",
        sheet_text(&sheet),
        args.out.display()
    ))
}

fn row(law: String, trace: &str, runs: &[Figures], first: &[Figures], bounds: Option<&[f64]>) -> Option<Row> {
    let each = |pick: fn(&Figures) -> f64| runs.iter().map(pick).collect::<Vec<f64>>();
    let firsts = |pick: fn(&Figures) -> f64| first.iter().map(pick).collect::<Vec<f64>>();
    let estimate = |pick: fn(&Figures) -> f64| Estimate::of(&each(pick));
    let joules = each(|run| run.energy_j);
    let over = |from: &[f64]| {
        let percent: Vec<f64> = joules
            .iter()
            .zip(from)
            .map(|(these, those)| (these / those - 1.0) * 100.0)
            .collect();
        Estimate::of(&percent)
    };
    Some(Row {
        energy_j: estimate(|run| run.energy_j)?,
        energy_over_first_percent: over(&firsts(|run| run.energy_j))?,
        // The bound is one for schedules that answer what is due, and proven: who is under it left requests unanswered.
        energy_over_bound_percent: bounds
            .filter(|bounds| joules.iter().zip(*bounds).all(|(joules, bound)| joules >= bound))
            .and_then(over),
        joules_per_request: estimate(|run| run.energy_j / run.requests.max(1) as f64)?,
        latency_p95_ms: estimate(|run| run.latency_p95_ms)?,
        periods_over_percent: estimate(|run| run.periods_over * 100.0)?,
        periods_over_first_percent: Estimate::of_differences(
            &each(|run| run.periods_over * 100.0),
            &firsts(|run| run.periods_over * 100.0),
        )?,
        cores: estimate(|run| run.cores)?,
        utilisation_percent: estimate(|run| run.utilisation * 100.0)?,
        power_w: estimate(|run| run.power_w)?,
        allocated_w: estimate(|run| run.allocated_w)?,
        power_ratio: estimate(|run| run.power_ratio)?,
        law,
        trace: trace.to_owned(),
        runs: runs.to_vec(),
    })
}

fn sheet(args: &CompareArgs, field: &Field, rows: &[Row], mut remarks: Vec<String>) -> Sheet {
    let (first, seeds) = (field.first(), field.seeds.len());
    remarks.push(format!(
        "means over {seeds} seeds with 95 % confidence intervals (Student's t); energy is against {first} seed by seed, under the \
         same arrivals and sizes"
    ));
    remarks.push(BOUND_REMARK.to_owned());
    let section = |trace: &String| {
        let of_trace = || rows.iter().filter(move |row| row.trace == *trace);
        let grid = Grid {
            header: [
                "law",
                format!("energy over {first} %").as_str(),
                "over the bound %",
                "J a request",
                "P95 ms",
                "periods over %",
                "cores",
                "utilisation %",
                "power W",
                "allocated W",
                "ratio",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: of_trace()
                .map(|row| {
                    vec![
                        row.law.clone(),
                        row.energy_over_first_percent.written(2),
                        row.energy_over_bound_percent
                            .map_or("-".to_owned(), |over| over.written(2)),
                        row.joules_per_request.written(4),
                        row.latency_p95_ms.written(1),
                        row.periods_over_percent.written(2),
                        row.cores.written(1),
                        row.utilisation_percent.written(1),
                        row.power_w.written(1),
                        row.allocated_w.written(1),
                        row.power_ratio.written(3),
                    ]
                })
                .collect(),
            words: vec![0],
            caption: String::new(),
        };
        let bars = |title: &str, unit: &str, pick: fn(&Row) -> f64| {
            let values = of_trace().map(|row| (row.law.clone(), row.law.clone(), pick(row)));
            Bars::of(title, unit, values)
        };
        Section {
            title: format!("Trace {trace}"),
            tables: vec![grid],
            bars: vec![
                bars("Mean power", "W", |row| row.power_w.mean),
                bars("Periods over the target", "%", |row| {
                    row.periods_over_percent.mean
                }),
            ],
            ..Section::default()
        }
    };
    let laws: Vec<String> = field.runners.iter().map(|runner| runner.name()).collect();
    Sheet {
        kind: "headroom compare".to_owned(),
        title: format!("{} on {}", laws.join(", "), args.traces.join(", ")),
        lead: format!("{seeds} seeds each, from seed {}.", args.first_seed),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks,
        sections: args.traces.iter().map(section).collect(),
        provenance: None,
    }
}
