//! Classes of requests by the size of their answers: learned, sent by weights, counted.

#[path = "../common/mod.rs"]
mod common;

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Backend, Client, Message, config, eventually, start, take};
use headroom_gateway::{
    BackendChange, BackendState, ClassCounts, ClassRoute, Counts, GatewayConfig, PeriodStats, SizesConfig,
};

const SMALL: usize = 0;
const LARGE: usize = 1;
const UNKNOWN: usize = 2;

/// Answers paths under /small with 100 bytes, under /large with 100 000, and says who it is.
fn answer(name: &str, request: &Message) -> Vec<u8> {
    let body = match request.start.contains(" /large") {
        true => "x".repeat(100_000),
        false => "x".repeat(100),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nwho: {name}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let body = if request.start.starts_with("HEAD") {
        String::new()
    } else {
        body
    };
    (head + &body).into_bytes()
}

fn backend(name: &'static str) -> Backend {
    Backend::http(move |request| answer(name, request))
}

fn sized(backends: &[&Backend]) -> GatewayConfig {
    GatewayConfig {
        sizes: SizesConfig {
            bounds_bytes: vec![4096],
            ..SizesConfig::default()
        },
        ..config(backends)
    }
}

/// Weights without bounds.
fn of(rows: Vec<Vec<u32>>) -> Vec<ClassRoute> {
    rows.into_iter().map(Into::into).collect()
}

fn who(client: &mut Client, path: &str) -> String {
    let answer = client.get(path);
    assert_eq!(answer.status(), 200);
    assert!(answer.complete);
    answer.header("who").unwrap().to_owned()
}

fn ask(client: &mut Client, path: &str, times: usize) -> Vec<String> {
    (0..times).map(|_| who(client, path)).collect()
}

fn all(answers: &[String], name: &str) -> bool {
    answers.iter().all(|answer| answer == name)
}

/// What the law says of the classes: they add up, each and together, from a period with nothing in flight before it.
fn check(period: &PeriodStats) {
    let sum = |of: fn(&Counts) -> u64| period.sizes.iter().map(|class| of(&class.counts)).sum::<u64>();
    let fields: [fn(&Counts) -> u64; 14] = [
        |c| c.arrivals,
        |c| c.completions,
        |c| c.failures,
        |c| c.refused,
        |c| c.unreachable,
        |c| c.over_limit,
        |c| c.timed_out,
        |c| c.aborted_by_backend,
        |c| c.aborted_by_client,
        |c| c.failed_answers,
        |c| c.retries,
        |c| c.response_bytes,
        |c| c.in_flight,
        |c| c.statuses.iter().sum(),
    ];
    for (number, field) in fields.into_iter().enumerate() {
        assert_eq!(
            sum(field),
            field(&period.service),
            "field {number}: {:?}",
            period.service
        );
    }
    for class in &period.sizes {
        let counts = &class.counts;
        assert_eq!(
            counts.arrivals,
            counts.completions + counts.failures + counts.refused + counts.in_flight
        );
        assert_eq!(class.histogram.len(), counts.completions);
    }
    for (index, backend) in period.backends.iter().enumerate() {
        let sum = |of: fn(&headroom_gateway::ClassOnBackend) -> u64| {
            period
                .sizes
                .iter()
                .map(|class| of(&class.backends[index]))
                .sum::<u64>()
        };
        let counts = &backend.counts;
        assert_eq!(sum(|part| part.arrivals), counts.arrivals);
        assert_eq!(sum(|part| part.completions), counts.completions);
        assert_eq!(sum(|part| part.failures), counts.failures + counts.refused);
        assert_eq!(sum(|part| part.in_flight), counts.in_flight);
        assert_eq!(sum(|part| part.histogram.count()), counts.completions);
    }
}

fn sent(class: &ClassCounts) -> Vec<u64> {
    class.backends.iter().map(|part| part.arrivals).collect()
}

#[test]
fn what_is_known_goes_by_the_weights_of_its_class_and_what_is_not_as_configured() {
    let (a, b) = (backend("a"), backend("b"));
    let (gateway, address) = start(sized(&[&a, &b]));
    let mut client = Client::connect(address);
    gateway.set_routes(of(vec![vec![1, 0], vec![0, 1]])).unwrap();
    assert_eq!(gateway.routes(), of(vec![vec![1, 0], vec![0, 1]]));
    // Nobody asked for these yet: in turn.
    let first = [who(&mut client, "/small?q=1"), who(&mut client, "/large")];
    assert_eq!(first, ["a", "b"]);
    assert!(all(&ask(&mut client, "/small?q=2", 20), "a"));
    assert!(all(&ask(&mut client, "/large?q=3", 20), "b"));
    let period = take(&gateway);
    check(&period);
    assert_eq!(period.sizes.len(), 3);
    assert_eq!(sent(&period.sizes[UNKNOWN]), [1, 1]);
    assert_eq!(
        (sent(&period.sizes[SMALL]), sent(&period.sizes[LARGE])),
        (vec![20, 0], vec![0, 20])
    );
    let (small, large) = (&period.sizes[SMALL].counts, &period.sizes[LARGE].counts);
    assert_eq!((small.response_bytes, large.response_bytes), (2_000, 2_000_000));

    gateway.set_routes(of(vec![vec![1, 3], vec![0, 0]])).unwrap();
    ask(&mut client, "/small", 40);
    let large = ask(&mut client, "/large", 40);
    assert!(!all(&large, "a") && !all(&large, "b"), "no weight: as configured");
    let period = take(&gateway);
    check(&period);
    assert_eq!(sent(&period.sizes[SMALL]), [10, 30]);

    gateway.set_routes(Vec::new()).unwrap();
    let small = ask(&mut client, "/small", 10);
    assert!(
        !all(&small, "a") && !all(&small, "b"),
        "given back: as configured"
    );
}

#[test]
fn weights_that_fit_not_are_refused_and_change_nothing() {
    let (a, b) = (backend("a"), backend("b"));
    let (gateway, _) = start(sized(&[&a, &b]));
    gateway.set_routes(of(vec![vec![1, 0], vec![0, 1]])).unwrap();
    for (wrong, why) in [
        (vec![vec![1, 0]], "1 classes"),
        (vec![vec![1, 0]; 3], "3 classes"),
        (vec![vec![1], vec![1, 0]], "1 weights of a class"),
        (vec![vec![1, 0, 2], vec![1, 0]], "3 weights of a class"),
        (vec![vec![1, 1001], vec![1, 0]], "a weight of 1001"),
    ] {
        let error = gateway.set_routes(of(wrong)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(gateway.routes(), of(vec![vec![1, 0], vec![0, 1]]));
    let (plain, _) = start(config(&[&a]));
    assert!(plain.set_routes(Vec::new()).is_ok());
    let error = plain.set_routes(of(vec![vec![1]])).unwrap_err().to_string();
    assert!(error.contains("sizes.bounds_bytes"), "{error}");
    assert!(take(&plain).sizes.is_empty());
}

#[test]
fn a_head_and_a_refused_request_are_counted_and_teach_nothing() {
    let a = backend("a");
    let (gateway, address) = start(sized(&[&a]));
    let mut client = Client::connect(address);
    client.send("HEAD /large HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = Message::read(&mut client.reader, true).unwrap();
    assert_eq!(head.status(), 200);
    client.send("GET /small HTTP/1.1\r\nHost: test\r\nExpect: the-unexpected\r\n\r\n");
    assert_eq!(client.receive().status(), 417);
    let period = take(&gateway);
    check(&period);
    assert_eq!(
        (
            period.sizes[UNKNOWN].counts.arrivals,
            period.sizes[UNKNOWN].counts.refused
        ),
        (2, 1)
    );
    let mut client = Client::connect(address);
    who(&mut client, "/small");
    assert_eq!(take(&gateway).sizes[UNKNOWN].counts.arrivals, 1);
}

/// A server that can be made to die as one does: its connections end, and nobody listens.
fn mortal(name: &'static str) -> (Backend, Arc<AtomicBool>) {
    let dead = Arc::new(AtomicBool::new(false));
    let is_dead = Arc::clone(&dead);
    let server = Backend::raw(move |stream: TcpStream, _| {
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        while let Some(request) = Message::read(&mut reader, false) {
            if is_dead.load(Ordering::SeqCst) || writer.write_all(&answer(name, &request)).is_err() {
                return;
            }
        }
    });
    (server, dead)
}

#[test]
fn no_request_fails_when_the_backend_of_its_class_dies() {
    let ((a, dead), b) = (mortal("a"), backend("b"));
    let (gateway, address) = start(sized(&[&a, &b]));
    let mut client = Client::connect(address);
    ask(&mut client, "/small", 2);
    gateway.set_routes(of(vec![vec![1, 0], vec![1, 0]])).unwrap();
    assert!(all(&ask(&mut client, "/small", 5), "a"));
    dead.store(true, Ordering::SeqCst);
    drop(a);
    assert!(all(&ask(&mut client, "/small", 50), "b"));
    let period = take(&gateway);
    check(&period);
    assert_eq!(period.service.failures, 0);
    assert_eq!(period.service.completions, 57);
}

#[test]
fn a_drained_backend_is_not_sent_its_class_and_has_it_again_when_it_is_up() {
    let (a, b) = (backend("a"), backend("b"));
    let (gateway, address) = start(sized(&[&a, &b]));
    let mut client = Client::connect(address);
    ask(&mut client, "/small", 1);
    gateway.set_routes(of(vec![vec![1, 0], vec![1, 0]])).unwrap();
    for (change, name) in [
        (BackendState::Drain.into(), "b"),
        (BackendState::Up.into(), "a"),
        (BackendChange::Weight(0), "b"),
        (BackendChange::Weight(1), "a"),
    ] {
        gateway.set_backend_state(0, change).unwrap();
        assert!(all(&ask(&mut client, "/small", 10), name), "{change:?}");
    }
}

#[test]
fn a_class_whose_backend_is_at_its_limit_is_for_the_others() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let a = Backend::http(move |request| {
        while request.start.contains("slow") && !opened.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        answer("a", request)
    });
    let b = backend("b");
    let mut config = sized(&[&a, &b]);
    config.limits.max_in_flight_per_backend = 1;
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    ask(&mut client, "/small", 1);
    gateway.set_routes(of(vec![vec![1, 0], vec![1, 0]])).unwrap();
    assert_eq!(who(&mut client, "/small"), "a");
    // Of unknown size, so in turn: the second's, then the first's.
    assert_eq!(who(&mut client, "/slow1"), "b");
    let mut slow = Client::connect(address);
    slow.send("GET /slow2 HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("the first is at its limit", || {
        take(&gateway).backends[0].counts.in_flight == 1
    });
    assert!(all(&ask(&mut client, "/small", 10), "b"));
    gate.store(true, Ordering::SeqCst);
    slow.receive();
    eventually("the first has room", || {
        take(&gateway).backends[0].counts.in_flight == 0
    });
    assert!(all(&ask(&mut client, "/small", 10), "a"));
}

#[test]
fn a_backend_that_hangs_has_no_more_of_its_class_than_its_bound_over_all_cores() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let hangs = Arc::new(AtomicBool::new(false));
    let is_hung = Arc::clone(&hangs);
    let a = Backend::http(move |request| {
        while is_hung.load(Ordering::SeqCst) && !opened.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        answer("a", request)
    });
    let b = backend("b");
    let mut config = sized(&[&a, &b]);
    config.threads = 2;
    let (gateway, address) = start(config);
    // Each core has to learn the size.
    for _ in 0..8 {
        ask(&mut Client::connect(address), "/small", 4);
    }
    let bounded = |most: Vec<u32>| ClassRoute {
        weights: vec![1000, 0],
        most_in_flight: most,
    };
    for wrong in [vec![3], vec![3, 1, 1]] {
        let error = gateway
            .set_routes(vec![bounded(wrong); 2])
            .unwrap_err()
            .to_string();
        assert!(error.contains("bounds of a class"), "{error}");
    }
    gateway.set_routes(vec![bounded(vec![3, 16]); 2]).unwrap();
    assert!(all(&ask(&mut Client::connect(address), "/small", 10), "a"));
    take(&gateway);
    hangs.store(true, Ordering::SeqCst);
    let mut waiting: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    for client in &mut waiting {
        client.send("GET /small HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    eventually("as many as its bound are in flight", || {
        take(&gateway).backends[0].counts.in_flight == 3
    });
    // Whichever core they come to.
    for _ in 0..8 {
        assert!(all(&ask(&mut Client::connect(address), "/small", 3), "b"));
    }
    let period = take(&gateway);
    assert_eq!(sent(&period.sizes[SMALL]), [0, 24]);
    gate.store(true, Ordering::SeqCst);
    waiting
        .iter_mut()
        .for_each(|client| assert_eq!(client.receive().status(), 200));
    eventually("it has room", || take(&gateway).backends[0].counts.in_flight == 0);
    assert!(all(&ask(&mut Client::connect(address), "/small", 5), "a"));
}

#[test]
fn each_core_learns_for_itself_and_the_counts_of_all_add_up() {
    let (a, b) = (backend("a"), backend("b"));
    let mut config = sized(&[&a, &b]);
    config.threads = 2;
    config.failed_status = "404".parse().unwrap();
    let (gateway, address) = start(config);
    gateway.set_routes(of(vec![vec![1, 0], vec![0, 1]])).unwrap();
    let clients: Vec<_> = (0..8)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for turn in 0..25 {
                    let path = if (turn + number) % 2 == 0 {
                        "/small"
                    } else {
                        "/large"
                    };
                    client.get(path);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let period = take(&gateway);
    check(&period);
    assert_eq!(period.service.completions, 200);
    assert_eq!(
        (sent(&period.sizes[SMALL])[1], sent(&period.sizes[LARGE])[0]),
        (0, 0)
    );
    assert!(
        period.sizes[UNKNOWN].counts.arrivals < 40,
        "{:?}",
        period.sizes[UNKNOWN].counts
    );
    // A period that nobody used is in the next.
    let mut next = take(&gateway);
    next.add_earlier(&period);
    check(&next);
    assert_eq!(next.service.arrivals, 200);
}
