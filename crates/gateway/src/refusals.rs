//! Log lines of connections that are closed before their first request: what who connects can cause is limited.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines in a window, of all listeners and cores together: a client may change its address and port at will.
const MAX_LINES: u32 = 10;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Window {
    began: Option<Instant>,
    written: u32,
    /// Since the last line that was written.
    left_out: u64,
}

/// Lets a bounded number of lines through.
#[derive(Debug)]
struct Limiter(Mutex<Window>);

impl Limiter {
    const fn new() -> Self {
        Self(Mutex::new(Window {
            began: None,
            written: 0,
            left_out: 0,
        }))
    }

    /// Whether one more line is written, and then how many were left out since the last one.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began: Instant| now.saturating_duration_since(began) >= WINDOW;
        if window.began.is_none_or(is_over) {
            window.began = Some(now);
            window.written = 0;
        }
        if window.written == MAX_LINES {
            window.left_out += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

/// Says that a client's connection was closed, and why, unless too many were a moment ago: the next line counts those.
pub(crate) fn tell(client: SocketAddr, why: &str) {
    static LIMITER: Limiter = Limiter::new();
    if let Some(left_out) = LIMITER.admit(Instant::now()) {
        tracing::info!(%client, left_out, "a connection was closed before its first request: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_the_next_one_counts_the_rest() {
        let limiter = Limiter::new();
        let start = Instant::now();
        let step = Duration::from_micros(100);
        let written = (0..10_000)
            .filter_map(|line| limiter.admit(start + step * line))
            .collect::<Vec<_>>();
        assert_eq!(written, [0; MAX_LINES as usize]);
        assert_eq!(limiter.admit(start + WINDOW), Some(10_000 - u64::from(MAX_LINES)));
        assert_eq!(limiter.admit(start + WINDOW), Some(0));
    }
}
