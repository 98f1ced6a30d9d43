//! A limit of requests in flight over several threads is one limit.

use std::io::{BufReader, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::clients::{Asking, Counts, ask_anew, crowd};
use crate::common::{Backend, Message, ok};
use crate::products::{Kind, Product, Setup, beside};

const THREADS: usize = 4;
const LIMIT: usize = 8;
const CLIENTS: usize = 64;
/// How often all places are to be taken, by many clients and by as many as there are places.
const MANY: usize = 50;
const ROUNDS: usize = 10;
/// How long a backend waits for its places to be taken.
const ENOUGH: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Places {
    /// How often they are to be taken together; then nobody waits.
    turns: usize,
    in_flight: usize,
    most: usize,
    /// Those of them that wait for the others.
    wait: usize,
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
        places.in_flight += 1;
        places.most = places.most.max(places.in_flight);
        let turn = places.full;
        if turn < places.turns {
            places.wait += 1;
        }
        if places.wait == LIMIT {
            places.full += 1;
            places.wait = 0;
            changed.notify_all();
        } else if turn < places.turns {
            let waits = |places: &mut Places| places.full == turn;
            let (after, late) = changed.wait_timeout_while(places, ENOUGH, waits).unwrap();
            places = after;
            if late.timed_out() {
                places.wait -= 1;
                places.alone += 1;
            }
        }
        drop(places);
        // One too many would come meanwhile.
        std::thread::sleep(Duration::from_millis(5));
        of.0.lock().unwrap().in_flight -= 1;
        ok("together")
    });
    let setup = Setup {
        threads: THREADS,
        max_in_flight: LIMIT,
        ..Setup::new(vec![backend.address])
    };
    let product = Product::start(kind, &setup);
    let turns = |turns| shared.0.lock().unwrap().turns = turns;
    turns(MANY);
    // Until it is done, and not so many times each: in the end too few would have some left.
    let many = crowd(CLIENTS, |counts| {
        let mut client = Asking::at(product.address);
        while shared.0.lock().unwrap().full < MANY {
            counts.count(client.is_answered("/"));
        }
    });
    turns(MANY + ROUNDS);
    let few = ask_anew(product.address, LIMIT, ROUNDS);
    let places = std::mem::take(&mut *shared.0.lock().unwrap());
    Limited { many, few, places }
}

#[test]
fn all_places_of_a_limit_are_used_and_no_more_whichever_threads_have_the_clients() {
    let (ours, theirs) = beside("a limit of 8", limited);
    assert_eq!((ours.many.failed, ours.few.failed), (0, 0), "{ours:?}");
    assert_eq!(ours.places.most, LIMIT, "{ours:?}");
    assert_eq!(ours.places.full, MANY + ROUNDS, "{ours:?}");
    assert_eq!(ours.places.alone, 0, "{ours:?}");
    if let Some(theirs) = theirs {
        assert_eq!(theirs.places.most, LIMIT, "{theirs:?}");
        assert!(ours.places.alone <= theirs.places.alone, "{theirs:?}");
        let failed = (theirs.many.failed, theirs.few.failed);
        assert!((ours.many.failed, ours.few.failed) <= failed, "{theirs:?}");
    }
}

#[derive(Debug)]
struct Single {
    counts: Counts,
    most_requests: usize,
    opened: usize,
}

fn single(kind: Kind) -> Single {
    let (now, most_requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let busiest = most_requests.clone();
    let backend = Backend::raw(move |mut stream, _| {
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
        most_requests: most_requests.load(SeqCst),
        opened: backend.connections(),
    }
}

#[test]
fn a_limit_of_one_is_one_connection() {
    let (ours, theirs) = beside("a limit of 1", single);
    assert_eq!(ours.counts.failed, 0, "{ours:?}");
    assert_eq!(ours.most_requests, 1, "{ours:?}");
    // The threads hand it to each other. It is exceeded rather than that a request fails, where one does not run for a quarter of a second:
    // where none handed it over, most requests would open one.
    assert!(ours.opened <= 16, "{ours:?}");
    if let Some(theirs) = theirs {
        assert_eq!(theirs.most_requests, 1, "{theirs:?}");
        assert!(ours.counts.failed <= theirs.counts.failed, "{theirs:?}");
    }
}
