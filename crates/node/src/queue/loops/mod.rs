//! Whether the event loops that serve a port have time left: the difficulty of a server that accepts at once and lets what it has
//! accepted wait inside, where no accept queue shows it.
//!
//! Of a loop that the CPU is the limit of, the time for which its thread runs and the time for which it waits for a CPU are together all
//! its time (`schedstat`, Documentation/scheduler/sched-stats.rst). A loop that blocks, or whose limit is behind it, has the rest left and
//! is never found full; nor is a server whose threads hand over to one another, unless they use all the CPUs that they may use.
//!
//! Those who listen on the port may listen on others, too, and what they do for these is nothing that they could do for it: how many they work
//! on there is told with the port's connections ([`super::Connections`]).
//!
//! Wherever it is not certain which threads are the loops, those that are idle count too: nothing full is overlooked by that but what
//! cannot be told from a pool with a worker to spare.

mod proc;

use super::Listener;
use super::accepted::Accepted;
use super::diag::Diag;
use crate::Roots;
use proc::{Usage, Waits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How often the threads are read.
const EVERY: Duration = Duration::from_millis(500);
/// The time that a share is of, at least.
const WINDOW: Duration = Duration::from_secs(1);
/// How often it is looked for who listens, where the sockets are the same: a server may start workers and end them.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// The most processes that listen, and threads of them all: one loop for each CPU of a large machine. Of more nothing is told.
const MAX_PROCESSES: usize = 256;
const MAX_THREADS: usize = 256;
/// The most other ports that are looked at: of more, the lowest are.
const MAX_OTHERS: usize = 8;
/// And no sooner than after so many times what a look takes.
const TIMES: u32 = 20;
/// The share of a CPU below which a thread is no loop that serves: an acceptor, a timer.
const IDLE: f64 = 0.02;
/// The share from which one is a loop that was never seen to wait for events: one that is full waits for none.
const BUSY: f64 = 0.9;
/// The share of the CPUs that a server may use from which what it may use is looked up again: it may have changed.
const ALL: f64 = 0.9;

/// Watches the threads of those who listen on a port.
#[derive(Debug)]
pub(super) struct Loops {
    roots: Roots,
    /// The sockets of the last search, and when that was.
    searched: Option<(BTreeSet<u64>, Instant)>,
    /// Those who listen; `None` where they are not known, or are too many.
    processes: Option<Vec<Process>>,
    /// CPUs that they may use.
    allowed: Option<f64>,
    read_at: Option<Instant>,
    busy: Option<u32>,
    /// Other ports that they listen on; how many they work on there, when that was looked at, and how long that took.
    others: BTreeMap<u16, Accepted>,
    elsewhere: u64,
    looked: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    parent: Option<u32>,
    threads: BTreeMap<u32, Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    /// The readings of the window.
    readings: VecDeque<(Instant, Usage)>,
    /// Whether it was ever seen to wait for events,
    waits_for_events: bool,
    /// and ever used more than one that is idle.
    has_worked: bool,
}

/// What a thread did in the window.
#[derive(Clone, Copy, Debug)]
struct Share {
    is_main: bool,
    waits_for_events: bool,
    has_worked: bool,
    /// The share of the time for which it ran,
    ran: f64,
    /// or ran or waited for a CPU.
    wanted: f64,
}

impl Loops {
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            roots: roots.clone(),
            searched: None,
            processes: None,
            allowed: None,
            read_at: None,
            busy: None,
            others: BTreeMap::new(),
            elsewhere: 0,
            looked: None,
        }
    }

    /// The share of the last second for which the least busy of the port's loops ran or waited for a CPU, in thousandths; `None` where it
    /// is not known.
    pub(super) fn busy(
        &mut self,
        diag: &mut Diag,
        port: u16,
        listeners: &[Listener],
        now: Instant,
    ) -> Option<u32> {
        let passed = |at: Instant| now.saturating_duration_since(at);
        if self.read_at.is_some_and(|at| passed(at) < EVERY) {
            return self.busy;
        }
        self.read_at = Some(now);
        let sockets: BTreeSet<u64> = listeners.iter().map(|one| one.cookie).collect();
        let is_known =
            |(known, at): &(BTreeSet<u64>, Instant)| *known == sockets && passed(*at) < SEARCH_EVERY;
        if !self.searched.as_ref().is_some_and(is_known) {
            self.searched = Some((sockets, now));
            let others = diag.inodes_of_others(port).unwrap_or_default();
            self.search(diag.listening_inodes(port).ok(), &others);
        }
        self.busy = self.look(now);
        self.busy
    }

    /// How many connections at other ports those who listen work on; of ports that the kernel does not tell of, none.
    pub(super) fn elsewhere(&mut self, diag: &mut Diag, now: Instant) -> u64 {
        let is_new =
            |(at, took): (Instant, Duration)| now.saturating_duration_since(at) < EVERY.max(took * TIMES);
        if !self.looked.is_some_and(is_new) {
            let begun = Instant::now();
            self.elsewhere = 0;
            for (port, accepted) in self.others.iter_mut().take(MAX_OTHERS) {
                if let Ok(connections) = diag.connections(*port) {
                    self.elsewhere += accepted.worked_on(&connections, now);
                }
            }
            self.looked = Some((now, begun.elapsed()));
        }
        self.elsewhere
    }

    /// Finds who listens, with the sockets of other ports; what is known of those that listened before is kept.
    fn search(&mut self, inodes: Option<BTreeSet<u64>>, others: &BTreeMap<u64, u16>) {
        let mut before: BTreeMap<u32, Process> = self
            .processes
            .take()
            .into_iter()
            .flatten()
            .map(|process| (process.pid, process))
            .collect();
        let found = inodes.and_then(|inodes| proc::holders(&self.roots, &inodes, others));
        let (found, ports) = found.map_or((None, BTreeSet::new()), |(pids, ports)| (Some(pids), ports));
        let mut known = std::mem::take(&mut self.others);
        let of = |port: u16| (port, known.remove(&port).unwrap_or_default());
        self.others = ports.into_iter().map(of).collect();
        self.processes = found.filter(|pids| pids.len() <= MAX_PROCESSES).map(|pids| {
            let known = |pid| {
                before.remove(&pid).unwrap_or_else(|| Process {
                    pid,
                    parent: proc::parent(&self.roots, pid),
                    threads: BTreeMap::new(),
                })
            };
            pids.into_iter().map(known).collect()
        });
        self.allow();
    }

    fn allow(&mut self) {
        let pids = self.processes.iter().flatten().map(|process| process.pid);
        self.allowed = proc::allowed(&self.roots, &pids.collect::<Vec<_>>());
    }

    fn look(&mut self, now: Instant) -> Option<u32> {
        let mut left = MAX_THREADS;
        let mut all = Vec::new();
        for process in self.processes.as_mut()? {
            let waits_to_accept = process.read(&self.roots, now, &mut left)?;
            all.push((process.pid, process.parent, waits_to_accept, process.shares()));
        }
        let parents: BTreeSet<u32> = all.iter().filter_map(|one| one.1).collect();
        let is_idle = |shares: &[Share]| shares.iter().all(|share| share.wanted < IDLE);
        // Who started the others and does nothing listens for them.
        let serves = |pid, shares: &[Share]| !(parents.contains(&pid) && is_idle(shares));
        let serving: Vec<_> = all.iter().filter(|one| serves(one.0, &one.3)).collect();
        let known = serving.iter().any(|one| !one.3.is_empty());
        let least = serving
            .iter()
            .map(|(.., waits, shares)| least_of(shares, *waits))
            .fold(1.0, f64::min);
        let ran: f64 = all.iter().flat_map(|one| &one.3).map(|share| share.ran).sum();
        let of_all = |allowed: Option<f64>| allowed.map_or(0.0, |allowed| ran / allowed);
        if of_all(self.allowed) >= ALL {
            self.allow();
        }
        let share = least.max(of_all(self.allowed)).min(1.0);
        known.then_some((share * 1_000.0).round() as u32)
    }
}

