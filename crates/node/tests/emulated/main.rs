//! Meters, levers and the doctor on emulated hardware, through the kernel: each answer that a real machine can give, given
//! on purpose. Root and `/dev/fuse` only; elsewhere each test says that it is skipped.

mod caps;
mod doctor;
mod frequencies;
mod limits;
mod meters;
#[path = "../common/testing.rs"]
mod testing;

use headroom_node::Roots;
use headroom_node::cgroup::Target;
use headroom_testbed::hardware::config::{RaplConfig, Zones};
use headroom_testbed::hardware::{Control, Emulated, Fault, HardwareConfig, Operation};
use headroom_units::Cores;
use rustix::io::Errno;
use std::fmt::{Debug, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A mounted machine, with a service's group `web` in it.
struct Bench {
    emulated: Emulated,
    dir: tempfile::TempDir,
}

impl Bench {
    /// Nothing, with the reason printed, where it cannot be mounted.
    fn new(config: HardwareConfig) -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        let device = Path::new("/dev/fuse").exists();
        if !root || !device {
            println!("skipped: needs root and /dev/fuse (root: {root}, /dev/fuse: {device})");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let emulated = match Emulated::mount(config, None, &dir.path().join("sys")) {
            Ok(emulated) => emulated,
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        fs::create_dir(emulated.root().join("fs/cgroup/web")).unwrap();
        Some(Self { emulated, dir })
    }

    /// The usual machine.
    fn usual() -> Option<Self> {
        Self::new(HardwareConfig::default())
    }

    /// An AMD server, whose zones have no limits.
    fn amd() -> Option<Self> {
        Self::new(HardwareConfig {
            rapl: RaplConfig {
                zones: Zones::Amd,
                ..RaplConfig::default()
            },
            ..HardwareConfig::default()
        })
    }

    fn roots(&self) -> Roots {
        Roots::at(self.emulated.root(), self.emulated.proc_root())
    }

    fn target(&self) -> Target {
        Target::resolve(&self.roots(), &"/web".parse().unwrap()).unwrap()
    }

    fn machine(&self) -> Control {
        self.emulated.machine()
    }

    fn load(&self, cores: f64) {
        self.machine().set_load("web", Cores::new(cores)).unwrap();
    }

    fn fault(&self, fault: &str) {
        self.machine().inject(fault.parse::<Fault>().unwrap()).unwrap();
    }

    fn fails(&self, on: Operation, errno: Errno, files: &str) {
        self.machine()
            .inject(Fault::error(on, errno, files).unwrap())
            .unwrap();
    }

    /// Gives each answer to an operation on files: the attempt fails with its word, and succeeds again without it.
    fn answers<T: Debug, E: Display>(
        &self,
        on: Operation,
        files: &str,
        said: &[(Errno, &str)],
        mut attempt: impl FnMut() -> Result<T, E>,
    ) {
        for (errno, word) in said {
            self.fails(on, *errno, files);
            match attempt() {
                Ok(done) => panic!("{errno}: {done:?}"),
                Err(error) => assert!(error.to_string().contains(word), "{errno}: {error}"),
            }
            self.clear();
            if let Err(error) = attempt() {
                panic!("after {errno}: {error}");
            }
        }
    }

    fn clear(&self) {
        self.machine().clear_all().unwrap();
    }

    fn path(&self, below: &str) -> PathBuf {
        self.emulated.root().join(below)
    }

    fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below))
            .unwrap_or_else(|error| panic!("{below}: {error}"))
            .trim()
            .to_string()
    }

    fn write(&self, below: &str, text: &str) {
        fs::write(self.path(below), text).unwrap_or_else(|error| panic!("{below}: {error}"));
    }

    /// A file of a package's zone.
    fn zone(&self, package: usize, file: &str) -> String {
        self.read(&format!("class/powercap/intel-rapl:{package}/{file}"))
    }

    fn limit_w(&self, package: usize, constraint: usize) -> f64 {
        let text = self.zone(package, &format!("constraint_{constraint}_power_limit_uw"));
        text.parse::<f64>().unwrap() / 1e6
    }
}

/// What the kernel answers for HSMP, each with a word of what is made of it.
const HSMP_ANSWERS: [(Errno, &str); 6] = [
    (Errno::TIMEDOUT, "enable HSMP in the BIOS"),
    (Errno::NOMSG, "does not know the message"),
    (Errno::REMOTEIO, "not enabled"),
    (Errno::BUSY, "try again"),
    (Errno::PERM, "root"),
    (Errno::NODEV, "driver was unloaded"),
];

/// Waits until it holds; says what did not.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
