//! Connections that die with a request on them: what is sent again, and how much of it. Under load, with processes that are
//! killed, beside HAProxy: `tests/beside/kill.rs`.

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::{Backend, Client, Message, config, start, take};

/// A backend that closes each connection when it has read a request.
fn dies(requests: Arc<AtomicUsize>) -> Backend {
    Backend::raw(move |stream, _| {
        // It lives until the request is counted: the gateway answers as soon as the connection ends.
        let mut reader = BufReader::new(stream);
        if Message::read(&mut reader, false).is_some() {
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
