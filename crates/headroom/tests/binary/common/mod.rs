//! What the tests stand on: programs with an end, control groups that are removed, small servers and clients.

mod group;
mod net;
mod program;
pub mod pty;
mod up;

pub use group::{Group, exists_anywhere};
pub use net::{Answer, KeepAlive, Server, Traffic, connect_and_send, free_port, get, read_answer};
pub use program::{Program, children_of, copy_headroom, guard_of, headroom, is_alive, run};
pub use up::{Config, Up, Wiki, gateway_in, launched_below, undo_left};

use std::time::{Duration, Instant};

/// Long enough for anything that happens at all on a busy machine of two cores.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer.
///
/// # Panics
/// Where there is none within [`PATIENCE`]; `what` says what was waited for.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "waited {} s in vain: {what}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether this is root, without which there is no control group to try on; says so where it is not.
pub fn root_or_skipped(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: {what} needs root");
    }
    root
}

/// Whether hardware can be emulated here; says so where it cannot.
pub fn fuse_or_skipped(what: &str) -> bool {
    let device = std::path::Path::new("/dev/fuse").exists();
    if !device {
        println!("skipped: {what} needs /dev/fuse");
    }
    device && root_or_skipped(what)
}
