//! From a page's history to the HTML of its view.

use super::store::{Page, Store};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use std::fmt::Write as _;

/// How many of the newest revisions the view lists one by one; the older ones are summed up in a line.
const LISTED_REVISIONS: usize = 10;

/// What one revision came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measure {
    html_bytes: usize,
    words: usize,
    links: usize,
    /// Links to pages that do not exist.
    missing: usize,
}

/// A heading of the newest revision.
struct Heading {
    level: HeadingLevel,
    id: String,
    text: String,
}

/// Renders a page: every revision of it, the newest in full.
pub(super) fn page(store: &Store, page: &Page) -> String {
    let mut blocks: Vec<&str> = page.blocks.iter().map(String::as_str).collect();
    let mut measures = Vec::with_capacity(page.edits.len() + 1);
    let mut article = String::new();
    let mut headings = Vec::new();
    for revision in 0..=page.edits.len() {
        if let Some(edit) = revision.checked_sub(1).map(|index| &page.edits[index]) {
            blocks[edit.block] = &edit.text;
        }
        article.clear();
        headings.clear();
        measures.push(revision_html(
            store,
            &blocks.join("\n\n"),
            &mut article,
            &mut headings,
        ));
    }
    view(page, &article, &headings, &measures)
}

/// Renders one revision's Markdown to HTML and measures it.
fn revision_html(store: &Store, markdown: &str, out: &mut String, headings: &mut Vec<Heading>) -> Measure {
    let mut measure = Measure::default();
    let mut events: Vec<Event<'_>> = Vec::new();
    // Where the heading that is being read began.
    let mut heading_start = None;
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match &event {
            Event::Start(Tag::Heading { .. }) => heading_start = Some(events.len()),
            Event::End(TagEnd::Heading(level)) => {
                if let Some(start) = heading_start.take() {
                    let text: String = events[start..].iter().filter_map(text_of).collect();
                    let id = format!("s{}-{}", headings.len() + 1, slug(&text));
                    if let Event::Start(Tag::Heading { id: anchor, .. }) = &mut events[start] {
                        *anchor = Some(CowStr::from(id.clone()));
                    }
                    headings.push(Heading {
                        level: *level,
                        id,
                        text,
                    });
                }
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                measure.links += 1;
                let known = dest_url
                    .strip_prefix("/wiki/")
                    .is_some_and(|title| store.find(title).is_some());
                measure.missing += usize::from(!known);
            }
            Event::Text(text) | Event::Code(text) => measure.words += text.split_whitespace().count(),
            _ => {}
        }
        events.push(event);
    }
    html::push_html(out, events.into_iter());
    measure.html_bytes = out.len();
    measure
}

fn text_of<'a>(event: &'a Event<'_>) -> Option<&'a str> {
    match event {
        Event::Text(text) | Event::Code(text) => Some(text),
        _ => None,
    }
}

/// Lower-case letters, digits and hyphens.
fn slug(text: &str) -> String {
    let mapped = text.chars().map(|c| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    });
    mapped.collect()
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // Writing to a String cannot fail.
    let _ = pulldown_cmark_escape::escape_html(&mut safe, text);
    safe
}

/// The whole document of a view.
fn view(page: &Page, article: &str, headings: &[Heading], measures: &[Measure]) -> String {
    let name = escaped(&page.title.replace('_', " "));
    let mut document = String::with_capacity(article.len() + 4096);
    let _ = write!(
        document,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{name}</title></head>\n<body>\n\
         <p><a href=\"/\">All pages</a></p>\n<h1>{name}</h1>\n<nav>\n<ul>\n"
    );
    for Heading { level, id, text } in headings {
        let _ = writeln!(
            document,
            "<li class=\"{level}\"><a href=\"#{id}\">{}</a></li>",
            escaped(text)
        );
    }
    let _ = write!(
        document,
        "</ul>\n</nav>\n<article>\n{article}</article>\n<section>\n<h2>History</h2>\n"
    );
    history(&mut document, page, measures);
    document.push_str("</section>\n</body>\n</html>\n");
    document
}

/// The newest revisions one by one, the older ones in one line.
fn history(document: &mut String, page: &Page, measures: &[Measure]) {
    document.push_str(
        "<table>\n<tr><th>Revision</th><th>Editor</th><th>Words</th><th>Links</th><th>Bytes</th><th>Change</th></tr>\n",
    );
    let older = measures.len().saturating_sub(LISTED_REVISIONS);
    for (index, measure) in measures.iter().enumerate().skip(older).rev() {
        let before = index
            .checked_sub(1)
            .map_or(0, |previous| measures[previous].html_bytes);
        let change = measure.html_bytes as i64 - before as i64;
        let editor = index
            .checked_sub(1)
            .map_or("the first author", |edit| page.edits[edit].editor);
        let Measure {
            html_bytes,
            words,
            links,
            missing,
        } = measure;
        let _ = writeln!(
            document,
            "<tr><td>{}</td><td>{editor}</td><td>{words}</td><td>{links} ({missing} missing)</td>\
             <td>{html_bytes}</td><td>{change:+}</td></tr>",
            index + 1,
        );
    }
    document.push_str("</table>\n");
    if older > 0 {
        let bytes: usize = measures[..older].iter().map(|measure| measure.html_bytes).sum();
        let words: usize = measures[..older].iter().map(|measure| measure.words).sum();
        let _ = writeln!(
            document,
            "<p>{older} older revisions: {words} words, {bytes} bytes.</p>"
        );
    }
}

