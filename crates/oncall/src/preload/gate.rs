//! Who runs: slots, rounds and tokens (REEF, Sections 3.3 and 4).
//!
//! A worker that waits for its client's next query sleeps here, on a word of its own, until its query is there and a slot is free.
//! No thread stands between a finished worker and the next one: whoever gives its slot up takes the arrivals out of epoll and wakes
//! the next. Our own thread watches epoll only while slots are free, and sleeps through the delay between two rounds, in which
//! arrivals wake nobody. While all slots are taken, an arrival costs no wake-up at all.
//!
//! What cannot deadlock: a worker that blocks inside a query gives its slot back, and takes one again without waiting when it goes on.
//! So nobody who may hold a lock of the server ever waits for a slot.

use super::layout::{COMMON, Connection, KEPT, MAX_CONNECTIONS, MAX_FD, Region, bucket};
use super::sys::{self, EpollEvent, PollFd, call, number};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// Where a connection is.
mod state {
    /// Its worker runs, or does not wait here.
    pub const RUNNING: u32 = 1;
    /// Its worker sleeps, and no query is there.
    pub const PARKED: u32 = 2;
    /// Its worker sleeps, and a query waits for a slot.
    pub const READY: u32 = 3;
}

/// A worker asleep inside a query for so long has its slot taken, whatever it waits for.
const RECLAIM_NS: u64 = 5_000_000;
/// While slots are taken and somebody waits, arrivals are noticed at least so often.
const NOTICE_NS: u64 = 1_000_000;
/// A connection that is given no turn has one all the same after so long (AppleS).
const STARVED_NS: u64 = 20_000_000_000;
/// How long our thread waits for arrivals before it looks at its levers again, milliseconds.
const LOOK_MS: c_long = 1000;
/// Arrivals taken out of epoll at once.
const EVENTS: usize = 64;
/// Workers woken after the lock is given back; more are woken under it.
const WAKES: usize = 16;
/// What epoll says of the bell that is rung for our own thread.
const BELL: u64 = u64::MAX;
/// No connection, and the end of a list.
const NONE: u16 = u16::MAX;

static REGION: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());
/// The place of each descriptor's connection, plus 1.
static PLACES: [AtomicU32; MAX_FD] = [const { AtomicU32::new(0) }; MAX_FD];
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
static EPOLL: AtomicI32 = AtomicI32::new(-1);
static EVENTFD: AtomicI32 = AtomicI32::new(-1);
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// What our own thread sleeps on while it does not watch epoll.
static WORD: AtomicU32 = AtomicU32::new(0);
static NOTICED: AtomicU64 = AtomicU64::new(0);

/// What our own thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Arrivals.
    Arrivals,
    /// A free slot.
    Slots,
    /// The end of the delay.
    Until(u64),
}

/// Two lists of connections with a query, linked through their places: those with tokens in this round, and those without.
struct Lists {
    first: [u16; 2],
    last: [u16; 2],
    before: [u16; MAX_CONNECTIONS],
    after: [u16; MAX_CONNECTIONS],
    /// Which list a connection is in, plus 1.
    member: [u8; MAX_CONNECTIONS],
    round: u64,
    /// Queries let go in this round.
    served: u64,
    /// No round begins earlier.
    not_before: u64,
    watch: Watch,
    /// Where the search for a free place begins.
    hint: usize,
    /// No place at or after this one was ever taken.
    top: usize,
}

const NOW: usize = 0;
const NEXT: usize = 1;

impl Lists {
    const fn new() -> Self {
        Self {
            first: [NONE; 2],
            last: [NONE; 2],
            before: [NONE; MAX_CONNECTIONS],
            after: [NONE; MAX_CONNECTIONS],
            member: [0; MAX_CONNECTIONS],
            round: 1,
            served: 0,
            not_before: 0,
            watch: Watch::Slots,
            hint: 0,
            top: 0,
        }
    }

    const fn is_empty(&self, list: usize) -> bool {
        self.first[list] == NONE
    }

    fn push(&mut self, list: usize, place: u16) {
        let at = usize::from(place);
        self.remove(place);
        self.member[at] = list as u8 + 1;
        self.before[at] = self.last[list];
        self.after[at] = NONE;
        match self.last[list] {
            NONE => self.first[list] = place,
            last => self.after[usize::from(last)] = place,
        }
        self.last[list] = place;
    }

