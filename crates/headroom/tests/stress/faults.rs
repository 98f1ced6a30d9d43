//! What is done to the server, its steering and its clients while they work, each by a thread of its own.

use crate::acts::Speech;
use crate::chance::Chance;
use crate::common::{kill, process::Process, signal};
use crate::crowd::Client;
use crate::region::RegionFile;
use crate::server::Place;
use crate::wire::{Answer, Database, Line, cancel};
use crate::world::{BOUND, Phase, Seat, World};
use rustix::process::Signal;
use std::process::Stdio;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Threads from which a storm comes.
const STORMERS: u64 = 80;
/// Statements that a client program is given, and what it asks by itself.
const ASKED_BY_PROGRAM: u64 = 25;

/// Does something again and again while all run, with a pause of so many milliseconds at random; between two phases it waits.
fn again(world: &World<'_>, thread: u64, pause_ms: std::ops::Range<u64>, mut act: impl FnMut(&mut Chance)) {
    let mut chance = Chance::new(world.seed, 1_000_000 + thread);
    loop {
        match world.phase() {
            Phase::End => return,
            Phase::Rest => std::thread::sleep(Duration::from_millis(20)),
            Phase::Run => {
                if world.sleeps(chance.ms(pause_ms.clone())) {
                    act(&mut chance);
                }
            }
        }
    }
}

/// A client that is connected.
fn victim<'w>(world: &'w World<'_>, chance: &mut Chance) -> Option<(&'w Seat, u32)> {
    let seat = &world.seats[chance.number(0..world.seats.len() as u64) as usize];
    let id = seat.id.load(SeqCst);
    (id != 0).then_some((seat, id))
}

/// KILL QUERY and KILL CONNECTION, pg_cancel_backend and pg_terminate_backend, and requests to cancel.
pub fn ends_others(world: &World<'_>) {
    let speech = Speech(world.database);
    again(world, 1, 50..600, |chance| {
        // The last connection that there is room for is its owner's.
        let Some(mut client) = Client::connect(world, chance, "root", None) else {
            return;
        };
        for _ in 0..chance.number(1..12) {
            let Some((seat, id)) = victim(world, chance) else {
                continue;
            };
            let whole = chance.once_in(3);
            if whole {
                // Noted before: its client must know why.
                seat.ended.store(id, SeqCst);
            }
            let by_request = world.database == Database::Postgres && !whole && chance.once_in(2);
            if by_request {
                world.tally.faults("requests to cancel", 1);
                world.begun.fetch_add(1, Relaxed);
                let _ = cancel(&world.addresses[0], id, seat.secret.load(SeqCst));
            } else {
                let kind = if whole {
                    "connections killed"
                } else {
                    "queries killed"
                };
                world.tally.faults(kind, 1);
                if client
                    .ask("kill", &speech.ends(id, whole), Duration::ZERO)
                    .is_err()
                {
                    return;
                }
            }
            if !world.sleeps(chance.ms(0..300)) {
                break;
            }
        }
        client.leave();
    });
}

/// Hundreds of connections at once.
pub fn storms(world: &World<'_>) {
    again(world, 2, 2_000..8_000, |chance| {
        world.tally.faults("storms", 1);
        let each = chance.number(2..6);
        // Some storms hold what they get, until nobody else finds room.
        let hold = chance.of(&[0, 0, 400, 1_500]);
        let seed = chance.number(0..u64::MAX);
        std::thread::scope(|scope| {
            for stormer in 0..STORMERS {
                scope.spawn(move || storm(world, &mut Chance::new(seed, stormer), each, hold));
            }
        });
    });
}

fn storm(world: &World<'_>, chance: &mut Chance, count: u64, hold_ms: u64) {
    let speech = Speech(world.database);
    for _ in 0..count {
        if !world.runs() {
            return;
        }
        world.tally.faults("connections in storms", 1);
        let ending = chance.weighed(&[(40, 0), (15, 1), (15, 2), (15, 3), (15, 4)]);
        if ending >= 3 {
            world.begun.fetch_add(1, Relaxed);
            aborted(world, chance, ending == 4);
            continue;
        }
        let Some(mut client) = Client::connect(world, chance, "many", None) else {
            continue;
        };
        if ending == 0
            && client
                .ask("in a storm", &speech.point(1), Duration::ZERO)
                .is_err()
        {
            continue;
        }
        if hold_ms > 0 {
            world.sleeps(chance.ms(0..hold_ms));
        }
        match ending {
            2 => client.vanish(chance.once_in(2)),
            _ => client.leave(),
        }
    }
}

