//! One plot as inline SVG.

use super::columns::{Column, Moment, Point};
use super::html::{escape, figure};
use super::scale::{Axis, Scale};
use std::fmt::Write;

/// The plot's coordinate system: width, and the margins of the part in which the lines are.
pub(crate) const WIDTH: f64 = 1000.0;
pub(crate) const LEFT: f64 = 58.0;
pub(crate) const RIGHT: f64 = 904.0;
/// Room above the lines, and below them without and with the labels of the time axis.
const TOP: f64 = 10.0;
const BELOW: f64 = 6.0;
const BELOW_WITH_LABELS: f64 = 24.0;
/// Height of a strip below the lines, and its distance to the next.
const STRIP: f64 = 7.0;
const STRIP_EVERY: f64 = 10.0;

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// From point to point; of a thinned run the mean, on a lighter band from the smallest to the largest value.
    Line,
    /// Held until the next point.
    Step,
    /// Held until the next point, the area below filled.
    Area,
    /// From point to point, each of them marked.
    Marked,
}

/// One line of a panel.
pub(crate) struct Line<'a> {
    pub(crate) label: String,
    /// Classes of the style sheet: its colour (`c0` to `c6`, `target`, `muted`) and stroke (`thin`, `dashed`).
    pub(crate) class: String,
    pub(crate) shape: Shape,
    pub(crate) moments: &'a [Moment],
    pub(crate) column: &'a Column,
}

impl Line<'_> {
    fn points(&self) -> impl Iterator<Item = (&Moment, &Point)> {
        self.moments.iter().zip(self.column)
    }
}

/// A value that a panel marks over its whole width.
pub(crate) struct Mark {
    pub(crate) label: String,
    pub(crate) class: &'static str,
    pub(crate) value: f64,
}

/// Spans of time that a panel marks: over its whole height, or as a strip below it.
pub(crate) struct Spans {
    pub(crate) class: String,
    /// The strip's number from the top; `None` for the whole height.
    pub(crate) strip: Option<usize>,
    pub(crate) spans: Vec<(f64, f64)>,
}

/// A plot over time, or over another quantity.
pub(crate) struct Panel<'a> {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) height: f64,
    pub(crate) scale: Scale,
    /// What stands below.
    pub(crate) axis: Axis,
    /// Start and end of that axis; seconds where it is time.
    pub(crate) span: (f64, f64),
    pub(crate) lines: Vec<Line<'a>>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) spans: Vec<Spans>,
    /// Whether the axis below is labelled.
    pub(crate) labelled: bool,
}

