//! How many requests of batches are on their way at a time: as many as the backends answer without a queue of their own.
//!
//! As in TCP Vegas (Brakmo, O'Malley and Peterson, SIGCOMM 1994) the response time says how many wait behind those that are worked on: of
//! `w` on their way `w (1 - base / response)`, where `base` is the response time without a queue. The window grows while fewer than two
//! wait and shrinks where more than four do, so that a listen queue as short as five bears it; and where one ran over all the same it
//! goes back at once, and comes that high again only after a while.
//!
//! Pages differ in what they cost, so a mean of few answers varies. A queue is believed where the means differ by more than twice their
//! standard errors. The base is the least mean since few were on their way for an interval, which they are now and then for that: a base
//! that was learned behind one's own queue would let that grow for ever.

use std::time::{Duration, Instant};

use crate::exchanges::Seen;

/// The least window, over all cores; of one it is one at least.
const FEW: usize = 4;
/// Over all cores: fewer that wait at backends let the window grow, more make it smaller.
const QUEUED_LEAST: f64 = 2.0;
const QUEUED_MOST: f64 = 4.0;
/// Answers of which a mean is made.
const ANSWERS: u32 = 8;
/// Standard errors that a mean may be off by.
const ERRORS: f64 = 2.0;
/// After so many choices few go for two of them: those on their way before are answered in the first, and the base is learned anew in the
/// second.
const CHOICES: u32 = 32;
const PROBES: u32 = 2;
/// Of those in flight where a listen queue ran over, this part may be again.
const AFTER_OVERRUN: f64 = 0.75;
/// For so long it is no more than that after the first, and after many.
const HELD: Duration = Duration::from_secs(30);
const HELD_MOST: Duration = Duration::from_secs(960);
/// What ran over within this time of another is the same event.
const SAME: Duration = Duration::from_secs(5);
/// Where so many times as many as ran over did not again, what ran over is gone.
const PASSED: f64 = 2.0;

/// A listen queue ran over.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    /// With so many at a time it did.
    overran: f64,
    /// So many are let.
    size: f64,
    /// The last time, and for how long the ceiling stays as it is after it.
    at: Instant,
    held: Duration,
}

/// The window of one core.
#[derive(Debug)]
pub(super) struct Window {
    few: f64,
    queued_least: f64,
    queued_most: f64,
    size: f64,
    ceiling: Option<Ceiling>,
    /// The response time without a queue, as long as it may be by what is known, seconds.
    base_s: f64,
    /// Choices until few go, and for how many they go yet.
    until_probe: u32,
    probing: u32,
    seen: Seen,
    /// The mean of the last choice, seconds.
    mean_s: f64,
    /// More could have gone since it was chosen last.
    is_limited: bool,
    /// The most that were on their way since then.
    most: usize,
    chosen: Instant,
}

impl Window {
    /// Of one of `cores` cores.
    pub(super) fn new(cores: usize, now: Instant) -> Self {
        let few = FEW.div_ceil(cores) as f64;
        let part = |of_all: f64| of_all / cores as f64;
        Self {
            few,
            // Less than one that waits cannot be told from none.
            queued_least: part(QUEUED_LEAST).max(0.5),
            queued_most: part(QUEUED_MOST).max(1.0),
            size: few,
            ceiling: None,
            base_s: f64::INFINITY,
            until_probe: CHOICES,
            probing: 0,
            seen: Seen::default(),
            mean_s: 0.0,
            is_limited: false,
            most: 0,
            chosen: now,
        }
    }

    /// So many may be on their way.
    pub(super) fn size(&self) -> usize {
        // A cast from f64 saturates.
        if self.probing > 0 {
            self.few as usize
        } else {
            self.size as usize
        }
    }

    /// So many may be at least.
    pub(super) fn few(&self) -> usize {
        self.few as usize
    }

    /// What an answer takes after it was let go; zero where that is not known.
    pub(super) fn response(&self) -> Duration {
        Duration::try_from_secs_f64(self.mean_s).unwrap_or(Duration::MAX)
    }

    /// More could have gone, had it been larger than those that are on their way.
    pub(super) fn limits(&mut self, on_their_way: usize) {
        self.is_limited = true;
        self.most = self.most.max(on_their_way);
    }

    /// Chooses it anew at the end of an interval, where enough was seen since it was chosen last.
    pub(super) fn follow(&mut self, seen: Seen, interval: Duration, now: Instant) {
        self.seen = self.seen.and(seen);
        if let Some(in_flight) = self.seen.overrun.take() {
            self.lower(in_flight as f64, now);
        }
        let count = f64::from(self.seen.answers);
        let mean_s = self.seen.sum_s / count;
        // What a change does is seen a response time after it.
        let has_lasted =
            now - self.chosen >= interval.max(Duration::try_from_secs_f64(mean_s).unwrap_or(interval));
        if self.seen.answers < ANSWERS || !has_lasted {
            return;
        }
        let variance = (self.seen.squares_s2 / count - mean_s * mean_s).max(0.0) * count / (count - 1.0);
        let error_s = ERRORS * (variance / count).sqrt();
        self.choose(mean_s, error_s, now);
        self.mean_s = mean_s;
        (self.seen, self.is_limited, self.most, self.chosen) = (Seen::default(), false, 0, now);
    }

    /// Chooses it by a mean response time and by how much that may be off, seconds.
    fn choose(&mut self, mean_s: f64, error_s: f64, now: Instant) {
        if self.probing > 0 {
            self.probing -= 1;
            self.base_s = mean_s + error_s;
            return;
        }
        let before_s = if self.size > self.few {
            self.base_s
        } else {
            f64::INFINITY
        };
        self.base_s = before_s.min(mean_s + error_s);
        let least_s = mean_s - error_s;
        let free = if least_s > self.base_s {
            self.base_s / least_s
        } else {
            1.0
        };
        let queued = self.size * (1.0 - free);
        if queued > self.queued_most {
            self.size = (self.size * free + self.queued_least).max(self.few);
        } else if queued < self.queued_least && self.is_limited {
            self.grow(now);
        }
        self.until_probe -= 1;
        if self.until_probe == 0 {
            (self.until_probe, self.probing) = (CHOICES, PROBES);
        }
    }

    /// By so little that no more than a few wait where it is too much.
    fn step(&self) -> f64 {
        (self.size.sqrt() / 2.0).max(1.0)
    }

    /// From as many as there were without a queue, which are more than the window where requests come as fast as without batches.
    fn grow(&mut self, now: Instant) {
        self.size = self.size.max(self.most as f64);
        let size = self.size + self.step();
        self.size = match &mut self.ceiling {
            Some(ceiling) if size > ceiling.size => {
                if now - ceiling.at >= ceiling.held {
                    ceiling.size = size;
                }
                ceiling.size
            }
            _ => size,
        };
        if self
            .ceiling
            .is_some_and(|ceiling| self.size > PASSED * ceiling.overran)
        {
            self.ceiling = None;
        }
    }

    /// A listen queue ran over with so many in flight.
    fn lower(&mut self, in_flight: f64, now: Instant) {
        let size = (AFTER_OVERRUN * in_flight).max(self.few);
        let held = match self.ceiling {
            None => HELD,
            Some(last) if now - last.at < SAME => last.held,
            Some(last) => (2 * last.held).min(HELD_MOST),
        };
        let last = self.ceiling.map_or(f64::INFINITY, |last| last.size);
        self.ceiling = Some(Ceiling {
            overran: in_flight,
            size: size.min(last),
            at: now,
            held,
        });
        self.size = self.size.min(size.min(last));
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
