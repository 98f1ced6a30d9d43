//! The rule table of the expert fuzzy control (Section V.B): what to do with the frequency for each pair of linguistic values.
//!
//! The paper does not print its table. The default here is a proposal that meets the one rule which it states (both inputs positive large:
//! raise): with NL to PL as -3 to 3, the sum s of both raises at 2 or more, lowers at -2 or less, and keeps between.

use serde::Deserialize;
use std::fmt;

/// The linguistic values, in the order of rows and columns.
pub const VALUES: [&str; 7] = ["NL", "NM", "NS", "ZE", "PS", "PM", "PL"];
/// How many.
const N: usize = VALUES.len();

/// A rule table: a row for each value of α, the change of the throughput, and in it a cell for each of β, the use of the CPU. A cell is
/// the number of frequency levels to go up, or down where it is negative.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RuleTable(Vec<Vec<i64>>);

impl Default for RuleTable {
    fn default() -> Self {
        let cell = |row: usize, column: usize| match row as i64 + column as i64 - 6 {
            2.. => 1,
            ..=-2 => -1,
            _ => 0,
        };
        Self(
            (0..N)
                .map(|row| (0..N).map(|column| cell(row, column)).collect())
                .collect(),
        )
    }
}

/// A table with a hole or an output that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleTableError {
    /// Rows are missing, or too many.
    #[error("has {0} rows: it needs 7, one for each value of α from NL to PL{missing}", missing = missing(*.0, "row"))]
    Rows(usize),
    /// Cells of a row are missing, or too many.
    #[error("row {row} (α {value}) has {cells} cells: it needs 7, one for each value of β from NL to PL{missing}",
            value = VALUES[*.row - 1], missing = missing(*.cells, "column"))]
    Cells {
        /// The row, from 1.
        row: usize,
        /// Its cells.
        cells: usize,
    },
    /// An output that the frequency levels do not allow.
    #[error("row {row} (α {alpha}), column {column} (β {beta}) is {output}: with {levels} frequency levels it must be from -{most} to {most}",
            alpha = VALUES[*.row - 1], beta = VALUES[*.column - 1], most = .levels - 1)]
    Output {
        /// The row, from 1.
        row: usize,
        /// The column, from 1.
        column: usize,
        /// The output.
        output: i64,
        /// Frequency levels.
        levels: usize,
    },
}

/// All that is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleTableErrors(pub Vec<RuleTableError>);

impl fmt::Display for RuleTableErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&faults.join("; "))
    }
}

impl std::error::Error for RuleTableErrors {}

/// Nothing is wrong, or these are.
fn none_of(faults: Vec<RuleTableError>) -> Result<(), RuleTableErrors> {
    match faults.is_empty() {
        true => Ok(()),
        false => Err(RuleTableErrors(faults)),
    }
}

fn missing(given: usize, what: &str) -> String {
    match VALUES.get(given) {
        Some(value) => format!(", and {what} {} ({value}) is missing", given + 1),
        None => String::new(),
    }
}

impl RuleTable {
    /// A table of these rows.
    ///
    /// # Errors
    /// Each [`RuleTableError::Rows`] and [`RuleTableError::Cells`].
    pub fn new(rows: Vec<Vec<i64>>) -> Result<Self, RuleTableErrors> {
        let table = Self(rows);
        table.check_shape()?;
        Ok(table)
    }

    /// What is wrong with its shape: rows from the first on, then their number.
    fn faults_of_shape(&self) -> Vec<RuleTableError> {
        let rows = self.0.iter().enumerate().take(N);
        let cells = rows
            .filter(|(_, row)| row.len() != N)
            .map(|(at, row)| RuleTableError::Cells {
                row: at + 1,
                cells: row.len(),
            });
        let number = (self.0.len() != N).then_some(RuleTableError::Rows(self.0.len()));
        cells.chain(number).collect()
    }

    /// Checks that every cell is there.
    ///
    /// # Errors
    /// Each [`RuleTableError::Rows`] and [`RuleTableError::Cells`].
    pub fn check_shape(&self) -> Result<(), RuleTableErrors> {
        none_of(self.faults_of_shape())
    }

    /// Checks that so many frequency levels allow every output.
    ///
    /// # Errors
    /// Each [`RuleTableError`].
    pub fn check(&self, levels: usize) -> Result<(), RuleTableErrors> {
        let mut faults = self.faults_of_shape();
        for (row, cells) in self.0.iter().enumerate().take(N) {
            for (column, output) in cells.iter().enumerate().take(N) {
                if output.unsigned_abs() >= levels.max(1) as u64 {
                    faults.push(RuleTableError::Output {
                        row: row + 1,
                        column: column + 1,
                        output: *output,
                        levels,
                    });
                }
            }
        }
        none_of(faults)
    }

