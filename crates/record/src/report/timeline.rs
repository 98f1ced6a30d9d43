//! What each of several things was over time: a row for each, coloured by its state.

use super::html::escape;
use super::plot::{LEFT, RIGHT, WIDTH, tick_below, tick_class};
use super::scale::time_ticks;
use std::fmt::Write;

/// Height of a row, and of the bar in it.
const ROW: f64 = 17.0;
const BAR: f64 = 12.0;
/// Room above the rows, and for the labels of the time axis below them.
const TOP: f64 = 6.0;
const BELOW: f64 = 20.0;
/// Characters of a name that stand beside its row.
const MAX_NAME: usize = 13;
/// What a row's colour stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tint {
    /// Nothing is drawn: the row's bed shows.
    Bed,
    /// The number of a colour of the style sheet, from 0 (grey) to 6.
    Colour(u8),
    /// Something is wrong.
    Alarm,
}

impl Tint {
    fn class(self) -> String {
        match self {
            Self::Bed => "bed".to_owned(),
            Self::Colour(number) => format!("strip c{}", number.min(6)),
            Self::Alarm => "strip target".to_owned(),
        }
    }
}

/// A time in one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stay {
    /// When it began, in seconds.
    pub(crate) from_s: f64,
    /// When it ended.
    pub(crate) to_s: f64,
    /// Which state, by its number in [`Timeline::states`].
    pub(crate) state: usize,
}

/// States of several things over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Timeline {
    /// What is drawn.
    pub(crate) title: String,
    /// The states, each with its colour.
    pub(crate) states: Vec<(String, Tint)>,
    /// A name and its times, for each row; those beyond [`Timeline::MAX_ROWS`] are not drawn, and the title says so.
    pub(crate) rows: Vec<(String, Vec<Stay>)>,
}

impl Timeline {
    /// The rows that are drawn at most.
    const MAX_ROWS: usize = 64;

    /// As a figure of a page, over the time of what stands above and below it.
    pub(crate) fn render(&self, (from, to): (f64, f64)) -> String {
        let shown = &self.rows[..self.rows.len().min(Self::MAX_ROWS)];
        let stays = || shown.iter().flat_map(|(_, stays)| stays);
        let length = (to - from).max(f64::MIN_POSITIVE);
        let x = |at_s: f64| LEFT + ((at_s - from) / length).clamp(0.0, 1.0) * (RIGHT - LEFT);
        let left_out = match self.rows.len() - shown.len() {
            0 => String::new(),
            more => format!(", the first {} of {}", shown.len(), shown.len() + more),
        };
        let mut html = format!(
            "<div class=\"chart timeline\"><figure class=\"panel\">\n<figcaption><b>{}{left_out}</b><span class=\"legend\">",
            escape(&self.title)
        );
        for (number, (name, tint)) in self.states.iter().enumerate() {
            if stays().any(|stay| stay.state == number) {
                let _ = write!(
                    html,
                    "<span class=\"entry\"><svg viewBox=\"0 0 22 14\" aria-hidden=\"true\"><path class=\"{}\" d=\"M0 \
                     2h22v10H0z\"/></svg>{}</span>",
                    tint.class(),
                    escape(name)
                );
            }
        }
        let foot = TOP + ROW * shown.len() as f64;
        let _ = writeln!(
            html,
            "</span></figcaption>\n<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{} over time\">",
            foot + BELOW,
            escape(&self.title)
        );
        for (row, (name, stays)) in shown.iter().enumerate() {
            self.render_row(&mut html, TOP + ROW * row as f64, name, stays, &x);
        }
        for (number, (at, label)) in time_ticks(from, to).into_iter().enumerate() {
            tick_below(
                &mut html,
                (x(at), foot + 15.0),
                (TOP, foot),
                &label,
                tick_class(number),
            );
        }
        let _ = writeln!(
            html,
            "<line class=\"cross\" x1=\"0\" x2=\"0\" y1=\"{TOP}\" y2=\"{foot:.1}\"/>\n</svg>\n</figure></div>"
        );
        html
    }

    fn render_row(&self, svg: &mut String, y: f64, name: &str, stays: &[Stay], x: &impl Fn(f64) -> f64) {
        let _ = writeln!(
            svg,
            "<path class=\"bed\" d=\"M{LEFT} {y:.1}H{RIGHT}v{BAR}H{LEFT}z\"/>"
        );
        for (number, (_, tint)) in self.states.iter().enumerate() {
            let mut path = String::new();
            for stay in stays
                .iter()
                .filter(|stay| stay.state == number && *tint != Tint::Bed)
            {
                let (from, to) = (x(stay.from_s), x(stay.to_s));
                // At least as wide as can be seen.
                let _ = write!(
                    path,
                    "M{from:.1} {y:.1}h{:.1}v{BAR}H{from:.1}z",
                    (to - from).max(0.9)
                );
            }
            if !path.is_empty() {
                let _ = writeln!(svg, "<path class=\"{}\" d=\"{path}\"/>", tint.class());
            }
        }
        let short: String = match name.chars().count() {
            0..=MAX_NAME => name.to_owned(),
            _ => name.chars().take(MAX_NAME - 1).chain(['\u{2026}']).collect(),
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\"><title>{}</title>{}</text>",
            RIGHT + 8.0,
            y + 10.5,
            escape(name),
            escape(&short)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(rows: usize) -> Timeline {
        let stay = |from_s: f64, to_s: f64, state: usize| Stay { from_s, to_s, state };
        Timeline {
            title: "Servers <by state>".to_owned(),
            states: vec![
                ("off".to_owned(), Tint::Bed),
                ("serving".to_owned(), Tint::Colour(3)),
                ("failed".to_owned(), Tint::Alarm),
                ("unseen".to_owned(), Tint::Colour(5)),
            ],
            rows: (0..rows)
                .map(|row| {
                    let stays = vec![stay(0.0, 60.0, 0), stay(60.0, 90.0, 1), stay(90.0, 120.0, 2)];
                    (format!("a-server-with-a-long-name-{row}"), stays)
                })
                .collect(),
        }
    }

    #[test]
    fn each_state_that_occurs_has_its_colour_and_a_place_in_the_legend() {
        let html = timeline(2).render((0.0, 120.0));
        assert!(html.contains("Servers &lt;by state&gt;") && html.contains("</svg>serving</span>"));
        assert!(!html.contains("unseen"), "{html}");
        // From the middle to three quarters of the way between LEFT and RIGHT.
        assert!(
            html.contains("class=\"strip c3\" d=\"M481.0 6.0h211.5v12H481.0z\""),
            "{html}"
        );
        assert_eq!(html.matches("class=\"strip target\" d=\"M692.5").count(), 2);
        assert!(html.contains("<title>a-server-with-a-long-name-1</title>a-server-wit\u{2026}"));
        assert!(html.contains(">1:00 min</text>"));
    }

    #[test]
    fn many_rows_are_cut_and_none_is_no_failure() {
        let html = timeline(100).render((0.0, 120.0));
        assert!(html.contains("the first 64 of 100") && html.matches("class=\"bed\" d=\"M58").count() == 64);
        let empty = timeline(0).render((0.0, 0.0));
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
