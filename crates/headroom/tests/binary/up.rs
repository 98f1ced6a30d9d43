//! `headroom up` in front of the wiki: what it measures, says and leaves.

use crate::common::{
    Config, Group, Program, Up, Wiki, assert_has, free_address, get, headroom, number, refused, succeeds,
    undo_left, until,
};
use crate::contract::assert_summary;
use rustix::process::Signal;
use std::fs;
use std::net::TcpStream;
use std::path::Path;

/// Offers even load of `rate` requests/s for `seconds` to an address, and returns what the generator says of it.
fn load(up: &Up, rate: u32, seconds: u32, folder: &Path) -> serde_json::Value {
    let trace = folder.join("trace.txt");
    fs::write(&trace, format!("{rate}\n")).unwrap();
    let url = format!("http://{}/", up.gateway);
    let program = succeeds(
        headroom(format!(
            "load --json --arrivals even --step {seconds} --url {url} --trace"
        ))
        .arg(&trace),
    );
    program.json()
}

#[test]
fn a_run_ends_in_the_contracts_summary_and_in_reports() {
    let Some(group) = Group::new() else { return };
    group.limit(150_000, 100_000);
    let before = group.settings();
    let wiki = Wiki::start("127.0.0.1:0");
    group.add(wiki.program.pid());
    let config = Config::new(&group, wiki.address).with("period_ms = 200", "period_ms = 500");
    let mut up = Up::start(&config);
    let offered = load(&up, 40, 4, config.dir());
    assert_eq!(number(&offered, "offered"), 160.0);
    assert_eq!(number(&offered, "completed"), 160.0);
    assert_eq!(number(&offered, "failed_total"), 0.0);

    up.counted("headroom_service_completions_total", 160.0);
    admin_port_answers(&up);
    assert_ne!(
        group.settings(),
        before,
        "the quota's period is Headroom's while it runs"
    );
    assert!(undo_left(&config.run_dir()));
    // Its first ten periods are not judged: however quick this was, the summary is to have a share of periods over.
    up.counted("headroom_periods_total", 13.0);

    up.program.stop();
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
    assert!(TcpStream::connect(up.gateway).is_err(), "nobody listens any more");
    let summary = up.program.json();
    let most = std::thread::available_parallelism().unwrap().get() as f64;
    assert_summary(&summary, "slo-power", "live", most.min(1.5), 0.0);
    assert_eq!(summary["energy_j"]["source"], "estimated");
    assert_eq!(number(&summary, "requests.completed"), 160.0);
    assert_eq!(number(&summary, "requests.failed"), 0.0);
    assert_eq!(number(&summary, "dropped_periods"), 0.0);
    // The gateway's view of the latency cannot be longer than the client's, which contains it.
    assert!(number(&summary, "latency_ms.p50") <= number(&offered, "latency_ms.p999"));
    recorded_runs_are_listed_and_drawn(&config, &summary);
}

fn admin_port_answers(up: &Up) {
    let metrics = up.metrics();
    for (family, kind) in [
        ("headroom_node_cpu_joules", "counter"),
        ("headroom_service_latency_seconds", "histogram"),
        ("headroom_decisions", "counter"),
        ("headroom_telemetry_lost_periods", "counter"),
    ] {
        assert_eq!(
            metrics.types.get(family).map(String::as_str),
            Some(kind),
            "{family}"
        );
    }
    let joules: Vec<_> = metrics.of("headroom_node_cpu_joules_total").collect();
    assert_eq!(joules.len(), 1);
    assert!(joules[0].value > 0.0);
    assert_eq!(joules[0].labels["source"], "estimated");
    assert!(!joules[0].labels["zone"].is_empty());
    for sample in metrics.of("headroom_decisions_total") {
        assert_eq!(sample.labels["law"], "slo-power");
        assert!(!sample.labels["rule"].is_empty());
    }
    assert!(
        metrics.sum("headroom_decisions_total").unwrap() >= metrics.sum("headroom_periods_total").unwrap()
    );
    assert!(metrics.sum("headroom_service_latency_seconds_count").unwrap() >= 160.0);
    let answer = up.admin("/metrics");
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(answer.head.to_lowercase().contains(kind), "{}", answer.head);

    assert_eq!(up.admin("/healthz").status, 200);
    assert_eq!(up.admin("/readyz").status, 200);
    let status = up.status();
    assert_eq!(status["law"], "slo-power");
    assert!(status["decided"]["reasons"][0]["rule"].is_string(), "{status}");
    assert!(number(&status, "observation.in_force.cores") > 0.0);
    assert_eq!(status["backends"][0]["healthy"], true);
    assert_eq!(up.admin("/").status, 404);
    assert_eq!(up.admin("/../etc/passwd").status, 404);
}

