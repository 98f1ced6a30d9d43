//! Summaries and lists of runs as plain text for a terminal.

use crate::archive::RunInfo;
use crate::clock::{unix_ms, utc_text};
use crate::compare::{Comparison, reference};
use crate::figures::{CAPACITY, ENERGY, Figure, OVER, SERVICE};
use crate::summary::RunSummary;
use crate::text::{NONE, number_or_none};
use comfy_table::{Cell, CellAlignment, Table, presets};
use headroom_units::{Joules, Role, Source};
use std::collections::BTreeSet;

/// Runs that stand side by side at most; more stand one below the other.
const MAX_SIDE_BY_SIDE: usize = 5;

/// One line of a comparison: what it is, its unit, and its value for each run.
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<String>,
    /// Whether it is what the comparison is made for.
    pub(crate) key: bool,
}

/// A table of energy and its source, what was saved against the first run, latency, share of periods over the
/// target, requests, cores and power. Up to five runs stand side by side, a column each; more stand one below the
/// other, a line each. A value that does not exist is `-`, the saving of a comparison that does not hold `n/c`: why not, and every
/// note of a run, follows below the table.
pub fn summary_table(summaries: &[RunSummary]) -> String {
    if summaries.is_empty() {
        return "no runs\n".to_owned();
    }
    let (metrics, remarks) = metrics(summaries);
    let labels = labels(summaries).into_iter();
    let mut text = if summaries.len() <= MAX_SIDE_BY_SIDE {
        let header: Vec<String> = ["", "unit"]
            .map(str::to_owned)
            .into_iter()
            .chain(labels)
            .collect();
        let rows = metrics.into_iter().map(|metric| {
            let own = [metric.name, metric.unit.to_owned()];
            own.into_iter().chain(metric.values).collect()
        });
        plain_table(&header, &[0, 1], rows)
    } else {
        let heads = metrics
            .iter()
            .map(|metric| format!("{} {}", metric.name, metric.unit).trim_end().to_owned());
        let header: Vec<String> = std::iter::once("law".to_owned()).chain(heads).collect();
        let rows = labels.enumerate().map(|(number, label)| {
            let values = metrics
                .iter()
                .filter_map(|metric| metric.values.get(number).cloned());
            std::iter::once(label).chain(values).collect()
        });
        plain_table(&header, &[0], rows)
    };
    for line in remarks {
        text.push_str("  ");
        text.push_str(&plain(&line));
        text.push('\n');
    }
    text
}

/// What each run is called beside the others: by its law; where another has the same law by its number too, or, where that does not
/// tell them apart, by its name and number.
pub(crate) fn labels<'a>(summaries: impl IntoIterator<Item = &'a RunSummary>) -> Vec<String> {
    let summaries: Vec<&RunSummary> = summaries.into_iter().collect();
    let label = |run: &&RunSummary| {
        let alike = || summaries.iter().filter(|other| other.law == run.law);
        let numbered = alike().filter(|other| other.run == run.run).count() == 1;
        match (alike().count() > 1, run.run) {
            (false, _) => run.law.clone(),
            (true, Some(number)) if numbered => format!("{} (run {number})", run.law),
            (true, Some(number)) => format!("{} ({}, run {number})", run.law, run.name),
            (true, None) => format!("{} ({})", run.law, run.name),
        }
    };
    summaries.iter().map(label).collect()
}

