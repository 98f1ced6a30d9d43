//! The emulated hardware as a program sees it: through the kernel, with std::fs. Root only; for another user each test
//! says that it is skipped.

mod faults;
mod files;
mod frequencies;
mod groups;
mod killed;
mod real;

use headroom_testbed::hardware::{Emulated, HardwareConfig, RealOptions};
use headroom_units::Seconds;
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Whether emulated hardware can be mounted here; says so where not.
fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = Path::new("/dev/fuse").exists();
    if !root || !device {
        println!("skipped: needs root and /dev/fuse (root: {root}, /dev/fuse: {device})");
    }
    root && device
}

/// A mounted machine whose time stands still until the test moves it, and the directory that goes with it.
struct Bench {
    emulated: Emulated,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(config: HardwareConfig) -> Option<Self> {
        Self::with(HardwareConfig {
            tick: Seconds::ZERO,
            ..config
        })
    }

    fn with(config: HardwareConfig) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        // Other users must get as far as the tree itself.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let emulated = Emulated::mount(config, None, &dir.path().join("sys")).unwrap();
        Some(Self { emulated, dir })
    }

    fn path(&self, below: &str) -> PathBuf {
        self.emulated.root().join(below)
    }

    fn read(&self, below: &str) -> Result<String, Errno> {
        fs::read_to_string(self.path(below))
            .map(|text| text.trim_end().to_string())
            .map_err(errno)
    }

    fn number(&self, below: &str) -> u64 {
        self.read(below)
            .unwrap_or_else(|e| panic!("{below}: {e}"))
            .parse()
            .unwrap()
    }

    fn write(&self, below: &str, text: &str) -> Result<(), Errno> {
        write(&self.path(below), text)
    }

    fn list(&self, below: &str) -> Result<Vec<String>, Errno> {
        let names = fs::read_dir(self.path(below)).map_err(errno)?;
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        Ok(names)
    }

    fn command(&self, line: &str) {
        self.write("headroom-testbed/faults", line)
            .unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or_else(|| panic!("not an error of the kernel: {error}"))
}

/// Writes as an agent does: open an existing file, one write.
fn write(path: &Path, text: &str) -> Result<(), Errno> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .map_err(errno)?;
    file.write_all(text.as_bytes()).map_err(errno)
}

/// Real control groups with a name that no other test has.
fn real_options(dir: &Path) -> RealOptions {
    let unique = dir.file_name().unwrap().to_string_lossy().replace('.', "");
    RealOptions {
        name: format!("headroom-test-{unique}"),
        parent: "/".into(),
        record: dir.join("record.json"),
    }
}
