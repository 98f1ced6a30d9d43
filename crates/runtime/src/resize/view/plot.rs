//! Lines over time.

use super::Values;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType};

/// A name, a colour and the values over time.
pub(super) type Series<'a> = (String, Color, &'a Values);

/// Lines over time from 0 up, with gaps where a value is not known. The title names each in its colour.
pub(super) fn plot(frame: &mut Frame<'_>, area: Rect, unit: &str, series: &[Series<'_>]) {
    // A line for each stretch of known values: a plot's line would be drawn over a gap.
    let stretches: Vec<(Color, Vec<(f64, f64)>)> = series
        .iter()
        .flat_map(|(_, colour, values)| {
            let values: Vec<(f64, f64)> = values.iter().copied().collect();
            let known = values.split(|value| !value.1.is_finite()).map(<[_]>::to_vec);
            let known: Vec<_> = known.filter(|stretch| !stretch.is_empty()).collect();
            known.into_iter().map(|stretch| (*colour, stretch))
        })
        .collect();
    let times = || {
        series
            .iter()
            .flat_map(|(.., values)| values.iter().map(|value| value.0))
    };
    let first = times().fold(f64::INFINITY, f64::min).min(1e18);
    let last = times().fold(first + 1.0, f64::max);
    let values = || {
        stretches
            .iter()
            .flat_map(|(_, points)| points.iter().map(|point| point.1))
    };
    let top = values().fold(1e-3, f64::max) * 1.1;
    let label = |value: f64| match top < 20.0 {
        true => format!("{value:.1}"),
        false => format!("{value:.0}"),
    };
    let sets = stretches.iter().map(|(colour, points)| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(*colour))
            .data(points)
    });
    let names = series
        .iter()
        .map(|(name, colour, _)| Span::styled(format!("{name}  "), Style::new().fg(*colour)));
    let title: Vec<Span<'_>> = std::iter::once(Span::raw(format!(" {unit}:  ")))
        .chain(names)
        .collect();
    let chart = Chart::new(sets.collect())
        .block(Block::bordered().title(Line::from(title)))
        .x_axis(Axis::default().bounds([first, last]))
        .y_axis(
            Axis::default()
                .bounds([0.0, top])
                .labels([label(0.0), label(top / 2.0), label(top)]),
        );
    frame.render_widget(chart, area);
}
