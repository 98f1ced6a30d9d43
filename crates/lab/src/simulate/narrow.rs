//! A sheet on a terminal, no wider than that is.

use super::Table;
use headroom_record::report::{Grid, Section, Sheet};

/// The narrowest that text is broken for: below it a line would be a word.
const NARROWEST: usize = 40;

/// A sheet as plain text of at most so many columns; `None`, as where it goes to a file, of any. A table that is wider is printed in parts, each with
/// the columns that say what a row is; a section of plots alone, which only the report has, is left out.
pub fn narrow_text(sheet: &Sheet, columns: Option<usize>) -> String {
    let columns = columns.map_or(usize::MAX, |columns| columns.max(NARROWEST));
    let mut text = broken(&sheet.lead, "", columns);
    text.push('\n');
    for section in sheet.sections.iter().filter(|section| is_text(section)) {
        text.push_str(&format!("{}\n", section.title));
        for part in section.tables.iter().flat_map(|grid| parts(grid, columns)) {
            text.push_str(&format!("{}\n", Table(&part)));
        }
        for line in &section.text {
            text.push_str(&broken(line, "  ", columns));
        }
        if !section.text.is_empty() {
            text.push('\n');
        }
    }
    for remark in &sheet.remarks {
        text.push_str(&broken(remark, "  ", columns));
    }
    text
}

fn is_text(section: &Section) -> bool {
    let plots = !section.charts.is_empty() || !section.bars.is_empty();
    !section.tables.is_empty() || (!section.text.is_empty() && !plots)
}

/// A paragraph in lines that begin with an indent, each of them ended. A word that is longer than a line stays whole.
pub fn broken(paragraph: &str, indent: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        let together = indent.chars().count() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && together > columns {
            text.push_str(&format!("{indent}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("{indent}{line}\n"));
    text
}

/// A table in parts of so many columns of text. Each has the words that it begins with, as far as they take no more than half of the place, and
/// one other column at least.
fn parts(grid: &Grid, columns: usize) -> Vec<Grid> {
    // As `Table` writes them, two spaces before each.
    let width = |column: usize| {
        let cells = std::iter::once(&grid.header).chain(&grid.rows);
        let cells = cells.filter_map(|line| line.get(column));
        2 + cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..grid.header.len()).map(width).collect();
    if widths.iter().sum::<usize>() <= columns {
        return vec![grid.clone()];
    }
    let words = (0..widths.len()).take_while(|column| grid.words.contains(column));
    let mut taken = 0;
    let keys: Vec<usize> = words
        .take_while(|column| {
            taken += widths[*column];
            *column == 0 || taken <= columns / 2
        })
        .collect();
    let of_keys: usize = keys.iter().map(|key| widths[*key]).sum();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for (column, width) in widths.iter().enumerate().skip(keys.len()) {
        match parts.last_mut().filter(|_| *width <= room) {
            Some(part) => part.push(column),
            None => {
                room = columns.saturating_sub(of_keys);
                parts.push(keys.iter().copied().chain([column]).collect());
            }
        }
        room = room.saturating_sub(*width);
    }
    let of = |(number, part): (usize, &Vec<usize>)| {
        let line = |line: &Vec<String>| part.iter().filter_map(|at| line.get(*at).cloned()).collect();
        Grid {
            caption: match number {
                0 => grid.caption.clone(),
                _ => String::new(),
            },
            header: line(&grid.header),
            rows: grid.rows.iter().map(line).collect(),
            words: (0..part.len())
                .filter(|at| grid.words.contains(&part[*at]))
                .collect(),
        }
    };
    parts.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::report::Chart;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn wide() -> Grid {
        Grid {
            caption: "cells".to_owned(),
            header: texts(&["size", "density", "requests for each second", "watts", "bound"]),
            rows: vec![texts(&["1 KB", "100 %", "50000 ± 1000", "30.1", "cpu"])],
            words: vec![0, 1, 4],
        }
    }

    #[test]
    fn a_wide_table_is_printed_in_parts_that_each_say_what_a_row_is() {
        assert_eq!(parts(&wide(), 80).len(), 1);
        let parts = parts(&wide(), 44);
        let heads: Vec<_> = parts.iter().map(|part| part.header.join(",")).collect();
        assert_eq!(
            heads,
            [
                "size,density,requests for each second",
                "size,density,watts,bound"
            ]
        );
        assert_eq!(parts[1].rows[0], texts(&["1 KB", "100 %", "30.1", "cpu"]));
        assert_eq!((&*parts[0].caption, &*parts[1].caption), ("cells", ""));
        assert_eq!(parts[1].words, [0, 1, 3]);
        for part in &parts {
            assert!(
                Table(part)
                    .to_string()
                    .lines()
                    .all(|line| line.chars().count() <= 44)
            );
        }
    }

    #[test]
    fn no_heading_stands_above_nothing_and_no_line_is_wider_than_the_terminal() {
        let sheet = Sheet {
            lead: "What the machine serves for a watt, by size and by density.".to_owned(),
            sections: vec![
                Section {
                    title: "A table".to_owned(),
                    tables: vec![wide()],
                    ..Section::default()
                },
                Section {
                    title: "A plot".to_owned(),
                    text: texts(&["The more to the left, the better."]),
                    charts: vec![Chart::default()],
                    ..Section::default()
                },
                Section {
                    title: "Nothing".to_owned(),
                    ..Section::default()
                },
            ],
            remarks: texts(&["one: a remark of more words than stand in a line of this terminal"]),
            ..Sheet::default()
        };
        let text = narrow_text(&sheet, Some(44));
        assert!(text.lines().all(|line| line.chars().count() <= 44), "{text}");
        assert!(text.contains("A table") && !text.contains("A plot") && !text.contains("Nothing"));
        assert!(
            narrow_text(&sheet, None)
                .contains("  one: a remark of more words than stand in a line of this terminal\n")
        );
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_stays_whole() {
        assert_eq!(
            broken("a http://web1/{size} b", "  ", 10),
            "  a\n  http://web1/{size}\n  b\n"
        );
        assert_eq!(broken("", "", 10), "\n");
    }
}
