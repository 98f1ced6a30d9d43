//! `headroom up` as a job of an interactive shell: in the background it has no live view, and is not stopped for one.

use crate::common::pty::terminal;
use crate::common::{Config, Group, NOBODY, free_port, get, until, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

/// `headroom up` below a shell that has a terminal and controls jobs.
struct Shell {
    child: Child,
    ours: File,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Shell {
    /// What the shell does, `"$@"` being the program.
    fn start(script: &str, config: &Config) -> Option<Self> {
        if !["/usr/bin/setsid", "/usr/bin/bash"]
            .iter()
            .all(|program| Path::new(program).exists())
        {
            println!("skipped: there is no setsid or no bash");
            return None;
        }
        let (ours, theirs) = terminal(120, 34);
        let end = || theirs.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", "bash", "--norc", "-m", "-c", script, "bash"])
            // It says its number first, so that it can be sent signals.
            .args(["sh", "-c", "echo number $$ number; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_headroom"))
            .args(["up", "--config"])
            .arg(config.file())
            .arg("--run-dir")
            .arg(config.run_dir());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, kept) = (ours.try_clone().unwrap(), Arc::clone(&written));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Some(Self { child, ours, written })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    fn shows(&self, wanted: &str) {
        wait(&format!("{wanted:?} on the screen"), || {
            self.text().contains(wanted)
        });
    }

    fn pid(&self) -> i32 {
        until("its number", || {
            let text = self.text();
            text.split_once("number ")?
                .1
                .split_once(" number")?
                .0
                .parse()
                .ok()
        })
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// R, S, T and so on (proc_pid_stat(5)).
    fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if self.state().is_some() {
            self.signal(Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_background_job_has_no_view_and_runs_and_ends() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, NOBODY);
    let Some(shell) = Shell::start("\"$@\" & wait $!; echo ended $?", &config) else {
        return;
    };
    shell.shows("metrics on http://");
    until("it saves", || {
        assert_ne!(shell.state(), Some('T'), "stopped: {}", shell.text());
        group.cores()
    });
    shell.signal(Signal::TERM);
    shell.shows("ended 0");
    assert!(
        !shell.text().contains("\u{1b}[?1049h"),
        "a view: {}",
        shell.text()
    );
}

#[test]
fn one_that_is_sent_to_the_background_with_its_view_runs_on_and_ends() {
    let Some(group) = Group::new() else { return };
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = Config::new(&group, NOBODY).with(
        "[admin]\nlisten = \"127.0.0.1:0\"",
        &format!("[admin]\nlisten = \"{admin}\""),
    );
    let Some(mut shell) = Shell::start("\"$@\"; bg; wait %1; echo ended $?", &config) else {
        return;
    };
    shell.shows("\u{1b}[?1049h");
    shell.signal(Signal::STOP);
    // The shell says which job it continues.
    shell.shows("\"$@\" &");
    until("it goes on", || shell.state().filter(|state| *state != 'T'));
    shell.ours.write_all(b"typed for the shell\n").unwrap();
    let periods = || {
        let page = get(admin, "/metrics").ok()?.body;
        crate::common::openmetrics::parse(&page)
            .unwrap()
            .sum("headroom_periods_total")
    };
    let before = until("its metrics", periods);
    until("periods pass", || {
        assert_ne!(shell.state(), Some('T'), "stopped: {}", shell.text());
        periods().filter(|now| *now >= before + 3.0)
    });
    shell.signal(Signal::TERM);
    shell.shows("ended 0");
    assert!(shell.text().contains("\u{1b}[?1049l"), "the screen is given back");
}
