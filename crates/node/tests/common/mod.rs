//! Trees of plain files in the place of `/sys` and `/proc`, and fresh groups on the real machine.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test file uses its own part of this"
)]

mod testing;

pub use testing::{Tree, says, text};

use headroom_node::Roots;
use headroom_node::cgroup::{CgroupError, CgroupScope, ScopeOptions, Target, Version};
use headroom_node::restore::Registry;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A machine made of files.
pub struct FakeMachine {
    tree: Tree,
}

impl FakeMachine {
    pub fn new(mountinfo: &str) -> Self {
        let fake = Self { tree: Tree::new() };
        fake.proc_("self/mountinfo", mountinfo);
        fake.sys("devices/system/cpu/online", "0-3\n");
        fake
    }

    /// Version 2 at the usual place, with the controllers enabled for children.
    pub fn v2() -> Self {
        let fake = Self::new("25 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
        fake.sys("fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
        fake.sys("fs/cgroup/cgroup.subtree_control", "cpuset cpu memory\n");
        fake.sys("fs/cgroup/cpu.stat", "usage_usec 9\n");
        fake.sys("fs/cgroup/cpuset.cpus.effective", "0-3\n");
        fake
    }

    /// Version 1 with cpu and cpuacct mounted together, cpuset, systemd's own hierarchy, and version 2 beside them.
    pub fn hybrid() -> Self {
        Self::new(
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        )
    }

    pub fn roots(&self) -> Roots {
        self.tree.roots()
    }

    pub fn sys(&self, below: &str, text: &str) -> PathBuf {
        self.tree.put(&format!("sys/{below}"), text)
    }

    pub fn proc_(&self, below: &str, text: &str) -> PathBuf {
        self.tree.put(&format!("proc/{below}"), text)
    }

    /// A version 2 group with the cpu controller on.
    pub fn v2_group(&self, group: &str) -> PathBuf {
        let dir = format!("fs/cgroup/{group}");
        self.sys(&format!("{dir}/cpu.max"), "max 100000\n");
        self.sys(&format!("{dir}/cpu.max.burst"), "0\n");
        self.sys(
            &format!("{dir}/cpu.stat"),
            "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        );
        self.roots().sys(dir)
    }

    /// A version 1 group under the controllers mounted together.
    pub fn v1_group(&self, group: &str) -> PathBuf {
        let dir = format!("fs/cgroup/cpu,cpuacct/{group}");
        self.sys(&format!("{dir}/cpu.cfs_quota_us"), "-1\n");
        self.sys(&format!("{dir}/cpu.cfs_period_us"), "100000\n");
        self.sys(
            &format!("{dir}/cpu.stat"),
            "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        );
        self.sys(&format!("{dir}/cpuacct.usage"), "0\n");
        self.roots().sys(dir)
    }
}

/// A fresh group on this machine, or nothing, with the reason printed, where this user may not make one.
pub fn live_scope(registry: &Registry) -> Option<CgroupScope> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("headroom-test-{}-{number}", std::process::id());
    if !rustix::process::geteuid().is_root() {
        println!("skipped: making a cgroup needs root");
        return None;
    }
    match CgroupScope::create(&Roots::default(), &ScopeOptions::named(name), registry) {
        Ok(scope) => Some(scope),
        Err(error @ (CgroupError::NoController { .. } | CgroupError::NoCgroups { .. })) => {
            println!("skipped: {error}");
            None
        }
        Err(CgroupError::File(error))
            if matches!(
                error.cause.kind(),
                std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied
            ) =>
        {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A process that is killed with the test.
pub struct Running(pub Child);

impl Running {
    /// A shell that computes without end.
    pub fn busy() -> Self {
        let child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An energy counter of a plain file that counts up until this is dropped: one that stands still is no meter.
pub struct Drawing {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drawing {
    /// Draws some forty watts.
    pub fn start(energy: &Path) -> Self {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (stopped, energy) = (stop.clone(), energy.to_path_buf());
        let thread = std::thread::spawn(move || {
            let begin = std::time::Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let uj = 1_000 + (begin.elapsed().as_secs_f64() * 40e6) as u64;
                // Replaced whole: a reader must not find an empty file.
                let fresh = energy.with_extension("new");
                fs::write(&fresh, format!("{uj}\n")).unwrap();
                fs::rename(&fresh, &energy).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The quota that is in force for a group.
pub fn quota_of(target: &Target) -> String {
    match target.version {
        Version::V1 => format!(
            "{} {}",
            text(target.cpu_dir.join("cpu.cfs_quota_us")),
            text(target.cpu_dir.join("cpu.cfs_period_us"))
        ),
        Version::V2 => text(target.cpu_dir.join("cpu.max")),
    }
}
