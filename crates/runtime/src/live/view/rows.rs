//! The parts of a run, a line each.

use super::Screen;
use super::text::{CUT, cut};
use crate::live::news::of_class;
use headroom_units::{CapacityKind, Fact, Part, Quantity, Role, Sensor};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// A row narrower than this has its quantities in short words.
const NARROW: usize = 110;
/// What is wrong with a part has so many thirds of the room at least.
const TROUBLE: usize = 2;

impl Screen {
    /// A part of the run in a line of this width: its state, what is wrong with it, and its values; what has no room ends in a sign.
    pub(super) fn row<'a>(&self, part: &'a Part, width: usize) -> Line<'a> {
        let state = part.state.as_deref().unwrap_or_default();
        let colour = if part.trouble.is_empty() {
            Color::Green
        } else {
            Color::Red
        };
        let (name, state) = (format!("{:<14} ", part.name), format!("{state:<14} "));
        let room = width.saturating_sub(name.chars().count() + state.chars().count());
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
        // What is wrong has most of the room, and does not hide what the part does meanwhile.
        let left = room.saturating_sub(values.chars().count());
        let trouble = match part.trouble.is_empty() {
            true => String::new(),
            false => cut(
                &format!("{}  ", part.trouble.join("; ")),
                left.max(room * TROUBLE / 3),
            ),
        };
        let gap = usize::from(trouble.ends_with(CUT));
        let trouble = trouble + &" ".repeat(gap);
        let values = cut(&values, room.saturating_sub(trouble.chars().count()));
        Line::from(vec![
            Span::styled(name, Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(state, Style::new().fg(colour)),
            Span::styled(trouble, Style::new().fg(Color::Red)),
            Span::raw(values),
        ])
    }
}

/// As many of the parts as there is room for, in the order of the parts: those with which something is wrong before others, and of the
/// classes of importance those of which most is turned away.
pub(super) fn foremost(parts: &[Part], rows: usize) -> Vec<&Part> {
    let turned_away = |at: usize| parts[at].get(Sensor::TurnedAway).unwrap_or(0.0);
    let is_class = |at: &usize| parts[*at].role == Role::Importance;
    let mut classes: Vec<usize> = (0..parts.len()).filter(is_class).collect();
    classes.sort_by(|one, other| turned_away(*other).total_cmp(&turned_away(*one)));
    let mut classes = classes.into_iter();
    // Where one class would stand in the order of the parts the next of that order stands.
    let all = (0..parts.len()).map(|at| match is_class(&at) {
        true => classes.next().unwrap_or(at),
        false => at,
    });
    let mut chosen: Vec<usize> = all.collect();
    chosen.sort_by_key(|at| parts[*at].trouble.is_empty());
    chosen.truncate(rows);
    chosen.sort_unstable();
    chosen.into_iter().map(|at| &parts[at]).collect()
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
