//! What is stored, bounded in bytes, and what is being fetched: shared by the cores of a gateway.
//!
//! It is in shards, each behind a lock that is held for a look-up and no longer: no request is awaited, no body copied under one. How
//! many, [`CacheConfig::shards`] says. Its bytes may be changed at any time, up to those that it was configured with: where they become
//! fewer, what there is no more room for goes at once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;

use super::flight::{Flight, FlightTicket, Role};
use super::selection::Selector;
use super::stored::Stored;
use crate::config::{CacheConfig, CachePolicy};
use crate::stats::CacheSize;

/// Responses to one target that differ by request fields, at most; of more the one stored first goes.
const MAX_VARIANTS: usize = 32;
/// The percentage of a shard that the responses to one target may take: of more the ones stored first go.
const TARGET_PERCENT: u64 = 75;
/// For how long a target whose answers are not stored is asked for by each request by itself.
const MISSED_FOR: Duration = Duration::from_secs(10);
/// What a key takes beside its bytes.
const KEY_BYTES: u64 = 128;
/// The mean size of an object that the tables are laid out for; they grow where it is less.
const USUAL_BYTES: u64 = 16 * 1024;

/// What is stored for a target.
#[derive(Debug, Clone)]
struct Slot {
    /// Its responses, the newest first. They are looked through without the lock.
    variants: Arc<[Arc<Stored>]>,
    /// An answer could not be stored: until then requests for which nothing is do not wait for one another.
    missed_until: Option<Instant>,
    /// What the responses take, bytes.
    variants_weight: u64,
}

impl Slot {
    fn new(variants: Arc<[Arc<Stored>]>, missed_until: Option<Instant>) -> Self {
        let variants_weight = variants.iter().map(|stored| stored.weight() as u64).sum();
        Self {
            variants,
            missed_until,
            variants_weight,
        }
    }

    fn weight(&self, key: &Bytes) -> u64 {
        KEY_BYTES + key.len() as u64 + self.variants_weight
    }
}

/// The weight of what S3-FIFO keeps.
#[derive(Debug, Clone)]
struct Weighter;

impl quick_cache::Weighter<Bytes, Slot> for Weighter {
    fn weight(&self, key: &Bytes, slot: &Slot) -> u64 {
        slot.weight(key)
    }
}

type S3Fifo = quick_cache::unsync::Cache<Bytes, Slot, Weighter>;

/// An empty cache of this policy.
fn s3_fifo(room: u64) -> S3Fifo {
    let usual = usize::try_from(room / USUAL_BYTES).unwrap_or(usize::MAX).max(16);
    S3Fifo::with_weighter(usual, room, Weighter)
}

/// Which of what is stored goes when there is no more room.
enum Order {
    Lru {
        slots: lru::LruCache<Bytes, Slot>,
        weight: u64,
        room: u64,
    },
    S3Fifo(Box<S3Fifo>),
}

impl Order {
    fn new(policy: CachePolicy, room: u64) -> Self {
        match policy {
            CachePolicy::Lru => Self::Lru {
                slots: lru::LruCache::unbounded(),
                weight: 0,
                room,
            },
            CachePolicy::S3Fifo => Self::S3Fifo(Box::new(s3_fifo(room))),
        }
    }

    fn get(&mut self, key: &Bytes) -> Option<&Slot> {
        match self {
            Self::Lru { slots, .. } => slots.get(key),
            Self::S3Fifo(slots) => slots.get(key),
        }
    }

    fn remove(&mut self, key: &Bytes) -> bool {
        match self {
            Self::Lru { slots, weight, .. } => slots.pop(key).is_some_and(|slot| {
                *weight -= slot.weight(key);
                true
            }),
            Self::S3Fifo(slots) => slots.remove(key).is_some(),
        }
    }

    fn insert(&mut self, key: Bytes, slot: Slot) {
        self.remove(&key);
        match self {
            Self::Lru { slots, weight, room } => {
                *weight += slot.weight(&key);
                slots.push(key, slot);
                evict(slots, weight, *room);
            }
            Self::S3Fifo(slots) => slots.insert(key, slot),
        }
    }

    /// Has room for so many bytes from now on; what there is more of goes at once.
    fn resize(&mut self, bytes: u64) {
        match self {
            Self::Lru { slots, weight, room } => {
                *room = bytes;
                evict(slots, weight, bytes);
            }
            Self::S3Fifo(slots) if bytes <= slots.capacity() => slots.set_capacity(bytes),
            Self::S3Fifo(slots) => {
                // It remembers the keys of what went, for as many as its room at the start: one that has become larger begins anew with
                // what it holds.
                let mut larger = s3_fifo(bytes);
                slots.drain().for_each(|(key, slot)| larger.insert(key, slot));
                **slots = larger;
            }
        }
    }

