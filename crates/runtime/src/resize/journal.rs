//! The record, in a file of bounded size: a line of JSON for the run's beginning, one for each period, and one for what it
//! came to. [`super::recorded`] reads it.

use super::tick::Tick;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What stays the same during a run. It stands at the head of each file of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// When it began, in seconds since the Unix epoch.
    pub unix_s: f64,
    /// The controller's name.
    pub controller: String,
    /// What is in front of the servers, in words.
    pub balancer: String,
    /// Where the arrival rate comes from, in words.
    pub demand: String,
    /// The control period, in seconds.
    pub period_s: f64,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The version of Headroom.
    pub version: String,
}

/// A period, and when it was written.
#[derive(Serialize)]
struct Timed<'a> {
    #[serde(flatten)]
    tick: &'a Tick,
    unix_s: f64,
}

/// Seconds since the Unix epoch.
pub fn unix_s() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A file that at its limit takes the place of the one before it, FILE.1. Together they take twice the limit.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    most_bytes: u64,
    /// The line at the head of each file.
    head: String,
    /// The last line could not be written, or not all of it. That is told once, until it is over.
    failing: bool,
}

impl Journal {
    /// Opens it, and goes on behind what is there.
    ///
    /// # Errors
    /// A file that cannot be written, with its name.
    pub fn open(path: &Path, most_mib: f64) -> anyhow::Result<Self> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        }
        let (file, bytes) = append(path).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            most_bytes: (most_mib * 1024.0 * 1024.0) as u64,
            head: String::new(),
            failing: false,
        })
    }

    /// Writes that a run begins.
    pub fn begin(&mut self, start: &Start) {
        self.head = format!("{}\n", json!({"run": start}));
        let head = self.head.clone();
        self.write_or_warn(&head);
    }

    /// Writes what the run came to.
    pub fn end(&mut self, summary: &Value) {
        self.write_or_warn(&format!("{}\n", json!({"summary": summary})));
    }

    /// Writes a period. One that cannot be written is missing; the run goes on.
    pub fn tick(&mut self, tick: &Tick) {
        let timed = Timed {
            tick,
            unix_s: unix_s(),
        };
        match serde_json::to_string(&timed) {
            Ok(line) => self.write_or_warn(&format!("{line}\n")),
            Err(error) => tracing::error!("a period cannot be written as JSON: {error}"),
        }
    }

    fn write_or_warn(&mut self, line: &str) {
        let written = self.write(line);
        if let (Err(error), false) = (&written, self.failing) {
            tracing::warn!(file = %self.path.display(), "the record cannot be written: {error}");
        }
        self.failing = written.is_err();
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        // What failed may have been a head, or have left half a line; to tell a head twice does no harm.
        let mut without_head = self.failing;
        if self.failing {
            (self.file, self.bytes) = append(&self.path)?;
        }
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.most_bytes {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            (self.file, self.bytes) = append(&self.path)?;
            without_head = true;
        }
        if without_head && line != self.head {
            self.file.write_all(self.head.as_bytes())?;
            self.bytes += self.head.len() as u64;
        }
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

/// Opens a file to write behind what is there, and how long it is. Half a line at its end, of somebody who was killed while
/// writing it, becomes a line of its own, so that the next one can be read.
fn append(path: &Path) -> std::io::Result<(File, u64)> {
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .open(path)?;
    let mut bytes = file.metadata()?.len();
    if bytes > 0 {
        let mut last = [0];
        file.read_exact_at(&mut last, bytes - 1)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_takes_the_place_of_the_one_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/resize.jsonl");
        let line = format!("{}\n", "x".repeat(400 * 1024));
        for _ in 0..2 {
            let mut journal = Journal::open(&path, 1.0).unwrap();
            for _ in 0..4 {
                journal.write(&line).unwrap();
            }
        }
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert_eq!(size(&path), 2 * line.len() as u64);
        assert_eq!(
            size(&dir.path().join("deep/resize.jsonl.1")),
            2 * line.len() as u64
        );
        assert_eq!(std::fs::read_dir(dir.path().join("deep")).unwrap().count(), 2);
        let error = Journal::open(dir.path(), 1.0).unwrap_err();
        assert!(format!("{error:#}").contains("cannot be written"));
    }

    #[test]
    fn half_a_line_is_ended_when_a_run_begins_behind_it_and_when_its_own_write_failed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resize.jsonl");
        std::fs::write(&path, "{\"period\": 50, \"at").unwrap();
        let mut journal = Journal::open(&path, 1.0).unwrap();
        journal.head = "head\n".to_owned();
        journal.write_or_warn("head\n");
        journal.write_or_warn("one\n");
        assert_eq!(journal.bytes, std::fs::metadata(&path).unwrap().len());
        // The disk is full in the middle of a line, and has room again later.
        journal.file.write_all(b"tw").unwrap();
        journal.file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        journal.write_or_warn("two\n");
        assert!(journal.failing);
        journal.write_or_warn("three\n");
        journal.write_or_warn("four\n");
        assert!(!journal.failing);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"period\": 50, \"at\nhead\none\ntw\nhead\nthree\nfour\n"
        );
        assert_eq!(journal.bytes, std::fs::metadata(&path).unwrap().len());
    }
}