    fn remove(&mut self, place: u16) {
        let at = usize::from(place);
        let Some(list) = usize::from(self.member[at]).checked_sub(1) else {
            return;
        };
        let (before, after) = (self.before[at], self.after[at]);
        match before {
            NONE => self.first[list] = after,
            before => self.after[usize::from(before)] = after,
        }
        match after {
            NONE => self.last[list] = before,
            after => self.before[usize::from(after)] = before,
        }
        self.member[at] = 0;
    }

    fn pop(&mut self, list: usize) -> Option<u16> {
        let place = self.first[list];
        (place != NONE).then(|| {
            self.remove(place);
            place
        })
    }
}

/// What the lock guards.
struct Guarded {
    mutex: UnsafeCell<[u64; 8]>,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are touched by whoever holds the mutex alone, see `locked`.
unsafe impl Sync for Guarded {}

static GUARDED: Guarded = Guarded {
    mutex: UnsafeCell::new([0; 8]),
    lists: UnsafeCell::new(Lists::new()),
};

/// The lock, and who is to be woken when it is given back.
struct Locked<'a> {
    region: &'static Region,
    lists: &'a mut Lists,
    now: u64,
    wakes: [u16; WAKES],
    woken: usize,
    wake_watch: bool,
    ring: bool,
}

/// Runs something under the lock; `None` where this thread has it already, as in a signal's handler.
fn locked<R>(region: &'static Region, body: impl FnOnce(&mut Locked<'_>) -> R) -> Option<R> {
    // SAFETY: the mutex was made in `begin`; an error-checking one refuses who has it.
    if unsafe { sys::pthread_mutex_lock(GUARDED.mutex.get().cast()) } != 0 {
        return None;
    }
    let mut guard = Locked {
        region,
        // SAFETY: we have the mutex, and nobody else makes a reference.
        lists: unsafe { &mut *GUARDED.lists.get() },
        now: sys::now(),
        wakes: [NONE; WAKES],
        woken: 0,
        wake_watch: false,
        ring: false,
    };
    let result = body(&mut guard);
    let (wakes, woken) = (guard.wakes, guard.woken);
    let (wake_watch, ring) = (guard.wake_watch, guard.ring);
    // SAFETY: we have it.
    unsafe { sys::pthread_mutex_unlock(GUARDED.mutex.get().cast()) };
    for place in &wakes[..woken] {
        sys::futex_wake(&region.connections[usize::from(*place)].go);
    }
    if wake_watch {
        sys::futex_wake(&WORD);
    }
    if ring {
        let one = 1u64;
        // SAFETY: eight bytes of ours to an eventfd of ours.
        unsafe {
            call(
                number::WRITE,
                [
                    c_long::from(EVENTFD.load(Relaxed)),
                    &raw const one as c_long,
                    8,
                    0,
                    0,
                    0,
                ],
            )
        };
    }
    Some(result)
}