impl Process {
    /// Reads its threads, at most so many; whether one of them waits to accept. `None` where there are more.
    fn read(&mut self, roots: &Roots, now: Instant, left: &mut usize) -> Option<bool> {
        let mut before = std::mem::take(&mut self.threads);
        let mut waits_to_accept = false;
        for tid in proc::threads(roots, self.pid, *left)? {
            // One that ended meanwhile.
            let Some(usage) = proc::usage(roots, self.pid, tid) else {
                continue;
            };
            *left -= 1;
            let mut thread = before.remove(&tid).unwrap_or_default();
            match proc::waits(roots, self.pid, tid) {
                Waits::ForEvents => thread.waits_for_events = true,
                Waits::ToAccept => waits_to_accept = true,
                Waits::Otherwise => {}
            }
            thread.add(now, usage);
            self.threads.insert(tid, thread);
        }
        Some(waits_to_accept)
    }

    /// What its threads did that have been there for as long as the window.
    fn shares(&self) -> Vec<Share> {
        let share = |(tid, thread): (&u32, &Thread)| thread.share(*tid == self.pid);
        self.threads.iter().filter_map(share).collect()
    }
}

impl Thread {
    fn add(&mut self, now: Instant, usage: Usage) {
        // Another thread of the same number.
        if self
            .readings
            .back()
            .is_some_and(|(_, before)| !usage.follows(*before))
        {
            *self = Self::default();
        }
        self.readings.push_back((now, usage));
        while let Some((second, _)) = self.readings.get(1)
            && now.saturating_duration_since(*second) >= WINDOW
        {
            self.readings.pop_front();
        }
        self.has_worked |= self.share(false).is_some_and(|share| share.wanted >= IDLE);
    }

    fn share(&self, is_main: bool) -> Option<Share> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        let length = last.0.saturating_duration_since(first.0);
        let of = |time: Duration| time.as_secs_f64() / length.as_secs_f64();
        (length >= WINDOW).then(|| Share {
            is_main,
            waits_for_events: self.waits_for_events,
            has_worked: self.has_worked,
            ran: of(last.1.ran - first.1.ran),
            wanted: of(last.1.wanted() - first.1.wanted()),
        })
    }
}

/// The share for which the least busy of a process's loops wanted a CPU; 0 where it has none that serves, or a worker to spare.
fn least_of(shares: &[Share], waits_to_accept: bool) -> f64 {
    let has_loop = shares.iter().any(|share| share.waits_for_events);
    let is_loop = |share: &&Share| match share.waits_for_events {
        true => share.has_worked,
        // Beside a loop it is a worker of a pool, unless it is the process's first thread.
        false => share.wanted >= BUSY && (share.is_main || !has_loop),
    };
    let least = shares
        .iter()
        .filter(is_loop)
        .map(|share| share.wanted)
        .reduce(f64::min);
    match waits_to_accept {
        true => 0.0,
        false => least.unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests;
