//! What the FUSE shell, the clock and the handles share: the world behind one lock, and a bell that wakes the clock.

use super::world::World;
use headroom_units::Seconds;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The clock is not woken more often than this.
const MIN_TICK: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct Bell {
    rung: bool,
    stopped: bool,
}

/// The world and its clock.
pub(super) struct Shared {
    world: Mutex<World>,
    bell: Mutex<Bell>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self {
            world: Mutex::new(world),
            bell: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The world. A panic while it was changed leaves figures that are off by one step at most.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world, while the emulator runs.
    pub(super) fn open_world(&self) -> Option<MutexGuard<'_, World>> {
        (!self.bell().stopped).then(|| self.world())
    }

    fn bell(&self) -> MutexGuard<'_, Bell> {
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the clock tick now, so that what was just written takes hold at once and not with the next tick.
    pub(super) fn wake(&self) {
        self.bell().rung = true;
        self.changed.notify_all();
    }

    /// Ends the clock and closes the tree.
    pub(super) fn stop(&self) {
        self.bell().stopped = true;
        self.changed.notify_all();
    }

    /// Moves the world along with the monotonic clock until it is stopped.
    pub(super) fn run(&self, tick: Duration) {
        let mut last = Instant::now();
        loop {
            let mut bell = self.bell();
            while !bell.stopped && !bell.rung {
                let left = tick.saturating_sub(last.elapsed());
                if left.is_zero() {
                    break;
                }
                bell = self
                    .changed
                    .wait_timeout(bell, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            if bell.stopped {
                return;
            }
            bell.rung = false;
            drop(bell);
            if let Some(early) = MIN_TICK.checked_sub(last.elapsed()) {
                std::thread::sleep(early);
            }
            // The lock first, then the clock: whatever waited for the lock belongs to this step.
            let mut world = self.world();
            let now = Instant::now();
            world.tick(Seconds::from(now - last));
            last = now;
        }
    }
}
