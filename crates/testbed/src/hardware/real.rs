//! The real control groups behind the emulated ones: each emulated group is a real one below a base group of the
//! emulator's, whose CPU quota is the emulated entitlement turned into real cores. Version 1 and version 2.

use super::backing::{Backing, Sample};
use super::error::HardwareError;
use super::place::{Counters, CpuLimit, Place, errno, hierarchy, read};
use super::record::{Record, Recovered};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writing a quota hands it out anew at once, so writing often would give more than it says: changes smaller than a quarter
/// wait until the last write is this long ago, and changes smaller than a hundredth are not made.
const BETWEEN_WRITES: Duration = Duration::from_millis(100);
const LARGE_CHANGE: f64 = 0.25;
const SMALL_CHANGE: f64 = 0.01;
/// Processes may be born while they are moved out of a group: so often it is tried again.
const MOVE_ROUNDS: usize = 20;

/// One group with what is in force and what was counted.
#[derive(Debug)]
struct Group {
    place: Place,
    limit: CpuLimit,
    last: Option<Counters>,
}

impl Group {
    fn new(place: Place) -> Self {
        let last = place.counters().ok();
        Self {
            place,
            limit: CpuLimit::UNLIMITED,
            last,
        }
    }
}

/// The real groups of one emulator.
#[derive(Debug)]
pub(super) struct RealGroups {
    root: Place,
    base: Place,
    /// The group that the mount point of the hierarchy shows: `/` but in a container.
    mounted_root: String,
    above: Place,
    /// By emulated name; the empty one is the base.
    groups: BTreeMap<String, Group>,
    record: Record,
    record_path: PathBuf,
    last_write: Instant,
}

impl RealGroups {
    /// Makes the base group `name` below `parent` (relative to the hierarchy's root), or takes over the one of a killed
    /// emulator that the record tells of: its limits are lifted, empty groups are removed.
    ///
    /// # Errors
    /// [`HardwareError`]: no cpu controller; the emulator of the record still runs; a group of that name exists without a
    /// record; or the kernel refuses.
    pub(super) fn open(parent: &str, name: &str, record_path: &Path) -> Result<Self, HardwareError> {
        let (root, mounted_root) = hierarchy()?;
        let above = root.below(parent.trim_matches('/'));
        let base = above.below(name);
        let mut record = Record::new().map_err(|cause| HardwareError::Io {
            action: "begin the emulator's undo record",
            path: record_path.to_path_buf(),
            cause,
            remedy: "it names this process and when that began, as /proc/self/stat has it: mount /proc, allow more open files",
        })?;
        let mut adopted = false;
        if let Some(old) = Record::load(record_path)? {
            if old.owner_runs() {
                return Err(HardwareError::StillRuns {
                    pid: old.pid,
                    path: record_path.to_path_buf(),
                });
            }
            adopted = old.base.as_ref().is_some_and(|(place, _)| *place == base) && base.cpu.is_dir();
            if adopted {
                record.enabled_in.clone_from(&old.enabled_in);
            } else {
                undo(&old)?;
            }
        }
        record.base = Some((base.clone(), above.clone()));
        let fail = |action, remedy| {
            let path = base.cpu.clone();
            move |cause| HardwareError::Io {
                action,
                path,
                cause,
                remedy,
            }
        };
        if !adopted {
            if base.cpu.exists() {
                let remedy =
                    "it was left by something whose undo record is gone: remove it, or choose another name";
                return Err(fail("make", remedy)(io::ErrorKind::AlreadyExists.into()));
            }
            if !base.v1
                && !read(&above.cpu.join("cgroup.subtree_control"))
                    .is_ok_and(|on| on.split(' ').any(|c| c == "cpu"))
            {
                record.enabled_in = Some(above.cpu.join("cgroup.subtree_control"));
            }
        }
        record.save(record_path)?;
        let mut all = Self {
            root,
            base: base.clone(),
            mounted_root,
            above,
            groups: BTreeMap::from([(String::new(), Group::new(base.clone()))]),
            record,
            record_path: record_path.to_path_buf(),
            last_write: Instant::now(),
        };
        let made = if adopted { all.take_over() } else { all.make_base() };
        if let Err(cause) = made {
            // What was made until here goes again; the first error is the one that matters.
            let _ = all.close();
            return Err(fail(
                "set up",
                "run as root, with the cpu controller's hierarchy mounted read-write",
            )(cause));
        }
        Ok(all)
    }

