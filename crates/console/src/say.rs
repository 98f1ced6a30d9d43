//! What people and programs read: results on standard output, everything else on standard error.

use crate::Failure;
use anyhow::Context;
use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines kept while the live view has the terminal; beyond it the oldest go.
const MAX_HELD: usize = 1000;

/// What is held back while the live view has the terminal; nothing while it has not.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

/// Lines that are held back.
#[derive(Debug, Default)]
struct Held {
    lines: VecDeque<Line>,
}

/// A line, and when it came.
#[derive(Debug)]
struct Line {
    at: Instant,
    bytes: Vec<u8>,
    /// What it warns of is so no longer.
    is_settled: bool,
}

/// A line that is held back, for the live view, as text: no colours, no time, and nothing in it is a command to the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLine {
    /// The line: a level, where it is of the log, and what is said.
    pub text: String,
    /// How old it is.
    pub age: Duration,
    /// Whether it is a warning or an error of the log.
    pub is_warning: bool,
}

impl HeldLine {
    /// A line as it was written, of this age.
    pub fn of(line: &str, age: Duration) -> Self {
        let text = plain(line);
        let is_warning = ["WARN ", "ERROR "].iter().any(|level| text.starts_with(level));
        Self {
            text,
            age,
            is_warning,
        }
    }
}

fn held() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on nothing is written to standard error: the live view has the terminal.
pub fn hold() {
    held().get_or_insert_default();
}

/// Writes what was held back, and from now on writes at once again.
pub fn release() {
    let held = held().take().unwrap_or_default();
    let mut out = io::stderr().lock();
    for line in held.lines {
        // Nobody may read it any more; then there is nobody to tell.
        let _ = out.write_all(&line.bytes);
    }
}

/// What this warning warned of is so no longer: the live view does not show it any more. It is written like the others when the view has gone.
pub fn settle(warning: &str) {
    let warning = plain(warning);
    let mut held = held();
    let lines = held.iter_mut().flat_map(|held| &mut held.lines);
    for line in lines {
        line.is_settled |= plain(&String::from_utf8_lossy(&line.bytes)).contains(&warning);
    }
}

/// What of the lines that are held back the live view shows, for nobody else can meanwhile: the newest, and before it the newest warning
/// where that is another line; neither where it is older than so long.
pub fn newest_held(any_within: Duration, warning_within: Duration) -> Vec<HeldLine> {
    let held = held();
    let lines = held.iter().flat_map(|held| held.lines.iter().rev());
    let lines = lines.filter(|line| !line.is_settled);
    // Once they are older than both, all before them are.
    let longest = any_within.max(warning_within);
    let mut young = lines
        .map(|line| HeldLine::of(&String::from_utf8_lossy(&line.bytes), line.at.elapsed()))
        .take_while(|line| line.age <= longest);
    let Some(newest) = young.next() else {
        return Vec::new();
    };
    let warning = match newest.is_warning {
        true => None,
        false => young.find(|line| line.is_warning && line.age <= warning_within),
    };
    let within = match newest.is_warning {
        true => warning_within,
        false => any_within,
    };
    let newest = (newest.age <= within).then_some(newest);
    warning.into_iter().chain(newest).collect()
}

/// A line of the log without its colours and its time, on one line.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.trim_end().chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_sequence(&mut characters),
            '\n' => end_message(&mut text),
            '\t' => text.push(' '),
            character if character.is_control() => {}
            character => text.push(character),
        }
    }
    let text = text.trim_start();
    let first = text.split(' ').next().unwrap_or_default();
    match is_time(first) {
        true => text[first.len()..].trim_start().to_owned(),
        false => text.to_owned(),
    }
}

/// Where a line of a text ends, the next is another message: several mistakes of a file are one text.
fn end_message(text: &mut String) {
    text.truncate(text.trim_end().len());
    match text.ends_with([':', ';', ',']) || text.is_empty() {
        true => text.push(' '),
        false => text.push_str("; "),
    }
}

/// Passes over what belongs to an escape character: a sequence that begins with `[` ends with the first character from `@` to `~`, one that
/// begins with `]` with BEL or ESC `\`; any other is one character, after those from space to `/`.
fn skip_sequence(characters: &mut std::str::Chars<'_>) {
    match characters.next() {
        Some('[') => {
            characters.find(|character| ('@'..='~').contains(character));
        }
        Some(']') => {
            let end = characters.find(|character| ['\u{7}', '\u{1b}'].contains(character));
            if end == Some('\u{1b}') {
                characters.next();
            }
        }
        Some(' '..='/') => {
            characters.find(|character| !(' '..='/').contains(character));
        }
        _ => {}
    }
}

