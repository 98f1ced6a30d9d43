//! The panels of several runs, laid over one another: what can be compared.

use super::{
    LOW, TALL, is_about_the_mean, is_drawn, label_last, latency_marks, latency_scale, latency_title, line,
    panel, scale, shape, spans,
};
use crate::report::columns::{Column, Moment};
use crate::report::data::{RunData, whole_span};
use crate::report::key::Key;
use crate::report::plot::{Panel, Shape, Spans};
use crate::table::labels;
use std::collections::BTreeSet;

/// The panels of several runs, a line for each.
pub(crate) fn of_several<'a>(runs: &'a [RunData], colours: &[usize]) -> Vec<Panel<'a>> {
    overlaid(runs, colours, false)
}

/// The panels of a live run and its simulation. Their watts are of different sources, and whether they say the same is
/// what the page is for: here alone they share an axis.
pub(crate) fn of_pair<'a>(runs: &'a [RunData; 2], colours: &[usize; 2]) -> Vec<Panel<'a>> {
    overlaid(runs, colours, true)
}

fn overlaid<'a>(runs: &'a [RunData], colours: &[usize], one_power_axis: bool) -> Vec<Panel<'a>> {
    let span = whole_span(runs);
    let known = runs.iter().flat_map(|run| run.columns.iter());
    let is_about_the_mean = is_about_the_mean(&runs.iter().collect::<Vec<_>>());
    let known = known.filter(|(key, column)| {
        // Whether a forecast was right is a question to each run alone.
        !key.is_latency()
            && !key.is_foreseen()
            && is_drawn(*key, column)
            && (*key != Key::MeanResponse || is_about_the_mean)
    });
    let mut keys: Vec<Key> = known
        .map(|(key, _)| key)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    if one_power_axis {
        // The first stands for all.
        let mut first = true;
        keys.retain(|key| !is_power(*key) || std::mem::take(&mut first));
    }
    let pick = |run: &'a RunData, key: Key| -> Option<&'a Column> {
        if one_power_axis && is_power(key) {
            let mut columns = run.columns.iter();
            return columns
                .find(|(other, _)| is_power(*other))
                .map(|(_, column)| column);
        }
        run.columns.get(key)
    };
    // A lever is drawn, dashed, with what has its unit, a cap with the power, a limit with the frequency, where all runs that have it have
    // that too: it is to be compared.
    let is_beside = |lever: Key| {
        let sensors = keys
            .iter()
            .filter(|key| !key.is_lever() && key.axis() == lever.axis());
        let mut with_lever = runs.iter().filter(|run| pick(run, lever).is_some());
        lever.is_lever() && with_lever.all(|run| sensors.clone().any(|sensor| pick(run, *sensor).is_some()))
    };
    let labels = labels(runs.iter().map(|run| &run.summary));
    let mut panels = vec![latency(span, runs, &labels, colours)];
    for key in &keys {
        let mut drawn: Vec<(&RunData, &String, usize, &Column)> = Vec::new();
        let mut limits: Vec<(&RunData, usize, Key, &Column)> = Vec::new();
        for ((run, label), colour) in runs.iter().zip(&labels).zip(colours.iter().copied()) {
            let Some(column) = pick(run, *key).filter(|_| !is_beside(*key)) else {
                continue;
            };
            drawn.push((run, label, colour, column));
            let levers = keys.iter().filter(|lever| lever.is_lever() && !key.is_lever());
            let levers = levers.filter(|lever| lever.axis() == key.axis() && is_beside(**lever));
            limits.extend(levers.filter_map(|lever| Some((run, colour, *lever, run.columns.get(*lever)?))));
        }
        if drawn.is_empty() {
            continue;
        }
        let title = if one_power_axis && is_power(*key) {
            format!("Power, {}", sources(runs))
        } else {
            key.title()
        };
        let dashed: BTreeSet<String> = limits.iter().map(|(_, _, lever, _)| lever.title()).collect();
        let title = dashed
            .iter()
            .fold(title, |title, lever| format!("{title}; dashed: {lever}"));
        let columns = drawn.iter().map(|(.., column)| *column);
        let columns = columns.chain(limits.iter().map(|(.., column)| *column));
        let mut panel = panel(span, title, key.unit(), LOW, scale(*key, columns));
        for (run, colour, _, column) in limits {
            let class = format!("c{colour} thin dashed");
            panel
                .lines
                .push(line(run, column, String::new(), &class, Shape::Step));
        }
        for (run, label, colour, column) in drawn {
            panel.lines.push(line(
                run,
                column,
                label.clone(),
                &format!("c{colour}"),
                shape(*key),
            ));
        }
        panels.push(panel);
    }
    label_last(&mut panels);
    panels
}

fn is_power(key: Key) -> bool {
    matches!(key, Key::Power(_))
}

/// The runs, each with the source of its power.
fn sources(runs: &[RunData]) -> String {
    let named = runs.iter().map(|run| match run.summary.energy_j.source {
        Some(source) if source.as_str() != run.summary.law => format!("{} ({source})", run.summary.law),
        _ => run.summary.law.clone(),
    });
    named.collect::<Vec<_>>().join(" and ")
}

fn latency<'a>(span: (f64, f64), runs: &'a [RunData], labels: &[String], colours: &[usize]) -> Panel<'a> {
    let all: Vec<&RunData> = runs.iter().collect();
    let mut names: Vec<String> = runs.iter().map(RunData::slo_name).collect();
    names.dedup();
    let title = latency_title(&names.join(", "), runs.first());
    let mut panel = panel(span, title, "ms", TALL + 20.0, latency_scale(&all, &[Key::Slo]));
    for (run, (label, colour)) in runs.iter().zip(labels.iter().zip(colours)) {
        if let Some(column) = run.columns.get(Key::Slo) {
            panel.lines.push(line(
                run,
                column,
                label.clone(),
                &format!("c{colour}"),
                Shape::Line,
            ));
        }
    }
    if let Some(first) = runs.first() {
        panel.marks = latency_marks(first);
        let same = |run: &RunData| run.info.meta.slo == first.info.meta.slo;
        if !runs.iter().all(same) {
            panel
                .title
                .push_str(&format!("; target and guard are those of {}", first.summary.law));
        }
    }
    // Strips only where one has something in it: empty ones would be a riddle.
    if runs.iter().flat_map(|run| &run.moments).any(Moment::mostly_over) {
        for (number, (run, colour)) in runs.iter().zip(colours).enumerate() {
            panel.spans.push(Spans {
                class: format!("strip c{colour}"),
                strip: Some(number),
                spans: spans(&run.moments, Moment::mostly_over),
            });
        }
        let thinned = runs.iter().any(|run| run.periods_per_point > 1);
        panel.title.push_str(if thinned {
            "; strips below: mostly over T"
        } else {
            "; strips below: over T"
        });
    }
    panel
}