impl Locked<'_> {
    /// Whether workers are on call: the levers are on, and their lease holds.
    fn is_closed(&self) -> bool {
        is_closed(self.region, self.now)
    }

    fn limit(&self) -> u32 {
        match self.is_closed() {
            true => self.region.concurrency.load(Relaxed).max(1),
            false => u32::MAX,
        }
    }

    fn delay(&self) -> u64 {
        match self.is_closed() {
            true => self.region.delay_ns.load(Relaxed),
            false => 0,
        }
    }

    /// Gives a connection the tokens of this round, where it has those of an earlier one.
    fn refresh(&self, connection: &Connection) -> i32 {
        if connection.round.load(Relaxed) != self.lists.round {
            connection.round.store(self.lists.round, Relaxed);
            connection.tokens.store(self.quota(connection), Relaxed);
        }
        connection.tokens.load(Relaxed)
    }

    fn quota(&self, connection: &Connection) -> i32 {
        match connection.quota.load(Relaxed) {
            _ if !self.is_closed() => i32::MAX,
            COMMON => i32::try_from(self.region.batch.load(Relaxed))
                .unwrap_or(i32::MAX)
                .max(1),
            quota => {
                let ready = connection.ready_ns.load(Relaxed);
                let is_starved = ready != 0 && self.now.saturating_sub(ready) > STARVED_NS;
                quota.max(i32::from(is_starved))
            }
        }
    }

    /// A query is there for a worker that sleeps.
    fn enqueue(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        connection.state.store(state::READY, Relaxed);
        if connection.ready_ns.load(Relaxed) == 0 {
            connection.ready_ns.store(self.now, Relaxed);
        }
        self.region.waiting.fetch_add(1, Relaxed);
        let list = if self.refresh(connection) > 0 { NOW } else { NEXT };
        self.lists.push(list, place);
    }

    /// A connection waits for nothing any more.
    fn dequeue(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        if connection.state.load(Relaxed) == state::READY {
            self.region.waiting.fetch_sub(1, Relaxed);
            self.lists.remove(place);
        }
    }

    /// Takes note of what epoll said.
    fn note(&mut self, events: &[EpollEvent]) {
        for event in events {
            let data = event.data;
            let place = data as u16;
            if data == BELL || usize::from(place) >= MAX_CONNECTIONS {
                continue;
            }
            let connection = &self.region.connections[usize::from(place)];
            if connection.generation.load(Relaxed) != (data >> 32) as u32 {
                continue;
            }
            match connection.state.load(Relaxed) {
                state::PARKED => self.enqueue(place),
                state::RUNNING if connection.pending.swap(1, Relaxed) == 0 => {
                    connection.ready_ns.store(self.now, Relaxed);
                }
                _ => {}
            }
        }
    }

    /// Takes all arrivals that are there out of epoll.
    fn harvest(&mut self) {
        NOTICED.store(self.now, Relaxed);
        let mut events = [EpollEvent { events: 0, data: 0 }; EVENTS];
        loop {
            let count = take(&mut events, 0);
            self.note(&events[..count]);
            if count < EVENTS {
                break;
            }
        }
    }

    /// Wakes a connection's worker, with a slot.
    fn grant(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        self.region.waiting.fetch_sub(1, Relaxed);
        self.region.running.fetch_add(1, Relaxed);
        self.lists.served += 1;
        connection.state.store(state::RUNNING, Relaxed);
        connection.slot.store(1, Relaxed);
        self.wake(place);
    }

    fn wake(&mut self, place: u16) {
        let connection = &self.region.connections[usize::from(place)];
        connection.go.store(1, Release);
        match self.woken < WAKES {
            true => {
                self.wakes[self.woken] = place;
                self.woken += 1;
            }
            false => sys::futex_wake(&connection.go),
        }
    }

    /// Gives the free slots to those that wait, and ends the round where nobody has a turn left.
    fn dispatch(&mut self) {
        let mut has_harvested = false;
        let mut has_turned = false;
        if self.now.saturating_sub(NOTICED.load(Relaxed)) > NOTICE_NS {
            self.harvest();
            has_harvested = true;
        }
        while self.region.running.load(Relaxed) < self.limit() {
            if self.delay() > 0 && self.now < self.lists.not_before {
                break;
            }
            if let Some(place) = self.lists.pop(NOW) {
                let connection = &self.region.connections[usize::from(place)];
                match self.refresh(connection) > 0 {
                    true => self.grant(place),
                    false => self.lists.push(NEXT, place),
                }
                continue;
            }
            if !has_harvested {
                has_harvested = true;
                self.harvest();
                continue;
            }
            if has_turned || !self.turn() {
                break;
            }
            has_turned = true;
        }
        self.rouse();
    }

    /// Ends the round where it is over: whether there may be somebody to let go.
    fn turn(&mut self) -> bool {
        let delay = self.delay();
        let is_over = match delay {
            0 => !self.lists.is_empty(NEXT),
            _ => {
                self.region.running.load(Relaxed) == 0
                    && (self.lists.served > 0 || !self.lists.is_empty(NEXT))
            }
        };
        if !is_over {
            return false;
        }
        let had_served = self.lists.served > 0;
        self.region.rounds.fetch_add(1, Relaxed);
        self.lists.round += 1;
        self.lists.served = 0;
        while let Some(place) = self.lists.pop(NEXT) {
            self.lists.push(NOW, place);
        }
        if delay == 0 || !had_served {
            return true;
        }
        self.lists.not_before = self.now + delay;
        // While the core is awake anyway: an arrival that woke our thread within the delay would cut the idle period in two.
        if self.lists.watch == Watch::Arrivals {
            self.ring = true;
        }
        false
    }

    /// Our own thread waits for slots, and some are free now: arrivals are to be watched.
    fn rouse(&mut self) {
        let is_free = self.region.running.load(Relaxed) < self.limit();
        if is_free && self.lists.watch == Watch::Slots {
            WORD.store(1, Release);
            self.wake_watch = true;
        }
    }

    /// A worker gives its slot up.
    fn release(&mut self, connection: &Connection) {
        if connection.slot.swap(0, Relaxed) == 1 {
            self.region.running.fetch_sub(1, Relaxed);
        }
    }

    /// Takes the slots of workers that sleep inside a query, whatever they wait for: a lock that no hook sees.
    fn reclaim(&mut self) {
        for connection in &self.region.connections[..self.lists.top] {
            if connection.slot.load(Relaxed) == 1
                && connection.in_query.load(Relaxed) == 1
                && self.now.saturating_sub(connection.query_ns.load(Relaxed)) > RECLAIM_NS
                && is_asleep(connection.tid.load(Relaxed))
            {
                self.release(connection);
                self.region.reclaimed.fetch_add(1, Relaxed);
            }
        }
    }
}

