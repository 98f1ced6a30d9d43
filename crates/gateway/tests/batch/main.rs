//! The gateway with its batcher, before raw servers and raw clients: what is held, what goes first, and that nobody waits for ever.

#[path = "../common/mod.rs"]
mod common;
mod release;
mod workers;

use common::{Backend, Client, Message, eventually, gateway_with, ok, take};
use headroom_gateway::{BatchKey, GatewayConfig, Handle};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A backend that notes what it is asked for, in order, behind a gateway that holds requests for an interval.
struct Batched {
    handle: Handle,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _backend: Backend,
}

impl Batched {
    fn new(interval_ms: u64, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let notes = asked.clone();
        let backend = Backend::http(move |request| {
            let target = request.start.split(' ').nth(1).unwrap().to_owned();
            notes.lock().unwrap().push(target.clone());
            ok(&target)
        });
        let (handle, address) = gateway_with(&backend, |config| {
            config.batch.interval_ms = Some(interval_ms);
            // One connection at a time to the backend shows the order in which requests reach it.
            config.limits.max_in_flight_per_backend = 1;
            change(config);
        });
        Self {
            handle,
            address,
            asked,
            _backend: backend,
        }
    }

    fn send(&self, request: &str) -> Client {
        let mut client = Client::connect(self.address);
        client.send(request);
        client
    }

    fn get(&self, target: &str) -> Client {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }

    /// Waits until so many requests are in the gateway.
    fn held(&self, requests: u64) {
        let mut arrived = 0;
        eventually("they are there", || {
            let period = take(&self.handle);
            arrived += period.service.arrivals;
            arrived >= requests
        });
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[test]
fn the_largest_group_goes_first_and_of_equal_ones_that_which_began_first() {
    let batched = Batched::new(800, |_| {});
    // The first request begins the first interval; those that follow it are in the second.
    assert_eq!(batched.get("/first").receive().text(), "/first");
    let mut clients = Vec::new();
    for target in [
        "/one", "/two?x=1", "/three", "/two?x=1", "/three", "/three", "/four", "/two?x=2",
    ] {
        clients.push((target, batched.get(target)));
        batched.held(1);
    }
    for (target, client) in &mut clients {
        assert_eq!(client.receive().text(), *target);
    }
    let order = [
        "/first", "/three", "/three", "/three", "/two?x=1", "/two?x=1", "/one", "/four", "/two?x=2",
    ];
    assert_eq!(batched.asked(), order);
    let period = take(&batched.handle);
    let batch = period.batch;
    assert_eq!((batch.full, batch.expired), (0, 0));
}

#[test]
fn what_is_counted_is_what_was_held() {
    let batched = Batched::new(300, |config| config.batch.key = BatchKey::Path);
    let mut clients: Vec<Client> = ["/a?1", "/a?2", "/b"].map(|target| batched.get(target)).into();
    clients.iter_mut().for_each(|client| drop(client.receive()));
    let mut batch = take(&batched.handle).batch;
    eventually("all are answered", || {
        batch = {
            let more = take(&batched.handle).batch;
            let mut sum = batch;
            sum += more;
            sum
        };
        batch.answered == batch.batches
    });
    assert_eq!(batch.requests, 3);
    assert!(batch.groups >= 2 && batch.batches >= 1, "{batch:?}");
    // Of each interval what the processing of the batch before left.
    assert!(
        batch.waiting_us > 0 && batch.waiting_us <= 300_000 * batch.batches,
        "{batch:?}"
    );
    assert!(batch.processing_us > 0);
}

#[test]
fn what_is_not_safe_passes_at_once() {
    let batched = Batched::new(900, |config| config.batch.max_wait_ms = 10_000);
    let begun = Instant::now();
    for request in [
        "POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n",
        "DELETE /a HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx",
    ] {
        assert_eq!(batched.send(request).receive().status(), 200);
    }
    let passed = begun.elapsed();
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(batched.get("/a").receive().status(), 200);
    }
    assert!(
        passed < begun.elapsed() / 2,
        "{passed:?} of {:?}",
        begun.elapsed()
    );
}

#[test]
fn nobody_waits_longer_than_may_be_and_no_more_are_held() {
    let batched = Batched::new(5_000, |config| config.batch.max_wait_ms = 5_000);
    assert_eq!(batched.handle.batch_interval(), Some(Duration::from_secs(5)));
    // Above what may be waited it is bounded; zero holds nothing.
    let minute = Duration::from_secs(60);
    assert_eq!(
        batched.handle.set_batch_interval(minute),
        Some(Duration::from_secs(5))
    );
    assert_eq!(
        batched.handle.set_batch_interval(Duration::ZERO),
        Some(Duration::ZERO)
    );
    let begun = Instant::now();
    assert_eq!(batched.get("/").receive().status(), 200);
    assert!(begun.elapsed() < Duration::from_secs(3));

    let batched = Batched::new(3_000, |config| {
        config.batch.max_wait_ms = 3_000;
        config.batch.max_held = 2;
    });
    let (mut one, mut two) = (batched.get("/held"), batched.get("/held"));
    batched.held(2);
    let begun = Instant::now();
    assert_eq!(batched.get("/passes").receive().text(), "/passes");
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(
        (one.receive().text(), two.receive().text()),
        ("/held".into(), "/held".into())
    );
    assert_eq!(batched.asked(), ["/passes", "/held", "/held"]);
}

#[test]
fn a_client_that_goes_away_is_in_no_group() {
    let batched = Batched::new(700, |_| {});
    assert_eq!(batched.get("/first").receive().text(), "/first");
    let gone: Vec<Client> = (0..3).map(|_| batched.get("/gone")).collect();
    batched.held(4);
    gone.into_iter().for_each(Client::reset);
    let mut stays = batched.get("/stays");
    assert_eq!(stays.receive().text(), "/stays");
    assert_eq!(batched.asked(), ["/first", "/stays"]);
    let mut in_flight = 1;
    eventually("none is left", || {
        in_flight = take(&batched.handle).service.in_flight;
        in_flight == 0
    });
}

#[test]
fn a_group_is_fetched_once_where_there_is_a_cache_behind() {
    [true, false].into_iter().for_each(fetched_once);
}

fn fetched_once(collapse: bool) {
    let asked: Arc<Mutex<usize>> = Arc::default();
    let counter = asked.clone();
    let backend = Backend::http(move |_: &Message| {
        *counter.lock().unwrap() += 1;
        b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 1\r\n\r\nx".to_vec()
    });
    let (handle, address) = gateway_with(&backend, |config| {
        config.batch.interval_ms = Some(300);
        config.cache.bytes = 4 << 20;
        config.cache.collapse = collapse;
    });
    let ask = |_| {
        let mut client = Client::connect(address);
        client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        client
    };
    let mut clients: Vec<Client> = (0..10).map(ask).collect();
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.receive().text(), "x"));
    assert_eq!(*asked.lock().unwrap(), 1);
    let period = take(&handle);
    assert_eq!((period.cache.misses, period.cache.hits), (1, 9));
}

