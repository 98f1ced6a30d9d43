//! Backends that are killed under load: a GET whose connection dies is sent to another.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{Backend, Client, Message, config, ok, start, take};
use headroom_gateway::BackendConfig;

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

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(address: SocketAddr) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "killed::backend_process", "--nocapture"])
            .env(ADDRESS, address.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "listening"));
        // What it prints later nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// kill -9, and another one at the same address.
    fn replace(&mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
        *self = Self::start(self.address);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn no_get_fails_while_backends_are_killed_one_after_another() {
    let mut backends = [Process::start(free_address()), Process::start(free_address())];
    let mut config = config(&[]);
    config.threads = 2;
    config.backends = backends
        .iter()
        .map(|backend| BackendConfig::new(format!("http://{}", backend.address)))
        .collect();
    let (gateway, front) = start(config);
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (over, answered) = (over.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(front);
                while !over.load(SeqCst) {
                    let answer = client.get("/");
                    assert_eq!((answer.status(), answer.text().as_str()), (200, "alive"));
                    answered.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    const KILLS: usize = 25;
    for kill in 0..KILLS {
        // So many answers between two kills that there are 8,000 in all, and the other backend is back.
        let until = answered.load(SeqCst) + 8_000 / KILLS;
        while answered.load(SeqCst) < until && clients.iter().all(|client| !client.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        backends[kill % 2].replace();
    }
    over.store(true, SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    let period = take(&gateway);
    assert_eq!(period.service.failures, 0, "{:?}", period.service);
    assert!(answered.load(SeqCst) >= 8_000);
    assert!(period.service.retries > 0, "no kill met a request");
}

/// A backend that closes each connection when it has read a request.
fn dies(requests: Arc<AtomicUsize>) -> Backend {
    Backend::raw(move |stream, _| {
        if Message::read(&mut BufReader::new(stream), false).is_some() {
            requests.fetch_add(1, SeqCst);
        }
    })
}

#[test]
fn a_post_whose_fresh_connection_dies_is_not_sent_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (one, other) = (dies(requests.clone()), dies(requests.clone()));
    let (gateway, front) = start(config(&[&one, &other]));
    let mut client = Client::connect(front);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.receive().status(), 502);
    assert_eq!((requests.load(SeqCst), take(&gateway).service.retries), (1, 0));
}

#[test]
fn a_service_that_dies_at_each_request_is_not_sent_its_load_several_times() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (one, other) = (dies(requests.clone()), dies(requests.clone()));
    let mut config = config(&[&one, &other]);
    config.retry.budget_min_per_s = 1;
    config.health.eject_after_failures = 0;
    let (gateway, front) = start(config);
    const SENT: usize = 400;
    let mut client = Client::connect(front);
    for _ in 0..SENT {
        assert_eq!(client.get("/").status(), 502);
    }
    let period = take(&gateway);
    assert_eq!(period.service.failures, SENT as u64);
    // A fifth, and ten for the window's ten seconds at one a second.
    let most = SENT / 5 + 10;
    let sent_again = requests.load(SeqCst) - SENT;
    assert!(
        (most / 2..=most).contains(&sent_again),
        "{sent_again} of {SENT} sent again"
    );
    // Each that was not sent as often as it may be is counted as withheld, once.
    let withheld = period.service.retries_withheld as usize;
    assert!(
        (SENT - sent_again..=SENT).contains(&withheld),
        "{withheld} withheld, {sent_again} sent again"
    );
}
