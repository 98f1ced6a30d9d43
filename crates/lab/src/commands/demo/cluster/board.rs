//! Both clusters beside each other while they run: the live view, or a line now and then.

use super::mains::Drawn;
use headroom_console::terminal::{Scene, Stage};
use headroom_console::{Stop, say};
use headroom_runtime::live::admin::Status;
use headroom_units::{Joules, Watts};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Wrap};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Periods that are drawn.
const HISTORY: usize = 600;
/// Messages that wait where drawing is slow.
const WAITING: usize = 1024;
/// A line every so many looks, where there is no view.
const LINE_EVERY: u64 = 20;
/// Lines of the title, and of what is said of a cluster: four, and as many for the reason within the frame.
const HEAD_LINES: u16 = 2;
const CLUSTER_LINES: u16 = 10;
const COLOURS: [Color; 2] = [Color::Yellow, Color::Green];

/// One cluster, as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The cluster.
    pub cluster: String,
    /// Its law.
    pub law: String,
    /// Servers on, of so many.
    pub servers: (usize, usize),
    /// The highest frequency that is allowed, hertz; `None` where nothing limits it.
    pub limit: Option<f64>,
    /// What it draws at the plug.
    pub power: Watts,
    /// What it drew in this run.
    pub energy: Joules,
    /// Latency at the SLO's percentile in the last period, milliseconds.
    pub latency_ms: Option<f64>,
    /// Why the law does what it does.
    pub reason: String,
}

impl Row {
    /// What a run reports of itself, and its meter.
    pub fn of(cluster: &str, law: &str, servers: usize, status: &Status, drawn: &Mutex<Drawn>) -> Self {
        let drawn = *drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let period: serde_json::Value = serde_json::from_str(&status.last().2).unwrap_or_default();
        let observation = &period["observation"];
        let reasons = period["decided"]["reasons"].as_array();
        Self {
            cluster: cluster.to_owned(),
            law: law.to_owned(),
            servers: (drawn.servers_on, servers),
            limit: observation["in_force"]["frequency"].as_f64(),
            power: drawn.power,
            energy: drawn.energy(),
            latency_ms: observation["traffic"]["latency"]["at_slo"]
                .as_f64()
                .map(|seconds| seconds * 1e3),
            reason: reasons
                .and_then(|reasons| reasons.last()?["text"].as_str())
                .unwrap_or_default()
                .to_owned(),
        }
    }

    fn frequency(&self) -> String {
        self.limit
            .map_or("full speed".to_owned(), |hertz| format!("{:.1} GHz", hertz / 1e9))
    }

    fn latency(&self) -> String {
        self.latency_ms
            .map_or("- ms".to_owned(), |latency| format!("{latency:.0} ms"))
    }

    fn line(&self) -> String {
        format!(
            "{}: {} of {} servers on, {}, {:.0} W, {}",
            self.law,
            self.servers.0,
            self.servers.1,
            self.frequency(),
            self.power.get(),
            self.latency()
        )
    }
}

/// How much less the second drew than the first, in percent; nothing before anything was drawn.
pub fn saved(rows: &[Row; 2]) -> Option<f64> {
    let [reference, other] = rows.each_ref().map(|row| row.energy.get());
    (reference > 0.0).then(|| (1.0 - other / reference) * 100.0)
}

/// Both clusters at one time: the reference law's first.
#[derive(Clone, Debug)]
pub struct Look {
    /// Which day of how many.
    pub day: (usize, usize),
    /// Seconds of it.
    pub at: f64,
    /// Its length in seconds.
    pub length: f64,
    /// The percentile and the target of the SLO, in percent and milliseconds.
    pub slo: (f64, f64),
    /// The clusters.
    pub rows: [Row; 2],
}

/// Where looks go.
pub struct Board {
    view: Option<Stage<Look>>,
    looks: u64,
}

impl Board {
    /// The live view where one is wanted.
    ///
    /// # Errors
    /// Where the terminal cannot be set up.
    pub fn open(stop: Stop) -> io::Result<Stage<Look>> {
        Stage::open(Screen::default(), WAITING, stop)
    }

    /// With that view, or lines.
    pub const fn new(view: Option<Stage<Look>>) -> Self {
        Self { view, looks: 0 }
    }

    /// Shows both.
    pub fn show(&mut self, look: Look) {
        self.looks += 1;
        match &self.view {
            Some(view) => view.send(look),
            None if self.looks.is_multiple_of(LINE_EVERY) => say::note!("{}", line(&look)),
            None => {}
        }
    }
}

