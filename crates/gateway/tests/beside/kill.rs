//! Backends that are killed under load: a GET whose connection dies is sent to another.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::clients::{Asking, Counts};
use crate::common::process::{Process, free_address};
use crate::common::{Backend, ok, take};
use crate::products::{Kind, Product, Setup, beside};

/// A child that this program becomes when it is started with this variable: a backend that can be killed.
const ADDRESS: &str = "HEADROOM_TEST_BACKEND";

/// Not a test of its own: what the others start as a process.
#[test]
#[ignore = "a backend that the tests of killed backends start"]
fn backend_process() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let listener = TcpListener::bind(address).unwrap();
    println!("\nlistening");
    let _backend = Backend::http_on(listener, |_| {
        std::thread::sleep(Duration::from_millis(1));
        ok("alive")
    });
    loop {
        std::thread::park();
    }
}

struct Killable {
    process: Process,
    address: SocketAddr,
}

impl Killable {
    fn start(address: SocketAddr) -> Self {
        let mut process = Process::spawn(
            Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "kill::backend_process", "--nocapture"])
                .env(ADDRESS, address.to_string())
                .stdout(Stdio::piped()),
        );
        let mut lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "listening"));
        // What it prints later nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    /// kill -9, and another one at the same address.
    fn replace(&mut self) {
        self.process.child.kill().unwrap();
        assert_eq!(self.process.child.wait().unwrap().signal(), Some(9));
        *self = Self::start(self.address);
    }
}

const KILLS: usize = 25;
const GETS: usize = 8_000;

#[derive(Debug)]
struct Killed {
    counts: Counts,
    /// What our gateway says that it sent again.
    retries: Option<u64>,
}

/// Kills one backend of two after the other, 25 times, while eight clients ask.
fn killed(kind: Kind) -> Killed {
    let mut backends = [Killable::start(free_address()), Killable::start(free_address())];
    let setup = Setup {
        retry_all: true,
        ..Setup::new(backends.iter().map(|backend| backend.address).collect())
    };
    let product = Product::start(kind, &setup);
    let (front, over) = (product.address, Arc::new(AtomicBool::new(false)));
    let asked = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (over, asked) = (over.clone(), asked.clone());
            std::thread::spawn(move || {
                let (mut client, mut counts) = (Asking::at(front), Counts::default());
                while !over.load(SeqCst) {
                    let answer = client.get("/");
                    counts.count(
                        answer.is_some_and(|answer| answer.status() == 200 && answer.text() == "alive"),
                    );
                    asked.fetch_add(1, SeqCst);
                }
                counts
            })
        })
        .collect();
    for kill in 0..KILLS {
        // So many answers between two kills that there are 8,000 in all, and the other backend is back.
        let until = asked.load(SeqCst) + GETS / KILLS;
        while asked.load(SeqCst) < until && clients.iter().all(|client| !client.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        backends[kill % 2].replace();
    }
    over.store(true, SeqCst);
    let mut counts = Counts::default();
    for client in clients {
        counts += client.join().unwrap();
    }
    let retries = product.handle().map(|handle| {
        let period = take(handle);
        assert_eq!(period.service.failures, counts.failed as u64);
        period.service.retries
    });
    Killed { counts, retries }
}

#[test]
fn no_get_fails_while_backends_are_killed_one_after_another() {
    let (ours, theirs) = beside("25 kills", killed);
    assert_eq!(ours.counts.failed, 0, "{ours:?}");
    assert!(ours.counts.answered >= GETS, "{ours:?}");
    assert!(ours.retries > Some(0), "no kill met a request");
    if let Some(theirs) = theirs {
        assert!(theirs.counts.requests() >= GETS, "{theirs:?}");
        assert!(ours.counts.failed <= theirs.counts.failed, "{theirs:?}");
    }
}
