//! Every sample of every method, as CSV.

use super::sample::{Row, Shown};
use super::way::{Way, number};
use anyhow::Context;
use headroom_console::file;
use headroom_control::capacity::Capacity;
use headroom_units::{PerSecond, Ratio, Seconds};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// What follows of each way behind the columns that there always were.
const FURTHER: [&str; 5] = ["low_per_s", "high_per_s", "age_s", "rule", "assumes"];

/// Whether two names are those of one file, which need not be there yet.
fn is_same(one: &Path, other: &Path) -> bool {
    if let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) {
        return (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    matches!((resolved(one), resolved(other)), (Some(one), Some(other)) if one == other)
}

/// The path without links, as far as it is there.
fn resolved(path: &Path) -> Option<PathBuf> {
    let whole = std::path::absolute(path).ok()?;
    let there = whole
        .ancestors()
        .find_map(|up| Some((up, fs::canonicalize(up).ok()?)));
    let (up, found) = there?;
    Some(found.join(whole.strip_prefix(up).ok()?))
}

/// A file to which the samples of a run are written as they come.
pub struct SamplesFile {
    lines: csv::Writer<File>,
    name: String,
    ways: Vec<Way>,
}

impl SamplesFile {
    /// Whether samples may be written to this file: not over the record, nor over a file that holds something else. A file of
    /// samples is begun anew.
    ///
    /// # Errors
    /// They may not, with the file's name and what to do.
    pub fn may_be(path: &Path, record: &Path) -> anyhow::Result<()> {
        // The record's own files beside it, too.
        let own = ["", "-wal", "-shm", "-journal"].map(|end| {
            let mut name = record.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        });
        if own.iter().any(|own| is_same(path, own)) {
            anyhow::bail!(
                "--csv {} is the file of the record (--db {}), whose runs it would write over: give another file",
                path.display(),
                record.display()
            );
        }
        // A pipe or a terminal holds nothing, and reading from it would take what is in it.
        let Ok(there) = fs::metadata(path) else {
            return Ok(());
        };
        if !there.is_file() || there.len() == 0 {
            return Ok(());
        }
        let begins = format!("{},{},", HEAD[0], HEAD[1]);
        let mut found = Vec::new();
        let read = File::open(path).and_then(|file| file.take(begins.len() as u64).read_to_end(&mut found));
        read.with_context(|| format!("--csv {} is there and cannot be read", path.display()))?;
        if found != begins.as_bytes() {
            anyhow::bail!(
                "--csv {} holds something else than samples of this command, and is not written over: give another file, or move \
                 it away",
                path.display()
            );
        }
        Ok(())
    }

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

    /// Writes the head; two columns for each of these ways, and behind all others those of [`FURTHER`].
    pub(super) fn begin(&mut self, ways: Vec<Way>) -> anyhow::Result<()> {
        let columns = |ends: &'static [&'static str]| {
            let of = |way: &Way| {
                let column = way.column();
                ends.iter().map(move |end| format!("{column}_{end}"))
            };
            ways.iter().flat_map(of)
        };
        let head = HEAD.iter().map(|cell| (*cell).to_owned());
        let head = head
            .chain(columns(&["per_s", "kind"]))
            .chain(["error".to_owned()]);
        let cells: Vec<String> = head.chain(columns(&FURTHER)).collect();
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
        for way in &self.ways {
            let found = row.estimates.iter().find(|(of, _)| of == way);
            let said = found.map(|(way, estimate)| row.summary(*way, estimate));
            let interval = said.as_ref().and_then(|said| said.interval_per_s);
            let age = said.as_ref().and_then(|said| said.age_s);
            let (assumes, rule) = said.map_or_else(Default::default, |said| {
                (said.assumes.unwrap_or_default(), said.rule)
            });
            cells.extend([
                value(interval.map(|[low, _]| low.get())),
                value(interval.map(|[_, high]| high.get())),
                value(age.map(Seconds::get)),
                rule,
                assumes,
            ]);
        }
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

#[cfg(test)]
mod tests {
    use super::super::sample::CONNECTIONS;
    use super::*;
    use headroom_control::Reason;
    use headroom_control::capacity::Estimate;
    use headroom_node::queue::QueueMethod;

    #[test]
    fn samples_are_not_written_over_the_record_nor_over_another_s_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let refused = |csv: &Path, said: &str| {
            let error = SamplesFile::may_be(csv, &at("runs.db")).unwrap_err().to_string();
            assert!(
                error.contains(said) && error.contains("give another file"),
                "{error}"
            );
        };
        // Neither is there yet.
        refused(&at("./runs.db"), "is the file of the record");
        refused(&at("runs.db-wal"), "is the file of the record");
        fs::write(at("runs.db"), "SQLite format 3").unwrap();
        fs::hard_link(at("runs.db"), at("hard.csv")).unwrap();
        std::os::unix::fs::symlink(at("runs.db"), at("soft.csv")).unwrap();
        for name in ["runs.db", "hard.csv", "soft.csv"] {
            refused(&at(name), "is the file of the record");
        }
        fs::write(at("notes.txt"), "what I must not lose").unwrap();
        refused(&at("notes.txt"), "holds something else");
        for (name, text) in [
            ("empty.csv", ""),
            ("ours.csv", "at_s,method,interval_s\n1,ebpf,1\n"),
        ] {
            fs::write(at(name), text).unwrap();
            SamplesFile::may_be(&at(name), &at("runs.db")).unwrap();
        }
        for name in [at("new/er.csv"), PathBuf::from("/dev/null")] {
            SamplesFile::may_be(&name, &at("runs.db")).unwrap();
        }
        assert_eq!(fs::read_to_string(at("runs.db")).unwrap(), "SQLite format 3");
    }

    #[test]
    fn interval_age_and_rule_stand_behind_the_columns_that_there_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.csv");
        let way = Way::BusyTime(QueueMethod::Ebpf);
        let mut file = SamplesFile::create(&path).unwrap();
        file.begin(vec![way]).unwrap();
        let estimate = Estimate {
            capacity: Capacity::About(PerSecond::new(38.7)),
            interval: Some([36.9, 40.6].map(PerSecond::new)),
            age: Some(Seconds::new(2.0)),
            reason: Reason::new("stale", String::new(), &[]),
        };
        file.add(&Row {
            at: Seconds::new(3.0),
            method: QueueMethod::Ebpf,
            interval: None,
            shown: Ok(Shown::default()),
            estimates: vec![(way, estimate)],
            is_shared: false,
            unit: CONNECTIONS,
        })
        .unwrap();
        file.end().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let (head, row) = text.split_once('\n').unwrap();
        assert!(
            head.ends_with(
                "cpu,queue_busy_time_ebpf_per_s,queue_busy_time_ebpf_kind,error,queue_busy_time_ebpf_low_per_s,\
                 queue_busy_time_ebpf_high_per_s,queue_busy_time_ebpf_age_s,queue_busy_time_ebpf_rule,\
                 queue_busy_time_ebpf_assumes"
            ),
            "{head}"
        );
        assert_eq!(
            row.trim_end(),
            "3.000,ebpf,,,,,,,,,,,38.700000,about,,36.900000,40.600000,2.000000,stale,"
        );
    }
}
