//! `headroom resize` with real processes for machines: commands that boot them after a while, our gateway or an HAProxy in
//! front of them.

mod bmc;
mod gateway;
mod haproxy;
mod maintenance;
mod power;
mod site;
mod view;

use crate::common::{Program, headroom};
use std::path::Path;
use std::process::Command;

/// What one server takes, as the static controller is told.
const CAPACITY_PER_S: u64 = 50;

/// The controller, running.
fn resize(config: &Path) -> Program {
    Program::start(headroom("resize --json --config").arg(config))
}

/// A check of its file, which changes nothing.
fn check(config: &Path) -> Command {
    let mut command = headroom("resize --check --config");
    command.arg(config);
    command
}

fn fixed() -> String {
    format!("name = \"static\"\n[law.static]\ncapacity_per_s = {CAPACITY_PER_S}.0")
}