    fn make_base(&mut self) -> io::Result<()> {
        if let Some(file) = &self.record.enabled_in {
            fs::write(file, "+cpu")?;
        }
        let base = &self.base;
        base.make()?;
        base.prefer()?;
        if !base.v1 {
            fs::write(base.cpu.join("cgroup.subtree_control"), "+cpu")?;
        }
        Ok(())
    }

    /// Lifts the limits of the groups that were found, and keeps those that hold processes.
    fn take_over(&mut self) -> io::Result<()> {
        let base = self.base.clone();
        base.set_limit(CpuLimit::UNLIMITED)?;
        base.prefer()?;
        let names = base.groups_below();
        for name in &names {
            base.below(name).set_limit(CpuLimit::UNLIMITED)?;
        }
        for name in names.iter().rev() {
            let place = base.below(name);
            let alone = place.groups_below().is_empty();
            if alone && place.processes()?.is_empty() {
                place.remove()?;
            } else {
                self.groups.insert(name.clone(), Group::new(place));
            }
        }
        Ok(())
    }

    /// The groups that were taken over, a group before its children.
    pub(super) fn names(&self) -> Vec<String> {
        self.groups
            .keys()
            .filter(|name| !name.is_empty())
            .cloned()
            .collect()
    }

    fn get(&self, name: &str) -> Result<&Group, Errno> {
        self.groups.get(name).ok_or(Errno::NOENT)
    }
}

impl Backing for RealGroups {
    fn describe(&self) -> String {
        format!("real control groups below {}", self.base.cpu.display())
    }

    fn create(&mut self, name: &str) -> Result<(), Errno> {
        let above = self.get(super::groups::parent(name))?.place.clone();
        let place = above.below(name.rsplit('/').next().unwrap_or_default());
        // Version 2 gives the controller to children only where the group above passes it on.
        if !place.v1 {
            fs::write(above.cpu.join("cgroup.subtree_control"), "+cpu").map_err(|cause| errno(&cause))?;
        }
        place.make().map_err(|cause| errno(&cause))?;
        self.groups.insert(name.into(), Group::new(place));
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), Errno> {
        let place = &self.get(name)?.place;
        place.remove().map_err(|cause| errno(&cause))?;
        self.groups.remove(name);
        Ok(())
    }

    fn processes(&self, name: &str) -> Result<Vec<u32>, Errno> {
        let place = if name.is_empty() {
            &self.above
        } else {
            &self.get(name)?.place
        };
        place.processes().map_err(|cause| errno(&cause))
    }

    fn enter(&mut self, name: &str, pid: u32) -> Result<(), Errno> {
        let place = if name.is_empty() {
            &self.above
        } else {
            &self.get(name)?.place
        };
        place.enter(pid).map_err(|cause| errno(&cause))
    }

