//! Tables of the queueing model over cores and load, filled in as they are asked for: a law that tries a thousand points
//! a period cannot sum a stationary distribution for each.

use super::latency::MAX_WIDTH;
use crate::plant::CoreRange;
use crate::queueing::percentile::{ServiceSizes, sharing_percentile};
use headroom_units::{Cores, Ratio};

/// Between two columns of the table, in the logarithm of the cores.
const CORES_STEP: f64 = 0.12;
/// Between two rows, in −ln(1 − ρ).
const LOAD_STEP: f64 = 0.125;
/// Rows; the last is at a load of 98.2 %.
const ROWS: usize = 33;
/// ln F never exceeds this; it stands for "far too late".
pub(super) const MOST: f64 = 12.0;

/// Between two lines of a table: the lower one, and how far on the way to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    low: usize,
    above: f64,
}

impl Place {
    fn new(value: f64, most: usize) -> Self {
        let value = value.clamp(0.0, most as f64);
        let low = (value as usize).min(most - 1);
        Self {
            low,
            above: value - low as f64,
        }
    }

    fn corners(self) -> [(usize, f64); 2] {
        [(self.low, 1.0 - self.above), (self.low + 1, self.above)]
    }
}

/// Where a load lies; the same in all tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    place: Place,
    /// How far the load lies beyond the last row, in −ln(1 − ρ).
    beyond: f64,
}

impl Row {
    /// No load.
    pub(super) const NONE: Self = Self {
        place: Place { low: 0, above: 0.0 },
        beyond: 0.0,
    };

    /// A load below 1; what is negative counts as none.
    pub(super) fn new(load: f64) -> Self {
        let depth = -(-load.max(0.0)).ln_1p() / LOAD_STEP;
        Self {
            place: Place::new(depth, ROWS - 1),
            beyond: (depth - (ROWS - 1) as f64).max(0.0) * LOAD_STEP,
        }
    }
}

/// A function of cores and load, filled in as it is asked for, and interpolated in between.
#[derive(Clone, Debug)]
pub(super) struct Table<const N: usize> {
    first: f64,
    columns: usize,
    cells: Vec<Option<[f64; N]>>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(range: CoreRange) -> Self {
        let first = (range.min().get() / MAX_WIDTH).ln();
        let columns = ((range.max().get().ln() - first) / CORES_STEP).ceil().max(0.0) as usize + 2;
        Self {
            first,
            columns,
            cells: vec![None; columns * ROWS],
        }
    }

    /// Where these cores lie; positive.
    pub(super) fn column(&self, cores: f64) -> Place {
        Place::new((cores.ln() - self.first) / CORES_STEP, self.columns - 1)
    }

    /// The values at a column and a row; each of the four cells around them is computed once.
    pub(super) fn at(
        &mut self,
        column: Place,
        row: Row,
        function: impl Fn(f64, f64) -> [f64; N],
    ) -> [f64; N] {
        let mut sum = [0.0; N];
        for (column, share) in column.corners() {
            for (row, part) in row.place.corners() {
                let first = self.first;
                let cell = self.cells[column * ROWS + row].get_or_insert_with(|| {
                    let cores = (first + column as f64 * CORES_STEP).exp();
                    function(cores, -(-(row as f64) * LOAD_STEP).exp_m1())
                });
                for (sum, value) in sum.iter_mut().zip(cell) {
                    *sum += share * part * *value;
                }
            }
        }
        sum
    }
}

/// ln F of one distribution of sizes and one percentile.
#[derive(Clone, Debug)]
pub(super) struct Percentile {
    sizes: ServiceSizes,
    percentile: Ratio,
    table: Table<1>,
}

impl Percentile {
    pub(super) fn new(sizes: ServiceSizes, percentile: Ratio, range: CoreRange) -> Self {
        Self {
            sizes,
            percentile,
            table: Table::new(range),
        }
    }

    /// ln F. Beyond the table's last row it grows as 1/(1 − ρ), as every percentile does in the end.
    pub(super) fn ln(&mut self, cores: f64, load: f64) -> f64 {
        if !(load < 1.0 && cores > 0.0) {
            return MOST;
        }
        self.ln_at(self.table.column(cores), Row::new(load))
    }

    /// Where these cores lie; positive.
    pub(super) fn column(&self, cores: f64) -> Place {
        self.table.column(cores)
    }

    /// [`Self::ln`] where the places are known.
    pub(super) fn ln_at(&mut self, column: Place, row: Row) -> f64 {
        let (sizes, percentile) = (&self.sizes, self.percentile);
        let [value] = self.table.at(column, row, |cores, load| {
            [
                sharing_percentile(Cores::new(cores), Ratio::new(load), sizes, percentile)
                    .ln()
                    .min(MOST),
            ]
        });
        (value + row.beyond).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range() -> CoreRange {
        CoreRange::new(Cores::new(1.0), Cores::new(48.0), Cores::new(1.0)).unwrap()
    }

    #[test]
    fn the_table_is_the_formula() {
        let mut table = Percentile::new(ServiceSizes::exponential(), Ratio::new(0.95), range());
        for (cores, load) in [(1.0, 0.5), (7.0, 0.83), (16.0, 0.9), (48.0, 0.3), (30.0, 0.95)] {
            let exact = sharing_percentile(
                Cores::new(cores),
                Ratio::new(load),
                &ServiceSizes::exponential(),
                Ratio::new(0.95),
            );
            let got = table.ln(cores, load).exp();
            assert!(
                (got / exact - 1.0).abs() < 0.04,
                "{cores} {load}: {got} for {exact}"
            );
        }
        assert_eq!(table.ln(4.0, 1.0), MOST);
        assert_eq!(table.ln(4.0, f64::NAN), MOST);
        assert!(table.ln(4.0, 0.995) > table.ln(4.0, 0.99) + 0.6);
    }
}
