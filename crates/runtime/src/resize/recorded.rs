//! The last run of a record, read back.

use super::history::History;
use super::journal::Start;
use super::summary::Summary;
use super::tick::Tick;
use anyhow::{Context, anyhow};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// A line that is longer is none of ours: 256 servers take less than a megabyte.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// A run as its record tells it.
#[derive(Debug)]
pub struct Recorded {
    /// What stayed the same.
    pub start: Start,
    /// Its periods.
    pub history: History,
    /// What it came to: its own word where its end was recorded, else the sums of its periods.
    pub summary: Value,
    /// What a reader must know of the record.
    pub remarks: Vec<String>,
}

/// What was read of a run.
struct Run {
    start: Start,
    history: History,
    sums: Summary,
    reported: Option<Value>,
    /// The number of the first period that was read.
    first_period: Option<u64>,
}

/// Lines since the run's beginning that could not be understood.
#[derive(Default)]
struct Damage {
    lines: u64,
    first: Option<String>,
}

/// Reads the last run of a record, which may have begun in FILE.1.
///
/// # Errors
/// A file that cannot be read, or without a run.
pub fn read(file: &Path) -> anyhow::Result<Recorded> {
    let mut older = file.as_os_str().to_owned();
    older.push(".1");
    let (mut run, mut damage) = (None, Damage::default());
    match File::open(&older) {
        Ok(opened) => read_lines(&PathBuf::from(&older), opened, &mut run, &mut damage)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("{} cannot be read", Path::new(&older).display()));
        }
    }
    let opened = File::open(file).with_context(|| format!("{} cannot be read", file.display()))?;
    read_lines(file, opened, &mut run, &mut damage)?;
    let Some(run) = run else {
        let first = damage.first.map_or(String::new(), |first| format!(" ({first})"));
        return Err(anyhow!(
            "{} holds no run of headroom resize{first}: name the file that [record] file names",
            file.display()
        ));
    };
    let mut remarks = Vec::new();
    if let Some(missing @ 1..) = run.first_period {
        remarks.push(format!(
            "The record's beginning is gone: the plots and tables lack the first {missing} periods."
        ));
        if run.reported.is_none() {
            remarks.push(
                "The orders and the energy of the first period that it has include those before it: the orders \
                 and the energy are those of the periods after it."
                    .to_owned(),
            );
        }
    }
    if let Some(first) = &damage.first {
        remarks.push(format!(
            "{} lines of the record could not be understood and are missing here, the first of them {first}",
            damage.lines
        ));
    }
    if run.reported.is_none() {
        remarks.push(
            "The record does not hold the run's end: it goes on, or was killed. The figures are the sums of its recorded \
             periods, and the latency of the whole run is not among them."
                .to_owned(),
        );
    }
    Ok(Recorded {
        summary: run.reported.unwrap_or_else(|| run.sums.json()),
        start: run.start,
        history: run.history,
        remarks,
    })
}

fn read_lines(path: &Path, file: File, run: &mut Option<Run>, damage: &mut Damage) -> anyhow::Result<()> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let taken = reader
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        if taken == 0 {
            return Ok(());
        }
        if taken as u64 == MAX_LINE_BYTES {
            return Err(anyhow!(
                "{}:{number}: is no line of a record: it is too long",
                path.display()
            ));
        }
        match take(&line, run) {
            Ok(false) => {}
            Ok(true) => *damage = Damage::default(),
            Err(error) => {
                damage.lines += 1;
                let first = || format!("{}:{number}: {error}", path.display());
                damage.first.get_or_insert_with(first);
            }
        }
    }
    Ok(())
}

