//! Areas of cores: on which processors a connection's worker runs, and how many of an area's workers at once (REEF, Section 4).
//!
//! Which processors a thread may use is set by the thread itself, in the server, from what the region says, at its next wait for its client;
//! and what it had before is put back in the same way when the region's lease has ended. So the program that steers need not be alive for it,
//! nor be allowed to (a server that runs as another user): one that is killed with SIGKILL renews no lease, the workers take their processors
//! back as they answer, and in a server of threads our own thread does it within about a second for those that answer nothing. A process
//! that serves one connection takes them back before it answers its next query. A worker has the area's processors as far as they are among
//! those that it had before, and where none is it keeps its own: so it never leaves what the server was allowed.
//!
//! A thread that a worker makes, and a program that it starts by vfork(2), begin with the worker's processors and keep them: servers make
//! workers from a thread that is no client's. A forked child begins with those that the worker had before.

use super::layout::{AREAS, CPU_WORDS, Connection, MAX_CONNECTIONS, Region};
use super::lock;
use super::rounds::{Locked, NONE, RECLAIM_NS, is_closed, locked};
use super::sys::{self, PollFd};
use super::table;
use super::transactions;
use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Where one area has free slots and another has none, arrivals are looked for so often: watched, those of the full one would wake our
/// thread for nothing.
const NAP_NS: u64 = 500_000;
/// Pauses that were spared a connection in transactions are made up for with one of at most so long.
const MOST_OWED_NS: u64 = 1_000_000_000;
/// A shorter pause is not slept: being woken takes as long, and whoever has to stand in line for its next turn waits longer.
const LEAST_PAUSE_NS: u64 = 1_000_000;

/// Whether its reason holds is looked at so often in a pause.
const LOOK_NS: u64 = 50_000_000;

/// Whether workers of this process may have another's processors.
static PINNED: AtomicU32 = AtomicU32::new(0);
/// When slots were looked for that sleeping workers hold.
static RECLAIMED: AtomicU64 = AtomicU64::new(0);

/// How many areas are in force, and the division's stamp.
fn division(region: &Region, now: u64) -> Option<(u32, u32)> {
    let count = region.area_count.load(Acquire);
    if count == 0 {
        return None;
    }
    let until = region.lease_until_ns.load(Relaxed);
    let holds = until == 0 || now < until;
    holds.then(|| (count.min(AREAS as u32), region.area_stamp.load(Acquire)))
}

/// How many areas there are; without a division all is one.
pub fn count(region: &Region, now: u64) -> usize {
    division(region, now).map_or(1, |(count, _)| count as usize)
}

/// A connection's area.
pub fn of(region: &Region, now: u64, connection: &Connection) -> usize {
    division(region, now).map_or(0, |(count, _)| place_in(count, connection) as usize)
}

/// The area of one that nobody has placed, or in one that is no more, is the last.
fn place_in(count: u32, connection: &Connection) -> u32 {
    let named = connection.area.load(Relaxed).wrapping_sub(1);
    named.min(count - 1)
}

/// C of an area that has one of its own.
pub fn workers(region: &Region, now: u64, area: usize) -> Option<u32> {
    division(region, now)?;
    Some(region.areas.get(area)?.workers.load(Relaxed)).filter(|workers| *workers > 0)
}

/// The division and the area plus 1 whose processors a connection's worker is to have; zeros for its own.
fn wanted(region: &Region, now: u64, connection: &Connection) -> (u32, u32) {
    division(region, now).map_or((0, 0), |(count, stamp)| (stamp, place_in(count, connection) + 1))
}

