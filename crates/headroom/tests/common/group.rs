//! A control group for a service, made and removed with the standard library alone, so that nothing of what is tested
//! is used to test it.

use super::{root_or_skipped, until};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a controller might have changed in a group.
const SETTINGS: [&str; 5] = [
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.max",
    "cpuset.cpus",
    "cpuset.mems",
];

/// A fresh control group; dropped, its processes go to the group above and it is removed.
pub struct Group {
    cpu: PathBuf,
    dirs: Vec<PathBuf>,
}

/// The mount points of the hierarchies that limit and count CPU time: version 1's, else version 2's.
pub fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut dirs: Vec<PathBuf> = Vec::new();
    for controller in ["cpu", "cpuacct", "cpuset"] {
        // cpu and cpuacct are often mounted together, with links to the one directory.
        if let Ok(dir) = root.join(controller).canonicalize()
            && !dirs.contains(&dir)
        {
            dirs.push(dir);
        }
    }
    let v2 = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    if dirs.is_empty() && v2.split_whitespace().any(|controller| controller == "cpu") {
        dirs.push(root.to_owned());
    }
    dirs
}

impl Group {
    /// Waits until the law allocates clearly less than the cores that were found.
    pub fn until_law_saves(&self, found: f64) {
        until("the law saves", || {
            self.cores().filter(|cores| *cores < 0.7 * found)
        });
    }

    /// Makes a group, or says why it cannot be made here.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !root_or_skipped("making a control group") {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let made = Self::named(&format!("headroom-e2e-{}-{number}", std::process::id()));
        made.map_err(|why| println!("skipped: {why:#}")).ok()
    }

    /// One with a name, at the top of each hierarchy.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let roots = hierarchies();
        let missing = "no control group hierarchy with the cpu controller is mounted";
        let cpu = roots.first().context(missing)?.join(name);
        let dirs = roots.iter().map(|root| root.join(name)).collect();
        let group = Self { cpu, dirs };
        group.make()?;
        Ok(group)
    }

    /// One below it.
    pub fn child(&self, name: &str) -> Self {
        let dirs = self.dirs.iter().map(|dir| dir.join(name)).collect();
        let group = Self {
            cpu: self.cpu.join(name),
            dirs,
        };
        group.make().unwrap();
        group
    }

    /// Makes it, also anew after [`Group::remove`].
    pub fn make(&self) -> anyhow::Result<()> {
        for dir in &self.dirs {
            fs::create_dir(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
            // Version 1 lets no process in before these two are set.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let above = dir.parent().unwrap().join(file);
                if dir.join("tasks").exists()
                    && let Ok(value) = fs::read_to_string(above)
                {
                    fs::write(dir.join(file), value.trim()).unwrap();
                }
            }
        }
        Ok(())
    }

    /// Takes its directory under the cpuacct controller away, and says which it was; nothing where that is no hierarchy
    /// of its own.
    pub fn uncounted(&self) -> Option<PathBuf> {
        let counts = |dir: &&PathBuf| **dir != self.cpu && dir.join("cpuacct.usage").exists();
        let dir = self.dirs.iter().find(counts)?;
        fs::remove_dir(dir).unwrap();
        Some(dir.clone())
    }

    /// Those of its directories that are there, one in each hierarchy.
    pub fn left(&self) -> Vec<&Path> {
        let dirs = self.dirs.iter().map(PathBuf::as_path);
        dirs.filter(|dir| dir.exists()).collect()
    }

    /// Its directory under the cpu controller.
    pub fn dir(&self) -> &Path {
        &self.cpu
    }

    /// The same as text.
    pub fn path(&self) -> String {
        self.cpu.display().to_string()
    }

    /// Whether its CPUs can be chosen.
    pub fn has_cpuset(&self) -> bool {
        self.dirs.iter().any(|dir| dir.join("cpuset.cpus").exists())
    }

    /// Sets what an administrator might have set.
    pub fn limit(&self, quota_us: u64, period_us: u64) {
        let (quota, period) = (quota_us.to_string(), period_us.to_string());
        if self.cpu.join("cpu.max").exists() {
            fs::write(self.cpu.join("cpu.max"), format!("{quota} {period}")).unwrap();
        } else {
            fs::write(self.cpu.join("cpu.cfs_period_us"), period).unwrap();
            fs::write(self.cpu.join("cpu.cfs_quota_us"), quota).unwrap();
        }
    }

    /// Sets another quota while Headroom's period of 10 ms is in force, in one write, so that nobody sees half of it.
    pub fn interfere(&self, quota_us: u64) {
        if self.cpu.join("cpu.max").exists() {
            fs::write(self.cpu.join("cpu.max"), format!("{quota_us} 10000")).unwrap();
        } else {
            fs::write(self.cpu.join("cpu.cfs_quota_us"), quota_us.to_string()).unwrap();
        }
    }

    /// The quota in force, as a number of cores; nothing where there is none.
    pub fn cores(&self) -> Option<f64> {
        let read = |name: &str| fs::read_to_string(self.cpu.join(name)).ok();
        let both = read("cpu.max").or_else(|| {
            Some(format!(
                "{} {}",
                read("cpu.cfs_quota_us")?.trim(),
                read("cpu.cfs_period_us")?.trim()
            ))
        })?;
        let (quota, period) = both.trim().split_once(' ').unwrap();
        let quota: f64 = quota.parse().ok().filter(|quota| *quota > 0.0)?;
        Some(quota / period.parse::<f64>().unwrap())
    }

    /// Everything that a controller might have changed, and the groups below.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for dir in &self.dirs {
            for name in SETTINGS {
                if let Ok(value) = fs::read_to_string(dir.join(name)) {
                    found.insert(name.to_owned(), value.trim().to_owned());
                }
            }
            let below = fs::read_dir(dir)
                .unwrap()
                .filter_map(|entry| entry.ok())
                .filter(|entry| entry.path().is_dir());
            for entry in below {
                found.insert(entry.path().display().to_string(), "a group".to_owned());
            }
        }
        assert!(!found.is_empty());
        found
    }

    /// Moves a process into it.
    pub fn add(&self, pid: u32) {
        for dir in &self.dirs {
            fs::write(dir.join("cgroup.procs"), pid.to_string())
                .unwrap_or_else(|error| panic!("{pid} into {}: {error}", dir.display()));
        }
    }

    /// Its directories, one in each hierarchy.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Removes it while it may be in use, as an administrator would.
    pub fn remove(&self) {
        for dir in &self.dirs {
            for _ in 0..200 {
                if let Ok(pids) = fs::read_to_string(dir.join("cgroup.procs")) {
                    for pid in pids.lines() {
                        let _ = fs::write(dir.parent().unwrap().join("cgroup.procs"), pid);
                    }
                }
                if !dir.exists() || fs::remove_dir(dir).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The same command, in the group of these directories from its first instruction on.
pub fn inside(dirs: &[PathBuf], command: &Command) -> Command {
    let enter = |dir: &PathBuf| format!("echo $$ > {}/cgroup.procs && ", dir.display());
    let script: String = dirs.iter().map(enter).collect();
    let mut inside = Command::new("sh");
    inside.args(["-c", &format!("{script} exec \"$@\""), "sh"]);
    inside.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

/// Where version 2 is mounted, with or without controllers.
pub fn unified() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// Whether a group of this name is at the top of any hierarchy.
pub fn exists_anywhere(name: &str) -> bool {
    let below = fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
    let roots = below.filter_map(|entry| Some(entry.ok()?.path()));
    roots
        .chain([PathBuf::from("/sys/fs/cgroup")])
        .any(|root| root.join(name).is_dir())
}
