//! The servers as a table: as many as there is room for.

use crate::resize::tick::ServerTick;
use headroom_control::capacity::Capacity;
use headroom_control::resize::PowerState;
use headroom_units::Ratio;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row, Table};

/// What is wrong with a server needs so many columns.
const TROUBLE_COLUMNS: u16 = 20;

/// A server's place where not all can be shown: what needs eyes first.
fn urgency(server: &ServerTick) -> u8 {
    match server.state {
        PowerState::Failed(_) => 0,
        _ if !server.trouble.is_empty() => 1,
        PowerState::Booting | PowerState::Warming | PowerState::Draining | PowerState::Stopping => 2,
        PowerState::Serving => 3,
        PowerState::Off => 4,
    }
}

/// How a state looks.
pub(super) fn style_of(state: PowerState) -> Style {
    match state {
        PowerState::Off => Style::new().fg(Color::DarkGray),
        PowerState::Booting => Style::new().fg(Color::Yellow),
        PowerState::Warming => Style::new().fg(Color::LightCyan),
        PowerState::Serving => Style::new().fg(Color::Green),
        PowerState::Draining => Style::new().fg(Color::LightBlue),
        PowerState::Stopping => Style::new().fg(Color::Magenta),
        PowerState::Failed(_) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

/// A column: its head, how wide it is, and its text. Those further down go first where the terminal is narrow.
type Column = (&'static str, u16, fn(&ServerTick) -> String);

/// Columns of words stand at the left, those of figures at the right.
const WORDS: [&str; 2] = ["server", "state"];

const COLUMNS: [Column; 8] = [
    ("server", 12, |one| one.name.clone()),
    ("state", 16, ServerTick::state_words),
    ("capacity/s", 17, capacity_words),
    ("queue", 7, |one| or_dash(one.queue_mean(), 1)),
    ("dropped %", 10, |one| {
        or_dash(one.drop_ratio().map(Ratio::as_percent), 2)
    }),
    ("in flight", 10, |one| {
        one.in_flight.map_or("-".to_owned(), |count| count.to_string())
    }),
    ("arrivals/s", 11, |one| {
        or_dash(one.counted.map(|counted| counted.arrival_rate()), 1)
    }),
    ("for s", 8, |one| format!("{:.0}", one.for_s)),
];

fn or_dash(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn capacity_words(one: &ServerTick) -> String {
    match (one.capacity, one.given) {
        (capacity @ Capacity::Exact(_), true) => format!("{capacity} given"),
        (capacity @ Capacity::Exact(_), false) => format!("{capacity} exact"),
        (capacity, _) => capacity.to_string(),
    }
}

/// Draws the table; nothing where there is no room for a single server.
pub(super) fn draw_servers(frame: &mut Frame<'_>, area: Rect, servers: &[ServerTick]) {
    let room = usize::from(area.height.saturating_sub(3));
    if room == 0 {
        return;
    }
    let mut shown: Vec<&ServerTick> = servers.iter().collect();
    let mut title = " servers ".to_owned();
    if servers.len() > room {
        shown.sort_by_key(|one| urgency(one));
        shown.truncate(room);
        title = format!(" servers: {room} of {} ", servers.len());
    }
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let troubled = shown.iter().any(|one| !one.trouble.is_empty());
    let mut room = inner
        .width
        .saturating_sub(if troubled { TROUBLE_COLUMNS } else { 0 });
    let mut columns: Vec<&Column> = Vec::new();
    for column in &COLUMNS {
        if column.1 < room || columns.len() < 2 {
            room = room.saturating_sub(column.1 + 1);
            columns.push(column);
        }
    }
    let mut widths: Vec<Constraint> = columns
        .iter()
        .map(|(_, width, _)| Constraint::Length(*width))
        .collect();
    widths.push(Constraint::Fill(1));
    let cell = |head: &str, text: String| {
        let line = Line::from(text);
        Cell::new(match WORDS.contains(&head) {
            true => line,
            false => line.right_aligned(),
        })
    };
    let head = columns.iter().map(|(head, ..)| cell(head, (*head).to_owned()));
    let head = head.chain([Cell::new(if troubled { "trouble" } else { "" })]);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rows = shown.iter().map(|one| {
        let cells = columns.iter().map(|(head, _, text)| match *head {
            "state" => Cell::new(text(one)).style(style_of(one.state)),
            head => cell(head, text(one)),
        });
        let trouble = Cell::new(one.trouble.join("; ")).style(Style::new().fg(Color::Red));
        Row::new(cells.chain([trouble]))
    });
    frame.render_widget(Table::new(rows, widths).header(Row::new(head).style(bold)), inner);
}
