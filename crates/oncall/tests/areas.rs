//! Areas of cores in servers under the preload library: who runs where, and that all of it is put back.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Client, PATIENCE, Server, levers, load};
use headroom_oncall::{AreaCores, DivisionError, Levers, Turns};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The processors that the tests may use, and with them the servers.
fn own() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU as u32)
        .filter(|cpu| set.is_set(*cpu as usize))
        .collect()
}

/// Two of them; `None` where there is one only.
fn two() -> Option<[u32; 2]> {
    match own()[..] {
        [first, second, ..] => Some([first, second]),
        _ => {
            println!("skipped: areas: this machine has one core for the tests");
            None
        }
    }
}

fn area(cpus: &[u32], workers: Option<u32>) -> AreaCores {
    AreaCores {
        cpus: cpus.to_vec(),
        workers,
    }
}

/// A thread's processors as the kernel says them.
fn processors(tid: u32) -> Option<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let ranges = line.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u32>().unwrap()..=last.parse().unwrap()
    });
    Some(ranges.flatten().collect())
}

/// The place of a client's connection, and who serves it.
fn place(server: &Server, client: &Client) -> ((usize, u32), u32) {
    let address = client.0.local_addr().unwrap();
    let all = server.steering.connections();
    let one = all.iter().find(|one| one.client == Some(address));
    let one = one.expect("its client's address is known");
    (one.place, one.tid.unwrap())
}

/// Those of all tasks of a process.
fn of_all_tasks(pid: u32) -> Vec<Vec<u32>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let tids = tasks.map(|task| task.unwrap().file_name().to_string_lossy().parse().unwrap());
    tids.filter_map(processors).collect()
}

/// Asks until a client's worker has these processors.
fn until_on(client: &mut Client, tid: u32, cpus: &[u32]) {
    let end = Instant::now() + PATIENCE;
    while processors(tid).as_deref() != Some(cpus) {
        assert!(Instant::now() < end, "{:?} is not {cpus:?}", processors(tid));
        client.ask("spin 1");
    }
}

#[test]
fn workers_run_in_their_areas_and_are_given_their_processors_back() {
    let Some([hot, warm]) = two() else { return };
    let server = Server::start(&["threaded_server"], levers(2, 1), None);
    let (mut one, mut two) = (server.connect(), server.connect());
    one.ask("spin 1");
    two.ask("spin 1");
    let (of_one, tid_one) = place(&server, &one);
    let (_, tid_two) = place(&server, &two);
    let areas = [area(&[hot], Some(1)), area(&[warm], Some(1))];
    server.steering.divide(&areas, &[(of_one, 0)]).unwrap();
    until_on(&mut one, tid_one, &[hot]);
    // Who was placed nowhere is in the last.
    until_on(&mut two, tid_two, &[warm]);
    // Places are changed, and then a connection ends that its thread outlives for a while.
    server.steering.divide(&areas, &[(of_one, 1)]).unwrap();
    until_on(&mut one, tid_one, &[warm]);
    drop(two);
    server.until("it is gone", |server| server.steering.totals().connections == 1);
    // Without a division a worker that is asked nothing more has its own again.
    server.steering.divide(&[], &[]).unwrap();
    server.until("all are put back", |server| {
        of_all_tasks(server.child.id()).iter().all(|cpus| *cpus == own())
    });
    one.ask("spin 1");
}

#[test]
fn areas_end_with_the_lease_where_nobody_renews_it() {
    let Some([hot, warm]) = two() else { return };
    for kind in [&["threaded_server"][..], &["forking_server", "parent", "epoll"]] {
        // Each worker is another process of the second.
        let server = Server::start(kind, levers(2, 1), Some(Duration::from_millis(800)));
        let (mut one, mut two) = (server.connect(), server.connect());
        one.ask("spin 1");
        two.ask("spin 1");
        let ((of_one, tid_one), (_, tid_two)) = (place(&server, &one), place(&server, &two));
        let areas = [area(&[hot], None), area(&[warm], None)];
        server.steering.divide(&areas, &[(of_one, 0)]).unwrap();
        server
            .steering
            .command(levers(2, 1), Some(Duration::from_millis(1500)));
        until_on(&mut one, tid_one, &[hot]);
        until_on(&mut two, tid_two, &[warm]);
        // What a killed wrap leaves: a division, and a lease that ends.
        thread::sleep(Duration::from_millis(1600));
        one.ask("spin 1");
        assert_eq!(processors(tid_one).unwrap(), own(), "{kind:?}");
        if kind.len() == 1 {
            server.until("the one that is asked nothing has its own", |_| {
                processors(tid_two).unwrap() == own()
            });
        }
    }
}

