//! The turns that a policy gives connections of a server with a thread for each.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;
mod yielding;

use common::{Client, Server, levers, starve};
use headroom_oncall::{Levers, Turns};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use yielding::{
    FIRST, IN_TRANSACTION, NO_TRANSACTION, give, hand_over, in_a_while, in_transaction, start_greeting, tell,
    waiting_for_lock,
};

fn start(levers: Levers, lease: Option<Duration>) -> Server {
    Server::start(&["threaded_server"], levers, lease)
}

#[test]
fn a_connection_with_no_turn_waits_while_others_are_served() {
    let server = start(levers(1, 1), None);
    let (mut none, mut other) = (server.connect(), server.connect());
    none.ask("spin 1");
    other.ask("spin 1");
    let port = none.0.local_addr().unwrap().port();
    let all = server.steering.connections();
    let place = all
        .iter()
        .find(|one| one.client.is_some_and(|client| client.port() == port));
    let place = place.expect("its client's address is known").place;
    server.steering.give(
        place,
        Turns {
            batch: Some(0),
            ..Turns::default()
        },
    );
    none.say("spin 1");
    (0..50).for_each(|_| other.ask("spin 100"));
    server.until("it waits", |server| server.steering.totals().waiting == 1);
    server.steering.give(place, Turns::default());
    other.ask("spin 1");
    none.hear();
}

/// Four connections that ask all the time with one slot, of which the first has its turns in one way and the others in another: how many
/// answers the first and each of the others had.
fn answers(turns: Turns, of_others: Turns) -> (u64, u64) {
    let server = start(levers(1, 1), None);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("spin 1"));
    let port = clients[0].0.local_addr().unwrap().port();
    let of_first =
        |one: &headroom_oncall::ConnectionTotals| one.client.is_some_and(|client| client.port() == port);
    let before = server.steering.connections();
    for one in &before {
        server
            .steering
            .give(one.place, if of_first(one) { turns } else { of_others });
    }
    let end = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                while Instant::now() < end {
                    client.ask("spin 2000");
                }
            });
        }
    });
    let all = server.steering.connections();
    let (first, others): (Vec<_>, Vec<_>) = all.iter().partition(|one| of_first(one));
    let others: u64 = others.iter().map(|one| one.queries).sum();
    // Without those by which they were known.
    (first[0].queries - 1, others / 3 - 1)
}

#[test]
fn who_yields_is_served_when_the_others_are_and_who_rests_every_other_round() {
    let alike = Turns::default();
    let (first, others) = answers(alike, alike);
    assert!(first * 2 > others && others * 2 > first, "{first} {others}");
    let yields = Turns {
        yields: true,
        ..alike
    };
    // Of three others two always wait: for it there is a turn only where both came late once.
    let (late, others) = answers(yields, alike);
    assert!(late * 10 < others, "{late} {others}");
    // Where the others yield, it is next each time that it asks, and not after the line of them.
    let (first, others) = answers(alike, yields);
    assert!(first > others * 2 && others > 0, "{first} {others}");
    let rests = Turns {
        rests: true,
        ..Turns::default()
    };
    let (resting, others) = answers(rests, alike);
    assert!(resting * 3 < others * 2, "{resting} {others}");
    assert!(resting * 4 > others, "{resting} {others}");
}

#[test]
fn who_yields_to_others_that_always_wait_has_a_turn_after_a_second() {
    let server = start(levers(1, 1), None);
    let mut starved = server.connect();
    starved.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    starved.ask("spin 1");
    let place = server.steering.connections()[0].place;
    let turns = Turns {
        yields: true,
        ..Turns::default()
    };
    server.steering.give(place, turns);
    let (is_over, end) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(60));
    let waited = thread::scope(|scope| {
        for _ in 0..4 {
            let mut other = server.connect();
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Relaxed) && Instant::now() < end {
                    other.ask("spin 2000");
                }
            });
        }
        thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        starved.ask("spin 1");
        is_over.store(true, Relaxed);
        began.elapsed()
    });
    // Now and then nobody else waits, on a machine that does other work: it may be less.
    assert!(waited < Duration::from_secs(15), "{waited:?}");
}

