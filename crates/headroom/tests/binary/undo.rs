//! Every write to the machine is undone, however the program ends.

use crate::common::{
    Config, Group, Program, Server, Up, assert_has, connect_and_send, guard_of, number, refused, succeeds,
    undo_left, until, wait,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Command;

/// Kills the process that would put everything back at once, while the run is stopped: it would get another one.
fn kill_guard(up: &Up) {
    up.program.signal(Signal::STOP);
    let guard = i32::try_from(guard_of(up.program.pid())).unwrap();
    kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
}

fn ends_by(signal: Signal) {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    up.program.signal(signal);
    up.program.succeeds();
    assert_eq!(group.settings(), before, "{signal:?}");
    assert!(!undo_left(&config.run_dir()), "{signal:?}");
    assert!(
        number(&up.program.json(), "periods") > 0.0,
        "a stopped run has a summary"
    );
}

#[test]
fn everything_is_as_it_was_found_after_each_signal() {
    std::thread::scope(|scope| {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            scope.spawn(move || ends_by(signal));
        }
    });
}

#[test]
fn everything_is_as_it_was_found_after_a_run_of_given_length() {
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let config = Config::idle(&group);
    let program = succeeds(config.command().args(["--duration", "1.5"]));
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
    let length = number(&program.json(), "duration_s");
    assert!(length >= 1.4, "{length}");
}

#[test]
fn a_stop_while_it_calibrates_puts_everything_back() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group).with("requests_per_core_s = 250.0", "calibrate_s = 60.0");
    let mut up = Up::start(&config);
    up.program.said("until the traffic has shown");
    up.program.stop();
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn after_kill_9_the_guard_puts_everything_back_at_once() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    for _ in 0..2 {
        let mut up = Up::start(&config);
        group.until_law_saves(0.9);
        up.program.kill();
        wait("everything is as it was found", || {
            group.settings() == before && !undo_left(&config.run_dir())
        });
        let err = until("what was put back is said", || {
            let err = up.program.err();
            err.contains("left by a run that was killed: put back")
                .then_some(err)
        });
        assert!(!err.contains("somebody else"), "{err}");
    }
}

#[test]
fn after_kill_9_the_guard_lifts_limits_before_it_waits_for_what_a_demo_left() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    // A dead demo's emulated hardware that has not ended yet.
    let mut hardware = Command::new("sleep").arg("60").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", hardware.id())).unwrap();
    let began = stat.split_whitespace().nth(21).unwrap();
    let record = format!(
        r#"{{"pid":{},"started":{began},"base":null,"enabled_in":null}}"#,
        hardware.id()
    );
    let demo = config.run_dir().join("demo-1");
    fs::create_dir(&demo).unwrap();
    fs::write(config.run_dir().join("demo-1.undo.json"), record).unwrap();
    up.program.kill();
    wait("everything is as it was found", || {
        group.settings() == before && !undo_left(&config.run_dir())
    });
    hardware.kill().unwrap();
    hardware.wait().unwrap();
    wait("the demo's folder is gone", || !demo.exists());
    let err = until("what was taken away is said", || {
        let err = up.program.err();
        err.contains("left by a demo that was killed").then_some(err)
    });
    let (first, _) = err.split_once("left by a demo that was killed").unwrap();
    assert!(first.contains("left by a run that was killed: put back"), "{err}");
}

#[test]
fn after_kill_9_of_the_guard_too_the_next_start_puts_everything_back_and_has_all_cores_again() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    kill_guard(&up);
    up.program.kill();
    assert!(group.cores().unwrap() < 0.7 * 0.9, "kill -9 leaves it as it is");
    assert!(undo_left(&config.run_dir()));
    let check = succeeds(config.command().arg("--check"));
    let said = check.out();
    assert_has(
        &said,
        &[
            "a run that was killed left limits in force",
            "headroom release --run-dir",
        ],
    );
    assert!(undo_left(&config.run_dir()), "checking puts nothing back");

    let config = config.with("name = \"slo-power\"", "name = \"fixed\"");
    let next = succeeds(config.command().args(["--duration", "1"]));
    let err = next.err();
    assert_has(&err, &["left by a run that was killed: put back"]);
    assert!(
        !err.contains("somebody else"),
        "its own leftovers are nobody else's: {err}"
    );
    // The law that gives everything gives what the administrator had set, not what the killed run had left.
    let mean = number(&next.json(), "cores.mean");
    assert!((mean - 0.9).abs() < 1e-6, "{mean} cores");
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_cpuset_is_put_back_after_a_signal_and_after_kill_9() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let Some(group) = Group::new() else { return };
    if !group.has_cpuset() || cpus < 2 {
        println!("skipped: choosing CPUs needs the cpuset controller and two of them");
        return;
    }
    let before = group.settings();
    let config = Config::idle(&group).with("[law]\n", "lever = \"cpuset\"\ncores_min = 1.0\n\n[law]\n");
    let set = || group.settings().get("cpuset.cpus").cloned();
    for signal in [Signal::TERM, Signal::KILL] {
        let mut up = Up::start(&config);
        wait("a CPU is taken away", || {
            set() != before.get("cpuset.cpus").cloned()
        });
        if signal == Signal::KILL {
            kill_guard(&up);
        }
        up.program.signal(signal);
        up.program.wait();
        if signal == Signal::KILL {
            assert_ne!(group.settings(), before);
            succeeds(config.command().args(["--duration", "0.3"]));
        }
        assert_eq!(group.settings(), before, "{signal:?}");
        assert!(!undo_left(&config.run_dir()), "{signal:?}");
    }
}

#[test]
fn a_record_of_changes_that_makes_no_sense_is_never_carried_out() {
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let config = Config::idle(&group);
    fs::create_dir(config.run_dir()).unwrap();
    let file = config.run_dir().join("undo.json");
    for (text, said) in [
        ("{\"version\": 1", "undo.json"),
        ("", "undo.json"),
        (
            "{\"version\":1,\"boot_id\":\"\",\"pid\":1,\"records\":[{\"kind\":\"files\",\"what\":\"x\",\"ours\":[],\
             \"steps\":[{\"path\":\"/etc/passwd\",\"value\":\"x\"}]}]}",
            "/etc/passwd",
        ),
    ] {
        fs::write(&file, text).unwrap();
        refused(config.command().args(["--duration", "1"]), &[said]);
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            text,
            "it is kept for whoever reads it"
        );
        assert_eq!(group.settings(), before);
    }
}

#[test]
fn a_second_signal_ends_what_hangs() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    // A request that is never answered keeps the drain waiting.
    let hanging = Server::start(std::time::Duration::from_secs(600));
    let config = Config::new(&group, hanging.address);
    let mut up = Up::start(&config);
    let request = "GET / HTTP/1.1\r\nHost: e2e\r\n\r\n";
    let _client = connect_and_send(up.gateway, request).unwrap();
    wait("the request arrives", || {
        hanging.seen.load(std::sync::atomic::Ordering::Relaxed) > 0
    });
    up.program.signal(Signal::TERM);
    wait("it stops listening", || {
        std::net::TcpStream::connect(up.gateway).is_err()
    });
    assert!(Program::ended(&mut up.program).is_none(), "it drains");
    up.program.signal(Signal::TERM);
    let status = up.program.wait();
    assert_eq!(status.code(), Some(128 + 15), "{}", up.program.err());
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}