/// The lines of a comparison, and the remarks that belong below it.
pub(crate) fn metrics(summaries: &[RunSummary]) -> (Vec<Metric>, Vec<String>) {
    let Some(first) = summaries.first() else {
        return (Vec::new(), Vec::new());
    };
    let labels = labels(summaries);
    let mut remarks = Vec::new();
    let mut savings = vec![NONE.to_owned()];
    let mut references = BTreeSet::new();
    for ((at, summary), label) in summaries.iter().enumerate().zip(&labels).skip(1) {
        let Some(of) = reference(summaries, at) else {
            continue;
        };
        let against = &labels[of];
        references.insert(of);
        let comparison = Comparison::of(summary, &summaries[of]);
        savings.push(match comparison.saving {
            // No minus before nothing.
            Some(share) => {
                let share = format!("{:.1}", share.as_percent()).replace("-0.0", "0.0");
                match comparison.notes.is_empty() {
                    true => share,
                    false => {
                        let notes = comparison.notes.iter();
                        remarks.extend(notes.map(|note| format!("{label} against {against}: {note}")));
                        format!("{share} (load not known)")
                    }
                }
            }
            None => {
                let why = comparison.refusal().unwrap_or_default();
                remarks.push(format!("{label} against {against}: {why}"));
                "n/c".to_owned()
            }
        });
    }
    let against = match references.len() {
        1 => labels[0].clone(),
        _ => format!("the last {} before", first.law),
    };
    let mut noted: Vec<(&str, Vec<&str>)> = Vec::new();
    for (summary, label) in summaries.iter().zip(&labels) {
        for note in &summary.notes {
            match noted.iter_mut().find(|(text, _)| text == note) {
                Some((_, runs)) => runs.push(label),
                None => noted.push((note, vec![label])),
            }
        }
    }
    remarks.extend(noted.into_iter().map(|(note, runs)| match runs.len() {
        each if each > 2 && each == summaries.len() => format!("all: {note}"),
        _ => format!("{}: {note}", runs.join(", ")),
    }));
    let same_slo = summaries.iter().all(|summary| {
        summary.slo.percentile == first.slo.percentile && summary.slo.target_ms == first.slo.target_ms
    });
    let over = if same_slo {
        first.slo.missing()
    } else {
        "judged periods over the run's own target".to_owned()
    };
    let metric = |name: &str, unit: &'static str, values: Vec<String>| Metric {
        name: name.to_owned(),
        unit,
        values,
        key: false,
    };
    let numbers =
        |name: &str, unit: &'static str, value: &dyn Fn(&RunSummary) -> Option<f64>, decimals: usize| {
            let values = summaries.iter().map(|run| number_or_none(value(run), decimals));
            metric(name, unit, values.collect())
        };
    let rows = |figures: &[Figure]| -> Vec<Metric> {
        let shown = figures
            .iter()
            .filter(|figure| summaries.iter().any(|run| (figure.value)(run).is_some()));
        let row = |figure: &Figure| Metric {
            key: figure.name == OVER,
            ..numbers(
                if figure.name == OVER { &over } else { figure.name },
                figure.unit,
                &figure.value,
                figure.decimals,
            )
        };
        let is_estimate = |run: &RunSummary| run.capacity.is_some() || !run.capacity_words().is_empty();
        let estimated = summaries.iter().any(is_estimate);
        shown
            .map(|figure| match estimated && figure.name == CAPACITY {
                true => metric(CAPACITY, "", summaries.iter().map(capacity_text).collect()),
                false => row(figure),
            })
            .collect()
    };
    let source =
        |run: &RunSummary| source_word(run.energy_j.source, !run.energy_j.by_source.is_empty()).to_owned();
    let (energy, others) = ENERGY.split_at(1);
    let mut metrics = vec![
        metric(
            energy[0].name,
            energy[0].unit,
            summaries.iter().map(energy_text).collect(),
        ),
        metric("source of the energy", "", summaries.iter().map(source).collect()),
    ];
    metrics.retain(|metric| metric.values.iter().any(|value| value != NONE));
    metrics.extend(rows(others));
    if summaries.len() > 1 {
        metrics.push(Metric {
            key: true,
            ..metric(&format!("saving against {against}"), "%", savings)
        });
    }
    metrics.extend(rows(&SERVICE));
    let states: BTreeSet<&String> = summaries
        .iter()
        .flat_map(|run| run.nodes.iter().flat_map(|nodes| nodes.state_s.keys()))
        .collect();
    for state in states {
        let mean = |run: &RunSummary| {
            let seconds = run.nodes.as_ref()?.state_s.get(state)?;
            Some(seconds / run.duration_s.get())
        };
        metrics.push(numbers(&format!("nodes {state}, mean"), "", &mean, 2));
    }
    let classes: BTreeSet<&String> = summaries.iter().flat_map(|run| run.classes.keys()).collect();
    for name in classes {
        let of = |run: &RunSummary| run.classes.get(name).copied();
        let missed = |run: &RunSummary| Some(of(run)?.missed?.as_percent());
        let p99_ms = |run: &RunSummary| of(run)?.p99_ms;
        let rows = [
            numbers(
                &format!("class {name}: P99 of the last queries of all its connections, mean"),
                "ms",
                &p99_ms,
                1,
            ),
            numbers(
                &format!("class {name}: of its time with queries, with a connection over its SLO"),
                "%",
                &missed,
                1,
            ),
        ];
        let is_known = |row: &Metric| row.values.iter().any(|value| value != NONE);
        metrics.extend(rows.into_iter().filter(is_known));
    }
    (metrics, remarks)
}

