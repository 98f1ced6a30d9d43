//! `headroom load` and `headroom trace` beyond the trace: users, logs, curves, a site's files.

use crate::common::{Program, Server, headroom, run};
use crate::contract::number;
use std::fs;
use std::time::Duration;

fn load(args: &[&str]) -> (std::process::ExitStatus, Program) {
    run(headroom().arg("load").args(args))
}

fn refused(args: &[&str], parts: &[&str]) {
    let (status, program) = load(args);
    assert_eq!(status.code(), Some(2), "{args:?}: {}", program.err());
    for part in parts {
        assert!(program.err().contains(part), "{args:?}: {}", program.err());
    }
}

const LOG: &str = "\
h - - [28/Aug/1995:00:00:00 -0400] \"GET /a HTTP/1.0\" 200 1839
h - - [28/Aug/1995:00:00:02 -0400] \"POST /b HTTP/1.0\" 200 -
not a line
h - - [28/Aug/1995:00:00:01 -0400] \"HEAD /c HTTP/1.0\" 304 -
h - - [28/Aug/1995:00:00:11 -0400] \"GET /d HTTP/1.0\" 404 - \"-\" \"agent\"
";

#[test]
fn users_are_emulated_and_reported() {
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    let users = |more: &[&str]| {
        let mut args = vec!["--url", &url, "--users", "ramp:from=20,to=60,over=4s"];
        args.extend(more);
        let (status, program) = load(&args);
        assert!(status.success(), "{}", program.err());
        program
    };
    let whole = users(&["--json", "--new-connections"]);
    let json = whole.json();
    let of = |path: &str| number(&json, path);
    assert!(
        of("pages_completed") > 10.0 && of("pages_per_second") > 0.0,
        "{json}"
    );
    assert!((30.0..50.0).contains(&of("users_mean")), "{json}");
    assert_eq!(of("connections"), of("completed"));
    assert_eq!((of("failed_total"), of("connects_retried")), (0.0, 0.0), "{json}");
    assert!(of("connect_ms.p50") > 0.0);
    assert!(
        whole.err().contains("users") && whole.err().contains("pages/s"),
        "{}",
        whole.err()
    );
    let people = users(&["--duration", "1500ms", "--files", "20"]).out();
    assert!(
        people.contains("pages") && people.contains("connects"),
        "{people}"
    );
}

#[test]
fn a_log_is_replayed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, LOG).unwrap();
    let name = file.to_str().unwrap();
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    let (status, replay) = load(&["--url", &url, "--replay", name, "--speed", "12", "--json"]);
    assert!(status.success(), "{}", replay.err());
    assert_eq!(number(&replay.json(), "completed"), 3.0);
    for part in [
        "access.log:3: skipped: no [time]",
        "4 requests",
        "1 bad lines",
        "1 behind",
    ] {
        assert!(replay.err().contains(part), "{part}: {}", replay.err());
    }

    let (status, trace) = run(headroom().args(["trace", "--from-log", name, "--bin", "4s"]));
    assert!(status.success(), "{}", trace.err());
    assert_eq!(trace.out(), "0.750\n0.000\n0.250\n");
}

#[test]
fn curves_and_two_weeks_are_written_as_traces() {
    let trace = |args: &[&str]| {
        let (status, program) = run(headroom().arg("trace").args(args));
        assert!(status.success(), "{}", program.err());
        program.out()
    };
    assert_eq!(trace(&["clarknet-like"]).lines().count(), 14 * 144);
    assert_ne!(
        trace(&["clarknet-like", "--length", "1"]),
        trace(&["clarknet-like", "--length", "1", "--seed", "2"])
    );
    assert_eq!(
        trace(&["ramp:from=0,to=30,over=30s", "--bin", "10"]),
        "5.000\n15.000\n25.000\n"
    );
    let wave = trace(&[
        "sinusoid:mean=10,amplitude=10,period=40s",
        "--duration",
        "40s",
        "--bin",
        "20s",
    ]);
    assert_eq!(wave, "20.000\n0.000\n");
}

#[test]
fn a_site_is_written_to_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    let (status, program) = load(&[
        "--write-files",
        site.to_str().unwrap(),
        "--files",
        "30",
        "--size-scale",
        "0.01",
    ]);
    assert!(status.success(), "{}", program.err());
    assert!(
        program
            .out()
            .contains("--users CURVE --files 30 --seed 1 --size-scale 0.01"),
        "{}",
        program.out()
    );
    let list = fs::read_to_string(site.join("files.txt")).unwrap();
    assert_eq!(list.lines().count(), 31);
    assert_eq!(fs::read_dir(&site).unwrap().count(), 31);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.log");
    fs::write(&file, "").unwrap();
    let name = file.to_str().unwrap();
    // Nobody listens there, and nobody is asked.
    let url = ["--url", "http://127.0.0.1:9/"];
    let with = |more: &[&'static str]| [&url[..], more].concat();
    refused(&url, &["--trace", "--users", "--replay"]);
    refused(
        &with(&["--users", "10", "--trace", "wikipedia"]),
        &["cannot be used with"],
    );
    refused(
        &with(&["--users", "many"]),
        &["`many` is not a number of users", "sinusoid:mean="],
    );
    refused(&with(&["--users", "10"]), &["--duration"]);
    refused(
        &with(&["--users", "steps:2000/1s", "--connections", "100"]),
        &["users = 2000", "each user may hold a connection"],
    );
    refused(
        &with(&["--users", "10", "--duration", "1s", "--files", "3"]),
        &["files = 3"],
    );
    refused(
        &with(&["--trace", "wikipedia", "--files", "30"]),
        &["--files is for --users"],
    );
    refused(
        &["--url", url[1], "--replay", name],
        &["empty.log", "it is empty"],
    );
    refused(&with(&["--replay", "/nonexistent.log"]), &["/nonexistent.log"]);
    refused(&["--users", "10"], &["--url"]);
    let trace = |args: &[&str], part: &str| {
        let (status, program) = run(headroom().arg("trace").args(args));
        assert_eq!(status.code(), Some(2), "{}", program.err());
        assert!(program.err().contains(part), "{}", program.err());
    };
    trace(&["wikepedia"], "`wikepedia` is no trace");
    trace(&["sinusoid:mean=1,amplitude=1,period=1m"], "give --duration");
    trace(
        &["ramp:to=1,over=1m", "--length", "3"],
        "--length is for the named traces",
    );
    trace(&["--from-log", name, "--bin", "0.5s"], "it is empty");
    trace(&[], "LIKE");
}
