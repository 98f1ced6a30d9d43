//! `headroom compare`: laws x traces x seeds, under common random numbers.

mod ordering;
mod world;
mod worlds;

use crate::args::{WorldArgs, jobs_at_once};
use crate::comparison::{Field, Row};
use crate::origin;
use crate::simulate::{Setting, jobs, sheet_text, write_sheet};
use clap::Args;
use headroom_console::Failure;
use headroom_console::say;
use headroom_control::{LawName, LawNames};
use headroom_record::report::{Bars, Grid, Section, Sheet};
use headroom_record::statistics::Estimate;
use headroom_record::{Experiment, Provenance, late_reference};
use headroom_units::Ratio;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
pub use world::World;

/// `headroom compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The world.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The laws; the first is what the others' differences are from. By default fixed, headroom, slo-power,
    /// pegasus-as-run and k8s-as-run, and with --worlds each paper's law, with and without switching servers, and joint.
    /// Laws that run together, each on its own levers, are joined by +, as in slo-power+static.
    #[arg(long, value_delimiter = ',', value_name = "LAW,...")]
    pub laws: Vec<LawNames>,
    /// The traces: `wikipedia`, `azure`, or files. A generated trace is another one with each seed.
    #[arg(long, value_delimiter = ',', default_values_t = ["wikipedia".to_owned(), "azure".to_owned()], value_name = "NAME|FILE,...")]
    pub traces: Vec<String>,
    /// Instead of --traces: these worlds, or all where none is named. Clusters of 1, 4 and 16 servers, equal and mixed;
    /// the published traces; a slow node, pauses, a lost node, late and lost telemetry, a wrong or drifting service rate,
    /// small requests, a heavy tail; and families of generated traces: other lengths, a tenth and ten times the load, weeks,
    /// another rhythm, flash crowds, ramps, steps, walks, bursts, next to nothing, next to everything, silence. Prints for
    /// each whether joint is late no more often than asked, and needs the least energy of all laws of which that holds.
    /// A name that is none of them lists all.
    #[arg(long, value_delimiter = ',', num_args = 0.., value_name = "WORLD,...", conflicts_with_all = ["traces", "step"])]
    pub worlds: Option<Vec<World>>,
    /// How many seeds; every law meets the same arrivals and sizes under the same seed. By default 20, and with --worlds 3. At
    /// least 2: an interval of confidence needs as many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub seeds: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub first_seed: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs_at_once)]
    pub jobs: Option<usize>,
    /// Also find a schedule that knows every arrival beforehand, and run it as one more law. Takes some hundred times as
    /// long as a law; without it each law is held against the bound that no schedule can go under.
    #[arg(long)]
    pub clairvoyant: bool,
    /// The report to write.
    #[arg(long, default_value = "out/compare.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the comparison as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What is said of the bound under every table that has it.
const BOUND_REMARK: &str = "simulated: every figure is a model's; \"over the bound\" is energy over what no schedule can go under \
                            that leaves no work waiting for longer than four targets and is late no more often than `law.joint.late` (0.5 % of the periods), \
                            even one that knows every request beforehand (\"-\": none is known, or the law let work wait, was late \
                            more often, or left some undone)";
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

#[derive(Serialize)]
struct Comparison<'a> {
    first_law: String,
    seeds: u64,
    first_seed: u64,
    confidence: f64,
    provenance: Provenance,
    rows: &'a [Row],
}

/// What is compared: the laws asked for or these, with as many seeds as were asked for or this many.
///
/// # Errors
/// A scenario that is none, a law that is named twice or cannot be built.
fn field(args: &CompareArgs, file: Setting, laws: Vec<LawNames>, seeds: u64) -> Result<Field, Failure> {
    let laws = match args.laws.is_empty() {
        true => laws,
        false => args.laws.clone(),
    };
    let last = args.first_seed.saturating_add(args.seeds.unwrap_or(seeds));
    let seeds = (args.first_seed..last).collect();
    Field::new(file, &laws, args.clairvoyant, seeds, jobs(args.jobs))
}

/// Where a table of these runs comes from.
fn provenance(field: &Field, worlds: &[Vec<Setting>], traces: Vec<String>) -> Provenance {
    let settings = || worlds.iter().flatten();
    let arrivals = settings().map(|setting| &setting.scenario.arrivals);
    let service = &field.file.scenario.service;
    // As the scenario or the trace says; the same for all, or not said.
    let mut lengths: Vec<Option<f64>> = settings().map(|setting| setting.scenario.duration_s).collect();
    lengths.dedup();
    origin::provenance()
        .configured_by(&field.file.text())
        .with_load(Some(origin::of_arrivals(arrivals, &field.seeds)))
        .of_experiment(Experiment {
            scenario: field.file.scenario.name.clone(),
            traces,
            seeds: (
                field.seeds.first().copied().unwrap_or_default(),
                field.seeds.last().copied().unwrap_or_default(),
            ),
            duration_s: match lengths.as_slice() {
                [length] => *length,
                _ => None,
            },
            slo: Some(format!("P{} under {} ms", service.percentile, service.target_ms)),
        })
}

/// Runs everything and prints the table.
///
/// # Errors
/// A scenario, a trace or a law that is wrong, a run that does not end, a report that cannot be written.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    if args.worlds.is_some() {
        return worlds::run(args);
    }
    let file = Setting::read(args.world.scenario.as_deref())?;
    let field = field(args, file, LAWS.map(Into::into).to_vec(), SEEDS)?;
    let mut worlds = Vec::new();
    for trace in &args.traces {
        let with = field.seeds.iter().map(|seed| {
            let (setting, _) = field.file.with_trace(Some(trace.as_str()), &args.world, *seed)?;
            Ok(setting)
        });
        worlds.push(with.collect::<Result<Vec<_>, Failure>>()?);
    }
    let started = Instant::now();
    let (rows, mut remarks) = field.rows(&args.traces, &worlds)?;
    let runs = rows.len() * field.seeds.len();
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
    let provenance = provenance(&field, &worlds, args.traces.clone());
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
                "by work %",
                "by sleep %",
                "by servers off %",
                "by switching %",
                "saved of what could %",
                "over the bound %",
                "P95 ms",
                "periods over %",
                "servers",
                "cores",
                "J a request",
                "power W",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: of_trace()
                .map(|row| {
                    let by = |cause: usize| format!("{:.2}", -row.saved_percent_by[cause].mean);
                    let unless_none =
                        |one: Option<Estimate>| one.map_or("-".to_owned(), |one| one.written(1));
                    vec![
                        row.law.clone(),
                        row.energy_over_first_percent.written(2),
                        by(0),
                        by(1),
                        by(2),
                        by(3),
                        unless_none(row.saved_of_movable_percent),
                        unless_none(row.energy_over_bound_percent),
                        row.latency_p95_ms.written(1),
                        row.periods_over_percent.written(2),
                        row.servers.written(1),
                        row.cores.written(1),
                        row.joules_per_request.written(4),
                        row.power_w.written(1),
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