    /// The output that most firing strength votes for, where a rule fires with the product of its memberships; of equal votes the one that
    /// changes least. `alpha` and `beta` are in units of their largest value.
    pub fn output(&self, alpha: f64, beta: f64) -> i64 {
        let (alpha, beta) = (memberships(alpha), memberships(beta));
        let mut votes: Vec<(i64, f64)> = Vec::new();
        for (cells, strength) in self.0.iter().zip(alpha) {
            for (output, other) in cells.iter().zip(beta) {
                let vote = strength * other;
                match votes.iter_mut().find(|(one, _)| one == output) {
                    Some((_, sum)) => *sum += vote,
                    None => votes.push((*output, vote)),
                }
            }
        }
        let first = |one: &(i64, f64), two: &(i64, f64)| {
            let by_vote = one.1.total_cmp(&two.1);
            by_vote.then(two.0.unsigned_abs().cmp(&one.0.unsigned_abs()))
        };
        votes.into_iter().max_by(first).map_or(0, |(output, _)| output)
    }
}

/// Seven evenly spaced triangles over -1 to 1, each of which ends at the middle of its neighbours, with shoulders at both ends: beyond
/// them the outermost value has all the membership.
fn memberships(value: f64) -> [f64; N] {
    let value = if value.is_nan() { 0.0 } else { value };
    let place = (value.clamp(-1.0, 1.0) + 1.0) * 0.5 * (N - 1) as f64;
    std::array::from_fn(|at| (1.0 - (place - at as f64).abs()).max(0.0))
}

impl fmt::Display for RuleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<String> = self.0.iter().map(|row| format!("{row:?}")).collect();
        write!(f, "[{}]", rows.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_table_with_a_hole_is_refused_with_its_row_and_column() {
        let text = |rows: Vec<Vec<i64>>| RuleTable::new(rows).unwrap_err().to_string();
        assert!(text(vec![vec![0; 7]; 6]).contains("row 7 (PL) is missing"));
        let mut short = vec![vec![0; 7]; 7];
        short[2].pop();
        let error = text(short);
        assert!(
            error.contains("row 3 (α NS)") && error.contains("column 7 (PL) is missing"),
            "{error}"
        );
        assert!(text(vec![vec![0; 7]; 8]).starts_with("has 8 rows"));
        assert!(text(vec![vec![0; 8]; 7]).starts_with("row 1 (α NL) has 8 cells"));
        let mut wide = vec![vec![0; 7]; 7];
        wide[6][5] = 3;
        let table = RuleTable::new(wide).unwrap();
        assert_eq!(table.check(4), Ok(()));
        let error = table.check(3).unwrap_err().to_string();
        assert!(
            error.contains("row 7 (α PL), column 6 (β PM) is 3") && error.contains("from -2 to 2"),
            "{error}"
        );
    }

    #[test]
    fn all_that_is_wrong_with_a_table_is_said_at_once() {
        let mut rows = vec![vec![0; 7]; 6];
        rows[1].pop();
        rows[4].push(0);
        rows[5][0] = 9;
        let table = RuleTable(rows);
        let shape = table.check_shape().unwrap_err().to_string();
        let whole = table.check(3).unwrap_err().to_string();
        for words in [
            "row 2 (α NM) has 6 cells",
            "row 5 (α PS) has 8 cells",
            "; has 6 rows",
        ] {
            assert!(shape.contains(words) && whole.contains(words), "{words}: {whole}");
        }
        assert!(!shape.contains("column 1 (β NL) is 9"));
        assert!(whole.contains("row 6 (α PM), column 1 (β NL) is 9"), "{whole}");
    }

    #[test]
    fn the_rule_that_the_paper_states_holds_and_calm_keeps() {
        let table = RuleTable::default();
        assert_eq!(table.output(1.0, 1.0), 1);
        assert_eq!(table.output(-1.0, -1.0), -1);
        assert_eq!(table.output(0.0, 0.0), 0);
        assert_eq!(table.output(1.0, -1.0), 0);
    }

    proptest! {
        #[test]
        fn memberships_add_up_to_one_and_the_output_grows_with_both_inputs(
            alpha in -3.0..3.0f64, beta in -3.0..3.0f64, more in 0.0..2.0f64,
        ) {
            prop_assert!((memberships(alpha).iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let table = RuleTable::default();
            prop_assert!(table.output(alpha + more, beta) >= table.output(alpha, beta));
            prop_assert!(table.output(alpha, beta + more) >= table.output(alpha, beta));
        }
    }
}
