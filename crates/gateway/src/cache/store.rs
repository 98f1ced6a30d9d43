//! What is stored, bounded in bytes, and what is being fetched: shared by the cores of a gateway.
//!
//! It is in shards, each behind a lock that is held for a look-up and no longer: no request is awaited, no body copied under one. How
//! many, [`CacheConfig::shards`] says. Its bytes may be changed at any time, up to those that it was configured with: where they become
//! fewer, what there is no more room for goes at once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::Notify;

use super::stored::Stored;
use crate::config::{CacheConfig, CachePolicy};
use crate::stats::CacheSize;

/// Responses to one target that differ by request fields, at most; of more the one stored first goes.
const MAX_VARIANTS: usize = 32;
/// For how long a target whose answers are not stored is asked for by each request by itself.
const PASSED_FOR: Duration = Duration::from_secs(10);
/// What a key takes beside its bytes.
const KEY_BYTES: u64 = 128;
/// The mean size of an object that the tables are laid out for; they grow where it is less.
const USUAL_BYTES: u64 = 16 * 1024;

/// What is stored for a target.
#[derive(Debug, Clone)]
enum Slot {
    /// Its responses, the newest first.
    Variants(Vec<Arc<Stored>>),
    /// Nothing, since its answers may not be: until then its requests do not wait for one another.
    Passed(Instant),
}

impl Slot {
    fn weight(&self, key: &Bytes) -> u64 {
        let variants = match self {
            Self::Variants(variants) => variants.iter().map(|stored| stored.weight() as u64).sum(),
            Self::Passed(_) => 0,
        };
        KEY_BYTES + key.len() as u64 + variants
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

/// A fetch that others wait for.
#[derive(Debug, Default)]
pub(super) struct Flight {
    is_over: AtomicBool,
    /// What it fetches was changed meanwhile: it is not stored.
    is_outdated: AtomicBool,
    over: Notify,
}

impl Flight {
    /// Waits until it is over.
    pub(super) async fn wait(&self) {
        let over = self.over.notified();
        tokio::pin!(over);
        // What ends between the look and the wait must be heard.
        over.as_mut().enable();
        if !self.is_over.load(Ordering::Acquire) {
            over.await;
        }
    }
}

struct Shard {
    order: Order,
    flights: HashMap<Bytes, Arc<Flight>>,
}

/// What a look-up finds.
pub(super) enum Found {
    Stored(Arc<Stored>),
    /// Nothing for this request.
    Nothing {
        /// There is something for others.
        varies: bool,
    },
    /// The answers to this target are not stored.
    Passed,
}

/// Who fetches.
pub(super) enum Turn {
    /// Whoever asked: others wait for it until the ticket is dropped.
    Own(FlightTicket),
    /// Somebody else does.
    Others(Arc<Flight>),
}

/// The store.
pub(crate) struct Store {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    max_object_bytes: u64,
    /// Bytes of bodies that are being fetched: at most `bytes`.
    fetching: AtomicU64,
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
        match self.shard(key).order.get(key) {
            Some(Slot::Variants(variants)) => {
                match variants.iter().find(|stored| stored.selection.selects(request)) {
                    Some(stored) => Found::Stored(stored.clone()),
                    None => Found::Nothing { varies: true },
                }
            }
            Some(Slot::Passed(until)) if *until > Instant::now() => Found::Passed,
            _ => Found::Nothing { varies: false },
        }
    }

    /// Whose turn it is to fetch what is not stored.
    pub(super) fn turn(self: &Arc<Self>, key: &Bytes) -> Turn {
        let mut shard = self.shard(key);
        if let Some(flight) = shard.flights.get(key) {
            return Turn::Others(flight.clone());
        }
        let flight = Arc::new(Flight::default());
        shard.flights.insert(key.clone(), flight.clone());
        Turn::Own(FlightTicket {
            store: self.clone(),
            key: key.clone(),
            flight,
        })
    }

    /// What is stored for a target is no more true, nor what is being fetched for it. Whether anything was.
    pub(super) fn invalidate(&self, key: &Bytes) -> bool {
        let mut shard = self.shard(key);
        if let Some(flight) = shard.flights.remove(key) {
            // Who comes from now on does not wait for what was asked before.
            flight.is_outdated.store(true, Ordering::Release);
        }
        shard.order.remove(key)
    }

    /// Room for so many more bytes of a body that is fetched; given back by [`give_back`](Self::give_back).
    pub(super) fn take_room(&self, bytes: u64) -> bool {
        let before = self.fetching.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.bytes();
        if !fits {
            self.give_back(bytes);
        }
        fits
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

/// The right, and the duty, to fetch for others. Dropped, they wait no longer.
pub(super) struct FlightTicket {
    store: Arc<Store>,
    key: Bytes,
    flight: Arc<Flight>,
}

impl FlightTicket {
    /// Stores what was fetched, in place of what there is for the same requests; not where it was outdated meanwhile.
    pub(super) fn store(&self, stored: Arc<Stored>) -> bool {
        let mut shard = self.store.shard(&self.key);
        // Under the lock: an invalidation is either before, and seen, or behind, and removes it.
        if self.flight.is_outdated.load(Ordering::Acquire) {
            return false;
        }
        let mut variants = match shard.order.get(&self.key) {
            Some(Slot::Variants(variants)) => variants.clone(),
            _ => Vec::new(),
        };
        variants.retain(|other| other.selection != stored.selection);
        variants.insert(0, stored);
        variants.truncate(MAX_VARIANTS);
        shard.order.insert(self.key.clone(), Slot::Variants(variants));
        true
    }

    /// The answer may not be stored: requests for it need not wait for one another.
    pub(super) fn pass(&self) {
        let mut shard = self.store.shard(&self.key);
        let until = Instant::now() + PASSED_FOR;
        // What is stored for other requests stays.
        if !matches!(shard.order.get(&self.key), Some(Slot::Variants(_))) {
            shard.order.insert(self.key.clone(), Slot::Passed(until));
        }
    }

    /// What was stored is not to be used any more.
    pub(super) fn forget(&self) {
        self.store.shard(&self.key).order.remove(&self.key);
    }

    pub(super) fn store_of(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for FlightTicket {
    fn drop(&mut self) {
        let mut shard = self.store.shard(&self.key);
        // After an invalidation another may fetch the same.
        if let Some(flight) = shard.flights.get(&self.key)
            && Arc::ptr_eq(flight, &self.flight)
        {
            shard.flights.remove(&self.key);
        }
        drop(shard);
        self.flight.is_over.store(true, Ordering::Release);
        self.flight.over.notify_waiters();
    }
}
