//! How `headroom load` ends: when, with which exit status, and what it says of itself.

use crate::common::{Program, Server, assert_has, headroom, number, refused, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// A server that answers each request on a kept connection with this, or with nothing.
fn answering(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                // Requests are short and come one at a time.
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A closed loop for a second.
fn load(address: SocketAddr, more: &str) -> Program {
    run(headroom(format!(
        "load --url http://{address}/ --closed 4 --duration 1s {more}"
    )))
}

fn ends_with(program: &Program, code: i32, said: &[&str]) {
    assert_eq!(program.code(), Some(code), "{}", program.err());
    assert_has(program.err(), said);
}

#[test]
fn conditions_are_judged_printed_and_end_in_an_exit_status_of_their_own() {
    let server = Server::start(Duration::from_millis(5));
    let kept = load(server.address, "--fail-if p95<1ms --fail-if failed>50%");
    ends_with(&kept, 0, &[]);
    assert_has(
        kept.out(),
        &[
            "fail-if     p95<1ms: kept, at ",
            "fail-if     failed>50%: kept, at 0.00%",
        ],
    );

    let failed = load(
        server.address,
        "--json --fail-if p50>=1ms --fail-if failed>50% --fail-if rate<1000000/s",
    );
    ends_with(
        &failed,
        99,
        &[
            "of 3 conditions of --fail-if 2",
            "p50>=1ms: failed, at ",
            "rate<1000000/s: failed",
        ],
    );
    let json = failed.json();
    let verdicts = [0, 1, 2].map(|at| json["thresholds"][at]["failed"].as_bool());
    assert_eq!(verdicts, [Some(true), Some(false), Some(true)], "{json}");
    assert!(json["thresholds"][0]["value"].as_f64() >= Some(1.0), "{json}");
    for condition in ["p95>250", "p42>1s", "failed>1", "rate<5"] {
        refused(
            headroom(format!(
                "load --url http://{}/ --closed 1 --duration 1s --fail-if {condition}",
                server.address
            )),
            &[condition, "p95>250ms", "failed>1%", "rate<100/s"],
        );
    }
}

#[test]
fn a_load_of_which_nothing_succeeded_ends_in_1_whatever_is_demanded() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = load(nobody, "--json --fail-if p95>1h");
    ends_with(&refused, 1, &["requests to", "failed"]);
    let threshold = &refused.json()["thresholds"][0];
    assert_eq!(threshold["failed"], true);
    assert_eq!(threshold["unjudged"], "no request was completed");

    let missing = answering("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    let missing = load(missing, "");
    ends_with(&missing, 1, &["a status from 400 to 499", "Check the path"]);
    assert_has(missing.out(), &["of them with a status from 400 to 499"]);
}

#[test]
fn a_load_ends_when_it_is_asked_to_though_nothing_is_answered() {
    let begun = Instant::now();
    let silent = load(answering(""), "--timeout-ms 120000 --json");
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(60),
        "{took:?}: it waited for the timeout"
    );
    ends_with(&silent, 1, &["all 4 requests to", "failed"]);
    assert_eq!(number(&silent.json(), "failed.unanswered"), 4.0);
    let begun = Instant::now();
    let patient = load(answering(""), "--timeout-ms 120000 --grace 4s");
    assert!(begun.elapsed() >= Duration::from_secs(5));
    assert_has(
        patient.out(),
        &["4 unanswered when the load and its --grace were over"],
    );
}

#[test]
fn a_generator_that_was_the_limit_says_so_with_a_remedy() {
    let server = Server::start(Duration::from_millis(100));
    let trace = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trace.path(), "100\n").unwrap();
    let words = format!(
        "load --url http://{}/ --trace {} --step 1 --connections 2 --grace 30s",
        server.address,
        trace.path().display()
    );
    let people = run(headroom(&words));
    ends_with(&people, 0, &[]);
    assert_has(
        people.out(),
        &[
            "limit       the generator was the limit: all of its 2 connections were busy",
            "give more --connections",
        ],
    );
    let json = run(headroom(format!("{words} --json --fail-if p50>1ms")));
    ends_with(
        &json,
        99,
        &[
            "p50>1ms: failed",
            "the generator was the limit: ",
            "all of its 2 connections were busy",
            "(remedy: give more --connections",
        ],
    );
    let limits = json.json()["generator_limits"].clone();
    let named = limits.as_array().unwrap().iter().map(|limit| &limit["limit"]);
    assert!(named.clone().any(|name| name == "connections"), "{limits}");
}
