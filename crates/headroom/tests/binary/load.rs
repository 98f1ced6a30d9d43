//! `headroom load` and `headroom trace` beyond the trace: users, logs, curves, a site's files.

use crate::common::{Server, assert_has, headroom, number, refused, run, succeeds};
use std::fs;
use std::time::Duration;

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
    let users = |more: &str| {
        succeeds(headroom(format!(
            "load --url {url} --users ramp:from=20,to=60,over=4s {more}"
        )))
    };
    let whole = users("--json --new-connections");
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
    assert_has(whole.err(), &["users", "pages/s"]);
    let people = users("--duration 1500ms --files 20").out();
    assert_has(&people, &["pages", "connects"]);
}

#[test]
fn a_log_is_replayed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, LOG).unwrap();
    let name = file.to_str().unwrap();
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    let replay = succeeds(headroom(format!(
        "load --url {url} --replay {name} --speed 12 --json"
    )));
    assert_eq!(number(&replay.json(), "completed"), 3.0);
    assert_has(
        replay.err(),
        &[
            "access.log:3: skipped: no [time]",
            "4 requests",
            "1 bad lines",
            "1 behind",
        ],
    );

    let trace = succeeds(headroom(format!("trace --from-log {name} --bin 4s")));
    assert_eq!(trace.out(), "0.750\n0.000\n0.250\n");
}

#[test]
fn curves_and_two_weeks_are_written_as_traces() {
    let trace = |words: &str| succeeds(headroom(format!("trace {words}"))).out();
    assert_eq!(trace("clarknet-like").lines().count(), 14 * 144);
    let other = trace("clarknet-like --length 1 --seed 2");
    assert_ne!(trace("clarknet-like --length 1"), other);
    let ramp = trace("ramp:from=0,to=30,over=30s --bin 10");
    assert_eq!(ramp, "5.000\n15.000\n25.000\n");
    let wave = trace("sinusoid:mean=10,amplitude=10,period=40s --duration 40s --bin 20s");
    assert_eq!(wave, "20.000\n0.000\n");
}

#[test]
fn a_site_is_written_to_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    let written = succeeds(headroom("load --files 30 --size-scale 0.01 --write-files").arg(&site));
    assert_has(
        written.out(),
        &["--users CURVE --files 30 --seed 1 --size-scale 0.01"],
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
    let url = "--url http://127.0.0.1:9/";
    let load = |words: &str, said: &[&str]| {
        refused(headroom(format!("load {words}")), said);
    };
    let with = |words: &str, said: &[&str]| load(&format!("{url} {words}"), said);
    load(url, &["--trace", "--users", "--replay"]);
    with("--users 10 --trace wikipedia", &["cannot be used with"]);
    let curves = ["`many` is not a number of users", "sinusoid:mean="];
    with("--users many", &curves);
    with("--users 10", &["--duration"]);
    let few = ["users = 2000", "each user may hold a connection"];
    with("--users steps:2000/1s --connections 100", &few);
    with("--users 10 --duration 1s --files 3", &["files = 3"]);
    with("--trace wikipedia --files 30", &["--files is for --users"]);
    with(&format!("--replay {name}"), &["empty.log", "it is empty"]);
    with("--replay /nonexistent.log", &["/nonexistent.log"]);
    load("--users 10", &["--url"]);
    let trace = |words: &str, said: &str| {
        refused(headroom(format!("trace {words}")), &[said]);
    };
    trace("wikepedia", "`wikepedia` is no trace");
    trace("sinusoid:mean=1,amplitude=1,period=1m", "give --duration");
    trace("ramp:to=1,over=1m --length 3", "--length is for the named traces");
    trace(&format!("--from-log {name} --bin 0.5s"), "it is empty");
    trace("", "LIKE");
}

#[test]
fn visitors_of_an_auction_are_not_sent_to_another_site() {
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    refused(
        headroom(format!(
            "load --url {url} --users 2 --duration 2s --auction bidding"
        )),
        &[
            &url,
            "is not the auction site",
            "its home page is another",
            "headroom service auction",
        ],
    );
}

