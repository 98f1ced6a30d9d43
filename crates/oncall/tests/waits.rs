//! Servers that wait for their clients in ways of their own: none of them may be told anything that the kernel would not say.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Client, Server, compiled, levers};
use headroom_oncall::{Levers, Turns};
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

/// A server that waits so; `None` without a C compiler.
fn start(how: &str, levers: Levers) -> Option<Server> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("odd_server.c", folder.path())?;
    // The program is executed by the time that its folder goes.
    Some(Server::prepared(&program, levers, None, |command, _| {
        command.arg(how);
    }))
}

#[test]
fn who_waits_where_no_hook_sees_it_has_its_queries_all_the_same() {
    for how in ["two", "mask", "busy", "peek"] {
        for levers in [levers(1, 1), Levers::default()] {
            let Some(server) = start(how, levers) else { return };
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let mut client = server.connect();
                        (0..20).for_each(|_| client.ask("one"));
                    });
                }
            });
            server.until("all are counted, and nobody is left", |server| {
                let totals = server.steering.totals();
                let left = (totals.running, totals.waiting, totals.connections);
                totals.queries >= 3 * 19 && left == (0, 0, 0)
            });
        }
    }
}

#[test]
fn a_signal_whose_handler_has_calls_go_on_ends_no_read() {
    let lingering = Levers {
        linger: Duration::from_millis(20),
        ..levers(1, 8)
    };
    for (levers, pause) in [(levers(1, 1), 0), (lingering, 0), (levers(1, 1), 15)] {
        let Some(server) = start("alarm", levers) else {
            return;
        };
        let mut client = server.connect();
        client.ask("one");
        let pauses = Turns {
            batch: Some(1),
            yields: true,
            pause: Duration::from_millis(pause),
            ..Turns::default()
        };
        server.steering.give(server.counted(&client).place, pauses);
        let mut other = server.connect();
        for _ in 0..10 {
            client.ask("one");
            other.ask("one");
            thread::sleep(Duration::from_millis(12));
        }
    }
}

#[test]
fn any_signal_ends_a_poll() {
    for levers in [levers(1, 1), Levers::default()] {
        let Some(server) = start("ended", levers) else {
            return;
        };
        let mut client = server.connect();
        client.ask("one");
        client.ask("signal");
        // What it says of its own accord when the signal has come.
        client.hear();
        client.ask("one");
    }
}

#[test]
fn a_number_that_is_no_clients_any_more_is_read_as_any_other() {
    let cases = ["other", "timer"].map(|how| [(how, levers(1, 1)), (how, Levers::default())]);
    for (how, levers) in cases.into_iter().flatten() {
        let Some(server) = start(how, levers) else {
            return;
        };
        let mut client = server.connect();
        client.ask("one");
        client.ask("other");
        assert!(client.is_closed());
        server.until("its connection is none any more", |server| {
            server.steering.totals().connections == 0
        });
        server.connect().ask("wait");
    }
}

#[test]
fn what_came_together_is_answered_by_who_ends_where_nothing_more_is() {
    for levers in [levers(2, 1), levers(2, 8), Levers::default()] {
        let Some(server) = start("drain", levers) else {
            return;
        };
        for _ in 0..5 {
            let mut client = server.connect();
            client.0.write_all(b"q\nq\nq\n").unwrap();
            (0..3).for_each(|_| client.hear());
            assert!(client.is_closed());
        }
    }
}

#[test]
fn who_waited_for_a_client_that_was_ended_reads_nothing_of_the_next_one() {
    for levers in [levers(2, 1), levers(4, 1), Levers::default()] {
        let Some(server) = start("steal", levers) else {
            return;
        };
        let answer = |client: &mut Client| {
            let mut answer = [0; 3];
            client.say("q");
            client.0.read_exact(&mut answer).unwrap();
            String::from_utf8(answer.to_vec()).unwrap()
        };
        let mut first = server.connect();
        assert_eq!(answer(&mut first), "1k\n");
        // Its worker waits.
        thread::sleep(Duration::from_millis(50));
        let mut thief = server.connect();
        thief.say("steal");
        let mut next = server.connect();
        next.hear();
        for _ in 0..7 {
            assert_eq!(answer(&mut next), "2k\n");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(first.is_closed());
    }
}
