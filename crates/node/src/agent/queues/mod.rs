//! Accept queues, watched for whoever asks.
//!
//! Each watched queue has a thread, beside the machine's and not in it: loading a program into the kernel takes a tenth
//! of a second and asking an SNMP agent up to a whole one, and a lease must end in time meanwhile. Watching changes
//! nothing on the machine but costs it processor time. So it needs a lease of its own ([`Watching::Holder`]), which an
//! operator takes with its first stream and has for as long as it has one, and a while longer; and all looks together have
//! a budget ([`QueueLimits::cpu_per_s`]).
//!
//! Those who watch one port by one order of methods, and with one control group beside it, share its meter, and each is
//! sent what is new to it. A meter that nobody asks for any more is kept for [`QueueLimits::kept`], then it goes.

mod budget;
mod group;
mod watch;
mod watcher;

use super::mailbox::{Receiver, mailbox};
use crate::Roots;
use crate::cgroup::TargetSpec;
use crate::queue::{QueueOptions, QueuePreference, methods_of};
use budget::Budget;
use group::{GroupEye, Groups};
use headroom_wire::access::Access;
use headroom_wire::message::{CpuGroup, Range, WatchQueue};
use headroom_wire::server::Peer;
use headroom_wire::{Refusal, Server};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub(super) use watcher::Timed;
use watcher::Watcher;

/// Who may watch accept queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watching {
    /// Nobody.
    Off,
    /// One operator at a time: whoever has the lease of watching.
    #[default]
    Holder,
    /// Every operator and every reader, without a lease.
    Readers,
}

/// How accept queues may be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The shortest period.
    pub shortest: Duration,
    /// The longest period.
    pub longest: Duration,
    /// Queues that are watched at once; more are refused. One that nobody asks for any more makes room. A port that is
    /// watched by two orders of methods, or with two control groups, is two. Each by eBPF is a program that the kernel runs whenever any socket of the
    /// machine gets data, so that there should not be very many.
    pub queues: usize,
    /// Streams of snapshots at once; more are refused.
    pub streams: usize,
    /// Streams of snapshots at once over one connection; more are refused.
    pub streams_per_connection: usize,
    /// How long a meter is kept that nobody asks for, and the lease of watching whose holder has no stream.
    pub kept: Duration,
    /// Who may watch.
    pub who: Watching,
    /// Processor time that all looks together may take in a second, on average; beyond it they come later. By tools and
    /// by SNMP, where others work for the agent, all the time that a look takes is counted.
    pub cpu_per_s: Duration,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            shortest: Duration::from_millis(10),
            longest: Duration::from_secs(60),
            queues: 16,
            streams: 64,
            streams_per_connection: 16,
            kept: Duration::from_secs(10),
            who: Watching::default(),
            cpu_per_s: Duration::from_millis(50),
        }
    }
}

impl QueueLimits {
    pub(super) fn range(&self) -> Range {
        Range::new(
            self.shortest.as_secs_f64() * 1e3,
            self.longest.as_secs_f64() * 1e3,
        )
    }
}

/// What is watched, by which order of methods, and with which control group's processor time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    port: u16,
    methods: QueuePreference,
    group: Option<CpuGroup>,
}

/// A queue and those who watch it.
#[derive(Debug)]
struct Watched {
    key: Key,
    watchers: Vec<Watcher>,
    /// Since when nobody has watched.
    left: Option<Instant>,
}

