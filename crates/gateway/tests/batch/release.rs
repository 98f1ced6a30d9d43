//! A batch passes no faster than what is behind answers: nobody is refused for having been held.

use crate::common::{Backend, Client, eventually, gateway_with, ok, take};
use headroom_gateway::{BatchCounts, GatewayConfig, Handle};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A backend that takes so long for each of its requests, any number of them at a time, and knows how many at most there were at once.
struct Slow {
    handle: Handle,
    address: SocketAddr,
    most: Arc<AtomicUsize>,
    _backend: Backend,
}

impl Slow {
    fn new(takes: Duration, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let (now, most) = (AtomicUsize::new(0), Arc::<AtomicUsize>::default());
        let peak = most.clone();
        let backend = Backend::http(move |_| {
            peak.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(takes);
            now.fetch_sub(1, SeqCst);
            ok("x")
        });
        let (handle, address) = gateway_with(&backend, change);
        Self {
            handle,
            address,
            most,
            _backend: backend,
        }
    }

    /// Sends so many requests, each for another page, spread evenly over a time.
    fn send(&self, requests: usize, over: Duration) -> Vec<Client> {
        let begun = Instant::now();
        (0..requests)
            .map(|number| {
                let at = begun + over * number as u32 / requests as u32;
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                let mut client = Client::connect(self.address);
                client.send(format!("GET /{number} HTTP/1.1\r\nHost: test\r\n\r\n"));
                client
            })
            .collect()
    }

    /// The most at once since the last time.
    fn most(&self) -> usize {
        self.most.swap(0, SeqCst)
    }
}

fn all_answered(clients: Vec<Client>) {
    for mut client in clients {
        assert_eq!(client.receive().status(), 200);
    }
}

#[test]
fn nobody_is_refused_for_having_been_held() {
    // 20 may be in the gateway at once, and many more are held.
    let slow = Slow::new(Duration::from_millis(2), |config| {
        config.batch.interval_ms = Some(500);
        config.batch.max_wait_ms = 10_000;
        config.limits.max_in_flight_per_backend = 4;
        config.limits.max_queued = 16;
    });
    all_answered(slow.send(200, Duration::from_millis(400)));
    let period = take(&slow.handle);
    assert_eq!((period.queue.full, period.batch.full), (0, 0));
    assert!(slow.most() <= 4);
}

#[test]
fn a_backend_meets_few_of_a_batch_at_once() {
    let slow = Slow::new(Duration::from_millis(20), |config| {
        config.batch.interval_ms = Some(500);
        config.batch.max_wait_ms = 10_000;
    });
    for _ in 0..3 {
        all_answered(slow.send(200, Duration::from_millis(500)));
    }
    // 400 requests per second of 20 ms: eight in flight without batches, and four times that.
    let most = slow.most();
    assert!(most < 100, "{most}");
}

#[test]
fn a_service_that_takes_its_time_is_asked_in_parallel() {
    let slow = Slow::new(Duration::from_millis(250), |config| {
        config.batch.interval_ms = Some(400);
        config.batch.max_wait_ms = 10_000;
    });
    let mut most = Vec::new();
    for _ in 0..4 {
        all_answered(slow.send(80, Duration::from_millis(400)));
        most.push(slow.most());
    }
    // The first may meet few. As soon as the response time is known, a batch is on its way as a whole.
    assert!(most[1..].iter().any(|most| *most > 32), "{most:?}");
}

#[test]
fn those_behind_one_that_is_stuck_go_soon_and_by_themselves_at_last() {
    // (the longest wait, how many are to be on their way while nobody is answered, whether any had to go by itself)
    for (max_wait_ms, together, is_expired) in [(60_000, 8, false), (250, 60, true)] {
        let slow = Slow::new(Duration::from_secs(4), |config| {
            config.batch.interval_ms = Some(200);
            config.batch.max_wait_ms = max_wait_ms;
        });
        let clients = slow.send(60, Duration::from_millis(100));
        let mut batch = BatchCounts::default();
        eventually("they are asked for together", || {
            batch += take(&slow.handle).batch;
            slow.most.load(SeqCst) >= together
        });
        assert_eq!(batch.expired > 0, is_expired, "{batch:?}");
        all_answered(clients);
        eventually("the batches are over", || {
            batch += take(&slow.handle).batch;
            batch.answered == batch.batches
        });
    }
}

