//! The report of a run: its plots are those of the paper's Figures 2, 4 to 6 and 8 to 10.

use super::Run;
use super::history::{History, Kept};
use super::seen::{Row, Seen};
use super::tables;
use super::way::{Way, name, number};
use headroom_console::Failure;
use headroom_node::queue::QueueMethod;
use headroom_record::report::{Chart, Curve, Grid, Section, Sheet, Stroke, sheet_html};
use headroom_units::{PerSecond, Ratio, Seconds};

/// Estimates that differ by more than this are drawn with equal ratios as equal distances.
const WIDE: f64 = 6.0;

fn curve(label: &str, rows: &[Row], of: impl Fn(&Row) -> Option<f64>) -> Curve {
    let points = rows.iter().map(|row| (row.at.get(), of(row).unwrap_or(f64::NAN)));
    Curve {
        label: label.to_owned(),
        points: points.collect(),
        ..Curve::default()
    }
}

fn seen(of: impl Fn(&Seen) -> Option<f64>) -> impl Fn(&Row) -> Option<f64> {
    move |row| row.seen.as_ref().ok().and_then(&of)
}

/// The page.
///
/// # Errors
/// It cannot be rendered.
pub fn html(run: &Run<'_>, history: &History) -> Result<String, Failure> {
    let mut sections = vec![estimates(history)];
    sections.extend(queue(history));
    sections.push(methods(run, history));
    if !run.news.is_empty() {
        sections.push(Section {
            title: "On the way".to_owned(),
            text: run
                .news
                .iter()
                .map(|(at_s, news)| format!("{at_s:.1} s: {news}"))
                .collect(),
            ..Section::default()
        });
    }
    let title = run.args.title.clone();
    let sheet = Sheet {
        kind: "Capacity".to_owned(),
        title: title.unwrap_or_else(|| format!("Capacity of {}", run.place())),
        lead: lead(history),
        facts: vec![
            format!("{:.0} s", run.duration.get()),
            format!("a sample each {} s", run.tuning.sampling_period_s),
            format!("{} % of attempts may be dropped", run.tuning.drop_ratio * 100.0),
            format!("\u{3b1} {}", run.tuning.keep),
            format!("forecast {} s", run.tuning.forecast_s),
        ],
        remarks: run.remarks.clone(),
        sections,
        provenance: Some(crate::origin::provenance()),
    };
    Ok(sheet_html(&sheet, None)?)
}

/// What it comes to, in a sentence.
fn lead(history: &History) -> String {
    let best = history
        .ways
        .iter()
        .filter(|(way, _)| matches!(way, Way::BusyTime(_) | Way::Published(_)));
    let said: Vec<String> = best
        .map(|(way, figures)| format!("{} {}", figures.latest.capacity, way.label()))
        .collect();
    match said.is_empty() {
        true => "The queue could not be monitored: see the estimates by CPU utilisation.".to_owned(),
        false => format!(
            "Connections a second that the server can take, at the end: {}.",
            said.join("; ")
        ),
    }
}

/// The estimates of some ways over time, beside what was served; nothing where there is none.
fn over_time(history: &History, title: &str, shown: impl Fn(&Way) -> bool) -> Option<Chart> {
    let mut curves = Vec::new();
    for way in history.ways.keys().filter(|way| shown(way)) {
        let rows = match way.method() {
            Some(method) => history.methods.get(&method).map(|kept| &kept.rows),
            None => history.methods.values().map(|kept| &kept.rows).next(),
        };
        let Some(rows) = rows else { continue };
        curves.push(curve(&way.label(), rows, |row| {
            let found = row.estimates.iter().find(|(of, _)| of == way);
            found.and_then(|(_, estimate)| number(estimate))
        }));
    }
    let mut values: Vec<f64> = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|point| point.1))
        .filter(|value| value.is_finite() && *value > 0.0)
        .collect();
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2)?;
    let logarithmic = values.last().is_some_and(|last| *last > WIDE * middle);
    if let Some(rows) = first_queue(history).map(|(_, kept)| &kept.rows) {
        let served = curve("served", rows, seen(|seen| seen.service_rate.map(PerSecond::get)));
        curves.push(Curve {
            stroke: Stroke::Quiet,
            ..served
        });
    }
    Some(Chart {
        title: title.to_owned(),
        unit: "connections/s".to_owned(),
        curves,
        logarithmic,
        ..Chart::default()
    })
}