impl Panel<'_> {
    fn x(&self, at_s: f64) -> f64 {
        let (from, to) = self.span;
        let share = if to > from {
            (at_s - from) / (to - from)
        } else {
            0.0
        };
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.scale.place(value)) * self.height
    }

    fn foot(&self) -> f64 {
        TOP + self.height
    }

    /// The plot as a figure with its title and legend.
    pub(crate) fn render(&self) -> String {
        let mut html = String::from("<figure class=\"panel\">\n<figcaption><b>");
        let _ = write!(html, "{}</b>", escape(&self.title));
        if !self.unit.is_empty() {
            let _ = write!(html, " <span class=\"unit\">{}</span>", escape(&self.unit));
        }
        html.push_str("<span class=\"legend\">");
        let entries = self
            .lines
            .iter()
            .map(|line| (line.class.as_str(), line.shape, line.label.as_str()))
            .filter(|(_, _, label)| !label.is_empty());
        for (class, shape, label) in entries {
            html.push_str(&swatch(class, shape, label));
        }
        html.push_str("</span></figcaption>\n");
        let strips = self
            .spans
            .iter()
            .filter_map(|marked| marked.strip)
            .max()
            .map_or(0.0, |last| last as f64 + 1.0);
        let below = if self.labelled { BELOW_WITH_LABELS } else { BELOW };
        let total = self.foot() + strips * STRIP_EVERY + below;
        let _ = writeln!(
            html,
            "<svg viewBox=\"0 0 {WIDTH} {total:.0}\" role=\"img\" aria-label=\"{} over {}\">",
            escape(&self.title),
            escape(self.axis.said())
        );
        self.render_spans(&mut html);
        self.render_grid(&mut html);
        for line in &self.lines {
            self.render_line(line, &mut html);
        }
        self.render_marks(&mut html);
        let _ = write!(
            html,
            "<line class=\"cross\" x1=\"0\" x2=\"0\" y1=\"{TOP}\" y2=\"{:.1}\"/>\n</svg>\n</figure>\n",
            self.foot()
        );
        html
    }

    fn render_spans(&self, svg: &mut String) {
        for marked in &self.spans {
            let mut path = String::new();
            let (y, height) = match marked.strip {
                None => (TOP, self.height),
                Some(number) => (self.foot() + 3.0 + number as f64 * STRIP_EVERY, STRIP),
            };
            for (from, to) in &marked.spans {
                // At least as wide as can be seen.
                let (from, to) = (self.x(*from), self.x(*to));
                let _ = write!(
                    path,
                    "M{from:.1} {y:.1}h{:.1}v{height:.1}H{from:.1}z",
                    (to - from).max(0.9)
                );
            }
            if marked.strip.is_some() {
                let _ = writeln!(
                    svg,
                    "<path class=\"bed\" d=\"M{LEFT} {y:.1}H{RIGHT}v{height:.1}H{LEFT}z\"/>"
                );
            }
            if !path.is_empty() {
                let _ = writeln!(svg, "<path class=\"{}\" d=\"{path}\"/>", marked.class);
            }
        }
    }

    fn render_grid(&self, svg: &mut String) {
        for (number, tick) in self.scale.ticks().into_iter().enumerate() {
            tick_of_value(svg, self.y(tick), tick, tick_class(number));
        }
        for (number, (at, label)) in self.axis.ticks(self.span.0, self.span.1).into_iter().enumerate() {
            let label = if self.labelled { label.as_str() } else { "" };
            let place = (self.x(at), self.foot() + 17.0);
            tick_below(svg, place, (TOP, self.foot()), label, tick_class(number));
        }
    }

    fn render_line(&self, line: &Line<'_>, svg: &mut String) {
        let mut draw = |kind: &str, path: String| {
            if !path.is_empty() {
                let _ = writeln!(svg, "<path class=\"{kind} {}\" d=\"{path}\"/>", line.class);
            }
        };
        match line.shape {
            Shape::Line => draw("area envelope", self.band_path(line)),
            Shape::Marked => draw("line dots", self.line_path(line, false)),
            Shape::Area => draw("area", self.step_path(line, true)),
            Shape::Step => {}
        }
        match line.shape {
            Shape::Line | Shape::Marked => draw("line", self.line_path(line, true)),
            Shape::Step | Shape::Area => draw("line", self.step_path(line, false)),
        }
    }

    /// The means, joined where they follow each other, or a dot for each.
    fn line_path(&self, line: &Line<'_>, joined: bool) -> String {
        let mut path = String::new();
        let mut pen_down = false;
        for (moment, point) in line.points() {
            let mean = point.mean();
            if let Some(value) = mean {
                let (x, y) = (self.x((moment.at_s + moment.end_s) / 2.0), self.y(value));
                // Between two gaps "h0" makes a dot, thanks to round line ends.
                let _ = match pen_down && joined {
                    true => write!(path, "L{x:.1} {y:.1}"),
                    false => write!(path, "M{x:.1} {y:.1}h0"),
                };
            }
            pen_down = mean.is_some();
        }
        path
    }

    /// From the smallest to the largest value of each point that stands for several periods, so that no peak is
    /// thinned away; empty where no point does.
    fn band_path(&self, line: &Line<'_>) -> String {
        let mut path = String::new();
        for (moment, point) in line
            .points()
            .filter(|(_, point)| point.is_known() && point.high > point.low)
        {
            let (from, to) = (self.x(moment.at_s), self.x(moment.end_s));
            let (low, high) = (self.y(point.low), self.y(point.high));
            let _ = write!(path, "M{from:.1} {high:.1}H{to:.1}V{low:.1}H{from:.1}z");
        }
        path
    }

    fn step_path(&self, line: &Line<'_>, filled: bool) -> String {
        let mut path = String::new();
        let mut pen_down = false;
        let mut end = 0.0;
        let close = |path: &mut String, end: f64| {
            if filled {
                let _ = write!(path, "H{end:.1}V{:.1}z", self.foot());
            } else {
                let _ = write!(path, "H{end:.1}");
            }
        };
        let mut last_y = f64::NAN;
        for (moment, point) in line.points() {
            let Some(value) = point.mean() else {
                if pen_down {
                    close(&mut path, end);
                }
                pen_down = false;
                continue;
            };
            let (x, y) = (self.x(moment.at_s), self.y(value));
            if !pen_down {
                if filled {
                    let _ = write!(path, "M{x:.1} {:.1}V{y:.1}", self.foot());
                } else {
                    let _ = write!(path, "M{x:.1} {y:.1}");
                }
            } else if (y - last_y).abs() >= 0.05 {
                let _ = write!(path, "H{x:.1}V{y:.1}");
            }
            pen_down = true;
            last_y = y;
            end = self.x(moment.end_s);
        }
        if pen_down {
            close(&mut path, end);
        }
        path
    }

    /// Marks are lines over the whole width; their labels stand to the right of them, out of the data's way and out
    /// of each other's.
    fn render_marks(&self, svg: &mut String) {
        const APART: f64 = 16.0;
        let mut order: Vec<&Mark> = self.marks.iter().collect();
        order.sort_by(|one, other| other.value.total_cmp(&one.value));
        let mut lowest = f64::NEG_INFINITY;
        for mark in order {
            let y = self.y(mark.value);
            let label_y = (y + 4.0).max(lowest + APART);
            lowest = label_y;
            let _ = writeln!(
                svg,
                "<path class=\"line {0}\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text class=\"mark {0}\" x=\"{1:.0}\" \
                 y=\"{label_y:.1}\">{2}</text>",
                mark.class,
                RIGHT + 6.0,
                escape(&mark.label)
            );
        }
    }
}

