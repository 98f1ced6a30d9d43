//! The line of those that wait, over several threads, in front of a server that answers nothing until it is told to.

use super::common::{Backend, Message, PATIENCE, config, eventually, ok, start, take};
use headroom_gateway::{AdmissionClass, AdmissionConfig, BackendConfig, BackendState, GatewayConfig, Handle};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A server that holds each request until it is opened.
struct Gate {
    backend: Backend,
    is_open: Arc<AtomicBool>,
    /// The request lines, in the order in which they came.
    came: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    fn new() -> Self {
        let (is_open, came) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (open, coming) = (is_open.clone(), came.clone());
        let backend = Backend::http(move |request| {
            coming.lock().unwrap().push(request.start.clone());
            while !open.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(2));
            }
            ok("ok")
        });
        Self {
            backend,
            is_open,
            came,
        }
    }

    /// It gets one request at a time, and so many may wait for longer than this takes.
    fn gateway(&self, places: usize) -> GatewayConfig {
        let mut config = config(&[&self.backend]);
        config.threads = 4;
        config.limits.max_in_flight_per_backend = 1;
        config.limits.max_queued = places;
        config.timeouts.queue_timeout_ms = 60_000;
        config
    }

    fn has(&self, count: usize) -> bool {
        self.came.lock().unwrap().len() == count
    }
}

/// Asks for it on a connection of its own; the answer.
fn ask(front: SocketAddr, path: &str) -> JoinHandle<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(front).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

fn waiting(gateway: &Handle) -> u64 {
    take(gateway).queue.waiting
}

fn of_status(answers: &[String], status: &str) -> usize {
    answers.iter().filter(|answer| answer.contains(status)).count()
}

fn joined(asked: Vec<JoinHandle<String>>) -> Vec<String> {
    asked.into_iter().map(|one| one.join().unwrap()).collect()
}

#[test]
fn equals_are_served_in_the_order_they_came_whichever_thread_they_are_on() {
    let gate = Gate::new();
    let (gateway, front) = start(gate.gateway(100));
    let mut asked = vec![ask(front, "/0")];
    eventually("one is at the server", || gate.has(1));
    for number in 1..=24 {
        asked.push(ask(front, &format!("/{number}")));
        eventually("one more waits", || waiting(&gateway) == number);
    }
    gate.is_open.store(true, SeqCst);
    let answers = joined(asked);
    assert_eq!(of_status(&answers, " 200 "), 25, "{answers:?}");
    let in_order: Vec<String> = (0..=24).map(|number| format!("GET /{number} HTTP/1.1")).collect();
    assert_eq!(*gate.came.lock().unwrap(), in_order);
}

#[test]
fn nothing_important_is_turned_away_while_what_is_not_waits() {
    let gate = Gate::new();
    let class = |name: &str, paths: &[&str]| AdmissionClass {
        name: name.to_owned(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..AdmissionClass::default()
    };
    let mut config = gate.gateway(30);
    config.admission = AdmissionConfig {
        classes: vec![
            class("checkout", &["/pay"]),
            class("everybody", &[]),
            class("crawlers", &["/feed"]),
        ],
    };
    let (gateway, front) = start(config);
    let mut lesser = vec![ask(front, "/")];
    eventually("one is at the server", || gate.has(1));
    lesser.extend((0..40).map(|_| ask(front, "/")));
    let mut turned_away = [0; 2];
    let mut count = |ranks: [u64; 2], waits: u64| {
        eventually("all have come", || {
            let period = take(&gateway);
            for (sum, rank) in turned_away.iter_mut().zip(period.ranks) {
                *sum += rank.turned_away;
            }
            turned_away == ranks && period.queue.waiting == waits
        });
    };
    // Two thirds of the places are theirs.
    count([0, 20], 20);
    let important: Vec<_> = (0..25).map(|_| ask(front, "/pay/7")).collect();
    count([0, 35], 30);
    gate.is_open.store(true, SeqCst);
    let (important, lesser) = (joined(important), joined(lesser));
    assert_eq!(of_status(&important, " 200 "), 25, "{important:?}");
    assert_eq!(
        [of_status(&lesser, " 200 "), of_status(&lesser, " 503 ")],
        [6, 35],
        "{lesser:?}"
    );
    let came = gate.came.lock().unwrap();
    assert!(came[1..26].iter().all(|line| line.contains("/pay")), "{came:?}");
}

#[test]
fn what_a_connection_died_with_goes_back_to_a_server_with_room_while_the_others_are_full() {
    let gate = Gate::new();
    let served = Arc::new(AtomicUsize::new(0));
    let counted = served.clone();
    // Each other request kills its connection.
    let dying = Backend::raw(move |stream, _| {
        let mut reader = BufReader::new(stream);
        if Message::read(&mut reader, false).is_some() && counted.fetch_add(1, SeqCst) % 2 == 1 {
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    let mut config = gate.gateway(0);
    config.backends.push(BackendConfig::new(dying.url()));
    config.health.eject_after_failures = 0;
    let (gateway, front) = start(config);
    gateway.set_backend_state(1, BackendState::Drain).unwrap();
    let held = ask(front, "/held");
    eventually("the other one is full", || gate.has(1));
    gateway.set_backend_state(1, BackendState::Up).unwrap();
    let answers = (0..8)
        .map(|_| ask(front, "/").join().unwrap())
        .collect::<Vec<_>>();
    gate.is_open.store(true, SeqCst);
    assert!(held.join().unwrap().contains(" 200 "));
    assert_eq!(of_status(&answers, " 200 "), 8, "{answers:?}");
}

/// How a client ends its side of the connection before it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Not,
    /// It sends no more, and waits.
    Half,
    /// It has left, with no more than an end, as most do.
    Closed,
}

/// So many ask at once; how many of those that wait for it are answered by the server.
fn burst(front: SocketAddr, count: usize, ending: Ending) -> usize {
    let request = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let mut clients: Vec<_> = (0..count).map(|_| TcpStream::connect(front).unwrap()).collect();
    for client in &mut clients {
        client.write_all(request.as_bytes()).unwrap();
    }
    match ending {
        Ending::Closed => clients.clear(),
        Ending::Half => clients
            .iter()
            .for_each(|client| client.shutdown(std::net::Shutdown::Write).unwrap()),
        Ending::Not => {}
    }
    let answers: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).map(|_| answer).unwrap()
        })
        .collect();
    of_status(&answers, "HTTP/1.1 200")
}

#[test]
fn who_closes_his_side_and_waits_is_patient_and_who_has_left_is_not() {
    let backend = Backend::http(|_| {
        std::thread::sleep(Duration::from_millis(100));
        ok("ok")
    });
    let start = || {
        let mut config = config(&[&backend]);
        config.threads = 1;
        config.limits.max_in_flight_per_backend = 1;
        // Twice as long as ten take.
        config.timeouts.queue_timeout_ms = 2_000;
        start(config)
    };
    let (gateway, front) = start();
    for _ in 0..3 {
        assert_eq!(burst(front, 10, Ending::Half), 10);
    }
    assert_eq!(burst(front, 10, Ending::Not), 10);
    // Its places are for those that wait for less.
    drop(gateway);
    let (gateway, front) = start();
    for _ in 0..5 {
        burst(front, 10, Ending::Closed);
        eventually("all are over", || waiting(&gateway) == 0);
    }
    let answered = burst(front, 10, Ending::Not);
    assert!((1..10).contains(&answered), "{answered}");
}
