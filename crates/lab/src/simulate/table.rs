//! Sheets on a terminal and on disk.

use headroom_console::Failure;
use headroom_console::file;
use headroom_record::Archive;
use headroom_record::report::{Grid, Sheet, sheet_html};
use std::fmt;
use std::path::Path;

/// A table as plain text: words to the left, figures to the right.
pub struct Table<'a>(pub &'a Grid);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grid = self.0;
        let lines = || std::iter::once(&grid.header).chain(&grid.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..grid.header.len()).map(width).collect();
        if !grid.caption.is_empty() {
            writeln!(f, "{}", grid.caption)?;
        }
        for line in lines() {
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                match grid.words.contains(&column) {
                    true => text.push_str(&format!("  {cell}{padding}")),
                    false => text.push_str(&format!("  {padding}{cell}")),
                }
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// Writes a sheet as one HTML file, making its folder where there is none.
///
/// # Errors
/// A run that cannot be read, a file that cannot be written.
pub fn write_sheet(sheet: &Sheet, archive: Option<&Archive>, out: &Path) -> Result<(), Failure> {
    let html = sheet_html(sheet, archive)?;
    file::write(out, &html)
}

/// A sheet as plain text: its sections, their tables and texts, and what a reader must know of the whole.
pub fn sheet_text(sheet: &Sheet) -> String {
    let mut text = String::new();
    for section in &sheet.sections {
        text.push_str(&format!("{}\n", section.title));
        for grid in &section.tables {
            text.push_str(&format!("{}\n", Table(grid)));
        }
        for line in &section.text {
            text.push_str(&format!("  {line}\n"));
        }
        text.push('\n');
    }
    for remark in &sheet.remarks {
        text.push_str(&format!("  {remark}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let text = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let grid = Grid {
            header: text(["law", "µ"]),
            rows: vec![text(["fixed", "10.5"]), text(["a", "9.0"])],
            words: vec![0],
            caption: String::new(),
        };
        assert_eq!(
            Table(&grid).to_string(),
            "  law       µ\n  fixed  10.5\n  a       9.0\n"
        );
    }
}
