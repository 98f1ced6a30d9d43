//! The panels of several runs, laid over one another: what can be compared.

use super::{LOW, Maker, Pick, TALL, label_last, latency_marks, latency_scale, marked, spans};
use crate::report::columns::{Moment, RunData, SOURCES, is_known, largest, whole_span};
use crate::report::plot::{Line, Panel, Shape, Spans};
use crate::report::scale::Scale;

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
    let maker = Maker {
        span: whole_span(runs),
    };
    let each = |panel: &mut Panel<'a>, shape: Shape, pick: Pick, extra: &str| {
        for (run, colour) in runs.iter().zip(colours).filter(|(run, _)| is_known(pick(run))) {
            panel.lines.push(Line {
                label: if extra.is_empty() {
                    run.summary.law.clone()
                } else {
                    String::new()
                },
                class: format!("c{colour} {extra}").trim_end().to_owned(),
                shape,
                moments: &run.columns.moments,
                column: pick(run),
            });
        }
    };
    let top = |pick: Pick| runs.iter().map(|run| largest(pick(run))).fold(0.0, f64::max);
    let all: Vec<&RunData> = runs.iter().collect();
    let mut panels = Vec::new();

    let mut names: Vec<String> = runs.iter().map(|run| run.slo_name()).collect();
    names.dedup();
    let mut latency = maker.panel(
        format!(
            "Latency: {}, {}",
            names.join(", "),
            runs.first().map_or("", marked)
        ),
        "ms",
        TALL + 20.0,
        latency_scale(&all, &[|run| &run.columns.slo_ms]),
    );
    each(&mut latency, Shape::Line, |run| &run.columns.slo_ms, "");
    if let Some(first) = runs.first() {
        latency.marks = latency_marks(first);
        let same = |run: &RunData| run.info.meta.slo == first.info.meta.slo;
        if !runs.iter().all(same) {
            latency
                .title
                .push_str(&format!("; target and guard are those of {}", first.summary.law));
        }
    }
    // Strips only where one has something in it: empty ones would be a riddle.
    if runs
        .iter()
        .flat_map(|run| &run.columns.moments)
        .any(Moment::mostly_over)
    {
        for (number, (run, colour)) in runs.iter().zip(colours).enumerate() {
            latency.spans.push(Spans {
                class: format!("strip c{colour}"),
                strip: Some(number),
                spans: spans(&run.columns.moments, Moment::mostly_over),
            });
        }
        let thinned = runs.iter().any(|run| run.periods_per_point > 1);
        latency.title.push_str(if thinned {
            "; strips below: mostly over T"
        } else {
            "; strips below: over T"
        });
    }
    panels.push(latency);

    let mut cores = maker.panel(
        "Cores allocated".to_owned(),
        "cores",
        LOW,
        Scale::from_zero(top(|run| &run.columns.cores)),
    );
    each(&mut cores, Shape::Step, |run| &run.columns.cores, "");
    panels.push(cores);

    if one_power_axis {
        panels.push(power_together(&maker, runs, colours, &each));
    } else {
        panels.extend(power_of_several(&maker, runs, colours, &each));
    }

    if runs.iter().any(|run| is_known(&run.columns.ratio)) {
        let scale = Scale::from_zero(top(|run| &run.columns.ratio).max(0.97));
        let mut ratio = maker.panel("Power ratio: consumed / allocated".to_owned(), "of 1", LOW, scale);
        each(&mut ratio, Shape::Line, |run| &run.columns.ratio, "");
        panels.push(ratio);
    }
    if runs.iter().any(|run| is_known(&run.columns.utilisation)) {
        let scale = Scale::from_zero(top(|run| &run.columns.utilisation).max(95.0));
        let mut utilisation = maker.panel("Utilisation of the allocated cores".to_owned(), "%", LOW, scale);
        each(&mut utilisation, Shape::Line, |run| &run.columns.utilisation, "");
        panels.push(utilisation);
    }
    if runs.iter().any(|run| is_known(&run.columns.frequency_ghz)) {
        let scale = Scale::from_zero(top(|run| &run.columns.frequency_ghz));
        let mut frequency = maker.panel("Core frequency, mean".to_owned(), "GHz", LOW, scale);
        each(&mut frequency, Shape::Line, |run| &run.columns.frequency_ghz, "");
        panels.push(frequency);
    }
    let mut rate = maker.panel(
        "Request rate".to_owned(),
        "requests/s",
        LOW,
        Scale::from_zero(top(|run| &run.columns.rate)),
    );
    each(&mut rate, Shape::Line, |run| &run.columns.rate, "");
    panels.push(rate);
    label_last(&mut panels);
    panels
}