/// What `load --json` says that it sent.
fn offered(words: &str) -> serde_json::Value {
    let program = succeeds(headroom(format!("load --json {words}")));
    assert!(
        program
            .out()
            .starts_with("{\"offered_load\":{\"command\":\"headroom load --json"),
        "{}",
        program.out()
    );
    program.json()["offered_load"].clone()
}

#[test]
fn a_load_says_all_that_repeats_it_and_another_seed_is_another_load() {
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.txt");
    fs::write(&trace, "20\n40\n").unwrap();
    let words = format!("--url {url} --trace {} --step 1", trace.display());
    let one = offered(&words);
    assert_eq!(one["command"], format!("headroom load --json {words}"));
    let given = &one["parameters"];
    assert_eq!(
        (&given["seed"], &given["step_s"], &given["length_s"]),
        (&1.into(), &1.0.into(), &2.0.into())
    );
    assert_eq!(
        (&given["arrivals"], &given["connections"]),
        (&"poisson".into(), &1024.into())
    );
    assert!(
        one["version"].is_string() && one["host"].is_string() && one["date"].is_string(),
        "{one}"
    );
    assert_eq!(offered(&words)["load"], one["load"], "the same load, again");
    assert_ne!(offered(&format!("{words} --seed 2"))["load"], one["load"]);
    let file = &one["files"][0];
    assert_eq!(one["files"].as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!((&file["option"], &file["bytes"]), (&"trace".into(), &6.into()));
    assert_eq!(file["contents"], "20\n40\n");
    // As `printf '20\n40\n' | sha256sum` prints it.
    let hash = "fe6d6200cfe472b02f132944322460a71bd78c22b24ad6cb3ee26ce3ec990edd";
    assert_eq!(file["sha256"], hash);
    fs::write(&trace, "20\n41\n").unwrap();
    assert_ne!(offered(&words)["load"], one["load"], "the same name, other rates");

    let users = offered(&format!(
        "--url {url} --users ramp:from=2,to=4,over=1s --new-connections"
    ));
    assert_eq!(users["parameters"]["users"], "ramp:from=2,to=4,over=1s");
    assert_eq!(users["parameters"]["new_connections"], true);
    assert_eq!(users["what"], "up to 4 users in 1 s");
    assert!(users["files"].is_null(), "{users}");

    let paths = folder.path().join("paths.txt");
    fs::write(&paths, "/a\n").unwrap();
    let (trace, paths) = (trace.display(), paths.display());
    let users = offered(&format!(
        "--url {url} --users trace:file={trace},step=100ms --paths {paths}"
    ));
    let options = [&users["files"][0]["option"], &users["files"][1]["option"]];
    assert_eq!(options, [&"users", &"paths"].map(|option| option), "{users}");
}

#[test]
fn a_trace_ends_when_it_is_asked_to_within_a_step() {
    let server = Server::start(Duration::ZERO);
    let url = format!("http://{}/", server.address);
    let program = succeeds(headroom(format!(
        "load --url {url} --trace azure --mean 40 --duration 1500ms --json"
    )));
    // Each value of the trace is held for 10 s.
    let length = number(&program.json(), "duration_s");
    assert!((1.0..5.0).contains(&length), "{length} s");
    assert_has(program.err(), &["requests in 2 s to"]);
}

#[test]
fn a_load_of_which_all_failed_has_no_latency_and_ends_in_an_error() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let trace = tempfile::NamedTempFile::new().unwrap();
    fs::write(trace.path(), "20\n").unwrap();
    let file = trace.path().display();
    let program = run(headroom(format!(
        "load --url http://{port}/ --trace {file} --step 1 --json"
    )));
    assert_eq!(program.code(), Some(1), "{}", program.err());
    assert!(program.err().contains("requests to"), "{}", program.err());
    let json = program.json();
    assert_eq!(number(&json, "completed"), 0.0);
    for percentile in ["mean", "p50", "p95", "max"] {
        assert!(json["latency_ms"][percentile].is_null(), "{json}");
    }
}
