//! The preload library in a server with a process per connection.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Client, PATIENCE, Server, counted_share, levers, load, starve, ten_queries};
use headroom_oncall::Levers;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How the servers accept and wait: see the example.
const KINDS: [[&str; 3]; 6] = [
    ["forking_server", "parent", "epoll"],
    ["forking_server", "parent", "poll"],
    ["forking_server", "parent", "select"],
    ["forking_server", "parent", "read"],
    ["forking_server", "40", "poll"],
    ["forking_server", "40", "read"],
];

fn start(levers: Levers) -> Server {
    Server::start(&KINDS[0], levers, None)
}

/// The process that serves a client.
fn worker(server: &Server, client: &Client) -> u32 {
    server.counted(client).tid.unwrap()
}

fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn everybody_is_served_and_no_more_run_than_may_however_the_server_accepts_and_waits() {
    let settings = [
        (1, 1, 0, 0),
        (2, 4, 200, 0),
        (2, 8, 100, 1500),
        (u32::MAX, 1, 0, 0),
    ];
    for (at, kind) in KINDS.iter().enumerate() {
        let (concurrency, batch, linger_us, delay_us) = settings[at % settings.len()];
        let levers = Levers {
            linger: Duration::from_micros(linger_us),
            delay: Duration::from_micros(delay_us),
            ..levers(concurrency, batch)
        };
        let server = Server::start(kind, levers, None);
        thread::scope(|scope| {
            let ends = scope.spawn(|| load(&server, 30, 40, "spin 50"));
            while !ends.is_finished() {
                let running = server.steering.totals().running;
                assert!(running <= concurrency, "{kind:?}: {running} of {concurrency}");
                thread::sleep(Duration::from_micros(200));
            }
        });
        let totals = server.steering.totals();
        assert!(
            totals.by_processes && totals.processes >= 30,
            "{kind:?}: {}",
            totals.processes
        );
        assert!(totals.queries >= 30 * 39, "{kind:?}: {}", totals.queries);
        assert_eq!((totals.unmanaged, totals.event_driven), (0, 0), "{kind:?}");
        assert_eq!(totals.owner, server.child.id());
        server.until("slots and places are free", |server| {
            let totals = server.steering.totals();
            (totals.running, totals.waiting, totals.connections) == (0, 0, 0)
        });
        if delay_us > 0 {
            assert!(totals.rounds >= 3, "{}", totals.rounds);
        }
    }
}

#[test]
fn what_is_counted_of_a_connection_is_its_own() {
    let server = start(levers(2, 2));
    let one = ten_queries(&server);
    assert_ne!(one.tid, Some(server.child.id()));
}

