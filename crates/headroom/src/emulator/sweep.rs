//! What demos left that were killed together with their emulated hardware: a dead mount, on which `df` stumbles for
//! everybody, an undo record and control groups. Each demo has a folder of its own number, so none comes upon that of
//! another by itself.
//!
//! # Races
//! One sweep at a time in a run folder (a lock on that folder, which the kernel drops with the process). A demo sweeps
//! before it makes anything, so what lies under its own number is an older one's, and is gone before its own emulator
//! starts. The record is written before a group or a mount is made, and names the emulator by number and start time; until
//! it is there, and whenever an emulator died and is to be started again, the demo itself says that the folder is in use:
//! by its number, and where there is a record by having begun before the emulator. An emulator that outlives its demo
//! for a moment takes everything away itself; one that was only about to start finds no folder to mount at, and ends.

use super::{clean, record_of};
use anyhow::{Context, anyhow};
use headroom_node::restore::check_ours;
use headroom_testbed::hardware::is_abandoned;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most that one sweep looks at; the next goes on.
const MOST: usize = 256;
/// How long another sweep of the same run folder is waited for.
const LOCK_WITHIN: Duration = Duration::from_secs(5);
/// How long the kernel may take until the mount of a process that was just killed is known to be dead.
const DEAD_WITHIN: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(10);

const PREFIX: &str = "demo-";
/// What a folder's name may be followed by: nothing, its record, and a record that was being written.
const SUFFIXES: [&str; 3] = ["", ".undo.json", ".undo.json.new"];

/// Where a demo that is this process mounts its emulated server.
pub fn demo_folder(run_dir: &Path) -> PathBuf {
    folder_of(run_dir, std::process::id())
}

fn folder_of(run_dir: &Path, pid: u32) -> PathBuf {
    run_dir.join(format!("{PREFIX}{pid}"))
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// What was taken away, a line each.
    pub done: Vec<String>,
    /// What could not be: a demo each, or why nothing was looked at.
    pub failed: Vec<anyhow::Error>,
}

impl Swept {
    /// Whether there was nothing to take away.
    pub fn is_nothing(&self) -> bool {
        self.done.is_empty() && self.failed.is_empty()
    }
}

/// Takes away what dead demos left in a run folder: mounts, folders, control groups, records. Those of living ones are
/// left alone.
pub fn sweep(run_dir: &Path) -> Swept {
    let mut swept = Swept::default();
    if let Err(error) = sweep_into(run_dir, &mut swept) {
        swept.failed.push(error);
    }
    swept
}

/// The same as soon as one demo, which is ending now, has ended with its emulated hardware: a process that is killed goes on
/// being there for a moment, and hardware whose demo was killed alone takes itself away. What is still there after so long
/// is left to the next sweep.
pub fn sweep_after(run_dir: &Path, demo: u32, within: Duration) -> Swept {
    let until = Instant::now() + within;
    let mut all = Swept::default();
    loop {
        let swept = sweep(run_dir);
        all.done.extend(swept.done);
        all.failed = swept.failed;
        let gone = demos(run_dir).is_ok_and(|demos| !demos.contains(&demo));
        if gone || Instant::now() >= until {
            return all;
        }
        std::thread::sleep(AGAIN);
    }
}

fn sweep_into(run_dir: &Path, swept: &mut Swept) -> anyhow::Result<()> {
    let read = || format!("cannot look for what dead demos left in {}", run_dir.display());
    // Nothing is locked, and nobody's rights are asked for, where there is nothing.
    if demos(run_dir).with_context(read)?.is_empty() {
        return Ok(());
    }
    check_ours(run_dir)?;
    let lock = locked(run_dir)?;
    // Again, as another sweep may have held the lock.
    let demos = demos(run_dir).with_context(read)?;
    for pid in demos.iter().take(MOST) {
        if let Err(error) = take_away(run_dir, *pid, &mut swept.done) {
            swept.failed.push(error);
        }
    }
    if demos.len() > MOST {
        swept.failed.push(anyhow!(
            "{} has the folders of {} demos, and {MOST} are looked at at a time: `headroom release` again",
            run_dir.display(),
            demos.len()
        ));
    }
    // Closing the file is not enough while a child of this process is between fork and exec: it shares the lock.
    let _ = lock.unlock();
    Ok(())
}

