//! Figures that are no recorded runs: a paper's plots redone, a survey's curves.

use super::columns::{Column, Moment, of_points};
use super::plot::{Line, Mark, Panel, Shape};
use super::scale::{Axis, Scale};

/// Height of the part in which the lines are.
const HEIGHT: f64 = 240.0;
/// Colours of the style sheet, in the order in which curves get them: blue first, grey for what is compared with.
const COLOURS: [&str; 7] = ["c1", "c2", "c3", "c4", "c5", "c6", "c0"];

/// The patterns of curves that are lines, in their order: where several lie over one another each is seen between the dashes of the
/// one above it.
const PATTERNS: [&str; 4] = ["", " dashed", " dotted", " dashdot"];
/// The classes of marks: each is told from the others by its colour, which its label has too, and by its pattern.
const MARKS: [&str; 4] = ["guard", "c3 dashed", "c4 dotted", "c6 dashdot"];

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stroke {
    /// From point to point.
    #[default]
    Line,
    /// From point to point, thin and grey: the background that others are read against.
    Quiet,
    /// Held until the next point: what changes at once.
    Step,
    /// From point to point, each marked: few points, each of its own measurement.
    Marked,
    /// From point to point, dashed and in the colour of the curve before it: the same from another source.
    Beside,
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// Its points from left to right; a value that is not finite leaves a gap.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub stroke: Stroke,
}

/// A plot of curves over one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What is plotted.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// What stands below, with its unit; `None` for seconds since the start.
    pub over: Option<String>,
    /// The curves; the first seven that are not quiet have colours of their own.
    pub curves: Vec<Curve>,
    /// Values that are marked over the whole width, each with its label: a target, the paper's figure.
    pub marks: Vec<(String, f64)>,
    /// Whether equal ratios are equal distances upwards; values that are not above 0 stand at the foot then.
    pub logarithmic: bool,
}

impl Chart {
    /// As a figure of a page.
    pub(crate) fn render(&self) -> String {
        let drawn: Vec<(Vec<Moment>, Column)> =
            self.curves.iter().map(|curve| of_points(&curve.points)).collect();
        let (mut colours, mut patterns) = (COLOURS.iter().cycle(), PATTERNS.iter().cycle());
        let mut last = "c0";
        let lines = self.curves.iter().zip(&drawn).map(|(curve, (moments, column))| {
            let mut colour = || {
                last = colours.next().unwrap_or(&"c0");
                last
            };
            let (class, shape) = match curve.stroke {
                Stroke::Quiet => ("muted thin".to_owned(), Shape::Line),
                Stroke::Line => {
                    let pattern = patterns.next().unwrap_or(&"");
                    (format!("{}{pattern}", colour()), Shape::Line)
                }
                Stroke::Step => (colour().to_owned(), Shape::Step),
                Stroke::Marked => (colour().to_owned(), Shape::Marked),
                Stroke::Beside => (format!("{last} dashed"), Shape::Line),
            };
            Line {
                label: curve.label.clone(),
                class,
                shape,
                moments,
                column,
            }
        });
        let mut panel = Panel {
            title: self.title.clone(),
            // The unit stands after the title, and what is below after that.
            unit: match &self.over {
                Some(over) if self.unit.is_empty() => format!("over {over}"),
                Some(over) => format!("{}, over {over}", self.unit),
                None => self.unit.clone(),
            },
            height: HEIGHT,
            scale: self.scale(),
            axis: self.over.clone().map_or(Axis::Time, Axis::Quantity),
            span: self.span(),
            lines: lines.collect(),
            marks: Vec::new(),
            spans: Vec::new(),
            labelled: true,
        };
        let marks = self.marks.iter().zip(MARKS.iter().cycle());
        panel.marks.extend(marks.map(|((label, value), class)| Mark {
            label: label.clone(),
            class,
            value: *value,
        }));
        format!("<div class=\"chart\">{}</div>\n", panel.render())
    }