#[test]
fn a_worker_that_is_killed_leaves_its_slot_and_its_place() {
    let server = start(levers(1, 1));
    let mut other = server.connect();
    other.ask("spin 1");
    for round in 0..10 {
        let (mut killed, mut waiting) = (server.connect(), server.connect());
        killed.ask("spin 1");
        waiting.ask("spin 1");
        let waits = worker(&server, &waiting);
        match round % 2 {
            // With the slot in hand, by itself.
            0 => killed.say("die"),
            // From outside, while another worker waits behind it, which is killed as well.
            _ => {
                server.until("all slots are free", |server| {
                    server.steering.totals().running == 0
                });
                killed.say("spin 60000000");
                server.until("it runs", |server| server.steering.totals().running == 1);
                let before = server.steering.totals().queries;
                waiting.say("spin 1");
                // On a busy machine the other may have lost its slot for computing for so long, and this one had its turn.
                server.until("one waits, or was answered", |server| {
                    let totals = server.steering.totals();
                    totals.waiting == 1 || totals.queries > before
                });
                kill(waits, "-KILL");
                kill(worker(&server, &killed), "-KILL");
            }
        }
        assert!(killed.is_closed());
        let began = Instant::now();
        other.ask("spin 1");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
    server.until("their places are free", |server| {
        server.steering.command(levers(1, 1), None);
        server.steering.totals().connections == 1
    });
    assert!(server.steering.totals().buried >= 15);
}

#[test]
fn kills_at_any_time_stop_nobody_else() {
    let server = start(levers(2, 2));
    thread::scope(|scope| {
        let ends = scope.spawn(|| load(&server, 16, 400, "spin 30"));
        let mut kills = 0;
        while !ends.is_finished() {
            // Clients of their own, whose workers are killed wherever they are: under the lock, too.
            let mut victims: Vec<_> = (0..4).map(|_| server.connect()).collect();
            victims.iter_mut().for_each(|victim| victim.ask("spin 1"));
            let pids: Vec<_> = victims.iter().map(|victim| worker(&server, victim)).collect();
            victims.iter_mut().for_each(|victim| victim.say("spin 20"));
            pids.into_iter().for_each(|pid| kill(pid, "-KILL"));
            kills += 4;
        }
        assert!(kills > 0);
    });
    server.until("nothing is lost", |server| {
        server.steering.command(levers(2, 2), None);
        let totals = server.steering.totals();
        (totals.running, totals.waiting, totals.connections) == (0, 0, 0)
    });
}

#[test]
fn a_worker_that_blocks_in_a_query_gives_its_slot_to_who_can_end_that() {
    for (waits, ends) in [("take", "give"), ("latch", "fill"), ("pipe", "fill")] {
        let server = start(levers(1, 1));
        let mut holder = server.connect();
        holder.ask("take");
        let mut waiters: Vec<_> = (0..10).map(|_| server.connect()).collect();
        waiters.iter_mut().for_each(|waiter| waiter.ask("spin 1"));
        waiters.iter_mut().for_each(|waiter| waiter.say(waits));
        server.until("all wait", |server| {
            let totals = server.steering.totals();
            // The slot of one that sleeps where no hook sees it is taken when somebody wants it.
            totals.given_back + totals.reclaimed >= if waits == "pipe" { 9 } else { 10 }
        });
        // Without a slot of theirs, this would never be answered.
        match waits {
            "take" => holder.ask(ends),
            _ => (0..10).for_each(|_| holder.ask(ends)),
        }
        thread::scope(|scope| {
            for waiter in &mut waiters {
                scope.spawn(|| {
                    waiter.hear();
                    if waits == "take" {
                        waiter.ask("give");
                    }
                });
            }
        });
        server.until("no slot is lost", |server| server.steering.totals().running == 0);
    }
}

#[test]
fn a_worker_that_runs_programs_goes_on() {
    for kind in [KINDS[0], KINDS[4]] {
        let server = Server::start(&kind, levers(1, 1), None);
        load(&server, 6, 10, "run");
        let mut client = server.connect();
        client.ask("run");
        client.ask("spin 1");
        let totals = server.steering.totals();
        // Those programs, and what was forked for them, are not on call.
        assert!(totals.forks >= 61, "{}", totals.forks);
        assert_eq!(totals.unmanaged, 0);
        server.until("one is there, and no slot is taken", |server| {
            let totals = server.steering.totals();
            (totals.connections, totals.running) == (1, 0)
        });
    }
}

#[test]
fn without_a_regulator_everybody_runs_when_the_lease_ends() {
    let server = Server::start(&KINDS[0], levers(1, 1), Some(Duration::from_millis(500)));
    let (mut long, mut other) = (server.connect(), server.connect());
    long.ask("spin 1");
    other.ask("spin 1");
    long.say("spin 6000000");
    thread::sleep(Duration::from_millis(50));
    // It stands in line, and is let go when the lease ends.
    let began = Instant::now();
    other.ask("spin 1");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_connection_with_no_turn_has_one_after_twenty_seconds() {
    let server = start(levers(1, 1));
    let (mut starved, mut other) = (server.connect(), server.connect());
    starved.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    starved.ask("spin 1");
    starve(&server, &starved);
    other.ask("spin 1");
    let began = Instant::now();
    starved.say("spin 1");
    (0..50).for_each(|_| other.ask("spin 100"));
    assert_eq!(server.steering.totals().waiting, 1);
    starved.hear();
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(20), "{waited:?}");
    server.until("its slot is free again", |server| {
        server.steering.totals().running == 0
    });
}

#[test]
fn a_stopped_worker_stops_nobody_else() {
    let server = start(levers(1, 1));
    let (mut stopped, mut other) = (server.connect(), server.connect());
    stopped.ask("spin 1");
    other.ask("spin 1");
    let pid = worker(&server, &stopped);
    server.until("all slots are free", |server| {
        server.steering.totals().running == 0
    });
    stopped.say("spin 1000000");
    server.until("it runs", |server| server.steering.totals().running == 1);
    kill(pid, "-STOP");
    let began = Instant::now();
    (0..20).for_each(|_| other.ask("spin 10"));
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    kill(pid, "-CONT");
    stopped.hear();
}

#[test]
fn a_stopped_watchman_is_replaced() {
    let server = start(levers(1, 1));
    let (mut holder, mut watchman, mut other) = (server.connect(), server.connect(), server.connect());
    // Others hold a slot for some seconds in the mean: a query of a second is not a long one, whose slot is taken.
    (0..2).for_each(|_| holder.ask("spin 2000000"));
    [&mut watchman, &mut other]
        .into_iter()
        .for_each(|client| client.ask("spin 1"));
    server.until("all slots are free", |server| {
        server.steering.totals().running == 0
    });
    let (holds, waits) = (worker(&server, &holder), worker(&server, &watchman));
    holder.say("spin 100000");
    server.until("it runs", |server| server.steering.totals().running == 1);
    watchman.say("spin 1");
    server.until("one waits", |server| server.steering.totals().waiting == 1);
    kill(waits, "-STOP");
    kill(holds, "-STOP");
    // Nobody but another who waits can take the slot of the one that is stopped.
    let began = Instant::now();
    (0..20).for_each(|_| other.ask("spin 10"));
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    kill(waits, "-CONT");
    kill(holds, "-CONT");
    watchman.hear();
    holder.hear();
}

#[test]
fn what_waits_for_a_processor_is_late_whether_anybody_is_on_call_or_not() {
    for levers in [Levers::default(), levers(1_000, 1)] {
        let share = counted_share(&start(levers));
        assert!((0.7..1.2).contains(&share), "{share} of what clients waited");
    }
}
