//! What the comparisons with other load generators have in common.

use std::error::Error;
use std::fs;

/// What comes of a step.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// CPU time of children that have ended, seconds.
pub fn children_cpu() -> Outcome<f64> {
    // /proc/self/stat fields 16 and 17, in ticks of 10 ms.
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat
        .rsplit_once(')')
        .ok_or("/proc/self/stat has no name in it")?
        .1;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<Result<_, _>>()?;
    Ok(ticks as f64 / 100.0)
}

/// Minimum, median and maximum of each column.
pub fn row(name: &str, rounds: &[Vec<f64>], digits: &[usize]) {
    print!("{name:<22}");
    for (column, digits) in digits.iter().enumerate() {
        let values = sorted(rounds.iter().map(|figures| figures[column]));
        let cell = format!(
            "{:.digits$} / {:.digits$} / {:.digits$}",
            values[0],
            median(&values),
            values[values.len() - 1]
        );
        print!("  {cell:>24}");
    }
    println!();
}

pub fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

pub fn header(columns: &[&str]) {
    print!("{:<22}", "min / median / max of");
    for column in columns {
        print!("  {column:>24}");
    }
    println!();
}
