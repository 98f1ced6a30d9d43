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
        f.write_str(&table_text(self.0, usize::MAX))
    }
}

fn longest(words: impl Iterator<Item = usize>) -> usize {
    words.max().unwrap_or(0)
}

/// How wide the columns are: as wide as their longest cell, and where the lines were longer than `columns` the widest columns of words so
/// much narrower, down to their longest word.
fn widths(grid: &Grid, columns: usize) -> Vec<usize> {
    let cells = |column: usize| {
        let lines = std::iter::once(&grid.header).chain(&grid.rows);
        lines.filter_map(move |line| line.get(column))
    };
    let of = |column| longest(cells(column).map(|cell| cell.chars().count()));
    let least = |column| {
        let words = cells(column).flat_map(|cell| cell.split_whitespace());
        longest(words.map(|word| word.chars().count()))
    };
    let mut widths: Vec<usize> = (0..grid.header.len()).map(of).collect();
    let least: Vec<usize> = (0..grid.header.len()).map(least).collect();
    while widths.iter().map(|width| width + 2).sum::<usize>() > columns {
        let words = grid.words.iter().copied();
        let narrower = words.filter(|column| {
            let room = widths.get(*column).zip(least.get(*column));
            room.is_some_and(|(width, least)| width > least)
        });
        let Some(widest) = narrower.max_by_key(|column| widths[*column]) else {
            break;
        };
        widths[widest] -= 1;
    }
    widths
}

/// A text in lines of at most so many characters; a longer word has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let taken = lines[last].chars().count();
        match taken {
            0 => lines[last].push_str(word),
            _ if taken + 1 + word.chars().count() <= width => lines[last].push_str(&format!(" {word}")),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A table in lines of at most `columns` characters, as far as its columns of words can be narrowed.
fn table_text(grid: &Grid, columns: usize) -> String {
    let widths = widths(grid, columns);
    let mut text = String::new();
    if !grid.caption.is_empty() {
        text.push_str(&format!("{}\n", grid.caption));
    }
    for row in std::iter::once(&grid.header).chain(&grid.rows) {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<Vec<String>> = cells
            .map(|(column, (cell, width))| match grid.words.contains(&column) {
                true => wrap(cell, *width),
                false => vec![cell.clone()],
            })
            .collect();
        for at in 0..longest(cells.iter().map(Vec::len)) {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let cell = cell.get(at).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                match grid.words.contains(&column) {
                    true => line.push_str(&format!("  {cell}{padding}")),
                    false => line.push_str(&format!("  {padding}{cell}")),
                }
            }
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    text
}

/// Writes a sheet as one HTML file, making its folder where there is none.
///
/// # Errors
/// A run that cannot be read, a file that cannot be written or that holds something else.
pub fn write_sheet(sheet: &Sheet, archive: Option<&Archive>, out: &Path) -> Result<(), Failure> {
    file::will_write_report(out)?;
    let html = sheet_html(sheet, archive)?;
    file::write(out, &html)
}

/// A sheet as plain text: its sections, their tables and texts, and what a reader must know of the whole.
pub fn sheet_text(sheet: &Sheet) -> String {
    sheet_text_within(sheet, usize::MAX)
}

/// The same in lines of at most so many characters, where no figure or word is longer.
pub fn sheet_text_within(sheet: &Sheet, columns: usize) -> String {
    let mut text = String::new();
    let paragraph = |text: &mut String, paragraph: &str| {
        for line in wrap(paragraph, columns.saturating_sub(2)) {
            text.push_str(&format!("  {line}\n"));
        }
    };
    for section in &sheet.sections {
        text.push_str(&format!("{}\n", section.title));
        for grid in &section.tables {
            text.push_str(&format!("{}\n", table_text(grid, columns)));
        }
        for line in &section.text {
            paragraph(&mut text, line);
        }
        text.push('\n');
    }
    for remark in &sheet.remarks {
        paragraph(&mut text, remark);
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
    #[test]
    fn words_are_broken_into_lines_where_a_line_would_be_too_long() {
        let text = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let grid = Grid {
            header: text(["says", "%", "remark"]),
            rows: vec![
                text(["one two three", "10.5", "a"]),
                text(["four", "9.0", "as it is"]),
            ],
            words: vec![0, 2],
            caption: String::new(),
        };
        assert_eq!(
            table_text(&grid, 25),
            "  says         %  remark\n  one two   10.5  a\n  three\n  four       9.0  as it\n                  is\n"
        );
        // No narrower than its longest words.
        assert_eq!(widths(&grid, 5), [5, 4, 6]);
        assert_eq!(
            wrap("a longer-than-that word", 8),
            ["a", "longer-than-that", "word"]
        );
    }
}
