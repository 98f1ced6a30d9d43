//! Who asks for locks that outlive a transaction, and of whom nothing is seen, yields to nobody while one that goes first waits.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;
#[allow(dead_code, reason = "each test program has its part of it")]
mod yielding;

use common::Client;
use headroom_oncall::Turns;
use std::io::Write;
use std::thread;
use std::time::Duration;
use yielding::{
    NO_TRANSACTION, give, hand_over, in_a_while, in_transaction, start_greeting, tell, waiting_for_lock,
};

const YIELDS: Turns = Turns {
    batch: None,
    yields: true,
    rests: false,
    pause: Duration::ZERO,
};

/// Asks a statement as MySQL's clients do.
fn query(client: &mut Client, statement: &str) {
    let mut packet = vec![statement.len() as u8 + 1, 0, 0, 0, 3];
    packet.extend(statement.as_bytes());
    client.0.write_all(&packet).unwrap();
    client.hear();
}

#[test]
fn who_has_locked_tables_goes_first_for_as_long_as_somebody_waits() {
    let server = start_greeting();
    let mut client = in_transaction(&server, 100);
    tell(&mut client, NO_TRANSACTION);
    query(&mut client, "LOCK TABLES t READ");
    give(&server, &client, YIELDS);
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 4 < others, "nobody waits: {own} {others}");
    let (mut holder, mut waiter) = waiting_for_lock(&server);
    // Longer than a wait counts for who is in a transaction.
    thread::sleep(Duration::from_millis(2_100));
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 2 > others, "{own} {others}");
    query(&mut client, "/* done */ unlock tables");
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 4 < others, "it has none any more: {own} {others}");
    hand_over(&mut holder, &mut waiter);
}

#[test]
fn who_cannot_be_seen_may_be_in_a_transaction() {
    let server = start_greeting();
    let mut client = server.connect();
    client.hear();
    // As MySQL's clients ask for TLS.
    let mut handshake = vec![32, 0, 0, 1, 0x85, 0xae, 0xff, 1, 0, 0, 0, 1, 33];
    handshake.extend([0; 23]);
    client.0.write_all(&handshake).unwrap();
    client.hear();
    assert_eq!(server.counted(&client).in_transaction, None);
    give(&server, &client, YIELDS);
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 4 < others, "nobody waits: {own} {others}");
    let (mut holder, mut waiter) = waiting_for_lock(&server);
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 2 > others, "{own} {others}");
    thread::sleep(Duration::from_millis(1_500));
    let (own, others) = in_a_while(&server, &mut client);
    assert!(
        own * 4 < others,
        "whoever waits for long waits for something else: {own} {others}"
    );
    hand_over(&mut holder, &mut waiter);
}
