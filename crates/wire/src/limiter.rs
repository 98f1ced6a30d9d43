//! Keeps what a remote peer causes out of the log where there is too much of it.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one kind that one peer may cause in a window.
pub const MAX_LINES: u32 = 5;
/// How long a window is: each ends with one line that says how many were left out.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Peers and kinds that are distinguished; those beyond share one place for each kind.
const MAX_PLACES: usize = 512;
/// What stands for all peers that have no place of their own.
const OTHERS: &str = "other peers";

/// Counts lines by peer and kind. Of each, the first [`MAX_LINES`] of a window are written.
#[derive(Debug, Default)]
pub struct LogLimiter {
    places: Mutex<HashMap<(String, &'static str), Place>>,
}

#[derive(Debug)]
struct Place {
    began: Instant,
    written: u32,
    left_out: u64,
}

/// How many lines were left out in a window that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Whose.
    pub peer: String,
    /// Of which kind.
    pub kind: &'static str,
    /// How many lines were left out.
    pub lines: u64,
}

impl LogLimiter {
    /// Whether one more line of a kind that a peer causes is written.
    pub fn admits(&self, peer: &str, kind: &'static str, now: Instant) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (peer.to_owned(), kind);
        if places.len() >= MAX_PLACES && !places.contains_key(&key) {
            OTHERS.clone_into(&mut key.0);
        }
        let place = places.entry(key).or_insert(Place {
            began: now,
            written: 0,
            left_out: 0,
        });
        // A window that is over is closed by `ended`, so that what was left out is never forgotten.
        if place.left_out == 0 && now.saturating_duration_since(place.began) >= WINDOW {
            place.began = now;
            place.written = 0;
        }
        let admitted = place.written < MAX_LINES;
        match admitted {
            true => place.written += 1,
            false => place.left_out += 1,
        }
        admitted
    }

    /// Closes the windows that are over; what was left out in each.
    pub fn ended(&self, now: Instant) -> Vec<LeftOut> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = Vec::new();
        places.retain(|(peer, kind), place| {
            if now.saturating_duration_since(place.began) < WINDOW {
                return true;
            }
            if place.left_out > 0 {
                left_out.push(LeftOut {
                    peer: peer.clone(),
                    kind,
                    lines: place.left_out,
                });
            }
            false
        });
        left_out
    }
}

fn process() -> &'static LogLimiter {
    static LIMITER: OnceLock<LogLimiter> = OnceLock::new();
    LIMITER.get_or_init(LogLimiter::default)
}

/// Whether one more line that a peer causes is to be written to this process's log. `peer` is what cannot be changed at
/// will: an address without its port, or a proven name.
pub fn admits(peer: &str, kind: &'static str) -> bool {
    process().admits(peer, kind, Instant::now())
}

/// Writes how many lines were left out; called by each server once in a while.
pub(crate) fn tell_left_out() {
    for LeftOut { peer, kind, lines } in process().ended(Instant::now()) {
        tracing::warn!(
            peer,
            kind,
            lines,
            "as many lines of this peer were left out of the log"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_one_that_counts_the_rest() {
        let limiter = LogLimiter::default();
        let start = Instant::now();
        let step = Duration::from_micros(175);
        let written = (0..22_775)
            .filter(|line| limiter.admits("10.0.0.9", "rejected", start + step * *line))
            .count();
        assert_eq!(written, MAX_LINES as usize);
        assert!(limiter.admits("10.0.0.8", "rejected", start), "another peer");
        assert!(limiter.admits("10.0.0.9", "refused", start), "another kind");
        assert_eq!(limiter.ended(start + WINDOW / 2), []);
        let left_out = limiter.ended(start + WINDOW);
        assert_eq!(left_out.len(), 1);
        assert_eq!(
            (left_out[0].lines, left_out[0].kind),
            (22_775 - u64::from(MAX_LINES), "rejected")
        );
        assert_eq!(limiter.ended(start + WINDOW), [], "said once");
        assert!(limiter.admits("10.0.0.9", "rejected", start + WINDOW));
    }

    #[test]
    fn any_number_of_peers_takes_a_bounded_number_of_places_and_lines() {
        let limiter = LogLimiter::default();
        let start = Instant::now();
        let written = (0..10_000)
            .filter(|peer: &u32| limiter.admits(&peer.to_string(), "rejected", start))
            .count();
        assert_eq!(written, MAX_PLACES + MAX_LINES as usize);
        assert!(limiter.places.lock().unwrap().len() <= MAX_PLACES + 1);
        let lines: u64 = limiter.ended(start + WINDOW).iter().map(|one| one.lines).sum();
        assert_eq!(lines, 10_000 - written as u64);
        assert!(limiter.places.lock().unwrap().is_empty());
    }
}
