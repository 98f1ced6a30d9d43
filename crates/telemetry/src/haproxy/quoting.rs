//! A log format as it stands in a configuration file: quotes and backslashes taken off as HAProxy does.

/// The words of a configuration line, with HAProxy's quoting removed: weak quotes `"…"` in which a backslash
/// escapes `"`, `\`, `$` and `'`, strong quotes `'…'`, and outside of quotes a backslash before a space, a quote, a hash
/// or another backslash. `#` outside of quotes begins a comment.
///
/// # Errors
/// The quote that is not closed, as text.
pub(super) fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut inside = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => {
                if inside {
                    words.push(std::mem::take(&mut word));
                    inside = false;
                }
                continue;
            }
            '#' if !inside => break,
            '\\' => match chars.next() {
                Some(escaped) => unescape(escaped, &mut word),
                None => word.push('\\'),
            },
            '\'' => loop {
                match chars.next() {
                    Some('\'') => break,
                    Some(c) => word.push(c),
                    None => return Err("a single quote (') is not closed"),
                }
            },
            '"' => loop {
                match chars.next() {
                    Some('"') => break,
                    Some('\\') if chars.peek().is_some_and(|c| matches!(c, '"' | '\\' | '$' | '\'')) => {
                        word.extend(chars.next());
                    }
                    Some(c) => word.push(c),
                    None => return Err("a double quote (\") is not closed"),
                }
            },
            c => word.push(c),
        }
        inside = true;
    }
    if inside {
        words.push(word);
    }
    Ok(words)
}

fn unescape(escaped: char, word: &mut String) {
    match escaped {
        'n' => word.push('\n'),
        't' => word.push('\t'),
        'r' => word.push('\r'),
        ' ' | '\\' | '#' | '\'' | '"' => word.push(escaped),
        other => {
            word.push('\\');
            word.push(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_taken_off_as_haproxy_does() {
        assert_eq!(
            words(r"log-format %ci:%cp\ %ST # end").unwrap(),
            ["log-format", "%ci:%cp %ST"]
        );
        assert_eq!(
            words(r#"log-format "%ST \"%b\" $" "#).unwrap(),
            ["log-format", r#"%ST "%b" $"#]
        );
        assert_eq!(
            words(r#"log-format '{"b":"%b"}'"#).unwrap(),
            ["log-format", r#"{"b":"%b"}"#]
        );
        assert_eq!(words(r#"a"b c"'d e'f"#).unwrap(), ["ab cd ef"]);
        assert_eq!(words("a ''").unwrap(), ["a", ""]);
        assert!(words("log-format \"%ST").is_err());
        assert!(words("log-format '%ST").is_err());
    }
}
