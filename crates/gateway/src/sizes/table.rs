//! A table of fixed memory, keyed by hashes, which what is asked for once does not empty.
//!
//! It is set-associative: a hash belongs to one set of [`WAYS`] places, found and changed in a few cache lines. The last [`ON_PROBATION`]
//! places of a set are for what is new: once the set is full a new key takes the one of them that was used least, so a flood of keys that
//! come once only ever takes those places from one another. A key that is used again there changes places with the least used of the
//! others, where it was used more often than that. Uses are counted up to [`MAX_USES`] and halved after [`HALVE_AFTER`] uses of a set and new
//! keys in it, so that what was popular gives way to what is.

/// Places of a set.
const WAYS: usize = 8;
/// Those of them that new keys have.
const ON_PROBATION: usize = 2;
/// The uses of a place that are told apart.
const MAX_USES: u8 = 31;
/// After so many uses and new keys of a set all its counts are halved.
const HALVE_AFTER: u8 = 64;

/// One set; a hash of 0 is a free place.
#[derive(Clone, Copy, Debug)]
struct Set<V> {
    hashes: [u64; WAYS],
    values: [V; WAYS],
    uses: [u8; WAYS],
    used: u8,
    /// Whose turn it is on probation, where several were used as little.
    turn: u8,
}

/// Values by the hash of their key.
#[derive(Debug)]
pub(crate) struct Table<V> {
    sets: Box<[Set<V>]>,
}

impl<V: Copy + Default> Table<V> {
    /// With room for so many at least: rounded up to a power of two.
    pub(crate) fn new(places: usize) -> Self {
        let sets = places.div_ceil(WAYS).max(1).next_power_of_two();
        let empty = Set {
            hashes: [0; WAYS],
            values: [V::default(); WAYS],
            uses: [0; WAYS],
            used: 0,
            turn: 0,
        };
        Self {
            sets: vec![empty; sets].into_boxed_slice(),
        }
    }

    /// How many it has room for.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.sets.len() * WAYS
    }

    fn set(&mut self, hash: u64) -> &mut Set<V> {
        // The number of sets is a power of two; the upper bits choose, the whole hash is compared.
        let index = (hash >> 32) as usize & (self.sets.len() - 1);
        &mut self.sets[index]
    }

    /// The value of a key, which counts as a use of it.
    pub(crate) fn get(&mut self, hash: u64) -> Option<V> {
        let hash = hash.max(1);
        let set = self.set(hash);
        let way = set.find(hash)?;
        Some(set.values[set.note_use(way)])
    }

    /// Changes the value of a key, or of a new one the default; whether it is new.
    pub(crate) fn change(&mut self, hash: u64, change: impl FnOnce(&mut V)) -> bool {
        let hash = hash.max(1);
        let set = self.set(hash);
        let found = set.find(hash);
        let way = found.unwrap_or_else(|| set.admit(hash));
        change(&mut set.values[way]);
        found.is_none()
    }
}

impl<V: Copy + Default> Set<V> {
    fn find(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().position(|known| *known == hash)
    }

    /// One use or new key more.
    fn age(&mut self) {
        self.used += 1;
        if self.used >= HALVE_AFTER {
            self.used = 0;
            for uses in &mut self.uses {
                *uses /= 2;
            }
        }
    }

    /// Counts a use; where the key is then.
    fn note_use(&mut self, way: usize) -> usize {
        self.age();
        self.uses[way] = (self.uses[way] + 1).min(MAX_USES);
        if way < WAYS - ON_PROBATION {
            return way;
        }
        // A set that has anything on probation is full.
        let least = (0..WAYS - ON_PROBATION).min_by_key(|kept| self.uses[*kept]);
        match least {
            Some(kept) if self.uses[kept] < self.uses[way] => {
                self.hashes.swap(kept, way);
                self.values.swap(kept, way);
                self.uses.swap(kept, way);
                kept
            }
            _ => way,
        }
    }