    fn weight(&self) -> u64 {
        match self {
            Self::Lru { weight, .. } => *weight,
            Self::S3Fifo(slots) => slots.weight(),
        }
    }

    fn objects(&self) -> usize {
        match self {
            Self::Lru { slots, .. } => slots.len(),
            Self::S3Fifo(slots) => slots.len(),
        }
    }
}

/// Forgets what was not used for the longest time until the rest has room.
fn evict(slots: &mut lru::LruCache<Bytes, Slot>, weight: &mut u64, room: u64) {
    while *weight > room
        && let Some((key, slot)) = slots.pop_lru()
    {
        *weight -= slot.weight(&key);
    }
}

struct Shard {
    order: Order,
    /// What is being fetched, by target.
    flights: HashMap<Bytes, Vec<Arc<Flight>>>,
}

/// What a look-up finds.
pub(super) enum Found {
    Stored(Arc<Stored>),
    /// Nothing for this request.
    Nothing {
        /// There is something for others.
        varies: bool,
        /// Of late its answers could not be stored.
        missed: bool,
    },
}

/// Who fetches.
pub(super) enum Turn {
    /// Whoever asked.
    Own(FlightTicket),
    /// Somebody else does.
    Others(Arc<Flight>),
}

/// The store.
pub(crate) struct Store {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    max_object_bytes: u64,
    /// Bytes of bodies that are being fetched, or were and their client has not taken yet: at most `bytes`.
    fetching: AtomicU64,
    /// Bytes of bodies that were stored and that somebody has still: of those that are stored and those that clients still read.
    in_use: Arc<AtomicU64>,
    /// Bytes that it may hold now.
    bytes: AtomicU64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("shards", &self.shards.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn new(config: &CacheConfig) -> Self {
        let shards = config.shards();
        let shard = || {
            Mutex::new(Shard {
                order: Order::new(config.policy, config.bytes / shards),
                flights: HashMap::new(),
            })
        };
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            hasher: RandomState::new(),
            max_object_bytes: config.max_object_bytes,
            fetching: AtomicU64::new(0),
            in_use: Arc::default(),
            bytes: AtomicU64::new(config.bytes),
        }
    }

