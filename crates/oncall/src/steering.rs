//! The other side of the region: what is commanded, and what was counted.

use crate::layout::{BUCKETS, COMMON, Connection, MAGIC, Region, bucket_start};
use headroom_units::Seconds;
use rustix::fs::Mode;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
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

/// What the workers of a server are let do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levers {
    /// Whether they are on call at all.
    pub enabled: bool,
    /// C: workers that may run at once; at least 1.
    pub concurrency: u32,
    /// N: queries of one connection in a round; at least 1.
    pub batch: u32,
    /// How long a worker with queries left waits for its next one and keeps its slot.
    pub linger: Duration,
    /// D: from the end of a round to the beginning of the next.
    pub delay: Duration,
}

impl Default for Levers {
    /// Everybody runs, as without us.
    fn default() -> Self {
        Self {
            enabled: false,
            concurrency: u32::MAX,
            batch: 1,
            linger: Duration::ZERO,
            delay: Duration::ZERO,
        }
    }
}

/// What was counted since the server's first connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Programs that have loaded the library.
    pub loaded: u32,
    /// The process whose connections are on call; 0 before its first one.
    pub owner: u32,
    /// Workers that hold a slot now.
    pub running: u32,
    /// Connections that have a query and no slot now.
    pub waiting: u32,
    /// Connections now.
    pub connections: u32,
    /// Rounds ended.
    pub rounds: u64,
    /// Queries answered.
    pub queries: u64,
    /// Slots given back by workers that block inside a query.
    pub given_back: u64,
    /// Slots taken from workers found asleep inside a query.
    pub reclaimed: u64,
    /// Workers activated for nothing.
    pub spurious: u64,
    /// Queries let go without a slot.
    pub without_slot: u64,
    /// Connections for which there was no room.
    pub unmanaged: u64,
    /// Connections that the server watches with epoll.
    pub event_driven: u64,
    /// Forks of the server.
    pub forks: u64,
    /// Queries by latency: buckets of [`bucket_start`].
    pub latencies: Vec<u64>,
}

impl Totals {
    /// What came after an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        let latencies = self.latencies.iter().enumerate();
        Self {
            rounds: difference(|totals| totals.rounds),
            queries: difference(|totals| totals.queries),
            given_back: difference(|totals| totals.given_back),
            reclaimed: difference(|totals| totals.reclaimed),
            spurious: difference(|totals| totals.spurious),
            without_slot: difference(|totals| totals.without_slot),
            latencies: latencies
                .map(|(at, count)| count.saturating_sub(earlier.latencies.get(at).copied().unwrap_or(0)))
                .collect(),
            ..self.clone()
        }
    }

    /// The latency under which a share of the queries stayed, to within a sixteenth; `None` where there was none. It counts from when
    /// the library noticed the query, which while all slots are taken is up to a millisecond after it came.
    pub fn percentile(&self, share: f64) -> Option<Seconds> {
        let all: u64 = self.latencies.iter().sum();
        let wanted = (share * all as f64).ceil().max(1.0) as u64;
        let mut counted = 0;
        let at = self.latencies.iter().position(|count| {
            counted += count;
            counted >= wanted
        })?;
        // The middle of the bucket.
        let (start, end) = (bucket_start(at), bucket_start(at + 1));
        Some(Seconds::new((start + end) as f64 / 2e6))
    }
}

/// What was counted of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionTotals {
    /// Its place in the region, and how many had that place before: together its name.
    pub place: (usize, u32),
    /// The client; `None` where it came by a Unix socket.
    pub client: Option<SocketAddr>,
    /// Its descriptor in the server.
    pub fd: i32,
    /// The thread that serves it; `None` before one does.
    pub tid: Option<u32>,
    /// Queries answered.
    pub queries: u64,
    /// Their latencies together.
    pub latency: Seconds,
    /// Times between the arrivals of queries together.
    pub between: Seconds,
    /// The last latencies, at most [`crate::layout::KEPT`], in no order.
    pub recent: Vec<Seconds>,
}

/// A region, and with it the workers of one server.
#[derive(Debug)]
pub struct Steering {
    path: PathBuf,
    region: NonNull<Region>,
}

// SAFETY: the region is atomics alone.
unsafe impl Send for Steering {}
// SAFETY: as above.
unsafe impl Sync for Steering {}

