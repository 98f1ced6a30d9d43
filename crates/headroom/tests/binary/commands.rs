//! The smaller commands: what they print, where, and what they do when nobody listens.

use crate::common::{Program, Server, assert_has, headroom, number, refused, run, succeeds};
use rustix::process::Signal;
use std::fs;
use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn trace_writes_rates_that_its_seed_decides() {
    let trace = |args: &[&str]| {
        let program = succeeds(headroom("trace").args(args));
        program.out()
    };
    let day = trace(&["wikipedia"]);
    let rates: Vec<f64> = day.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(rates.len(), 24);
    assert!(rates.iter().all(|rate| *rate >= 0.0) && rates.iter().any(|rate| *rate > 0.0));
    assert_eq!(trace(&["wikipedia", "--seed", "1"]), day);
    assert_ne!(trace(&["wikipedia", "--seed", "2"]), day);
    assert_eq!(trace(&["wikipedia", "--length", "3"]).lines().count(), 72);
    assert_eq!(trace(&["azure", "--length", "2"]).lines().count(), 120);
}

#[test]
fn a_trace_that_was_written_can_be_replayed_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.txt");
    fs::write(&trace, succeeds(headroom("trace wikipedia")).out()).unwrap();
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    let load = |more: &[&str]| {
        let mut command = headroom(format!("load --mean 50 --url {url} --trace"));
        command.arg(&trace).args(more);
        command
    };
    let whole = succeeds(load(&["--compress", "1.5", "--json"]).env("NO_COLOR", "1"));
    let json = whole.json();
    let of = |path: &str| number(&json, path);
    assert!(of("offered") > 20.0 && of("offered") < 250.0, "{json}");
    assert_eq!(of("completed"), of("offered"));
    assert_eq!(of("failed_total"), 0.0);
    assert!(of("latency_ms.p50") <= of("latency_ms.p99") && of("latency_ms.p50") > 0.0);
    assert!(of("send_error_us.p50") >= 0.0 && of("generator_cpu_s") > 0.0);
    assert!(
        whole.err().contains("requests/s"),
        "progress goes to standard error: {}",
        whole.err()
    );

    let mut long = Program::start(&mut load(&["--step", "600", "--json"]));
    long.said(" of 14400 s");
    long.signal(Signal::INT);
    long.succeeds();
    let json = long.json();
    assert!(
        number(&json, "completed") > 0.0 && number(&json, "duration_s") < 600.0,
        "{json}"
    );

    let people = run(load(&["--compress", "0.5"])).out();
    assert_has(&people, &["requests", "P95"]);
}

#[test]
fn doctor_says_what_there_is_and_what_there_is_not() {
    let here = succeeds(headroom("doctor"));
    assert_has(here.out(), &["Levers", "Meters", "Tools"]);
    let json = |args: &[&str]| {
        let program = succeeds(headroom("doctor --json").args(args));
        program.json()
    };
    let all = json(&[]);
    assert!(!all["findings"].as_array().unwrap().is_empty());
    // What each lever saves is said with its cause, and a quota saves nothing.
    let quota = |saving: &serde_json::Value| saving["lever"] == "quota" && saving["watts"] == 0.0;
    assert!(all["savings"].as_array().unwrap().iter().any(quota), "{all}");
    assert_has(
        here.out(),
        &[
            "Savings",
            "a quota switches no core off",
            "by a lower voltage",
            "deep sleep",
        ],
    );

    // A machine without anything: everything that saves or measures is missing, each with why and what would help.
    let nothing = tempfile::tempdir().unwrap();
    let at = nothing.path().to_str().unwrap();
    let all = json(&["--sys", at, "--proc", at]);
    assert!(all["savings"].as_array().unwrap().is_empty(), "{all}");
    let findings = all["findings"].as_array().unwrap();
    let levers: Vec<_> = findings
        .iter()
        .filter(|finding| finding["kind"] == "lever")
        .collect();
    assert!(levers.len() >= 3, "{findings:?}");
    for lever in levers {
        assert_eq!(lever["state"], "unusable", "{lever}");
        assert!(
            lever["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{lever}"
        );
    }
    // What another processor alone would have cannot be had by any remedy.
    let remedies = findings.iter().filter(|finding| finding["remedy"].is_string());
    assert!(remedies.count() * 2 > findings.len(), "{findings:?}");
    let people = succeeds(headroom(format!("doctor --sys {at} --proc {at}")));
    assert_has(people.out(), &["remedy", "only watch"]);
    assert!(!people.out().contains('\u{1b}'), "no colours into a file");
    assert_eq!(
        fs::read_dir(nothing.path()).unwrap().count(),
        0,
        "looking leaves nothing"
    );
}

#[test]
fn who_does_not_read_to_the_end_is_no_error_and_a_full_disk_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let doctor = ["doctor", "--sys", at, "--proc", at];
    for args in [
        &["up", "--example"][..],
        &["trace", "wikipedia", "--length", "20000"],
        &doctor,
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = headroom("")
            .args(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && err.is_empty(),
            "{args:?}: {}: {err}",
            output.status
        );

        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = headroom("")
            .args(args)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert_has(&err, &["standard output", "No space left"]);
    }
}

#[test]
fn help_teaches_and_an_unknown_command_says_what_there_is() {
    let help = succeeds(headroom("--help"));
    for command in [
        "demo", "up", "doctor", "gateway", "load", "trace", "service", "report", "runs",
    ] {
        assert_has(help.out(), &[command]);
        assert_has(succeeds(headroom(format!("{command} --help"))).out(), &["Usage:"]);
    }
    assert_has(
        succeeds(headroom("--version")).out(),
        &[env!("CARGO_PKG_VERSION")],
    );
    refused(headroom("dmeo"), &["dmeo", "demo"]);
    refused(headroom(""), &[]);
}
