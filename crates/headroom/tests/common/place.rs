//! Where a run happens: its folder, what is mounted in it, a control group of version 2 that can be killed.

use anyhow::{Context, bail};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn mount(args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("mount").args(args).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!(
            "mount {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The mount points at or below a folder.
pub fn mounts_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let below = points.filter(|point| Path::new(point).starts_with(dir));
    below.map(str::to_owned).collect()
}

/// Takes a mount away at once, whoever uses it.
pub fn unmount(point: &Path) {
    // Nothing mounted there is as good; what stays is found by `mounts_below`.
    let _ = Command::new("umount")
        .arg("--lazy")
        .arg(point)
        .stderr(Stdio::null())
        .status();
}

/// A small file system of its own for a run directory; dropped, it is unmounted.
pub struct Disk {
    at: PathBuf,
    covers: u32,
}

impl Disk {
    /// One of that size (as `size=` of tmpfs(5)) at a folder, which is made; says where that cannot be.
    pub fn or_skipped(at: &Path, size: &str) -> Option<Self> {
        let made = Self::new(at, size);
        made.map_err(|why| println!("skipped: a small disk cannot be mounted here: {why:#}"))
            .ok()
    }

    /// The same, or why it cannot be.
    pub fn new(at: &Path, size: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(at)?;
        let disk = Self {
            at: at.to_owned(),
            covers: 0,
        };
        let options = format!("size={size},mode=755");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            &options,
            "headroom-tests",
            &at.to_string_lossy(),
        ])?;
        Ok(disk)
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Fills it to the last byte.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.filler())?;
        let block = [b'x'; 1024];
        for _ in 0..1024 {
            if let Err(error) = file.write_all(&block) {
                return if error.kind() == std::io::ErrorKind::StorageFull {
                    Ok(())
                } else {
                    Err(error.into())
                };
            }
        }
        bail!("{} does not fill up", self.at.display());
    }

    /// Makes it read-only for everything that is opened by its path from now on. (A file system cannot be remounted
    /// read-only while a file is open for writing, as a run's lock is.)
    pub fn read_only(&mut self) -> anyhow::Result<()> {
        let at = self.at.to_string_lossy().into_owned();
        mount(&["--bind", &at, &at])?;
        self.covers += 1;
        mount(&["-o", "remount,ro,bind", &at])
    }

    /// Gives back room and leave to write.
    pub fn mend(&mut self) {
        while self.covers > 0 {
            unmount(&self.at);
            self.covers -= 1;
        }
        // It may never have been filled.
        let _ = fs::remove_file(self.filler());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.mend();
        unmount(&self.at);
    }
}

/// A control group of version 2, of which all processes can be killed at once; removed when it is dropped.
pub struct KillGroup(PathBuf);

impl KillGroup {
    /// Makes one.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let root = super::unified().context("version 2 of control groups is not mounted")?;
        let group = Self(root.join(format!("{name}-kill")));
        fs::create_dir(&group.0)?;
        Ok(group)
    }

    /// Whether groups can be made and killed here: `cgroup.kill` came with Linux 5.14.
    pub fn is_possible() -> bool {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let group = Self::new(&format!("headroom-faults-{}-probe-{number}", std::process::id()));
        group.is_ok_and(|group| group.0.join("cgroup.kill").exists())
    }

    /// The same command, in this group from its first instruction on.
    pub fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        inside.args(["-c", &script, "sh"]);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    /// Kills everything in it.
    pub fn kill(&self) -> anyhow::Result<()> {
        fs::write(self.0.join("cgroup.kill"), "1").context("cgroup.kill")
    }
}

impl Drop for KillGroup {
    fn drop(&mut self) {
        super::within(std::time::Duration::from_secs(2), || {
            (fs::remove_dir(&self.0).is_ok() || !self.0.exists()).then_some(())
        });
    }
}
