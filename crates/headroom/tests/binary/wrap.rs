//! `headroom wrap`: a server of the user's with its workers on call.

mod areas;
mod no_record;
mod reload;
mod run_folder;
mod shown;
mod signalled;
mod transactions;

use crate::common::{
    Database, Program, assert_has, get, headroom, kill, metrics_at, openmetrics, until, wait,
};
use rustix::process::Signal;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs it to its end: its exit status and what it said.
fn wrapped(folder: &Path, words: &str, server: &[&str]) -> (Option<i32>, String) {
    let record = tempfile::tempdir().unwrap();
    let db = record.path().join("record.db");
    let mut command = headroom(format!(
        "wrap --run-dir {} --db {} {words} --",
        folder.display(),
        db.display()
    ));
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
    assert_has(said, &["go on call with its first client, by the law on-call"]);
    assert_eq!(
        wrapped(folder.path(), "", &["sh", "-c", "kill -9 $$"]).0,
        Some(137)
    );
    assert_eq!(wrapped(folder.path(), "", &["true"]).0, Some(0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn steered_with_target(folder: &Path) -> (Option<i32>, String) {
    let words = format!(
        "wrap --steered --target-ms 20 --run-dir {} -- true",
        folder.display()
    );
    let output = headroom(words).output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn a_list_of_a_folder_that_is_not_there_or_of_anothers_servers_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let list = |at: &Path| {
        headroom(format!("wrap --list --run-dir {}", at.display()))
            .output()
            .unwrap()
    };
    assert_eq!(list(folder.path()).status.code(), Some(0));
    let missing = list(&folder.path().join("none"));
    assert_eq!(missing.status.code(), Some(1));
    assert_has(String::from_utf8_lossy(&missing.stderr), &["none", "--run-dir"]);
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a server of another user: this takes root");
        return;
    }
    let file = folder.path().join("wrapped/db.json");
    fs::create_dir(folder.path().join("wrapped")).unwrap();
    fs::write(&file, "{}").unwrap();
    std::os::unix::fs::chown(&file, Some(NOBODY), None).unwrap();
    let other = list(folder.path());
    assert_eq!(other.status.code(), Some(1));
    assert_has(String::from_utf8_lossy(&other.stderr), &["db: ", "as its owner"]);
}

#[test]
fn what_cannot_be_helped_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |words: &str, server: &[&str], parts: &[&str]| {
        let (status, said) = wrapped(folder.path(), words, server);
        assert_eq!(status, Some(2), "{said}");
        assert_has(said, parts);
    };
    refused("--batch 0", &["sh"], &["--batch", "0 is not in"]);
    refused("--concurrency 0", &["sh"], &["--concurrency"]);
    refused("--delay -1", &["sh"], &["--delay", "from 0 to 10000"]);
    refused(
        "--run-dir /proc/none",
        &["sh"],
        &["cannot be used multiple times"],
    );
    let (status, said) = wrapped(Path::new("/proc/none"), "", &["sh"]);
    assert_eq!(status, Some(2), "{said}");
    assert_has(said, &["/proc/none", "--run-dir"]);
    refused("--admin 19871", &["sh"], &["--admin", "127.0.0.1:9187"]);
    let (status, said) = steered_with_target(folder.path());
    assert_eq!(status, Some(2), "{said}");
    assert_has(said, &["--target-ms", "[slo]", "`headroom up`"]);
    let of_machine = folder.path().join("constant.toml");
    for setting in ["{ cores = 1.5 }", "{}"] {
        let text = format!("[law]\nname = \"constant\"\nconstant = {{ setting = {setting} }}\n");
        fs::write(&of_machine, text).unwrap();
        let words = format!("--config {}", of_machine.display());
        refused(
            &words,
            &["sh"],
            &[
                "law.constant.setting",
                "concurrency, query_batch, round_delay",
                "headroom up",
            ],
        );
    }
    // What a flag gave is the flag's, and what the file did the file's.
    let at = folder.path().join("wrap.toml");
    fs::write(&at, "[record]\ndb = \"/proc/by-file/record.db\"\n").unwrap();
    let ends = |words: &str| {
        let mut command = headroom(format!("wrap --run-dir {} {words} --", folder.path().display()));
        let output = command.arg("true").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let by_flag = ends("--db /proc/by-flag/record.db");
    assert_has(&by_flag, &["--db: ", "/proc/by-flag"]);
    assert!(
        !by_flag.contains("record.db") && !by_flag.contains("configuration"),
        "{by_flag}"
    );
    let by_file = ends(&format!("--config {}", at.display()));
    assert_has(&by_file, &["wrap.toml:2: record.db: ", "/proc/by-file"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = port.local_addr().unwrap();
    let by_flag = ends(&format!(
        "--db {}/record.db --admin {taken}",
        folder.path().display()
    ));
    assert_has(&by_flag, &["--admin: ", &taken.to_string()]);
}

#[test]
fn a_signal_goes_to_the_server_and_its_end_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("down");
    let script = format!(
        "trap 'sleep 0.3; echo down >{}; exit 3' TERM; while :; do sleep 0.05; done",
        mark.display()
    );
    let at = folder.path().display();
    let mut command = headroom(format!("wrap --run-dir {at} --db {at}/record.db -- sh -c"));
    let mut program = Program::start(command.arg(script));
    wait("it is on call", || program.err().contains("by the law on-call"));
    // Until the shell has set its trap, a signal would end it at once.
    std::thread::sleep(std::time::Duration::from_millis(300));
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(3), "{}", program.err());
    assert!(mark.exists());
}

/// Waits until its metrics say what is in force and that queries were answered, of which some are asked meanwhile.
#[track_caller]
fn serves_metrics(at: SocketAddr, ask: impl Fn() -> Option<String>) {
    until("its metrics say what it serves", || {
        ask()?;
        let page = get(at, "/metrics").ok()?;
        let metrics = openmetrics::parse(&page.body).unwrap_or_else(|error| panic!("{error}"));
        let answered = metrics.sum("headroom_service_requests_total")?;
        (metrics.sum("headroom_concurrency_workers")? >= 1.0 && answered > 0.0).then_some(())
    });
}

/// Waits until its metrics have two failures more, of three queries that end with what the server could not do and with what it refused.
#[track_caller]
fn counts_failures(at: SocketAddr, fails: impl Fn(&str)) {
    let failed = || {
        let page = get(at, "/metrics").ok()?;
        let metrics = openmetrics::parse(&page.body).unwrap_or_else(|error| panic!("{error}"));
        metrics.sum("headroom_service_failures_total")
    };
    // What failed before, as while it started, is in a period by then.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let before = until("its metrics are there", failed);
    for state in ["58000", "45000", "58030"] {
        fails(state);
    }
    until("its metrics say what failed", || {
        let since = failed()? - before;
        assert!(since <= 2.0, "{since}");
        (since == 2.0).then_some(())
    });
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
    let at = metrics_at(&mut database.program);
    serves_metrics(at, || database.asks("select 1"));
    counts_failures(at, |state| {
        assert_eq!(database.asks(&format!("signal sqlstate '{state}'")), None);
    });
    database.program.ends_well();
    assert_has(database.program.err(), &["slots given back"]);
}

#[test]
fn a_database_that_is_executed_as_another_user_is_on_call() {
    let words = [
        "setpriv",
        "--reuid=nobody",
        "--regid=nogroup",
        "--clear-groups",
        "--",
    ];
    if !rustix::process::geteuid().is_root() || Command::new(words[0]).arg("--version").output().is_err() {
        println!(
            "skipped: a database that is executed as another user: this takes root, and setpriv of util-linux"
        );
        return;
    }
    let Some(mut database) = Database::start_as("--concurrency 1 --batch 1 --linger 0", "nobody", &words)
    else {
        return;
    };
    let at = metrics_at(&mut database.program);
    // It may not open the region's file: without the descriptor no query would be counted.
    serves_metrics(at, || database.asks("select 1"));
    let said = database.program.err();
    // Its files may well be written through io_uring.
    let doubts = ["runs as without us", "io_uring, which"];
    assert!(doubts.iter().all(|doubt| !said.contains(doubt)), "{said}");
    database.program.ends_well();
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

/// A PostgreSQL of this test's own, which runs as nobody where the test is root's, as it runs as root no more than any.
struct Postgres {
    program: Program,
    folder: TempDir,
    is_root: bool,
}

impl Postgres {
    /// Starts it wrapped; `None` where there is none on this machine.
    fn start(words: &str) -> Option<Self> {
        let programs = Command::new("sh")
            .args(["-c", "ls -d /usr/lib/postgresql/*/bin /usr/bin 2>/dev/null"])
            .output()
            .unwrap();
        let programs = String::from_utf8_lossy(&programs.stdout).into_owned();
        let found = programs.lines().find(|bin| {
            ["initdb", "postgres"]
                .iter()
                .all(|name| Path::new(bin).join(name).exists())
        });
        let has_client = Command::new("pgbench").arg("--version").output().is_ok();
        let Some(bin) = found.map(Path::new).filter(|_| has_client) else {
            println!("skipped: a wrapped PostgreSQL: postgresql is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let at = folder.path();
        // Whoever it runs as cannot read every folder in which this program may have been built.
        let copy = at.join("headroom");
        fs::copy(headroom("").get_program(), &copy).unwrap();
        if is_root {
            fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let as_user = |mut command: Command| {
            if is_root {
                command.uid(NOBODY).gid(NOBODY);
            }
            command.current_dir(at);
            command
        };
        let data = at.join("data");
        let mut made = as_user(Command::new(bin.join("initdb")));
        made.args(["--auth=trust", "--username=tester", "--no-sync"])
            .arg(format!("--pgdata={}", data.display()));
        let made = made.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut command = as_user(Command::new(&copy));
        command.args(["wrap", "--db", "record.db", "--admin", "127.0.0.1:0", "--run-dir"]);
        command.arg(at);
        command.args(words.split_whitespace()).arg("--");
        command.arg(bin.join("postgres")).arg("-D").arg(&data);
        let socket = format!("unix_socket_directories={}", at.display());
        for setting in ["listen_addresses=", "max_connections=100", "fsync=off", &socket] {
            command.args(["-c", setting]);
        }
        let program = Program::start(&mut command);
        let database = Self {
            program,
            folder,
            is_root,
        };
        until("the database answers", || database.asks("select 1").map(|_| ()));
        Some(database)
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.folder.path());
        command
            .env("PGHOST", self.folder.path())
            .env("PGUSER", "tester")
            .env("PGDATABASE", "postgres");
        command
    }

    fn asks(&self, statement: &str) -> Option<String> {
        let output = self.client("psql").args(["-qAtc", statement]).output().unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// The user of nothing.
const NOBODY: u32 = 65_534;

#[test]
fn a_wrapped_server_of_processes_serves_many_connections_waits_for_locks_and_shuts_down() {
    let Some(mut database) = Postgres::start("--concurrency 1 --batch 1 --linger 0") else {
        return;
    };
    database.asks("create table t (id int primary key, n int); insert into t values (1, 0)");
    // Every transaction keeps the one row until a later query of its own, and the others wait for it with no slot in hand.
    let script = database.folder.path().join("script");
    let text = "begin;\nupdate t set n = n + 1 where id = 1;\nselect n from t;\ncommit;\n";
    fs::write(&script, text).unwrap();
    let mut load = database.client("pgbench");
    load.args(["--no-vacuum", "--client=40", "--transactions=5", "--file"]);
    let load = load.arg(&script).output().unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    assert_eq!(database.asks("select n from t").as_deref(), Some("200"));
    // A query is cancelled, and a connection ended, while its worker sleeps.
    for ends in ["pg_cancel_backend", "pg_terminate_backend"] {
        let mut sleeper = database.client("psql");
        let mut sleeper = sleeper.args(["-c", "select pg_sleep(60)"]).spawn().unwrap();
        let statement =
            format!("select {ends}(pid) from pg_stat_activity where query like 'select pg_sleep%'");
        until("it is ended", || {
            database.asks(&statement).filter(|ended| ended == "t")
        });
        assert!(!sleeper.wait().unwrap().success());
    }
    let at = metrics_at(&mut database.program);
    serves_metrics(at, || database.asks("select 1"));
    counts_failures(at, |state| {
        let fails = format!("do $$ begin raise exception using errcode = '{state}'; end $$");
        assert_eq!(database.asks(&fails), None);
    });
    database.program.ends_well();
    assert_has(
        database.program.err(),
        &["slots given back", "a process for each connection"],
    );
}