fn is_closed(region: &Region, now: u64) -> bool {
    let until = region.lease_until_ns.load(Relaxed);
    region.enabled.load(Relaxed) != 0 && (until == 0 || now < until)
}

/// Arrivals that epoll has, after at most so many milliseconds.
fn take(events: &mut [EpollEvent; EVENTS], milliseconds: c_long) -> usize {
    // SAFETY: the array has room for as many as are asked for; no signal mask.
    let count = unsafe {
        call(
            number::EPOLL_PWAIT,
            [
                c_long::from(EPOLL.load(Relaxed)),
                events.as_mut_ptr() as c_long,
                EVENTS as c_long,
                milliseconds,
                0,
                8,
            ],
        )
    };
    usize::try_from(count).unwrap_or(0)
}

/// Whether a thread of this process sleeps, by /proc/self/task/TID/stat.
fn is_asleep(tid: u32) -> bool {
    let mut path = [0u8; 48];
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        path[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    put(b"/proc/self/task/");
    let mut digits = [0u8; 10];
    let (mut left, mut at) = (tid, digits.len());
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    put(&digits[at..]);
    put(b"/stat\0");
    let mut text = [0u8; 128];
    // SAFETY: a path that ends with 0, and a buffer of the size that is said; the descriptor is ours to close.
    let read = unsafe {
        let fd = call(number::OPEN_AT, [-100, path.as_ptr() as c_long, 0x80000, 0, 0, 0]);
        if fd < 0 {
            return false;
        }
        let read = call(
            number::READ,
            [fd, text.as_mut_ptr() as c_long, text.len() as c_long, 0, 0, 0],
        );
        call(number::CLOSE, [fd, 0, 0, 0, 0, 0]);
        read
    };
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    // The command's name is in parentheses and may hold any byte: the state follows the last of them.
    let end = text.iter().rposition(|byte| *byte == b')');
    matches!(end.and_then(|end| text.get(end + 2)), Some(b'S' | b'D'))
}

/// The region, where this process has one in use.
pub fn region() -> Option<&'static Region> {
    // SAFETY: it was mapped for good before it was stored.
    unsafe { REGION.load(Acquire).as_ref() }
}

