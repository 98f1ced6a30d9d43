//! The bounds of a recorder file.

use crate::Error;
use std::time::Duration;

/// How much a recorder file may hold.
///
/// Runs beyond a bound are removed whole, the oldest first, and named in the log; a run that is being recorded never is, nor is the latest
/// run for its size. Where these exceed the size by themselves, their oldest periods go; their summaries still cover
/// all of them. Whenever the size is exceeded, a tenth of it is made free. The file shrinks with what is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A run that ended longer than this before the newest record is removed: the wall clock has no part in it, so that a
    /// wrong one removes nothing. One opening of the file removes at most a tenth of its runs for their age, at least one.
    pub max_age: Duration,
    /// The size of the database file, in bytes; at least [`Limits::MIN_BYTES`]. The write-ahead log beside it may
    /// add up to about 2 MiB for as long as a recorder is open.
    pub max_bytes: u64,
}

impl Limits {
    /// The smallest size that is accepted: an empty file with its indices, and room to work.
    pub const MIN_BYTES: u64 = 1 << 20;

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.max_bytes < Self::MIN_BYTES {
            return Err(Error::Limit {
                name: "max_bytes",
                value: self.max_bytes.to_string(),
                remedy: "set at least 1048576 (1 MiB)",
            });
        }
        if self.max_age.is_zero() {
            return Err(Error::Limit {
                name: "max_age",
                value: "0 s".to_owned(),
                remedy: "set how long a run is to be kept",
            });
        }
        Ok(())
    }
}

impl Default for Limits {
    /// 30 days and 256 MiB: at one period a second about four days of one run, thousands of demos.
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(30 * 24 * 3600),
            max_bytes: 256 << 20,
        }
    }
}