/// Whether a word is a time as the log writes it: `2026-11-29T22:06:35.846011Z`.
fn is_time(word: &str) -> bool {
    let is_of_time = |byte: u8| byte.is_ascii_digit() || b"-:.TZ".contains(&byte);
    word.len() > 19 && word.as_bytes()[10] == b'T' && word.ends_with('Z') && word.bytes().all(is_of_time)
}

/// Standard error, for notes and for the log: held back while the live view has the terminal.
#[derive(Clone, Copy, Debug)]
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut held = held();
        let Some(Held { lines }) = held.as_mut() else {
            drop(held);
            // A log whose reader is gone must not end, nor disturb, what is logged: what cannot be written is dropped.
            return Ok(io::stderr().lock().write(bytes).unwrap_or(bytes.len()));
        };
        if lines.len() == MAX_HELD {
            lines.pop_front();
        }
        lines.push_back(Line {
            at: Instant::now(),
            bytes: bytes.to_owned(),
            is_settled: false,
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().lock().flush();
        Ok(())
    }
}

/// Writes a line to standard error, as `eprintln!` does, but goes on where nobody reads it any more: a service must
/// not end with the reader of its log. The line is written as a whole: other processes (a gateway's) write there too, and
/// a formatted line written part by part would have theirs in its middle.
#[macro_export]
macro_rules! note {
    ($($arg:tt)*) => {
        $crate::say::line(::std::format!($($arg)*))
    };
}
pub use crate::note;

/// Writes a line to standard error in one piece; see [`note!`].
pub fn line(mut text: String) {
    text.push('\n');
    let _ = StandardError.write_all(text.as_bytes());
}

/// Writes a result and a newline to standard output.
///
/// # Errors
/// As [`written`].
pub fn result(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// How writing to standard output went. Whoever stopped reading has what they wanted, so that is no failure.
///
/// # Errors
/// Any other error, such as a full disk.
pub fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome.context("the result cannot be written to standard output")?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_note_is_written_as_a_whole_and_a_warning_stays_beside_newer_notes() {
        hold();
        note!("serving {} on {}", "cgroup /web", 8080);
        let shown = || -> Vec<String> {
            let lines = newest_held(MINUTE, MINUTE).into_iter();
            lines.map(|line| line.text).collect()
        };
        assert_eq!(shown(), ["serving cgroup /web on 8080"]);
        line(
            "\u{1b}[2m2026-11-29T22:06:35.846011Z\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m law.nme: unknown"
                .to_owned(),
        );
        assert_eq!(shown(), ["WARN law.nme: unknown"]);
        note!("web1: off");
        assert_eq!(shown(), ["WARN law.nme: unknown", "web1: off"]);
        assert_eq!(newest_held(Duration::ZERO, MINUTE).len(), 1);
        assert_eq!(newest_held(Duration::ZERO, Duration::ZERO), []);
        // Of several lines, and with what the log puts before it.
        line("\u{1b}[33m WARN\u{1b}[0m all stays: a: is 1\nb: is 2".to_owned());
        assert_eq!(shown(), ["WARN all stays: a: is 1; b: is 2"]);
        settle("all stays: a: is 1\nb: is 2");
        assert_eq!(shown(), ["WARN law.nme: unknown", "web1: off"]);
        let held = held().take().unwrap();
        assert_eq!(held.lines[0].bytes, b"serving cgroup /web on 8080\n");
    }

    #[test]
    fn colours_titles_and_times_are_left_out_whole() {
        for (line, wanted) in [
            ("\u{1b}[1;31mERROR\u{1b}[0m a\tb\n", "ERROR a b"),
            ("2026-11-29T22:06:35.846011Z  WARN half a", "WARN half a"),
            ("2026-11-29 is a day", "2026-11-29 is a day"),
            ("\u{1b}]0;a title\u{7}text", "text"),
            ("\u{1b}]0;a title\u{1b}\\text", "text"),
            ("\u{1b}(Btext\u{1b}c", "text"),
            ("cut \u{1b}[2", "cut "),
            (
                "WARN a.toml:3: b: is 1\na.toml:4: c: is 2. Nothing changes\n",
                "WARN a.toml:3: b: is 1; a.toml:4: c: is 2. Nothing changes",
            ),
            ("it says:\r\nno \n\nand more", "it says: no; and more"),
        ] {
            assert_eq!(plain(line), wanted, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_of_a_line_is_a_command_to_the_terminal(line in "(\\PC|[\u{1b}\\[\\]();m0-9\u{7}\u{9b}\n\t]){0,80}") {
            prop_assert!(!plain(&line).chars().any(char::is_control));
        }

        #[test]
        fn plain_text_stays_as_it_is(text in "[a-z][a-z ]{0,60}[a-z]") {
            prop_assert_eq!(plain(&text), text);
        }
    }
}
