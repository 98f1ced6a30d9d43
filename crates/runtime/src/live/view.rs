//! The live view in the terminal: latency against the target, each lever against what is used of it, the parts of the run, and the
//! last reasons.

mod plots;
mod rows;
mod text;

use super::sinks::Late;
use super::tick::Tick;
use headroom_console::Stop;
use headroom_console::say::{self, HeldLine};
use headroom_console::terminal::{Scene, Stage};
use headroom_units::{Lever, Quantity, Role, Seconds, Sensor, Source};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use rows::foremost;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;
use text::{CUT, cut, fitting, log_rows, wrapped};

/// Periods kept for the plots.
const HISTORY: usize = 600;
/// Reasons shown.
const REASONS: usize = 8;
/// Parts shown: more than a screen has room for are in the record and in `/status`.
const MAX_PARTS: usize = 10;
/// Screens of fewer lines than this show less.
const SMALL: u16 = 34;
/// Rows of parts on a small screen at least, and what is left of its height for everything else.
const SMALL_PARTS: usize = 3;
const SMALL_REST: u16 = 18;
/// For how long the newest line of the log, which nobody sees while the view has the terminal, stands in it; and the newest warning.
const LOG_SHOWN: Duration = Duration::from_secs(20);
const WARNING_SHOWN: Duration = Duration::from_secs(60);
/// Rows of the log at most, and of how many rows of the screen each is one.
const LOG_ROWS: usize = 4;
const SCREEN_A_LOG_ROW: usize = 6;
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
    /// Of the whole, in the units that people read.
    series: BTreeMap<Quantity, VecDeque<(f64, f64)>>,
    reasons: VecDeque<String>,
    /// `None` until a meter or a model has told any.
    energy_j: Option<f64>,
    source: Option<Source>,
    late: Late,
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
        self.draw_all(frame, &say::newest_held(LOG_SHOWN, WARNING_SHOWN));
    }
}

impl Screen {
    fn keep(&mut self, tick: Tick) {
        let at = tick.at.get();
        let whole = tick.whole(&tick.observation.in_force);
        for (quantity, value) in &whole.values {
            let series = self.series.entry(*quantity).or_default();
            if series.len() == HISTORY {
                series.pop_front();
            }
            series.push_back((at, value / quantity.info().shown.1));
        }
        self.source = whole.source.or(self.source);
        self.late.count(&tick);
        if let Some(traffic) = &tick.observation.traffic {
            self.failures += traffic.failures;
        }
        if let Some(energy) = tick.energy {
            self.energy_j = Some(self.energy_j.unwrap_or(0.0) + energy.value.get());
        }
        let reasons = &tick.decision.reasons;
        // What is the same as in the period before, but for its figures, takes its place: each period that is late would push all else away.
        let is_same = self.latest.as_ref().is_some_and(|before| {
            let rules = |tick: &Tick| {
                tick.decision
                    .reasons
                    .iter()
                    .map(|reason| reason.rule.clone())
                    .collect()
            };
            let [old, new]: [Vec<_>; 2] = [rules(before), rules(&tick)];
            old == new && before.decision.setting == tick.decision.setting
        });
        if is_same {
            self.reasons
                .truncate(self.reasons.len().saturating_sub(reasons.len()));
        }
        for reason in reasons {
            if self.reasons.len() == REASONS {
                self.reasons.pop_front();
            }
            self.reasons
                .push_back(format!("{at:6.1} s  {}: {}", reason.rule, reason.text));
        }
        self.latest = Some(Box::new(tick));
    }

    /// Whether the run estimates a capacity.
    fn is_estimate(&self) -> bool {
        let parts = self.latest.as_ref().map_or(&[][..], |tick| &tick.parts);
        parts.iter().any(|part| part.role == Role::Estimator)
    }

    /// The SLO's target, where the run is held to one.
    fn target(&self) -> Option<Seconds> {
        self.latest.as_ref().and_then(|tick| tick.target)
    }

