//! The smaller commands: what they print, where, and what they do when nobody listens.

use crate::common::{Program, Server, headroom, run};
use crate::contract::number;
use rustix::process::Signal;
use std::fs;
use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn trace_writes_rates_that_its_seed_decides() {
    let trace = |args: &[&str]| {
        let (status, program) = run(headroom().arg("trace").args(args));
        assert!(status.success(), "{}", program.err());
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
    fs::write(&trace, run(headroom().args(["trace", "wikipedia"])).1.out()).unwrap();
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    let load = |more: &[&str]| {
        let mut command = headroom();
        command
            .args(["load", "--mean", "50", "--url", &url, "--trace"])
            .arg(&trace)
            .args(more);
        command
    };
    let (status, whole) = run(load(&["--compress", "1.5", "--json"]).env("NO_COLOR", "1"));
    assert!(status.success(), "{}", whole.err());
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
    long.said("how it fares", |err| err.contains(" of 14400 s").then_some(()));
    long.signal(Signal::INT);
    long.succeeds();
    let json = long.json();
    assert!(
        number(&json, "completed") > 0.0 && number(&json, "duration_s") < 600.0,
        "{json}"
    );

    let people = run(&mut load(&["--compress", "0.5"])).1.out();
    assert!(people.contains("requests") && people.contains("P95"), "{people}");
}

#[test]
fn doctor_says_what_there_is_and_what_there_is_not() {
    let (status, here) = run(headroom().arg("doctor"));
    assert!(status.success());
    for title in ["Levers", "Meters", "Tools"] {
        assert!(here.out().contains(title), "{}", here.out());
    }
    let json = |args: &[&str]| {
        let (status, program) = run(headroom().args(["doctor", "--json"]).args(args));
        assert!(status.success(), "{}", program.err());
        program.json()
    };
    assert!(!json(&[]).as_array().unwrap().is_empty());

    // A machine without anything: everything that saves or measures is missing, each with why and what would help.
    let nothing = tempfile::tempdir().unwrap();
    let at = nothing.path().to_str().unwrap();
    let findings = json(&["--sys", at, "--proc", at]);
    let findings = findings.as_array().unwrap();
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
    let (status, people) = run(headroom().args(["doctor", "--sys", at, "--proc", at]));
    assert!(status.success());
    assert!(
        people.out().contains("remedy") && people.out().contains("only watch"),
        "{}",
        people.out()
    );
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
        let output = headroom()
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
        let output = headroom()
            .args(args)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(
            err.contains("standard output") && err.contains("No space left"),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn help_teaches_and_an_unknown_command_says_what_there_is() {
    let (status, help) = run(headroom().arg("--help"));
    assert!(status.success());
    for command in [
        "demo", "up", "doctor", "gateway", "load", "trace", "service", "report", "runs",
    ] {
        assert!(
            help.out().contains(command),
            "{command} is not in: {}",
            help.out()
        );
        let (status, own) = run(headroom().args([command, "--help"]));
        assert!(status.success() && own.out().contains("Usage:"), "{command}");
    }
    let (status, version) = run(headroom().arg("--version"));
    assert!(status.success() && version.out().contains(env!("CARGO_PKG_VERSION")));
    let (status, typo) = run(headroom().arg("dmeo"));
    assert_eq!(status.code(), Some(2));
    assert!(
        typo.err().contains("dmeo") && typo.err().contains("demo"),
        "{}",
        typo.err()
    );
    let (status, _) = run(&mut headroom());
    assert_eq!(status.code(), Some(2));
}
