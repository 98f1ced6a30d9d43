//! Where `/sys` and `/proc` are.

use headroom_units::Source;
use std::path::{Path, PathBuf};

/// Emulated hardware marks its tree by this file below `sys`.
const EMULATED: &str = "headroom-testbed/emulated";
/// The file system type of sysfs (statfs(2)).
const SYSFS_MAGIC: i64 = 0x6265_6572;

/// The roots of the two kernel file systems. The default is the running machine; a test, an emulator or a
/// container that has the host's trees elsewhere names others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// In the place of `/sys`.
    pub sys: PathBuf,
    /// In the place of `/proc`.
    pub proc_: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::at("/sys", "/proc")
    }
}

impl Roots {
    /// Trees at the given places.
    pub fn at(sys: impl Into<PathBuf>, proc_: impl Into<PathBuf>) -> Self {
        Self {
            sys: sys.into(),
            proc_: proc_.into(),
        }
    }

    /// A path below `/sys`, given without its leading slash.
    pub fn sys(&self, below: impl AsRef<Path>) -> PathBuf {
        self.sys.join(below)
    }

    /// A path below `/proc`, given without its leading slash.
    pub fn proc_(&self, below: impl AsRef<Path>) -> PathBuf {
        self.proc_.join(below)
    }

    /// Where the sensors' values below `sys` come from: emulated where the tree says so, else measured.
    pub fn source(&self) -> Source {
        match self.sys(EMULATED).exists() {
            true => Source::Emulated,
            false => Source::Measured,
        }
    }

    /// Whether `sys` is the running kernel's own tree, wherever it is mounted: only then do device files and perf
    /// events, which are not below the roots, speak of the same machine.
    pub fn is_this_kernel(&self) -> bool {
        // The type's width differs between architectures.
        #[allow(
            clippy::unnecessary_cast,
            reason = "f_type has another width on other architectures"
        )]
        rustix::fs::statfs(&self.sys).is_ok_and(|about| about.f_type as i64 == SYSFS_MAGIC)
    }

    /// The same place on this machine: what starts with `/sys` or `/proc` is taken below the roots; anything else,
    /// and what is below a root already, stays as it is.
    pub fn map(&self, absolute: &Path) -> PathBuf {
        if absolute.starts_with(&self.sys) || absolute.starts_with(&self.proc_) {
            return absolute.to_path_buf();
        }
        if let Ok(below) = absolute.strip_prefix("/sys") {
            return self.sys.join(below);
        }
        if let Ok(below) = absolute.strip_prefix("/proc") {
            return self.proc_.join(below);
        }
        absolute.to_path_buf()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mark_makes_a_tree_emulated_and_no_plain_tree_is_the_kernels() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::at(dir.path(), "/proc");
        assert_eq!(roots.source(), Source::Measured);
        std::fs::create_dir(dir.path().join("headroom-testbed")).unwrap();
        std::fs::write(dir.path().join(EMULATED), "").unwrap();
        assert_eq!(roots.source(), Source::Emulated);
        assert!(!roots.is_this_kernel());
        assert!(Roots::default().is_this_kernel() || !Path::new("/sys/kernel").exists());
    }

    #[test]
    fn absolute_paths_are_taken_below_the_roots() {
        let roots = Roots::at("/host/sys", "/host/proc");
        assert_eq!(
            roots.map(Path::new("/sys/fs/cgroup")),
            Path::new("/host/sys/fs/cgroup")
        );
        assert_eq!(
            roots.map(Path::new("/proc/1/cgroup")),
            Path::new("/host/proc/1/cgroup")
        );
        assert_eq!(
            roots.map(Path::new("/host/sys/fs/cgroup")),
            Path::new("/host/sys/fs/cgroup")
        );
        assert_eq!(roots.map(Path::new("/cgroup/cpu")), Path::new("/cgroup/cpu"));
        assert_eq!(Roots::default().map(Path::new("/sys/fs")), Path::new("/sys/fs"));
    }
}
