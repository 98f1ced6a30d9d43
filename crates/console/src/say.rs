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
    lines: VecDeque<Vec<u8>>,
    /// When the newest came.
    newest: Option<Instant>,
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
        let _ = out.write_all(&line);
    }
}

/// The newest line that is held back, where it is no older than this: the live view shows it, for nobody else can meanwhile. Nothing in it
/// is a command to the terminal.
pub fn newest_held(within: Duration) -> Option<String> {
    let held = held();
    let held = held.as_ref()?;
    held.newest.filter(|at| at.elapsed() <= within)?;
    let text = String::from_utf8_lossy(held.lines.back()?).into_owned();
    let text = text.trim_end().replace(['\n', '\t'], " ");
    Some(text.chars().filter(|character| !character.is_control()).collect())
}

/// Standard error, for notes and for the log: held back while the live view has the terminal.
#[derive(Clone, Copy, Debug)]
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut held = held();
        let Some(Held { lines, newest }) = held.as_mut() else {
            drop(held);
            // A log whose reader is gone must not end, nor disturb, what is logged: what cannot be written is dropped.
            return Ok(io::stderr().lock().write(bytes).unwrap_or(bytes.len()));
        };
        if lines.len() == MAX_HELD {
            lines.pop_front();
        }
        lines.push_back(bytes.to_owned());
        *newest = Some(Instant::now());
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

    #[test]
    fn a_note_is_written_as_a_whole_whatever_it_is_put_together_from() {
        hold();
        note!("serving {} on {}", "cgroup /web", 8080);
        assert_eq!(
            newest_held(Duration::from_secs(60)).unwrap(),
            "serving cgroup /web on 8080"
        );
        let held = held().take().unwrap();
        assert_eq!(held.lines, [b"serving cgroup /web on 8080\n".to_vec()]);
    }
}
