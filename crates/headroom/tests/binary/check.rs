//! `headroom up --check`: it says what would run, refuses what the start refuses, and is not misled by a running one.

use crate::common::{
    Config, Group, NOBODY, Up, assert_has, free_address, gateway_in, refused, run, succeeds, until, wait,
};
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;

/// What a check with `--json` printed, and its exit status.
fn checked(config: &Config) -> (Option<i32>, Value, String) {
    let program = run(config.command().arg("--check"));
    (program.code(), program.json(), program.err())
}

#[test]
fn what_would_run_is_said_in_words_and_as_json() {
    let Some(group) = Group::new() else { return };
    let (serving, admin) = (free_address(), free_address());
    let config = Config::new(&group, NOBODY).serving(serving).metrics_on(admin);
    let (code, json, err) = checked(&config);
    assert_eq!((code, &json["ok"]), (Some(0), &Value::Bool(true)), "{err}");
    assert_eq!(json["law"], "slo-power");
    assert_eq!(
        json["slo"],
        serde_json::json!({ "percentile": 95.0, "target_ms": 250.0 })
    );
    assert_eq!(json["backends"], serde_json::json!(["http://127.0.0.1:9"]));
    assert_eq!(json["meter"]["name"], "model");
    let levers: Vec<&str> = json["levers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lever| lever["lever"].as_str().unwrap())
        .collect();
    assert!(levers.starts_with(&["cores", "cap"]), "{json}");
    assert_eq!(json["levers"][0]["by"], "CPU quota");
    let places: Vec<&str> = json["listeners"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["address"].as_str().unwrap())
        .collect();
    assert_eq!(places, [format!("{admin}"), format!("{serving}")]);
    assert!(json["listeners"][0]["in_use_by"].is_null());

    let program = succeeds(config.check());
    let text = program.out();
    assert_has(
        &text,
        &[
            "law      slo-power\n",
            "slo      P95 under 250 ms\n",
            "backend  http://127.0.0.1:9\n",
            "meter    model (estimated)\n",
            &format!("listen   {serving} (gateway)\n"),
        ],
    );
    assert!(text.ends_with("nothing was changed\n"), "{text}");
    assert!(!config.run_dir().exists() && !config.db().exists());
}

#[test]
fn a_target_that_one_request_alone_cannot_meet_is_refused_under_our_own_law_by_both() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, NOBODY)
        .with("name = \"slo-power\"", "name = \"headroom\"")
        .with("target_ms = 250", "target_ms = 4");
    let start = refused(config.command(), &["slo.target_ms: no number of cores"]);
    let (code, json, err) = checked(&config);
    assert_eq!((code, err), (Some(2), start.err()));
    let error = &json["errors"][0];
    assert_eq!(
        (&json["ok"], &error["key"]),
        (&Value::Bool(false), &Value::from("slo.target_ms"))
    );
    assert_eq!(error["line"], config.line_of("target_ms"));
}

#[test]
fn a_meter_that_this_machine_has_not_is_the_meter_s_line() {
    let Some(group) = Group::new() else { return };
    if Path::new("/sys/class/powercap/intel-rapl:0").exists() {
        println!("skipped: this machine has RAPL, so that no meter is missing");
        return;
    }
    let config = Config::new(&group, NOBODY).with("\"model\"", "\"rapl\"");
    let start = refused(config.command(), &[]);
    let place = format!("headroom.toml:{}: power.meter: ", config.line_of("meter ="));
    assert_has(start.err(), &[&place]);
    let (code, json, err) = checked(&config);
    assert_eq!((code, err), (Some(2), start.err()));
    assert_eq!(json["errors"][0]["key"], "power.meter");
}

#[test]
fn beside_a_running_one_its_ports_and_its_limits_are_no_mistake_and_another_s_port_is() {
    let Some(group) = Group::new() else { return };
    let (serving, admin) = (free_address(), free_address());
    let config = Config::new(&group, free_address())
        .serving(serving)
        .metrics_on(admin)
        .with(
            "requests_per_core_s = 250.0",
            "requests_per_core_s = 250.0\ncores_max = 1.0",
        );
    let mut up = Up::start(&config);
    until("it saves", || group.cores().filter(|cores| *cores < 0.9));
    let (code, json, err) = checked(&config);
    assert_eq!(code, Some(0), "{err}");
    let pid = up.program.pid();
    for place in json["listeners"].as_array().unwrap() {
        assert_eq!(place["in_use_by"], pid, "{json}");
    }
    assert_eq!(json["levers"][0]["maximum"], 1.0, "its limit is no bound: {json}");
    assert_eq!(json["running"], pid);
    let words = succeeds(config.check());
    let said = format!("running  yes, pid {pid}: stop it first, a second start is refused\n");
    assert_has(words.out(), &[&said]);
    refused(config.command(), &[]);
    let notes = json["notes"].to_string();
    assert_has(&notes, &[&format!("pid {pid}")]);

    // A port of somebody else stays one, whoever runs.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (code, json, err) = checked(&config.with(&format!("{serving}"), &taken));
    assert_eq!(code, Some(2), "{json}");
    assert_has(&err, &[&taken, "in use"]);
    assert_eq!(json["errors"][0]["key"], "gateway.listen");
    up.program.stop();
}

