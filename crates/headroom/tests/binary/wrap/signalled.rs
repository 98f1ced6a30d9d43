//! Signals to `wrap` at the worst time, and what a server begins with.

use super::wrapped;
use crate::common::{Program, assert_has, command, headroom, process, wait};
use rustix::process::Signal;
use std::fs;
use std::time::Duration;

/// How a program may be started: with a law, and for another run.
const HOW: [&str; 2] = ["", "--steered"];

/// Whether any process has this on its command line.
fn is_left(mark: &str) -> bool {
    let mut all = process::all().into_iter();
    all.any(|one| !one.is_zombie && one.args.iter().any(|arg| arg.contains(mark)))
}

#[test]
fn a_signal_that_comes_with_the_servers_first_act_is_passed_on() {
    for how in HOW {
        for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)] {
            for round in 0..5 {
                let folder = tempfile::tempdir().unwrap();
                let mark = format!("first-act-{}-{}", std::process::id(), how.len());
                let script = format!("kill -{name} $PPID; exec sleep 600 # {mark}");
                let at = folder.path().display();
                let db = match how {
                    "" => format!("--db {at}/record.db"),
                    _ => String::new(),
                };
                let words = format!("wrap {how} --run-dir {at}/run {db} -- sh -c");
                let mut program = Program::start(headroom(words).arg(script));
                let code = program.wait().code();
                let said = program.err();
                assert_eq!(code, Some(128 + number), "{name} {how} {round}: {said}");
                assert!(!is_left(&mark), "{name} {how} {round}: {said}");
                let run = fs::read_dir(folder.path().join("run")).unwrap();
                let left: Vec<_> = run.map(|entry| entry.unwrap().file_name()).collect();
                let left: Vec<_> = left
                    .iter()
                    .filter(|name| name.to_string_lossy().starts_with("oncall-"))
                    .collect();
                assert!(left.is_empty(), "{left:?}");
            }
        }
    }
}

#[test]
fn whenever_a_signal_comes_no_server_is_left() {
    for how in HOW {
        for round in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let mark = format!("any-time-{}-{}", std::process::id(), how.len());
            let at = folder.path().display();
            let db = match how {
                "" => format!("--db {at}/record.db"),
                _ => String::new(),
            };
            let words = format!("wrap {how} --run-dir {at}/run {db} -- sh -c");
            let mut program = Program::start(headroom(words).arg(format!("exec sleep 600 # {mark}")));
            std::thread::sleep(Duration::from_millis(4 * round));
            program.signal(Signal::TERM);
            let status = program.wait();
            // Before the first handler is there a signal ends this program as each.
            let is_ended = status.code().is_none_or(|code| code == 143);
            assert!(is_ended, "{status} after {} ms: {}", 4 * round, program.err());
            assert!(
                !is_left(&mark),
                "{status} after {} ms: {}",
                4 * round,
                program.err()
            );
        }
    }
}

#[test]
fn a_server_begins_with_the_dispositions_that_its_starter_had() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let wrap = headroom(format!("wrap --run-dir {at} --db {at}/record.db --"));
    let begins = |before: &str, is_wrapped: bool| {
        let mut shell = command("sh -c");
        shell.arg(format!("{before}; exec \"$@\"")).arg("sh");
        if is_wrapped {
            shell.arg(wrap.get_program()).args(wrap.get_args());
        }
        let output = shell.args(["grep", "^Sig[BI]", "/proc/self/status"]).output();
        let output = output.unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let masks = said.lines().filter_map(|line| line.split_once(":\t"));
        // The C library's own, 32 and 33, are as it started the program.
        let masks = masks.map(|(_, mask)| u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff);
        masks.collect::<Vec<_>>()
    };
    // As it is, and as nohup and a shell's background have it.
    let (plain, ignoring) = ("true", "trap '' HUP INT");
    for before in [plain, ignoring] {
        assert_eq!(begins(before, true), begins(before, false), "{before}");
    }
    assert_eq!(
        (begins(plain, true), begins(ignoring, true)),
        (vec![0, 0], vec![0, 3])
    );
}

#[test]
fn a_server_without_handlers_ends_at_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let words = format!("wrap --run-dir {at} --db {at}/record.db -- sleep 600");
    let mut program = Program::start(headroom(words));
    wait("it was started", || program.err().contains("was started"));
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(143), "{}", program.err());
    assert_eq!(wrapped(folder.path(), "", &["true"]).0, Some(0));
}

/// A script that ends before the server that it has started.
#[test]
fn a_server_that_goes_on_after_what_started_it_is_said_to() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let mut command = headroom(format!("wrap --run-dir {at} --db {at}/record.db -- sh -c"));
    command.arg("sleep 3 > /dev/null 2>&1 & sleep 0.3");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_has(&said, &["sleep (pid ", "still runs, as without us", "exec it"]);
    let mut command = headroom(format!("wrap --run-dir {at} --db {at}/record.db -- sh -c"));
    let output = command.arg("sleep 0.3").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("still runs"), "{said}");
}
