//! `headroom compare --worlds`: laws in worlds that none was tuned on, and whether the joint law keeps what it says in each.

use super::CompareArgs;
use super::ordering::{Measured, OURS, OVER_FIRST, Ordering, Verdict, ordering};
use super::world::World;
use super::{BOUND_REMARK, field, provenance};
use crate::comparison::{CLAIRVOYANT, Field, Row, Runs, check_bound, row};
use crate::simulate::{Figures, Setting, sheet_text, write_sheet};
use headroom_console::Failure;
use headroom_console::say;
use headroom_record::Provenance;
use headroom_record::report::{Bars, Grid, Section, Sheet};
use headroom_sim::ScenarioError;
use headroom_sim::bound::Least;
use headroom_workload::Trace;
use serde::Serialize;
use std::time::Instant;

/// Seeds where none are asked for: a generated trace is another one with each.
const SEEDS: u64 = 3;
/// The laws where none are asked for: the reference, each paper's law and what is used today, with and without switching
/// servers, and ours.
const LAWS: [&str; 9] = [
    "fixed",
    "slo-power",
    "slo-power+static",
    "pegasus",
    "hpa",
    "hpa-nodes",
    "powersave",
    "headroom",
    OURS,
];

/// A world, over all seeds.
#[derive(Debug, Serialize)]
struct OfWorld {
    world: &'static str,
    what: &'static str,
    /// Servers.
    nodes: usize,
    /// Of the first seed's trace: its length in seconds, mean and most requests per second.
    length_s: f64,
    mean_per_s: f64,
    most_per_s: f64,
    laws: Vec<Row>,
    /// What has no figures, laws or the bound, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
    ordering: Option<Ordering>,
}

#[derive(Serialize)]
struct Worlds<'a> {
    first_law: String,
    seeds: usize,
    first_seed: u64,
    confidence: f64,
    provenance: Provenance,
    worlds: &'a [OfWorld],
}

/// Runs everything and prints the table.
///
/// # Errors
/// A scenario or a law that is wrong, a report that cannot be written.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let mut chosen = args.worlds.clone().unwrap_or_default();
    if chosen.is_empty() {
        chosen = World::all();
    }
    let file = Setting::read(args.world.scenario.as_deref())?;
    // The laws are built once in a world as they will meet it, where servers can be switched.
    let first = chosen
        .first()
        .map(|world| world.setting(&file, &args.world, args.first_seed));
    let first = first.transpose()?.map_or(file.clone(), |(setting, _)| setting);
    let laws = LAWS.iter().map(|law| law.parse().map_err(Failure::usage));
    let field = field(args, first, laws.collect::<Result<_, Failure>>()?, SEEDS)?;
    let (mut worlds, mut traces) = (Vec::new(), Vec::new());
    for world in &chosen {
        let mut of_world = Vec::new();
        for seed in &field.seeds {
            let (setting, trace) = world.setting(&file, &args.world, *seed)?;
            if traces.len() == worlds.len() {
                traces.push(trace);
            }
            of_world.push(setting);
        }
        worlds.push(of_world);
    }
    let started = Instant::now();
    let (done, runs) = field.run(&worlds);
    let bounds = field.bounds(&worlds);
    let mut results = Vec::new();
    for ((((world, trace), settings), done), bounds) in
        chosen.iter().zip(&traces).zip(&worlds).zip(done).zip(bounds)
    {
        let Some(setting) = settings.first() else {
            continue;
        };
        for (runner, runs) in field.runners.iter().zip(&done) {
            let of_seed = settings.iter().zip(bounds.iter().flatten()).zip(&field.seeds);
            let each = runs.iter().zip(of_seed);
            let each = each.filter_map(|(run, ((setting, bound), seed))| {
                Some((*seed, run.as_ref().ok()?, setting, *bound))
            });
            check_bound(&runner.name(), world.name, each)?;
        }
        results.push(of_world(&field, world, setting, trace, done, bounds));
    }
    let took_s = started.elapsed().as_secs_f64();
    say::note!("{runs} runs in {took_s:.1} s, {} at once", field.threads);
    let names = chosen.iter().map(ToString::to_string).collect();
    let provenance = provenance(&field, &worlds, names);
    let mut sheet = sheet(args, &field, &results);
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, &args.out)?;
    if args.json {
        let all = Worlds {
            first_law: field.first(),
            seeds: field.seeds.len(),
            first_seed: args.first_seed,
            confidence: 0.95,
            provenance,
            worlds: &results,
        };
        return say::result(serde_json::to_string(&all)?);
    }
    say::result(format_args!(
        "{}report: {}",
        sheet_text(&sheet),
        args.out.display()
    ))
}

