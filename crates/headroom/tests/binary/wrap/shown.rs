//! What users are shown: words, exit statuses, the view, connections, classes and comparisons.

use super::{Database, wrapped};
use crate::common::pty::terminal;
use crate::common::{assert_has, get, headroom, metrics_at, openmetrics, until, wait};
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

fn said(output: &Output) -> (Option<i32>, String) {
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn what_no_shell_would_start_ends_as_in_a_shell_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let text = folder.path().join("text");
    fs::write(&text, "hello").unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    let missing = folder.path().join("missing");
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let windows = folder.path().join("windows");
    fs::write(&windows, "#!/bin/sh\r\ntrue\r\n").unwrap();
    fs::set_permissions(&windows, fs::Permissions::from_mode(0o755)).unwrap();
    for (server, status, parts) in [
        (folder.path(), 126, ["a folder", "name the server's file"]),
        (&plain, 126, ["may not be executed", "chmod +x"]),
        (&text, 126, ["neither a program", "script"]),
        (&missing, 127, ["no such file", "check the path"]),
        (&script, 127, ["/no/such/sh", "correct the line"]),
        (&windows, 127, ["/bin/sh\\r", "carriage return"]),
        (
            Path::new("no-such-server"),
            127,
            ["no such program in PATH", "install it"],
        ),
    ] {
        let server = server.to_str().unwrap();
        let (code, said) = wrapped(folder.path(), "", &[server]);
        assert_eq!(code, Some(status), "{said}");
        assert_has(&said, &parts);
        assert_has(&said, &[server]);
    }
}

#[test]
fn a_server_without_dashes_and_an_empty_name_are_refused_with_the_remedy() {
    for words in ["wrap mariadbd", "wrap --target-ms 20 mariadbd --user=mysql"] {
        let (code, said) = said(&headroom(words).output().unwrap());
        assert_eq!(code, Some(2), "{said}");
        assert_has(said, &["headroom wrap -- mariadbd"]);
    }
    let (code, unknown) = said(&headroom("wrap --targt-ms 20 -- true").output().unwrap());
    assert_eq!(code, Some(2), "{unknown}");
    assert_has(unknown, &["'--targt-ms'", "no such option"]);
    let mut command = headroom("wrap --name");
    let (code, said) = said(&command.args(["", "--", "true"]).output().unwrap());
    assert_eq!(code, Some(2), "{said}");
    assert_has(said, &["--name", "empty"]);
    let help = headroom("wrap --help").output().unwrap();
    assert_has(
        String::from_utf8_lossy(&help.stdout),
        &["headroom wrap [OPTIONS] [-- <SERVER>...]"],
    );
}

#[test]
fn a_record_that_is_not_there_is_said_not_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("none.db");
    let (code, said) = said(
        &headroom(format!("report latest --db {}", db.display()))
            .output()
            .unwrap(),
    );
    assert_eq!(code, Some(2), "{said}");
    assert_has(said, &["none.db: there is no such file", "--db"]);
    assert!(!db.exists());
}

#[test]
fn the_start_says_the_meter_in_short_and_that_a_fixed_law_leaves_the_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = wrapped(folder.path(), "--law fixed", &["sleep", "0.7"]);
    assert_eq!(code, Some(0), "{said}");
    assert_has(&said, &["is left as it is, by the law fixed"]);
    assert!(!said.contains("on call"), "{said}");
    let power = said
        .lines()
        .find(|line| line.contains("power is "))
        .unwrap_or_default();
    assert!(!power.contains("cannot be used") && power.len() < 200, "{power}");
    let end = "P99 under 100 ms: no period was judged, the first 10 are not";
    let end = said
        .lines()
        .find(|line| line.starts_with(end))
        .unwrap_or_default();
    assert!(end.contains("; energy unknown") || end.contains(" J ("), "{said}");
}

#[test]
fn a_meter_that_is_not_there_is_refused_before_the_server_is_started() {
    if Path::new("/dev/hsmp").exists() {
        println!("skipped: a meter that is not there: this machine has AMD's HSMP");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("wrap.toml");
    fs::write(&config, "[power]\nmeter = \"hsmp\"\n").unwrap();
    let started = folder.path().join("started");
    let script = format!("touch {}; echo serving; sleep 1", started.display());
    let words = format!("--config {}", config.display());
    let (code, said) = wrapped(folder.path(), &words, &["sh", "-c", &script]);
    assert_eq!(code, Some(2), "{said}");
    assert_has(
        &said,
        &[
            "wrap.toml:2: power.meter: ",
            "\"hsmp\" cannot be used",
            "auto or model",
        ],
    );
    assert!(!started.exists(), "{said}");
}

#[test]
fn a_folder_that_is_made_for_the_record_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let made = |db: &str| {
        let words = format!(
            "wrap --run-dir {} --db {} -- true",
            at.display(),
            at.join(db).display()
        );
        let (code, said) = said(&headroom(words).output().unwrap());
        assert_eq!(code, Some(0), "{said}");
        let note = format!("the folder {} was not there", at.join("new").display());
        said.matches(&note).count()
    };
    assert_eq!(
        ["new/record.db", "new/record.db", "record.db"].map(made),
        [1, 0, 0]
    );
}

