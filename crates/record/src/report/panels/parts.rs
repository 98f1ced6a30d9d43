//! The panels of a run's parts: for each lever and sensor that they have, a line for each of them.

use super::{LOW, is_drawn, label_last, line, panel, scale, shape};
use crate::report::columns::Column;
use crate::report::data::RunData;
use crate::report::key::Key;
use crate::report::parts::MAX_LINES;
use crate::report::plot::{Panel, Shape};
use headroom_units::Role;

/// The panels of the parts of a role.
pub(crate) fn of_parts(run: &RunData, role: Role) -> Vec<Panel<'_>> {
    let span = run.span();
    let mut panels = Vec::new();
    let known = run.parts.band(role).into_iter().flat_map(|band| band.iter());
    for (key, band) in known.filter(|(key, band)| is_drawn(*key, band)) {
        let title = key.title();
        let count = run.parts.of(role).count();
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

fn lines<'a>(span: (f64, f64), run: &'a RunData, role: Role, key: Key, title: String) -> Panel<'a> {
    let of_parts: Vec<(usize, &str, &Column)> = run
        .parts
        .of(role)
        .enumerate()
        .filter_map(|(number, part)| Some((number, part.name.as_str(), part.columns.as_ref()?.get(key)?)))
        .collect();
    let columns = of_parts.iter().map(|(.., column)| *column);
    let mut panel = panel(span, title, key.unit(), LOW, scale(key, columns));
    for (number, name, column) in of_parts {
        // The six colours, then grey, then all of them dashed.
        let class = format!("c{} {}", (number + 1) % 7, if number < 7 { "" } else { "dashed" });
        panel
            .lines
            .push(line(run, column, name.to_owned(), &class, shape(key)));
    }
    panel
}
