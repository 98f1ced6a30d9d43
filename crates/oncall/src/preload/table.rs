//! Which descriptor is which connection's, who serves it, and what is counted of it.

use super::areas;
use super::courtesy;
use super::gaps;
use super::habit;
use super::layout::{COMMON, Connection, KEPT, MAX_CONNECTIONS, MAX_FD, Region, blocked, bucket, mode, sent};
use super::lock;
use super::owner::{self, begun};
use super::processes;
use super::rounds::{self, Locked, locked, state};
use super::sets;
use super::sys::{self, EpollEvent};
use super::transactions;
use super::users;
use super::watch::{unwatch_fd, watch_fd};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// The region, mapped and perhaps not in use yet.
static MAPPED: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());
/// The region, where connections of this process are on call.
static REGION: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());
/// The place of each descriptor's connection, plus 1; or [`PENDING`], or [`SPOKEN`].
static PLACES: [AtomicU32; MAX_FD] = [const { AtomicU32::new(0) }; MAX_FD];
/// A descriptor that was accepted, by this process or the one that it was forked from, and that nobody has waited for yet.
const PENDING: u32 = u32::MAX;
/// One to which something was sent before: its server speaks first.
const SPOKEN: u32 = PENDING - 1;
/// The thread's place, plus 1.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// This process, as far as it is not a child of vfork(2).
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The process that loaded the library: the parent of all that serve, or the one.
static LOADER: AtomicU32 = AtomicU32::new(0);
/// Whether places in [`PLACES`] may be those of the process that this one was forked from.
static STALE: AtomicU32 = AtomicU32::new(0);

/// The region, where this process has one in use.
pub fn region() -> Option<&'static Region> {
    // SAFETY: it was mapped for good before it was stored.
    unsafe { REGION.load(Acquire).as_ref() }
}

/// The region, in use or not.
pub fn mapped() -> Option<&'static Region> {
    // SAFETY: as above.
    unsafe { MAPPED.load(Acquire).as_ref() }
}

/// The region was mapped, as the library was loaded.
pub fn map(region: *mut Region) {
    PROCESS.store(sys::process(), Relaxed);
    LOADER.store(sys::process(), Relaxed);
    // SAFETY: a function that lives as long as the program.
    unsafe { sys::pthread_atfork(None, None, Some(forked)) };
    MAPPED.store(region, Release);
}

/// Puts the region in use, or out of it.
pub fn put_in_use(region: Option<&'static Region>) {
    let at = region.map_or(core::ptr::null_mut(), |region| {
        core::ptr::from_ref(region).cast_mut()
    });
    REGION.store(at, Release);
}

/// The process that loaded the library.
pub fn loader() -> u32 {
    LOADER.load(Relaxed)
}

/// Whether this process was forked from the one that loaded the library, and the calling thread is its first.
pub fn is_forked_worker() -> bool {
    let process = PROCESS.load(Relaxed);
    process != LOADER.load(Relaxed) && sys::thread() == process
}

/// Whether the caller is a child of vfork(2), which has its parent's memory.
pub fn is_borrowed() -> bool {
    sys::process() != PROCESS.load(Relaxed)
}

/// In a forked child: our thread is not in it, and its parent's connections are its parent's.
extern "C" fn forked() {
    if let Some(region) = region() {
        region.forks.fetch_add(1, Relaxed);
        STALE.store(1, Relaxed);
    }
    areas::forked();
    courtesy::forked();
    put_in_use(None);
    owner::forked();
    habit::forked();
    PROCESS.store(sys::process(), Relaxed);
    processes::forked();
    sets::forget_all();
}

/// Forgets the connections of the process that this one was forked from.
pub fn forget_inherited() {
    if STALE.swap(0, Relaxed) == 1 {
        let inherited = PLACES
            .iter()
            .filter(|place| !matches!(place.load(Relaxed), 0 | PENDING | SPOKEN));
        inherited.for_each(|place| place.store(0, Relaxed));
    }
}

/// Makes the key under which a thread finds its place.
pub fn make_key() -> bool {
    let mut key = 0;
    if KEY.load(Relaxed) != u32::MAX {
        return true;
    }
    // SAFETY: a key of ours, and a function that lives as long as the program.
    let is_made = unsafe { sys::pthread_key_create(&raw mut key, worker_ends) } == 0;
    if is_made {
        KEY.store(key, Relaxed);
    }
    is_made
}