/// What was said of a capacity, with its kind and unit.
fn capacity_text(run: &RunSummary) -> String {
    match (&run.capacity, run.capacity_per_s) {
        (Some(capacity), _) => capacity.in_short(),
        (None, Some(per_s)) => format!("{}{:.1}/s", run.capacity_words(), per_s.get()),
        (None, None) => NONE.to_owned(),
    }
}

/// A run's energy; of a run whose source changed, each part with its source.
fn energy_text(run: &RunSummary) -> String {
    if run.energy_j.by_source.is_empty() {
        let value = number_or_none(run.energy_j.value.map(Joules::get), 1);
        return match run.energy_j.coverage() {
            Some(coverage) => format!("{value} ({coverage})"),
            None => value,
        };
    }
    let parts: Vec<String> = run
        .energy_j
        .by_source
        .iter()
        .map(|part| format!("{:.1} {}", part.value.get(), part.source))
        .collect();
    parts.join(" | ")
}

/// A table with one line a run: its number, name, law, trace, state, length, energy with its source, and its nodes and gateways
/// where it has any. A run whose summary cannot be read is listed all the same.
pub fn runs_table(runs: &[(RunInfo, Option<RunSummary>)]) -> String {
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    let header = [
        "id",
        "name",
        "law",
        "trace",
        "world",
        "started",
        "state",
        "periods",
        "energy, J",
        "parts",
    ];
    let energy = |summary: &RunSummary| match summary.energy_j.source {
        Some(source) => format!("{} {source}", energy_text(summary)),
        None => energy_text(summary),
    };
    let rows = runs.iter().map(|(run, summary)| {
        vec![
            run.id.to_string(),
            run.meta.name.clone(),
            run.meta.law.clone(),
            run.meta.trace.clone(),
            run.meta.world.to_string(),
            utc_text(unix_ms(run.meta.started_at)),
            run.state.to_string(),
            (run.rows + run.pruned).to_string(),
            summary.as_ref().map_or_else(|| "unreadable".to_owned(), energy),
            parts_text(&run.parts),
        ]
    });
    plain_table(&header, &[1, 2, 3, 4, 5, 6, 9], rows)
}

/// `2 node serving, 1 node off, 2 gateway ready`; nothing of the cluster, which is the whole.
fn parts_text(parts: &[(Role, Option<String>, u64)]) -> String {
    let named = parts.iter().filter(|(role, ..)| *role != Role::Cluster);
    let named = named.map(|(role, state, count)| {
        let state = state.as_deref().unwrap_or_default();
        format!("{count} {role} {state}", role = role.name())
            .trim_end()
            .to_owned()
    });
    named.collect::<Vec<_>>().join(", ")
}

/// A table without lines; the columns named in `left` hold words, the others numbers.
pub fn plain_table(
    header: &[impl AsRef<str>],
    left: &[usize],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    fn cells<'a>(texts: impl Iterator<Item = &'a str>, left: &[usize]) -> Vec<Cell> {
        let aligned = |(column, text): (usize, &str)| {
            let words = left.contains(&column);
            let side = if words {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            };
            Cell::new(plain(text)).set_alignment(side)
        };
        texts.enumerate().map(aligned).collect()
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(cells(header.iter().map(AsRef::as_ref), left));
    table.add_rows(rows.map(|row| cells(row.iter().map(String::as_str), left)));
    let mut text: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// A text without control characters: a law's name or a note must not steer the terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// The source's word; `mixed` where there are several, `-` where there is none.
pub(crate) fn source_word(source: Option<Source>, several: bool) -> &'static str {
    match source {
        Some(source) => source.as_str(),
        None if several => "mixed",
        None => NONE,
    }
}
