//! Who yields to others in a wrapped database, and is in a transaction.

use super::Database;
use super::areas::load;
use crate::common::{get, metrics_at, until};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// With a class whose SLO cannot be kept, so that all others yield at all times.
const CONFIG: &str = "[[oncall.class]]\nname = \"gold\"\nclients = [\"user:gold\"]\np99_ms = 0.001\n[law]\nname = \"reef\"\n[law.reef]\n\
                      policy = \"pslo\"\nconcurrency = 1\nmax_batch = 1\nmax_delay_ms = 0.0\ngives_up = false\n";

/// The seconds from a number of times to the next, of an answer with a time a line.
fn between(answer: &str) -> Vec<f64> {
    let times: Vec<f64> = answer.lines().map(|line| line.trim().parse().unwrap()).collect();
    times.windows(2).map(|two| two[1] - two[0]).collect()
}

#[test]
fn who_yields_is_held_up_in_its_transaction_only_while_nobody_waits_for_its_locks() {
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
    let change = "update shop.t set v = v + 1 where id = 1";
    // A policy has placed it by the next period, and not before.
    let script =
        format!("do sleep(0.6); {now}; begin; {change}; {now}; {change}; {change}; {change}; {now}; commit");
    // Its statements are held up once there are others for the policy to see.
    let alone = until("who yields is held up", || {
        let between = between(&database.asks(&script)?);
        (between[0] > 0.4 && between[1] > 0.4).then_some(between)
    });
    // One of the class waits for its row, and has it soon.
    let stop = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            while !stop.load(Relaxed) {
                let _ = database
                    .client("mariadb")
                    .args(["--user=gold", "-e", change])
                    .output();
            }
        });
        let beside = until("one of the class waits for its row", || {
            let between = between(&database.asks(&script)?);
            (between[1] * 3.0 < alone[1]).then_some(between)
        });
        stop.store(true, Relaxed);
        waits.join().unwrap();
        beside
    });
    println!("held up for {alone:?} s, and beside one that waits for {beside:?} s");
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

#[test]
fn the_admin_port_says_who_is_in_a_transaction() {
    let Some(mut database) = Database::start("--law fixed") else {
        return;
    };
    let at = metrics_at(&mut database.program);
    let made = database.asks("create database shop; create table shop.t (id int primary key) engine=innodb");
    assert!(made.is_some());
    let mut client = database
        .client("mariadb")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut after = |statements: &str, is_in: bool| {
        input.write_all(format!("{statements};\n").as_bytes()).unwrap();
        until(&format!("{statements}: {is_in}"), || {
            let page = get(at, "/connections").ok()?.body;
            let page: serde_json::Value = serde_json::from_str(&page).ok()?;
            let [one] = page["connections"].as_array()?.as_slice() else {
                return None;
            };
            (one["in_transaction"].as_bool()? == is_in).then_some(())
        });
    };
    after("select 1", false);
    after("begin", true);
    after("commit", false);
    after("set autocommit = 0; select * from shop.t", true);
    after("rollback", false);
    after("start transaction; insert into shop.t values (1)", true);
    after("create table shop.u (id int)", false);
    drop(input);
    client.wait().unwrap();
    database.program.signal(Signal::TERM);
    assert_eq!(
        database.program.wait().code(),
        Some(0),
        "{}",
        database.program.err()
    );
}