fn estimates(history: &History) -> Section {
    let by_cpu = |way: &Way| matches!(way, Way::Cpu(_));
    let charts = [
        over_time(
            history,
            "Capacity by the accept queue (Figures 9 and 10)",
            |way| !by_cpu(way),
        ),
        over_time(history, "Capacity by CPU utilisation (Figures 9 and 10)", by_cpu),
    ];
    Section {
        title: "Estimates".to_owned(),
        text: vec![
            "Queue monitoring as published lowers its estimate to what was served when too many attempts are dropped \
             (Equation 5); by busy time it is the rate of accepts while somebody waits. Before either met its limit it \
             is a lower bound. By CPU utilisation it is throughput over utilisation, which holds where the CPU is what \
             limits the server."
                .to_owned(),
        ],
        tables: vec![Grid {
            caption: "Connections a second (requests, by Apache's status page)".to_owned(),
            header: tables::ESTIMATES.map(str::to_owned).to_vec(),
            rows: tables::estimates(history),
            words: vec![0, 1, 2],
        }],
        charts: charts.into_iter().flatten().collect(),
        ..Section::default()
    }
}

/// The method that sees the queue best.
fn first_queue(history: &History) -> Option<(QueueMethod, &Kept)> {
    let kept = history.methods.iter().find(|(_, kept)| !kept.rows.is_empty())?;
    Some((*kept.0, kept.1))
}

fn queue(history: &History) -> Option<Section> {
    let (method, kept) = first_queue(history)?;
    let rows = &kept.rows;
    let places = rows.iter().rev().find_map(|row| row.seen.as_ref().ok()?.places);
    Some(Section {
        title: format!("The accept queue, by {}", name(method)),
        charts: vec![
            Chart {
                title: "Attempts and accepts".to_owned(),
                unit: "connections/s".to_owned(),
                curves: vec![
                    curve(
                        "arrivals",
                        rows,
                        seen(|seen| seen.arrival_rate.map(PerSecond::get)),
                    ),
                    curve("served", rows, seen(|seen| seen.service_rate.map(PerSecond::get))),
                ],
                ..Chart::default()
            },
            Chart {
                title: "Queue and threshold (Equation 2; Figures 2 and 8)".to_owned(),
                unit: "connections".to_owned(),
                curves: vec![
                    curve("mean length", rows, seen(|seen| seen.queue_mean)),
                    curve("threshold", rows, seen(|seen| seen.threshold)),
                ],
                marks: places
                    .map(|places| ("places".to_owned(), places as f64))
                    .into_iter()
                    .collect(),
                ..Chart::default()
            },
            Chart {
                title: "Drop ratio".to_owned(),
                unit: "% of attempts".to_owned(),
                curves: vec![curve(
                    "dropped",
                    rows,
                    seen(|seen| seen.drop_ratio.map(Ratio::as_percent)),
                )],
                ..Chart::default()
            },
        ],
        ..Section::default()
    })
}

fn methods(run: &Run<'_>, history: &History) -> Section {
    let each = |of: &dyn Fn(&Row) -> Option<f64>| -> Vec<Curve> {
        let curves = history
            .methods
            .iter()
            .map(|(method, kept)| curve(name(*method), &kept.rows, of));
        curves
            .filter(|curve| curve.points.iter().any(|point| point.1.is_finite()))
            .collect()
    };
    let chart = |title: &str, unit: &str, curves| Chart {
        title: title.to_owned(),
        unit: unit.to_owned(),
        curves,
        ..Chart::default()
    };
    let mut text = vec![
        "Connections are totals since the start: this port's by eBPF, the whole machine's by the kernel, the tools and \
         SNMP, requests by Apache's status page."
            .to_owned(),
    ];
    let passed_over = run.passed_over.iter();
    text.extend(passed_over.map(|one| format!("{} was not used: {}", name(one.method), one.reason)));
    for (method, kept) in &history.methods {
        if let Some(failure) = &kept.failure {
            text.push(format!(
                "{} failed {} times, the last time: {failure}",
                name(*method),
                kept.failures
            ));
        }
    }
    Section {
        title: "The methods side by side".to_owned(),
        text,
        tables: vec![Grid {
            header: tables::METHODS.map(str::to_owned).to_vec(),
            rows: tables::methods(history),
            words: vec![0, 1],
            ..Grid::default()
        }],
        charts: vec![
            chart(
                "Connections (Figure 4)",
                "since the start",
                each(&seen(|seen| seen.connections.map(|count| count as f64))),
            ),
            chart(
                "CPU utilisation (Figure 5)",
                "%",
                each(&seen(|seen| seen.cpu.map(Ratio::as_percent))),
            ),
            chart(
                "Time between samples (Figure 6)",
                "s",
                each(&|row| row.interval.map(Seconds::get)),
            ),
        ],
        ..Section::default()
    }
}