    /// Gives a new key a place: a free one, or one on probation.
    fn admit(&mut self, hash: u64) -> usize {
        self.age();
        let first = WAYS - ON_PROBATION;
        let way = self.find(0).unwrap_or_else(|| {
            let nth = |nth: usize| first + (usize::from(self.turn) + nth) % ON_PROBATION;
            let least = (0..ON_PROBATION).map(nth).min_by_key(|way| self.uses[*way]);
            least.unwrap_or(first)
        });
        self.turn = (self.turn + 1) % ON_PROBATION as u8;
        self.hashes[way] = hash;
        self.values[way] = V::default();
        self.uses[way] = 0;
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Spreads numbers as a hash does (SplitMix64).
    fn hash(number: u64) -> u64 {
        let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A request: looked for, then learned.
    fn ask(table: &mut Table<u32>, number: u64) -> bool {
        let known = table.get(hash(number)).is_some();
        table.change(hash(number), |value| *value += 1);
        known
    }

    #[test]
    fn what_is_popular_survives_a_flood_of_what_comes_once() {
        let mut table = Table::new(1024);
        for _ in 0..4 {
            for popular in 0..400 {
                ask(&mut table, popular);
            }
        }
        let kept: Vec<u64> = (0..400)
            .filter(|popular| table.get(hash(*popular)).is_some())
            .collect();
        // A set of eight places may have been given more than eight of 400 in 1024.
        assert!(kept.len() > 390, "{}", kept.len());
        for once in 0..1_000_000 {
            table.change(hash(10_000 + once), |value| *value += 1);
        }
        let left = kept
            .iter()
            .filter(|popular| table.get(hash(**popular)).is_some())
            .count();
        assert!(
            left as f64 >= 0.97 * kept.len() as f64,
            "{left} of {}",
            kept.len()
        );
    }

    #[test]
    fn what_is_popular_now_takes_the_place_of_what_was_even_in_a_flood() {
        let mut table = Table::new(256);
        for _ in 0..100 {
            for old in 0..180 {
                ask(&mut table, old);
            }
        }
        for turn in 0..40_000 {
            ask(&mut table, 1_000 + hash(turn) % 100);
            // Every third request is for what nobody asks for again.
            if turn % 2 == 0 {
                ask(&mut table, 100_000 + turn);
            }
        }
        let kept = (1_000..1_100)
            .filter(|new| table.get(hash(*new)).is_some())
            .count();
        assert!(kept >= 90, "{kept}");
    }

    #[test]
    fn a_value_is_found_under_its_own_key_alone() {
        let mut table: Table<u32> = Table::new(64);
        assert_eq!(table.get(0), None);
        assert!(table.change(0, |value| *value = 7));
        assert!(!table.change(0, |value| *value += 1));
        assert_eq!((table.get(0), table.get(hash(5))), (Some(8), None));
    }

    proptest! {
        /// Whatever comes, memory stays what it was, and what is found is what was learned last of that key.
        #[test]
        fn it_is_bounded_and_never_answers_for_another(asked in prop::collection::vec((0_u64..500, any::<bool>()), 0..2000)) {
            let mut table: Table<u64> = Table::new(64);
            for (number, learns) in asked {
                if learns {
                    table.change(hash(number), |value| *value = number);
                } else if let Some(value) = table.get(hash(number)) {
                    prop_assert_eq!(value, number);
                }
                prop_assert_eq!(table.places(), 64);
            }
            let known = (0..500).filter(|number| table.get(hash(*number)).is_some()).count();
            prop_assert!(known <= 64);
        }

        /// What came once takes no place from what was used while it was there.
        #[test]
        fn one_off_keys_take_no_place_from_one_that_is_kept(flood in prop::collection::vec(any::<u64>(), 0..500)) {
            let mut table: Table<u32> = Table::new(8);
            ask(&mut table, 1);
            ask(&mut table, 1);
            for once in flood {
                table.change(once, |value| *value += 1);
                prop_assert!(table.sets[0].hashes.contains(&hash(1)));
            }
        }
    }
}
