//! What is known of a client's statements: locks that it holds, and what it has prepared that does something to locks.

use super::super::layout::{PREPARED, protocol};
use super::{Effect, Frees, Holds, Words};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// MariaDB's number of the statement that was prepared last ("COM_STMT_EXECUTE").
pub const LAST: u32 = u32::MAX;

/// What a client's statements do.
pub struct Known<'a> {
    /// Locks that it holds.
    pub holds: u32,
    /// What the statement does that it prepared last: its place in the words, plus 1; 0 of nothing.
    pub preparing: u32,
    /// Prepared statements, the last first: a bit that there is one, its place in the words, and its number or what its name comes to.
    pub prepared: &'a [AtomicU64; PREPARED],
}

impl Known<'_> {
    const IS_ONE: u64 = 1 << 63;

    fn statement(name: u32, word: u32) -> u64 {
        Self::IS_ONE | u64::from(word) << 32 | u64::from(name)
    }

    /// A name is another statement's from now on: one of `preparing`.
    pub fn prepare(&self, name: u32) {
        let is_other = |statement: &u64| *statement & Self::IS_ONE != 0 && *statement as u32 != name;
        let all = self.prepared.each_ref().map(|one| one.load(Relaxed));
        let new = match self.preparing {
            0 => None,
            word => Some(Self::statement(name, word)),
        };
        let mut kept = new.into_iter().chain(all.into_iter().filter(is_other));
        for one in self.prepared {
            one.store(kept.next().unwrap_or(0), Relaxed);
        }
    }

    /// A prepared statement is executed.
    pub fn execute(&mut self, speaks: u32, name: u32, words: &Words) {
        let word = match (speaks, name) {
            (protocol::MYSQL, LAST) => self.preparing,
            _ => {
                let all = self.prepared.iter().map(|one| one.load(Relaxed));
                let mut named =
                    all.filter(|statement| *statement & Self::IS_ONE != 0 && *statement as u32 == name);
                named
                    .next()
                    .map_or(0, |statement| (statement >> 32) as u32 & 0xff)
            }
        };
        let effect = (word as usize).checked_sub(1).and_then(|at| words.get(at));
        if let Some((_, effect)) = effect {
            self.done(*effect);
        }
    }

    pub fn done(&mut self, effect: Effect) {
        match effect {
            Holds(locks) => self.holds |= locks,
            Frees(locks) => self.holds &= !locks,
        }
    }

    /// The server has forgotten all of its client.
    pub fn reset(&mut self) {
        (self.holds, self.preparing) = (0, 0);
        self.prepared.iter().for_each(|one| one.store(0, Relaxed));
    }
}
