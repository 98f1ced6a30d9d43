//! `headroom resize` with real processes for machines: commands that boot them after a while, our gateway or an HAProxy in
//! front of them.

mod bmc;
mod checked;
mod come_back;
mod found;
mod gateway;
mod haproxy;
mod importance;
mod maintenance;
mod power;
mod read_again;
mod unheard;
mod view;

use crate::common::Program;
use crate::common::site::{resizing, run_dir};
use std::path::Path;
use std::process::Command;

/// What one server takes, as the static controller is told.
const CAPACITY_PER_S: u64 = 50;

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
