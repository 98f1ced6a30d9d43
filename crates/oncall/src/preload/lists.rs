//! The lists of who waits for a slot.

use super::layout::{LISTS, Lists};
use core::sync::atomic::Ordering::Relaxed;

/// The list of those with tokens in this round. Each area has its own: see [`of`].
pub const NOW: usize = 0;
/// The list of those whose turn is in the next.
pub const NEXT: usize = 1;
/// The list of those with tokens in this round that let the others go first.
pub const LATE: usize = 2;
/// The list of those that let the others go first and whose turn is in the next round.
pub const LATER: usize = 3;

/// A list of an area.
pub const fn of(area: usize, list: usize) -> usize {
    area * LISTS + list
}

impl Lists {
    /// Whether nobody is in a list.
    pub fn is_empty(&self, list: usize) -> bool {
        self.first[list].load(Relaxed) == 0
    }

    /// Whether a connection is in a list.
    pub fn has(&self, place: u16) -> bool {
        self.member[usize::from(place)].load(Relaxed) != 0
    }

    /// Puts a connection at the end of a list, and out of the other.
    pub fn push(&self, list: usize, place: u16) {
        self.remove(place);
        let (at, link) = (usize::from(place), place + 1);
        let last = self.last[list].load(Relaxed);
        self.member[at].store(list as u8 + 1, Relaxed);
        self.before[at].store(last, Relaxed);
        self.after[at].store(0, Relaxed);
        match last {
            0 => self.first[list].store(link, Relaxed),
            last => self.after[usize::from(last - 1)].store(link, Relaxed),
        }
        self.last[list].store(link, Relaxed);
    }

    /// Takes a connection out of the list in which it is.
    pub fn remove(&self, place: u16) {
        let at = usize::from(place);
        let Some(list) = usize::from(self.member[at].load(Relaxed)).checked_sub(1) else {
            return;
        };
        let (before, after) = (self.before[at].load(Relaxed), self.after[at].load(Relaxed));
        match before {
            0 => self.first[list].store(after, Relaxed),
            before => self.after[usize::from(before - 1)].store(after, Relaxed),
        }
        match after {
            0 => self.last[list].store(before, Relaxed),
            after => self.before[usize::from(after - 1)].store(before, Relaxed),
        }
        self.member[at].store(0, Relaxed);
    }

    /// The first of a list.
    pub fn first(&self, list: usize) -> Option<u16> {
        self.first[list].load(Relaxed).checked_sub(1)
    }

    /// Who comes after a connection in its list.
    pub fn next(&self, place: u16) -> Option<u16> {
        self.after[usize::from(place)].load(Relaxed).checked_sub(1)
    }

    /// Takes the first out of a list.
    pub fn pop(&self, list: usize) -> Option<u16> {
        let place = self.first(list)?;
        self.remove(place);
        Some(place)
    }

    /// Whoever waits longest from now on: the last of those without a turn, or else of those with one, who yield first.
    pub fn last(&self) -> Option<u16> {
        let last = |list: usize| {
            let mut areas = self.last.iter().skip(list).step_by(LISTS);
            areas.find_map(|last| last.load(Relaxed).checked_sub(1))
        };
        [LATER, NEXT, LATE, NOW].into_iter().find_map(last)
    }

    /// Forgets who is in them, after a holder of the lock ended in the midst of a change.
    pub fn clear(&self) {
        for end in self.first.iter().chain(&self.last) {
            end.store(0, Relaxed);
        }
        self.member.iter().for_each(|member| member.store(0, Relaxed));
    }
}
