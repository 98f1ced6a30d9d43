//! The stacked panels of a report, in the order of the SLO-Power paper's Figure 6: latency, cores, power and its
//! ratio, utilisation, request rate and its forecast.

use super::columns::{Column, Moment, RunData, SOURCES, is_known, largest, whole_span};
use super::html::figure;
use super::plot::{Line, Mark, Panel, Shape, Spans};
use super::scale::{Axis, Scale};
use headroom_units::Ratio;

const TALL: f64 = 170.0;
const LOW: f64 = 104.0;

/// What a panel of several runs plots of each.
type Pick = fn(&RunData) -> &Column;

/// The panels of one run.
pub(crate) fn of_one(run: &RunData, colour: usize) -> Vec<Panel<'_>> {
    let columns = &run.columns;
    let main = format!("c{colour}");
    let maker = Maker { span: run.span() };
    let line = |label: &str, class: &str, shape, column| Line {
        label: label.to_owned(),
        class: class.to_owned(),
        shape,
        moments: &columns.moments,
        column,
    };
    let slo = run.info.meta.slo;
    let mut panels = Vec::new();

    let mut latency = maker.panel(
        format!("Latency: {}, {}", slo.name(), marked(run)),
        "ms",
        TALL,
        latency_scale(&[run], &[|run| &run.columns.slo_ms, |run| &run.columns.p50_ms]),
    );
    latency
        .lines
        .push(line("P50", "muted thin", Shape::Line, &columns.p50_ms));
    latency
        .lines
        .push(line(&slo.name(), &main, Shape::Line, &columns.slo_ms));
    latency.marks = latency_marks(run);
    latency.spans.push(Spans {
        class: "over".to_owned(),
        strip: None,
        spans: spans(&columns.moments, Moment::mostly_over),
    });
    latency.spans.push(Spans {
        class: "lost".to_owned(),
        strip: None,
        spans: spans(&columns.moments, |moment| moment.lost),
    });
    if !latency.spans[0].spans.is_empty() {
        latency.title.push_str(if run.periods_per_point == 1 {
            "; shaded: over T"
        } else {
            "; shaded: mostly over T"
        });
    }
    if !latency.spans[1].spans.is_empty() {
        latency.title.push_str("; grey: telemetry lost");
    }
    panels.push(latency);

    let mut cores = maker.panel(
        "Cores allocated".to_owned(),
        "cores",
        LOW,
        Scale::from_zero(largest(&columns.cores)),
    );
    cores
        .lines
        .push(line("allocated", &main, Shape::Area, &columns.cores));
    panels.push(cores);

    panels.extend(power(&maker, run, &main));

    if is_known(&columns.ratio) {
        let mut ratio = maker.panel(
            "Power ratio: consumed / allocated".to_owned(),
            "of 1",
            LOW,
            Scale::from_zero(largest(&columns.ratio).max(0.97)),
        );
        ratio
            .lines
            .push(line("power ratio", &main, Shape::Line, &columns.ratio));
        panels.push(ratio);
    }

    if is_known(&columns.utilisation) || is_known(&columns.throttled) {
        let top = largest(&columns.utilisation)
            .max(largest(&columns.throttled))
            .max(95.0);
        let mut utilisation = maker.panel(
            "Utilisation of the allocated cores".to_owned(),
            "%",
            LOW,
            Scale::from_zero(top),
        );
        if is_known(&columns.utilisation) {
            utilisation
                .lines
                .push(line("utilisation", &main, Shape::Line, &columns.utilisation));
        }
        if largest(&columns.throttled) > 0.0 {
            utilisation.lines.push(line(
                "throttled by the quota",
                "c5 thin",
                Shape::Line,
                &columns.throttled,
            ));
        }
        panels.push(utilisation);
    }

    if is_known(&columns.frequency_ghz) || is_known(&columns.frequency_limit_ghz) {
        let top = largest(&columns.frequency_ghz).max(largest(&columns.frequency_limit_ghz));
        let mut frequency = maker.panel("Core frequency".to_owned(), "GHz", LOW, Scale::from_zero(top));
        if is_known(&columns.frequency_limit_ghz) {
            frequency
                .lines
                .push(line("limit", "c5", Shape::Step, &columns.frequency_limit_ghz));
        }
        if is_known(&columns.frequency_ghz) {
            frequency
                .lines
                .push(line("mean frequency", &main, Shape::Line, &columns.frequency_ghz));
        }
        panels.push(frequency);
    }

    let top = largest(&columns.rate)
        .max(largest(&columns.forecast))
        .max(largest(&columns.failures));
    let mut rate = maker.panel(
        "Request rate".to_owned(),
        "requests/s",
        LOW,
        Scale::from_zero(top),
    );
    rate.lines
        .push(line("arrivals", &main, Shape::Line, &columns.rate));
    if is_known(&columns.forecast) {
        rate.lines
            .push(line("forecast", "c2 thin dashed", Shape::Line, &columns.forecast));
    }
    if largest(&columns.failures) > 0.0 {
        rate.lines.push(line(
            "failed, in the period",
            "target",
            Shape::Bars,
            &columns.failures,
        ));
    }
    panels.push(rate);
    label_last(&mut panels);
    panels
}

