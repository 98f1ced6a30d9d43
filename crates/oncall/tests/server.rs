//! The preload library in a server with a thread per connection.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Client, PATIENCE, Server, counted_share, levers, load, ten_queries};
use headroom_oncall::Levers;
use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

fn start(levers: Levers, lease: Option<Duration>) -> Server {
    Server::start(&["threaded_server"], levers, lease)
}

#[test]
fn everybody_is_served_and_no_more_run_than_may() {
    for (concurrency, batch, linger_us, delay_us) in [
        (1, 1, 0, 0),
        (2, 4, 200, 0),
        (2, 8, 100, 1500),
        (1, 2, 0, 2000),
        (u32::MAX, 1, 0, 0),
    ] {
        let levers = Levers {
            linger: Duration::from_micros(linger_us),
            delay: Duration::from_micros(delay_us),
            ..levers(concurrency, batch)
        };
        let server = start(levers, None);
        thread::scope(|scope| {
            let ends = scope.spawn(|| load(&server, 40, 50, "spin 50"));
            while !ends.is_finished() {
                let running = server.steering.totals().running;
                assert!(running <= concurrency, "{running} of {concurrency}");
                thread::sleep(Duration::from_micros(200));
            }
        });
        let totals = server.steering.totals();
        // The end of a connection's last answer is noticed with its close.
        assert!(totals.queries >= 40 * 49, "{}", totals.queries);
        assert_eq!((totals.unmanaged, totals.event_driven), (0, 0));
        // What a client asks with its connection is read before its worker ever waits, and perhaps what it asks next until a worker was seen
        // to wait.
        assert!(totals.without_slot <= 3 * 40, "{}", totals.without_slot);
        server.until("slots are free and nobody waits", |server| {
            let totals = server.steering.totals();
            (totals.running, totals.waiting, totals.connections) == (0, 0, 0)
        });
        if delay_us > 0 {
            assert!(totals.rounds >= 3, "{}", totals.rounds);
        }
    }
}

#[test]
fn a_worker_that_waits_for_a_lock_gives_its_slot_to_who_has_it() {
    let server = start(levers(1, 1), None);
    let mut holder = server.connect();
    holder.ask("take");
    let mut waiters: Vec<_> = (0..20).map(|_| server.connect()).collect();
    waiters.iter_mut().for_each(|waiter| waiter.ask("spin 1"));
    waiters.iter_mut().for_each(|waiter| waiter.say("take"));
    server.until("all wait for the lock", |server| {
        server.steering.totals().given_back >= 20
    });
    // Its slot is there for whoever has the lock: without it, this would never be answered.
    holder.ask("give");
    thread::scope(|scope| {
        for waiter in &mut waiters {
            scope.spawn(|| {
                waiter.hear();
                waiter.ask("give");
            });
        }
    });
}

#[test]
fn a_wait_that_no_hook_sees_costs_its_slot_too() {
    let server = start(levers(1, 1), None);
    let (mut blocked, mut other) = (server.connect(), server.connect());
    other.ask("spin 1");
    blocked.ask("spin 1");
    blocked.say("pipe");
    let end = Instant::now() + PATIENCE;
    while server.steering.totals().reclaimed == 0 {
        assert!(Instant::now() < end, "its slot is never taken");
        other.ask("spin 1");
    }
    other.ask("fill");
    blocked.hear();
    other.ask("spin 1");
    server.until("no slot is lost", |server| server.steering.totals().running == 0);
}

#[test]
fn clients_that_go_away_and_threads_that_end_leave_no_slot_taken() {
    let server = start(levers(2, 4), None);
    for round in 0..30 {
        let mut client = server.connect();
        client.ask("spin 10");
        match round % 3 {
            0 => client.say("vanish"),
            1 => client.say("spin 3000"),
            _ => {}
        }
    }
    load(&server, 20, 20, "spin 20");
    server.until("all slots are free", |server| {
        server.steering.totals().running == 0
    });
    assert_eq!(server.steering.totals().waiting, 0);
}

