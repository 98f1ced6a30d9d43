//! Files that are written for people: reports and tables.

use crate::Failure;
use anyhow::{Context, anyhow};
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::path::Path;

/// Writes a file, and the folder for it where there is none.
///
/// # Errors
/// It cannot be written, with its name.
pub fn write(file: &Path, text: &str) -> Result<(), Failure> {
    make_folder(file)?;
    fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(())
}

/// Whether a file can be written, for a run that is long: better now than at its end. A file that is there keeps what is in
/// it; one that is not is made, empty.
///
/// # Errors
/// It cannot be written, with its name.
pub fn will_write(file: &Path) -> Result<(), Failure> {
    make_folder(file)?;
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened.with_context(|| {
        format!(
            "{} cannot be written: give another file, or see that its folder may be written to",
            file.display()
        )
    })?;
    Ok(())
}

/// Whether a report can be written: not over a file that is something else, as the profile that it is of. It leaves none where none was.
///
/// # Errors
/// It cannot be written, or holds something else; with its name.
pub fn will_write_report(file: &Path) -> Result<(), Failure> {
    const BEGINS: &[u8] = b"<!doctype html";
    let mut begins = Vec::new();
    let is_there = match fs::File::open(file) {
        Ok(there) => {
            let read = there.take(BEGINS.len() as u64).read_to_end(&mut begins);
            read.with_context(|| format!("{} cannot be read", file.display()))?;
            true
        }
        Err(_) => file.exists(),
    };
    if !begins.is_empty() && !begins.eq_ignore_ascii_case(BEGINS) {
        return Err(Failure::usage(anyhow!(
            "{} holds something else than a report, and is not written over: give another file, or move it away",
            file.display()
        )));
    }
    will_write(file)?;
    if !is_there {
        // It may be written: it was made a moment ago.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

fn make_folder(file: &Path) -> anyhow::Result<()> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => fs::create_dir_all(folder)
            .with_context(|| format!("the folder {} cannot be made", folder.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_with_its_folder_and_is_kept_where_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("deep/er/report.html");
        will_write(&file).unwrap();
        write(&file, "one").unwrap();
        will_write(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        let error = will_write_report(&file).unwrap_err().to_string();
        assert!(error.contains("something else than a report"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        for report in ["<!DOCTYPE html><p>", ""] {
            fs::write(&file, report).unwrap();
            will_write_report(&file).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), report);
        }
        let new = dir.path().join("new/report.html");
        will_write_report(&new).unwrap();
        assert!(!new.exists());
        fs::write(&file, "one").unwrap();
        let error = will_write(dir.path()).unwrap_err().to_string();
        assert!(error.contains("cannot be written"), "{error}");
        let error = write(&file.join("below"), "two").unwrap_err().to_string();
        assert!(error.contains("report.html cannot be made"), "{error}");
    }
}