impl Watched {
    /// Forgets those who hung up.
    fn tidy(&mut self, now: Instant) {
        self.watchers.retain(|watcher| !watcher.has_left());
        match self.watchers.is_empty() {
            true => drop(self.left.get_or_insert(now)),
            false => self.left = None,
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By a number that is never used twice.
    watched: BTreeMap<u64, Watched>,
    next: u64,
    /// Meters opened.
    meters: u64,
    threads: Vec<JoinHandle<()>>,
    ended: bool,
    /// Who has the lease of watching, and until when if it has no stream.
    held: Option<(String, Instant)>,
}

#[derive(Debug)]
struct Shared {
    limits: QueueLimits,
    roots: Roots,
    /// Whose processor time may be asked for.
    groups: Groups,
    budget: Budget,
    agent_run: u64,
    /// When the agent's clock began.
    started: Instant,
    table: Mutex<Table>,
    /// Rung when somebody comes to watch, and at the end.
    bell: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All watched queues.
#[derive(Clone, Debug)]
pub(super) struct Queues(Arc<Shared>);

impl Queues {
    pub(super) fn new(
        limits: QueueLimits,
        roots: Roots,
        groups: Vec<TargetSpec>,
        agent_run: u64,
        started: Instant,
    ) -> Self {
        Self(Arc::new(Shared {
            limits,
            budget: Budget::new(limits.cpu_per_s),
            groups: Groups::new(roots.clone(), groups),
            roots,
            agent_run,
            started,
            table: Mutex::default(),
            bell: Condvar::new(),
        }))
    }

    /// Whether the processor time of a control group may be asked for. It reads files: no call for a thread that others
    /// wait for.
    pub(super) fn admit(&self, asked: &CpuGroup) -> Result<(), Refusal> {
        self.0.groups.admit(asked)
    }

    /// Whether a queue may be watched, as far as that costs nothing to find out.
    pub(super) fn check(&self, asked: &WatchQueue, peer: &Peer) -> Result<(), Refusal> {
        let limits = &self.0.limits;
        if limits.who == Watching::Off {
            return Err(Refusal::NotAllowed {
                field: "port".into(),
                value: asked.port.to_string(),
                allowed: "this agent watches no accept queues (access.queues = \"off\")".into(),
            });
        }
        if limits.who == Watching::Holder && peer.access < Access::Operator {
            return Err(Refusal::Forbidden {
                call: "WatchQueue".into(),
                peer: peer.identity.to_string(),
                access: peer.access.to_string(),
                needed: Access::Operator.to_string(),
                remedy: "use an operator's certificate, or set access.queues = \"readers\" there".into(),
            });
        }
        let period_ms = asked.period.as_secs_f64() * 1e3;
        Refusal::check_range("period_ms", period_ms, limits.range(), "ms")?;
        self.0.lock().has_place(limits, peer, Instant::now())
    }

    /// Where the snapshots of a queue come out, from now on; it was checked, and its control group admitted.
    pub(super) fn watch(&self, asked: &WatchQueue, peer: &Peer) -> Result<Receiver<Timed>, Refusal> {
        let limits = &self.0.limits;
        let now = Instant::now();
        let mut table = self.0.lock();
        // Again: while the group was looked up, others came.
        table.has_place(limits, peer, now)?;
        let key = Key {
            port: asked.port,
            methods: methods_of(&asked.methods),
            group: asked.cpu_group.clone(),
        };
        let known = table.watched.iter().find(|(_, watched)| watched.key == key);
        let id = match known.map(|(id, _)| *id) {
            Some(id) => id,
            None => {
                table.threads.retain(|thread| !thread.is_finished());
                // One that was given up has its meter until its look ends: those are bounded too.
                let ending = table.threads.len() >= 2 * limits.queues;
                if ending || (table.watched.len() >= limits.queues && !table.make_room()) {
                    return Err(busy("watched accept queues", limits.queues));
                }
                self.start(&mut table, key, now)
                    .map_err(|error| busy(&format!("watched accept queues ({error})"), table.watched.len()))?
            }
        };
        let (snapshots, receiver) = mailbox();
        if let Some(watched) = table.watched.get_mut(&id) {
            watched.left = None;
            watched
                .watchers
                .push(Watcher::new(peer.connection, asked.period, now, snapshots));
        }
        table.held = Some((peer.key(), now + limits.kept));
        drop(table);
        self.0.bell.notify_all();
        Ok(receiver)
    }

    /// Starts the thread of a queue.
    fn start(&self, table: &mut Table, key: Key, now: Instant) -> std::io::Result<u64> {
        let id = table.next;
        let options = QueueOptions {
            roots: self.0.roots.clone(),
            ..QueueOptions::new(key.port)
        };
        let group = key.group.clone();
        let group = group.map(|group| GroupEye::new(self.0.roots.clone(), group));
        let methods = key.methods;
        let shared = Arc::clone(&self.0);
        // It waits for the table, which is held here, before it looks for its queue there.
        let thread = std::thread::Builder::new()
            .name(format!("queue-{}", key.port))
            .spawn(move || watch::attend(&shared, id, methods, options, group))?;
        table.next += 1;
        table.threads.push(thread);
        let watched = Watched {
            key,
            watchers: Vec::new(),
            left: Some(now),
        };
        table.watched.insert(id, watched);
        Ok(id)
    }

    /// Ends every stream, and waits for the threads: for as long as a look takes at most: by tools that are slow some
    /// seconds, as each has two.
    pub(super) fn end(&self) {
        let threads = {
            let mut table = self.0.lock();
            table.ended = true;
            table.watched.clear();
            std::mem::take(&mut table.threads)
        };
        self.0.bell.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that watches an accept queue had panicked");
            }
        }
    }
}

fn busy(what: &str, limit: usize) -> Refusal {
    Refusal::Busy {
        server: Server::Agent,
        what: what.into(),
        limit: limit as u64,
    }
}

impl Table {
    /// Whether one more stream may begin.
    fn has_place(&mut self, limits: &QueueLimits, peer: &Peer, now: Instant) -> Result<(), Refusal> {
        if self.ended {
            return Err(Refusal::Ending(Server::Agent));
        }
        self.watched.values_mut().for_each(|watched| watched.tidy(now));
        if limits.who == Watching::Holder {
            self.lease(limits, peer, now)?;
        }
        let watchers = || self.watched.values().flat_map(|watched| &watched.watchers);
        let of_this = watchers()
            .filter(|watcher| watcher.connection == peer.connection)
            .count();
        if of_this >= limits.streams_per_connection {
            let what = "streams of an accept queue's snapshots over one connection";
            return Err(busy(what, limits.streams_per_connection));
        }
        if watchers().count() >= limits.streams {
            return Err(busy("streams of an accept queue's snapshots", limits.streams));
        }
        Ok(())
    }

    /// Whether nobody else has the lease of watching.
    fn lease(&mut self, limits: &QueueLimits, peer: &Peer, now: Instant) -> Result<(), Refusal> {
        let has_stream = self.watched.values().any(|watched| !watched.watchers.is_empty());
        let Some((holder, until)) = &mut self.held else {
            return Ok(());
        };
        if has_stream {
            *until = now + limits.kept;
        }
        let remaining = until.saturating_duration_since(now);
        if *holder == peer.key() || remaining.is_zero() {
            return Ok(());
        }
        Err(Refusal::HeldByAnother {
            holder: format!("{holder} (who watches accept queues)"),
            remaining,
        })
    }

    /// Gives up the queue that nobody has watched for the longest time; whether there was one.
    fn make_room(&mut self) -> bool {
        let left = self
            .watched
            .iter()
            .filter_map(|(id, watched)| Some((watched.left?, *id)));
        match left.min() {
            Some((_, id)) => self.watched.remove(&id).is_some(),
            None => false,
        }
    }
}