#[test]
fn what_came_with_a_query_is_served_after_it() {
    for (concurrency, batch, linger_us) in [(1, 1, 0), (2, 2, 200), (u32::MAX, 1, 0)] {
        let levers = Levers {
            linger: Duration::from_micros(linger_us),
            ..levers(concurrency, batch)
        };
        let server = start(levers, None);
        // The server reads 64 bytes at once: each of these is a query of its own, and all of them are there with the first.
        let four = format!("{:<63}\n", "spin 10").repeat(4);
        for round in 0..20 {
            let mut client = server.connect();
            client.ask("spin 10");
            client.0.write_all(four.as_bytes()).unwrap();
            (0..4).for_each(|_| client.hear());
            // So is the end of its client.
            if round % 2 == 0 {
                client.say("spin 2000");
                client.0.shutdown(Shutdown::Write).unwrap();
                client.hear();
                assert!(client.is_closed());
            }
        }
        server.until("all are gone", |server| server.steering.totals().connections == 0);
    }
}

#[test]
fn a_parked_worker_keeps_the_servers_own_timeout() {
    let server = start(levers(1, 1), None);
    let mut client = server.connect();
    client.ask("patience 100");
    let began = Instant::now();
    assert!(client.is_closed());
    assert!(
        began.elapsed() >= Duration::from_millis(90),
        "{:?}",
        began.elapsed()
    );
    server.until("it is gone", |server| server.steering.totals().connections == 0);
}

#[test]
fn a_server_that_forks_goes_on() {
    let server = start(levers(1, 1), None);
    let mut client = server.connect();
    client.ask("fork");
    client.ask("spin 1");
    load(&server, 8, 10, "fork");
    assert!(server.steering.totals().forks >= 81);
}

#[test]
fn without_a_regulator_everybody_runs_when_the_lease_ends() {
    // C of 1 and a worker that computes for longer than the lease: nobody else would be served.
    let server = start(levers(1, 1), Some(Duration::from_millis(300)));
    let mut long = server.connect();
    long.ask("spin 1");
    let mut other = server.connect();
    other.ask("spin 1");
    long.say("spin 6000000");
    thread::sleep(Duration::from_millis(400));
    let began = Instant::now();
    other.ask("spin 1");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_query_that_computes_for_long_holds_nobody_up() {
    for delay in [Duration::ZERO, Duration::from_millis(2)] {
        let levers = Levers {
            delay,
            ..levers(1, 1)
        };
        let server = start(levers, None);
        let (mut long, mut short) = (server.connect(), server.connect());
        short.ask("spin 1");
        long.say("spin 8000000");
        thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        (0..20).for_each(|_| short.ask("spin 100"));
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        long.hear();
    }
}

/// With many cores some query always runs: a round that everybody may join would have no end, and there would be no delay.
#[test]
fn a_round_with_a_delay_ends_though_some_query_always_runs() {
    let levers = Levers {
        delay: Duration::from_millis(30),
        ..levers(8, 1000)
    };
    let server = start(levers, None);
    let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("spin 1");
    }
    let (before, until) = (server.steering.totals(), Instant::now() + Duration::from_secs(3));
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || {
                while Instant::now() < until {
                    client.ask("spin 3000");
                }
            });
        }
    });
    let since = server.steering.totals().since(&before);
    assert!(since.rounds >= 8, "{} rounds", since.rounds);
    assert!(since.queries >= 5 * since.rounds, "{} queries", since.queries);
}

#[test]
fn a_delay_of_seconds_ends_with_the_lease_that_nobody_renews() {
    let levers = Levers {
        delay: Duration::from_secs(15),
        ..levers(1, 1)
    };
    let server = start(levers, Some(Duration::from_secs(1)));
    let mut client = server.connect();
    // The first queries of a connection may be read without a wait, and so without a round.
    let mut asked = (0..50).map(|_| {
        let began = Instant::now();
        client.ask("spin 1");
        began.elapsed()
    });
    let waited = asked.find(|waited| *waited > Duration::from_millis(100));
    let waited = waited.expect("there is a delay");
    assert!(waited < Duration::from_secs(8), "{waited:?}");
}

