//! Queries that the server fails are counted apart from those that it answers.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;
#[allow(dead_code, reason = "each test program has its part of it")]
mod yielding;

use common::{Client, Server, levers};
use std::io::Read;
use yielding::{in_transaction, start_greeting};

/// Asks so often for an error with this number, of which `ok` is the end.
fn fail(client: &mut Client, number: u16, times: usize) {
    for _ in 0..times {
        client.say(&format!("fails {number}"));
        client.0.read_exact(&mut [0; 13]).unwrap();
        client.hear();
    }
}

/// Of a server: queries, failures, and those with a latency, once so many were answered.
fn counted(server: &Server, queries: u64) -> [u64; 3] {
    server.until("all are counted", |server| {
        server.steering.totals().queries == queries
    });
    let totals = server.steering.totals();
    [totals.queries, totals.failures, totals.latencies.iter().sum()]
}

#[test]
fn what_the_server_fails_has_no_latency_and_what_it_refuses_has() {
    let server = start_greeting();
    // Its handshake and one query.
    let mut client = in_transaction(&server, 100);
    // Got an error from the storage engine; duplicate key.
    fail(&mut client, 1030, 5);
    fail(&mut client, 1062, 3);
    client.ask("spin 1");
    assert_eq!(counted(&server, 11), [11, 5, 6]);
    let one = server.counted(&client);
    assert_eq!((one.queries, one.failures, one.recent.len()), (11, Some(5), 6));
    // The last one ends with the connection.
    client.say("ends 1030");
    client.0.read_exact(&mut [0; 13]).unwrap();
    assert!(client.is_closed());
    assert_eq!(counted(&server, 12), [12, 6, 6]);
    // So does one that is answered.
    let mut client = in_transaction(&server, 100);
    client.say("ends 1062");
    client.0.read_exact(&mut [0; 13]).unwrap();
    assert!(client.is_closed());
    assert_eq!(counted(&server, 15), [15, 6, 9]);
}

#[test]
fn a_status_of_500_and_more_is_a_failure() {
    let server = Server::start(&["threaded_server"], levers(1, 1), None);
    let mut client = server.connect();
    for status in [200, 503, 404, 500] {
        let mut line = [0; 14];
        client.say(&format!("http {status}"));
        client.0.read_exact(&mut line).unwrap();
        assert!(line.starts_with(b"HTTP/1.1 "));
        client.hear();
    }
    assert_eq!(counted(&server, 4), [4, 2, 2]);
    let one = server.counted(&client);
    assert_eq!((one.failures, one.in_transaction), (Some(2), None));
}

#[test]
fn what_is_not_read_has_no_failures() {
    let server = Server::start(&["threaded_server"], levers(1, 1), None);
    let mut client = server.connect();
    fail(&mut client, 1030, 3);
    assert_eq!(counted(&server, 3), [3, 0, 3]);
    assert_eq!(server.counted(&client).failures, None);
}
