//! The null model beside the simulation: throughput in proportion to the density, and watts on a straight line from idle to those at
//! 100 %. It knows the machine's idle watts and the cells at 100 %, and no clients, queues or answers that are outstanding.

use super::cells::Cell;
use serde::Serialize;

/// The window of the paper's workload, seconds (Section 3.2).
const WINDOW_S: f64 = 5.0;

/// A machine and what it serves at density 100 %.
#[derive(Clone, Copy, Debug)]
pub struct StraightLine {
    /// Watts while nothing is served.
    pub idle_w: f64,
    /// Watts at 100 %.
    pub full_w: f64,
    /// Throughput at 100 %.
    pub full_kb_per_s: f64,
}

impl StraightLine {
    /// Throughput at a density.
    pub fn kb_per_s(self, density: f64) -> f64 {
        density * self.full_kb_per_s
    }

    /// Watts at a density.
    pub fn power_w(self, density: f64) -> f64 {
        self.idle_w + density * (self.full_w - self.idle_w)
    }

    /// Throughput per power at a density.
    pub fn kb_per_s_per_w(self, density: f64) -> f64 {
        self.kb_per_s(density) / self.power_w(density)
    }

    /// The same line with another throughput per power at 100 %.
    pub fn through(self, kb_per_s_per_w: f64) -> Self {
        Self {
            full_kb_per_s: kb_per_s_per_w * self.full_w,
            ..self
        }
    }

    /// Seconds of each window that a throughput per power at a density falls short of the density's share by, were the machine on this line:
    /// the inverse of [`kb_per_s_per_w`](Self::kb_per_s_per_w). Negative where it is as if it worked for longer than the share.
    pub fn lost_s(self, density: f64, kb_per_s_per_w: f64) -> f64 {
        let idle = kb_per_s_per_w * self.idle_w;
        let share = idle / (self.full_kb_per_s - kb_per_s_per_w * (self.full_w - self.idle_w));
        (density - share) * WINDOW_S
    }
}

/// What is off on average over some predicted cells, percent.
#[derive(Clone, Debug, Serialize)]
pub struct Errors {
    /// Which cells.
    pub cells: String,
    /// How many.
    pub count: usize,
    /// The straight line's mean absolute error.
    pub line_percent: f64,
    /// And its mean signed error.
    pub line_signed_percent: f64,
    /// The simulation's mean absolute error.
    pub ours_percent: f64,
    /// And its mean signed error.
    pub ours_signed_percent: f64,
    /// By how much the simulated throughput is more than on the line from our own 100 %.
    pub throughput_percent: f64,
    /// The same of watts.
    pub power_percent: f64,
    /// [`StraightLine::lost_s`] of the paper's cells, the median.
    pub paper_lost_s: f64,
    /// The same of ours.
    pub ours_lost_s: f64,
}

/// Which cells are summed up together.
type Group = (&'static str, fn(&Cell) -> bool);

const LARGE_KB: u32 = 999;

const GROUPS: [Group; 10] = [
    ("1, 10 and 100 KB", |cell| cell.size_kb != LARGE_KB),
    ("of these, apache", |cell| {
        cell.size_kb != LARGE_KB && cell.service == "apache"
    }),
    ("of these, memcached", |cell| {
        cell.size_kb != LARGE_KB && cell.service == "memcached"
    }),
    ("of these, xeon", |cell| {
        cell.size_kb != LARGE_KB && cell.machine == "xeon"
    }),
    ("of these, atom", |cell| {
        cell.size_kb != LARGE_KB && cell.machine == "atom"
    }),
    ("of these, arm", |cell| {
        cell.size_kb != LARGE_KB && cell.machine == "arm"
    }),
    ("of these, at 75 %", |cell| {
        cell.size_kb != LARGE_KB && cell.density_percent == 75
    }),
    ("of these, at 50 %", |cell| {
        cell.size_kb != LARGE_KB && cell.density_percent == 50
    }),
    ("of these, at 25 %", |cell| {
        cell.size_kb != LARGE_KB && cell.density_percent == 25
    }),
    ("999 KB", |cell| cell.size_kb == LARGE_KB),
];

/// The predicted cells, by what they have in common.
pub fn errors(cells: &[Cell]) -> Vec<Errors> {
    let predicted: Vec<&Cell> = cells.iter().filter(|cell| !cell.calibrated).collect();
    let all: Group = ("all that are predicted", |_| true);
    std::iter::once(all)
        .chain(GROUPS)
        .map(|(name, belongs)| {
            let some: Vec<&Cell> = predicted.iter().copied().filter(|cell| belongs(cell)).collect();
            of(name, &some)
        })
        .collect()
}

fn of(name: &str, cells: &[&Cell]) -> Errors {
    let mean =
        |value: fn(&Cell) -> f64| cells.iter().map(|cell| value(cell)).sum::<f64>() / cells.len() as f64;
    Errors {
        cells: name.to_owned(),
        count: cells.len(),
        line_percent: mean(|cell| cell.line_error_percent.abs()),
        line_signed_percent: mean(|cell| cell.line_error_percent),
        ours_percent: mean(|cell| cell.error_percent.abs()),
        ours_signed_percent: mean(|cell| cell.error_percent),
        throughput_percent: mean(|cell| cell.throughput_off_line_percent),
        power_percent: mean(|cell| cell.power_off_line_percent),
        paper_lost_s: median(cells.iter().map(|cell| cell.paper_lost_s)),
        ours_lost_s: median(cells.iter().map(|cell| cell.lost_s)),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (below, above) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(below), values.get(above)) {
        (Some(one), Some(other)) => f64::midpoint(*one, *other),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: StraightLine = StraightLine {
        idle_w: 20.0,
        full_w: 40.0,
        full_kb_per_s: 4_000.0,
    };

    #[test]
    fn a_straight_line_starts_at_idle_and_ends_at_what_was_measured() {
        assert_eq!(LINE.kb_per_s_per_w(1.0), 100.0);
        assert_eq!((LINE.kb_per_s(0.5), LINE.power_w(0.5)), (2_000.0, 30.0));
        assert_eq!(LINE.power_w(0.0), 20.0);
        assert_eq!(LINE.through(50.0).full_kb_per_s, 2_000.0);
    }

    #[test]
    fn what_a_window_lost_is_read_back_from_the_efficiency() {
        // A machine that works for 0.4 of the time where the density says 0.5 lost half a second of 5.
        let lost = LINE.lost_s(0.5, LINE.kb_per_s_per_w(0.4));
        assert!((lost - 0.5).abs() < 1e-12, "{lost}");
        assert!(LINE.lost_s(0.5, LINE.kb_per_s_per_w(0.6)) < 0.0);
    }

    #[test]
    fn a_median_of_an_even_number_is_between_the_two() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }
}