/// How often the threads of a server slept, but the one that serves this client.
fn sleeps_of_others(server: &Server, client: &Client) -> u64 {
    let worker = server.counted(client).tid.unwrap().to_string();
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let others = tasks
        .map(|task| task.unwrap().path())
        .filter(|task| !task.ends_with(&worker));
    let sleeps = |task: PathBuf| {
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    others.map(sleeps).sum()
}

/// The kernel wakes the worker of an arrival itself. A second wake-up, of our own thread, costs some per cent of a busy server's time.
#[test]
fn while_nobody_is_on_call_an_arrival_wakes_no_thread_of_ours() {
    let server = start(levers(4, 1), None);
    let (mut client, mut parked) = (server.connect(), server.connect());
    let ask = |client: &mut Client, times: u64| (0..times).for_each(|_| client.ask("spin 1"));
    ask(&mut client, 10);
    ask(&mut parked, 10);
    let slept = sleeps_of_others(&server, &client);
    ask(&mut client, 500);
    let on_call = sleeps_of_others(&server, &client) - slept;
    server.steering.command(Levers::default(), None);
    // It looks at its levers once a second.
    thread::sleep(Duration::from_millis(1500));
    let slept = sleeps_of_others(&server, &client);
    ask(&mut client, 500);
    let off_call = sleeps_of_others(&server, &client) - slept;
    assert!(
        on_call > 100 && off_call < 50,
        "{on_call} on call, {off_call} not"
    );
    // Whose worker slept here waits for its client itself now, also for the end of it.
    ask(&mut parked, 10);
    drop(parked);
    server.until("the one that was parked is gone", |server| {
        server.steering.totals().connections == 1
    });
    // And on call again, at once.
    server.steering.command(levers(4, 1), None);
    let before = server.steering.totals();
    ask(&mut client, 100);
    let since = server.steering.totals().since(&before);
    assert!(since.rounds > 50, "{} rounds", since.rounds);
}

/// From when on a query is long goes by what is usual, and a few reports are not.
#[test]
fn long_queries_that_nobody_waited_for_make_the_next_one_no_usual_one() {
    let server = start(levers(1, 1), None);
    let (mut long, mut short) = (server.connect(), server.connect());
    short.ask("spin 1");
    (0..20).for_each(|_| long.ask("spin 250000"));
    long.say("spin 3000000");
    server.until("the long one has the slot", |server| {
        server.steering.totals().running == 1
    });
    let began = Instant::now();
    short.ask("spin 1");
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(300), "{waited:?} for a slot");
}

/// What a law compares with being on call: queries that wait for a processor are late although the kernel says nothing of it.
#[test]
fn while_nobody_is_on_call_what_waits_for_a_processor_is_late() {
    let share = counted_share(&start(Levers::default(), None));
    assert!((0.7..1.2).contains(&share), "{share} of what clients waited");
}

/// What a worker waited for when the levers went off, its client's next query in the same turn, ends when nobody watches for arrivals any more.
#[test]
fn a_worker_that_lingers_while_its_levers_go_off_is_not_left_asleep() {
    let levers = Levers {
        linger: Duration::from_millis(300),
        ..levers(2, 8)
    };
    let server = start(levers, None);
    let (mut lingers, mut other) = (server.connect(), server.connect());
    (0..3).for_each(|_| lingers.ask("spin 1"));
    server.steering.command(Levers::default(), None);
    // Our thread looks, and sends everybody home who is parked.
    thread::sleep(Duration::from_millis(100));
    other.ask("spin 1");
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    lingers.ask("spin 1");
    let waited = began.elapsed();
    assert!(
        waited < Duration::from_millis(400),
        "{waited:?} beside free slots"
    );
}

/// Slots that were taken when everybody went are still taken when all are on call again.
#[test]
fn a_slot_that_a_long_query_kept_while_nobody_was_on_call_is_taken_from_it_afterwards() {
    let server = start(levers(1, 1), None);
    let (mut long, mut short) = (server.connect(), server.connect());
    (0..3).for_each(|_| long.ask("spin 1"));
    (0..3).for_each(|_| short.ask("spin 1"));
    long.say("spin 6000000");
    server.until("the long one has the slot", |server| {
        server.steering.totals().running == 1
    });
    server.steering.command(Levers::default(), None);
    thread::sleep(Duration::from_millis(100));
    server.steering.command(levers(1, 1), None);
    let began = Instant::now();
    // The first goes as it came, while nobody was on call.
    (0..2).for_each(|_| short.ask("spin 1"));
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(600), "{waited:?} for a slot");
}

