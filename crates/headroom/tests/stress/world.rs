//! What all threads of one run of a server share: what is to be done, who has which connection, and who was ended on purpose.

use crate::tally::Tally;
use crate::wire::{Address, Database, Overdue};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// What everybody is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Ask.
    Run,
    /// Close, and wait.
    Rest,
    /// End.
    End,
}

/// Within which time a query is answered beyond what it takes by itself. A connection that is given no turn has one after 20 s,
/// what a wrap that is gone commanded holds for 5 s, and this machine has other work.
pub const BOUND: Duration = Duration::from_secs(30);

/// How long a database may take to recover from a crash of its own.
const RECOVERS_WITHIN_MS: u64 = 15_000;

/// A client's place.
#[derive(Default)]
pub struct Seat {
    /// The server's number of its connection; 0 while it has none.
    pub id: AtomicU32,
    /// What a request to cancel must name.
    pub secret: AtomicU32,
    /// The number of the connection that somebody ended last.
    pub ended: AtomicU32,
    /// Whether it has closed and waits.
    pub rests: AtomicBool,
}

/// One run of a server.
pub struct World<'a> {
    /// Which.
    pub database: Database,
    /// Where it listens.
    pub addresses: [Address; 2],
    /// What happened.
    pub tally: &'a Tally,
    /// The clients.
    pub seats: Vec<Seat>,
    /// Who is told of answers that are overdue.
    pub overdue: Sender<Overdue>,
    /// All threads' choices follow from it.
    pub seed: u64,
    phase: AtomicU8,
    /// Times that the server was brought down, or all its connections with it, on purpose.
    outages: AtomicU64,
    is_down: AtomicBool,
    /// Until when the server comes back from the last of them, milliseconds from the beginning.
    back_ms: AtomicU64,
    began: Instant,
    /// Whether workers may be killed so that the server has to recover; held while one is.
    pub may_crash: Mutex<bool>,
    /// Connections that were begun, messages that were sent to be answered, and answers that came, of everybody.
    pub begun: AtomicU64,
    pub sent: AtomicU64,
    pub came: AtomicU64,
    /// Of those that were sent, the ones that went with another in one packet: a server may read them as one.
    pub joined: AtomicU64,
}

impl<'a> World<'a> {
    /// Everybody runs.
    pub fn new(
        (database, addresses): (Database, [Address; 2]),
        clients: usize,
        tally: &'a Tally,
        overdue: Sender<Overdue>,
        seed: u64,
    ) -> Self {
        Self {
            database,
            addresses,
            tally,
            seats: (0..clients).map(|_| Seat::default()).collect(),
            overdue,
            seed,
            phase: AtomicU8::new(0),
            outages: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            back_ms: AtomicU64::new(0),
            began: Instant::now(),
            may_crash: Mutex::new(true),
            begun: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            came: AtomicU64::new(0),
            joined: AtomicU64::new(0),
        }
    }

    /// What is to be done now.
    pub fn phase(&self) -> Phase {
        match self.phase.load(SeqCst) {
            0 => Phase::Run,
            1 => Phase::Rest,
            _ => Phase::End,
        }
    }

    /// Whether everybody is to ask on.
    pub fn runs(&self) -> bool {
        self.phase() == Phase::Run
    }

    /// Has everybody do something else.
    pub fn enter(&self, phase: Phase) {
        let number = match phase {
            Phase::Run => 0,
            Phase::Rest => 1,
            Phase::End => 2,
        };
        self.phase.store(number, SeqCst);
    }

    /// All connections are about to end, as is meant; `stays_down` where the server does not come back by itself.
    pub fn outage(&self, stays_down: bool) {
        self.is_down.fetch_or(stays_down, SeqCst);
        self.back_ms.store(self.ms() + RECOVERS_WITHIN_MS, SeqCst);
        self.outages.fetch_add(1, SeqCst);
    }

    /// The number of outages so far.
    pub fn outages(&self) -> u64 {
        self.outages.load(SeqCst)
    }

    /// Whether a connection of that time may have ended by an outage.
    pub fn is_excused(&self, since: u64) -> bool {
        self.is_down.load(SeqCst) || self.outages() != since || self.ms() < self.back_ms.load(SeqCst)
    }

    fn ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sleeps, but not into another phase: whether everybody still runs.
    pub fn sleeps(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while self.runs() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        false
    }
}