/// Puts a region in use: from now on connections are on call.
pub fn begin(region: &'static Region) -> bool {
    let mut attributes = [0u64; 2];
    let mut key = 0;
    // SAFETY: storage larger than the types have; PTHREAD_MUTEX_ERRORCHECK is 2.
    let is_made = unsafe {
        sys::pthread_mutexattr_init(attributes.as_mut_ptr().cast()) == 0
            && sys::pthread_mutexattr_settype(attributes.as_mut_ptr().cast(), 2) == 0
            && sys::pthread_mutex_init(GUARDED.mutex.get().cast(), attributes.as_ptr().cast()) == 0
            && sys::pthread_key_create(&raw mut key, worker_ends) == 0
    };
    // SAFETY: no pointer is passed; EPOLL_CLOEXEC, and EFD_CLOEXEC | EFD_NONBLOCK.
    let (epoll, bell) = unsafe {
        (
            call(number::EPOLL_CREATE1, [0x80000, 0, 0, 0, 0, 0]) as c_int,
            call(number::EVENTFD2, [0, 0x80800, 0, 0, 0, 0]) as c_int,
        )
    };
    if !is_made || epoll < 0 || bell < 0 {
        return false;
    }
    EPOLL.store(epoll, Relaxed);
    EVENTFD.store(bell, Relaxed);
    KEY.store(key, Relaxed);
    PROCESS.store(sys::process(), Relaxed);
    if !watch_fd(bell, BELL) || !start_thread(region) {
        return false;
    }
    REGION.store(core::ptr::from_ref(region).cast_mut(), Release);
    // SAFETY: a function that lives as long as the program.
    unsafe { sys::pthread_atfork(None, None, Some(forked)) };
    true
}

fn start_thread(region: &'static Region) -> bool {
    let mut attributes = [0u64; 16];
    let (all, mut before, mut thread) = ([u64::MAX; 16], [0u64; 16], 0);
    // SAFETY: storage larger than the types have; SIG_SETMASK is 2, PTHREAD_CREATE_DETACHED 1. Signals are the server's: our thread
    // takes none of them.
    unsafe {
        sys::pthread_attr_init(attributes.as_mut_ptr().cast());
        sys::pthread_attr_setdetachstate(attributes.as_mut_ptr().cast(), 1);
        sys::pthread_attr_setstacksize(attributes.as_mut_ptr().cast(), 256 * 1024);
        sys::pthread_sigmask(2, all.as_ptr(), before.as_mut_ptr());
        let made = sys::pthread_create(
            &raw mut thread,
            attributes.as_ptr().cast(),
            watch,
            core::ptr::from_ref(region).cast_mut().cast(),
        );
        sys::pthread_sigmask(2, before.as_ptr(), core::ptr::null_mut());
        made == 0
    }
}

/// Our own thread.
extern "C" fn watch(region: *mut c_void) -> *mut c_void {
    // SAFETY: the region that `begin` was given, mapped for good.
    let region: &'static Region = unsafe { &*region.cast::<Region>() };
    let mut events = [EpollEvent { events: 0, data: 0 }; EVENTS];
    let mut count = 0;
    loop {
        let noted = &events[..count];
        let plan = locked(region, |lock| {
            WORD.store(0, Relaxed);
            lock.note(noted);
            lock.harvest();
            lock.dispatch();
            lock.lists.watch = match () {
                () if lock.delay() > 0 && lock.now < lock.lists.not_before => {
                    Watch::Until(lock.lists.not_before)
                }
                () if region.running.load(Relaxed) >= lock.limit() => Watch::Slots,
                () => Watch::Arrivals,
            };
            (lock.lists.watch, lock.now)
        });
        count = 0;
        match plan {
            Some((Watch::Arrivals, _)) => count = take(&mut events, LOOK_MS),
            Some((Watch::Until(end), _)) => {
                sys::futex_wait(&WORD, 0, Some(end));
            }
            Some((Watch::Slots, now)) => wait_for_slot(region, now),
            None => {}
        }
    }
}

/// Waits until a slot is given up; where none is, takes those of workers that sleep.
fn wait_for_slot(region: &'static Region, now: u64) {
    if sys::futex_wait(&WORD, 0, Some(now + RECLAIM_NS)) == -sys::ETIMEDOUT {
        locked(region, |lock| lock.reclaim());
    }
}

/// A forked child serves itself: our thread is not in it.
extern "C" fn forked() {
    if let Some(region) = region() {
        region.forks.fetch_add(1, Relaxed);
    }
    REGION.store(core::ptr::null_mut(), Release);
}

/// A worker ends, also by being cancelled: what it held is free.
extern "C" fn worker_ends(value: *mut c_void) {
    let Some((region, place)) = region().zip((value as usize).checked_sub(1)) else {
        return;
    };
    let connection = &region.connections[place];
    if connection.tid.load(Relaxed) == sys::thread() {
        connection.tid.store(0, Relaxed);
        if connection.slot.load(Relaxed) == 1 {
            locked(region, |lock| {
                lock.release(connection);
                lock.dispatch();
            });
        }
    }
}

