//! What a group used of the CPU time that it could have used, for as long as it is there, and again once it is back.
//!
//! The utilisation of a service that shares its machine is that share, not the machine's: throughput over it is what the
//! service could serve with all that it may use.

use super::quota::allowance;
use super::{CpuError, UsageMeter};
use crate::Roots;
use crate::cgroup::{Target, UsageFile};
use headroom_units::{Cores, Seconds};
/// CPU time that a group used and that it could have used, since its meter was opened.
pub use headroom_wire::message::GroupCounters as GroupUsage;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One that cannot be read is opened anew at most this often.
const REOPEN: Duration = Duration::from_secs(1);

/// Where what could be used changed by more than this share between two readings, when it did decides too much.
const STEADY: f64 = 0.25;

/// Epochs of all meters of this process: none is given twice, so that no two meters' counters are ever compared.
static NEXT_EPOCH: AtomicU64 = AtomicU64::new(1);

fn next_epoch() -> u64 {
    NEXT_EPOCH.fetch_add(1, Ordering::Relaxed)
}

/// Which directories a group has: other numbers are another group of the same name. The kernel gives none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity([Option<(u64, u64)>; 2]);

impl Identity {
    fn of(target: &Target) -> Self {
        let number = |dir: &Path| {
            let about = std::fs::metadata(dir).ok()?;
            Some((about.dev(), about.ino()))
        };
        let counted = target.usage.as_ref().and_then(|file| match file {
            UsageFile::V1(path) | UsageFile::V2(path) => path.parent(),
        });
        Self([number(&target.cpu_dir), counted.and_then(number)])
    }
}

/// Reads what one group used of what it could have used.
#[derive(Debug)]
pub struct GroupMeter {
    roots: Roots,
    target: Target,
    opened: Option<Opened>,
    /// When it is opened again, and why it could not be read.
    failed: Option<(Instant, String)>,
    usage: GroupUsage,
}

/// The group as it is now.
#[derive(Debug)]
struct Opened {
    meter: UsageMeter,
    identity: Identity,
    /// How often its counters had started anew.
    rebases: u64,
    /// What it could use at the reading before.
    allowed: Cores,
}

impl Opened {
    fn new(roots: &Roots, target: &Target) -> Result<Self, CpuError> {
        let identity = Identity::of(target);
        Ok(Self {
            allowed: allowance(roots, target)?,
            meter: UsageMeter::open(roots, target)?,
            identity,
            rebases: 0,
        })
    }
}

impl GroupMeter {
    /// Takes the first reading.
    ///
    /// # Errors
    /// [`CpuError`]: nothing counts this group's CPU time, or its files cannot be read.
    pub fn open(roots: &Roots, target: &Target) -> Result<Self, CpuError> {
        Ok(Self {
            opened: Some(Opened::new(roots, target)?),
            roots: roots.clone(),
            target: target.clone(),
            failed: None,
            usage: GroupUsage {
                epoch: next_epoch(),
                ..GroupUsage::default()
            },
        })
    }

    /// What the user called the group.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// The counters now.
    ///
    /// # Errors
    /// Why they cannot be read, in words. The meter stays usable, and goes on in another epoch once they can be again.
    pub fn sample(&mut self) -> Result<GroupUsage, String> {
        if let Some((again, why)) = &self.failed
            && Instant::now() < *again
        {
            return Err(why.clone());
        }
        match self.read() {
            Ok(()) => {
                self.failed = None;
                Ok(self.usage)
            }
            Err(error) => {
                self.opened = None;
                let (target, dir) = (self.target.name.clone(), self.target.cpu_dir.clone());
                let error = match dir.is_dir() {
                    true => error,
                    false => CpuError::Gone { target, dir },
                };
                let why = error.to_string();
                self.failed = Some((Instant::now() + REOPEN, why.clone()));
                Err(why)
            }
        }
    }

