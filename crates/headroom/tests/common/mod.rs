//! What the test programs stand on: programs with an end, control groups that are removed, emulated machines, small
//! servers and clients, configurations. Nothing of what is tested is used to test it.
#![allow(
    dead_code,
    unused_imports,
    reason = "each of the three test programs uses a part of it"
)]

mod config;
mod database;
mod group;
mod net;
pub mod openmetrics;
pub mod place;
pub mod process;
mod program;
pub mod pty;
pub mod record;
pub mod site;
mod start;

pub use config::{Config, Up, gateway_in, launched_below, metrics_at, serving_at, undo_left};
pub use database::Database;
pub use group::{Group, exists_anywhere, hierarchies, inside, unified};
pub use net::{
    Answer, KeepAlive, Load, NOBODY, Server, Traffic, connect_and_send, free_address, free_port, get,
    read_answer, serves,
};
pub use process::{children_of, guard_of, is_alive, kill, signal};
pub use program::{
    Program, bare, command, copy_headroom, ended, headroom, program_or_skipped, refused, run, succeeds,
};
pub use start::{Emulator, Gateway, Wiki};

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Long enough for anything that happens at all on a busy machine of two cores.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// For a test whose program measures what this machine serves, and then loads it with that: such tests run one after another, as one
/// would measure what the other leaves.
pub fn measuring() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks every 20 ms until there is an answer, so long at most.
pub fn within<T>(most: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + most;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// Where there is none within [`PATIENCE`]; `what` says what was waited for.
#[track_caller]
pub fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    match within(PATIENCE, ask) {
        Some(answer) => answer,
        None => panic!("waited {} s in vain: {what}", PATIENCE.as_secs()),
    }
}

/// The same for what is true or not.
#[track_caller]
pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// A text holds all of these.
#[track_caller]
pub fn assert_has(text: impl AsRef<str>, parts: &[&str]) {
    let text = text.as_ref();
    let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "without {missing:?}: {text}");
}

/// The number at a path of keys, as in `energy_j.value`.
#[track_caller]
pub fn number(json: &serde_json::Value, path: &str) -> f64 {
    let found = path.split('.').fold(json, |value, key| &value[key]);
    found.as_f64().unwrap_or_else(|| panic!("{path} is {found}"))
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
