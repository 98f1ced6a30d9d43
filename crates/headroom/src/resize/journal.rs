//! The record: one line of JSON a period, in a file of bounded size.

use super::tick::Tick;
use anyhow::Context;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file that at its limit takes the place of the one before it, FILE.1. Together they take twice the limit.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    most_bytes: u64,
    /// A failure is told once, until it is over.
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
            failing: false,
        })
    }

    /// Writes a period. One that cannot be written is missing; the run goes on.
    pub fn tick(&mut self, tick: &Tick) {
        let unix_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64());
        let mut line = tick.json();
        if let Value::Object(fields) = &mut line {
            fields.insert("unix_s".to_owned(), json!(unix_s));
        }
        let written = self.write(&format!("{line}\n"));
        if let (Err(error), false) = (&written, self.failing) {
            tracing::warn!(file = %self.path.display(), "the record cannot be written: {error}");
        }
        self.failing = written.is_err();
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.most_bytes {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            (self.file, self.bytes) = append(&self.path)?;
        }
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

fn append(path: &Path) -> std::io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
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
}
