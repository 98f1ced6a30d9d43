//! Two small priority queues: a four-way heap for many jobs, a winner tree for few servers.

/// A four-way min-heap with keys beside the values. Four children a parent halve the depth of a binary heap, and all
/// four lie in one or two cache lines.
#[derive(Clone, Debug)]
pub(crate) struct Heap<T> {
    entries: Vec<(f64, T)>,
}

const CHILDREN: usize = 4;

impl<T: Copy> Heap<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The smallest key.
    #[inline]
    pub(crate) fn first_key(&self) -> Option<f64> {
        self.entries.first().map(|entry| entry.0)
    }

    /// All entries, in no order that means anything.
    pub(crate) fn entries(&self) -> &[(f64, T)] {
        &self.entries
    }

    /// Takes a constant off every key, which leaves their order as it is.
    pub(crate) fn shift_keys(&mut self, by: f64) {
        for entry in &mut self.entries {
            entry.0 -= by;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, key: f64, value: T) {
        self.entries.push((key, value));
        let mut at = self.entries.len() - 1;
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.entries[parent].0 <= key {
                break;
            }
            self.entries[at] = self.entries[parent];
            at = parent;
        }
        self.entries[at] = (key, value);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(f64, T)> {
        let last = self.entries.pop()?;
        let Some(first) = self.entries.first().copied() else {
            return Some(last);
        };
        let count = self.entries.len();
        let mut at = 0;
        loop {
            let begin = at * CHILDREN + 1;
            if begin >= count {
                break;
            }
            let mut least = begin;
            for child in begin + 1..(begin + CHILDREN).min(count) {
                if self.entries[child].0 < self.entries[least].0 {
                    least = child;
                }
            }
            if self.entries[least].0 >= last.0 {
                break;
            }
            self.entries[at] = self.entries[least];
            at = least;
        }
        self.entries[at] = last;
        Some(first)
    }
}

/// The smallest of a fixed number of keys that change one at a time: a tournament whose winners are kept, so that a
/// change costs log2 of their number and the smallest is known without looking.
#[derive(Clone, Debug)]
pub(crate) struct Winners {
    keys: Vec<f64>,
    /// Winner of each match; the root is 1, the leaves are not stored.
    matches: Vec<u32>,
}

impl Winners {
    pub(crate) fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        let mut winners = Self {
            keys: vec![f64::INFINITY; leaves],
            matches: vec![0; leaves.max(2)],
        };
        for node in (1..leaves).rev() {
            winners.matches[node] = winners.winner_below(node);
        }
        winners
    }

    fn winner_below(&self, node: usize) -> u32 {
        let leaves = self.keys.len();
        let of = |child: usize| {
            if child >= leaves {
                (child - leaves) as u32
            } else {
                self.matches[child]
            }
        };
        let (left, right) = (of(2 * node), of(2 * node + 1));
        // The first of equals wins, so that the order of events never depends on the history of the tree.
        if self.keys[right as usize] < self.keys[left as usize] {
            right
        } else {
            left
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, index: usize, key: f64) {
        self.keys[index] = key;
        let mut node = (self.keys.len() + index) / 2;
        while node >= 1 {
            self.matches[node] = self.winner_below(node);
            node /= 2;
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> (usize, f64) {
        // With one key there is no match, and the unused entry at the root names it all the same.
        let index = self.matches[1] as usize;
        (index, self.keys[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_heap_sorts(keys in proptest::collection::vec(-1e6..1e6f64, 0..200)) {
            let mut heap = Heap::new();
            for (at, key) in keys.iter().enumerate() {
                heap.push(*key, at);
            }
            let mut sorted = keys.clone();
            sorted.sort_by(f64::total_cmp);
            let popped: Vec<f64> = std::iter::from_fn(|| heap.pop()).map(|(key, at)| {
                assert_eq!(keys[at], key);
                key
            }).collect();
            prop_assert_eq!(popped, sorted);
        }

        #[test]
        fn the_winner_is_what_a_scan_finds(
            count in 1usize..20,
            changes in proptest::collection::vec((0usize..20, 0.0..10.0f64), 0..100),
        ) {
            let mut winners = Winners::new(count);
            let mut keys = vec![f64::INFINITY; count];
            for (index, key) in changes {
                let index = index % count;
                keys[index] = key;
                winners.set(index, key);
                let best = keys.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
                prop_assert_eq!(winners.first(), best);
            }
        }
    }
}