/// The page of all pages.
pub(super) fn index(store: &Store) -> String {
    let mut document = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>All pages</title></head>\n<body>\n\
         <h1>All pages</h1>\n<ul>\n",
    );
    for page in &store.pages {
        let name = escaped(&page.title.replace('_', " "));
        let _ = writeln!(document, "<li><a href=\"/wiki/{}\">{name}</a></li>", page.title);
    }
    document.push_str("</ul>\n</body>\n</html>\n");
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements that have no end tag.
    const VOID: [&str; 4] = ["meta", "br", "hr", "!DOCTYPE"];

    /// Follows the tags of a document; panics where one is closed that is not the last opened.
    fn assert_well_formed(document: &str) {
        let mut open = Vec::new();
        for tag in document.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').expect("a tag must end");
            assert!(!text.contains('>'), "an unescaped > after <{tag}>");
            let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "</{name}>");
            } else if !VOID.contains(&name) && !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?} left open");
    }

    fn hrefs(document: &str) -> impl Iterator<Item = &str> {
        document
            .split("href=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
    }

    #[test]
    fn every_page_is_well_formed_and_every_link_leads_somewhere() {
        let store = Store::write(30, 4, 0.5, 1);
        let mut links = 0;
        for subject in &store.pages {
            let document = page(&store, subject);
            assert_well_formed(&document);
            for part in [
                "<h2 id=",
                "<h3 id=",
                "<ul>",
                "<ol>",
                "<table>",
                "<pre><code>",
                "<blockquote>",
                "<strong>",
            ] {
                if subject.blocks.len() > 24 {
                    assert!(document.contains(part), "{}: no {part}", subject.title);
                }
            }
            for href in hrefs(&document) {
                links += 1;
                match href.split_at(1) {
                    ("#", anchor) => assert!(document.contains(&format!("id=\"{anchor}\"")), "{href}"),
                    ("/", "") => {}
                    _ => {
                        let title = href.strip_prefix("/wiki/").expect("only links inside the wiki");
                        assert!(store.find(title).is_some(), "{href}");
                    }
                }
            }
            assert!(document.contains("(0 missing)"));
        }
        assert!(links > 300, "{links}");
    }

    #[test]
    fn the_index_links_to_every_page() {
        let store = Store::write(30, 1, 0.1, 1);
        let document = index(&store);
        assert_well_formed(&document);
        assert!(hrefs(&document).eq(store.pages.iter().map(|page| format!("/wiki/{}", page.title))));
    }

    #[test]
    fn the_view_shows_the_newest_revision_and_sums_the_old_ones() {
        let subject = |revisions: usize| Page {
            title: "A_B".into(),
            blocks: vec!["first".into(), "kept".into()],
            edits: (1..revisions)
                .map(|n| super::super::store::Edit {
                    block: 0,
                    text: format!("text {n} [x](/wiki/Gone)"),
                    editor: "Ada",
                })
                .collect(),
        };
        let store = Store::write(2, 1, 0.1, 1);
        let one = page(&store, &subject(1));
        assert!(one.contains("<p>first</p>") && !one.contains("older revisions"));
        let many = page(&store, &subject(15));
        assert!(many.contains("text 14") && !many.contains("<p>first</p>") && many.contains("<p>kept</p>"));
        assert!(many.contains("(1 missing)") && many.contains("5 older revisions:"));
        assert_eq!(many.matches("<td>Ada</td>").count(), LISTED_REVISIONS);
    }

    #[test]
    fn a_revision_is_measured() {
        let store = Store::write(2, 1, 0.1, 1);
        let (mut out, mut headings) = (String::new(), Vec::new());
        let known = &store.pages[0].title;
        let text = format!("## One two\n\nthree [four](/wiki/{known}) `five` [six](/wiki/None)");
        let measure = revision_html(&store, &text, &mut out, &mut headings);
        assert_eq!(
            measure,
            Measure {
                html_bytes: out.len(),
                words: 6,
                links: 2,
                missing: 1
            }
        );
        assert_eq!((headings.len(), headings[0].id.as_str()), (1, "s1-one-two"));
        assert!(out.contains("<h2 id=\"s1-one-two\">One two</h2>"), "{out}");
    }
}
