//! After a run: whether anything was left behind.

use crate::common::place::{mounts_below, unmount};
use crate::common::{kill, within};
use crate::world::{MAX_WAIT, World};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ends what still runs in an orderly way, and finds what stays.
pub fn examine(world: &mut World) -> anyhow::Result<()> {
    world.end_programs();
    for process in world.until_ended(Duration::from_secs(10)) {
        let text = format!("process {}: {}", process.pid, process.args.join(" "));
        world.found.leftovers.push(text);
        kill(process.pid);
    }
    limits(world, "when all had ended");
    if let Some(disk) = &mut world.disk {
        disk.mend();
        // With nowhere to write, the record of what was put back could not be removed either. That is this command's
        // work, whatever it says of it.
        for run_dir in world.run_dirs.clone() {
            release(world, &run_dir, "release-mended")?;
        }
    }
    for run_dir in world.run_dirs.clone() {
        for name in ["undo.json", "undo.json.new"] {
            if run_dir.join(name).exists() {
                let text = format!("file {}", run_dir.join(name).display());
                world.found.leftovers.push(text);
            }
        }
        let said = release(world, &run_dir, "release-last")?;
        if !said.contains("nothing was left") {
            let text = format!("`headroom release` said: {}", said.trim().replace('\n', " | "));
            world.found.leftovers.push(text);
        }
    }
    limits(world, "after `headroom release`");
    world.end_services();
    world.end_emulator()?;
    // A group that processes are just leaving goes a moment later.
    world.kill_group = None;
    world.group = None;
    world.disk = None;
    let mark = world.mark.clone();
    within(Duration::from_secs(2), || {
        groups_named(&mark).is_empty().then_some(())
    });
    for group in groups_named(&mark) {
        let text = format!("control group {}", group.display());
        world.found.leftovers.push(text);
    }
    for mount in mounts_below(world.dir()) {
        world.found.leftovers.push(format!("mount {mount}"));
        unmount(Path::new(&mount));
    }
    Ok(())
}

/// Every limit holds what it is to hold.
fn limits(world: &mut World, when: &str) {
    let wrong: Vec<String> = world
        .watched
        .iter()
        .filter_map(|watched| watched.wrong())
        .collect();
    if !wrong.is_empty() {
        let more = wrong.len().saturating_sub(3);
        let more = if more > 0 {
            format!(", and {more} more")
        } else {
            String::new()
        };
        let some = wrong[..wrong.len().min(3)].join(", ");
        world.found.left.push(format!("{when}: {some}{more}"));
    }
}

/// What `headroom release` says; that it fails is found wrong.
fn release(world: &mut World, run_dir: &Path, name: &str) -> anyhow::Result<String> {
    let command = world.release_command(run_dir);
    let program = world.start(command, name);
    match world.program(program).wait_for(MAX_WAIT) {
        Some(status) if status.success() => {}
        status => {
            let text = format!(
                "`headroom release`: {status:?}: {}",
                world.program(program).last_words()
            );
            world.found.wrong.push(text);
        }
    }
    Ok(world.program(program).all())
}

/// The control groups, in any hierarchy and up to three levels down, whose names contain a text.
pub fn groups_named(text: &str) -> Vec<PathBuf> {
    fn below(dir: &Path, levels: u32, text: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            // Links are other names of the same.
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(text) {
                found.push(path.clone());
            }
            if levels > 0 {
                below(&path, levels - 1, text, found);
            }
        }
    }
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), 3, text, &mut found);
    found.sort();
    found
}

/// Control groups with our program's name that nobody is in.
pub fn empty_groups() -> Vec<PathBuf> {
    let mut groups = groups_named("headroom");
    groups.retain(|group| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty()));
    groups
}