/// The class of an axis' label of this number, from 0: a narrow window has room for every second one.
pub(crate) const fn tick_class(number: usize) -> &'static str {
    if number.is_multiple_of(2) {
        "tick"
    } else {
        "tick between"
    }
}

/// A line of the grid at a value, and the value beside it.
pub(crate) fn tick_of_value(svg: &mut String, y: f64, value: f64, class: &str) {
    let _ = writeln!(
        svg,
        "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text class=\"{class}\" x=\"{:.0}\" y=\"{:.1}\" \
         text-anchor=\"end\">{}</text>",
        LEFT - 7.0,
        y + 4.0,
        figure(value)
    );
}

/// A line of the grid between top and foot at a place, where its label stands below.
pub(crate) fn tick_below(
    svg: &mut String,
    (x, y): (f64, f64),
    (top, foot): (f64, f64),
    label: &str,
    class: &str,
) {
    let anchor = match x {
        x if x > RIGHT - 20.0 => "end",
        x if x < LEFT + 20.0 => "start",
        _ => "middle",
    };
    let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {top}V{foot:.1}\"/>");
    if !label.is_empty() {
        let _ = writeln!(
            svg,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{label}</text>"
        );
    }
}

/// A line of a legend.
pub(crate) fn swatch(class: &str, shape: Shape, label: &str) -> String {
    let stroke = match shape {
        Shape::Area => format!(
            "<path class=\"area {class}\" d=\"M0 3h22v9H0z\"/><path class=\"line {class}\" d=\"M0 3h22\"/>"
        ),
        Shape::Line | Shape::Step => format!("<path class=\"line {class}\" d=\"M0 7h22\"/>"),
        Shape::Marked => format!(
            "<path class=\"line {class}\" d=\"M0 7h22\"/><path class=\"line dots {class}\" d=\"M11 7h0\"/>"
        ),
    };
    format!(
        "<span class=\"entry\"><svg viewBox=\"0 0 22 14\" aria-hidden=\"true\">{stroke}</svg>{}</span>",
        escape(label)
    )
}
