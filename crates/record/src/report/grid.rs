//! A table of a page.

use super::html::escape;
use std::fmt::Write;

/// A table of texts.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// Above it.
    pub caption: String,
    /// Its head.
    pub header: Vec<String>,
    /// Its rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
    /// The columns that hold words; the others hold figures.
    pub words: Vec<usize>,
}

/// From this many columns on a table may take the window's whole width.
const WIDE: usize = 9;
/// A column of words whose cells have at most so many characters is not broken into lines, and one with a cell of more
/// than that many is not squeezed below a readable width.
const SHORT: usize = 26;
/// As [`SHORT`].
const LONG: usize = 60;

pub(super) fn table(body: &mut String, grid: &Grid) {
    let class = |column: usize| {
        let cells = grid.rows.iter().filter_map(|row| row.get(column));
        let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        match longest {
            _ if !grid.words.contains(&column) => " class=\"n\"",
            0..=SHORT => " class=\"short\"",
            LONG.. => " class=\"long\"",
            _ => "",
        }
    };
    let classes: Vec<&str> = (0..grid.header.len()).map(class).collect();
    let class = |column: usize| classes.get(column).copied().unwrap_or_default();
    let wide = if grid.header.len() >= WIDE { " wide" } else { "" };
    let _ = write!(body, "<div class=\"scroll{wide}\"><table class=\"compare\">");
    if !grid.caption.is_empty() {
        let _ = write!(body, "<caption>{}</caption>", escape(&grid.caption));
    }
    body.push_str("<thead><tr>");
    for (column, head) in grid.header.iter().enumerate() {
        let _ = write!(body, "<th{}>{}</th>", class(column), escape(head));
    }
    body.push_str("</tr></thead><tbody>\n");
    for row in &grid.rows {
        body.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(body, "<td{}>{}</td>", class(column), escape(cell));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_columns_decide_the_room_of_a_table() {
        let drawn = |words: &str, columns: usize| {
            let grid = Grid {
                header: vec!["what".to_owned(); columns],
                rows: vec![vec![words.to_owned(); columns]],
                words: vec![0],
                ..Grid::default()
            };
            let mut body = String::new();
            table(&mut body, &grid);
            body
        };
        assert!(drawn("over the bound", 3).contains("<td class=\"short\">over the bound</td>"));
        assert!(drawn(&"why ".repeat(10), 3).contains("<td>why"));
        assert!(drawn(&"why ".repeat(20), 3).contains("<td class=\"long\">why"));
        assert!(
            !drawn("law", WIDE - 1).contains("scroll wide") && drawn("law", WIDE).contains("scroll wide")
        );
    }
}
