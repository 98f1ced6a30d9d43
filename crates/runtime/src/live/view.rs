//! The live view in the terminal: latency against the target, cores, cap and watts, and the last reasons.

use super::tick::Tick;
use headroom_console::Stop;
use headroom_console::terminal::{Scene, Stage};
use headroom_units::{Seconds, Source};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Wrap};
use std::collections::VecDeque;
use std::io;

/// Periods kept for the plots.
const HISTORY: usize = 600;
/// Reasons shown.
const REASONS: usize = 8;
/// Periods that wait where drawing is slow: half an hour of half seconds. The view's totals lack those beyond.
const WAITING: usize = 4_096;

/// What stays the same during a run.
#[derive(Clone, Debug)]
pub struct Heading {
    /// The law.
    pub law: String,
    /// The trace, or what else is served.
    pub trace: String,
    /// How long the run is to last, where that is known.
    pub length: Option<Seconds>,
    /// What this run falls back to, in plain words.
    pub notes: Vec<String>,
}

/// The live view, on a thread of its own; dropped, it gives the terminal back.
#[derive(Debug)]
pub struct View(Stage<Message>);

#[derive(Debug)]
enum Message {
    Heading(Heading),
    Tick(Box<Tick>),
}

impl View {
    /// Opens the view; `q` and Ctrl-C raise `stop`.
    ///
    /// # Errors
    /// Where the terminal cannot be set up.
    pub fn open(stop: Stop) -> io::Result<Self> {
        Stage::open(Screen::default(), WAITING, stop).map(Self)
    }

    /// Begins a run: the plots start anew.
    pub fn begin(&self, heading: Heading) {
        self.0.send(Message::Heading(heading));
    }

    /// Shows one period.
    pub fn tick(&self, tick: &Tick) {
        self.0.send(Message::Tick(Box::new(tick.clone())));
    }
}

/// Everything on the screen.
#[derive(Debug, Default)]
struct Screen {
    heading: Option<Heading>,
    latest: Option<Box<Tick>>,
    latency_ms: VecDeque<(f64, f64)>,
    cores: VecDeque<(f64, f64)>,
    busy: VecDeque<(f64, f64)>,
    cap_w: VecDeque<(f64, f64)>,
    power_w: VecDeque<(f64, f64)>,
    rate: VecDeque<(f64, f64)>,
    reasons: VecDeque<String>,
    energy_j: f64,
    source: Option<Source>,
    over: usize,
    periods: usize,
    failures: u64,
}

impl Scene for Screen {
    type Message = Message;

    fn take(&mut self, message: Message) {
        match message {
            Message::Heading(heading) => {
                *self = Self {
                    heading: Some(heading),
                    ..Self::default()
                }
            }
            Message::Tick(tick) => self.keep(*tick),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        self.draw_all(frame);
    }
}

impl Screen {
    fn keep(&mut self, tick: Tick) {
        let at = tick.at.get();
        let put = |series: &mut VecDeque<(f64, f64)>, value: f64| {
            if series.len() == HISTORY {
                series.pop_front();
            }
            series.push_back((at, value));
        };
        let (cores, cap) = tick.held();
        if let Some(cores) = cores {
            put(&mut self.cores, cores.get());
        }
        if let Some(cap) = cap {
            put(&mut self.cap_w, cap.get());
        }
        if let Some(utilisation) = tick.seen.utilisation {
            put(
                &mut self.busy,
                utilisation.get() * tick.seen.in_force.cores().unwrap_or_default().get(),
            );
        }
        if let Some(power) = tick.power() {
            put(&mut self.power_w, power.value.get());
            self.source = Some(power.source);
        }
        if let Some(rate) = tick.seen.arrival_rate() {
            put(&mut self.rate, rate.get());
        }
        self.periods += 1;
        if let Some(traffic) = &tick.seen.traffic {
            self.failures += traffic.failures;
            if let Some(latency) = traffic.latency {
                // A missed percentile is no latency that was measured.
                if !latency.missed {
                    put(&mut self.latency_ms, latency.at_slo.as_millis());
                }
                self.over += usize::from(latency.at_slo > tick.target);
            }
        }
        self.energy_j += tick.energy.map_or(0.0, |energy| energy.value.get());
        for reason in &tick.decision.reasons {
            if self.reasons.len() == REASONS {
                self.reasons.pop_front();
            }
            self.reasons
                .push_back(format!("{at:6.1} s  {}: {}", reason.rule, reason.text));
        }
        self.latest = Some(Box::new(tick));
    }

