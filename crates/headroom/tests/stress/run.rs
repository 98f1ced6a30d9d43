//! Runs of servers one after another: each is started, stressed, looked at while all is quiet, stressed again, and ended under load.

use crate::acts::Speech;
use crate::chance::Chance;
use crate::common::process::children;
use crate::common::{kill, signal, within};
use crate::crowd;
use crate::faults;
use crate::region::Counts;
use crate::server::{Held, Place, STARTS_WITHIN, Served};
use crate::tally::Tally;
use crate::wire::{Answer, Database, Overdue};
use crate::world::{BOUND, Phase, World};
use anyhow::{Context, ensure};
use rustix::process::Signal;
use std::fs;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Clients that are always there.
const CLIENTS: usize = 60;
/// How long it may take until everybody has closed: the longest query that may be under way.
const RESTS_WITHIN: Duration = Duration::from_secs(150);
/// How long the server may take until it has noticed that nobody is there any more.
const QUIET_WITHIN: Duration = Duration::from_secs(20);
/// How long a server may take to end, with transactions to undo and pages to write.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// After so many violations no other server is started.
const MOST: usize = 20;

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All choices follow from it.
    pub seed: u64,
    /// For how long servers are run one after another.
    pub length: Duration,
    /// For how long a server is stressed between two looks.
    pub round: Duration,
    /// Looks at a server before its end.
    pub rounds: u64,
}

/// How a run of a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A signal to wrap.
    Wrap(Signal),
    /// A signal to the server.
    Server(Signal),
    /// The server's own statement.
    Statement,
    /// Wrap is killed, the server goes on, and is ended then.
    WithoutWrap(Signal),
}

fn ends(database: Database) -> Vec<End> {
    match database {
        Database::Maria => vec![
            End::Wrap(Signal::TERM),
            End::WithoutWrap(Signal::TERM),
            End::Statement,
            End::Server(Signal::TERM),
            End::Server(Signal::KILL),
        ],
        // At SIGTERM it waits for its clients, which is tried too: they go.
        Database::Postgres => vec![
            End::Wrap(Signal::INT),
            End::WithoutWrap(Signal::INT),
            End::Wrap(Signal::QUIT),
            End::Wrap(Signal::TERM),
            End::Server(Signal::INT),
        ],
    }
}

/// By which law and with which classes a run is.
fn steering(chance: &mut Chance) -> (&'static str, String) {
    let words = chance.of(&[
        "",
        "",
        "--law reef",
        "--law fixed",
        "--concurrency 1 --batch 1 --linger 0",
        "--concurrency 1 --batch 8",
        "--concurrency 2 --batch 4 --delay 2",
        "--concurrency 3 --batch 8 --linger 2000",
    ]);
    let policy = chance.of(&["fair", "apples", "pslo", "utslo", "paced"]);
    let target = chance.of(&[5.0, 100.0]);
    let config = format!(
        "[slo]\ntarget_ms = {target:.1}\n[[oncall.class]]\nname = \"gold\"\nclients = [\"user:gold\"]\nweight = 4.0\np95_ms = 20.0\n\
         p99_ms = 40.0\np999_ms = 60.0\ndisengagement = {{ at_most = 0.05, points = [[20.0, 0.0], [60.0, 1.0]] }}\n[[oncall.class]]\nname = \"here\"\nclients = [\"unix\"]\n[law.on-call]\npolicy = \"{policy}\"\n"
    );
    (words, config)
}

/// Runs servers for as long as the plan says.
pub fn run(place: &mut Place, plan: &Plan, tally: &Tally) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut chance = Chance::new(plan.seed, 3_000_000);
    for number in 0.. {
        let all = ends(place.database);
        let end = all[number as usize % all.len()];
        let (words, config) = match number {
            0 => ("--concurrency 2 --batch 2", String::new()),
            _ => steering(&mut chance),
        };
        let policy = config.lines().last().unwrap_or("").to_owned();
        tally.note(format!(
            "[{:>5.0} s] run {number} of {:?}: {words:?} {policy}, ends by {end:?}",
            began.elapsed().as_secs_f64(),
            place.database
        ));
        one(place, (words, &config), end, number, plan, tally)?;
        ensure!(
            tally.violations() < MOST,
            "so much is wrong that more says nothing"
        );
        if began.elapsed() >= plan.length {
            return Ok(());
        }
    }
    Ok(())
}

