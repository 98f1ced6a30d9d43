//! The live view, in a terminal of the test's.

use super::{CAPACITY_PER_S, fixed, resizing};
use crate::common::pty::{size, terminal};
use crate::common::site::{Service, Site};
use crate::common::{Load, until, wait, within};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Whether keys reach the program as they are typed, Ctrl-C among them, as a live view wants it and a shell does not.
fn is_raw(terminal: &File) -> bool {
    let modes = tcgetattr(terminal).unwrap().local_modes;
    let cooked = LocalModes::ICANON | LocalModes::ISIG | LocalModes::ECHO;
    assert!(modes.contains(cooked) || !modes.intersects(cooked), "{modes:?}");
    !modes.intersects(cooked)
}

/// The controller on a terminal.
struct OnTerminal {
    child: Child,
    ours: File,
    theirs: File,
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl OnTerminal {
    fn start(config: &Path, more: &[&str]) -> Self {
        let (ours, theirs) = terminal(120, 34);
        let end = || theirs.try_clone().unwrap();
        let mut command = resizing(config, "");
        command.args(more);
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, kept) = (ours.try_clone().unwrap(), Arc::clone(&written));
        // Ends when nobody has the other end any more.
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self {
            child,
            ours,
            theirs,
            written,
            reader,
        }
    }

    /// Waits until it is on the screen. What is blank and plain is not written, so of plain text only words can be looked for.
    fn until_shown(&self, wanted: &str) {
        wait(&format!("{wanted} on the screen"), || {
            let written = self.written.lock().unwrap();
            String::from_utf8_lossy(&written).contains(wanted)
        });
        // What is wanted may stand in a line that was written before the view had the terminal.
        wait("keys are read one by one", || is_raw(&self.theirs));
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; how it ended, and what it wrote since it gave the terminal back.
    fn end(mut self) -> (ExitStatus, String) {
        let status = until("the end", || self.child.try_wait().unwrap());
        assert!(!is_raw(&self.theirs), "the terminal is given back");
        drop(self.theirs);
        // A guard that still waits for a server has the other end, too, and writes nothing of the controller's.
        within(Duration::from_secs(2), || self.reader.is_finished().then_some(()));
        let written = self.written.lock().unwrap();
        let written = String::from_utf8_lossy(&written);
        let (_, after) = written.split_once("\u{1b}[?1049l").unwrap();
        (status, after.to_owned())
    }
}

#[test]
fn the_view_shows_the_cluster_and_a_key_ends_it_also_while_the_terminal_is_resized() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    let mut shown = OnTerminal::start(&config, &["--dry-run"]);
    for wanted in [
        "law static",
        "dry run: nothing is done",
        "estimated",
        "web1",
        "serving",
        "grow",
    ] {
        shown.until_shown(wanted);
    }
    // A terminal that the program does not control it by: what it would be sent is sent by hand.
    tcsetwinsize(&shown.ours, size(100, 30)).unwrap();
    shown.signal(Signal::WINCH);
    // Long enough for the signal to be noticed first, and far shorter than the time between two looks at the keys.
    std::thread::sleep(Duration::from_millis(10));
    shown.ours.write_all(b"q").unwrap();
    let (status, after) = shown.end();
    assert!(status.success(), "{after}");
    // The terminal is given back before the summary is printed.
    assert!(after.contains("the record:"), "{after}");
    assert_eq!((site.starts(2), site.runs(2)), (0, false));
    drop(load);
}

#[test]
fn a_second_signal_gives_the_terminal_back_too() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    // At the end the other server is started, and does not come: something hangs.
    site.set(2, "broken", true);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let shown = OnTerminal::start(&config, &[]);
    shown.until_shown("web2");
    // Both at once, so that nothing has ended by itself between them.
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        shown.signal(signal);
    }
    let (status, after) = shown.end();
    let code = status.code().unwrap();
    assert!([128 + 2, 128 + 15].contains(&code), "{code}: {after}");
}
