//! The line of those that wait, over several threads, in front of a server that answers nothing until it is told to.

use super::common::{Backend, Message, PATIENCE, config, eventually, ok, start, take};
use headroom_gateway::{AdmissionClass, AdmissionConfig, BackendConfig, BackendState, GatewayConfig, Handle};
use std::io::{BufRead, BufReader, Read, Write};
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
    /// The same, and resets the connection once it has read its answer.
    HalfAndReset,
    /// It has left, with no more than an end, as most do.
    Closed,
}

/// So many ask at once; the answers of those that wait for them.
fn ask_at_once(front: SocketAddr, count: usize, ending: Ending) -> Vec<String> {
    let request = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let mut clients: Vec<_> = (0..count).map(|_| TcpStream::connect(front).unwrap()).collect();
    for client in &mut clients {
        client.write_all(request.as_bytes()).unwrap();
    }
    match ending {
        Ending::Closed => clients.clear(),
        Ending::Half | Ending::HalfAndReset => clients
            .iter()
            .for_each(|client| client.shutdown(std::net::Shutdown::Write).unwrap()),
        Ending::Not => {}
    }
    // Each reads as its answer comes.
    let reading = clients.into_iter().map(|client| {
        std::thread::spawn(move || {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut answer, mut reader) = (Vec::new(), BufReader::new(client));
            match ending {
                Ending::HalfAndReset => {
                    while !answer.ends_with(b"\r\n\r\nok")
                        && reader.read_until(b'k', &mut answer).unwrap() > 0
                    {}
                    let socket = socket2::SockRef::from(reader.get_ref());
                    socket.set_linger(Some(Duration::ZERO)).unwrap();
                }
                // One that is cut short may be reset.
                _ => drop(reader.read_to_end(&mut answer)),
            }
            String::from_utf8(answer).unwrap()
        })
    });
    joined(reading.collect())
}

/// So many ask at once; how many of those that wait for it are answered by the server.
fn burst(front: SocketAddr, count: usize, ending: Ending) -> usize {
    of_status(&ask_at_once(front, count, ending), "HTTP/1.1 200")
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

#[test]
fn who_took_its_answer_has_not_left_however_the_connection_ends() {
    let is_cut = Arc::<AtomicBool>::default();
    let cuts = is_cut.clone();
    let backend = Backend::raw(move |stream, _| {
        let mut reader = BufReader::new(stream);
        if Message::read(&mut reader, false).is_some() {
            std::thread::sleep(Duration::from_millis(100));
            let length = if cuts.load(SeqCst) { 100 } else { 2 };
            let answer =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\nok");
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    for (ending, is_cut_short) in [(Ending::HalfAndReset, false), (Ending::Half, true)] {
        let mut config = config(&[&backend]);
        config.threads = 1;
        config.limits.max_in_flight_per_backend = 1;
        config.timeouts.queue_timeout_ms = 2_000;
        let (_gateway, front) = start(config);
        is_cut.store(is_cut_short, SeqCst);
        for _ in 0..5 {
            ask_at_once(front, 10, ending);
        }
        is_cut.store(false, SeqCst);
        assert_eq!(burst(front, 10, Ending::Not), 10, "cut short: {is_cut_short}");
    }
}

#[test]
fn whose_time_is_up_in_the_line_has_not_left() {
    let backend = Backend::http(|_| {
        std::thread::sleep(Duration::from_millis(100));
        ok("ok")
    });
    let mut config = config(&[&backend]);
    config.threads = 1;
    config.limits.max_in_flight_per_backend = 1;
    config.timeouts.queue_timeout_ms = 1_500;
    config.timeouts.request_timeout_ms = 500;
    let (_gateway, front) = start(config);
    for _ in 0..8 {
        let answers = ask_at_once(front, 12, Ending::Not);
        assert_eq!(of_status(&answers, "HTTP/1.1 503"), 0, "{answers:?}");
        assert!(of_status(&answers, "HTTP/1.1 504") >= 4, "{answers:?}");
    }
}

#[test]
fn an_answer_to_a_client_that_only_closed_its_side_and_left_is_one_to_nobody() {
    let backend = Backend::http(|_| {
        std::thread::sleep(Duration::from_millis(200));
        ok("ok")
    });
    let (gateway, front) = start(config(&[&backend]));
    for (ending, to_nobody) in [(Ending::Half, 0), (Ending::HalfAndReset, 0), (Ending::Closed, 10)] {
        ask_at_once(front, 10, ending);
        let (mut answered, mut found) = (0, 0);
        eventually("all are over", || {
            let counts = take(&gateway).backends[0].counts;
            answered += counts.completions;
            found += counts.answered_to_nobody;
            answered == 10 && found >= to_nobody
        });
        assert_eq!(found, to_nobody);
    }
}