    fn read(&mut self) -> Result<(), CpuError> {
        let Some(opened) = &mut self.opened else {
            return self.begin_anew();
        };
        let sample = opened.meter.sample()?;
        let allowed = allowance(&self.roots, &self.target)?;
        // After the reading: directories that are still those of the opening were so at the reading too.
        if Identity::of(&self.target) != opened.identity {
            return self.begin_anew();
        }
        let before = std::mem::replace(&mut opened.allowed, allowed);
        let mean = (allowed + before) / 2.0;
        let steady = (allowed - before).get().abs() <= allowed.max(before).get() * STEADY;
        self.usage.used += sample.used.to_duration();
        self.usage.allowed += Seconds::new(sample.elapsed.get() * mean.get()).to_duration();
        let rebased = std::mem::replace(&mut opened.rebases, sample.rebases) != sample.rebases;
        if rebased || !steady {
            self.usage.epoch = next_epoch();
        }
        Ok(())
    }

    fn begin_anew(&mut self) -> Result<(), CpuError> {
        self.opened = Some(Opened::new(&self.roots, &self.target)?);
        self.usage.epoch = next_epoch();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::TargetSpec;
    use headroom_units::Ratio;
    use proptest::prelude::*;
    use std::fs;

    fn usage(epoch: u64, used_ms: u64, allowed_ms: u64) -> GroupUsage {
        GroupUsage {
            epoch,
            used: Duration::from_millis(used_ms),
            allowed: Duration::from_millis(allowed_ms),
        }
    }

    #[test]
    fn a_share_is_of_what_could_be_used_in_one_epoch() {
        let before = usage(1, 100, 1_000);
        let share = |used_ms, allowed_ms| usage(1, used_ms, allowed_ms).share_since(&before);
        assert_eq!(share(400, 2_000), Some(Ratio::new(0.3)));
        assert_eq!(share(1_200, 2_000), Some(Ratio::new(1.0)));
        assert_eq!(
            (share(400, 1_000), share(99, 2_000), share(400, 999)),
            (None, None, None)
        );
        assert_eq!(usage(2, 400, 2_000).share_since(&before), None);
    }

    /// A machine of four processors with one version 2 group, made of plain files.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            let mount = tree.path("sys/fs/cgroup");
            fs::create_dir_all(&mount).unwrap();
            fs::create_dir_all(tree.path("sys/devices/system/cpu")).unwrap();
            fs::create_dir_all(tree.path("proc/self")).unwrap();
            fs::write(tree.path("sys/devices/system/cpu/online"), "0-3\n").unwrap();
            fs::write(mount.join("cgroup.controllers"), "cpu\n").unwrap();
            let line = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n";
            fs::write(tree.path("proc/self/mountinfo"), line).unwrap();
            tree.make(0, "max 100000");
            tree
        }

        fn path(&self, below: &str) -> std::path::PathBuf {
            self.0.path().join(below)
        }

        fn make(&self, used_us: u64, limit: &str) {
            fs::create_dir(self.path("sys/fs/cgroup/web")).unwrap();
            self.used(used_us);
            fs::write(self.path("sys/fs/cgroup/web/cpu.max"), limit).unwrap();
        }

        fn used(&self, us: u64) {
            let text = format!("usage_usec {us}\nnr_periods 0\n");
            fs::write(self.path("sys/fs/cgroup/web/cpu.stat"), text).unwrap();
        }