    fn group_of(&self, pid: u32) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let wanted = |controllers: &str| match self.root.v1 {
            true => controllers.split(',').any(|c| c == "cpu"),
            false => controllers.is_empty(),
        };
        let group = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, group) = (fields.next()?, fields.next()?);
            wanted(controllers).then_some(group)
        })?;
        let below = Path::new(group)
            .strip_prefix(&self.mounted_root)
            .unwrap_or(Path::new(""))
            .to_path_buf();
        let dir = self.root.cpu.join(below);
        let found = self
            .groups
            .iter()
            .find(|(name, known)| !name.is_empty() && known.place.cpu == dir);
        Some(found.map(|(name, _)| name.clone()).unwrap_or_default())
    }

    fn sample(&mut self, name: &str) -> Option<Sample> {
        let group = self.groups.get_mut(name)?;
        let now = group.place.counters().ok()?;
        let before = group.last.replace(now)?;
        let share = if group.limit.quota_us.is_some() {
            group.limit.cores()
        } else {
            0.0
        };
        Some(Sample {
            used_s: (now.used_s - before.used_s).max(0.0),
            share,
            periods: now.periods.saturating_sub(before.periods),
            throttled_periods: now.throttled_periods.saturating_sub(before.throttled_periods),
            throttled_s: (now.throttled_s - before.throttled_s).max(0.0),
        })
    }

    fn apply(&mut self, shares: &[(String, f64)]) {
        let wanted: Vec<(&String, CpuLimit)> = shares
            .iter()
            .map(|(name, cores)| (name, CpuLimit::of(*cores)))
            .collect();
        let change = |(name, limit): &(&String, CpuLimit)| match self.groups.get(*name) {
            Some(group) if group.limit.quota_us.is_none() => f64::INFINITY,
            Some(group) => (limit.cores() - group.limit.cores()).abs() / group.limit.cores(),
            None => 0.0,
        };
        let largest = wanted.iter().map(change).fold(0.0, f64::max);
        if largest < SMALL_CHANGE || (largest < LARGE_CHANGE && self.last_write.elapsed() < BETWEEN_WRITES) {
            return;
        }
        // Version 1 refuses a share above that of the group above: lower from the leaves up, then raise from the root down.
        let lower = |name: &str, limit: CpuLimit| {
            self.groups
                .get(name)
                .is_some_and(|g| limit.cores() < g.limit.cores())
        };
        let (down, up): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(name, limit)| lower(name, *limit));
        for (name, limit) in down.into_iter().rev().chain(up) {
            let Some(group) = self.groups.get_mut(name) else {
                continue;
            };
            if group.limit == limit {
                continue;
            }
            match group.place.set_limit(limit) {
                Ok(()) => group.limit = limit,
                // The group may have gone with its service: what is in force is then nothing.
                Err(error) => {
                    let path = group.place.cpu.display();
                    tracing::debug!(%error, %path, "the emulator could not set the real CPU limit");
                }
            }
        }
        self.last_write = Instant::now();
    }

    fn close(&mut self) -> Result<Recovered, HardwareError> {
        self.groups.retain(|name, _| name.is_empty());
        let recovered = undo(&self.record)?;
        Record::remove(&self.record_path)?;
        Ok(recovered)
    }
}

/// Undoes what a record says.
pub(super) fn undo(record: &Record) -> Result<Recovered, HardwareError> {
    let mut done = Recovered::default();
    if let Some((base, above)) = record
        .base
        .as_ref()
        .filter(|(base, _)| base.dirs().any(|dir| dir.is_dir()))
    {
        let mut names = base.groups_below();
        names.insert(0, String::new());
        for name in names.iter().rev() {
            let place = if name.is_empty() {
                base.clone()
            } else {
                base.below(name)
            };
            empty(&place, above, &mut done.moved)?;
            done.removed.push(place.cpu);
        }
    }
    if let Some(file) = &record.enabled_in {
        // Somebody else may use the controller there by now, and the kernel then refuses: it stays on, which limits nobody.
        let _ = fs::write(file, "-cpu");
    }
    Ok(done)
}

/// Moves all processes out of a group and removes it.
fn empty(place: &Place, above: &Place, moved: &mut Vec<u32>) -> Result<(), HardwareError> {
    let mut result = Ok(());
    for _ in 0..MOVE_ROUNDS {
        for pid in place.processes().unwrap_or_default() {
            // One that ended meanwhile need not be moved.
            if above.enter(pid).is_ok() && !moved.contains(&pid) {
                moved.push(pid);
            }
        }
        result = place.remove();
        match &result {
            Err(cause) if errno(cause) == Errno::BUSY => std::thread::sleep(Duration::from_millis(5)),
            _ => break,
        }
    }
    result.map_err(|cause| HardwareError::Io {
        action: "remove",
        path: place.cpu.clone(),
        cause,
        remedy: "see which processes are in it (cgroup.procs), and try again",
    })
}
