//! By a program in the kernel, which sees every arrival: today's form of the paper's kernel patch (Section 6.1.2).
//!
//! The program counts at the raw tracepoint `sk_data_ready`, where a connection has just been put in its listener's
//! queue. What it does not see comes from sock_diag in the same sample: the queue's length now and its limit, and the
//! drops, which the kernel counts per listener. Accepts follow from both, because nothing else takes a connection from
//! the queue: what was put in it and is not there any more was accepted.

use super::accepted::Accepted;
use super::deferred::Deferred;
use super::diag::Diag;
use super::kernel::{Advance, Parts, sum};
use super::loops::Loops;
use super::procfs;
use super::resets::Resets;
use super::{AtArrival, Counters, Length, Listener, QueueError, QueueMeter, QueueMethod, QueueSample};
use crate::Roots;
use crate::bpf::innermost;
use aya::maps::{Array, MapData, PerCpuHashMap};
use aya::programs::RawTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use headroom_queue_bpf::{self as program, Tally, field};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// How often the counts are read again because a connection arrived while the queue was looked at.
const TRIES: usize = 4;
/// Tallies of listeners that are gone are removed when there are this many, so that there is room for new ones.
const TIDY_AT: usize = program::MAX_LISTENERS / 2;

/// Measures by an eBPF program. Needs root or CAP_BPF and CAP_PERFMON, Linux 6.2 or later, and clang when Headroom was
/// built. The program is in the kernel as long as the meter lives.
pub struct EbpfQueueMeter {
    port: u16,
    roots: Roots,
    diag: Diag,
    parts: Parts,
    deferred: Deferred,
    accepted: Accepted,
    resets: Resets,
    cancelled: Resets,
    loops: Loops,
    tallies: PerCpuHashMap<MapData, u64, Tally>,
    controls: Array<MapData, u64>,
    window: u64,
    epoch: u64,
    account: Account,
    /// Holds the program: dropping it takes the program out of the kernel.
    _program: Ebpf,
}

impl fmt::Debug for EbpfQueueMeter {
    /// Without the maps, which have no form of their own to show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbpfQueueMeter")
            .field("port", &self.port)
            .field("epoch", &self.epoch)
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

/// What is counted from sample to sample.
#[derive(Debug, Default)]
struct Account {
    /// Counts of tallies that were removed.
    retired: Counted,
    /// What dropped arrivals saw.
    full_seen: u64,
    /// Drops of a full queue, and all drops of the sockets, of which those are a part.
    drops: u64,
    socket_drops: u64,
    /// Whether the queue may have been full when it was last read.
    was_full: bool,
    accepts: u64,
    /// What a queue held before its arrivals were counted: accepts are this and the arrivals less what is in the queue.
    held: Option<i64>,
}

/// Two arrivals at once may each miss the other.
const NEARLY_FULL: u64 = 2;

impl Account {
    /// Counts drops, where the queue may have been full: the kernel counts with them handshakes that the client broke off,
    /// such as the checks of a load balancer that answers a SYN-ACK with a reset. `longest` is the longest queue that an
    /// arrival saw since the last reading.
    fn drop_full(&mut self, parts: &Advance, longest: u64, listeners: &[Listener]) {
        let grown = parts.drops.unwrap_or(0).saturating_sub(self.socket_drops);
        self.socket_drops += grown;
        let nearly = |length: u64| {
            let shortest = listeners.iter().map(|listener| listener.length.limit).min();
            shortest.is_none_or(|limit| length + NEARLY_FULL >= limit)
        };
        let is_full = listeners
            .iter()
            .any(|listener| listener.length.now + NEARLY_FULL >= listener.length.limit);
        if nearly(longest) || is_full || self.was_full {
            self.drops += grown;
            self.full_seen += parts.full_seen;
        }
        self.was_full = is_full;
    }

    /// What was put in the queue and is no longer there was accepted; across the coming or going of a listener nothing
    /// is concluded, because its queue went with it.
    fn accept(&mut self, enqueued: u64, now: u64, steady: bool) -> u64 {
        let left = enqueued as i64 - now as i64;
        match self.held.filter(|_| steady) {
            // An arrival between the two readings can make it seem less for a moment.
            Some(held) => self.accepts = self.accepts.max((left + held).max(0) as u64),
            None => self.held = Some(self.accepts as i64 - left),
        }
        self.accepts
    }
}

/// The tallies of all processors and listeners, added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    enqueued: u64,
    seen: u64,
    longest: u64,
}

