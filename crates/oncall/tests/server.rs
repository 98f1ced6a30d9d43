//! The preload library in a server with a thread per connection.

use headroom_oncall::{LIBRARY, Levers, Steering, VARIABLE};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    child: Child,
    port: u16,
    steering: Steering,
    _folder: TempDir,
}

impl Server {
    fn start(levers: Levers, lease: Option<Duration>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("liboncall.so");
        fs::write(&library, LIBRARY).unwrap();
        let steering = Steering::create(&folder.path().join("region")).unwrap();
        steering.command(levers, lease);
        let mut child = Command::new(server_path())
            .env("LD_PRELOAD", &library)
            .env(VARIABLE, steering.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            port: line.trim().parse().unwrap(),
            child,
            steering,
            _folder: folder,
        }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }

    /// Waits until something is so.
    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            let mut totals = self.steering.totals();
            totals.latencies.clear();
            assert!(Instant::now() < end, "{what}: {totals:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(TcpStream);

impl Client {
    fn say(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) {
        let mut answer = [0; 3];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ok\n");
    }

    fn ask(&mut self, line: &str) {
        self.say(line);
        self.hear();
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

fn server_path() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/threaded_server")
}

fn levers(concurrency: u32, batch: u32) -> Levers {
    Levers {
        enabled: true,
        concurrency,
        batch,
        ..Levers::default()
    }
}

/// So many clients, each with so many queries one after another.
fn load(server: &Server, clients: usize, queries: usize, line: &str) {
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = server.connect();
                (0..queries).for_each(|_| client.ask(line));
            });
        }
    });
}

#[test]
fn everybody_is_served_and_no_more_run_than_may() {
    for (concurrency, batch, linger_us, delay_us) in [
        (1, 1, 0, 0),
        (2, 4, 200, 0),
        (2, 8, 100, 1500),
        (1, 2, 0, 2000),
        (u32::MAX, 1, 0, 0),
    ] {
        let levers = Levers {
            linger: Duration::from_micros(linger_us),
            delay: Duration::from_micros(delay_us),
            ..levers(concurrency, batch)
        };
        let server = Server::start(levers, None);
        thread::scope(|scope| {
            let ends = scope.spawn(|| load(&server, 40, 50, "spin 50"));
            while !ends.is_finished() {
                let running = server.steering.totals().running;
                assert!(running <= concurrency, "{running} of {concurrency}");
                thread::sleep(Duration::from_micros(200));
            }
        });
        let totals = server.steering.totals();
        // The end of a connection's last answer is noticed with its close.
        assert!(totals.queries >= 40 * 49, "{}", totals.queries);
        assert_eq!((totals.unmanaged, totals.event_driven), (0, 0));
        // What a client asks with its connection is read before its worker ever waits.
        assert!(totals.without_slot <= 40, "{}", totals.without_slot);
        server.until("slots are free and nobody waits", |server| {
            let totals = server.steering.totals();
            (totals.running, totals.waiting, totals.connections) == (0, 0, 0)
        });
        if delay_us > 0 {
            assert!(totals.rounds >= 3, "{}", totals.rounds);
        }
    }
}

#[test]
fn a_worker_that_waits_for_a_lock_gives_its_slot_to_who_has_it() {
    let server = Server::start(levers(1, 1), None);
    let mut holder = server.connect();
    holder.ask("take");
    let mut waiters: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    waiters.iter_mut().for_each(|waiter| waiter.ask("spin 1"));
    waiters.iter_mut().for_each(|waiter| waiter.say("take"));
    server.until("all wait for the lock", |server| {
        server.steering.totals().given_back >= 20
    });
    // Its slot is there for whoever has the lock: without it, this would never be answered.
    holder.ask("give");
    thread::scope(|scope| {
        for waiter in &mut waiters {
            scope.spawn(|| {
                waiter.hear();
                waiter.ask("give");
            });
        }
    });
}