fn one(
    place: &mut Place,
    (words, config): (&str, &str),
    end: End,
    number: u64,
    plan: &Plan,
    tally: &Tally,
) -> anyhow::Result<()> {
    let before = Instant::now();
    let mut served = place.start(words, config)?;
    tally.faults("starts", 1);
    let left = place.left(Some(&served.shared));
    ensure!(left.is_empty(), "left behind by earlier ones: {left:?}");
    let (sender, overdue) = channel();
    let seed = plan.seed.wrapping_mul(1_000_003).wrapping_add(number);
    let world = World::new((place.database, place.addresses()), CLIENTS, tally, sender, seed);
    let answers = |statement: &str| match faults::asks(&world, statement) {
        Some(Answer::Done { .. }) => Some(()),
        _ => None,
    };
    within(STARTS_WITHIN, || answers("select 1")).context("it answers nobody after its start")?;
    if number == 0 {
        for statement in Speech(place.database).tables() {
            answers(&statement).with_context(|| statement.clone())?;
        }
    }
    tally.note(format!("    started in {:.1} s", before.elapsed().as_secs_f64()));
    let place = &*place;
    let region = &served.region;
    let (wrap, server) = (served.wrap.pid(), served.pid);
    std::thread::scope(|scope| {
        let world = &world;
        for client in 0..CLIENTS {
            scope.spawn(move || crowd::lives(world, client));
        }
        scope.spawn(move || watches(world, region, server, &overdue));
        scope.spawn(move || faults::ends_others(world));
        scope.spawn(move || faults::storms(world));
        scope.spawn(move || faults::commands(world, region));
        scope.spawn(move || faults::stops_wrap(world, wrap));
        scope.spawn(move || faults::kills_clients(world, place));
        if place.database == Database::Postgres {
            scope.spawn(move || faults::stops_backends(world, server));
            scope.spawn(move || faults::crashes(world, server));
        }
        let looked = looks(place, &served, world, plan, tally);
        let ended = looked.and_then(|()| {
            std::thread::sleep(plan.round / 2);
            ended(world, &served, end, tally)
        });
        world.enter(Phase::End);
        ended
    })?;
    after(place, &mut served, end, tally)
}

/// Stresses it, has everybody rest, and looks, again and again.
fn looks(
    place: &Place,
    served: &Served,
    world: &World<'_>,
    plan: &Plan,
    tally: &Tally,
) -> anyhow::Result<()> {
    let mut first = None;
    for _ in 0..plan.rounds {
        std::thread::sleep(plan.round);
        world.enter(Phase::Rest);
        let rest = within(RESTS_WITHIN, || {
            let all = world.seats.iter().all(|seat| seat.rests.load(SeqCst));
            all.then_some(())
        });
        if rest.is_none() {
            let who = world.seats.iter().filter(|seat| !seat.rests.load(SeqCst));
            let ids: Vec<u32> = who.map(|seat| seat.id.load(SeqCst)).collect();
            tally.violation(format!("connections {ids:?} still wait after {RESTS_WITHIN:?}"));
        }
        let quiet = within(QUIET_WITHIN, || {
            let counts = served.region.counts();
            is_quiet(&counts).then_some(counts)
        });
        let Some(counts) = quiet else {
            let text = served.region.describe(0, 0);
            tally.violation(format!("nobody asks, and {text}"));
            world.enter(Phase::Run);
            continue;
        };
        ensure!(served.region.mode() != 0, "nobody was put on call");
        let held = served.held(place.database)?;
        tally.note(format!(
            "    quiet: {} queries of {} sent and {} answered to clients, {} slots returned, {} locks recovered; {} MiB, {} workers, {} \
             descriptors",
            counts.queries,
            world.sent.load(Relaxed),
            world.came.load(Relaxed),
            counts.returned,
            counts.recovered,
            held.rss_kib / 1024,
            held.workers,
            held.descriptors
        ));
        agree(&counts, world, tally);
        if place.database == Database::Maria {
            agree_with_server(&counts, world, tally);
        }
        let held_first = *first.get_or_insert(held);
        grows(&held_first, &held, tally);
        world.enter(Phase::Run);
    }
    Ok(())
}

fn is_quiet(counts: &Counts) -> bool {
    (counts.running, counts.waiting, counts.connections) == (0, 0, 0)
}

