//! Files that are written for people: reports and tables.

use crate::Failure;
use anyhow::Context;
use std::fs::{self, OpenOptions};
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
        let error = will_write(dir.path()).unwrap_err().to_string();
        assert!(error.contains("cannot be written"), "{error}");
        let error = write(&file.join("below"), "two").unwrap_err().to_string();
        assert!(error.contains("report.html cannot be made"), "{error}");
    }
}
