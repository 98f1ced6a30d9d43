//! A table of a page.

use super::html::escape;

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

impl Grid {
    /// The same with its columns as rows: for few rows of many columns. All of it is words then.
    pub(super) fn transposed(self) -> Self {
        let rows = self.header.iter().enumerate().skip(1).map(|(column, head)| {
            let cells = self.rows.iter().filter_map(|row| row.get(column).cloned());
            std::iter::once(head.clone()).chain(cells).collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let heads = self.rows.iter().filter_map(|row| row.first().cloned());
        let header: Vec<String> = self.header.first().cloned().into_iter().chain(heads).collect();
        Self {
            caption: self.caption,
            rows,
            words: (0..header.len()).collect(),
            header,
        }
    }
}

/// From this many columns on a table becomes a list in a narrow window.
const STACKS: usize = 3;
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
            _ if !grid.words.contains(&column) => "n",
            0..=SHORT => "short",
            LONG.. => "long",
            _ => "",
        }
    };
    let classes: Vec<&str> = (0..grid.header.len()).map(class).collect();
    let cells = |texts: &[String]| -> Vec<Cell> {
        let classes = classes.iter().copied().chain(std::iter::repeat(""));
        classes
            .zip(texts)
            .map(|(class, text)| (class, escape(text)))
            .collect()
    };
    let caption = match grid.caption.as_str() {
        "" => String::new(),
        caption => format!("<caption>{}</caption>", escape(caption)),
    };
    let wide = if grid.header.len() >= WIDE { " wide" } else { "" };
    let is_list = grid.header.len() >= STACKS;
    let stacks = if is_list { " stacks" } else { "" };
    body.push_str(&format!(
        "<div class=\"scroll{wide}{stacks}\"><table class=\"compare\">{caption}"
    ));
    let heads: &[String] = if is_list { &grid.header } else { &[] };
    rows(
        body,
        &cells(&grid.header),
        heads,
        grid.rows.iter().map(|row| cells(row)),
    );
}

/// A cell: its class, and its content as HTML. One of class `row` or `key` heads its row; the latter marks the row.
pub(super) type Cell = (&'static str, String);

/// A table in a frame that scrolls.
pub(super) fn framed(class: &str, head: &[Cell], lines: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let class = match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    let mut html = format!("<div class=\"scroll\"><table{class}>");
    rows(&mut html, head, &[], lines);
    html
}

/// A table in a frame that scrolls, which becomes a list in a narrow window: for columns of words.
pub(super) fn listed(head: &[Cell], lines: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let mut html = String::from("<div class=\"scroll stacks\"><table>");
    let heads: Vec<String> = head.iter().map(|(_, text)| text.clone()).collect();
    rows(&mut html, head, &heads, lines);
    html
}

/// The rows below their head; before each cell stands what is in `heads`, for where its head does not stand above it.
fn rows(html: &mut String, head: &[Cell], heads: &[String], lines: impl IntoIterator<Item = Vec<Cell>>) {
    html.push_str("<thead><tr>");
    html.extend(head.iter().map(|(class, text)| cell("th", class, "", text)));
    html.push_str("</tr></thead><tbody>\n");
    let heads: Vec<String> = heads
        .iter()
        .map(|text| format!(" data-head=\"{}\"", escape(text)))
        .collect();
    for line in lines {
        let key = matches!(line.first(), Some(("key", _)));
        html.push_str(if key { "<tr class=\"key\">" } else { "<tr>" });
        let heads = heads.iter().map(String::as_str).chain(std::iter::repeat(""));
        html.extend(
            line.iter()
                .zip(heads)
                .map(|((class, text), head)| cell("td", class, head, text)),
        );
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
}

fn cell(tag: &str, class: &str, head: &str, text: &str) -> String {
    match class {
        "" => format!("<{tag}{head}>{text}</{tag}>"),
        "row" | "key" => format!("<th scope=\"row\"{head}>{text}</th>"),
        class => format!("<{tag} class=\"{class}\"{head}>{text}</{tag}>"),
    }
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
        assert!(drawn("over the bound", 2).contains("<td class=\"short\">over the bound</td>"));
        assert!(drawn(&"why ".repeat(10), 2).contains("<td>why"));
        assert!(drawn(&"why ".repeat(20), 2).contains("<td class=\"long\">why"));
        assert!(!drawn("law", 2).contains("stacks") && drawn("law", 3).contains("data-head=\"what\""));
        assert!(
            !drawn("law", WIDE - 1).contains("scroll wide") && drawn("law", WIDE).contains("scroll wide")
        );
    }
}
