//! Classes of connections whose SLOs change while the server runs.

use super::Database;
use crate::common::{Program, assert_has, get, headroom, metrics_at, openmetrics, until, wait};
use rustix::process::Signal;
use std::fs;

/// A class of the Unix socket's clients with P99 within so many seconds.
fn config(p99_s: f64) -> String {
    format!(
        "[control]\nperiod_ms = 100\n[oncall]\nconnections_in_metrics = 4\n[[oncall.class]]\nname = \"gold\"\nclients = [\"unix\"]\n\
         p99_ms = {}\n",
        p99_s * 1e3
    )
}

#[test]
fn a_hangup_has_the_classes_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrap.toml");
    fs::write(&file, config(60.0)).unwrap();
    let Some(mut database) = Database::start(&format!("--name gold-db --config {}", file.display())) else {
        return;
    };
    let at = metrics_at(&mut database.program);
    let has_target = |target: f64| {
        until("the class has its target", || {
            database.asks("select 1")?;
            let page = get(at, "/metrics").ok()?;
            let metrics = openmetrics::parse(&page.body).unwrap_or_else(|error| panic!("{error}"));
            let mut targets = metrics.of("headroom_target_p99_seconds");
            let gold = targets.find(|one| one.labels["part"] == "gold")?.value;
            (gold == target).then_some(())
        });
    };
    has_target(60.0);
    // A server is what its operator calls it, whatever its program.
    assert_has(get(at, "/metrics").unwrap().body, &["part=\"gold-db\""]);
    fs::write(&file, config(30.0)).unwrap();
    database.program.signal(Signal::HUP);
    has_target(30.0);
    assert_has(
        database.program.err(),
        &["class gold: P99 30000 ms (was P99 60000 ms)"],
    );
    // For a while each decision has it, and so the status, the view and the record.
    let status = get(at, "/status").unwrap().body;
    assert_has(status, &["oncall-classes", "gold: P99 30000 ms"]);
    // What is wrong is said with its line, and nothing changes.
    fs::write(&file, config(-1.0)).unwrap();
    database.program.signal(Signal::HUP);
    wait("it is refused", || {
        database.program.err().contains("stay as they were")
    });
    assert_has(database.program.err(), &["wrap.toml", "p99_ms", "-1000"]);
    has_target(30.0);
    // What nobody writes to is not waited for.
    fs::remove_file(&file).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(fifo.unwrap().success());
    database.program.signal(Signal::HUP);
    wait("it is refused", || {
        database.program.err().contains("is no regular file")
    });
    fs::remove_file(&file).unwrap();
    fs::write(&file, config(20.0)).unwrap();
    database.program.signal(Signal::HUP);
    has_target(20.0);
    database.program.signal(Signal::TERM);
    assert_eq!(
        database.program.wait().code(),
        Some(0),
        "{}",
        database.program.err()
    );
}

/// A file that a full disk or an editor left empty takes no class from a policy that goes by it.
#[test]
fn a_file_without_the_classes_that_the_law_in_force_needs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrap.toml");
    fs::write(
        &file,
        format!("{}[law.on-call]\npolicy = \"paced\"\n", config(60.0)),
    )
    .unwrap();
    let Some(mut database) = Database::start(&format!("--config {}", file.display())) else {
        return;
    };
    fs::write(&file, "").unwrap();
    database.program.signal(Signal::HUP);
    wait("it is refused", || {
        database.program.err().contains("The classes stay as they were")
    });
    assert_has(database.program.err(), &["is paced", "has an SLO"]);
    database.program.signal(Signal::TERM);
    assert_eq!(database.program.wait().code(), Some(0));
}

#[test]
fn a_hangup_goes_to_the_server_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrap.toml");
    fs::write(&file, config(60.0)).unwrap();
    let at = folder.path().display();
    let words = format!("wrap --config {at}/wrap.toml --run-dir {at} --db {at}/record.db -- sh -c");
    let script = "trap 'exit 5' HUP; echo ready >&2; while :; do sleep 0.05; done";
    let mut program = Program::start(headroom(words).arg(script));
    wait("its trap is set", || program.err().contains("ready"));
    program.signal(Signal::HUP);
    assert_eq!(program.wait().code(), Some(5), "{}", program.err());
}