    /// The whole screen, beside what the log says now.
    fn draw_all(&self, frame: &mut Frame<'_>, log: &[HeldLine]) {
        let parts = self.latest.as_ref().map_or(&[][..], |tick| &tick.parts);
        let height = frame.area().height;
        // A small screen has one row of plots, of a few parts and of the newest reason.
        let is_small = height < SMALL;
        let held = self.target().is_some();
        let small_rows = usize::from(height.saturating_sub(SMALL_REST)).clamp(SMALL_PARTS, MAX_PARTS);
        let rows = parts.len().min(if is_small { small_rows } else { MAX_PARTS });
        // Where no plot but that of latency has room, the values of the others have a line.
        let is_line = is_small && held;
        let first_lines = self.first_lines(frame.area(), log);
        let is_long = first_lines
            .first()
            .is_some_and(|line| line.width() > usize::from(frame.area().width));
        // A line that is broken into two takes the place of the notes, and not of the log.
        let first_rows = match (is_long, log.is_empty()) {
            (true, true) => 2,
            (true, false) => first_lines.len() + 1,
            (false, _) => first_lines.len(),
        };
        let [head, progress, now, latency, middle, table, reasons] = Layout::vertical([
            Constraint::Length(first_rows as u16),
            Constraint::Length(1),
            Constraint::Length(is_line.into()),
            // Without an SLO there is no latency to be shown.
            Constraint::Fill(if held { 3 } else { 0 }),
            Constraint::Fill(if is_line { 0 } else { 3 }),
            Constraint::Length(if rows > 0 { rows as u16 + 2 } else { 0 }),
            Constraint::Length(if is_small { 6 } else { REASONS as u16 + 2 }),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(first_lines).wrap(Wrap { trim: false }), head);
        self.progress(frame, progress);
        if is_line {
            let values = cut(&self.now(), usize::from(now.width));
            frame.render_widget(Paragraph::new(values), now);
        }
        let target = self.target().map(Seconds::as_millis);
        let guard = self.latest.as_ref().and_then(|tick| tick.guard);
        self.chart(
            frame,
            latency,
            &[(Sensor::LatencyAtSlo.into(), "latency", Color::Cyan)],
            &[
                ("target", Color::Red, target),
                ("guard", Color::Yellow, guard.map(Seconds::as_millis)),
            ],
        );
        let charts = self.charts();
        // Narrower than this a plot shows neither its title nor its curve.
        let fit = charts.len().min(usize::from(middle.width / 24).max(1));
        let areas = Layout::horizontal(vec![Constraint::Fill(1); fit]).split(middle);
        for (series, area) in charts
            .iter()
            .zip(areas.iter())
            .filter(|(_, area)| area.height > 0)
        {
            self.chart(frame, *area, series, &[]);
        }
        let plots = if middle.height > 0 {
            charts.len() - fit
        } else {
            charts.len()
        };
        let left_out = |count: usize, what: &str| match count {
            0 => String::new(),
            count => format!("; {count} of the {what} in the record only"),
        };
        if rows > 0 {
            let width = usize::from(table.width.saturating_sub(2));
            let lines: Vec<Line<'_>> = foremost(parts, rows)
                .into_iter()
                .map(|part| self.row(part, width))
                .collect();
            let title = format!(
                " parts{}{} ",
                left_out(parts.len() - rows, "parts"),
                left_out(plots, "plots")
            );
            frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), table);
        }
        let inner = reasons.inner(Margin::new(1, 1));
        let (lines, hidden) = self.newest_reasons(usize::from(inner.width), usize::from(inner.height));
        let plots = if rows > 0 { 0 } else { plots };
        let title = format!(
            " why, newest first (q: stop){}{} ",
            left_out(hidden, "reasons"),
            left_out(plots, "plots")
        );
        frame.render_widget(
            Paragraph::new(lines).block(Block::bordered().title(title)),
            reasons,
        );
    }

    /// Cores, batch interval and how much the cache answers, the power, and each other lever as it is: what is long may be cut.
    /// `4.0 cores  interval 20 ms  power 31.2 W  cap 50.0 W`.
    fn now(&self) -> String {
        let latest = |quantity: Quantity| {
            let (then, value) = self.series.get(&quantity)?.back()?;
            let at = self.latest.as_ref().map(|tick| tick.at.get());
            (Some(*then) == at).then(|| value * quantity.info().shown.1)
        };
        const FIRST: [Lever; 2] = [Lever::Cores, Lever::BatchInterval];
        let short = |lever: Lever| (Quantity::from(lever), lever.in_short());
        let sensors = [(Sensor::CacheHitRatio, "hit rate"), (Sensor::Power, "power")];
        let sensors = sensors.map(|(sensor, name)| (Quantity::from(sensor), name));
        let others = Lever::ALL.into_iter().filter(|lever| !FIRST.contains(lever));
        let all = FIRST
            .into_iter()
            .map(short)
            .chain(sensors)
            .chain(others.map(short));
        let values = all.filter_map(|(quantity, name)| {
            let value = quantity.info().read(latest(quantity)?);
            Some(format!("{name} {value}").trim_start().to_owned())
        });
        values.collect::<Vec<_>>().join("  ")
    }

    /// The lines of the newest reasons, wrapped, and how many reasons have no room; the last one ends in a sign where it has too little.
    fn newest_reasons(&self, width: usize, height: usize) -> (Vec<Line<'_>>, usize) {
        let mut lines: Vec<String> = Vec::new();
        let mut shown = 0;
        for reason in self.reasons.iter().rev() {
            let free = height.saturating_sub(lines.len());
            if free == 0 {
                break;
            }
            let mut wrapped = wrapped(reason, width);
            if wrapped.len() > free {
                wrapped.truncate(free);
                if let Some(last) = wrapped.last_mut() {
                    *last = cut(&format!("{last}{CUT}"), width);
                }
            }
            lines.extend(wrapped);
            shown += 1;
        }
        let lines = lines.into_iter().map(Line::from).collect();
        (lines, self.reasons.len() - shown)
    }

    /// The run in a line, and below it what the log says now; else the notes that fit into a second one whole, others are in the log and in
    /// the report.
    fn first_lines(&self, area: Rect, log: &[HeldLine]) -> Vec<Line<'static>> {
        let width = usize::from(area.width);
        let Some(heading) = &self.heading else {
            return Vec::new();
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let (late, judged) = self.late.of_judged();
        let unmeasured = self.late.unmeasured();
        let over = Style::new().fg(match (late, &unmeasured) {
            (0, None) => Color::Green,
            (0, Some(_)) => Color::Yellow,
            _ => Color::Red,
        });
        let first = |is_short: bool| {
            let name = if is_short { "" } else { "headroom  " };
            let mut first = vec![Span::styled(format!("{name}law {}  ", heading.law), bold)];
            if self.target().is_some() {
                let of = match (is_short, &unmeasured) {
                    (_, Some(unmeasured)) => format!("{unmeasured}  "),
                    (true, None) => format!("{late}/{judged} late  "),
                    (false, None) => format!("{late} of {judged} judged periods over the target  "),
                };
                first.push(Span::styled(of, over));
            }
            let source = self
                .source
                .map_or_else(String::new, |source| format!(" {source}"));
            let failures = self.failures;
            // A client's retry is another SYN: which requests failed an accept queue does not tell.
            let failed = if self.is_estimate() {
                "SYNs dropped"
            } else {
                "failed"
            };
            let energy = match self.energy_j {
                Some(energy_j) => format!("  {energy_j:.0} J{source}"),
                None if self.is_estimate() => String::new(),
                None => "  energy unknown".to_owned(),
            };
            first.push(Span::raw(format!("{failures} {failed}{energy}")));
            first
        };
        let fits = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>() <= width;
        // A figure and its unit stay on one line: on a narrow screen there are fewer words. What drives the load is known to whoever
        // started it, and goes first.
        let mut whole = first(false);
        whole.insert(1, Span::raw(format!("trace {}  ", heading.trace)));
        let first = [whole, first(false)]
            .into_iter()
            .find(|spans| fits(spans))
            .unwrap_or_else(|| first(true));
        let below: Vec<Line<'_>> = match log.is_empty() {
            true => {
                let notes = Line::styled(fitting(&heading.notes, width), Style::new().fg(Color::DarkGray));
                Some(notes)
                    .filter(|notes| notes.width() > 0)
                    .into_iter()
                    .collect()
            }
            false => {
                let rows = (usize::from(area.height) / SCREEN_A_LOG_ROW).clamp(1, LOG_ROWS);
                let lines = log_rows(log, width, rows).into_iter();
                let yellow = Style::new().fg(Color::Yellow);
                lines.map(|line| Line::styled(line, yellow)).collect()
            }
        };
        std::iter::once(Line::from(first)).chain(below).collect()
    }

    /// What a quantity is called, with the SLO's percentile by its name.
    fn name(&self, quantity: Quantity) -> String {
        if self.is_estimate() && quantity == Sensor::ArrivalRate.into() {
            return "Connection attempts, with retries".to_owned();
        }
        let percentile = || self.latest.as_ref()?.percentile_name();
        let of_slo = (quantity == Sensor::LatencyAtSlo.into())
            .then(percentile)
            .flatten();
        of_slo.map_or_else(
            || quantity.info().title.to_owned(),
            |percentile| format!("Latency at {percentile}"),
        )
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