/// Has the calling thread, which serves this connection, run on its area's processors, or on its own again.
pub fn keep((region, place): (&'static Region, u16), now: u64) {
    let connection = &region.connections[usize::from(place)];
    let (stamp, area) = wanted(region, now, connection);
    let is_kept = connection.pinned.load(Relaxed) == stamp
        && (stamp == 0 || connection.pinned_to.load(Relaxed) == area);
    if !is_kept {
        locked(region, |lock| lock.pin(connection));
    }
}

/// The calling thread serves this connection from now on: who served it before has its own processors again, and so has the thread that
/// may have served another, at this place plus 1.
pub fn hand_over(connection: &Connection, other: usize) {
    let Some(region) = table::region() else {
        return;
    };
    let other = other.checked_sub(1).map(|place| &region.connections[place]);
    let other = other.filter(|other| other.tid.load(Relaxed) == sys::thread());
    for connection in [Some(connection), other].into_iter().flatten() {
        if connection.pinned.load(Relaxed) != 0 {
            locked(region, |lock| lock.unpin(connection));
        }
    }
}

/// In a forked child: it is nobody's worker.
pub fn forked() {
    let pinned = table::own_connection().filter(|connection| connection.pinned.load(Relaxed) != 0);
    if let Some(connection) = pinned {
        set_processors(0, &former(connection));
    }
    PINNED.store(0, Relaxed);
}

/// The worker of a connection whose tokens are used up asks for no other turn for a while after its last answer (AppleS' sleep), which its
/// policy says. What its client sends meanwhile is noticed, and counts from then. A signal ends it, a client that goes away, and whatever
/// takes its reason away: another grant, the end of the lease, nobody who waits. Whether it was a signal.
pub fn pause(region: &'static Region, connection: &Connection, fd: c_int, until: Option<u64>) -> bool {
    let generation = connection.generation.load(Acquire);
    let mut has_slot = true;
    let mut now = sys::now();
    if !pauses(region, connection, now) {
        return false;
    }
    let spared = connection.owed.load(Relaxed);
    if transactions::has_begun(connection, now) {
        connection.owed.store(spared.saturating_add(1), Relaxed);
        return false;
    }
    // Who is in a transaction may have locks: what it owes is for after it.
    let owed = match connection.in_transaction.load(Relaxed) {
        0 => spared,
        _ => 0,
    };
    let is_shared = lock::is_shared(region);
    loop {
        let end = pause_ends(region, connection, owed, now)
            .map_or(0, |end| until.map_or(end, |until| until.min(end)));
        if end <= now || connection.generation.load(Acquire) != generation {
            return false;
        }
        let had_slot = core::mem::take(&mut has_slot);
        // It may hold what somebody waits for since, or begins to.
        let began = match had_slot || transactions::may_hold(connection) {
            true => locked(region, |lock| {
                if had_slot {
                    lock.release(connection);
                    lock.dispatch();
                }
                lock.begin_pause(connection)
            }),
            false => {
                connection.pausing.store(1, Relaxed);
                Some(true)
            }
        };
        if began == Some(false) {
            return false;
        }
        if owed > 0 {
            connection.owed.store(0, Relaxed);
        }
        let look = end.min(now + LOOK_NS);
        let result = sys::cancellable(|| sys::futex_wait(&connection.pausing, 1, Some(look), is_shared));
        connection.pausing.store(0, Relaxed);
        let mut poll = PollFd {
            fd,
            events: sys::POLLRDHUP,
            revents: 0,
        };
        if result == -sys::EINTR {
            return true;
        }
        if sys::poll_for(&mut poll, 0) != 0 {
            return false;
        }
        now = sys::now();
    }
}

/// When a connection's pause ends that makes up for others; `None` of one that has no reason for any.
fn pause_ends(region: &Region, connection: &Connection, owed: u32, now: u64) -> Option<u64> {
    // One that goes first pauses for others; one that yields, for the server.
    let has_reason = connection.yields.load(Relaxed) == 1 || region.waiting.load(Relaxed) > 0;
    let pauses =
        pauses(region, connection, now) && has_reason && !transactions::may_block(region, connection, now);
    let pause = connection.pause_ns.load(Relaxed);
    let all = pause
        .saturating_mul(u64::from(owed) + 1)
        .min(pause.max(MOST_OWED_NS));
    pauses.then(|| connection.since_ns.load(Relaxed).saturating_add(all))
}

/// Whether a connection's policy has it pause now.
fn pauses(region: &Region, connection: &Connection, now: u64) -> bool {
    connection.pause_ns.load(Relaxed) >= LEAST_PAUSE_NS
        && connection.tokens.load(Relaxed) <= 0
        && is_closed(region, now)
}

/// What our own thread waits for.
pub enum NextWait {
    /// A slot that is given up.
    Slots,
    /// Arrivals.
    Arrivals,
    /// This time.
    Until(u64),
}

impl Locked {
    /// Has the calling thread run where its connection's area is.
    fn pin(&mut self, connection: &Connection) {
        let (stamp, area) = wanted(self.region, self.now, connection);
        if stamp == 0 {
            self.unpin(connection);
            return;
        }
        // The place may be another's since its connection was closed.
        if connection.tid.load(Relaxed) != sys::thread() {
            return;
        }
        if connection.pinned.load(Relaxed) == 0 {
            let Some(own) = processors() else { return };
            for (word, own) in connection.former.iter().zip(own) {
                word.store(own, Relaxed);
            }
        }
        let mut own = former(connection);
        let area_cpus = &self.region.areas[(area - 1) as usize].cpus;
        let mut both = [0; CPU_WORDS];
        for ((both, own), area) in both.iter_mut().zip(&own).zip(area_cpus) {
            *both = own & area.load(Relaxed);
        }
        if both.iter().any(|word| *word != 0) {
            own = both;
        }
        connection.pinned.store(stamp, Relaxed);
        connection.pinned_to.store(area, Relaxed);
        PINNED.store(1, Relaxed);
        set_processors(0, &own);
    }

    /// A connection's worker has its own processors again.
    pub fn unpin(&mut self, connection: &Connection) {
        let tid = connection.tid.load(Relaxed);
        // A thread that ends waits for this lock before it does, so that its number is nobody else's here.
        if connection.pinned.swap(0, Relaxed) != 0 && tid != 0 {
            set_processors(tid, &former(connection));
        }
    }

    /// Gives the workers that answer nothing their own processors back, where no division is in force any more.
    pub fn restore_processors(&mut self) {
        if division(self.region, self.now).is_some() || PINNED.swap(0, Relaxed) == 0 {
            return;
        }
        let region = self.region;
        for connection in &region.connections[..self.lists.top.load(Relaxed) as usize] {
            if connection.generation.load(Relaxed) % 2 == 1 {
                self.unpin(connection);
            }
        }
    }

    /// Where areas are full and others are not, nobody waits for a slot for long enough to take those of sleeping workers.
    pub fn reclaim_sometimes(&mut self) {
        let is_due = self.now.saturating_sub(RECLAIMED.load(Relaxed)) > RECLAIM_NS;
        if is_due && count(self.region, self.now) > 1 {
            RECLAIMED.store(self.now, Relaxed);
            self.reclaim();
        }
    }

    /// What our own thread waits for next.
    pub fn what_next(&self) -> NextWait {
        let (mut begins, mut has_room, mut is_full) = (u64::MAX, false, false);
        for gate in 0..count(self.region, self.now) {
            let not_before = self.lists.not_before[gate].load(Relaxed);
            match () {
                () if self.delay() > 0 && self.now < not_before => begins = begins.min(not_before),
                // Who comes now waits for the next round.
                () if self.has_room(gate) && !self.is_draining(gate) => has_room = true,
                () => is_full = true,
            }
        }
        match (begins, has_room, is_full) {
            (u64::MAX, true, false) => NextWait::Arrivals,
            (u64::MAX, false, _) => NextWait::Slots,
            (begins, false, false) => NextWait::Until(begins),
            (begins, ..) => NextWait::Until(begins.min(self.now + NAP_NS)),
        }
    }

    /// When the first area's round begins that is yet to; 0 where none is.
    pub fn not_before(&self) -> u64 {
        let areas = 0..count(self.region, self.now);
        let times = areas.map(|gate| self.lists.not_before[gate].load(Relaxed));
        times.filter(|time| *time > self.now).min().unwrap_or(0)
    }

    /// Sorts those that wait, and the slots that are taken, anew where they are of another division than the one in force.
    pub fn sort_by_area(&mut self) {
        let stamp = division(self.region, self.now).map_or(0, |(_, stamp)| stamp);
        if self.lists.divided.load(Relaxed) == stamp {
            return;
        }
        self.count_slots();
        let top = self.lists.top.load(Relaxed) as usize;
        let mut line = [NONE; MAX_CONNECTIONS];
        let mut waiting = 0;
        for place in 0..top {
            if self.lists.member[place].load(Relaxed) != 0 {
                line[waiting] = place as u16;
                waiting += 1;
            }
        }
        let region = self.region;
        let connection = |place: &u16| &region.connections[usize::from(*place)];
        let line = &mut line[..waiting];
        line.sort_unstable_by_key(|place| connection(place).ready_ns.load(Relaxed));
        for place in line {
            self.lists.push(self.standing(connection(place)), *place);
        }
    }

    /// Counts the slots that are taken in each area of the division in force.
    pub fn count_slots(&mut self) {
        let stamp = division(self.region, self.now).map_or(0, |(_, stamp)| stamp);
        self.lists.divided.store(stamp, Relaxed);
        self.lists
            .running
            .iter()
            .for_each(|running| running.store(0, Relaxed));
        let top = self.lists.top.load(Relaxed) as usize;
        for connection in &self.region.connections[..top] {
            if connection.slot.load(Relaxed) == 1 {
                let gate = of(self.region, self.now, connection);
                connection.gate.store(gate as u32, Relaxed);
                self.lists.running[gate].fetch_add(1, Relaxed);
            }
        }
    }
}

/// The processors that a connection's worker had before.
fn former(connection: &Connection) -> [u64; CPU_WORDS] {
    connection.former.each_ref().map(|word| word.load(Relaxed))
}

/// The calling thread's processors; `None` on a machine with more than there is room for.
fn processors() -> Option<[u64; CPU_WORDS]> {
    let mut own = [0u64; CPU_WORDS];
    // SAFETY: room for as many bytes as are said; 0 is the calling thread. It answers how many it wrote.
    let written = unsafe {
        sys::call(
            sys::number::SCHED_GETAFFINITY,
            [
                0,
                size_of_val(&own) as c_long,
                own.as_mut_ptr() as c_long,
                0,
                0,
                0,
            ],
        )
    };
    (written > 0).then_some(own)
}

/// Has a thread of this process run on these processors; 0 is the calling one. Those that may not be had are not.
fn set_processors(tid: u32, cpus: &[u64; CPU_WORDS]) {
    // SAFETY: as many bytes as are said, alive during the call.
    unsafe {
        sys::call(
            sys::number::SCHED_SETAFFINITY,
            [
                c_long::from(tid),
                size_of_val(cpus) as c_long,
                cpus.as_ptr() as c_long,
                0,
                0,
                0,
            ],
        )
    };
}