#[test]
fn there_is_time_for_the_answer_in_what_is_promised() {
    for (target_ms, is_expired) in [(Some(250), true), (None, false)] {
        let slow = Slow::new(Duration::from_millis(100), |config| {
            config.batch.interval_ms = Some(120);
            config.batch.max_wait_ms = 60_000;
            config.target_ms = target_ms;
        });
        // What an answer takes is known from the batches before.
        for _ in 0..3 {
            all_answered(slow.send(20, Duration::from_millis(20)));
        }
        let before = take(&slow.handle).batch;
        assert_eq!(before.expired, 0);
        // Spread over an interval the last of these would go when what is promised is over. Where the machine is busy a batch takes so long
        // that it goes before.
        let mut batch = BatchCounts::default();
        for _ in 0..5 {
            all_answered(slow.send(200, Duration::from_millis(100)));
            batch += take(&slow.handle).batch;
            if batch.expired > 0 || !is_expired {
                break;
            }
        }
        assert_eq!(batch.expired > 0, is_expired, "{batch:?}");
    }
}

#[test]
fn those_that_are_stuck_are_not_waited_for() {
    let backend = Backend::http(|request| {
        if request.start.contains("stuck") {
            std::thread::sleep(Duration::from_secs(9));
        }
        ok("x")
    });
    let (handle, address) = gateway_with(&backend, |config| {
        config.batch.interval_ms = Some(100);
        config.batch.max_wait_ms = 8_000;
    });
    let get = |target: &str| {
        let mut client = Client::connect(address);
        client.send(format!("GET /{target} HTTP/1.1\r\nHost: test\r\n\r\n"));
        client
    };
    let stuck: Vec<Client> = (0..20).map(|number| get(&format!("stuck{number}"))).collect();
    std::thread::sleep(Duration::from_millis(150));
    let begun = Instant::now();
    for number in 0..5 {
        assert_eq!(get(&format!("{number}")).receive().status(), 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(take(&handle).batch.expired, 0);
    drop(stuck);
}

#[test]
fn failures_that_come_fast_do_not_let_go_what_is_held() {
    // The first answers are good, so that the window is known to be open; then all fail at once.
    let begun = Instant::now();
    let (seen, is_away) = (
        Arc::<Mutex<Vec<Duration>>>::default(),
        Arc::new(AtomicBool::new(false)),
    );
    let (told, away) = (seen.clone(), is_away.clone());
    let backend = Backend::http(move |_| {
        told.lock().unwrap().push(begun.elapsed());
        match away.load(SeqCst) {
            true => b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_vec(),
            false => ok("x"),
        }
    });
    let (handle, address) = gateway_with(&backend, |config| {
        config.batch.interval_ms = Some(500);
        config.batch.max_wait_ms = 10_000;
    });
    let slow = Slow {
        handle,
        address,
        most: Arc::default(),
        _backend: backend,
    };
    all_answered(slow.send(50, Duration::from_millis(200)));
    is_away.store(true, SeqCst);
    seen.lock().unwrap().clear();
    for mut client in slow.send(100, Duration::from_millis(200)) {
        assert_eq!(client.receive().status(), 503);
    }
    // Spread over the interval after that in which they were held, but for what went before the first failure.
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    let half = seen[10 + (seen.len() - 10) / 2] - seen[10];
    let all = seen[seen.len() - 1] - seen[10];
    assert!(seen.len() >= 90, "{}", seen.len());
    assert!(
        all > Duration::from_millis(150) && half > all / 4,
        "half of them within {half:?}, all within {all:?}"
    );
}
