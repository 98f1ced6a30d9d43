//! The other side of the region: what is commanded, and what was counted.

mod attach;
mod commands;
mod counted;
mod shrunk;

pub use attach::AttachError;
pub use commands::{AreaCores, DivisionError, Levers, Turns};
pub use counted::{ConnectionTotals, Totals};

use crate::layout::{AREAS, Area, BUCKETS, COMMON, CPU_WORDS, Connection, MAGIC, Region, STARVED_NS, mode};
use crate::preload::{lock, processes};
use counted::{described, is_taken, queries};
use headroom_units::Seconds;
use rustix::fs::{FallocateFlags, Mode, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
#[error("{path}: the region that the server and Headroom share cannot be made: {source}: give --run-dir a folder that can be written", path = path.display())]
pub struct RegionError {
    /// The file.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// A region, and with it the workers of one server.
#[derive(Debug)]
pub struct Steering {
    path: PathBuf,
    region: NonNull<Region>,
    /// Whether its file is removed with this value.
    is_own: bool,
    /// Whether the server may be trusted with the lock in it: see [`Self::distrusting`].
    trusts: bool,
    /// The lock of its one commander, where this is it.
    _commander: Option<File>,
}

/// Gives a file all of its pages: where its file system fills up later, a server that touches one that is not there dies (SIGBUS).
fn allocate(mut file: &File, size: usize) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, size as u64) {
        // Some file systems cannot but by a write.
        Err(rustix::io::Errno::OPNOTSUPP) => file.write_all(&vec![0; size]),
        allocated => Ok(allocated?),
    }
}

