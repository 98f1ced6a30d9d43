//! The live view in the terminal.

use super::Run;
use super::history::History;
use super::seen::{Row, Seen};
use super::tables;
use super::way::{name, number};
use headroom_console::Stop;
use headroom_console::terminal::{Scene, Stage};
use headroom_units::{PerSecond, Ratio};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Row as Cells, Table, Wrap};
use std::io;

/// Samples that a plot shows.
const SHOWN: usize = 300;
/// Colours of the ways, in their order.
const COLOURS: [Color; 8] = [
    Color::Cyan,
    Color::Green,
    Color::Blue,
    Color::LightGreen,
    Color::Yellow,
    Color::Magenta,
    Color::LightRed,
    Color::White,
];

/// The live view, on a thread of its own; dropped, it gives the terminal back.
#[derive(Debug)]
pub struct View(Stage<Picture>);

/// What is on the screen.
#[derive(Clone, Debug, Default)]
struct Picture {
    heading: String,
    notes: Vec<String>,
    rows: Vec<Row>,
    estimates: Vec<Vec<String>>,
    methods: Vec<Vec<String>>,
    /// A name and the points of each way.
    ways: Vec<(String, Vec<(f64, f64)>)>,
}

impl View {
    /// Opens the view; `q` and Ctrl-C raise `stop`.
    ///
    /// # Errors
    /// Where the terminal cannot be set up.
    pub fn open(run: &Run<'_>, stop: Stop) -> io::Result<Self> {
        let methods: Vec<&str> = run.methods.iter().map(|method| name(*method)).collect();
        let mut notes = run.remarks.clone();
        let passed_over = run.passed_over.iter();
        notes.extend(passed_over.map(|one| format!("{} cannot be used: {}", name(one.method), one.reason)));
        let blank = Picture {
            heading: format!("headroom  capacity of {}  by {}", run.place(), methods.join(", ")),
            notes,
            ..Picture::default()
        };
        // One picture waits at most: the newest are all alike.
        Stage::open(blank, 1, stop).map(Self)
    }

    /// Shows what is known now.
    pub fn show(&self, history: &History) {
        let tail = |rows: &[Row]| rows[rows.len().saturating_sub(SHOWN)..].to_vec();
        let ways = history.ways.keys().map(|way| {
            let rows = match way.method() {
                Some(method) => history.methods.get(&method),
                None => history.methods.values().next(),
            };
            let points = rows.map(|kept| tail(&kept.rows)).unwrap_or_default();
            let points = points.iter().filter_map(|row| {
                let found = row.estimates.iter().find(|(of, _)| of == way)?;
                Some((row.at.get(), number(&found.1)?))
            });
            (way.label(), points.collect())
        });
        let picture = Picture {
            rows: history
                .methods
                .values()
                .next()
                .map(|kept| tail(&kept.rows))
                .unwrap_or_default(),
            estimates: tables::estimates(history),
            methods: tables::methods(history),
            ways: ways.collect(),
            ..Picture::default()
        };
        self.0.send(picture);
    }
}

impl Picture {
    fn points(&self, of: impl Fn(&Seen) -> Option<f64>) -> Vec<(f64, f64)> {
        let value = |row: &Row| Some((row.at.get(), of(row.seen.as_ref().ok()?)?));
        self.rows.iter().filter_map(value).collect()
    }
}

impl Scene for Picture {
    type Message = Self;

