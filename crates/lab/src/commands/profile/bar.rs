//! How far a profile is.

use super::measure::Progress;
use crate::simulate::{bar, overwrite};
use headroom_console::say;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Short enough that the line has room in 80 columns.
const WIDTH: u64 = 12;
/// Between two lines where they are not written over.
const EVERY: Duration = Duration::from_secs(60);

/// The line that says how far it is: drawn over on a terminal, else one a minute.
#[derive(Default)]
pub struct Bar {
    last: Cell<Option<Instant>>,
}

impl Bar {
    /// Says it.
    pub fn draw(&self, progress: &Progress) {
        let (least, most) = progress.left_s;
        let line = format!(
            "{} {}/{} cells, {} windows, {least:.0} to {most:.0} s left: {}",
            bar(progress.done as u64, progress.cells as u64, WIDTH),
            progress.done,
            progress.cells,
            progress.windows,
            progress.now
        );
        let is_due = self.last.get().is_none_or(|last| last.elapsed() >= EVERY);
        if !overwrite(&line) && is_due {
            self.last.set(Some(Instant::now()));
            say::note!("{line}");
        }
    }

    /// Nothing of it is left on a terminal.
    pub fn clear(&self) {
        overwrite("");
    }
}
