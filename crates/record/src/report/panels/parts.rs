//! The panels of a run's parts: for each lever and sensor that they have, a line for each of them; for each class of connections its
//! latencies and their targets.

use super::{LOW, TALL, is_drawn, label_last, line, panel, scale, shape};
use crate::report::columns::{Column, largest};
use crate::report::data::RunData;
use crate::report::key::Key;
use crate::report::parts::MAX_LINES;
use crate::report::plot::{Panel, Shape};
use crate::report::scale::Scale;
use headroom_units::{Role, Sensor};

/// What parts take, where it was given, measured or presumed.
const CAPACITY: Key = Key::By(Sensor::Capacity);

/// A class's latencies, each with its target.
const OF_CLASSES: [(&str, Sensor, Sensor); 3] = [
    ("P95", Sensor::LatencyP95, Sensor::TargetP95),
    ("P99", Sensor::LatencyP99, Sensor::TargetP99),
    ("P99.9", Sensor::LatencyP999, Sensor::TargetP999),
];

/// A panel for each class of connections that has lines of its own: the percentiles of its last queries, and the targets that they are
/// held to.
pub(crate) fn of_classes(run: &RunData) -> Vec<Panel<'_>> {
    let span = run.span();
    let classes = run.parts.of(Role::Class);
    let mut panels: Vec<Panel<'_>> = classes
        .filter_map(|class| {
            let columns = class.columns.as_ref()?;
            let mut lines = Vec::new();
            let mut values = Vec::new();
            let mut highest: Option<f64> = None;
            for (number, (name, latency, target)) in OF_CLASSES.into_iter().enumerate() {
                let colour = number + 1;
                if let Some(column) = columns.get(Key::By(latency)) {
                    values.extend(column.iter().filter_map(|point| point.mean()));
                    lines.push(line(
                        run,
                        column,
                        name.to_owned(),
                        &format!("c{colour}"),
                        Shape::Line,
                    ));
                }
                if let Some(column) = columns.get(Key::By(target)) {
                    highest = Some(highest.unwrap_or_default().max(largest(column)));
                    let class = format!("c{colour} dashed");
                    lines.push(line(
                        run,
                        column,
                        format!("target of {name}"),
                        &class,
                        Shape::Step,
                    ));
                }
            }
            // A class may miss its SLOs while these curves are within the targets.
            let targets = highest.map_or("", |_| "; the targets hold for each connection alone");
            let title = format!(
                "Class {}: latency of the last queries of all its connections together{targets}",
                class.name
            );
            let scale = Scale::for_latency(&mut values, highest);
            let mut panel = panel(span, title, "ms", TALL, scale);
            panel.lines = lines;
            (!panel.lines.is_empty()).then_some(panel)
        })
        .collect();
    label_last(&mut panels);
    panels
}

/// The panels of the parts of a role; what classes are held to is in panels of their own ([`of_classes`]).
pub(crate) fn of_parts(run: &RunData, role: Role) -> Vec<Panel<'_>> {
    let span = run.span();
    let mut panels = Vec::new();
    let known = run.parts.band(role).into_iter().flat_map(|band| band.iter());
    let own = |key: Key| {
        let mut sensors = OF_CLASSES
            .iter()
            .flat_map(|(_, latency, target)| [latency, target]);
        role == Role::Class && sensors.any(|sensor| key == Key::By(*sensor))
    };
    // Drawn already, as the run's.
    let is_the_runs = |key: Key| key.is_of_on_call() && run.columns.get(key).is_some();
    let count = run.parts.of(role).count();
    // In the panel of what is known better, where there is one with lines for each.
    let capacity = run.parts.band(role).and_then(|band| band.get(CAPACITY));
    let is_beside = |key: Key| key == Key::CapacityAtLeast && capacity.is_some() && count <= MAX_LINES;
    let drawn = |key: Key, band| is_drawn(key, band) && !own(key) && !is_the_runs(key) && !is_beside(key);
    for (key, band) in known.filter(|(key, band)| drawn(*key, band)) {
        let title = key.title();
        let panel = if count > MAX_LINES {
            let title = format!("{title}: mean of {count}, the band from the smallest to the largest");
            let mut panel = panel(span, title, key.unit(), LOW, scale(key, std::iter::once(band)));
            panel
                .lines
                .push(line(run, band, String::new(), "c1", Shape::Line));
            panel
        } else {
            lines(span, run, role, key, title)
        };
        panels.push(panel);
    }
    label_last(&mut panels);
    panels
}

fn lines<'a>(span: (f64, f64), run: &'a RunData, role: Role, key: Key, mut title: String) -> Panel<'a> {
    let of = |key: Key| -> Vec<(usize, &str, &Column)> {
        let parts = run.parts.of(role).enumerate();
        let known = parts.filter_map(|(number, part)| {
            Some((number, part.name.as_str(), part.columns.as_ref()?.get(key)?))
        });
        known.collect()
    };
    let of_parts = of(key);
    let at_least = match key {
        CAPACITY => of(Key::CapacityAtLeast),
        _ => Vec::new(),
    };
    if !at_least.is_empty() {
        title.push_str("; dotted: at least");
    }
    let columns = of_parts.iter().chain(&at_least).map(|(.., column)| *column);
    let mut panel = panel(span, title, key.unit(), LOW, scale(key, columns));
    let has_line = |number: usize| of_parts.iter().any(|(other, ..)| *other == number);
    // The six colours, then grey, then all of them dashed.
    let colour = |number: usize| format!("c{}", (number + 1) % 7);
    for (number, name, column) in &of_parts {
        let class = format!("{} {}", colour(*number), if *number < 7 { "" } else { "dashed" });
        let line = line(run, column, (*name).to_owned(), &class, shape(key));
        panel.lines.push(line);
    }
    for (number, name, column) in at_least {
        let label = if has_line(number) { "" } else { name };
        let class = format!("{} dotted", colour(number));
        panel
            .lines
            .push(line(run, column, label.to_owned(), &class, shape(key)));
    }
    panel
}
