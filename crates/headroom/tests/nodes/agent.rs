//! `headroom agent` and `headroom release`.

use crate::common::{Agent, Certs, Group, MODEL_METER, Program, apply, headroom, run, until};
use headroom_wire::Address;
use headroom_wire::certs::Validity;
use headroom_wire::client::{CallError, ClientOptions};
use headroom_wire::tls::{ClientTls, TlsFiles};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

const LONG: Duration = Duration::from_secs(200);

fn local(address: &Address, cores: f64, lease: Duration) -> Result<(), CallError> {
    apply(address, &ClientOptions::default(), 7, cores, lease).map(|_| ())
}

#[test]
fn a_lease_that_runs_out_and_a_stop_put_back_what_was_found() {
    let Some(group) = Group::new() else { return };
    let mut agent = Agent::start(&group);
    local(&agent.address(), 0.4, Duration::from_secs(2)).unwrap();
    assert_eq!(group.cores(), Some(0.4));
    until("the lease's end", || group.cores().is_none().then_some(()));

    local(&agent.address(), 0.3, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.3));
    let error = apply(&agent.address(), &ClientOptions::default(), 8, 0.5, LONG)
        .unwrap_err()
        .to_string();
    assert!(error.contains("held by \"test 7\""), "{error}");
    agent.program.stop();
    assert_eq!(group.cores(), None);
    assert!(
        agent.program.err().contains("put back"),
        "{}",
        agent.program.err()
    );
}

#[test]
fn after_kill_9_the_guard_or_the_next_start_or_a_release_by_hand_puts_back() {
    let Some(group) = Group::new() else { return };
    let mut agent = Agent::start(&group);
    let run_dir = agent.run_dir();
    let release = || run(headroom().args(["release", "--run-dir"]).arg(&run_dir));
    local(&agent.address(), 0.2, LONG).unwrap();
    let (code, out, err) = release();
    assert_eq!(
        (code, group.cores()),
        (Some(0), None),
        "a running one pauses: {err}"
    );
    assert!(
        out.contains("put back") && out.contains("headroom resume"),
        "{out}"
    );
    let refused = local(&agent.address(), 0.2, LONG).unwrap_err().to_string();
    assert!(refused.contains("an operator has paused this node"), "{refused}");
    assert_eq!(group.cores(), None);
    let (code, _, err) = run(headroom().args(["resume", "--run-dir"]).arg(&run_dir));
    assert_eq!(code, Some(0), "{err}");
    local(&agent.address(), 0.2, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.2));

    agent.program.kill();
    until("the guard puts back", || group.cores().is_none().then_some(()));
    until("nothing is recorded", || {
        (!run_dir.join("undo.json").exists()).then_some(())
    });
    agent.program = Agent::again(&group, agent.dir.path());
    local(&agent.address(), 0.2, LONG).unwrap();
    agent.program.kill_with_guard();
    assert_eq!(group.cores(), Some(0.2), "nobody was left to put it back");
    agent.program = Agent::again(&group, agent.dir.path());
    assert_eq!(group.cores(), None);
    let err = agent.program.err();
    assert!(err.contains("left by a run that was killed: put back"), "{err}");

    local(&agent.address(), 0.25, LONG).unwrap();
    agent.program.kill_with_guard();
    assert_eq!(group.cores(), Some(0.25));
    let (code, out, err) = release();
    assert_eq!((code, group.cores()), (Some(0), None), "{err}");
    assert!(out.contains("put back"), "{out}");
    let (code, out, _) = release();
    assert_eq!(code, Some(0));
    assert!(out.contains("nothing was left"), "{out}");
}

#[test]
fn an_agent_that_hangs_under_a_lease_has_its_limits_lifted_by_its_guard() {
    use rustix::process::Signal;
    let Some(group) = Group::new() else { return };
    let mut agent = Agent::start(&group);
    local(&agent.address(), 0.4, Duration::from_secs(2)).unwrap();
    assert_eq!(group.cores(), Some(0.4));
    agent.program.signal(Signal::STOP);
    until("the guard lifts the limit", || {
        group.cores().is_none().then_some(())
    });
    assert!(
        agent.run_dir().join("undo.json").exists(),
        "it lives, and its record stays"
    );
    until("it is said", || {
        let err = agent.program.err();
        err.contains("gave no sign of life").then_some(())
    });
    agent.program.signal(Signal::CONT);
    until("it serves again", || {
        local(&agent.address(), 0.3, LONG)
            .ok()
            .filter(|()| group.cores() == Some(0.3))
    });
    agent.program.stop();
    assert_eq!(group.cores(), None);
}