/// Takes a line: a run's beginning, a period, a run's end. Whether another run begins with it.
fn take(line: &[u8], run: &mut Option<Run>) -> Result<bool, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(line)?;
    if let Some(start) = value.get_mut("run") {
        let start: Start = serde_json::from_value(start.take())?;
        // Each file of a record begins with it, so it may be the one that goes on.
        let another = run.as_ref().is_none_or(|run| run.start != start);
        if another {
            *run = Some(Run {
                sums: Summary::new(&start.controller, start.dry_run),
                history: History::default(),
                reported: None,
                first_period: None,
                start,
            });
        }
        return Ok(another);
    }
    if let Some(summary) = value.get_mut("summary") {
        if let Some(run) = run {
            run.reported = Some(summary.take());
        }
        return Ok(false);
    }
    let tick: Tick = serde_json::from_value(value)?;
    if let Some(run) = run {
        run.first_period.get_or_insert(tick.period);
        run.history.tick(&tick);
        run.sums.tick(&tick);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::journal::Journal;
    use crate::resize::tick::tests::tick;
    use serde_json::json;
    use std::io::Write;

    fn start(unix_s: f64) -> Start {
        Start {
            unix_s,
            controller: "static".to_owned(),
            balancer: "gateways g1".to_owned(),
            demand: "requests at the balancer".to_owned(),
            period_s: 1.0,
            dry_run: false,
            notes: Vec::new(),
            version: "0".to_owned(),
        }
    }

    #[test]
    fn the_last_run_is_read_whatever_stands_before_and_between() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resize.jsonl");
        let torn = |end: &str| {
            let mut file = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
            write!(file, "{{\"period\": 50, \"at{end}").unwrap();
        };
        let mut journal = Journal::open(&file, 1.0).unwrap();
        journal.begin(&start(1.0));
        (0..50).for_each(|period| journal.tick(&tick(period, 2)));
        // Killed while it wrote, and started again.
        torn("");
        drop(journal);
        let mut journal = Journal::open(&file, 1.0).unwrap();
        journal.begin(&start(2.0));
        (0..20).for_each(|period| journal.tick(&tick(period, 1)));
        let recorded = read(&file).unwrap();
        assert_eq!((recorded.start, recorded.history.periods), (start(2.0), 20));
        assert_eq!(recorded.summary["periods"], 20);
        let [remark] = &recorded.remarks[..] else {
            panic!("{:?}", recorded.remarks)
        };
        assert!(remark.contains("does not hold the run's end"), "{remark}");
        torn("\n");
        // Only the run itself knows its latencies.
        journal.end(&json!({"periods": 20, "latency_ms": {"p95": 12.0}}));
        let recorded = read(&file).unwrap();
        assert_eq!(recorded.summary["latency_ms"]["p95"], 12.0);
        let [remark] = &recorded.remarks[..] else {
            panic!("{:?}", recorded.remarks)
        };
        assert!(
            remark.starts_with("1 lines of the record") && remark.contains("resize.jsonl:74: "),
            "{remark}"
        );
    }

    #[test]
    fn a_run_over_both_files_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resize.jsonl");
        let mut journal = Journal::open(&file, 0.1).unwrap();
        journal.begin(&start(1.0));
        let older = dir.path().join("resize.jsonl.1");
        let mut periods = 0;
        while !older.exists() || periods % 10 != 0 {
            journal.tick(&tick(periods, 1));
            periods += 1;
        }
        let recorded = read(&file).unwrap();
        assert_eq!((recorded.start, recorded.history.periods), (start(1.0), periods));
        assert_eq!(recorded.summary["energy_j"]["value"], 65.0 * periods as f64);
    }

    #[test]
    fn a_record_whose_beginning_is_gone_says_so_and_counts_only_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resize.jsonl");
        let mut journal = Journal::open(&file, 1.0).unwrap();
        journal.begin(&start(1.0));
        for period in 400..500 {
            let mut reported = tick(period, 1);
            // Since the start of the run: one in each period, carried out up to the record's middle, and failed after it.
            reported.servers[0].orders.done = period.min(450);
            reported.servers[1].orders.failed = period.saturating_sub(450);
            journal.tick(&reported);
        }
        let recorded = read(&file).unwrap();
        assert_eq!(
            recorded.remarks[0],
            "The record's beginning is gone: the plots and tables lack the first 400 periods."
        );
        let summary = &recorded.summary;
        assert_eq!(
            (&summary["periods"], &summary["duration_s"]),
            (&json!(100), &json!(100.0))
        );
        // What was ordered and spent in the first of them cannot be told from what was before.
        assert_eq!(summary["resize"]["orders"], json!({"done": 50, "failed": 49}));
        assert!(recorded.remarks[1].contains("the orders and the energy are those of the periods after it"));
        assert_eq!(summary["energy_j"]["value"], 65.0 * 99.0);
        assert_eq!(summary["resize"]["energy_always_on_j"], 125.0 * 99.0);
        assert_eq!(summary["resize"]["saving"], 0.48);
        assert_eq!(summary["power_w"]["consumed_mean"], 65.0);
        assert_eq!(summary["joules_per_request"], 65.0 / 88.0);
        assert_eq!(recorded.history.points()[0].power_w.value(), None);
        // The run itself knows all of it.
        journal.end(&json!({"resize": {"orders": {"done": 450, "failed": 50}}}));
        let recorded = read(&file).unwrap();
        assert_eq!(recorded.summary["resize"]["orders"]["done"], 450);
        assert_eq!(recorded.remarks.len(), 1, "{:?}", recorded.remarks);
    }

    #[test]
    fn another_file_is_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("other");
        let said = |error: anyhow::Error| format!("{error:#}");
        assert!(said(read(&file).unwrap_err()).contains("other cannot be read"));
        std::fs::write(&file, "[controller]\nkind = \"static\"\n").unwrap();
        let error = said(read(&file).unwrap_err());
        assert!(
            error.contains("holds no run") && error.contains("other:1: "),
            "{error}"
        );
    }
}
