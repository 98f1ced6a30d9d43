//! A server that serves while nobody listens where what comes to it is counted: its `accept_queue` is another port than its own.

use std::time::{Duration, Instant};

/// What is said of it.
pub(super) const UNHEARD: &str =
    "nobody listens at its accept_queue, and it answers at its check: what comes to it is not counted there";

/// What its accept queue showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was counted.
    Counted,
    /// Nobody listens, and the server takes requests and answers.
    Nobody,
    /// Nothing is known of it.
    Unknown,
    /// The server takes no requests.
    Gone,
}

/// Whether that is so of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unheard {
    since: Option<Instant>,
    /// It was so for too long to be a server that starts anew or dies.
    is_sure: bool,
    /// It was said, and the queue was not counted since: a server that dies and comes back is no news of its configuration.
    is_said: bool,
}

impl Unheard {
    /// Takes what was found; whether it is so, where that is news: once it was so for this long, and once it is counted.
    pub(super) fn observe(&mut self, heard: Heard, now: Instant, after: Duration) -> Option<bool> {
        match heard {
            Heard::Nobody => {}
            Heard::Unknown => {
                // What was seen before a time in which nothing was is no beginning of what is seen after it.
                self.since = self.since.filter(|_| self.is_sure);
                return None;
            }
            Heard::Counted => return std::mem::take(self).is_said.then_some(false),
            Heard::Gone => {
                *self = Self {
                    is_said: self.is_said,
                    ..Self::default()
                };
                return None;
            }
        }
        let since = *self.since.get_or_insert(now);
        self.is_sure |= now.duration_since(since) >= after;
        let is_news = self.is_sure && !self.is_said;
        self.is_said |= is_news;
        is_news.then_some(true)
    }

    /// Whether it is so beyond doubt.
    pub(super) const fn is_sure(self) -> bool {
        self.is_sure
    }

    /// Whether nothing is known of what comes to it, for it never was counted, or it is so beyond doubt. One that dies is found to answer for a
    /// moment, too.
    pub(super) const fn is_uncounted(self, never_counted: bool) -> bool {
        self.is_sure || never_counted && self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_after_a_while_and_once_when_it_ends() {
        let start = Instant::now();
        let after = Duration::from_secs(3);
        let mut unheard = Unheard::default();
        let mut at = |second: u64, heard| {
            let news = unheard.observe(heard, start + Duration::from_secs(second), after);
            (news, unheard.is_uncounted(true), unheard.is_uncounted(false))
        };
        assert_eq!(at(0, Heard::Counted), (None, false, false));
        assert_eq!(at(1, Heard::Nobody), (None, true, false));
        assert_eq!(at(3, Heard::Nobody), (None, true, false));
        assert_eq!(at(4, Heard::Nobody), (Some(true), true, true));
        assert_eq!(at(5, Heard::Nobody), (None, true, true));
        // Its first sample is compared with nothing.
        assert_eq!(at(6, Heard::Unknown), (None, true, true));
        assert_eq!(at(6, Heard::Counted), (Some(false), false, false));
        // One that starts anew, and one that goes.
        assert_eq!(at(7, Heard::Nobody), (None, true, false));
        assert_eq!(at(8, Heard::Counted), (None, false, false));
        at(9, Heard::Nobody);
        at(19, Heard::Nobody);
        assert_eq!(at(20, Heard::Gone), (None, false, false));
    }

    #[test]
    fn it_is_said_once_however_often_the_server_dies_until_it_is_counted() {
        let start = Instant::now();
        let after = Duration::from_secs(3);
        let mut unheard = Unheard::default();
        let mut at = |second: u64, heard| {
            let news = unheard.observe(heard, start + Duration::from_secs(second), after);
            (news, unheard.is_sure())
        };
        assert_eq!(at(0, Heard::Nobody), (None, false));
        assert_eq!(at(3, Heard::Nobody), (Some(true), true));
        for crash in [10, 20, 30] {
            assert_eq!(at(crash, Heard::Gone), (None, false));
            assert_eq!(at(crash + 1, Heard::Nobody), (None, false));
            assert_eq!(
                at(crash + 4, Heard::Nobody),
                (None, true),
                "known again, and no news"
            );
        }
        assert_eq!(at(40, Heard::Gone), (None, false));
        assert_eq!(at(41, Heard::Counted), (Some(false), false));
        assert_eq!(at(42, Heard::Nobody), (None, false));
        assert_eq!(at(45, Heard::Nobody), (Some(true), true), "another time");
    }
}
