//! `headroom resize` with real processes for machines: commands that boot them after a while, our gateway or an HAProxy in
//! front of them.

mod bmc;
mod come_back;
mod gateway;
mod haproxy;
mod power;
mod view;

use crate::common::{Program, headroom};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What one server takes, as the static controller is told.
const CAPACITY_PER_S: u64 = 50;

/// The controller of a file, with a run folder beside that.
fn resizing(config: &Path, words: &str) -> Command {
    let mut command = headroom(format!("resize {words} --config"));
    command.arg(config).arg("--run-dir").arg(run_dir(config));
    command
}

/// The run folder of a file's controllers.
fn run_dir(config: &Path) -> PathBuf {
    config.with_file_name("run")
}

/// The controller, running.
fn resize(config: &Path) -> Program {
    Program::start(resizing(config, "--json"))
}

/// A check of its file, which changes nothing.
fn check(config: &Path) -> Command {
    resizing(config, "--check")
}

fn fixed() -> String {
    format!("name = \"static\"\n[law.static]\ncapacity_per_s = {CAPACITY_PER_S}.0")
}