#[test]
fn the_start_says_what_was_set_by_hand_and_that_there_is_no_terminal_for_a_view() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = wrapped(folder.path(), "--view --concurrency 3 --batch 2", &["true"]);
    assert_eq!(code, Some(0), "{said}");
    assert_has(&said, &["set by hand", "--view shows nothing", "no terminal"]);
    assert!(!said.contains("by the law"), "{said}");
}

#[test]
fn a_run_directory_that_cannot_be_listed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let list = || {
        said(
            &headroom(format!("wrap --list --run-dir {}", folder.path().display()))
                .output()
                .unwrap(),
        )
    };
    // Nobody has offered anything in it.
    assert_eq!(list().0, Some(0));
    fs::write(folder.path().join("wrapped"), "").unwrap();
    let (code, said) = list();
    assert_eq!(code, Some(1), "{said}");
    assert_has(said, &["wrapped", "cannot be listed", "--run-dir"]);
}

/// What a wrapped script's terminal was written, from its first byte to its last, and how it ended.
fn on_terminal(folder: &Path, words: &str, script: &str, until_shown: &str) -> (Option<i32>, String) {
    let (mut ours, theirs) = terminal(120, 40);
    let end = || theirs.try_clone().unwrap();
    let at = folder.display();
    let mut command = headroom(format!(
        "wrap {words} --run-dir {at} --db {at}/record.db -- sh -c"
    ));
    command.arg(script).stdin(end()).stdout(end()).stderr(end());
    let mut child = command.spawn().unwrap();
    // Whoever reads ends when nobody has the program's end any more.
    drop((command, theirs));
    let written = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&written);
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = ours.read(&mut bytes) {
            kept.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
    let text = || String::from_utf8_lossy(&written.lock().unwrap()).into_owned();
    wait(until_shown, || text().contains(until_shown));
    fs::write(folder.join("go"), "").unwrap();
    let status = until("its end", || child.try_wait().unwrap());
    reader.join().unwrap();
    (status.code(), text())
}

/// Speaks until there is a file `go`, and then fails.
fn speaker(folder: &Path) -> String {
    let go = folder.join("go");
    format!(
        "while ! test -e {}; do echo IN-THE-MIDST; echo AN-ERROR >&2; sleep 0.05; done; echo THE-LAST; exit 9",
        go.display()
    )
}

#[test]
fn a_server_that_speaks_does_not_write_over_the_view() {
    let folder = tempfile::tempdir().unwrap();
    // The view has the terminal then. What is blank is not written: only words can be looked for.
    let (code, screen) = on_terminal(folder.path(), "--view", &speaker(folder.path()), "newest");
    assert_eq!(code, Some(9), "{screen}");
    let (view, after) = screen.split_once("\u{1b}[?1049l").expect("a view");
    assert!(
        !view.contains("IN-THE-MIDST") && !view.contains("AN-ERROR"),
        "{view}"
    );
    assert_has(after, &["the last that the server said", "THE-LAST", "server-"]);
    let logs: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
    let log = fs::read_to_string(&logs[0]).unwrap();
    assert_has(log, &["IN-THE-MIDST", "AN-ERROR", "THE-LAST"]);
}

#[test]
fn without_a_view_a_server_speaks_where_it_always_did() {
    let folder = tempfile::tempdir().unwrap();
    let (code, screen) = on_terminal(folder.path(), "", &speaker(folder.path()), "IN-THE-MIDST");
    assert_eq!(code, Some(9), "{screen}");
    assert_has(screen, &["AN-ERROR", "THE-LAST"]);
    let left = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert!(
        left.into_iter()
            .all(|name| !name.to_string_lossy().ends_with(".log"))
    );
}

