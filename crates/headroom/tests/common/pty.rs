//! Terminals of the test's.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// So many columns and lines.
pub const fn size(columns: u16, lines: u16) -> Winsize {
    Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// A terminal of so many columns and lines: the test's end, and the program's.
pub fn terminal(columns: u16, lines: u16) -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    tcsetwinsize(&theirs, size(columns, lines)).unwrap();
    (ours.into(), theirs)
}
