//! Whether those who serve a port serve others, too: then what they serve of it is what the others leave.

use super::step::Listener;
use headroom_units::Seconds;

/// From this share of those who wait for a server's processes on, those at other ports hide what they could serve at this one.
const SHARED: f64 = 0.05;
/// The time over which they are counted.
const COUNTED_S: f64 = 10.0;

/// Who waits for the processes that serve a port, there and at other ports of theirs; connections times seconds, the old ones forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    here: f64,
    elsewhere: f64,
}

impl Shared {
    /// Takes what was read at the end of this time.
    pub(super) fn take(&mut self, length: Seconds, listener: Option<&Listener>) {
        let kept = (-length.get() / COUNTED_S).exp();
        let (mut here, mut elsewhere) = (0.0, 0.0);
        if let Some(listener) = listener
            && let Some(found) = listener.connections
        {
            here = found.working as f64 + f64::from(listener.length.unwrap_or(0));
            elsewhere = found.elsewhere as f64;
        }
        self.here = self.here * kept + here * length.get();
        self.elsewhere = self.elsewhere * kept + elsewhere * length.get();
    }

    /// For how many at other ports they work, of all; `None` where it is none or few.
    pub(super) fn share(&self) -> Option<f64> {
        let all = self.here + self.elsewhere;
        // What is left of long ago is nobody.
        let share = if all > 1e-3 { self.elsewhere / all } else { 0.0 };
        (share >= SHARED).then_some(share)
    }
}