/// The tallies of one listener, added over the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OfListener {
    key: u64,
    cookie: u64,
    counted: Counted,
}

/// Adds one listener's tallies. Processors that never saw it have zeros; of the cookies the one that is known.
fn add_processors(key: u64, tallies: &[Tally], window: u64) -> OfListener {
    let mut sum = OfListener {
        key,
        cookie: 0,
        counted: Counted::default(),
    };
    for tally in tallies {
        sum.counted.enqueued += tally[field::ENQUEUED];
        sum.counted.seen += tally[field::SEEN];
        if tally[field::WINDOW] == window {
            sum.counted.longest = sum.counted.longest.max(tally[field::LONGEST]);
        }
        sum.cookie = sum.cookie.max(tally[field::COOKIE]);
    }
    sum
}

impl EbpfQueueMeter {
    /// Loads the program for a port that somebody listens on.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`]; [`QueueError::Refused`] where the program was left out of the build, or the
    /// kernel does not take it, with the remedy.
    pub fn open(port: u16, roots: &Roots) -> Result<Self, QueueError> {
        let mut diag = Diag::open()?;
        // Before the program is there, so that the sockets have cookies by the time it reads them.
        diag.listeners(port)?;
        let mut loaded = load(port, roots)?;
        let lacks = || {
            let cause = "the compiled program lacks one of its maps";
            QueueError::refused(
                "set up the eBPF program",
                std::io::Error::other(cause),
                program::REMEDY,
            )
        };
        let tallies = loaded.take_map(program::TALLIES).ok_or_else(lacks)?;
        let controls = loaded.take_map(program::CONTROLS).ok_or_else(lacks)?;
        let mut meter = Self {
            port,
            roots: roots.clone(),
            diag,
            parts: Parts::default(),
            deferred: Deferred::new(),
            accepted: Accepted::default(),
            resets: Resets::default(),
            cancelled: Resets::default(),
            loops: Loops::new(roots),
            tallies: PerCpuHashMap::try_from(tallies).map_err(map_error)?,
            controls: Array::try_from(controls).map_err(map_error)?,
            window: 0,
            epoch: 0,
            account: Account::default(),
            _program: loaded,
        };
        meter.sample()?;
        Ok(meter)
    }

    fn read(&self) -> Result<Vec<OfListener>, QueueError> {
        let mut all = Vec::new();
        for entry in self.tallies.iter() {
            let (key, processors) = entry.map_err(map_error)?;
            all.push(add_processors(key, &processors, self.window));
        }
        Ok(all)
    }

    /// The counts and the queues at one time: no connection was put in a queue between reading the one and the other,
    /// save on a machine so busy that none of the tries found such a time.
    fn read_at_once(&mut self) -> Result<(Vec<OfListener>, Vec<Listener>), QueueError> {
        let mut before = self.read()?;
        for _ in 1..TRIES {
            let listeners = self.diag.listeners(self.port)?;
            let after = self.read()?;
            if total(&before).enqueued == total(&after).enqueued {
                return Ok((after, listeners));
            }
            before = after;
        }
        Ok((before, self.diag.listeners(self.port)?))
    }

    /// Removes the tallies of sockets that are gone, keeping their counts.
    fn tidy(&mut self, tallies: &[OfListener], listeners: &[Listener]) {
        for tally in tallies {
            let is_gone =
                tally.cookie != 0 && listeners.iter().all(|listener| listener.cookie != tally.cookie);
            if is_gone && self.tallies.remove(&tally.key).is_ok() {
                self.account.retired.enqueued += tally.counted.enqueued;
                self.account.retired.seen += tally.counted.seen;
            }
        }
    }
}

fn total(tallies: &[OfListener]) -> Counted {
    tallies.iter().fold(Counted::default(), |sum, tally| Counted {
        enqueued: sum.enqueued + tally.counted.enqueued,
        seen: sum.seen + tally.counted.seen,
        longest: sum.longest.max(tally.counted.longest),
    })
}

