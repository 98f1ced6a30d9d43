//! Threads that are cancelled, in a server in C.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Server, compiled, levers};

#[test]
fn a_cancelled_worker_ends_where_it_is_and_its_slot_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("cancelled_server.c", folder.path()) else {
        return;
    };
    let server = Server::start(&[program.to_str().unwrap()], levers(1, 1), None);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("one");
    }
    server.until("all are parked", |server| server.steering.totals().running == 0);
    let [parked, held, last, other] = &mut clients[..] else {
        unreachable!("there are four");
    };
    // One that sleeps until its client's next query: poll(2), in which it is for the server, is a cancellation point.
    other.ask("cancel 0");
    assert!(parked.is_closed());
    // One that sleeps in the midst of a query. (Its slot is taken from it after some milliseconds.)
    held.say("hold");
    other.ask("two");
    other.ask("cancel 1");
    assert!(held.is_closed());
    // And all others are served as before.
    for _ in 0..100 {
        last.ask("three");
        other.ask("four");
    }
    server.until("no slot is lost", |server| {
        let totals = server.steering.totals();
        totals.running == 0 && totals.waiting == 0 && totals.connections == 2
    });
}
