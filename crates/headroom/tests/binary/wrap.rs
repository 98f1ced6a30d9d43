//! `headroom wrap`: a server of the user's with its workers on call.

use crate::common::{Program, assert_has, headroom, kill, until, wait};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs it to its end: its exit status and what it said.
fn wrapped(folder: &Path, words: &str, server: &[&str]) -> (Option<i32>, String) {
    let mut command = headroom(format!("wrap --run-dir {} {words} --", folder.display()));
    let output = command.args(server).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_wrapped_program_ends_as_it_does_alone_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = wrapped(
        folder.path(),
        "",
        &["sh", "-c", "test -r \"$LD_PRELOAD\" && exit 7"],
    );
    assert_eq!(status, Some(7), "{said}");
    assert_has(said, &["workers on call", "8 queries of a connection"]);
    assert_eq!(
        wrapped(folder.path(), "", &["sh", "-c", "kill -9 $$"]).0,
        Some(137)
    );
    assert_eq!(wrapped(folder.path(), "", &["true"]).0, Some(0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_helped_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |words: &str, server: &[&str], parts: &[&str]| {
        let (status, said) = wrapped(folder.path(), words, server);
        assert_eq!(status, Some(2), "{said}");
        assert_has(said, parts);
    };
    refused("", &["no-such-server"], &["no-such-server", "no such program"]);
    refused("--batch 0", &["sh"], &["--batch", "0 is not in"]);
    refused("--concurrency 0", &["sh"], &["--concurrency"]);
    refused("--delay -1", &["sh"], &["--delay", "from 0 to 10000"]);
    let file = folder.path().join("server");
    fs::write(&file, "hello").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    refused("", &[file.to_str().unwrap()], &["neither a program", "server"]);
    refused(
        "--run-dir /proc/none",
        &["sh"],
        &["cannot be used multiple times"],
    );
    let (status, said) = wrapped(Path::new("/proc/none"), "", &["sh"]);
    assert_eq!(status, Some(2), "{said}");
    assert_has(said, &["/proc/none", "--run-dir"]);
}

#[test]
fn a_signal_goes_to_the_server_and_its_end_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("down");
    let script = format!(
        "trap 'sleep 0.3; echo down >{}; exit 3' TERM; while :; do sleep 0.05; done",
        mark.display()
    );
    let mut command = headroom(format!("wrap --run-dir {} -- sh -c", folder.path().display()));
    let mut program = Program::start(command.arg(script));
    wait("it is on call", || program.err().contains("workers on call"));
    // Until the shell has set its trap, a signal would end it at once.
    std::thread::sleep(std::time::Duration::from_millis(300));
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(3), "{}", program.err());
    assert!(mark.exists());
}

/// A MariaDB of this test's own.
struct Database {
    program: Program,
    folder: TempDir,
}

impl Database {
    /// Starts it wrapped; `None` where there is none on this machine.
    fn start(words: &str) -> Option<Self> {
        let there = |name: &str| {
            Command::new("sh")
                .args(["-c", &format!("command -v {name}")])
                .output()
        };
        let is_there = |name: &str| there(name).is_ok_and(|output| output.status.success());
        if !["mariadbd", "mariadb-install-db", "mysqlslap", "mariadb"]
            .into_iter()
            .all(is_there)
        {
            println!("skipped: a wrapped MariaDB: mariadb-server is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut install = Command::new("mariadb-install-db");
        install
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()));
        // The root of a container may be the only user there is.
        let user = "--user=root";
        let made = install
            .args([user, "--auth-root-authentication-method=normal", "--skip-test-db"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let mut command = headroom(format!(
            "wrap --every 1 --run-dir {} {words} -- mariadbd",
            folder.path().display()
        ));
        command.args([
            "--no-defaults",
            user,
            "--skip-networking",
            "--max-connections=200",
            "--skip-log-bin",
        ]);
        command.args(["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"]);
        command.arg(format!("--datadir={}", data.display()));
        command.arg(format!("--socket={}", folder.path().join("socket").display()));
        let program = Program::start(command);
        let database = Self { program, folder };
        until("the database answers", || database.asks("select 1").map(|_| ()));
        Some(database)
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        let socket = self.folder.path().join("socket");
        command
            .arg("--no-defaults")
            .arg("--user=root")
            .arg(format!("--socket={}", socket.display()));
        command
    }

    fn asks(&self, statement: &str) -> Option<String> {
        let output = self
            .client("mariadb")
            .args(["-N", "-e", statement])
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[test]
fn a_wrapped_database_serves_many_connections_waits_for_locks_and_shuts_down() {
    let Some(mut database) = Database::start("--concurrency 1 --batch 1 --linger 0") else {
        return;
    };
    database.asks("create database d; create table d.t (id int primary key, n int) engine=innodb; insert into d.t values (1, 0)");
    // Every transaction locks the one row, and keeps it until another query of its own: a worker that kept its slot while it waits
    // for the row would keep it from who has it.
    let mut load = database.client("mysqlslap");
    load.args([
        "--concurrency=40",
        "--iterations=1",
        "--number-of-queries=800",
        "--delimiter=;",
        "--create-schema=d",
    ]);
    load.arg("--query=begin; update t set n = n + 1 where id = 1; select n from t; commit");
    let load = load.output().unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    assert_eq!(
        database.asks("select n from d.t").as_deref().map(str::trim),
        Some("200")
    );
    // A connection that is killed while its worker is parked is gone.
    let mut sleeper = database.client("mariadb");
    let mut sleeper = sleeper.args(["-e", "select sleep(60)"]).spawn().unwrap();
    let mine =
        || database.asks("select id from information_schema.processlist where info like 'select sleep%'");
    let id = until("it sleeps", || mine().filter(|id| !id.trim().is_empty()));
    // Its slot is free meanwhile.
    assert!(database.asks(&format!("kill {}", id.trim())).is_some());
    assert!(!sleeper.wait().unwrap().success());
    wait("it says what was served", || {
        database.program.err().contains("queries/s")
    });
    database.program.signal(Signal::TERM);
    assert_eq!(
        database.program.wait().code(),
        Some(0),
        "{}",
        database.program.err()
    );
    assert_has(database.program.err(), &["slots given back"]);
}

#[test]
fn a_database_whose_wrap_is_killed_serves_on() {
    let Some(mut database) = Database::start("--concurrency 1 --batch 1") else {
        return;
    };
    let pid = database.asks("select @@pid_file").unwrap();
    let pid: u32 = fs::read_to_string(pid.trim()).unwrap().trim().parse().unwrap();
    kill(database.program.pid());
    database.program.wait();
    for _ in 0..20 {
        assert_eq!(
            database.asks("select 41 + 1").as_deref().map(str::trim),
            Some("42")
        );
    }
    crate::common::signal(pid, Signal::TERM);
    wait("it is down", || !Path::new(&format!("/proc/{pid}")).exists());
}