fn of_world(
    field: &Field,
    world: &World,
    setting: &Setting,
    trace: &Trace,
    done: Vec<Runs>,
    bounds: Result<Vec<Least>, ScenarioError>,
) -> OfWorld {
    let mut failed = Vec::new();
    let mut whole: Vec<(String, Vec<Figures>)> = Vec::new();
    for (runner, runs) in field.runners.iter().zip(done) {
        match runs.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(runs) => whole.push((runner.name(), runs)),
            // That a law falls over on a load is a finding about the law, not the end of the comparison.
            Err(error) => failed.push(format!("{}: {error}", runner.name())),
        }
    }
    let measured: Vec<Measured> = whole
        .iter()
        // It is no law: it knows what comes.
        .filter(|(law, _)| law != CLAIRVOYANT)
        .map(|(law, runs)| Measured {
            law: law.clone(),
            energy_j: runs.iter().map(|run| run.energy_j).collect(),
            late_percent: runs.iter().map(|run| run.periods_over * 100.0).collect(),
        })
        .collect();
    let first = whole.first().map_or(&[][..], |(_, runs)| runs.as_slice());
    if let Some((law, _)) = whole.first().filter(|(law, _)| *law != field.first()) {
        failed.push(format!("energy is against {law} here"));
    }
    let bounds = bounds
        .map_err(|error| failed.push(format!("the bound: {error}")))
        .ok();
    OfWorld {
        world: world.name,
        what: world.what,
        nodes: setting.scenario.each_node().count(),
        length_s: trace.duration().get(),
        mean_per_s: trace.mean().get(),
        most_per_s: trace.peak().get(),
        laws: whole
            .iter()
            .filter_map(|(law, runs)| row(law.clone(), world.name, runs, first, bounds.as_deref()))
            .collect(),
        failed,
        ordering: ordering(&measured, &field.first(), setting.asked()),
    }
}

fn sheet(args: &CompareArgs, field: &Field, results: &[OfWorld]) -> Sheet {
    let (first, seeds) = (field.first(), field.seeds.len());
    let laws: Vec<String> = field.runners.iter().map(|runner| runner.name()).collect();
    let bars = |title: &str, unit: &str, pick: fn(&Row) -> Option<f64>| {
        let values = results.iter().flat_map(|world| {
            let shown = world.laws.iter().filter(|row| row.law == OURS);
            shown.filter_map(move |row| {
                let label = world.world.to_owned();
                Some((row.law.clone(), label, pick(row)?))
            })
        });
        Bars::of(title, unit, values)
    };
    Sheet {
        kind: "headroom compare --worlds".to_owned(),
        title: "Laws compared, world by world".to_owned(),
        lead: verdict(results),
        facts: vec![
            format!("{seeds} seeds each, from seed {}", args.first_seed),
            format!("headroom {}", env!("CARGO_PKG_VERSION")),
        ],
        remarks: vec![
            format!(
                "means over {seeds} seeds, a generated trace being another one with each; energy is against {first} seed by seed, under \
                 the same arrivals and sizes. --json has the 95 % intervals"
            ),
            format!(
                "the claim holds where {OURS} is late no more often than `law.joint.late` allows, 0.5 % of the periods by default, or {OVER_FIRST} times what {first} \
                 is, and needs less energy than every law that is late no more often than that; \"chance\" where it does not in \
                 the means, but the 95 % intervals of the differences seed by seed include zero"
            ),
            "\"saved of what could\" is what was saved over the most that could be; \"of what can move\" is energy over the bound without \
             what is drawn with no work at all (all asleep, and all but one off)"
                .to_owned(),
            BOUND_REMARK.to_owned(),
        ],
        sections: vec![
            Section {
                title: "World by world".to_owned(),
                text: exceptions(results),
                tables: vec![table(results, &laws, &first)],
                bars: vec![
                    bars("Energy over the bound", "%", |row| {
                        row.energy_over_bound_percent.map(|over| over.mean)
                    }),
                    bars("Periods over the target", "%", |row| {
                        Some(row.periods_over_percent.mean)
                    }),
                ],
                ..Section::default()
            },
            Section {
                title: "The worlds".to_owned(),
                tables: vec![described(results)],
                ..Section::default()
            },
        ],
        provenance: None,
    }
}