/// Those that stand in the line of who yields as they yield no more are served as those that come after them.
#[test]
fn who_yields_no_more_is_not_left_in_line() {
    let server = start(levers(1, 1), None);
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("spin 1"));
    let places: Vec<_> = server
        .steering
        .connections()
        .iter()
        .map(|one| one.place)
        .collect();
    let give = |yields| {
        let turns = Turns {
            yields,
            ..Turns::default()
        };
        places
            .iter()
            .for_each(|place| server.steering.give(*place, turns));
    };
    give(true);
    let end = Instant::now() + Duration::from_millis(1_200);
    let queries = || -> Vec<u64> {
        server
            .steering
            .connections()
            .iter()
            .map(|one| one.queries)
            .collect()
    };
    let before = thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                while Instant::now() < end {
                    client.ask("spin 5000");
                }
            });
        }
        thread::sleep(Duration::from_millis(400));
        give(false);
        queries()
    });
    let since: Vec<u64> = queries()
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    let (least, most) = (since.iter().min().unwrap(), since.iter().max().unwrap());
    assert!(least * 3 > *most, "{since:?}");
}

/// A pause of who goes first is for those that wait; one of who yields is for the server.
#[test]
fn who_goes_first_pauses_while_somebody_waits_alone() {
    let server = start(levers(1, 1), None);
    let mut client = server.connect();
    client.ask("spin 1");
    let mut asks = |yields| {
        let turns = Turns {
            yields,
            pause: Duration::from_millis(300),
            ..Turns::default()
        };
        server
            .steering
            .give(server.steering.connections()[0].place, turns);
        let began = Instant::now();
        (0..10).for_each(|_| client.ask("spin 1"));
        began.elapsed()
    };
    let (first, yielding) = (asks(false), asks(true));
    assert!(yielding >= Duration::from_millis(2_700), "{yielding:?}");
    assert!(first * 3 < yielding, "{first:?} {yielding:?}");
}

#[test]
fn a_connection_with_no_turn_has_one_after_twenty_seconds() {
    let server = start(levers(1, 1), None);
    let mut starved = server.connect();
    starved.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    starved.ask("spin 1");
    starve(&server, &starved);
    let began = Instant::now();
    starved.ask("spin 1");
    assert!(
        began.elapsed() >= Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    server.until("its slot is free again", |server| {
        server.steering.totals().running == 0
    });
}

/// Whoever is in a transaction may hold what somebody waits for that it would let go first: then it does not. Otherwise it does, or who stays
/// in one for ever would yield to nobody.
#[test]
fn while_one_that_goes_first_waits_in_a_query_nobody_in_a_transaction_yields_rests_or_goes_without_a_turn() {
    let server = start_greeting();
    let mut client = in_transaction(&server, 4);
    let [yields, rests, none] = [
        Turns {
            yields: true,
            ..Turns::default()
        },
        Turns {
            rests: true,
            ..Turns::default()
        },
        Turns {
            batch: Some(0),
            ..Turns::default()
        },
    ];
    give(&server, &client, yields);
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 4 < others, "{own} {others}");
    for turns in [yields, rests, none] {
        let (mut holder, mut waiter) = waiting_for_lock(&server);
        give(&server, &client, turns);
        let (own, others) = in_a_while(&server, &mut client);
        assert!(own * 2 > others, "{turns:?}: {own} {others}");
        hand_over(&mut holder, &mut waiter);
    }
    // One that commits each of its statements holds nothing.
    let (mut holder, mut waiter) = waiting_for_lock(&server);
    give(&server, &client, Turns::default());
    tell(&mut client, NO_TRANSACTION);
    give(&server, &client, yields);
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 4 < others, "{own} {others}");
    tell(&mut client, IN_TRANSACTION);
    hand_over(&mut holder, &mut waiter);
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 4 < others, "nobody waits any more: {own} {others}");
    // Whoever waits for long waits for something else.
    let (mut holder, mut waiter) = waiting_for_lock(&server);
    give(&server, &client, yields);
    thread::sleep(Duration::from_millis(2_100));
    let (own, others) = in_a_while(&server, &mut client);
    assert!(own * 4 < others, "{own} {others}");
    hand_over(&mut holder, &mut waiter);
    server.until("nobody is counted", |server| {
        server.steering.totals().blocked == 0
    });
}