/// An agent on TCP with mutual TLS.
fn over_tcp(group: &Group, dir: &Path, certs: &Certs) -> (Program, Address) {
    let file = dir.join("agent.toml");
    let text = format!(
        "[agent]\nlisten = [\"127.0.0.1:0\"]\n\n{}\n[service]\ncgroup = \"{}\"\n{MODEL_METER}",
        certs.section("node-n1"),
        group.path()
    );
    fs::write(&file, text).unwrap();
    let mut command = headroom();
    command
        .args(["agent", "--config"])
        .arg(&file)
        .arg("--run-dir")
        .arg(dir.join("run"));
    let mut program = Program::start(&mut command);
    let address = program.said("listening on ").parse().unwrap();
    (program, address)
}

fn options(dir: &Path, stem: &str) -> ClientOptions {
    let files = TlsFiles {
        ca: dir.join("ca.crt"),
        certificate: dir.join(format!("{stem}.crt")),
        key: dir.join(format!("{stem}.key")),
        revoked: None,
    };
    ClientOptions {
        tls: Some(ClientTls::load(&files).unwrap()),
        ..ClientOptions::default()
    }
}

#[test]
fn over_tcp_only_the_controllers_certificate_of_the_same_authority_is_let_in() {
    let Some(group) = Group::new() else { return };
    let (certs, dir) = (Certs::new(), tempfile::tempdir().unwrap());
    let (mut program, address) = over_tcp(&group, dir.path(), &certs);
    apply(&address, &options(certs.dir(), "controller"), 7, 0.5, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.5));

    let error = apply(&address, &ClientOptions::default(), 9, 0.1, LONG)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`headroom certs`"), "{error}");
    let other = Certs::new();
    let error = apply(&address, &options(other.dir(), "controller"), 9, 0.1, LONG).unwrap_err();
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    assert_eq!(group.cores(), Some(0.5), "nothing changed");
    program.stop();
    assert_eq!(group.cores(), None);
}

#[test]
fn a_bad_certificate_is_told_with_file_and_line_and_nothing_starts() {
    let Some(group) = Group::new() else { return };
    let (certs, other, dir) = (Certs::new(), Certs::new(), tempfile::tempdir().unwrap());
    let past = SystemTime::now() - Duration::from_secs(86_400 * 10);
    certs
        .authority()
        .issue_node("old", &[], Validity::starting(past, 2).unwrap())
        .unwrap();
    let good = certs.section("node-n1");
    let foreign = good.replace(
        &format!("{}/ca.crt", certs.dir().display()),
        &format!("{}/ca.crt", other.dir().display()),
    );
    for (tls, said) in [
        (String::new(), "agent.toml:2: agent.listen: 127.0.0.1:0 is TCP"),
        (certs.section("node-old"), "certificate expired"),
        (
            certs.section("controller"),
            "is the certificate of the controller",
        ),
        (certs.section("node-none"), "node-none.crt"),
        (foreign, "does not belong to"),
    ] {
        let file = dir.path().join("agent.toml");
        let text = format!(
            "[agent]\nlisten = [\"127.0.0.1:0\"]\n\n{tls}\n[service]\ncgroup = \"{}\"\n",
            group.path()
        );
        fs::write(&file, text).unwrap();
        for extra in [&["--check"][..], &[]] {
            let mut command = headroom();
            command
                .args(["agent", "--config"])
                .arg(&file)
                .arg("--run-dir")
                .arg(dir.path().join("run"));
            let (code, _, err) = run(command.args(extra));
            assert_eq!(code, Some(2), "{err}");
            assert!(err.contains(said), "{said}: {err}");
        }
        assert!(!dir.path().join("run").exists(), "nothing was begun");
    }
}

#[test]
fn a_check_says_what_can_be_limited_and_changes_nothing() {
    let Some(group) = Group::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut command = headroom();
    command.args([
        "agent",
        "--check",
        "--cgroup",
        &group.path(),
        "--listen",
        "unix:/x",
    ]);
    let (code, out, err) = run(command.arg("--run-dir").arg(dir.path().join("run")));
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.lines()
            .any(|line| line.starts_with("cores ") && line.contains(" 0.")),
        "{out}"
    );
    assert!(out.ends_with("nothing was changed\n"), "{out}");
    assert!(!dir.path().join("run").exists());

    let mut command = headroom();
    command.args([
        "agent",
        "--cgroup",
        "/nonexistent",
        "--listen",
        "unix:/x",
        "--check",
    ]);
    let (code, _, err) = run(command.arg("--run-dir").arg(dir.path().join("run")));
    assert_eq!(code, Some(2));
    assert!(err.contains("/nonexistent"), "{err}");
}

#[test]
fn two_agents_do_not_share_a_run_folder() {
    let Some(group) = Group::new() else { return };
    let agent = Agent::start(&group);
    let mut command = headroom();
    command.args([
        "agent",
        "--cgroup",
        &group.path(),
        "--listen",
        "unix:/x",
        "--run-dir",
    ]);
    let (code, _, err) = run(command.arg(agent.run_dir()));
    assert_eq!(code, Some(2));
    assert!(err.contains("in use by a running headroom"), "{err}");
}