fn watch_fd(fd: c_int, data: u64) -> bool {
    // EPOLLIN, EPOLLRDHUP, EPOLLET.
    let event = EpollEvent {
        events: 0x8000_2001,
        data,
    };
    // SAFETY: the record outlives the call.
    let result = unsafe {
        call(
            number::EPOLL_CTL,
            [
                c_long::from(EPOLL.load(Relaxed)),
                c_long::from(sys::EPOLL_CTL_ADD),
                c_long::from(fd),
                &raw const event as c_long,
                0,
                0,
            ],
        )
    };
    result == 0
}

fn place_of(fd: c_int) -> Option<usize> {
    let place = PLACES.get(usize::try_from(fd).ok()?)?.load(Relaxed);
    (place as usize).checked_sub(1)
}

/// A descriptor's connection, where it is on call.
pub fn connection(fd: c_int) -> Option<(&'static Region, u16)> {
    // Most descriptors that the server reads and writes have none: the table is asked before anything else.
    let place = place_of(fd)?;
    Some((region()?, place as u16))
}

/// A client has come.
pub fn accepted(region: &'static Region, fd: c_int, (address, port): ([u64; 2], u32)) {
    forget(fd);
    let is_in_range = usize::try_from(fd).is_ok_and(|fd| fd < MAX_FD);
    let place = is_in_range
        .then(|| locked(region, |lock| claim(lock, fd, address, port)))
        .flatten()
        .flatten();
    let is_watched = place.is_some_and(|(place, generation)| {
        PLACES[fd as usize].store(u32::from(place) + 1, Relaxed);
        watch_fd(fd, u64::from(place) | u64::from(generation) << 32)
    });
    if !is_watched {
        forget(fd);
        region.unmanaged.fetch_add(1, Relaxed);
    }
}

fn claim(lock: &mut Locked<'_>, fd: c_int, address: [u64; 2], port: u32) -> Option<(u16, u32)> {
    let is_free = |place: &usize| {
        lock.region.connections[*place]
            .generation
            .load(Relaxed)
            .is_multiple_of(2)
    };
    let hint = lock.lists.hint;
    let place = (hint..MAX_CONNECTIONS).chain(0..hint).find(is_free)?;
    // Low places first, so that few are looked through.
    lock.lists.hint = if place < lock.lists.top { place + 1 } else { 0 };
    lock.lists.top = lock.lists.top.max(place + 1);
    let connection = &lock.region.connections[place];
    connection.fd.store(fd, Relaxed);
    connection.port.store(port, Relaxed);
    connection.address[0].store(address[0], Relaxed);
    connection.address[1].store(address[1], Relaxed);
    connection.quota.store(COMMON, Relaxed);
    connection.state.store(state::RUNNING, Relaxed);
    let words = [
        &connection.tid,
        &connection.go,
        &connection.slot,
        &connection.pending,
        &connection.in_query,
        &connection.sent,
    ];
    words.into_iter().for_each(|word| word.store(0, Relaxed));
    let longs = [
        &connection.queries,
        &connection.latency_ns,
        &connection.between_ns,
        &connection.arrived_ns,
        &connection.round,
        &connection.ready_ns,
        &connection.query_ns,
    ];
    longs.into_iter().for_each(|long| long.store(0, Relaxed));
    let generation = connection.generation.fetch_add(1, Release) + 1;
    Some((place as u16, generation))
}

/// A descriptor is closed, reused, or watched by the server itself.
pub fn forget(fd: c_int) {
    let Some(place) = place_of(fd) else {
        return;
    };
    let Some(region) = region() else {
        return;
    };
    // A child of vfork closes its copies in our memory.
    if sys::process() != PROCESS.load(Relaxed) {
        return;
    }
    PLACES[fd as usize].store(0, Relaxed);
    locked(region, |lock| {
        let connection = &region.connections[place];
        lock.release(connection);
        lock.dequeue(place as u16);
        connection.generation.fetch_add(1, Release);
        let is_asleep = connection.state.swap(state::RUNNING, Relaxed) != state::RUNNING;
        if is_asleep {
            lock.wake(place as u16);
        }
        lock.dispatch();
    });
}