/// The place, plus 1, of the connection that the calling thread serves, or served.
pub fn own_place() -> usize {
    // SAFETY: the key was made before the region was in use.
    unsafe { sys::pthread_getspecific(KEY.load(Relaxed)) as usize }
}

/// A worker ends, also by being cancelled: what it held is free.
extern "C" fn worker_ends(value: *mut c_void) {
    let Some((region, place)) = region().zip((value as usize).checked_sub(1)) else {
        return;
    };
    let connection = &region.connections[place];
    if connection.tid.load(Relaxed) == sys::thread() {
        connection.tid.store(0, Relaxed);
        connection.pinned.store(0, Relaxed);
        locked(region, |lock| {
            // One that was cancelled while it was parked, or stood in line.
            lock.dequeue(place as u16);
            connection.state.store(state::RUNNING, Relaxed);
            lock.release(connection);
            lock.unblock(connection);
            lock.dispatch();
        });
    }
}

/// The connection that the calling thread serves, or served.
pub fn own_connection() -> Option<&'static Connection> {
    Some(&region()?.connections[own_place().checked_sub(1)?])
}

/// What a descriptor's entry says.
fn entry(fd: c_int) -> u32 {
    let index = usize::try_from(fd).unwrap_or(usize::MAX);
    PLACES.get(index).map_or(0, |entry| entry.load(Relaxed))
}

/// Sets a descriptor's entry: 0, or a place plus 1.
pub fn set_entry(fd: c_int, to: u32) {
    let index = usize::try_from(fd).unwrap_or(usize::MAX);
    if let Some(entry) = PLACES.get(index) {
        entry.store(to, Relaxed);
    }
}

/// Whether a descriptor is one that was accepted.
pub fn is_client(fd: c_int) -> bool {
    entry(fd) != 0
}

/// A descriptor's connection, where it is on call already.
pub fn known(fd: c_int) -> Option<(&'static Region, u16)> {
    // Most descriptors that the server reads and writes have none: the table is asked before anything else.
    match entry(fd) {
        0 | PENDING | SPOKEN => None,
        place => Some((region()?, (place - 1) as u16)),
    }
}

/// A descriptor's connection, which is put on call where somebody waits for it the first time: that is who serves it.
pub fn connection(fd: c_int) -> Option<(&'static Region, u16)> {
    match entry(fd) {
        0 => None,
        pending @ (PENDING | SPOKEN) => adopt(fd, pending == SPOKEN),
        place => Some((region()?, (place - 1) as u16)),
    }
}

/// A client has come. Who serves it is not known yet: this process, or one that it forks.
pub fn accepted(fd: c_int) {
    let Some(region) = mapped() else {
        return;
    };
    forget(fd);
    processes::accepted(region);
    match usize::try_from(fd).is_ok_and(|fd| fd < MAX_FD) {
        true => set_entry(fd, PENDING),
        false => {
            region.unmanaged.fetch_add(1, Relaxed);
        }
    }
}

fn adopt(fd: c_int, has_spoken: bool) -> Option<(&'static Region, u16)> {
    let region = mapped()?;
    if is_borrowed() {
        return None;
    }
    set_entry(fd, 0);
    let peer = peer(fd)?;
    let place = match is_forked_worker() {
        true => processes::adopt(region, fd, peer),
        false => adopt_for_thread(region, fd, peer),
    };
    place.map(|place| {
        if has_spoken {
            users::spoken_to(&region.connections[usize::from(place)]);
        }
        (region, place)
    })
}

/// Puts a connection that a thread of this process serves on call.
fn adopt_for_thread(region: &'static Region, fd: c_int, peer: ([u64; 2], u32)) -> Option<u16> {
    match begun(region) {
        begun::OURS => {}
        begun::ELSEWHERE => {
            region.elsewhere.fetch_add(1, Relaxed);
            return None;
        }
        _ => {
            region.lacking.fetch_add(1, Relaxed);
            return None;
        }
    }
    let claimed = locked(region, |lock| claim(lock, fd, peer)).flatten();
    let watched = claimed.filter(|(place, generation)| {
        set_entry(fd, u32::from(*place) + 1);
        watch_fd(fd, u64::from(*place) | u64::from(*generation) << 32)
    });
    if watched.is_none() {
        forget(fd);
        region.unmanaged.fetch_add(1, Relaxed);
    }
    watched.map(|(place, _)| place)
}

