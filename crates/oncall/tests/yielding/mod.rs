//! Clients that yield, that are in transactions, and that wait for each other.

use super::common::{Client, Server, levers};
use headroom_oncall::Turns;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

/// MySQL's status flags: in a transaction, and with each statement one of its own.
pub const IN_TRANSACTION: &str = "status 1";
pub const NO_TRANSACTION: &str = "status 2";

/// A server that speaks first, as MySQL's does.
pub fn start_greeting() -> Server {
    Server::start(&["threaded_server", "greets"], levers(1, 1), None)
}

/// A client that says who it is as one of MySQL does, in pieces of so many bytes, and is in a transaction then.
pub fn in_transaction(server: &Server, piece: usize) -> Client {
    let mut client = server.connect();
    client.hear();
    let mut handshake = vec![40, 0, 0, 1, 0x85, 0xa6 & !8, 0xff, 1, 0, 0, 0, 1, 33];
    handshake.extend([0; 23]);
    handshake.extend(b"sbtest\0\0");
    for bytes in handshake.chunks(piece) {
        client.0.write_all(bytes).unwrap();
        client.hear();
    }
    assert_eq!(server.counted(&client).user.as_deref(), Some("sbtest"));
    tell(&mut client, IN_TRANSACTION);
    client
}

/// Has the server answer with status flags.
pub fn tell(client: &mut Client, status: &str) {
    client.say(status);
    client.0.read_exact(&mut [0; 11]).unwrap();
    client.hear();
}

pub fn give(server: &Server, client: &Client, turns: Turns) {
    server.steering.give(server.counted(client).place, turns);
}

/// How often each of `asked` and of four others is answered in 0.8 s in which all ask all the time.
pub fn in_a_while(server: &Server, asked: &mut Client) -> (u64, u64) {
    let mut others: Vec<_> = (0..4).map(|_| server.connect()).collect();
    others.iter_mut().for_each(Client::hear);
    let end = Instant::now() + Duration::from_millis(800);
    thread::scope(|scope| {
        let busy: Vec<_> = others
            .iter_mut()
            .map(|other| {
                scope.spawn(move || {
                    let mut count = 0;
                    while Instant::now() < end {
                        other.ask("spin 1000");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut count = 0;
        while Instant::now() < end {
            asked.ask("spin 1000");
            count += 1;
        }
        let others: u64 = busy.into_iter().map(|one| one.join().unwrap()).sum();
        (count, others / 4)
    })
}

/// Of one that a policy has seen.
pub const FIRST: Turns = Turns {
    batch: Some(1),
    yields: false,
    rests: false,
    pause: Duration::ZERO,
};

/// One that goes first waits inside a query for another connection, until with the lock of the server's that it wants is given back.
pub fn waiting_for_lock(server: &Server) -> (Client, Client) {
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.hear();
    waiter.hear();
    holder.ask("take");
    waiter.ask("spin 1");
    give(server, &waiter, FIRST);
    waiter.say("take");
    server.until("it waits inside its query", |server| {
        server.steering.totals().blocked == 1
    });
    (holder, waiter)
}

/// The lock is given back, and again by who waited for it.
pub fn hand_over(holder: &mut Client, waiter: &mut Client) {
    holder.ask("give");
    waiter.hear();
    waiter.ask("give");
}
