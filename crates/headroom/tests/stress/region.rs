//! The region of memory that the server and its steering share, by its file: read to judge, and written over whatever a law commands.

use crate::chance::Chance;
use headroom_oncall::layout::{COMMON, Connection, MAX_CONNECTIONS, Region};
use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A region's file. It stays readable when whoever made it is gone.
pub struct RegionFile(File);

/// What is counted of the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Workers with a slot now.
    pub running: u32,
    /// Connections that wait for one now.
    pub waiting: u32,
    /// Connections that are on call now.
    pub connections: u32,
    /// Queries answered so far.
    pub queries: u64,
    /// Slots given back and taken away so far.
    pub returned: u64,
    /// Times that a holder of the lock was found dead, so far.
    pub recovered: u64,
}

impl RegionFile {
    /// Opens it.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self(file))
    }

    fn u32(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        let read = self.0.read_exact_at(&mut bytes, at as u64);
        assert!(read.is_ok(), "the region has no byte {at}: {read:?}");
        u32::from_ne_bytes(bytes)
    }

    fn u64(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        let read = self.0.read_exact_at(&mut bytes, at as u64);
        assert!(read.is_ok(), "the region has no byte {at}: {read:?}");
        u64::from_ne_bytes(bytes)
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        let written = self.0.write_all_at(bytes, at as u64);
        assert!(written.is_ok(), "the region has no byte {at}: {written:?}");
    }

    fn connection(place: usize) -> usize {
        offset_of!(Region, connections) + place * size_of::<Connection>()
    }

    fn is_taken(&self, place: usize) -> bool {
        self.u32(Self::connection(place) + offset_of!(Connection, generation)) % 2 == 1
    }

    /// The places at which a connection is.
    fn taken(&self) -> Vec<usize> {
        (0..MAX_CONNECTIONS)
            .filter(|place| self.is_taken(*place))
            .collect()
    }

    /// What is counted.
    pub fn counts(&self) -> Counts {
        Counts {
            running: self.u32(offset_of!(Region, running)),
            waiting: self.u32(offset_of!(Region, waiting)),
            connections: self.taken().len() as u32,
            queries: self.u64(offset_of!(Region, queries)),
            returned: self.u64(offset_of!(Region, given_back)) + self.u64(offset_of!(Region, reclaimed)),
            recovered: self.u64(offset_of!(Region, recovered)),
        }
    }

    /// Whose connections are on call: threads' (1) or processes' (2).
    pub fn mode(&self) -> u32 {
        self.u32(offset_of!(Region, mode))
    }

    /// Commands something of everybody until the law commands again. What it was, in words.
    pub fn command(&self, chance: &mut Chance) -> String {
        let (concurrency, batch) = (chance.number(1..5) as u32, chance.number(1..9) as u32);
        let linger_us = chance.of(&[0, 50, 200, 1_000, 5_000_u64]);
        let delay_us = chance.of(&[0, 0, 600, 2_000, 10_000_u64]);
        let enabled = u32::from(!chance.once_in(6));
        self.put(offset_of!(Region, concurrency), &concurrency.to_ne_bytes());
        self.put(offset_of!(Region, batch), &batch.to_ne_bytes());
        self.put(offset_of!(Region, linger_ns), &(linger_us * 1_000).to_ne_bytes());
        self.put(offset_of!(Region, delay_ns), &(delay_us * 1_000).to_ne_bytes());
        self.put(offset_of!(Region, enabled), &enabled.to_ne_bytes());
        format!("C {concurrency}, N {batch}, linger {linger_us} us, D {delay_us} us, on call: {enabled}")
    }

    /// Gives some connections other turns than all others have; `never` lets some have none but one in twenty seconds.
    pub fn turns(&self, chance: &mut Chance, never: bool) {
        for place in self.taken() {
            let at = Self::connection(place);
            let quota = match chance.number(0..8) {
                0 => chance.number(1..4) as i32,
                1 if never => 0,
                _ => COMMON,
            };
            let flags = [chance.once_in(8), chance.once_in(8)].map(u32::from);
            self.put(at + offset_of!(Connection, quota), &quota.to_ne_bytes());
            self.put(at + offset_of!(Connection, yields), &flags[0].to_ne_bytes());
            self.put(at + offset_of!(Connection, rests), &flags[1].to_ne_bytes());
        }
    }

    /// Everybody has the common turns again.
    pub fn even(&self) {
        for place in self.taken() {
            let at = Self::connection(place);
            self.put(at + offset_of!(Connection, quota), &COMMON.to_ne_bytes());
            self.put(at + offset_of!(Connection, yields), &[0; 4]);
            self.put(at + offset_of!(Connection, rests), &[0; 4]);
        }
    }

    /// All that is known of the connections that wait or have a slot, and of the one with this client's port or process; without
    /// either of all.
    pub fn describe(&self, port: u16, id: u32) -> String {
        let is_of_all = (port, id) == (0, 0);
        let mut text = format!(
            "{:?}, C {}, N {}, D {} us, linger {} us, on call: {}\n",
            self.counts(),
            self.u32(offset_of!(Region, concurrency)),
            self.u32(offset_of!(Region, batch)),
            self.u64(offset_of!(Region, delay_ns)) / 1_000,
            self.u64(offset_of!(Region, linger_ns)) / 1_000,
            self.u32(offset_of!(Region, enabled)),
        );
        for place in self.taken() {
            let word = |field: usize| self.u32(Self::connection(place) + field);
            let long = |field: usize| self.u64(Self::connection(place) + field);
            let (slot, state) = (
                word(offset_of!(Connection, slot)),
                word(offset_of!(Connection, state)),
            );
            let tid = word(offset_of!(Connection, tid));
            let is_asked_for =
                port != 0 && word(offset_of!(Connection, port)) == u32::from(port) || tid == id;
            if !is_of_all && !is_asked_for && slot == 0 && state != 3 {
                continue;
            }
            text += &format!(
                "    {}place {place}: tid {tid} ({}), port {}, state {state} (1 runs, 2 parked, 3 in line), slot {slot}, go {}, in a query {}, \
                 sent {}, pending {}, tokens {}, quota {}, yields {}, rests {}, ready {} ns, query {} ns, since {} ns\n",
                if is_asked_for { "THIS ONE, " } else { "" },
                title(tid),
                word(offset_of!(Connection, port)),
                word(offset_of!(Connection, go)),
                word(offset_of!(Connection, in_query)),
                word(offset_of!(Connection, sent)),
                word(offset_of!(Connection, pending)),
                word(offset_of!(Connection, tokens)) as i32,
                word(offset_of!(Connection, quota)) as i32,
                word(offset_of!(Connection, yields)),
                word(offset_of!(Connection, rests)),
                long(offset_of!(Connection, ready_ns)),
                long(offset_of!(Connection, query_ns)),
                long(offset_of!(Connection, since_ns)),
            );
        }
        text
    }
}

/// What a process calls itself.
fn title(pid: u32) -> String {
    let words =
        std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_else(|error| error.to_string().into_bytes());
    let state = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    format!(
        "{} in {state}",
        String::from_utf8_lossy(&words).replace('\0', " ").trim()
    )
}
