//! Whether those who serve a port serve others, too: then what they serve of it is what the others leave.

use super::step::Listener;
use headroom_units::Seconds;

/// From this share of those who wait for a server's processes on, those at other ports hide what they could serve at this one.
const SHARED: f64 = 0.05;
/// And from this share of those who wait at this moment, where they are more than one: their number is known late else.
const SHARED_NOW: f64 = 0.2;
/// The time over which they are counted.
const COUNTED_S: f64 = 10.0;

/// Who waits for the processes that serve a port, there and at other ports of theirs; connections times seconds, the old ones forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    here: f64,
    elsewhere: f64,
    /// The share of those who wait at this moment.
    now: f64,
    /// For how long nobody has looked: then nobody waits here.
    unseen_s: f64,
}

impl Shared {
    /// Takes what was read at the end of this time.
    pub(super) fn take(&mut self, length: Seconds, listener: Option<&Listener>) {
        let Some((listener, found)) = listener.and_then(|one| Some((one, one.connections?))) else {
            self.unseen_s += length.get();
            if self.unseen_s >= COUNTED_S {
                *self = Self::default();
            }
            return;
        };
        self.unseen_s = 0.0;
        let kept = (-length.get() / COUNTED_S).exp();
        let here = found.working + u64::from(listener.length.unwrap_or(0));
        self.now = match found.elsewhere {
            0 | 1 => 0.0,
            elsewhere => elsewhere as f64 / (elsewhere + here) as f64,
        };
        self.here = self.here * kept + here as f64 * length.get();
        self.elsewhere = self.elsewhere * kept + found.elsewhere as f64 * length.get();
    }

    /// For how many at other ports they work, of all; `None` where it is none or few.
    pub(super) fn share(&self) -> Option<f64> {
        let all = self.here + self.elsewhere;
        let share = if all > 0.0 { self.elsewhere / all } else { 0.0 };
        (share >= SHARED || self.now >= SHARED_NOW).then_some(share.max(self.now))
    }
}