fn power<'a>(maker: &Maker, run: &'a RunData, main: &str) -> Option<Panel<'a>> {
    let columns = &run.columns;
    let metered: Vec<usize> = (0..SOURCES.len())
        .filter(|&number| columns.power_w.get(number).is_some_and(is_known))
        .collect();
    if metered.is_empty() && !is_known(&columns.cap_w) {
        return None;
    }
    let words: Vec<&str> = metered.iter().map(|&number| SOURCES[number].as_str()).collect();
    let title = if words.is_empty() {
        "Power allocated (nothing meters what is consumed)".to_owned()
    } else {
        format!("Power, {}: consumed against allocated", words.join(" and "))
    };
    let top = columns
        .power_w
        .iter()
        .map(largest)
        .fold(largest(&columns.cap_w), f64::max);
    let mut panel = maker.panel(title, "W", LOW + 20.0, Scale::from_zero(top));
    let line = |label: String, class: &str, shape, column| Line {
        label,
        class: class.to_owned(),
        shape,
        moments: &columns.moments,
        column,
    };
    if is_known(&columns.cap_w) {
        panel.lines.push(line(
            "allocated (cap)".to_owned(),
            "c5",
            Shape::Step,
            &columns.cap_w,
        ));
    }
    for (order, &number) in metered.iter().enumerate() {
        // A run whose source changed has a line for each source: they are different quantities.
        let class = if order == 0 {
            main.to_owned()
        } else {
            format!("c{} ", [4, 3, 6][order - 1])
        };
        let label = format!("consumed, {}", SOURCES[number]);
        panel.lines.push(line(
            label,
            class.trim_end(),
            Shape::Line,
            &columns.power_w[number],
        ));
    }
    Some(panel)
}

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

    let mut names: Vec<String> = runs.iter().map(|run| run.info.meta.slo.name()).collect();
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

struct Maker {
    span: (f64, f64),
}

impl Maker {
    fn panel<'a>(&self, title: String, unit: &'static str, height: f64, scale: Scale) -> Panel<'a> {
        Panel {
            title,
            unit: unit.to_owned(),
            height,
            scale,
            axis: Axis::Time,
            span: self.span,
            lines: Vec::new(),
            marks: Vec::new(),
            spans: Vec::new(),
            labelled: false,
        }
    }
}

fn label_last(panels: &mut [Panel<'_>]) {
    if let Some(last) = panels.last_mut() {
        last.labelled = true;
        last.title.push_str(", over time since the start of the run");
    }
}

fn latency_scale(runs: &[&RunData], picks: &[Pick]) -> Scale {
    let mut values: Vec<f64> = Vec::new();
    for run in runs {
        for pick in picks {
            values.extend(
                pick(run)
                    .iter()
                    .filter(|point| point.is_known())
                    .flat_map(|point| [point.low, point.high]),
            );
        }
    }
    let target_ms = runs
        .iter()
        .map(|run| run.info.meta.slo.target.as_millis())
        .fold(0.0, f64::max);
    Scale::for_latency(&mut values, target_ms)
}

/// What the latency panel marks, in words.
fn marked(run: &RunData) -> &'static str {
    if latency_marks(run).len() > 1 {
        "its target T and guard αT"
    } else {
        "its target T"
    }
}

fn latency_marks(run: &RunData) -> Vec<Mark> {
    let slo = run.info.meta.slo;
    let target_ms = slo.target.as_millis();
    let mut marks = vec![Mark {
        label: format!("T = {} ms", figure(target_ms)),
        class: "target dashed",
        value: target_ms,
    }];
    if let Some(guard) = slo.guard.filter(|guard| *guard < Ratio::new(1.0)) {
        marks.push(Mark {
            label: format!("αT = {} ms", figure(target_ms * guard.get())),
            class: "guard dotted",
            value: target_ms * guard.get(),
        });
    }
    marks
}

fn spans(moments: &[Moment], wanted: fn(&Moment) -> bool) -> Vec<(f64, f64)> {
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for moment in moments.iter().filter(|moment| wanted(moment)) {
        match spans.last_mut() {
            // Neighbours join; a millisecond allows for periods that are not exactly as long as they should be.
            Some((_, end)) if moment.at_s <= *end + 1e-3 => *end = moment.end_s,
            _ => spans.push((moment.at_s, moment.end_s)),
        }
    }
    spans
}