/// Start and check refuse it with the same words, on this key, which the configuration has.
fn both_refuse(config: &Config, key: &str, with: &str) {
    let start = refused(config.command(), &[]);
    let (code, json, err) = checked(config);
    assert_eq!((code, &err), (Some(2), &start.err()));
    assert_has(&err, &[with]);
    assert_eq!(json["errors"][0]["key"], key, "{json}");
    let name = key.rsplit('.').next().unwrap();
    assert_eq!(json["errors"][0]["line"], config.line_of(&format!("{name} = ")));
}

#[test]
fn a_gateway_s_user_that_there_is_not_is_refused_by_both() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, NOBODY).with("threads = 1", "threads = 1\nuser = \"nosuchuser\"");
    both_refuse(
        &config,
        "gateway.user",
        "gateway.user: there is no user \"nosuchuser\" on this machine: make it, or name another\n",
    );
}

#[test]
fn a_record_that_is_a_directory_is_refused_by_both_and_said_once() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, NOBODY);
    let file = config.db().display().to_string();
    let dir = config.dir().display().to_string();
    let config = config.with(&file, &dir);
    both_refuse(&config, "record.db", "Is a directory");
    let (_, json, _) = checked(&config);
    let message = json["errors"][0]["message"].as_str().unwrap();
    assert_eq!(message.matches("Is a directory").count(), 1, "{message}");
}

#[test]
fn a_service_that_another_run_directory_s_up_limits_is_refused_by_both() {
    let Some(group) = Group::new() else { return };
    let first = Config::new(&group, NOBODY);
    let mut up = Up::start(&first);
    let config = Config::new(&group, NOBODY);
    let owner = format!(
        "is limited by a running headroom (pid {}, run directory {})",
        up.program.pid(),
        first.run_dir().display()
    );
    both_refuse(&config, "service.cgroup", &owner);
    // It hides nothing else that is wrong, and what is wrong in the file itself is said before the machine is asked.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let other = Config::new(&group, NOBODY)
        .with(
            "requests_per_core_s = 250.0",
            "requests_per_core_s = 250.0\ncores_max = 1e6",
        )
        .with(
            "[admin]\nlisten = \"127.0.0.1:0\"",
            &format!("[admin]\nlisten = \"{taken}\""),
        );
    let (code, json, err) = checked(&other);
    let keys: Vec<&Value> = json["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| &error["key"])
        .collect();
    assert_eq!(
        keys,
        ["service.cores_max", "service.cgroup", "admin.listen"],
        "{json}"
    );
    assert_eq!((code, err.lines().count()), (Some(2), 3), "{err}");
    assert!(
        err.lines()
            .all(|line| line.starts_with("headroom: ") && line.contains("headroom.toml:")),
        "{err}"
    );
    let wrong = Config::new(&group, NOBODY)
        .with("percentile = 95", "percentle = 95")
        .with("guard = 0.8", "guard = 8")
        .with("period_ms = 200", "period_ms = \"1s\"")
        .with("threads = 1", "threads = 1000");
    let (code, json, err) = checked(&wrong);
    let errors = json["errors"].as_array().unwrap();
    let keys: Vec<&str> = errors
        .iter()
        .map(|error| error["key"].as_str().unwrap())
        .collect();
    let wanted = [
        "slo.percentle",
        "gateway.threads",
        "law.slo-power.guard",
        "control.period_ms",
    ];
    assert_eq!((code, keys), (Some(2), wanted.to_vec()), "{err}");
    assert!(
        !err.contains("limited by") && err.contains("write period_ms = 1000"),
        "{err}"
    );
    // The question took nothing from who has it.
    up.program.stop();
    let (code, _, err) = checked(&config);
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_gateway_that_a_killed_run_left_is_named() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, NOBODY);
    let up = Up::start(&config);
    let pid = gateway_in(&config.run_dir()).unwrap();
    up.program.signal(Signal::KILL);
    wait("its run directory is free", || {
        let (code, json, err) = checked(&config);
        assert_eq!(code, Some(0), "{err}");
        json["running"].is_null()
    });
    let (_, json, _) = checked(&config);
    assert_eq!(
        json["left_gateway"],
        serde_json::json!({ "pid": pid, "taken_over": true })
    );
    let (_, json, _) = checked(&config.with("threads = 1", "threads = 2"));
    assert_eq!(json["left_gateway"]["taken_over"], false);
}

#[test]
fn a_group_whose_cpu_time_nothing_counts_is_the_service_s_line_and_comes_with_the_remedy() {
    let Some(group) = Group::new() else { return };
    let Some(counting) = group.uncounted() else {
        println!("skipped: cpu and cpuacct are not two hierarchies here");
        return;
    };
    let config = Config::new(&group, NOBODY).with("\"model\"", "\"auto\"");
    both_refuse(
        &config,
        "service.cgroup",
        &format!(
            "is not counted by any mounted hierarchy: mkdir {}, and move",
            counting.display()
        ),
    );
    let (_, json, err) = checked(&config);
    assert!(
        !err.contains("meter") && !json.to_string().contains("rapl"),
        "{err}"
    );
}
