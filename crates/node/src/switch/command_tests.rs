use super::*;
use crate::testing::says;

fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn output_is_captured_and_bounded() {
    let output = run(&shell("echo out; echo err >&2; exit 3"), &[], LONG).unwrap();
    assert_eq!(
        (output.status.code(), output.out.trim(), output.err.trim()),
        (Some(3), "out", "err")
    );
    // Ten times what is kept, and the command still ends: the rest is read and thrown away.
    let output = run(
        &shell("i=0; while [ $i -lt 640 ]; do printf '%1024d' $i; i=$((i+1)); done"),
        &[],
        LONG,
    )
    .unwrap();
    assert!(output.status.success());
    assert_eq!(output.out.len(), MAX_BYTES);
    let output = run(&shell("echo $GREETING"), &[("GREETING", "hello".into())], LONG).unwrap();
    assert_eq!(output.out.trim(), "hello");
}

#[test]
fn a_command_that_hangs_is_killed_with_what_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    // It ignores SIGTERM, and so does its child.
    let script = format!(
        "trap '' TERM; (trap '' TERM; sleep 600) & echo $! > {}; echo begun; wait; sleep 600",
        pid_file.display()
    );
    let started = Instant::now();
    let error = run(&shell(&script), &[], Duration::from_millis(500)).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(30));
    let message = error.to_string();
    assert!(
        matches!(error, SwitchError::TimeLimit { .. }) && message.contains("saying: begun"),
        "{message}"
    );
    let child: i32 = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    let gone = || {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    let until = Instant::now() + LONG;
    while !gone() {
        assert!(Instant::now() < until, "the child of the killed command lives");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_daemon_that_a_command_leaves_behind_is_left_alone_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("alive");
    let script = format!("(sleep 0.3; echo yes > {}) >/dev/null 2>&1 &", file.display());
    assert!(run(&shell(&script), &[], LONG).unwrap().status.success());
    // Also where it keeps the output open.
    let started = Instant::now();
    let pid = run(&shell("sleep 600 & echo $!"), &[], LONG).unwrap().out;
    assert!(started.elapsed() < LONG);
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let until = Instant::now() + LONG;
    while std::fs::read_to_string(&file).unwrap_or_default().trim() != "yes" {
        assert!(Instant::now() < until, "what the command left behind was killed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_switch_of_commands_says_what_went_wrong() {
    let config = CommandConfig {
        start: shell("exit 0"),
        stop: shell("echo cannot >&2; exit 7"),
        force_stop: Some(shell("exit 0")),
        state: Some(shell("exit 3")),
        limit_s: 30.0,
    };
    let mut switch = CommandSwitch::open(config.clone()).unwrap();
    switch.on().unwrap();
    says(
        switch.off(false).unwrap_err(),
        &["exit status: 7", "saying: cannot"],
    );
    switch.off(true).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    let state = |state: Option<Vec<String>>| {
        let config = CommandConfig {
            state,
            ..config.clone()
        };
        CommandSwitch::open(config).unwrap().state()
    };
    assert_eq!(state(Some(shell("exit 0"))).unwrap(), Some(true));
    assert_eq!(state(None).unwrap(), None);
    says(state(Some(shell("exit 255"))).unwrap_err(), &["1 or 3"]);
    let absent = vec!["/no/such/program".to_owned()];
    let refused = CommandSwitch::open(CommandConfig {
        start: absent.clone(),
        ..config.clone()
    });
    says(
        refused.unwrap_err(),
        &["start is", "/no/such/program", "cannot be run", "install it"],
    );
    let refused = CommandSwitch::open(CommandConfig {
        state: Some(absent),
        ..config
    });
    says(refused.unwrap_err(), &["state is"]);
}

#[test]
fn what_is_no_command_is_refused() {
    let good = CommandConfig {
        start: shell(""),
        stop: shell(""),
        force_stop: None,
        state: None,
        limit_s: 1.0,
    };
    let empty = CommandConfig {
        stop: Vec::new(),
        ..good.clone()
    };
    assert!(
        CommandSwitch::open(empty)
            .unwrap_err()
            .to_string()
            .starts_with("stop is []")
    );
    let endless = CommandConfig {
        limit_s: f64::INFINITY,
        ..good
    };
    let error = CommandSwitch::open(endless).unwrap_err().to_string();
    assert!(error.starts_with("limit_s is inf"), "{error}");
}
