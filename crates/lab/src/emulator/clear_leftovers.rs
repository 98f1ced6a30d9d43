//! What demos left that were killed together with their emulated hardware: a dead mount, on which `df` stumbles for
//! everybody, an undo record and control groups. Each demo has a folder of its own number in its run folder, and where it has many
//! emulated servers, one with that number and theirs for each, and beside it a folder of what runs on that server.
//!
//! # Who lives
//! A demo takes its run folder before it makes anything there, and has it until it ends. So whoever has the run folder knows
//! that the demos of all that lies there are dead, in whatever PID namespace they were, and need ask for no process. Only
//! their hardware may live for a moment yet: it takes everything away itself, and is waited for where its record tells of it.
//! Where it has no record yet it finds no folder to mount at, and ends. (A process in another PID namespace cannot be
//! waited for: then both take away the same, and each is content with what the other has done.)
//!
//! What cannot be taken away is reported, and keeps nobody from starting: a demo that gets the same number comes upon it, and
//! makes its place ready or says why not.

use super::{RECORD, clean};
use anyhow::Context;
use headroom_node::restore::{LedgerError, RunDir};
use headroom_runtime::live::undo::{Remains, Removed};
use headroom_testbed::hardware::HardwareError;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long after its demo emulated hardware may take to end by itself.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(20);

const PREFIX: &str = "demo-";
/// What the name of a server's folder is followed by in that of what runs on it.
const PARTS: &str = ".parts";

/// Where a demo that is this process mounts its emulated server.
///
/// # Errors
/// The current folder, which a relative path is looked for in, is gone.
pub fn demo_folder(run_dir: &RunDir) -> io::Result<PathBuf> {
    let folder = run_dir.path().join(format!("{PREFIX}{}", std::process::id()));
    std::path::absolute(folder)
}

/// Where a demo whose folder that is mounts one of several emulated servers.
pub fn server_folder(demo: &Path, server: usize) -> PathBuf {
    let mut folder = demo.as_os_str().to_owned();
    folder.push(format!("-{server}"));
    folder.into()
}

/// The folder of what runs on the emulated server that is mounted there: sockets, records of what is to be put back.
pub fn parts_of(at: &Path) -> PathBuf {
    let mut parts = at.as_os_str().to_owned();
    parts.push(PARTS);
    parts.into()
}

/// For programs that take run folders in which demos may have run.
pub const REMAINS: Remains = Remains {
    are_in: has_demos,
    take: take_and_clear,
};

/// What was taken away.
#[derive(Debug, Default)]
struct Cleared {
    removed: Removed,
    /// Something of it is just ending.
    is_ending: bool,
}

/// Takes a run folder, and takes away what dead demos left in it: mounts, folders, control groups, records. While hardware
/// that is just ending is waited for, anybody else may take the folder.
///
/// # Errors
/// [`LedgerError`]: a run folder that is in use or cannot be used.
pub fn take_and_clear(run_dir: &Path) -> Result<(RunDir, Removed), LedgerError> {
    let until = Instant::now() + ENDED_WITHIN;
    let mut done = Vec::new();
    loop {
        let taken = RunDir::take(run_dir)?;
        let mut cleared = clear_leftovers(&taken);
        done.append(&mut cleared.removed.done);
        if !cleared.is_ending || Instant::now() >= until {
            let failed = cleared.removed.failed;
            return Ok((taken, Removed { done, failed }));
        }
        drop(taken);
        std::thread::sleep(AGAIN);
    }
}

/// Whether there is something of a demo in a run folder, which may be that of a living one.
fn has_demos(run_dir: &Path) -> bool {
    !demos(run_dir).is_ok_and(|demos| demos.is_empty())
}

fn clear_leftovers(run_dir: &RunDir) -> Cleared {
    let mut cleared = Cleared::default();
    let demos = demos(run_dir.path()).unwrap_or_else(|error| {
        let at = run_dir.path().display();
        let error = anyhow::Error::new(error).context(format!("cannot look for dead demos in {at}"));
        cleared.removed.failed.push(error);
        BTreeSet::new()
    });
    for demo in demos {
        if let Err(error) = take_away(&demo, &mut cleared.removed.done) {
            cleared.is_ending |= is_ending(&error);
            cleared.removed.failed.push(error);
        }
    }
    cleared
}

/// The folders of the demos that something is there of.
fn demos(run_dir: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let entries = match fs::read_dir(run_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut demos = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let number = [RECORD, PARTS]
            .iter()
            .find_map(|suffix| number.strip_suffix(suffix))
            .unwrap_or(number);
        if number.split('-').all(|part| part.parse::<u32>().is_ok()) && number.split('-').count() <= 2 {
            demos.insert(run_dir.join(format!("{PREFIX}{number}")));
        }
    }
    Ok(demos)
}