/// Little's law for one client that waits for its answers: neither its waits nor its gaps together are longer than it was there.
#[test]
fn a_client_that_waits_for_its_answers_waits_no_longer_than_it_is_there() {
    let levers = Levers {
        delay: Duration::from_millis(5),
        ..levers(2, 1)
    };
    let server = start(levers, None);
    let began = Instant::now();
    let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || (0..100).for_each(|_| client.ask("spin 300")));
        }
    });
    for client in &clients {
        let counted = server.counted(client);
        // Its last query ends when its worker waits again, which is after the client has its answer.
        let lived = began.elapsed().as_secs_f64();
        let (waited, between) = (counted.latency.get(), counted.between.get());
        assert!(
            waited <= lived && between <= lived,
            "{waited} {between} of {lived} s"
        );
    }
}

#[test]
fn what_came_within_a_delay_is_not_counted_from_its_end() {
    let levers = Levers {
        delay: Duration::from_millis(40),
        ..levers(2, 1)
    };
    let server = start(levers, None);
    let mut client = server.connect();
    client.ask("spin 1");
    let began = Instant::now();
    (0..25).for_each(|_| client.ask("spin 1"));
    let mean = began.elapsed() / 25;
    server.until("the last has ended", |server| {
        server.steering.totals().queries == 26
    });
    let counted = server.steering.connections()[0].latency.get() / 26.0;
    assert!(counted > 0.8 * mean.as_secs_f64(), "{counted} of {mean:?}");
}

#[test]
fn who_kept_going_while_nobody_was_on_call_has_a_turn_like_others_when_they_are() {
    let lively = levers(1, 4);
    let server = start(lively, None);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("spin 1"));
    let end = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                while Instant::now() < end {
                    client.ask("spin 200");
                }
            });
        }
        let linger = Duration::from_millis(1);
        for _ in 0..10 {
            server.steering.command(Levers::default(), None);
            thread::sleep(Duration::from_millis(50));
            server.steering.command(Levers { linger, ..lively }, None);
            thread::sleep(Duration::from_millis(150));
            let (rounds, asked) = (server.steering.totals().rounds, Instant::now());
            while server.steering.totals().rounds == rounds && Instant::now() < end {
                // A round is 12 queries of 0.2 ms; who kept going had thousands.
                assert!(asked.elapsed() < Duration::from_millis(500));
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
}

#[test]
fn what_is_counted_of_a_connection_is_its_own() {
    let server = start(levers(2, 2), None);
    let one = ten_queries(&server);
    assert!(one.tid.is_some());
    let p50 = server.steering.totals().percentile(0.5).unwrap();
    assert!(p50.as_millis() >= 1.8, "{p50:?}");
}

#[test]
fn a_worker_that_waits_in_a_read_or_a_select_is_parked_there() {
    for how in ["read", "select"] {
        let server = Server::start(&["threaded_server", how], levers(1, 2), None);
        thread::scope(|scope| {
            let ends = scope.spawn(|| load(&server, 20, 50, "spin 50"));
            while !ends.is_finished() {
                let running = server.steering.totals().running;
                assert!(running <= 1, "{how}: {running}");
                thread::sleep(Duration::from_micros(200));
            }
        });
        let totals = server.steering.totals();
        assert!(totals.queries >= 20 * 49, "{how}: {}", totals.queries);
        assert!(
            !totals.by_processes && totals.rounds >= 20,
            "{how}: {}",
            totals.rounds
        );
        assert!(totals.without_slot <= 20, "{how}: {}", totals.without_slot);
        server.until("slots are free and nobody waits", |server| {
            let totals = server.steering.totals();
            (totals.running, totals.waiting, totals.connections) == (0, 0, 0)
        });
    }
}
