//! Every sample of every method, as CSV.

use super::sample::{Row, Shown};
use super::way::{Way, number};
use anyhow::Context;
use headroom_console::file;
use headroom_control::capacity::Capacity;
use headroom_units::{PerSecond, Ratio, Seconds};
use std::fs::File;
use std::path::Path;

const HEAD: [&str; 12] = [
    "at_s",
    "method",
    "interval_s",
    "arrivals_per_s",
    "served_per_s",
    "queue_mean",
    "backlog",
    "threshold",
    "drop_ratio",
    "connections",
    "drops",
    "cpu",
];

/// A file to which the samples of a run are written as they come.
pub struct SamplesFile {
    lines: csv::Writer<File>,
    name: String,
    ways: Vec<Way>,
}

impl SamplesFile {
    /// Makes the file, and its folder where there is none.
    ///
    /// # Errors
    /// It cannot be written, with its name.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        file::will_write(path).map_err(|failure| anyhow::anyhow!("{failure}"))?;
        let name = path.display().to_string();
        let file = File::create(path).with_context(|| format!("{name} cannot be written"))?;
        Ok(Self {
            lines: csv::Writer::from_writer(file),
            name,
            ways: Vec::new(),
        })
    }

    /// Writes the head; two columns for each of these ways.
    pub(super) fn begin(&mut self, ways: Vec<Way>) -> anyhow::Result<()> {
        let columns = ways.iter().flat_map(|way| {
            let label = way.label().to_lowercase();
            let column = label.replace([',', '(', ')'], "").replace([' ', '/'], "_");
            [format!("{column}_per_s"), format!("{column}_kind")]
        });
        let head = HEAD.iter().map(|cell| (*cell).to_owned());
        let cells: Vec<String> = head.chain(columns).chain(["error".to_owned()]).collect();
        self.ways = ways;
        self.put(&cells)
    }

    /// Writes a sample.
    pub(super) fn add(&mut self, row: &Row) -> anyhow::Result<()> {
        let nothing = Shown::default();
        let (shown, error) = match &row.shown {
            Ok(shown) => (shown, ""),
            Err(error) => (&nothing, error.as_str()),
        };
        let value = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
        let count = |count: Option<u64>| count.map_or_else(String::new, |count| count.to_string());
        let mut cells = vec![
            format!("{:.3}", row.at.get()),
            row.method.to_string(),
            value(row.interval.map(Seconds::get)),
            value(shown.arrival_rate.map(PerSecond::get)),
            value(shown.service_rate.map(PerSecond::get)),
            value(shown.queue_mean),
            count(shown.backlog),
            value(shown.threshold),
            value(shown.drop_ratio.map(Ratio::get)),
            count(shown.connections),
            count(shown.drops),
            value(shown.cpu.map(Ratio::get)),
        ];
        for way in &self.ways {
            let found = row.estimates.iter().find(|(of, _)| of == way);
            let kind = found.map_or("", |(_, estimate)| match estimate.capacity {
                Capacity::Unknown => "",
                other => other.name(),
            });
            let number = found.and_then(|(_, estimate)| number(estimate));
            cells.extend([value(number), kind.to_owned()]);
        }
        cells.push(error.to_owned());
        self.put(&cells)
    }

    /// Ends the file.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        let name = self.name;
        self.lines
            .flush()
            .with_context(|| format!("{name} cannot be written"))
    }

    fn put(&mut self, cells: &[String]) -> anyhow::Result<()> {
        let written = self.lines.write_record(cells);
        written.with_context(|| format!("{} cannot be written", self.name))
    }
}
