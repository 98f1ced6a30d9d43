//! Threads that are cancelled, or whose connections are ended by others, in servers in C.

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

/// A worker that is woken for the end of its connection may run when its place, and the word that it sleeps on, are another's.
#[test]
fn a_worker_whose_place_is_another_connections_already_does_not_sleep_on_its_word() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("reused_server.c", folder.path()) else {
        return;
    };
    let server = Server::start(&[program.to_str().unwrap()], levers(1, 1), None);
    let (mut first, mut second) = (server.connect(), server.connect());
    for client in [&mut first, &mut second] {
        client.ask("one");
        client.ask("two");
    }
    server.until("both are parked", |server| server.steering.totals().running == 0);
    let mut third = server.connect();
    first.ask("take");
    assert!(second.is_closed());
    for _ in 0..20 {
        third.ask("three");
    }
}
