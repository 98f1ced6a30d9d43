//! Who yields to others in a wrapped database, and is in a transaction.

use super::Database;
use super::areas::load;
use crate::common::until;
use rustix::process::Signal;
use std::fs;

/// With a class whose SLO cannot be kept, so that all others yield at all times.
const CONFIG: &str = "[[oncall.class]]\nname = \"gold\"\nclients = [\"user:gold\"]\np99_ms = 0.001\n[law]\nname = \"reef\"\n[law.reef]\n\
                      policy = \"pslo\"\nconcurrency = 1\nmax_batch = 1\nmax_delay_ms = 0.0\n";

/// The seconds from a number of times to the next, of an answer with a time a line.
fn between(answer: &str) -> Vec<f64> {
    let times: Vec<f64> = answer.lines().map(|line| line.trim().parse().unwrap()).collect();
    times.windows(2).map(|two| two[1] - two[0]).collect()
}

#[test]
fn who_yields_waits_before_its_transaction_and_not_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrap.toml");
    fs::write(&file, CONFIG).unwrap();
    let Some(mut database) = Database::start(&format!("--config {}", file.display())) else {
        return;
    };
    let made = database.asks(
        "create user gold; grant all on *.* to gold; create database shop; create table shop.t (id int primary key, v int) engine=innodb; \
         insert into shop.t values (1, 0)",
    );
    assert!(made.is_some());
    let mut gold = load(&database, "gold", 6);
    let now = "select unix_timestamp(sysdate(6))";
    // Its beginning is held up once there are others for the policy to see.
    let held_up = until("who yields is held up", || {
        let change = "update shop.t set v = v + 1 where id = 1";
        let script = format!("{now}; begin; {now}; {change}; {change}; {change}; {now}; commit");
        let between = between(&database.asks(&script)?);
        (between[0] > 0.4).then_some(between)
    });
    assert!(held_up[1] * 2.0 < held_up[0], "{held_up:?}");
    assert!(gold.try_wait().unwrap().is_none(), "the load had ended");
    gold.kill().unwrap();
    gold.wait().unwrap();
    database.program.signal(Signal::TERM);
    assert_eq!(
        database.program.wait().code(),
        Some(0),
        "{}",
        database.program.err()
    );
}
