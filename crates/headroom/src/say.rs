//! What people and programs are told: results on standard output, everything else on standard error.

use crate::failure::Failure;
use anyhow::Context;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes a line to standard error, as `eprintln!` does, but goes on where nobody reads it any more: a service must
/// not end with the reader of its log.
macro_rules! note {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($arg)*);
    }};
}
pub(crate) use note;

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
