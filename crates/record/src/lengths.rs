//! How long a run's periods were: a control loop that got no processor leaves long ones behind, in which nothing was decided.

use headroom_units::Seconds;
use serde::{Deserialize, Serialize};

/// A period is long that lasted more than so many times as long as the usual one.
const LONG: f64 = 2.0;

/// The long periods of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LongPeriods {
    count: u64,
    longest_s: f64,
}

impl LongPeriods {
    /// Adds a period of this length to those of a run whose periods are to be as long as `usual`.
    pub(crate) fn add(&mut self, length: Seconds, usual: Seconds) {
        if usual > Seconds::ZERO && length > usual * LONG {
            self.count += 1;
            self.longest_s = self.longest_s.max(length.get());
        }
    }

    /// What is to be said of them, in a run of so many periods; `None` where none was long.
    pub(crate) fn note(&self, periods: u64, usual: Seconds) -> Option<String> {
        let were = if self.count == 1 { "was" } else { "were" };
        (self.count > 0).then(|| {
            format!(
                "{} of {periods} periods {were} more than twice as long as the usual {} s, the longest {:.1} s: the control loop did not get \
                 a processor, or the machine stood still",
                self.count,
                usual.get(),
                self.longest_s
            )
        })
    }
}