/// What the library counted is what clients were answered. Of each connection its greeting and its last answer may be counted or not:
/// the worker that sees it end sees no next query.
fn agree(counts: &Counts, world: &World<'_>, tally: &Tally) {
    let (begun, sent, came) = (
        world.begun.load(Relaxed),
        world.sent.load(Relaxed),
        world.came.load(Relaxed),
    );
    // A prepared statement is two messages of MariaDB's.
    let most = sent * 2 + begun * 3;
    if counts.queries + begun + world.joined.load(Relaxed) < came || counts.queries > most {
        tally.violation(format!(
            "{} queries were counted: {came} were answered to clients of {sent} sent, on {begun} connections",
            counts.queries
        ));
    }
}

/// And what the server counted: statements, goodbyes instead of logins, and, apart, statements that were prepared. Who was killed, or did
/// not say goodbye, is in one count and not in the other.
fn agree_with_server(counts: &Counts, world: &World<'_>, tally: &Tally) {
    let asked = faults::asks(
        world,
        "select cast(sum(variable_value) as unsigned) from information_schema.global_status where variable_name in ('QUESTIONS', \
         'COM_STMT_PREPARE')",
    );
    let Some(Answer::Done { first: Some(sum), .. }) = asked else {
        return tally.violation(format!("the server's own counts: {asked:?}"));
    };
    let (server, begun) = (sum.parse::<u64>().unwrap_or(0), world.begun.load(Relaxed));
    if counts.queries.abs_diff(server) > 2 * begun {
        tally.violation(format!(
            "{} queries were counted, and {server} by the server, on {begun} connections",
            counts.queries
        ));
    }
    tally.note(format!("    the server counted {server}, on {begun} connections"));
}

/// What a server holds while nobody is there is what it held before.
fn grows(first: &Held, now: &Held, tally: &Tally) {
    if now.descriptors > first.descriptors + 16
        || now.workers > first.workers + 16
        || now.rss_kib > first.rss_kib * 2 + 65_536
    {
        tally.violation(format!("what it holds grows: {first:?}, and later {now:?}"));
    }
}

/// Ends a server under load: how long that took.
fn ended(world: &World<'_>, served: &Served, end: End, tally: &Tally) -> anyhow::Result<()> {
    let (wrap, server) = (served.wrap.pid(), served.pid);
    if let End::WithoutWrap(_) = end {
        tally.faults("wraps killed", 1);
        kill(wrap);
        // The lease ends, and the server goes on as without us.
        let came = world.came.load(Relaxed);
        std::thread::sleep(Duration::from_secs(8));
        let now = world.came.load(Relaxed);
        ensure!(now > came, "without its wrap the server answers nobody");
    }
    recovered(world)?;
    world.outage(true);
    let began = Instant::now();
    match end {
        End::Wrap(signal_to) => signal(wrap, signal_to),
        End::Server(signal_to) | End::WithoutWrap(signal_to) => signal(server, signal_to),
        End::Statement => {
            faults::asks(world, "shutdown");
        }
    }
    // Clients still ask: it ends all the same, but for a PostgreSQL that waits for them.
    std::thread::sleep(Duration::from_millis(300));
    world.enter(Phase::End);
    let gone = within(ENDS_WITHIN, || (!crate::common::is_alive(server)).then_some(()));
    let took = began.elapsed().as_secs_f64();
    match gone {
        Some(()) => tally.note(format!("    ended in {took:.1} s")),
        None => tally.violation(format!(
            "the server has not ended within {took:.0} s of {end:?}: {} {}",
            served.region.describe(0, 0),
            workers_of(served.pid)
        )),
    }
    Ok(())
}

/// Waits until the server has recovered from the last crash, and has none any more. A PostgreSQL 15 that is asked to end while it recovers
/// waits for its checkpointer for ever, which it has not told to end: 12 of 24 did that without us.
fn recovered(world: &World<'_>) -> anyhow::Result<()> {
    *world.may_crash.lock().unwrap_or_else(PoisonError::into_inner) = false;
    // It may not have noticed the last one.
    std::thread::sleep(Duration::from_secs(1));
    let answers = || matches!(faults::asks(world, "select 1"), Some(Answer::Done { .. })).then_some(());
    within(STARTS_WITHIN, answers).context("it answers nobody before its end")
}

/// What the processes of a server that does not end wait for.
fn workers_of(server: u32) -> String {
    let each = children(server).into_iter().map(|process| {
        let of = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
        let stat = of("stat");
        let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest).trim();
        let state = state.chars().next().unwrap_or('?');
        format!(
            "\n    {} {:?}: {state} in {} ({}), signals {}",
            process.pid,
            process.args,
            of("wchan"),
            of("syscall").trim(),
            of("status")
                .lines()
                .filter(|line| line.starts_with("Sig") || line.starts_with("ShdPnd"))
                .collect::<Vec<_>>()
                .join(" ")
        )
    });
    each.collect()
}

