//! `headroom agent` and `headroom release`.

use crate::common::{Group, assert_has, headroom, refused, succeeds, until, wait};
use crate::parts::{Agent, Certs, agent_command, agent_on, apply, listening};
use headroom_wire::Address;
use headroom_wire::certs::Validity;
use headroom_wire::client::{CallError, ClientOptions};
use std::time::{Duration, SystemTime};

const ANY_PORT: &str = "[\"127.0.0.1:0\"]";
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
    wait("the lease's end", || group.cores().is_none());

    local(&agent.address(), 0.3, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.3));
    let error = apply(&agent.address(), &ClientOptions::default(), 8, 0.5, LONG)
        .unwrap_err()
        .to_string();
    assert_has(&error, &["held by \"test 7\""]);
    agent.program.stop();
    assert_eq!(group.cores(), None);
    assert_has(agent.program.err(), &["put back"]);
}

#[test]
fn after_kill_9_the_guard_or_the_next_start_or_a_release_by_hand_puts_back() {
    let Some(group) = Group::new() else { return };
    let mut agent = Agent::start(&group);
    let run_dir = agent.run_dir();
    let release = || succeeds(headroom("release --run-dir").arg(&run_dir)).out();
    local(&agent.address(), 0.2, LONG).unwrap();
    let out = release();
    assert_eq!(group.cores(), None, "a running one pauses");
    assert_has(&out, &["put back", "headroom resume"]);
    let refused = local(&agent.address(), 0.2, LONG).unwrap_err().to_string();
    assert_has(&refused, &["an operator has paused this node"]);
    assert_eq!(group.cores(), None);
    succeeds(headroom("resume --run-dir").arg(&run_dir));
    local(&agent.address(), 0.2, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.2));

    agent.program.kill();
    wait("the guard puts back", || group.cores().is_none());
    wait("nothing is recorded", || !run_dir.join("undo.json").exists());
    agent.program = Agent::again(&group, agent.dir.path());
    local(&agent.address(), 0.2, LONG).unwrap();
    agent.program.kill_with_guard();
    assert_eq!(group.cores(), Some(0.2), "nobody was left to put it back");
    agent.program = Agent::again(&group, agent.dir.path());
    assert_eq!(group.cores(), None);
    let err = agent.program.err();
    assert_has(&err, &["left by a run that was killed: put back"]);

    local(&agent.address(), 0.25, LONG).unwrap();
    agent.program.kill_with_guard();
    assert_eq!(group.cores(), Some(0.25));
    assert_has(release(), &["put back"]);
    assert_eq!(group.cores(), None);
    assert_has(release(), &["nothing was left"]);
}

#[test]
fn an_agent_that_hangs_under_a_lease_has_its_limits_lifted_by_its_guard() {
    use rustix::process::Signal;
    let Some(group) = Group::new() else { return };
    let mut agent = Agent::start(&group);
    local(&agent.address(), 0.4, Duration::from_secs(2)).unwrap();
    assert_eq!(group.cores(), Some(0.4));
    agent.program.signal(Signal::STOP);
    wait("the guard lifts the limit", || group.cores().is_none());
    assert!(
        agent.run_dir().join("undo.json").exists(),
        "it lives, and its record stays"
    );
    agent.program.said("gave no sign of life");
    agent.program.signal(Signal::CONT);
    until("it serves again", || {
        local(&agent.address(), 0.3, LONG)
            .ok()
            .filter(|()| group.cores() == Some(0.3))
    });
    agent.program.stop();
    assert_eq!(group.cores(), None);
}

#[test]
fn over_tcp_only_the_controllers_certificate_of_the_same_authority_is_let_in() {
    let Some(group) = Group::new() else { return };
    let (certs, dir) = (Certs::new(), tempfile::tempdir().unwrap());
    let (mut program, address) = listening(agent_on(&group, dir.path(), ANY_PORT, &certs.section("node-n1")));
    apply(&address, &certs.client("controller"), 7, 0.5, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.5));

    let error = apply(&address, &ClientOptions::default(), 9, 0.1, LONG)
        .unwrap_err()
        .to_string();
    assert_has(&error, &["`headroom certs`"]);
    let other = Certs::new();
    let error = apply(&address, &other.client("controller"), 9, 0.1, LONG).unwrap_err();
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
        for extra in [&["--check"][..], &[]] {
            let mut command = agent_on(&group, dir.path(), ANY_PORT, &tls);
            refused(command.args(extra), &[said]);
        }
        assert!(!dir.path().join("run").exists(), "nothing was begun");
    }
}

#[test]
fn a_check_says_what_can_be_limited_and_changes_nothing() {
    let Some(group) = Group::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let words = format!("--check --cgroup {} --listen unix:/x", group.path());
    let out = succeeds(agent_command(&words, dir.path())).out();
    assert!(
        out.lines()
            .any(|line| line.starts_with("cores ") && line.contains(" 0.")),
        "{out}"
    );
    assert!(out.ends_with("nothing was changed\n"), "{out}");
    assert!(!dir.path().join("run").exists());

    let words = "--cgroup /nonexistent --listen unix:/x --check";
    refused(agent_command(words, dir.path()), &["/nonexistent"]);
}

#[test]
fn two_agents_do_not_share_a_run_folder() {
    let Some(group) = Group::new() else { return };
    let agent = Agent::start(&group);
    let words = format!("--cgroup {} --listen unix:/x", group.path());
    refused(
        agent_command(&words, agent.dir.path()),
        &["in use by a running headroom"],
    );
}
