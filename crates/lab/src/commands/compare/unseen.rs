//! `headroom compare --unseen`: all laws on families of traces that no law was looked at on, and whether the ordering holds.

use super::CompareArgs;
use super::ordering::{KEPT_PERCENT, MEASURE, Measured, OURS, Ordering, Verdict, ordering};
use super::{BOUND_REMARK, field, provenance};
use crate::comparison::{CLAIRVOYANT, Field, Row, Runs, row};
use crate::simulate::{Figures, Setting, sheet_text, write_sheet};
use headroom_console::Failure;
use headroom_console::say;
use headroom_control::LawName;
use headroom_record::Provenance;
use headroom_record::report::{Bars, Grid, Section, Sheet};
use headroom_sim::ScenarioError;
use headroom_workload::Trace;
use headroom_workload::families::Family;
use serde::Serialize;
use std::time::Instant;

/// Seeds where none are asked for: a family is another trace with each.
const SEEDS: u64 = 5;

/// A family, over all seeds.
#[derive(Debug, Serialize)]
struct OfFamily {
    family: String,
    what: &'static str,
    /// How many times the plant.
    plants: u32,
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
struct Unseen<'a> {
    first_law: String,
    seeds: usize,
    first_seed: u64,
    confidence: f64,
    provenance: Provenance,
    families: &'a [OfFamily],
}

/// Runs everything and prints the table.
///
/// # Errors
/// A scenario or a law that is wrong, a report that cannot be written.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let laws = LawName::of_machines().filter(|law| law.has_defaults());
    let field = field(args, &laws.collect::<Vec<_>>(), SEEDS)?;
    let families = match args.families.as_slice() {
        [] => Family::all().collect(),
        some => {
            let mut some = some.to_vec();
            some.sort_unstable();
            some.dedup();
            some
        }
    };
    let (mut worlds, mut traces) = (Vec::new(), Vec::new());
    for family in &families {
        let mut of_family = Vec::new();
        for seed in &field.seeds {
            let (setting, trace) = world(&field.file, args, *family, *seed)?;
            if traces.len() == worlds.len() {
                traces.push(trace);
            }
            of_family.push(setting);
        }
        worlds.push(of_family);
    }
    let started = Instant::now();
    let (done, runs) = field.run(&worlds);
    let bounds = field.bounds(&worlds);
    let mut results = Vec::new();
    for (((family, trace), done), bounds) in families.iter().zip(&traces).zip(done).zip(bounds) {
        results.push(of_family(&field, *family, trace, done, bounds));
    }
    let took_s = started.elapsed().as_secs_f64();
    say::note!("{runs} runs in {took_s:.1} s, {} at once", field.threads);
    let names = families.iter().map(ToString::to_string).collect();
    let provenance = provenance(&field, &worlds, names);
    let mut sheet = sheet(args, &field, &results);
    sheet.provenance = Some(provenance.clone());
    write_sheet(&sheet, None, &args.out)?;
    if args.json {
        let unseen = Unseen {
            first_law: field.first(),
            seeds: field.seeds.len(),
            first_seed: args.first_seed,
            confidence: 0.95,
            provenance,
            families: &results,
        };
        return say::result(serde_json::to_string(&unseen)?);
    }
    say::result(format_args!(
        "{}report: {}",
        sheet_text(&sheet),
        args.out.display()
    ))
}

/// The world for one trace of a family: as many times the plant as it is meant for, and the trace's arrivals.
fn world(file: &Setting, args: &CompareArgs, family: Family, seed: u64) -> Result<(Setting, Trace), Failure> {
    let mut setting = file.clone();
    for group in &mut setting.scenario.nodes {
        group.count = group.count.saturating_mul(family.plants());
    }
    let nodes = &mut setting.law.k8s_as_run.nodes;
    *nodes = nodes.saturating_mul(family.plants());
    let capacity = setting.scenario.full_capacity();
    let trace = family.trace(capacity, seed).map_err(Failure::usage)?;
    let setting = setting.with_rates(&trace, &args.world)?;
    Ok((setting, trace))
}

fn of_family(
    field: &Field,
    family: Family,
    trace: &Trace,
    done: Vec<Runs>,
    bounds: Result<Vec<f64>, ScenarioError>,
) -> OfFamily {
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
    OfFamily {
        family: family.to_string(),
        what: family.what(),
        plants: family.plants(),
        length_s: trace.duration().get(),
        mean_per_s: trace.mean().get(),
        most_per_s: trace.peak().get(),
        laws: whole
            .iter()
            .filter_map(|(law, runs)| row(law.clone(), family.name(), runs, first, bounds.as_deref()))
            .collect(),
        failed,
        ordering: ordering(&measured),
    }
}