/// Nobody who yields is what a connection waits for whose client sends the rest of its query late, or of which no policy knows yet; when one
/// does, it counts though it waits already. How late the rest comes is the client's time.
#[test]
fn a_wait_for_ones_own_client_or_of_one_that_no_policy_has_seen_is_not_for_others() {
    let server = start_greeting();
    let mut slow = server.connect();
    slow.hear();
    slow.ask("spin 1");
    give(&server, &slow, FIRST);
    slow.say("more");
    server.until("it gives its slot back", |server| {
        server.steering.totals().given_back == 1
    });
    assert_eq!(server.steering.totals().blocked, 0);
    let late = Duration::from_secs(1);
    thread::sleep(late);
    slow.say("the rest");
    slow.hear();
    slow.ask("spin 1");
    let recent = server.counted(&slow).recent;
    let longest = recent.iter().map(|one| one.get()).fold(0.0, f64::max);
    assert!(longest < late.as_secs_f64() / 2.0, "{recent:?}");
    let (mut holder, mut unseen) = (server.connect(), server.connect());
    holder.hear();
    unseen.hear();
    holder.ask("take");
    unseen.say("take");
    server.until("it gives its slot back", |server| {
        server.steering.totals().given_back >= 2
    });
    assert_eq!(server.steering.totals().blocked, 0);
    give(&server, &unseen, FIRST);
    let mut other = server.connect();
    other.hear();
    other.ask("spin 1");
    server.until("it counts", |server| server.steering.totals().blocked == 1);
    assert!(server.counted(&unseen).is_blocked);
    hand_over(&mut holder, &mut unseen);
    assert_eq!(server.steering.totals().blocked, 0);
}

/// A long query loses its slot, and may wait for a lock after that.
#[test]
fn one_that_has_lost_its_slot_is_seen_to_wait() {
    let server = start_greeting();
    let (mut holder, mut late) = (server.connect(), server.connect());
    holder.hear();
    late.hear();
    holder.ask("take");
    late.ask("spin 1");
    give(&server, &late, FIRST);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = server.connect();
            other.hear();
            while !stop.load(Relaxed) {
                other.ask("spin 100");
            }
        });
        late.say("late 300000");
        server.until("its slot is taken", |server| {
            server.steering.totals().reclaimed > 0
        });
        server.until("it waits", |server| server.steering.totals().blocked == 1);
        stop.store(true, Relaxed);
    });
    hand_over(&mut holder, &mut late);
}

/// Who stands in line when that one begins to wait goes before the others from then on.
#[test]
fn one_that_yields_in_a_transaction_is_let_go_when_one_that_goes_first_begins_to_wait() {
    let server = start_greeting();
    let mut client = in_transaction(&server, 100);
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.hear();
    waiter.hear();
    holder.ask("take");
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let mut other = server.connect();
            other.hear();
            other
        })
        .collect();
    give(
        &server,
        &client,
        Turns {
            yields: true,
            ..Turns::default()
        },
    );
    let stop = AtomicBool::new(false);
    let (before, after) = thread::scope(|scope| {
        for mut other in busy {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    other.ask("spin 1000");
                }
            });
        }
        let ask = |client: &mut Client| {
            let began = Instant::now();
            client.ask("spin 1");
            began.elapsed()
        };
        // As long as nobody waits it has its turn after a second.
        let before = ask(&mut client);
        waiter.ask("spin 1");
        give(&server, &waiter, FIRST);
        client.say("spin 1");
        thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        waiter.say("take");
        client.hear();
        let after = began.elapsed();
        stop.store(true, Relaxed);
        (before, after)
    });
    holder.ask("give");
    waiter.hear();
    assert!(after * 2 < before, "{before:?} {after:?}");
}

