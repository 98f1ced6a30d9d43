//! The conclusions of Sections 4 to 6, each checked: on our cells, on the null model's, and where Tables 1 and 2 can say it, on the
//! paper's own.

use super::cells::Cell;
use super::claims::{CLAIMS, Claim, Tables, Test, least};
use super::paper::At;
use headroom_physics::ServingKind;
use serde::Serialize;

/// What a conclusion of ours rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// It is of density 100 %, where the models were fitted.
    Calibration,
    /// A straight line from the idle watts to those at 100 % has the same answer: it takes no simulation.
    IdleWatts,
    /// The simulation alone has this answer.
    Predicted,
}

impl Basis {
    /// As tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calibration => "calibration",
            Self::IdleWatts => "idle watts",
            Self::Predicted => "predicted",
        }
    }
}

/// A conclusion, and whether it holds.
#[derive(Clone, Debug, Serialize)]
pub struct Conclusion {
    /// Where the paper has it.
    pub section: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Whether the paper's tables say so; absent where they have no figures of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_the_tables: Option<bool>,
    /// Whether our cells do.
    pub holds: bool,
    /// By how much: the least of the differences that it says are there, below 0 where one is the other way round.
    pub margin: f64,
    /// The unit of the margin.
    pub unit: &'static str,
    /// What it follows from.
    pub follows_from: Basis,
    /// What is to be known where text, tables and ours are not of one mind; empty elsewhere.
    pub remark: String,
}

/// The machines of which something does not hold, for a remark.
fn but(holds: impl Fn(ServingKind) -> bool) -> String {
    let failing: Vec<&str> = ServingKind::ALL
        .into_iter()
        .filter(|kind| !holds(*kind))
        .map(ServingKind::name)
        .collect();
    match failing.is_empty() {
        true => String::new(),
        false => format!("ours: not of {}", failing.join(" and ")),
    }
}

/// A remark with its reason; none where there is nothing to remark.
fn because(remark: String, reason: &str) -> String {
    match remark.is_empty() || reason.is_empty() {
        true => remark,
        false => format!("{remark}: {reason}"),
    }
}

fn margin(test: Test, tables: &Tables) -> f64 {
    match test {
        Test::One(margin) => margin(tables),
        Test::Each(margin) => least(ServingKind::ALL.into_iter().map(|kind| margin(tables, kind))),
    }
}

/// All of them, in the paper's order. The cells are all 72, in the order of [`At::all`].
pub fn conclusions(cells: &[Cell]) -> Vec<Conclusion> {
    let of = |value: fn(&Cell) -> f64| cells.iter().map(value).collect();
    let tables = |efficiency, kb_per_s| Tables {
        efficiency,
        kb_per_s,
        cells,
    };
    let paper = tables(At::all().map(At::paper).collect(), Vec::new());
    let ours = tables(of(|cell| cell.kb_per_s_per_w), of(|cell| cell.kb_per_s));
    let line = tables(
        of(|cell| cell.line_kb_per_s_per_w),
        of(|cell| cell.kb_per_s / (1.0 + cell.throughput_off_line_percent / 100.0)),
    );
    let check = |claim: Claim| {
        let margin_of = |tables| margin(claim.test, tables);
        let ours_margin = margin_of(&ours);
        let holds = ours_margin > -claim.spread;
        let follows_from = match claim.of_full {
            true => Basis::Calibration,
            false if (margin_of(&line) > -claim.spread) == holds => Basis::IdleWatts,
            false => Basis::Predicted,
        };
        Conclusion {
            section: claim.section,
            says: claim.says,
            in_the_tables: claim.in_tables.then(|| margin_of(&paper) > 0.0),
            holds,
            margin: ours_margin,
            unit: claim.unit,
            follows_from,
            remark: match claim.test {
                Test::One(_) => claim.remark.to_owned(),
                Test::Each(margin) => because(but(|kind| margin(&ours, kind) > -claim.spread), claim.remark),
            },
        }
    };
    CLAIMS.into_iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(efficiency: Vec<f64>) -> Tables<'static> {
        Tables {
            efficiency,
            kb_per_s: Vec::new(),
            cells: &[],
        }
    }

    fn of_the_tables() -> impl Iterator<Item = Claim> {
        CLAIMS.into_iter().filter(|claim| claim.in_tables)
    }

    /// What the tables say of themselves: the text's one sentence that they contradict, and no other.
    #[test]
    fn the_tables_contradict_the_text_in_one_sentence() {
        let tables = paper(At::all().map(At::paper).collect());
        let broken: Vec<&str> = of_the_tables()
            .filter(|claim| margin(claim.test, &tables) <= 0.0)
            .map(|claim| claim.says)
            .collect();
        assert_eq!(
            broken,
            [
                "Apache, 1 KB: with falling density the Xeon's throughput per watt falls below the Arm's at that density"
            ]
        );
        // 668.74 of the Xeon is 18.7 % more than the Arm's 563.52: the least of the four densities.
        let first = margin(CLAIMS[0].test, &tables);
        assert!((first - 18.67).abs() < 0.01, "{first}");
    }

    #[test]
    fn machines_that_are_the_other_way_round_are_told() {
        let mut turned: Vec<f64> = At::all().map(At::paper).collect();
        turned.reverse();
        let turned = paper(turned);
        let holding = of_the_tables()
            .filter(|claim| margin(claim.test, &turned) > 0.0)
            .count();
        assert!(holding < 6, "{holding}");
        assert_eq!(but(|kind| kind == ServingKind::Xeon), "ours: not of atom and arm");
    }

    #[test]
    fn a_conclusion_of_a_section_stands_with_the_others_of_it() {
        assert!(CLAIMS.is_sorted_by_key(|claim| claim.section));
        assert_eq!(of_the_tables().count(), 15);
    }
}