/// Takes away what one dead demo left.
fn take_away(demo: &Path, done: &mut Vec<String>) -> anyhow::Result<()> {
    done.extend(clean(demo)?);
    let parts = parts_of(demo);
    match fs::remove_dir_all(&parts) {
        Ok(()) => done.push(format!("removed {}", parts.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot remove {}", parts.display())),
    }
    match fs::remove_dir(demo) {
        Ok(()) => done.push(format!("removed {}", demo.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            let at = demo.display();
            return Err(error).with_context(|| {
                format!("cannot remove {at}: see what is in it, and whether it is mounted (umount -l {at})")
            });
        }
    }
    Ok(())
}

/// Whether that is because emulated hardware has not ended yet: it runs, or its mount is neither dead yet nor gone.
fn is_ending(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(HardwareError::StillRuns { .. }))
        || matches!(
            error.downcast_ref::<io::Error>().map(io::Error::kind),
            // What runs on a server writes into its folder until it ends.
            Some(ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty)
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::record_of;

    /// A run folder with a dead demo's folder, and the record of an emulator where one is given: its number and start time.
    fn run_dir(record: Option<(u32, u64)>) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let demo = dir.path().join("demo-7");
        fs::create_dir(&demo).unwrap();
        if let Some((pid, started)) = record {
            let text = format!("{{\"pid\":{pid},\"started\":{started},\"base\":null,\"enabled_in\":null}}");
            fs::write(record_of(&demo), text).unwrap();
        }
        (dir, demo)
    }

    #[test]
    fn what_dead_demos_left_is_taken_away_and_nothing_else() {
        let (dir, demo) = run_dir(Some((u32::MAX, 1)));
        fs::write(record_of(&demo).with_extension("json.new"), "{").unwrap();
        let without = dir.path().join("demo-8");
        fs::create_dir(&without).unwrap();
        fs::copy(record_of(&demo), record_of(&dir.path().join("demo-9"))).unwrap();
        for server in ["demo-9-2", "demo-9-2.parts", "demo-9-3.parts"] {
            fs::create_dir(dir.path().join(server)).unwrap();
        }
        fs::write(dir.path().join("demo-9-3.parts/agent.sock"), "").unwrap();
        let others = [
            "demo-",
            "demo-1-",
            "demo-1-2-3",
            "demo-1.html",
            "demo-x",
            "emulated",
            "undo.json.new",
        ];
        for other in others {
            fs::create_dir(dir.path().join(other)).unwrap();
        }
        assert!(has_demos(dir.path()));
        let (_taken, cleared) = take_and_clear(dir.path()).unwrap();
        assert!(cleared.failed.is_empty(), "{cleared:?}");
        let [parts, server, others_parts] =
            ["demo-9-2.parts", "demo-9-2", "demo-9-3.parts"].map(|name| dir.path().join(name));
        let removed =
            [demo, without, parts, server, others_parts].map(|at| format!("removed {}", at.display()));
        assert_eq!(cleared.done, removed);
        let entries = fs::read_dir(dir.path()).unwrap();
        let mut left: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.retain(|name| name != "lock");
        left.sort();
        assert_eq!(left, others);
        assert!(!has_demos(dir.path()) && !has_demos(&dir.path().join("none")));
    }

    #[test]
    fn a_folder_that_somebody_has_is_left_alone() {
        let (dir, demo) = run_dir(Some((u32::MAX, 1)));
        let _living = RunDir::take(dir.path()).unwrap();
        assert!(matches!(
            take_and_clear(dir.path()),
            Err(LedgerError::InUse { .. })
        ));
        assert!(demo.exists() && record_of(&demo).exists());
    }

    #[test]
    fn hardware_that_is_just_ending_is_waited_for_and_the_folder_is_free_meanwhile() {
        let mut hardware = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", hardware.id())).unwrap();
        let began = stat.split_whitespace().nth(21).unwrap().parse().unwrap();
        let (dir, demo) = run_dir(Some((hardware.id(), began)));
        let cleared = clear_leftovers(&RunDir::take(dir.path()).unwrap());
        assert!(
            cleared.is_ending && cleared.removed.done.is_empty(),
            "{cleared:?}"
        );
        let cleared = std::thread::scope(|scope| {
            let clear_leftovers = scope.spawn(|| take_and_clear(dir.path()).unwrap().1);
            drop(RunDir::take(dir.path()).unwrap());
            hardware.kill().unwrap();
            clear_leftovers.join().unwrap()
        });
        assert_eq!(cleared.done, [format!("removed {}", demo.display())]);
        assert!(
            cleared.failed.is_empty() && !record_of(&demo).exists(),
            "{cleared:?}"
        );
        hardware.wait().unwrap();
    }

    #[test]
    fn what_cannot_be_taken_away_is_told_and_does_not_keep_the_rest() {
        let (dir, demo) = run_dir(None);
        let [damaged, full] = ["demo-5", "demo-6"].map(|name| dir.path().join(name));
        fs::write(record_of(&damaged), "{}").unwrap();
        fs::create_dir_all(full.join("something")).unwrap();
        let (_taken, cleared) = take_and_clear(dir.path()).unwrap();
        let said: Vec<String> = cleared.failed.iter().map(|error| format!("{error:#}")).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains(record_of(&damaged).to_str().unwrap()),
            "{said:?}"
        );
        assert!(said[1].contains(full.to_str().unwrap()), "{said:?}");
        assert!(!demo.exists() && record_of(&damaged).exists() && full.join("something").exists());
    }
}
