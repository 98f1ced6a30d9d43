//! The live view in the terminal: the servers and their states, what arrives against what they can take, the estimated
//! power, and why.

mod plot;
mod servers;

use super::history::{STATES, number_of};
use super::journal::Start;
use super::news::{News, Newsroom};
use super::summary::percent;
use super::tick::Tick;
use headroom_console::Stop;
use headroom_console::terminal::{Scene, Stage};
use headroom_control::resize::EnergyTotals;
use headroom_units::PerSecond;
use plot::plot;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use servers::{draw_servers, style_of};
use std::collections::VecDeque;
use std::io;

/// Periods that the plots show.
const HISTORY: usize = 600;
/// News that are kept.
const NEWS: usize = 64;
/// Periods that wait where drawing is slow; the plots lack those beyond.
const WAITING: usize = 1_024;
/// A plot with fewer lines than this shows nothing.
const PLOT_LINES: u16 = 8;
/// The columns beside each other that a plot needs.
const PLOT_COLUMNS: u16 = 40;
/// Lines of reasons, with their frame: the least, and where there is room for them.
const WHY_LEAST: u16 = 5;
const WHY_LINES: u16 = 8;

/// The live view, on a thread of its own; dropped, it gives the terminal back.
#[derive(Debug)]
pub struct View(Stage<Box<Tick>>);

impl View {
    /// Opens the view; `q` and Ctrl-C raise `stop`.
    ///
    /// # Errors
    /// Where the terminal cannot be set up.
    pub fn open(start: &Start, stop: Stop) -> io::Result<Self> {
        Stage::open(Screen::new(start), WAITING, stop).map(Self)
    }

    /// Shows one period.
    pub fn tick(&self, tick: &Tick) {
        self.0.send(Box::new(tick.clone()));
    }
}

/// Values over time, the latest at the end.
type Values = VecDeque<(f64, f64)>;

/// Everything on the screen.
#[derive(Debug, Default)]
struct Screen {
    /// The controller, and what is in front of the servers.
    title: String,
    /// What a reader must know.
    notes: String,
    latest: Option<Box<Tick>>,
    arrivals: Values,
    capacity: Values,
    power_w: Values,
    always_on_w: Values,
    energy: Option<EnergyTotals>,
    newsroom: Newsroom,
    news: VecDeque<News>,
    attempts: f64,
    drops: f64,
}

impl Scene for Screen {
    type Message = Box<Tick>;

    fn take(&mut self, tick: Box<Tick>) {
        let at_s = tick.at.get();
        let put = |values: &mut Values, value: Option<f64>| {
            if values.len() == HISTORY {
                values.pop_front();
            }
            // An unknown value is a gap: nothing is drawn there.
            values.push_back((at_s, value.unwrap_or(f64::NAN)));
        };
        put(&mut self.arrivals, tick.arrival_rate.map(PerSecond::get));
        put(&mut self.capacity, tick.capacity());
        if let Some(now) = tick.energy {
            let before = self.energy.replace(now).unwrap_or_default();
            let power = now.power_since(&before, tick.length);
            put(&mut self.power_w, power.map(|(spent, _)| spent.get()));
            put(&mut self.always_on_w, power.map(|(_, always_on)| always_on.get()));
        }
        self.attempts += tick.attempts();
        self.drops += tick.drops();
        for news in self.newsroom.read(&tick) {
            if self.news.len() == NEWS {
                self.news.pop_front();
            }
            self.news.push_back(news);
        }
        self.latest = Some(tick);
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let Some(tick) = &self.latest else {
            let lines = vec![self.title(0.0), Line::raw("the first period is not over yet")];
            frame.render_widget(Paragraph::new(lines), frame.area());
            return;
        };
        let notes = u16::from(!self.notes.is_empty() && frame.area().height >= PLOT_LINES);
        let servers = u16::try_from(tick.servers.len()).unwrap_or(u16::MAX);
        let [head_lines, plot_lines, server_lines, why_lines] =
            share(frame.area().height, 3 + notes, servers.saturating_add(3));
        let [head, plots, table, why] = Layout::vertical([
            Constraint::Length(head_lines),
            Constraint::Length(plot_lines),
            Constraint::Length(server_lines),
            Constraint::Length(why_lines),
        ])
        .areas(frame.area());
        self.draw_head(frame, head, tick);
        self.draw_plots(frame, plots, tick);
        draw_servers(frame, table, &tick.servers);
        self.draw_why(frame, why);
    }
}

