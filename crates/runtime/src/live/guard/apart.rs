//! A life apart: the guard leaves the control groups that its owner may be killed through.
//!
//! `cgroup.kill`, `memory.oom.group` and a service manager's final SIGKILL end all processes of a group and of the groups
//! below. The guard goes to `headroom-guard` at the root of the hierarchies. It leaves a frozen or throttled group in
//! the same way: a guard that is not scheduled lifts nothing.

use super::Mounted;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The group that all guards of a machine share.
const GROUP: &str = "headroom-guard";
/// The hierarchies of version 1 in which a group can be killed, frozen or throttled as a whole.
const VERSION_1: [&str; 4] = ["name=systemd", "freezer", "memory", "cpu"];
/// Another guard that ends may remove the group between our making and entering it.
const ATTEMPTS: usize = 8;

/// The groups that this process lives in now.
#[derive(Debug, Default)]
pub struct Apart {
    dirs: Vec<PathBuf>,
}

/// A control group hierarchy, and which group of it this process is in.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    is_unified: bool,
    group: String,
}

impl Apart {
    /// Leaves the owner's groups. Where that cannot be done, it says how the two may yet be killed together.
    pub fn live() -> (Self, Option<String>) {
        let mut apart = Self::default();
        let mut notes = Vec::new();
        for hierarchy in hierarchies(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")) {
            let dir = hierarchy.mount.join(GROUP);
            match enter(&dir) {
                Ok(()) => apart.dirs.push(dir),
                // Nobody can kill, freeze or limit all that is in the root.
                Err(_) if hierarchy.is_in_root() => continue,
                Err(error) => {
                    notes.push(format!(
                        "it stays in the control group {} of {} ({error})",
                        hierarchy.group,
                        hierarchy.mount.display()
                    ));
                    continue;
                }
            }
            if hierarchy.is_unified && hierarchy.group == "/" && !hierarchy.is_in_root() {
                notes.push("it is in the control group of this container".to_owned());
            }
        }
        let note =
            (!notes.is_empty()).then(|| format!("what kills that group kills both: {}", notes.join("; ")));
        (apart, note)
    }

    /// Goes to the root, and removes the groups where no other guard is in them.
    pub fn end(self) {
        for dir in &self.dirs {
            let above = dir.parent().unwrap_or(dir);
            if let Err(error) = fs::write(above.join("cgroup.procs"), "0") {
                tracing::debug!(%error, dir = %dir.display(), "the guard's group stays");
            }
            match fs::remove_dir(dir) {
                Err(error)
                    if error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::ResourceBusy =>
                {
                    tracing::debug!(%error, dir = %dir.display(), "the guard's group stays");
                }
                _ => {}
            }
        }
    }
}

impl Hierarchy {
    /// Whether it is in the machine's own root group, which has no such file. The root of a container has it.
    fn is_in_root(&self) -> bool {
        let file = match self.is_unified {
            true => "cgroup.events",
            // In version 1 a root cannot be distinguished from a container's; none of it can be killed at once.
            false => return self.group == "/",
        };
        self.group == "/" && !self.mount.join(file).exists()
    }
}

fn enter(dir: &Path) -> io::Result<()> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    for _ in 0..ATTEMPTS {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match fs::write(dir.join("cgroup.procs"), "0") {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Those that matter, of what /proc says of this process.
fn hierarchies(groups: &str, mounts: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for (mount, is_unified, options) in mounted(mounts) {
        let is_ours = |controllers: &str| match is_unified {
            true => controllers.is_empty(),
            false => controllers
                .split(',')
                .any(|one| VERSION_1.contains(&one) && options.split(',').any(|option| option == one)),
        };
        let group = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            is_ours(controllers).then(|| group.to_owned())
        });
        // What is mounted twice is one hierarchy.
        if let Some(group) = group
            && !found.iter().any(|other| other.mount == mount)
        {
            found.push(Hierarchy {
                mount,
                is_unified,
                group,
            });
        }
    }
    found
}

/// The mounts of control groups: where, whether of version 2, and the options of the file system.
fn mounted(mounts: &str) -> impl Iterator<Item = (PathBuf, bool, &str)> {
    mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mount = before.split(' ').nth(4)?;
        let mut after = after.split(' ');
        let is_unified = match after.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        // A path with a blank is escaped; nobody mounts control groups there.
        (!mount.contains('\\')).then(|| (PathBuf::from(mount), is_unified, after.nth(1).unwrap_or("")))
    })
}

/// The mounted hierarchies of this process, for a guard to compare with its own.
pub fn mounted_here() -> Vec<Mounted> {
    let mounts = read("/proc/self/mountinfo");
    let mut found: Vec<Mounted> = mounted(&mounts).filter_map(|(path, ..)| identity(path)).collect();
    found.dedup();
    found
}

/// A directory's identity, where it is there.
pub fn identity(path: PathBuf) -> Option<Mounted> {
    let about = fs::metadata(&path).ok()?;
    Some(Mounted {
        path,
        device: about.dev(),
        inode: about.ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchies_that_a_group_can_be_killed_or_stopped_in_are_found() {
        let mounts = "30 1 0:1 / / rw - ext4 /dev/vda rw\n\
            31 30 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            32 31 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
            33 31 0:27 / /sys/fs/cgroup/systemd rw shared:5 - cgroup cgroup rw,xattr,name=systemd\n\
            34 31 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
            35 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            36 31 0:29 / /odd\\040place rw - cgroup2 cgroup2 rw\n";
        let groups = "3:pids:/a\n2:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/system.slice/d.service\n";
        let found: Vec<(String, bool, String)> = hierarchies(groups, mounts)
            .into_iter()
            .map(|one| (one.mount.display().to_string(), one.is_unified, one.group))
            .collect();
        let wanted = [
            ("/sys/fs/cgroup/cpu", false, "/b"),
            ("/sys/fs/cgroup/systemd", false, "/c"),
            ("/sys/fs/cgroup/unified", true, "/system.slice/d.service"),
        ];
        let wanted = wanted.map(|(mount, unified, group)| (mount.to_owned(), unified, group.to_owned()));
        assert_eq!(found, wanted);
        assert!(hierarchies("", "").is_empty());
    }
}
