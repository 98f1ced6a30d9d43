//! Stress: real databases under `headroom wrap`, their clients ill-behaved, their connections killed, their steering changed, stopped
//! and killed; and whether anybody ever waits for an answer that does not come. `make stress` runs it for an hour, `make test` for
//! some seconds.

mod acts;
mod chance;
#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod faults;
mod region;
mod run;
mod server;
mod tally;
mod wire;
mod world;

use run::Plan;
use server::Place;
use std::time::{Duration, Instant};
use tally::Tally;
use wire::Database;

/// Runs a plan on a database, and fails where anything was violated.
fn stress(database: Database, plan: &Plan) {
    let made = Place::make(database).unwrap_or_else(|error| panic!("{error:#}"));
    let Some(mut place) = made else { return };
    println!("{database:?}: seed {}", plan.seed);
    let (tally, began) = (Tally::default(), Instant::now());
    let outcome = run::run(&mut place, plan, &tally);
    let took = began.elapsed().as_secs_f64();
    println!(
        "{database:?}, {took:.0} s, seed {}:\n{}",
        plan.seed,
        tally.report()
    );
    assert!(outcome.is_ok(), "seed {}: {outcome:?}", plan.seed);
    assert_eq!(tally.violations(), 0, "seed {}: see above", plan.seed);
    // A stress that reached nobody proves nothing.
    assert!(tally.answers() > 500, "{} answers", tally.answers());
    for kind in [
        "queries killed",
        "connections killed",
        "storms",
        "spells of other levers",
    ] {
        assert!(tally.made(kind) > 0, "no {kind}");
    }
}

/// Some seconds.
const SHORT: Plan = Plan {
    seed: 14,
    length: Duration::ZERO,
    round: Duration::from_secs(10),
    rounds: 1,
};

#[test]
fn nobody_is_stuck_in_a_server_of_threads() {
    stress(Database::Maria, &SHORT);
}

#[test]
fn nobody_is_stuck_in_a_server_of_processes() {
    stress(Database::Postgres, &SHORT);
}

#[test]
fn what_is_counted_is_what_was_asked() {
    for database in [Database::Maria, Database::Postgres] {
        let made = Place::make(database).unwrap_or_else(|error| panic!("{error:#}"));
        let Some(mut place) = made else { continue };
        let (clients, queries) = (20, 50);
        let counted = run::counted(&mut place, clients, queries);
        let (counted, questions) = counted.unwrap_or_else(|error| panic!("{database:?}: {error:#}"));
        // A login is a message that is answered, too.
        assert_eq!(counted, clients * (queries + 1), "{database:?}");
        // MariaDB counts none, but each goodbye; and the question for its count, with its goodbye.
        if database == Database::Maria {
            assert_eq!(questions, Some(counted + 2));
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    let Some(text) = std::env::var_os(name) else {
        return default;
    };
    let text = text.to_string_lossy();
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}"))
}

/// `STRESS_MINUTES`, two thirds of them MariaDB's; `STRESS_SEED`; `STRESS_ROUND_S`; `STRESS_ONLY`: maria or postgres.
#[test]
#[ignore = "an hour: make stress"]
fn whole_stress() {
    let minutes = number("STRESS_MINUTES", 60);
    let only = std::env::var("STRESS_ONLY").unwrap_or_default();
    let all = [(Database::Maria, "maria", 2), (Database::Postgres, "postgres", 1)];
    let chosen: Vec<_> = all
        .iter()
        .filter(|(_, name, _)| only.is_empty() || only == *name)
        .collect();
    assert!(!chosen.is_empty(), "STRESS_ONLY={only}: maria or postgres");
    let thirds: u64 = chosen.iter().map(|(_, _, share)| share).sum();
    for (database, _, share) in chosen {
        let plan = Plan {
            seed: number("STRESS_SEED", 1),
            length: Duration::from_secs(minutes * 60 * share / thirds),
            round: Duration::from_secs(number("STRESS_ROUND_S", 30)),
            rounds: 2,
        };
        stress(*database, &plan);
    }
}