#[test]
fn a_wait_that_no_hook_sees_costs_its_slot_too() {
    let server = Server::start(levers(1, 1), None);
    let (mut blocked, mut other) = (server.connect(), server.connect());
    other.ask("spin 1");
    blocked.ask("spin 1");
    blocked.say("pipe");
    let end = Instant::now() + PATIENCE;
    while server.steering.totals().reclaimed == 0 {
        assert!(Instant::now() < end, "its slot is never taken");
        other.ask("spin 1");
    }
    other.ask("fill");
    blocked.hear();
    other.ask("spin 1");
    server.until("no slot is lost", |server| server.steering.totals().running == 0);
}

#[test]
fn clients_that_go_away_and_threads_that_end_leave_no_slot_taken() {
    let server = Server::start(levers(2, 4), None);
    for round in 0..30 {
        let mut client = server.connect();
        client.ask("spin 10");
        match round % 3 {
            0 => client.say("vanish"),
            1 => client.say("spin 3000"),
            _ => {}
        }
    }
    load(&server, 20, 20, "spin 20");
    server.until("all slots are free", |server| {
        server.steering.totals().running == 0
    });
    assert_eq!(server.steering.totals().waiting, 0);
}

#[test]
fn a_parked_worker_keeps_the_servers_own_timeout() {
    let server = Server::start(levers(1, 1), None);
    let mut client = server.connect();
    client.ask("patience 100");
    let began = Instant::now();
    assert!(client.is_closed());
    assert!(
        began.elapsed() >= Duration::from_millis(90),
        "{:?}",
        began.elapsed()
    );
    server.until("it is gone", |server| server.steering.totals().connections == 0);
}

#[test]
fn a_server_that_forks_goes_on() {
    let server = Server::start(levers(1, 1), None);
    let mut client = server.connect();
    client.ask("fork");
    client.ask("spin 1");
    load(&server, 8, 10, "fork");
    assert!(server.steering.totals().forks >= 81);
}

#[test]
fn without_a_regulator_everybody_runs_when_the_lease_ends() {
    // C of 1 and a worker that computes for longer than the lease: nobody else would be served.
    let server = Server::start(levers(1, 1), Some(Duration::from_millis(300)));
    let mut long = server.connect();
    long.ask("spin 1");
    let mut other = server.connect();
    other.ask("spin 1");
    long.say("spin 6000000");
    thread::sleep(Duration::from_millis(400));
    let began = Instant::now();
    other.ask("spin 1");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_connection_with_no_turn_waits_while_others_are_served() {
    let server = Server::start(levers(1, 1), None);
    let (mut none, mut other) = (server.connect(), server.connect());
    none.ask("spin 1");
    other.ask("spin 1");
    let port = none.0.local_addr().unwrap().port();
    let all = server.steering.connections();
    let place = all
        .iter()
        .find(|one| one.client.is_some_and(|client| client.port() == port));
    let place = place.expect("its client's address is known").place;
    server.steering.give(place, Some(0));
    none.say("spin 1");
    (0..50).for_each(|_| other.ask("spin 100"));
    server.until("it waits", |server| server.steering.totals().waiting == 1);
    server.steering.give(place, None);
    other.ask("spin 1");
    none.hear();
}

#[test]
fn a_connection_with_no_turn_has_one_after_twenty_seconds() {
    let server = Server::start(levers(1, 1), None);
    let mut starved = server.connect();
    starved.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    starved.ask("spin 1");
    let place = server.steering.connections()[0].place;
    server.steering.give(place, Some(0));
    let began = Instant::now();
    starved.ask("spin 1");
    assert!(
        began.elapsed() >= Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    server.until("its slot is free again", |server| {
        server.steering.totals().running == 0
    });
}

#[test]
fn what_is_counted_of_a_connection_is_its_own() {
    let server = Server::start(levers(2, 2), None);
    let mut client = server.connect();
    (0..10).for_each(|_| client.ask("spin 2000"));
    server.until("its last query has ended", |server| {
        server.steering.totals().queries == 10
    });
    let all = server.steering.connections();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].queries, all[0].recent.len()), (10, 10));
    assert_eq!(all[0].client, Some(client.0.local_addr().unwrap()));
    assert!(all[0].tid.is_some());
    assert!(all[0].latency.get() >= 0.02, "{all:?}");
    let p50 = server.steering.totals().percentile(0.5).unwrap();
    assert!(p50.as_millis() >= 1.8, "{p50:?}");
}
