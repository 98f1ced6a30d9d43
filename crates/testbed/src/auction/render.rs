//! From what a page shows to its HTML, exactly as long as the site says.

use super::queries::Content;
use headroom_workload::auction::Place;
use pulldown_cmark::{Parser, html};
use pulldown_cmark_escape::escape_html;
use std::fmt::Write as _;

/// Where the page ends.
const TAIL: &str = "</article></body></html>\n";

/// What stands in a page that has no description of its own.
const HOUSE: &str = "All items are sold by auction. The **highest** bid wins; who cannot wait buys at once.\n\n- Bid in steps \
                     of ten cents or more.\n- Every bid is *final*.\n\n> Look at the seller's comments before you bid.";

/// The page, of exactly so many bytes. A list that has no room ends with how many rows are left out, and one without room for
/// any is left out; what room is left is filled with the descriptions, over and over, and the last of them is cut to the byte.
///
/// Names of fields, titles and descriptions leave room for the rest in the shortest page that a site may have.
pub(super) fn page(place: &Place, content: &Content, bytes: usize) -> String {
    let mut page = String::with_capacity(bytes + 256);
    page.push_str("<!DOCTYPE html><html><head>");
    page.push_str(&place.marker());
    if let Some(version) = content.version {
        let _ = write!(page, "<meta name=\"auction-version\" content=\"{version}\">");
    }
    let _ = write!(
        page,
        "<title>{0}</title></head><body><h1>{0}</h1>",
        Escaped(&content.title)
    );
    for (name, value) in &content.facts {
        let _ = write!(page, "<p>{name}: {}</p>", Escaped(value));
    }
    if let Some(form) = &content.form {
        let method = if form.to.page.writes() { "post" } else { "get" };
        let _ = write!(
            page,
            "<form method={method} action=\"{}\">",
            Escaped(&form.to.target())
        );
        for field in form.fields {
            let _ = write!(page, "<input name={field}>");
        }
        page.push_str("</form>");
    }
    let room = bytes.saturating_sub(TAIL.len() + "<article>".len());
    for list in &content.lists {
        lists(&mut page, list.caption, &list.rows, room);
    }
    page.push_str("<article>");
    fill(&mut page, &content.texts, bytes.saturating_sub(TAIL.len()));
    page.push_str(TAIL);
    page
}

fn lists(page: &mut String, caption: &str, rows: &[Vec<super::queries::Cell>], room: usize) {
    let end = "</table>";
    let more = "<tr><td>and 999 more</table>".len();
    let begin = format!("<table><caption>{caption}</caption>");
    if page.len() + begin.len() + more > room {
        return;
    }
    page.push_str(&begin);
    let mut line = String::new();
    for (index, row) in rows.iter().enumerate() {
        line.clear();
        line.push_str("<tr>");
        for cell in row {
            line.push_str("<td>");
            match &cell.link {
                Some(to) => {
                    let _ = write!(
                        line,
                        "<a href=\"{}\">{}</a>",
                        Escaped(&to.target()),
                        Escaped(&cell.text)
                    );
                }
                None => {
                    let _ = write!(line, "{}", Escaped(&cell.text));
                }
            }
        }
        if page.len() + line.len() + more > room {
            let _ = write!(page, "<tr><td>and {} more", rows.len() - index);
            break;
        }
        page.push_str(&line);
    }
    page.push_str(end);
}

/// Fills the page up to a length with rendered descriptions.
fn fill(page: &mut String, texts: &[String], until: usize) {
    let house = [HOUSE.to_owned()];
    let texts = if texts.is_empty() { &house[..] } else { texts };
    let mut rendered = String::new();
    for text in texts.iter().cycle() {
        rendered.clear();
        html::push_html(&mut rendered, Parser::new(text));
        if page.len() + rendered.len() > until || rendered.is_empty() {
            break;
        }
        page.push_str(&rendered);
    }
    // What is left is less than a description: its words without their marks, between the marks of a paragraph.
    let (open, close) = ("<p>", "</p>");
    let left = until.saturating_sub(page.len());
    if left >= open.len() + close.len() {
        page.push_str(open);
        let words = texts[0].chars().map(|letter| match letter {
            letter if letter.is_ascii_alphanumeric() => letter,
            _ => ' ',
        });
        page.extend(
            words
                .chain(std::iter::repeat(' '))
                .take(left - open.len() - close.len()),
        );
        page.push_str(close);
    } else {
        page.extend(std::iter::repeat_n(' ', left));
    }
}

/// A text with HTML's marks escaped.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        escape_html(pulldown_cmark_escape::FmtWriter(f), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::queries::{Cell, List};
    use super::*;
    use headroom_workload::auction::Page;

    fn content(rows: usize, texts: &[&str]) -> Content {
        let cell = |row| Cell {
            text: format!("Item <{row}>"),
            link: Some(Place::of(Page::ViewItem)),
        };
        Content {
            title: "A & B".to_owned(),
            version: Some(3),
            lists: vec![List {
                caption: "Items",
                rows: (0..rows).map(|row| vec![cell(row)]).collect(),
            }],
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            ..Content::default()
        }
    }

    #[test]
    fn a_page_is_as_long_as_it_is_to_be_to_the_byte() {
        let place = Place {
            subject: 7,
            ..Place::of(Page::ViewItem)
        };
        let text = "Some *words* of a description.\n\n- one\n- two";
        for bytes in (1_024..1_200).chain([2_000, 49_999, 50_000]) {
            for texts in [&[][..], &[text][..], &[text, "another"][..], &[""][..]] {
                for rows in [0, 3, 500] {
                    let page = page(&place, &content(rows, texts), bytes);
                    assert_eq!(page.len(), bytes, "{rows} rows, {} texts", texts.len());
                    assert!(page.ends_with(TAIL));
                }
            }
        }
    }

    #[test]
    fn marks_are_escaped_and_the_page_says_which_it_is() {
        let place = Place {
            subject: 7,
            ..Place::of(Page::ViewItem)
        };
        let page = page(&place, &content(2, &[]), 2_000);
        assert!(page.contains(&place.marker()) && page.contains("auction-version\" content=\"3\""));
        assert!(page.contains("<h1>A &amp; B</h1>") && page.contains(">Item &lt;1&gt;</a>"));
        assert!(page.contains("<strong>highest</strong>"));
    }

    #[test]
    fn a_list_without_room_says_how_many_are_left_out() {
        let place = Place::of(Page::Home);
        let page = page(&place, &content(500, &[]), 2_000);
        let shown = page.matches("<a href").count();
        assert!(
            shown > 10 && page.contains(&format!("and {} more", 500 - shown)),
            "{shown}"
        );
    }
}