/// Wrap ends as the server did, and leaves nothing.
fn after(place: &Place, served: &mut Served, end: End, tally: &Tally) -> anyhow::Result<()> {
    let status = served.wrap.wait_for(ENDS_WITHIN).context("wrap has not ended")?;
    let expected = match end {
        End::Server(Signal::KILL) => Some(137),
        End::WithoutWrap(_) => return Ok(()),
        _ => Some(0),
    };
    if status.code() != expected {
        tally.violation(format!(
            "wrap ended with {status} after {end:?}: {}",
            served.wrap.last_words()
        ));
    }
    let left = place.left(None);
    if !left.is_empty() {
        tally.violation(format!("left behind: {left:?}"));
    }
    Ok(())
}

/// Looks at each connection whose answer is overdue, at once.
fn watches(world: &World<'_>, region: &crate::region::RegionFile, server: u32, overdue: &Receiver<Overdue>) {
    loop {
        match overdue.recv_timeout(Duration::from_millis(200)) {
            Ok(late) => {
                let worker = match world.database {
                    Database::Postgres => Some(late.id),
                    Database::Maria => faults::asks(
                        world,
                        &format!(
                            "select tid from information_schema.processlist where id = {}",
                            late.id
                        ),
                    )
                    .and_then(|answer| match answer {
                        Answer::Done { first, .. } => first?.parse().ok(),
                        Answer::Refused { .. } => None,
                    }),
                };
                let process = match world.database {
                    Database::Postgres => late.id,
                    Database::Maria => server,
                };
                let worker = worker.unwrap_or(process);
                let of = |file: &str| {
                    fs::read_to_string(format!("/proc/{process}/task/{worker}/{file}"))
                        .unwrap_or_else(|error| error.to_string())
                };
                world.tally.violation(format!(
                    "late by more than {BOUND:?}: {late:?}, worker {worker}: {} in {} ({}); {}",
                    of("stat"),
                    of("wchan"),
                    of("syscall").trim(),
                    region.describe(late.port, worker)
                ));
            }
            Err(RecvTimeoutError::Timeout) if world.phase() != Phase::End => {}
            Err(_) => return,
        }
    }
}

/// Clients that do nothing wrong, so many with so many queries each, one after another and beside each other: what the library counted
/// meanwhile, and what the server did, where it says so.
pub fn counted(place: &mut Place, clients: u64, queries: u64) -> anyhow::Result<(u64, Option<u64>)> {
    let tally = Tally::default();
    let served = place.start("--concurrency 2 --batch 2", "")?;
    let (sender, _overdue) = channel();
    let world = World::new((place.database, place.addresses()), 0, &tally, sender, 1);
    let ask = |statement: &str| faults::asks(&world, statement);
    within(STARTS_WITHIN, || match ask("select 1") {
        Some(Answer::Done { .. }) => Some(()),
        _ => None,
    })
    .context("it answers nobody after its start")?;
    let quiet = || {
        within(QUIET_WITHIN, || {
            let counts = served.region.counts();
            is_quiet(&counts).then_some(counts.queries)
        })
        .context("it is never quiet")
    };
    // The server's own count has the question for it in it, and the library's that question and its login.
    let asked = || match place.database {
        Database::Postgres => None,
        Database::Maria => match ask(
            "select variable_value from information_schema.global_status where variable_name = 'QUESTIONS'",
        ) {
            Some(Answer::Done { first, .. }) => first?.parse::<u64>().ok(),
            _ => None,
        },
    };
    let (questions, before) = (asked(), quiet()?);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let world = &world;
            scope.spawn(move || {
                let mut chance = Chance::new(1, client);
                let connected = crowd::Client::connect(world, &mut chance, "root", None);
                let Some(mut client) = connected else { return };
                for _ in 0..queries {
                    if client.ask("counted", "select 1", Duration::ZERO).is_err() {
                        return;
                    }
                }
                client.leave();
            });
        }
    });
    let after = quiet()?;
    let questions = asked().zip(questions).map(|(after, before)| after - before);
    ensure!(tally.violations() == 0, "see above");
    signal(served.wrap.pid(), Signal::TERM);
    Ok((after - before, questions))
}
