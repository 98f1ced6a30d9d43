//! How far long work is: one line on standard error that writes over itself; nothing where that is no terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two drawings.
const EVERY: Duration = Duration::from_millis(100);
const WIDTH: u64 = 24;

/// A bar of so many characters, of which as large a part is full as is done.
pub fn bar(done: u64, total: u64, width: u64) -> String {
    let filled = (width * done / total.max(1)) as usize;
    format!("{}{}", "█".repeat(filled), "░".repeat(width as usize - filled))
}

/// Writes a line over the one before it, where somebody sees it; whether that is so.
pub fn overwrite(line: impl Display) -> bool {
    let seen = std::io::stderr().is_terminal();
    if seen {
        // Nobody may read it any more; then there is nobody to tell.
        let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{line}");
    }
    seen
}

/// Work of which a known number of parts is done.
pub struct Progress {
    what: String,
    total: u64,
    done: AtomicU64,
    started: Instant,
    /// When it was drawn last; `None` where nobody would see it.
    drawn: Option<Mutex<Instant>>,
}

impl Progress {
    /// Begins work of so many parts.
    pub fn new(what: impl Into<String>, total: u64) -> Self {
        let started = Instant::now();
        Self {
            what: what.into(),
            total: total.max(1),
            done: AtomicU64::new(0),
            started,
            drawn: std::io::stderr().is_terminal().then(|| Mutex::new(started)),
        }
    }

    /// So many more parts are done.
    pub fn add(&self, parts: u64) {
        let done = self.done.fetch_add(parts, Ordering::Relaxed) + parts;
        let Some(drawn) = &self.drawn else { return };
        let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if drawn.elapsed() >= EVERY {
            *drawn = Instant::now();
            self.draw(done.min(self.total));
        }
    }

    fn draw(&self, done: u64) {
        let gone_s = self.started.elapsed().as_secs_f64();
        let left_s = gone_s * (self.total - done) as f64 / done.max(1) as f64;
        let bar = bar(done, self.total, WIDTH);
        overwrite(format_args!(
            "{} {bar} {done} of {}, {gone_s:.0} s, some {left_s:.0} s left",
            self.what, self.total
        ));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            overwrite("");
        }
    }
}