/// A region's file in memory.
fn mapped(file: &File) -> io::Result<NonNull<Region>> {
    // SAFETY: a new mapping of a file of this size, which only atomics are read from and written to.
    let at = unsafe {
        mmap(
            std::ptr::null_mut(),
            size_of::<Region>(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            0,
        )?
    };
    let region = NonNull::new(at.cast::<Region>());
    let region = region.ok_or_else(|| io::Error::other("it was mapped at no address"))?;
    shrunk::guard(region.as_ptr())?;
    Ok(region)
}

// SAFETY: the region is atomics alone.
unsafe impl Send for Steering {}
// SAFETY: as above.
unsafe impl Sync for Steering {}

impl Steering {
    /// Makes the region's file, which nobody may have made before, and commands it; it is removed with this value.
    ///
    /// # Errors
    /// It cannot be made, or is there.
    pub fn create(path: &Path) -> Result<Self, RegionError> {
        Self::make(path, true)
    }

    fn make(path: &Path, commands: bool) -> Result<Self, RegionError> {
        let make = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true);
            // The server may run as another user by the time it opens nothing any more: it maps the region as it is loaded.
            let file = options
                .mode(Mode::from_raw_mode(0o600).as_raw_mode())
                .open(path)?;
            allocate(&file, size_of::<Region>())?;
            let commander = commands.then(|| attach::lock_own(path)).transpose()?;
            Ok((mapped(&file)?, commander))
        };
        let (region, commander) = make().map_err(|source| RegionError {
            path: path.to_owned(),
            source,
        })?;
        let steering = Self {
            path: path.to_owned(),
            region,
            is_own: true,
            trusts: true,
            _commander: commander,
        };
        steering.command(Levers::default(), None);
        if !lock::make_shared(steering.region()) {
            let source = io::Error::other("libc makes no mutex that outlives its holder");
            return Err(RegionError {
                path: path.to_owned(),
                source,
            });
        }
        steering.region().magic.store(MAGIC, Release);
        Ok(steering)
    }

    /// The same for a program with more rights than the server may have, as root's is: it never takes the lock in the region. That is a mutex
    /// of libc's, whose links whoever may write the region can make point anywhere. Places of workers that ended are then free as soon as
    /// another worker waits, and not within a second.
    #[must_use]
    pub fn distrusting(mut self, is_so: bool) -> Self {
        self.trusts &= !is_so;
        self
    }

    /// Whether the region is the server's still: whoever may write to its file can cut it short, and then nothing reaches the server any more
    /// and nothing is known of it.
    pub fn is_whole(&self) -> bool {
        self.region().magic.load(Acquire) == MAGIC
    }

    /// The region's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn region(&self) -> &Region {
        // SAFETY: mapped until `drop`, and whatever is written there, each field is an atomic for which every value is one.
        unsafe { self.region.as_ref() }
    }

    /// What holds from now on, until the lease ends: after that everybody runs. Without a lease it holds for ever.
    pub fn command(&self, levers: Levers, lease: Option<Duration>) {
        let region = self.region();
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        region.concurrency.store(levers.concurrency.max(1), Relaxed);
        region
            .batch
            .store(levers.batch.clamp(1, i32::MAX as u32), Relaxed);
        region.linger_ns.store(nanoseconds(levers.linger), Relaxed);
        region.delay_ns.store(nanoseconds(levers.delay), Relaxed);
        let until = lease.map_or(0, |lease| now_ns().saturating_add(nanoseconds(lease)).max(1));
        region.lease_until_ns.store(until, Relaxed);
        region.enabled.store(u32::from(levers.enabled), Release);
        self.tend();
    }

    /// What is to be done every second of forked workers, whoever commands: places of those that ended are free again. A part of each
    /// command.
    pub fn tend(&self) {
        if !self.trusts {
            return;
        }
        // SAFETY: mapped until `drop`; nothing is kept of it.
        processes::tend(unsafe { &*self.region.as_ptr() });
    }

    /// What was commanded last.
    pub fn commanded(&self) -> Levers {
        let region = self.region();
        Levers {
            enabled: region.enabled.load(Acquire) == 1,
            concurrency: region.concurrency.load(Relaxed),
            batch: region.batch.load(Relaxed),
            linger: Duration::from_nanos(region.linger_ns.load(Relaxed)),
            delay: Duration::from_nanos(region.delay_ns.load(Relaxed)),
        }
    }

    /// How a connection has its turns. Of a connection that has ended meanwhile it changes nothing.
    pub fn give(&self, place: (usize, u32), turns: Turns) {
        if let Some(connection) = self.region().connections.get(place.0)
            && connection.generation.load(Acquire) == place.1
        {
            let quota = turns
                .batch
                .map_or(COMMON, |batch| i32::try_from(batch).unwrap_or(i32::MAX));
            let before = connection.quota.swap(quota, Relaxed);
            let yielded = connection.yields.swap(u32::from(turns.yields), Relaxed);
            if before != quota || yielded != u32::from(turns.yields) {
                self.region().regiven.store(1, Release);
            }
            connection.rests.store(u32::from(turns.rests), Relaxed);
            let pause = u64::try_from(turns.pause.as_nanos()).unwrap_or(u64::MAX);
            connection.pause_ns.store(pause, Relaxed);
        }
    }

    /// All connections have their turns as they come: what was given to one lasts for as long as it, whoever gave it.
    fn take_turns_back(&self) {
        for (place, connection) in self.region().connections.iter().enumerate() {
            let generation = connection.generation.load(Acquire);
            if generation % 2 == 1 {
                self.give((place, generation), Turns::default());
            }
        }
    }

    /// Divides the workers among areas of cores, for as long as the lease of [`Steering::command`]; none has everybody run everywhere.
    /// Of each connection that is in another area than the last, its place and the area.
    ///
    /// # Errors
    /// [`DivisionError`]; what was in force stays then.
    pub fn divide(
        &self,
        areas: &[AreaCores],
        members: &[((usize, u32), usize)],
    ) -> Result<(), DivisionError> {
        if areas.len() > AREAS {
            return Err(DivisionError::Areas(areas.len()));
        }
        if let Some(at) = areas.iter().position(|area| area.cpus.is_empty()) {
            return Err(DivisionError::None(at));
        }
        let words: Result<Vec<_>, u32> = areas.iter().map(AreaCores::words).collect();
        let words = words.map_err(|cpu| DivisionError::Processor { cpu })?;
        let region = self.region();
        let mut is_other = false;
        let mut set = |at: &AtomicU32, to: u32| is_other |= at.swap(to, Relaxed) != to;
        let mut named = vec![0; region.connections.len()];
        for ((place, generation), area) in members {
            let connection = region.connections.get(*place);
            if connection.is_some_and(|one| one.generation.load(Acquire) == *generation) {
                named[*place] = *area as u32 + 1;
            }
        }
        for (connection, area) in region.connections.iter().zip(named) {
            set(&connection.area, area);
        }
        for (at, area) in areas.iter().enumerate() {
            set(
                &region.areas[at].workers,
                area.workers.map_or(0, |workers| workers.max(1)),
            );
        }
        for (area, words) in region.areas.iter().zip(words) {
            for (at, word) in area.cpus.iter().zip(words) {
                is_other |= at.swap(word, Relaxed) != word;
            }
        }
        is_other |= region.area_count.swap(areas.len() as u32, Release) != areas.len() as u32;
        if is_other {
            // 0 is no division.
            let stamp = region.area_stamp.load(Relaxed).wrapping_add(1).max(1);
            region.area_stamp.store(stamp, Release);
        }
        Ok(())
    }

    /// The areas that were commanded last.
    pub fn divided(&self) -> Vec<AreaCores> {
        let region = self.region();
        let count = region.area_count.load(Acquire) as usize;
        let of = |area: &Area| AreaCores {
            cpus: (0..CPU_WORDS as u32 * 64)
                .filter(|cpu| area.cpus[*cpu as usize / 64].load(Relaxed) >> (cpu % 64) & 1 == 1)
                .collect(),
            workers: Some(area.workers.load(Relaxed)).filter(|workers| *workers > 0),
        };
        region.areas.iter().take(count).map(of).collect()
    }

    /// The connections' places: none where the process whose threads served them has ended, since what it left in them is nobody's.
    fn places(&self) -> &[Connection] {
        let region = self.region();
        let by_threads = region.mode.load(Relaxed) == mode::THREADS;
        match by_threads && region.owner.load(Acquire) != 0 && !lock::is_held(&region.serving) {
            true => &[],
            false => &region.connections,
        }
    }

    /// What was counted.
    pub fn totals(&self) -> Totals {
        let region = self.region();
        let places = self.places();
        // Where there are no places, nobody is at any.
        let now = |count: &AtomicU32| match places.is_empty() {
            true => 0,
            false => count.load(Relaxed),
        };
        Totals {
            loaded: region.loaded.load(Relaxed),
            owner: region.owner.load(Relaxed),
            owner_ended: places.is_empty(),
            by_processes: region.mode.load(Relaxed) == mode::PROCESSES,
            processes: region.processes.load(Relaxed),
            running: now(&region.running),
            waiting: now(&region.waiting),
            blocked: now(&region.blocked),
            connections: places.iter().filter(|one| is_taken(one)).count() as u32,
            rounds: region.rounds.load(Relaxed),
            failures: region.failures.load(Relaxed),
            queries: region.queries.load(Relaxed),
            given_back: region.given_back.load(Relaxed),
            reclaimed: region.reclaimed.load(Relaxed),
            spurious: region.spurious.load(Relaxed),
            without_slot: region.without_slot.load(Relaxed),
            unmanaged: region.unmanaged.load(Relaxed),
            lacking: region.lacking.load(Relaxed),
            event_driven: region.event_driven.load(Relaxed),
            elsewhere: region.elsewhere.load(Relaxed),
            forks: region.forks.load(Relaxed),
            buried: region.buried.load(Relaxed),
            recovered: region.recovered.load(Relaxed),
            latencies: (0..BUCKETS)
                .map(|at| region.latencies[at].load(Relaxed))
                .collect(),
        }
    }

    /// How many queries were noticed and are not answered yet, and the age of the oldest.
    pub fn in_flight(&self) -> (u64, Option<Seconds>) {
        let (now, mut count, mut oldest) = (now_ns(), 0, None::<u64>);
        for connection in self.places().iter().filter(|one| is_taken(one)) {
            let since = counted::asked_at(connection);
            if since != 0 {
                count += 1;
                oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
            }
        }
        let age = oldest.map(|since| Seconds::new(now.saturating_sub(since) as f64 / 1e9));
        (count, age)
    }

    /// For how long the connection waits for a slot that waits longest; `None` where none does.
    pub fn oldest_waiting(&self) -> Option<Seconds> {
        self.waiting_for().map(|(_, waits)| waits).reduce(Seconds::max)
    }

    /// The same of those that wait in turn: a policy has others wait, with no turn or after all others, and it is no sign that anything is
    /// stuck as long as that is no longer than it may be.
    pub fn oldest_in_turn(&self) -> Option<Seconds> {
        // Its turn comes with the next round after that.
        let bound = Seconds::new(STARVED_NS as f64 / 1e9 + 5.0);
        let in_turn = |one: &Connection| one.yields.load(Relaxed) == 0 && one.quota.load(Relaxed) != 0;
        let all = self
            .waiting_for()
            .filter(|(one, waits)| in_turn(one) || *waits > bound);
        all.map(|(_, waits)| waits).reduce(Seconds::max)
    }

    fn waiting_for(&self) -> impl Iterator<Item = (&Connection, Seconds)> {
        let now = now_ns();
        let all = self.places().iter().filter(|one| is_taken(one));
        all.filter(|one| one.in_query.load(Relaxed) == 0)
            .filter_map(move |one| {
                let since = one.ready_ns.load(Relaxed);
                (since != 0).then(|| (one, Seconds::new(now.saturating_sub(since) as f64 / 1e9)))
            })
    }

    /// Connections that have a query and no slot now.
    pub fn waiting(&self) -> u32 {
        match self.places() {
            [] => 0,
            _ => self.region().waiting.load(Relaxed),
        }
    }

    /// How many queries of each connection that is there were answered, with its name: what [`connections`](Self::connections) has of
    /// them, without their latencies.
    pub fn queries(&self) -> impl Iterator<Item = ((usize, u32), u64)> {
        let all = self.places().iter().enumerate();
        all.filter_map(|(place, connection)| Some((place, queries(connection)?)))
            .map(|(place, (generation, queries))| ((place, generation), queries))
    }

    /// The connections that are there.
    pub fn connections(&self) -> Vec<ConnectionTotals> {
        let all = self.places().iter().enumerate();
        all.filter_map(|(place, connection)| described(place, connection))
            .collect()
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        // No area is none that cannot be.
        let _ = self.divide(&[], &[]);
        self.command(Levers::default(), None);
        self.take_turns_back();
        if self.is_own {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(attach::lock_beside(&self.path));
        }
        shrunk::forget(self.region.as_ptr());
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.region.as_ptr().cast::<c_void>(), size_of::<Region>()) };
    }
}

fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_there_as_long_as_it_is_steered_and_nobody_takes_anothers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oncall");
        let steering = Steering::create(&path).unwrap();
        let error = Steering::create(&path).unwrap_err().to_string();
        assert!(error.contains("oncall") && error.contains("exists"), "{error}");
        assert_eq!(steering.totals().connections, 0);
        // No connection has this place: nothing is changed.
        steering.give(
            (3, 1),
            Turns {
                batch: Some(4),
                ..Turns::default()
            },
        );
        drop(steering);
        assert!(!path.exists());
    }

    #[test]
    fn a_region_that_is_cut_short_ends_nobody_who_commands_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oncall");
        let steering = Steering::create(&path).unwrap();
        let other = Steering::create(&folder.path().join("other")).unwrap();
        assert!(steering.is_whole());
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        // Each page that is touched is gone.
        assert_eq!(
            steering.totals(),
            Totals {
                latencies: vec![0; BUCKETS],
                ..Totals::default()
            }
        );
        assert!(steering.connections().is_empty() && !steering.is_whole());
        steering.command(
            Levers {
                enabled: true,
                concurrency: 3,
                ..Levers::default()
            },
            None,
        );
        steering.give((3, 1), Turns::default());
        assert!(other.is_whole());
        drop(steering);
        assert!(!path.exists());
    }

    // SAFETY: libc's, with the types of its manual.
    unsafe extern "C" {
        fn fork() -> i32;
        fn raise(signal: i32) -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    }

    #[test]
    fn a_process_that_is_killed_with_the_lock_in_hand_leaves_it_to_the_next() {
        use crate::preload::{rounds::locked, table};
        let folder = tempfile::tempdir().unwrap();
        let steering = Steering::create(&folder.path().join("oncall")).unwrap();
        // SAFETY: mapped until the end of the test, in which all of what follows is.
        let region: &'static Region = unsafe { &*steering.region.as_ptr() };
        region.mode.store(mode::PROCESSES, Relaxed);
        for round in 1..=3 {
            // SAFETY: the child makes system calls alone, and does not come back.
            let child = unsafe { fork() };
            if child == 0 {
                locked(region, |lock| {
                    // A connection with a slot, in line, and half out of it.
                    let claimed = table::claim(lock, 5, ([0; 2], 0));
                    let place = claimed.map_or(0, |(place, _)| place);
                    region.connections[usize::from(place)].slot.store(1, Relaxed);
                    lock.enqueue(place);
                    region.lists.first[0].store(0, Relaxed);
                    region.running.fetch_add(1, Relaxed);
                    // SAFETY: SIGKILL.
                    unsafe { raise(9) };
                });
            }
            // SAFETY: our child.
            assert_eq!(unsafe { waitpid(child, std::ptr::null_mut(), 0) }, child);
            assert_eq!(steering.totals().connections, 1);
            match round {
                // Whoever comes next, or whoever steers, whichever is first.
                1 => assert!(locked(region, |lock| lock.lists.is_empty(0)).unwrap()),
                _ => steering.command(Levers::default(), None),
            }
            let totals = steering.totals();
            assert_eq!((totals.recovered, totals.buried), (round, round));
            assert_eq!((totals.connections, totals.running, totals.waiting), (0, 0, 0));
        }
    }
}