/// The server watches a connection itself: nobody is parked for it.
pub fn watched_by_server(fd: c_int) {
    if let Some((region, _)) = connection(fd) {
        region.event_driven.fetch_add(1, Relaxed);
        // SAFETY: epoll forgets a descriptor; no record is read.
        unsafe {
            call(
                number::EPOLL_CTL,
                [
                    c_long::from(EPOLL.load(Relaxed)),
                    c_long::from(sys::EPOLL_CTL_DEL),
                    c_long::from(fd),
                    0,
                    0,
                    0,
                ],
            )
        };
        forget(fd);
    }
}

/// A part of an answer goes out.
pub fn sending(fd: c_int) {
    if let Some((region, place)) = connection(fd) {
        region.connections[usize::from(place)].sent.store(1, Relaxed);
    }
}

/// Whether a connection's query is answered: then a read without waiting is spared, and the server is to wait for the next query,
/// which is where its worker is parked. Whatever is there already, the wait says. (A server that waits for edges with epoll would
/// miss one: its connections are not on call, see [`watched_by_server`].)
pub fn is_answered(fd: c_int) -> bool {
    connection(fd).is_some_and(|(region, place)| {
        let connection = &region.connections[usize::from(place)];
        connection.sent.load(Relaxed) == 1
    })
}

/// What became of a wait for a client.
pub enum Waited {
    /// As poll(2) says it: its result, or the negative error number.
    As(c_long),
    /// It is to be waited for as without us.
    Ordinarily,
}

/// The worker of a connection waits for its client, at most for so long (nanoseconds): the end of a query, and the beginning of
/// the next.
pub fn wait(region: &'static Region, place: u16, poll: &mut PollFd, patience: Option<u64>) -> Waited {
    let connection = &region.connections[usize::from(place)];
    let generation = connection.generation.load(Acquire);
    let began = sys::now();
    attach(connection, place);
    let was_in_query = connection.in_query.load(Relaxed) == 1;
    if was_in_query && connection.sent.load(Relaxed) == 0 {
        // The rest of a query, or what the server asked for in its midst: as any other wait.
        return Waited::Ordinarily;
    }
    if was_in_query {
        end_query(region, connection, began);
    }
    if !is_closed(region, began) {
        if connection.slot.load(Relaxed) == 1 {
            locked(region, |lock| {
                lock.release(connection);
                lock.dispatch();
            });
        }
        return Waited::Ordinarily;
    }
    let mut has_lingered = false;
    if connection.slot.load(Relaxed) == 1 && connection.tokens.load(Relaxed) > 0 {
        let linger = region.linger_ns.load(Relaxed).min(patience.unwrap_or(u64::MAX));
        if linger > 0 {
            let result = sys::poll_for(poll, linger);
            if result != 0 {
                if result > 0 {
                    begin_query(connection, sys::now());
                }
                return Waited::As(result);
            }
            has_lingered = true;
        }
    }
    let until = patience.map(|patience| began.saturating_add(patience));
    loop {
        connection.go.store(0, Relaxed);
        let parked = locked(region, |lock| {
            lock.release(connection);
            if has_lingered {
                // What was read while it lingered is still in epoll, and would wake it for nothing.
                lock.harvest();
            }
            park(lock, connection, place, poll.fd);
            lock.dispatch();
        });
        if parked.is_none() {
            return Waited::Ordinarily;
        }
        has_lingered = false;
        let mut result = 0;
        while connection.go.load(Acquire) == 0 && result == 0 {
            result = sys::futex_wait(&connection.go, 0, until);
            if result == -sys::EAGAIN {
                result = 0;
            }
        }
        if connection.generation.load(Acquire) != generation {
            return Waited::Ordinarily;
        }
        if connection.go.load(Acquire) == 0 {
            // A timeout or a signal: unless it was let go at the last moment, it goes without a slot.
            locked(region, |lock| {
                if connection.go.load(Acquire) == 0 {
                    lock.dequeue(place);
                    connection.state.store(state::RUNNING, Relaxed);
                }
            });
        }
        let has_slot = connection.go.load(Acquire) == 1;
        let there = sys::poll_for(poll, 0);
        match (there, has_slot) {
            (0, true) => {
                region.spurious.fetch_add(1, Relaxed);
            }
            (0, false) if result == -sys::EINTR => return Waited::As(-sys::EINTR),
            (0, false) => return Waited::As(0),
            _ => {
                if !has_slot {
                    region.without_slot.fetch_add(1, Relaxed);
                }
                if there > 0 {
                    begin_query(connection, sys::now());
                }
                return Waited::As(there);
            }
        }
    }
}