#[test]
fn in_a_transaction_nobody_pauses_and_the_next_pause_makes_up_for_it() {
    let server = start_greeting();
    let mut client = in_transaction(&server, 100);
    let turns = Turns {
        yields: true,
        pause: Duration::from_millis(400),
        ..Turns::default()
    };
    give(&server, &client, turns);
    let asks = |client: &mut Client| {
        let began = Instant::now();
        (0..5).for_each(|_| client.ask("spin 1"));
        began.elapsed()
    };
    let inside = asks(&mut client);
    tell(&mut client, NO_TRANSACTION);
    let outside = asks(&mut client);
    // A second, and four times as long as it is told.
    assert!(outside >= Duration::from_millis(2_500), "{outside:?}");
    let later = asks(&mut client);
    assert!(
        later >= Duration::from_millis(1_900) && later < outside,
        "{outside:?} {later:?}"
    );
    assert!(inside * 3 < outside, "{inside:?} {outside:?}");
    // After a second it pauses in a transaction, for as long as it is told: what it owes is for after it.
    tell(&mut client, IN_TRANSACTION);
    asks(&mut client);
    thread::sleep(Duration::from_millis(1_100));
    client.ask("spin 1");
    let began = Instant::now();
    client.ask("spin 1");
    let within = began.elapsed();
    tell(&mut client, NO_TRANSACTION);
    let began = Instant::now();
    client.ask("spin 1");
    let after = began.elapsed();
    assert!(within * 3 < after * 2, "{within:?} {after:?}");
    tell(&mut client, IN_TRANSACTION);
    // A long transaction pauses, until somebody waits for what it may hold.
    give(
        &server,
        &client,
        Turns {
            pause: Duration::from_secs(60),
            ..turns
        },
    );
    thread::sleep(Duration::from_millis(1_100));
    client.ask("spin 1");
    client.say("spin 1");
    thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    let (mut holder, mut waiter) = waiting_for_lock(&server);
    client.hear();
    assert!(began.elapsed() < Duration::from_secs(30));
    holder.ask("give");
    waiter.hear();
}

/// A pause of a minute ends with what it was for.
#[test]
fn a_pause_ends_when_its_client_goes_or_its_reason_does() {
    let long = Turns {
        yields: true,
        pause: Duration::from_secs(60),
        ..Turns::default()
    };
    type End = fn(&Server, &Client);
    let ends: [(&str, End, bool); 4] = [
        (
            "another grant",
            |server, client| give(server, client, Turns::default()),
            true,
        ),
        (
            "not on call",
            |server, _| server.steering.command(Levers::default(), None),
            true,
        ),
        (
            "the end of the lease",
            |server, _| {
                server
                    .steering
                    .command(levers(1, 1), Some(Duration::from_millis(100)))
            },
            true,
        ),
        (
            "its client goes",
            |_, client| client.0.shutdown(Shutdown::Write).unwrap(),
            false,
        ),
    ];
    for (what, end, is_answered) in ends {
        let server = start(levers(1, 1), None);
        let mut client = server.connect();
        client.ask("spin 1");
        give(&server, &client, long);
        client.ask("spin 1");
        if is_answered {
            client.say("spin 1");
        }
        thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        end(&server, &client);
        match is_answered {
            true => client.hear(),
            false => assert!(client.is_closed(), "{what}"),
        }
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{what}: {:?}",
            began.elapsed()
        );
    }
}