/// One panel a source: watts of different sources do not share an axis.
fn power_of_several<'a>(
    maker: &Maker,
    runs: &'a [RunData],
    colours: &[usize],
    each: &impl Fn(&mut Panel<'a>, Shape, Pick, &str),
) -> Vec<Panel<'a>> {
    const PICKS: [Pick; 4] = [
        |run| &run.columns.power_w[0],
        |run| &run.columns.power_w[1],
        |run| &run.columns.power_w[2],
        |run| &run.columns.power_w[3],
    ];
    let mut panels = Vec::new();
    for (source, pick) in SOURCES.iter().zip(PICKS) {
        let metered: Vec<(&RunData, usize)> = runs
            .iter()
            .zip(colours.iter().copied())
            .filter(|(run, _)| is_known(pick(run)))
            .collect();
        if metered.is_empty() {
            continue;
        }
        let caps: Vec<&(&RunData, usize)> = metered
            .iter()
            .filter(|(run, _)| is_known(&run.columns.cap_w))
            .collect();
        let title = if caps.is_empty() {
            format!("Power consumed, {source}")
        } else {
            format!("Power, {source}: consumed (solid) against allocated (dashed)")
        };
        let top = metered
            .iter()
            .map(|(run, _)| largest(pick(run)).max(largest(&run.columns.cap_w)))
            .fold(0.0, f64::max);
        let mut panel = maker.panel(title, "W", LOW + 40.0, Scale::from_zero(top));
        for (run, colour) in caps {
            panel.lines.push(Line {
                label: String::new(),
                class: format!("c{colour} thin dashed"),
                shape: Shape::Step,
                moments: &run.columns.moments,
                column: &run.columns.cap_w,
            });
        }
        each(&mut panel, Shape::Line, pick, "");
        panels.push(panel);
    }
    panels
}

/// The power of all runs on one axis, whatever its source, which the title names.
fn power_together<'a>(
    maker: &Maker,
    runs: &'a [RunData],
    colours: &[usize],
    each: &impl Fn(&mut Panel<'a>, Shape, Pick, &str),
) -> Panel<'a> {
    let metered: Pick = |run| {
        let known = run.columns.power_w.iter().find(|column| is_known(column));
        known.unwrap_or(&run.columns.power_w[0])
    };
    let named: Vec<String> = runs
        .iter()
        .map(|run| match run.summary.energy_j.source {
            Some(source) if source.as_str() != run.summary.law => format!("{} ({source})", run.summary.law),
            _ => run.summary.law.clone(),
        })
        .collect();
    let title = format!(
        "Power, {}: consumed (solid) against allocated (dashed)",
        named.join(" and ")
    );
    let top = runs
        .iter()
        .map(|run| largest(metered(run)).max(largest(&run.columns.cap_w)))
        .fold(0.0, f64::max);
    let mut panel = maker.panel(title, "W", LOW + 40.0, Scale::from_zero(top));
    for (run, colour) in runs.iter().zip(colours) {
        panel.lines.push(Line {
            label: String::new(),
            class: format!("c{colour} thin dashed"),
            shape: Shape::Step,
            moments: &run.columns.moments,
            column: &run.columns.cap_w,
        });
    }
    each(&mut panel, Shape::Line, metered, "");
    panel
}
