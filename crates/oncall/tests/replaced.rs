//! Servers of threads whose serving process is replaced: killed and started again, or reloaded while it serves its last clients.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Server, compiled, levers, load};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The server; `None` without a C compiler.
fn start() -> Option<Server> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("replaced_server.c", folder.path())?;
    Some(Server::prepared(&program, levers(1, 1), None, |_, _| {}))
}

fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn after_a_process_that_was_killed_the_next_one_is_on_call() {
    let Some(server) = start() else { return };
    let mut owners = Vec::new();
    for round in 1..=4 {
        // With its slot taken, another that waits for it, and one that is parked.
        let [mut busy, mut waiting, mut parked] = [(); 3].map(|()| server.connect());
        for client in [&mut busy, &mut waiting, &mut parked] {
            client.ask("one");
            client.ask("two");
        }
        let totals = server.steering.totals();
        assert!(totals.connections == 3 && !totals.owner_ended, "{round}");
        assert!(!owners.contains(&totals.owner), "{round}");
        owners.push(totals.owner);
        busy.say("for ever");
        waiting.say("three");
        server.until("one runs, and one waits", |server| {
            let totals = server.steering.totals();
            (totals.running, totals.waiting) == (1, 1)
        });
        kill(totals.owner, "-KILL");
        for client in [&mut busy, &mut waiting, &mut parked] {
            assert!(client.is_closed());
        }
        server.until("nobody is on call", |server| server.steering.totals().owner_ended);
        // What was counted stays, and nobody is left who waits for ever.
        let now = server.steering.totals();
        assert!(now.queries >= totals.queries);
        assert_eq!((now.running, now.waiting, now.connections), (0, 0, 0));
        assert_eq!(server.steering.oldest_waiting(), None);
        load(&server, 4, 20, "one");
        server.until("all are counted, and nobody is left", |server| {
            let now = server.steering.totals();
            let left = (now.running, now.waiting, now.connections);
            now.queries >= totals.queries + 4 * 19 && left == (0, 0, 0)
        });
        let totals = server.steering.totals();
        assert_eq!((totals.buried, totals.elsewhere), (3 * round, 0));
    }
}

#[test]
fn a_process_is_on_call_when_the_one_before_it_has_served_its_last_client() {
    let Some(server) = start() else { return };
    let mut last = server.connect();
    (0..10).for_each(|_| last.ask("one"));
    let owner = server.steering.totals().owner;
    kill(server.child.id(), "-USR1");
    server.until("the next one serves", |server| {
        server.connect().ask("one");
        server.steering.totals().elsewhere > 0
    });
    let mut between = server.connect();
    let before = server.steering.totals();
    for _ in 0..20 {
        last.ask("one");
        between.ask("one");
    }
    let since = server.steering.totals().since(&before);
    assert!((19..=21).contains(&since.queries), "{}", since.queries);
    assert_eq!(
        (since.owner, since.owner_ended, since.connections),
        (owner, false, 1)
    );
    drop(last);
    server.until("nobody is on call", |server| server.steering.totals().owner_ended);
    between.ask("one");
    // Its other threads end a moment later.
    thread::sleep(Duration::from_millis(200));
    let before = server.steering.totals();
    assert_eq!(before.owner, owner);
    // The first that comes from then on.
    let mut next = server.connect();
    for _ in 0..20 {
        next.ask("one");
        between.ask("one");
    }
    let totals = server.steering.totals();
    assert_eq!((totals.owner_ended, totals.connections), (false, 1));
    assert!(![0, owner].contains(&totals.owner));
    let since = totals.since(&before);
    assert!((19..=21).contains(&since.queries), "{}", since.queries);
    assert!(totals.queries > before.queries);
}