    fn shard(&self, key: &Bytes) -> MutexGuard<'_, Shard> {
        let shard = self.hasher.hash_one(key) % self.shards.len() as u64;
        // Whoever panicked left it whole: nothing under the lock panics between two changes.
        self.shards[shard as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored for a request.
    pub(super) fn find(&self, key: &Bytes, request: &HeaderMap) -> Found {
        let (variants, missed_until) = match self.shard(key).order.get(key) {
            Some(slot) => match slot.variants.first() {
                Some(newest) if newest.selection.is_of_all() => return Found::Stored(newest.clone()),
                _ => (slot.variants.clone(), slot.missed_until),
            },
            None => {
                return Found::Nothing {
                    varies: false,
                    missed: false,
                };
            }
        };
        let mut selector = Selector::of(request);
        match variants.iter().find(|stored| selector.selects(&stored.selection)) {
            Some(stored) => Found::Stored(stored.clone()),
            None => Found::Nothing {
                varies: !variants.is_empty(),
                missed: missed_until.is_some_and(|until| until > Instant::now()),
            },
        }
    }

    /// Whose turn it is to fetch in this role what is not stored.
    pub(super) fn turn(self: &Arc<Self>, key: &Bytes, role: Role) -> Turn {
        let flight = Arc::new(Flight::new(role));
        let mut shard = self.shard(key);
        let flights = shard.flights.entry(key.clone()).or_default();
        if let Some(other) = flights.iter().find(|other| other.keeps_out(role)) {
            return Turn::Others(other.clone());
        }
        flights.push(flight.clone());
        drop(shard);
        Turn::Own(FlightTicket::new(self.clone(), key.clone(), flight))
    }

    /// The right to fetch for oneself alone, which everybody has.
    pub(super) fn alone(self: &Arc<Self>, key: &Bytes) -> FlightTicket {
        let flight = Arc::new(Flight::new(Role::Alone));
        let mut shard = self.shard(key);
        shard.flights.entry(key.clone()).or_default().push(flight.clone());
        drop(shard);
        FlightTicket::new(self.clone(), key.clone(), flight)
    }

    /// A flight is over, however it went.
    pub(super) fn land(&self, key: &Bytes, flight: &Arc<Flight>) {
        let mut shard = self.shard(key);
        if let Some(flights) = shard.flights.get_mut(key) {
            flights.retain(|other| !Arc::ptr_eq(other, flight));
            if flights.is_empty() {
                shard.flights.remove(key);
            }
        }
    }

    /// Stores what a flight fetched, in place of what there is for the same requests; not where it was outdated meanwhile.
    pub(super) fn store(&self, key: &Bytes, flight: &Flight, stored: Arc<Stored>) -> bool {
        let room = self.bytes() / self.shards.len() as u64 / 100 * TARGET_PERCENT;
        let mut shard = self.shard(key);
        // Under the lock: an invalidation is either before, and seen, or behind, and removes it.
        if flight.is_outdated() {
            return false;
        }
        let mut left = room.saturating_sub(stored.weight() as u64);
        let others = shard.order.get(key).map_or(&[][..], |slot| &slot.variants);
        let others = others
            .iter()
            .filter(|other| other.selection != stored.selection)
            .take(MAX_VARIANTS - 1)
            .map_while(|other| {
                left = left.checked_sub(other.weight() as u64)?;
                Some(other.clone())
            });
        let variants: Vec<Arc<Stored>> = std::iter::once(stored.clone()).chain(others).collect();
        shard.order.insert(key.clone(), Slot::new(variants.into(), None));
        true
    }

    /// A target's answer could not be stored: for a while requests for it need not wait for one another. What is stored stays.
    pub(super) fn missed(&self, key: &Bytes) {
        let now = Instant::now();
        let mut shard = self.shard(key);
        let variants = match shard.order.get(key) {
            // It is renewed before it ends, and not by each of many requests.
            Some(slot)
                if slot
                    .missed_until
                    .is_some_and(|until| until > now + MISSED_FOR / 2) =>
            {
                return;
            }
            Some(slot) => slot.variants.clone(),
            None => Arc::new([]),
        };
        shard
            .order
            .insert(key.clone(), Slot::new(variants, Some(now + MISSED_FOR)));
    }

    /// This response is not to be used any more; those for other requests are.
    pub(super) fn forget(&self, key: &Bytes, stored: &Arc<Stored>) {
        let mut shard = self.shard(key);
        let Some(slot) = shard.order.get(key) else {
            return;
        };
        let others = slot.variants.iter().filter(|other| !Arc::ptr_eq(other, stored));
        let others: Vec<Arc<Stored>> = others.cloned().collect();
        if others.len() == slot.variants.len() {
            return;
        }
        let slot = Slot::new(others.into(), slot.missed_until);
        if slot.variants.is_empty() && slot.missed_until.is_none() {
            shard.order.remove(key);
        } else {
            shard.order.insert(key.clone(), slot);
        }
    }

    /// What is stored for a target is no more true, nor what is being fetched for it. Whether anything was.
    pub(super) fn invalidate(&self, key: &Bytes) -> bool {
        let mut shard = self.shard(key);
        // Who comes from now on does not wait for what was asked before.
        for flight in shard.flights.remove(key).unwrap_or_default() {
            flight.outdate();
        }
        shard.order.remove(key)
    }

    /// Room for so many more bytes of a body that is fetched; given back by [`give_back`](Self::give_back). Together with what is stored, and
    /// with what was and is still read, these are at most twice the bytes that it may hold.
    pub(super) fn take_room(&self, bytes: u64) -> bool {
        let before = self.fetching.fetch_add(bytes, Ordering::Relaxed);
        let (most, fetching) = (self.bytes(), before + bytes);
        let fits = fetching <= most && fetching + self.in_use.load(Ordering::Relaxed) <= 2 * most;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    /// A body to be stored, counted until nobody has it any more.
    pub(super) fn counted(&self, body: Vec<u8>) -> Bytes {
        let in_use = self.in_use.clone();
        in_use.fetch_add(body.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Counted { body, in_use })
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.fetching.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn max_object_bytes(&self) -> u64 {
        self.max_object_bytes
    }

    /// Bytes that it may hold now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// May hold so many bytes from now on; what there is no more room for goes at once, shard by shard.
    pub(crate) fn resize(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        let room = bytes / self.shards.len() as u64;
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.order.resize(room);
        }
    }

    /// What is stored.
    pub(crate) fn size(&self) -> CacheSize {
        let mut size = CacheSize::default();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            size.bytes += shard.order.weight();
            size.objects += shard.order.objects() as u64;
        }
        size
    }
}

/// A stored body, counted from when it is stored until nobody reads it any more.
struct Counted {
    body: Vec<u8>,
    in_use: Arc<AtomicU64>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.in_use.fetch_sub(self.body.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_takes_room_until_nobody_reads_it_any_more() {
        let store = Store::new(&CacheConfig {
            bytes: 1_000,
            ..CacheConfig::default()
        });
        assert!(
            store.take_room(1_000) && !store.take_room(1),
            "as much as is stored"
        );
        store.give_back(1_000);
        // Two that were stored, and that clients read still.
        let bodies = [700, 900].map(|bytes| store.counted(vec![b'x'; bytes]));
        let read = bodies.each_ref().map(|body| body.slice(10..20));
        drop(bodies);
        assert!(store.take_room(400) && !store.take_room(1), "twice that together");
        store.give_back(400);
        drop(read);
        assert!(store.take_room(1_000));
    }
}