impl QueueMeter for EbpfQueueMeter {
    fn method(&self) -> QueueMethod {
        QueueMethod::Ebpf
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        let (tallies, mut listeners) = self.read_at_once().inspect_err(|error| {
            if matches!(error, QueueError::NobodyListens { .. }) {
                self.parts.gone();
            }
        })?;
        let at = Instant::now();
        self.window += 1;
        self.controls
            .set(program::WINDOW, self.window, 0)
            .map_err(map_error)?;
        if self.controls.get(&program::LOST, 0).map_err(map_error)? > 0 {
            return Err(QueueError::TooManyListeners { port: self.port });
        }

        let parts = self.parts.advance(at, &listeners);
        if !parts.steady {
            self.epoch += 1;
        }
        let network = match self.deferred.is_needed(&parts) {
            true => Some(procfs::network(&self.roots)?),
            false => None,
        };
        let parts = self.deferred.take(at, &parts, network.as_ref());
        let counted = total(&tallies);
        let enqueued = counted.enqueued + self.account.retired.enqueued;
        let length: Length = sum(&listeners);
        // Before connections and threads are looked at, which takes longer at times.
        let reset = self.controls.get(&program::RESETS, 0).map_err(map_error)?;
        let cancelled = self.controls.get(&program::CANCELLED, 0).map_err(map_error)?;
        let unasked = self.controls.get(&program::UNASKED, 0).map_err(map_error)?;
        let answered = self.controls.get(&program::ANSWERED, 0).map_err(map_error)?;
        let loops_busy = self.loops.busy(&mut self.diag, self.port, &listeners, at);
        let mut connections = self
            .accepted
            .of(&mut self.diag, self.port, (length, loops_busy), at)?;
        if let Some(connections) = &mut connections {
            connections.elsewhere = self.loops.elsewhere(&mut self.diag, at);
        }
        let gone = self.resets.among(length.now, at, enqueued, reset);
        let cancelled = self.cancelled.among(length.now, at, enqueued, cancelled);
        if let Some(connections) = &mut connections {
            connections.gone += gone;
            connections.cancelled += cancelled;
        }
        let full_seen = self.account.full_seen;
        self.account.drop_full(&parts, counted.longest, &listeners);
        let accepts = self.account.accept(enqueued, length.now, parts.steady);
        let drops = parts.drops.map(|_| self.account.drops);
        let mut longest = counted.longest;
        if self.account.full_seen > full_seen {
            longest = listeners.iter().map(Listener::room).fold(longest, u64::max);
        }
        let seen = AtArrival {
            arrivals: enqueued + drops.unwrap_or(0),
            sum: counted.seen + self.account.retired.seen + self.account.full_seen,
            longest,
        };
        let by_cookie: BTreeMap<u64, u64> = tallies
            .iter()
            .map(|tally| (tally.cookie, tally.counted.enqueued))
            .collect();
        for listener in &mut listeners {
            // A socket without a tally has had no arrival, unless one of the tallies does not know its socket yet.
            let none_yet = (!by_cookie.contains_key(&0)).then_some(0);
            listener.enqueued = by_cookie.get(&listener.cookie).copied().or(none_yet);
        }
        if tallies.len() >= TIDY_AT {
            self.tidy(&tallies, &listeners);
        }
        Ok(QueueSample {
            method: QueueMethod::Ebpf,
            at,
            epoch: self.epoch,
            port: Counters {
                enqueued: Some(enqueued),
                accepts: Some(accepts),
                drops,
                unasked: Some(unasked),
                answered: Some(answered),
                ..Counters::default()
            },
            server: Counters::default(),
            machine: Counters::default(),
            length: Some(length),
            seen: Some(seen),
            cpu_busy: None,
            connections,
            loops_busy,
            listeners,
        })
    }
}

/// Puts the program in the kernel.
fn load(port: u16, roots: &Roots) -> Result<Ebpf, QueueError> {
    let object = program::object().map_err(|reason| {
        let cause = std::io::Error::other(format!("this build of Headroom has none: {reason}"));
        QueueError::refused("load the eBPF program", cause, program::REMEDY)
    })?;
    let types_path = roots.sys("kernel/btf/vmlinux");
    let types =
        Btf::parse_file(&types_path, aya::Endianness::default()).map_err(|error| QueueError::Refused {
            doing: format!("fit the eBPF program to this kernel by {}", types_path.display()),
            cause: innermost(&error),
            remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF".into(),
        })?;
    let namespace_path = roots.proc_("thread-self/ns/net");
    let namespace = std::fs::metadata(&namespace_path)
        .map_err(|error| crate::file::FileError::new(crate::file::Action::Read, &namespace_path, error))?;
    // The kernel's numbers of namespaces have 32 bits (struct ns_common).
    let namespace_inode = namespace.ino() as u32;
    let mut loaded = EbpfLoader::new()
        .btf(Some(&types))
        .override_global(program::PORT, &port, true)
        .override_global(program::NAMESPACE_INODE, &namespace_inode, true)
        .load(object)
        .map_err(|error| refused("load the eBPF program", &error))?;
    attach(&mut loaded, program::PROGRAM, program::TRACEPOINT)?;
    attach(&mut loaded, program::LEFT_PROGRAM, program::LEFT_TRACEPOINT)?;
    Ok(loaded)
}