fn line(look: &Look) -> String {
    let [first, second] = look.rows.each_ref().map(Row::line);
    let saved = saved(&look.rows).map_or(String::new(), |saved| format!(" | saved so far: {saved:.1} %"));
    format!(
        "day {} of {}, {:>3.0} s: {first} | {second}{saved}",
        look.day.0, look.day.1, look.at
    )
}

#[derive(Debug, Default)]
struct Screen {
    look: Option<Look>,
    watts: [VecDeque<(f64, f64)>; 2],
    latencies: [VecDeque<(f64, f64)>; 2],
}

impl Scene for Screen {
    type Message = Look;

    fn take(&mut self, look: Look) {
        if self.look.as_ref().is_some_and(|before| before.day != look.day) {
            *self = Self::default();
        }
        for (at, row) in look.rows.iter().enumerate() {
            let points = [
                (&mut self.watts[at], Some(row.power.get())),
                (&mut self.latencies[at], row.latency_ms),
            ];
            for (series, value) in points {
                if series.len() == HISTORY {
                    series.pop_front();
                }
                series.extend(value.map(|value| (look.at, value)));
            }
        }
        self.look = Some(look);
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let Some(look) = &self.look else { return };
        let [head, clusters, plots] = Layout::vertical([
            Constraint::Length(HEAD_LINES),
            Constraint::Length(CLUSTER_LINES),
            Constraint::Min(6),
        ])
        .areas(frame.area());
        let saved = saved(&look.rows).map_or(String::new(), |saved| format!("energy saved: {saved:.1} %   "));
        let title = format!(
            "Two clusters, the same requests: day {} of {}, {:.0} of {:.0} s",
            look.day.0, look.day.1, look.at, look.length
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let lines = vec![
            Line::styled(title, bold),
            Line::styled(format!("{saved}(q ends it)"), bold),
        ];
        frame.render_widget(Paragraph::new(lines), head);
        let columns: [Rect; 2] = Layout::horizontal([Constraint::Fill(1); 2]).areas(clusters);
        for ((row, area), colour) in look.rows.iter().zip(columns).zip(COLOURS) {
            let late = row.latency_ms.is_some_and(|latency| latency > look.slo.1);
            let latency = Line::styled(
                format!("P{:.0} {} of {:.0} ms", look.slo.0, row.latency(), look.slo.1),
                match late {
                    true => Style::new().fg(Color::Red),
                    false => Style::new(),
                },
            );
            let (on, all) = row.servers;
            let lines = vec![
                Line::from(format!(
                    "servers   {}{}  {on} of {all} on",
                    "■".repeat(on),
                    "□".repeat(all.saturating_sub(on))
                )),
                Line::from(format!("frequency {}", row.frequency())),
                Line::from(format!(
                    "power     {:.0} W, {:.0} J so far",
                    row.power.get(),
                    row.energy.get()
                )),
                latency,
                Line::from(row.reason.clone()),
            ];
            let title = format!(" {} (cluster {}) ", row.law, row.cluster);
            let block = Block::bordered()
                .title(title)
                .border_style(Style::new().fg(colour));
            // A reason is as long as it is: it takes what is left of the lines.
            let text = Paragraph::new(lines).wrap(Wrap { trim: true }).block(block);
            frame.render_widget(text, area);
        }
        let [power, latency] = Layout::horizontal([Constraint::Fill(1); 2]).areas(plots);
        let names = look.rows.each_ref().map(|row| row.law.clone());
        plot(
            frame,
            power,
            ("watts at the plug", &names),
            &self.watts,
            look.length,
            None,
        );
        let target = Some(look.slo.1);
        let title = ("latency at the SLO's percentile, ms", &names);
        plot(frame, latency, title, &self.latencies, look.length, target);
    }
}

fn plot(
    frame: &mut Frame<'_>,
    area: Rect,
    (title, names): (&str, &[String; 2]),
    series: &[VecDeque<(f64, f64)>; 2],
    length: f64,
    bound: Option<f64>,
) {
    let points: Vec<Vec<(f64, f64)>> = series
        .iter()
        .map(|series| series.iter().copied().collect())
        .collect();
    let most = points.iter().flatten().map(|(_, value)| *value);
    let most = most.chain(bound).fold(1.0, f64::max) * 1.1;
    let across = bound.map(|bound| [(0.0, bound), (length, bound)]);
    let mut datasets: Vec<Dataset<'_>> = points
        .iter()
        .zip(names)
        .zip(COLOURS)
        .map(|((points, name), colour)| {
            Dataset::default()
                .name(name.as_str())
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(colour))
                .data(points)
        })
        .collect();
    if let Some(across) = &across {
        let target = Dataset::default()
            .name("target")
            .graph_type(GraphType::Line)
            .style(Style::new().fg(Color::Red))
            .data(across);
        datasets.push(target);
    }
    let chart = Chart::new(datasets)
        .block(Block::bordered().title(format!(" {title} ")))
        .x_axis(
            Axis::default()
                .bounds([0.0, length])
                .labels(["0".to_owned(), format!("{length:.0} s")]),
        )
        .y_axis(
            Axis::default()
                .bounds([0.0, most])
                .labels(["0".to_owned(), format!("{most:.0}")]),
        );
    frame.render_widget(chart, area);
}

