//! The clients: connections that ask all kinds of things, and end in all kinds of ways.

use crate::acts::{self, Speech};
use crate::chance::Chance;
use crate::server::WRITES_WITHIN;
use crate::tally::Ending;
use crate::wire::{Answer, Broken, Connected, Login, Wire, connect};
use crate::world::{BOUND, Phase, Seat, World};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Errors that the stress brings about.
const EXPECTED: [&str; 29] = [
    // MariaDB: no room, shutdown, no such connection, lock waits, deadlocks, interrupted, ended, a time limit, ended for being quiet,
    // a lock by name that the killed had, packets that were cut.
    "1040", "1053", "1094", "1205", "1213", "1317", "1927", "1969", "4031", "1079", "1080", "1152", "1153",
    "1158", "1159", "1160", "1161", "1184", "1203",
    // PostgreSQL: cancelled, ended, a crash, starting or ending, no room, deadlocks, lock waits, quiet in a transaction, within a
    // transaction that failed, quiet.
    "57014", "57P01", "57P02", "57P03", "53300", "40P01", "55P03", "25P03", "25P02", "57P05",
];
/// Those after which the connection is over.
const LAST: [&str; 9] = [
    "1053", "1927", "4031", "57P01", "57P02", "57P03", "25P03", "57P05", "1159",
];
/// Of those, the ones that only somebody who ends connections brings about.
const ENDED: [&str; 4] = ["1927", "57P01", "57P02", "1053"];

/// A client's connection, and since when.
pub struct Client<'w> {
    world: &'w World<'w>,
    seat: Option<&'w Seat>,
    pub wire: Box<dyn Wire>,
    outages: u64,
}

/// The connection is over.
pub struct Over;

impl<'w> Client<'w> {
    /// Connects; `None` where the server would not, or could not for a reason.
    pub fn connect(
        world: &'w World<'w>,
        chance: &mut Chance,
        user: &str,
        seat: Option<&'w Seat>,
    ) -> Option<Self> {
        let outages = world.outages();
        let address = &world.addresses[chance.number(0..2) as usize];
        let login = Login {
            address,
            user,
            // One that recovers accepts nobody meanwhile.
            bound: BOUND * 2,
            overdue: world.overdue.clone(),
        };
        let began = Instant::now();
        world.begun.fetch_add(1, Relaxed);
        match connect(world.database, &login) {
            Ok(Connected::Yes(mut wire)) => {
                world
                    .tally
                    .asked("connect", Ending::Answered, began.elapsed(), Duration::ZERO);
                if let Some(seat) = seat {
                    seat.secret.store(wire.line().secret, SeqCst);
                    seat.id.store(wire.id(), SeqCst);
                }
                Some(Self {
                    world,
                    seat,
                    wire,
                    outages,
                })
            }
            Ok(Connected::Refused(answer)) => {
                world
                    .tally
                    .asked("connect", Ending::Refused, began.elapsed(), Duration::ZERO);
                judge(world, "connect", &answer);
                None
            }
            Err(Broken::Closed(_)) if world.is_excused(outages) => {
                world
                    .tally
                    .asked("connect", Ending::Cut, began.elapsed(), Duration::ZERO);
                None
            }
            // Where the backlog is full, a port that nobody accepts from in time resets.
            Err(broken) => {
                let took = began.elapsed();
                world
                    .tally
                    .violation(format!("connect to {address:?}: {broken:?} after {took:.1?}"));
                None
            }
        }
    }