        fn open(&self) -> GroupMeter {
            let roots = Roots::at(self.path("sys"), self.path("proc"));
            let target = Target::resolve(&roots, &TargetSpec::Path("/web".into())).unwrap();
            GroupMeter::open(&roots, &target).unwrap()
        }
    }

    #[test]
    fn what_was_used_is_a_share_of_the_quota_where_there_is_one() {
        for (limit, cores) in [("max 100000", 4.0), ("50000 100000", 0.5)] {
            let tree = Tree::new();
            fs::write(tree.path("sys/fs/cgroup/web/cpu.max"), limit).unwrap();
            let mut meter = tree.open();
            let began = Instant::now();
            let before = meter.sample().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            tree.used(20_000);
            let after = meter.sample().unwrap();
            assert_eq!(after.used - before.used, Duration::from_millis(20));
            let allowed = (after.allowed - before.allowed).as_secs_f64() / cores;
            assert!(
                allowed >= 0.05 && allowed <= began.elapsed().as_secs_f64(),
                "{allowed}"
            );
            assert!(after.share_since(&before).is_some());
        }
    }

    #[test]
    fn a_limit_that_changes_much_between_two_readings_is_another_epoch() {
        let tree = Tree::new();
        let limit =
            |us: u64| fs::write(tree.path("sys/fs/cgroup/web/cpu.max"), format!("{us} 100000")).unwrap();
        limit(100_000);
        let mut meter = tree.open();
        let mut steady = |us| {
            let before = meter.sample().unwrap();
            limit(us);
            std::thread::sleep(Duration::from_millis(2));
            meter.sample().unwrap().share_since(&before).is_some()
        };
        assert_eq!(
            [110_000, 90_000, 60_000, 60_000, 90_000].map(&mut steady),
            [true, true, false, true, false]
        );
    }

    #[test]
    fn a_group_that_goes_is_told_and_one_that_comes_back_is_another_epoch() {
        let tree = Tree::new();
        let mut meter = tree.open();
        tree.used(100);
        let before = meter.sample().unwrap();
        fs::remove_dir_all(tree.path("sys/fs/cgroup/web")).unwrap();
        let why = meter.sample().unwrap_err();
        assert!(why.contains("cgroup /web is gone"), "{why}");
        // It has used more than the first had, which would be no step back.
        tree.make(900, "max 100000");
        let due = meter.failed.as_ref().unwrap().0;
        let again = meter.sample();
        // On a machine that was stopped meanwhile its time has come.
        if Instant::now() < due {
            assert_eq!(again, Err(why), "it is not tried again at once");
        }
        std::thread::sleep(REOPEN);
        let back = meter.sample().unwrap();
        assert_eq!(back.share_since(&before), None);
        std::thread::sleep(Duration::from_millis(2));
        assert!(meter.sample().unwrap().share_since(&back).is_some());
    }

    #[test]
    fn a_group_that_was_made_anew_between_two_readings_is_another_epoch() {
        let tree = Tree::new();
        let mut meter = tree.open();
        tree.used(100);
        let before = meter.sample().unwrap();
        // The old directory is kept, so that its number is not given to the new one.
        fs::rename(tree.path("sys/fs/cgroup/web"), tree.path("sys/fs/cgroup/old")).unwrap();
        tree.make(900, "max 100000");
        assert_eq!(meter.sample().unwrap().share_since(&before), None);
    }

    #[test]
    fn a_counter_that_jumps_is_another_epoch_and_two_meters_never_share_one() {
        let tree = Tree::new();
        let (mut meter, mut other) = (tree.open(), tree.open());
        let mut before = meter.sample().unwrap();
        assert_ne!(before.epoch, other.sample().unwrap().epoch);
        for jump in [3_600_000_000, 100] {
            tree.used(jump);
            let after = meter.sample().unwrap();
            assert_eq!((after.share_since(&before), after.used), (None, before.used));
            before = after;
        }
    }

    proptest! {
        #[test]
        fn whatever_two_readings_say_a_share_is_from_0_to_1(
            one in any::<(bool, u64, u64)>(), other in any::<(bool, u64, u64)>(),
        ) {
            let of = |(epoch, used, allowed): (bool, u64, u64)| GroupUsage {
                epoch: epoch.into(),
                used: Duration::from_micros(used),
                allowed: Duration::from_micros(allowed),
            };
            if let Some(share) = of(one).share_since(&of(other)) {
                prop_assert!((0.0..=1.0).contains(&share.get()));
            }
        }
    }
}
