//! Whether two profiles say the same, cell by cell.

use super::cell::Cell;
use super::file::Profile;
use super::size_text;
use crate::statistics::Estimate;
use serde::Serialize;

/// A figure whose difference is not known to within this share of its mean says nothing of whether two profiles agree: what is apart by so
/// much is another machine to whoever plans with it.
pub const TOO_WIDE: f64 = 0.2;
/// The share of the figures that may be so, for the others to speak for all.
const MOST_UNKNOWN: f64 = 0.25;

/// How far two profiles of the same are apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Figures that both have with an interval narrow enough to tell, or that are apart all the same: throughput and power of each cell.
    pub figures: usize,
    /// Those whose intervals are too wide to tell ([`TOO_WIDE`]), and do not count.
    pub unknown: Vec<String>,
    /// Those whose difference is more than its 95 % interval (the two half widths, as the root of the sum of their squares).
    pub apart: Vec<Apart>,
}

/// What two profiles say of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The same, as well as two measurements of the same do.
    Agree,
    /// Not the same.
    Differ,
    /// Too little is known to tell.
    CannotTell,
}

/// One figure that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Apart {
    /// The cell and the figure: `1 KB at 100 %: throughput`.
    pub what: String,
    /// In the first.
    pub one: Estimate,
    /// In the second.
    pub two: Estimate,
}

impl Agreement {
    /// How many of so many may be apart by chance in 19 of 20 pairs of profiles that differ in nothing: each by one in twenty, so that
    /// their number is binomial.
    pub fn by_chance(&self) -> usize {
        let (n, p) = (self.figures as f64, 0.05_f64);
        let mut probability = (1.0 - p).powf(n);
        let (mut sum, mut count) = (probability, 0.0);
        while sum < 0.95 && count < n {
            probability *= (n - count) / (count + 1.0) * p / (1.0 - p);
            sum += probability;
            count += 1.0;
        }
        count as usize
    }

    /// Whether they agree.
    pub fn answer(&self) -> Answer {
        let all = self.figures + self.unknown.len();
        if self.apart.len() > self.by_chance() {
            Answer::Differ
        } else if all == 0 || self.unknown.len() as f64 > MOST_UNKNOWN * all as f64 {
            Answer::CannotTell
        } else {
            Answer::Agree
        }
    }
}

/// Whether two profiles say the same, cell by cell.
pub fn agreement(one: &Profile, two: &Profile) -> Agreement {
    let mut found = Agreement::default();
    for cell in &one.cells {
        let Some(other) = two.cell(cell.size_bytes, cell.density) else {
            continue;
        };
        let figures = [
            (
                "throughput",
                cell.throughput_kb_per_s(),
                other.throughput_kb_per_s(),
            ),
            ("power", cell.power_w(), other.power_w()),
        ];
        for (name, one, two) in figures {
            let (Some(one), Some(two)) = (one, two) else {
                continue;
            };
            let (Some(first), Some(second)) = (one.half_width, two.half_width) else {
                continue;
            };
            let what = format!("{}: {name}", cell_name(cell));
            let half = first.hypot(second);
            let is_apart = (one.mean - two.mean).abs() > half;
            if !is_apart && half > TOO_WIDE * one.mean.abs().max(two.mean.abs()) {
                found.unknown.push(what);
                continue;
            }
            found.figures += 1;
            if is_apart {
                found.apart.push(Apart { what, one, two });
            }
        }
    }
    found
}

pub(super) fn cell_name(cell: &Cell) -> String {
    format!("{} at {} %", size_text(cell.size_bytes), percent(cell.density))
}

/// A share as a percentage without needless decimals.
pub(super) fn percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
