//! The page of live runs and their simulations, side by side.

use super::data::{RunData, whole_span};
use super::grid::{Cell, framed};
use super::html::{banner, escape, header, page, thinning};
use super::origin::provenance;
use super::{distribution, panels, run};
use crate::archive::Archive;
use crate::error::Error;
use crate::model::RunId;
use crate::summary::RunSummary;
use crate::validate::Validation;
use serde_json::Value;
use std::fmt::Write;

/// The colours of a live run and of its simulation, the same for every law.
const COLOURS: [usize; 2] = [1, 2];
const NAMES: [&str; 2] = ["live", "simulated"];

/// The page: for each pair a table of the figures, live, simulated and how far apart, and the panels with a line for each.
///
/// `remarks` stand at its head: what the simulator does not model.
///
/// # Errors
/// No pair is given, a run that is not there, or a file that cannot be read.
pub fn validation_html(
    archive: &Archive,
    pairs: &[(RunId, RunId)],
    remarks: &[String],
) -> Result<String, Error> {
    if pairs.is_empty() {
        return Err(Error::NothingToCompare);
    }
    let mut loaded = Vec::new();
    for (live, simulated) in pairs {
        let mut runs = [
            RunData::load(archive, *live)?,
            RunData::load(archive, *simulated)?,
        ];
        // Both are of one law: plots name them by their world.
        for (run, name) in runs.iter_mut().zip(NAMES) {
            run.summary.law = name.to_owned();
        }
        loaded.push((Validation::of(archive, *live, *simulated)?, runs));
    }
    Ok(render(&loaded, remarks))
}

fn render(pairs: &[(Validation, [RunData; 2])], remarks: &[String]) -> String {
    let laws: Vec<&str> = pairs
        .iter()
        .map(|(validation, _)| validation.live.law.as_str())
        .collect();
    let title = format!("Live and simulated: {}", laws.join(", "));
    let mut body = header("headroom validate", &title, &lead(pairs), &facts(pairs));
    body.push_str(&banner("What the simulator knows, and what it does not", remarks));
    body.push_str(&overview(pairs));
    let mut hover: Vec<Value> = Vec::new();
    for (validation, runs) in pairs {
        let _ = writeln!(body, "<h2>{}</h2>", escape(&validation.live.law));
        if pairs.len() == 1 {
            body.push_str(&single(validation));
        }
        let _ = writeln!(
            body,
            "<p class=\"note\">{}</p>",
            escape(&validation.by_period.text(runs[0].info.meta.period))
        );
        let _ = writeln!(
            body,
            "<p class=\"facts\">Of the live run: {}</p>",
            escape(&validation.live.notes.join(" \u{b7} "))
        );
        body.push_str(&banner("The live run was disturbed", &validation.faults));
        body.push_str("<section class=\"panels\">\n");
        body.push_str(&thinning(
            runs.iter().map(|run| run.periods_per_point).max().unwrap_or(1),
        ));
        for panel in panels::of_pair(runs, &COLOURS) {
            body.push_str(&panel.render());
        }
        body.push_str("</section>\n");
        if let Some(plot) = distribution::render(runs, &COLOURS) {
            body.push_str(&plot);
        }
        for (data, colour) in runs.iter().zip(COLOURS) {
            hover.push(run::hover(data, &data.summary.law, colour));
        }
    }
    let summaries: Vec<RunSummary> = pairs
        .iter()
        .flat_map(|(validation, _)| [validation.live.clone(), validation.simulated.clone()])
        .collect();
    body.push_str(&provenance(&summaries));
    // The crosshair shows the runs of one pair: with several its box would be taller than the page.
    let crosshair = match pairs {
        [(_, runs)] => Some(run::crosshair(hover, whole_span(runs))),
        _ => None,
    };
    page(&title, &body, crosshair.as_ref())
}

fn lead(pairs: &[(Validation, [RunData; 2])]) -> String {
    let sentences = pairs.iter().map(|(validation, _)| {
        let apart = |name: &str| {
            let side = validation.sides.iter().find(|side| side.name == name);
            side.map_or_else(String::new, |side| side.cells()[3].clone())
        };
        format!(
            "{}: energy {}, cores {}, P95 {}.",
            validation.live.law,
            apart("energy"),
            apart("cores, mean"),
            apart("latency P95")
        )
    });
    let all: Vec<String> = sentences.collect();
    format!("How far the simulation is from the live run: {}", all.join(" "))
}

fn facts(pairs: &[(Validation, [RunData; 2])]) -> String {
    let named = pairs.iter().map(|(validation, runs)| {
        format!(
            "runs {} ({}) and {} ({}), trace {}, seed {}",
            runs[0].info.id,
            validation.live.world,
            runs[1].info.id,
            validation.simulated.world,
            validation.live.trace,
            validation.live.seed
        )
    });
    named.collect::<Vec<_>>().join(" \u{b7} ")
}

/// The figures that matter most, all pairs in one table; nothing where there is but one.
fn overview(pairs: &[(Validation, [RunData; 2])]) -> String {
    if pairs.len() < 2 {
        return String::new();
    }
    let mut head = run::heads(&[("", ""), ("", "unit")]);
    for (validation, _) in pairs {
        let live = format!("{}, live", escape(&validation.live.law));
        head.extend([
            ("n", live),
            ("n", "simulated".to_owned()),
            ("n", "apart".to_owned()),
        ]);
    }
    table(
        &head,
        &pairs.iter().map(|(validation, _)| validation).collect::<Vec<_>>(),
    )
}

/// A line for each figure: of each validation both sides and their distance.
fn table(head: &[Cell], validations: &[&Validation]) -> String {
    let line = |row: usize| {
        let mut line = Vec::new();
        for side in validations
            .iter()
            .filter_map(|validation| validation.sides.get(row))
        {
            let [unit, live, simulated, apart] = side.cells();
            if line.is_empty() {
                line.extend([("row", escape(&side.name)), ("quiet", unit)]);
            }
            line.extend([("n", live), ("n", simulated), ("n", format!("<b>{apart}</b>"))]);
        }
        line
    };
    let rows = validations.first().map_or(0, |validation| validation.sides.len());
    framed("compare", head, (0..rows).map(line))
}

fn single(validation: &Validation) -> String {
    let source = |run: &RunSummary, name: &str| match run.energy_j.source {
        Some(source) if source.as_str() == name => String::new(),
        Some(source) => format!(" <span class=\"quiet\">({source})</span>"),
        None => " <span class=\"quiet\">(no meter)</span>".to_owned(),
    };
    let mut head = run::heads(&[("", ""), ("", "unit")]);
    let runs = [&validation.live, &validation.simulated];
    head.extend(NAMES.iter().zip(COLOURS).zip(runs).map(|((name, colour), run)| {
        (
            "n",
            format!("<span class=\"dot c{colour}\"></span>{name}{}", source(run, name)),
        )
    }));
    head.push(("n", "apart".to_owned()));
    table(&head, &[validation])
}