    /// What became of a query of a kind, which takes so long by itself.
    fn judge(
        &mut self,
        kind: &'static str,
        own: Duration,
        result: Result<Answer, Broken>,
    ) -> Result<Answer, Over> {
        let took = self.wire.line().since();
        let world = self.world;
        let is_ended = self
            .seat
            .is_some_and(|seat| seat.ended.load(SeqCst) == self.wire.id());
        let is_excused = is_ended || world.is_excused(self.outages);
        match result {
            Ok(answer @ Answer::Done { .. }) => {
                world.came.fetch_add(1, Relaxed);
                world.tally.asked(kind, Ending::Answered, took, own);
                Ok(answer)
            }
            Ok(answer) => {
                world.came.fetch_add(1, Relaxed);
                world.tally.asked(kind, Ending::Refused, took, own);
                judge(world, kind, &answer);
                let Answer::Refused { code, .. } = &answer else {
                    return Ok(answer);
                };
                if ENDED.contains(&code.as_str()) && !is_excused {
                    world
                        .tally
                        .violation(format!("{kind}: {answer:?}, and nobody had ended it"));
                }
                if LAST.contains(&code.as_str()) {
                    Err(Over)
                } else {
                    Ok(answer)
                }
            }
            Err(Broken::Closed(_)) if is_excused => {
                world.tally.asked(kind, Ending::Cut, took, own);
                Err(Over)
            }
            Err(broken) => {
                let id = self.wire.id();
                world
                    .tally
                    .violation(format!("{kind} on connection {id}: {broken:?} after {took:.1?}"));
                Err(Over)
            }
        }
    }

    /// Asks, and judges the answer.
    pub fn ask(&mut self, kind: &'static str, statement: &str, own: Duration) -> Result<Answer, Over> {
        self.world.sent.fetch_add(1, Relaxed);
        let result = self.wire.ask(statement, BOUND + own);
        self.judge(kind, own, result)
    }

    /// The same with a statement that is prepared.
    pub fn ask_prepared(&mut self, statement: &str) -> Result<Answer, Over> {
        self.world.sent.fetch_add(1, Relaxed);
        self.wire.line().begins(BOUND, statement);
        let result = self.wire.prepared(statement);
        self.judge("prepared", Duration::ZERO, result)
    }

    /// Several at once.
    pub fn ask_several(&mut self, statements: &[&str]) -> Result<(), Over> {
        self.world.sent.fetch_add(statements.len() as u64, Relaxed);
        self.world.joined.fetch_add(statements.len() as u64 - 1, Relaxed);
        self.wire.line().begins(BOUND, statements[0]);
        match self.wire.several(statements) {
            Ok(answers) => {
                for answer in answers {
                    self.judge("several at once", Duration::ZERO, Ok(answer))?;
                }
                Ok(())
            }
            Err(broken) => self
                .judge("several at once", Duration::ZERO, Err(broken))
                .map(|_| ()),
        }
    }

    /// A quiet client that the server may have ended: asks, and is content with any end.
    pub fn ask_late(&mut self, kind: &'static str, statement: &str) -> Result<(), Over> {
        self.world.sent.fetch_add(1, Relaxed);
        match self.wire.ask(statement, BOUND) {
            Err(Broken::Closed(_)) => {
                let took = self.wire.line().since();
                self.world.tally.asked(kind, Ending::Cut, took, Duration::ZERO);
                Err(Over)
            }
            result => self.judge(kind, Duration::ZERO, result).map(|_| ()),
        }
    }

    /// Reads an answer that is large slowly: on a busy machine so slowly that the server may give up, as its own limit has it.
    pub fn ask_slowly(&mut self, statement: &str, pace: Duration, own: Duration) -> Result<(), Over> {
        const KIND: &str = "big, read slowly";
        self.world.sent.fetch_add(1, Relaxed);
        self.wire.line().pace = Some(pace);
        let result = self.wire.ask(statement, BOUND + own);
        self.wire.line().pace = None;
        match result {
            Err(Broken::Closed(_)) if self.wire.line().since() >= WRITES_WITHIN => {
                let took = self.wire.line().since();
                self.world.tally.asked(KIND, Ending::Cut, took, own);
                self.world.tally.faults("slow readers that the server gave up", 1);
                Err(Over)
            }
            result => self.judge(KIND, own, result).map(|_| ()),
        }
    }

    /// Sends something, and is not there for the answer.
    pub fn abandon(mut self, statement: &str, by_reset: bool) {
        self.world.sent.fetch_add(1, Relaxed);
        let _ = self.wire.send(statement);
        if by_reset {
            self.wire.line().reset_on_close();
        }
    }

