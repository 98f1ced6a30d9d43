//! What becomes of a server whose flight recorder, or whose threads of ours, cannot be had once it serves.

use crate::common::{Program, assert_has, get, headroom, metrics_at, wait};

/// Asks for a while before it rests, so that the record begins after the lock is taken; says when it is asked to end.
const SERVER: &str = "trap 'echo asked to end; exit 3' TERM; echo up; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; \
                      for i in $(seq 120); do sleep 0.1; done; echo ended by itself";

#[test]
fn a_server_whose_record_cannot_begin_serves_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let db = folder.path().join("record.db");
    let mut command = headroom(format!(
        "wrap --run-dir {at}/run --db {} --admin 127.0.0.1:0 --law fixed -- sh -c",
        db.display()
    ));
    let mut program = Program::start(command.arg(SERVER));
    wait("the server", || program.err().contains("was started"));
    let other = rusqlite::Connection::open(&db).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let admin = metrics_at(&mut program);
    wait("it at /readyz", || {
        get(admin, "/readyz").is_ok_and(|answer| answer.body.contains("nothing is recorded"))
    });
    let code = program.wait().code();
    let (said, out) = (program.err(), program.out());
    assert_has(&out, &["ended by itself"]);
    assert!(!out.contains("asked to end"), "{out}");
    assert_has(
        &said,
        &[
            "database is locked",
            "serves on as without us",
            "nothing is recorded",
        ],
    );
    assert_eq!(code, Some(1), "{said}");
}

/// How a server ended is said, and in the record.
#[test]
fn how_a_server_ended_is_said_and_recorded() {
    for (script, how) in [
        ("sleep 2; kill -9 $$", Some("the server was killed by signal 9")),
        ("sleep 2; exit 4", Some("the server ended with status 4")),
        ("sleep 2; exit 0", None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let words = format!("wrap --run-dir {at}/run --db {at}/record.db --law fixed -- sh -c");
        let mut program = Program::start(headroom(words).arg(script));
        program.wait();
        let said = program.err();
        let report = headroom(format!(
            "report latest --json --db {at}/record.db --out {at}/report.html"
        ))
        .output()
        .unwrap();
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        match how {
            Some(how) => {
                assert_has(&said, &[how]);
                assert_has(&report, &[how]);
            }
            None => assert!(
                !said.contains("the server ended") && !report.contains("the server ended"),
                "{said}"
            ),
        }
    }
}
