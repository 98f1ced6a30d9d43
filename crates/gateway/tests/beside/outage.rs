//! A backend of two refuses connections, and is then there again and fails each request at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::clients::{Asking, Counts, ask};
use crate::common::{Backend, eventually, ok};
use crate::products::{Kind, Product, Setup, beside};

const CLIENTS: usize = 4;
const TIMES: usize = 600;
const PAUSE: Duration = Duration::from_millis(2);
const ERROR: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

#[derive(Debug)]
struct Outage {
    refusing: Counts,
    failing: Counts,
}

fn outage(kind: Kind, retry_all: bool) -> Outage {
    // Bound, so that nobody else is there, and not listened at.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let good = Backend::http(|_| ok("well"));
    let product = Product::start(
        kind,
        &Setup {
            check: true,
            retry_all,
            ..Setup::new(vec![address, good.address])
        },
    );
    let refusing = ask(product.address, CLIENTS, TIMES, PAUSE);
    socket.listen(128).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let _bad = Backend::http_on(socket.into(), move |request| {
        match request.start.contains("/health") {
            true => ok("well"),
            false => {
                count.fetch_add(1, SeqCst);
                ERROR.to_vec()
            }
        }
    });
    let mut client = Asking::at(product.address);
    eventually("it takes its part again", || {
        client.get("/");
        asked.load(SeqCst) > 0
    });
    let failing = ask(product.address, CLIENTS, TIMES, PAUSE);
    Outage { refusing, failing }
}

#[test]
fn a_backend_that_is_away_or_fails_costs_no_more_requests_than_behind_haproxy() {
    let (ours, theirs) = beside("outage", |kind| outage(kind, false));
    assert_eq!(ours.refusing.failed, 0, "{ours:?}");
    assert!(ours.failing.failed * 20 < ours.failing.requests(), "{ours:?}");
    let Some(theirs) = theirs else { return };
    // A hundredth: which of the two is asked first is left to chance.
    let margin = ours.failing.requests() / 100;
    assert!(ours.refusing.failed <= theirs.refusing.failed, "{theirs:?}");
    assert!(
        ours.failing.failed <= theirs.failing.failed + margin,
        "{ours:?}, {theirs:?}"
    );
    println!(
        "outage: haproxy with retry-on all-retryable-errors {:?}",
        outage(Kind::Haproxy, true)
    );
}
