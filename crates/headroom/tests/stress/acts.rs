//! What a client asks, in either database's words, and how long that may take by itself.

use crate::chance::Chance;
use crate::crowd::{Client, Over};
use crate::wire::{Answer, Database};
use crate::world::World;
use std::time::Duration;

/// Rows that everybody wants.
pub const HOT: u64 = 8;
/// How long a statement may wait for a row: the servers' limit, which InnoDB looks at once a second.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How long a query that computes may: a second or two alone, and it is never alone.
const LONG: Duration = Duration::from_secs(60);

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// One row by its key.
    Point,
    /// The same, prepared.
    Prepared,
    /// Two to four in one packet.
    Several,
    /// A transaction on a row that others want.
    Write,
    /// A transaction on two of them in any order: deadlocks.
    Cross,
    /// A row of its own, which the disk must have.
    Insert,
    /// It sleeps in the server.
    Sleep,
    /// A lock by name, for a while.
    Named,
    /// It computes for long.
    Long,
    /// Twenty megabytes, read slowly.
    Big,
    /// So many are read that the reader stops in between for longer than the server waits.
    Stalled,
    /// A statement of megabytes.
    Packet,
    /// Nothing, for seconds.
    Quiet,
    /// The statement's own time limit ends it.
    Limited,
    /// The connection's own time limit ends it.
    Ended,
}

/// How often each is done.
pub const WEIGHTS: [(u64, Act); 15] = [
    (600, Act::Point),
    (120, Act::Prepared),
    (60, Act::Several),
    (100, Act::Write),
    (40, Act::Cross),
    (60, Act::Insert),
    (20, Act::Sleep),
    (30, Act::Named),
    (3, Act::Long),
    (4, Act::Big),
    (1, Act::Stalled),
    (4, Act::Packet),
    (6, Act::Quiet),
    (8, Act::Limited),
    (3, Act::Ended),
];

/// A database's words.
#[derive(Clone, Copy)]
pub struct Speech(pub Database);

impl Speech {
    fn of(self, maria: String, postgres: String) -> String {
        match self.0 {
            Database::Maria => maria,
            Database::Postgres => postgres,
        }
    }

    /// Makes the tables, and the users.
    pub fn tables(self) -> Vec<String> {
        let maria = [
            "drop user if exists ''@'localhost'",
            "create user if not exists gold@'%'",
            "create user if not exists many@'%'",
            "grant all on *.* to gold@'%'",
            "create database if not exists stress",
            "grant all on stress.* to many@'%'",
            "create table if not exists stress.hot (id int primary key, n bigint) engine=innodb",
            "create table if not exists stress.log (id bigint auto_increment primary key, n int) engine=innodb",
            "insert ignore into stress.hot select seq, 0 from stress.seq_0_to_999",
        ];
        let postgres = [
            "create role gold login",
            "create role many login",
            "create schema stress",
            "create table stress.hot (id int primary key, n bigint)",
            "create table stress.log (id bigserial primary key, n int)",
            "insert into stress.hot select i, 0 from generate_series(0, 999) i",
            "grant all on schema stress to public",
            "grant all on all tables in schema stress to public",
            "grant all on all sequences in schema stress to public",
            "grant pg_signal_backend to gold",
        ];
        match self.0 {
            Database::Maria => maria.map(str::to_owned).to_vec(),
            Database::Postgres => postgres.map(str::to_owned).to_vec(),
        }
    }

    /// One row by its key.
    pub fn point(self, id: u64) -> String {
        format!("select id from stress.hot where id = {id}")
    }

    /// Changes one row.
    pub fn update(self, id: u64) -> String {
        format!("update stress.hot set n = n + 1 where id = {id}")
    }

    /// Sleeps in the server.
    pub fn sleep(self, seconds: f64) -> String {
        self.of(
            format!("select sleep({seconds})"),
            format!("select pg_sleep({seconds})"),
        )
    }

    /// So many rows of a kilobyte.
    pub fn big(self, rows: u64) -> String {
        self.of(
            format!("select repeat('x', 1000) from stress.seq_1_to_{rows}"),
            format!("select repeat('x', 1000) from generate_series(1, {rows})"),
        )
    }

    fn long(self) -> String {
        self.of(
            "select benchmark(400000, sha2('headroom', 512))".to_owned(),
            "select count(md5(i::text)) from generate_series(1, 600000) i".to_owned(),
        )
    }

    fn named(self, name: u64) -> String {
        self.of(
            format!("select get_lock('stress-{name}', 2)"),
            format!("select pg_advisory_lock({name})"),
        )
    }

    fn unnamed(self, name: u64) -> String {
        self.of(
            format!("select release_lock('stress-{name}')"),
            format!("select pg_advisory_unlock({name})"),
        )
    }

    fn limited(self) -> String {
        self.of(
            "set statement max_statement_time = 0.2 for select sleep(3)".to_owned(),
            "set statement_timeout = '200ms'; select pg_sleep(3)".to_owned(),
        )
    }

