//! Backends that answer, and answer badly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::{Backend, Client, config, eventually, ok, start, take};
use headroom_gateway::{Balance, EjectionCause};

const ERROR: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

/// Answers each `every`th request with 500, at once, while `fails` is set.
fn fails(every: usize, fails: Arc<AtomicBool>, requests: Arc<AtomicUsize>) -> Backend {
    Backend::http(move |_| {
        let number = requests.fetch_add(1, SeqCst);
        match number.is_multiple_of(every) && fails.load(SeqCst) {
            true => ERROR.to_vec(),
            false => ok("well"),
        }
    })
}

#[test]
fn a_backend_that_fails_at_once_is_passed_over_until_it_answers_again() {
    // What chance makes must be told from it, beside one other backend.
    for (every, most) in [(1, 14), (3, 24)] {
        let (broken, requests) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let bad = fails(every, broken.clone(), requests.clone());
        let good = Backend::http(|_| ok("well"));
        let mut config = config(&[&bad, &good]);
        config.balance = Balance::LeastConnections;
        config.health.ejection_ms = 60_000;
        config.health.ejection_max_ms = 60_000;
        let (gateway, front) = start(config);
        let mut client = Client::connect(front);
        let failed = (0..400).filter(|_| client.get("/").status() == 500).count();
        assert!(
            failed <= most,
            "{failed} of 400 failed before it was passed over, one in {every} there"
        );
        let health = gateway.backends_health();
        assert_eq!(health[0].ejected_by, Some(EjectionCause::Failing));
        assert_eq!(health[1].ejected_by, None);
        assert_eq!(take(&gateway).backends[0].connects.ejected_failing, 1);
        let before = requests.load(SeqCst);
        (0..50).for_each(|_| assert_eq!(client.get("/").status(), 200));
        assert_eq!(requests.load(SeqCst), before, "nothing goes there");
    }
}

#[test]
fn one_request_at_a_time_shows_whether_it_is_back() {
    let (broken, requests) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let bad = fails(1, broken.clone(), requests.clone());
    let good = Backend::http(|_| ok("well"));
    let mut config = config(&[&bad, &good]);
    config.health.ejection_ms = 100;
    config.health.ejection_max_ms = 400;
    let (gateway, front) = start(config);
    let mut client = Client::connect(front);
    eventually("it is passed over", || {
        client.get("/");
        gateway.backends_health()[0].ejected_by.is_some()
    });
    take(&gateway);
    let (mut asked, mut failed) = (0, 0);
    let before = requests.load(SeqCst);
    eventually("it was tried three times more", || {
        asked += 1;
        failed += usize::from(client.get("/").status() == 500);
        requests.load(SeqCst) >= before + 3
    });
    assert_eq!(failed, 3, "of {asked} requests only those on trial");
    broken.store(false, SeqCst);
    eventually("it takes its part again", || {
        assert_eq!(client.get("/").status(), 200);
        gateway.backends_health()[0].ejected_by.is_none()
    });
    let before = requests.load(SeqCst);
    (0..40).for_each(|_| assert_eq!(client.get("/").status(), 200));
    assert!(
        requests.load(SeqCst) >= before + 19,
        "half of the requests are its own again"
    );
}

#[test]
fn where_all_fail_none_is_passed_over() {
    let broken = Arc::new(AtomicBool::new(true));
    let backends: Vec<_> = (0..3).map(|_| fails(2, broken.clone(), Arc::default())).collect();
    let (gateway, front) = start(config(&backends.iter().collect::<Vec<_>>()));
    let mut client = Client::connect(front);
    (0..600).for_each(|_| drop(client.get("/")));
    let period = take(&gateway);
    assert!(
        period
            .backends
            .iter()
            .all(|backend| backend.connects.ejected_failing == 0)
    );
    assert!(period.service.failed_answers >= 250);
}