/// Of a short comparison: what it found is of no matter here.
const CONFIG: &str = "\
[control]
period_ms = 100
[law]
name = \"on-call\"
[law.on-call]
settle_periods = 0
block_periods = 1
max_rounds = 3
[oncall]
connections_in_metrics = 4
[[oncall.class]]
name = \"gold\"
clients = [\"user:root\"]
p99_ms = 60000.0
";

fn json(at: SocketAddr, path: &str) -> Option<serde_json::Value> {
    let answer = get(at, path).ok().filter(|answer| answer.status == 200)?;
    serde_json::from_str(&answer.body).ok()
}

#[test]
fn connections_classes_and_comparisons_of_a_database_are_shown() {
    let file = tempfile::tempdir().unwrap();
    let config = file.path().join("wrap.toml");
    fs::write(&config, CONFIG).unwrap();
    let Some(mut database) = Database::start(&format!("--config {}", config.display())) else {
        return;
    };
    let at = metrics_at(&mut database.program);
    assert!(database.asks("create database d").is_some());
    let mut load = database.client("mysqlslap");
    load.args(["--concurrency=24", "--number-of-queries=100000000"]);
    load.args(["--create-schema=d", "--query=select 1"]);
    let mut load = load.spawn().unwrap();
    let all = until("the connections of the load are told", || {
        let told = json(at, "/connections")?;
        let busy = told["connections"]
            .as_array()?
            .iter()
            .filter(|one| one["queries"].as_u64() > Some(128));
        (busy.count() >= 24).then_some(told)
    });
    let all = all["connections"].as_array().unwrap();
    for one in all.iter().take(24) {
        assert_eq!(
            [&one["client"], &one["user"], &one["class"]],
            [
                &serde_json::json!("unix"),
                &serde_json::json!("root"),
                &serde_json::json!("gold")
            ]
        );
        assert!(
            one["tid"]
                .as_u64()
                .is_some_and(|tid| Path::new(&format!("/proc/{tid}")).exists()),
            "{one}"
        );
        assert_eq!(one["recent"], 128);
        let [p50, p95, p99] = [0, 1, 2].map(|at| one["recent_seconds"][at].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p95 && p95 <= p99, "{one}");
        // Queries do not overlap, and each comes after the one before is answered.
        let (latency, between) = (
            one["latency_seconds"].as_f64(),
            one["interarrival_seconds"].as_f64(),
        );
        assert!(latency > Some(0.0) && between > Some(0.0), "{one}");
    }
    let busiest: Vec<u64> = all.iter().map(|one| one["queries"].as_u64().unwrap()).collect();
    assert!(busiest.is_sorted_by(|one, two| one >= two));
    let page = get(at, "/metrics").unwrap();
    let metrics = openmetrics::parse(&page.body).unwrap_or_else(|error| panic!("{error}"));
    for name in [
        "headroom_connection_queries_total",
        "headroom_connection_latency_seconds_total",
    ] {
        assert_eq!(metrics.of(name).count(), 4, "{name}");
    }
    assert_eq!(
        metrics.of("headroom_connection_recent_latency_seconds").count(),
        3 * 4
    );
    assert!(metrics.sum("headroom_connections_without_series") >= Some(20.0));
    // The law's series come with its first period, and a load on a slow machine can be seen before it.
    let target = until("the class has its target among the metrics", || {
        let page = get(at, "/metrics").ok()?;
        let metrics = openmetrics::parse(&page.body).unwrap_or_else(|error| panic!("{error}"));
        let mut targets = metrics.of("headroom_target_p99_seconds");
        Some(targets.find(|one| one.labels["part"] == "gold")?.value)
    });
    assert_eq!(target, 60.0);
    let status = until("a comparison is over", || {
        json(at, "/status").filter(|status| {
            status["comparisons"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        })
    });
    let compared = status["comparisons"][0]["compared"].as_array().unwrap();
    assert!(
        compared.len() > 1 && compared.iter().any(|one| one["rate"].as_f64() > Some(0.0)),
        "{compared:?}"
    );
    let gold = |status: &serde_json::Value| {
        let classes = status["classes"].as_array().cloned().unwrap_or_default();
        classes.into_iter().find(|class| class["name"] == "gold")
    };
    until("the class keeps its SLO", || {
        gold(&json(at, "/status")?).filter(|gold| gold["state"] == "kept")
    });
    load.kill().unwrap();
    load.wait().unwrap();
    until("it has no queries", || {
        gold(&json(at, "/status")?).filter(|gold| gold["state"] == "no queries")
    });
    database.program.ends_well();
    let folder = database.folder.path();
    let page = folder.join("report.html");
    let words = format!(
        "report latest --db {} --out {}",
        folder.join("record.db").display(),
        page.display()
    );
    let output = headroom(words).output().unwrap();
    assert!(output.status.success(), "{}", said(&output).1);
    assert_has(
        fs::read_to_string(&page).unwrap(),
        &[
            "What did the law compare?",
            "Class gold: latency",
            "target of P99",
            "no queries",
        ],
    );
}