impl Steering {
    /// Makes the region's file, which nobody may have made before; it is removed with this value.
    ///
    /// # Errors
    /// It cannot be made, or is there.
    pub fn create(path: &Path) -> Result<Self, RegionError> {
        let make = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true);
            // The server may run as another user by the time it opens nothing any more: it maps the region as it is loaded.
            let file = options
                .mode(Mode::from_raw_mode(0o600).as_raw_mode())
                .open(path)?;
            file.set_len(size_of::<Region>() as u64)?;
            // SAFETY: a new mapping of a file of this size, which only atomics are read from and written to.
            let at = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    size_of::<Region>(),
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    &file,
                    0,
                )?
            };
            NonNull::new(at.cast::<Region>()).ok_or_else(|| io::Error::other("it was mapped at no address"))
        };
        let region = make().map_err(|source| RegionError {
            path: path.to_owned(),
            source,
        })?;
        let steering = Self {
            path: path.to_owned(),
            region,
        };
        steering.command(Levers::default(), None);
        steering.region().magic.store(MAGIC, Release);
        Ok(steering)
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
    }

    /// A connection's own batch size: `None` is the common one, 0 no turn but one in twenty seconds. Of a connection that has ended
    /// meanwhile it changes nothing.
    pub fn give(&self, place: (usize, u32), batch: Option<u32>) {
        if let Some(connection) = self.region().connections.get(place.0)
            && connection.generation.load(Acquire) == place.1
        {
            let quota = batch.map_or(COMMON, |batch| i32::try_from(batch).unwrap_or(i32::MAX));
            connection.quota.store(quota, Relaxed);
        }
    }

    /// What was counted.
    pub fn totals(&self) -> Totals {
        let region = self.region();
        Totals {
            loaded: region.loaded.load(Relaxed),
            owner: region.owner.load(Relaxed),
            running: region.running.load(Relaxed),
            waiting: region.waiting.load(Relaxed),
            connections: region.connections.iter().filter(|one| is_taken(one)).count() as u32,
            rounds: region.rounds.load(Relaxed),
            queries: region.queries.load(Relaxed),
            given_back: region.given_back.load(Relaxed),
            reclaimed: region.reclaimed.load(Relaxed),
            spurious: region.spurious.load(Relaxed),
            without_slot: region.without_slot.load(Relaxed),
            unmanaged: region.unmanaged.load(Relaxed),
            event_driven: region.event_driven.load(Relaxed),
            forks: region.forks.load(Relaxed),
            latencies: (0..BUCKETS)
                .map(|at| region.latencies[at].load(Relaxed))
                .collect(),
        }
    }

    /// The connections that are there.
    pub fn connections(&self) -> Vec<ConnectionTotals> {
        let all = self.region().connections.iter().enumerate();
        all.filter_map(|(place, connection)| described(place, connection))
            .collect()
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.command(Levers::default(), None);
        let _ = fs::remove_file(&self.path);
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.region.as_ptr().cast::<c_void>(), size_of::<Region>()) };
    }
}

fn is_taken(connection: &Connection) -> bool {
    connection.generation.load(Acquire) % 2 == 1
}

fn described(place: usize, connection: &Connection) -> Option<ConnectionTotals> {
    let generation = connection.generation.load(Acquire);
    let seconds = |nanoseconds: u64| Seconds::new(nanoseconds as f64 / 1e9);
    let [high, low] = [0, 1].map(|half| connection.address[half].load(Relaxed));
    let address = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
    let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    let port = connection.port.load(Relaxed) as u16;
    let queries = connection.queries.load(Relaxed);
    let kept = connection
        .recent_us
        .iter()
        .take(usize::try_from(queries).unwrap_or(usize::MAX));
    let totals = ConnectionTotals {
        place: (place, generation),
        client: (port != 0).then(|| SocketAddr::new(address, port)),
        fd: connection.fd.load(Relaxed),
        tid: Some(connection.tid.load(Relaxed)).filter(|tid| *tid != 0),
        queries,
        latency: seconds(connection.latency_ns.load(Relaxed)),
        between: seconds(connection.between_ns.load(Relaxed)),
        recent: kept
            .map(|us| Seconds::new(f64::from(us.load(Relaxed)) / 1e6))
            .collect(),
    };
    // Another connection may have come to its place while it was read.
    (generation % 2 == 1 && connection.generation.load(Acquire) == generation).then_some(totals)
}

fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::bucket;

    #[test]
    fn a_latency_is_in_the_bucket_that_begins_before_it() {
        for microseconds in (0..200_000).chain([1 << 30, (1 << 32) - 1]) {
            let at = bucket(microseconds);
            assert!(bucket_start(at) <= microseconds, "{microseconds}");
            assert!(
                at == BUCKETS - 1 || microseconds < bucket_start(at + 1),
                "{microseconds}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_is_within_a_sixteenth() {
        let mut totals = Totals {
            latencies: vec![0; BUCKETS],
            ..Totals::default()
        };
        assert_eq!(totals.percentile(0.5), None);
        for microseconds in 1..=1000 {
            totals.latencies[bucket(microseconds)] += 1;
        }
        let p99 = totals.percentile(0.99).unwrap();
        assert!((p99.get() / 0.00099 - 1.0).abs() < 1.0 / 16.0, "{p99:?}");
        assert_eq!(totals.since(&totals).percentile(0.99), None);
    }

    #[test]
    fn the_file_is_there_as_long_as_it_is_steered_and_nobody_takes_anothers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oncall");
        let steering = Steering::create(&path).unwrap();
        let error = Steering::create(&path).unwrap_err().to_string();
        assert!(error.contains("oncall") && error.contains("exists"), "{error}");
        assert_eq!(steering.totals().connections, 0);
        // No connection has this place: nothing is changed.
        steering.give((3, 1), Some(4));
        drop(steering);
        assert!(!path.exists());
    }
}