/// The numbers of the demos that something is there of.
fn demos(run_dir: &Path) -> std::io::Result<BTreeSet<u32>> {
    let entries = match fs::read_dir(run_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut demos = BTreeSet::new();
    for entry in entries {
        demos.extend(entry?.file_name().to_str().and_then(pid_of));
    }
    Ok(demos)
}

/// The number in the name of a demo's folder or record; nothing where it is the name of something else.
fn pid_of(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (pid, suffix) = rest.split_at(digits);
    let pid: u32 = pid.parse().ok()?;
    // No other spelling of the number either: the folder is found by it again.
    (SUFFIXES.contains(&suffix) && name == format!("{PREFIX}{pid}{suffix}")).then_some(pid)
}

fn locked(run_dir: &Path) -> anyhow::Result<File> {
    let folder = File::open(run_dir).with_context(|| format!("cannot open {}", run_dir.display()))?;
    let until = Instant::now() + LOCK_WITHIN;
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(AGAIN),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot lock {}: another headroom has been taking away what dead demos left there for {} s; see \
                         what it waits for, or try again with `headroom release`",
                        run_dir.display(),
                        LOCK_WITHIN.as_secs()
                    )
                });
            }
        }
    }
}

/// Takes away what one demo left, unless it lives.
fn take_away(run_dir: &Path, pid: u32, done: &mut Vec<String>) -> anyhow::Result<()> {
    let at = folder_of(run_dir, pid);
    let record = record_of(&at);
    if !is_abandoned(&record, pid)? {
        return Ok(());
    }
    let recorded = record.exists();
    done.extend(clean(&at)?);
    if recorded {
        done.push(format!("removed {}", record.display()));
    }
    let until = Instant::now() + DEAD_WITHIN;
    let gone = loop {
        match fs::remove_dir(&at) {
            // A mount whose server is just ending is neither dead yet nor gone.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(AGAIN);
                done.extend(clean(&at)?);
            }
            gone => break gone,
        }
    };
    match gone {
        Ok(()) => done.push(format!("removed {}", at.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            let at = at.display();
            return Err(error).with_context(|| {
                format!("cannot remove {at}: see what is in it, and whether it is mounted (umount -l {at})")
            });
        }
    }
    let mut unfinished = record.into_os_string();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", unfinished.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has it.
    const DEAD: u32 = u32::MAX;

    /// A run folder with a demo's folder, and its record where one is given: the emulator's number and start time.
    fn run_dir(demo: u32, record: Option<(u32, u64)>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = folder_of(dir.path(), demo);
        fs::create_dir(&at).unwrap();
        if let Some((pid, started)) = record {
            let text = format!(
                "{{\"pid\":{pid},\"started\":{started},\"base\":null,\"enabled_in\":null,\"found\":[]}}"
            );
            fs::write(record_of(&at), text).unwrap();
        }
        dir
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn began(pid: u32) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().nth(19).unwrap().parse().unwrap()
    }

    #[test]
    fn what_a_dead_demo_left_is_taken_away_and_nothing_else() {
        for record in [Some((DEAD, 1)), None] {
            let dir = run_dir(DEAD, record);
            let at = folder_of(dir.path(), DEAD);
            fs::write(record_of(&at).with_extension("json.new"), "{").unwrap();
            for other in [
                "emulated",
                "demo-",
                "demo-x",
                "demo-1.html",
                "demo-007",
                "undo.json",
            ] {
                fs::create_dir(dir.path().join(other)).unwrap();
            }
            let before = names(dir.path()).len();
            let swept = sweep(dir.path());
            assert!(swept.failed.is_empty(), "{swept:?}");
            let mut said: Vec<String> = vec![format!("removed {}", at.display())];
            if record.is_some() {
                said.insert(0, format!("removed {}", record_of(&at).display()));
            }
            assert_eq!(swept.done, said);
            assert_eq!(
                names(dir.path()).len(),
                before - 2 - usize::from(record.is_some())
            );
            assert!(sweep(dir.path()).is_nothing());
        }
    }

    #[test]
    fn a_living_demo_is_left_alone_at_every_moment_of_its_life() {
        let living = std::process::id();
        let began = began(living);
        for (demo, record) in [
            // Just starting: no record yet.
            (living, None),
            // Its emulator died, and is about to be started again.
            (living, Some((DEAD, began + 5))),
            // Its emulator began within the same tick of the clock.
            (living, Some((DEAD, began))),
            // It was killed, and its emulator is just ending.
            (DEAD, Some((living, began))),
        ] {
            let dir = run_dir(demo, record);
            let before = names(dir.path());
            assert!(sweep(dir.path()).is_nothing(), "{demo} {record:?}");
            assert_eq!(names(dir.path()), before);
        }
    }

    #[test]
    fn numbers_that_went_to_other_processes_keep_nothing() {
        let living = std::process::id();
        let began = began(living);
        for (demo, record) in [
            (living, (DEAD, began - 1)),
            (living, (living, began - 1)),
            (DEAD, (living, began + 1)),
        ] {
            let dir = run_dir(demo, Some(record));
            let swept = sweep(dir.path());
            assert_eq!(swept.done.len(), 2, "{swept:?}");
            assert!(names(dir.path()).is_empty());
        }
    }

    #[test]
    fn many_sweeps_at_once_take_everything_away_once() {
        let dir = run_dir(DEAD, Some((DEAD, 1)));
        for pid in DEAD - 20..DEAD {
            fs::create_dir(folder_of(dir.path(), pid)).unwrap();
        }
        let swept: Vec<Swept> = std::thread::scope(|scope| {
            let sweeps: Vec<_> = (0..4).map(|_| scope.spawn(|| sweep(dir.path()))).collect();
            sweeps.into_iter().map(|sweep| sweep.join().unwrap()).collect()
        });
        assert!(swept.iter().all(|swept| swept.failed.is_empty()), "{swept:?}");
        assert_eq!(swept.iter().map(|swept| swept.done.len()).sum::<usize>(), 22);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn what_cannot_be_taken_away_is_told_and_does_not_keep_the_rest() {
        let dir = run_dir(DEAD, Some((DEAD, 1)));
        let damaged = folder_of(dir.path(), DEAD - 2);
        fs::write(record_of(&damaged), "{}").unwrap();
        let full = folder_of(dir.path(), DEAD - 1);
        fs::create_dir_all(full.join("something")).unwrap();
        let swept = sweep(dir.path());
        let said: Vec<String> = swept.failed.iter().map(|error| format!("{error:#}")).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains(record_of(&damaged).to_str().unwrap()),
            "{said:?}"
        );
        assert!(said[1].contains(full.to_str().unwrap()), "{said:?}");
        assert!(!folder_of(dir.path(), DEAD).exists());
        assert!(record_of(&damaged).exists() && full.join("something").exists());
    }

    #[test]
    fn records_that_others_may_write_are_not_carried_out() {
        use std::os::unix::fs::PermissionsExt;
        let dir = run_dir(DEAD, Some((DEAD, 1)));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let swept = sweep(dir.path());
        assert!(swept.done.is_empty() && swept.failed.len() == 1, "{swept:?}");
        assert!(folder_of(dir.path(), DEAD).exists());
    }

    #[test]
    fn a_demo_that_is_just_ending_is_waited_for() {
        let mut demo = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let dir = run_dir(demo.id(), None);
        let soon = Duration::from_millis(50);
        assert!(sweep_after(dir.path(), demo.id(), soon).is_nothing(), "it lives");
        let swept = std::thread::scope(|scope| {
            let sweep = scope.spawn(|| sweep_after(dir.path(), demo.id(), Duration::from_secs(60)));
            std::thread::sleep(soon);
            let mut killed = std::process::Command::new("kill");
            assert!(
                killed
                    .args(["-9", &demo.id().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
            sweep.join().unwrap()
        });
        assert_eq!((swept.done.len(), swept.failed.len()), (1, 0), "{swept:?}");
        assert!(names(dir.path()).is_empty());
        demo.wait().unwrap();
    }

    #[test]
    fn where_there_is_no_run_folder_nothing_was_left() {
        let dir = tempfile::tempdir().unwrap();
        assert!(sweep(&dir.path().join("none")).is_nothing());
    }
}
