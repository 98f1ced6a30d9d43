//! Long lines for narrow terminals: reports whose lines begin with a name, and comments of example configurations.

use textwrap::Options;

/// Folds each line at a width, in characters; what is folded begins under the text after the line's name, so many characters wide.
pub fn report(text: &str, width: usize, name: usize) -> String {
    let indent = " ".repeat(name);
    // Between name and text there may be many spaces, which are kept.
    let options = Options::new(width.max(2 * name)).subsequent_indent(&indent);
    let lines = text.lines().map(|line| textwrap::fill(line, &options));
    lines.collect::<Vec<_>>().join("\n")
}

/// Folds the comments of an example configuration in TOML at a width, in characters: paragraphs with a line that is longer, and a comment
/// after a value, which then stands before it. Values, and keys that are commented out, are left as they are.
pub fn comments(toml: &str, width: usize) -> String {
    let mut lines = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    for line in toml.lines() {
        if let Some(prose) = line.strip_prefix("# ").filter(|text| is_prose(text)) {
            paragraph.push(prose);
            continue;
        }
        end(&mut paragraph, width, &mut lines);
        match line.split_once("  # ") {
            Some((value, comment)) if line.chars().count() > width => {
                end(&mut vec![comment.trim()], width, &mut lines);
                lines.push(value.trim_end().to_owned());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    end(&mut paragraph, width, &mut lines);
    lines.join("\n")
}

/// Whether a comment is neither a key nor a table that is commented out.
fn is_prose(text: &str) -> bool {
    let name = text.split(" = ").next().unwrap_or_default();
    let is_key = text.contains(" = ") && !name.contains(' ');
    !is_key && !text.starts_with(['[', ' '])
}

fn end(paragraph: &mut Vec<&str>, width: usize, lines: &mut Vec<String>) {
    let is_short = paragraph.iter().all(|line| line.chars().count() + 2 <= width);
    if is_short {
        lines.extend(paragraph.iter().map(|line| format!("# {line}")));
    } else {
        let options = Options::new(width).initial_indent("# ").subsequent_indent("# ");
        let text = bound(&paragraph.join(" "));
        let folded = textwrap::wrap(&text, options);
        lines.extend(folded.iter().map(|line| line.replace(NO_BREAK, " ")));
    }
    paragraph.clear();
}

const NO_BREAK: char = '\u{a0}';

/// What would be taken for a key or a table at the beginning of a line is bound to the word before it.
fn bound(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut bound = String::new();
    for (at, word) in words.iter().enumerate() {
        let is_bound = *word == "="
            || word.starts_with('[')
            || words.get(at + 1) == Some(&"=")
            || (at > 0 && words[at - 1] == "=");
        match (at, is_bound) {
            (0, _) => {}
            (_, true) => bound.push(NO_BREAK),
            (_, false) => bound.push(' '),
        }
        bound.push_str(word);
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_folded_under_its_text() {
        let text = "latency     mean 1.2 ms, P50 1.0, P95 2.0\nshort       1";
        let folded = "latency     mean 1.2 ms, P50\n            1.0, P95 2.0\nshort       1";
        assert_eq!(report(text, 30, 12), folded);
        assert_eq!(report(text, 80, 12), text);
    }

    #[test]
    fn comments_are_folded_and_values_and_what_a_key_or_table_looks_like_are_not() {
        let text = "# One two three four: see [a] and key = 1 of it all.\n# short\n[gateway]\n# key = \"a value that is long\"\n\
                    # other = 1    # what this is about\nx = 1  # y\n#\n# stays as it is";
        let folded = "# One two three four:\n# see [a] and key = 1 of\n# it all. short\n[gateway]\n# key = \"a value that is long\"\n\
                      # what this is about\n# other = 1\nx = 1  # y\n#\n# stays as it is";
        assert_eq!(comments(text, 24), folded);
        assert_eq!(comments(text, 100), text);
        // A key begins no line of prose, whatever the width.
        for width in 10..60 {
            let folded = comments(text, width);
            assert_eq!(folded.matches("\n# key = 1").count(), 0, "{folded}");
            assert_eq!(folded.matches("\n# [a]").count(), 0, "{folded}");
        }
    }
}