    fn quiet_limit(self) -> String {
        self.of(
            "set session wait_timeout = 1".to_owned(),
            "set idle_in_transaction_session_timeout = '1s'; set idle_session_timeout = '1s'".to_owned(),
        )
    }

    /// Ends another's connection, or what it does.
    pub fn ends(self, id: u32, whole: bool) -> String {
        match (self.0, whole) {
            (Database::Maria, true) => format!("kill connection {id}"),
            (Database::Maria, false) => format!("kill query {id}"),
            (Database::Postgres, true) => format!("select pg_terminate_backend({id})"),
            (Database::Postgres, false) => format!("select pg_cancel_backend({id})"),
        }
    }
}

/// Does one thing.
pub fn does(
    client: &mut Client<'_>,
    act: Act,
    speech: Speech,
    world: &World<'_>,
    chance: &mut Chance,
) -> Result<(), Over> {
    let none = Duration::ZERO;
    match act {
        Act::Point => {
            let id = chance.number(0..1_000);
            let answer = client.ask("point", &speech.point(id), none)?;
            // An answer to another's question is worse than none.
            if let Answer::Done { first, .. } = answer
                && first != Some(id.to_string())
            {
                world
                    .tally
                    .violation(format!("point: asked for {id}, and {first:?} came"));
            }
        }
        Act::Prepared => drop(client.ask_prepared(&speech.point(chance.number(0..1_000)))?),
        Act::Several => {
            let count = chance.number(2..5);
            let all: Vec<String> = (0..count).map(|id| speech.point(id)).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            client.ask_several(&all)?;
        }
        Act::Write => transaction(client, speech, world, chance, 1)?,
        Act::Cross => transaction(client, speech, world, chance, 2)?,
        Act::Insert => drop(client.ask("insert", "insert into stress.log (n) values (1)", LOCK_WAIT)?),
        Act::Sleep => {
            let seconds = chance.of(&[0.001, 0.01, 0.1, 0.5, 2.0]);
            client.ask("sleep", &speech.sleep(seconds), Duration::from_secs_f64(seconds))?;
        }
        Act::Named => {
            let name = chance.number(0..3);
            let answer = client.ask("lock by name", &speech.named(name), LOCK_WAIT)?;
            if matches!(answer, Answer::Done { .. }) {
                world.sleeps(chance.ms(0..200));
                client.ask("unlock", &speech.unnamed(name), none)?;
            }
        }
        Act::Long => drop(client.ask("long", &speech.long(), LONG)?),
        Act::Big => {
            let (rows, pace_ms) = (20_000, chance.number(0..8));
            // Its twenty megabytes come in reads of 64 kilobytes at most; of a Unix socket in ones of a few.
            let own = Duration::from_millis(pace_ms * 6_000) + LONG;
            client.ask_slowly(&speech.big(rows), Duration::from_millis(pace_ms), own)?;
        }
        Act::Stalled => {
            world.tally.faults("readers that stall", 1);
            client.wire.line().pace = Some(chance.ms(2_000..9_000));
            // The server gives up after some seconds, or does not notice; the client goes either way.
            client.stall(&speech.big(60_000));
            return Err(Over);
        }
        Act::Packet => {
            let megabytes = chance.number(1..5) as usize;
            let text = "x".repeat(megabytes << 20);
            client.ask("big packet", &format!("select length('{text}')"), LONG)?;
        }
        Act::Quiet => drop(world.sleeps(chance.ms(100..4_000))),
        Act::Limited => {
            client.ask("limited", &speech.limited(), Duration::from_secs(1))?;
            if speech.0 == Database::Postgres {
                client.ask("set", "set statement_timeout = 0", none)?;
            }
        }
        Act::Ended => {
            world.tally.faults("connections quiet beyond their limit", 1);
            client.ask("set", &speech.quiet_limit(), none)?;
            if speech.0 == Database::Postgres && chance.once_in(2) {
                client.ask("begin", "begin", none)?;
            }
            world.sleeps(chance.ms(1_500..2_500));
            client.ask_late("beyond the limit", &speech.point(1))?;
            return Err(Over);
        }
    }
    Ok(())
}

fn transaction(
    client: &mut Client<'_>,
    speech: Speech,
    world: &World<'_>,
    chance: &mut Chance,
    rows: u64,
) -> Result<(), Over> {
    let none = Duration::ZERO;
    client.ask("begin", "begin", none)?;
    for _ in 0..rows {
        let answer = client.ask("update", &speech.update(chance.number(0..HOT)), LOCK_WAIT)?;
        if matches!(answer, Answer::Refused { .. }) {
            return client.ask("rollback", "rollback", none).map(|_| ());
        }
        if chance.once_in(4) {
            world.sleeps(chance.ms(0..30));
        }
    }
    client.ask("in a transaction", &speech.point(1), none)?;
    client.ask("commit", "commit", LOCK_WAIT).map(|_| ())
}