    /// Asks for much, reads a part of it with long pauses, and goes.
    pub fn stall(&mut self, statement: &str) {
        self.world.sent.fetch_add(1, Relaxed);
        let _ = self.wire.send(statement);
        for count in [1, 100_000] {
            let _ = self.wire.line().read(count);
        }
    }

    /// Sends half of a message, says nothing for a while, and goes.
    pub fn half(mut self, hold: Duration) {
        self.world.sent.fetch_add(1, Relaxed);
        let _ = self.wire.send_half("select 'half of this is never sent'");
        self.world.sleeps(hold);
    }

    /// Is not there to say goodbye.
    pub fn vanish(mut self, by_reset: bool) {
        if by_reset {
            self.wire.line().reset_on_close();
        } else {
            self.wire.line().shut();
        }
    }

    /// Says goodbye.
    pub fn leave(self) {
        self.wire.leave();
    }
}

/// An error that nothing here brings about is one of the server's, or of ours in it.
fn judge(world: &World<'_>, kind: &str, answer: &Answer) {
    if let Answer::Refused { code, text } = answer {
        world.tally.refused(code);
        if !EXPECTED.contains(&code.as_str()) {
            world
                .tally
                .violation(format!("{kind}: refused with {code}: {text}"));
        }
    }
}

/// A client's life: one connection after another, until all end.
pub fn lives(world: &World<'_>, number: usize) {
    let seat = &world.seats[number];
    let mut chance = Chance::new(world.seed, number as u64);
    loop {
        match world.phase() {
            Phase::End => return,
            Phase::Rest => {
                seat.id.store(0, SeqCst);
                seat.rests.store(true, SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
            Phase::Run => {
                seat.rests.store(false, SeqCst);
                let user = chance.of(&["gold", "many", "many", "many"]);
                let client = Client::connect(world, &mut chance, user, Some(seat));
                match client {
                    Some(client) => one_connection(world, client, &mut chance),
                    None => drop(world.sleeps(chance.ms(10..300))),
                }
                seat.id.store(0, SeqCst);
            }
        }
    }
}

fn one_connection(world: &World<'_>, mut client: Client<'_>, chance: &mut Chance) {
    let speech = Speech(world.database);
    let turns = chance.of(&[1, 5, 30, 200]);
    // Some think for long, some ask without pause.
    let think = chance.of(&[0, 0, 2, 10, 40]);
    for _ in 0..chance.number(1..turns + 2) {
        if !world.runs() {
            return client.leave();
        }
        let act = chance.weighed(&acts::WEIGHTS);
        if acts::does(&mut client, act, speech, world, chance).is_err() {
            return;
        }
        if think > 0 && !world.sleeps(chance.ms(0..think)) {
            return client.leave();
        }
    }
    match chance.weighed(&[(60, 0), (12, 1), (12, 2), (8, 3), (4, 4), (4, 5)]) {
        0 => client.leave(),
        1 => client.vanish(false),
        2 => {
            world.tally.faults("clients that end by a reset", 1);
            client.vanish(true);
        }
        3 => {
            world.tally.faults("clients gone before their answer", 1);
            let sleeps = speech.sleep(chance.number(0..3_000) as f64 / 1e3);
            let all = [speech.point(1), sleeps, speech.big(20_000)];
            client.abandon(&all[chance.number(0..3) as usize], chance.once_in(2));
        }
        4 => {
            world.tally.faults("half a message", 1);
            client.half(chance.ms(100..5_000));
        }
        _ => {
            // In the midst of a transaction, with locks.
            world.tally.faults("clients gone within a transaction", 1);
            let begun = client.ask("begin", "begin", Duration::ZERO);
            let held = begun.and_then(|_| {
                client.ask(
                    "update",
                    &speech.update(chance.number(0..acts::HOT)),
                    acts::LOCK_WAIT,
                )
            });
            if held.is_ok() {
                client.vanish(chance.once_in(2));
            }
        }
    }
}
