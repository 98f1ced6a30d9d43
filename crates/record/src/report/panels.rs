//! The stacked panels of a report: latency, then a panel for each lever and sensor that the run has, those of one unit together.
//! Here is what those of one run, of its parts and of several runs share.

mod one;
mod parts;
mod several;

pub(crate) use one::of_one;
pub(crate) use parts::{of_classes, of_parts};
pub(crate) use several::{of_pair, of_several};

use super::columns::{Column, Moment, largest};
use super::data::RunData;
use super::html::figure;
use super::key::Key;
use super::plot::{Line, Mark, Panel, Shape};
use super::scale::{Axis, Scale};
use crate::totals::WARM_UP_PERIODS;
use headroom_units::{Lever, Ratio, Sensor};

const TALL: f64 = 170.0;
const LOW: f64 = 104.0;

/// Quantities of one unit share an axis as long as the largest values are not further apart than so many times.
const MAX_APART: f64 = 20.0;

/// An empty panel.
fn panel<'a>(span: (f64, f64), title: String, unit: &str, height: f64, scale: Scale) -> Panel<'a> {
    Panel {
        title,
        unit: unit.to_owned(),
        height,
        scale,
        axis: Axis::Time,
        span,
        lines: Vec::new(),
        marks: Vec::new(),
        spans: Vec::new(),
        labelled: false,
    }
}

fn line<'a>(run: &'a RunData, column: &'a Column, label: String, class: &str, shape: Shape) -> Line<'a> {
    Line {
        label,
        class: class.trim_end().to_owned(),
        shape,
        moments: &run.moments,
        column,
    }
}

/// The shape of a quantity's line: a lever holds its value.
fn shape(key: Key) -> Shape {
    if key.is_lever() { Shape::Step } else { Shape::Line }
}

/// Whether there is anything to draw: a sensor that says nothing but 0 is no line.
fn is_drawn(key: Key, column: &Column) -> bool {
    key.is_lever() || largest(column) > 0.0
}

/// Whether runs are about the mean response time: where requests are held, or a law predicts it. Else the percentiles say more.
fn is_about_the_mean(runs: &[&RunData]) -> bool {
    let of_it = [
        Key::Predicted,
        Key::Of(Lever::BatchInterval),
        Key::By(Sensor::BatchWaiting),
    ];
    runs.iter()
        .any(|run| of_it.iter().any(|key| run.columns.get(*key).is_some()))
}

/// The axis of a quantity's columns: shares that come near the whole reach to it, and equal ratios are equal distances where a
/// sensor's largest value dwarfs the usual one.
fn scale<'a>(key: Key, columns: impl Iterator<Item = &'a Column>) -> Scale {
    let known = columns.flatten().filter(|point| point.is_known());
    let mut values: Vec<f64> = known.flat_map(|point| [point.low, point.high]).collect();
    values.sort_by(f64::total_cmp);
    let (least, top) = (values.first().copied(), values.last().copied().unwrap_or(0.0));
    let usual = values.get(values.len() / 2).copied().unwrap_or(0.0);
    match key.axis() {
        "ratio" if top > 20.0 => Scale::from_zero(top.max(95.0)),
        "power ratio" => Scale::from_zero(top.max(0.97)),
        _ if !key.is_lever() && least > Some(0.0) && top > MAX_APART * usual => {
            Scale::decades(values.into_iter())
        }
        _ => Scale::from_zero(top),
    }
}

fn label_last(panels: &mut [Panel<'_>]) {
    if let Some(last) = panels.last_mut() {
        last.labelled = true;
        last.title.push_str(", over time since the start of the run");
    }
}

fn latency_scale(runs: &[&RunData], keys: &[Key]) -> Scale {
    let columns = runs
        .iter()
        .flat_map(|run| keys.iter().filter_map(|key| run.columns.get(*key)));
    let known = columns.flatten().filter(|point| point.is_known());
    let mut values: Vec<f64> = known.flat_map(|point| [point.low, point.high]).collect();
    let target_ms = runs.iter().filter_map(|run| run.target_ms()).reduce(f64::max);
    Scale::for_latency(&mut values, target_ms)
}

/// The title of a latency panel: of which percentile, and what is marked.
/// A run's first periods may be late although none counts.
const UNJUDGED: &str = "the first 10 periods are not judged";
const _: () = assert!(WARM_UP_PERIODS == 10, "the words say another number");

fn latency_title(names: &str, run: Option<&RunData>) -> String {
    match run.map_or(0, |run| latency_marks(run).len()) {
        0 => format!("Latency: {names}"),
        1 => format!("Latency: {names}, its target T; {UNJUDGED}"),
        _ => format!("Latency: {names}, its target T and guard αT; {UNJUDGED}"),
    }
}

fn latency_marks(run: &RunData) -> Vec<Mark> {
    let Some(slo) = run.info.meta.slo else {
        return Vec::new();
    };
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