/// Whether the region's connections are served in this way: the first connection decides.
pub fn decide(region: &Region, by: u32) -> bool {
    let decided = region
        .mode
        .compare_exchange(mode::UNDECIDED, by, Acquire, Relaxed);
    decided.is_ok() || decided == Err(by)
}

/// The address of a client: IPv4 mapped into IPv6, and its port; `None` where it is no client of a network or a Unix socket.
fn peer(fd: c_int) -> Option<([u64; 2], u32)> {
    let mut address = [0u8; 128];
    let mut length = address.len() as u32;
    // SAFETY: a buffer of the size that is said.
    if unsafe { sys::getpeername(fd, address.as_mut_ptr(), &raw mut length) } != 0 {
        return None;
    }
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&address[at..at + 8]);
        u64::from_be_bytes(bytes)
    };
    let port = u32::from(u16::from_be_bytes([address[2], address[3]]));
    match u16::from_ne_bytes([address[0], address[1]]) {
        1 => Some(([0; 2], 0)),
        2 => Some(([0, 0xffff << 32 | half(4) >> 32], port)),
        10 => Some(([half(8), half(16)], port)),
        _ => None,
    }
}

/// Takes a free place for a connection: the place, and its generation.
pub fn claim(lock: &mut Locked, fd: c_int, (address, port): ([u64; 2], u32)) -> Option<(u16, u32)> {
    let is_free = |place: &usize| {
        lock.region.connections[*place]
            .generation
            .load(Relaxed)
            .is_multiple_of(2)
    };
    let hint = lock.lists.hint.load(Relaxed) as usize;
    let top = lock.lists.top.load(Relaxed) as usize;
    let place = (hint..MAX_CONNECTIONS).chain(0..hint).find(is_free)?;
    // Low places first, so that few are looked through.
    let next = if place < top { place + 1 } else { 0 };
    lock.lists.hint.store(next as u32, Relaxed);
    lock.lists.top.store(top.max(place + 1) as u32, Relaxed);
    let connection = &lock.region.connections[place];
    connection.fd.store(fd, Relaxed);
    connection.port.store(port, Relaxed);
    connection.address[0].store(address[0], Relaxed);
    connection.address[1].store(address[1], Relaxed);
    connection.user.iter().for_each(|word| word.store(0, Relaxed));
    connection.quota.store(COMMON, Relaxed);
    connection.state.store(state::RUNNING, Relaxed);
    let words = [
        &connection.tid,
        &connection.go,
        &connection.slot,
        &connection.pending,
        &connection.in_query,
        &connection.sent,
        &connection.looked,
        &connection.yields,
        &connection.rests,
        &connection.courtesy,
        &connection.area,
        &connection.gate,
        &connection.pinned,
        &connection.protocol,
        &connection.greeting,
        &connection.in_transaction,
        &connection.failed,
        &connection.holds,
        &connection.preparing,
        &connection.named,
        &connection.owed,
        &connection.blocked,
        &connection.pausing,
    ];
    words.into_iter().for_each(|word| word.store(0, Relaxed));
    let longs = [
        &connection.queries,
        &connection.failures,
        &connection.latency_ns,
        &connection.between_ns,
        &connection.arrived_ns,
        &connection.ready_ns,
        &connection.query_ns,
        &connection.since_ns,
        &connection.pause_ns,
        &connection.ran,
        &connection.transaction_ns,
        &connection.answer,
        &connection.request,
    ];
    longs
        .into_iter()
        .chain(&connection.prepared)
        .for_each(|long| long.store(0, Relaxed));
    // No query of its came before it did.
    connection.sent_ns.store(sys::now(), Relaxed);
    // Those of no round: the first query has tokens of its own.
    connection.round.store(u64::MAX, Relaxed);
    if lock.is_shared && !lock::live(&connection.alive) {
        return None;
    }
    let generation = connection.generation.fetch_add(1, Release) + 1;
    Some((place as u16, generation))
}

/// A descriptor is no longer that of the connection at a place, if it was.
pub fn forget_place(fd: c_int, place: u16) {
    if entry(fd) == u32::from(place) + 1 {
        forget(fd);
    }
}

