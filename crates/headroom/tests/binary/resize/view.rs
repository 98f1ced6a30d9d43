//! The live view, in a terminal of the test's.

use super::load::Load;
use super::site::{Service, Site};
use super::{CAPACITY_PER_S, fixed};
use crate::common::{headroom, until};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const fn size(columns: u16, lines: u16) -> Winsize {
    Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// A terminal of so many columns and lines: the test's end, and the program's.
fn terminal(columns: u16, lines: u16) -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    tcsetwinsize(&theirs, size(columns, lines)).unwrap();
    (ours.into(), theirs)
}

#[test]
fn the_view_shows_the_cluster_and_a_key_ends_it_also_while_the_terminal_is_resized() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    let (mut ours, theirs) = terminal(120, 34);
    let end = || theirs.try_clone().unwrap();
    let mut command = headroom();
    command.args(["resize", "--dry-run", "--config"]).arg(&config);
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop((command, theirs));
    let written = Arc::new(Mutex::new(Vec::new()));
    let (mut screen, kept) = (ours.try_clone().unwrap(), Arc::clone(&written));
    // Ends when nobody has the other end any more.
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            kept.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
    let said = || String::from_utf8_lossy(&written.lock().unwrap()).into_owned();
    // What is blank and plain is not written, so of plain text only words can be looked for.
    for wanted in [
        "static controller behind",
        "dry run: nothing is done",
        "estimated",
        "web1",
        "given",
        "grow:",
    ] {
        until(&format!("{wanted} on the screen"), || {
            said().contains(wanted).then_some(())
        });
    }
    // A terminal that the program does not control it by: what it would be sent is sent by hand.
    tcsetwinsize(&ours, size(100, 30)).unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::WINCH).unwrap();
    // Long enough for the signal to be noticed first, and far shorter than the time between two looks at the keys.
    std::thread::sleep(Duration::from_millis(10));
    ours.write_all(b"q").unwrap();
    let status = until("the end", || child.try_wait().unwrap());
    reader.join().unwrap();
    let said = said();
    assert!(status.success(), "{said}");
    // The terminal is given back before the summary is printed.
    let (_, after) = said.split_once("\u{1b}[?1049l").unwrap();
    assert!(after.contains("controller   static (dry run"), "{after}");
    assert_eq!((site.starts(2), site.runs(2)), (0, false));
    drop(load);
}
