//! What the whole machine did: processor time by kind, and what passed its network links (`/proc/stat`, `/proc/net/dev`).
//!
//! ```
//! use headroom_node::Roots;
//! use headroom_node::work::MachineWork;
//!
//! let work = MachineWork::read(&Roots::default())?;
//! assert!(work.busy >= work.softirq);
//! assert!(work.links.iter().any(|link| link.name == "lo"));
//! # Ok::<(), headroom_node::work::WorkError>(())
//! ```

use crate::Roots;
use crate::file::{self, FileError};
use headroom_units::Seconds;
use std::path::PathBuf;

/// Clock ticks of a second in `/proc/stat`: USER_HZ, 100 on every architecture that Linux has RAPL or hwmon power on.
pub(crate) const USER_HZ: f64 = 100.0;
/// The most links of which the counts are taken; a machine with many containers has one for each.
pub const MAX_LINKS: usize = 64;

/// Counters that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file that holds something else.
    #[error("{}: does not show {wanted}: this needs Linux's own /proc", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
    },
}

/// What the machine did since it started. Nothing here falls, but where processors are taken away or links begin anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineWork {
    /// Time of its processors that was not idle: guests, interrupts and software interrupts are in it, waiting for disks and what the
    /// hypervisor gave to others are not.
    pub busy: Seconds,
    /// Of it, software interrupts: most of what receiving and sending packets takes outside of the programs.
    pub softirq: Seconds,
    /// Its network links, by name; at most [`MAX_LINKS`], those beyond are left out. Empty where they could not be read: every machine
    /// has a loopback.
    pub links: Vec<LinkWork>,
    pub(crate) ticks: CpuTicks,
}

/// What passed a network link since it is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkWork {
    /// Its name: `eth0`, `lo`.
    pub name: String,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Its nominal speed, bits a second; `None` where it has none (the loopback), or none now (no cable).
    pub bits_per_s: Option<f64>,
}

impl MachineWork {
    /// Reads the counters. The links are those of the process's own network namespace.
    ///
    /// # Errors
    /// [`WorkError`]: `/proc/stat` cannot be read, or holds something else.
    pub fn read(roots: &Roots) -> Result<Self, WorkError> {
        let path = roots.proc_("stat");
        let ticks = CpuTicks::of(&file::read(&path)?);
        let ticks = ticks.ok_or(WorkError::Missing {
            path,
            wanted: "the line \"cpu\" with processor time",
        })?;
        let text = file::read(&roots.proc_("net/dev")).ok();
        let mut links = text.and_then(|text| links(&text)).unwrap_or_default();
        for link in &mut links {
            link.bits_per_s = speed(roots, &link.name);
        }
        Ok(Self {
            busy: Seconds::new(ticks.busy() as f64 / USER_HZ),
            softirq: Seconds::new(ticks.softirq as f64 / USER_HZ),
            links,
            ticks,
        })
    }

    /// A link by its name.
    pub fn link(&self, name: &str) -> Option<&LinkWork> {
        self.links.iter().find(|link| link.name == name)
    }
}

/// The nominal speed, which the kernel says in megabits a second, and -1 or an error where there is none
/// (Documentation/ABI/testing/sysfs-class-net).
fn speed(roots: &Roots, name: &str) -> Option<f64> {
    let text = file::read(&roots.sys("class/net").join(name).join("speed")).ok()?;
    let megabits: f64 = text.trim().parse().ok()?;
    (megabits > 0.0).then_some(megabits * 1e6)
}

/// The first line of `/proc/stat` (proc_stat(5)): ticks of all processors together. Guests' time is in `user` and `nice` already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    user: u64,
    nice: u64,
    system: u64,
    idle: u64,
    iowait: u64,
    irq: u64,
    softirq: u64,
    steal: u64,
}

impl CpuTicks {
    /// Of the file's text; kernels before 2.6.11 have fewer columns, those that are not there are 0. `None` of anything else.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let mut ticks = [0; 8];
        let mut found = 0;
        for (tick, word) in ticks.iter_mut().zip(line.split_whitespace()) {
            *tick = word.parse().ok()?;
            found += 1;
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
        // A sum of them that is no number is a broken file.
        ticks.iter().try_fold(0u64, |sum, tick| sum.checked_add(*tick))?;
        (found >= 4).then_some(Self {
            user,
            nice,
            system,
            idle,
            iowait,
            irq,
            softirq,
            steal,
        })
    }

