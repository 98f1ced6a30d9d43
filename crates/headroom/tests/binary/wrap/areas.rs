//! Areas of cores for the connections of a wrapped database.

use super::Database;
use crate::common::{kill, wait};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::process::Child;

/// The processors of each thread of a process, as the kernel writes them.
fn processors(pid: u32) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let list = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(list.trim().to_owned())
        })
        .collect()
}

/// A load of a user's for a while.
pub fn load(database: &Database, user: &str, connections: u32) -> Child {
    let mut load = database.client("mysqlslap");
    load.arg(format!("--user={user}"))
        .arg(format!("--concurrency={connections}"))
        .args([
            "--iterations=1",
            "--number-of-queries=2000000",
            "--create-schema=mysql",
            "--query=select 1",
        ]);
    load.stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn connections_of_two_classes_run_apart_and_are_put_back_when_the_wrap_is_killed() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores < 2 {
        println!("skipped: areas of a wrapped MariaDB: this machine has one core for the tests");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrap.toml");
    let profile: Vec<String> = (1..=cores).map(|core| format!("{core}000.0")).collect();
    let text = format!(
        "[[oncall.class]]\nname = \"gold\"\nclients = [\"user:root\"]\np99_ms = 2000.0\n[law]\nname = \"reef\"\n[law.reef.areas]\nlaw = \
         \"reef\"\nbest_effort_per_s = 100.0\nprofile_per_s = [{}]\n",
        profile.join(", ")
    );
    fs::write(&file, text).unwrap();
    let Some(mut database) = Database::start(&format!("--config {}", file.display())) else {
        return;
    };
    let pid = database.asks("select @@pid_file").unwrap();
    let pid: u32 = fs::read_to_string(pid.trim()).unwrap().trim().parse().unwrap();
    let before = processors(pid);
    assert_eq!(before.len(), 1, "{before:?}");
    database.asks("create user app; grant all on *.* to app");
    let mut loads = [load(&database, "root", 4), load(&database, "app", 12)];
    // Whoever serves nobody keeps its own.
    wait("workers are on the processors of two areas", || {
        let all = processors(pid);
        all.is_superset(&before) && all.len() >= 3
    });
    kill(database.program.pid());
    database.program.wait();
    wait("all have their own processors again", || {
        processors(pid) == before
    });
    for load in &mut loads {
        // A load that had ended would prove nothing.
        assert!(load.try_wait().unwrap().is_none());
        load.kill().unwrap();
        load.wait().unwrap();
    }
    crate::common::signal(pid, Signal::TERM);
    wait("it is down", || !fs::exists(format!("/proc/{pid}")).unwrap());
}