    /// Heading and notes stay.
    fn take(&mut self, new: Self) {
        *self = Self {
            heading: std::mem::take(&mut self.heading),
            notes: std::mem::take(&mut self.notes),
            ..new
        };
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [head, top, ways, tables] = Layout::vertical([
            Constraint::Length(3),
            Constraint::Fill(2),
            Constraint::Fill(3),
            Constraint::Length((self.estimates.len() + self.methods.len() + 5) as u16),
        ])
        .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let lines = vec![
            Line::styled(format!("{}  (q: stop)", self.heading), bold),
            Line::styled(self.notes.join("; "), Style::new().fg(Color::DarkGray)),
        ];
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), head);

        let [rates, queue, drops] = Layout::horizontal([Constraint::Fill(1); 3]).areas(top);
        chart(
            frame,
            rates,
            "connections/s",
            &[
                (
                    "arrivals",
                    Color::White,
                    self.points(|seen| seen.arrival_rate.map(PerSecond::get)),
                ),
                (
                    "served",
                    Color::Green,
                    self.points(|seen| seen.service_rate.map(PerSecond::get)),
                ),
            ],
        );
        chart(
            frame,
            queue,
            "accept queue",
            &[
                (
                    "places",
                    Color::Red,
                    self.points(|seen| seen.places.map(|places| places as f64)),
                ),
                ("threshold", Color::Yellow, self.points(|seen| seen.threshold)),
                ("mean", Color::Cyan, self.points(|seen| seen.queue_mean)),
            ],
        );
        let dropped = self.points(|seen| seen.drop_ratio.map(Ratio::as_percent));
        chart(
            frame,
            drops,
            "dropped, % of attempts",
            &[("dropped", Color::Red, dropped)],
        );
        let series: Vec<Series<'_>> = self
            .ways
            .iter()
            .zip(COLOURS.iter().cycle())
            .map(|((name, points), colour)| (name.as_str(), *colour, points.clone()))
            .collect();
        chart(frame, ways, "capacity, connections/s", &series);

        let [estimates, methods] = Layout::vertical([
            Constraint::Length(self.estimates.len() as u16 + 2),
            Constraint::Fill(1),
        ])
        .areas(tables);
        table(frame, estimates, &tables::ESTIMATES, &self.estimates);
        table(frame, methods, &tables::METHODS, &self.methods);
    }
}

/// A name, a colour and the values over time.
type Series<'a> = (&'a str, Color, Vec<(f64, f64)>);

fn chart(frame: &mut Frame<'_>, area: Rect, title: &str, series: &[Series<'_>]) {
    let values = || series.iter().flat_map(|one| one.2.iter());
    let first = values()
        .map(|(at, _)| *at)
        .fold(f64::INFINITY, f64::min)
        .min(1e18);
    let last = values().map(|(at, _)| *at).fold(first + 1.0, f64::max);
    // A CPU-based estimate of an idle server would press all others to the foot.
    let mut sorted: Vec<f64> = values().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let most = sorted.last().copied().unwrap_or(0.0);
    let usual = sorted.get(sorted.len() * 3 / 4).copied().unwrap_or(0.0);
    let top = if usual > 0.0 { most.min(4.0 * usual) } else { most }.max(1e-3) * 1.1;
    let sets: Vec<Dataset<'_>> = series
        .iter()
        .map(|(name, colour, points)| {
            Dataset::default()
                .name(*name)
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(*colour))
                .data(points)
        })
        .collect();
    let label = |value: f64| match top < 20.0 {
        true => format!("{value:.1}"),
        false => format!("{value:.0}"),
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

fn table(frame: &mut Frame<'_>, area: Rect, head: &[&str], rows: &[Vec<String>]) {
    let cells = rows.iter().map(|row| Cells::new(row.clone()));
    let widths: Vec<Constraint> = head.iter().map(|_| Constraint::Fill(1)).collect();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(cells, widths).header(Cells::new(head.to_vec()).style(bold));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::capacity::{Capacity, Estimate};
    use headroom_node::queue::QueueMethod;
    use headroom_units::Seconds;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn a_picture_shows_the_estimates_and_an_empty_one_draws_too() {
        let mut history = History::default();
        for at in 0..5u32 {
            let estimate = Estimate {
                capacity: Capacity::Exact(PerSecond::new(595.0)),
                reason: headroom_control::Reason::new("kept", String::new(), &[]),
            };
            history.push(Row {
                at: Seconds::new(f64::from(at)),
                method: QueueMethod::Ebpf,
                interval: None,
                seen: Ok(Seen {
                    queue_mean: Some(3.0),
                    places: Some(65),
                    ..Seen::default()
                }),
                estimates: vec![(super::super::way::Way::Published(QueueMethod::Ebpf), estimate)],
            });
        }
        let mut terminal = Terminal::new(TestBackend::new(160, 50)).unwrap();
        terminal.draw(|frame| Picture::default().draw(frame)).unwrap();
        let picture = Picture {
            heading: "capacity of port 80".to_owned(),
            estimates: tables::estimates(&history),
            methods: tables::methods(&history),
            rows: history.methods[&QueueMethod::Ebpf].rows.clone(),
            ..Picture::default()
        };
        terminal.draw(|frame| picture.draw(frame)).unwrap();
        let text: String = terminal
            .backend()
            .buffer()
            .content
            .iter()
            .map(|cell| cell.symbol())
            .collect();
        for wanted in [
            "capacity of port 80",
            "queue, published",
            "595.0",
            "accept queue",
            "eBPF",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
