//! What a service manager such as systemd is reported: ready, stopping, and that the thread that decides comes round.
//! Without one (no `NOTIFY_SOCKET`) nothing is.

use headroom_node::restore::Watch;
use sd_notify::NotifyState;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}

/// How many parts of this process must serve before it is ready.
static MISSING: AtomicUsize = AtomicUsize::new(1);

/// So many parts are to say that they are ready; one where nothing is said.
pub fn expect(parts: usize) {
    MISSING.store(parts, Ordering::Relaxed);
}

/// A part serves; the last makes the whole ready.
pub fn ready() {
    if MISSING.fetch_sub(1, Ordering::Relaxed) == 1 {
        report(&[NotifyState::Ready]);
    }
}

/// It ends.
pub fn stopping() {
    report(&[NotifyState::Stopping]);
}

/// How it is, in a line.
pub fn status(text: &str) {
    report(&[NotifyState::Status(text)]);
}

/// Keeps the service manager's watchdog quiet as long as the thread that decides comes round at least this often; before its
/// first turn and after its last there is nothing that hangs.
///
/// # Errors
/// No thread can be started.
pub fn keep_watchdog(watch: &Watch, turns_within: Duration) -> std::io::Result<()> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return Ok(());
    };
    let watch = watch.clone();
    std::thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || {
            loop {
                if watch.since_turn().is_none_or(|since| since <= turns_within) {
                    report(&[NotifyState::Watchdog]);
                }
                // As the manual of sd_watchdog_enabled asks: half of the time.
                std::thread::sleep(limit / 2);
            }
        })?;
    Ok(())
}