/// A descriptor is closed, reused, or watched by the server itself.
pub fn forget(fd: c_int) {
    let entry = entry(fd);
    // A child of vfork closes its copies in our memory.
    if entry == 0 || is_borrowed() {
        return;
    }
    set_entry(fd, 0);
    let Some((region, place)) = region().zip(entry.checked_sub(1)) else {
        return;
    };
    if matches!(entry, PENDING | SPOKEN) {
        return;
    }
    if lock::is_shared(region) {
        processes::leave(region);
        return;
    }
    let connection = &region.connections[place as usize];
    if connection.tid.load(Relaxed) == sys::thread() {
        // The server may keep the thread for a client that comes much later, or for something else.
        courtesy::keep(connection, false);
    }
    locked(region, |lock| lock.free(place as u16));
}

impl Locked {
    /// Gives a connection's place to whoever comes next.
    pub fn free(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        habit::ends(connection);
        let is_answered =
            connection.failed.load(Relaxed) == 1 || connection.sent.load(Relaxed) != sent::NOTHING;
        if connection.in_query.swap(0, Relaxed) == 1 && is_answered {
            // Its last query ended with the connection, as where HTTP has one for each. A farewell has no answer.
            count(self.region, connection, self.now);
        }
        self.release(connection);
        self.unblock(connection);
        self.dequeue(place);
        self.unpin(connection);
        connection.generation.fetch_add(1, Release);
        let is_asleep = connection.state.swap(state::RUNNING, Relaxed) != state::RUNNING;
        if is_asleep {
            self.wake(place);
        }
        self.dispatch();
    }
}

/// The server waits for a descriptor with epoll. Where it is a client's, and this process serves no other, the set is that one
/// connection's; otherwise the server is driven by events, and nobody is parked for it.
pub fn watched_by_server(set: c_int, fd: c_int, event: Option<EpollEvent>) {
    if entry(fd) == 0 {
        sets::may_listen(set, fd);
        return;
    }
    if is_borrowed() {
        return;
    }
    let is_fit = event.is_some_and(|event| event.events & sys::EPOLLET == 0) && !sets::listens(set);
    if is_fit
        && is_forked_worker()
        && let Some((region, _)) = connection(fd)
        && lock::is_shared(region)
        && event.is_some_and(|event| sets::add(set, fd, event))
    {
        return;
    }
    if let Some(region) = mapped() {
        region.event_driven.fetch_add(1, Relaxed);
        if !lock::is_shared(region) {
            unwatch_fd(fd);
        }
    }
    forget(fd);
}

/// A part of an answer goes out: whose.
pub fn sending(fd: c_int) -> Option<&'static Connection> {
    let Some((region, place)) = known(fd) else {
        if entry(fd) == PENDING && !is_borrowed() {
            set_entry(fd, SPOKEN);
        }
        return None;
    };
    let connection = &region.connections[usize::from(place)];
    users::spoken_to(connection);
    if connection.sent.load(Relaxed) == sent::NOTHING {
        connection.sent.store(sent::ANSWER, Relaxed);
        connection.sent_ns.store(sys::now(), Relaxed);
    }
    Some(connection)
}

/// Whether a descriptor is no longer a connection's: it was closed where no hook sees it, as by fclose(3), and its number is another file's.
pub fn is_others(fd: c_int, connection: &Connection) -> bool {
    sys::set_errno(0);
    match peer(fd) {
        None => matches!(sys::errno(), sys::ENOTSOCK | sys::EBADF),
        Some((address, port)) => {
            let [high, low] = [0, 1].map(|half| connection.address[half].load(Relaxed));
            (address, port) != ([high, low], connection.port.load(Relaxed))
        }
    }
}

/// A part of a query was read: its first where the worker did not wait for it, as with what came right after the connection.
pub fn received(fd: c_int) {
    if let Some((region, place)) = connection(fd) {
        let connection = &region.connections[usize::from(place)];
        let is_answered = connection.sent.load(Relaxed) != sent::NOTHING;
        // A server may speak where nothing was asked.
        if is_answered && connection.in_query.load(Relaxed) == 1 {
            end_query(region, connection, sys::now());
        }
        if is_answered || connection.in_query.load(Relaxed) == 0 {
            attach(connection, place);
            region.without_slot.fetch_add(1, Relaxed);
            begin_query(connection, sys::now());
        }
    }
}