#[test]
fn no_worker_leaves_what_the_server_was_allowed_whatever_is_commanded() {
    let Some([first, second]) = two() else { return };
    let before = sched_getaffinity(None).unwrap();
    let mut narrow = CpuSet::new();
    narrow.set(first as usize);
    sched_setaffinity(None, &narrow).unwrap();
    let server = Server::start(&["threaded_server"], levers(2, 2), None);
    sched_setaffinity(None, &before).unwrap();
    let mut clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
    // A fixed sequence of numbers: what failed once fails again.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..40 {
        let count = draw(4) as usize;
        let areas: Vec<AreaCores> = (0..count)
            .map(|_| {
                let cpus = [first, second, 1023].into_iter().filter(|_| draw(2) == 0);
                let cpus: Vec<u32> = cpus.collect();
                let cpus = if cpus.is_empty() { vec![second] } else { cpus };
                AreaCores {
                    cpus,
                    workers: (draw(2) == 0).then(|| 1 + draw(2) as u32),
                }
            })
            .collect();
        let connections = server.steering.connections();
        let members: Vec<_> = connections
            .iter()
            .map(|one| (one.place, draw(count.max(1) as u64) as usize))
            .collect();
        server.steering.divide(&areas, &members).unwrap();
        let on_call = match draw(4) {
            0 => Levers::default(),
            _ => levers(2, 2),
        };
        server.steering.command(on_call, None);
        clients.iter_mut().for_each(|client| client.ask("spin 20"));
        let slots = server.steering.totals().running;
        assert!(slots <= 6, "{slots}");
        for cpus in of_all_tasks(server.child.id()) {
            assert_eq!(cpus, [first], "{areas:?}");
        }
    }
    server.steering.divide(&[], &[]).unwrap();
    clients.iter_mut().for_each(|client| client.ask("spin 1"));
    server.until("no slot is lost", |server| {
        let totals = server.steering.totals();
        (totals.running, totals.waiting) == (0, 0)
    });
}

#[test]
fn a_full_area_does_not_hold_up_another() {
    let Some([hot, warm]) = two() else { return };
    let server = Server::start(&["threaded_server"], levers(2, 1), None);
    let mut sensitive = server.connect();
    sensitive.ask("spin 1");
    let (of_it, _) = place(&server, &sensitive);
    let areas = [area(&[hot], Some(1)), area(&[warm], Some(1))];
    server.steering.divide(&areas, &[(of_it, 0)]).unwrap();
    // Each round of the warm area takes 20 queries of 3 ms on its one slot; the sensitive one has its own.
    let (mut answered, mut slowest) = (0, Duration::ZERO);
    thread::scope(|scope| {
        let ends = scope.spawn(|| load(&server, 20, 20, "spin 3000"));
        while !ends.is_finished() {
            let began = Instant::now();
            sensitive.ask("spin 100");
            slowest = slowest.max(began.elapsed());
            answered += 1;
            thread::sleep(Duration::from_millis(2));
        }
    });
    // In one line with the others it would have a turn in each round of them: 20 turns of the 400.
    assert!(answered > 60, "{answered} answers, the slowest after {slowest:?}");
    server.until("slots are free and nobody waits", |server| {
        let totals = server.steering.totals();
        (totals.running, totals.waiting) == (0, 0)
    });
}

#[test]
fn a_connection_whose_queries_of_a_turn_are_answered_pauses() {
    for kind in [&["threaded_server"][..], &["forking_server", "parent", "epoll"]] {
        let server = Server::start(kind, levers(2, 1), None);
        let (mut paused, mut other) = (server.connect(), server.connect());
        paused.ask("spin 1");
        other.ask("spin 1");
        let pause = Duration::from_millis(30);
        server.steering.give(
            place(&server, &paused).0,
            Turns {
                batch: Some(1),
                yields: true,
                pause,
                ..Turns::default()
            },
        );
        paused.ask("spin 1");
        let began = Instant::now();
        (0..5).for_each(|_| paused.ask("spin 1"));
        assert!(began.elapsed() >= pause * 4, "{kind:?}: {:?}", began.elapsed());
        // Its slot is somebody else's meanwhile.
        let answers = thread::scope(|scope| {
            let ends = scope.spawn(|| (0..5).for_each(|_| paused.ask("spin 1")));
            let mut answers = 0;
            while !ends.is_finished() {
                other.ask("spin 1");
                answers += 1;
            }
            answers
        });
        assert!(answers > 10, "{kind:?}: {answers}");
        // What a client asks with its connection is read before its worker ever waits.
        assert!(server.steering.totals().without_slot <= 2, "{kind:?}");
        if kind.len() == 1 {
            // The server's own timeout is shorter than the pause, and ends it.
            paused.ask("patience 10");
            assert!(paused.is_closed());
        }
    }
}

#[test]
fn what_cannot_be_divided_is_refused_and_changes_nothing() {
    let server = Server::start(&["threaded_server"], levers(2, 1), None);
    let divide = |areas: &[AreaCores]| server.steering.divide(areas, &[]).unwrap_err();
    assert_eq!(divide(&vec![area(&[0], None); 9]), DivisionError::Areas(9));
    assert_eq!(
        divide(&[area(&[0], None), area(&[], None)]),
        DivisionError::None(1)
    );
    let high = divide(&[area(&[5000], None)]);
    assert_eq!(
        high.to_string(),
        "processor 5000 cannot be in an area: those under 1024 can"
    );
}
