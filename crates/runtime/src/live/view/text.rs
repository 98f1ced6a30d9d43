//! Texts that fit into the lines that there are.

use headroom_console::say::HeldLine;

/// Stands where a text was cut.
pub(super) const CUT: char = '…';

/// A text in lines of at most so many characters, broken between words.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width).subsequent_indent("  ");
    let lines = textwrap::wrap(text, options);
    lines.iter().map(|line| cut(line, width)).collect()
}

/// Lines of the log in at most so many rows, the last line in one at least; what has no room ends in a sign.
pub(super) fn log_rows(log: &[HeldLine], width: usize, rows: usize) -> Vec<String> {
    let mut all = Vec::new();
    for (at, line) in log.iter().enumerate() {
        let left = rows.saturating_sub(all.len());
        let room = left.saturating_sub(log.len() - 1 - at);
        let mut lines = wrapped(&line.text, width);
        if lines.len() > room {
            lines.truncate(room);
            if let Some(last) = lines.last_mut() {
                *last = cut(&format!("{last}{CUT}"), width);
            }
        }
        all.extend(lines);
    }
    all
}

/// Those of the notes that have room beside each other in a line of this width, each of them whole.
pub(super) fn fitting(notes: &[String], width: usize) -> String {
    let with = |line: String, note: &String| {
        let longer = match line.is_empty() {
            true => note.clone(),
            false => format!("{line}; {note}"),
        };
        if longer.chars().count() <= width {
            longer
        } else {
            line
        }
    };
    notes.iter().fold(String::new(), with)
}

/// At most so many characters of a text; one that is longer ends in a sign.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain([CUT]).collect()
}