fn recorded_runs_are_listed_and_drawn(config: &Config, summary: &serde_json::Value) {
    let db = config.db();
    let with_db = |args: &[&str]| succeeds(headroom("").args(args).arg("--db").arg(&db));
    let listed = with_db(&["runs"]).out();
    assert_has(&listed, &["slo-power", "finished"]);
    let listed = with_db(&["runs", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(&listed[0], summary, "the record says what the run said");

    let (html, csv) = (
        config.dir().join("new/report.html"),
        config.dir().join("periods.csv"),
    );
    let (out, table) = (html.to_str().unwrap(), csv.to_str().unwrap());
    let lines = config.dir().join("periods.jsonl");
    let mut arguments = vec!["report", "latest", "--json", "--out", out];
    arguments.extend(["--csv", table, "--jsonl", lines.to_str().unwrap()]);
    let report = with_db(&arguments);
    assert_eq!(&report.json(), summary);
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"));
    assert!(page.contains("slo-power") && page.contains("<svg") && page.contains("estimated"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(
            !page.contains(outside),
            "the report needs something from outside: {outside}"
        );
    }
    let rows = fs::read_to_string(&csv).unwrap();
    let periods = number(summary, "periods") as usize;
    assert_eq!(rows.lines().count(), periods + 1, "a heading and a row a period");
    let columns = rows.lines().next().unwrap().split(',').count();
    assert!(columns > 5);
    let lines = fs::read_to_string(&lines).unwrap();
    assert_eq!(lines.lines().count(), periods);
    for line in lines.lines() {
        let period: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(period["decided"]["reasons"][0]["rule"].is_string(), "{line}");
    }

    let people = with_db(&["report", "up", "--out", out]).out();
    assert_has(&people, &["slo-power", out]);
    the_load_is_shown_beside_its_run(config, &page, summary);
    refused(headroom("report nosuchrun --db").arg(&db), &["nosuchrun"]);
    refused(
        headroom("runs --db /nonexistent/record.db"),
        &["/nonexistent/record.db"],
    );
}

/// A run on live traffic does not know what it was offered, says so, and is shown with what its generator says.
fn the_load_is_shown_beside_its_run(config: &Config, page: &str, summary: &serde_json::Value) {
    let note = summary["provenance"]["load_note"].as_str().unwrap();
    assert_has(note, &["live traffic", "headroom report RUN --load FILE"]);
    assert!(summary["provenance"]["load"].is_null());
    assert_has(page, &["live traffic: what was offered is not known to this run"]);
    let (load, html) = (config.dir().join("load.json"), config.dir().join("with.html"));
    let report = || {
        let mut command = headroom("report latest --json --db");
        command
            .arg(config.db())
            .arg("--out")
            .arg(&html)
            .arg("--load")
            .arg(&load);
        command
    };
    fs::write(&load, "{\"url\": \"http://127.0.0.1/\"}").unwrap();
    refused(report(), &["load.json", "headroom load --json"]);
    let said = |date: &str, url: &str| {
        let said = serde_json::json!({
            "offered_load": {
                "command": "headroom load --seed 7", "what": "up to 9 users in 3 s", "load": "abc", "date": date,
                "parameters": { "seed": 7, "users": "9", "length_s": 3.0, "url": url },
            },
            "duration_s": 3.0, "failed_total": 4, "failed": { "timeout": 3, "wrong": 1 }, "connects_retried": 2,
            "latency_ms": { "p95": 71.5 },
        });
        fs::write(&load, said.to_string()).unwrap();
    };
    let (began, here) = (
        summary["provenance"]["date"].as_str().unwrap(),
        "http://127.0.0.1/",
    );
    said("2020-01-01 00:00:00 UTC", here);
    refused(
        report(),
        &[
            "load.json",
            "from 2020-01-01 00:00:00 UTC to 2020-01-01 00:00:04 UTC",
            // When its first period began, which may be in the second after that of its start.
            "was from 20",
            "the run cannot have served it",
        ],
    );
    said(began, here);
    let json = succeeds(report()).json();
    let provenance = &json["provenance"];
    assert_eq!(provenance["offered_load"]["parameters"]["seed"], 7);
    assert!(provenance["load_note"].is_null(), "{provenance}");
    assert_eq!(provenance["offered_load"]["results"]["p95_ms"], 71.5);
    assert!(
        !json["notes"].to_string().contains("the load was sent to"),
        "{json}"
    );
    let page = fs::read_to_string(&html).unwrap();
    assert_has(
        &page,
        &[
            "headroom load --seed 7",
            "up to 9 users in 3 s",
            "length_s 3.0, seed 7, url http://127.0.0.1/, users 9",
            "SHA-256 abc",
            "P95 71.5 ms at the client; 4 failed, of which 3 not in time and 1 another page; 2 connects retried",
        ],
    );
    refused(
        report().arg("--load").arg(&load),
        &["--load is given 2 times for 1 runs"],
    );
}

/// The rules by which the run has decided so far.
fn rules(up: &Up) -> Vec<String> {
    let metrics = up.metrics();
    let decisions = metrics.of("headroom_decisions_total");
    decisions.map(|sample| sample.labels["rule"].clone()).collect()
}

#[test]
fn a_service_is_served_at_once_and_calibrated_when_traffic_comes() {
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let wiki = Wiki::start("127.0.0.1:0");
    group.add(wiki.program.pid());
    let config = Config::new(&group, wiki.address).with("requests_per_core_s = 250.0", "calibrate_s = 1.0");
    let mut up = Up::start(&config);
    // Without any traffic: everything is on, and everything answers.
    up.counted("headroom_periods_total", 5.0);
    assert_eq!(rules(&up), ["calibrating"]);
    assert_eq!(up.admin("/healthz").status, 200);
    assert_eq!(up.admin("/readyz").status, 200);
    let status = up.status();
    assert_eq!(status["calibrating"], true, "{status}");
    assert_eq!(status["law"], "slo-power");
    assert_eq!(get(up.gateway, "/").unwrap().status, 200);
    let most = std::thread::available_parallelism().unwrap().get() as f64;
    assert_eq!(up.metrics().sum("headroom_cores"), Some(most));

    let pages = get(wiki.address, "/pages.txt").unwrap().body;
    let paths = config.dir().join("paths.txt");
    fs::write(&paths, &pages).unwrap();
    let trace = config.dir().join("trace.txt");
    fs::write(&trace, "120\n").unwrap();
    let mut load = Program::start(
        headroom(format!("load --step 60 --url http://{}/ --trace", up.gateway))
            .arg(&trace)
            .arg("--paths")
            .arg(&paths),
    );
    let rate = up.program.says("what one core serves", |err| {
        let line = err
            .lines()
            .find_map(|line| line.strip_prefix("one core serves "))?;
        line.strip_suffix(" requests/s")?.parse::<f64>().ok()
    });
    // A page costs 2 ms in the mean, so about 500/s; the machine may be busy and the build unoptimised.
    assert!((100.0..2_500.0).contains(&rate), "{rate}");
    until("the law decides", || {
        let status: serde_json::Value = serde_json::from_str(&up.admin("/status").body).ok()?;
        (status["calibrating"] == false).then_some(())
    });
    assert!(rules(&up).contains(&"calibrated".to_owned()));
    load.signal(Signal::INT);
    load.succeeds();
    up.program.signal(Signal::INT);
    up.program.succeeds();
    assert!(number(&up.program.json(), "periods") >= 5.0);
    assert_eq!(group.settings(), before);
}

#[test]
fn a_run_that_ends_before_it_is_calibrated_has_a_summary() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, free_address()).with("requests_per_core_s = 250.0\n", "");
    let mut up = Up::start_with(&config, &["--duration", "2"]);
    up.program.succeeds();
    let summary = up.program.json();
    assert_eq!(summary["law"], "slo-power");
    assert!(number(&summary, "periods") >= 5.0);
}

#[test]
fn checking_and_the_example_change_nothing() {
    let example = succeeds(headroom("up --example"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headroom.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = headroom("up --check --config headroom.toml --run-dir run");
        command.current_dir(folder.path());
        command
    };
    let named = "/sys/fs/cgroup/system.slice/apache2.service";
    let example = example.out();
    assert!(example.contains(named));
    if !Path::new(named).exists() {
        // All of it is accepted up to the service, which this machine has not.
        let line = example
            .lines()
            .position(|line| line.starts_with("cgroup = "))
            .unwrap()
            + 1;
        let place = format!("headroom.toml:{line}: service.cgroup");
        refused(check(&example), &[&place, "apache2.service"]);
    }
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    // The example's ports may be somebody's here.
    let here = example
        .replace(named, &group.path())
        .replace("\"127.0.0.1:8080\"", "\"127.0.0.1:0\"")
        .replace("# listen = \"127.0.0.1:9187\"", "listen = \"127.0.0.1:0\"");
    assert_has(succeeds(check(&here)).out(), &["nothing was changed"]);
    assert_eq!(group.settings(), before);
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["headroom.toml"], "checking leaves no file");

    let config = Config::new(&group, free_address());
    succeeds(config.check());
    assert!(!config.run_dir().exists() && !config.db().exists());
    assert_eq!(group.settings(), before);
}

#[test]
fn a_run_folder_has_one_owner() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, free_address());
    let mut first = Up::start(&config);
    let second = refused(config.command(), &[]);
    let err = second.err();
    let owner = format!("pid {}", first.program.pid());
    assert_has(&err, &[&owner, "run directory"]);
    assert_has(&err, &[config.run_dir().to_str().unwrap()]);
    // The first goes on.
    let periods = first.metrics().sum("headroom_periods_total").unwrap();
    first.counted("headroom_periods_total", periods + 2.0);
    first.program.stop();
}

#[test]
fn a_service_that_goes_away_ends_nothing_but_itself() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, free_address());
    let mut up = Up::start(&config);
    group.remove();
    let failures = "headroom_actuation_failures_total";
    up.counted(failures, 1.0);
    assert_eq!(up.admin("/healthz").status, 200, "the loop goes on");
    assert_eq!(
        get(up.gateway, "/").unwrap().status,
        502,
        "so does the data plane"
    );
    up.program.stop();
    assert!(!undo_left(&config.run_dir()), "nothing is left to put back");
    assert!(number(&up.program.json(), "periods") > 0.0);
}
