//! Servers that are stopped while they are idle: their clients wait, and that is recorded.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Client, Server, levers};
use headroom_oncall::Levers;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 16;

/// Sends a signal to all of a server's processes.
fn signal(server: &Server, signal: &str) {
    let group = format!("-{}", server.child.id());
    let status = Command::new("kill").args([signal, "--", &group]).status();
    assert!(status.unwrap().success());
}

/// What is counted of clients' latencies, seconds.
fn counted(server: &Server, clients: &[Client]) -> f64 {
    let of = |client| server.counted(client).latency.get();
    clients.iter().map(of).sum()
}

/// What is counted of the latencies of clients that ask while an idle server is stopped for a second, over what they waited by their own clocks.
fn counted_share(server: &Server) -> f64 {
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        (0..3).for_each(|_| client.ask("spin 1"));
    }
    // It is idle for long.
    thread::sleep(Duration::from_millis(300));
    let before = (counted(server, &clients), server.steering.totals().queries);
    signal(server, "-STOP");
    thread::sleep(Duration::from_millis(30));
    let waited: f64 = thread::scope(|scope| {
        let ask = |client: &mut Client| {
            let began = Instant::now();
            client.ask("spin 1");
            began.elapsed().as_secs_f64()
        };
        let all: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(move || ask(client)))
            .collect();
        thread::sleep(Duration::from_secs(1));
        signal(server, "-CONT");
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    server.until("all are counted", |server| {
        server.steering.totals().queries >= before.1 + CLIENTS as u64
    });
    (counted(server, &clients) - before.0) / waited
}

#[test]
fn what_clients_wait_for_a_server_that_was_stopped_while_it_was_idle_is_recorded() {
    let delayed = Levers {
        delay: Duration::from_millis(5),
        ..levers(2, 1)
    };
    let lingering = Levers {
        linger: Duration::from_millis(1),
        ..levers(2, 8)
    };
    let on_call = [levers(2, 1), lingering, delayed];
    let threads: [&[&str]; 3] = [
        &["threaded_server"],
        &["threaded_server", "read"],
        &["threaded_server", "select"],
    ];
    let processes: [&[&str]; 3] = [
        &["forking_server", "parent", "epoll"],
        &["forking_server", "parent", "poll"],
        &["forking_server", "40", "read"],
    ];
    // At once, for they do nothing but wait.
    thread::scope(|scope| {
        for kind in threads.into_iter().chain(processes) {
            for levers in on_call.into_iter().chain([Levers::default()]) {
                scope.spawn(move || {
                    let share = counted_share(&Server::start(kind, levers, None));
                    assert!((0.5..1.1).contains(&share), "{kind:?}, {levers:?}: {share}");
                });
            }
        }
    });
}