    /// What was worked: neither idle, nor waiting for a disk, nor taken by the hypervisor.
    pub(crate) const fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// What was worked, and what the hypervisor took meanwhile.
    pub(crate) const fn busy_or_stolen(&self) -> u64 {
        self.busy() + self.steal
    }

    /// All of it.
    pub(crate) const fn all(&self) -> u64 {
        self.busy_or_stolen() + self.idle + self.iowait
    }
}

/// The interfaces of `/proc/net/dev`: two lines of heads, then `name: bytes packets errs ... bytes packets ...`, eight columns received and
/// eight sent.
fn links(text: &str) -> Option<Vec<LinkWork>> {
    let mut found = Vec::new();
    for line in text.lines().skip(2).take(MAX_LINKS) {
        let (name, counts) = line.rsplit_once(':')?;
        let counts: Vec<u64> = counts
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        found.push(LinkWork {
            name: name.trim().to_owned(),
            received: *counts.first()?,
            sent: *counts.get(8)?,
            bits_per_s: None,
        });
    }
    text.starts_with("Inter-").then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use proptest::prelude::*;

    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000       10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0:123456     200    0    0    0     0          0         0   654321     300    0    0    0     0       0          0
";

    #[test]
    fn processor_time_and_links_are_read_and_a_speed_where_there_is_one() {
        let tree = Tree::new();
        tree.put(
            "proc/stat",
            "cpu  100 20 30 800 50 1 200 7 60 0\ncpu0 50 10 15 400 25 0 1 3 30 0\n",
        );
        tree.put("proc/net/dev", DEV);
        tree.put("sys/class/net/eth0/speed", "1000\n");
        tree.put("sys/class/net/lo/speed", "-1\n");
        let work = MachineWork::read(&tree.roots()).unwrap();
        assert_eq!((work.busy, work.softirq), (Seconds::new(3.51), Seconds::new(2.0)));
        let eth0 = work.link("eth0").unwrap();
        assert_eq!(
            (eth0.received, eth0.sent, eth0.bits_per_s),
            (123_456, 654_321, Some(1e9))
        );
        assert_eq!(work.link("lo").unwrap().bits_per_s, None);
        assert_eq!(work.link("eth1"), None);
    }

    #[test]
    fn what_is_not_there_is_said_with_the_file() {
        let tree = Tree::new();
        let why = |tree: &Tree| MachineWork::read(&tree.roots()).unwrap_err().to_string();
        assert!(why(&tree).contains("proc/stat"));
        tree.put("proc/stat", "intr 1\n");
        assert!(
            why(&tree).contains("does not show the line \"cpu\""),
            "{}",
            why(&tree)
        );
        tree.put("proc/stat", "cpu 1 2 3 4\n");
        for dev in [None, Some("something else\n"), Some("Inter-\nface\nlo: 1 2\n")] {
            if let Some(text) = dev {
                tree.put("proc/net/dev", text);
            }
            let work = MachineWork::read(&tree.roots()).unwrap();
            assert_eq!((work.busy, work.links.len()), (Seconds::new(0.06), 0), "{dev:?}");
        }
    }

    #[test]
    fn kinds_of_processor_time_are_told_apart() {
        let ticks = CpuTicks::of("cpu  100 20 30 800 50 1 2 7 60 0\ncpu0 1 2 3 4\n").unwrap();
        assert_eq!(
            (ticks.busy(), ticks.busy_or_stolen(), ticks.all()),
            (153, 160, 1010)
        );
        assert_eq!(CpuTicks::of("cpu  1 2 3 4").unwrap().all(), 10);
        for bad in ["cpu  1 2 3\n", "cpu  1 2 x 4\n", "cpuset 1 2 3 4\n", ""] {
            assert_eq!(CpuTicks::of(bad), None, "{bad:?}");
        }
        assert_eq!(CpuTicks::of(&format!("cpu  {0} {0} 0 0\n", u64::MAX)), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".{0,300}") {
            let _ = (CpuTicks::of(&text), links(&text));
            let _ = links(&format!("Inter-\nface\n{text}"));
        }
    }
}
