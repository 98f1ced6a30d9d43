//! The stacked panels of a report, in the order of the SLO-Power paper's Figure 6: latency, cores, power and its
//! ratio, utilisation, request rate and its forecast. Here is what those of one run and those of several share.

mod one;
mod several;

pub(crate) use one::of_one;
pub(crate) use several::{of_pair, of_several};

use super::columns::{Column, Moment, RunData};
use super::html::figure;
use super::plot::{Mark, Panel};
use super::scale::{Axis, Scale};
use headroom_units::Ratio;

const TALL: f64 = 170.0;
const LOW: f64 = 104.0;

/// What a panel of several runs plots of each.
type Pick = fn(&RunData) -> &Column;

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
    let target_ms = runs.iter().filter_map(|run| run.target_ms()).fold(0.0, f64::max);
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