/// What a run reports, for whoever shows it.
pub type Shown = (Arc<Status>, Arc<Mutex<Drawn>>);

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::Reason;
    use headroom_runtime::live::Tick;
    use headroom_units::{Lever, Setting};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    fn look() -> Look {
        let row = |law: &str, on: usize, joules: f64, latency_ms| Row {
            cluster: "left".to_owned(),
            law: law.to_owned(),
            servers: (on, 4),
            limit: (on < 4).then_some(1.2e9),
            power: Watts::new(joules / 10.0),
            energy: Joules::new(joules),
            latency_ms,
            reason: String::new(),
        };
        Look {
            day: (1, 2),
            at: 10.0,
            length: 90.0,
            slo: (95.0, 400.0),
            rows: [
                row("fixed", 4, 2000.0, Some(90.0)),
                row("joint", 2, 1200.0, Some(450.0)),
            ],
        }
    }

    #[test]
    fn a_row_has_what_the_status_of_a_run_tells() {
        let status = Status::new("joint".to_owned(), Duration::from_secs(1));
        let mut tick = Tick::default();
        tick.observation.in_force = Setting::default().with(Lever::Frequency, Some(1.2e9));
        tick.decision.reasons = vec![
            Reason::new("spare", "one server more".to_owned(), &[]),
            Reason::new("least", "3 servers at 62 % draw least".to_owned(), &[]),
        ];
        status.tick(&tick);
        let row = Row::of("left", "joint", 4, &status, &Mutex::default());
        assert_eq!(row.reason, "3 servers at 62 % draw least");
        assert_eq!((row.limit, row.servers), (Some(1.2e9), (0, 4)));
    }

    #[test]
    fn a_line_has_both_clusters_and_what_is_saved() {
        assert_eq!(
            line(&look()),
            "day 1 of 2,  10 s: fixed: 4 of 4 servers on, full speed, 200 W, 90 ms | joint: 2 of 4 servers on, 1.2 GHz, \
             120 W, 450 ms | saved so far: 40.0 %"
        );
        assert_eq!(saved(&[Row::default(), Row::default()]), None);
    }

    #[test]
    fn the_screen_shows_both_and_begins_anew_with_a_day() {
        let mut screen = Screen::default();
        screen.take(look());
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let text = terminal.backend().to_string();
        for said in [
            "energy saved: 40.0 %",
            "fixed (cluster left)",
            "■■□□  2 of 4 on",
            "P95 450 ms of 400 ms",
            "watts at the plug",
        ] {
            assert!(text.contains(said), "{said:?} is not in\n{text}");
        }
        // On the smallest usual terminal nothing is cut off.
        let reason = "412.3/s ± 25.1 expected: 3 servers with 100 % of their cores at 62 % of the frequency are late with 0.41 %, \
                      118.2 W";
        let mut long = look();
        long.rows[1].reason = reason.to_owned();
        (long.rows[1].energy, long.rows[0].energy) = (Joules::new(21_200.0), Joules::new(38_400.0));
        screen.take(long);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let text = terminal.backend().to_string();
        for said in reason
            .split(' ')
            .chain(["(q ends it)", "21200 J so far", "joint (cluster left)"])
        {
            assert!(text.contains(said), "{said:?} is not in\n{text}");
        }
        screen.take(Look {
            day: (2, 2),
            ..look()
        });
        assert_eq!(screen.watts[0].len(), 1);
    }
}
