//! The simulated world in the binary: scenarios from files, runs into the flight recorder, many runs at once.

mod emulated;
mod figures;
mod narrow;
mod past;
mod progress;
mod recorded;
mod replay;
mod setting;
mod table;

pub use emulated::{EmulatedRun, Measured, recorded_world};
pub use figures::{Figures, figures};
pub use narrow::{broken, narrow_text};
pub use past::recorded_load;
pub use progress::{Progress, bar, overwrite};
pub use recorded::{Watched, recorded, unrecorded};
pub use replay::recorded_arrivals;
pub use setting::{Setting, example, named_trace};
pub use table::{Table, sheet_text, sheet_text_within, wrap, write_sheet};

/// As many runs at once as asked, else as there are processors.
pub fn jobs(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}