/// A query was there after a wait as without us.
pub fn came(region: &Region, place: u16) {
    let connection = &region.connections[usize::from(place)];
    if connection.in_query.load(Relaxed) == 0 {
        begin_query(connection, sys::now());
    }
}

/// Which thread serves a connection, and which connection a thread serves.
pub fn attach(connection: &Connection, place: u16) {
    let key = KEY.load(Relaxed);
    let value = (usize::from(place) + 1) as *const c_void;
    // SAFETY: the key was made before the region was in use.
    unsafe {
        if sys::pthread_getspecific(key).cast_const() != value {
            areas::hand_over(connection, own_place());
            sys::pthread_setspecific(key, value);
            connection.tid.store(sys::thread(), Relaxed);
            courtesy::forget(connection);
        }
    }
    if connection.tid.load(Relaxed) == 0 {
        connection.tid.store(sys::thread(), Relaxed);
    }
}

pub fn begin_query(connection: &Connection, now: u64) {
    // Before the time that was noted is looked for: a look that has ended by then has noted it.
    let is_after_gap = gaps::is_after_gap(now);
    let arrived = match connection.ready_ns.swap(0, Relaxed) {
        // Its worker found it itself.
        0 if is_after_gap => gaps::found_after_gap(connection, now),
        0 => now,
        ready => ready,
    };
    connection.pending.store(0, Relaxed);
    connection.query_ns.store(arrived, Relaxed);
    let before = connection.arrived_ns.swap(arrived, Relaxed);
    if before != 0 {
        connection
            .between_ns
            .fetch_add(arrived.saturating_sub(before), Relaxed);
    }
    connection.sent.store(sent::NOTHING, Relaxed);
    transactions::ask(connection);
    connection.in_query.store(1, Relaxed);
}

/// Counts a query that was answered, with its latency where it did not fail: how quickly a server fails is none.
fn count(region: &Region, connection: &Connection, now: u64) {
    let before = connection.queries.fetch_add(1, Relaxed);
    region.queries.fetch_add(1, Relaxed);
    if connection.failed.swap(0, Relaxed) == 1 {
        connection.failures.fetch_add(1, Relaxed);
        region.failures.fetch_add(1, Relaxed);
        return;
    }
    let number = before.saturating_sub(connection.failures.load(Relaxed));
    let latency = now.saturating_sub(connection.query_ns.load(Relaxed));
    let microseconds = latency / 1000;
    connection.latency_ns.fetch_add(latency, Relaxed);
    connection.recent_us[number as usize % KEPT]
        .store(u32::try_from(microseconds).unwrap_or(u32::MAX), Relaxed);
    region.latencies[bucket(microseconds)].fetch_add(1, Relaxed);
}

pub fn end_query(region: &'static Region, connection: &Connection, now: u64) {
    connection.in_query.store(0, Relaxed);
    if connection.blocked.load(Relaxed) != blocked::NOT {
        // Its slot was taken while it slept, or it could not say that it goes on.
        locked(region, |lock| lock.unblock(connection));
    }
    // What was noted before the answer was this query's own arrival, noticed after its worker; what came since is late from now on, for
    // until now its client waits for this one.
    let (ready, answered) = (
        connection.ready_ns.load(Relaxed),
        connection.sent_ns.swap(now, Relaxed),
    );
    if ready != 0 {
        let since = if ready < answered { 0 } else { now };
        connection.ready_ns.store(since, Relaxed);
    }
    connection.sent.store(sent::NOTHING, Relaxed);
    count(region, connection, now);
    let since = connection.since_ns.swap(now, Relaxed);
    if connection.slot.load(Relaxed) == 1 {
        // Two workers that do this at once lose one of a hundred.
        // A few long ones are not to become what is usual.
        let mean = region.held_ns.load(Relaxed);
        let held = now.saturating_sub(since).min(rounds::long(mean));
        region.held_ns.store(mean - mean / 128 + held / 128, Relaxed);
    }
    // Where it is not on call for weeks it must not wrap.
    if connection.tokens.load(Relaxed) > i32::MIN / 4 {
        connection.tokens.fetch_sub(1, Relaxed);
    }
}
