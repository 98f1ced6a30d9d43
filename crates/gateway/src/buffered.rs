//! How many bytes of bodies a core holds for slow clients, beside what it passes on: bounded, and counted.

use std::cell::Cell;
use std::rc::Rc;

/// What a core may hold.
#[derive(Debug)]
pub(crate) struct Buffered {
    bytes: i64,
    /// One piece may be more than is left: then none is taken until it has gone on.
    left: Cell<i64>,
}

impl Buffered {
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        Self {
            bytes,
            left: Cell::new(bytes),
        }
    }

    /// Whether anything is left to be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.left.get() > 0
    }

    /// Whether all that may be held is: not where nothing ever may.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > 0 && !self.has_room()
    }
}

/// What one body holds of it; given back as the body goes on, or is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Rc<Buffered>,
    bytes: i64,
}

impl Share {
    pub(crate) fn new(of: &Rc<Buffered>) -> Self {
        Self {
            of: of.clone(),
            bytes: 0,
        }
    }

    /// So many bytes more are held.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.of.left.set(self.of.left.get() - bytes as i64);
        self.bytes += bytes as i64;
    }

    /// So many bytes went on.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let bytes = (bytes as i64).min(self.bytes);
        self.bytes -= bytes;
        self.of.left.set(self.of.left.get() + bytes);
    }

    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(0)
    }

    /// Whether anything is left to be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.of.has_room()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.left.set(self.of.left.get() + self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_bounded_over_all_bodies_and_given_back() {
        let all = Rc::new(Buffered::new(100));
        let (mut one, mut other) = (Share::new(&all), Share::new(&all));
        one.take(60);
        assert!(other.has_room());
        other.take(60);
        assert!(
            !one.has_room() && !other.has_room(),
            "a piece is held whole, and then no more"
        );
        one.give_back(50);
        assert!(one.has_room());
        assert_eq!((one.bytes(), other.bytes()), (10, 60));
        drop((one, other));
        assert_eq!(all.left.get(), 100);
    }
}