#[test]
fn an_interval_above_the_promise_is_refused_with_its_place() {
    let refused = |change: fn(&mut GatewayConfig)| {
        let mut config = GatewayConfig {
            backends: vec![headroom_gateway::BackendConfig::new("http://127.0.0.1:1")],
            ..GatewayConfig::default()
        };
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    let above_target = refused(|config| {
        config.batch.interval_ms = Some(300);
        config.target_ms = Some(250);
    });
    assert!(
        above_target.starts_with("batch.interval_ms = 300"),
        "{above_target}"
    );
    let above_wait = refused(|config| config.batch.interval_ms = Some(2_000));
    assert!(above_wait.starts_with("batch.interval_ms = 2000"), "{above_wait}");
}

#[test]
fn a_client_that_waits_for_no_longer_is_not_held() {
    let batched = Batched::new(4_000, |config| config.batch.max_wait_ms = 5_000);
    // It begins an interval, so that the others come at its start.
    let mut first = batched.get("/held");
    batched.held(1);
    let begun = Instant::now();
    let hasty = |target: &str, field: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n");
        batched.send(&request).receive().text()
    };
    assert_eq!(hasty("/hasty", "X-Envoy-Expected-Rq-Timeout-Ms: 300"), "/hasty");
    assert_eq!(hasty("/hasty2", "Prefer: wait=1"), "/hasty2");
    assert_eq!(batched.asked(), ["/hasty", "/hasty2"]);
    let hasty_took = begun.elapsed();
    assert_eq!(first.receive().text(), "/held");
    assert!(hasty_took < begun.elapsed());
}

#[test]
fn a_batcher_that_is_off_holds_nothing_until_it_is_given_an_interval() {
    let batched = Batched::new(0, |config| config.target_ms = Some(800));
    assert_eq!(batched.handle.batch_interval(), Some(Duration::ZERO));
    assert_eq!(batched.get("/").receive().text(), "/");
    assert_eq!(
        take(&batched.handle).batch,
        headroom_gateway::BatchCounts::default()
    );
    // Not more than half of the promise.
    let longest = Duration::from_millis(400);
    assert_eq!(
        batched.handle.set_batch_interval(Duration::from_secs(9)),
        Some(longest)
    );
    assert_eq!(batched.get("/").receive().text(), "/");
    assert_eq!(take(&batched.handle).batch.requests, 1);

    let backend = Backend::http(|_: &Message| b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec());
    let (without, _) = gateway_with(&backend, |_| {});
    assert_eq!(without.set_batch_interval(longest), None);
    assert_eq!(without.set_cache_bytes(1 << 20), None);
}

#[test]
fn those_that_are_held_are_told_from_those_that_the_backend_has() {
    let batched = Batched::new(60_000, |config| config.batch.max_wait_ms = 60_000);
    let clients: Vec<Client> = (0..5).map(|number| batched.get(&format!("/{number}"))).collect();
    let there = || {
        let period = take(&batched.handle);
        (period.service.in_flight, period.batch.held)
    };
    eventually("all are held", || there() == (5, 5));
    // What is not safe is not held.
    let mut post = batched.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(post.receive().status(), 200);
    eventually("it is answered", || there() == (5, 5));
    clients.into_iter().for_each(Client::reset);
    eventually("their clients have gone", || there() == (0, 0));
}