    fn span(&self) -> (f64, f64) {
        let places = self
            .curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|point| point.0));
        let (from, to) = places
            .filter(|place| place.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), place| {
                (from.min(place), to.max(place))
            });
        if from < to { (from, to) } else { (0.0, 1.0) }
    }

    fn scale(&self) -> Scale {
        let values = self
            .curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|point| point.1));
        let values = values
            .chain(self.marks.iter().map(|mark| mark.1))
            .filter(|value| value.is_finite());
        if !self.logarithmic {
            return Scale::from_zero(values.fold(0.0, f64::max));
        }
        Scale::decades(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let curve = |label: &str, stroke| Curve {
            label: label.to_owned(),
            points: vec![(0.0, 100.0), (60.0, 200.0), (120.0, f64::NAN), (180.0, 400.0)],
            stroke,
        };
        Chart {
            title: "Capacity <estimates>".to_owned(),
            unit: "requests/s".to_owned(),
            curves: vec![
                curve("arrivals", Stroke::Quiet),
                curve("queue", Stroke::Line),
                curve("cpu", Stroke::Marked),
            ],
            marks: vec![("true".to_owned(), 595.0)],
            ..Chart::default()
        }
    }

    #[test]
    fn curves_have_colours_of_their_own_and_gaps_stay_gaps() {
        let html = chart().render();
        assert!(
            html.contains("Capacity &lt;estimates&gt;") && html.contains("over time"),
            "{html}"
        );
        assert!(
            html.contains("line muted thin") && html.contains("line c1") && html.contains("line dots c2")
        );
        // Two strokes: before the gap and after it.
        let path = html
            .split("line c1\" d=\"")
            .nth(2)
            .and_then(|rest| rest.split('"').next())
            .unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert!(html.contains(">true</text>"));
    }

    #[test]
    fn another_axis_and_ratios_can_be_asked_for() {
        let chart = Chart {
            over: Some("requests/s".to_owned()),
            logarithmic: true,
            ..chart()
        };
        let html = chart.render();
        assert!(
            html.contains("estimates&gt;</b> <span class=\"unit\">requests/s, over requests/s</span>")
                && html.contains(">160</text>"),
            "{html}"
        );
        let empty = Chart::default().render();
        assert!(empty.contains("<svg"), "{empty}");
        let nothing_positive = Chart {
            logarithmic: true,
            curves: vec![Curve {
                points: vec![(0.0, 0.0), (1.0, -1.0)],
                ..Curve::default()
            }],
            ..Chart::default()
        };
        assert!(!nothing_positive.render().contains("NaN"));
    }

    #[test]
    fn curves_and_marks_that_lie_together_are_told_apart() {
        let curve = |label: &str| Curve {
            label: label.to_owned(),
            points: vec![(0.0, 1.0), (9.0, 1.0)],
            stroke: Stroke::Line,
        };
        let html = Chart {
            curves: ["a", "b", "c", "d"].map(curve).to_vec(),
            marks: [("x", 1.0), ("y", 1.0), ("z", 1.0)]
                .map(|(label, value)| (label.to_owned(), value))
                .to_vec(),
            ..Chart::default()
        }
        .render();
        for class in [
            "line c1\"",
            "line c2 dashed\"",
            "line c3 dotted\"",
            "line c4 dashdot\"",
        ] {
            assert!(html.contains(class), "{class}: {html}");
        }
        for class in ["mark guard\"", "mark c3 dashed\"", "mark c4 dotted\""] {
            assert!(html.contains(class), "{class}: {html}");
        }
    }

    #[test]
    fn the_same_from_another_source_has_the_colour_of_what_it_is_beside() {
        let mut chart = chart();
        chart.curves[0].stroke = Stroke::Marked;
        chart.curves[1].stroke = Stroke::Beside;
        let html = chart.render();
        assert!(
            html.contains("line dots c1") && html.contains("line c1 dashed"),
            "{html}"
        );
        assert!(html.contains("line dots c2"), "{html}");
    }

    #[test]
    fn a_long_curve_is_thinned_and_keeps_its_extremes() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at), 1.0)).collect();
        points[5_000].1 = 90.0;
        let chart = Chart {
            curves: vec![Curve {
                points,
                ..Curve::default()
            }],
            ..Chart::default()
        };
        let html = chart.render();
        assert!(html.len() < 100_000, "{}", html.len());
        assert!(html.contains("envelope"));
    }
}