/// Five lines a world, a column a law.
fn table(results: &[OfWorld], laws: &[String], first: &str) -> Grid {
    let header = ["world".to_owned(), "claim".to_owned(), "%".to_owned()];
    type Pick = fn(&Row) -> Option<f64>;
    let quantities: [(String, Pick); 5] = [
        (format!("energy over {first}"), |row| {
            Some(row.energy_over_first_percent.mean)
        }),
        ("saved of what could".to_owned(), |row| {
            row.saved_of_movable_percent.map(|saved| saved.mean)
        }),
        ("over the bound".to_owned(), |row| {
            row.energy_over_bound_percent.map(|over| over.mean)
        }),
        ("of what can move".to_owned(), |row| {
            row.controllable_over_bound_percent.map(|over| over.mean)
        }),
        ("periods late".to_owned(), |row| {
            Some(row.periods_over_percent.mean)
        }),
    ];
    let mut rows = Vec::new();
    for world in results {
        for (at, (name, pick)) in quantities.iter().enumerate() {
            let once = |text: &str| if at == 0 { text.to_owned() } else { String::new() };
            let said = world.ordering.as_ref().map_or("-", |found| found.verdict.said());
            let mut line = vec![once(world.world), once(said), name.clone()];
            line.extend(laws.iter().map(|law| {
                let found = world.laws.iter().find(|row| row.law == *law);
                found
                    .and_then(pick)
                    .map_or("-".to_owned(), |value| format!("{:.2}", without_dust(value)))
            }));
            rows.push(line);
        }
    }
    Grid {
        header: header.into_iter().chain(laws.iter().cloned()).collect(),
        rows,
        words: vec![0, 1, 2],
        caption: String::new(),
    }
}

/// Zero where two decimals would say minus zero.
fn without_dust(value: f64) -> f64 {
    if value.abs() < 0.005 { 0.0 } else { value }
}

fn described(results: &[OfWorld]) -> Grid {
    Grid {
        header: ["world", "what it is", "servers", "s", "requests/s, mean", "most"]
            .map(str::to_owned)
            .to_vec(),
        rows: results
            .iter()
            .map(|world| {
                vec![
                    world.world.to_owned(),
                    world.what.to_owned(),
                    world.nodes.to_string(),
                    format!("{:.0}", world.length_s),
                    format!("{:.1}", world.mean_per_s),
                    format!("{:.1}", world.most_per_s),
                ]
            })
            .collect(),
        words: vec![0, 1],
        caption: String::new(),
    }
}

/// In how many worlds the claim holds.
fn verdict(results: &[OfWorld]) -> String {
    let judged: Vec<Verdict> = results
        .iter()
        .filter_map(|world| world.ordering.as_ref().map(|found| found.verdict))
        .collect();
    if judged.is_empty() {
        return format!("The claim is one of {OURS} beside the others: name it and others in --laws.");
    }
    let count = |verdict| judged.iter().filter(|one| **one == verdict).count();
    format!(
        "The claim holds in {} of {} worlds; in {} it does not by differences that could be chance's, in {} it does not.",
        count(Verdict::Holds),
        judged.len(),
        count(Verdict::WithinChance),
        count(Verdict::Fails)
    )
}

/// The verdict, then each exception with its figures.
fn exceptions(results: &[OfWorld]) -> Vec<String> {
    let mut lines = vec![verdict(results)];
    for world in results {
        if let Some(found) = &world.ordering {
            let chance = match found.verdict {
                Verdict::WithinChance => " (could be chance's)",
                Verdict::Holds | Verdict::Fails => "",
            };
            let said = |what: &String| format!("{}: {what}{chance}.", world.world);
            lines.extend(found.exceptions.iter().map(said));
        }
        lines.extend(
            world
                .failed
                .iter()
                .map(|failed| format!("{}: no figures of {failed}.", world.world)),
        );
    }
    lines
}
