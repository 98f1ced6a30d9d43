//! A limit of requests in flight over several threads is one limit.

use std::io::{BufReader, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::clients::{Counts, ask, ask_anew};
use crate::common::{Backend, Message, ok};
use crate::products::{Kind, Product, Setup, beside};

const THREADS: usize = 4;
const LIMIT: usize = 8;
const CLIENTS: usize = 64;
const TIMES: usize = 6;
const ROUNDS: usize = 10;
/// How long a backend waits for its places to be taken.
const ENOUGH: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Places {
    now: usize,
    most: usize,
    /// How often all places were taken, and then given free together.
    full: usize,
    /// Requests that were answered although places stayed free.
    alone: usize,
}

#[derive(Debug)]
struct Limited {
    many: Counts,
    few: Counts,
    places: Places,
}

/// Asks a backend that answers only when all its places are taken: where places stay free while others wait it goes on only after
/// [`ENOUGH`]. First [`CLIENTS`] at a time; then as many as there are places, of whom the threads have unequal shares, so that a part of the
/// limit for each thread would be too little for some.
fn limited(kind: Kind) -> Limited {
    let shared = Arc::new((Mutex::new(Places::default()), Condvar::new()));
    let of = shared.clone();
    let backend = Backend::http(move |_| {
        let (places, changed) = &*of;
        let mut places = places.lock().unwrap();
        places.now += 1;
        places.most = places.most.max(places.now);
        let turn = places.full;
        if places.now >= LIMIT {
            places.full += 1;
            places.now = 0;
            changed.notify_all();
        } else {
            let waits = |places: &mut Places| places.full == turn;
            let (mut after, late) = changed.wait_timeout_while(places, ENOUGH, waits).unwrap();
            if late.timed_out() {
                after.now -= 1;
                after.alone += 1;
            }
        }
        ok("together")
    });
    let setup = Setup {
        threads: THREADS,
        max_in_flight: LIMIT,
        ..Setup::new(vec![backend.address])
    };
    let product = Product::start(kind, &setup);
    let many = ask(product.address, CLIENTS, TIMES, Duration::ZERO);
    let few = ask_anew(product.address, LIMIT, ROUNDS);
    let places = std::mem::take(&mut *shared.0.lock().unwrap());
    Limited { many, few, places }
}

#[test]
fn all_places_of_a_limit_are_used_and_no_more_whichever_threads_have_the_clients() {
    let (ours, theirs) = beside("a limit of 8", limited);
    for limited in [Some(&ours), theirs.as_ref()].into_iter().flatten() {
        assert_eq!((limited.many.failed, limited.few.failed), (0, 0), "{limited:?}");
        assert_eq!(limited.places.most, LIMIT, "{limited:?}");
        assert_eq!(
            limited.places.full,
            CLIENTS * TIMES / LIMIT + ROUNDS,
            "{limited:?}"
        );
        assert_eq!(limited.places.alone, 0, "{limited:?}");
    }
}

#[derive(Debug)]
struct Single {
    counts: Counts,
    most_connections: usize,
    most_requests: usize,
    opened: usize,
}

/// Whether the other side has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let mut byte = [MaybeUninit::uninit(); 1];
    match socket2::SockRef::from(stream).recv_with_flags(&mut byte, flags) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

fn single(kind: Kind) -> Single {
    let connections: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let most_connections = Arc::new(AtomicUsize::new(0));
    let (now, most_requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (largest, busiest) = (most_connections.clone(), most_requests.clone());
    let backend = Backend::raw(move |mut stream, _| {
        {
            // Those that are open as the kernel knows it: a thread here may not have heard yet of the end of its own.
            let mut connections = connections.lock().unwrap();
            connections.retain(is_open);
            connections.push(stream.try_clone().unwrap());
            largest.fetch_max(connections.len(), SeqCst);
        }
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            busiest.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            now.fetch_sub(1, SeqCst);
            if stream.write_all(&ok("one")).is_err() {
                return;
            }
        }
    });
    let setup = Setup {
        threads: THREADS,
        max_in_flight: 1,
        ..Setup::new(vec![backend.address])
    };
    let product = Product::start(kind, &setup);
    let counts = ask_anew(product.address, 8, 20);
    Single {
        counts,
        most_connections: most_connections.load(SeqCst),
        most_requests: most_requests.load(SeqCst),
        opened: backend.connections(),
    }
}

#[test]
fn a_limit_of_one_is_one_connection() {
    let (ours, theirs) = beside("a limit of 1", single);
    assert_eq!(ours.counts.failed, 0, "{ours:?}");
    assert_eq!((ours.most_connections, ours.most_requests), (1, 1), "{ours:?}");
    assert!(ours.opened > 1, "one thread alone had requests: {ours:?}");
    if let Some(theirs) = theirs {
        assert_eq!((theirs.counts.failed, theirs.most_requests), (0, 1), "{theirs:?}");
        assert!(theirs.most_connections >= ours.most_connections, "{theirs:?}");
    }
}
