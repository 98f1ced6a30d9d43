//! The plots of the view: each lever against what is used of it, latency against the target, and how far the run is.

use super::Screen;
use crate::live::tick::Tick;
use headroom_units::{CapacityKind, Lever, Quantity, Role, Sensor};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// What is held to a level is drawn up to so many times that.
const OFF_SCALE: f64 = 5.0;

/// A name, a colour and a horizontal line's two ends.
type Level<'a> = (&'a str, Color, [(f64, f64); 2]);

fn line<'a>(name: &'a str, colour: Color, points: &'a [(f64, f64)]) -> Dataset<'a> {
    Dataset::default()
        .name(name)
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(colour))
        .data(points)
}

impl Screen {
    /// What the curve of the capacity is called, by what its number is now.
    fn capacity_name(&self) -> &'static str {
        let parts = self.latest.as_ref().map_or(&[][..], |tick| &tick.parts);
        let mut wholes = parts.iter().filter(|part| part.role == Role::Cluster);
        match wholes.find_map(CapacityKind::of) {
            Some(CapacityKind::AtLeast) => "capacity, at least",
            Some(CapacityKind::About) => "capacity, about",
            Some(CapacityKind::Presumed) => "capacity, presumed",
            Some(CapacityKind::Exact | CapacityKind::Given) | None => "capacity",
        }
    }

    /// What the charts beside each other show: each lever that there is with what is used of it, power where no lever shows it, and
    /// the requests.
    pub(super) fn charts(&self) -> Vec<Vec<(Quantity, &'static str, Color)>> {
        let there = |quantity: &Quantity| self.series.contains_key(quantity);
        let mut charts: Vec<Vec<(Quantity, &'static str, Color)>> = Vec::new();
        for lever in Lever::ALL.into_iter().filter(|lever| there(&(*lever).into())) {
            let mut series = vec![(lever.into(), "set", Color::Green)];
            let used = lever.used().map(Quantity::from).filter(there);
            series.extend(used.map(|used| (used, "used", Color::Blue)));
            charts.push(series);
        }
        let power = Quantity::from(Sensor::Power);
        let shown = |charts: &[Vec<(Quantity, &str, Color)>], one: Quantity| {
            charts.iter().flatten().any(|(quantity, ..)| *quantity == one)
        };
        if there(&power) && !shown(&charts, power) {
            let mut series = vec![(power, "consumed", Color::Yellow)];
            let always = Quantity::from(Sensor::PowerAlwaysOn);
            series.extend(there(&always).then_some((always, "all on", Color::DarkGray)));
            charts.push(series);
        }
        let together = |all: &[(Sensor, &'static str, Color)]| {
            let all = all
                .iter()
                .map(|(sensor, name, colour)| (Quantity::from(*sensor), *name, *colour));
            all.filter(|(sensor, ..)| there(sensor)).collect::<Vec<_>>()
        };
        charts.push(together(&[
            (Sensor::ArrivalRate, "arrivals", Color::White),
            (Sensor::ServiceRate, "served", Color::Blue),
            (Sensor::Capacity, self.capacity_name(), Color::Green),
        ]));
        charts.push(together(&[
            (Sensor::QueueMean, "mean", Color::Cyan),
            (Sensor::QueueThreshold, "threshold", Color::Yellow),
            (Sensor::Backlog, "backlog", Color::Red),
        ]));
        charts.push(together(&[(Sensor::DropRatio, "dropped", Color::Red)]));
        charts.retain(|chart| !chart.is_empty());
        charts
    }

    pub(super) fn progress(&self, frame: &mut Frame<'_>, area: Rect) {
        let at = self.latest.as_ref().map_or(0.0, |tick| tick.at.get());
        let Some(length) = self.heading.as_ref().and_then(|heading| heading.length) else {
            frame.render_widget(Paragraph::new(format!("{at:.0} s")), area);
            return;
        };
        let share = (at / length.get()).clamp(0.0, 1.0);
        // Beside the bar: on it the text could not be read where the bar ends in it.
        let text = format!("{at:.0} of {:.0} s ", length.get());
        let widths = [Constraint::Length(text.len() as u16), Constraint::Fill(1)];
        let [before, bar] = Layout::horizontal(widths).areas(area);
        frame.render_widget(Paragraph::new(text), before);
        let gauge = Gauge::default()
            .ratio(if share.is_finite() { share } else { 0.0 })
            .gauge_style(Style::new().fg(Color::Cyan))
            .label("");
        frame.render_widget(gauge, bar);
    }

    pub(super) fn chart(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        series: &[(Quantity, &str, Color)],
        levels: &[(&str, Color, Option<f64>)],
    ) {
        let none = VecDeque::new();
        let points: Vec<Vec<(f64, f64)>> = series
            .iter()
            .map(|(quantity, ..)| self.series.get(quantity).unwrap_or(&none))
            .map(|points| points.iter().copied().collect())
            .collect();
        let at = self.latest.as_ref().map(|tick| tick.at.get());
        // What was known last is not what is.
        let now = points.first().and_then(|points| points.last());
        let mut title = self.title(series, now.filter(|(then, _)| Some(*then) == at));
        let held_to = levels
            .iter()
            .find_map(|(name, _, level)| level.filter(|_| *name == "target"));
        if let Some(target) = held_to {
            let digits = if target < 1.0 { 3 } else { 0 };
            let _ = write!(title, " of {target:.digits$} ms");
        }
        let values = || points.iter().flatten();
        let first = values()
            .map(|(at, _)| *at)
            .fold(f64::INFINITY, f64::min)
            .min(1e18);
        let last = values().map(|(at, _)| *at).fold(first + 1.0, f64::max);
        let levels: Vec<Level<'_>> = levels
            .iter()
            .filter_map(|(name, colour, level)| Some((*name, *colour, (*level)?)))
            .map(|(name, colour, level)| (name, colour, [(first, level), (last, level)]))
            .collect();
        let level = levels.iter().map(|(_, _, line)| line[0].1).fold(0.0, f64::max);
        let most = values().map(|(_, value)| *value).fold(level, f64::max);
        // One value far off is not to press all others, and what they are held to, into one line.
        let most = if level > 0.0 {
            most.min(level * OFF_SCALE)
        } else {
            most
        };
        let top = most.max(1e-3) * 1.1;
        let mut sets: Vec<Dataset<'_>> = series
            .iter()
            .zip(&points)
            .map(|((_, name, colour), points)| line(name, *colour, points))
            .collect();
        sets.extend(
            levels
                .iter()
                .map(|(name, colour, points)| line(name, *colour, points)),
        );
        let label = |value: f64| {
            if top < 20.0 {
                format!("{value:.1}")
            } else {
                format!("{value:.0}")
            }
        };
        let chart = Chart::new(sets)
            .block(Block::bordered().title(format!(" {title} ")))
            .x_axis(Axis::default().bounds([first, last]))
            .y_axis(
                Axis::default()
                    .bounds([0.0, top])
                    .labels([label(0.0), label(top / 2.0), label(top)]),
            );
        frame.render_widget(chart, area);
    }

    /// What a chart shows, in which unit, and what it is now.
    fn title(&self, series: &[(Quantity, &str, Color)], now: Option<&(f64, f64)>) -> String {
        let Some(info) = series.first().map(|(quantity, ..)| quantity.info()) else {
            return String::new();
        };
        let watts = series
            .iter()
            .any(|(quantity, ..)| quantity.info().unit == "watts");
        let source = self.source.filter(|_| watts);
        let source = source.map_or(String::new(), |source| format!(" ({source})"));
        let latency = Quantity::from(Sensor::LatencyAtSlo);
        let traffic = |of: &Tick| of.observation.traffic.as_ref()?.latency;
        let missed = self.latest.as_deref().and_then(traffic);
        let missed = missed.is_some_and(|latency| latency.missed);
        let now = match now {
            Some((_, now)) => info.read(now * info.shown.1),
            // The percentile of what was asked lies among those that were never answered.
            None if missed && series.first().is_some_and(|(quantity, ..)| *quantity == latency) => {
                "among those that failed,".to_owned()
            }
            None => "-".to_owned(),
        };
        let now = format!(": now {now}");
        let title = series.first().map(|(quantity, ..)| self.name(*quantity));
        format!("{}{source}{now}", title.unwrap_or_default())
    }
}