fn sheet(args: &CompareArgs, field: &Field, results: &[OfFamily]) -> Sheet {
    let (first, seeds) = (field.first(), field.seeds.len());
    let laws: Vec<String> = field.runners.iter().map(|runner| runner.name()).collect();
    let bars = |title: &str, unit: &str, pick: fn(&Row) -> Option<f64>| {
        let values = results.iter().flat_map(|family| {
            let shown = family
                .laws
                .iter()
                .filter(|row| row.law == OURS || row.law == MEASURE);
            shown.filter_map(move |row| {
                let label = format!("{}, {}", family.family, row.law);
                Some((row.law.clone(), label, pick(row)?))
            })
        });
        Bars::of(title, unit, values)
    };
    Sheet {
        kind: "headroom compare --unseen".to_owned(),
        title: "Traces that no law was looked at on".to_owned(),
        lead: verdict(results),
        facts: vec![
            format!("{seeds} seeds each, from seed {}", args.first_seed),
            format!("headroom {}", env!("CARGO_PKG_VERSION")),
        ],
        remarks: vec![
            format!(
                "means over {seeds} seeds, a family being another trace with each; energy is against {first} seed by seed, under \
                 the same arrivals and sizes. --json has the 95 % intervals"
            ),
            format!(
                "the ordering holds where {OURS} needs less energy than every law that is late in at most {KEPT_PERCENT} % of the \
                 periods (or, where all are late more often, than the least late), and is late no more often than {MEASURE}; \
                 \"chance\" where it does not in the means, but the 95 % intervals of the differences seed by seed include zero"
            ),
            BOUND_REMARK.to_owned(),
        ],
        sections: vec![
            Section {
                title: "The ordering, family by family".to_owned(),
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
                title: "The families".to_owned(),
                tables: vec![described(results)],
                ..Section::default()
            },
        ],
        provenance: None,
    }
}

/// Three lines a family, a column a law.
fn table(results: &[OfFamily], laws: &[String], first: &str) -> Grid {
    let header = ["family".to_owned(), "ordering".to_owned(), "%".to_owned()];
    type Pick = fn(&Row) -> Option<f64>;
    let quantities: [(String, Pick); 3] = [
        (format!("energy over {first}"), |row| {
            Some(row.energy_over_first_percent.mean)
        }),
        ("over the bound".to_owned(), |row| {
            row.energy_over_bound_percent.map(|over| over.mean)
        }),
        ("periods late".to_owned(), |row| {
            Some(row.periods_over_percent.mean)
        }),
    ];
    let mut rows = Vec::new();
    for family in results {
        for (at, (name, pick)) in quantities.iter().enumerate() {
            let once = |text: &str| if at == 0 { text.to_owned() } else { String::new() };
            let said = family.ordering.as_ref().map_or("-", |found| found.verdict.said());
            let mut line = vec![once(&family.family), once(said), name.clone()];
            line.extend(laws.iter().map(|law| {
                let found = family.laws.iter().find(|row| row.law == *law);
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

fn described(results: &[OfFamily]) -> Grid {
    Grid {
        header: ["family", "what it is", "plants", "s", "requests/s, mean", "most"]
            .map(str::to_owned)
            .to_vec(),
        rows: results
            .iter()
            .map(|family| {
                vec![
                    family.family.clone(),
                    family.what.to_owned(),
                    family.plants.to_string(),
                    format!("{:.0}", family.length_s),
                    format!("{:.1}", family.mean_per_s),
                    format!("{:.1}", family.most_per_s),
                ]
            })
            .collect(),
        words: vec![0, 1],
        caption: String::new(),
    }
}

/// In how many families the ordering holds.
fn verdict(results: &[OfFamily]) -> String {
    let judged: Vec<Verdict> = results
        .iter()
        .filter_map(|family| family.ordering.as_ref().map(|found| found.verdict))
        .collect();
    if judged.is_empty() {
        return format!("The ordering is one of {OURS} among the others: name it and others in --laws.");
    }
    let count = |verdict| judged.iter().filter(|one| **one == verdict).count();
    format!(
        "The ordering holds in {} of {} families; in {} it does not by differences that could be chance's, in {} it does not.",
        count(Verdict::Holds),
        judged.len(),
        count(Verdict::WithinChance),
        count(Verdict::Fails)
    )
}

/// The verdict, then each exception with its figures.
fn exceptions(results: &[OfFamily]) -> Vec<String> {
    let mut lines = vec![verdict(results)];
    for family in results {
        if let Some(found) = &family.ordering {
            let chance = match found.verdict {
                Verdict::WithinChance => " (could be chance's)",
                Verdict::Holds | Verdict::Fails => "",
            };
            let said = |what: &String| format!("{}: {what}{chance}.", family.family);
            lines.extend(found.exceptions.iter().map(said));
        }
        lines.extend(
            family
                .failed
                .iter()
                .map(|failed| format!("{}: no figures of {failed}.", family.family)),
        );
    }
    lines
}
