//! What the machine would say of itself: plain files in the places of `/sys` and `/proc` that meters read; and the host's control groups,
//! without which no agent starts.
//!
//! Each file keeps its length and is written at once, in place: whoever has it open, or reads it just then, reads numbers.

use super::ServingError;
use super::held::Seen;
use headroom_physics::{ServingKind, ServingLoad};
use headroom_units::Ratio;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// Where the counter wraps: as a server's package does, after hours at these watts.
const RANGE_UJ: u64 = 262_143_328_850;

/// The files that change.
#[derive(Debug)]
pub(super) struct Tree {
    kind: ServingKind,
    energy: File,
    stat: File,
    dev: File,
}

impl Tree {
    /// Makes the tree below an empty folder, or one that such a machine left.
    pub(super) fn make(at: &Path, kind: ServingKind, speed: f64) -> Result<Self, ServingError> {
        let bad = |path: &Path| {
            let path = path.to_owned();
            move |error| ServingError::Tree { path, error }
        };
        let mark = at.join("sys/headroom-testbed/emulated");
        let full = fs::read_dir(at).is_ok_and(|mut entries| entries.next().is_some());
        if full && !mark.exists() {
            return Err(ServingError::NotEmpty { path: at.to_owned() });
        }
        let put = |below: &str, text: &str| {
            let path = at.join(below);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(bad(folder))?;
            }
            fs::write(&path, text).map_err(bad(&path))
        };
        put(
            "sys/headroom-testbed/emulated",
            &format!("{} at {speed} of its speed\n", kind.name()),
        )?;
        put("sys/class/powercap/intel-rapl:0/name", "package-0\n")?;
        put(
            "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
            &format!("{RANGE_UJ}\n"),
        )?;
        // A share of a gigabit, in the whole megabits that the file has.
        let megabits = (1_000.0 * speed).round().max(1.0);
        put("sys/class/net/eth0/speed", &format!("{megabits}\n"))?;
        let last = cores(kind) - 1;
        for list in ["online", "possible", "present"] {
            put(&format!("sys/devices/system/cpu/{list}"), &format!("0-{last}\n"))?;
        }
        // An agent limits a control group of the host: what it commands there holds, though this machine's speed is its own.
        let host = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(host).map_err(bad(host))?;
        let of_groups = mounts.lines().filter(|line| line.contains(" - cgroup"));
        put(
            "proc/self/mountinfo",
            &of_groups.map(|line| format!("{line}\n")).collect::<String>(),
        )?;
        let groups = at.join("sys/fs/cgroup");
        if groups.symlink_metadata().is_err() {
            fs::create_dir_all(at.join("sys/fs")).map_err(bad(&groups))?;
            symlink("/sys/fs/cgroup", &groups).map_err(bad(&groups))?;
        }
        let open = |below: &str| -> Result<File, ServingError> {
            let path: PathBuf = at.join(below);
            put(below, "")?;
            File::options().write(true).open(&path).map_err(bad(&path))
        };
        Ok(Self {
            kind,
            energy: open("sys/class/powercap/intel-rapl:0/energy_uj")?,
            stat: open("proc/stat")?,
            dev: open("proc/net/dev")?,
        })
    }

    /// Brings the files up to date.
    pub(super) fn write(&self, seen: &Seen) -> std::io::Result<()> {
        let microjoules = (seen.done.energy.get() * 1e6) as u64 % RANGE_UJ;
        self.energy
            .write_all_at(format!("{microjoules:020}\n").as_bytes(), 0)?;
        self.stat.write_all_at(stat(self.kind, seen).as_bytes(), 0)?;
        self.dev.write_all_at(dev(seen).as_bytes(), 0)
    }
}

/// Cores that its kernel would list, the driver's among them.
fn cores(kind: ServingKind) -> usize {
    kind.machine().cores + usize::from(kind == ServingKind::Arm)
}

/// `/proc/stat`: the service's time is the user's, the driver's that of soft interrupts.
fn stat(kind: ServingKind, seen: &Seen) -> String {
    let cores = cores(kind);
    // Of times as of shares: what a second's share is of a second, these are of all.
    let load = ServingLoad {
        cpu: Ratio::new(seen.done.cpu_s),
        link: Ratio::new(seen.done.link_s),
    };
    let ticks = |share_s: f64| (share_s * cores as f64 * 100.0) as u64;
    let softirq = ticks(kind.driver_use(load).get());
    let busy = ticks(kind.cpu_use(load).get()).max(softirq);
    let all = ticks(seen.done.at_s).max(busy);
    let line = |name: &str, part: u64| {
        let (user, softirq, idle) = ((busy - softirq) / part, softirq / part, (all - busy) / part);
        format!("{name} {user:020} 0 0 {idle:020} 0 0 {softirq:020} 0 0 0\n")
    };
    let mut text = line("cpu ", 1);
    (0..cores).for_each(|core| text.push_str(&line(&format!("cpu{core}"), cores as u64)));
    text
}

/// `/proc/net/dev`: one link, with the content that passed it.
fn dev(seen: &Seen) -> String {
    format!(
        "Inter-|   Receive                            |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs \
         drop fifo colls carrier compressed\n  eth0: {:020} {:020} 0 0 0 0 0 0 {:020} {:020} 0 0 0 0 0 0\n",
        seen.received,
        seen.received / 1_448,
        seen.sent,
        seen.sent / 1_448,
    )
}
