//! The panels of one run: everything that is known of the whole.

use super::{
    LOW, MAX_APART, TALL, is_about_the_mean, is_drawn, label_last, latency_marks, latency_scale,
    latency_title, line, panel, scale, shape, spans,
};
use crate::report::columns::{Column, Moment, largest};
use crate::report::data::RunData;
use crate::report::key::Key;
use crate::report::plot::{Panel, Shape, Spans};
use headroom_units::Sensor;

/// Colours of further sensors of a panel, and of levers beside a sensor.
const SENSORS: [&str; 5] = ["c2 thin dashed", "c4 thin", "c6 thin", "c3 thin", "c1 thin"];
const LEVERS: [&str; 3] = ["c5", "c0", "c2"];

/// What a class of a line has where its stroke is dashed.
const DASHED: &str = " dashed";

/// The panels of one run.
pub(crate) fn of_one(run: &RunData, colour: usize) -> Vec<Panel<'_>> {
    let span = run.span();
    let main = format!("c{colour}");
    let mut panels: Vec<Panel<'_>> = latency(span, run, &main).into_iter().collect();
    for group in groups(run) {
        panels.push(together(span, run, &main, &group));
    }
    let read_again: Vec<(f64, f64)> = run
        .parts
        .read_again_s()
        .iter()
        .map(|at_s| (*at_s, *at_s))
        .collect();
    if !read_again.is_empty() {
        for panel in &mut panels {
            panel.spans.push(Spans {
                class: "read-again".to_owned(),
                strip: None,
                spans: read_again.clone(),
            });
        }
        if let Some(first) = panels.first_mut() {
            first
                .title
                .push_str("; upright lines: the configuration was read again");
        }
    }
    label_last(&mut panels);
    panels
}

/// What shares a panel: quantities of one unit whose values are of one order.
fn groups(run: &RunData) -> Vec<Vec<(Key, &Column)>> {
    let mut groups: Vec<Vec<(Key, &Column)>> = Vec::new();
    let is_about_the_mean = is_about_the_mean(&[run]);
    let shown = run.columns.iter().filter(|(key, column)| {
        !key.is_latency() && is_drawn(*key, column) && (*key != Key::MeanResponse || is_about_the_mean)
    });
    for (key, column) in shown {
        let fits = |group: &&mut Vec<(Key, &Column)>| {
            group.first().is_some_and(|(first, other)| {
                let (one, other) = (largest(column), largest(other));
                first.axis() == key.axis() && one.max(other) <= MAX_APART * one.min(other)
            })
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push((key, column)),
            None => groups.push(vec![(key, column)]),
        }
    }
    groups
}

fn together<'a>(span: (f64, f64), run: &'a RunData, main: &str, group: &[(Key, &'a Column)]) -> Panel<'a> {
    let first_sensor = group.iter().find(|(key, _)| !key.is_lever());
    let lead = first_sensor.or(group.first()).map_or(Key::Slo, |(key, _)| *key);
    let columns = group.iter().map(|(_, column)| *column);
    // Of several sources each line says its own.
    let powers = group.iter().filter(|(key, _)| matches!(key, Key::Power(_)));
    let title = match lead {
        Key::Power(_) if powers.count() > 1 => "Power".to_owned(),
        _ => run.title(lead),
    };
    let mut panel = panel(span, title, lead.unit(), LOW, scale(lead, columns));
    let free = |class: &&&str| !class.starts_with(main);
    let (mut sensors, mut levers) = (SENSORS.iter().filter(free), LEVERS.iter().filter(free));
    let mut of_capacity = None;
    for (key, column) in group {
        let class = match key.is_lever() {
            _ if *key == lead => main,
            true => levers.next().unwrap_or(&"c0"),
            // The same server's: told apart by the stroke alone.
            false if *key == Key::CapacityAtLeast && of_capacity.is_some() => of_capacity.unwrap_or_default(),
            false => sensors.next().unwrap_or(&"c0 thin"),
        };
        let class = match key {
            Key::By(Sensor::Capacity) => {
                of_capacity = Some(class);
                class.replace(DASHED, "")
            }
            Key::CapacityAtLeast => class.replace(DASHED, "") + DASHED,
            _ => class.to_owned(),
        };
        let alone = group.len() == 1;
        let label = if alone { String::new() } else { run.title(*key) };
        let shape = match shape(*key) {
            Shape::Step if alone => Shape::Area,
            shape => shape,
        };
        panel.lines.push(line(run, column, label, &class, shape));
    }
    panel
}

fn latency<'a>(span: (f64, f64), run: &'a RunData, main: &str) -> Option<Panel<'a>> {
    let keys = [Key::Slo, Key::P50];
    if run.info.meta.slo.is_none() && keys.iter().all(|key| run.columns.get(*key).is_none()) {
        return None;
    }
    let slo = run.slo_name();
    let scale = latency_scale(&[run], &keys);
    let mut panel = panel(span, latency_title(&slo, Some(run)), "ms", TALL, scale);
    for (key, label, class) in [(Key::P50, "P50", "muted thin"), (Key::Slo, slo.as_str(), main)] {
        if let Some(column) = run.columns.get(key) {
            panel
                .lines
                .push(line(run, column, label.to_owned(), class, Shape::Line));
        }
    }
    panel.marks = latency_marks(run);
    let how = if run.periods_per_point == 1 { "" } else { "mostly " };
    let failed = match run.moments.iter().any(|moment| moment.failed) {
        true => format!(", or so many failed that {slo} is none"),
        false => String::new(),
    };
    let over = format!("; shaded: {how}over T{failed}");
    let late = ("over", over.as_str(), spans(&run.moments, Moment::mostly_over));
    let lost = (
        "lost",
        "; grey: telemetry lost",
        spans(&run.moments, |moment| moment.lost),
    );
    for (class, said, spans) in [late, lost] {
        if !spans.is_empty() {
            panel.title.push_str(said);
            panel.spans.push(Spans {
                class: class.to_owned(),
                strip: None,
                spans,
            });
        }
    }
    Some(panel)
}