/// Lines for the head, the plots, the servers and the reasons, of so many. The servers have what they need while the others
/// have the least that they need; what is left over is the plots', or the reasons' where there is no room for plots.
fn share(lines: u16, head: u16, servers: u16) -> [u16; 4] {
    let head = head.min(lines);
    let rest = lines - head;
    let table = match rest {
        // A table needs its frame, its head and one server.
        0..4 => 0,
        4..12 => servers.min(rest),
        12..24 => servers.min(rest - WHY_LEAST),
        _ => servers.min(rest - WHY_LEAST - PLOT_LINES),
    };
    let spare = rest - table;
    let plots = match spare >= PLOT_LINES + WHY_LEAST {
        true => spare - WHY_LINES.min(spare - PLOT_LINES),
        false => 0,
    };
    [head, plots, table, spare - plots]
}

impl Screen {
    fn new(start: &Start) -> Self {
        let dry_run = start.dry_run.then(|| "dry run: nothing is done".to_owned());
        let notes: Vec<String> = dry_run.into_iter().chain(start.notes.iter().cloned()).collect();
        Self {
            title: format!("{} controller behind {}", start.controller, start.balancer),
            notes: notes.join("; "),
            ..Self::default()
        }
    }

    fn title(&self, at_s: f64) -> Line<'_> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        Line::from(vec![
            Span::styled("headroom resize  ", bold),
            Span::raw(format!("{at_s:.0} s  (q: stop)  ")),
            Span::styled(self.title.as_str(), bold),
        ])
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, tick: &Tick) {
        let dim = Style::new().fg(Color::DarkGray);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![self.title(tick.at.get()), self.counts(tick)];
        let reason = &tick.resize.reason;
        let mut why = vec![
            Span::styled(format!("{} wanted  ", tick.resize.servers), bold),
            Span::raw(format!("{}: {}", reason.rule, reason.text)),
        ];
        if let Some(trouble) = &tick.balancer.trouble {
            let alarm = Style::new().fg(Color::Red);
            why.push(Span::styled(format!("  [balancer: {trouble}]"), alarm));
        }
        lines.push(Line::from(why));
        lines.push(Line::styled(self.notes.as_str(), dim));
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// The cluster in one line: servers by state, load, drops, power.
    fn counts<'a>(&self, tick: &Tick) -> Line<'a> {
        let mut spans = Vec::new();
        for (number, name) in STATES.iter().enumerate().rev() {
            let in_it = tick.servers.iter().filter(|one| number_of(one.state) == number);
            if let (count @ 1.., Some(one)) = (in_it.clone().count(), in_it.clone().next()) {
                spans.push(Span::styled(format!("{count} {name}  "), style_of(one.state)));
            }
        }
        let number = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.1}"));
        let (arrivals, capacity) = (tick.arrival_rate.map(PerSecond::get), tick.capacity());
        spans.push(Span::raw(format!(
            "{}/s of {}/s",
            number(arrivals),
            number(capacity)
        )));
        if let Some((arrivals, capacity)) = arrivals.zip(capacity).filter(|both| both.1 > 0.0) {
            spans.push(Span::raw(format!(" ({:.0} %)", arrivals / capacity * 100.0)));
        }
        if self.attempts > 0.0 {
            let ratio = self.drops / self.attempts * 100.0;
            let style = Style::new().fg(if self.drops > 0.0 {
                Color::Yellow
            } else {
                Color::Reset
            });
            spans.push(Span::styled(format!("  {ratio:.3} % dropped so far"), style));
        }
        if let Some(energy) = self.energy {
            let saved = percent(energy.saving().unwrap_or_default());
            spans.push(Span::raw(format!(
                "  {:.0} J, {:.0} J always on: {saved} % saved (estimated)",
                energy.spent.get(),
                energy.always_on.get()
            )));
        }
        Line::from(spans)
    }

    fn draw_plots(&self, frame: &mut Frame<'_>, area: Rect, tick: &Tick) {
        if area.height < PLOT_LINES {
            return;
        }
        let load = [
            ("capacity".to_owned(), Color::Green, &self.capacity),
            ("arrivals".to_owned(), Color::White, &self.arrivals),
        ];
        if tick.energy.is_none() || area.width < 2 * PLOT_COLUMNS {
            return plot(frame, area, "each second", &load);
        }
        let [left, right] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(area);
        plot(frame, left, "each second", &load);
        let with_latest = |name: &str, values: &Values| match values.back() {
            Some((_, watts)) if watts.is_finite() => format!("{name} {watts:.0}"),
            _ => name.to_owned(),
        };
        let power = [
            (with_latest("now", &self.power_w), Color::Yellow, &self.power_w),
            (
                with_latest("always on", &self.always_on_w),
                Color::DarkGray,
                &self.always_on_w,
            ),
        ];
        plot(frame, right, "estimated watts", &power);
    }

    fn draw_why(&self, frame: &mut Frame<'_>, area: Rect) {
        let reported = self.news.iter().rev().map(|news| {
            let why = match news.why.as_str() {
                "" => String::new(),
                why => format!(": {why}"),
            };
            Line::raw(format!("{:7.1} s  {}{why}", news.at_s, news.what))
        });
        let room = usize::from(area.height);
        if area.height < 3 {
            frame.render_widget(Paragraph::new(reported.take(room).collect::<Vec<_>>()), area);
            return;
        }
        let block = Block::bordered().title(" what happened and why, newest first ");
        let lines: Vec<Line<'_>> = reported.take(room).collect();
        frame.render_widget(
            Paragraph::new(lines).block(block).wrap(Wrap { trim: false }),
            area,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::tick::tests::tick;
    use headroom_control::resize::{Cause, PowerState};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(servers: usize) -> Screen {
        let mut screen = Screen::new(&Start {
            unix_s: 0.0,
            controller: "dynamic".to_owned(),
            balancer: "gateways g1".to_owned(),
            demand: String::new(),
            period_s: 1.0,
            dry_run: true,
            notes: vec!["web2: the queue cannot be measured".to_owned()],
            version: String::new(),
        });
        for period in 0..700 {
            let mut reported = tick(period, 1 + usize::from(period > 300));
            let spare = reported.servers[1].clone();
            reported.servers.resize(servers, spare);
            for (at, one) in reported.servers.iter_mut().enumerate().skip(1) {
                one.name = format!("web{}", at + 1);
            }
            if let Some(last) = reported.servers.last_mut().filter(|_| period > 400) {
                last.before = if period == 401 {
                    PowerState::Booting
                } else {
                    PowerState::Failed(Cause::Boot)
                };
                last.state = PowerState::Failed(Cause::Boot);
                last.trouble = vec!["no answer within 6 s".to_owned()];
            }
            // A time in which nothing was known.
            if (500..520).contains(&period) {
                reported.arrival_rate = None;
            }
            screen.take(Box::new(reported));
        }
        screen
    }

    fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    #[test]
    fn a_wide_screen_shows_servers_load_power_and_reasons() {
        let text = drawn(&screen(2), 140, 40).join("\n");
        for wanted in [
            "headroom resize  700 s  (q: stop)  dynamic controller behind gateways g1",
            "1 failed  1 serving  90.0/s of 100.0/s (90 %)  0.556 % dropped so far  45500 J, 87500 J always on: 48.0 % saved (estimated)",
            "2 wanted  grow: 90.0/s of 100.0/s",
            "dry run: nothing is done; web2: the queue cannot be measured",
            "estimated watts:  now 65  always on 125",
            "each second:  capacity  arrivals",
            "web1         serving             at least 100.0     2.5       0.56          4        90.0        3",
            "web2         failed (boot)                    -       -",
            "no answer within 6 s",
            "402.0 s  web2: booting \u{2192} failed (boot): no answer within 6 s",
            "302.0 s  2 servers wanted, 1 before: grow: 90.0/s of 100.0/s",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
    }

    #[test]
    fn where_not_all_servers_fit_those_that_need_eyes_come_first() {
        let lines = drawn(&screen(256), 100, 40);
        let at = |wanted: &str| lines.iter().position(|line| line.contains(wanted));
        let text = lines.join("\n");
        assert!(at("web256").unwrap() < at("web1 ").unwrap(), "{text}");
        let names = lines
            .iter()
            .filter(|line| line.starts_with("\u{2502}web"))
            .count();
        let reported = format!("servers: {names} of 256");
        assert!(text.contains(&reported) && names > 5, "{names}\n{text}");
        assert!(at("each second").is_some() && at("what happened").is_some());
    }

    #[test]
    fn every_size_shows_what_it_has_room_for() {
        for servers in [2, 7, 256] {
            let screen = screen(servers);
            for width in [1, 2, 7, 20, 39, 60, 80, 200] {
                for height in 1..60 {
                    let lines = drawn(&screen, width, height);
                    if width < 60 {
                        continue;
                    }
                    assert!(
                        lines[0].starts_with("headroom resize"),
                        "{width}x{height}: {lines:?}"
                    );
                    let text = lines.join("\n");
                    let plotted = text.contains("each second");
                    assert_eq!(
                        text.contains("\u{2502}web"),
                        height >= 7,
                        "{width}x{height}\n{text}"
                    );
                    assert!(plotted || height < 28 || servers == 7, "{width}x{height}\n{text}");
                }
            }
        }
        let blank = drawn(&Screen::default(), 60, 5).join("\n");
        assert!(blank.contains("the first period is not over yet"), "{blank}");
    }
}