/// Puts a worker to sleep, or in line where its next query is there already.
fn park(lock: &mut Locked<'_>, connection: &Connection, place: u16, fd: c_int) {
    connection.state.store(state::PARKED, Relaxed);
    if connection.pending.swap(0, Relaxed) == 1 {
        let mut poll = PollFd {
            fd,
            events: sys::POLLIN,
            revents: 0,
        };
        match sys::poll_for(&mut poll, 0) {
            0 => connection.ready_ns.store(0, Relaxed),
            _ => lock.enqueue(place),
        }
    }
}

/// A part of a query was read: its first where the worker did not wait for it, as with what came right after the connection.
pub fn received(fd: c_int) {
    if let Some((region, place)) = connection(fd) {
        let connection = &region.connections[usize::from(place)];
        let is_answered = connection.sent.load(Relaxed) == 1;
        if is_answered {
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
fn attach(connection: &Connection, place: u16) {
    let key = KEY.load(Relaxed);
    let value = (usize::from(place) + 1) as *const c_void;
    // SAFETY: the key was made before the region was in use.
    unsafe {
        if sys::pthread_getspecific(key).cast_const() != value {
            sys::pthread_setspecific(key, value);
            connection.tid.store(sys::thread(), Relaxed);
        }
    }
    if connection.tid.load(Relaxed) == 0 {
        connection.tid.store(sys::thread(), Relaxed);
    }
}

fn begin_query(connection: &Connection, now: u64) {
    let ready = connection.ready_ns.swap(0, Relaxed);
    let arrived = if ready == 0 { now } else { ready };
    connection.pending.store(0, Relaxed);
    connection.query_ns.store(arrived, Relaxed);
    let before = connection.arrived_ns.swap(arrived, Relaxed);
    if before != 0 {
        connection
            .between_ns
            .fetch_add(arrived.saturating_sub(before), Relaxed);
    }
    connection.sent.store(0, Relaxed);
    connection.in_query.store(1, Relaxed);
}

fn end_query(region: &Region, connection: &Connection, now: u64) {
    connection.in_query.store(0, Relaxed);
    connection.sent.store(0, Relaxed);
    let latency = now.saturating_sub(connection.query_ns.load(Relaxed));
    let at = connection.queries.fetch_add(1, Relaxed) as usize % KEPT;
    let microseconds = latency / 1000;
    connection.latency_ns.fetch_add(latency, Relaxed);
    connection.recent_us[at].store(u32::try_from(microseconds).unwrap_or(u32::MAX), Relaxed);
    region.queries.fetch_add(1, Relaxed);
    region.latencies[bucket(microseconds)].fetch_add(1, Relaxed);
    connection.tokens.fetch_sub(1, Relaxed);
}

/// The connection whose slot the calling thread holds inside a query.
pub fn held() -> Option<(&'static Region, &'static Connection)> {
    let region = region()?;
    // SAFETY: the key was made before the region was in use.
    let value = unsafe { sys::pthread_getspecific(KEY.load(Relaxed)) } as usize;
    let connection = &region.connections[value.checked_sub(1)?];
    let holds = connection.slot.load(Relaxed) == 1 && connection.in_query.load(Relaxed) == 1;
    holds.then_some((region, connection))
}

/// Runs something that may block: the calling worker's slot is somebody else's meanwhile.
pub fn blocking<R>(body: impl FnOnce() -> R) -> R {
    let Some((region, connection)) = held() else {
        return body();
    };
    let generation = connection.generation.load(Acquire);
    let gave = locked(region, |lock| {
        lock.release(connection);
        region.given_back.fetch_add(1, Relaxed);
        lock.dispatch();
    });
    let result = body();
    if gave.is_some() {
        // It may hold what others wait for, so it waits for no slot: for a while one more runs than may.
        locked(region, |_| {
            // Somebody else may have closed the connection meanwhile: its place is another's then.
            if connection.generation.load(Acquire) == generation && connection.slot.swap(1, AcqRel) == 0 {
                region.running.fetch_add(1, Relaxed);
            }
        });
    }
    result
}