/// A connection that never logs in.
fn aborted(world: &World<'_>, chance: &mut Chance, says_nonsense: bool) {
    world.tally.faults("aborted handshakes", 1);
    let address = &world.addresses[chance.number(0..2) as usize];
    let Ok(mut line) = Line::open(address, BOUND, world.overdue.clone()) else {
        return;
    };
    if says_nonsense {
        let _ = line.write(&[0, 0, 0, 40, 1, 2, 3, 4, 5, 6, 7]);
    }
    if chance.once_in(6) {
        world.sleeps(chance.ms(0..4_000));
    }
    if chance.once_in(2) {
        line.reset_on_close();
    }
}

/// Other C, N, D and turns than the law commands, again and again, for as long as a spell lasts.
pub fn commands(world: &World<'_>, region: &RegionFile) {
    again(world, 3, 50..1_500, |chance| {
        world.tally.faults("spells of other levers", 1);
        let never = chance.once_in(12);
        let has_turns = chance.once_in(3);
        let until = Instant::now() + chance.ms(20..3_000);
        let fixed = chance.once_in(2);
        let seed = chance.number(0..u64::MAX);
        while Instant::now() < until && world.runs() {
            // The law commands anew each period: so do we, the same or something else.
            let mut same = Chance::new(seed, 0);
            region.command(if fixed { &mut same } else { chance });
            if has_turns {
                region.turns(chance, never);
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        region.even();
    });
}

/// Stops the steering for a while: also for longer than what it commanded holds.
pub fn stops_wrap(world: &World<'_>, wrap: u32) {
    again(world, 4, 4_000..15_000, |chance| {
        world.tally.faults("stops of wrap", 1);
        signal(wrap, Signal::STOP);
        world.sleeps(chance.of(&[300, 2_000, 8_000].map(Duration::from_millis)));
        signal(wrap, Signal::CONT);
    });
}

/// Client programs that are killed while they ask.
pub fn kills_clients(world: &World<'_>, place: &Place) {
    let speech = Speech(world.database);
    again(world, 5, 500..3_000, |chance| {
        let seconds = chance.of(&[0.0, 0.001, 0.2, 3.0]);
        let asked = chance.of(&[0, 1]);
        let statement = match asked {
            0 => speech.sleep(seconds),
            _ => speech.big(2_000),
        };
        let times = if seconds > 1.0 { 2 } else { 20 };
        let mut command = place.client(&format!("{statement};"), times);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        world.begun.fetch_add(1, Relaxed);
        world.sent.fetch_add(ASKED_BY_PROGRAM, Relaxed);
        match command.spawn() {
            Ok(mut program) => {
                world.tally.faults("client programs killed", 1);
                world.sleeps(chance.ms(30..1_200));
                let _ = program.kill();
                let _ = program.wait();
            }
            Err(error) => world
                .tally
                .violation(format!("a client program does not start: {error}")),
        }
    });
}

/// A backend of this server: one whose parent it is.
fn backend(world: &World<'_>, server: u32, chance: &mut Chance) -> Option<u32> {
    let (_, id) = victim(world, chance)?;
    Process::read(id).filter(|process| process.parent == server)?;
    Some(id)
}

/// Stops single workers of a server of processes for a while, whatever they hold.
pub fn stops_backends(world: &World<'_>, server: u32) {
    again(world, 6, 500..4_000, |chance| {
        let Some(id) = backend(world, server, chance) else {
            return;
        };
        world.tally.faults("stops of a backend", 1);
        signal(id, Signal::STOP);
        world.sleeps(chance.ms(20..1_500));
        signal(id, Signal::CONT);
    });
}

/// Kills one worker of a server of processes: it ends all others, and recovers.
pub fn crashes(world: &World<'_>, server: u32) {
    again(world, 7, 12_000..40_000, |chance| {
        let Some(id) = backend(world, server, chance) else {
            return;
        };
        let may = world.may_crash.lock().unwrap_or_else(PoisonError::into_inner);
        if *may {
            world.tally.faults("crashes", 1);
            world.outage(false);
            kill(id);
        }
    });
}

/// Asks one thing as the server's owner, on a connection of its own.
pub fn asks(world: &World<'_>, statement: &str) -> Option<Answer> {
    let mut chance = Chance::new(world.seed, 2_000_000);
    let mut client = Client::connect(world, &mut chance, "root", None)?;
    let answer = client.ask("owner", statement, Duration::ZERO).ok()?;
    client.leave();
    Some(answer)
}
