//! A cache with a bound on its bytes, whose least recently used object goes first.

use super::scenario::CacheFigures;
use std::collections::HashMap;

/// No neighbour.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Object {
    key: u64,
    bytes: u64,
    /// Until when it may be used.
    fresh_until_s: f64,
    /// The neighbour that was used more recently.
    newer: u32,
    /// The neighbour that was used less recently.
    older: u32,
}

/// The cache. A look-up, a store and an eviction cost O(1).
#[derive(Clone, Debug)]
pub(super) struct Lru {
    limit_bytes: u64,
    max_object_bytes: u64,
    fresh_s: f64,
    bytes: u64,
    objects: Vec<Object>,
    free: Vec<u32>,
    at: HashMap<u64, u32>,
    newest: u32,
    oldest: u32,
}

impl Lru {
    pub(super) fn new(figures: CacheFigures) -> Self {
        Self {
            limit_bytes: figures.bytes,
            max_object_bytes: figures.max_object_bytes,
            fresh_s: figures.fresh_s,
            bytes: 0,
            objects: Vec::new(),
            free: Vec::new(),
            at: HashMap::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Whether it holds an object that is still fresh, which is used by that.
    pub(super) fn look_up(&mut self, now_s: f64, key: u64) -> bool {
        let Some(index) = self.at.get(&key).copied() else {
            return false;
        };
        if self.objects[index as usize].fresh_until_s <= now_s {
            self.remove(key);
            return false;
        }
        self.unlink(index);
        self.link_newest(index);
        true
    }

    /// Stores an object, and lets go what was used least recently until there is room. One above the limits is not stored.
    pub(super) fn store(&mut self, now_s: f64, key: u64, bytes: u64) {
        if bytes > self.max_object_bytes || bytes > self.limit_bytes {
            return;
        }
        self.remove(key);
        while self.bytes + bytes > self.limit_bytes {
            let oldest = self.objects[self.oldest as usize].key;
            self.remove(oldest);
        }
        let object = Object {
            key,
            bytes,
            fresh_until_s: now_s + self.fresh_s,
            newer: NONE,
            older: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.objects[index as usize] = object;
                index
            }
            None => {
                self.objects.push(object);
                (self.objects.len() - 1) as u32
            }
        };
        self.at.insert(key, index);
        self.bytes += bytes;
        self.link_newest(index);
    }

    /// An object is no longer usable.
    pub(super) fn remove(&mut self, key: u64) {
        if let Some(index) = self.at.remove(&key) {
            self.unlink(index);
            self.bytes -= self.objects[index as usize].bytes;
            self.free.push(index);
        }
    }

    fn unlink(&mut self, index: u32) {
        let Object { newer, older, .. } = self.objects[index as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.objects[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.objects[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, index: u32) {
        let object = &mut self.objects[index as usize];
        (object.newer, object.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = index,
            newest => self.objects[newest as usize].newer = index,
        }
        self.newest = index;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What happens to a cache under test.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        LookUp(u64),
        Store(u64, u64),
        Remove(u64),
        /// Time passes, seconds.
        Wait(f64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0u64..12).prop_map(Act::LookUp),
            (0u64..12, 1u64..60).prop_map(|(key, bytes)| Act::Store(key, bytes)),
            (0u64..12).prop_map(Act::Remove),
            (0.0..4.0f64).prop_map(Act::Wait),
        ]
    }

    proptest! {
        /// The same as a list that is kept in the order of use.
        #[test]
        fn it_keeps_what_a_list_by_use_keeps(acts in proptest::collection::vec(act(), 0..300)) {
            let mut ours = Lru::new(CacheFigures { bytes: 100, max_object_bytes: 50, fresh_s: 5.0 });
            let mut list: Vec<(u64, u64, f64)> = Vec::new();
            let mut now_s = 0.0;
            for act in acts {
                match act {
                    Act::Wait(for_s) => now_s += for_s,
                    Act::LookUp(key) => {
                        list.retain(|one| one.0 != key || one.2 > now_s);
                        let there = list.iter().position(|one| one.0 == key);
                        prop_assert_eq!(ours.look_up(now_s, key), there.is_some());
                        if let Some(at) = there {
                            let one = list.remove(at);
                            list.push(one);
                        }
                    }
                    Act::Store(key, bytes) => {
                        ours.store(now_s, key, bytes);
                        if bytes > 50 {
                            continue;
                        }
                        list.retain(|one| one.0 != key);
                        list.push((key, bytes, now_s + 5.0));
                        while list.iter().map(|one| one.1).sum::<u64>() > 100 {
                            list.remove(0);
                        }
                    }
                    Act::Remove(key) => {
                        ours.remove(key);
                        list.retain(|one| one.0 != key);
                    }
                }
                prop_assert_eq!(ours.bytes, list.iter().map(|one| one.1).sum::<u64>());
                prop_assert_eq!(ours.at.len(), list.len());
            }
        }
    }
}
