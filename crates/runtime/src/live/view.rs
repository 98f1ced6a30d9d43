//! The live view in the terminal: latency against the target, each lever against what is used of it, the parts of the run, and the
//! last reasons.

use super::news::of_class;
use super::tick::Tick;
use headroom_console::Stop;
use headroom_console::say::{self, HeldLine};
use headroom_console::terminal::{Scene, Stage};
use headroom_record::WARM_UP_PERIODS;
use headroom_units::{CapacityKind, Fact, Lever, Part, Quantity, Role, Seconds, Sensor, Source};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Wrap};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

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
/// A row narrower than this has its quantities in short words.
const NARROW: usize = 110;
/// For how long the newest line of the log, which nobody sees while the view has the terminal, stands in it; and the newest warning.
const LOG_SHOWN: Duration = Duration::from_secs(20);
const WARNING_SHOWN: Duration = Duration::from_secs(60);
/// Rows of the log at most, and of how many rows of the screen each is one.
const LOG_ROWS: usize = 4;
const SCREEN_A_LOG_ROW: usize = 6;
/// Stands where a text was cut.
const CUT: char = '…';
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
    /// Of the periods that are held against the target.
    over: u64,
    periods: u64,
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
        self.over += u64::from(tick.is_over() && self.periods >= WARM_UP_PERIODS);
        self.periods += 1;
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

    /// The lines of the newest reasons, wrapped, and how many reasons have no room; a reason that alone has none ends in a sign.
    fn newest_reasons(&self, width: usize, height: usize) -> (Vec<Line<'_>>, usize) {
        let mut lines: Vec<String> = Vec::new();
        for (shown, reason) in self.reasons.iter().rev().enumerate() {
            let mut wrapped = wrapped(reason, width);
            if lines.len() + wrapped.len() > height {
                if shown > 0 {
                    return (
                        lines.into_iter().map(Line::from).collect(),
                        self.reasons.len() - shown,
                    );
                }
                wrapped.truncate(height);
                if let Some(last) = wrapped.last_mut() {
                    *last = cut(&format!("{last}{CUT}"), width);
                }
            }
            lines.extend(wrapped);
        }
        (lines.into_iter().map(Line::from).collect(), 0)
    }

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
    fn charts(&self) -> Vec<Vec<(Quantity, &'static str, Color)>> {
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

    /// The run in a line, and below it what the log says now; else the notes that fit into a second one whole, others are in the log and in
    /// the report.
    fn first_lines(&self, area: Rect, log: &[HeldLine]) -> Vec<Line<'static>> {
        let width = usize::from(area.width);
        let Some(heading) = &self.heading else {
            return Vec::new();
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let over = Style::new().fg(if self.over > 0 { Color::Red } else { Color::Green });
        let judged = self.periods.saturating_sub(WARM_UP_PERIODS);
        let first = |is_short: bool| {
            let name = if is_short { "" } else { "headroom  " };
            let mut first = vec![Span::styled(format!("{name}law {}  ", heading.law), bold)];
            if self.target().is_some() {
                let of = match is_short {
                    true => format!("{}/{judged} late  ", self.over),
                    false => format!("{} of {judged} periods over the target  ", self.over),
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

    fn progress(&self, frame: &mut Frame<'_>, area: Rect) {
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

    fn chart(
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

    /// A part of the run in a line of this width: its state, what is wrong with it, and its values; what has no room ends in a sign.
    fn row<'a>(&self, part: &'a Part, width: usize) -> Line<'a> {
        let state = part.state.as_deref().unwrap_or_default();
        let colour = if part.trouble.is_empty() {
            Color::Green
        } else {
            Color::Red
        };
        let (name, state) = (format!("{:<14} ", part.name), format!("{state:<14} "));
        let room = width.saturating_sub(name.chars().count() + state.chars().count());
        let mut trouble = part.trouble.join("; ");
        if !trouble.is_empty() {
            trouble = cut(&format!("{trouble}  "), room);
        }
        let values = match part.role {
            Role::Class => of_class(part, "; all "),
            _ => {
                // An estimate is no number alone.
                let capacity = match part.facts.get("capacity") {
                    Some(Fact::Words(words)) if self.is_estimate() => Some(words.clone()),
                    _ => None,
                };
                let said = |quantity: &Quantity| capacity.is_some() && *quantity == Sensor::Capacity.into();
                let values = part.values.iter().filter(|(quantity, _)| !said(quantity));
                let values = values.map(|(quantity, value)| {
                    let info = quantity.info();
                    // A line has room for few: of levers the letters by which laws and docs call them.
                    let name = match quantity {
                        Quantity::Lever(lever) if !lever.in_short().is_empty() => lever.in_short().to_owned(),
                        Quantity::Sensor(sensor) if width < NARROW && in_short(*sensor).is_some() => {
                            in_short(*sensor).unwrap_or_default().to_owned()
                        }
                        _ => self.name(*quantity),
                    };
                    let kind = CapacityKind::of(part).filter(|_| *quantity == Sensor::Capacity.into());
                    let kind = kind.map_or("", |kind| match width < NARROW {
                        true => kind.sign(),
                        false => kind.words(),
                    });
                    format!("{name} {kind}{}", info.read(*value))
                });
                let capacity = capacity.clone();
                capacity.into_iter().chain(values).collect::<Vec<_>>().join("  ")
            }
        };
        let values = cut(&values, room - trouble.chars().count());
        Line::from(vec![
            Span::styled(name, Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(state, Style::new().fg(colour)),
            Span::styled(trouble, Style::new().fg(Color::Red)),
            Span::raw(values),
        ])
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
        let now = now.map_or("-".to_owned(), |(_, now)| info.read(now * info.shown.1));
        let now = format!(": now {now}");
        let title = series.first().map(|(quantity, ..)| self.name(*quantity));
        format!("{}{source}{now}", title.unwrap_or_default())
    }
}

/// As many of the parts as there is room for: those with which something is wrong before others, in the order of the parts.
fn foremost(parts: &[Part], rows: usize) -> Vec<&Part> {
    let well = |part: &Part| part.trouble.is_empty();
    let troubled = parts.iter().filter(|part| !well(part)).count().min(rows);
    let (mut bad, mut good) = (troubled, rows - troubled);
    let mut has_room = |part: &&Part| {
        let left = if well(part) { &mut good } else { &mut bad };
        let is_left = *left > 0;
        *left -= usize::from(is_left);
        is_left
    };
    parts.iter().filter(|part| has_room(part)).collect()
}

/// What a quantity of a server is called where there is little room.
const fn in_short(sensor: Sensor) -> Option<&'static str> {
    Some(match sensor {
        Sensor::ArrivalRate => "arrive",
        Sensor::ServiceRate => "served",
        Sensor::InFlight => "in flight",
        Sensor::Capacity => "takes",
        Sensor::QueueMean => "queue",
        Sensor::DropRatio => "dropped",
        Sensor::FailureRate => "fail",
        _ => return None,
    })
}

/// A text in lines of at most so many characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width).subsequent_indent("  ");
    let lines = textwrap::wrap(text, options);
    lines.iter().map(|line| cut(line, width)).collect()
}

/// Lines of the log in at most so many rows, the last line in one at least; what has no room ends in a sign.
fn log_rows(log: &[HeldLine], width: usize, rows: usize) -> Vec<String> {
    let mut all = Vec::new();
    for (at, line) in log.iter().enumerate() {
        let left = rows.saturating_sub(all.len());
        let room = left.saturating_sub(log.len() - 1 - at);
        let mut lines = wrapped(&line.text, width);
        if lines.len() > room {
            lines.truncate(room);
            if let Some(last) = lines.last_mut() {
                *last = cut(&format!("{last}{CUT}"), width);
            }
        }
        all.extend(lines);
    }
    all
}

/// Those of the notes that have room beside each other in a line of this width, each of them whole.
fn fitting(notes: &[String], width: usize) -> String {
    let with = |line: String, note: &String| {
        let longer = match line.is_empty() {
            true => note.clone(),
            false => format!("{line}; {note}"),
        };
        if longer.chars().count() <= width {
            longer
        } else {
            line
        }
    };
    notes.iter().fold(String::new(), with)
}

/// At most so many characters of a text; one that is longer ends in a sign.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain([CUT]).collect()
}

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

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