    fn draw_all(&self, frame: &mut Frame<'_>) {
        let [head, progress, latency, middle, reasons] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(1),
            Constraint::Fill(3),
            Constraint::Fill(2),
            Constraint::Length(REASONS as u16 + 2),
        ])
        .areas(frame.area());
        self.head(frame, head);
        self.progress(frame, progress);
        let target = self.latest.as_ref().map(|tick| tick.target.as_millis());
        let guard = self
            .latest
            .as_ref()
            .and_then(|tick| tick.guard)
            .map(|guard| guard.as_millis());
        let now = self
            .latency_ms
            .back()
            .map_or(String::new(), |(_, ms)| format!(" now {ms:.0} ms"));
        self.chart(
            frame,
            latency,
            &format!("latency at the SLO's percentile, ms:{now}"),
            &[("latency", Color::Cyan, &self.latency_ms)],
            &[("target", Color::Red, target), ("guard", Color::Yellow, guard)],
        );
        let [left, centre, right] = Layout::horizontal([Constraint::Fill(1); 3]).areas(middle);
        self.chart(
            frame,
            left,
            "cores",
            &[
                ("allocated", Color::Green, &self.cores),
                ("busy", Color::Blue, &self.busy),
            ],
            &[],
        );
        let source = self.source.map_or(String::new(), |source| format!(" ({source})"));
        self.chart(
            frame,
            centre,
            &format!("watts{source}"),
            &[
                ("cap", Color::Magenta, &self.cap_w),
                ("consumed", Color::Yellow, &self.power_w),
            ],
            &[],
        );
        self.chart(
            frame,
            right,
            "requests/s",
            &[("arrivals", Color::White, &self.rate)],
            &[],
        );
        let lines: Vec<Line<'_>> = self
            .reasons
            .iter()
            .rev()
            .map(|reason| Line::from(reason.as_str()))
            .collect();
        let why = Paragraph::new(lines).block(Block::bordered().title(" why, newest first (q: stop) "));
        frame.render_widget(why, reasons);
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(heading) = &self.heading else { return };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut first = vec![
            Span::styled(format!("headroom  law {}  ", heading.law), bold),
            Span::raw(format!("trace {}  ", heading.trace)),
        ];
        let over = Style::new().fg(if self.over > 0 { Color::Red } else { Color::Green });
        first.push(Span::styled(
            format!("{} of {} periods over the target  ", self.over, self.periods),
            over,
        ));
        first.push(Span::raw(format!(
            "{} failed  {:.0} J",
            self.failures, self.energy_j
        )));
        if let Some(source) = self.source {
            first.push(Span::raw(format!(" {source}")));
        }
        let notes = Line::styled(heading.notes.join("; "), Style::new().fg(Color::DarkGray));
        frame.render_widget(
            Paragraph::new(vec![Line::from(first), notes]).wrap(Wrap { trim: true }),
            area,
        );
    }

    fn progress(&self, frame: &mut Frame<'_>, area: Rect) {
        let at = self.latest.as_ref().map_or(0.0, |tick| tick.at.get());
        let Some(length) = self.heading.as_ref().and_then(|heading| heading.length) else {
            frame.render_widget(Paragraph::new(format!("{at:.0} s")), area);
            return;
        };
        let share = (at / length.get()).clamp(0.0, 1.0);
        let gauge = Gauge::default()
            .ratio(if share.is_finite() { share } else { 0.0 })
            .gauge_style(Style::new().fg(Color::Cyan))
            .label(format!("{at:.0} of {:.0} s", length.get()));
        frame.render_widget(gauge, area);
    }

    fn chart(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        title: &str,
        series: &[Series<'_>],
        levels: &[(&str, Color, Option<f64>)],
    ) {
        let points: Vec<Vec<(f64, f64)>> = series
            .iter()
            .map(|(_, _, points)| points.iter().copied().collect())
            .collect();
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
        let top = values()
            .map(|(_, value)| *value)
            .chain(levels.iter().map(|(_, _, line)| line[0].1))
            .fold(0.0, f64::max)
            .max(1e-3)
            * 1.1;
        let mut sets: Vec<Dataset<'_>> = series
            .iter()
            .zip(&points)
            .map(|((name, colour, _), points)| line(name, *colour, points))
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
}

/// A name, a colour and the values over time.
type Series<'a> = (&'a str, Color, &'a VecDeque<(f64, f64)>);
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