/// Puts one of the programs on its raw tracepoint.
fn attach(loaded: &mut Ebpf, name: &str, on: &str) -> Result<(), QueueError> {
    let found = loaded.program_mut(name).ok_or_else(|| {
        let cause = std::io::Error::other(format!("the compiled object lacks {name}"));
        QueueError::refused("load the eBPF program", cause, program::REMEDY)
    })?;
    let tracepoint: &mut RawTracePoint = found
        .try_into()
        .map_err(|error: aya::programs::ProgramError| refused("load the eBPF program", &error))?;
    tracepoint
        .load()
        .map_err(|error| refused("load the eBPF program", &error))?;
    tracepoint.attach(on).map_err(|error| {
        let doing = format!("attach the eBPF program to the raw tracepoint {on}");
        refused(&doing, &error)
    })?;
    Ok(())
}

fn map_error(error: aya::maps::MapError) -> QueueError {
    refused("read what the eBPF program counted", &error)
}

/// In words, with what helps against it.
fn refused(doing: &str, error: &(dyn Error + 'static)) -> QueueError {
    let remedy = crate::bpf::remedy(
        error,
        "the tracepoint is in Linux 6.2 and later: use a newer kernel",
    );
    QueueError::Refused {
        doing: doing.into(),
        cause: innermost(error),
        remedy: remedy.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    #[test]
    fn drops_of_a_queue_that_was_never_full_are_no_overflows() {
        let listener = |now| Listener {
            address: "127.0.0.1:80".parse().unwrap(),
            cookie: 1,
            length: Length { now, limit: 16 },
            drops: None,
            enqueued: None,
        };
        let advance = |drops| Advance {
            drops: Some(drops),
            full_seen: 17,
            steady: true,
        };
        let mut account = Account::default();
        account.drop_full(&advance(3), 2, &[listener(0)]);
        assert_eq!((account.drops, account.full_seen), (0, 0));
        // An arrival saw the queue nearly full.
        account.drop_full(&advance(5), 15, &[listener(0)]);
        assert_eq!((account.drops, account.full_seen), (2, 17));
        // It is full now, and may have been until the next reading.
        account.drop_full(&advance(6), 0, &[listener(17)]);
        account.drop_full(&advance(9), 0, &[listener(0)]);
        assert_eq!(account.drops, 6);
        account.drop_full(&advance(10), 0, &[listener(0)]);
        assert_eq!(account.drops, 6);
    }

    #[test]
    fn the_processors_tallies_are_added_and_old_windows_have_no_longest() {
        let one: Tally = [10, 30, 7, 4, 99];
        let other: Tally = [5, 10, 9, 3, 0];
        let unseen: Tally = [0; 5];
        let sum = add_processors(1, &[one, other, unseen], 4);
        assert_eq!(sum.cookie, 99);
        assert_eq!(
            sum.counted,
            Counted {
                enqueued: 15,
                seen: 40,
                longest: 7
            }
        );
    }

    #[test]
    fn what_left_the_queue_was_accepted_except_with_its_listener() {
        let mut account = Account::default();
        assert_eq!(account.accept(0, 3, true), 0, "three were there before");
        assert_eq!(account.accept(5, 2, true), 6);
        assert_eq!(account.accept(5, 2, true), 6);
        assert_eq!(
            account.accept(5, 0, false),
            6,
            "a listener went, and its queue with it"
        );
        assert_eq!(account.accept(8, 0, true), 9);
        assert_eq!(
            account.accept(8, 1, true),
            9,
            "an arrival that the count does not have yet"
        );
        assert_eq!(account.accept(9, 1, true), 9);
        assert_eq!(account.accept(9, 0, true), 10);
    }

    #[test]
    fn a_refusal_names_the_kernels_answer_and_the_remedy() {
        let error = std::io::Error::from(rustix::io::Errno::PERM);
        let message = refused("load the eBPF program", &error).to_string();
        says(&message, &["not permitted", "CAP_BPF"]);
    }
}
